//! `cake`: common applications kept enhanced, everything that a home router needs in one
//! discipline. CAKE shapes to a rate without bursts, gives priority by DSCP up to a share of that
//! rate, shares the link fairly between hosts and between the flows of a host, and keeps each
//! flow's delay low with an AQM.
//!
//! Sources: T. Høiland-Jørgensen, D. Täht and J. Morton, "Piece of CAKE: A Comprehensive Queue
//! Management Solution for Home Gateways", IEEE LANMAN 2018; `tc-cake(8)` and Linux `sch_cake`,
//! from which the defaults come. Differences from them:
//! 1. Lengths are those that the host counts, plus `overhead`. Each flow of a host gets its part of
//!    the quantum to 2^-16 byte; Linux rounds with a random number.
//! 2. The shaper carries fractions of a nanosecond, so the rate is exact. Linux rounds the time per
//!    byte.
//! 3. An emptied flow leaves its list at once. Linux keeps it until its AQM is at rest. Here COBALT
//!    catches up when the flow returns, and a flow that takes over the queue starts with a fresh
//!    AQM.
//! 4. The ACK filter remembers the last two pure acknowledgements of a flow instead of searching
//!    its queue. So its cost does not depend on the queue length, and it keeps an older
//!    acknowledgement if other packets arrived in between. The host compares two packets
//!    ([`Sink`](crate::Sink)).
//! 5. `limit` counts wire packets and `memlimit` bytes on the wire; Linux counts the memory of
//!    buffers. A tree of maxima finds the fattest flow; Linux uses a heap.
//! 6. Not included: `autorate-ingress`, `nat`, `wash`, `split-gso` and `fwmark`, which belong to
//!    the host, and the `precedence` and `diffserv8` tins.
//!
//! Tins: `besteffort` has one; `diffserv3` has bulk (1/16 of the rate), best effort (all of it) and
//! voice (1/4); `diffserv4` has bulk (1/16), best effort (all), video (1/2) and voice (1/4). A tin
//! has priority over the tins before it while it sends less than its share of the rate. When all
//! exceed their shares, the tin that may send again first is served. Without a rate, tins take
//! turns by deficit round robin.
//!
//! Cost: O(1), except that finding the fattest of n queues costs at most O(log n). If the host of a
//! flow has k bulk flows, the flow's turn is k times smaller, so a packet takes k rounds (as in
//! Linux).

mod clock;
mod flows;
mod hosts;
#[cfg(test)]
mod tests;
mod tin;

use alloc::vec::Vec;

use self::clock::Clock;
use self::tin::{FRACTION, Isolation, QUEUES, Tin};
use super::fattest::Fattest;
use super::pool::{NONE, Pool};
use super::{Discipline, DisciplineAlgorithm, Wake, allocated};
use crate::aqm::cobalt::CobaltParams;
use crate::aqm::{Aqm, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::framing::{Cells, FramingParams};
use crate::packet::Packet;
use crate::units::{Bytes, Rate, Span, Time};
use crate::{choice, params};

choice! {
    /// The tins into which packets are sorted by DSCP.
    pub enum CakeTins {
        /// One tin for all packets.
        BestEffort = "besteffort",
        /// Bulk, best effort, voice.
        Diffserv3 = "diffserv3",
        /// Bulk, best effort, video, voice.
        Diffserv4 = "diffserv4",
    }
}

choice! {
    /// The parties among which the link is shared.
    pub enum CakeIsolation {
        /// None: one queue.
        FlowBlind = "flowblind",
        /// Source hosts.
        SrcHost = "srchost",
        /// Destination hosts.
        DstHost = "dsthost",
        /// Pairs of hosts.
        Hosts = "hosts",
        /// Flows.
        Flows = "flows",
        /// Source hosts, then flows.
        DualSrcHost = "dual-srchost",
        /// Destination hosts, then flows.
        DualDstHost = "dual-dsthost",
        /// Source and destination hosts, then flows.
        Triple = "triple-isolate",
    }
}

choice! {
    /// Which redundant acknowledgements are removed.
    pub enum AckFilter {
        /// None.
        Off = "off",
        /// All but the last two.
        On = "on",
        /// All but the last.
        Aggressive = "aggressive",
    }
}

params! {
    /// Parameters of CAKE.
    pub struct CakeParams {
        /// bits per second to shape to
        bandwidth: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(64)) => Rate(Rate::UNLIMITED), "tc-cake: unlimited";
        /// mapping of DSCPs to tins
        tins: CakeTins = Choice("diffserv3"), "tc-cake: diffserv3";
        /// the parties among which the link is shared
        isolation: CakeIsolation = Choice("triple-isolate"), "tc-cake: triple-isolate";
        /// round-trip time of the paths, 20 times the target of the AQM
        rtt: Span = Span(Span::from_ms(100)), Span(Span::from_us(20)) => Span(Span::from_secs(100)), "tc-cake: 100 ms";
        /// which redundant acknowledgements are removed
        ack_filter: AckFilter = Choice("off"), "tc-cake: no-ack-filter";
        /// charge dropped packets to the rate too, for a queue behind the bottleneck
        ingress: bool = Flag(false), "tc-cake: egress";
        /// bytes of each packet that the host counts but the link does not carry
        strip: u64 = Count(0), Count(0) => Count(256), "tc-cake: raw";
        /// bytes that the link adds to each packet
        overhead: u64 = Count(0), Count(0) => Count(256), "tc-cake: 0";
        /// smallest number of bytes that a packet occupies
        mpu: u64 = Count(0), Count(0) => Count(256), "tc-cake: 0";
        /// how the link cuts frames into cells
        cells: Cells = Choice("whole"), "tc-cake: noatm";
        /// wire packets that all queues together hold
        limit: u64 = Count(10_240), Count(1) => Count(u64::MAX), "Linux: 10240 packets";
        /// bytes that all queues together hold; unlimited is four times bandwidth times rtt, at least 4 MiB
        memlimit: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "Linux: by bandwidth and rtt";
    }
}

/// A shaper over tins of flow queues.
pub struct Cake {
    rate: Rate,
    framing: FramingParams,
    ack_filter: AckFilter,
    charges_drops: bool,
    limit: Backlog,
    tins: Vec<Tin>,
    /// The tin of each DSCP.
    tin_of: [u8; 64],
    /// The tin whose turn it is when there is no rate.
    current: usize,
    /// The instant at which the link will have sent all packets so far.
    clock: Clock,
    /// The same at two thirds of the rate, without dropped packets: charged drops cannot hold back
    /// everything else.
    failsafe: Clock,
    /// Flow queues by their bytes, numbered across all tins.
    fattest: Fattest,
    pool: Pool,
    backlog: Backlog,
}

/// The longest frame, for which the AQM must allow time.
const MTU: u64 = 1514;

impl DisciplineAlgorithm for Cake {
    type Params = CakeParams;
    const DOC: &'static str =
        "shaping, priorities, fairness between hosts and flows, and an AQM in one";

    fn new(params: &CakeParams) -> Self {
        let rate = params.bandwidth;
        let isolation = isolation(params.isolation);
        let tins: Vec<Tin> = shares(params.tins)
            .iter()
            .map(|(shift, quantum)| {
                let threshold = part(rate, *shift);
                let aqm = aqm_params(threshold, params.rtt);
                Tin::new(threshold, *quantum, isolation, aqm)
            })
            .collect();
        let fattest = Fattest::new(tins.len() * QUEUES as usize);
        let memory = match params.memlimit.as_u64() {
            u64::MAX if rate.is_unlimited() => u64::MAX,
            u64::MAX => rate.bytes_in(params.rtt).saturating_mul(4).max(4 << 20),
            bytes => bytes,
        };
        let mut tin_of = [0; 64];
        for (dscp, tin) in tin_of.iter_mut().enumerate() {
            *tin = tin_of_dscp(params.tins, dscp as u8);
        }
        Cake {
            rate,
            framing: FramingParams {
                strip: params.strip,
                overhead: params.overhead,
                mpu: params.mpu,
                cells: params.cells,
            },
            ack_filter: params.ack_filter,
            charges_drops: params.ingress,
            limit: Backlog {
                packets: params.limit,
                bytes: memory,
            },
            tins,
            tin_of,
            current: 0,
            clock: Clock::default(),
            failsafe: Clock::default(),
            fattest,
            pool: Pool::new(),
            backlog: Backlog::default(),
        }
    }
}

impl Discipline for Cake {
    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) {
        if u64::from(packet.segments) > self.limit.packets
            || u64::from(packet.len) > self.limit.bytes
        {
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        let number = usize::from(self.tin_of[usize::from(packet.dscp & 63)]);
        self.wake_clocks(number, cx.now);
        let tin = &mut self.tins[number];
        let id = tin.classify(&packet);
        let own = key(number, id);
        cx.queue = own;
        let flow = &mut tin.flows[id as usize];
        let view = flow.view(&self.backlog, &self.limit);
        match flow.aqm.on_enqueue(&packet, &view, cx) {
            Verdict::Pass => {}
            Verdict::Mark => cx.mark(&mut packet),
            Verdict::Drop(reason) => {
                cx.discard(packet, reason);
                return;
            }
        }
        cx.enqueued(&packet);
        let gain = Backlog {
            packets: u64::from(packet.segments),
            bytes: u64::from(packet.len),
        };
        let node = self.pool.push_back(&mut flow.chain, packet);
        for backlog in [&mut flow.backlog, &mut tin.backlog, &mut self.backlog] {
            backlog.packets += gain.packets;
            backlog.bytes += gain.bytes;
        }
        self.fattest.set(own, flow.backlog.bytes);
        if self.ack_filter != AckFilter::Off {
            self.filter_acks(number, id, node, cx);
        }
        self.tins[number].arrived(id, cx);
        while self.backlog.packets > self.limit.packets || self.backlog.bytes > self.limit.bytes {
            self.drop_from_fattest(cx);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        while !self.backlog.is_empty() {
            if self.clock.at() > cx.now && self.failsafe.at() > cx.now {
                return None;
            }
            let number = self.choose_tin(cx.now);
            if let Some(packet) = self.serve(number, cx) {
                return Some(packet);
            }
        }
        self.retire_all(cx);
        None
    }

    fn next_wake(&self) -> Wake {
        if self.backlog.is_empty() {
            Wake::OnEnqueue
        } else if self.rate.is_unlimited() {
            Wake::Now
        } else {
            Wake::At(self.clock.at().min(self.failsafe.at()))
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        let number = self.tins.iter().position(|tin| !tin.backlog.is_empty())?;
        loop {
            let id = self.tins[number].next();
            let id = id.expect("a tin with packets has an active flow");
            if let Some(packet) = self.pop(number, id) {
                self.tins[number].flows[id as usize].deficit -= i64::from(packet.len) << FRACTION;
                return Some(packet);
            }
            // An empty flow leaves its list at the next dequeue, which notifies its AQM.
            let flow = &mut self.tins[number].flows[id as usize];
            flow.deficit = flow.deficit.min(0);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + allocated(&self.tins)
            + self.tins.iter().map(Tin::memory).sum::<usize>()
            + self.fattest.memory()
            + self.pool.memory()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        for (number, tin) in self.tins.iter().enumerate() {
            for (id, flow) in tin.iter() {
                flow.aqm
                    .state(&mut |name, value| visit(key(number, id), name, value));
            }
        }
    }
}

impl Cake {
    /// Returns the next packet of a tin; `None` if an empty flow leaves its list, or if all have
    /// left. The last packet of a flow is never dropped, whatever its AQM decides: the sender would
    /// detect that loss only by a timeout.
    #[inline]
    fn serve(&mut self, number: usize, cx: &mut Cx<'_>) -> Option<Packet> {
        let mut id = self.tins[number].next()?;
        loop {
            let own = key(number, id);
            cx.queue = own;
            let tin = &mut self.tins[number];
            // Behind the bottleneck the packets of each bulk flow arrive in bunches (Linux).
            let bulk_flows = if self.charges_drops { tin.bulk } else { 0 };
            let flow = &mut tin.flows[id as usize];
            if flow.chain.is_empty() {
                tin.retire(id, cx);
                return None;
            }
            flow.forget_ack(flow.chain.first());
            let mut packet = self.pool.take_front(&mut flow.chain);
            let (packets, bytes) = (u64::from(packet.segments), u64::from(packet.len));
            let held = Backlog {
                packets: flow.backlog.packets - packets,
                bytes: flow.backlog.bytes - bytes,
            };
            // The fields that were just written are not read again: see `Fq`.
            let view = QueueView {
                packets: held.packets,
                bytes: held.bytes,
                total_bytes: self.backlog.bytes - bytes,
                limit_packets: self.limit.packets,
                limit_bytes: self.limit.bytes,
            };
            flow.backlog = held;
            tin.backlog.remove(&packet);
            self.backlog.remove(&packet);
            self.fattest.set(own, held.bytes);
            flow.aqm.set_bulk_flows(bulk_flows);
            match flow.aqm.on_dequeue(&packet, &view, cx) {
                Verdict::Drop(reason) if !flow.chain.is_empty() => {
                    if self.charges_drops {
                        self.charge(number, Some(id), &packet, true, cx.now);
                    }
                    cx.discard(packet, reason);
                    if self.charges_drops {
                        // The drop may have ended the flow's turn.
                        id = self.tins[number].next()?;
                    }
                    continue;
                }
                Verdict::Mark => cx.mark(&mut packet),
                Verdict::Pass | Verdict::Drop(_) => {}
            }
            self.charge(number, Some(id), &packet, false, cx.now);
            cx.dequeued(&packet);
            return Some(packet);
        }
    }

    /// When nothing is queued, removes the flows that were served last from their lists, as other
    /// flows are removed at their turn. So a flow's AQM is notified of pauses even when the flow is
    /// alone.
    fn retire_all(&mut self, cx: &mut Cx<'_>) {
        for (number, tin) in self.tins.iter_mut().enumerate() {
            while let Some(id) = tin.first() {
                cx.queue = key(number, id);
                tin.retire(id, cx);
            }
        }
    }

    /// Returns the tin that is served next. Some flow is active.
    fn choose_tin(&mut self, now: Time) -> usize {
        if self.rate.is_unlimited() {
            // Without a rate there are no thresholds; tins take turns by deficit.
            loop {
                let tin = &mut self.tins[self.current];
                if tin.deficit >= 0 && tin.active > 0 {
                    return self.current;
                }
                if tin.deficit <= 0 {
                    tin.deficit += tin.quantum;
                }
                self.current = (self.current + 1) % self.tins.len();
            }
        }
        // The most urgent tin that is below its threshold, else the one that will be first.
        let below = |tin: &Tin| tin.ready_at <= now;
        let active = || {
            self.tins
                .iter()
                .enumerate()
                .filter(|(_, tin)| tin.active > 0)
        };
        let urgent = active().rev().find(|(_, tin)| below(tin));
        let first = || active().rev().min_by_key(|(_, tin)| tin.ready_at);
        let (number, _) = urgent.or_else(first).expect("some flow is active");
        number
    }

    /// Restarts the clocks that did not advance while there was nothing to send.
    fn wake_clocks(&mut self, number: usize, now: Time) {
        let tin = &mut self.tins[number];
        if tin.backlog.is_empty() {
            tin.ready_at = tin.ready_at.max(now);
        }
        if self.backlog.is_empty() && self.clock.at() < now {
            self.clock.restart(now);
            self.failsafe.restart(now);
        }
    }

    /// Charges a packet that is sent, or that was dropped after it had passed the bottleneck.
    #[inline]
    fn charge(
        &mut self,
        number: usize,
        flow: Option<u32>,
        packet: &Packet,
        is_drop: bool,
        now: Time,
    ) {
        let bytes = self.framing.wire_len(packet);
        let tin = &mut self.tins[number];
        tin.charge(bytes, now);
        if let Some(id) = flow {
            tin.flows[id as usize].deficit -= (bytes as i64) << FRACTION;
        }
        self.clock.charge(bytes, self.rate);
        if !is_drop {
            self.failsafe.charge(bytes + bytes / 2, self.rate);
        }
    }

    fn pop(&mut self, number: usize, id: u32) -> Option<Packet> {
        let flow = &mut self.tins[number].flows[id as usize];
        let node = flow.chain.first();
        let packet = self.pool.pop_front(&mut flow.chain)?;
        self.count_out(number, id, node, &packet);
        Some(packet)
    }

    fn count_out(&mut self, number: usize, id: u32, node: u32, packet: &Packet) {
        let tin = &mut self.tins[number];
        let flow = &mut tin.flows[id as usize];
        flow.forget_ack(node);
        flow.backlog.remove(packet);
        tin.backlog.remove(packet);
        self.backlog.remove(packet);
        self.fattest.set(key(number, id), flow.backlog.bytes);
    }

    /// Makes room: drops the oldest packet of the flow with the most bytes.
    fn drop_from_fattest(&mut self, cx: &mut Cx<'_>) {
        let key = self.fattest.find();
        let (number, id) = ((key / QUEUES) as usize, key % QUEUES);
        let tin = &mut self.tins[number];
        let flow = &mut tin.flows[id as usize];
        flow.forget_ack(flow.chain.first());
        let packet = self.pool.take_front(&mut flow.chain);
        flow.backlog.remove(&packet);
        tin.backlog.remove(&packet);
        self.backlog.remove(&packet);
        self.fattest.set(key, flow.backlog.bytes);
        if self.charges_drops {
            self.charge(number, None, &packet, true, cx.now);
        }
        cx.queue = key;
        cx.discard(packet, DropReason::Evicted);
        let aqm = &mut self.tins[number].flows[id as usize].aqm;
        aqm.on_overflow(1, cx);
    }

    /// Removes an acknowledgement that the packet in `node`, the last of its flow, makes redundant.
    fn filter_acks(&mut self, number: usize, id: u32, node: u32, cx: &mut Cx<'_>) {
        let newer = self.pool.packet(node);
        let is_redundant = |ack: u32| ack != NONE && cx.supersedes(newer, self.pool.packet(ack));
        let flow = &mut self.tins[number].flows[id as usize];
        let [older, last] = flow.acks;
        let redundant = if !is_redundant(last) {
            None
        } else if is_redundant(older) {
            // One acknowledgement is kept before the new one, because not every sender grows its
            // window by bytes.
            Some(older)
        } else {
            let is_adjacent = self.pool.previous(node) == last;
            (self.ack_filter == AckFilter::Aggressive && is_adjacent).then_some(last)
        };
        if cx.is_pure_ack(newer) {
            let kept = if redundant == Some(last) { older } else { last };
            flow.acks = [kept, node];
        }
        if let Some(ack) = redundant {
            let packet = self.pool.remove(&mut flow.chain, ack);
            self.count_out(number, id, ack, &packet);
            if self.charges_drops {
                self.charge(number, None, &packet, true, cx.now);
            }
            cx.discard(packet, DropReason::AckFilter);
        }
    }
}

/// Returns the number of a flow among those of all tins.
const fn key(tin: usize, flow: u32) -> u32 {
    tin as u32 * QUEUES + flow
}

/// Returns the tins, the least urgent first: the part of the rate, as a power of two, and the bytes
/// per turn without a rate.
const fn shares(tins: CakeTins) -> &'static [(u32, i64)] {
    match tins {
        CakeTins::BestEffort => &[(0, 65_535)],
        CakeTins::Diffserv3 => &[(0, 1024), (4, 64), (2, 256)],
        CakeTins::Diffserv4 => &[(0, 1024), (4, 64), (1, 512), (2, 256)],
    }
}

/// Returns a tin's part of the rate.
fn part(rate: Rate, shift: u32) -> Rate {
    if rate.is_unlimited() {
        rate
    } else {
        Rate::from_bps((rate.as_bps() >> shift).max(1))
    }
}

/// Returns the tin of a DSCP (`tc-cake(8)`): an index into [`shares`].
const fn tin_of_dscp(tins: CakeTins, dscp: u8) -> u8 {
    match tins {
        CakeTins::BestEffort => 0,
        CakeTins::Diffserv3 => match dscp {
            1 | 8 => 1,                 // LE, CS1
            4 | 44 | 46 | 48 | 56 => 2, // TOS4, VA, EF, CS6, CS7
            _ => 0,
        },
        CakeTins::Diffserv4 => match dscp {
            1 | 8 => 1, // LE, CS1
            // TOS4, CS2, AF2x, CS3, AF3x, AF4x
            4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38 => 2,
            32 | 40 | 44 | 46 | 48 | 56 => 3, // CS4, CS5, VA, EF, CS6, CS7
            _ => 0,
        },
    }
}

fn isolation(isolation: CakeIsolation) -> Isolation {
    let flow: fn(&Packet) -> u32 = match isolation {
        CakeIsolation::FlowBlind => |_| 0,
        CakeIsolation::SrcHost => |p| p.src,
        CakeIsolation::DstHost => |p| p.dst,
        // Rotated, so that the two ends of a flow within one host do not cancel.
        CakeIsolation::Hosts => |p| p.src ^ p.dst.rotate_left(11),
        _ => |p| p.flow,
    };
    let is_triple = isolation == CakeIsolation::Triple;
    Isolation {
        flow,
        by_source: is_triple || isolation == CakeIsolation::DualSrcHost,
        by_destination: is_triple || isolation == CakeIsolation::DualDstHost,
    }
}

/// Returns the parameters of the AQM of a tin's flows. A slow tin must be allowed the time of its
/// longest packets.
fn aqm_params(rate: Rate, rtt: Span) -> CobaltParams {
    let base = rtt.as_ns() / 20;
    let mtu_time = rate.transmission(MTU);
    let target = base.max(mtu_time.as_ns().saturating_mul(3) / 2);
    let interval = (rtt.as_ns() + (target - base)).max(target.saturating_mul(2));
    CobaltParams {
        target: Span::from_ns(target),
        interval: Span::from_ns(interval),
        mtu_time,
        ..CobaltParams::default()
    }
}
