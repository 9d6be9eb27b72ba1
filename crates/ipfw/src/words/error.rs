//! The errors of commands: the error, its place, and the accepted alternatives.
//!
//! Messages of dummynet's own command are kept word for word, because tools search for them. The
//! explanations that its kernel prints to the console only follow in parentheses.

use sluice_core::registry::tc;
use sluice_core::spelling;
use std::borrow::Cow;
use std::fmt;

use sluice_core::param::ParamError;

use super::shell;
use super::token::{MOST_BYTES, Position};

/// A refused command. It changed nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandError {
    /// The place, if the error concerns a word of the text.
    pub at: Option<Position>,
    /// The error.
    pub kind: Box<ErrorKind>,
    /// The accepted word that is most similar to the one found.
    pub nearest: Option<String>,
    /// Advice if no accepted word is similar, such as what a word of Linux `tc` is here.
    pub advice: Option<&'static str>,
    /// Whether the text was a batch of lines, so that the message starts with the place.
    pub is_batch: bool,
    /// The file that contains the line, if a command named a file.
    pub file: Option<String>,
}

/// The error in a command.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ErrorKind {
    /// The line has flags only.
    #[error("no command is given")]
    NoCommand,
    /// The line is longer than a command may be.
    #[error(
        "a command of {bytes} bytes is too long: give at most {most} bytes at a time, such as several \
         `table T add`, and name a long list of addresses by a table",
        most = MOST_BYTES
    )]
    TooLong {
        /// Its length, without a comment.
        bytes: usize,
    },
    /// A rule would be longer when it is written than a command may be.
    #[error(
        "the rule would have {bytes} bytes when it is written, as by `list`, which could not be read again: \
         at most {most} are allowed; use several rules, or a table",
        most = MOST_BYTES
    )]
    LongWritten {
        /// The length that it would have.
        bytes: usize,
    },
    /// The first word is not a command.
    #[error("bad command `{0}'")]
    BadCommand(String),
    /// A word is missing. The message is dummynet's.
    #[error("{0}")]
    Needs(Cow<'static, str>),
    /// The flag does not exist.
    #[error("unknown flag `-{0}`")]
    UnknownFlag(String),
    /// The command shows something that has no form as JSON.
    #[error("`--json` is only for `show` and `list` of rules, pipes, queues and schedulers")]
    NoJson,
    /// The word is not an option here.
    #[error("unrecognised option ``{0}''")]
    Unrecognised(String),
    /// A value is refused. The message is dummynet's.
    #[error("{0}")]
    Refused(&'static str),
    /// The option belongs to another object.
    #[error("{option} is only for {object}")]
    OnlyFor {
        /// The option, as dummynet names it in this message.
        option: String,
        /// The objects that have the option.
        object: &'static str,
    },
    /// The parameter belongs to another algorithm.
    #[error("{word} is not for {algorithm}{instead}")]
    NotFor {
        /// The parameter.
        word: String,
        /// The current algorithm.
        algorithm: &'static str,
        /// The text to write instead, preceded by a comma, or nothing.
        instead: &'static str,
    },
    /// The text is not a valid value.
    #[error("`{text}` is not {what} ({accepted})")]
    Invalid {
        /// The text.
        text: String,
        /// The expected text.
        what: &'static str,
        /// The accepted values.
        accepted: &'static str,
    },
    /// The number is outside its range.
    #[error("{what} {value} is outside {low} to {high}")]
    OutOfRange {
        /// The quantity.
        what: &'static str,
        /// Value.
        value: u64,
        /// The smallest accepted value.
        low: u64,
        /// The largest accepted value.
        high: u64,
    },
    /// A parameter of an algorithm is refused.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// Words that contradict one another.
    #[error("{0}")]
    Contradiction(String),
    /// A part of the language for purposes other than classifying and shaping.
    #[error("`{word}` is not supported: {purpose}")]
    OutsidePurpose {
        /// The word.
        word: String,
        /// The reason, or the text to use instead.
        purpose: &'static str,
    },
    /// A line of a file is wrong.
    #[error("error in {path} at line {line}: {fault}")]
    File {
        /// The file.
        path: String,
        /// The line number, from 1.
        line: usize,
        /// The error there.
        fault: String,
    },
    /// A file cannot be read.
    #[error("fopen: {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// The host's reason.
        reason: String,
    },
    /// A rule to delete or clear does not exist.
    #[error("rule {0} not found")]
    RuleNotFound(u32),
    /// A rule to list does not exist.
    #[error("rule {0} does not exist")]
    NoSuchRule(u32),
    /// Another object does not exist or is in use.
    #[error("{0}")]
    Unavailable(String),
    /// A refusal of dummynet's kernel.
    #[error("setsockopt({call}): {errno}{}", Reason(.reason))]
    Kernel {
        /// The call that fails in dummynet.
        call: &'static str,
        /// The text of the error number.
        errno: &'static str,
        /// The reason, which dummynet prints to the console.
        reason: String,
    },
    /// A refusal of dummynet's kernel to delete an object; its message always names rule 1.
    #[error("rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument ({0})")]
    DeleteRefused(String),
    /// A device name in place of a bandwidth.
    #[error("no if support")]
    NoDeviceClock,
    /// The variable does not exist.
    #[error("unknown oid '{0}'")]
    UnknownVariable(String),
    /// The variable cannot be set.
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
    /// Returns the exit status: one of `sysexits`, or 1 for a refusal of dummynet's kernel.
    pub const fn exit_code(&self) -> u8 {
        match self {
            ErrorKind::NoCommand
            | ErrorKind::BadCommand(_)
            | ErrorKind::Needs(_)
            | ErrorKind::UnknownFlag(_)
            | ErrorKind::NoJson => EX_USAGE,
            ErrorKind::TooLong { .. }
            | ErrorKind::LongWritten { .. }
            | ErrorKind::Unrecognised(_)
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

/// Advice for a shell script in place of commands.
const RUN_THE_SCRIPT: &str = "this looks like a shell script: start a router, run the script with \
     `ipfw` linked to sluice, and write the result with `sluice router save`";

/// A missing or unknown word.
pub const EX_USAGE: u8 = 64;
/// A bad value.
pub const EX_DATAERR: u8 = 65;
/// Not found, or refused where dummynet's kernel refuses.
pub const EX_UNAVAILABLE: u8 = 69;

impl CommandError {
    /// Creates an error at a place in the text.
    pub fn new(kind: impl Into<ErrorKind>, at: Position) -> Self {
        CommandError {
            at: Some(at),
            ..CommandError::of(kind)
        }
    }

    /// Creates an error without a place.
    pub fn of(kind: impl Into<ErrorKind>) -> Self {
        CommandError {
            at: None,
            kind: Box::new(kind.into()),
            nearest: None,
            advice: None,
            is_batch: false,
            file: None,
        }
    }

    /// Adds the word of `candidates` that is most similar to `word`, if one is similar.
    #[must_use]
    pub fn near<'w>(mut self, word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Self {
        self.nearest = nearest(word, candidates).map(str::to_string);
        self
    }

    /// As [`CommandError::near`], for a word that may be one of Linux `tc` for a queue.
    #[must_use]
    pub fn near_or_tc<'w>(
        mut self,
        word: &str,
        candidates: impl IntoIterator<Item = &'w str>,
    ) -> Self {
        self.advice = tc::answer(word);
        match self.advice {
            Some(_) => self,
            None => self.near(word, candidates),
        }
    }

    /// Adds advice if the text in which a command was refused is a shell script.
    #[must_use]
    pub(crate) fn in_text(mut self, text: &str) -> Self {
        if shell::is_script(text) {
            self.nearest = None;
            self.advice = Some(RUN_THE_SCRIPT);
        }
        self
    }

    /// Returns the message without the place.
    pub fn message(&self) -> String {
        let bare = CommandError {
            is_batch: false,
            ..self.clone()
        };
        bare.to_string()
    }

    /// Returns the exit status of the command.
    pub const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// Returns whether a file that the command names cannot be read, which may be so for some time only.
    pub fn is_unreadable(&self) -> bool {
        matches!(*self.kind, ErrorKind::Unreadable { .. })
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) if self.is_batch => write!(f, "Line {}: column {}: ", at.line, at.column)?,
            _ => {}
        }
        let mut text = self.kind.to_string();
        match (&self.nearest, self.advice) {
            (Some(word), _) => text.push_str(&format!(" (did you mean ``{word}''?)")),
            (None, Some(advice)) => text.push_str(&format!(" ({advice})")),
            (None, None) => {}
        }
        f.write_str(&brief(text))
    }
}

impl std::error::Error for CommandError {}

/// A remark on a command that is accepted but does not do what it appears to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The place, if the warning concerns a word of the text.
    pub at: Option<Position>,
    /// The consequence.
    pub text: String,
    /// The file that contains the line, if a command named a file.
    pub file: Option<String>,
    /// What later commands of the same change may create, so that the warning is void.
    pub(crate) until: Option<Missing>,
}

/// An object that a command names and that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A pipe.
    Pipe(u32),
    /// A queue.
    Queue(u32),
    /// A scheduler.
    Scheduler(u32),
    /// Entries of a table.
    Entries(String),
}

impl Warning {
    /// Creates a warning. Long words of its text are cut.
    pub fn new(at: Option<Position>, text: String) -> Self {
        Warning {
            at,
            text: brief(text),
            file: None,
            until: None,
        }
    }

    /// Creates a warning that is void as soon as this exists.
    pub(crate) fn until(missing: Missing, at: Option<Position>, text: String) -> Self {
        Warning {
            until: Some(missing),
            ..Warning::new(at, text)
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the candidate that is most similar to `word`, if one is similar.
pub fn nearest<'w>(word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    spelling::nearest(word, candidates).first().copied()
}

/// Cuts the long words of a message: the text may be no configuration, and a word of it have millions of
/// characters.
fn brief(text: String) -> String {
    if text.split_whitespace().all(|word| cut(word).is_none()) {
        return text;
    }
    let pieces = text.split_inclusive(char::is_whitespace);
    let kept = pieces.map(|piece| {
        let word = piece.trim_end();
        match cut(word) {
            Some(beginning) => beginning + &piece[word.len()..],
            None => piece.to_owned(),
        }
    });
    kept.collect()
}

/// Returns the beginning of a word that is too long, within the quotes of the message; `None` for others.
fn cut(word: &str) -> Option<String> {
    let before = quotes(word.bytes());
    let (quote, rest) = word.split_at(before);
    let behind = quotes(rest.bytes().rev());
    let (rest, end) = rest.split_at(rest.len() - behind);
    let most = if rest.contains('/') {
        LONGEST_PATH
    } else {
        LONGEST_WORD
    };
    let (kept, _) = rest.char_indices().nth(most)?;
    Some(format!("{quote}{}...{end}", &rest[..kept]))
}

/// Counts the quotes and other signs of the message at an end of a word.
fn quotes(bytes: impl Iterator<Item = u8>) -> usize {
    let end = bytes.take(MOST_QUOTES);
    end.take_while(u8::is_ascii_punctuation).count()
}

/// Characters of a word that a message has.
const LONGEST_WORD: usize = 60;
/// Those of a word with a slash, which may be the path of a file.
const LONGEST_PATH: usize = 255;
/// Signs on each side of a word that a message has in addition.
const MOST_QUOTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(word: &str) -> String {
        CommandError::of(ErrorKind::BadCommand(word.to_owned())).to_string()
    }

    #[test]
    fn long_words_are_cut_in_messages() {
        let longest = "a".repeat(60);
        assert_eq!(refusal(&longest), format!("bad command `{longest}'"));
        let expected = format!("bad command `{longest}...'");
        assert_eq!(refusal(&"a".repeat(61)), expected);
        assert_eq!(refusal(&"a".repeat(3_000_000)), expected);
        let umlauts = format!("bad command `{}...'", "ä".repeat(60));
        assert_eq!(refusal(&"ä".repeat(61)), umlauts, "characters, not bytes");
        let warning = Warning::new(None, format!("`{}`\tis ignored", "a".repeat(61)));
        assert_eq!(warning.text, format!("`{longest}...`\tis ignored"));
    }

    #[test]
    fn a_path_is_cut_where_no_name_of_a_file_can_be_longer() {
        let unreadable = |path: &str| {
            CommandError::of(ErrorKind::Unreadable {
                path: path.to_owned(),
                reason: "No such file or directory".to_owned(),
            })
        };
        let path = "/folder".repeat(30);
        let expected = format!("fopen: {path}: No such file or directory");
        assert_eq!(unreadable(&path).to_string(), expected);
        // "fopen: ", a slash, 255 characters, three points, ": " and the reason of 25.
        let text = unreadable(&"/folder".repeat(1000)).to_string();
        assert_eq!(text.len(), 7 + 1 + 255 + 3 + 2 + 25, "{text}");
    }

    #[test]
    fn a_word_of_quotes_is_cut_too() {
        // "bad command ", 4 characters, 60, three points, 4.
        assert_eq!(refusal(&"'".repeat(1000)).len(), 12 + 4 + 60 + 3 + 4);
    }
}
