//! Active queue management: decides to pass, mark or drop; holds nothing.
//!
//! A discipline asks its AQM twice about every packet: when it arrives, and when it is at the
//! head and about to leave. The answer already says what the signal becomes: an AQM looks at the
//! packet's ECN codepoint and its own `ecn` parameter, so it knows whether it marked or dropped.
//!
//! Adding an AQM is one file beside this one and one line in `aqms!` below. Its plain form
//! (`codel`: one FIFO queue) and its flow-queued form (`fq_codel`) come from that line.

use alloc::sync::Arc;

use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Params;
use crate::units::Time;

/// What an AQM says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass.
    Pass,
    /// Set CE and let it pass. Only for ECN-capable packets.
    Mark,
    /// Drop it.
    Drop(DropReason),
}

/// Which packet a full queue gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The one that arrives.
    #[default]
    Tail,
    /// The one at the head, so that the sender learns of it a queue's length earlier.
    Head,
}

/// The queue that an AQM decides for, as it is without the packet in question.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueView {
    /// Wire packets in this queue.
    pub packets: u64,
    /// Bytes in this queue.
    pub bytes: u64,
    /// Bytes in the whole discipline (equal to `bytes` for a single queue).
    pub total_bytes: u64,
    /// Wire packets that the queue may hold.
    pub limit_packets: u64,
    /// Bytes that the queue may hold.
    pub limit_bytes: u64,
}

/// An algorithm that decides when to signal congestion.
///
/// At `on_dequeue` the packet has been taken from the queue already. After
/// `Drop`, the discipline asks at once about the next packet of the same queue, or calls
/// [`Aqm::on_empty`] if there is none.
pub trait Aqm {
    /// Decides about a packet that arrives.
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let _ = (packet, queue, cx);
        Verdict::Pass
    }

    /// Decides about the packet at the head of the queue.
    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let _ = (packet, queue, cx);
        Verdict::Pass
    }

    /// Learns that a dequeue found the queue empty.
    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Learns that a full queue refused the packet that arrived, without asking [`Aqm::on_enqueue`].
    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        let _ = (packet, queue, cx);
    }

    /// Learns that packets already in the queue were thrown out because it, or the whole
    /// discipline, was full.
    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        let _ = (packets, cx);
    }

    /// Learns that its flow queue was put on a list again after an idle time; the packet that
    /// did it is in the queue already.
    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Learns that its empty flow queue left the lists. Until the next packet arrives no timer is
    /// called; an AQM that has one makes up for it then.
    fn on_deactivate(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Which packet a full queue gives up.
    fn overflow(&self) -> Overflow {
        Overflow::Tail
    }

    /// When [`Aqm::on_timer`] wants to be called. A timer may be put off, but never moves to an
    /// earlier instant than it was last said to be due. There may be none until a packet comes, goes or
    /// is thrown out; who holds the queue asks again then.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// Its own timer is due (PIE's update of the probability).
    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        let _ = (queue, cx);
    }

    /// Visits its variables.
    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        let _ = visit;
    }
}

/// An AQM that the registry can build.
pub trait AqmAlgorithm: Aqm + Sized + 'static {
    /// What the user sets.
    type Params: Params;
    /// One line for lists and help.
    const DOC: &'static str;
    /// What gives way when all queues of its flow-queued form are full under `variant linux`: the head of
    /// the fattest one, or the packet that arrives.
    const FLOW_OVERFLOW_IN_LINUX: Overflow = Overflow::Head;

    /// A fresh instance.
    fn new(params: &Self::Params) -> Self;

    /// A fresh instance for one of the many queues of a flow-queueing discipline, which may share
    /// `params` with the others.
    fn for_flow(params: &Arc<Self::Params>) -> Self {
        Self::new(params)
    }
}

// Clippy makes a method that is missing here an error: its default would hide the inner one.
#[deny(clippy::missing_trait_methods)]
impl<A: Aqm + ?Sized> Aqm for alloc::boxed::Box<A> {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        (**self).on_enqueue(packet, queue, cx)
    }
    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        (**self).on_dequeue(packet, queue, cx)
    }
    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        (**self).on_empty(cx);
    }
    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        (**self).on_refused(packet, queue, cx);
    }
    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        (**self).on_overflow(packets, cx);
    }
    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        (**self).on_activate(cx);
    }
    fn on_deactivate(&mut self, cx: &mut Cx<'_>) {
        (**self).on_deactivate(cx);
    }
    fn overflow(&self) -> Overflow {
        (**self).overflow()
    }
    fn next_timer(&self) -> Option<Time> {
        (**self).next_timer()
    }
    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        (**self).on_timer(queue, cx);
    }
    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        (**self).state(visit);
    }
}

mod probability;
mod rest;

/// Declares the modules of all AQMs and the table that everything else is derived from.
macro_rules! aqms {
    ($($module:ident::$name:ident,)+) => {
        $(pub mod $module;)+

        /// Every AQM in its plain form: one queue.
        pub(crate) static PLAIN: &[crate::registry::Algorithm] =
            &[$(crate::registry::plain::<$module::$name>(stringify!($module)),)+];

        /// Every AQM in its flow-queued form.
        pub(crate) static FLOW_QUEUED: &[crate::registry::Algorithm] =
            &[$(crate::registry::flow_queued::<$module::$name>(
                concat!("fq_", stringify!($module)),
            ),)+];
    };
}

aqms! {
    droptail::DropTail,
    headdrop::HeadDrop,
    red::Red,
    gred::Gred,
    blue::Blue,
    codel::Codel,
    cobalt::Cobalt,
    pie::Pie,
    pi2::Pi2,
    step::Step,
}
