//! `dualpi2`: two queues that share one controller. L4S flows, whose congestion control responds to
//! every mark, use a queue with very little delay; classic flows use a normal one. The two marking
//! probabilities are coupled, so that both kinds of flow get equal shares of the link.
//!
//! Source: RFC 9332, sections 2 and 4 and the pseudo-code of appendices A.1 and A.2. Choices where
//! the RFC leaves one open or gives no rule:
//! 1. `scheduler wrr` (default) is a weighted round robin by bytes that gives the classic queue
//!    `classic_share` of the link, and at most that much delay to the other, while both are
//!    backlogged (Linux: 10 %; section 4.2.2: small, as 1/16). Only contention changes its credit,
//!    and an idle link resets it, as A.1 reports of Linux. `tsfifo` is the time-shifted FIFO of
//!    A.2: the packet that has waited longest, with `tshift` added to L4S packets.
//! 2. `laqm ramp` (default) marks L4S packets with a probability that rises from 0 at `min_th` to 1
//!    at `min_th + range`; `step` marks all that have waited longer than `step`.
//! 3. `lq.time()` is the time that the packet just dequeued has waited, `cq.time()` at an update
//!    that of the head; `lq.len()` excludes the packet just dequeued.
//! 4. `p'` and `p_CL` are limited to 0 to 1. All probabilities are integers in units of 10^-18, so
//!    that `alpha`, `beta` and nanoseconds multiply exactly. The accumulators of A.1 decide whether
//!    to signal, without random numbers.
//! 5. Updates are due at multiples of `tupdate`. They pause while nothing is queued and nothing
//!    decays, which changes no value. The defaults are those in the text of A.1, 16 ms, 0.16 and
//!    3.2 Hz; the formulas of A.1 with 15 ms give 0.15 and 3.
//! 6. The RFC limits the queues to 250 ms at the link's rate, which a queue does not know: set
//!    `limit_bytes` accordingly. `limit` counts packets as in Linux. As in A.1, a packet of any
//!    size is refused if an MTU would not fit.
//! 7. A packet that arrived with CE is not marked again. Linux signals nothing below two MTU of
//!    backlog; the RFC does.
//! 8. With `any_ect` a flow with ECT(0) counts as scalable, as DCTCP flows do: it is marked like
//!    L4S packets. Section 2.5.1.1 describes classic marks for other flows in that queue.
//!
//! Units: nanoseconds, bytes, hertz; lengths of queues in wire packets. Costs O(1).

use alloc::collections::VecDeque;

use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::{Ecn, Packet};
use crate::param::Ratio;
use crate::units::{Bytes, Span, Time};
use crate::{choice, params};

choice! {
    /// The queue that is served when both have packets.
    pub enum DualScheduler {
        /// Weighted round robin by bytes.
        Wrr = "wrr",
        /// Time-shifted FIFO.
        Tsfifo = "tsfifo",
    }
}

choice! {
    /// The marking of the L4S queue's own AQM.
    pub enum Laqm {
        /// With a probability that rises with the delay.
        Ramp = "ramp",
        /// All packets above a threshold.
        Step = "step",
    }
}

params! {
    /// Parameters of DualPI2.
    pub struct DualPi2Params {
        /// target delay of the classic queue
        target: Span = Span(Span::from_ms(15)), Span(Span::from_us(1)) => Span(Span::from_secs(100)), "RFC 9332 appendix A.1: 15 ms";
        /// time between updates of the probability
        tupdate: Span = Span(Span::from_ms(16)), Span(Span::from_us(1)) => Span(Span::from_secs(100)), "RFC 9332 appendix A.1: 16 ms";
        /// integral gain in Hz
        alpha: Ratio = Ratio(Ratio::from_billionths(160_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(1_000_000_000_000)), "RFC 9332 appendix A.1: 0.16 Hz";
        /// proportional gain in Hz
        beta: Ratio = Ratio(Ratio::from_billionths(3_200_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(1_000_000_000_000)), "RFC 9332 appendix A.1: 3.2 Hz";
        /// coupling factor between the probabilities of the two queues
        coupling: Ratio = Ratio(Ratio::from_billionths(2_000_000_000)), Ratio(Ratio::ONE) => Ratio(Ratio::from_billionths(255_000_000_000)), "RFC 9332 section 2.5.1: 2";
        /// marking of the L4S queue's own AQM
        laqm: Laqm = Choice("ramp"), "RFC 9332 appendix A.1, note c";
        /// ramp: delay above which marking begins
        min_th: Span = Span(Span::from_us(800)), Span(Span::ZERO) => Span(Span::from_secs(1)), "RFC 9332 appendix A.1: 800 us";
        /// ramp: further delay until every packet is marked (0: a step)
        range: Span = Span(Span::from_us(400)), Span(Span::ZERO) => Span(Span::from_secs(1)), "RFC 9332 appendix A.1: 400 us";
        /// step: delay above which every packet is marked
        step: Span = Span(Span::from_ms(1)), Span(Span::ZERO) => Span(Span::from_secs(1)), "Linux: 1 ms";
        /// wire packets left in the L4S queue up to which its own AQM does not mark
        th_len: u64 = Count(1), Count(0) => Count(1000), "RFC 9332 appendix A.1: 1 packet";
        /// the queue that is served when both have packets
        scheduler: DualScheduler = Choice("wrr"), "RFC 9332 appendix A.2: WRR";
        /// wrr: the classic queue's part of the link
        classic_share: Ratio = Ratio(Ratio::from_billionths(100_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "Linux: classic_protection 10 %";
        /// tsfifo: how much longer a classic packet waits than an L4S packet
        tshift: Span = Span(Span::from_ms(50)), Span(Span::ZERO) => Span(Span::from_secs(100)), "RFC 9332 appendix A.2: 50 ms";
        /// treat every ECN-capable packet as L4S, not only ECT(1) and CE
        any_ect: bool = Flag(false), "RFC 9331 section 5.1: ECT(0) is classic";
        /// largest number of wire packets in both queues
        limit: u64 = Count(10_000), Count(1) => Count(u64::MAX), "Linux: 10000 packets";
        /// largest number of bytes in both queues, with room for a full packet of 1514 bytes
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(MTU)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
    }
}

/// Two queues with coupled AQMs.
pub struct DualPi2 {
    params: DualPi2Params,
    l4s: Queue,
    classic: Queue,
    backlog: Backlog,
    /// The base probability p'.
    base: u64,
    /// Delay at the last update.
    previous: Span,
    update_at: Option<Time>,
    /// Round robin: positive if the classic queue is to be served.
    credit: i64,
    /// The probability above which ECN no longer controls the classic queue.
    classic_max: u64,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Packet>,
    segments: u64,
    /// Signals that are due, including a fraction.
    accumulated: u64,
}

/// Certainty, in units of 10^-18.
const ONE: u64 = 1_000_000_000_000_000_000;
/// Bits of the scheduler's weights.
const WEIGHT_BITS: u32 = 16;
/// Bytes of a full packet: the room that must be left, and the head start of the queue with the
/// larger weight.
const MTU: u64 = 1514;

impl DisciplineAlgorithm for DualPi2 {
    type Params = DualPi2Params;
    const DOC: &'static str = "dual-queue coupled AQM for L4S and classic traffic (RFC 9332)";

    fn new(params: &DualPi2Params) -> Self {
        let coupling = u128::from(params.coupling.as_billionths());
        // p_Cmax = min(1/k^2, 1), with k in billionths.
        let classic_max = u128::from(ONE).pow(2) / coupling.pow(2);
        let mut dualpi2 = DualPi2 {
            params: params.clone(),
            l4s: Queue::default(),
            classic: Queue::default(),
            backlog: Backlog::default(),
            base: 0,
            previous: Span::ZERO,
            update_at: Some(Time::ZERO.saturating_add(params.tupdate)),
            credit: 0,
            classic_max: classic_max.min(u128::from(ONE)) as u64,
        };
        dualpi2.restart_turns();
        dualpi2
    }
}

impl Discipline for DualPi2 {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        // RFC 9332 appendix A.1, dualpi2_enqueue.
        let packets = self.backlog.packets + u64::from(packet.segments);
        // One MTU of space, so that small packets are not favoured.
        let bytes = self.backlog.bytes + u64::from(packet.len).max(MTU);
        if packets > self.params.limit || bytes > self.params.limit_bytes.as_u64() {
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        self.backlog.add(&packet);
        cx.enqueued(&packet);
        let is_l4s = match packet.ecn {
            Ecn::Ect1 | Ecn::Ce => true,
            Ecn::Ect0 => self.params.any_ect,
            Ecn::NotEct => false,
        };
        if is_l4s {
            self.l4s.push(packet);
        } else {
            self.classic.push(packet);
        }
        if self.update_at.is_none() {
            let every = self.params.tupdate.as_ns();
            self.update_at = Some(Time::from_ns(
                cx.now.as_ns().div_ceil(every).saturating_mul(every),
            ));
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        // RFC 9332 appendix A.2, dualpi2_dequeue.
        loop {
            let (mut packet, is_l4s) = self.take()?;
            let signal = if is_l4s {
                cx.queue = 1;
                self.l4s_signal(packet.sojourn(cx.now))
            } else {
                cx.queue = 0;
                self.classic_signal(packet.ecn)
            };
            match signal {
                Signal::None => {}
                Signal::Mark if packet.ecn == Ecn::Ce => {}
                Signal::Mark => cx.mark(&mut packet),
                Signal::Drop(reason) => {
                    cx.discard(packet, reason);
                    continue;
                }
            }
            cx.dequeued(&packet);
            return Some(packet);
        }
    }

    fn next_wake(&self) -> Wake {
        if self.backlog.is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.update_at
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        let Some(due) = self.update_at.filter(|due| *due <= cx.now) else {
            return;
        };
        let before = (self.base, self.previous);
        self.update(cx.now);
        // An empty queue whose update changed nothing, or left nothing to decay, needs no other
        // update until a packet arrives.
        let after = (self.base, self.previous);
        let is_at_rest = self.backlog.is_empty() && (after == before || after == (0, Span::ZERO));
        self.update_at = (!is_at_rest).then(|| due.saturating_add(self.params.tupdate));
        cx.queue = 0;
        cx.state("p_base", || ratio(self.base));
        cx.state("p_classic", || ratio(self.p_classic()));
        cx.state("p_coupled", || ratio(self.p_coupled()));
        cx.state("delay", || StateValue::Span(self.previous));
    }

    fn pull(&mut self) -> Option<Packet> {
        self.take().map(|(packet, _)| packet)
    }

    fn memory(&self) -> usize {
        let held = self.l4s.packets.capacity() + self.classic.packets.capacity();
        size_of::<Self>() + held * size_of::<Packet>()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        visit(0, "p_base", ratio(self.base));
        visit(0, "p_classic", ratio(self.p_classic()));
        visit(0, "p_coupled", ratio(self.p_coupled()));
        visit(0, "delay", StateValue::Span(self.previous));
        visit(0, "packets", StateValue::Count(self.classic.segments));
        visit(1, "packets", StateValue::Count(self.l4s.segments));
    }
}

/// The decision about the packet that leaves.
enum Signal {
    None,
    Mark,
    Drop(DropReason),
}

impl DualPi2 {
    /// RFC 9332 appendix A.2, dualpi2_update.
    fn update(&mut self, now: Time) {
        // The greater of the two delays, so that a flood of L4S packets is controlled too.
        let delay = self.classic.delay(now).max(self.l4s.delay(now));
        let ns = |span: Span| i128::from(span.as_ns());
        let error = ns(delay) - ns(self.params.target);
        let rise = ns(delay) - ns(self.previous);
        let alpha = i128::from(self.params.alpha.as_billionths());
        let beta = i128::from(self.params.beta.as_billionths());
        // Billionths of a hertz times nanoseconds are units of 10^-18.
        let base = i128::from(self.base) + alpha * error + beta * rise;
        self.base = base.clamp(0, i128::from(ONE)) as u64;
        self.previous = delay;
    }

    /// Returns p_CL = k p'.
    fn p_coupled(&self) -> u64 {
        let coupling = u128::from(self.params.coupling.as_billionths());
        (u128::from(self.base) * coupling / 1_000_000_000).min(u128::from(ONE)) as u64
    }

    /// Returns p_C = p'^2.
    fn p_classic(&self) -> u64 {
        let base = u128::from(self.base);
        (base * base / u128::from(ONE)) as u64
    }

    fn l4s_signal(&mut self, waited: Span) -> Signal {
        let coupled = self.p_coupled();
        if coupled < ONE {
            // A link needs a queue of one packet.
            let own = if self.l4s.segments > self.params.th_len {
                self.p_own(waited)
            } else {
                0
            };
            return self.l4s.mark_if(own.max(coupled));
        }
        // Overload: marks are saturated, so L4S packets are dropped as classic ones are.
        let classic = self.p_classic();
        if self.l4s.is_due(classic) {
            return Signal::Drop(DropReason::Overload);
        }
        self.l4s.mark_if(coupled)
    }

    fn classic_signal(&mut self, ecn: Ecn) -> Signal {
        let classic = self.p_classic();
        if !self.classic.is_due(classic) {
            Signal::None
        } else if !ecn.is_capable() {
            Signal::Drop(DropReason::Congestion)
        } else if classic >= self.classic_max {
            Signal::Drop(DropReason::Overload)
        } else {
            Signal::Mark
        }
    }

    /// Returns the L4S queue's own marking probability for a packet that has waited for `waited`.
    fn p_own(&self, waited: Span) -> u64 {
        match self.params.laqm {
            Laqm::Step if waited > self.params.step => ONE,
            Laqm::Step => 0,
            Laqm::Ramp => {
                // RFC 9332 appendix A.1, laqm. A range of 0 has no ramp and would be a division by
                // zero.
                let range = self.params.range.as_ns();
                if waited >= self.params.min_th.saturating_add(self.params.range) {
                    return ONE;
                }
                let above = waited.saturating_sub(self.params.min_th).as_ns();
                if above == 0 {
                    return 0;
                }
                (u128::from(above) * u128::from(ONE) / u128::from(range)) as u64
            }
        }
    }

    /// Removes the packet whose turn it is; returns it, and whether it is an L4S packet.
    fn take(&mut self) -> Option<(Packet, bool)> {
        let is_l4s = match (self.l4s.packets.front(), self.classic.packets.front()) {
            (None, None) => return None,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l4s), Some(classic)) => match self.params.scheduler {
                DualScheduler::Wrr => self.credit <= 0,
                // lq.time() + tshift >= cq.time(), without the term that both have in common.
                DualScheduler::Tsfifo => {
                    classic.arrival.saturating_add(self.params.tshift) >= l4s.arrival
                }
            },
        };
        let is_contended = !self.l4s.packets.is_empty() && !self.classic.packets.is_empty();
        let queue = if is_l4s {
            &mut self.l4s
        } else {
            &mut self.classic
        };
        let packet = queue.pop()?;
        self.backlog.remove(&packet);
        if is_contended {
            let classic = self.classic_weight();
            let weight = if is_l4s {
                classic
            } else {
                classic - (1 << WEIGHT_BITS)
            };
            self.credit += i64::from(packet.len) * weight;
        } else if self.backlog.is_empty() {
            self.restart_turns();
        }
        Some((packet, is_l4s))
    }

    fn classic_weight(&self) -> i64 {
        self.params.classic_share.as_fixed(WEIGHT_BITS) as i64
    }

    /// Restarts the round robin. The queue with the larger share begins (Linux).
    fn restart_turns(&mut self) {
        self.credit = MTU as i64 * (2 * self.classic_weight() - (1 << WEIGHT_BITS));
    }
}

impl Queue {
    fn push(&mut self, packet: Packet) {
        self.segments += u64::from(packet.segments);
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.segments -= u64::from(packet.segments);
        Some(packet)
    }

    /// Returns how long the head has waited; zero if there is none.
    fn delay(&self, now: Time) -> Span {
        self.packets.front().map_or(Span::ZERO, |p| p.sojourn(now))
    }

    /// RFC 9332 appendix A.1, recur: returns `true` once in 1 / `likelihood` calls, evenly spaced.
    fn is_due(&mut self, likelihood: u64) -> bool {
        self.accumulated += likelihood;
        let is_due = self.accumulated > ONE;
        if is_due {
            self.accumulated -= ONE;
        }
        is_due
    }

    fn mark_if(&mut self, likelihood: u64) -> Signal {
        if self.is_due(likelihood) {
            Signal::Mark
        } else {
            Signal::None
        }
    }
}

fn ratio(probability: u64) -> StateValue {
    StateValue::Ratio(probability as f64 / ONE as f64)
}

#[cfg(test)]
mod tests;
