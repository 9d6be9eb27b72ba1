//! What is wrong with a command, where, and what would have been accepted.
//!
//! Texts that dummynet's own command prints are kept word for word, because tools look for them;
//! what its kernel writes to the console only stands in parentheses behind.

use std::borrow::Cow;
use std::fmt;

use sluice_core::param::ParamError;

use super::token::Position;

/// A command that was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandError {
    /// Where, if it is about a word of the text.
    pub at: Option<Position>,
    /// What is wrong.
    pub kind: Box<ErrorKind>,
    /// The accepted word that looks most like the one that stood there.
    pub nearest: Option<String>,
    /// Whether the text was a batch of lines: the message then begins with the place.
    pub is_batch: bool,
    /// The file that the line is in, where a command named one.
    pub file: Option<String>,
}

/// What is wrong with a command.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ErrorKind {
    /// The line holds flags only.
    #[error("no command is given")]
    NoCommand,
    /// The first word is none of the commands.
    #[error("bad command `{0}'")]
    BadCommand(String),
    /// A word is missing; dummynet's text.
    #[error("{0}")]
    Needs(Cow<'static, str>),
    /// A flag that does not exist.
    #[error("unknown flag `-{0}`")]
    UnknownFlag(String),
    /// A word that is not an option here.
    #[error("unrecognised option ``{0}''")]
    Unrecognised(String),
    /// A value is refused; dummynet's text.
    #[error("{0}")]
    Refused(&'static str),
    /// An option of another object.
    #[error("{option} is only for {object}")]
    OnlyFor {
        /// The option, as dummynet names it in this message.
        option: String,
        /// The objects that take it.
        object: &'static str,
    },
    /// A parameter of another algorithm.
    #[error("{word} is not for {algorithm}{instead}")]
    NotFor {
        /// The parameter.
        word: String,
        /// The algorithm at hand.
        algorithm: &'static str,
        /// What to write instead, with a comma before it, or nothing.
        instead: &'static str,
    },
    /// A text is not what it should be.
    #[error("`{text}` is not {what} ({accepted})")]
    Invalid {
        /// What stood there.
        text: String,
        /// What was expected.
        what: &'static str,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A number is outside its range.
    #[error("{what} {value} is outside {low} to {high}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The smallest accepted value.
        low: u64,
        /// The largest accepted value.
        high: u64,
    },
    /// A parameter of an algorithm is refused.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// Words that exclude one another.
    #[error("{0}")]
    Contradiction(String),
    /// A part of the language that is not about classifying and shaping.
    #[error("`{word}` is not supported: {purpose}")]
    OutsidePurpose {
        /// The word.
        word: String,
        /// What it is for.
        purpose: &'static str,
    },
    /// A line in a file is wrong.
    #[error("error in {path} at line {line}: {fault}")]
    File {
        /// The file.
        path: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong there.
        fault: String,
    },
    /// A file cannot be read.
    #[error("fopen: {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the host says.
        reason: String,
    },
    /// A rule to be deleted or cleared does not exist.
    #[error("rule {0} not found")]
    RuleNotFound(u32),
    /// A rule to be listed does not exist.
    #[error("rule {0} does not exist")]
    NoSuchRule(u32),
    /// Something else that does not exist, or is in use.
    #[error("{0}")]
    Unavailable(String),
    /// What dummynet's kernel refuses.
    #[error("setsockopt({call}): {errno}{}", Reason(.reason))]
    Kernel {
        /// The call that fails there.
        call: &'static str,
        /// The text of its error number.
        errno: &'static str,
        /// Why; dummynet keeps it to the console.
        reason: String,
    },
    /// What dummynet's kernel refuses when an object is deleted: it always says rule 1.
    #[error("rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument ({0})")]
    DeleteRefused(String),
    /// A device name where a bandwidth should stand.
    #[error("no if support")]
    NoDeviceClock,
    /// A variable that does not exist.
    #[error("unknown oid '{0}'")]
    UnknownVariable(String),
    /// A variable that cannot be set.
    #[error("oid '{0}' is read only")]
    ReadOnlyVariable(&'static str),
}

struct Reason<'a>(&'a str);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.0)
    }
}

impl ErrorKind {
    /// The exit status: those of `sysexits`, or 1 for what a kernel would refuse.
    pub const fn exit_code(&self) -> u8 {
        match self {
            ErrorKind::NoCommand
            | ErrorKind::BadCommand(_)
            | ErrorKind::Needs(_)
            | ErrorKind::UnknownFlag(_) => EX_USAGE,
            ErrorKind::Unrecognised(_)
            | ErrorKind::Refused(_)
            | ErrorKind::OnlyFor { .. }
            | ErrorKind::NotFor { .. }
            | ErrorKind::Invalid { .. }
            | ErrorKind::OutOfRange { .. }
            | ErrorKind::Param(_)
            | ErrorKind::Contradiction(_)
            | ErrorKind::File { .. } => EX_DATAERR,
            ErrorKind::OutsidePurpose { .. }
            | ErrorKind::Unreadable { .. }
            | ErrorKind::RuleNotFound(_)
            | ErrorKind::NoSuchRule(_)
            | ErrorKind::Unavailable(_)
            | ErrorKind::DeleteRefused(_) => EX_UNAVAILABLE,
            ErrorKind::Kernel { .. }
            | ErrorKind::NoDeviceClock
            | ErrorKind::UnknownVariable(_)
            | ErrorKind::ReadOnlyVariable(_) => 1,
        }
    }
}

/// A missing or unknown word.
pub const EX_USAGE: u8 = 64;
/// A bad value.
pub const EX_DATAERR: u8 = 65;
/// Not found, or refused where dummynet's kernel refuses.
pub const EX_UNAVAILABLE: u8 = 69;

impl CommandError {
    /// An error at a place of the text.
    pub fn new(kind: impl Into<ErrorKind>, at: Position) -> Self {
        CommandError {
            at: Some(at),
            ..CommandError::of(kind)
        }
    }

    /// An error that is about no single word.
    pub fn of(kind: impl Into<ErrorKind>) -> Self {
        CommandError {
            at: None,
            kind: Box::new(kind.into()),
            nearest: None,
            is_batch: false,
            file: None,
        }
    }

    /// Adds the word of `candidates` that looks most like `word`, if one does.
    #[must_use]
    pub fn near<'w>(mut self, word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Self {
        self.nearest = nearest(word, candidates).map(str::to_string);
        self
    }

    /// The message without the place.
    pub fn message(&self) -> String {
        let bare = CommandError {
            is_batch: false,
            ..self.clone()
        };
        bare.to_string()
    }

    /// The exit status of the command.
    pub const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) if self.is_batch => write!(f, "Line {}: column {}: ", at.line, at.column)?,
            _ => {}
        }
        self.kind.fmt(f)?;
        match &self.nearest {
            Some(word) => write!(f, " (did you mean ``{word}''?)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CommandError {}

/// What a command is accepted with although it does not do what it seems to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where, if it is about a word of the text.
    pub at: Option<Position>,
    /// What will happen.
    pub text: String,
    /// The file that the line is in, where a command named one.
    pub file: Option<String>,
}

impl Warning {
    /// What is to be said about a word of the text, or about the command.
    pub const fn new(at: Option<Position>, text: String) -> Self {
        Warning {
            at,
            text,
            file: None,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The candidate that looks most like `word`: at most a third of its letters differ.
pub fn nearest<'w>(word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let word = word.to_ascii_lowercase();
    let bound = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| {
            (
                strsim::damerau_levenshtein(&word, &c.to_ascii_lowercase()),
                c,
            )
        })
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}
