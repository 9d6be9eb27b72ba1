//! `--events`: pipes and queues that begin and cease to drop packets, and interfaces that go down and
//! come up.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_router::process::Router;
use sluice_router::process::watch::{Sample, Watcher};

use crate::watch::reasons;

/// The state of what events are about.
#[derive(Default)]
pub(super) struct Events {
    looks: u64,
    after: u64,
    /// The time in all samples so far.
    elapsed: Duration,
    dropping: BTreeMap<String, Dropping>,
    up: BTreeMap<String, bool>,
}

/// A pipe or queue that drops packets.
struct Dropping {
    dropped: u64,
    since: Duration,
    last: Duration,
    said: Duration,
}

/// An event, as a line and as an object.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub line: String,
    pub json: Value,
}

/// A pipe that has dropped nothing for this time has ceased to drop packets.
const QUIET: Duration = Duration::from_secs(10);
/// While a pipe drops packets, it has a line each time this has passed.
const REPEAT: Duration = Duration::from_secs(60);
/// Pipes and queues that have lines at the same time; the others have none.
const MOST: usize = 16;
/// Looks between two checks: one check per second.
const LOOKS: u64 = 10;

impl Events {
    /// Returns what has happened. Call it every tenth of a second; it does not block for longer than a
    /// request to the kernel.
    pub fn look(&mut self, router: &Router) -> Vec<Event> {
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS) {
            return Vec::new();
        }
        let mut events = self.sampled_by(router.watcher());
        events.extend(self.interfaces(router.interfaces_up()));
        events
    }

    fn sampled_by(&mut self, watcher: &Watcher) -> Vec<Event> {
        match watcher.sample(self.after, Duration::ZERO) {
            Ok(sample) => {
                self.after = sample.number;
                self.sampled(&sample)
            }
            // It comes later.
            Err(_) => Vec::new(),
        }
    }

    fn sampled(&mut self, sample: &Sample) -> Vec<Event> {
        // The clock of the system may be set.
        self.elapsed += Duration::from_nanos(sample.interval_ns);
        let now = self.elapsed;
        let unix_ms = sample.unix_ms;
        let mut events = Vec::new();
        for object in &sample.objects {
            let dropped = object.traffic.dropped_total();
            if dropped == 0 {
                continue;
            }
            let name = object.label();
            let is_new = !self.dropping.contains_key(&name);
            if is_new && self.dropping.len() >= MOST {
                continue;
            }
            let state = self.dropping.entry(name.clone()).or_insert(Dropping {
                dropped: 0,
                since: now,
                last: now,
                said: now,
            });
            state.dropped += dropped;
            state.last = now;
            if is_new {
                let why = reasons(&object.traffic.dropped);
                let line = format!("{name} drops packets: {why}");
                events.push(event(line, unix_ms, &name, "drops_begin", state.dropped));
            } else if now - state.said >= REPEAT {
                state.said = now;
                let seconds = (now - state.since).as_secs();
                let line = format!(
                    "{name} has dropped {} packets in {seconds} s",
                    state.dropped
                );
                events.push(event(line, unix_ms, &name, "drops", state.dropped));
            }
        }
        self.dropping.retain(|name, state| {
            let is_over = now - state.last >= QUIET;
            if is_over {
                let seconds = (state.last - state.since).as_secs();
                let dropped = state.dropped;
                let line =
                    format!("{name} drops no more packets; it dropped {dropped} in {seconds} s");
                events.push(event(line, unix_ms, name, "drops_end", dropped));
            }
            !is_over
        });
        events
    }

    fn interfaces(&mut self, states: Vec<(String, bool)>) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, is_up) in states {
            let before = self.up.insert(name.clone(), is_up);
            if before.is_some_and(|before| before != is_up) {
                let word = if is_up { "up" } else { "down" };
                events.push(Event {
                    line: format!("{name} is {word}"),
                    json: json!({"log": "event", "event": format!("port_{word}"), "port": name}),
                });
            }
        }
        events
    }
}

fn event(line: String, unix_ms: u64, object: &str, name: &str, dropped: u64) -> Event {
    Event {
        line,
        json: json!({
            "log": "event",
            "event": name,
            "unix_ms": unix_ms,
            "object": object,
            "dropped": dropped,
        }),
    }
}

#[cfg(test)]
mod tests {
    use sluice_router::process::watch::ObjectSample;

    use super::*;

    fn sample(second: u64, dropped: u64) -> Sample {
        let mut object = ObjectSample {
            name: "pipe 1".to_owned(),
            ..ObjectSample::default()
        };
        if dropped > 0 {
            object.traffic.dropped = [("overflow".to_owned(), dropped)].into();
        }
        Sample {
            unix_ms: second * 1000,
            interval_ns: 1_000_000_000,
            objects: vec![object],
            ..Sample::default()
        }
    }

    #[test]
    fn a_pipe_that_drops_has_a_line_at_the_beginning_each_minute_and_at_the_end() {
        let mut events = Events::default();
        let lines: Vec<String> = (0..200)
            // Drops in the first 70 seconds, with a pause of 5 s that is no end.
            .map(|second| {
                (
                    second,
                    u64::from(second < 70 && !(20..25).contains(&second)) * 2,
                )
            })
            .flat_map(|(second, dropped)| events.sampled(&sample(second, dropped)))
            .map(|event| event.line)
            .collect();
        assert_eq!(
            lines,
            [
                "pipe 1 drops packets: overflow 2",
                // Seconds 0 to 60 without the pause: 56 of 2 packets.
                "pipe 1 has dropped 112 packets in 60 s",
                "pipe 1 drops no more packets; it dropped 130 in 69 s",
            ]
        );
    }

    #[test]
    fn a_clock_that_is_set_back_holds_up_no_line() {
        let mut events = Events::default();
        let mut numbers = Vec::new();
        for second in 0..20 {
            // Drops in the first three seconds; then the clock is set back by an hour.
            let shown = if second < 3 { second + 3600 } else { second };
            let found = events.sampled(&sample(shown, u64::from(second < 3)));
            numbers.extend(found.into_iter().map(|event| (second, event.line)));
        }
        let end = "pipe 1 drops no more packets; it dropped 3 in 2 s".to_owned();
        assert_eq!(
            numbers,
            [
                (0, "pipe 1 drops packets: overflow 1".to_owned()),
                (12, end)
            ]
        );
    }

    #[test]
    fn many_pipes_that_drop_have_few_lines() {
        let mut events = Events::default();
        let mut sample = sample(0, 1);
        let object = sample.objects[0].clone();
        sample.objects = (0..100)
            .map(|number| ObjectSample {
                name: format!("pipe {number}"),
                ..object.clone()
            })
            .collect();
        assert_eq!(events.sampled(&sample).len(), MOST);
    }

    #[test]
    fn interfaces_have_a_line_when_they_change() {
        let mut events = Events::default();
        let mut look = |is_up| {
            let found = events.interfaces(vec![("eth0".to_owned(), is_up)]);
            found
                .into_iter()
                .map(|event| event.line)
                .collect::<Vec<_>>()
        };
        assert!(look(true).is_empty());
        assert_eq!(look(false), ["eth0 is down"]);
        assert!(look(false).is_empty());
        assert_eq!(look(true), ["eth0 is up"]);
    }
}
