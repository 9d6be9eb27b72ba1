//! Events, drop reasons, and the context that is passed to every call.
//!
//! A packet leaves a queue in exactly two ways: `dequeue` returns it, or the queue hands it to the
//! [`Sink`] with a [`DropReason`]. Everything else that a listener may want (enqueue, dequeue,
//! mark, a changed variable of an algorithm) is an [`Event`]. Without a listener an event costs one
//! predictable branch.

use alloc::string::String;

use crate::packet::{Ecn, Packet};
use crate::rng::Rng;
use crate::units::{Span, Time};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The reason why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),+];

            /// Returns the word used in recordings, tables and the command line.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// Returns a one-sentence description.
            pub const fn doc(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

drop_reasons! {
    /// The queue was full and the arriving packet was refused.
    Overflow = "overflow",
    /// The queue was full and evicted a packet that was already in it.
    Evicted = "evicted",
    /// The AQM signalled congestion to a flow that does not support ECN.
    Congestion = "congestion",
    /// The AQM found an unresponsive flow, or a queue that marks alone cannot control.
    Overload = "overload",
    /// The loss model of the link dropped it.
    Loss = "loss",
    /// A redundant acknowledgement was removed (ACK filter).
    AckFilter = "ack_filter",
    /// No queue, pipe or port accepts such a packet.
    NoRoute = "no_route",
    /// A rule denied it.
    Denied = "denied",
    /// The queue or pipe of the packet was deleted or made smaller.
    Reconfigured = "reconfigured",
    /// A port had no room for it. Queues never give this reason.
    Port = "port",
    /// The packet was invalid: truncated, or with wrong length fields.
    Malformed = "malformed",
}

/// A variable of an algorithm at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateValue {
    /// A count.
    Count(u64),
    /// An instant.
    Time(Time),
    /// A span of time.
    Span(Span),
    /// A probability or another ratio.
    Ratio(f64),
    /// On or off.
    Flag(bool),
}

impl StateValue {
    /// Returns the word for the kind of the value: `count`, `instant`, `span`, `ratio` or `flag`.
    pub const fn kind(self) -> &'static str {
        match self {
            StateValue::Count(_) => "count",
            StateValue::Time(_) => "instant",
            StateValue::Span(_) => "span",
            StateValue::Ratio(_) => "ratio",
            StateValue::Flag(_) => "flag",
        }
    }

    /// Returns the value as a number: times and spans in nanoseconds, flags as 0 or 1.
    pub fn as_f64(self) -> f64 {
        match self {
            StateValue::Count(n) => n as f64,
            StateValue::Time(t) => t.as_ns() as f64,
            StateValue::Span(s) => s.as_ns() as f64,
            StateValue::Ratio(r) => r,
            StateValue::Flag(b) => f64::from(u8::from(b)),
        }
    }
}

/// Packets and bytes held at an instant. A super-packet counts as its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Wire packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Backlog {
    /// Adds `packet`.
    pub const fn add(&mut self, packet: &Packet) {
        self.packets += packet.segments as u64;
        self.bytes += packet.len as u64;
    }

    /// Removes `packet`.
    pub const fn remove(&mut self, packet: &Packet) {
        self.packets -= packet.segments as u64;
        self.bytes -= packet.len as u64;
    }

    /// Returns whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0 && self.packets == 0
    }
}

/// An event that is reported to a listener.
#[derive(Debug)]
pub enum Event<'a> {
    /// A packet was enqueued.
    Enqueue {
        /// The packet.
        packet: &'a Packet,
    },
    /// A packet is about to be returned by `dequeue`.
    Dequeue {
        /// The packet.
        packet: &'a Packet,
    },
    /// An AQM set a packet's CE codepoint.
    Mark {
        /// The packet, already marked.
        packet: &'a Packet,
    },
    /// A variable of an algorithm changed.
    State {
        /// Number of the queue within the discipline: flow bucket or class, 0 for a single queue.
        queue: u32,
        /// Name of the variable, as the algorithm declares it.
        name: &'static str,
        /// New value.
        value: StateValue,
    },
}

/// The host's side of a queue: receives dropped packets and, if it listens, events.
pub trait Sink {
    /// Receives a dropped packet. Its slot is free from here on.
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason);

    /// Copies the bytes of `packet` into another slot, for a link that duplicates packets. Returns
    /// `None` where the host cannot copy.
    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let _ = (now, packet);
        None
    }

    /// Flips one bit of the bytes of `packet`, for a link that damages packets. Bits count from the
    /// most significant bit of the first byte. A host without bytes does nothing.
    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        let _ = (now, packet, bit);
    }

    /// Returns whether `packet` is a TCP acknowledgement that may be dropped when a later one
    /// carries the same information: it has no payload, no flag but ACK, ECE and CWR, and no option
    /// but SACK and timestamps. A host that does not read headers returns `false`, and no ACK
    /// filter removes anything. A host that reads headers can compare them with
    /// [`Ack`](crate::ack::Ack).
    fn is_pure_ack(&self, packet: &Packet) -> bool {
        let _ = packet;
        false
    }

    /// Returns whether `newer`, any TCP segment, carries everything that the pure acknowledgement
    /// `older` carries, and more: addresses, ports, ECE and CWR are equal, the acknowledged number
    /// and the timestamps are not lower, and the SACK blocks cover the older ones. An equal
    /// acknowledgement (a duplicate) carries nothing more. Within one flow this is
    /// [`Ack::supersedes`](crate::ack::Ack::supersedes).
    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        let _ = (newer, older);
        false
    }

    /// Returns the name of the pipe whose queue is called, for messages about the algorithm of the
    /// queue: `up`. Returns `None` if the host has no name for it.
    fn pipe_name(&self) -> Option<String> {
        None
    }

    /// Returns the number of `packet` in the host's recording, for messages about the packet. Returns
    /// `None` if the host gives its packets none.
    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        let _ = packet;
        None
    }

    /// Returns whether [`Sink::on_event`] does anything. A discipline asks once per call.
    fn is_listening(&self) -> bool {
        false
    }

    /// Receives an event.
    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        let _ = (now, event);
    }

    /// Returns whether a listener needs an event for each variable that has changed. An algorithm that has
    /// to read and compare all its variables after each call does so only then. A host that takes samples
    /// of [`Discipline::state`](crate::Discipline::state) does not need them.
    fn wants_state(&self) -> bool {
        false
    }
}

/// The context of a call: time, randomness and listener.
pub struct Cx<'a> {
    /// The instant of the call.
    pub now: Time,
    /// Seeded randomness.
    pub rng: &'a mut Rng,
    /// Number of the queue that is being served. A discipline sets it before it asks an AQM.
    pub queue: u32,
    sink: &'a mut dyn Sink,
    is_listening: bool,
}

impl<'a> Cx<'a> {
    /// Creates a context at `now`.
    pub fn new(now: Time, rng: &'a mut Rng, sink: &'a mut dyn Sink) -> Self {
        let is_listening = sink.is_listening();
        Cx {
            now,
            rng,
            queue: 0,
            sink,
            is_listening,
        }
    }

    /// Borrows the randomness and the listener, for code that wraps the listener in a context of
    /// its own.
    pub fn parts(&mut self) -> (&mut Rng, &mut dyn Sink) {
        (self.rng, self.sink)
    }

    /// Hands a dropped packet to the host.
    #[inline]
    pub fn discard(&mut self, packet: Packet, reason: DropReason) {
        self.sink.discard(self.now, packet, reason);
    }

    /// Returns a copy of `packet` whose bytes the host has put into another slot, if the host can
    /// copy.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let slot = self.sink.copy(self.now, packet)?;
        Some(Packet { slot, ..*packet })
    }

    /// Makes the host flip one bit of the packet's bytes.
    pub fn corrupt(&mut self, packet: &Packet, bit: u64) {
        self.sink.corrupt(self.now, packet, bit);
    }

    /// Returns whether the host recognises `packet` as a pure acknowledgement; see
    /// [`Sink::is_pure_ack`].
    pub fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.sink.is_pure_ack(packet)
    }

    /// Returns whether the host finds `older` redundant after `newer`; see [`Sink::supersedes`].
    pub fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.sink.supersedes(newer, older)
    }

    /// Returns the name of the pipe whose queue is called; see [`Sink::pipe_name`].
    pub fn pipe_name(&self) -> Option<String> {
        self.sink.pipe_name()
    }

    /// Returns the number of `packet` in the host's recording; see [`Sink::packet_number`].
    pub fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.sink.packet_number(packet)
    }

    /// Sets the packet's CE codepoint.
    ///
    /// # Panics
    /// If the packet is not ECN-capable: RFC 3168 section 5 forbids marking it.
    #[inline]
    pub fn mark(&mut self, packet: &mut Packet) {
        assert!(
            packet.ecn.is_capable(),
            "only an ECN-capable packet is marked"
        );
        packet.ecn = Ecn::Ce;
        if self.is_listening {
            self.sink.on_event(self.now, &Event::Mark { packet });
        }
    }

    /// Reports that `packet` was enqueued.
    #[inline]
    pub fn enqueued(&mut self, packet: &Packet) {
        if self.is_listening {
            self.sink.on_event(self.now, &Event::Enqueue { packet });
        }
    }

    /// Reports that `packet` is leaving.
    #[inline]
    pub fn dequeued(&mut self, packet: &Packet) {
        if self.is_listening {
            self.sink.on_event(self.now, &Event::Dequeue { packet });
        }
    }

    /// Reports a new value of a variable. The value is computed only if there is a listener.
    #[inline]
    pub fn state(&mut self, name: &'static str, value: impl FnOnce() -> StateValue) {
        if self.is_listening {
            let event = Event::State {
                queue: self.queue,
                name,
                value: value(),
            };
            self.sink.on_event(self.now, &event);
        }
    }

    /// Returns whether there is a listener.
    pub const fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Returns whether there is a listener that needs each change of a variable; see
    /// [`Sink::wants_state`].
    pub fn wants_state(&self) -> bool {
        self.is_listening && self.sink.wants_state()
    }
}

/// A sink that only counts, for tests, benchmarks and hosts without a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounter {
    counts: [u64; DropReason::ALL.len()],
}

impl DropCounter {
    /// Returns the number of packets dropped for `reason` (segments count).
    pub const fn count(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Returns the number of packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Sink for DropCounter {
    fn discard(&mut self, _now: Time, packet: Packet, reason: DropReason) {
        self.counts[reason as usize] += u64::from(packet.segments);
    }
}
