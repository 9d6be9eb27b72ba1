//! The words of a command line and their places.

use std::borrow::Cow;
use std::fmt;

use sluice_core::link::text::without_mark;

/// The most bytes of a command, without its comment. Packets wait for a command that a router executes, and
/// this many bytes take a few milliseconds.
pub const MOST_BYTES: usize = 64 << 10;

/// The place of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with the place where it was written. Equality ignores the place.
#[derive(Clone, Copy, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The start of its word.
    pub at: Position,
}

impl<T> At<T> {
    /// Wraps `value`, written at `at`.
    pub const fn new(value: T, at: Position) -> Self {
        At { value, at }
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

/// One word.
#[derive(Clone, Debug)]
pub struct Token<'a> {
    /// The text; owned only if a list had spaces behind its commas.
    pub text: Cow<'a, str>,
    /// The start of the word.
    pub at: Position,
}

/// The words of a line and its end.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    /// The words up to a comment.
    pub tokens: Vec<Token<'a>>,
    /// The comment behind ` //`, which a rule keeps.
    pub remark: Option<String>,
    /// The place behind the last word, where a missing word would stand.
    pub end: Position,
}

/// Splits line number `line` into words.
///
/// `#` ends the line. Double quotes only group words, because a shell would have removed them. A
/// list with spaces behind its commas is one word, as in `ipfw`. The braces or parentheses of an
/// or-block are separate words even without spaces, and become braces. A byte order mark in front of
/// line 1 is skipped.
pub fn words(text: &str, line: u32) -> Words<'_> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut remark = None;
    let text = if line == 1 { without_mark(text) } else { text };
    let text = text.split('#').next().unwrap_or("");
    let is_blank = |c: char| c.is_whitespace() || c == '"';
    let mut column = 0;
    let mut end_column = 1;
    let mut braces = Braces::default();
    let mut rest = text;
    loop {
        let skipped = rest.find(|c| !is_blank(c)).unwrap_or(rest.len());
        column += rest[..skipped].chars().count() as u32;
        rest = &rest[skipped..];
        if rest.is_empty() {
            break;
        }
        let at = Position {
            line,
            column: column + 1,
        };
        let len = rest.find(is_blank).unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        if word.starts_with("//") {
            let words: Vec<&str> = rest[2..]
                .split(is_blank)
                .filter(|w| !w.is_empty())
                .collect();
            remark = Some(words.join(" "));
            break;
        }
        column += word.chars().count() as u32;
        end_column = column + 1;
        rest = after;
        let is_list = word.starts_with(',') || tokens.last().is_some_and(|t| t.text.ends_with(','));
        match tokens.last_mut().filter(|_| is_list) {
            Some(last) => {
                last.text.to_mut().push_str(word);
                braces.add(word);
                braces.split_closing(&mut tokens);
            }
            None => braces = push(&mut tokens, word, at),
        }
    }
    Words {
        tokens,
        remark,
        end: Position {
            line,
            column: end_column,
        },
    }
}

/// Adds a word; an opening brace before it becomes a separate word. Returns the braces of the last one.
fn push<'a>(tokens: &mut Vec<Token<'a>>, mut word: &'a str, mut at: Position) -> Braces {
    let mut braces = Braces::default();
    while word.starts_with(OPENING) {
        tokens.push(Token {
            text: Cow::Borrowed("{"),
            at,
        });
        braces = Braces {
            opened: 1,
            closed: 0,
        };
        word = &word[1..];
        at.column += 1;
    }
    if !word.is_empty() {
        tokens.push(Token {
            text: Cow::Borrowed(word),
            at,
        });
        braces = Braces::default();
        braces.add(word);
        braces.split_closing(tokens);
    }
    braces
}

/// How many braces and parentheses the last word has. They are counted once, however long a list becomes.
#[derive(Default)]
struct Braces {
    opened: usize,
    closed: usize,
}

impl Braces {
    /// Counts those of a text that is appended to the last word.
    fn add(&mut self, text: &str) {
        self.opened += text.matches(OPENING).count();
        self.closed += text.matches(CLOSING).count();
    }

    /// Splits off closing braces at the end of the last word that the word did not open.
    fn split_closing(&mut self, tokens: &mut Vec<Token<'_>>) {
        let Some(last) = tokens.last_mut() else {
            return;
        };
        let text = &*last.text;
        let at_end = text.len() - text.trim_end_matches(CLOSING).len();
        let extra = self.closed.saturating_sub(self.opened).min(at_end);
        if extra == 0 {
            return;
        }
        let kept = text.len() - extra;
        let mut at = last.at;
        at.column += text[..kept].chars().count() as u32;
        if kept == 0 {
            tokens.pop();
        } else {
            match &mut last.text {
                Cow::Borrowed(text) => *text = &text[..kept],
                Cow::Owned(text) => text.truncate(kept),
            }
        }
        for i in 0..extra as u32 {
            let column = at.column + i;
            tokens.push(Token {
                text: Cow::Borrowed("}"),
                at: Position { column, ..at },
            });
        }
        *self = Braces {
            opened: 0,
            closed: 1,
        };
    }
}

const OPENING: [char; 2] = ['{', '('];
const CLOSING: [char; 2] = ['}', ')'];

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let words = words(line, 1);
        words.tokens.iter().map(|t| t.text.to_string()).collect()
    }

    #[test]
    fn words_have_their_columns() {
        let words = words("  pipe 1\tconfig # bw", 7);
        let places: Vec<String> = words.tokens.iter().map(|t| t.at.to_string()).collect();
        assert_eq!(places, ["7:3", "7:8", "7:10"]);
        assert_eq!(words.end.to_string(), "7:16");
    }

    /// Editors on Windows write it.
    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_of_a_text() {
        let first = |line| words("\u{feff}pipe 1", line).tokens[0].clone();
        assert_eq!(first(1).text, "pipe");
        assert_eq!(first(1).at.to_string(), "1:1");
        assert_eq!(first(2).text, "\u{feff}pipe");
    }

    #[test]
    fn a_list_with_blanks_is_one_word() {
        assert_eq!(
            texts("from 1.1.1.1, 2.2.2.2 ,3.3.3.3 to"),
            ["from", "1.1.1.1,2.2.2.2,3.3.3.3", "to"]
        );
    }

    #[test]
    fn braces_of_a_block_are_words_and_those_of_an_address_are_not() {
        assert_eq!(texts("{tcp or udp}"), ["{", "tcp", "or", "udp", "}"]);
        assert_eq!(texts("( tcp )"), ["{", "tcp", "}"]);
        assert_eq!(
            texts("{table(T) or 10.0.0.0/24{1, 5}}"),
            ["{", "table(T)", "or", "10.0.0.0/24{1,5}", "}"]
        );
        let words = words("x {via em0}", 1);
        let places: Vec<u32> = words.tokens.iter().map(|t| t.at.column).collect();
        assert_eq!(places, [1, 3, 4, 8, 11]);
    }

    #[test]
    fn braces_of_a_list_count_wherever_its_parts_have_them() {
        assert_eq!(
            texts("{10.0.0.0/24{1, 5}, 10.0.1.0/24{1, 2}} to"),
            ["{", "10.0.0.0/24{1,5},10.0.1.0/24{1,2}", "}", "to"]
        );
        assert_eq!(
            texts("{ (a, b) , (c, d) }"),
            ["{", "{", "a,b", "},(c,d", "}", "}"]
        );
        assert_eq!(texts("{ ,a} b, c}}"), ["{,a}", "b,c", "}", "}"]);
    }

    /// 2.8 million items of three bytes are the longest text that the control socket accepts, 8 MiB. If
    /// each item had the list before it read again, this would be 10^13 characters, which takes hours.
    #[test]
    fn each_item_of_a_list_is_read_once() {
        let items = 2_800_000;
        let line = format!("pipe show {}2}}", "1, ".repeat(items));
        let words = words(&line, 1);
        let list = &words.tokens[2];
        assert_eq!(list.text.len(), 2 * items + 1);
        assert_eq!(words.tokens[3].text, "}");
        // The column is counted in the list without its blanks.
        assert_eq!(words.tokens[3].at.column as usize, 11 + 2 * items + 1);
    }

    #[test]
    fn quotes_group_nothing_and_a_remark_is_kept() {
        assert_eq!(
            texts("\"pipe 1 config bw 1Mbit/s\""),
            ["pipe", "1", "config", "bw", "1Mbit/s"]
        );
        let words = words("add count // the  web", 1);
        assert_eq!(words.tokens.len(), 2);
        assert_eq!(words.remark.as_deref(), Some("the web"));
    }
}
