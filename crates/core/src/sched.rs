//! Disciplines: hold packets and decide their order.
//!
//! To add a discipline, add one file beside this one and one line in `disciplines!` below. For a
//! scheduler with classes that file is an [`Order`](classful::Order); for a rank function it is a
//! [`Rank`](rank::Rank). In both cases the packets are held elsewhere.

use alloc::boxed::Box;

use crate::event::{Backlog, Cx, StateValue};
use crate::packet::Packet;
use crate::param::Params;
use crate::prefetch::Place;
use crate::units::{Rate, Time};

/// The next time at which a discipline can return a packet.
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
/// [`Discipline::next_wake`] says is harmless: it returns `None` and changes nothing that a later
/// call could reveal.
pub trait Discipline {
    /// Enqueues a packet, or hands it (or another one, to make room) to the sink.
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>);

    /// Returns the next packet that may leave now.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet>;

    /// Returns when [`Discipline::dequeue`] may return a packet.
    fn next_wake(&self) -> Wake;

    /// Returns when [`Discipline::on_timer`] is to be called. A timer never makes a packet leave
    /// earlier.
    fn next_timer(&self) -> Option<Time> {
        None
    }

    /// Called when a timer of an AQM expires.
    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        let _ = cx;
    }

    /// Called when the rate of the link behind the queue has changed, where one AQM decides about all
    /// packets. See also [`Classful::on_class_rate`].
    fn on_rate(&mut self, rate: Rate) {
        let _ = rate;
    }

    /// Removes a packet without asking an AQM, to move a backlog to another discipline. Packets
    /// come in an order in which they could have left.
    fn pull(&mut self) -> Option<Packet>;

    /// Returns the packets and bytes held.
    fn backlog(&self) -> Backlog;

    /// Returns the bytes of memory that the discipline holds, itself included, so that a host can
    /// limit what very many of them hold together. Parameters that several share are not counted.
    fn memory(&self) -> usize {
        size_of_val(self)
    }

    /// Visits the variables of the algorithm, each with the number of its queue. Of the queues of
    /// flows, only those that may hold packets are visited.
    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        let _ = visit;
    }

    /// Returns the discipline as a scheduler with classes, if it is one.
    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        None
    }

    /// Creates an empty discipline with the same parameters, which shares its immutable data with
    /// this one. With a hundred thousand links, the cache then holds one copy of that data. Returns
    /// `None` where this has no advantage over building one from its words.
    fn blank(&self) -> Option<Box<dyn Discipline>> {
        None
    }

    /// Returns the memory beside the discipline itself that [`Discipline::enqueue`] will probably need
    /// for the next packet of `flow`; see [`prefetch`](crate::prefetch).
    fn places(&self, flow: u32) -> [Place; 2] {
        let _ = flow;
        [Place::NONE; 2]
    }

    /// Prefetches the packet that [`Discipline::dequeue`] will probably return next.
    fn prefetch_dequeue(&self) {}
}

/// A discipline that the registry can build.
pub trait DisciplineAlgorithm: Discipline + Sized + 'static {
    /// Type of its parameters.
    type Params: Params;
    /// One-line description for lists and help.
    const DOC: &'static str;

    /// Creates an instance.
    fn new(params: &Self::Params) -> Self;
}

// A missing method would silently fall back to its default. Clippy makes that an error.
#[deny(clippy::missing_trait_methods)]
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
    fn on_rate(&mut self, rate: Rate) {
        (**self).on_rate(rate);
    }
    fn pull(&mut self) -> Option<Packet> {
        (**self).pull()
    }
    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }
    fn memory(&self) -> usize {
        (**self).memory()
    }
    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        (**self).state(visit);
    }
    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        (**self).as_classful()
    }
    fn blank(&self) -> Option<Box<dyn Discipline>> {
        (**self).blank()
    }
    fn places(&self, flow: u32) -> [Place; 2] {
        (**self).places(flow)
    }
    fn prefetch_dequeue(&self) {
        (**self).prefetch_dequeue();
    }
}

/// Returns the bytes that a vector has allocated.
pub(crate) const fn allocated<T>(vector: &alloc::vec::Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

mod class;
pub mod classful;
mod fattest;
pub mod fq;
mod heap;
mod pool;
pub mod push_in;
pub mod rank;
mod ring;
mod virtual_time;

pub use class::ClassCounters;
pub use classful::{Classful, Share, ShareDecl, ShareError, ShareRange};

/// Declares the modules of the disciplines and `each_discipline!`, from which the registry derives
/// everything else. A discipline has the name of its module unless another is given (`as "wf2q+"`).
macro_rules! disciplines {
    ($($module:ident::$name:ident $(as $word:literal)?,)+) => {
        $(pub mod $module;)+

        /// Calls a macro with every discipline.
        macro_rules! each_discipline {
            ($visit:ident) => { $visit! { $($module::$name $(as $word)?,)+ } };
        }
        pub(crate) use each_discipline;
    };
}

disciplines! {
    fifo::PlainFifo,
    pfifo_fast::PfifoFast,
    prio::Prio,
    rr::Rr,
    wf2q::Wf2q as "wf2q+",
    qfq::Qfq,
    sfq::Sfq,
    pifo::Pifo,
    pieo::Pieo,
    dualpi2::DualPi2,
    cake::Cake,
}
