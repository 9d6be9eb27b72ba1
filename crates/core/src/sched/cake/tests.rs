use super::*;
use crate::event::{DropCounter, Sink};
use crate::rng::Rng;
use alloc::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// The acknowledgements that a host would read from packets: slot n acknowledges everything up to
/// `acked[n]`; `None` is not a pure acknowledgement.
#[derive(Default)]
struct Host {
    drops: DropCounter,
    acked: Vec<Option<u32>>,
    filtered: Vec<u32>,
}

impl Sink for Host {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        if reason == DropReason::AckFilter {
            self.filtered.push(packet.slot);
        }
        self.drops.discard(now, packet, reason);
    }
    fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.acked
            .get(packet.slot as usize)
            .is_some_and(Option::is_some)
    }
    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.acked[newer.slot as usize] > self.acked[older.slot as usize]
    }
}

struct Bench {
    cake: Cake,
    rng: Rng,
    host: Host,
    now: Time,
}

#[derive(Clone, Copy, Default)]
struct To {
    flow: u32,
    src: u32,
    dst: u32,
    dscp: u8,
}

impl Bench {
    fn new(params: &CakeParams) -> Self {
        Bench {
            cake: Cake::new(params),
            rng: Rng::from_seed(1),
            host: Host::default(),
            now: Time::ZERO,
        }
    }

    fn offer(&mut self, slot: u32, len: u32, to: To) {
        let mut packet = Packet::new(slot, len);
        packet.arrival = self.now;
        packet.flow = to.flow;
        packet.src = to.src;
        packet.dst = to.dst;
        packet.dscp = to.dscp;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.host);
        self.cake.enqueue(packet, &mut cx);
    }

    fn take(&mut self) -> Option<Packet> {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.host);
        self.cake.dequeue(&mut cx)
    }

    /// Dequeues `count` packets, each as soon as it may leave.
    fn take_in_time(&mut self, count: usize) -> Vec<Packet> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self.cake.next_wake() {
                Wake::Now => {}
                Wake::At(at) => self.now = self.now.max(at),
                Wake::OnEnqueue => break,
            }
            taken.extend(self.take());
        }
        taken
    }

    /// Keeps `backlogs` full while `count` packets leave, and returns how many of each slot did.
    fn saturate(&mut self, backlogs: &[To], count: usize) -> Vec<usize> {
        for _ in 0..20 {
            for (slot, to) in backlogs.iter().enumerate() {
                self.offer(slot as u32, 1000, *to);
            }
        }
        let mut sent = alloc::vec![0; backlogs.len()];
        for _ in 0..count {
            let packet = self.take_in_time(1).pop().expect("it is backlogged");
            sent[packet.slot as usize] += 1;
            self.offer(packet.slot, 1000, backlogs[packet.slot as usize]);
        }
        sent
    }
}

#[test]
fn blue_calms_down_while_a_flow_that_is_alone_pauses() {
    let mut bench = Bench::new(&CakeParams {
        limit: 1,
        ..CakeParams::default()
    });
    let blue = |bench: &Bench| {
        let mut found = None;
        bench.cake.state(&mut |_, name, value| {
            if name == "blue" {
                found = Some(value.as_f64());
            }
        });
        found
    };
    // An overflow adds 1/256 if the last change is more than 5 ms ago.
    bench.now = Time::from_ns(10 * MS);
    bench.offer(0, 1000, To::default());
    bench.offer(1, 1000, To::default());
    assert!((blue(&bench).unwrap() - 1.0 / 256.0).abs() < 1e-8);
    assert!(bench.take().is_some());
    assert!(bench.take().is_none());
    // 1/4096 less for each 5 ms and 1 ns of the pause: all of it is gone after 16 of them, and the
    // part that 1/4096 lacks in billionths after the 17th.
    bench.now = Time::from_ns(100 * MS);
    bench.offer(2, 1000, To::default());
    assert_eq!(blue(&bench), Some(0.0));
}

/// Without AQM action the turns alone decide what is sent.
fn patient() -> CakeParams {
    CakeParams {
        rtt: Span::from_secs(100),
        ..CakeParams::default()
    }
}

#[test]
fn packets_leave_at_the_rate_and_without_a_burst() {
    let mut bench = Bench::new(&CakeParams {
        bandwidth: Rate::from_bps(8_000_000),
        ..patient()
    });
    // A second of idleness saves nothing: 1000 B at 8 Mbit/s leave every millisecond.
    bench.now = Time::from_ns(1000 * MS);
    for slot in 0..5 {
        bench.offer(slot, 1000, To::default());
    }
    let mut left = Vec::new();
    for _ in 0..5 {
        bench.take_in_time(1);
        left.push(bench.now.as_ns() / MS - 1000);
        assert!(bench.take().is_none(), "not two at once");
    }
    assert_eq!(left, [0, 1, 2, 3, 4]);
    // The last packet still occupies the link.
    bench.offer(5, 1000, To::default());
    assert_eq!(bench.cake.next_wake(), Wake::At(Time::from_ns(1005 * MS)));
}

#[test]
fn a_host_that_is_late_catches_up() {
    let mut bench = Bench::new(&CakeParams {
        bandwidth: Rate::from_bps(8_000_000),
        ..patient()
    });
    for slot in 0..10 {
        bench.offer(slot, 1000, To::default());
    }
    bench.now = Time::from_ns(4 * MS);
    // Packets 0 to 4 were due at 0, 1, 2, 3 and 4 ms.
    let taken = core::iter::from_fn(|| bench.take()).count();
    assert_eq!(taken, 5);
    assert_eq!(bench.cake.next_wake(), Wake::At(Time::from_ns(5 * MS)));
}

#[test]
fn framing_counts_against_the_rate() {
    let mut bench = Bench::new(&CakeParams {
        bandwidth: Rate::from_bps(8_000_000),
        overhead: 40,
        cells: Cells::Atm,
        ..patient()
    });
    bench.offer(0, 1500, To::default());
    bench.offer(1, 1500, To::default());
    bench.take_in_time(2);
    // 1540 B need 33 cells of 53 B: 1749 us at 1 B/us.
    assert_eq!(bench.now, Time::from_ns(1_749_000));
    assert_eq!(bench.cake.backlog(), Backlog::default());
}

#[test]
fn codepoints_go_to_their_tins() {
    // tc-cake(8): "diffserv3" and "diffserv4".
    let tins = |mode| -> BTreeMap<u8, Vec<u8>> {
        let mut tins: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for dscp in 0..64 {
            tins.entry(tin_of_dscp(mode, dscp)).or_default().push(dscp);
        }
        tins
    };
    let three = tins(CakeTins::Diffserv3);
    assert_eq!(three[&1], [1, 8]);
    assert_eq!(three[&2], [4, 44, 46, 48, 56]);
    let four = tins(CakeTins::Diffserv4);
    assert_eq!(four[&1], [1, 8]);
    assert_eq!(four[&2], [4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38]);
    assert_eq!(four[&3], [32, 40, 44, 46, 48, 56]);
    assert_eq!(tins(CakeTins::BestEffort).len(), 1);
}

const BULK: To = To {
    flow: 1,
    src: 0,
    dst: 0,
    dscp: 8,
};
const BEST_EFFORT: To = To {
    flow: 2,
    src: 0,
    dst: 0,
    dscp: 0,
};
const VIDEO: To = To {
    flow: 3,
    src: 0,
    dst: 0,
    dscp: 34,
};
const VOICE: To = To {
    flow: 4,
    src: 0,
    dst: 0,
    dscp: 46,
};

#[test]
fn a_tin_has_priority_up_to_its_threshold() {
    let params = |tins| CakeParams {
        bandwidth: Rate::from_bps(8_000_000),
        tins,
        ..patient()
    };
    // Each tin is urgent whenever its clock, which runs at its part of the rate, is due: voice
    // sends a quarter of all packets and bulk a sixteenth; best effort gets the rest.
    let mut bench = Bench::new(&params(CakeTins::Diffserv3));
    let sent = bench.saturate(&[BULK, BEST_EFFORT, VOICE], 1600);
    assert_eq!(sent, [100, 1100, 400]);
    let mut bench = Bench::new(&params(CakeTins::Diffserv4));
    let sent = bench.saturate(&[BULK, BEST_EFFORT, VIDEO, VOICE], 1600);
    assert_eq!(sent, [100, 300, 800, 400]);
    // A single active tin has the whole rate.
    let mut bench = Bench::new(&params(CakeTins::Diffserv3));
    assert_eq!(bench.saturate(&[BULK], 100), [100]);
    assert_eq!(bench.now, Time::from_ns(99 * MS));
}

#[test]
fn without_a_rate_tins_share_by_their_quanta() {
    let mut bench = Bench::new(&patient());
    // 64 : 1024 : 256 bytes per turn, so of 1344 packets 64, 1024 and 256, within an error of one
    // packet each for one turn.
    let sent = bench.saturate(&[BULK, BEST_EFFORT, VOICE], 1344);
    for (sent, due) in sent.iter().zip([64usize, 1024, 256]) {
        assert!(sent.abs_diff(due) <= 2, "{sent} of {due}");
    }
}

fn isolated(isolation: CakeIsolation) -> Bench {
    Bench::new(&CakeParams {
        isolation,
        bandwidth: Rate::from_bps(100_000_000),
        ..patient()
    })
}

#[test]
fn hosts_share_before_their_flows_do() {
    // Host 1 has four flows to host 10, host 2 has one to host 20.
    let flow = |flow, src, dst| To {
        flow,
        src,
        dst,
        dscp: 0,
    };
    let flows = [
        flow(1, 1, 10),
        flow(2, 1, 10),
        flow(3, 1, 10),
        flow(4, 1, 10),
        flow(5, 2, 20),
    ];
    let close = |sent: Vec<usize>, due: [usize; 5]| {
        for (sent, due) in sent.iter().zip(due) {
            assert!(sent.abs_diff(due) <= due / 20 + 4, "{sent} of {due}");
        }
    };
    let by_flow = isolated(CakeIsolation::Flows).saturate(&flows, 1000);
    close(by_flow, [200, 200, 200, 200, 200]);
    for isolation in [
        CakeIsolation::DualSrcHost,
        CakeIsolation::DualDstHost,
        CakeIsolation::Triple,
    ] {
        let sent = isolated(isolation).saturate(&flows, 1000);
        close(sent, [125, 125, 125, 125, 500]);
    }
    // Host 1 then has one queue, and its flows are not distinguished.
    for isolation in [
        CakeIsolation::SrcHost,
        CakeIsolation::DstHost,
        CakeIsolation::Hosts,
    ] {
        let sent = isolated(isolation).saturate(&flows, 1000);
        close(sent, [125, 125, 125, 125, 500]);
    }
    // One queue for all packets.
    let blind = isolated(CakeIsolation::FlowBlind).saturate(&flows, 1000);
    close(blind, [200, 200, 200, 200, 200]);
}

#[test]
fn triple_isolation_looks_at_the_busier_end() {
    // Hosts 1 to 4 each send one flow to host 10; host 5 sends one to host 20. By source all are
    // equal; by destination host 10 has four flows.
    let flow = |n| To {
        flow: n,
        src: n,
        dst: if n < 5 { 10 } else { 20 },
        dscp: 0,
    };
    let flows = [flow(1), flow(2), flow(3), flow(4), flow(5)];
    let by_source = isolated(CakeIsolation::DualSrcHost).saturate(&flows, 1000);
    assert!(
        by_source.iter().all(|n| n.abs_diff(200) <= 10),
        "{by_source:?}"
    );
    let triple = isolated(CakeIsolation::Triple).saturate(&flows, 1000);
    assert!(triple[4].abs_diff(500) <= 25, "{triple:?}");
}

#[test]
fn a_sparse_flow_passes_the_bulk_flows() {
    let mut bench = isolated(CakeIsolation::Triple);
    for slot in 0..50 {
        bench.offer(
            slot,
            1500,
            To {
                flow: 1,
                ..To::default()
            },
        );
    }
    bench.take_in_time(5);
    bench.offer(
        99,
        100,
        To {
            flow: 2,
            ..To::default()
        },
    );
    assert_eq!(bench.take_in_time(1)[0].slot, 99);
}

#[test]
fn eight_flows_that_hash_alike_have_eight_queues() {
    let mut tin = Tin::new(
        Rate::UNLIMITED,
        1,
        isolation(CakeIsolation::Flows),
        CobaltParams::default(),
    );
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    let packet = |n: u32| {
        let mut packet = Packet::new(0, 100);
        packet.flow = 5 + n * QUEUES;
        packet
    };
    let mut queues: Vec<u32> = Vec::new();
    for n in 0..8 {
        let id = tin.classify(&packet(n));
        tin.arrived(id, &mut cx);
        queues.push(id);
    }
    // The set of queue 5 is 0 to 7, searched from 5 on.
    assert_eq!(queues, [5, 6, 7, 0, 1, 2, 3, 4]);
    let again: Vec<u32> = (0..8).map(|n| tin.classify(&packet(n))).collect();
    assert_eq!(again, queues, "a flow keeps its queue");
    // The ninth flow must share, and shares the queue that its hash names.
    assert_eq!(tin.classify(&packet(8)), 5);
}

#[test]
fn the_fattest_flow_gives_way() {
    let mut bench = Bench::new(&CakeParams {
        limit: 10,
        ..patient()
    });
    for slot in 0..8 {
        bench.offer(
            slot,
            1000,
            To {
                flow: 1,
                ..To::default()
            },
        );
    }
    for slot in 10..15 {
        bench.offer(
            slot,
            100,
            To {
                flow: 2,
                dscp: 46,
                ..To::default()
            },
        );
    }
    // Three packets too many: they leave from the head of flow 1.
    assert_eq!(bench.host.drops.count(DropReason::Evicted), 3);
    let mut left: Vec<u32> = bench.take_in_time(20).iter().map(|p| p.slot).collect();
    left.sort_unstable();
    assert_eq!(left, [3, 4, 5, 6, 7, 10, 11, 12, 13, 14]);
}

#[test]
fn memory_is_limited_by_rate_and_rtt() {
    let limit = |bandwidth, memlimit| {
        let cake = Cake::new(&CakeParams {
            bandwidth,
            memlimit,
            ..CakeParams::default()
        });
        cake.limit.bytes
    };
    let auto = Bytes::new(u64::MAX);
    // 1 Gbit/s for 100 ms are 12.5 MB, four times that is 50 MB; at 10 Mbit/s it is less than 4
    // MiB.
    assert_eq!(limit(Rate::from_bps(1_000_000_000), auto), 50_000_000);
    assert_eq!(limit(Rate::from_bps(10_000_000), auto), 4 << 20);
    assert_eq!(limit(Rate::UNLIMITED, auto), u64::MAX);
    assert_eq!(limit(Rate::UNLIMITED, Bytes::new(1000)), 1000);
}

#[test]
fn a_slow_tin_allows_for_its_longest_packets() {
    // 1514 B at 1 Mbit/s take 12.112 ms: target 18.168 ms, interval 100 + 13.168 ms.
    let params = aqm_params(Rate::from_bps(1_000_000), Span::from_ms(100));
    assert_eq!(params.target, Span::from_us(18_168));
    assert_eq!(params.interval, Span::from_us(113_168));
    assert_eq!(params.mtu_time, Span::from_us(12_112));
    let params = aqm_params(Rate::UNLIMITED, Span::from_ms(100));
    assert_eq!(params.target, Span::from_ms(5));
    assert_eq!(params.interval, Span::from_ms(100));
}

#[test]
fn a_standing_queue_is_signalled() {
    // Twice as much arrives as leaves: COBALT drops packets, and marks those that are ECN-capable.
    for (ecn, is_marked) in [(crate::Ecn::NotEct, false), (crate::Ecn::Ect0, true)] {
        let mut bench = Bench::new(&CakeParams {
            bandwidth: Rate::from_bps(10_000_000),
            ..CakeParams::default()
        });
        let mut marked = 0;
        for slot in 0..1000 {
            for _ in 0..2 {
                let mut packet = Packet::new(slot, 1500);
                (packet.arrival, packet.ecn) = (bench.now, ecn);
                let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.host);
                bench.cake.enqueue(packet, &mut cx);
            }
            let taken = bench.take_in_time(1);
            marked += taken.iter().filter(|p| p.ecn == crate::Ecn::Ce).count();
        }
        let dropped = bench.host.drops.count(DropReason::Congestion);
        assert_eq!((marked > 0, dropped > 0), (is_marked, !is_marked));
    }
}

#[test]
fn the_last_packet_of_a_flow_is_never_dropped_by_the_aqm() {
    // Packets that have waited for seconds, each alone in its queue.
    let mut bench = Bench::new(&CakeParams::default());
    for slot in 0..100 {
        bench.offer(slot, 1500, To::default());
        bench.now += Span::from_secs(1);
        assert_eq!(bench.take().map(|p| p.slot), Some(slot));
    }
    assert_eq!(bench.host.drops.total(), 0);
}

fn ack_bench(ack_filter: AckFilter, acked: &[Option<u32>]) -> Bench {
    let mut bench = Bench::new(&CakeParams {
        ack_filter,
        ..patient()
    });
    bench.host.acked = acked.to_vec();
    for slot in 0..acked.len() {
        bench.offer(slot as u32, 64, To::default());
    }
    bench
}

#[test]
fn redundant_acknowledgements_are_removed() {
    let acks: Vec<Option<u32>> = (0..6).map(Some).collect();
    assert!(ack_bench(AckFilter::Off, &acks).host.filtered.is_empty());
    // One is kept before the newest, so the queue never holds more than two.
    let mut bench = ack_bench(AckFilter::On, &acks);
    assert_eq!(bench.host.filtered, [0, 1, 2, 3]);
    let left: Vec<u32> = bench.take_in_time(9).iter().map(|p| p.slot).collect();
    assert_eq!(left, [4, 5]);
    let bench = ack_bench(AckFilter::Aggressive, &acks);
    assert_eq!(bench.host.filtered, [0, 1, 2, 3, 4]);
}

#[test]
fn duplicate_acknowledgements_and_data_are_kept() {
    // Three duplicates signal a loss to the sender: none may be removed.
    let bench = ack_bench(AckFilter::Aggressive, &[Some(7), Some(7), Some(7), Some(7)]);
    assert!(bench.host.filtered.is_empty());
    // Packets with data are never removed. Of the pure ones around them at least two are redundant
    // and removed, although they are not adjacent.
    let mixed = [Some(1), None, Some(2), None, Some(3)];
    assert_eq!(ack_bench(AckFilter::On, &mixed).host.filtered, [0]);
}

#[test]
fn an_acknowledgement_that_has_left_is_not_looked_at() {
    let mut bench = ack_bench(AckFilter::On, &[Some(1), Some(2)]);
    bench.host.acked.extend([Some(3), Some(4)]);
    bench.take_in_time(2);
    bench.offer(2, 64, To::default());
    bench.offer(3, 64, To::default());
    assert!(bench.host.filtered.is_empty());
    assert_eq!(bench.take_in_time(9).len(), 2);
}

#[test]
fn dropped_packets_count_at_ingress() {
    // The queue is full with five packets, and twenty more are dropped. At egress the sixth packet
    // leaves 1 ms after the fifth. At ingress the drops have used the link too, up to the limit of
    // the failsafe: two thirds of the rate remain for packets that are sent.
    for (ingress, at) in [(false, 1000), (true, 1500)] {
        let mut bench = Bench::new(&CakeParams {
            bandwidth: Rate::from_bps(8_000_000),
            limit: 5,
            ingress,
            ..patient()
        });
        for slot in 0..25 {
            bench.offer(slot, 1000, To::default());
        }
        bench.take_in_time(2);
        assert_eq!(bench.now, Time::from_ns(at * 1000), "ingress {ingress}");
    }
}

#[test]
fn host_counts_stay_true_when_queues_are_shared() {
    // Far more flows than queues, so that sets are full and flows take over each other's queues.
    let mut bench = Bench::new(&CakeParams {
        limit: 4000,
        ..patient()
    });
    let mut rng = Rng::from_seed(5);
    for round in 0..60_000 {
        let flow = rng.below(20_000) as u32;
        let to = To {
            flow: flow.wrapping_mul(0x9E37_79B9),
            src: flow % 50,
            dst: flow % 300,
            dscp: if flow.is_multiple_of(5) { 46 } else { 0 },
        };
        bench.offer(0, 1500, to);
        if round % 3 != 0 {
            bench.take();
        }
        if round % 1000 == 0 {
            for tin in &bench.cake.tins {
                assert_eq!(tin.bulk_flows(), tin.counted_bulk_flows());
            }
        }
    }
    let shared = bench.host.drops.count(DropReason::Evicted);
    assert!(shared > 0, "the limit was reached");
}
