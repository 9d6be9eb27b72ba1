//! Whole simulations, checked against what can be computed by hand.

use sluice_core::link::LinkParams;
use sluice_core::param::Ratio;
use sluice_core::registry::Spec;
use sluice_core::{DropReason, Ecn, Event, Packet, Rate, Span, Time};
use sluice_sim::{
    Completion, Config, ConfigError, Datagram, Direction, Echo, Flow, FlowId, Link, LinkId,
    LinkSample, ListedDatagram, Observer, Ping, Route, Router, Simulation, Size, Spacing, Stalls,
    Tcp, TcpSample, Traffic, Udp, Web, dumbbell, dumbbell_route, parking_lot, parking_lot_route,
};
use sluice_tcp::cc;

fn queue(text: &str) -> Spec {
    Spec::parse(text).unwrap()
}

fn mbit(n: u64) -> Rate {
    Rate::from_bps(n * 1_000_000)
}

fn bulk(name: &str) -> Flow {
    let tcp = Tcp::bulk(cc::find(name).unwrap());
    Flow::new(Traffic::Tcp(tcp.into()), dumbbell_route(Span::ZERO))
}

fn ping(interval: Span) -> Flow {
    let ping = Ping {
        interval,
        payload: 56,
        count: None,
        is_udp: false,
    };
    Flow::new(Traffic::Ping(ping), dumbbell_route(Span::ZERO))
}

/// Without jitter, so that times can be computed.
fn exact(links: Vec<Link>, flows: Vec<Flow>, seconds: u64) -> Config {
    Config {
        duration: Span::from_secs(seconds),
        links,
        flows,
        jitter: Span::ZERO,
        frame_overhead: 0,
        ..Config::default()
    }
}

/// Writes down everything.
#[derive(Default)]
struct Notes {
    echoes: Vec<Echo>,
    datagrams: Vec<Datagram>,
    completions: Vec<(FlowId, Completion)>,
    tcp: Vec<(FlowId, TcpSample)>,
    backlogs: Vec<(LinkId, Time, u64)>,
    arrivals: u64,
    enqueued: u64,
    dequeued: u64,
    dropped: u64,
    /// Order-dependent sum of everything that was heard.
    digest: u64,
}

impl Notes {
    fn digest(&mut self, values: &[u64]) {
        for value in values {
            self.digest = self
                .digest
                .rotate_left(5)
                .wrapping_add(*value)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

impl Observer for Notes {
    fn hears_packets(&self) -> bool {
        true
    }
    fn on_arrive(&mut self, link: LinkId, now: Time, packet: &Packet, flow: FlowId) {
        self.arrivals += 1;
        assert_eq!(packet.arrival, now);
        self.digest(&[link as u64, now.as_ns(), u64::from(packet.len), flow as u64]);
    }
    fn on_event(&mut self, _link: LinkId, now: Time, event: &Event<'_>) {
        match event {
            Event::Enqueue { .. } => self.enqueued += 1,
            Event::Dequeue { .. } => self.dequeued += 1,
            _ => {}
        }
        self.digest(&[now.as_ns()]);
    }
    fn on_drop(&mut self, _: LinkId, now: Time, _: &Packet, flow: FlowId, _: DropReason) {
        self.dropped += 1;
        self.digest(&[now.as_ns(), flow as u64]);
    }
    fn on_tcp(&mut self, flow: FlowId, sample: &TcpSample) {
        self.tcp.push((flow, *sample));
        self.digest(&[sample.sender.window.cwnd, sample.received]);
    }
    fn on_link(&mut self, link: LinkId, sample: &LinkSample<'_>) {
        self.backlogs
            .push((link, sample.time, sample.backlog.packets));
    }
    fn on_datagram(&mut self, _: FlowId, arrival: &Datagram) {
        self.datagrams.push(*arrival);
    }
    fn on_echo(&mut self, _: FlowId, echo: &Echo) {
        self.echoes.push(*echo);
    }
    fn on_complete(&mut self, flow: FlowId, transfer: &Completion) {
        self.completions.push((flow, *transfer));
    }
}

fn run(config: &Config) -> (Simulation, Notes) {
    let mut simulation = Simulation::new(config).unwrap();
    let mut notes = Notes::default();
    simulation.run(&mut notes);
    (simulation, notes)
}

#[test]
fn an_idle_ping_takes_the_delays_and_two_transmissions() {
    // 84 bytes at 1 Mbit/s take 672 us each way, and 20 ms of delays.
    let links = dumbbell(mbit(1), Span::from_ms(20), &queue("fifo"));
    let (_, notes) = run(&exact(links, vec![ping(Span::from_ms(100))], 1));
    // At 0, 100 ... 900 ms; the request at 1000 ms is not answered in time.
    assert_eq!(notes.echoes.len(), 10);
    for echo in &notes.echoes {
        assert_eq!(echo.forward, Span::from_us(10_672));
        assert_eq!(echo.round_trip, Span::from_us(21_344));
    }
}

#[test]
fn the_delay_of_the_access_network_adds_to_that_of_the_link() {
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let mut flow = ping(Span::from_ms(100));
    flow.route = dumbbell_route(Span::from_ms(31));
    let (_, notes) = run(&exact(links, vec![flow], 1));
    assert!(
        notes
            .echoes
            .iter()
            .all(|e| e.round_trip == Span::from_ms(51))
    );
}

#[test]
fn a_parking_lot_adds_up_its_hops() {
    let links = parking_lot(3, mbit(1), Span::from_ms(10), &queue("fifo"));
    let flow = |first, last| {
        let mut flow = ping(Span::from_ms(100));
        flow.route = parking_lot_route(3, first, last);
        flow
    };
    let (_, notes) = run(&exact(links, vec![flow(0, 3)], 1));
    // Three times 10 ms and six transmissions of 672 us
    assert!(
        notes
            .echoes
            .iter()
            .all(|e| e.round_trip == Span::from_us(34_032))
    );
    let links = parking_lot(3, mbit(1), Span::from_ms(10), &queue("fifo"));
    let (_, notes) = run(&exact(links, vec![flow(1, 2)], 1));
    assert!(
        notes
            .echoes
            .iter()
            .all(|e| e.round_trip == Span::from_us(11_344))
    );
}

#[test]
fn jitter_only_adds_and_stays_below_its_bound() {
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let config = Config {
        jitter: Span::from_us(100),
        ..exact(links, vec![ping(Span::from_ms(10))], 10)
    };
    let (_, notes) = run(&config);
    let extra: Vec<u64> = notes
        .echoes
        .iter()
        .map(|e| e.round_trip.as_ns() - 20_000_000)
        .collect();
    assert!(extra.iter().all(|ns| *ns <= 200_000));
    // The sum of two uniform draws below 100 us has a mean of 100 us and a deviation of 41 us:
    // 1000 of them err by 1.3 us.
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    assert!(mean.abs_diff(100_000) < 6_500, "{mean}");
}

#[test]
fn a_host_is_away_as_often_and_as_long_as_the_stalls_say() {
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let config = Config {
        stalls: Stalls {
            share: Ratio::from_billionths(100_000_000),
            mean: Span::from_us(200),
        },
        ..exact(links, vec![ping(Span::from_ms(10))], 101)
    };
    let (_, notes) = run(&config);
    // Those of the last instants are still under way.
    let extra: Vec<u64> = notes
        .echoes
        .iter()
        .take(10_000)
        .map(|e| e.round_trip.as_ns() - 20_000_000)
        .collect();
    // 10 000 round trips, each with two packets that a host receives: of both neither is stalled in
    // 0.9 * 0.9 = 81 % of them, with a deviation of sqrt(10 000 * 0.81 * 0.19) = 39.
    let free = extra.iter().filter(|ns| **ns == 0).count();
    assert_eq!(extra.len(), 10_000);
    assert!(free.abs_diff(8_100) < 5 * 39, "{free}");
    // 20 000 packets wait 0.1 * 200 us in the mean. The variance of one is 2 * 0.1 * 200^2 - 20^2 =
    // 87^2 us^2, so that of a mean round trip, of two, deviates by 87 * sqrt(2 / 10 000) = 1.2 us from 40.
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    assert!(mean.abs_diff(40_000) < 5 * 1_230, "{mean}");
}

#[test]
fn a_constant_rate_source_keeps_it_exactly() {
    // 1000-byte IP packets at 3 Mbit/s: one in 8/3 ms, 3750 in 10 s and one at the start.
    let udp = Udp::constant(mbit(3), 972);
    let flow = Flow::new(Traffic::Udp(udp), dumbbell_route(Span::ZERO));
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo"));
    let (simulation, notes) = run(&exact(links, vec![flow], 10));
    assert_eq!(simulation.totals(0).packets_sent, 3751);
    for datagram in &notes.datagrams {
        // Packet i at i * 8/3 ms, rounded down; 10 ms of delay and 0.8 ms of transmission
        let due = Time::from_ns(datagram.sequence * 8_000_000 / 3);
        assert_eq!(datagram.sent, due);
        assert_eq!(datagram.received.since(due), Span::from_us(10_800));
    }
}

#[test]
fn bursts_and_poisson_sources_have_their_mean_rates() {
    let count = |spacing| {
        let udp = Udp {
            spacing,
            ..Udp::constant(mbit(8), 972)
        };
        let flow = Flow::new(Traffic::Udp(udp), dumbbell_route(Span::ZERO));
        let links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
        let mut simulation = Simulation::new(&exact(links, vec![flow], 100)).unwrap();
        simulation.run(&mut ());
        simulation.totals(0).packets_sent
    };
    // 8 Mbit/s in packets of 8000 bits: 1000 a second
    let (on, off) = (Span::from_ms(100), Span::from_ms(300));
    // 250 bursts of exactly 100 packets, at 0, 1 ... 99 ms
    assert_eq!(count(Spacing::OnOff { on, off }), 25_000 + 1);
    // Standard deviation sqrt(100000) = 316; four of them
    assert!(count(Spacing::Poisson).abs_diff(100_000) < 1_300);
    // About 250 cycles; the length of a burst deviates by its mean: 100 * sqrt(250) = 1581,
    // and the number of cycles by 250 * sqrt(0.625 / 250) = 12.5, 1250 packets. Three of both.
    assert!(count(Spacing::RandomOnOff { on, off }).abs_diff(25_000) < 6_000);
}

#[test]
fn listed_datagrams_are_sent_at_their_own_instants_and_sizes() {
    let datagram = |after, payload, ecn| ListedDatagram {
        after: Span::from_ms(after),
        payload,
        ecn,
    };
    let list = [
        datagram(5, 72, Ecn::NotEct),
        datagram(5, 972, Ecn::Ect0),
        datagram(2000, 472, Ecn::Ce),
    ];
    let mut udp = Udp::constant(mbit(1), 1);
    udp.listed = Some(list.into());
    let flow = Flow::new(Traffic::Udp(udp), dumbbell_route(Span::ZERO));
    let links = dumbbell(mbit(1), Span::from_ms(20), &queue("fifo"));
    let (simulation, notes) = run(&exact(links.clone(), vec![flow.clone()], 5));
    let totals = simulation.totals(0);
    assert_eq!((totals.packets_sent, totals.bytes_received), (3, 1516));
    let times: Vec<_> = notes
        .datagrams
        .iter()
        .map(|d| (d.sent, d.received))
        .collect();
    // 100, 1000 and 500 bytes take 0.8, 8 and 4 ms at 1 Mbit/s, behind 10 ms; the second waits for the first.
    let at = |us| Time::ZERO + Span::from_us(us);
    let expected = [(5000, 15_800), (5000, 23_800), (2_000_000, 2_014_000)];
    assert_eq!(
        times,
        expected.map(|(sent, received)| (at(sent), at(received)))
    );

    let mut back = flow;
    let Traffic::Udp(udp) = &mut back.traffic else {
        unreachable!("it was made above");
    };
    udp.listed = Some([list[2], list[0]].into());
    let error = Simulation::new(&exact(links, vec![back], 5)).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with("datagrams of flow 0 goes back"), "{text}");
}

#[test]
fn a_bulk_flow_fills_the_link() {
    for (name, text) in [
        ("reno", "fifo limit 100"),
        ("cubic", "fifo limit 100"),
        ("cubic", "fq_codel"),
        ("bbr", "fifo limit 100"),
    ] {
        let links = dumbbell(mbit(10), Span::from_ms(20), &queue(text));
        let config = exact(links, vec![bulk(name)], 20);
        let (simulation, _) = run(&config);
        // 1448 of 1500 bytes are payload; a second for slow start, 1 % for what BBR drains
        let capacity = 10_000_000 / 8 * 19 * 1448 / 1500;
        let received = simulation.totals(0).bytes_received;
        assert!(received > capacity * 98 / 100, "{name} {text}: {received}");
    }
}

#[test]
fn equal_flows_share_equally_over_fq_codel() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fq_codel"));
    let config = Config {
        jitter: sluice_sim::DEFAULT_JITTER,
        ..exact(links, vec![bulk("cubic"); 4], 60)
    };
    let (simulation, _) = run(&config);
    let shares: Vec<f64> = (0..4)
        .map(|f| simulation.totals(f).bytes_received as f64)
        .collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    // Jain's index; 1 is equal. Round robin by bytes leaves only the starts unequal.
    assert!(sum * sum / (4.0 * squares) > 0.999, "{shares:?}");
}

#[test]
fn a_queue_of_the_bandwidth_delay_product_adds_about_one_rtt() {
    // 10 Mbit/s * 100 ms = 83 packets of 1500 bytes. A Reno flow keeps the queue between
    // nearly empty and full, so the ping sees between 100 and 200 ms and about 150 on average.
    let links = dumbbell(mbit(10), Span::from_ms(100), &queue("fifo limit 83"));
    let flows = vec![bulk("reno"), ping(Span::from_ms(50))];
    let (_, notes) = run(&exact(links, flows, 60));
    let late: Vec<u64> = notes
        .echoes
        .iter()
        .filter(|e| e.sent > Time::ZERO + Span::from_secs(10))
        .map(|e| e.round_trip.as_ns() / 1_000_000)
        .collect();
    assert!(late.iter().all(|ms| (100..=201).contains(ms)));
    let mean = late.iter().sum::<u64>() / late.len() as u64;
    assert!((130..180).contains(&mean), "{mean}");
}

#[test]
fn packets_are_conserved() {
    let links = dumbbell(mbit(20), Span::from_ms(30), &queue("codel limit 50"));
    let mut flows = vec![bulk("cubic"), bulk("bbr"), bulk("prague"), bulk("reno")];
    flows.push(ping(Span::from_ms(7)));
    let mut udp = Udp::constant(mbit(5), 500);
    udp.direction = Direction::Down;
    flows.push(Flow::new(Traffic::Udp(udp), dumbbell_route(Span::ZERO)));
    let web = Web::new(Span::from_ms(300));
    flows.push(Flow::new(
        Traffic::Web(web.into()),
        dumbbell_route(Span::ZERO),
    ));
    let (simulation, notes) = run(&exact(links, flows, 20));
    let (mut sent, mut received, mut dropped) = (0, 0, 0);
    for flow in 0..7 {
        let totals = simulation.totals(flow);
        sent += totals.packets_sent;
        received += totals.packets_received;
        dropped += totals.packets_dropped;
    }
    let (in_flight, _) = simulation.in_flight();
    assert_eq!(sent, received + dropped + in_flight as u64);
    assert_eq!(notes.dropped, dropped);
    assert_eq!(notes.arrivals, sent);
    let waiting: u64 = (0..2).map(|link| simulation.backlog(link).packets).sum();
    assert_eq!(notes.arrivals, notes.dequeued + notes.dropped + waiting);
    assert!(dropped > 0 && in_flight > 0);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let links = dumbbell(mbit(20), Span::from_ms(30), &queue("fq_codel"));
    let mut flows = vec![bulk("cubic"), bulk("bbr"), ping(Span::from_ms(10))];
    let web = Web::new(Span::from_ms(200));
    flows.push(Flow::new(
        Traffic::Web(web.into()),
        dumbbell_route(Span::ZERO),
    ));
    let config = |seed| Config {
        seed,
        jitter: sluice_sim::DEFAULT_JITTER,
        sample_interval: Some(Span::from_ms(50)),
        ..exact(links.clone(), flows.clone(), 10)
    };
    let digest = |seed| run(&config(seed)).1.digest;
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// The same run on every machine, in debug and release builds alike. What changes the number changes
/// the result of everybody's simulations: it needs a line in the changelog.
#[test]
fn the_run_of_a_seed_is_what_it_was() {
    assert_eq!(run(&every_kind()).1.digest, DIGEST, "see above");
}

#[test]
fn looking_ahead_changes_nothing() {
    // Among more than 256 flows the simulator looks at what events need before it takes them. Those
    // added here start after the end, so that nothing else is different.
    let mut config = every_kind();
    let late = Flow {
        start: Time::ZERO + config.duration + Span::from_secs(1),
        ..bulk("cubic")
    };
    config.flows.extend(vec![late; 300]);
    assert_eq!(run(&config).1.digest, DIGEST);
}

fn every_kind() -> Config {
    let links = dumbbell(mbit(20), Span::from_ms(30), &queue("fq_codel"));
    let mut flows: Vec<Flow> = cc::REGISTRY.iter().map(|cc| bulk(cc.name)).collect();
    flows.push(ping(Span::from_ms(10)));
    flows.push(Flow::new(
        Traffic::Web(Web::new(Span::from_ms(200)).into()),
        dumbbell_route(Span::ZERO),
    ));
    Config {
        duration: Span::from_secs(10),
        sample_interval: Some(Span::from_ms(50)),
        links,
        flows,
        ..Config::default()
    }
}

const DIGEST: u64 = 11_123_353_952_111_228_183;

#[test]
fn the_shortest_transfer_goes_first_where_the_queue_asks_for_it() {
    // Ten transfers of 1 MB fill the queue; one of 50 kB that starts among them has least to send
    // and passes all that waits, so its packets never wait for more than the one on the wire.
    let completion = |text: &str| {
        let links = dumbbell(mbit(10), Span::from_ms(20), &queue(text));
        let sized = |bytes, at| {
            let mut tcp = Tcp::bulk(&cc::CUBIC);
            tcp.bytes = Some(bytes);
            Flow {
                start: Time::ZERO + Span::from_ms(at),
                ..Flow::new(Traffic::Tcp(tcp.into()), dumbbell_route(Span::ZERO))
            }
        };
        let mut flows = vec![sized(1_000_000, 0); 10];
        flows.push(sized(50_000, 1000));
        let (_, notes) = run(&exact(links, flows, 10));
        let (_, done) = notes
            .completions
            .iter()
            .find(|(flow, _)| *flow == 10)
            .unwrap();
        done.end.since(done.start)
    };
    // 50 kB take 42 ms at 10 Mbit/s, four round trips of 20 ms (handshake, 10, 20 and 5 segments)
    // and the waits for a packet that is on the wire.
    assert!(completion("pifo rank srpt limit 1000") < Span::from_ms(150));
    assert!(completion("fifo limit 1000") > Span::from_ms(500));
}

#[test]
fn running_in_steps_changes_nothing() {
    let links = dumbbell(mbit(20), Span::from_ms(30), &queue("codel"));
    let config = Config {
        jitter: sluice_sim::DEFAULT_JITTER,
        ..exact(links, vec![bulk("cubic"), bulk("reno")], 10)
    };
    let whole = run(&config).1.digest;
    let mut simulation = Simulation::new(&config).unwrap();
    let mut notes = Notes::default();
    let mut at = Time::ZERO;
    loop {
        at += Span::from_us(7_777);
        if simulation.run_until(at, &mut notes) {
            break;
        }
        assert_eq!(simulation.now(), at);
    }
    assert_eq!(notes.digest, whole);
}

#[test]
fn a_rate_schedule_takes_effect_at_its_instants() {
    let mut links = dumbbell(mbit(10), Span::from_ms(10), &queue("fifo"));
    let second = |s| Time::ZERO + Span::from_secs(s);
    let steps = [
        (Time::ZERO, mbit(10)),
        (second(2), mbit(1)),
        (second(4), mbit(4)),
    ];
    links[0] = links[0].clone().with_rates(&steps).unwrap();
    // 8 Mbit/s offered: 1000 packets a second of 8000 bits
    let flow = Flow::new(
        Traffic::Udp(Udp::constant(mbit(8), 972)),
        dumbbell_route(Span::ZERO),
    );
    let mut simulation = Simulation::new(&exact(links, vec![flow], 6)).unwrap();
    let mut sent = Vec::new();
    for s in 1..=6 {
        simulation.run_until(second(s), &mut ());
        sent.push(simulation.sent_bytes(0) / 1000);
    }
    // All of it, then 125 a second, then 500. A packet that is being sent at a boundary counts
    // after it.
    let gains: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    for (gain, expected) in gains.into_iter().zip([1000, 125, 125, 500, 500]) {
        assert!(gain.abs_diff(expected) <= 1, "{sent:?}");
    }
}

#[test]
fn a_shorter_delay_lets_no_packet_overtake() {
    let mut links = dumbbell(Rate::UNLIMITED, Span::from_ms(100), &queue("fifo"));
    links[0].delays = vec![(Time::ZERO + Span::from_ms(500), Span::from_ms(1))];
    let flow = Flow::new(
        Traffic::Udp(Udp::constant(mbit(8), 972)),
        dumbbell_route(Span::ZERO),
    );
    let (_, notes) = run(&exact(links, vec![flow], 1));
    let mut last = Time::ZERO;
    for datagram in &notes.datagrams {
        assert!(datagram.received >= last);
        last = datagram.received;
        // Until 500 ms 50 ms each; then as early as the last of those allows.
        let expected = if datagram.sent < Time::ZERO + Span::from_ms(500) {
            datagram.sent + Span::from_ms(50)
        } else {
            (datagram.sent + Span::from_ms(1)).max(Time::ZERO + Span::from_ms(549))
        };
        assert_eq!(datagram.received, expected, "{}", datagram.sequence);
    }
}

#[test]
fn a_sized_transfer_reports_its_completion_in_either_direction() {
    for direction in [Direction::Up, Direction::Down] {
        let links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
        let mut flow = bulk("cubic");
        if let Traffic::Tcp(tcp) = &mut flow.traffic {
            tcp.bytes = Some(10 * 1448);
            tcp.direction = direction;
        }
        flow.start = Time::ZERO + Span::from_ms(500);
        let (simulation, notes) = run(&exact(links, vec![flow], 2));
        let (_, done) = notes.completions[0];
        assert_eq!(done.bytes, 14_480);
        assert_eq!(done.start, Time::ZERO + Span::from_ms(500));
        // The handshake takes a round trip, the initial window of ten segments half of one (a
        // server waits for the client's ACK first), and 10 * 120 us of transmission.
        let trips = if direction == Direction::Up { 30 } else { 40 };
        let expected = Span::from_ms(trips) + Span::from_us(1200);
        let seen = done.end.since(done.start);
        // Transmission of the handshake's segments, under 5 us each
        assert!(
            seen >= expected && seen < expected + Span::from_us(20),
            "{seen}"
        );
        assert_eq!(simulation.totals(0).bytes_received, 14_480);
        assert_eq!(simulation.totals(0).failures, 0);
    }
}

#[test]
fn a_flow_that_stops_delivers_what_it_sent_and_ends() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo limit 100"));
    let mut flow = bulk("cubic");
    flow.stop = Some(Time::ZERO + Span::from_secs(5));
    let (simulation, notes) = run(&exact(links, vec![flow], 10));
    assert_eq!(notes.completions.len(), 1);
    let (in_flight, events) = simulation.in_flight();
    assert_eq!(in_flight, 0);
    // At most the two ends' last timers, which find nothing to do
    assert!(events <= 2, "{events}");
}

#[test]
fn an_application_with_a_clock_sends_at_its_own_rate() {
    // 12500 bytes each 100 ms are 1 Mbit/s of payload.
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo"));
    let mut flow = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut flow.traffic {
        tcp.writes = Some((12_500, Span::from_ms(100)));
    }
    let (simulation, _) = run(&exact(links, vec![flow], 10));
    // Written at 0 ... 9.9 s; the write at 10 s is the 101st and does not arrive.
    assert_eq!(simulation.totals(0).bytes_received, 100 * 12_500);
}

#[test]
fn pages_are_fetched_and_their_connections_cleared_away() {
    let links = dumbbell(mbit(100), Span::from_ms(20), &queue("fq_codel"));
    let web = Web {
        objects: 4,
        size: Size::Fixed(20_000),
        ..Web::new(Span::from_ms(100))
    };
    let flow = Flow::new(Traffic::Web(web.into()), dumbbell_route(Span::ZERO));
    let (simulation, notes) = run(&exact(links, vec![flow], 100));
    let totals = simulation.totals(0);
    // Poisson with mean 1000; five standard deviations
    assert!(
        totals.completions.abs_diff(1000) < 160,
        "{}",
        totals.completions
    );
    assert_eq!(totals.completions, notes.completions.len() as u64);
    for (_, page) in &notes.completions {
        assert_eq!(page.bytes, 80_000);
        // Handshake, request, and 20000 bytes in two flights (14480 in the first): three round
        // trips at least
        assert!(page.end.since(page.start) >= Span::from_ms(60));
    }
    assert_eq!(totals.failures, 0);
}

#[test]
fn marks_reach_the_sender() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("codel ecn"));
    let mut flow = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut flow.traffic {
        tcp.config.ecn = sluice_tcp::EcnMode::Classic;
    }
    let (simulation, _) = run(&exact(links, vec![flow], 20));
    let totals = simulation.totals(0);
    assert!(totals.packets_marked > 0);
    assert_eq!((totals.packets_dropped, totals.retransmits), (0, 0));
}

#[test]
fn samples_come_at_their_interval() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo limit 50"));
    let config = Config {
        sample_interval: Some(Span::from_ms(100)),
        ..exact(links, vec![bulk("reno")], 5)
    };
    let (_, notes) = run(&config);
    assert_eq!(notes.tcp.len(), 50);
    assert_eq!(notes.backlogs.len(), 100);
    for (i, (flow, sample)) in notes.tcp.iter().enumerate() {
        assert_eq!(*flow, 0);
        assert_eq!(
            sample.time,
            Time::ZERO + Span::from_ms(100 * (i as u64 + 1))
        );
    }
    let received: Vec<u64> = notes.tcp.iter().map(|(_, s)| s.received).collect();
    assert!(received.is_sorted());
    assert!(notes.backlogs.iter().all(|(_, _, packets)| *packets <= 50));
}

#[test]
fn jitter_of_a_transmission_time_breaks_the_phase_of_equal_flows() {
    // Floyd and Jacobson 1992: packets of flows with equal round trips arrive at fixed phases of
    // the bottleneck's departures, so a run repeats itself whatever the seed. A random delay of
    // up to one transmission time at the hosts (6 ms here) ends that.
    let received = |jitter, seed| {
        let links = dumbbell(mbit(2), Span::from_ms(50), &queue("fifo limit 15"));
        let config = Config {
            jitter,
            seed,
            ..exact(links, vec![bulk("reno"), bulk("reno")], 60)
        };
        let mut simulation = Simulation::new(&config).unwrap();
        simulation.run(&mut ());
        [0, 1].map(|flow| simulation.totals(flow).bytes_received)
    };
    assert_eq!(received(Span::ZERO, 1), received(Span::ZERO, 2));
    let random = received(Span::from_ms(6), 1);
    assert_ne!(random, received(Span::from_ms(6), 2));
    // Together they fill the link all the same: 1448 of 1500 bytes at 2 Mbit/s for 60 s, less
    // a second of slow start.
    let capacity = 2_000_000 / 8 * 59 * 1448 / 1500;
    assert!(random[0] + random[1] > capacity * 98 / 100, "{random:?}");
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let base = exact(
        dumbbell(mbit(10), Span::from_ms(20), &queue("fifo")),
        vec![bulk("cubic")],
        10,
    );
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = base.clone();
        change(&mut config);
        Simulation::new(&config).err()
    };
    assert_eq!(refused(&|_| {}), None);
    assert_eq!(
        refused(&|c| c.duration = Span::ZERO),
        Some(ConfigError::NoDuration)
    );
    assert_eq!(
        refused(&|c| c.flows[0].route.forward = vec![2]),
        Some(ConfigError::NoSuchLink {
            flow: 0,
            link: 2,
            links: 2
        })
    );
    assert_eq!(
        refused(&|c| c.flows[0].route.forward = vec![0, 1, 0]),
        Some(ConfigError::Loop { flow: 0, link: 0 })
    );
    assert_eq!(
        refused(&|c| c.flows[0].route = Route::default()),
        Some(ConfigError::NoTime { flow: 0 })
    );
    assert_eq!(
        refused(&|c| c.flows[0].dscp = 64),
        Some(ConfigError::Dscp { flow: 0, dscp: 64 })
    );
    let error = refused(&|c| {
        if let Traffic::Tcp(tcp) = &mut c.flows[0].traffic {
            tcp.config.mss = 1;
        }
    })
    .unwrap();
    assert_eq!(
        error.to_string(),
        "flow 0: mss of 1 bytes (64 to 65000 are possible)"
    );
    let at = |s| Time::ZERO + Span::from_secs(s);
    let back = refused(&|c| {
        c.links[1].delays = vec![(at(5), Span::ZERO), (at(3), Span::ZERO)];
    });
    assert_eq!(
        back.unwrap().to_string(),
        "delays of link 1 goes back from 5.000000000s to 3.000000000s"
    );
    assert_eq!(
        base.links[0].clone().with_rates(&[]).err(),
        Some(ConfigError::Schedule)
    );
    let command = refused(&|c| {
        c.routers = vec![Router {
            commands: "pipe 1 config bw 1Mbit/s\npipe 1 cofnig".into(),
            ..Router::default()
        }];
    });
    assert!(matches!(
        command,
        Some(ConfigError::Command { router: 0, .. })
    ));
}

fn router(commands: &str) -> Router {
    Router {
        commands: commands.into(),
        ..Router::default()
    }
}

#[test]
fn a_router_applies_its_rules_and_pipes_in_both_directions() {
    // Echoes pass through 10 ms of delay in each direction, UDP is denied.
    let commands = "pipe 1 config delay 10\n\
                    pipe 2 config delay 15\n\
                    add 100 deny udp from any to any\n\
                    add 200 pipe 1 ip from any to any in recv clients\n\
                    add 300 pipe 2 ip from any to any in recv servers\n\
                    add 400 allow ip from any to any out";
    let route = Route {
        forward: vec![0],
        backward: vec![0],
        ..Route::default()
    };
    let mut echo = ping(Span::from_ms(100));
    echo.route = route.clone();
    let udp = Flow::new(Traffic::Udp(Udp::constant(mbit(1), 972)), route);
    let config = Config {
        routers: vec![router(commands)],
        ..exact(Vec::new(), vec![echo, udp], 1)
    };
    let (simulation, notes) = run(&config);
    assert_eq!(notes.echoes.len(), 10);
    for echo in &notes.echoes {
        assert_eq!(echo.forward, Span::from_ms(10));
        assert_eq!(echo.round_trip, Span::from_ms(25));
    }
    let udp = simulation.totals(1);
    assert!(udp.packets_sent > 0);
    assert_eq!(udp.packets_dropped, udp.packets_sent);
    assert!(simulation.router(0).is_some());
}

#[test]
fn subscribers_behind_a_mask_get_a_pipe_each() {
    // Two subscribers with two flows each: 2 Mbit/s for every source address.
    let commands = "pipe 1 config bw 2Mbit/s mask src-ip 0xffffffff queue 50\n\
                    add 100 pipe 1 ip from any to any in recv clients\n\
                    add 200 allow ip from any to any";
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let flows = (0..4)
        .map(|i| {
            let mut flow = bulk("cubic");
            // Router 0 is numbered after the two links.
            flow.route.forward = vec![2, 0];
            flow.route.backward = vec![1, 2];
            flow.addresses.0 = format!("192.0.2.{}", 1 + i / 2).parse().unwrap();
            flow
        })
        .collect();
    let config = Config {
        routers: vec![router(commands)],
        jitter: sluice_sim::DEFAULT_JITTER,
        ..exact(links, flows, 30)
    };
    let (simulation, _) = run(&config);
    let received = |flow| simulation.totals(flow).bytes_received;
    for subscriber in [received(0) + received(1), received(2) + received(3)] {
        // 1448 of 1500 bytes of 2 Mbit/s, less a second of slow start
        let capacity = 2_000_000 / 8 * 29 * 1448 / 1500;
        assert!(subscriber > capacity * 98 / 100, "{subscriber}");
        assert!(subscriber < 2_000_000 / 8 * 30);
    }
}

#[test]
fn a_router_executes_later_commands_at_their_time() {
    let mut rules = router(
        "pipe 1 config bw 1Mbit/s\nadd 100 pipe 1 ip from any to any in\n\
         add 200 allow ip from any to any",
    );
    let second = |s| Time::ZERO + Span::from_secs(s);
    rules.later = vec![(second(2), "pipe 1 config bw 4Mbit/s".into())];
    let udp = Udp::constant(mbit(8), 972);
    let route = Route {
        forward: vec![0],
        backward: vec![0],
        ..Route::default()
    };
    let flow = Flow::new(Traffic::Udp(udp), route);
    let config = Config {
        routers: vec![rules],
        ..exact(Vec::new(), vec![flow], 4)
    };
    let mut simulation = Simulation::new(&config).unwrap();
    let mut sent = vec![0];
    for s in 1..=4 {
        simulation.run_until(second(s), &mut ());
        sent.push(simulation.sent_bytes(0) / 1000);
    }
    // 125 packets of 8000 bits a second, then 500
    let gains: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    for (gain, expected) in gains.into_iter().zip([125, 125, 500, 500]) {
        assert!(gain.abs_diff(expected) <= 1, "{sent:?}");
    }
}

#[test]
fn a_link_with_effects_loses_duplicates_and_damages_packets() {
    let mut links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
    let words = "rate 100Mbit/s delay 10ms loss 0.01 duplicate 0.02 corrupt 0.01 jitter 1ms";
    links[0].params = LinkParams::parse(words).unwrap();
    let mut flow = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut flow.traffic {
        tcp.bytes = Some(3_000_000);
    }
    let udp = Flow::new(
        Traffic::Udp(Udp::constant(mbit(8), 972)),
        dumbbell_route(Span::ZERO),
    );
    let (simulation, notes) = run(&exact(links, vec![flow, udp], 100));
    // All bytes of the transfer arrive, once.
    assert_eq!(notes.completions.len(), 1);
    assert_eq!(simulation.totals(0).bytes_received, 3_000_000);
    assert!(simulation.totals(0).retransmits > 0);
    // 100000 datagrams; the deviations of 1000 and 2000 are 31 and 44, taken five times.
    let udp = simulation.totals(1);
    assert!(udp.packets_dropped.abs_diff(1000) < 160, "{udp:?}");
    assert!(udp.packets_duplicated.abs_diff(1980) < 220, "{udp:?}");
    assert!(udp.packets_corrupted.abs_diff(1010) < 160, "{udp:?}");
    let (in_flight, _) = simulation.in_flight();
    assert!(in_flight < 100);
    assert_eq!(
        udp.packets_sent + udp.packets_duplicated,
        udp.packets_received + udp.packets_dropped + udp.packets_corrupted + in_flight as u64
    );
}

#[test]
fn a_queue_from_outside_the_registry_takes_its_place() {
    let links = dumbbell(mbit(1), Span::from_ms(20), &queue("fifo limit 1000"));
    let flow = Flow::new(
        Traffic::Udp(Udp::constant(mbit(8), 972)),
        dumbbell_route(Span::ZERO),
    );
    let mut simulation = Simulation::new(&exact(links, vec![flow], 1)).unwrap();
    simulation.set_queue(0, queue("fifo limit 3").build().unwrap());
    simulation.run(&mut ());
    // With 1000 places 875 would wait; a departure at the last instant may have freed one.
    assert!(simulation.backlog(0).packets <= 3);
}

#[test]
fn the_estimate_is_an_upper_bound_within_a_small_factor() {
    let links = || dumbbell(mbit(10), Span::from_ms(20), &queue("fq_codel"));
    let mut sized = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut sized.traffic {
        tcp.bytes = Some(1_000_000);
    }
    let udp = Flow::new(
        Traffic::Udp(Udp::constant(mbit(2), 500)),
        dumbbell_route(Span::ZERO),
    );
    for flows in [
        vec![bulk("cubic"); 4],
        vec![sized],
        vec![udp, ping(Span::from_ms(10))],
    ] {
        let count = flows.len();
        let config = exact(links(), flows, 30);
        let estimate = config.estimate();
        let (simulation, _) = run(&config);
        let sent: u64 = (0..count).map(|f| simulation.totals(f).packets_sent).sum();
        assert!(estimate.packets >= sent, "{estimate:?} {sent}");
        assert!(estimate.packets <= sent * 2, "{estimate:?} {sent}");
        assert!(estimate.memory_bytes < 100 << 20);
    }
    // An impossible wish is seen before it is tried.
    let mut wish = exact(links(), vec![bulk("cubic"); 2], 1_000_000);
    wish.links[0].params.pipe.rate = mbit(1_000_000);
    // Two windows of 6 MiB each 20 ms for 10^6 s are 4.3e11 segments.
    assert!(wish.estimate().packets > 400_000_000_000);
}
