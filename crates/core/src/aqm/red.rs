//! `red`: random early detection. Drops with a probability that grows with the average queue,
//! before the queue is full. The drops are spaced evenly.
//!
//! Sources: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993),
//! figure 2; `gentle`: Floyd, "Recommendation on using the gentle_ variant of RED" (2000);
//! `adaptive`: Floyd, Gummadi and Shenker, "Adaptive RED" (2001), figure 1; ECN: RFC 3168 section
//! 7. Where they are silent:
//! 1. The idle time counts whole transmissions of a mean packet at `bandwidth`. Of the time until a
//!    packet that is dropped, the rest counts for the next one.
//! 2. A packet that a full queue refuses is part of the average and restarts the spacing.
//! 3. `adaptive` changes `max_p` at multiples of its interval; it neither turns on `gentle` nor
//!    sets `wq` and the thresholds from a delay.
//!
//! `variant linux` is the arithmetic of Linux, with its own list of deviations. That of dummynet is
//! `gred`.
//!
//! Units: thresholds and the average are packets; in byte mode mean packets of `mean_packet` bytes.
//! The average has 32 fractional bits, probabilities 56.

mod linux;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;

use self::linux::{Action, Linux};
use super::probability::{self, ONE};
use super::rest::{Repetitions, first_after};
use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::{Contradiction, Ratio};
use crate::units::{Bytes, Rate, Span, Time};
use crate::{choice, params};

choice! {
    /// The specification that RED follows.
    pub enum RedVariant {
        /// The paper.
        Rfc = "rfc",
        /// The Linux kernel.
        Linux = "linux",
    }
}

params! {
    /// Parameters of RED.
    pub struct RedParams {
        /// average queue above which packets are dropped, in packets
        min: u64 = Count(5), Count(1) => Count(1_000_000_000), "Floyd and Jacobson 1993, section VI: 5";
        /// average queue above which every packet is dropped, in packets
        max: u64 = Count(15), Count(1) => Count(1_000_000_000), "Floyd and Jacobson 1993, section VI: 15";
        /// probability of a drop just below `max`
        max_p: Ratio = Ratio(Ratio::from_billionths(20_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "Floyd and Jacobson 1993, section VI: 1/50";
        /// weight of the current queue in the average
        wq: Ratio = Ratio(Ratio::from_billionths(2_000_000)), Ratio(Ratio::from_billionths(1)) => Ratio(Ratio::ONE), "Floyd and Jacobson 1993, section VI: 0.002";
        /// from `max` to twice `max`, raise the probability to 1
        gentle: bool = Flag(false), "Floyd and Jacobson 1993; Floyd 2000 recommends it";
        /// adapt `max_p` so that the average stays half-way between the thresholds
        adaptive: bool = Flag(false), "Floyd, Gummadi and Shenker 2001";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(false), "Floyd and Jacobson 1993 leave it to the gateway";
        /// drop ECN-capable packets too above the upper threshold
        harddrop: bool = Flag(true), "RFC 3168 section 7";
        /// average bytes instead of packets, and scale the probability by the packet's size
        bytes: bool = Flag(false), "Floyd and Jacobson 1993, section IV: packet mode";
        /// mean packet size in bytes
        mean_packet: Bytes = Bytes(Bytes::new(1000)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(65536)), "Linux red: avpkt 1000";
        /// largest packet size in bytes, which has the full probability in byte mode
        mtu: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(65536)), "an Ethernet frame";
        /// rate of the link; determines how fast the average falls while it is idle
        bandwidth: Rate = Rate(Rate::from_bps(10_000_000)), Rate(Rate::from_bps(1)) => Rate(Rate::UNLIMITED), "Linux red: bandwidth 10Mbit";
        /// the implementation whose rules apply where they differ
        variant: RedVariant = Choice("rfc"), "the published text";
    } check RedParams::contradiction
}

impl RedParams {
    fn contradiction(&self) -> Result<(), Contradiction> {
        if self.min >= self.max {
            let (min, max) = (self.min, self.max);
            return Err(alloc::format!("`min {min}` must be below `max {max}`"));
        }
        if self.adaptive && self.max_p == Ratio::from_billionths(0) {
            return Err("`adaptive` needs a `max_p` above 0 to begin with".to_string());
        }
        if self.variant == RedVariant::Linux && self.gentle {
            return Err("`variant linux` has no `gentle`".to_string());
        }
        Ok(())
    }
}

/// RED's state for one queue.
#[derive(Clone, Debug)]
pub struct Red {
    params: Arc<RedParams>,
    /// The average queue in units of 2^-32 packets.
    average: u64,
    /// The instant at which the queue became empty.
    idle_since: Option<Time>,
    /// Packets since the last drop; `None` below `min`.
    count: Option<u64>,
    /// The value in force; `adaptive` changes it.
    max_p: u64,
    /// The instant at which `adaptive` changes it next.
    next_adaptation: Option<Time>,
    repetitions: Repetitions,
    /// The kernel's state, which replaces the average, the idle time and the count.
    linux: Option<Box<Linux>>,
}

/// The decision about a packet that follows from the average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Below,
    /// Drop with this probability, evenly spaced.
    Between(u64),
    Above,
}

impl AqmAlgorithm for Red {
    type Params = RedParams;
    const DOC: &'static str = "random early detection: drops more as the average queue grows";

    fn new(params: &RedParams) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<RedParams>) -> Self {
        Red {
            params: Arc::clone(params),
            average: 0,
            idle_since: Some(Time::ZERO),
            count: None,
            max_p: params.max_p.as_fixed(probability::BITS),
            next_adaptation: params.adaptive.then_some(Time::ZERO + ADAPTATION),
            repetitions: Repetitions::default(),
            linux: (params.variant == RedVariant::Linux).then(|| Box::new(Linux::new(params))),
        }
    }
}

impl Aqm for Red {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.catch_up(cx);
        if let Some(linux) = &mut self.linux {
            let action = linux.on_arrival(queue.bytes, cx);
            self.average = Self::in_mean_packets(&self.params, linux.average());
            let shown = self.shown_average();
            cx.state("average", || shown);
            return self.verdict(packet, action != Action::Pass, action == Action::Forced);
        }
        self.measure(queue, cx);
        let (drops, is_hard) = match self.zone(packet) {
            Zone::Below => {
                self.count = None;
                (false, false)
            }
            Zone::Between(probability) => (self.drops_by(probability, cx), false),
            Zone::Above => {
                self.count = Some(0);
                (true, true)
            }
        };
        self.verdict(packet, drops, is_hard)
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        if let Some(linux) = &mut self.linux {
            linux.on_empty(cx.now);
        }
    }

    fn on_dequeue(&mut self, _packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        if queue.packets == 0 {
            self.idle_since = Some(cx.now);
        }
        Verdict::Pass
    }

    fn on_refused(&mut self, _packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        self.catch_up(cx);
        if let Some(linux) = &mut self.linux {
            // The kernel has measured and decided before its queue refuses the packet.
            linux.on_arrival(queue.bytes, cx);
            return;
        }
        self.measure(queue, cx);
        self.count = Some(0);
    }

    fn on_rate(&mut self, rate: Rate) {
        Arc::make_mut(&mut self.params).bandwidth = rate;
        if let Some(linux) = &mut self.linux {
            linux.set_rate(&self.params);
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.next_adaptation
            .filter(|_| !self.repetitions.is_at_rest())
    }

    fn on_timer(&mut self, _queue: &QueueView, cx: &mut Cx<'_>) {
        self.adapt(cx, |due, now| due <= now);
    }

    fn memory(&self) -> usize {
        self.linux.as_ref().map_or(0, |_| size_of::<Linux>())
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        visit("average", self.shown_average());
        visit("max_p", StateValue::Ratio(self.max_p as f64 / ONE as f64));
    }
}

impl Red {
    fn verdict(&self, packet: &Packet, drops: bool, is_hard: bool) -> Verdict {
        if !drops {
            Verdict::Pass
        } else if self.params.ecn && packet.ecn.is_capable() && !(is_hard && self.params.harddrop) {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }

    /// Converts bytes with 32 fractional bits.
    fn in_mean_packets(params: &RedParams, bytes: u128) -> u64 {
        u64::try_from(bytes / u128::from(params.mean_packet.as_u64())).unwrap_or(u64::MAX)
    }

    /// Makes the adaptations that were due before an arrival changes the average.
    fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let is_due = |due: Time, now: Time| due < now;
        if self.repetitions.is_at_rest() {
            let next = self.next_adaptation;
            self.next_adaptation = next.map(|due| first_after(due, ADAPTATION, cx.now, is_due));
        }
        self.adapt(cx, is_due);
        self.repetitions.end();
    }

    /// Floyd and Jacobson 1993, figure 2: updates the average for this arrival.
    fn measure(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        let params = &*self.params;
        let weight = params.wq.as_fixed(32);
        if let Some(since) = self.idle_since.take_if(|_| queue.packets == 0) {
            // The average falls as if this number of small packets had arrived at an empty queue.
            let one = params.bandwidth.transmission(params.mean_packet.as_u64());
            let idle = cx.now.since(since).as_ns();
            let (missed, rest) = match one.as_ns() {
                0 => (u64::MAX, 0),
                one => (idle / one, idle % one),
            };
            let kept = power((1 << 32) - weight, missed);
            self.average = ((u128::from(self.average) * u128::from(kept)) >> 32) as u64;
            // The queue stays empty if this packet is dropped. Then the time that was not counted
            // belongs to the next arrival: otherwise, packets that follow each other more closely
            // than one transmission would hold the average above `max` forever.
            self.idle_since = Some(Time::from_ns(cx.now.as_ns() - rest));
        } else {
            let present = if params.bytes {
                let mean = u128::from(params.mean_packet.as_u64());
                ((u128::from(queue.bytes) << 32) / mean) as i128
            } else {
                i128::from(queue.packets) << 32
            };
            let average = i128::from(self.average);
            let next = average + (((present - average) * i128::from(weight)) >> 32);
            self.average = u64::try_from(next).unwrap_or(u64::MAX);
        }
        let shown = self.shown_average();
        cx.state("average", || shown);
    }

    fn zone(&self, packet: &Packet) -> Zone {
        let params = &*self.params;
        let (min, max) = (u128::from(params.min) << 32, u128::from(params.max) << 32);
        let (average, max_p) = (u128::from(self.average), u128::from(self.max_p));
        let probability = if average < min {
            return Zone::Below;
        } else if average < max {
            // p_b = max_p (avg - min) / (max - min)
            max_p * (average - min) / (max - min)
        } else if params.gentle && average < 2 * max {
            // Floyd 2000: from max_p at `max` to 1 at twice `max`.
            max_p + (u128::from(ONE) - max_p.min(u128::from(ONE))) * (average - max) / max
        } else {
            return Zone::Above;
        };
        let probability = if params.bytes {
            // Section IV: p_b times the size over the largest size.
            probability * u128::from(packet.segment_len()) / u128::from(params.mtu.as_u64())
        } else {
            probability
        };
        Zone::Between(probability.min(u128::from(ONE)) as u64)
    }

    /// Returns whether a packet is dropped with p_a = p_b / (1 - count p_b), which spaces the drops
    /// evenly.
    fn drops_by(&mut self, probability: u64, cx: &mut Cx<'_>) -> bool {
        let count = self.count.map_or(0, |count| count.saturating_add(1));
        let one = u128::from(ONE);
        let spent = (u128::from(count) * u128::from(probability)).min(one);
        // u < p_b / (1 - count p_b), without the division.
        let draw = u128::from(probability::draw(cx.rng));
        let drops = draw * (one - spent) < u128::from(probability) * one;
        self.count = Some(if drops { 0 } else { count });
        drops
    }

    /// Floyd, Gummadi and Shenker 2001, figure 1, at every instant that is due.
    fn adapt(&mut self, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        let now = cx.now;
        while let Some(due) = self.next_adaptation.filter(|due| is_due(*due, now)) {
            let before = self.max_p;
            let (min, max) = (u128::from(self.params.min), u128::from(self.params.max));
            // The target is 40 % to 60 % of the way from `min` to `max`.
            let tenths = |n: u128| ((10 * min + n * (max - min)) << 32) / 10;
            let average = u128::from(self.average);
            if average > tenths(6) && self.max_p <= ONE / 2 {
                self.max_p += (ONE / 100).min(self.max_p / 4);
            } else if average < tenths(4) && self.max_p >= ONE / 100 {
                self.max_p = self.max_p / 10 * 9;
            }
            let max_p = self.max_p as f64 / ONE as f64;
            cx.now = due;
            cx.state("max_p", || StateValue::Ratio(max_p));
            cx.now = now;
            let mut next = due + ADAPTATION;
            if let Some(linux) = &mut self.linux {
                linux.set_max_p(self.max_p >> (probability::BITS - 32));
            }
            self.repetitions.note(self.max_p != before);
            if self.max_p == before {
                // The other updates that are due would not change anything either.
                next = first_after(next, ADAPTATION, now, is_due);
            }
            self.next_adaptation = Some(next);
        }
    }

    fn shown_average(&self) -> StateValue {
        StateValue::Ratio(self.average as f64 / (1u64 << 32) as f64)
    }
}

/// Returns `base^exponent` for a base in units of 2^-32.
fn power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut left) = (1u64 << 32, base, exponent);
    while left > 0 && result > 0 {
        if left & 1 == 1 {
            result = (result * square) >> 32;
        }
        square = (square * square) >> 32;
        left >>= 1;
    }
    result
}

/// Floyd, Gummadi and Shenker 2001: interval 0.5 s.
const ADAPTATION: Span = Span::from_ms(500);
