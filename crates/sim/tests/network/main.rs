//! Whole simulations, compared with values computed by hand.

use sluice_core::link::{LinkParams, Opportunities, RateSource};
use sluice_core::param::Ratio;
use sluice_core::registry::Spec;
use sluice_core::traffic::{HOST_JITTER, ObjectSize, Spacing};
use sluice_core::{DropReason, Ecn, Event, Packet, Rate, Span, Time};
use sluice_sim::{
    Completion, Config, ConfigError, Datagram, Echo, Flow, FlowId, Link, LinkId, LinkSample,
    Listed, ListedDatagram, Observer, Ping, Route, Router, Side, Simulation, Stalls, Tcp,
    TcpSample, Traffic, Udp, Web, dumbbell, dumbbell_route, parking_lot, parking_lot_route,
};
use sluice_tcp::cc;

mod hosts;
mod router;
mod traffic;

fn queue(text: &str) -> Spec {
    Spec::parse(text).unwrap()
}

fn mbit(n: u64) -> Rate {
    Rate::from_bps(n * 1_000_000)
}

fn bulk(name: &str) -> Flow {
    let tcp = Tcp::bulk(cc::find(name).unwrap());
    Flow::new(tcp, dumbbell_route(Span::ZERO))
}

fn ping(interval: Span) -> Flow {
    let ping = Ping {
        interval,
        payload: 56,
        count: None,
        is_udp: false,
    };
    Flow::new(ping, dumbbell_route(Span::ZERO))
}

/// A configuration without jitter, so that times can be computed.
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

/// Records everything.
#[derive(Default)]
struct Notes {
    echoes: Vec<Echo>,
    datagrams: Vec<Datagram>,
    completions: Vec<(FlowId, Completion)>,
    tcp: Vec<(FlowId, TcpSample)>,
    received: Vec<(FlowId, Time, u64)>,
    backlogs: Vec<(LinkId, Time, u64)>,
    arrivals: u64,
    enqueued: u64,
    dequeued: u64,
    dropped: u64,
    /// Order-dependent digest of what was reported.
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
    fn on_received(&mut self, flow: FlowId, now: Time, bytes: u64) {
        self.received.push((flow, now, bytes));
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
    // 84 bytes at 1 Mbit/s take 672 us in each direction; the delays are 20 ms.
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
        // 1448 of 1500 bytes are payload; one second for slow start, 1 % for the draining of BBR
        let capacity = 10_000_000 / 8 * 19 * 1448 / 1500;
        let received = simulation.totals(0).bytes_received;
        assert!(received > capacity * 98 / 100, "{name} {text}: {received}");
    }
}

#[test]
fn equal_flows_share_equally_over_fq_codel() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fq_codel"));
    let config = Config {
        jitter: HOST_JITTER,
        ..exact(links, vec![bulk("cubic"); 4], 60)
    };
    let (simulation, _) = run(&config);
    let shares: Vec<f64> = (0..4)
        .map(|f| simulation.totals(f).bytes_received as f64)
        .collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    // Jain's index; 1 is equal. With round robin by bytes only the starts are unequal.
    assert!(sum * sum / (4.0 * squares) > 0.999, "{shares:?}");
}

#[test]
fn a_queue_of_the_bandwidth_delay_product_adds_about_one_rtt() {
    // 10 Mbit/s * 100 ms = 83 packets of 1500 bytes. A Reno flow keeps the queue between nearly
    // empty and full, so pings take between 100 and 200 ms, and about 150 ms on average.
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
    udp.sender = Side::Server;
    flows.push(Flow::new(udp, dumbbell_route(Span::ZERO)));
    let web = Web::new(Span::from_ms(300));
    flows.push(Flow::new(web, dumbbell_route(Span::ZERO)));
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
    flows.push(Flow::new(web, dumbbell_route(Span::ZERO)));
    let config = |seed| Config {
        seed,
        jitter: HOST_JITTER,
        sample_interval: Some(Span::from_ms(50)),
        ..exact(links.clone(), flows.clone(), 10)
    };
    let digest = |seed| run(&config(seed)).1.digest;
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// A run is the same on every machine, in debug and in release builds. A change of this digest
/// changes the results of all simulations and needs a line in the changelog.
#[test]
fn the_run_of_a_seed_is_what_it_was() {
    assert_eq!(run(&every_kind()).1.digest, DIGEST, "see above");
}

#[test]
fn looking_ahead_changes_nothing() {
    // With more than 256 flows the simulator prefetches what events need. The flows added here
    // start after the end, so that nothing else is different.
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
    let mut flows = CONGESTION_CONTROLS.map(bulk).to_vec();
    flows.push(ping(Span::from_ms(10)));
    flows.push(Flow::new(
        Web::new(Span::from_ms(200)),
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

/// The algorithms of the flows behind [`DIGEST`]: a separate list, so that a new algorithm in the
/// registry does not change the digest.
const CONGESTION_CONTROLS: [&str; 7] = [
    "reno",
    "cubic",
    "bbr",
    "dctcp",
    "prague",
    "ledbat",
    "ledbat_5ms",
];

const DIGEST: u64 = 15_097_024_049_025_942_643;

#[test]
fn running_in_steps_changes_nothing() {
    let links = dumbbell(mbit(20), Span::from_ms(30), &queue("codel"));
    let config = Config {
        jitter: HOST_JITTER,
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
    // 8 Mbit/s offered: 1000 packets of 8000 bits per second
    let flow = Flow::new(Udp::constant(mbit(8), 972), dumbbell_route(Span::ZERO));
    let mut simulation = Simulation::new(&exact(links, vec![flow], 6)).unwrap();
    let mut sent = Vec::new();
    for s in 1..=6 {
        simulation.run_until(second(s), &mut ());
        sent.push(simulation.sent_bytes(0) / 1000);
    }
    // All of them, then 125 per second, then 500. A packet that is being sent at a boundary counts
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
    let flow = Flow::new(Udp::constant(mbit(8), 972), dumbbell_route(Span::ZERO));
    let (_, notes) = run(&exact(links, vec![flow], 1));
    let mut last = Time::ZERO;
    for datagram in &notes.datagrams {
        assert!(datagram.received >= last);
        last = datagram.received;
        // Until 500 ms the delay is 50 ms; later packets arrive as early as the last of those
        // allows.
        let expected = if datagram.sent < Time::ZERO + Span::from_ms(500) {
            datagram.sent + Span::from_ms(50)
        } else {
            (datagram.sent + Span::from_ms(1)).max(Time::ZERO + Span::from_ms(549))
        };
        assert_eq!(datagram.received, expected, "{}", datagram.sequence);
    }
}

#[test]
fn a_change_of_the_delay_gives_no_opportunity_of_a_trace_twice() {
    let mut links = dumbbell(Rate::UNLIMITED, Span::from_ms(2), &queue("fifo"));
    let ms = |n| Time::ZERO + Span::from_ms(n);
    // With jitter, the delay is that of the link itself. It changes while a packet waits for its
    // second opportunity.
    links[0].params = LinkParams::parse("delay 1ms jitter 100us").unwrap();
    links[0].files.rate = Some(RateSource::Opportunities(
        Opportunities::parse("10").unwrap(),
    ));
    links[0].delays = (1..99)
        .map(|n| (ms(10 * n + 5), Span::from_ms(1 + n % 2)))
        .collect();
    // Ten packets of 1000 bytes for each opportunity.
    let flow = Flow::new(Udp::constant(mbit(8), 972), dumbbell_route(Span::ZERO));
    let (simulation, _) = run(&exact(links, vec![flow], 1));
    // 99 opportunities, from 10 ms to 990 ms, carry 148 500 bytes; that of 1000 ms is too late.
    assert_eq!(simulation.totals(0).packets_received, 148);
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
    let more_than_all = Ratio::from_billionths(1_000_000_001);
    assert_eq!(
        refused(&|c| c.stalls.share = more_than_all),
        Some(ConfigError::Stalls {
            share: more_than_all
        })
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
        "the times of the delays of link 1 decrease from 5.000000000s to 3.000000000s"
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

#[test]
fn a_link_with_effects_loses_duplicates_and_damages_packets() {
    let mut links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
    let words = "rate 100Mbit/s delay 10ms loss 0.01 duplicate 0.02 corrupt 0.01 jitter 1ms";
    links[0].params = LinkParams::parse(words).unwrap();
    let mut flow = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut flow.traffic {
        tcp.bytes = Some(3_000_000);
    }
    let udp = Flow::new(Udp::constant(mbit(8), 972), dumbbell_route(Span::ZERO));
    let (simulation, notes) = run(&exact(links, vec![flow, udp], 100));
    // All bytes of the transfer arrive exactly once.
    assert_eq!(notes.completions.len(), 1);
    assert_eq!(simulation.totals(0).bytes_received, 3_000_000);
    assert!(simulation.totals(0).retransmits > 0);
    // 100000 datagrams; the standard deviations of 1000 and 2000 are 31 and 44; five of them.
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
    let flow = Flow::new(Udp::constant(mbit(8), 972), dumbbell_route(Span::ZERO));
    let mut simulation = Simulation::new(&exact(links, vec![flow], 1)).unwrap();
    simulation.set_queue(0, queue("fifo limit 3").build().unwrap());
    simulation.run(&mut ());
    // With room for 1000 packets, 875 would wait; a departure at the last instant may have freed
    // one place.
    assert!(simulation.backlog(0).packets <= 3);
}

#[test]
fn the_estimate_is_an_upper_bound_within_a_small_factor() {
    let links = || dumbbell(mbit(10), Span::from_ms(20), &queue("fq_codel"));
    let mut sized = bulk("cubic");
    if let Traffic::Tcp(tcp) = &mut sized.traffic {
        tcp.bytes = Some(1_000_000);
    }
    let udp = Flow::new(Udp::constant(mbit(2), 500), dumbbell_route(Span::ZERO));
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
    // Ten thousand flows share the link: 10 Gbit/s carry 2.5e9 bytes in 2 s, 1.7 million segments
    // of 1500 bytes, with an ACK for every second one.
    let mut many = exact(links(), vec![bulk("cubic"); 10_000], 2);
    for link in &mut many.links {
        link.params.pipe.rate = mbit(10_000);
    }
    let most = many.estimate();
    assert!((2_500_000..5_000_000).contains(&most.packets), "{most:?}");
    assert!(most.memory_bytes < 1 << 30, "{most:?}");
    // An impossible run is refused before it starts.
    let mut wish = exact(links(), vec![bulk("cubic"); 2], 1_000_000);
    wish.links[0].params.pipe.rate = mbit(1_000_000);
    // Two windows of 6 MiB per 20 ms for 10^6 s are 4.3e11 segments.
    assert!(wish.estimate().packets > 400_000_000_000);
}
