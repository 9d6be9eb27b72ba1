//! Replay: recorded arrivals pass through one queue and link in virtual time.
//!
//! The rules are those of a [`Pipe`](super::Pipe). They are repeated here because comparisons of
//! results depend on them. At one instant all arrivals come first, in their order; then timers that
//! are due; then, if the link is idle or has just become idle, one dequeue call, even when the
//! queue is empty. A packet that arrives at an idle link is enqueued and dequeued at the same
//! instant. A transmission lasts `ceil(bytes * 8e9 / rate)` ns; a new rate acts on the rest of it.
//! The run ends when nothing is held and the link is idle.
//!
//! Memory grows with the packets held at a time and with those that arrived since the oldest packet
//! still queued, not with the length of the run.

use alloc::vec::Vec;

use super::Link;
use crate::event::{Backlog, Cx, DropReason, Event, Sink, StateValue};
use crate::packet::Packet;
use crate::record::{PacketRecord, Tracer};
use crate::rng::Rng;
use crate::sched::Wake;
use crate::units::Time;

/// A receiver of the results of a replay.
pub trait Outlet {
    /// Receives the row of a packet. Rows come in the order of arrival.
    fn row(&mut self, row: &PacketRecord) {
        let _ = row;
    }

    /// Receives a packet that left the queue for the link, with its mark if it has one. Calls come
    /// in the order of time.
    fn left(&mut self, now: Time, packet: &Packet) {
        let _ = (now, packet);
    }

    /// Receives a new value of a variable of the algorithm. Calls come in the order of time, except
    /// for an idle flow queue with a timer, which catches up on its updates at its next packet.
    fn state(&mut self, now: Time, queue: u32, name: &'static str, value: StateValue) {
        let _ = (now, queue, name, value);
    }

    /// Returns whether [`Outlet::state`] does anything. An algorithm from a file reports its variables only
    /// then.
    fn wants_state(&self) -> bool {
        false
    }
}

/// The reason why a replay cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A packet arrives earlier than the one before it.
    #[error("a packet at {time} follows one at {before}; arrivals must be in the order of time")]
    Backwards {
        /// The arrival.
        time: Time,
        /// The arrival of the previous packet.
        before: Time,
    },
    /// The queue holds packets but will never release them.
    #[error("{} packets are held at {at} and will never be sent", .held.packets)]
    Stuck {
        /// The instant.
        at: Time,
        /// The content of the queue.
        held: Backlog,
    },
}

/// A replay in progress.
///
/// ```
/// use sluice_core::link::{Link, LinkFiles, LinkParams, Outlet, Replay};
/// use sluice_core::record::{Fate, PacketRecord};
/// use sluice_core::{Packet, Rng, Time, registry::Spec};
///
/// struct Rows(Vec<PacketRecord>);
/// impl Outlet for Rows {
///     fn row(&mut self, row: &PacketRecord) {
///         self.0.push(row.clone());
///     }
/// }
///
/// let queue = Spec::parse("fifo limit 1").unwrap().build().unwrap();
/// let params = LinkParams::parse("rate 8Mbit/s").unwrap();
/// let link = Link::new(&params, LinkFiles::default(), queue, &Rng::from_seed(1));
/// let mut rows = Rows(Vec::new());
/// let mut replay = Replay::new(link, 1);
/// for _ in 0..3 {
///     let packet = Packet::new(replay.slot(), 1000);
///     replay.arrive(packet, 0, &mut rows).unwrap();
/// }
/// replay.finish(&mut rows).unwrap();
/// // All arrive before the link first asks: the queue holds one, the others are refused.
/// assert_eq!(rows.0[0].fate, Fate::Sent);
/// assert!(matches!(rows.0[1].fate, Fate::Dropped(_)));
/// ```
pub struct Replay {
    link: Link,
    rng: Rng,
    tracer: Tracer,
    slots: Slots,
    now: Time,
    arrived: u64,
}

/// Slots that may be reused.
#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
}

/// The sink of a replay.
struct Witness<'a> {
    tracer: &'a mut Tracer,
    slots: &'a mut Slots,
    outlet: &'a mut dyn Outlet,
}

impl Replay {
    /// Creates a replay over an idle `link` at time zero. The queue draws from `seed`.
    pub fn new(link: Link, seed: u64) -> Self {
        Replay::with_draws(link, Rng::from_seed(seed))
    }

    /// Creates a replay whose queue draws from `rng`.
    pub fn with_draws(link: Link, rng: Rng) -> Self {
        Replay {
            link,
            rng,
            tracer: Tracer::new(),
            slots: Slots::default(),
            now: Time::ZERO,
            arrived: 0,
        }
    }

    /// Returns a slot for the next packet. The host may keep the packet's bytes there until the
    /// packet has left or was dropped.
    pub fn slot(&mut self) -> u32 {
        self.slots.free.pop().unwrap_or_else(|| {
            self.slots.used += 1;
            self.slots.used - 1
        })
    }

    /// Enqueues `packet`, which arrives at `packet.arrival`. Its row shows `flow`.
    ///
    /// # Errors
    /// Returns [`ReplayError::Backwards`].
    pub fn arrive(
        &mut self,
        packet: Packet,
        flow: u32,
        outlet: &mut dyn Outlet,
    ) -> Result<(), ReplayError> {
        let at = packet.arrival;
        if at < self.now {
            return Err(ReplayError::Backwards {
                time: at,
                before: self.now,
            });
        }
        if at > self.now {
            self.run_to(Time::from_ns(at.as_ns() - 1), outlet);
            self.now = at;
        }
        self.arrived += 1;
        self.tracer.arrive_as(&packet, flow);
        let mut witness = Witness {
            tracer: &mut self.tracer,
            slots: &mut self.slots,
            outlet,
        };
        let mut cx = Cx::new(at, &mut self.rng, &mut witness);
        self.link.enqueue(packet, &mut cx);
        self.tell_rows(outlet);
        Ok(())
    }

    /// Lets the queue drain.
    ///
    /// # Errors
    /// Returns [`ReplayError::Stuck`].
    pub fn finish(&mut self, outlet: &mut dyn Outlet) -> Result<Time, ReplayError> {
        loop {
            let mut held = self.link.backlog();
            let on_link = self.link.in_flight();
            held.packets += on_link.packets;
            held.bytes += on_link.bytes;
            if held.is_empty() && on_link.is_empty() {
                break;
            }
            match self.link.next_wake() {
                Wake::At(at) if at < Time::MAX => {
                    self.now = self.now.max(at);
                    self.run_to(self.now, outlet);
                }
                _ => {
                    return Err(ReplayError::Stuck { at: self.now, held });
                }
            }
        }
        self.tell_rows(outlet);
        Ok(self.now)
    }

    /// Returns the instant up to which everything has been processed, if by then the queue has
    /// drawn more numbers than [`Rng::from_list`] had.
    pub fn lacks_draws_at(&self) -> Option<Time> {
        self.rng.is_exhausted().then_some(self.now)
    }

    /// Returns the number of packets that have arrived.
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Processes everything up to `end`.
    fn run_to(&mut self, end: Time, outlet: &mut dyn Outlet) {
        let mut witness = Witness {
            tracer: &mut self.tracer,
            slots: &mut self.slots,
            outlet,
        };
        loop {
            let mut cx = Cx::new(end, &mut self.rng, &mut witness);
            let Some(departure) = self.link.poll(&mut cx) else {
                break;
            };
            witness.slots.free.push(departure.packet.slot);
        }
        self.tell_rows(outlet);
    }

    fn tell_rows(&mut self, outlet: &mut dyn Outlet) {
        for row in self.tracer.take_settled() {
            outlet.row(&row);
        }
    }
}

impl Sink for Witness<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.tracer.discard(now, &packet, reason);
        self.slots.free.push(packet.slot);
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.tracer.on_event(now, event);
        match event {
            Event::Dequeue { packet } => self.outlet.left(now, packet),
            Event::State { queue, name, value } => self.outlet.state(now, *queue, name, *value),
            Event::Enqueue { .. } | Event::Mark { .. } => {}
        }
    }

    fn wants_state(&self) -> bool {
        self.outlet.wants_state()
    }
}
