//! Writes commands in a form that reads as the same command.

use std::fmt;

use super::command::{Command, Invocation, SWITCHES, SetCommand, Span};
use crate::words::token::At;

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl fmt::Display for SetCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetCommand::Show => f.write_str("set show"),
            SetCommand::Swap(a, b) => write!(f, "set swap {a} {b}"),
            SetCommand::Move(from, to) => write!(f, "set move {from} to {to}"),
            SetCommand::MoveRule(rule, to) => write!(f, "set move rule {} to {to}", rule.value),
            SetCommand::Switch { disable, enable } => {
                f.write_str("set")?;
                for (word, sets) in [("disable", disable), ("enable", enable)] {
                    if !sets.is_empty() {
                        write!(f, " {word}")?;
                        sets.iter().try_for_each(|set| write!(f, " {set}"))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = |f: &mut fmt::Formatter<'_>, set: &Option<u8>| match set {
            Some(set) => write!(f, "set {set} "),
            None => Ok(()),
        };
        let spans = |f: &mut fmt::Formatter<'_>, spans: &[At<Span>]| {
            spans
                .iter()
                .try_for_each(|span| write!(f, " {}", span.value))
        };
        match self {
            Command::Configure(config) => config.fmt(f),
            Command::ShowObjects(kind, selected) => {
                write!(f, "{} show", kind.word())?;
                spans(f, selected)
            }
            Command::DeleteObjects(kind, numbers) => {
                write!(f, "{} delete", kind.word())?;
                numbers.iter().try_for_each(|n| write!(f, " {}", n.value))
            }
            Command::FlushObjects(kind) => write!(f, "{} flush", kind.word()),
            Command::Add(rule) => rule.fmt(f),
            Command::List {
                has_counters,
                rules,
                set,
            } => {
                prefix(f, set)?;
                f.write_str(if *has_counters { "show" } else { "list" })?;
                spans(f, rules)
            }
            Command::Delete { rules, set } => {
                prefix(f, set)?;
                f.write_str("delete")?;
                spans(f, rules)
            }
            Command::Zero {
                rules,
                set,
                log_only,
            } => {
                prefix(f, set)?;
                f.write_str(if *log_only { "resetlog" } else { "zero" })?;
                spans(f, rules)
            }
            Command::Flush(set) => {
                prefix(f, set)?;
                f.write_str("flush")
            }
            Command::Set(command) => command.fmt(f),
            Command::Table(command) => command.fmt(f),
            Command::Switch(which, is_on) => {
                let name = SWITCHES
                    .iter()
                    .find(|(_, v)| v == which)
                    .map_or("", |(n, _)| n);
                write!(f, "{} {name}", if *is_on { "enable" } else { "disable" })
            }
            Command::Sysctl {
                values_only,
                variables,
            } => {
                f.write_str("sysctl")?;
                f.write_str(if *values_only { " -n" } else { "" })?;
                variables.iter().try_for_each(|v| match &v.value {
                    Some(value) => write!(f, " {}={}", v.name.value, value.value),
                    None => write!(f, " {}", v.name.value),
                })
            }
            Command::Batch(path) => f.write_str(&path.value),
        }
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.flags, self.command)
    }
}
