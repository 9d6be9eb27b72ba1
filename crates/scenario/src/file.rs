//! Text files that a scenario names: traces, profiles, rules.
//!
//! A path is relative to the scenario's own file. The file's content becomes part of the resolved
//! scenario, so that a recording is self-contained, and two runs with the same scenario have read
//! the same files.

use std::fmt::Display;
use std::path::Path;

use super::error::{Problem, Problems};
use super::field::wrong_type;
use super::tree::{Node, Table, Value};

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    /// The path as the scenario gives it.
    pub path: String,
    /// The content.
    pub text: String,
}

/// Adds to an error about a file where relative paths begin, if `path` is one.
pub(super) fn with_folder(problem: Problem, path: &str) -> Problem {
    match Path::new(path).is_relative() {
        true => problem.hint("paths are relative to the scenario's file"),
        false => problem,
    }
}

impl TextFile {
    /// Reads a path and the file there; or `{ path = ..., text = ... }` from a recording.
    pub(super) fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        if let Value::Table(table) = &node.value
            && let (Some(path), Some(text)) = (text_of(table, "path"), text_of(table, "text"))
        {
            let (path, text) = (path.to_owned(), text.to_owned());
            return Some(TextFile { path, text });
        }
        let Value::Text(path) = &node.value else {
            return problems.refuse(wrong_type(key, node, "the path of a file"));
        };
        if !problems.may_name_file(node.within(0..path.len())) {
            return None;
        }
        let whole = problems.folder().join(path);
        match read_utf8(&whole) {
            Ok(text) => Some(TextFile {
                path: path.clone(),
                text,
            }),
            Err(reason) => {
                let message = format!("cannot read `{}`: {reason}", whole.display());
                let problem = Problem::new(node.within(0..path.len()), message);
                problems.refuse(with_folder(problem, path))
            }
        }
    }

    /// Parses the text with `parse`. An error gives the place in the file.
    pub(super) fn parse<T, E: Display>(
        &self,
        node: &Node,
        parse: impl FnOnce(&str) -> Result<T, E>,
        problems: &mut Problems,
    ) -> Option<T> {
        let parsed = parse(&self.text);
        let complain = |error: &E| {
            let message = format!("`{}`: {error}", self.path);
            problems.push(Problem::new(node.at.clone(), message));
        };
        parsed.inspect_err(complain).ok()
    }

    pub(super) fn write(&self) -> Value {
        let mut table = Table::default();
        table.push("path", Value::text(&self.path));
        table.push("text", Value::text(&self.text));
        Value::Table(table)
    }
}

fn text_of<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    match &table.node(key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Decodes the file as UTF-8. A byte that is not UTF-8 is reported with line and column.
pub(super) fn read_utf8(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let (right, wrong) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line_start = right.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let line = right.iter().filter(|b| **b == b'\n').count() + 1;
        // The text before the wrong byte is valid, so its characters can be counted.
        let before = String::from_utf8_lossy(&right[line_start..]);
        let column = before.chars().count() + 1;
        let byte = wrong.first().copied().unwrap_or_default();
        format!("it is not UTF-8 text: byte 0x{byte:02x} at line {line}, column {column}")
    })
}
