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
    /// The overrides, as `KEY=VALUE`.
    pub options: &'a [String],
    /// The options that they come from, such as `--rate 1Mbit/s`. Without: `--set KEY=VALUE`.
    pub written: &'a [String],
    /// How many of the overrides, from the first on, may name files.
    pub with_files: usize,
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

    /// Returns the bytes at which the lines begin.
    pub fn lines(&self) -> Vec<usize> {
        let ends = self.text.match_indices('\n');
        std::iter::once(0)
            .chain(ends.map(|(at, _)| at + 1))
            .collect()
    }

    /// Does the same as [`Source::position`] with the beginnings of the lines, for many places.
    pub fn position_in(&self, lines: &[usize], byte: usize) -> (usize, usize) {
        let byte = byte.min(self.text.len());
        let line = lines.partition_point(|start| *start <= byte);
        let start = line.checked_sub(1).map_or(0, |last| lines[last]);
        (line, self.text[start..byte].chars().count() + 1)
    }

    /// Returns an override as the user wrote it, and the part of that which `range` of the override
    /// comes from.
    pub fn option(&self, number: usize, range: &Range<usize>) -> (String, Range<usize>) {
        let set = &self.options[number];
        let written = match self.written.get(number) {
            Some(written) if !written.is_empty() => written.clone(),
            _ => format!("{FLAG}{set}"),
        };
        let after = |text: &str, mark| text.find(mark).map_or(text.len(), |at| at + 1);
        let value_at = after(set, '=');
        let (key_at, shown_at) = match written.starts_with(FLAG) {
            true => (FLAG.len(), after(&written, '=')),
            false => (0, after(&written, ' ')),
        };
        let place = if written.get(key_at..) == Some(set) {
            key_at + range.start..key_at + range.end
        } else if range.start < value_at {
            key_at..shown_at.saturating_sub(1).max(key_at)
        } else if written[shown_at..] == set[value_at..] {
            shown_at + range.start - value_at..shown_at + range.end - value_at
        } else {
            shown_at..written.len()
        };
        (written, place)
    }
}

const FLAG: &str = "--set ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_a_position_agree() {
        let source = Source {
            text: "a = 1\n\nb\u{e4}r = 2\n",
            ..Source::default()
        };
        let lines = source.lines();
        assert_eq!(lines, [0, 6, 7, 16]);
        for (byte, position) in [
            (0, (1, 1)),
            (5, (1, 6)),
            (6, (2, 1)),
            (10, (3, 3)),
            (99, (4, 1)),
        ] {
            assert_eq!(source.position(byte), position);
            assert_eq!(source.position_in(&lines, byte), position);
        }
    }
}
