//! The packet loop: it forwards frames from ports through queues to ports, and runs to completion.
//!
//! A [`Forwarder`] is the part of a router that one core runs: ports, the memory of their frames,
//! and lanes. A *lane* is a set of queues with the ports whose arrivals they receive. The
//! laboratory has one lane per direction, each a [`Piped`]; a router process has one lane for all
//! its ports, the rule engine. The loop is the same for each [`Queueing`]:
//!
//! 1. receive a batch from every port that is ready, parse each frame once, split super-packets
//!    where the lane asks for it, and admit them at the instant at which the kernel got them;
//! 2. dequeue what is due, write CE marks, and send, one batch per port;
//! 3. wait for the next frame or the next due instant, whichever is first.
//!
//! [`Forwarder::turn`] does this once and returns, so the caller does everything else (commands,
//! samples) between turns, with no concurrency: no lock, no channel and no allocation on the packet
//! path. A batch contains the packets that have arrived since the last turn: one at low rates, many
//! at high rates, with one reading of the clock for all.
//!
//! Every frame is accounted for ([`LaneCounts`], and the ports' own counters), and the lateness of
//! packets is always measured ([`Lateness`]).

mod counts;
mod doorbell;
mod exchange;
mod host;
mod lane;
mod piped;
mod turn;
mod way;

#[cfg(test)]
mod tests;

pub use counts::{LaneCounts, Lateness, LostFrame};
pub use exchange::{Exchange, WakeUp, exchange};
pub use lane::Lane;
pub use piped::{Piped, RateStep};
pub use turn::{FileTime, Forwarder, LaneOptions};

use sluice_core::{Cx, DropReason, Event, Packet, Span, Time};
use sluice_ipfw::{Handed, Worker};
use sluice_net::port::nfqueue::StackPath;
use sluice_wire::frame::View;

/// What a doorbell and a way are made of; the models of all their orders have other types.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
    pub(super) use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
    pub(super) use std::sync::{Arc, Mutex, OnceLock, PoisonError};
}

/// A port, by its place in the list given to [`Forwarder::new`].
pub type PortNumber = usize;

/// The origin of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The port of arrival.
    pub port: PortNumber,
    /// The path through the kernel's stack, from a port that reports it.
    pub path: Option<StackPath>,
}

/// The queues of a lane: pipes, or the rule engine.
///
/// Like [`Pipe`](sluice_core::link::Pipe), the queues act at the times at which something is due,
/// not at the times at which they are polled. Calls come in the order of time.
pub trait Queueing {
    /// What queueing needs in addition to the packet's handle: nothing, or the headers that rules
    /// match.
    type Key;

    /// Reads the key of a packet. `head` is the beginning of its frame with all headers, and `view`
    /// has their positions. The segments of a super-packet share the key.
    fn key(&self, from: Origin, view: &View, head: &[u8]) -> Self::Key;

    /// Returns whether a super-packet that arrives at port `from` at a given time should be split.
    fn splits(&mut self, from: PortNumber, key: &Self::Key, at: Time) -> bool;

    /// Tells for how many more packets there is memory, before packets are admitted.
    fn set_free_packets(&mut self, packets: u64) {
        let _ = packets;
    }

    /// Returns whether frames whose headers hide what rules match are dropped
    /// ([`View::is_evasive`]).
    fn is_strict(&self) -> bool {
        false
    }

    /// Returns whether [`Queueing::expect`] is worth its cost: there are more queues than the
    /// processor's caches hold.
    fn is_wide(&self) -> bool {
        false
    }

    /// Announces the packets of a batch by their keys, in the order in which [`Queueing::admit`] will
    /// get them, so that their memory is fetched in time; see [`prefetch`](sluice_core::prefetch).
    fn expect(&mut self, coming: &[Self::Key]) {
        let _ = coming;
    }

    /// Returns whether [`Queueing::observe`] wants to see frames.
    fn observes(&self) -> bool {
        false
    }

    /// Sees a frame that arrived at `at`, before it is admitted. `head` is as for
    /// [`Queueing::key`].
    fn observe(&mut self, key: &Self::Key, view: &View, head: &[u8], at: Time) {
        let _ = (key, view, head, at);
    }

    /// Accepts a packet that arrived at `cx.now`. It leaves through [`Queueing::poll`] or goes to
    /// the context's sink.
    fn admit(&mut self, packet: Packet, key: &Self::Key, cx: &mut Cx<'_>);

    /// Processes everything that is due up to `cx.now`, and returns the next packet that may leave.
    /// Must be called until it returns `None`.
    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure>;

    /// Returns the next packet for another worker. Its slot remains until the host frees it. Called
    /// after [`Queueing::poll`], until it returns `None`.
    fn next_handed(&mut self) -> Option<Handed> {
        None
    }

    /// Accepts a packet that another worker has handed over, at `cx.now`. Its slot is one of this
    /// worker's.
    fn accept(&mut self, handed: Handed, cx: &mut Cx<'_>) {
        let _ = cx;
        unreachable!("queues of one worker get nothing from another: {handed:?}");
    }

    /// Returns which of several workers this is, and which packets the ports may have given to another
    /// one, if packets must be admitted by the worker of their flow.
    fn homes(&mut self) -> Option<(Worker, Astray)> {
        None
    }

    /// Returns the instant at which [`Queueing::poll`] has something to do if nothing arrives
    /// before; a time in the past means now.
    fn next_wake(&self) -> Option<Time>;

    /// Returns whether an Ethernet frame that is not IP may pass, which arrived at port `from` at
    /// `cx.now`.
    fn passes(&mut self, from: PortNumber, view: &View, cx: &mut Cx<'_>) -> bool {
        let _ = (from, view, cx);
        true
    }

    /// Returns the port through which frames that are not IP leave, bypassing the queues. Without a
    /// port they are lost.
    fn bypass(&self, from: PortNumber) -> Option<PortNumber>;
}

/// The packets that the ports of several workers may give to another worker than the packets of the
/// opposite direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// Those in which the kernel's symmetric hash covers more than the addresses and ports of their
    /// flow: ESP, AH, and what is in a tunnel.
    Tunnelled,
    /// All packets.
    All,
}

/// A packet that leaves.
#[derive(Debug)]
pub struct Departure {
    /// The packet.
    pub packet: Packet,
    /// The due time. A packet sent later is late.
    pub due: Time,
    /// The port through which the packet leaves.
    pub to: PortNumber,
}

/// Observes every packet of a lane. `()` observes nothing and costs nothing.
pub trait Observer {
    /// Returns whether queues should report their events.
    const LISTENS: bool;

    /// Returns the name of the lane's pipe, for messages about the algorithm of its queue.
    fn pipe_name(&self) -> Option<String> {
        None
    }

    /// Handles a packet that is about to be admitted.
    fn on_arrival(&mut self, packet: &Packet, view: &View);

    /// Handles an event of a queue.
    fn on_event(&mut self, now: Time, event: &Event<'_>);

    /// Handles the drop of a packet.
    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason);

    /// Handles the transmission of a packet of `len` bytes, `late` after it was due at `due`.
    fn on_release(&mut self, due: Time, len: u32, late: Span);
}

impl Observer for () {
    const LISTENS: bool = false;

    fn on_arrival(&mut self, _packet: &Packet, _view: &View) {}

    fn on_event(&mut self, _now: Time, _event: &Event<'_>) {}

    fn on_discard(&mut self, _now: Time, _packet: &Packet, _reason: DropReason) {}

    fn on_release(&mut self, _due: Time, _len: u32, _late: Span) {}
}
