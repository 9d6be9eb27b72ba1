//! `gred`: random early detection, gentle, in dummynet's arithmetic. Without `gentle` it is
//! dummynet's `red`.
//!
//! Sources: Floyd and Jacobson 1993 and Floyd 2000, as for [`red`](super::red); FreeBSD's dummynet
//! for the arithmetic. Deviations of dummynet from the papers:
//! 1. The average, weights and probabilities have 16 fractional bits.
//! 2. While the queue is empty, the average falls by a table of 256 steps of `(1 - wq)^step`; a
//!    step is 1/256 of the time in which it falls to a twentieth, at least one clock tick of 1 ms.
//! 3. One random number is drawn per drop: a packet is dropped when the probability times the
//!    packets since the last drop exceeds it.
//! 4. In the gentle zone the probability is `(1 - max_p) avg / max - (1 - 2 max_p)`.
//! 5. With `ecn` every packet above `min` is marked, or dropped if it is not ECN-capable: a step,
//!    for DCTCP.
//! 6. In byte mode the probability is scaled by the size over 1500.
//!
//! Two errors of dummynet are not reproduced:
//! 1. Its slope is truncated to 16 fractional bits per byte or packet (older versions), or not
//!    scaled back (newer ones); `gred` divides the product last.
//! 2. Its average overflows 32 bits in byte mode from 32 768 bytes on.
//!
//! Units: thresholds and the average are packets; with `bytes`, bytes. Clock ticks of 1 ms.

use alloc::string::ToString;
use alloc::sync::Arc;

use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::{Contradiction, Ratio};
use crate::params;
use crate::units::{Rate, Time};

params! {
    /// Parameters of GRED.
    pub struct GredParams {
        /// average queue above which packets are dropped, in packets or bytes
        min: u64 = Count(5), Count(0) => Count(1 << 30), "none in dummynet; Floyd and Jacobson 1993: 5";
        /// average queue above which drops are no longer gentle, in packets or bytes
        max: u64 = Count(15), Count(1) => Count(1 << 30), "none in dummynet; Floyd and Jacobson 1993: 15";
        /// probability of a drop just below `max`
        max_p: Ratio = Ratio(Ratio::from_billionths(100_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none in dummynet; Floyd 1997: 0.1";
        /// weight of the current queue in the average
        wq: Ratio = Ratio(Ratio::from_billionths(2_000_000)), Ratio(Ratio::from_billionths(15_259)) => Ratio(Ratio::ONE), "none in dummynet; Floyd and Jacobson 1993: 0.002; at least 2^-16";
        /// from `max` to twice `max`, raise the probability to 1; else drop all packets above `max`
        gentle: bool = Flag(true), "dummynet gred; its red is `nogentle`";
        /// mark every ECN-capable packet above `min`, and drop the others
        ecn: bool = Flag(false), "dummynet: off";
        /// measure thresholds and the average in bytes
        bytes: bool = Flag(false), "dummynet: the unit of the queue's size";
        /// rate of the link; determines how fast the average falls while it is idle
        bandwidth: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(1)) => Rate(Rate::UNLIMITED), "dummynet: that of the pipe; 0 is unlimited";
    } check GredParams::contradiction
}

impl GredParams {
    fn contradiction(&self) -> Result<(), Contradiction> {
        let (min, max) = (self.min, self.max);
        if self.ecn && min > max {
            Err(alloc::format!("`min {min}` must not be above `max {max}`"))
        } else if !self.ecn && min >= max {
            Err(alloc::format!(
                "`min {min}` must be below `max {max}` without `ecn`"
            ))
        } else if self.wq.as_fixed(16) == 0 {
            Err("`wq` must be at least 2^-16".to_string())
        } else {
            Ok(())
        }
    }
}

/// GRED's state for one queue.
#[derive(Clone, Debug)]
pub struct Gred {
    params: Arc<GredParams>,
    /// Built when the average first falls, which in most of many flow queues never happens.
    table: Option<Table>,
    /// The average queue in units of 2^-16.
    average: u64,
    /// The instant at which the queue became empty.
    idle_since: Time,
    /// Packets since the last drop; `None` below `min`.
    count: Option<u64>,
    /// 16 bits, drawn after each drop.
    random: u64,
}

/// The decay of the average while the queue is empty.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// Ticks in a step.
    step: u64,
    /// The fraction of the average that is left after the first step, and after each further one,
    /// in 2^-16.
    first: u64,
    further: u64,
}

impl AqmAlgorithm for Gred {
    type Params = GredParams;
    const DOC: &'static str = "random early detection, gentle above the threshold, as in dummynet";

    fn new(params: &GredParams) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<GredParams>) -> Self {
        Gred {
            params: Arc::clone(params),
            table: None,
            average: 0,
            idle_since: Time::ZERO,
            count: None,
            random: 0,
        }
    }
}

impl Aqm for Gred {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.measure(queue, cx);
        let params = &*self.params;
        let (min, max) = (params.min << BITS, params.max << BITS);
        if self.average < min {
            self.count = None;
            return Verdict::Pass;
        }
        let is_above = self.average > min || self.average >= max;
        if params.ecn && is_above {
            return if packet.ecn.is_capable() {
                Verdict::Mark
            } else {
                Verdict::Drop(DropReason::Congestion)
            };
        }
        let (one, max_p) = (ONE as i128, i128::from(params.max_p.as_fixed(BITS)));
        let (average, min, max) = (i128::from(self.average), i128::from(min), i128::from(max));
        let mut probability = if average < max {
            max_p * (average - min) / (max - min)
        } else if params.gentle {
            (one - max_p) * average / max - (one - 2 * max_p)
        } else {
            self.count = None;
            return Verdict::Drop(DropReason::Congestion);
        };
        if params.bytes {
            probability = probability * i128::from(packet.segment_len()) / MAX_PACKET;
        }
        match &mut self.count {
            None => {
                self.count = Some(0);
                self.random = draw(cx);
                Verdict::Pass
            }
            Some(count) => {
                *count += 1;
                if probability * i128::from(*count) <= i128::from(self.random) {
                    return Verdict::Pass;
                }
                *count = 0;
                self.random = draw(cx);
                Verdict::Drop(DropReason::Congestion)
            }
        }
    }

    fn on_dequeue(&mut self, _packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        if queue.packets == 0 {
            self.idle_since = cx.now;
        }
        Verdict::Pass
    }

    /// dummynet averages and draws before it checks the limit, so a packet that the limit refuses
    /// counts as an arrival.
    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        self.on_enqueue(packet, queue, cx);
    }

    fn on_rate(&mut self, rate: Rate) {
        Arc::make_mut(&mut self.params).bandwidth = rate;
        self.table = None;
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        visit("average", self.shown_average());
    }
}

impl Gred {
    fn measure(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        let present = if self.params.bytes {
            queue.bytes
        } else {
            queue.packets
        };
        if present > 0 {
            let weight = i128::from(self.params.wq.as_fixed(BITS));
            let average = i128::from(self.average);
            let next = average + ((((i128::from(present) << BITS) - average) * weight) >> BITS);
            self.average = u64::try_from(next).unwrap_or(u64::MAX);
        } else if self.average > 0 {
            let ticks = |t: Time| t.as_ns() / (1_000_000_000 / HZ);
            let idle = ticks(cx.now) - ticks(self.idle_since);
            let table = self.table.get_or_insert_with(|| Table::new(&self.params));
            let kept = u128::from(table.kept(idle));
            self.average = ((u128::from(self.average) * kept) >> BITS) as u64;
        }
        let shown = self.shown_average();
        cx.state("average", || shown);
    }

    fn shown_average(&self) -> StateValue {
        StateValue::Ratio(self.average as f64 / ONE as f64)
    }
}

impl Table {
    fn new(params: &GredParams) -> Self {
        let weight = params.wq.as_fixed(BITS);
        // Ticks that 512 bytes take, with 16 fractional bits.
        let ticks = match params.bandwidth {
            rate if rate.is_unlimited() => 0,
            rate => HZ * AVERAGE_PACKET * 8 * ONE / rate.as_bps(),
        };
        // (1 - w)^(3 / w) is a twentieth.
        let step = (ticks * 3 / weight / TABLE_STEPS).max(1);
        let first = ONE - weight;
        let mut further = first;
        for _ in 1..step {
            if further == 0 {
                break;
            }
            further = (further * first) >> BITS;
        }
        Table {
            step,
            first,
            further,
        }
    }

    /// Returns the rest of the average after `ticks`.
    fn kept(&self, ticks: u64) -> u64 {
        match ticks / self.step {
            steps if steps < TABLE_STEPS => {
                (0..steps).fold(self.first, |kept, _| (kept * self.further) >> BITS)
            }
            _ => 0,
        }
    }
}

fn draw(cx: &mut Cx<'_>) -> u64 {
    cx.rng.next_u64() >> (64 - BITS)
}

/// Bits of all fractions.
const BITS: u32 = 16;
const ONE: u64 = 1 << BITS;
/// Clock ticks per second.
const HZ: u64 = 1_000;
/// dummynet: red_avg_pkt_size, red_max_pkt_size, red_lookup_depth.
const AVERAGE_PACKET: u64 = 512;
const MAX_PACKET: i128 = 1_500;
const TABLE_STEPS: u64 = 256;
