//! Disciplines: hold packets and decide their order.
//!
//! Adding a discipline is one file beside this one and one line in [`disciplines!`] below.

use alloc::boxed::Box;

use crate::aqm::Aqm;
use crate::event::{Backlog, Cx, StateValue};
use crate::packet::Packet;
use crate::param::Params;
use crate::units::Time;

/// When a discipline can next give a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// At once.
    Now,
    /// Not before this instant.
    At(Time),
    /// Not before another packet arrives.
    OnEnqueue,
}

/// A queue of packets, as the host and the pipe see it.
///
/// Calls come in the order of time. Calling [`Discipline::dequeue`] earlier than
/// [`Discipline::next_wake`] says is harmless: it returns nothing and changes nothing that a later
/// call could show.
pub trait Discipline {
    /// Takes a packet, or hands it (or another one, to make room) to the sink.
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>);

    /// Gives the next packet that may leave now.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet>;

    /// When [`Discipline::dequeue`] may give a packet.
    fn next_wake(&self) -> Wake;

    /// When [`Discipline::on_timer`] wants to be called; never makes a packet leave earlier.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// A timer of an AQM is due.
    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Takes out a packet without asking anybody, to move a backlog to another discipline;
    /// packets come in an order in which they could have left.
    fn pull(&mut self) -> Option<Packet>;

    /// What is held.
    fn backlog(&self) -> Backlog;

    /// Visits the variables of the algorithm, with the queue that they belong to.
    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        let _ = visit;
    }

    /// The same as a scheduler with several queues, if it is one.
    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        None
    }
}

/// What one queue of a scheduler with several is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part of the link against the other queues' (WF2Q+, QFQ, RR), or its priority with 0
    /// served first (PRIO).
    pub weight: u32,
    /// Bytes of the longest packet (QFQ), or bytes per weight and turn (RR).
    pub max_len: u32,
}

impl Default for Share {
    fn default() -> Self {
        // dummynet: weight 1, lmax 1500.
        Share {
            weight: 1,
            max_len: 1500,
        }
    }
}

/// Why a share was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The weight is outside what the scheduler can serve.
    #[error("weight {weight} is outside {low} to {high}")]
    Weight {
        /// What was asked for.
        weight: u32,
        /// The smallest accepted weight.
        low: u32,
        /// The largest accepted weight.
        high: u32,
    },
    /// The longest packet is outside what the scheduler can serve.
    #[error("lmax {max_len} is outside {low} to {high} bytes")]
    MaxLen {
        /// What was asked for.
        max_len: u32,
        /// The smallest accepted length.
        low: u32,
        /// The largest accepted length.
        high: u32,
    },
    /// All weights together are more than the scheduler can serve.
    #[error("the weights would add up to {sum}, more than {high}")]
    WeightSum {
        /// The sum with this share.
        sum: u64,
        /// The largest accepted sum.
        high: u64,
    },
}

/// A scheduler whose queues are made one by one, each with its own limits and AQM.
///
/// [`Packet::class`] names the queue. A packet of a class that was not opened opens it with the
/// default share, limits and no AQM.
pub trait Classful: Discipline {
    /// Opens the queue `class`, or changes the share of an open one and keeps its packets.
    ///
    /// # Errors
    /// [`ShareError`] with what would be accepted; nothing is changed then.
    fn open(
        &mut self,
        class: u32,
        share: Share,
        limits: &fifo::FifoParams,
        aqm: Box<dyn Aqm>,
    ) -> Result<(), ShareError>;

    /// Closes the queue `class`; its packets go to the sink as reconfigured.
    fn close(&mut self, class: u32, cx: &mut Cx<'_>);

    /// What the queue `class` holds; `None` if it is not open.
    fn class_backlog(&self, class: u32) -> Option<Backlog>;
}

/// A discipline that the registry can build.
pub trait DisciplineAlgorithm: Discipline + Sized + 'static {
    /// What the user sets.
    type Params: Params;
    /// One line for lists and help.
    const DOC: &'static str;

    /// A fresh instance.
    fn new(params: &Self::Params) -> Self;
}

impl<D: Discipline + ?Sized> Discipline for Box<D> {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        (**self).enqueue(packet, cx);
    }
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        (**self).dequeue(cx)
    }
    fn next_wake(&self) -> Wake {
        (**self).next_wake()
    }
    fn next_timer(&self) -> Option<Time> {
        (**self).next_timer()
    }
    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        (**self).on_timer(cx);
    }
    fn pull(&mut self) -> Option<Packet> {
        (**self).pull()
    }
    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }
    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        (**self).state(visit);
    }
    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        (**self).as_classful()
    }
}

pub mod fq;

/// Declares the modules of the disciplines that stand for themselves, and their table.
macro_rules! disciplines {
    ($($module:ident::$name:ident,)+) => {
        $(pub mod $module;)+

        /// Every discipline.
        pub(crate) static DISCIPLINES: &[crate::registry::Algorithm] =
            &[$(crate::registry::discipline::<$module::$name>(stringify!($module)),)+];
    };
}

disciplines! {
    fifo::PlainFifo,
}
