//! The flags before a command.

use std::fmt;

use super::error::{CommandError, ErrorKind};
use super::parser::{Parse, Parser};

/// The flags before a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-a`: with counters.
    pub counters: bool,
    /// `-b`: action and remark only.
    pub brief: bool,
    /// `-c`: compact.
    pub compact: bool,
    /// `-d`: dynamic rules too; `-D`: only them.
    pub dynamic: Dynamic,
    /// `-e`: expired dynamic rules too.
    pub expired: bool,
    /// `-f`: no question before what destroys.
    pub force: bool,
    /// `-n`: read, but change nothing.
    pub check_only: bool,
    /// `-N`: names in the output.
    pub names: bool,
    /// `-q`: quiet; implies `-f`.
    pub quiet: bool,
    /// `-S`: sets.
    pub sets: bool,
    /// `-t` or `-T`: when a rule last matched.
    pub times: Times,
    /// `-v`: bursts in full.
    pub verbose: bool,
    /// `--json`: the state as a structure instead of text.
    pub json: bool,
    /// `--atomic`: all lines of a batch or none.
    pub atomic: bool,
}

/// Which rules are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dynamic {
    /// The static ones.
    #[default]
    No,
    /// The dynamic ones too.
    Also,
    /// Only the dynamic ones.
    Only,
}

/// How the time of the last match is written.
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
    /// Takes over what stands before the name of the file that a line is in.
    pub(crate) fn inherit(&mut self, outer: &Flags) {
        self.force |= outer.force;
        self.quiet |= outer.quiet;
        self.check_only |= outer.check_only;
        self.names |= outer.names;
        self.sets |= outer.sets;
        self.compact |= outer.compact;
    }
}

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
                    // The field may be glued, or be the next word; sorting is off in dummynet too.
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
