//! One of the queues of a flow-queueing discipline.

use alloc::sync::Arc;

use super::pool::NONE;
use super::timers::Timers;
use crate::aqm::{FlowAqm, QueueView};
use crate::event::Backlog;
use crate::param::Variant;

/// One queue. With CoDel inside it is one cache line.
#[repr(align(64))]
pub(super) struct Queue<A> {
    /// Nodes of the pool.
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The queue behind this one on its list; [`OFF_LIST`] on neither.
    pub(super) next: u32,
    pub(super) credits: i32,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    pub(super) aqm: A,
}

/// Value of [`Queue::next`] for a queue on no list.
pub(super) const OFF_LIST: u32 = NONE - 1;

impl<A: FlowAqm> Queue<A> {
    /// Creates a queue that has not seen a packet.
    pub(super) fn new(params: &Arc<A::Shared>) -> Self {
        Queue {
            head: NONE,
            tail: NONE,
            next: OFF_LIST,
            credits: 0,
            packets: 0,
            bytes: 0,
            aqm: A::for_flow(params),
        }
    }

    /// Arms the AQM's timer if the queue, whose number is `own`, is on a list.
    #[inline]
    pub(super) fn arm(&self, own: u32, timers: &mut Timers) {
        if let Some(due) = self.aqm.next_timer()
            && self.next != OFF_LIST
        {
            timers.arm(own, due);
        }
    }

    /// Returns what the AQM sees; all queues hold `total`.
    #[inline]
    pub(super) fn view(&self, total: &Backlog, limit: &Backlog) -> QueueView {
        QueueView {
            packets: u64::from(self.packets),
            bytes: u64::from(self.bytes),
            total_bytes: total.bytes,
            limit_packets: limit.packets,
            limit_bytes: limit.bytes,
        }
    }

    /// Returns the quantity by which the fattest queue is found.
    #[inline]
    pub(super) fn weight(&self, variant: Variant) -> u64 {
        u64::from(match variant {
            Variant::Rfc | Variant::Linux | Variant::Linux2025 => self.bytes,
            Variant::Dummynet => self.packets,
        })
    }
}

/// One cache line per queue, as documented.
const _: () = assert!(core::mem::size_of::<Queue<crate::aqm::codel::Codel>>() == 64);
