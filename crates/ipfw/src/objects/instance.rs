//! Instances of schedulers, and their queues: what masks make one of for each flow.

use sluice_core::Rng;
use sluice_core::link::Link;
use sluice_core::link::{Chance, Gilbert, GilbertParams};
use sluice_core::param::Ratio;
use sluice_core::units::Time;

use super::stats::{Counters, Histogram, Meter};
use crate::flow::FlowId;
use crate::grammar::Loss;

/// Not in any table.
pub(crate) const NONE: u32 = u32::MAX;

/// One scheduler at work, with its own link. A scheduler with a mask has one per flow.
///
/// In the order in which a packet needs it: one that meets an instance which nothing has touched for
/// long pays for the first three cache lines.
#[repr(C, align(64))]
pub(crate) struct Instance {
    /// The flow, masked.
    pub key: FlowId,
    /// The scheduler's slot; [`NONE`] once it was deleted and only its delay line is left.
    pub scheduler: u32,
    /// The queue and the link. None while idle for long: only the counters are kept then.
    pub link: Option<Box<Link>>,
    /// Waiting for its turn at the present instant.
    pub is_ready: bool,
    pub is_used: bool,
    /// Whether `loss` must be asked.
    has_loss: bool,
    /// When the last packet came or left.
    pub last_active: Time,
    pub meter: Meter,
    /// Sojourn times in the queue.
    pub waits: Histogram,
    pub counters: Counters,
    /// Loss before the one queue of a FIFO.
    loss: LossState,
    /// Its queues, if its scheduler has several.
    pub queues: Vec<u32>,
}

/// Flow, scheduler and link; the rate and the waits; the waits and the first counters.
const _: () = {
    assert!(std::mem::offset_of!(Instance, is_ready) == 64);
    assert!(std::mem::offset_of!(Instance, counters) + Counters::HOT_BYTES <= 192);
};

/// One queue of a scheduler with several. A flowset with a mask has one per flow.
pub(crate) struct Queue {
    pub instance: u32,
    /// Its place among the queues of its instance.
    pub place: u32,
    /// The flowset's number.
    pub flowset: u32,
    /// The flow, masked.
    pub key: FlowId,
    pub counters: Counters,
    pub loss: LossState,
    /// Whether the scheduler knows it.
    pub is_open: bool,
    pub last_active: Time,
    pub is_used: bool,
}

/// `plr` at work.
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

    /// Whether the next packet is lost.
    pub fn strikes(&mut self, rng: &mut Rng) -> bool {
        match self {
            LossState::Off => false,
            LossState::Chance(chance) => chance.strikes(rng),
            LossState::Chain(chain) => chain.strikes(rng),
        }
    }
}

impl Instance {
    pub fn new(scheduler: u32, key: FlowId, now: Time) -> Self {
        Instance {
            key,
            scheduler,
            link: None,
            is_ready: false,
            is_used: true,
            has_loss: false,
            last_active: now,
            meter: Meter::default(),
            waits: Histogram::default(),
            counters: Counters::default(),
            loss: LossState::Off,
            queues: Vec::new(),
        }
    }

    /// Puts another loss in force.
    pub fn set_loss(&mut self, loss: LossState) {
        self.has_loss = !matches!(loss, LossState::Off);
        self.loss = loss;
    }

    /// The loss, if there is any: without, its cache line is left alone.
    pub fn loss(&mut self) -> Option<&mut LossState> {
        self.has_loss.then_some(&mut self.loss)
    }

    /// Whether nothing waits in it and nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.link
            .as_ref()
            .is_none_or(|link| link.backlog().is_empty() && link.in_flight().is_empty())
    }
}
