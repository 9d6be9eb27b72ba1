//! `pie`: proportional integral controller enhanced. Every update changes a drop probability in
//! proportion to the difference between the delay and `target`, and to the change of the delay;
//! arrivals are dropped with that probability.
//!
//! Source: RFC 8033. The variants are [`rfc`] and [`dummynet`], two arithmetics of the machine in
//! [`classic`], and [`linux`], each with its own list of deviations. Choices where the RFC gives no
//! rule:
//! 1. The first update is one `tupdate` after the start, at the origin of time.
//! 2. `MEAN_PKTSIZE` is 800 bytes, as in dummynet (RFC 8034: 1024).
//! 3. A super-packet is one arrival: one decision for all its segments.
//! 4. Where its sections and appendices A and B differ, the sections and A apply, and B for what A
//!    omits; `docs/algorithms/pie.md` lists the places.
//!
//! `preset docsis` is the machine of RFC 8034, [`docsis`], with its constants: target 10 ms,
//! updates every 16 ms, gains 0.25 and 2.5, a burst of 142 ms, probability scaled by packet size
//! over 1024 bytes.
//!
//! Units: nanoseconds; probabilities in 2^-56 (`linux` too; `dummynet`: 2^-31 and microseconds).

pub mod classic;
pub mod docsis;
pub mod dummynet;
pub mod linux;
pub mod rfc;

use alloc::string::ToString;
use alloc::sync::Arc;

use self::classic::Classic;
use self::docsis::Docsis;
use self::dummynet::Fixed31;
use self::linux::Linux;
use self::rfc::Fixed56;
use super::rest::Repetitions;
use super::{Aqm, AqmAlgorithm, Overflow, QueueView, Verdict};
use crate::event::{Cx, StateValue};
use crate::packet::Packet;
use crate::param::{Contradiction, Ratio, Value, Values, Variant};
use crate::units::{Bytes, Rate, Span, Time};
use crate::{choice, params};

choice! {
    /// A set of constants and extensions.
    pub enum Preset {
        /// RFC 8033.
        Rfc8033 = "rfc8033",
        /// RFC 8034, DOCSIS-PIE.
        Docsis = "docsis",
    }
}

params! {
    /// Parameters of PIE.
    pub struct PieParams {
        /// target delay of the controller
        target: Span = Span(Span::from_ms(15)), Span(Span::from_us(1)) => Span(Span::from_secs(10)), "RFC 8033 section 4.2: QDELAY_REF 15 ms";
        /// time between two updates of the probability
        tupdate: Span = Span(Span::from_ms(15)), Span(Span::from_us(100)) => Span(Span::from_secs(10)), "RFC 8033 section 4.2: T_UPDATE 15 ms";
        /// gain of the distance from the target, per second
        alpha: Ratio = Ratio(Ratio::from_billionths(125_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(7_000_000_000)), "RFC 8033 section 4.2: 1/8 Hz";
        /// gain of the change of the delay, per second
        beta: Ratio = Ratio(Ratio::from_billionths(1_250_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(7_000_000_000)), "RFC 8033 section 4.2: 1 + 1/4 Hz";
        /// time for which a burst passes before anything is dropped
        max_burst: Span = Span(Span::from_ms(150)), Span(Span::ZERO) => Span(Span::from_secs(10)), "RFC 8033 section 4.4: MAX_BURST 150 ms";
        /// probability above which ECN-capable packets are dropped too
        max_ecnth: Ratio = Ratio(Ratio::from_billionths(100_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "RFC 8033 section 5.1: 10 %";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(false), "RFC 8033 section 5.1: optional";
        /// raise the probability by at most 2 % per update from 10 % on
        capdrop: bool = Flag(true), "RFC 8033 section 5.5";
        /// become active at a third of the limit, and inactive when the queue is empty
        onoff: bool = Flag(false), "RFC 8033 section 5.3: optional";
        /// space the drops by the accumulated probability
        derand: bool = Flag(true), "RFC 8033 section 5.4";
        /// estimate the delay from the rate of departures (default of `dummynet`, not of `fq_pie`)
        dre: bool = Flag(false), "RFC 8033 section 5.2: optional";
        /// measure the delay by time stamps (default otherwise)
        ts: bool = Flag(false), "RFC 8033 section 4.3";
        /// scale the probability by the size of the packet
        bytemode: bool = Flag(false), "RFC 8034 appendix A; Linux `bytemode`";
        /// never drop while at most twice this many bytes are queued (`linux`: less than twice `mtu`)
        mean_packet: Bytes = Bytes(Bytes::new(800)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(65536)), "dummynet: MEAN_PKTSIZE 800 bytes";
        /// bytes of a full packet (`linux` alone)
        mtu: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(65536)), "an Ethernet frame";
        /// `docsis`: compute the delay from this sustained rate instead of time stamps
        msr: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(64)) => Rate(Rate::UNLIMITED), "none: RFC 8034 section A.1.1, set by the operator";
        /// `docsis`: rate at which bytes covered by tokens of `msr` leave
        peak_rate: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(64)) => Rate(Rate::UNLIMITED), "none: RFC 8034 section A.1.1, set by the operator";
        /// `docsis`: largest number of bytes for which tokens of `msr` are saved
        msr_burst: Bytes = Bytes(Bytes::ZERO), Bytes(Bytes::ZERO) => Bytes(Bytes::new(1 << 48)), "none, as a pipe's `burst`: RFC 8034 section 3";
        /// the set of constants and extensions
        preset: Preset = Choice("rfc8033"), "RFC 8033";
        /// the implementation whose rules apply where they differ
        variant: Variant = Choice("rfc"), "the published text";
    } check PieParams::contradiction; presets PieParams::docsis
}

impl PieParams {
    fn contradiction(&self) -> Result<(), Contradiction> {
        let is = |variant| self.variant == variant;
        let sentence = if self.dre && self.ts {
            "`dre` and `ts` exclude one another"
        } else if self.preset == Preset::Docsis && !is(Variant::Rfc) {
            "`preset docsis` needs `variant rfc`"
        } else if self.preset == Preset::Docsis && self.dre {
            "`preset docsis` has no `dre`: give `msr` to compute the delay from that rate"
        } else if !self.msr.is_unlimited() && (self.preset != Preset::Docsis || self.ts) {
            "`msr` needs `preset docsis`, without `ts`"
        } else if self.msr.is_unlimited()
            && !(self.peak_rate.is_unlimited() && self.msr_burst == Bytes::ZERO)
        {
            "`peak_rate` and `msr_burst` need `msr`"
        } else if self.peak_rate < self.msr {
            "`peak_rate` must not be below `msr`"
        } else if self.variant.is_linux() && (self.onoff || !self.capdrop || !self.derand) {
            "`variant linux` has no `onoff`, `nocapdrop` or `noderand`"
        } else if is(Variant::Dummynet) && self.bytemode {
            "`variant dummynet` has no `bytemode`"
        } else {
            return Ok(());
        };
        Err(sentence.to_string())
    }

    /// RFC 8034 appendix A.
    fn docsis(set: &Values) -> Values {
        let mut values = Values::new();
        if set.find("preset") == Some(Value::Choice(Preset::Docsis.word())) {
            let ratio = |billionths| Value::Ratio(Ratio::from_billionths(billionths));
            values.set("target", Value::Span(Span::from_ms(10)));
            values.set("tupdate", Value::Span(Span::from_ms(16)));
            values.set("alpha", ratio(250_000_000));
            values.set("beta", ratio(2_500_000_000));
            values.set("max_burst", Value::Span(Span::from_ms(142)));
            values.set("mean_packet", Value::Bytes(Bytes::new(1024)));
            values.set("bytemode", Value::Flag(true));
            values.set("onoff", Value::Flag(true));
        }
        values
    }
}

/// PIE's state for one queue.
#[derive(Clone, Debug)]
pub struct Pie {
    params: Arc<PieParams>,
    /// Whether the delay is estimated from departures.
    is_estimating: bool,
    machine: Machine,
    repetitions: Repetitions,
}

#[derive(Clone, Debug)]
enum Machine {
    Rfc(Classic<Fixed56>),
    Linux(Linux),
    Dummynet(Classic<Fixed31>),
    Docsis(Docsis),
}

/// Evaluates the same expression for any of the machines.
macro_rules! each {
    ($machine:expr, $m:ident => $what:expr) => {
        match $machine {
            Machine::Rfc($m) => $what,
            Machine::Linux($m) => $what,
            Machine::Dummynet($m) => $what,
            Machine::Docsis($m) => $what,
        }
    };
}

impl Machine {
    fn rfc(params: &PieParams, is_flow: bool) -> Self {
        match params.preset {
            Preset::Rfc8033 => Machine::Rfc(Classic::new(params)),
            Preset::Docsis => Machine::Docsis(Docsis::new(params, is_flow)),
        }
    }

    fn show(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        for (name, value) in each!(self, m => m.variables()) {
            visit(name, value);
        }
        if let Machine::Docsis(docsis) = self {
            for (name, value) in docsis.further_variables() {
                visit(name, value);
            }
        }
    }
}

impl AqmAlgorithm for Pie {
    type Params = PieParams;
    const DOC: &'static str = "drops with a probability that a delay controller sets";
    // Linux `sch_fq_pie` compares the length with the limit before anything else.
    const FLOW_OVERFLOW_IN_LINUX: Overflow = Overflow::Tail;

    fn new(params: &PieParams) -> Self {
        Pie {
            params: Arc::new(params.clone()),
            is_estimating: params.dre || (params.variant == Variant::Dummynet && !params.ts),
            machine: match params.variant {
                Variant::Rfc => Machine::rfc(params, false),
                Variant::Linux | Variant::Linux2025 => Machine::Linux(Linux::new(params)),
                Variant::Dummynet => Machine::Dummynet(Classic::new(params)),
            },
            repetitions: Repetitions::default(),
        }
    }

    fn for_flow(params: &Arc<PieParams>) -> Self {
        Pie {
            params: Arc::clone(params),
            is_estimating: params.dre,
            machine: match params.variant {
                Variant::Rfc => Machine::rfc(params, true),
                Variant::Linux | Variant::Linux2025 => Machine::Linux(Linux::new(params)),
                Variant::Dummynet => Machine::Dummynet(Classic::asleep()),
            },
            repetitions: Repetitions::default(),
        }
    }
}

impl Aqm for Pie {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.follow(queue, cx, |due, now| due < now);
        each!(&mut self.machine, m => m.on_enqueue(&self.params, packet, queue, cx))
    }

    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let mut before = *queue;
        before.packets += u64::from(packet.segments);
        before.bytes += u64::from(packet.len);
        self.follow(&before, cx, |due, now| due <= now);
        let is_estimating = self.is_estimating;
        each!(&mut self.machine, m => m.on_dequeue(is_estimating, packet, queue, cx));
        Verdict::Pass
    }

    fn on_refused(&mut self, _packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        self.follow(queue, cx, |due, now| due < now);
        each!(&mut self.machine, m => m.on_refused(&self.params, queue, cx));
    }

    fn on_overflow(&mut self, _packets: u32, cx: &mut Cx<'_>) {
        // An arrival at another queue caused the drops, and arrivals are processed before timers.
        self.end_rest(cx.now, |due, now| due < now);
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.on_overflow();
        }
    }

    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.activate(&self.params, cx.now);
        }
    }

    fn on_deactivate(&mut self, _cx: &mut Cx<'_>) {
        if let Machine::Dummynet(machine) = &mut self.machine {
            machine.deactivate();
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let due = each!(&self.machine, m => m.next_update());
        due.filter(|_| !self.repetitions.is_at_rest())
    }

    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        self.catch_up(queue, cx, |due, now| due <= now);
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        self.machine.show(visit);
    }
}

impl Pie {
    /// Brings the machine up to date with an event that changes the queue.
    fn follow(&mut self, queue: &QueueView, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        self.end_rest(cx.now, is_due);
        self.catch_up(queue, cx, is_due);
        self.repetitions.end();
    }

    /// Skips the updates that were due while nothing changed.
    fn end_rest(&mut self, now: Time, is_due: fn(Time, Time) -> bool) {
        if self.repetitions.is_at_rest() {
            each!(&mut self.machine, m => m.pass_over(&self.params, now, is_due));
        }
        self.repetitions.end();
    }

    /// Makes the updates that are due, each at its own instant. Nothing else changes the queue
    /// between two calls, so a late update computes what it would have computed in time.
    fn catch_up(&mut self, queue: &QueueView, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        let (now, params, is_estimating) = (cx.now, &*self.params, self.is_estimating);
        let next = |machine: &Machine| {
            let due = each!(machine, m => m.next_update());
            due.filter(|due| is_due(*due, now))
        };
        while let Some(due) = next(&self.machine) {
            let is_changed = each!(&mut self.machine, m => m.update(params, is_estimating, queue));
            if cx.is_listening() {
                cx.now = due;
                self.machine
                    .show(&mut |name, value| cx.state(name, || value));
                cx.now = now;
            }
            self.repetitions.note(is_changed);
            if !is_changed {
                // The other updates that are due would not change anything either.
                each!(&mut self.machine, m => m.pass_over(params, now, is_due));
            }
        }
    }
}

/// Returns the variables that PIE reports.
fn variables(probability: f64, delay: Span, burst: Span) -> [(&'static str, StateValue); 3] {
    [
        ("probability", StateValue::Ratio(probability)),
        ("delay", StateValue::Span(delay)),
        ("burst_allowance", StateValue::Span(burst)),
    ]
}
