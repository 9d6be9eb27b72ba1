//! The messages on the control socket.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_core::registry::{Algorithm, Loaders};
use sluice_ipfw::grammar::{Position, words_of_files};
use sluice_ipfw::{CommandError, Files, Mode, Output, Snapshot, Warning};
use sluice_loader::Here;

use super::{Answered, Refused};

/// Longest request in bytes: room for well over ten thousand rules.
pub const MOST_REQUEST: usize = 8 << 20;

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Execute commands.
    Commands {
        /// The commands, one per line, in ipfw's language.
        commands: String,
        /// How they are executed: as one command, line by line, or all at one instant.
        #[serde(default)]
        how: How,
        /// The files that the commands name.
        #[serde(default)]
        files: Texts,
    },
    /// Report the router's status.
    Status {},
    /// Report the configuration as commands.
    Save {},
    /// Report the newest sample of the traffic with a number above `after`, as soon as there is one.
    Watch {
        /// The number of the sample that the client has; 0 for none.
        #[serde(default)]
        after: u64,
    },
}

/// Files, by the names in the commands.
pub type Texts = BTreeMap<String, FileText>;

/// The contents of a file, as read by the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileText {
    /// The text of the file.
    Text(String),
    /// The reason why the file cannot be read.
    Unreadable(String),
}

/// Files that came with commands. A router does not open a file on a client's request, but for algorithms
/// that the commands load.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a>(pub &'a Texts);

impl Files for Given<'_> {
    fn read(&mut self, path: &str) -> Result<String, String> {
        match self.0.get(path) {
            Some(FileText::Text(text)) => Ok(text.clone()),
            Some(FileText::Unreadable(why)) => Err(why.clone()),
            None => Err("its text did not come with the command".into()),
        }
    }
}

/// The files that came with commands, and the algorithms that the commands load, such as
/// `wasm:my.wasm`: the packet loop reads no files. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    texts: Arc<Texts>,
    algorithms: Arc<BTreeMap<String, Result<&'static Algorithm, String>>>,
}

impl Attached {
    /// Loads the algorithms that the commands name, and those that the files name, on this thread.
    pub fn new(commands: &str, texts: Arc<Texts>) -> Attached {
        let mut words = words_of_files(commands);
        for file in texts.values() {
            if let FileText::Text(text) = file {
                words.append(&mut words_of_files(text));
            }
        }
        let load = |word: String| Some((Here.load(&word)?, word));
        let loaded = words.into_iter().filter_map(load);
        let algorithms = loaded.map(|(loaded, word)| (word, loaded)).collect();
        Attached {
            algorithms: Arc::new(algorithms),
            texts,
        }
    }
}

impl Files for Attached {
    fn read(&mut self, path: &str) -> Result<String, String> {
        Given(&self.texts).read(path)
    }

    fn loaders(&self) -> &dyn Loaders {
        self
    }
}

impl Loaders for Attached {
    fn load(&self, word: &str) -> Option<Result<&'static Algorithm, String>> {
        match self.algorithms.get(word) {
            Some(loaded) => Some(loaded.clone()),
            None if sluice_loader::reads_file(word) => {
                Some(Err(format!("`{word}` did not come with the command")))
            }
            // It loads nothing, and says why.
            None => Here.load(word),
        }
    }
}

/// How commands are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// As one command.
    #[default]
    Command,
    /// Line by line until one is refused.
    Batch,
    /// All at one instant, or none.
    Atomic,
    /// Like `atomic`, replacing the whole configuration.
    Replace,
}

impl From<How> for Mode {
    fn from(how: How) -> Mode {
        match how {
            How::Command => Mode::Command,
            How::Batch => Mode::Batch,
            How::Atomic => Mode::Atomic,
            How::Replace => Mode::Replace,
        }
    }
}

/// A router's answer. `S` is the state, `T` the status; a client keeps both as received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply<S = Box<RawValue>, T = Box<RawValue>> {
    /// The output of ipfw.
    pub stdout: String,
    /// Warnings about commands that were accepted but do not do what they seem to.
    pub warnings: Vec<Remark>,
    /// The refused command, and the reason.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub error: Option<Failure>,
    /// The state, if requested with `--json`.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub state: Option<S>,
    /// The status, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub status: Option<T>,
    /// The sample, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    pub sample: Option<Box<RawValue>>,
}

fn none<T>() -> Option<T> {
    None
}

/// A place in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file, if a command named it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Line from 1; 0 if the error has no single place.
    pub line: u32,
    /// Column from 1.
    pub column: u32,
}

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The word that the warning concerns.
    pub place: Place,
    /// The consequence.
    pub text: String,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The wrong word.
    pub place: Place,
    /// The reason.
    pub message: String,
    /// Exit status of the command.
    pub exit_code: u8,
}

impl Place {
    fn new(file: Option<&String>, at: Option<Position>) -> Place {
        let at = at.unwrap_or_default();
        Place {
            file: file.cloned(),
            line: at.line,
            column: at.column,
        }
    }
}

impl Place {
    /// The place of an error.
    pub fn of(error: &CommandError) -> Place {
        Place::new(error.file.as_ref(), error.at)
    }
}

impl Remark {
    /// The warning that a saved configuration names a file, for which it does something.
    fn of_file(what: &str, file: &str) -> Remark {
        Remark {
            place: Place::default(),
            text: format!("the commands {what} {file}: keep this file"),
        }
    }
}

impl From<&Warning> for Remark {
    fn from(warning: &Warning) -> Remark {
        Remark {
            place: Place::new(warning.file.as_ref(), warning.at),
            text: warning.text.clone(),
        }
    }
}

impl From<&CommandError> for Failure {
    fn from(error: &CommandError) -> Failure {
        Failure {
            place: Place::of(error),
            message: error.to_string(),
            exit_code: error.exit_code(),
        }
    }
}

impl<S, T> Reply<S, T> {
    /// Creates a reply without content: the commands were executed and said nothing.
    pub const fn empty() -> Self {
        Reply {
            stdout: String::new(),
            warnings: Vec::new(),
            error: None,
            state: None,
            status: None,
            sample: None,
        }
    }

    /// Creates a reply that only refuses.
    pub fn refusal(message: String, exit_code: u8) -> Self {
        Reply {
            error: Some(Failure {
                place: Place::default(),
                message,
                exit_code,
            }),
            ..Reply::empty()
        }
    }
}

impl<T> Reply<Box<Snapshot>, T> {
    /// Creates the reply for an answer of the loop. Formats on this thread and not in the loop,
    /// because that takes long with many flows.
    pub fn of(answer: Result<Answered<T>, Refused>) -> Self {
        match answer {
            Ok(Answered::Commands(output, result)) => Reply::said(*output, result),
            Ok(Answered::Survey(survey)) => Reply::said(survey.finish(), Ok(())),
            Ok(Answered::Status(status)) => Reply {
                status: Some(*status),
                ..Reply::empty()
            },
            Ok(Answered::Draft(draft)) => {
                let configuration = draft.into_configuration();
                let (files, modules) = (configuration.files(), configuration.modules());
                let profiles = files
                    .keys()
                    .map(|path| Remark::of_file("read a delay profile from", path));
                let modules = modules.iter().map(|word| Remark::of_file("load", word));
                Reply {
                    stdout: configuration.commands(),
                    warnings: profiles.chain(modules).collect(),
                    ..Reply::empty()
                }
            }
            Ok(Answered::Replaced(_) | Answered::Watched(_) | Answered::Stale(_)) => {
                unreachable!("no request is answered with this")
            }
            // EX_TEMPFAIL of sysexits.h.
            Err(refused) => Reply::refusal(refused.to_string(), 75),
        }
    }

    fn said(output: Output, result: Result<(), CommandError>) -> Self {
        Reply {
            stdout: output.stdout,
            warnings: output.warnings.iter().map(Into::into).collect(),
            error: result.err().as_ref().map(Into::into),
            state: output.snapshot,
            ..Reply::empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_files_of_a_command() {
        let attached = Attached::new("pipe show", Arc::new(Texts::new()));
        let of_another = attached.clone();
        assert!(Arc::ptr_eq(&of_another.texts, &attached.texts));
        assert!(Arc::ptr_eq(&of_another.algorithms, &attached.algorithms));
    }

    #[test]
    fn a_request_needs_no_more_than_its_commands() {
        let request: Request =
            serde_json::from_str(r#"{"do":"commands","commands":"pipe show"}"#).unwrap();
        assert_eq!(
            request,
            Request::Commands {
                commands: "pipe show".into(),
                how: How::Command,
                files: BTreeMap::new()
            }
        );
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (text, expected) in [
            (
                r#"{"do":"commands","commands":"","when":1}"#,
                "unknown field `when`",
            ),
            (
                r#"{"do":"reboot"}"#,
                "unknown variant `reboot`, expected one of `commands`, `status`, `save`, `watch`",
            ),
            (r#"{"commands":"pipe show"}"#, "missing field `do`"),
        ] {
            let error = serde_json::from_str::<Request>(text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
