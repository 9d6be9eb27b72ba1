//! The record of the changes of the configuration.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sluice_ipfw::grammar;

/// A change of the configuration. If the system's clock is set back, earlier changes move into the past
/// with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The instant, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Who made it: `uid 0` over the control socket, an address over HTTP, `reload`, `start`.
    #[serde(default)]
    pub by: String,
    /// The command, or the file that was loaded.
    pub text: String,
    /// The refusal, if it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<String>,
}

/// The last changes of the configuration, in fixed memory.
#[derive(Debug, Default)]
pub struct Journal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Change>,
    noted: u64,
    /// The last instant, and the time that the system's clock showed then.
    last: Option<Now>,
}

/// An instant, and the time since the Unix epoch that the system's clock shows then.
#[derive(Clone, Copy, Debug)]
struct Now {
    at: Instant,
    unix_ms: u64,
}

impl Now {
    fn read() -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Now {
            at: Instant::now(),
            unix_ms: since.map_or(0, in_ms),
        }
    }
}

fn in_ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Largest number of changes. They are logged ten times a second, between which clients make fewer.
const MOST: usize = 1024;
/// Largest number of changes that samples show.
const SHOWN: usize = 64;
/// Largest number of characters of a change.
const LONGEST: usize = 200;

impl Journal {
    /// A clock that is set back by less is taken for one that runs slowly.
    pub const LEAST_STEP_MS: u64 = 500;

    /// Notes a change by somebody now, or its refusal. Returns the number of changes so far.
    pub fn note(&self, by: &str, text: &str, refused: Option<String>) -> u64 {
        self.note_at(Now::read(), by, text, refused)
    }

    fn note_at(&self, now: Now, by: &str, text: &str, refused: Option<String>) -> u64 {
        let mut state = self.lock_at(now);
        if state.entries.len() == MOST {
            state.entries.pop_front();
        }
        state.entries.push_back(Change {
            unix_ms: now.unix_ms,
            by: by.to_owned(),
            text: short(text),
            refused: refused.as_deref().map(short),
        });
        state.noted += 1;
        state.noted
    }

    /// Returns the last changes, oldest first, and the number of all changes so far.
    pub fn latest(&self) -> (Vec<Change>, u64) {
        self.latest_at(Now::read())
    }

    fn latest_at(&self, now: Now) -> (Vec<Change>, u64) {
        let state = self.lock_at(now);
        let skipped = state.entries.len().saturating_sub(SHOWN);
        (
            state.entries.iter().skip(skipped).cloned().collect(),
            state.noted,
        )
    }

    /// Returns the changes behind the first `number`, as far as they are kept, and the number of all
    /// changes so far.
    pub fn since(&self, number: u64) -> (Vec<Change>, u64) {
        let state = self.lock_at(Now::read());
        let new = usize::try_from(state.noted.saturating_sub(number)).unwrap_or(usize::MAX);
        let skipped = state.entries.len().saturating_sub(new);
        (
            state.entries.iter().skip(skipped).cloned().collect(),
            state.noted,
        )
    }

    /// Returns the state, with the changes where the system's clock has them now.
    fn lock_at(&self, now: Now) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic halfway.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.follow(now);
        state
    }
}

impl State {
    /// Moves the changes into the past if the clock was set back. Otherwise, they would lie in the
    /// future.
    fn follow(&mut self, now: Now) {
        // Another thread has read the clocks later, and had the lock first.
        if self.last.is_some_and(|last| now.at < last.at) {
            return;
        }
        if let Some(last) = self.last {
            let expected_ms = last.unix_ms + in_ms(now.at.saturating_duration_since(last.at));
            let back_ms = expected_ms.saturating_sub(now.unix_ms);
            if back_ms > Journal::LEAST_STEP_MS {
                for change in &mut self.entries {
                    change.unix_ms = change.unix_ms.saturating_sub(back_ms);
                }
            }
        }
        self.last = Some(now);
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

/// Returns whether a text of commands changes the configuration or counters, as far as its words say.
/// A command that is refused counts, since it was meant to.
pub(crate) fn changes(text: &str) -> bool {
    text.lines().any(|line| {
        let Ok(line) = grammar::parse(line, 1, false) else {
            return true;
        };
        line.invocation
            .is_some_and(|it| !it.command.is_reading() && !it.flags.check_only)
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
            "ipfw table t lookup 10.0.0.1",
            "ipfw table t detail",
            "ipfw set show",
            "ipfw -n table t add 10.0.0.1",
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
            // The table's name.
            "ipfw table list add 10.0.0.1",
            "ipfw zero",
            "ipfw flush",
        ] {
            assert!(changes(text), "{text}");
        }
    }

    #[test]
    fn changes_stay_in_the_past_when_the_clock_is_set_back() {
        let start = Instant::now();
        let now = |second, unix_ms| Now {
            at: start + Duration::from_secs(second),
            unix_ms,
        };
        let journal = Journal::default();
        let times = |now| -> Vec<u64> {
            let (latest, _) = journal.latest_at(now);
            latest.iter().map(|change| change.unix_ms).collect()
        };
        journal.note_at(now(0, 1_000_000), "uid 0", "flush", None);
        assert_eq!(times(now(60, 1_060_000)), [1_000_000]);
        // Set back by 300 s, a minute after the change: it was at 760 s - 60 s.
        assert_eq!(times(now(60, 760_000)), [700_000]);
        assert_eq!(times(now(61, 761_000)), [700_000]);
        // A change after another step of 10 s.
        journal.note_at(now(62, 752_000), "uid 0", "flush", None);
        assert_eq!(times(now(63, 753_000)), [690_000, 752_000]);
        // The clock runs slowly, and is set forward.
        assert_eq!(times(now(64, 753_600)), [690_000, 752_000]);
        assert_eq!(times(now(65, 900_000)), [690_000, 752_000]);
    }

    #[test]
    fn the_journal_keeps_the_last_changes_and_shortens_them() {
        let journal = Journal::default();
        for number in 0..100 {
            journal.note("uid 0", &format!("pipe {number} config"), None);
        }
        let long = format!("{}\nb\nc", "x".repeat(500));
        assert_eq!(journal.note("reload", &long, Some("no".into())), 101);
        let (new, noted) = journal.since(99);
        let by: Vec<&str> = new.iter().map(|change| change.by.as_str()).collect();
        assert_eq!((by, noted), (vec!["uid 0", "reload"], 101));
        assert!(journal.since(101).0.is_empty());
        // More than are shown in samples.
        assert_eq!(journal.since(0).0.len(), 101);
        assert_eq!(journal.since(0).0[0].text, "pipe 0 config");
        let (latest, noted) = journal.latest();
        assert_eq!((latest.len(), noted), (64, 101));
        assert_eq!(latest[0].text, "pipe 37 config");
        let last = &latest[63];
        assert!(
            last.text.ends_with("x ... (and 2 more lines)"),
            "{}",
            last.text
        );
        assert!(last.text.len() < 250);
        assert_eq!(last.refused.as_deref(), Some("no"));
        for _ in 0..MOST {
            journal.note("uid 0", "flush", None);
        }
        let (kept, noted) = journal.since(0);
        assert_eq!((kept.len(), noted), (1024, 1125));
    }
}
