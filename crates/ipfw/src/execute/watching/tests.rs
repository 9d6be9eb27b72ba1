use sluice_core::event::DropReason;
use sluice_core::packet::Packet;
use sluice_core::units::{Span, Time};
use sluice_core::{Cx, DropCounter, Rng};

use super::*;
use crate::objects::watch::{FlowTraffic, Traffic, Waits};
use crate::{Direction, Disposition, Firewall, Headers, NoFiles, Settings};

struct Engine {
    firewall: Firewall,
    rng: Rng,
    dropped: DropCounter,
    slot: u32,
}

impl Engine {
    fn new(lines: &[&str]) -> Engine {
        Self::with_settings(&Settings::default(), lines)
    }

    fn with_settings(settings: &Settings, lines: &[&str]) -> Engine {
        let mut engine = Engine {
            firewall: Firewall::new(settings),
            rng: Rng::from_seed(1),
            dropped: DropCounter::default(),
            slot: 0,
        };
        for line in lines {
            engine.with(Time::ZERO, |firewall, cx| {
                firewall.command(line, &mut NoFiles, cx).unwrap();
            });
        }
        engine
    }

    fn with<T>(&mut self, at: Time, work: impl FnOnce(&mut Firewall, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(at, &mut self.rng, &mut self.dropped);
        work(&mut self.firewall, &mut cx)
    }

    /// Sends `count` packets of 1250 bytes from a port.
    fn send(&mut self, at: Time, src_port: u16, count: u32) {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut headers = Headers::new(Direction::In, 17, src, dst);
        (headers.src_port, headers.dst_port) = (src_port, 9);
        for _ in 0..count {
            let mut packet = Packet::new(self.slot, 1250);
            packet.flow = u32::from(src_port);
            packet.arrival = at;
            self.slot += 1;
            let taken = self.with(at, |firewall, cx| firewall.handle(packet, &headers, cx));
            assert!(!matches!(taken, Disposition::Pass(_)));
        }
    }

    fn run(&mut self, until: Time) {
        self.with(until, |firewall, cx| while firewall.poll(cx).is_some() {});
    }

    /// Exchanges the tables.
    fn watch(&mut self, at: Time, fresh: Option<Vec<Place>>) -> Watching {
        let fresh = fresh.map(|places| Box::new(WatchTable::new(places)));
        let mut watching = Watching::new(fresh);
        while self.with(at, |firewall, cx| firewall.watch(&mut watching, cx)) {}
        watching
    }
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

#[test]
fn the_table_counts_arrivals_departures_drops_and_sojourn_times_by_flow() {
    let mut engine = Engine::new(&[
        "pipe 1 config bw 1Mbit/s queue 5",
        "add 100 pipe 1 ip from any to any",
    ]);
    engine.send(ms(0), 1, 1);
    let first = engine.watch(ms(1), Some(vec![]));
    let [tally] = first.tallies[..] else {
        panic!("one pipe, not {:?}", first.tallies);
    };
    assert_eq!((tally.object, tally.bytes), (ObjectName::Pipe(1), 1250));
    assert!(first.table.is_none() && first.details.is_empty());
    engine.run(ms(10));
    engine.watch(ms(10), Some(vec![tally.place]));
    // 1250 bytes take 10 ms. Arrivals come before the link at the same instant, so of seven packets
    // five find room.
    engine.send(ms(20), 1, 4);
    engine.send(ms(20), 2, 3);
    engine.run(ms(100));
    let watched = engine.watch(ms(100), None);
    let table = watched.table.unwrap();
    assert_eq!(table.places(), [tally.place]);
    let row = &table.rows()[0];
    assert_eq!((row.arrived_packets, row.arrived_bytes), (7, 7 * 1250));
    assert_eq!((row.packets, row.bytes), (5, 5 * 1250));
    assert_eq!(row.dropped(DropReason::Overflow), 2);
    assert_eq!(row.dropped_total(), 2);
    // They waited 0, 10, ..., 40 ms; 20 ms is the third of five.
    let p50 = row.waits.quantile(500).unwrap();
    let expected = Span::from_ms(20);
    let error = p50.as_ns().abs_diff(expected.as_ns());
    assert!(error <= expected.as_ns() / 16, "{p50}");
    assert_eq!(row.waits.longest(), Span::from_ms(40));
    assert_eq!(row.waits.sum_ns(), 100_000_000);
    let mut flows: Vec<&FlowTraffic> = table.flows().collect();
    flows.sort_by_key(|flow| flow.flow.src_port);
    let of = |flow: &FlowTraffic| {
        (
            flow.flow.src_port,
            flow.traffic.packets,
            flow.traffic.dropped_total(),
        )
    };
    assert_eq!(of(flows[0]), (1, 4, 0));
    assert_eq!(of(flows[1]), (2, 1, 2));
    assert_eq!(flows[0].flow.object, ObjectName::Pipe(1));
    let [detail] = &watched.details[..] else {
        panic!("one place, not {:?}", watched.details);
    };
    assert_eq!(
        (detail.object, detail.link.rate_bps),
        (ObjectName::Pipe(1), 1_000_000)
    );
    assert_eq!(detail.words, "droptail");
}

#[test]
fn a_first_packet_brings_a_row_if_there_is_room_and_a_deleted_place_has_no_detail() {
    let mut engine = Engine::new(&[
        "pipe 1 config bw 1Mbit/s mask src-port 0xffff",
        "add 100 pipe 1 ip from any to any",
    ]);
    engine.send(ms(0), 1, 1);
    let first = engine.watch(ms(1), Some(vec![]));
    engine.watch(ms(1), Some(vec![first.tallies[0].place]));
    engine.send(ms(20), 1, 1);
    engine.send(ms(20), 2, 2);
    // A table with as many places as it has room for, of which the second pipe is none.
    let mut full = vec![first.tallies[0].place];
    full.extend((1000..1127).map(Place::Link));
    assert_eq!(full.len(), WatchTable::ROOM);
    let rest = engine.watch(ms(30), Some(full));
    assert!(rest.details[0].is_masked);
    let table = rest.table.unwrap();
    let arrived = |table: &WatchTable| -> Vec<u64> {
        table.rows().iter().map(|row| row.arrived_packets).collect()
    };
    assert_eq!(arrived(&table), [1, 2]);
    assert!(table.other.is_idle());
    assert_eq!(rest.tallies.len(), 2);
    engine.send(ms(30), 1, 1);
    engine.send(ms(30), 2, 2);
    let last = engine.watch(ms(40), Some(vec![first.tallies[0].place]));
    let table = last.table.unwrap();
    assert_eq!(arrived(&table)[0], 1);
    assert_eq!(table.other.arrived_packets, 2);
    engine.run(ms(100));
    engine.with(ms(100), |firewall, cx| {
        firewall.command("pipe 1 delete", &mut NoFiles, cx).unwrap();
    });
    assert!(engine.watch(ms(100), None).details.is_empty());
    assert!(engine.firewall.runtime.watch.is_none());
}

#[test]
fn what_arrived_in_a_new_row_leaves_in_the_same_row_of_the_next_table() {
    let mut engine = Engine::new(&["pipe 1 config queue 100", "add pipe 1 ip from any to any"]);
    engine.watch(ms(0), Some(vec![]));
    engine.send(ms(1), 1, 3);
    engine.watch(ms(1), Some(vec![]));
    engine.run(ms(2));
    let table = engine.watch(ms(2), None).table.unwrap();
    assert_eq!(table.rows()[0].packets, 3);
}

#[test]
fn queues_of_a_scheduler_have_rows_beside_it() {
    let mut engine = Engine::new(&[
        "pipe 1 config bw 1Mbit/s",
        "sched 1 config type wf2q+",
        "queue 1 config sched 1 weight 5",
        "add 100 queue 1 ip from any to any",
    ]);
    engine.send(ms(0), 1, 1);
    let first = engine.watch(ms(1), Some(vec![]));
    let places: Vec<Place> = first.tallies.iter().map(|tally| tally.place).collect();
    assert_eq!(places.len(), 2, "{:?}", first.tallies);
    engine.watch(ms(1), Some(places));
    engine.send(ms(20), 1, 3);
    engine.run(ms(31));
    let watched = engine.watch(ms(31), None);
    let table = watched.table.unwrap();
    for row in table.rows() {
        assert_eq!((row.arrived_packets, row.packets), (3, 2));
    }
    let queue = &watched.details[1];
    assert_eq!(queue.object, ObjectName::Queue(1));
    assert_eq!(queue.parent, Some(ObjectName::Scheduler(1)));
    assert_eq!(queue.words, "weight 5 droptail");
    assert_eq!(queue.state.queued_packets, 1);
}

/// Returns arrivals and drops of a row.
fn arrived_and_dropped(row: &Traffic, reason: DropReason) -> (u64, u64) {
    assert_eq!(row.dropped(reason), row.dropped_total());
    (row.arrived_packets, row.dropped_total())
}

#[test]
fn packets_beyond_the_share_of_a_pipe_count_as_arrived_and_dropped_there() {
    let mut engine = Engine::new(&["pipe 1 config bw 1Mbit/s", "add pipe 1 ip from any to any"]);
    engine.watch(ms(0), Some(vec![]));
    // Without room for more, a pipe may hold four packets.
    engine.firewall.set_free_packets(0);
    engine.send(ms(1), 1, 7);
    let watched = engine.watch(ms(1), None);
    let table = watched.table.unwrap();
    let overflow = DropReason::Overflow;
    assert_eq!(arrived_and_dropped(&table.rows()[0], overflow), (7, 3));
    assert_eq!(table.rows()[0].arrived_bytes, 7 * 1250);
    assert!(table.other.is_idle());
    let [flow] = table.flows().collect::<Vec<_>>()[..] else {
        panic!("one flow");
    };
    assert_eq!(arrived_and_dropped(&flow.traffic, overflow), (7, 3));
    assert_eq!(flow.traffic.waiting, 4);
    let counters = &watched.details[0].state.counters;
    assert_eq!((counters.packets, counters.dropped), (7, 3));
    assert_eq!(watched.tallies[0].dropped, 3);
    // Each of them once in the totals.
    assert_eq!(engine.dropped.total(), 3);
    let runtime = &engine.firewall.runtime;
    assert_eq!((runtime.totals.packets, runtime.totals.dropped), (7, 3));
    assert_eq!(engine.firewall.refusals().pipe_share, 3);
    let last = engine.firewall.last_refused();
    assert_eq!(last.pipe_share, Some(ObjectName::Pipe(1)));
}

#[test]
fn packets_beyond_the_share_of_a_scheduler_count_at_the_queues_that_exist() {
    let mut engine = Engine::new(&[
        "pipe 1 config bw 1Mbit/s",
        "sched 1 config type wf2q+",
        "queue 1 config sched 1 mask src-port 0xffff",
        "add queue 1 ip from any to any",
    ]);
    engine.watch(ms(0), Some(vec![]));
    engine.firewall.set_free_packets(0);
    // Four packets find room. The second flow has no queue.
    engine.send(ms(1), 1, 6);
    engine.send(ms(1), 2, 3);
    let watched = engine.watch(ms(1), None);
    let table = watched.table.unwrap();
    assert_eq!(table.places(), [Place::Link(0), Place::Queue(0)]);
    let rows = table.rows().iter();
    let rows = rows.map(|row| arrived_and_dropped(row, DropReason::Overflow));
    assert_eq!(rows.collect::<Vec<_>>(), [(9, 5), (6, 2)]);
    assert!(table.other.is_idle());
    let details = watched.details.iter();
    let counters = details.map(|detail| &detail.state.counters);
    let counted: Vec<_> = counters.map(|c| (c.packets, c.dropped)).collect();
    assert_eq!(counted, [(9, 5), (6, 2)]);
    assert_eq!(engine.firewall.runtime.totals.dropped, 5);
}

#[test]
fn packets_of_flows_without_a_pipe_count_at_the_scheduler() {
    let settings = Settings {
        dynamic_bytes: 0,
        ..Settings::default()
    };
    let lines = [
        "pipe 1 config bw 1Mbit/s mask src-port 0xffff",
        "add pipe 1 ip from any to any",
    ];
    let mut engine = Engine::with_settings(&settings, &lines);
    engine.watch(ms(0), Some(vec![]));
    engine.send(ms(1), 1, 3);
    let table = engine.watch(ms(1), None).table.unwrap();
    let why = DropReason::NoRoute;
    assert_eq!(arrived_and_dropped(&table.other, why), (3, 3));
    let [flow] = table.flows().collect::<Vec<_>>()[..] else {
        panic!("one flow");
    };
    assert_eq!(arrived_and_dropped(&flow.traffic, why), (3, 3));
    let runtime = &engine.firewall.runtime;
    let forgotten = &runtime.scheduler(1 + STRIDE).unwrap().forgotten;
    assert_eq!((forgotten.packets, forgotten.dropped()), (3, 3));
    assert_eq!(runtime.totals.dropped, 3);
    assert_eq!(engine.dropped.count(why), 3);
}

#[test]
fn packets_that_were_inside_and_find_no_pipe_count_as_dropped_only() {
    let settings = Settings {
        dynamic_bytes: 0,
        ..Settings::default()
    };
    let lines = ["pipe 1 config bw 1Mbit/s", "add pipe 1 ip from any to any"];
    let mut engine = Engine::with_settings(&settings, &lines);
    engine.send(ms(1), 1, 3);
    engine.with(ms(1), |firewall, cx| {
        let masked = "pipe 1 config bw 1Mbit/s mask src-port 0xffff";
        firewall.command(masked, &mut NoFiles, cx).unwrap();
    });
    // One of the three may be on the link.
    let why = DropReason::Reconfigured;
    let dropped = engine.dropped.count(why);
    assert!(dropped >= 2, "{dropped}");
    let runtime = &engine.firewall.runtime;
    let mut all = runtime.scheduler(1 + STRIDE).unwrap().forgotten;
    for instance in runtime.instances_of(1 + STRIDE) {
        all.absorb(&runtime.instance_at(instance).counters);
    }
    assert_eq!((all.packets, all.dropped_for(why)), (3, dropped));
}

#[test]
fn more_flows_than_rows_are_counted_together() {
    let mut engine = Engine::new(&["pipe 1 config queue 100", "add pipe 1 ip from any to any"]);
    engine.watch(ms(0), Some(vec![]));
    for port in 0..5000 {
        engine.send(ms(1), port, 1);
    }
    let table = engine.watch(ms(2), None).table.unwrap();
    let of_flows: u64 = table.flows().map(|flow| flow.traffic.arrived_packets).sum();
    assert!(table.flows().count() <= 1024);
    assert_eq!(of_flows + table.other_flows.arrived_packets, 5000);
}

#[test]
fn a_table_is_empty_again_after_a_reset() {
    let mut engine = Engine::new(&["pipe 1 config queue 100", "add pipe 1 ip from any to any"]);
    engine.watch(ms(0), Some(vec![]));
    engine.send(ms(1), 1, 10);
    engine.run(ms(2));
    let mut table = engine.watch(ms(2), None).table.unwrap();
    assert_eq!(
        (table.places(), table.rows()[0].packets),
        (&[Place::Link(0)][..], 10)
    );
    table.reset(vec![Place::Link(0)]);
    assert!(table.other.is_idle() && table.rows()[0].is_idle());
    assert_eq!(table.rows()[0].waits.packets(), 0);
    assert_eq!(table.flows().count(), 0);
}

#[test]
fn quantiles_are_at_most_a_sixteenth_off_and_counts_below_powers_of_two_are_exact() {
    let mut waits = Waits::default();
    assert_eq!(waits.quantile(500), None);
    for us in 1..=1000 {
        waits.add(Span::from_us(us));
    }
    for per_mille in [1, 500, 950, 990, 1000] {
        let exact = per_mille * 1000;
        let got = waits.quantile(per_mille).unwrap().as_ns();
        assert!(
            got.abs_diff(exact) <= exact / 16 + 1024,
            "{per_mille}: {got} ns"
        );
    }
    // 2^16 ns are 65.536 us: 65 of the times are shorter.
    assert_eq!(waits.below(Span::from_ns(1 << 16)), 65);
}
