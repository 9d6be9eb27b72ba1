//! The texts of a scenario and places in them.

use std::ops::Range;

/// The position of a value in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Byte range in the scenario file.
    File(Range<usize>),
    /// Byte range in an override: its number among the `--set` options.
    Option(usize, Range<usize>),
    /// No place: a default, or a resolved scenario that is being written.
    #[default]
    Nowhere,
}

/// The texts that places refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source<'a> {
    /// The file's name as the user wrote it.
    pub name: &'a str,
    pub text: &'a str,
    /// The overrides as the user wrote them.
    pub options: &'a [String],
}

impl Source<'_> {
    /// Returns line and column, counted in characters from 1.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..byte.min(self.text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }
}
