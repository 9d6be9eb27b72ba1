//! `--events`: pipes and queues that begin and cease to drop packets, and interfaces that go down and
//! come up.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_router::process::Router;
use sluice_router::process::watch::{ObjectSample, Sample, Watcher};

use crate::watch::reasons;

/// The state of what events are about.
#[derive(Default)]
pub(super) struct Events {
    looks: u64,
    after: u64,
    /// The drops of each pipe and queue of the last sample since it exists, by reason.
    before: BTreeMap<String, Drops>,
    dropping: BTreeMap<String, Dropping>,
    up: BTreeMap<String, bool>,
}

/// Drops by reason.
type Drops = BTreeMap<String, u64>;

/// A pipe or queue that drops packets.
struct Dropping {
    name: String,
    flow: Option<String>,
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
/// Looks between two questions about the interfaces: one per second.
const LOOKS: u64 = 10;

impl Events {
    /// Returns what has happened. Call it every tenth of a second; it does not block for longer than a
    /// request to the kernel.
    pub fn look(&mut self, router: &Router) -> Vec<Event> {
        self.looks += 1;
        // Only the newest sample is kept, so that rarer looks would miss some.
        let mut events = self.sampled_by(router.watcher());
        if self.looks.is_multiple_of(LOOKS) {
            events.extend(self.interfaces(router.interfaces_up()));
        }
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
        // The clock of the system may be set, and samples may have been missed.
        let now = Duration::from_nanos(sample.status.uptime_ns);
        let unix_ms = sample.unix_ms;
        let mut events = Vec::new();
        let before = std::mem::take(&mut self.before);
        for object in &sample.objects {
            let name = object.label();
            let drops = new_drops(object, before.get(&name));
            self.before
                .insert(name.clone(), object.total_dropped.clone());
            let dropped: u64 = drops.values().sum();
            if dropped == 0 {
                continue;
            }
            let is_new = !self.dropping.contains_key(&name);
            if is_new && self.dropping.len() >= MOST {
                continue;
            }
            let state = self.dropping.entry(name.clone()).or_insert(Dropping {
                name: object.name.clone(),
                flow: object.flow.clone(),
                dropped: 0,
                since: now,
                last: now,
                said: now,
            });
            state.dropped += dropped;
            state.last = now;
            if is_new {
                let why = reasons(&drops);
                let line = format!("{name} drops packets: {why}");
                events.push(event(line, unix_ms, "drops_begin", state));
            } else if now.saturating_sub(state.said) >= REPEAT {
                state.said = now;
                let seconds = now.saturating_sub(state.since).as_secs();
                let line = format!(
                    "{name} has dropped {} packets in {seconds} s",
                    state.dropped
                );
                events.push(event(line, unix_ms, "drops", state));
            }
        }
        self.dropping.retain(|name, state| {
            let is_over = now.saturating_sub(state.last) >= QUIET;
            if is_over {
                let seconds = state.last.saturating_sub(state.since).as_secs();
                let dropped = state.dropped;
                let line =
                    format!("{name} drops no more packets; it dropped {dropped} in {seconds} s");
                events.push(event(line, unix_ms, "drops_end", state));
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

/// Returns the drops of a pipe or queue since it had dropped those of `before`, also those in samples that
/// were missed. Of one that the sample before did not show, these are the drops of the interval.
fn new_drops(object: &ObjectSample, before: Option<&Drops>) -> Drops {
    let new = object.total_dropped.iter().map(|(reason, total)| {
        let new = match before.map(|before| before.get(reason).copied().unwrap_or(0)) {
            // Below that, it is another pipe with this name.
            Some(before) => total.checked_sub(before).unwrap_or(*total),
            // The total is read first: later drops count with the next sample.
            None => {
                let in_interval = object.traffic.dropped.get(reason);
                in_interval.copied().unwrap_or(0).min(*total)
            }
        };
        (reason.clone(), new)
    });
    new.filter(|(_, count)| *count > 0).collect()
}

fn event(line: String, unix_ms: u64, name: &str, state: &Dropping) -> Event {
    Event {
        line,
        json: json!({
            "log": "event",
            "event": name,
            "unix_ms": unix_ms,
            "object": state.name,
            "flow": state.flow,
            "dropped": state.dropped,
        }),
    }
}

#[cfg(test)]
mod tests {
    use sluice_router::process::Status;

    use super::*;
    use crate::documented;
    use crate::router::log::Log;

    /// A sample of a pipe that has dropped `dropped` packets in the last second, and `total` so far.
    fn sample(second: u64, dropped: u64, total: u64) -> Sample {
        let drops = |count| match count {
            0 => Drops::new(),
            count => [("overflow".to_owned(), count)].into(),
        };
        let mut object = ObjectSample {
            name: "pipe 1".to_owned(),
            total_dropped: drops(total),
            ..ObjectSample::default()
        };
        object.traffic.dropped = drops(dropped);
        Sample {
            unix_ms: second * 1000,
            interval_ns: 1_000_000_000,
            status: Status {
                uptime_ns: second * 1_000_000_000,
                ..Status::default()
            },
            objects: vec![object],
            ..Sample::default()
        }
    }

    /// Returns the samples of a pipe that drops this many packets in each second.
    fn samples(dropped: impl IntoIterator<Item = u64>) -> Vec<Sample> {
        let mut total = 0;
        let seconds = (0..).zip(dropped);
        let one = seconds.map(|(second, dropped)| {
            total += dropped;
            sample(second, dropped, total)
        });
        one.collect()
    }

    fn lines<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Vec<String> {
        let mut events = Events::default();
        let said = samples.into_iter().flat_map(|one| events.sampled(one));
        said.map(|event| event.line).collect()
    }

    #[test]
    fn a_pipe_that_drops_has_a_line_at_the_beginning_each_minute_and_at_the_end() {
        // Drops in the first 70 seconds, with a pause of 5 s that is no end.
        let dropped = |second: u64| u64::from(second < 70 && !(20..25).contains(&second)) * 2;
        assert_eq!(
            lines(&samples((0..200).map(dropped))),
            [
                "pipe 1 drops packets: overflow 2",
                // Seconds 0 to 60 without the pause: 56 of 2 packets.
                "pipe 1 has dropped 112 packets in 60 s",
                "pipe 1 drops no more packets; it dropped 130 in 69 s",
            ]
        );
    }

    #[test]
    fn drops_in_samples_that_were_missed_count() {
        // One packet in each of the seconds 0 to 60; one sample in ten is missed.
        let all = samples((0..80).map(|second| u64::from(second <= 60)));
        let seen = all.iter().zip(0..).filter(|(_, second)| second % 10 != 5);
        assert_eq!(
            lines(seen.map(|(sample, _)| sample)),
            [
                "pipe 1 drops packets: overflow 1",
                "pipe 1 has dropped 61 packets in 60 s",
                "pipe 1 drops no more packets; it dropped 61 in 60 s",
            ]
        );
        // All drops are in the sample that is missed.
        let all = samples([0, 5, 0]);
        assert_eq!(
            lines([&all[0], &all[2]]),
            ["pipe 1 drops packets: overflow 5"]
        );
    }

    #[test]
    fn drops_from_before_and_of_another_pipe_with_the_name_do_not_count() {
        // 100 packets before the first sample, one in it. Then the pipe is made again and drops two.
        let mut events = Events::default();
        let mut dropped = |one: &Sample| {
            events.sampled(one);
            events.dropping["pipe 1"].dropped
        };
        assert_eq!(dropped(&sample(0, 1, 101)), 1);
        assert_eq!(dropped(&sample(1, 2, 2)), 3);
    }

    #[test]
    fn a_clock_that_is_set_back_holds_up_no_line() {
        let mut events = Events::default();
        let mut numbers = Vec::new();
        // Drops in the first three seconds; then the clock is set back by an hour.
        let all = samples((0..20).map(|second| u64::from(second < 3)));
        for (second, mut sample) in (0_u64..).zip(all) {
            let shown = if second < 3 { second + 3600 } else { second };
            sample.unix_ms = shown * 1000;
            let found = events.sampled(&sample);
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
        let mut sample = sample(0, 1, 1);
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
    fn the_flow_of_a_mask_has_a_key_of_its_own_as_in_samples() {
        let mut events = Events::default();
        let mut all = samples((0..20).map(|second| u64::from(second < 3)));
        for sample in &mut all {
            sample.objects[0].flow = Some("10.0.0.2 > :443".to_owned());
        }
        let found = all.iter().flat_map(|sample| events.sampled(sample));
        let found: Vec<Event> = found.collect();
        assert_eq!(found.len(), 2, "a beginning and an end: {found:?}");
        for event in &found {
            assert!(event.line.starts_with("pipe 1 10.0.0.2 > :443 drops "));
            assert_eq!(event.json["object"], "pipe 1");
            assert_eq!(event.json["flow"], "10.0.0.2 > :443");
        }
        assert_eq!(found[1].json["dropped"], 3);
        let mut all = found;
        for is_up in [true, false] {
            all.extend(events.interfaces(vec![("eth0".to_owned(), is_up)]));
        }
        assert_eq!(all.len(), 3, "{all:?}");
        documented::check_log(&Log::new(true, None).unwrap().events(&all));
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
