//! The cursor over the words of a command.

use std::borrow::Cow;

use sluice_core::registry::{Loaders, NoLoaders};

use super::error::{CommandError, ErrorKind, Warning};
use super::token::{At, Position, Token, Words};

/// Reads words in order and collects warnings.
pub(crate) struct Parser<'t> {
    tokens: &'t [Token<'t>],
    next: usize,
    end: Position,
    /// Whether dummynet's reading applies where the two differ.
    pub compat: bool,
    /// Finds algorithms such as `wasm:my.wasm`.
    pub loaders: &'t dyn Loaders,
    /// Parts that are accepted but do not do what they appear to say.
    pub warnings: Vec<Warning>,
    /// The number of warnings that are left out.
    unsaid: usize,
    /// Lines that dummynet's own command prints while it parses.
    pub notices: Vec<String>,
}

pub(crate) type Parse<T> = Result<T, CommandError>;

/// The most warnings about one command.
pub(crate) const MOST_WARNINGS: usize = 100;

impl<'t> Parser<'t> {
    pub fn new(words: &'t Words<'_>, compat: bool) -> Parser<'t> {
        Parser {
            tokens: &words.tokens,
            next: 0,
            end: words.end,
            compat,
            loaders: &NoLoaders,
            warnings: Vec::new(),
            unsaid: 0,
            notices: Vec::new(),
        }
    }

    /// Returns the next word without taking it.
    pub fn peek(&self) -> Option<&'t str> {
        self.peek_at(0)
    }

    /// Returns the word `ahead` places behind the next one.
    pub fn peek_at(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.next + ahead).map(|t| &*t.text)
    }

    /// Returns the place of the next word, or of the missing one.
    pub fn at(&self) -> Position {
        self.tokens.get(self.next).map_or(self.end, |t| t.at)
    }

    /// Takes the next word.
    pub fn take(&mut self) -> Option<At<&'t str>> {
        let token = self.tokens.get(self.next)?;
        self.next += 1;
        Some(At::new(&*token.text, token.at))
    }

    /// Takes the next word if it is `word`.
    pub fn accept(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Some(word);
        self.next += usize::from(is_there);
        is_there
    }

    /// Takes the next word, or fails with dummynet's message for a missing one.
    pub fn need(&mut self, text: impl Into<Cow<'static, str>>) -> Parse<At<&'t str>> {
        self.take()
            .ok_or_else(|| CommandError::new(ErrorKind::Needs(text.into()), self.end))
    }

    /// Returns the number of words left.
    pub fn left(&self) -> usize {
        self.tokens.len() - self.next
    }

    pub fn warn(&mut self, at: Position, text: impl Into<String>) {
        if !self.leaves_unsaid() {
            self.warnings.push(Warning::new(Some(at), text.into()));
        }
    }

    /// Returns whether the line has its share of warnings, so that the next one is left out. It need not
    /// be made then.
    pub fn leaves_unsaid(&mut self) -> bool {
        let is_left_out = self.warnings.len() >= MOST_WARNINGS;
        self.unsaid += usize::from(is_left_out);
        is_left_out
    }

    /// Returns the warnings, the last of which says how many are left out, and the notices.
    pub fn into_warnings(self) -> (Vec<Warning>, Vec<String>) {
        let mut warnings = self.warnings;
        if self.unsaid > 0 {
            let text = format!("{} more warnings about this line are left out", self.unsaid);
            warnings.push(Warning::new(None, text));
        }
        (warnings, self.notices)
    }

    /// Fails if any words are left.
    pub fn finish(&mut self) -> Parse<()> {
        match self.take() {
            Some(word) => Err(unrecognised(word)),
            None => Ok(()),
        }
    }
}

/// Returns the error for a word that has no meaning here.
pub(crate) fn unrecognised(word: At<&str>) -> CommandError {
    CommandError::new(ErrorKind::Unrecognised(word.value.to_string()), word.at)
}

/// Returns the error for a text that is not a valid value.
pub(crate) fn invalid(word: At<&str>, what: &'static str, accepted: &'static str) -> CommandError {
    CommandError::new(
        ErrorKind::Invalid {
            text: word.value.to_string(),
            what,
            accepted,
        },
        word.at,
    )
}

/// Returns an error with one of dummynet's fixed messages.
pub(crate) fn refused(text: &'static str, at: Position) -> CommandError {
    CommandError::new(ErrorKind::Refused(text), at)
}
