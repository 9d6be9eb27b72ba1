//! The cursor that every part of the grammar reads from.

use std::borrow::Cow;

use super::error::{CommandError, ErrorKind, Warning};
use super::token::{At, Position, Token, Words};

/// Reads words in order and collects what is to be said about them.
pub(crate) struct Parser<'t> {
    tokens: &'t [Token<'t>],
    next: usize,
    end: Position,
    /// Whether dummynet's reading is wanted where ours differs.
    pub compat: bool,
    /// What is accepted but does not do what it seems to say.
    pub warnings: Vec<Warning>,
    /// Lines that dummynet's own command prints while it reads.
    pub notices: Vec<String>,
}

pub(crate) type Parse<T> = Result<T, CommandError>;

impl<'t> Parser<'t> {
    pub fn new(words: &'t Words<'_>, compat: bool) -> Parser<'t> {
        Parser {
            tokens: &words.tokens,
            next: 0,
            end: words.end,
            compat,
            warnings: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Option<&'t str> {
        self.peek_at(0)
    }

    /// The word `ahead` places behind the next one.
    pub fn peek_at(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.next + ahead).map(|t| &*t.text)
    }

    /// Where the next word stands, or where it is missing.
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

    /// Takes the next word, or fails with dummynet's text for a missing one.
    pub fn need(&mut self, text: impl Into<Cow<'static, str>>) -> Parse<At<&'t str>> {
        self.take()
            .ok_or_else(|| CommandError::new(ErrorKind::Needs(text.into()), self.end))
    }

    /// How many words are left.
    pub fn left(&self) -> usize {
        self.tokens.len() - self.next
    }

    pub fn warn(&mut self, at: Position, text: impl Into<String>) {
        self.warnings.push(Warning::new(Some(at), text.into()));
    }

    /// Fails if words are left over.
    pub fn finish(&mut self) -> Parse<()> {
        match self.take() {
            Some(word) => Err(unrecognised(word)),
            None => Ok(()),
        }
    }
}

/// The error for a word that means nothing here.
pub(crate) fn unrecognised(word: At<&str>) -> CommandError {
    CommandError::new(ErrorKind::Unrecognised(word.value.to_string()), word.at)
}

/// The error for a text that is not what it should be.
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

/// The error with one of dummynet's fixed texts.
pub(crate) fn refused(text: &'static str, at: Position) -> CommandError {
    CommandError::new(ErrorKind::Refused(text), at)
}
