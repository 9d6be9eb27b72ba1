//! Schedulers with classes: the choice of the next class, separate from the queues.
//!
//! A scheduler is an [`Order`] on top of queues that are the same for all schedulers. The order
//! sees no packets. It is notified which class became backlogged, how long that class's head is,
//! and what was served; it chooses the next class. So a new scheduler is one file with one `Order`.
//! Limits, AQMs, counters, timers and changes under load need no further code.

use alloc::boxed::Box;

use super::class::{Admission, ClassCounters, Classes};
use super::fifo::FifoParams;
use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::aqm::Aqm;
use crate::aqm::droptail::DropTail;
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Params;
use crate::params;
use crate::units::{Bytes, Rate, Time};

/// The share of one queue of a scheduler with classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The queue's part of the link relative to the other queues (WF2Q+, QFQ, RR), or its priority,
    /// where 0 is served first (PRIO).
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

/// The reason why a share was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The weight is outside the range of the scheduler.
    #[error("weight {weight} is outside {low} to {high}")]
    Weight {
        /// The weight that was given.
        weight: u32,
        /// The smallest accepted weight.
        low: u32,
        /// The largest accepted weight.
        high: u32,
    },
    /// The longest packet is outside the range of the scheduler.
    #[error("lmax {max_len} is outside {low} to {high} bytes")]
    MaxLen {
        /// The length that was given.
        max_len: u32,
        /// The smallest accepted length.
        low: u32,
        /// The largest accepted length.
        high: u32,
    },
    /// The sum of all weights is beyond the range of the scheduler.
    #[error("the weights would add up to {sum}, more than {high}")]
    WeightSum {
        /// The sum with this share.
        sum: u64,
        /// The largest accepted sum.
        high: u64,
    },
}

/// The range of a part of a [`Share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRange {
    /// The smallest accepted value.
    pub low: u32,
    /// The largest accepted value.
    pub high: u32,
    /// The smallest and the largest value that dummynet uses; it silently replaces others.
    pub dummynet: (u32, u32),
}

impl ShareRange {
    /// Creates a range that is the same in dummynet.
    pub const fn new(low: u32, high: u32) -> Self {
        ShareRange {
            low,
            high,
            dummynet: (low, high),
        }
    }

    /// Creates the range `low` to `high` of a part that dummynet limits to `dummynet`.
    pub const fn wider_than(dummynet: (u32, u32), low: u32, high: u32) -> Self {
        ShareRange {
            low,
            high,
            dummynet,
        }
    }

    /// Returns the nearest accepted value.
    pub fn clamp(self, value: u32) -> u32 {
        value.clamp(self.low, self.high)
    }

    /// Returns the value that dummynet would use: the largest one for a value above its range, and
    /// `default` for one below.
    pub fn dummynet_value(self, value: u32, default: u32) -> u32 {
        let (low, high) = self.dummynet;
        if value < low {
            default
        } else {
            value.min(high)
        }
    }

    fn holds(self, value: u32) -> bool {
        self.clamp(value) == value
    }
}

/// The parts of a [`Share`] that a scheduler reads, with their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareDecl {
    /// The range of the weight. A range from 0 is one of priorities.
    pub weight: ShareRange,
    /// The range of the longest packet; `None` if the scheduler does not read it.
    pub max_len: Option<ShareRange>,
}

impl ShareDecl {
    /// Whether the weight is a priority, where 0 is served first.
    pub const fn is_priority(&self) -> bool {
        self.weight.low == 0
    }

    fn check(&self, share: Share) -> Result<(), ShareError> {
        let Share { weight, max_len } = share;
        let ShareRange { low, high, .. } = self.weight;
        if !self.weight.holds(weight) {
            return Err(ShareError::Weight { weight, low, high });
        }
        if let Some(range) = self.max_len.filter(|range| !range.holds(max_len)) {
            let ShareRange { low, high, .. } = range;
            return Err(ShareError::MaxLen { max_len, low, high });
        }
        Ok(())
    }
}

/// A scheduler whose queues are opened one by one, each with its own limits and AQM.
///
/// [`Packet::class`] names the queue. A packet of a class that is not open opens it with the
/// scheduler's default share and limits and without an AQM. If the scheduler cannot open another
/// class, the packet is dropped as `no_route`.
///
/// All settings of an open class can be changed while it holds packets. A change of the share or
/// the AQM loses no packet; smaller limits drop the youngest packets as `reconfigured`.
pub trait Classful: Discipline {
    /// Returns the parts of a share that the scheduler reads.
    fn share_decl(&self) -> &'static ShareDecl;

    /// Opens the queue `class`. If it is already open, its share, limits and AQM are changed and
    /// its packets are kept, including those beyond the new limits.
    ///
    /// # Errors
    /// Returns [`ShareError`] with what would be accepted; then nothing is changed.
    fn open(
        &mut self,
        class: u32,
        share: Share,
        limits: &FifoParams,
        aqm: Box<dyn Aqm>,
    ) -> Result<(), ShareError>;

    /// Closes the queue `class`. Its packets go to the sink as `reconfigured`.
    fn close(&mut self, class: u32, cx: &mut Cx<'_>);

    /// Changes the share of an open class. Does nothing if it is not open.
    ///
    /// # Errors
    /// Returns [`ShareError`] with what would be accepted; then nothing is changed.
    fn set_share(&mut self, class: u32, share: Share) -> Result<(), ShareError>;

    /// Changes the limits of an open class. Packets beyond them go to the sink as `reconfigured`,
    /// the youngest first.
    fn set_limits(&mut self, class: u32, limits: &FifoParams, cx: &mut Cx<'_>);

    /// Replaces the AQM of an open class. The new one starts afresh.
    fn set_aqm(&mut self, class: u32, aqm: Box<dyn Aqm>);

    /// Tells the AQM of an open class that the rate of the link behind the scheduler has changed.
    fn on_class_rate(&mut self, class: u32, rate: Rate);

    /// Returns the share of the queue `class`; `None` if it is not open.
    fn class_share(&self, class: u32) -> Option<Share>;

    /// Returns the backlog of the queue `class`; `None` if it is not open.
    fn class_backlog(&self, class: u32) -> Option<Backlog>;

    /// Returns the counters of the queue `class`; `None` if it is not open.
    fn class_counters(&self, class: u32) -> Option<ClassCounters>;

    /// Visits the variables of the AQM of the queue `class`.
    fn class_state(&self, class: u32, visit: &mut dyn FnMut(&'static str, StateValue));

    /// Visits the numbers of all open classes, in an order that depends only on the calls made.
    fn classes(&self, visit: &mut dyn FnMut(u32));
}

/// Chooses the class that is served next.
///
/// Classes are identified by small dense numbers, which are reused after [`Order::close`]. A class
/// is *active* from [`Order::activate`] until a call reports that it has no head any more.
pub trait Order: 'static {
    /// Type of the order's parameters.
    type Params: Params;
    /// One-line description for lists and help.
    const DOC: &'static str;
    /// The parts of a share that the order reads. It never receives a share outside these ranges.
    const SHARE: ShareDecl;

    /// Creates an order without classes.
    fn new(params: &Self::Params) -> Self;

    /// Returns the bytes that the order has allocated.
    fn memory(&self) -> usize {
        0
    }

    /// Returns the limits of a class that a packet opened.
    fn limits(params: &Self::Params) -> FifoParams;

    /// Returns the share of a class that a packet opened; `class` is [`Packet::class`].
    fn default_share(&self, class: u32) -> Share {
        let _ = class;
        Share::default()
    }

    /// Opens the inactive class `id`.
    ///
    /// # Errors
    /// Returns [`ShareError`]; then nothing is changed.
    fn open(&mut self, id: u32, share: Share) -> Result<(), ShareError>;

    /// Changes the share of `id`, whose head is `head` bytes long if it is active.
    ///
    /// # Errors
    /// Returns [`ShareError`]; then nothing is changed.
    fn set_share(&mut self, id: u32, share: Share, head: Option<u32>) -> Result<(), ShareError>;

    /// Removes `id`, active or not.
    fn close(&mut self, id: u32);

    /// Activates the class `id`, which received a packet of `head` bytes.
    fn activate(&mut self, id: u32, head: u32);

    /// Returns the active class whose turn it is. The result stays the same until another method is
    /// called.
    fn next(&mut self) -> Option<u32>;

    /// Records that `id`, whose turn it was, sent `len` bytes; its next packet has `head` bytes. If
    /// an AQM dropped packets first, `len` differs from the length of the head for which the turn
    /// was given.
    fn served(&mut self, id: u32, len: u32, head: Option<u32>);

    /// Records that the head of the active class `id` was dropped; the next one has `head` bytes.
    fn head_dropped(&mut self, id: u32, head: Option<u32>);
}

params! {
    /// The limits of a class that was not opened before its first packet.
    pub struct ClassedParams {
        /// wire packets that each queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo: 1000 packets";
        /// bytes that each queue holds
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
    }
}

impl ClassedParams {
    pub(crate) fn limits(&self) -> FifoParams {
        FifoParams {
            limit: self.limit,
            limit_bytes: self.limit_bytes,
        }
    }
}

/// A scheduler: queues, served in the order that `O` decides.
pub struct Classed<O> {
    order: O,
    classes: Classes,
    default_limits: FifoParams,
}

impl<O: Order> DisciplineAlgorithm for Classed<O> {
    type Params = O::Params;
    const DOC: &'static str = O::DOC;

    fn new(params: &O::Params) -> Self {
        Classed {
            order: O::new(params),
            classes: Classes::new(),
            default_limits: O::limits(params),
        }
    }
}

impl<O: Order> Classed<O> {
    /// Returns the index of a packet's class, which is opened if necessary; `None` if the order
    /// refuses it.
    #[inline]
    fn index_of(&mut self, class: u32) -> Option<u32> {
        match self.classes.find(class) {
            Some(index) => Some(index),
            None => self.open_by_packet(class),
        }
    }

    #[cold]
    fn open_by_packet(&mut self, class: u32) -> Option<u32> {
        let share = self.order.default_share(class);
        O::SHARE.check(share).ok()?;
        self.order.open(self.classes.next_index(), share).ok()?;
        let limits = self.default_limits.clone();
        let aqm = Box::new(DropTail);
        Some(self.classes.open(class, share, &limits, aqm))
    }
}

impl<O: Order> Discipline for Classed<O> {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let Some(index) = self.index_of(packet.class) else {
            cx.discard(packet, DropReason::NoRoute);
            return;
        };
        match self.classes.offer(index, packet, cx) {
            Admission::Refused | Admission::Behind => {}
            Admission::First => {
                let head = self.classes.head_len(index);
                self.order
                    .activate(index, head.expect("the class has got a packet"));
            }
            Admission::HeadGone => {
                let head = self.classes.head_len(index);
                self.order.head_dropped(index, head);
            }
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        while let Some(index) = self.order.next() {
            if let Some(packet) = self.classes.serve(index, cx) {
                let head = self.classes.head_len(index);
                self.order.served(index, packet.len, head);
                cx.dequeued(&packet);
                return Some(packet);
            }
            self.order.head_dropped(index, None);
        }
        None
    }

    fn next_wake(&self) -> Wake {
        if self.classes.backlog().is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.classes.next_timer()
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.classes.on_timer(cx);
    }

    fn pull(&mut self) -> Option<Packet> {
        let index = self.order.next()?;
        let packet = self.classes.pop(index);
        let packet = packet.expect("a class whose turn it is has a packet");
        let head = self.classes.head_len(index);
        self.order.served(index, packet.len, head);
        Some(packet)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.order.memory() + self.classes.memory()
    }

    fn backlog(&self) -> Backlog {
        self.classes.backlog()
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        for (number, index) in self.classes.iter() {
            self.classes
                .class_state(index, &mut |name, value| visit(number, name, value));
        }
    }

    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        Some(self)
    }
}

impl<O: Order> Classful for Classed<O> {
    fn share_decl(&self) -> &'static ShareDecl {
        const { &O::SHARE }
    }

    fn open(
        &mut self,
        class: u32,
        share: Share,
        limits: &FifoParams,
        aqm: Box<dyn Aqm>,
    ) -> Result<(), ShareError> {
        if let Some(index) = self.classes.find(class) {
            self.set_share(class, share)?;
            self.classes.set_limits(index, limits);
            self.classes.set_aqm(index, aqm);
            return Ok(());
        }
        O::SHARE.check(share)?;
        self.order.open(self.classes.next_index(), share)?;
        self.classes.open(class, share, limits, aqm);
        Ok(())
    }

    fn close(&mut self, class: u32, cx: &mut Cx<'_>) {
        if let Some(index) = self.classes.find(class) {
            self.order.close(index);
            self.classes.close(index, cx);
        }
    }

    fn set_share(&mut self, class: u32, share: Share) -> Result<(), ShareError> {
        let Some(index) = self.classes.find(class) else {
            return Ok(());
        };
        if self.classes.share(index) != share {
            O::SHARE.check(share)?;
            let head = self.classes.head_len(index);
            self.order.set_share(index, share, head)?;
            self.classes.set_share(index, share);
        }
        Ok(())
    }

    fn set_limits(&mut self, class: u32, limits: &FifoParams, cx: &mut Cx<'_>) {
        let Some(index) = self.classes.find(class) else {
            return;
        };
        let was_active = self.classes.head_len(index).is_some();
        self.classes.set_limits(index, limits);
        self.classes.trim(index, cx);
        // The head is dropped last: the order is notified only when nothing is left.
        if was_active && self.classes.head_len(index).is_none() {
            self.order.head_dropped(index, None);
        }
    }

    fn set_aqm(&mut self, class: u32, aqm: Box<dyn Aqm>) {
        if let Some(index) = self.classes.find(class) {
            self.classes.set_aqm(index, aqm);
        }
    }

    fn on_class_rate(&mut self, class: u32, rate: Rate) {
        if let Some(index) = self.classes.find(class) {
            self.classes.on_rate(index, rate);
        }
    }

    fn class_share(&self, class: u32) -> Option<Share> {
        self.classes.find(class).map(|i| self.classes.share(i))
    }

    fn class_backlog(&self, class: u32) -> Option<Backlog> {
        let index = self.classes.find(class)?;
        Some(self.classes.class_backlog(index))
    }

    fn class_counters(&self, class: u32) -> Option<ClassCounters> {
        self.classes.find(class).map(|i| self.classes.counters(i))
    }

    fn class_state(&self, class: u32, visit: &mut dyn FnMut(&'static str, StateValue)) {
        if let Some(index) = self.classes.find(class) {
            self.classes.class_state(index, visit);
        }
    }

    fn classes(&self, visit: &mut dyn FnMut(u32)) {
        for (number, _) in self.classes.iter() {
            visit(number);
        }
    }
}
