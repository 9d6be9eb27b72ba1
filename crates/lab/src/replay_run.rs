//! A live run once more, in virtual time: the arrivals that it recorded, fed to the same queues with
//! the same randomness, get the same verdicts, packet for packet and nanosecond for nanosecond.
//!
//! A pipe lives in the instants at which something is due, not in those at which a live router gets
//! round to it; so what the router's own delays could change is nothing but when packets are sent.
//! A verdict that differs means that the emulation is not what it claims to be.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use serde::Serialize;
use sluice_core::record::{Fate, PacketRecord, Tracer};
use sluice_core::{Cx, DropReason, Event, Packet, Rng, Sink, Time};
use sluice_router::forward::{Piped, Queueing as _};

use crate::live;
use crate::recording::{Arrival, PacketRow, ReadError, Recording, Rows};
use crate::scenario::{Backend, Direction};

/// Why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayRunError {
    /// It was simulated, so there is nothing to hold against.
    #[error("`{dir}` was simulated; replay a live run, or run the scenario again")]
    Simulated {
        /// Its folder.
        dir: String,
    },
    /// Its tables do not go together.
    #[error("packet {seq} that went {pipe} stands in one of `packets` and `arrivals` only")]
    OutOfStep {
        /// The direction.
        pipe: Direction,
        /// Its number.
        seq: u64,
    },
    /// A table cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// How a replay came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReplay {
    /// Both directions.
    pub pipes: Vec<PipeReplay>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipeReplay {
    /// Which.
    pub pipe: Direction,
    /// Packets that arrived.
    pub packets: u64,
    /// Of those, how many left unchanged.
    pub sent: u64,
    /// How many left with a mark.
    pub marked: u64,
    /// How many were dropped.
    pub dropped: u64,
    /// How many were still there at the end.
    pub queued: u64,
    /// How many had another verdict, reason or instant than in the recording.
    pub differing: u64,
    /// The first of those.
    pub first_difference: Option<Difference>,
}

/// A packet to which something else happened than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its number in the order of arrival.
    pub seq: u64,
    /// When it arrived.
    pub time_ns: u64,
    /// What happened in the run.
    pub recorded: What,
    /// What happened in the replay.
    pub replayed: What,
}

/// What happened to a packet, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct What {
    /// `sent`, `marked`, `dropped` or `queued`.
    pub verdict: &'static str,
    /// Why it was dropped.
    pub reason: &'static str,
    /// When.
    pub at_ns: u64,
}

impl What {
    fn of(record: &PacketRecord) -> What {
        What {
            verdict: record.fate.verdict(),
            reason: record.fate.reason(),
            at_ns: record.at.as_ns(),
        }
    }
}

/// Replays `recording`, which must be that of a live run.
///
/// # Errors
/// [`ReplayRunError`].
pub fn replay_run(recording: &Recording) -> Result<RunReplay, ReplayRunError> {
    let run = recording.run();
    if run.environment.backend != Backend::Live {
        return Err(ReplayRunError::Simulated {
            dir: recording.dir().display().to_string(),
        });
    }
    let plan = live::plan(&run.scenario);
    let mut pipes = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        let queueing = plan.queueing(direction);
        let rng = plan.rng(direction);
        pipes.push(replay_pipe(recording, direction, queueing, rng)?);
    }
    Ok(RunReplay { pipes })
}

/// The packets of one direction: how each arrived, and what became of it.
struct Recorded {
    pipe: Direction,
    packets: Rows<PacketRow>,
    arrivals: Rows<Arrival>,
}

impl Recorded {
    fn next(&mut self) -> Result<Option<(Arrival, PacketRecord)>, ReplayRunError> {
        let pipe = self.pipe;
        let mut arrivals =
            (&mut self.arrivals).skip_while(|row| is_elsewhere(row, |a| a.pipe, pipe));
        let mut packets = (&mut self.packets).skip_while(|row| is_elsewhere(row, |p| p.pipe, pipe));
        let (arrival, packet) = (arrivals.next().transpose()?, packets.next().transpose()?);
        match (arrival, packet) {
            (None, None) => Ok(None),
            (Some(arrival), Some(packet)) if arrival.seq == packet.record.seq => {
                Ok(Some((arrival, packet.record)))
            }
            (arrival, packet) => {
                let seqs = [arrival.map(|a| a.seq), packet.map(|p| p.record.seq)];
                let seq = seqs.into_iter().flatten().min().unwrap_or(0);
                Err(ReplayRunError::OutOfStep { pipe, seq })
            }
        }
    }
}

fn is_elsewhere<R>(
    row: &Result<R, ReadError>,
    pipe_of: fn(&R) -> Direction,
    pipe: Direction,
) -> bool {
    row.as_ref().is_ok_and(|row| pipe_of(row) != pipe)
}

fn replay_pipe(
    recording: &Recording,
    pipe: Direction,
    queueing: Piped,
    rng: Rng,
) -> Result<PipeReplay, ReplayRunError> {
    let mut recorded = Recorded {
        pipe,
        packets: recording.packets()?,
        arrivals: recording.arrivals()?,
    };
    let mut replay = Replay {
        queueing,
        rng,
        host: Host::default(),
        expected: VecDeque::new(),
        latest: Time::ZERO,
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
    };
    while let Some((arrival, record)) = recorded.next()? {
        replay.arrive(&arrival, record);
    }
    Ok(replay.finish())
}

struct Replay {
    queueing: Piped,
    rng: Rng,
    host: Host,
    /// What the recording says of the packets that are not settled here yet.
    expected: VecDeque<PacketRecord>,
    /// The latest instant of which the recording tells.
    latest: Time,
    result: PipeReplay,
}

impl Replay {
    fn arrive(&mut self, arrival: &Arrival, record: PacketRecord) {
        // What was due before it; what is due at the same instant comes after it.
        self.poll(Time::from_ns(record.arrival.as_ns().saturating_sub(1)));
        let mut packet = Packet::new(self.host.allocate(), record.len);
        packet.arrival = record.arrival;
        packet.flow = arrival.hash;
        packet.src = arrival.src;
        packet.dst = arrival.dst;
        packet.class = record.class;
        packet.tag = arrival.tag;
        packet.segments = record.segments;
        packet.ecn = record.ecn;
        packet.dscp = arrival.dscp as u8;
        self.host.tracer.arrive(&packet);
        self.latest = self.latest.max(record.at);
        let now = record.arrival;
        self.expected.push_back(record);
        let mut cx = Cx::new(now, &mut self.rng, &mut self.host);
        self.queueing.admit(packet, &(), &mut cx);
        self.settle();
    }

    fn poll(&mut self, now: Time) {
        loop {
            let mut cx = Cx::new(now, &mut self.rng, &mut self.host);
            let Some(departure) = self.queueing.poll(&mut cx) else {
                return;
            };
            self.host.free.push(departure.packet.slot);
        }
    }

    fn settle(&mut self) {
        let settled: Vec<PacketRecord> = self.host.tracer.take_settled().collect();
        for replayed in settled {
            self.hold_against(&replayed);
        }
    }

    fn hold_against(&mut self, replayed: &PacketRecord) {
        let recorded = self.expected.pop_front();
        let recorded = recorded.expect("every packet of the replay is one of the recording");
        let result = &mut self.result;
        result.packets += 1;
        *match replayed.fate {
            Fate::Sent => &mut result.sent,
            Fate::Marked => &mut result.marked,
            Fate::Dropped(_) => &mut result.dropped,
            Fate::Queued => &mut result.queued,
        } += 1;
        if (recorded.fate, recorded.at) == (replayed.fate, replayed.at) {
            return;
        }
        result.differing += 1;
        result.first_difference.get_or_insert_with(|| Difference {
            seq: recorded.seq,
            time_ns: recorded.arrival.as_ns(),
            recorded: What::of(&recorded),
            replayed: What::of(replayed),
        });
    }

    /// Works off what the recording still tells of; what is queued then was queued there too.
    fn finish(mut self) -> PipeReplay {
        self.poll(self.latest);
        self.settle();
        let tracer = std::mem::take(&mut self.host.tracer);
        for left in tracer.into_rows() {
            self.hold_against(&left);
        }
        self.result
    }
}

/// Keeps slots instead of bytes.
#[derive(Default)]
struct Host {
    tracer: Tracer,
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
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.tracer.discard(now, &packet, reason);
        self.free.push(packet.slot);
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.tracer.on_event(now, event);
    }
}

impl RunReplay {
    /// Whether everything happened as it did in the run.
    pub fn is_same(&self) -> bool {
        self.pipes.iter().all(|pipe| pipe.differing == 0)
    }

    /// As JSON.
    ///
    /// # Panics
    /// Never: there are only numbers and words in it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a replay has only words for keys") + "\n"
    }
}

impl fmt::Display for RunReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
                let what = |what: &What| match what.reason {
                    "" => format!("{} at {} ns", what.verdict, what.at_ns),
                    reason => format!("{} ({reason}) at {} ns", what.verdict, what.at_ns),
                };
                writeln!(f, "      the first is packet {}:", first.seq)?;
                writeln!(f, "        arrived   at {} ns", first.time_ns)?;
                writeln!(f, "        recorded: {}", what(&first.recorded))?;
                writeln!(f, "        replayed: {}", what(&first.replayed))?;
            }
        }
        Ok(())
    }
}
