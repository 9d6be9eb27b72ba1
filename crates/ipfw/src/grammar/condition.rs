//! Conditions of a rule: terms, clauses, and the options that are refused.

use std::fmt;

use crate::options::{Condition, OPTIONS};
use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser, unrecognised};
use crate::words::token::At;

/// A condition that may be negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Whether `not` precedes the condition.
    pub is_negated: bool,
    /// The condition itself.
    pub condition: Condition,
}

/// Conditions of which at least one must hold: `{ a or b }`.
pub type Clause = Vec<Term>;

/// Options for purposes other than classifying and shaping.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("uid", SOCKETS),
    ("gid", SOCKETS),
    ("jail", SOCKETS),
    ("sockarg", SOCKETS),
    ("fib", "there is one routing table: the host's"),
    ("verrevpath", "routing is left to the host"),
    ("versrcreach", "routing is left to the host"),
    ("antispoof", "routing is left to the host"),
    ("mac", "rules see IP headers only"),
    ("MAC", "rules see IP headers only"),
    ("src-mac", "rules see IP headers only"),
    ("dst-mac", "rules see IP headers only"),
    ("diverted", DIVERT),
    ("diverted-loopback", DIVERT),
    ("diverted-output", DIVERT),
    ("ipsec", "the IPsec history of a packet is unknown here"),
    ("ipoptions", OPTIONS_OF_HEADERS),
    ("ipopts", OPTIONS_OF_HEADERS),
    ("tcpoptions", OPTIONS_OF_HEADERS),
    ("tcpopts", OPTIONS_OF_HEADERS),
    ("ext6hdr", OPTIONS_OF_HEADERS),
    ("tcpmss", OPTIONS_OF_HEADERS),
    ("tcpack", "sequence numbers are not matched"),
    ("tcpseq", "sequence numbers are not matched"),
    ("tcpwin", "sequence numbers are not matched"),
    ("tcpdatalen", "use iplen"),
    ("tagged", "packets carry no tags; use skipto or tables"),
    ("mark", "packets carry no marks; use skipto or tables"),
    (
        "flow",
        "flow tables are not kept; use address tables or a mask",
    ),
    ("tablearg", "only an action takes a table value"),
    ("skip-action", "use skipto"),
    ("defer-action", "use skipto"),
    ("defer-immediate-action", "use skipto"),
    ("record-state", "use keep-state"),
    ("set-limit", "use limit"),
];

const SOCKETS: &str = "a router has no sockets of its own";
pub(super) const DIVERT: &str = "packets are classified and shaped, not handed to other programs";
const OPTIONS_OF_HEADERS: &str = "options inside headers are not parsed";

/// Reads the condition that `word` starts.
pub(super) fn condition(p: &mut Parser<'_>, word: At<&str>) -> Parse<Condition> {
    Condition::read(p, word)?.ok_or_else(|| unknown(word))
}

/// Whether `word` starts an option.
pub(super) fn is_option(word: &str) -> bool {
    OPTIONS.iter().any(|option| option.words.contains(&word))
}

/// Returns the error for a word that starts no option.
pub(super) fn unknown(word: At<&str>) -> CommandError {
    if let Some((name, purpose)) = REFUSED.iter().find(|(name, _)| *name == word.value) {
        let kind = ErrorKind::OutsidePurpose {
            word: (*name).to_string(),
            purpose,
        };
        return CommandError::new(kind, word.at);
    }
    let words = OPTIONS
        .iter()
        .flat_map(|option| option.words.iter().copied())
        .chain(["keep-state", "limit", "not", "or", "from"]);
    unrecognised(word).near(word.value, words)
}

impl Condition {
    /// Writes the argument alone, for places that imply the option's word.
    pub(super) fn write_argument(
        &self,
        f: &mut fmt::Formatter<'_>,
        has_names: bool,
    ) -> fmt::Result {
        self.argument().write(f, has_names)
    }

    /// Writes the option, with names of services if `has_names`.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, has_names: bool) -> fmt::Result {
        let argument = self.argument();
        write!(f, "{}{}", self.word(), argument.suffix())?;
        if argument.is_empty() {
            return Ok(());
        }
        f.write_str(" ")?;
        argument.write(f, has_names)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}
