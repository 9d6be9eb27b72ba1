//! Numbers and words in the columns of a table.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::WIDTH;
use sluice_scenario::metric::Percentiles;

pub(super) fn of(percentiles: Option<Percentiles>, pick: fn(&Percentiles) -> u64) -> Option<f64> {
    percentiles.as_ref().map(|p| pick(p) as f64)
}

pub(super) fn mega(x: f64) -> String {
    digits(x / 1e6)
}

pub(super) fn percent(part: f64) -> String {
    digits(part * 100.0)
}

pub(super) fn us(ns: f64) -> String {
    digits(ns / 1e3)
}

pub(super) fn ms(ns: f64) -> String {
    digits(ns / 1e6)
}

/// Formats at least three digits in at most six characters.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        a if a < 99_999.5 => format!("{x:.0}"),
        _ => format!("{x:.0e}"),
    }
}

/// Formats a count in at most five characters, of which at least three are digits; a median may be
/// fractional.
pub(super) fn count(n: f64) -> String {
    match n.round() as u64 {
        _ if n.fract() != 0.0 && n < 1000.0 => format!("{n:.1}"),
        n @ 0..100_000 => n.to_string(),
        n @ 100_000..10_000_000 => format!("{}k", n / 1000),
        n @ 10_000_000..99_950_000 => format!("{:.1}M", n as f64 / 1e6),
        n @ 99_950_000..9_999_500_000 => format!("{:.0}M", n as f64 / 1e6),
        n @ 9_999_500_000..99_950_000_000 => format!("{:.1}G", n as f64 / 1e9),
        n => format!("{:.0}G", n as f64 / 1e9),
    }
}

/// Pads `word` to `width` columns, or cuts it, leaving one column free.
pub(super) fn fit(word: &str, width: usize) -> String {
    let of = |c: char| c.width().unwrap_or(0);
    let whole = word.width();
    let mut out = String::new();
    let mut used = 0;
    for c in word.chars() {
        // One column stays free, and one is for the mark of a cut.
        let room = if whole < width { width } else { width - 2 };
        if used + of(c) > room {
            break;
        }
        used += of(c);
        out.push(c);
    }
    if whole >= width {
        out.push('…');
        used += 1;
    }
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

/// Cuts `text` to `room` characters, the last of which then marks the cut.
pub(crate) fn cut(text: &str, room: usize) -> String {
    match text.char_indices().nth(room) {
        Some(_) => text.chars().take(room - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// Breaks each line of a text at its words. An indented line is one of a traceback and stays whole.
pub(crate) fn wrap(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let (mut used, is_whole) = (0, line.starts_with(' '));
        for word in line.split(|c: char| c == ' ' && !is_whole) {
            let width = word.width();
            if used > 0 && used + 1 + width > WIDTH {
                out.push_str("\n    ");
                used = 4;
            } else if used > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += width;
        }
        out.push('\n');
    }
    out
}
