//! Replays a live run in virtual time: the recorded arrivals pass the same queues with the same
//! random numbers. Each packet has the same verdict at the same nanosecond.
//!
//! A pipe decides at due times, not at the instants at which a live router happens to run. So the
//! router's own delays can change only the instants at which packets are sent. A different verdict
//! is a bug of the emulation.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_core::param::Value;
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Cx, DropReason, Ecn, Packet, Rng, Sink, Time};
use sluice_router::forward::Queueing as _;

use crate::live::{self, Chain, Recorded};
use sluice_loader::names_file;
use sluice_recording::{Arrival, PacketRow, ReadError, Recording, Rows, algorithms_of};
use sluice_scenario::{Backend, Direction, Pipe, PipeId, Scenario};

/// The reason why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayRunError {
    /// The run has a router with rules, whose arrivals are not recorded.
    #[error("`{dir}` has a router with rules; a replay needs links")]
    Rules {
        /// The folder.
        dir: String,
    },
    /// A queue of the run inspects packets, whose headers are not recorded.
    #[error("`{dir}` has a queue with `ack_filter`, which needs headers; a replay has none")]
    AckFilter {
        /// The folder.
        dir: String,
    },
    /// The run was simulated, so that there is nothing to compare.
    #[error("`{dir}` was simulated; replay a live run, or run the scenario again")]
    Simulated {
        /// The folder.
        dir: String,
    },
    /// A queue of the run executes files outside of a sandbox, which was not allowed.
    #[error("`{dir}` names {files}, which a replay executes with all your rights")]
    Executes {
        /// The folder of the recording.
        dir: String,
        /// The paths of the files.
        files: String,
    },
    /// An algorithm of the run cannot be loaded.
    #[error(
        "`{dir}` needs {queues} from the folder `{}`: {why}; put the file back there, or into the present folder",
        folder.display()
    )]
    NotLoaded {
        /// The folder of the recording.
        dir: String,
        /// The words of the algorithms.
        queues: String,
        /// The folder in which the run found the files.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// A table cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReplay {
    /// The algorithms from files that have changed since the run, so that other verdicts are no fault of the
    /// emulation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The pipes of both directions.
    pub pipes: Vec<PipeReplay>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipeReplay {
    /// The pipe.
    #[serde(serialize_with = "word")]
    pub pipe: PipeId,
    /// The packets that arrived.
    pub packets: u64,
    /// The packets that left unchanged.
    pub sent: u64,
    /// The packets that left with a mark.
    pub marked: u64,
    /// The packets that were dropped.
    pub dropped: u64,
    /// The packets that were still queued at the end.
    pub queued: u64,
    /// The packets with another verdict, reason or instant than in the recording.
    pub differing: u64,
    /// The first of these.
    pub first_difference: Option<Difference>,
}

fn word<S: serde::Serializer>(pipe: &PipeId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(pipe.word())
}

/// A packet with different fates in run and replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Number in the order of arrival.
    pub seq: u64,
    /// Fate in the run; `None` if there was no such packet.
    pub recorded: Option<What>,
    /// Fate in the replay; `None` if there was no such packet.
    pub replayed: Option<What>,
}

/// The fate of a packet, and the time of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct What {
    /// The time of arrival.
    pub time_ns: u64,
    /// `sent`, `marked`, `dropped` or `queued`.
    pub verdict: &'static str,
    /// The reason of a drop.
    pub reason: &'static str,
    /// The time of the decision.
    pub at_ns: u64,
}

impl What {
    fn of(record: &PacketRecord) -> What {
        What {
            time_ns: record.arrival.as_ns(),
            verdict: record.fate.verdict(),
            reason: record.fate.reason(),
            at_ns: record.at.as_ns(),
        }
    }
}

/// Replays `recording`, which must be of a live run. Only if `may_execute`, queues may execute the files that
/// the recording names outside of a sandbox.
///
/// # Errors
/// [`ReplayRunError`].
pub fn replay_run(recording: &Recording, may_execute: bool) -> Result<RunReplay, ReplayRunError> {
    let run = recording.run();
    if run.environment.backend != Backend::Live {
        return Err(ReplayRunError::Simulated {
            dir: recording.dir().display().to_string(),
        });
    }
    if run.scenario.rules.is_some() {
        return Err(ReplayRunError::Rules {
            dir: recording.dir().display().to_string(),
        });
    }
    let filters = |(_, pipe): (_, &Pipe)| {
        let value = pipe.queue.0.value("ack_filter");
        value.is_some_and(|value| value != Value::Choice("off"))
    };
    if run.scenario.pipes().any(filters) {
        return Err(ReplayRunError::AckFilter {
            dir: recording.dir().display().to_string(),
        });
    }
    let (scenario, changed) = loaded(recording, may_execute)?;
    let settings = live::router_settings(&scenario);
    let mut pipes = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        let replay = Replay {
            recording,
            direction,
            chain: settings.chain(direction),
            rng: settings.rng(direction),
            host: Host::default(),
            sides: Vec::new(),
        };
        pipes.extend(replay.run()?);
    }
    Ok(RunReplay { changed, pipes })
}

/// Returns the scenario of a run with the algorithms that its queues name, and which of their files have
/// changed since.
fn loaded(
    recording: &Recording,
    may_execute: bool,
) -> Result<(Scenario, Vec<String>), ReplayRunError> {
    let run = recording.run();
    let mut scenario = run.scenario.clone();
    let queues = scenario.pipes().map(|(_, pipe)| pipe.queue.to_string());
    let queues: BTreeSet<String> = queues.filter(|queue| names_file(queue)).collect();
    if queues.is_empty() {
        return Ok((scenario, Vec::new()));
    }
    // Older programs recorded no folder, and on another machine it may not be there.
    let folder = run.folder_of_algorithms.clone().unwrap_or_default();
    let executed = executed(&queues, &folder);
    if !may_execute && !executed.is_empty() {
        return Err(ReplayRunError::Executes {
            dir: recording.dir().display().to_string(),
            files: quoted(&executed),
        });
    }
    let loaded = scenario.load_algorithms(&folder);
    let loaded = loaded.or_else(|why| scenario.load_algorithms(Path::new("")).map_err(|_| why));
    loaded.map_err(|why| ReplayRunError::NotLoaded {
        dir: recording.dir().display().to_string(),
        queues: quoted(&queues),
        folder,
        why,
    })?;
    let now = algorithms_of(&scenario);
    let has_changed = |(word, before): (&String, &String)| {
        now.get(word)
            .is_some_and(|now| now != before)
            .then(|| word.clone())
    };
    let changed = run.algorithms.iter().filter_map(has_changed).collect();
    Ok((scenario, changed))
}

/// Returns the files that `queues` execute outside of a sandbox: where the run found them, or in the
/// present folder.
fn executed(queues: &BTreeSet<String>, folder: &Path) -> BTreeSet<String> {
    let words = queues
        .iter()
        .filter_map(|queue| queue.split_whitespace().next());
    let files = words.filter_map(|word| {
        let there = sluice_loader::executes(word, folder)?;
        let here = sluice_loader::executes(word, Path::new(""))?;
        let is_here = here.exists() && !there.exists();
        Some(if is_here { here } else { there })
    });
    files.map(|file| file.display().to_string()).collect()
}

fn quoted(words: &BTreeSet<String>) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(" and ")
}

/// One direction of the replay.
struct Replay<'a> {
    recording: &'a Recording,
    direction: Direction,
    chain: Chain,
    rng: Rng,
    host: Host,
    sides: Vec<Side>,
}

/// The recorded rows of a pipe, and the comparison so far.
struct Side {
    recorded: Rows<PacketRow>,
    result: PipeReplay,
}

impl Replay<'_> {
    fn run(mut self) -> Result<Vec<PipeReplay>, ReplayRunError> {
        let mut arrived: u32 = 0;
        for arrival in self.recording.arrivals()? {
            let arrival = arrival?;
            if arrival.pipe.direction() != self.direction {
                continue;
            }
            self.admit(&arrival);
            arrived = arrived.wrapping_add(1);
            // Compare so often that few rows accumulate.
            if arrived.is_multiple_of(1024) {
                self.compare_settled()?;
            }
        }
        // Stop at the end of the recording: packets that were queued then stay queued.
        let latest = self.latest()?;
        self.drain(latest);
        self.compare_settled()?;
        let Replay {
            recording,
            chain,
            mut sides,
            ..
        } = self;
        for (pipe, rows) in chain.into_rows() {
            let side = Side::of(&mut sides, recording, pipe)?;
            for row in rows {
                side.compare(&row)?;
            }
            side.finish()?;
        }
        Ok(sides.into_iter().map(|side| side.result).collect())
    }

    fn admit(&mut self, arrival: &Arrival) {
        let mut packet = Packet::new(self.host.allocate(), arrival.len);
        packet.arrival = arrival.time;
        packet.flow = arrival.hash;
        packet.src = arrival.src;
        packet.dst = arrival.dst;
        packet.tag = arrival.tag;
        packet.segments = arrival.segments as u16;
        packet.ecn = Ecn::from_bits(arrival.ecn as u8);
        packet.dscp = arrival.dscp as u8;
        let way = arrival.way as u8;
        let mut cx = Cx::new(arrival.time, &mut self.rng, &mut self.host);
        self.chain.admit(packet, &way, &mut cx);
        // Everything due at this instant is processed before the next arrival, even one at the same
        // instant.
        self.drain(arrival.time);
    }

    fn drain(&mut self, now: Time) {
        loop {
            let mut cx = Cx::new(now, &mut self.rng, &mut self.host);
            let Some(departure) = self.chain.poll(&mut cx) else {
                return;
            };
            self.host.free.push(departure.packet.slot);
        }
    }

    fn compare_settled(&mut self) -> Result<(), ReadError> {
        for sample in self.chain.sample() {
            let side = Side::of(&mut self.sides, self.recording, sample.pipe)?;
            for row in &sample.rows {
                side.compare(row)?;
            }
        }
        Ok(())
    }

    /// Returns the last recorded instant of this direction.
    fn latest(&self) -> Result<Time, ReadError> {
        let mut latest = Time::ZERO;
        for row in self.recording.packets()? {
            let row = row?;
            if row.pipe.direction() == self.direction {
                latest = latest.max(row.record.at);
            }
        }
        Ok(latest)
    }
}

impl Side {
    /// Returns the comparison of `pipe`. The first call opens it.
    fn of<'s>(
        sides: &'s mut Vec<Side>,
        recording: &Recording,
        pipe: PipeId,
    ) -> Result<&'s mut Side, ReadError> {
        let known = sides.iter().position(|side| side.result.pipe == pipe);
        let place = match known {
            Some(place) => place,
            None => {
                sides.push(Side {
                    recorded: recording.packets()?,
                    result: PipeReplay {
                        pipe,
                        packets: 0,
                        sent: 0,
                        marked: 0,
                        dropped: 0,
                        queued: 0,
                        differing: 0,
                        first_difference: None,
                    },
                });
                sides.len() - 1
            }
        };
        Ok(&mut sides[place])
    }

    /// Returns the next packet of the pipe in the recording.
    fn next(&mut self) -> Result<Option<PacketRecord>, ReadError> {
        let pipe = self.result.pipe;
        for row in &mut self.recorded {
            let row = row?;
            if row.pipe == pipe {
                return Ok(Some(row.record));
            }
        }
        Ok(None)
    }

    fn compare(&mut self, replayed: &PacketRecord) -> Result<(), ReadError> {
        let recorded = self.next()?;
        let result = &mut self.result;
        result.packets += 1;
        *match replayed.fate {
            Fate::Sent => &mut result.sent,
            Fate::Marked => &mut result.marked,
            Fate::Dropped(_) => &mut result.dropped,
            Fate::Queued => &mut result.queued,
        } += 1;
        let seen = |record: &PacketRecord| (record.arrival, record.fate, record.at);
        if recorded.as_ref().map(seen) != Some(seen(replayed)) {
            result.differ(replayed.seq, recorded.as_ref(), Some(replayed));
        }
        Ok(())
    }

    /// Counts the recorded packets that the replay did not have.
    fn finish(&mut self) -> Result<(), ReadError> {
        while let Some(recorded) = self.next()? {
            self.result.differ(recorded.seq, Some(&recorded), None);
        }
        Ok(())
    }
}

impl PipeReplay {
    fn differ(
        &mut self,
        seq: u64,
        recorded: Option<&PacketRecord>,
        replayed: Option<&PacketRecord>,
    ) {
        self.differing += 1;
        self.first_difference.get_or_insert_with(|| Difference {
            seq,
            recorded: recorded.map(What::of),
            replayed: replayed.map(What::of),
        });
    }
}

/// Stores slots without bytes.
#[derive(Default)]
struct Host {
    free: Vec<u32>,
    slots: u32,
}

impl Host {
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }
}

impl Sink for Host {
    fn discard(&mut self, _now: Time, packet: Packet, _reason: DropReason) {
        self.free.push(packet.slot);
    }

    fn copy(&mut self, _now: Time, _packet: &Packet) -> Option<u32> {
        Some(self.allocate())
    }
}

impl RunReplay {
    /// Returns whether every packet had the same fate as in the run.
    pub fn is_same(&self) -> bool {
        self.pipes.iter().all(|pipe| pipe.differing == 0)
    }

    /// Formats the result as JSON.
    ///
    /// # Panics
    /// Never: the result contains only numbers and words.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a replay has only words for keys") + "\n"
    }
}

impl fmt::Display for RunReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for word in &self.changed {
            writeln!(
                f,
                "`{word}` has changed since the run, so its verdicts may be others"
            )?;
        }
        for pipe in &self.pipes {
            let PipeReplay {
                packets,
                sent,
                marked,
                dropped,
                queued,
                ..
            } = pipe;
            write!(f, "{:<5} {packets} packets: {sent} sent", pipe.pipe.word())?;
            write!(f, ", {marked} marked, {dropped} dropped, {queued} queued; ")?;
            match pipe.differing {
                0 => writeln!(f, "all as recorded")?,
                n => writeln!(f, "{n} not as recorded")?,
            }
            if let Some(first) = &pipe.first_difference {
                let what = |what: &Option<What>| match what {
                    None => "no such packet".to_owned(),
                    Some(what) => {
                        let reason = match what.reason {
                            "" => String::new(),
                            reason => format!(" ({reason})"),
                        };
                        format!(
                            "arrived at {} ns, {}{reason} at {} ns",
                            what.time_ns, what.verdict, what.at_ns
                        )
                    }
                };
                writeln!(f, "      the first is packet {}", first.seq)?;
                writeln!(f, "        recorded: {}", what(&first.recorded))?;
                writeln!(f, "        replayed: {}", what(&first.replayed))?;
            }
        }
        Ok(())
    }
}
