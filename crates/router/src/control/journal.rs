//! The record of the changes of the configuration.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sluice_ipfw::grammar::{self, Command};

/// A change of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The instant, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The command, or the file that was loaded.
    pub text: String,
    /// The refusal, if it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<String>,
}

/// The last changes of the configuration, in fixed memory.
#[derive(Debug, Default)]
pub struct Journal(Mutex<VecDeque<Change>>);

/// Largest number of changes.
const MOST: usize = 64;
/// Largest number of characters of a change.
const LONGEST: usize = 200;

impl Journal {
    /// Notes a change now, or its refusal.
    pub fn note(&self, text: String, refused: Option<String>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut entries = self.lock();
        if entries.len() == MOST {
            entries.pop_front();
        }
        entries.push_back(Change {
            unix_ms: now.map_or(0, |since| since.as_millis() as u64),
            text: short(&text),
            refused: refused.as_deref().map(short),
        });
    }

    /// Returns the changes, oldest first.
    pub fn entries(&self) -> Vec<Change> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Change>> {
        // Nothing under the lock can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first line, shortened, with the number of the others.
fn short(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut short: String = first.chars().take(LONGEST).collect();
    if short.len() < first.len() {
        short.push_str(" ...");
    }
    match lines.count() {
        0 => {}
        more => short.push_str(&format!(" (and {more} more lines)")),
    }
    short
}

/// Returns whether a text of commands changes the configuration, as far as its words say. A command
/// that is refused counts, since it was meant to.
pub(super) fn changes(text: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let only_shows = words.any(|word| ["show", "list", "info", "lookup"].contains(&word));
        let Ok(line) = grammar::parse(line, 1, false) else {
            return true;
        };
        line.invocation
            .is_some_and(|invocation| match invocation.command {
                Command::ShowObjects(..) | Command::List { .. } => false,
                Command::Sysctl { variables, .. } => {
                    variables.iter().any(|variable| variable.value.is_some())
                }
                Command::Table(_) | Command::Set(_) => !only_shows,
                _ => !invocation.flags.check_only,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_only_show_are_no_changes() {
        for text in [
            "ipfw pipe show",
            "ipfw -a list",
            "ipfw sysctl net.inet.ip.fw.one_pass",
            "ipfw table all list",
            "ipfw -n pipe 1 config bw 1M",
            "# a comment",
        ] {
            assert!(!changes(text), "{text}");
        }
        for text in [
            "ipfw pipe 1 config bw 1M",
            "ipfw add allow ip from any to any",
            "ipfw sysctl net.inet.ip.fw.one_pass=0",
            "ipfw table 1 add 10.0.0.1",
            "ipfw flush",
        ] {
            assert!(changes(text), "{text}");
        }
    }

    #[test]
    fn the_journal_keeps_the_last_changes_and_shortens_them() {
        let journal = Journal::default();
        for number in 0..100 {
            journal.note(format!("pipe {number} config"), None);
        }
        journal.note(format!("{}\nb\nc", "x".repeat(500)), Some("no".into()));
        let entries = journal.entries();
        assert_eq!(entries.len(), 64);
        assert_eq!(entries[0].text, "pipe 37 config");
        let last = &entries[63];
        assert!(
            last.text.ends_with("x ... (and 2 more lines)"),
            "{}",
            last.text
        );
        assert!(last.text.len() < 250);
        assert_eq!(last.refused.as_deref(), Some("no"));
    }
}
