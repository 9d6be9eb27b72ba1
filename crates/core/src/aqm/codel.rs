//! `codel`: controlled delay. Signals when every packet of the last `interval` waited longer than
//! `target`. Further signals follow at distances that shrink with the square root of their number,
//! until the delay is below `target` again.
//!
//! Source: RFC 8289. Each variant is a state machine of its own, [`rfc`], [`linux`] and
//! [`dummynet`], with its own list of deviations.
//!
//! Choices where the RFC gives no rule:
//! 1. An ECN mark advances `count` and `drop_next` as a drop does, and ends the dequeue; the
//!    pseudo-code has no ECN.
//! 2. The control law is `t + floor(interval / sqrt(count))` in nanoseconds.
//! 3. `ce_threshold` works as in Linux: an ECN-capable packet that waited longer is marked in every
//!    state, also without `ecn`.
//! 4. In `fq_codel` the byte floor is compared with the bytes of the packet's own queue, as
//!    `bytes()` in section 5.1 is; section 4.4 prefers the bytes of the whole link, and `linux`
//!    uses them.
//!
//! Units: nanoseconds (`linux`: ticks of 1024 ns; `dummynet`: microseconds); `mtu` is the byte
//! floor `maxpacket` of the pseudo-code.

pub mod dummynet;
pub mod linux;
pub mod rfc;

use alloc::string::String;
use alloc::sync::Arc;

use self::dummynet::Dummynet;
use self::linux::Linux;
use self::rfc::Rfc;
use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::{Variant, Warnings};
use crate::params;
use crate::units::{Bytes, Span, Time};

params! {
    /// Parameters of CoDel.
    pub struct CodelParams {
        /// sojourn time that a standing queue may have
        target: Span = Span(Span::from_ms(5)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "RFC 8289 section 4.3: 5 ms";
        /// time for which the sojourn time must exceed the target: a worst-case RTT
        interval: Span = Span(Span::from_ms(100)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "RFC 8289 section 4.2: 100 ms";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(false), "the pseudo-code of RFC 8289 drops";
        /// never signal when at most this many bytes remain queued
        mtu: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::new(0)) => Bytes(Bytes::new(65536)), "RFC 8289 section 5.3: maxpacket, an Ethernet frame";
        /// mark every ECN-capable packet that waited longer than this
        ce_threshold: Span = Span(Span::MAX), Span(Span::ZERO) => Span(Span::MAX), "Linux codel and fq_codel: off";
        /// the implementation whose rules apply where they differ
        variant: Variant = Choice("rfc"), "the published text";
    } ; warnings CodelParams::doubts
}

impl CodelParams {
    fn doubts(&self) -> Warnings {
        target_above_interval(self.target, self.interval)
            .into_iter()
            .collect()
    }
}

/// RFC 8289 section 4.5 recommends a target of 5 to 10 % of the interval; no implementation
/// enforces it.
pub(super) fn target_above_interval(target: Span, interval: Span) -> Option<String> {
    let sentence = "RFC 8289 section 4.5 recommends 5 to 10 % of it";
    (target >= interval)
        .then(|| alloc::format!("`target {target}` is not below `interval {interval}`: {sentence}"))
}

/// CoDel's state for one queue.
#[derive(Clone, Debug)]
pub struct Codel {
    params: Arc<CodelParams>,
    machine: Machine,
}

#[derive(Clone, Debug)]
enum Machine {
    Rfc(Rfc),
    Linux(Linux),
    Dummynet(Dummynet),
}

/// The position of a dequeue after its decision about the previous packet. Each call decides about
/// one packet, so the loops of all variants are unrolled into one call per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pending {
    /// A new dequeue.
    #[default]
    Nothing,
    /// The packet that entered the dropping state was dropped: the next one passes.
    Entered,
    /// A packet was dropped in the dropping state: the next one decides how to continue.
    Dropped,
}

impl AqmAlgorithm for Codel {
    type Params = CodelParams;
    const DOC: &'static str =
        "controlled delay: signals when the delay exceeds a target for an interval";

    fn new(params: &CodelParams) -> Self {
        let mut codel = Self::for_flow(&Arc::new(params.clone()));
        if let Machine::Linux(machine) = &mut codel.machine {
            *machine = Linux::alone();
        }
        codel
    }

    fn for_flow(params: &Arc<CodelParams>) -> Self {
        Codel {
            params: Arc::clone(params),
            machine: match params.variant {
                Variant::Rfc => Machine::Rfc(Rfc::default()),
                Variant::Linux | Variant::Linux2025 => Machine::Linux(Linux::in_flow_queue()),
                Variant::Dummynet => Machine::Dummynet(Dummynet::default()),
            },
        }
    }
}

impl Aqm for Codel {
    #[inline]
    fn on_enqueue(&mut self, packet: &Packet, _queue: &QueueView, _cx: &mut Cx<'_>) -> Verdict {
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.on_arrival(packet);
        }
        Verdict::Pass
    }

    #[inline]
    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let params = &*self.params;
        let verdict = match &mut self.machine {
            Machine::Rfc(machine) => machine.on_dequeue(params, packet, queue, cx),
            Machine::Linux(machine) => machine.on_dequeue(params, packet, queue, cx),
            Machine::Dummynet(machine) => machine.on_dequeue(params, packet, queue, cx),
        };
        if verdict == Verdict::Pass && self.exceeds_ce_threshold(packet, cx.now) {
            return Verdict::Mark;
        }
        verdict
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        match &mut self.machine {
            Machine::Rfc(machine) => machine.on_empty(cx),
            Machine::Linux(machine) => machine.on_empty(&self.params, cx),
            Machine::Dummynet(machine) => machine.on_empty(cx),
        }
    }

    fn on_refused(&mut self, packet: &Packet, _queue: &QueueView, _cx: &mut Cx<'_>) {
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.on_arrival(packet);
        }
    }

    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        if let Machine::Linux(machine) = &mut self.machine {
            machine.on_overflow(packets, cx);
        }
    }

    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.on_activate(cx);
        }
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        let state = match &self.machine {
            Machine::Rfc(machine) => machine.state(),
            Machine::Linux(machine) => machine.state(),
            Machine::Dummynet(machine) => machine.state(),
        };
        for (name, value) in state.variables() {
            visit(name, value);
        }
    }
}

impl Codel {
    /// Linux: applied after the dequeue proper, to the packet that is returned.
    #[inline]
    fn exceeds_ce_threshold(&self, packet: &Packet, now: Time) -> bool {
        let threshold = self.params.ce_threshold;
        match self.machine {
            Machine::Linux(_) => {
                linux::exceeds_ce_threshold(threshold, packet, now) && packet.ecn.is_capable()
            }
            Machine::Rfc(_) | Machine::Dummynet(_) => {
                threshold != Span::MAX && packet.ecn.is_capable() && packet.sojourn(now) > threshold
            }
        }
    }
}

impl CodelParams {
    /// Returns the signal for `packet`.
    fn signal(&self, packet: &Packet) -> Verdict {
        if self.ecn && packet.ecn.is_capable() {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }
}

/// The variables that all variants report.
struct State {
    count: u32,
    dropping: bool,
    drop_next: Time,
    first_above: Time,
}

impl State {
    const fn variables(&self) -> [(&'static str, StateValue); 4] {
        [
            ("count", StateValue::Count(self.count as u64)),
            ("dropping", StateValue::Flag(self.dropping)),
            ("drop_next", StateValue::Time(self.drop_next)),
            ("first_above", StateValue::Time(self.first_above)),
        ]
    }

    /// Reports the state after every signal and when the dropping state ends; `first_above` changes
    /// far too often.
    fn report(&self, cx: &mut Cx<'_>) {
        if !cx.is_listening() {
            return;
        }
        for (name, value) in self.variables().into_iter().take(3) {
            cx.state(name, || value);
        }
    }
}
