//! What happens to packets, declared once, and the context that every call carries.
//!
//! A packet leaves a queue in exactly two ways: returned by `dequeue`, or handed to the
//! [`Sink`] with a [`DropReason`]. Everything else that a listener may want (enqueue, dequeue,
//! mark, a changed variable of an algorithm) is an [`Event`]; when nobody listens an event costs
//! one predictable branch.

use crate::packet::{Ecn, Packet};
use crate::rng::Rng;
use crate::units::{Span, Time};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),+];

            /// The word used in recordings, tables and the command line.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// One sentence for people.
            pub const fn doc(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

drop_reasons! {
    /// The queue was full and the arriving packet was refused.
    Overflow = "overflow",
    /// The queue was full and a packet already in it was thrown out.
    Evicted = "evicted",
    /// The AQM signalled congestion to a flow that cannot be marked.
    Congestion = "congestion",
    /// The AQM saw a flow that does not respond, or a queue beyond what marks can control.
    Overload = "overload",
    /// The loss model of the link took it.
    Loss = "loss",
    /// A redundant acknowledgement was removed (ACK filter).
    AckFilter = "ack_filter",
    /// No queue, pipe or port takes such a packet.
    NoRoute = "no_route",
    /// A rule denies it.
    Denied = "denied",
    /// Its queue or pipe was deleted or shrunk.
    Reconfigured = "reconfigured",
    /// A port had no room for it; never the queue's doing.
    Port = "port",
    /// It was not a packet: truncated, or with lying lengths.
    Malformed = "malformed",
}

/// A variable of an algorithm at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateValue {
    /// A number of things.
    Count(u64),
    /// An instant.
    Time(Time),
    /// A length of time.
    Span(Span),
    /// A probability or another ratio.
    Ratio(f64),
    /// On or off.
    Flag(bool),
}

impl StateValue {
    /// The value as a number: times and spans in nanoseconds, flags as 0 or 1.
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

/// Packets and bytes held at an instant; a super-packet counts its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Wire packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Backlog {
    /// Counts `packet` in.
    pub const fn add(&mut self, packet: &Packet) {
        self.packets += packet.segments as u64;
        self.bytes += packet.len as u64;
    }

    /// Counts `packet` out.
    pub const fn remove(&mut self, packet: &Packet) {
        self.packets -= packet.segments as u64;
        self.bytes -= packet.len as u64;
    }

    /// Whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0 && self.packets == 0
    }
}

/// What a listener is told.
#[derive(Debug)]
pub enum Event<'a> {
    /// A packet was taken in.
    Enqueue {
        /// The packet.
        packet: &'a Packet,
    },
    /// A packet is about to be returned by `dequeue`.
    Dequeue {
        /// The packet.
        packet: &'a Packet,
    },
    /// A packet's CE codepoint was set by an AQM.
    Mark {
        /// The packet, already marked.
        packet: &'a Packet,
    },
    /// A variable of an algorithm took a new value.
    State {
        /// Which queue of the discipline: flow bucket or class, 0 for a single one.
        queue: u32,
        /// The variable's name, as the algorithm declares it.
        name: &'static str,
        /// Its value.
        value: StateValue,
    },
}

/// The host's end of a queue: takes dropped packets, and hears events if it wants them.
pub trait Sink {
    /// Takes a dropped packet; its slot is free from here on.
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason);

    /// Copies the bytes of `packet` into another slot, for a link that duplicates packets; `None`
    /// where the host cannot copy.
    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let _ = (now, packet);
        None
    }

    /// Flips a bit of the bytes of `packet`, counted from the first byte's highest one, for a link
    /// that damages packets. A host without bytes has nothing to do.
    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        let _ = (now, packet, bit);
    }

    /// Whether the bytes of `packet` are a TCP acknowledgement that may be lost when a later one
    /// says as much: without payload, without another flag than ACK, ECE and CWR, without another
    /// option than SACK and timestamps. A host that does not look into headers says no, and no ACK
    /// filter removes anything; one that does can compare by [`Ack`](crate::ack::Ack).
    fn is_pure_ack(&self, packet: &Packet) -> bool {
        let _ = packet;
        false
    }

    /// Whether `newer`, a TCP segment of any kind, tells its receiver more than the pure
    /// acknowledgement `older` and all that it tells: addresses and ports, ECE and CWR are equal, the
    /// acknowledged number and the timestamps are not lower, and SACK blocks cover the older ones.
    /// An equal acknowledgement (a duplicate) tells nothing more. Of one flow that is
    /// [`Ack::supersedes`](crate::ack::Ack::supersedes).
    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        let _ = (newer, older);
        false
    }

    /// Whether [`Sink::on_event`] does anything. Asked once per call of a discipline.
    fn is_listening(&self) -> bool {
        false
    }

    /// Hears an event.
    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        let _ = (now, event);
    }
}

/// What every call of an algorithm is handed: the time, the randomness, the listener.
pub struct Cx<'a> {
    /// The instant of the call.
    pub now: Time,
    /// Seeded randomness.
    pub rng: &'a mut Rng,
    /// Which queue of the discipline is being served: set by disciplines before they ask an AQM.
    pub queue: u32,
    sink: &'a mut dyn Sink,
    is_listening: bool,
}

impl<'a> Cx<'a> {
    /// A context at `now`.
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

    /// Lends the randomness and the listener, to somebody who listens in between and makes a context
    /// of its own for that.
    pub fn parts(&mut self) -> (&mut Rng, &mut dyn Sink) {
        (self.rng, self.sink)
    }

    /// Hands a packet to the host as dropped.
    #[inline]
    pub fn discard(&mut self, packet: Packet, reason: DropReason) {
        self.sink.discard(self.now, packet, reason);
    }

    /// A copy of `packet` whose bytes the host has put into another slot, if it can.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let slot = self.sink.copy(self.now, packet)?;
        Some(Packet { slot, ..*packet })
    }

    /// Has the host flip a bit of the packet's bytes.
    pub fn corrupt(&mut self, packet: &Packet, bit: u64) {
        self.sink.corrupt(self.now, packet, bit);
    }

    /// Whether the host sees a pure acknowledgement in `packet`: see [`Sink::is_pure_ack`].
    pub fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.sink.is_pure_ack(packet)
    }

    /// Whether the host finds `older` redundant after `newer`: see [`Sink::supersedes`].
    pub fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.sink.supersedes(newer, older)
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

    /// Tells that `packet` was taken in.
    #[inline]
    pub fn enqueued(&mut self, packet: &Packet) {
        if self.is_listening {
            self.sink.on_event(self.now, &Event::Enqueue { packet });
        }
    }

    /// Tells that `packet` is leaving.
    #[inline]
    pub fn dequeued(&mut self, packet: &Packet) {
        if self.is_listening {
            self.sink.on_event(self.now, &Event::Dequeue { packet });
        }
    }

    /// Tells a new value of a variable. The value is computed only if somebody listens.
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

    /// Whether anybody hears events.
    pub const fn is_listening(&self) -> bool {
        self.is_listening
    }
}

/// A sink that only counts, for tests, benchmarks and hosts without a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounter {
    counts: [u64; DropReason::ALL.len()],
}

impl DropCounter {
    /// Packets dropped for `reason` (segments counted).
    pub const fn count(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Sink for DropCounter {
    fn discard(&mut self, _now: Time, packet: Packet, reason: DropReason) {
        self.counts[reason as usize] += u64::from(packet.segments);
    }
}
