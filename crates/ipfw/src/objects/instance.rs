//! Instances of schedulers and their queues. A mask creates one of them per flow.

use sluice_core::Rng;
use sluice_core::link::{Chance, Effects, Gilbert, GilbertParams, Link};
use sluice_core::param::Ratio;
use sluice_core::units::Time;

use super::stats::{Counters, Histogram, Meter};
use super::watch::NO_ROW;
use crate::flow::FlowId;
use crate::grammar::Loss;

/// The number of no entry, in any table.
pub(crate) const NONE: u32 = u32::MAX;

/// A running scheduler, with its own link. A scheduler with a mask has one instance per flow.
///
/// The fields are in the order in which a packet needs them. For a packet of an instance that was
/// not used for long, the first three cache lines come from memory.
#[repr(C, align(64))]
pub(crate) struct Instance {
    /// The masked flow.
    pub key: FlowId,
    /// The slot of the scheduler; [`NONE`] after the scheduler was deleted and only the delay line
    /// remains.
    pub scheduler: u32,
    /// The queue and the link; `None` while the instance sleeps and keeps its counters only.
    pub link: Option<Box<Link>>,
    /// Whether the instance waits for its turn at the current instant.
    pub is_ready: bool,
    pub is_used: bool,
    /// Whether `loss` applies.
    has_loss: bool,
    /// The number of the row in the watcher's table; 0 without one.
    pub watch_row: u16,
    /// The time of the last arrival or departure.
    pub last_active: Time,
    pub meter: Meter,
    /// Sojourn times in the queue.
    pub waits: Histogram,
    pub counters: Counters,
    /// Loss in front of the single queue of a FIFO.
    loss: LossState,
    /// The queues, if the scheduler has several.
    pub queues: Vec<u32>,
    /// The bytes that the link held when it was last counted.
    pub link_bytes: u64,
    /// The states of the link's effects while the instance sleeps.
    pub effects: Option<Box<Effects>>,
}

/// The cache lines: flow, scheduler and link; rate and waits; waits and the first counters.
const _: () = {
    assert!(std::mem::offset_of!(Instance, is_ready) == 64);
    assert!(std::mem::offset_of!(Instance, counters) + Counters::HOT_BYTES <= Instance::HOT_BYTES);
};

/// A queue of a scheduler with several queues. A flowset with a mask has one per flow.
pub(crate) struct Queue {
    pub instance: u32,
    /// The index of the queue in its instance.
    pub place: u32,
    /// The number of the flowset.
    pub flowset: u32,
    /// The index of the queue among those of its flowset.
    pub flowset_place: u32,
    /// The masked flow.
    pub key: FlowId,
    pub counters: Counters,
    pub loss: LossState,
    /// Whether the scheduler has opened the queue.
    pub is_open: bool,
    pub last_active: Time,
    pub is_used: bool,
    /// The number of the row in the watcher's table; 0 without one.
    pub watch_row: u16,
}

/// The state of `plr`.
#[derive(Clone, Debug, Default)]
pub(crate) enum LossState {
    #[default]
    Off,
    Chance(Chance),
    Chain(Box<Gilbert>),
}

impl LossState {
    pub fn new(loss: Option<&Loss>) -> Self {
        match loss {
            None => LossState::Off,
            Some(Loss::Independent(p)) => LossState::Chance(Chance::new(*p, Ratio::default())),
            Some(Loss::TwoState {
                good,
                to_bad,
                bad,
                to_good,
            }) => LossState::Chain(Box::new(Gilbert::new(&GilbertParams {
                ge_k: *good,
                ge_p: *to_bad,
                ge_h: *bad,
                ge_r: *to_good,
            }))),
        }
    }

    /// Decides whether the next packet is lost.
    pub fn loses(&mut self, rng: &mut Rng) -> bool {
        match self {
            LossState::Off => false,
            LossState::Chance(chance) => chance.draw(rng),
            LossState::Chain(chain) => chain.loses(rng),
        }
    }
}

impl Instance {
    /// The bytes that a packet needs, at the beginning.
    pub const HOT_BYTES: usize = 192;

    pub fn new(scheduler: u32, key: FlowId, now: Time) -> Self {
        Instance {
            key,
            scheduler,
            link: None,
            is_ready: false,
            is_used: true,
            has_loss: false,
            watch_row: NO_ROW,
            last_active: now,
            meter: Meter::default(),
            waits: Histogram::default(),
            counters: Counters::default(),
            loss: LossState::Off,
            queues: Vec::new(),
            link_bytes: 0,
            effects: None,
        }
    }

    /// Replaces the loss.
    pub fn set_loss(&mut self, loss: LossState) {
        self.has_loss = !matches!(loss, LossState::Off);
        self.loss = loss;
    }

    /// Returns the loss, if any. Without one, its cache line is not touched.
    pub fn loss(&mut self) -> Option<&mut LossState> {
        self.has_loss.then_some(&mut self.loss)
    }

    /// Whether no packet waits and none is in flight.
    pub fn is_empty(&self) -> bool {
        self.link
            .as_ref()
            .is_none_or(|link| link.backlog().is_empty() && link.in_flight().is_empty())
    }
}
