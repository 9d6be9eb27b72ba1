//! Text for a terminal. Names come from files of other people: scenarios, recordings, packages. An
//! escape sequence among them could hide text, retitle the window or send a reply to the shell.
//!
//! Everything that this crate prints passes [`clean`]: standard output through
//! [`print`](crate::print), standard error through the macros `eprintln!` and `eprint!` of this crate, names
//! beside a bar through [`clean_line`].
//! They replace those of `std`, which panic when standard error cannot be written: its reader is
//! gone, its disk full, its terminal closed. A router must outlive that.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

/// Like `std::eprintln!`, with control characters made visible.
macro_rules! eprintln {
    ($($words:tt)*) => {
        $crate::terminal::complain(&::std::format!($($words)*), "\n")
    };
}

/// Like `std::eprint!`, with control characters made visible.
macro_rules! eprint {
    ($($words:tt)*) => {
        $crate::terminal::complain(&::std::format!($($words)*), "")
    };
}

/// Prints to standard error. A failure is ignored: there is nowhere left to report it.
pub(crate) fn complain(text: &str, end: &str) {
    let mut error = io::stderr().lock();
    let _ = write!(error, "{}{end}", clean(text));
}

/// Returns what to print to standard output: `text` as it is for a file or a pipe, without control
/// characters for a terminal.
pub(crate) fn for_output(text: &str) -> Cow<'_, str> {
    match io::stdout().is_terminal() {
        true => clean(text),
        false => Cow::Borrowed(text),
    }
}

/// Returns the number of columns of standard output: what COLUMNS has, or the terminal.
pub(crate) fn columns() -> Option<usize> {
    columns_of(std::env::var("COLUMNS").ok().as_deref(), || {
        let is_terminal = io::stdout().is_terminal();
        let (columns, _) = is_terminal.then(|| ratatui::crossterm::terminal::size().ok())??;
        Some(usize::from(columns))
    })
}

fn columns_of(named: Option<&str>, of_terminal: impl FnOnce() -> Option<usize>) -> Option<usize> {
    let named = named.and_then(|text| text.parse().ok());
    named.filter(|columns| *columns > 0).or_else(of_terminal)
}

/// Replaces control characters other than line feed and tab by their escape (`\\u{1b}`), and those
/// that change the direction of text or have no width, too.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        let is_layout = matches!(c, '\n' | '\t');
        let is_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let is_invisible = matches!(c, '\u{200b}' | '\u{feff}');
        (c.is_control() && !is_layout) || is_direction || is_invisible
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive('\n') {
        // A line of JSON stays one: its escapes have four digits.
        let is_json = line.starts_with('{');
        for c in line.chars() {
            match is_harmful(c) {
                true if is_json => cleaned.push_str(&format!("\\u{:04x}", u32::from(c))),
                true => cleaned.extend(c.escape_unicode()),
                false => cleaned.push(c),
            }
        }
    }
    Cow::Owned(cleaned)
}

/// Does the same as [`clean`] for text that stays within its line.
pub(crate) fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Removes the escape sequences that set colours (SGR, ECMA-48), and no others.
pub(crate) fn without_colours(text: &str) -> String {
    let mut parts = text.split(CSI);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        if let Some(after) = end.strip_prefix('m') {
            plain.push_str(after);
        } else {
            plain.push_str(CSI);
            plain.push_str(part);
        }
    }
    plain
}

const CSI: &str = "\u{1b}[";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_the_terminal() {
        let name = "cubic\u{1b}]0;title\u{7}\u{9b}2J\r\u{202e}gnp";
        assert_eq!(
            clean(name),
            "cubic\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{d}\\u{202e}gnp"
        );
        // A zero width space, and a byte order mark that is not at the start of a file.
        assert_eq!(clean("pi\u{200b}e\u{feff}"), "pi\\u{200b}e\\u{feff}");
        let json = "{\"text\":\"caf\u{200b}e\"}\n";
        assert_eq!(clean(json), "{\"text\":\"caf\\u200be\"}\n");
    }

    #[test]
    fn a_name_beside_a_bar_stays_in_its_line() {
        assert_eq!(clean_line("a\u{1b}[2J\nb\tc"), "a\\u{1b}[2J b c");
    }

    #[test]
    fn only_sequences_of_colours_are_removed() {
        let text = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m `a\u{1b}[2Jb\u{1b}]0;x\u{7}`\u{1b}[";
        let plain = "error: `a\u{1b}[2Jb\u{1b}]0;x\u{7}`\u{1b}[";
        assert_eq!(without_colours(text), plain);
        assert_eq!(without_colours("plain"), "plain");
    }

    #[test]
    fn columns_takes_precedence_over_the_terminal() {
        let terminal = || Some(80);
        assert_eq!(columns_of(Some("120"), terminal), Some(120));
        assert_eq!(columns_of(Some("120"), || None), Some(120));
        for none in [None, Some(""), Some("0"), Some("-1"), Some("wide")] {
            assert_eq!(columns_of(none, terminal), Some(80));
            assert_eq!(columns_of(none, || None), None);
        }
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        let text = "a\tb\nMbit/s µs 中文 é\n";
        assert!(matches!(clean(text), Cow::Borrowed(same) if same == text));
    }
}
