//! The flags before a command.

use std::fmt;

use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser};
use crate::words::token::Words;

/// The flags before a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-a`: show counters.
    pub counters: bool,
    /// `-b`: show action and remark only.
    pub brief: bool,
    /// `-c`: compact form.
    pub compact: bool,
    /// `-d`: show dynamic rules too; `-D`: only them.
    pub dynamic: Dynamic,
    /// `-e`: show expired dynamic rules too.
    pub expired: bool,
    /// `-f`: do not ask before deleting, and go on without what is not there.
    pub force: bool,
    /// `-n`: check the command without executing it.
    pub check_only: bool,
    /// `-N`: show names of services.
    pub names: bool,
    /// `-q`: quiet; implies `-f`.
    pub quiet: bool,
    /// `-S`: show sets.
    pub sets: bool,
    /// `-t` or `-T`: show when a rule last matched.
    pub times: Times,
    /// `-v`: show bursts as plain numbers.
    pub verbose: bool,
    /// `--json`: show the state as JSON instead of text.
    pub json: bool,
    /// `--atomic`: execute all lines of a batch or none.
    pub atomic: bool,
}

/// The rules that are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dynamic {
    /// Static rules.
    #[default]
    No,
    /// Static and dynamic rules.
    Also,
    /// Dynamic rules.
    Only,
}

/// The format of the time of the last match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Not at all.
    #[default]
    No,
    /// As a date.
    Date,
    /// In seconds.
    Seconds,
}

impl Flags {
    /// Adds the flags that precede the name of the file in which a line stands.
    pub(crate) fn inherit(&mut self, outer: &Flags) {
        self.force |= outer.force;
        self.quiet |= outer.quiet;
        self.check_only |= outer.check_only;
        self.names |= outer.names;
        self.sets |= outer.sets;
        self.compact |= outer.compact;
    }
}

/// Adds the place of flags to the refusal of a word that is one, behind the command.
pub(super) fn misplaced(mut error: CommandError, words: &Words<'_>) -> CommandError {
    let is_flag = |word: &str| match word.strip_prefix('-') {
        Some("-json" | "-atomic") => true,
        Some(letters) => !letters.is_empty() && letters.chars().all(|c| LETTERS.contains(c)),
        None => false,
    };
    let refused = words.tokens.iter().find(|token| Some(token.at) == error.at);
    if error.nearest.is_none() && refused.is_some_and(|token| is_flag(&token.text)) {
        error.advice = Some("flags come before the command: `ipfw -a list`");
    }
    error
}

/// Returns the refusal of `--json` before a command that has no JSON.
pub(super) fn no_json(words: &Words<'_>) -> CommandError {
    let flag = words.tokens.iter().find(|token| token.text == "--json");
    CommandError {
        at: flag.map(|token| token.at),
        ..CommandError::of(ErrorKind::NoJson)
    }
}

/// The flags of one letter.
const LETTERS: &str = "abcdDefinNqSstTv";

/// Reads the flags.
pub(super) fn flags(p: &mut Parser<'_>) -> Parse<Flags> {
    let mut flags = Flags::default();
    while let Some(letters) = p.peek().and_then(|w| w.strip_prefix('-')) {
        let word = p.take().expect("the word was just seen");
        match letters {
            "-json" => {
                flags.json = true;
                continue;
            }
            "-atomic" => {
                flags.atomic = true;
                continue;
            }
            "" => {
                return Err(CommandError::new(
                    ErrorKind::UnknownFlag(String::new()),
                    word.at,
                ));
            }
            _ => {}
        }
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'a' => flags.counters = true,
                'b' => {
                    flags.brief = true;
                    flags.compact = true;
                }
                'c' => flags.compact = true,
                'd' => flags.dynamic = Dynamic::Also,
                'D' => flags.dynamic = Dynamic::Only,
                'e' => flags.expired = true,
                'f' => flags.force = true,
                'i' => p.warn(
                    word.at,
                    "`-i` has no effect: table values are shown as numbers",
                ),
                'n' => flags.check_only = true,
                'N' => flags.names = true,
                'q' => {
                    flags.quiet = true;
                    flags.force = true;
                }
                'S' => flags.sets = true,
                's' => {
                    // The field may be attached or be the next word. dummynet does not sort either.
                    if letters.next().is_none() {
                        p.need("-s needs a field")?;
                    }
                    p.warn(word.at, "`-s` has no effect: objects are shown by number");
                    break;
                }
                't' => flags.times = Times::Date,
                'T' => flags.times = Times::Seconds,
                'v' => flags.verbose = true,
                'p' | 'U' => {
                    let kind = ErrorKind::OutsidePurpose {
                        word: format!("-{letter}"),
                        purpose: "run the preprocessor yourself and pass its output",
                    };
                    return Err(CommandError::new(kind, word.at));
                }
                letter => {
                    let kind = ErrorKind::UnknownFlag(letter.to_string());
                    return Err(CommandError::new(kind, word.at));
                }
            }
        }
    }
    Ok(flags)
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (self.counters, 'a'),
            (self.brief, 'b'),
            (self.compact && !self.brief, 'c'),
            (self.dynamic == Dynamic::Also, 'd'),
            (self.dynamic == Dynamic::Only, 'D'),
            (self.expired, 'e'),
            (self.force && !self.quiet, 'f'),
            (self.check_only, 'n'),
            (self.names, 'N'),
            (self.quiet, 'q'),
            (self.sets, 'S'),
            (self.times == Times::Date, 't'),
            (self.times == Times::Seconds, 'T'),
            (self.verbose, 'v'),
        ];
        let letters: String = letters
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, c)| c)
            .collect();
        if !letters.is_empty() {
            write!(f, "-{letters} ")?;
        }
        f.write_str(if self.json { "--json " } else { "" })?;
        f.write_str(if self.atomic { "--atomic " } else { "" })
    }
}
