//! Active queue management (AQM): decides whether a packet passes, is marked or is dropped; holds
//! no packets.
//!
//! A discipline asks its AQM about every packet twice: on arrival, and when the packet reaches the
//! head and is about to leave. The verdict says whether the signal is a mark or a drop: the AQM
//! decides this from the packet's ECN codepoint and its own `ecn` parameter.
//!
//! To add an AQM, add one file beside this one and one line in `aqms!` below. The line creates the
//! plain form (`codel`: one FIFO queue) and the flow-queued form (`fq_codel`).

use alloc::sync::Arc;

use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Params;
use crate::units::{Rate, Time};

/// The decision of an AQM about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// CE is set and the packet passes. Only for ECN-capable packets.
    Mark,
    /// The packet is dropped.
    Drop(DropReason),
}

/// The packet that a full queue drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The arriving packet.
    #[default]
    Tail,
    /// The packet at the head. The sender learns of the drop one queue length earlier.
    Head,
}

/// The queue that an AQM decides about, without the packet in question.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueView {
    /// Wire packets in this queue.
    pub packets: u64,
    /// Bytes in this queue.
    pub bytes: u64,
    /// Bytes in the whole discipline (equal to `bytes` for a single queue).
    pub total_bytes: u64,
    /// Largest number of wire packets in the queue.
    pub limit_packets: u64,
    /// Largest number of bytes in the queue.
    pub limit_bytes: u64,
}

/// An algorithm that decides when to signal congestion.
///
/// When `on_dequeue` is called, the packet has already left the queue. After `Drop` the discipline
/// immediately asks about the next packet of the same queue, or calls [`Aqm::on_empty`] if there is
/// none.
pub trait Aqm {
    /// Decides about an arriving packet.
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let _ = (packet, queue, cx);
        Verdict::Pass
    }

    /// Decides about the packet at the head of the queue.
    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let _ = (packet, queue, cx);
        Verdict::Pass
    }

    /// Called when a dequeue finds the queue empty.
    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Called when a full queue refuses an arriving packet without asking [`Aqm::on_enqueue`].
    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        let _ = (packet, queue, cx);
    }

    /// Called when packets were evicted because the queue, or the whole discipline, was full.
    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        let _ = (packets, cx);
    }

    /// Called when the AQM's flow queue becomes active after an idle time. The packet that
    /// activated the queue is already in it.
    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Called when the AQM's empty flow queue becomes inactive. The timer is not called until the
    /// next packet arrives; an AQM with a timer catches up then.
    fn on_deactivate(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Called when the rate of the link behind the queue has changed.
    fn on_rate(&mut self, rate: Rate) {
        let _ = rate;
    }

    /// Returns the packet that a full queue drops.
    fn overflow(&self) -> Overflow {
        Overflow::Tail
    }

    /// Returns the next call of [`Aqm::on_timer`]. A timer may be postponed, but never to an
    /// earlier instant than the one last returned. It may stay unset until a packet arrives, leaves
    /// or is evicted; the discipline calls this method again after each of these.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// Called when the AQM's own timer expires (for example, PIE updates its probability).
    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        let _ = (queue, cx);
    }

    /// Returns the bytes that the AQM has allocated besides its own size.
    fn memory(&self) -> usize {
        0
    }

    /// Visits the variables of the algorithm.
    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        let _ = visit;
    }
}

/// An AQM that the registry can build.
pub trait AqmAlgorithm: Aqm + Sized + 'static {
    /// Type of the algorithm's parameters.
    type Params: Params;
    /// One-line description for lists and help.
    const DOC: &'static str;
    /// The packet that is dropped under `variant linux` when the flow-queued form is full: the head
    /// of the fattest queue, or the arriving packet.
    const FLOW_OVERFLOW_IN_LINUX: Overflow = Overflow::Head;

    /// Creates an instance.
    fn new(params: &Self::Params) -> Self;

    /// Creates an instance for one of the many queues of a flow-queueing discipline. The instance
    /// may share `params` with the others.
    fn for_flow(params: &Arc<Self::Params>) -> Self {
        Self::new(params)
    }
}

/// An AQM that a flow-queueing discipline instantiates once per queue.
pub trait FlowAqm: Aqm + Sized + 'static {
    /// The state that the instances share.
    type Shared: 'static;
    /// As [`AqmAlgorithm::FLOW_OVERFLOW_IN_LINUX`].
    const FLOW_OVERFLOW_IN_LINUX: Overflow;
    /// Whether the shared state changes. If so, each discipline has its own.
    const SHARES_STATE: bool = false;

    /// Creates the instance of one queue.
    fn for_flow(shared: &Arc<Self::Shared>) -> Self;
}

impl<A: AqmAlgorithm> FlowAqm for A {
    type Shared = A::Params;
    const FLOW_OVERFLOW_IN_LINUX: Overflow = <A as AqmAlgorithm>::FLOW_OVERFLOW_IN_LINUX;

    fn for_flow(shared: &Arc<A::Params>) -> Self {
        <A as AqmAlgorithm>::for_flow(shared)
    }
}

// A missing method would silently fall back to its default. Clippy makes that an error.
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
    fn on_rate(&mut self, rate: Rate) {
        (**self).on_rate(rate);
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
    fn memory(&self) -> usize {
        size_of_val(&**self) + (**self).memory()
    }
    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        (**self).state(visit);
    }
}

mod probability;
mod rest;

/// Declares the modules of all AQMs and `each_aqm!`, from which the registry derives everything
/// else.
macro_rules! aqms {
    ($($module:ident::$name:ident,)+) => {
        $(pub mod $module;)+

        /// Calls a macro with every AQM.
        macro_rules! each_aqm {
            ($visit:ident) => { $visit! { $($module::$name,)+ } };
        }
        pub(crate) use each_aqm;
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
