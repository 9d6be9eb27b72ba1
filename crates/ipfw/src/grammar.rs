//! dummynet's command language: from text to typed commands and back.
//!
//! [`parse`] reads one line. It never panics, and `Display` writes its result in a canonical form
//! that reads as the same command. Parsing depends on the text only; the effect of a command on
//! existing objects is decided when it is executed.

mod algorithm;
mod command;
mod command_text;
mod condition;
mod flags;
mod mask;
mod object;
mod rule;
mod rule_text;
mod table;

use std::collections::BTreeSet;

use sluice_core::registry::Loaders;
use sluice_loader::Here;

pub use command::{Command, Invocation, SetCommand, Span as NumberSpan, Switch, Variable};
pub use condition::{Clause, Term};
pub use flags::{Dynamic, Flags, Times};
pub use object::{Config, Loss, ObjectKind, Policy, RedWords, SchedulerWords};
pub use rule::{
    ANY_FLOW, Action, DEFAULT_FLOW, LAST_RULE, Log, RESERVED_SET, Rule, State, StateLimit, Target,
};
pub use rule_text::{RuleFormat, ShowRule};
pub use table::{Entry, IfExists, TableAction, TableCommand, Which};

pub use crate::options::{Condition, OPTIONS, RuleOption};
pub use crate::tables::{TableKind, ValueKind};
pub use crate::words::address::{Address, Net, Ranges, TableRef};
pub use crate::words::argument::{
    Bits, Codepoints, Field, FragmentTest, IcmpTypes, InterfaceTest, Lookup, Nothing, Ports,
    Protocol,
};
pub use crate::words::error::{
    CommandError, EX_DATAERR, EX_UNAVAILABLE, EX_USAGE, ErrorKind, Warning, nearest,
};
pub use crate::words::quantity::{DEFAULT_BYTES, DEFAULT_SLOTS, MAX_RATE_BPS, QueueSize};
pub use crate::words::token::{At, Position};

pub(crate) use algorithm::words_of;
pub(crate) use object::is_bare;
pub(crate) use table::{ShowKinds, ShowValues};

use crate::words::parser::Parser;
use crate::words::token;
pub use crate::words::token::MOST_BYTES;

/// A parsed line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The command; `None` if the line is empty or a comment.
    pub invocation: Option<Invocation>,
    /// Parts that are accepted but do not do what they appear to say.
    pub warnings: Vec<Warning>,
    /// Lines that dummynet's own command prints while it parses.
    pub notices: Vec<String>,
}

/// Parses line `number` of a text. `compat` selects dummynet's reading where the two differ. Paths of
/// algorithms are relative to the folder of the process.
///
/// # Errors
///
/// The error, its place, and the most similar accepted word.
///
/// ```
/// use sluice_ipfw::grammar;
/// let line = grammar::parse("pipe 1 config bw 10MBit/s delay 10ms", 1, false).unwrap();
/// let command = line.invocation.unwrap();
/// assert_eq!(command.to_string(), "pipe 1 config bw 10Mbit/s delay 10ms");
/// let error = grammar::parse("pipe 1 config bw 10Mbit/s dealy 10ms", 1, false).unwrap_err();
/// assert_eq!(error.to_string(), "unrecognised option ``dealy'' (did you mean ``delay''?)");
/// assert_eq!(error.at.unwrap().column, 27);
/// ```
pub fn parse(text: &str, number: u32, compat: bool) -> Result<Line, CommandError> {
    parse_with(&Here, text, number, compat)
}

/// That of the number and the set of a rule.
const ROOM_FOR_NUMBERS: usize = 32;

/// Does the same as [`parse`], and finds algorithms such as `wasm:my.wasm` by `loaders`.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_with(
    loaders: &dyn Loaders,
    text: &str,
    number: u32,
    compat: bool,
) -> Result<Line, CommandError> {
    // A comment may be longer.
    let bytes = text.find('#').unwrap_or(text.len());
    let at = Position {
        line: number,
        column: 1,
    };
    if bytes > MOST_BYTES {
        return Err(CommandError::new(ErrorKind::TooLong { bytes }, at));
    }
    let words = token::words(text, number);
    let mut p = Parser::new(&words, compat);
    p.loaders = loaders;
    let invocation = if words.tokens.is_empty() {
        None
    } else {
        Some(command::invocation(&mut p, &words)?)
    };
    // A rule may be longer when it is written, and must then be read again.
    if let Some(Invocation { command, .. }) = &invocation
        && bytes > MOST_BYTES / 4
        && matches!(command, Command::Add(_))
    {
        let bytes = command.to_string().len() + ROOM_FOR_NUMBERS;
        if bytes > MOST_BYTES {
            return Err(CommandError::new(ErrorKind::LongWritten { bytes }, at));
        }
    }
    let (warnings, notices) = p.into_warnings();
    Ok(Line {
        invocation,
        warnings,
        notices,
    })
}

/// Returns the words of `text` for which a file would be read where an algorithm is expected, such as
/// `wasm:my.wasm`.
pub fn words_of_files(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let schemes: Vec<String> = sluice_loader::loaders()
        .iter()
        .map(|loader| format!("{}:", loader.scheme()))
        .collect();
    for (line, number) in text.lines().zip(1..) {
        if schemes.iter().any(|scheme| line.contains(scheme)) {
            let words = token::words(line, number).tokens;
            let words = words.into_iter().map(|token| token.text.into_owned());
            found.extend(words.filter(|word| sluice_loader::reads_file(word)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
