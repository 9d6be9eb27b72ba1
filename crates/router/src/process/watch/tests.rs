use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{Cx, DropCounter, Packet, Rng, Span, Time};
use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};

use super::collect::Collector;
use super::*;
use crate::control::{Builder, inbox};
use crate::forward::Lateness;

/// An engine and the collector that watches it, in virtual time.
struct Bench {
    firewall: Firewall,
    rng: Rng,
    dropped: DropCounter,
    collector: Collector,
    slot: u32,
    number: u64,
}

impl Bench {
    fn new(lines: &[String]) -> Bench {
        let mut bench = Bench {
            firewall: Firewall::new(&Settings::default()),
            rng: Rng::from_seed(1),
            dropped: DropCounter::default(),
            collector: Collector::default(),
            slot: 0,
            number: 0,
        };
        for line in lines {
            bench.with(Time::ZERO, |firewall, cx| {
                firewall.command(line, &mut NoFiles, cx).unwrap();
            });
        }
        bench
    }

    fn with<T>(&mut self, at: Time, work: impl FnOnce(&mut Firewall, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(at, &mut self.rng, &mut self.dropped);
        work(&mut self.firewall, &mut cx)
    }

    /// Sends a packet of 1250 bytes from a port at `at`, and lets everything leave that is due.
    fn send(&mut self, at: Time, src_port: u16) {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut headers = Headers::new(Direction::In, 17, src, dst);
        (headers.src_port, headers.dst_port) = (src_port, 9);
        let mut packet = Packet::new(self.slot, 1250);
        packet.flow = u32::from(src_port);
        self.slot += 1;
        self.with(at, |firewall, cx| {
            while firewall.poll(cx).is_some() {}
            let _ = firewall.handle(packet, &headers, cx);
        });
    }

    fn exchange(&mut self, at: Time) -> Option<Sample> {
        let mut watching = self.collector.begin();
        while self.with(at, |firewall, cx| firewall.watch(&mut watching, cx)) {}
        let watched = Watched {
            watching,
            status: Status::default(),
            lateness: Lateness::default(),
            rtt: None,
        };
        self.number += 1;
        self.collector
            .evaluate(watched, self.number, Default::default())
    }
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

#[test]
fn another_thread_takes_samples_when_one_has_panicked() {
    let (_inbox, orders) = inbox(Builder::default()).unwrap();
    let watcher = Watcher::new(orders);
    watcher.0.lock().is_running = true;
    let shared = Arc::clone(&watcher.0);
    let thread = thread::spawn(move || {
        let _running = Running::new(shared);
        panic!("a defect");
    });
    assert!(thread.join().is_err());
    assert!(!watcher.0.lock().is_running);
}

/// A client that knew the router before it was started again has a number that is yet to come.
#[test]
fn a_number_from_an_earlier_start_is_not_waited_for() {
    let (_inbox, orders) = inbox(Builder::default()).unwrap();
    let watcher = Watcher::new(orders);
    {
        let mut state = watcher.0.lock();
        // No thread takes samples.
        state.is_running = true;
        let sample = Sample {
            number: 3,
            ..Sample::default()
        };
        state.latest = Some(Arc::new(sample));
        state.taken = Some(Instant::now());
    }
    let number = |after| {
        let sample = watcher.sample(after, Duration::ZERO);
        sample.map(|sample| sample.number)
    };
    assert_eq!(number(2), Ok(3));
    assert_eq!(number(3), Err(Refused::Late));
    assert_eq!(number(4), Ok(3));
}

#[test]
fn a_sample_has_the_rates_of_a_known_load() {
    let lines = [
        "pipe 1 config bw 2Mbit/s queue 10",
        "add pipe 1 ip from any to any",
    ];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    bench.send(ms(0), 1);
    assert!(bench.exchange(ms(10)).is_none());
    assert!(bench.exchange(ms(10)).is_none());
    // Two flows of 1250 bytes each 10 ms are 1 Mbit/s each, which the pipe just carries.
    for tick in 1..=200 {
        bench.send(ms(10 * tick), 1);
        bench.send(ms(10 * tick), 2);
    }
    let sample = bench
        .exchange(ms(2010))
        .expect("the third exchange gives a sample");
    assert_eq!(sample.interval_ns, 2_000_000_000);
    let [object] = &sample.objects[..] else {
        panic!("one pipe, not {:?}", sample.objects);
    };
    assert_eq!(
        (object.name.as_str(), object.link_bps),
        ("pipe 1", 2_000_000)
    );
    assert_eq!(object.traffic.rate_bps, 2_000_000);
    assert_eq!(object.traffic.arrived_packets, 400);
    // The first packet of each pair is sent at once, the second 5 ms later.
    let sojourn = object.traffic.sojourn.unwrap();
    assert_eq!((sojourn.mean_ns, sojourn.max_ns), (2_500_000, 5_000_000));
    // Half of the 400 packets waited for 0, the others for 5 ms, which is between 2^22 and 2^23 ns.
    let total = &object.total_sojourn;
    assert_eq!((total.packets, total.sum_ns), (400, 1_000_000_000));
    let at = |limit: u64| {
        SojournCounts::LIMITS
            .iter()
            .position(|l| *l == limit)
            .unwrap()
    };
    assert_eq!(
        [total.below[at(1 << 22)], total.below[at(1 << 23)]],
        [200, 400]
    );
    assert_eq!(sample.flows.len(), 2);
    for flow in &sample.flows {
        assert_eq!(flow.traffic.rate_bps, 1_000_000);
        assert_eq!(flow.object, "pipe 1");
    }
    assert_eq!(sample.unlisted, 0);
    // Nothing arrives in the next second: every rate is zero.
    let idle = bench.exchange(ms(3010)).unwrap();
    assert_eq!(idle.objects[0].traffic, TrafficSample::default());
    assert!(idle.flows.is_empty());
    assert_eq!(idle.objects[0].total_packets, 401);
}

#[test]
fn of_many_pipes_the_busiest_are_listed_and_the_others_are_summed() {
    let mut lines: Vec<String> = (1..=300)
        .map(|n| format!("pipe {n} config bw 1Mbit/s"))
        .collect();
    lines.extend((1..=300).map(|n| format!("add {n} pipe {n} ip from any {n} to any")));
    let mut bench = Bench::new(&lines);
    for port in 1..=300 {
        bench.send(ms(1), port);
    }
    bench.exchange(ms(1000));
    // From here on pipes 1 to 5 carry ten packets per interval, the others one.
    let mut sample = None;
    for interval in 1..=3 {
        for port in 1..=300 {
            for _ in 0..(if port <= 5 { 10 } else { 1 }) {
                bench.send(ms(1000 * interval + 1), port);
            }
        }
        sample = bench.exchange(ms(1000 * (interval + 1)));
    }
    let sample = sample.unwrap();
    assert!(sample.objects.len() <= 128, "{}", sample.objects.len());
    for number in 1..=5 {
        let name = format!("pipe {number}");
        let object = sample
            .objects
            .iter()
            .find(|object| object.name == name)
            .unwrap();
        assert_eq!(object.traffic.arrived_packets, 10);
    }
    assert_eq!(sample.objects.len() as u64 + sample.unlisted, 300);
    let listed: u64 = sample
        .objects
        .iter()
        .map(|o| o.traffic.arrived_packets)
        .sum();
    assert_eq!(listed + sample.other.arrived_packets, 295 + 5 * 10);
    let flows: u64 = sample.flows.iter().map(|f| f.traffic.arrived_packets).sum();
    assert_eq!(flows + sample.other_flows.arrived_packets, 295 + 5 * 10);
    assert!(sample.flows.len() <= 64);
}

/// Flows of a mask take turns, so that each has a row in some intervals only.
#[test]
fn of_flows_in_turn_no_packet_counts_twice_no_histogram_falls_and_no_row_is_free() {
    let lines = [
        "pipe 1 config bw 1Mbit/s",
        "pipe 9 config bw 1Mbit/s mask src-port 0xffff",
        "add pipe 1 ip from any 1 to any",
        "add pipe 9 ip from any to any",
    ];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    bench.send(ms(0), 1);
    bench.with(
        ms(1000),
        |firewall, cx| while firewall.poll(cx).is_some() {},
    );
    for _ in 0..2 {
        assert!(bench.exchange(ms(1000)).is_none());
    }
    let mut listed: BTreeSet<String> = BTreeSet::new();
    let mut waited: BTreeMap<String, u64> = BTreeMap::new();
    let mut returned = 0;
    for interval in 1..=12_u64 {
        // Three groups of 100 flows. Half of them send one packet, the others two: 150 in an interval.
        // In the last three intervals, there is no traffic.
        let is_busy = interval <= 9;
        let group = 1000 + (interval % 3) as u16 * 100;
        for flow in (0..100).filter(|_| is_busy) {
            for _ in 0..1 + flow / 50 {
                bench.send(ms(1000 * interval + 1), group + flow);
            }
        }
        let end = ms(1000 * (interval + 1));
        bench.with(end, |firewall, cx| while firewall.poll(cx).is_some() {});
        let sample = bench.exchange(end).unwrap();
        let arrived = |traffic: &TrafficSample| traffic.arrived_packets;
        let of_objects = sample.objects.iter().map(|o| arrived(&o.traffic));
        let of_interval = of_objects.sum::<u64>() + arrived(&sample.other);
        assert_eq!(of_interval, if is_busy { 150 } else { 0 });
        let (sent, all) = (150 * interval.min(9), &sample.all_total);
        assert_eq!(
            (
                all.total_packets,
                all.total_bytes,
                all.total_sojourn.packets
            ),
            (sent, 1250 * sent, sent)
        );
        // The first group and the first pipe have 101 places, both groups 201.
        let rows = if interval == 1 { 101 } else { 128 };
        assert_eq!(sample.objects.len(), rows, "{interval}");
        assert_eq!(sample.objects[0].name, "pipe 1");
        let before = std::mem::take(&mut listed);
        for object in &sample.objects {
            let label = object.label();
            let packets = object.total_sojourn.packets;
            let old = waited.insert(label.clone(), packets);
            assert!(old.is_none_or(|old| old <= packets), "{label}");
            let is_back = old.is_some_and(|old| old > 0) && !before.contains(&label);
            returned += u32::from(is_back);
            listed.insert(label);
        }
    }
    assert!(returned > 0, "flows lose their rows and get them again");
}

#[test]
fn the_sojourn_times_of_some_objects_without_a_row_are_kept() {
    let mut bench = Bench::new(&[
        "pipe 9 config mask src-port 0xffff".to_owned(),
        "add pipe 9 ip from any to any".to_owned(),
    ]);
    bench.exchange(ms(1));
    bench.exchange(ms(1));
    // In each interval, 100 flows that are new.
    for interval in 0..100_u16 {
        for flow in 0..100 {
            bench.send(ms(2 + u64::from(interval)), 1000 + 100 * interval + flow);
        }
        bench.exchange(ms(3 + u64::from(interval)));
    }
    let kept = bench.collector.kept();
    assert!((129..=4096).contains(&kept), "{kept}");
    bench.with(ms(200), |firewall, cx| {
        firewall.command("pipe 9 delete", &mut NoFiles, cx).unwrap();
    });
    bench.exchange(ms(201));
    assert_eq!(bench.collector.kept(), 0, "they do not exist any more");
}

#[test]
fn a_flow_with_a_standing_queue_has_its_whole_backlog_soon() {
    let lines = [
        "pipe 1 config bw 1Mbit/s queue 100",
        "add pipe 1 ip from any to any",
    ];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    // A packet takes 10 ms. 20 of one flow wait when the watch begins, and one more comes for each that
    // leaves.
    for _ in 0..20 {
        bench.send(ms(0), 1);
    }
    bench.exchange(ms(1));
    for tick in 1..=10 {
        bench.send(ms(10 * tick), 1);
    }
    bench.exchange(ms(105));
    for tick in 11..=50 {
        bench.send(ms(10 * tick), 1);
    }
    // All of the first 20 have left by 200 ms.
    let sample = bench.exchange(ms(505)).unwrap();
    assert_eq!(sample.objects[0].backlog_packets, 19);
    assert_eq!(sample.flows[0].backlog_packets, 19);
}

#[test]
fn instants_of_an_algorithm_are_relative_to_the_sample() {
    let lines = [
        "pipe 1 config bw 1Mbit/s codel target 5ms interval 100ms",
        "add pipe 1 ip from any to any",
    ];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    // A packet takes 10 ms, so packet N waits for 10 ms * N.
    for _ in 0..30 {
        bench.send(ms(0), 1);
    }
    bench.exchange(ms(1));
    bench.exchange(ms(1));
    let mut sample = |at: u64| {
        bench.with(ms(at), |firewall, cx| while firewall.poll(cx).is_some() {});
        bench.exchange(ms(at)).unwrap().objects[0].clone()
    };
    let state = |object: &ObjectSample| -> Vec<(String, f64, String)> {
        let rows = object.state.iter().zip(&object.state_kinds);
        rows.map(|((name, value), (_, kind))| (name.clone(), *value, kind.clone()))
            .collect()
    };
    let row = |name: &str, value: f64, kind: &str| (name.to_owned(), value, kind.to_owned());
    // RFC 8289 section 5.3: the packet that leaves at 10 ms is the first above 5 ms, so
    // `first_above` is 110 ms. There is no `drop_next` yet.
    assert_eq!(
        state(&sample(60)),
        [
            row("count", 0.0, "count"),
            row("dropping", 0.0, "flag"),
            row("first_above", 50e6, "instant"),
        ]
    );
    // The first drop is at 110 ms, the next one an interval later, at 210 ms.
    assert_eq!(
        state(&sample(160)),
        [
            row("count", 1.0, "count"),
            row("drop_next", 50e6, "instant"),
            row("dropping", 1.0, "flag"),
            row("first_above", -50e6, "instant"),
        ]
    );
    // 110 ms was before this interval, which began at 160 ms.
    assert_eq!(
        state(&sample(165)),
        [
            row("count", 1.0, "count"),
            row("drop_next", 45e6, "instant"),
            row("dropping", 1.0, "flag"),
        ]
    );
}

#[test]
fn flows_of_echo_have_their_identifier() {
    let lines = ["pipe 1 config bw 1Mbit/s", "add pipe 1 ip from any to any"];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    bench.exchange(ms(1));
    bench.exchange(ms(1));
    for id in [7, 8] {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut headers = Headers::new(Direction::In, 1, src, dst);
        headers.icmp_id = Some(id);
        let mut packet = Packet::new(u32::from(id), 84);
        packet.flow = u32::from(id);
        bench.with(ms(2), |firewall, cx| {
            let _ = firewall.handle(packet, &headers, cx);
        });
    }
    let sample = bench.exchange(ms(10)).unwrap();
    let mut labels: Vec<String> = sample.flows.iter().map(FlowSample::label).collect();
    labels.sort();
    assert_eq!(
        labels,
        [
            "icmp 10.0.0.1 > 10.0.0.2 id 7",
            "icmp 10.0.0.1 > 10.0.0.2 id 8"
        ]
    );
}

/// Sends a packet of each combination of family, protocol, flow label, ports and addresses.
fn send_all_kinds(bench: &mut Bench, at: Time) {
    let ends = [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]];
    let kinds = (0..64_u32).map(|bits| [0, 1, 2, 3, 4, 5].map(|bit| (bits >> bit & 1) as usize));
    for [family, proto, label, src_port, dst_port, is_back] in kinds {
        let [a, b] = ends[family].map(|address| address.parse().unwrap());
        let (src, dst) = if is_back == 1 { (b, a) } else { (a, b) };
        let mut headers = Headers::new(Direction::In, [6, 17][proto], src, dst);
        headers.src_port = [80, 443][src_port];
        headers.dst_port = [80, 443][dst_port];
        headers.flow_label = if family == 1 { [1, 2][label] } else { 0 };
        let packet = Packet::new(bench.slot, 100);
        bench.slot += 1;
        bench.with(at, |firewall, cx| {
            while firewall.poll(cx).is_some() {}
            let _ = firewall.handle(packet, &headers, cx);
        });
    }
}

#[test]
fn flows_of_a_mask_have_different_names() {
    // The flows of each mask: those of IPv4 and of IPv6.
    for (mask, flows) in [
        ("src-ip 0xffffffff", 2 + 1),
        ("src-ip6 128", 1 + 2),
        ("dst-port 0xffff", 2 + 2),
        ("src-port 0xffff", 2 + 2),
        ("proto 0xff", 2 + 2),
        ("flow-id 0xfffff", 1 + 2),
        ("flow-id 0xfffff proto 0xff dst-port 0xffff", 4 + 8),
        ("all", 16 + 32),
    ] {
        let lines = [
            format!("pipe 1 config mask {mask}"),
            "add pipe 1 ip from any to any".to_owned(),
        ];
        let mut bench = Bench::new(&lines);
        send_all_kinds(&mut bench, ms(1));
        bench.exchange(ms(2));
        bench.exchange(ms(3));
        let sample = bench.exchange(ms(4)).unwrap();
        let labels: BTreeSet<String> = sample.objects.iter().map(ObjectSample::label).collect();
        assert_eq!(
            (sample.objects.len(), labels.len()),
            (flows, flows),
            "{mask}"
        );
    }
}

#[test]
fn the_flowsets_of_a_scheduler_with_a_mask_have_different_names() {
    let lines = [
        "pipe 1 config",
        "sched 1 config type qfq mask queue",
        "queue 1 config sched 1",
        "queue 2 config sched 1",
        "add queue 1 ip4 from any to any",
        "add queue 2 ip6 from any to any",
    ];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    send_all_kinds(&mut bench, ms(1));
    bench.exchange(ms(2));
    bench.exchange(ms(3));
    let sample = bench.exchange(ms(4)).unwrap();
    let labels: Vec<String> = sample.objects.iter().map(ObjectSample::label).collect();
    assert_eq!(
        labels,
        [
            "sched 1 queue 1",
            "sched 1 queue 2 ip6",
            "queue 1 others",
            "queue 2 ip6",
        ]
    );
}

#[test]
fn a_sample_survives_its_json() {
    let lines = ["pipe 1 config bw 2Mbit/s", "add pipe 1 ip from any to any"];
    let mut bench = Bench::new(&lines.map(str::to_owned));
    bench.send(ms(0), 1);
    for at in [1, 2] {
        bench.exchange(ms(at));
    }
    bench.send(ms(3), 1);
    let sample = bench.exchange(ms(20)).unwrap();
    let json = serde_json::to_string(&sample).unwrap();
    assert_eq!(serde_json::from_str::<Sample>(&json).unwrap(), sample);
}
