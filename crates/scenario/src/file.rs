//! Text files: scenarios, and what they name: traces, profiles, rules.
//!
//! A path is relative to the scenario's own file. The file's content becomes part of the resolved
//! scenario, so that a recording is self-contained, and two runs with the same scenario have read
//! the same files.

use std::fmt::Display;
use std::path::Path;

use super::error::{Problem, Problems, ScenarioErrors};
use super::field::wrong_type;
use super::source::Place;
use super::texts::{Open, open_any, read_utf8};
use super::tree::{Node, Table, Value};
use super::{Scenario, Variant};

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
        match problems.text_of(&whole, opener(&node.at)) {
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

impl Scenario {
    /// Reads the file at `path` with the overrides `sets` (`KEY=VALUE`), and expands its matrix.
    ///
    /// # Errors
    /// The file cannot be read, or there are errors in the file or in `sets`; all of them are
    /// reported.
    pub fn load(path: &Path, sets: &[String]) -> Result<Vec<Variant>, ScenarioErrors> {
        Scenario::load_by(path, open_any, sets)
    }

    /// Does the same as [`Scenario::load`] for a file that was found in a folder: a pipe, whose writer
    /// would be waited for, and a device are refused.
    ///
    /// # Errors
    /// As for [`Scenario::load`], or the file is not a regular one.
    pub fn load_found(path: &Path, sets: &[String]) -> Result<Vec<Variant>, ScenarioErrors> {
        Scenario::load_by(path, sluice_loader::open_regular, sets)
    }

    fn load_by(path: &Path, open: Open, sets: &[String]) -> Result<Vec<Variant>, ScenarioErrors> {
        let read = |reason| ScenarioErrors::Read {
            path: path.to_owned(),
            reason,
        };
        let text = read_utf8(path, open).map_err(read)?;
        Scenario::parse(&path.display().to_string(), &text, sets)
    }
}

/// Returns what opens a file that is named at `at`: an option of the command line may name a pipe. For that of
/// a scenario, a process would wait, and a device may have no end.
pub(crate) fn opener(at: &Place) -> Open {
    match at {
        Place::Option(..) => open_any,
        Place::File(_) | Place::Nowhere => sluice_loader::open_regular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::read_at_most;

    #[test]
    fn a_file_is_not_read_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "12345").unwrap();
        for open in [open_any, sluice_loader::open_regular] {
            let read = |most| read_at_most(most, &path, open);
            assert_eq!(read(5).as_deref(), Ok("12345"));
            assert_eq!(read(4).unwrap_err(), "it has more than 4 bytes");
        }
        // It has no end.
        let endless = read_at_most(1 << 16, Path::new("/dev/zero"), open_any);
        assert_eq!(endless.unwrap_err(), "it has more than 65536 bytes");
    }

    #[test]
    fn a_pipe_on_the_command_line_is_read_once_for_all_variants() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        for (matrix, count) in [
            ("", 1),
            ("[matrix]\n\"link.queue\" = [\"fifo\", \"codel\"]\n", 2),
        ] {
            let (pipe, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"1\n2\n").unwrap();
            drop(writer);
            let text = format!("duration = \"2s\"\n[link]\n{matrix}[[flow]]\ntype = \"ping\"\n");
            let trace = format!("/proc/self/fd/{}", pipe.as_raw_fd());
            let sets = [
                "link.up.rate=1Mbit/s".to_owned(),
                format!("link.down.rate={{ trace = \"{trace}\" }}"),
            ];
            let variants = Scenario::parse("x.toml", &text, &sets).unwrap();
            assert_eq!(variants.len(), count);
            let is_trace = |variant: &Variant| variant.scenario.link.down.rate.is_trace();
            assert!(variants.iter().all(is_trace));
        }
    }

    #[test]
    fn only_a_file_on_the_command_line_may_be_a_device() {
        let device = Path::new("/dev/null");
        let error = read_utf8(device, opener(&Place::File(0..1))).unwrap_err();
        assert_eq!(error, "it is not a regular file");
        assert_eq!(
            read_utf8(device, opener(&Place::Option(0, 0..1))),
            Ok(String::new())
        );
        let error = Scenario::load_found(device, &[]).unwrap_err().to_string();
        let expected = "cannot read the scenario `/dev/null`: it is not a regular file";
        assert_eq!(error, expected);
        // An empty scenario lacks something else.
        let error = Scenario::load(device, &[]).unwrap_err().to_string();
        assert!(!error.contains("regular"), "{error}");
    }
}
