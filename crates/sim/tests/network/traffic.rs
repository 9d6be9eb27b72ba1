//! What sources send, and when transfers are complete.

use super::*;

#[test]
fn a_constant_rate_source_keeps_it_exactly() {
    // 1000-byte IP packets at 3 Mbit/s: one in 8/3 ms, 3750 in 10 s and one at the start.
    let udp = Udp::constant(mbit(3), 972);
    let flow = Flow::new(udp, dumbbell_route(Span::ZERO));
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
        let flow = Flow::new(udp, dumbbell_route(Span::ZERO));
        let links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
        let mut simulation = Simulation::new(&exact(links, vec![flow], 100)).unwrap();
        simulation.run(&mut ());
        simulation.totals(0).packets_sent
    };
    // 8 Mbit/s in packets of 8000 bits: 1000 per second
    let (on, off) = (Span::from_ms(100), Span::from_ms(300));
    // 250 bursts of exactly 100 packets, at 0, 1 ... 99 ms
    assert_eq!(count(Spacing::OnOff { on, off }), 25_000 + 1);
    // Standard deviation sqrt(100000) = 316; four of them
    assert!(count(Spacing::Poisson).abs_diff(100_000) < 1_300);
    // About 250 cycles. The standard deviation of a burst is its mean: 100 * sqrt(250) = 1581; that
    // of the number of cycles is 250 * sqrt(0.625 / 250) = 12.5, 1250 packets. Three of both.
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
    let listed = |datagrams: &[ListedDatagram]| Listed {
        datagrams: datagrams.into(),
        sender: Side::Client,
    };
    let flow = |datagrams| Flow::new(listed(datagrams), dumbbell_route(Span::ZERO));
    let links = dumbbell(mbit(1), Span::from_ms(20), &queue("fifo"));
    let (simulation, notes) = run(&exact(links.clone(), vec![flow(&list)], 5));
    let totals = simulation.totals(0);
    assert_eq!((totals.packets_sent, totals.bytes_received), (3, 1516));
    let times: Vec<_> = notes
        .datagrams
        .iter()
        .map(|d| (d.sent, d.received))
        .collect();
    // 100, 1000 and 500 bytes take 0.8, 8 and 4 ms at 1 Mbit/s, and the delay is 10 ms. The second
    // waits for the first.
    let at = |us| Time::ZERO + Span::from_us(us);
    let expected = [(5000, 15_800), (5000, 23_800), (2_000_000, 2_014_000)];
    assert_eq!(
        times,
        expected.map(|(sent, received)| (at(sent), at(received)))
    );

    let back = flow(&[list[2], list[0]]);
    let error = Simulation::new(&exact(links, vec![back], 5)).err().unwrap();
    let text = error.to_string();
    assert!(
        text.starts_with("the times of the datagrams of flow 0 decrease"),
        "{text}"
    );
}

#[test]
fn the_shortest_transfer_goes_first_where_the_queue_asks_for_it() {
    // Ten transfers of 1 MB fill the queue. One of 50 kB has the least to send, so its packets
    // overtake all others and wait only for the packet on the wire.
    let completion = |text: &str| {
        let links = dumbbell(mbit(10), Span::from_ms(20), &queue(text));
        let sized = |bytes, at| {
            let mut tcp = Tcp::bulk(&cc::CUBIC);
            tcp.bytes = Some(bytes);
            Flow {
                start: Time::ZERO + Span::from_ms(at),
                ..Flow::new(tcp, dumbbell_route(Span::ZERO))
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
    // and waits for packets on the wire.
    assert!(completion("pifo rank srpt limit 1000") < Span::from_ms(150));
    assert!(completion("fifo limit 1000") > Span::from_ms(500));
}

#[test]
fn a_sized_transfer_reports_its_completion_in_either_direction() {
    for sender in [Side::Client, Side::Server] {
        let links = dumbbell(mbit(100), Span::from_ms(20), &queue("fifo"));
        let mut flow = bulk("cubic");
        if let Traffic::Tcp(tcp) = &mut flow.traffic {
            tcp.bytes = Some(10 * 1448);
            tcp.sender = sender;
        }
        flow.start = Time::ZERO + Span::from_ms(500);
        let (simulation, notes) = run(&exact(links, vec![flow], 2));
        let (_, done) = notes.completions[0];
        assert_eq!(done.bytes, 14_480);
        assert_eq!(done.start, Time::ZERO + Span::from_ms(500));
        // The handshake takes one round trip, the initial window of ten segments half of one (a
        // server waits for the client's ACK first), and transmission 10 * 120 us.
        let trips = if sender == Side::Client { 30 } else { 40 };
        let expected = Span::from_ms(trips) + Span::from_us(1200);
        let seen = done.end.since(done.start);
        // Transmission of the handshake's segments: under 5 us each
        assert!(
            seen >= expected && seen < expected + Span::from_us(20),
            "{seen}"
        );
        assert_eq!(simulation.totals(0).bytes_received, 14_480);
        assert_eq!(simulation.totals(0).failures, 0);
    }
}

#[test]
fn a_flow_that_stops_is_aborted_and_what_it_sent_arrives() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo limit 100"));
    let mut flow = bulk("cubic");
    flow.stop = Some(Time::ZERO + Span::from_secs(5));
    let (simulation, notes) = run(&exact(links, vec![flow], 10));
    // As from a live run: an aborted transfer is neither complete nor a failure.
    assert!(notes.completions.is_empty());
    assert_eq!(simulation.totals(0).failures, 0);
    let (in_flight, events) = simulation.in_flight();
    assert_eq!(in_flight, 0);
    // At most the last timers of the two ends, which have no effect
    assert!(events <= 2, "{events}");
}

#[test]
fn the_payload_of_a_transfer_is_reported_when_its_flow_stops() {
    let links = dumbbell(mbit(10), Span::from_ms(20), &queue("fifo limit 1000"));
    // No packet arrives at this instant: every transmission takes a multiple of 0.8 us.
    let stop = Time::ZERO + Span::from_us(5_432_107);
    let mut flows = vec![bulk("cubic"), bulk("cubic")];
    flows[0].stop = Some(stop);
    // This one is complete when it stops.
    let Traffic::Tcp(tcp) = &mut flows[1].traffic else {
        panic!("a bulk flow is a TCP transfer");
    };
    tcp.bytes = Some(14_480);
    flows[1].stop = Some(stop);
    let config = exact(links, flows, 10);
    let (_, notes) = run(&config);
    let mut simulation = Simulation::new(&config).unwrap();
    simulation.run_until(stop, &mut ());
    let arrived = simulation.totals(0).bytes_received;
    assert!(arrived > 1_000_000, "{arrived}");
    assert_eq!(notes.received, [(0, stop, arrived)]);
}

/// Counts the packets of data that hosts send after an instant.
struct SentAfter(Time, u64);

impl Observer for SentAfter {
    fn hears_packets(&self) -> bool {
        true
    }
    fn on_arrive(&mut self, _: LinkId, now: Time, packet: &Packet, _: FlowId) {
        // Requests have 392 bytes; all others without data are shorter.
        self.1 += u64::from(now > self.0 && packet.len > 400);
    }
}

#[test]
fn pages_that_are_not_complete_are_given_up_when_their_flow_stops() {
    // 200 kB per second on average; 125 kB fit through the link.
    let links = dumbbell(mbit(1), Span::from_ms(20), &queue("fifo limit 1000"));
    let web = Web {
        objects: 2,
        size: ObjectSize::Fixed(50_000),
        ..Web::new(Span::from_ms(500))
    };
    let mut flow = Flow::new(web, dumbbell_route(Span::ZERO));
    let stop = Time::ZERO + Span::from_secs(8);
    flow.stop = Some(stop);
    let config = exact(links, vec![flow], 20);
    let (simulation, notes) = run(&config);
    let totals = simulation.totals(0);
    // At most 1 MB passes the link in 8 s.
    assert!((1..=10).contains(&totals.completions), "{totals:?}");
    assert!(notes.completions.iter().all(|(_, page)| page.end <= stop));
    // Each page is complete or open.
    let open = simulation.open_pages(0);
    assert!(!open.is_empty() && open.iter().all(|page| page.start < stop));
    let complete = notes.completions.iter().map(|(_, page)| page.sequence);
    let mut numbers: Vec<u64> = complete.chain(open.iter().map(|p| p.sequence)).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
    // What has arrived of the others is reported, for the last time when the flow stops.
    let complete: u64 = notes.completions.iter().map(|(_, page)| page.bytes).sum();
    let (_, at, arrived) = *notes.received.last().unwrap();
    assert_eq!((at, arrived), (stop, totals.bytes_received));
    assert!(arrived > complete, "{arrived} and {complete}");
    let never_falls =
        |pair: &[(FlowId, Time, u64)]| pair[0].1 <= pair[1].1 && pair[0].2 <= pair[1].2;
    assert!(notes.received.windows(2).all(never_falls));
    assert_eq!(totals.failures, 0);
    let (in_flight, _) = simulation.in_flight();
    assert_eq!(in_flight, 0);
    // The servers learn of it by resets, which have crossed the link after half a round trip, and 320 us
    // for each of at most 20 connections.
    let mut sent = SentAfter(stop + Span::from_ms(20), 0);
    Simulation::new(&config).unwrap().run(&mut sent);
    assert_eq!(sent.1, 0);
}

#[test]
fn an_application_with_a_clock_sends_at_its_own_rate() {
    // 12500 bytes per 100 ms are 1 Mbit/s of payload.
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
        size: ObjectSize::Fixed(20_000),
        ..Web::new(Span::from_ms(100))
    };
    let flow = Flow::new(web, dumbbell_route(Span::ZERO));
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
        // Handshake, request, and 20000 bytes in two flights (14480 in the first): at least three
        // round trips
        assert!(page.end.since(page.start) >= Span::from_ms(60));
    }
    assert_eq!(totals.failures, 0);
}
