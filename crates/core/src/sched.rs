//! Disciplines: hold packets and decide their order.
//!
//! Adding a discipline is one file beside this one and one line in `disciplines!` below. For a
//! scheduler with classes that file is an [`Order`](classful::Order), for a rank function a
//! [`Rank`](rank::Rank): what they order is held for them.

use alloc::boxed::Box;

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

    /// Another one with these parameters, of the same build, that has seen no packet. What never
    /// changes the two share: a hundred thousand links then have one copy of it in the cache. `None`
    /// where nothing is gained over building one from its words.
    fn blank(&self) -> Option<Box<dyn Discipline>> {
        None
    }

    /// Prefetches what [`Discipline::enqueue`] needs for the next packet of `flow`; see
    /// [`prefetch`](crate::prefetch).
    fn prefetch_enqueue(&self, flow: u32) {
        let _ = flow;
    }

    /// Prefetches the packet that [`Discipline::dequeue`] will probably return next.
    fn prefetch_dequeue(&self) {}
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

// Clippy makes a method that is missing here an error: its default would hide the inner one.
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
    fn blank(&self) -> Option<Box<dyn Discipline>> {
        (**self).blank()
    }
    fn prefetch_enqueue(&self, flow: u32) {
        (**self).prefetch_enqueue(flow);
    }
    fn prefetch_dequeue(&self) {
        (**self).prefetch_dequeue();
    }
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

pub use class::ClassCounters;
pub use classful::{Classful, Share, ShareError};

/// Declares the modules of the disciplines that stand for themselves, and their table. A discipline
/// is called like its module unless it says otherwise (`as "wf2q+"`).
macro_rules! disciplines {
    ($($module:ident::$name:ident $(as $word:literal)?,)+) => {
        $(pub mod $module;)+

        /// Every discipline.
        pub(crate) static DISCIPLINES: &[crate::registry::Algorithm] = &[
            $(crate::registry::discipline::<$module::$name>(
                disciplines!(@word $module $($word)?),
            ),)+
        ];
    };
    (@word $module:ident) => { stringify!($module) };
    (@word $module:ident $word:literal) => { $word };
}

disciplines! {
    fifo::PlainFifo,
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
