//! `[matrix]` and `[[variant]]`: several values for a key, or for several keys together, and the
//! variants that result from crossing them.

use super::Coordinate;
use super::error::{Problem, Problems};
use super::schema::{as_table, items};
use super::set::{set_path, word_of_queue};
use super::source::Place;
use super::tree::{Node, Table, Value};

/// A key with its values, or the rows of `[[variant]]`.
pub(crate) struct Axis {
    /// The key's path, or [`Coordinate::VARIANT`].
    pub path: String,
    path_at: Place,
    points: Vec<Point>,
}

/// One value of an axis.
struct Point {
    name: String,
    /// The value as it is written.
    value: String,
    at: Place,
    settings: Vec<Setting>,
}

/// A key that a point sets.
struct Setting {
    path: String,
    at: Place,
    node: Node,
}

/// A variant before it is parsed into types: its name and its tree.
pub(crate) struct Expansion {
    /// Empty if there is no matrix.
    pub name: String,
    pub tree: Table,
    pub coordinates: Vec<Coordinate>,
}

/// The largest number of variants; more are taken for a mistake.
const MOST_VARIANTS: usize = 10_000;

/// Removes `[[variant]]` and `[matrix]` from the tree and returns their axes, in this order.
pub(crate) fn take_axes(root: &mut Table, problems: &mut Problems) -> Vec<Axis> {
    let mut axes: Vec<Axis> = take_rows(root, problems).into_iter().collect();
    let Some(entry) = root.remove("matrix") else {
        return axes;
    };
    let Some(table) = as_table("`matrix`", &entry.node, problems) else {
        return axes;
    };
    let rows = axes.len();
    collect(table, "", &mut |path, key_at, node| {
        axes.extend(Axis::new(path, key_at, node, problems));
    });
    if axes.len() == rows && problems.is_empty() {
        problems.push(
            Problem::new(entry.key_at, "[matrix] is empty")
                .hint("give a key with values, such as \"link.queue\" = [\"fifo\", \"fq_codel\"]"),
        );
    }
    for (i, axis) in axes.iter().enumerate() {
        let settings = |axis: &'_ Axis| -> Vec<(String, Place)> {
            let all = axis.points.iter().flat_map(|point| &point.settings);
            all.map(|setting| (setting.path.clone(), setting.at.clone()))
                .collect()
        };
        for (path, at) in settings(axis) {
            let others = axes[..i].iter().flat_map(settings);
            for (other, other_at) in others {
                if is_same_key(&path, &other) {
                    // Problems of one place are reported once.
                    problems.push(twice(&path, &at, &other, &other_at));
                }
            }
        }
    }
    axes
}

fn twice(path: &str, at: &Place, other: &str, other_at: &Place) -> Problem {
    let message = match path == other {
        true => format!("`{path}` is set twice"),
        false => format!("`{other}` and `{path}` set the same key"),
    };
    let problem = Problem::new(at.clone(), message).hint("leave out one of the two");
    problem.other(other_at.clone(), "the first is set")
}

/// Returns whether two paths set the same key, or one of them a table with the other's key. A word
/// of a queue can be varied beside the queue itself.
fn is_same_key(a: &str, b: &str) -> bool {
    let covers = |a: &str, b: &str| {
        let below = b.strip_prefix(a).and_then(|rest| rest.strip_prefix('.'));
        a == b || below.is_some_and(|_| word_of_queue(b).is_none_or(|(queue, _)| queue != a))
    };
    covers(a, b) || covers(b, a)
}

/// Removes `[[variant]]` from the tree and returns its rows as an axis.
fn take_rows(root: &mut Table, problems: &mut Problems) -> Option<Axis> {
    let rows = items(Coordinate::VARIANT, root, problems)?.to_vec();
    let entry = root.remove(Coordinate::VARIANT)?;
    let mut points: Vec<Point> = Vec::new();
    for row in &rows {
        let Some(table) = as_table("a row of [[variant]]", row, problems) else {
            continue;
        };
        let name = match table.node("name").map(|node| (&node.value, &node.at)) {
            Some((Value::Text(name), _)) if !name.trim().is_empty() => name.clone(),
            other => {
                let at = other.map_or(row.at.clone(), |(_, at)| at.clone());
                let problem = Problem::new(at, "a row of [[variant]] needs a `name`");
                problems.push(problem.hint("such as name = \"cake\""));
                continue;
            }
        };
        let mut settings: Vec<Setting> = Vec::new();
        collect(table, "", &mut |path, at, node| {
            if path == "name" {
                return;
            }
            if let Some(other) = settings.iter().find(|other| is_same_key(path, &other.path)) {
                problems.push(twice(path, &at, &other.path, &other.at));
            }
            if ["matrix", "variant", "seed"]
                .iter()
                .any(|word| path.split('.').next() == Some(word))
            {
                let problem = Problem::new(at.clone(), format!("a variant cannot set `{path}`"));
                problems.push(problem.hint("it sets keys such as \"link.up.queue\""));
            }
            settings.push(Setting {
                path: path.to_owned(),
                at,
                node: node.clone(),
            });
        });
        let name_at = table.node("name").map_or(&row.at, |node| &node.at);
        if !is_printable(&name, name_at, problems) {
            continue;
        }
        if let Some(first) = points.iter().find(|point| point.name == name) {
            problems.push(
                Problem::new(name_at.clone(), format!("two variants are named `{name}`"))
                    .other(first.at.clone(), "the first"),
            );
            continue;
        }
        points.push(Point {
            value: name.clone(),
            name,
            at: name_at.clone(),
            settings,
        });
    }
    if rows.is_empty() {
        let problem = Problem::new(entry.key_at, "[[variant]] has no rows");
        return problems.refuse(problem.hint("give at least one"));
    }
    Some(Axis {
        path: Coordinate::VARIANT.to_owned(),
        path_at: entry.key_at,
        points,
    })
}

/// Returns whether a variant can have this name, which is printed in tables and names a folder. If not, adds
/// a problem that says why.
fn is_printable(name: &str, at: &Place, problems: &mut Problems) -> bool {
    let Some(c) = name.chars().find(|c| c.is_control()) else {
        return true;
    };
    let message = format!(
        "the name of a variant has the control character U+{:04X}",
        u32::from(c)
    );
    problems.push(Problem::new(at.clone(), message).hint("name it in letters, digits and spaces"));
    false
}

/// Passes on the keys of a table with their paths. A dotted key without quotes has become nested
/// tables.
fn collect(table: &Table, prefix: &str, found: &mut dyn FnMut(&str, Place, &Node)) {
    for entry in &table.0 {
        let path = if prefix.is_empty() {
            entry.key.clone()
        } else {
            format!("{prefix}.{}", entry.key)
        };
        match &entry.node.value {
            Value::Table(inner) if is_section(&path) => collect(inner, &path, found),
            _ => found(&path, entry.key_at.clone(), &entry.node),
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
            if !is_printable(name, &value.at, problems) {
                return None;
            }
            if let Some((_, first)) = values[..i].iter().find(|(other, _)| other == name) {
                return problems.refuse(
                    Problem::new(value.at.clone(), format!("two variants are named `{name}`"))
                        .hint("name them: { first = ..., second = ... }")
                        .other(first.at.clone(), "the first"),
                );
            }
        }
        let point = |(name, node): (String, Node)| Point {
            name,
            value: match &node.value {
                Value::Array(_) | Value::Table(_) => String::new(),
                value => value.to_string(),
            },
            at: node.at.clone(),
            settings: vec![Setting {
                path: path.to_owned(),
                at: path_at.clone(),
                node,
            }],
        };
        Some(Axis {
            path: path.to_owned(),
            points: values.into_iter().map(point).collect(),
            path_at: path_at.clone(),
        })
    }
}

impl Axis {
    /// Keeps only the point that `node` names.
    pub fn keep(&mut self, node: &Node, problems: &mut Problems) {
        let wanted = node.value.to_string();
        if self.points.iter().any(|point| point.name == wanted) {
            self.points.retain(|point| point.name == wanted);
            return;
        }
        let names = self.points.iter().map(|point| point.name.as_str());
        let problem = Problem::new(node.at.clone(), format!("there is no variant `{wanted}`"));
        problems.push(problem.nearest(&wanted, names));
    }

    /// Removes a key that the user has set from the axis. Returns whether anything is left to vary.
    pub fn leave_out(&mut self, path: &str, path_at: &Place, problems: &mut Problems) -> bool {
        let settings = |axis: &Axis| axis.points.iter().map(|point| point.settings.len()).sum();
        let before: usize = settings(self);
        for point in &mut self.points {
            point
                .settings
                .retain(|setting| !replaces(path, &setting.path));
        }
        let after: usize = settings(self);
        if after == before || after == 0 {
            return after > 0;
        }
        let mut pairs = self.points.iter().enumerate().filter_map(|(i, point)| {
            let earlier = self.points[..i].iter().find(|other| other.is_same(point))?;
            Some((earlier, point))
        });
        if let Some((earlier, point)) = pairs.next() {
            let message = format!(
                "the variants `{}` and `{}` differ in nothing but `{path}`",
                earlier.name, point.name
            );
            let hint = format!("choose one of them, too: --set variant={}", earlier.name);
            problems.push(Problem::new(path_at.clone(), message).hint(hint));
        }
        true
    }
}

/// Returns whether the key `set` replaces the key `path`: it is the same, or `path` is it for one
/// direction of the link, as `link.up.queue` is for `link.queue`. `rtt` and `delay` of a link replace
/// each other.
pub(crate) fn replaces(set: &str, path: &str) -> bool {
    let is_same = |path: &str| {
        let for_both = |direction| path.replacen(direction, ".", 1) == set;
        set == path || for_both(".up.") || for_both(".down.")
    };
    let is_of_link = path.starts_with("link.") || path.starts_with("hop.");
    let exchanged = [(".rtt", ".delay"), (".delay", ".rtt")];
    let exchanged =
        exchanged.map(|(of, by)| path.strip_suffix(of).map(|link| link.to_owned() + by));
    let mut exchanged = exchanged.into_iter().flatten();
    is_same(path) || is_of_link && exchanged.any(|other| is_same(&other))
}

impl Point {
    /// Returns whether both set the same keys to the same values.
    fn is_same(&self, other: &Point) -> bool {
        let settings = |point: &'_ Point| -> Vec<(String, Value)> {
            let each = point.settings.iter();
            each.map(|s| (s.path.clone(), s.node.value.clone()))
                .collect()
        };
        settings(self) == settings(other)
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
            // Lines become one line.
            Value::Text(text) if text.contains(char::is_control) => {
                let words: Vec<&str> = text.split_whitespace().collect();
                format!("{key}={}", words.join(" "))
            }
            Value::Array(_) | Value::Table(_) => format!("{key}#{}", i + 1),
            value => format!("{key}={value}"),
        })
        .collect()
}

/// Crosses the axes. The last one varies fastest.
pub(crate) fn expand(root: &Table, axes: &[Axis], problems: &mut Problems) -> Vec<Expansion> {
    let count = axes
        .iter()
        .try_fold(1_usize, |n, axis| n.checked_mul(axis.points.len()))
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
        let mut coordinates = Vec::new();
        let mut settings: Vec<&Setting> = Vec::new();
        for axis in axes.iter().rev() {
            if axis.points.is_empty() {
                continue;
            }
            let point = &axis.points[rest % axis.points.len()];
            rest /= axis.points.len();
            words.push(point.name.as_str());
            coordinates.push(Coordinate {
                key: axis.path.clone(),
                name: point.name.clone(),
                value: match point.value.is_empty() {
                    true => point.name.clone(),
                    false => point.value.clone(),
                },
            });
            settings.extend(&point.settings);
        }
        // Words of a queue are set in the queue that another axis chose, and keys of one direction behind
        // those of both.
        settings.sort_by_key(|Setting { path, .. }| {
            let is_of_one = [".up.", ".down.", "-up.", "-down."]
                .iter()
                .any(|way| path.contains(way));
            (word_of_queue(path).is_some(), is_of_one)
        });
        for Setting { path, at, node } in settings {
            set_path(&mut tree, path, at, node, problems);
        }
        words.reverse();
        coordinates.reverse();
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
            expansions.push(Expansion {
                name,
                tree,
                coordinates,
            });
        }
    }
    expansions
}
