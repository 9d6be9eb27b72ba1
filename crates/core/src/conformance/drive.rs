//! Applies a sequence of operations to a queue and checks every step against a simple ledger.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::ops::{Arrival, Op};
use super::{amount, changes, codepoint, ms, packets, when};
use crate::event::StateValue;
use crate::registry::Spec;
use crate::{Backlog, Cx, Discipline, DropReason, Ecn, Event, Packet, Rng, Sink, Span, Time, Wake};

/// Something that happened, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet was returned.
    Out {
        /// When.
        at: Time,
        /// Slot of the packet.
        slot: u32,
        /// Codepoint at that time.
        ecn: Ecn,
    },
    /// A packet was dropped.
    Dropped {
        /// When.
        at: Time,
        /// Slot of the packet.
        slot: u32,
        /// Why.
        reason: DropReason,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Out { at, slot, ecn } => {
                let mark = if *ecn == Ecn::Ce { ", CE-marked" } else { "" };
                write!(f, "packet {slot} left at {}{mark}", ms(*at))
            }
            Step::Dropped { at, slot, reason } => {
                let (at, reason) = (ms(*at), reason.name());
                write!(f, "packet {slot} was dropped at {at} ({reason})")
            }
        }
    }
}

/// The settings with which a sequence is executed.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Seed of the algorithm's randomness.
    pub seed: u64,
    /// Whether [`Op::Spurious`] is executed.
    pub is_spurious: bool,
    /// Whether the sink listens to events.
    pub is_listening: bool,
}

/// The number of timer calls after which time no longer advances. No correct algorithm needs more.
const TIMER_BUDGET: u32 = 2_000;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// The place of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Held,
    Gone,
}

struct Entry {
    arrival: Arrival,
    at: Time,
    place: Place,
    is_marked: bool,
}

/// The sink, which accounts for every packet.
#[derive(Default)]
struct Ledger {
    entries: Vec<Entry>,
    held: Backlog,
    steps: Vec<Step>,
    /// The packets that this call reported as dequeued.
    told_dequeued: Vec<u32>,
    told_names: Vec<&'static str>,
    is_listening: bool,
    /// The first violation found where no `Result` can be returned.
    breach: Option<String>,
}

impl Ledger {
    fn arrive(&mut self, arrival: &Arrival, at: Time) -> Packet {
        let packet = arrival.packet(self.entries.len() as u32, at);
        self.entries.push(Entry {
            arrival: arrival.clone(),
            at,
            place: Place::Held,
            is_marked: false,
        });
        self.held.add(&packet);
        packet
    }

    /// Removes a packet from the ledger and checks that it is the one that arrived.
    fn leave(&mut self, packet: &Packet) -> Result<(), String> {
        let slot = packet.slot as usize;
        let has_arrived = slot < self.entries.len();
        ensure!(has_arrived, "packet {slot} left and has never arrived");
        let entry = &mut self.entries[slot];
        ensure!(entry.place == Place::Held, "packet {slot} left twice");
        entry.place = Place::Gone;
        let mut expected = entry.arrival.packet(packet.slot, entry.at);
        if entry.is_marked {
            expected.ecn = Ecn::Ce;
        }
        if !self.is_listening && packet.ecn == Ecn::Ce && expected.ecn.is_capable() {
            expected.ecn = Ecn::Ce;
        }
        ensure!(
            *packet == expected,
            "packet {slot} left with {}",
            changes(&expected, packet)
        );
        self.held.remove(packet);
        Ok(())
    }

    fn note(&mut self, result: Result<(), String>) {
        if let Err(breach) = result {
            self.breach.get_or_insert(breach);
        }
    }
}

impl Sink for Ledger {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        let left = self.leave(&packet);
        self.note(left);
        self.steps.push(Step::Dropped {
            at: now,
            slot: packet.slot,
            reason,
        });
    }

    /// Small packets are acknowledgements; each makes the earlier ones of its flow redundant.
    fn is_pure_ack(&self, packet: &Packet) -> bool {
        packet.segments == 1 && packet.len <= 132
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        newer.flow == older.flow && newer.slot > older.slot
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        Some(packet.slot.into())
    }

    fn is_listening(&self) -> bool {
        self.is_listening
    }

    fn on_event(&mut self, _now: Time, event: &Event<'_>) {
        match event {
            Event::Mark { packet } => {
                let entry = &mut self.entries[packet.slot as usize];
                let was = entry.arrival.ecn;
                entry.is_marked = true;
                let is_right = was.is_capable() && packet.ecn == Ecn::Ce;
                let slot = packet.slot;
                self.note(if is_right {
                    Ok(())
                } else {
                    let (was, is) = (codepoint(was), codepoint(packet.ecn));
                    Err(format!(
                        "packet {slot} arrived with {was} and was marked with {is}"
                    ))
                });
            }
            Event::Dequeue { packet } => self.told_dequeued.push(packet.slot),
            Event::State { name, .. } => {
                if !self.told_names.contains(name) {
                    self.told_names.push(name);
                }
            }
            Event::Enqueue { .. } => {}
        }
    }
}

/// Builds `spec` and applies `ops` to it.
///
/// # Errors
/// Returns which property was violated, and at which step.
pub fn drive(spec: &Spec, ops: &[Op], manner: Manner) -> Result<Vec<Step>, String> {
    let queue = spec
        .build()
        .map_err(|error| format!("`{spec}` is not built: {error}"))?;
    drive_queue(queue, ops, manner).map_err(|breach| format!("`{spec}`, {breach}"))
}

/// Applies `ops` to `queue`, which must be empty.
///
/// # Errors
/// As [`drive`].
pub fn drive_queue(
    queue: Box<dyn Discipline>,
    ops: &[Op],
    manner: Manner,
) -> Result<Vec<Step>, String> {
    let mut driver = Driver {
        queue,
        ledger: Ledger {
            is_listening: manner.is_listening,
            ..Ledger::default()
        },
        rng: Rng::from_seed(manner.seed),
        now: Time::ZERO,
        timer_budget: TIMER_BUDGET,
        is_settled: false,
        visited: Vec::new(),
        has_held: false,
    };
    for (i, op) in ops.iter().enumerate() {
        driver
            .apply(op, manner.is_spurious)
            .and_then(|()| driver.check())
            .map_err(|breach| format!("step {i}, {op}: {breach}"))?;
    }
    driver
        .finish()
        .map_err(|breach| format!("at the end: {breach}"))
}

struct Driver {
    queue: Box<dyn Discipline>,
    ledger: Ledger,
    rng: Rng,
    now: Time,
    timer_budget: u32,
    /// Whether a dequeue has found nothing since the last arrival. That call itself may change the
    /// state (an emptied flow queue leaves its list); those after it may not.
    is_settled: bool,
    visited: Vec<&'static str>,
    /// Whether it held a packet after any operation. A queue that refused all its packets reports
    /// variables, but has none to visit.
    has_held: bool,
}

impl Driver {
    fn apply(&mut self, op: &Op, is_spurious: bool) -> Result<(), String> {
        match op {
            Op::Arrive(arrival) => {
                let packet = self.ledger.arrive(arrival, self.now);
                let mut cx = Cx::new(self.now, &mut self.rng, &mut self.ledger);
                self.queue.enqueue(packet, &mut cx);
                self.is_settled = false;
            }
            Op::Dequeue => {
                self.dequeue()?;
            }
            Op::Drain => while self.dequeue()? {},
            Op::Pass(ns) => self.pass(Span::from_ns(*ns), false)?,
            Op::PassLate(ns) => self.pass(Span::from_ns(*ns), true)?,
            Op::Spurious if is_spurious => self.ask_in_vain()?,
            Op::Spurious => {}
            Op::Pull => {
                if let Some(packet) = self.queue.pull() {
                    self.ledger.leave(&packet)?;
                }
                self.is_settled = false;
            }
        }
        Ok(())
    }

    /// Calls `dequeue` once and compares it with `next_wake`. Returns whether another call may
    /// return a packet.
    fn dequeue(&mut self) -> Result<bool, String> {
        let wake = self.queue.next_wake();
        let may_give = match wake {
            Wake::Now => true,
            Wake::At(at) => at <= self.now,
            Wake::OnEnqueue => false,
        };
        let steps = self.ledger.steps.len();
        self.ledger.told_dequeued.clear();
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.ledger);
        let packet = self.queue.dequeue(&mut cx);
        let has_dropped = self.ledger.steps.len() > steps;
        if let Some(packet) = &packet {
            self.ledger.leave(packet)?;
            self.ledger.steps.push(Step::Out {
                at: self.now,
                slot: packet.slot,
                ecn: packet.ecn,
            });
        }
        if self.ledger.is_listening {
            let returned: Vec<u32> = packet.iter().map(|p| p.slot).collect();
            let told = &self.ledger.told_dequeued;
            ensure!(
                *told == returned,
                "it reported {} as dequeued, but returned {}",
                packets(told),
                packets(&returned)
            );
        }
        self.is_settled = packet.is_none();
        if may_give {
            let is_later = match self.queue.next_wake() {
                Wake::Now => false,
                Wake::At(at) => at > self.now,
                Wake::OnEnqueue => true,
            };
            ensure!(
                packet.is_some() || has_dropped || is_later,
                "`next_wake` was {}, but a dequeue did nothing",
                when(wake)
            );
        } else {
            ensure!(
                packet.is_none() && !has_dropped,
                "`next_wake` was {}, but a dequeue returned or dropped a packet",
                when(wake)
            );
        }
        Ok(packet.is_some())
    }

    fn ask_in_vain(&mut self) -> Result<(), String> {
        let is_vain = match self.queue.next_wake() {
            Wake::Now => false,
            Wake::At(at) => at > self.now,
            Wake::OnEnqueue => self.is_settled,
        };
        if is_vain {
            self.dequeue()?;
        }
        Ok(())
    }

    fn pass(&mut self, span: Span, is_late: bool) -> Result<(), String> {
        let end = self.now.saturating_add(span);
        while let Some(due) = self.queue.next_timer().filter(|due| *due <= end) {
            if self.timer_budget == 0 {
                return Ok(());
            }
            self.timer_budget -= 1;
            self.now = if is_late { end } else { due.max(self.now) };
            let mut cx = Cx::new(self.now, &mut self.rng, &mut self.ledger);
            self.queue.on_timer(&mut cx);
            if let Some(next) = self.queue.next_timer() {
                ensure!(
                    next > due,
                    "the timer of {} requests {} as the next instant, which is not later",
                    ms(due),
                    ms(next)
                );
            }
        }
        self.now = end;
        Ok(())
    }

    /// Checks what holds between any two operations.
    fn check(&mut self) -> Result<(), String> {
        if let Some(breach) = self.ledger.breach.take() {
            return Err(breach);
        }
        let (told, held) = (self.queue.backlog(), self.ledger.held);
        ensure!(
            told == held,
            "it reports a backlog of {}, but holds {}",
            amount(told),
            amount(held)
        );
        let wake = self.queue.next_wake();
        ensure!(
            (wake == Wake::OnEnqueue) == held.is_empty(),
            "`next_wake` is {}, but it holds {}",
            when(wake),
            amount(held)
        );
        self.has_held |= !held.is_empty();
        let visited = &mut self.visited;
        let mut endless = None;
        self.queue.state(&mut |_, name, value| {
            if !visited.contains(&name) {
                visited.push(name);
            }
            if let StateValue::Ratio(ratio) = value
                && !ratio.is_finite()
            {
                endless = Some((name, ratio));
            }
        });
        match endless {
            Some((name, ratio)) => Err(format!("variable `{name}` is {ratio}")),
            None => Ok(()),
        }
    }

    /// Moves the backlog out and closes the ledger.
    fn finish(mut self) -> Result<Vec<Step>, String> {
        while let Some(packet) = self.queue.pull() {
            self.ledger.leave(&packet)?;
        }
        let left = self.queue.backlog();
        ensure!(
            left.is_empty(),
            "it reports a backlog of {} after the last pull",
            amount(left)
        );
        self.check()?;
        let lost = self
            .ledger
            .entries
            .iter()
            .position(|entry| entry.place == Place::Held);
        if let Some(slot) = lost {
            return Err(format!("packet {slot} was lost"));
        }
        for name in &self.ledger.told_names {
            ensure!(
                self.visited.contains(name) || !self.has_held,
                "variable `{name}` was reported but is never visited"
            );
        }
        Ok(self.ledger.steps)
    }
}
