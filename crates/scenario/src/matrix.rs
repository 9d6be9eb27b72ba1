//! `[matrix]`: several values for a key, and the variants that result from crossing them.

use super::error::{Problem, Problems};
use super::schema::as_table;
use super::set::set_path;
use super::source::Place;
use super::tree::{Node, Table, Value};

/// A key with its values.
pub(crate) struct Axis {
    pub path: String,
    path_at: Place,
    values: Vec<(String, Node)>,
}

/// A variant before it is typed: its name and its tree.
pub(crate) struct Expansion {
    /// Empty if there is no matrix.
    pub name: String,
    pub tree: Table,
}

/// The largest number of variants; more are taken for a mistake.
const MOST_VARIANTS: usize = 10_000;

/// Removes `[matrix]` from the tree and returns its variants.
pub(crate) fn take_axes(root: &mut Table, problems: &mut Problems) -> Vec<Axis> {
    let Some(entry) = root.remove("matrix") else {
        return Vec::new();
    };
    let Some(table) = as_table("`matrix`", &entry.node, problems) else {
        return Vec::new();
    };
    let mut axes = Vec::new();
    collect(table, "", &mut axes, problems);
    if axes.is_empty() && problems.is_empty() {
        problems.push(
            Problem::new(entry.key_at, "[matrix] is empty")
                .hint("give a key with values, such as \"link.queue\" = [\"fifo\", \"fq_codel\"]"),
        );
    }
    for (i, axis) in axes.iter().enumerate() {
        for other in &axes[..i] {
            let covers = |a: &str, b: &str| a == b || b.starts_with(&format!("{a}."));
            if covers(&axis.path, &other.path) || covers(&other.path, &axis.path) {
                let message = format!("`{}` and `{}` set the same key", other.path, axis.path);
                problems.push(
                    Problem::new(axis.path_at.clone(), message)
                        .other(other.path_at.clone(), "the first is set"),
                );
            }
        }
    }
    axes
}

/// Collects the axes of a table. A dotted key without quotes has become nested tables.
fn collect(table: &Table, prefix: &str, axes: &mut Vec<Axis>, problems: &mut Problems) {
    for entry in &table.0 {
        let path = if prefix.is_empty() {
            entry.key.clone()
        } else {
            format!("{prefix}.{}", entry.key)
        };
        match &entry.node.value {
            Value::Table(inner) if is_section(&path) => collect(inner, &path, axes, problems),
            _ => axes.extend(Axis::new(
                &path,
                entry.key_at.clone(),
                &entry.node,
                problems,
            )),
        }
    }
}

/// Returns whether a path leads to a table of keys rather than to a key.
fn is_section(path: &str) -> bool {
    let is_one = |prefix| {
        path.strip_prefix(prefix)
            .is_some_and(|rest: &str| !rest.contains('.'))
    };
    let is_direction = path.starts_with("hop.")
        && path.matches('.').count() == 2
        && (path.ends_with(".up") || path.ends_with(".down"));
    matches!(
        path,
        "link" | "link.up" | "link.down" | "hosts" | "measure" | "flow" | "hop"
    ) || is_one("flow.")
        || is_one("hop.")
        || is_direction
}

impl Axis {
    /// Reads the values of a key: a list, or a table of names and values.
    pub fn new(path: &str, path_at: Place, node: &Node, problems: &mut Problems) -> Option<Axis> {
        if path == "matrix" || path.starts_with("matrix.") {
            let message = "a path in [matrix] does not begin with `matrix`";
            return problems.refuse(
                Problem::new(path_at, message)
                    .hint("leave out `matrix.`, as in \"link.queue\" = [\"fifo\", \"codel\"]"),
            );
        }
        let key = path.rsplit('.').next().unwrap_or(path);
        let values: Vec<(String, Node)> = match &node.value {
            Value::Array(items) => {
                let names = names(key, items);
                names.into_iter().zip(items.iter().cloned()).collect()
            }
            Value::Table(table) => table
                .0
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.clone()))
                .collect(),
            other => {
                let message = format!("`{path}` in [matrix] takes a list, not {}", other.kind());
                return problems.refuse(
                    Problem::new(node.at.clone(), message)
                        .hint("write [\"a\", \"b\"], or { name = \"a\", other = \"b\" }"),
                );
            }
        };
        if values.is_empty() {
            let message = format!("`{path}` in [matrix] has no values");
            return problems
                .refuse(Problem::new(node.at.clone(), message).hint("give at least one"));
        }
        for (i, (name, value)) in values.iter().enumerate() {
            if let Some((_, first)) = values[..i].iter().find(|(other, _)| other == name) {
                return problems.refuse(
                    Problem::new(value.at.clone(), format!("two variants are named `{name}`"))
                        .hint("name them: { first = ..., second = ... }")
                        .other(first.at.clone(), "the first"),
                );
            }
        }
        Some(Axis {
            path: path.to_owned(),
            path_at,
            values,
        })
    }
}

/// Returns short names for the values of `key`: the first word where the first words differ (`fifo
/// limit 1000` is `fifo`), else the whole text. A value that does not begin with a letter is
/// prefixed with the key (`rtt=20ms`).
fn names(key: &str, items: &[Node]) -> Vec<String> {
    let first_word = |node: &Node| match &node.value {
        Value::Text(text) => text.split_whitespace().next().map(str::to_owned),
        _ => None,
    };
    let is_enough = |word: &String| {
        items
            .iter()
            .filter(|node| first_word(node).as_ref() == Some(word))
            .count()
            == 1
    };
    items
        .iter()
        .enumerate()
        .map(|(i, node)| match &node.value {
            Value::Text(text) if text.starts_with(char::is_alphabetic) => first_word(node)
                .filter(is_enough)
                .unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Value::Array(_) | Value::Table(_) => format!("{key}#{}", i + 1),
            value => format!("{key}={value}"),
        })
        .collect()
}

/// Crosses the axes. The last one varies fastest.
pub(crate) fn expand(root: &Table, axes: &[Axis], problems: &mut Problems) -> Vec<Expansion> {
    let count = axes
        .iter()
        .try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()))
        .filter(|n| *n <= MOST_VARIANTS);
    let Some(count) = count else {
        let at = axes
            .last()
            .map_or(Place::Nowhere, |axis| axis.path_at.clone());
        let message = format!("[matrix] has more than {MOST_VARIANTS} variants");
        problems.push(Problem::new(at, message));
        return Vec::new();
    };
    let mut expansions = Vec::with_capacity(count);
    for index in 0..count {
        let mut tree = root.clone();
        let mut rest = index;
        let mut words = Vec::new();
        for axis in axes.iter().rev() {
            let (word, node) = &axis.values[rest % axis.values.len()];
            rest /= axis.values.len();
            words.push(word.as_str());
            set_path(&mut tree, &axis.path, &axis.path_at, node, problems);
        }
        words.reverse();
        let name = words.join(" ");
        if expansions.iter().any(|e: &Expansion| e.name == name) {
            let at = axes
                .last()
                .map_or(Place::Nowhere, |axis| axis.path_at.clone());
            problems.push(
                Problem::new(at, format!("two combinations are named `{name}`"))
                    .hint("name the values: { first = ..., second = ... }"),
            );
        } else {
            expansions.push(Expansion { name, tree });
        }
    }
    expansions
}
