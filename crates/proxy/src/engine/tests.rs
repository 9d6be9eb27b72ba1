use super::*;
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use proptest::prelude::*;
use sluice_core::Span;
use sluice_core::record::Fate;
use sluice_exec::Frame;
use sluice_exec::link::LinkWords;

fn links(sets: &[(&str, &str)]) -> Vec<Link> {
    let sets = sets.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    let words = LinkWords {
        sets: sets.collect(),
        ..LinkWords::default()
    };
    words.links().unwrap()
}

fn config() -> Config {
    Config {
        receive_buffer: 1 << 20,
        nagle: false,
        ..Config::default()
    }
}

fn engine(sets: &[(&str, &str)]) -> Engine {
    Engine::new(&links(sets), config(), HostDelay::ZERO, 1)
}

fn target(is_v6: bool, host: u32) -> Target {
    let name = match is_v6 {
        true => "[2001:db8::7]:80",
        false => "198.51.100.7:80",
    };
    Target {
        name: name.to_owned(),
        address: name.parse().unwrap(),
        host,
    }
}

const fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

/// Accepts all connections, and lets both ends exchange bytes until no event is left or until
/// `until`.
struct World {
    engine: Engine,
    id: Id,
    /// What each side still has to write.
    unwritten: [Vec<u8>; 2],
    /// What each side has read.
    read: [Vec<u8>; 2],
    is_reading: bool,
}

impl World {
    fn new(sets: &[(&str, &str)]) -> World {
        World::of(engine(sets))
    }

    fn of(engine: Engine) -> World {
        World::of_target(engine, &target(false, 7), None)
    }

    fn of_target(mut engine: Engine, target: &Target, frames: Option<Frames>) -> World {
        if let Some(frames) = frames {
            engine.capture(frames);
        }
        let id = engine.open(target);
        World {
            engine,
            id,
            unwritten: Default::default(),
            read: Default::default(),
            is_reading: true,
        }
    }

    fn run_until(&mut self, until: Time) {
        loop {
            if self.engine.is_asking(self.id) {
                self.engine.accept(self.id);
            }
            for side in Side::BOTH {
                self.turn(side);
            }
            let Some(due) = self.engine.next_due().filter(|due| *due <= until) else {
                break;
            };
            self.engine.advance(due, |_, _| {});
        }
        self.engine.advance(until, |_, _| {});
    }

    fn turn(&mut self, side: Side) {
        let unwritten = &mut self.unwritten[side.index()];
        let room = self.engine.room(self.id, side).min(unwritten.len());
        if room > 0 && self.engine.stage(self.id, side) == Stage::Open {
            let bytes: Vec<u8> = unwritten.drain(..room).collect();
            self.engine.write(self.id, side, &bytes);
        }
        while self.is_reading {
            let (first, second) = self.engine.readable(self.id, side);
            let bytes = [first, second].concat();
            if bytes.is_empty() {
                break;
            }
            self.engine.consume(self.id, side, bytes.len());
            self.read[side.index()].extend(bytes);
        }
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8 ^ seed).collect()
}

#[test]
fn the_handshake_takes_a_round_trip_and_the_far_end_is_asked_after_half() {
    let mut engine = engine(&[("rtt", "100ms")]);
    let id = engine.open(&target(false, 7));
    engine.advance(Time::from_ns(49_999_999), |_, _| {});
    assert!(!engine.is_asking(id));
    engine.advance(ms(50), |_, _| {});
    assert!(engine.is_asking(id));
    engine.accept(id);
    engine.advance(Time::from_ns(99_999_999), |_, _| {});
    assert_eq!(engine.stage(id, Side::Near), Stage::Opening);
    engine.advance(ms(100), |_, _| {});
    assert_eq!(engine.stage(id, Side::Near), Stage::Open);
}

#[test]
fn a_path_of_two_links_has_the_delay_of_both() {
    let path = [links(&[("rtt", "100ms")]), links(&[("rtt", "60ms")])].concat();
    let mut engine = Engine::new(&path, config(), HostDelay::ZERO, 1);
    let id = engine.open(&target(false, 7));
    // The round trip takes 160 ms: the first packet arrives after half of it, the answer after the
    // other half.
    engine.advance(ms(79), |_, _| {});
    assert!(!engine.is_asking(id));
    engine.advance(ms(80), |_, _| {});
    assert!(engine.is_asking(id));
    engine.accept(id);
    engine.advance(ms(159), |_, _| {});
    assert_eq!(engine.stage(id, Side::Near), Stage::Opening);
    engine.advance(ms(160), |_, _| {});
    assert_eq!(engine.stage(id, Side::Near), Stage::Open);
}

#[test]
fn each_host_adds_its_delay() {
    let mut trips = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let links = links(&[("rtt", "100ms")]);
        let mut engine = Engine::new(&links, config(), HostDelay::TYPICAL, seed);
        let id = engine.open(&target(false, 7));
        while !engine.is_asking(id) {
            engine.advance(engine.next_due().unwrap(), |_, _| {});
        }
        let half = engine.clock;
        engine.accept(id);
        while engine.stage(id, Side::Near) == Stage::Opening {
            engine.advance(engine.next_due().unwrap(), |_, _| {});
        }
        // Half of the round trip, 100 us to wake up the host, and 50 us at most.
        let (least, most) = (Span::from_us(50_100), Span::from_us(50_150));
        for trip in [half.since(Time::ZERO), engine.clock.since(half)] {
            assert!(trip >= least && trip <= most, "{trip:?}");
        }
        trips.insert(engine.clock);
    }
    assert_eq!(trips.len(), 20, "the jitter is random");
}

#[test]
fn a_refusal_takes_a_round_trip_too() {
    for refusal in [Refusal::Closed, Refusal::Host, Refusal::Prohibited] {
        let mut engine = engine(&[("rtt", "100ms")]);
        let id = engine.open(&target(false, 7));
        engine.advance(ms(50), |_, _| {});
        engine.refuse(id, refusal);
        engine.leave(id, Side::Far);
        engine.advance(Time::from_ns(99_999_999), |_, _| {});
        assert_eq!(engine.stage(id, Side::Near), Stage::Opening);
        engine.advance(ms(100), |_, _| {});
        assert_eq!(engine.stage(id, Side::Near), Stage::Refused(refusal));
        engine.leave(id, Side::Near);
        assert_eq!(engine.pairs.iter().flatten().count(), 0);
        assert_eq!(engine.next_due(), None);
    }
}

#[test]
fn a_transfer_has_the_rate_of_the_link() {
    let mut world = World::new(&[("rate", "8Mbit/s"), ("rtt", "20ms")]);
    let sent = pattern(2_000_000, 0);
    world.unwritten[Side::Far.index()] = sent.clone();
    world.run_until(ms(1000));
    let before = world.read[Side::Near.index()].len();
    world.run_until(ms(2000));
    let after = world.read[Side::Near.index()].len();
    // 8 Mbit/s are 666.67 packets of 1500 bytes in a second, each with 1448 of payload.
    let expected = 8e6 / 8.0 / 1500.0 * 1448.0;
    let error = (after - before) as f64 / expected - 1.0;
    // One packet more or less at each end of the second.
    assert!(error.abs() < 2.0 / 666.0, "{error}");
    assert_eq!(world.read[Side::Near.index()], sent[..after]);
}

#[test]
fn all_connections_share_the_link() {
    let mut engine = engine(&[("rate", "8Mbit/s"), ("queue", "fq_codel")]);
    let ids = [
        engine.open(&target(false, 1)),
        engine.open(&target(true, 2)),
    ];
    let mut read = [0_usize; 2];
    while let Some(due) = engine.next_due().filter(|due| *due <= ms(3000)) {
        engine.advance(due, |_, _| {});
        for (id, read) in ids.iter().zip(&mut read) {
            engine.accept(*id);
            let room = engine.room(*id, Side::Far);
            if room > 0 && engine.stage(*id, Side::Far) == Stage::Open {
                engine.write(*id, Side::Far, &vec![0; room]);
            }
            let (first, second) = engine.readable(*id, Side::Near);
            let len = first.len() + second.len();
            engine.consume(*id, Side::Near, len);
            *read += len;
        }
    }
    let total: usize = read.iter().sum();
    // 3 s at 8 Mbit/s are 3 MB; a fair queue gives each of two flows half, headers included.
    assert!((0.93..1.0).contains(&(total as f64 / 3e6)), "{read:?}");
    let share = read[0] as f64 / total as f64;
    assert!((0.47..0.53).contains(&share), "{read:?}");
}

#[test]
fn a_reader_that_stops_stops_the_writer_with_bounded_memory() {
    let mut world = World::new(&[("rtt", "10ms")]);
    world.is_reading = false;
    let sent = pattern(8 << 20, 0);
    world.unwritten[Side::Far.index()] = sent.clone();
    world.run_until(ms(5000));
    let pair = world.engine.pair(world.id).unwrap();
    let held = pair.streams[Side::Far.index()].bytes.len() as u64;
    // The bytes read ahead, the receive window, and the send buffer, which grows to twice the
    // congestion window.
    assert!(held >= AHEAD, "{held}");
    assert!(held <= AHEAD + 3 * (1 << 20), "{held}");
    let written = sent.len() - world.unwritten[Side::Far.index()].len();
    assert_eq!(held, written as u64);
    world.is_reading = true;
    world.run_until(ms(60_000));
    assert_eq!(world.read[Side::Near.index()].len(), sent.len());
    assert!(world.read[Side::Near.index()] == sent);
}

#[test]
fn a_direction_that_has_ended_leaves_the_other() {
    let mut world = World::new(&[("rtt", "10ms")]);
    world.unwritten = [pattern(1000, 1), pattern(200_000, 2)];
    world.run_until(ms(15));
    world.engine.close(world.id, Side::Near);
    world.run_until(ms(1000));
    assert!(world.engine.has_ended(world.id, Side::Far));
    assert!(!world.engine.has_ended(world.id, Side::Near));
    assert_eq!(world.read[Side::Near.index()], pattern(200_000, 2));
    world.engine.close(world.id, Side::Far);
    world.run_until(ms(2000));
    assert!(world.engine.has_ended(world.id, Side::Near));
    for side in Side::BOTH {
        world.engine.leave(world.id, side);
    }
    world.run_until(ms(3000));
    assert_eq!(world.engine.pairs.iter().flatten().count(), 0);
    assert_eq!(world.engine.parcels.len(), 0);
    assert_eq!(world.engine.next_due(), None, "an idle network sleeps");
}

#[test]
fn a_reset_crosses_the_link() {
    let mut world = World::new(&[("rtt", "100ms")]);
    world.run_until(ms(200));
    world.engine.reset(world.id, Side::Near);
    assert_eq!(world.engine.stage(world.id, Side::Far), Stage::Open);
    world.run_until(ms(249));
    assert_eq!(world.engine.stage(world.id, Side::Far), Stage::Open);
    world.run_until(ms(250));
    assert_eq!(world.engine.stage(world.id, Side::Far), Stage::Reset);
}

#[test]
fn a_lost_reset_is_repeated_when_the_other_end_speaks() {
    let mut world = World::new(&[("rtt", "100ms")]);
    world.run_until(ms(200));
    world.engine.set_cut(Side::Far, true);
    world.engine.reset(world.id, Side::Near);
    world.run_until(ms(400));
    world.engine.set_cut(Side::Far, false);
    assert_eq!(world.engine.stage(world.id, Side::Far), Stage::Open);
    world.engine.write(world.id, Side::Far, b"x");
    world.run_until(ms(600));
    assert_eq!(world.engine.stage(world.id, Side::Far), Stage::Reset);
}

#[test]
fn a_connection_is_forgotten_when_the_last_fin_is_lost() {
    let mut world = World::new(&[("rtt", "10ms")]);
    world.run_until(ms(100));
    world.engine.close(world.id, Side::Near);
    world.run_until(ms(200));
    for side in Side::BOTH {
        world.engine.set_cut(side, true);
    }
    world.engine.close(world.id, Side::Far);
    for side in Side::BOTH {
        world.engine.leave(world.id, side);
    }
    world.run_until(ms(60_200));
    assert_eq!(world.engine.pairs.iter().flatten().count(), 1);
    // The 16th timeout in a row is the last (Linux: `tcp_retries2`), and none is longer than two minutes
    // (`TCP_RTO_MAX`). Whether an end still repeats its FIN is seen each minute: 33 minutes at most.
    world.run_until(ms(33 * 60_000 + 200));
    assert_eq!(world.engine.pairs.iter().flatten().count(), 0);
    assert_eq!(world.engine.parcels.len(), 0);
    assert_eq!(world.engine.next_due(), None, "an idle network sleeps");
}

#[test]
fn a_connection_is_forgotten_when_the_last_reset_is_lost() {
    let mut world = World::new(&[("rtt", "10ms")]);
    world.run_until(ms(100));
    world.engine.close(world.id, Side::Far);
    world.engine.leave(world.id, Side::Far);
    world.run_until(ms(200));
    world.engine.set_cut(Side::Far, true);
    world.engine.reset(world.id, Side::Near);
    world.engine.leave(world.id, Side::Near);
    // A minute after both ends have left.
    world.run_until(ms(60_199));
    assert_eq!(world.engine.pairs.iter().flatten().count(), 1);
    world.run_until(ms(60_200));
    assert_eq!(world.engine.pairs.iter().flatten().count(), 0);
    assert_eq!(world.engine.next_due(), None, "an idle network sleeps");
}

#[test]
fn a_link_that_is_cut_loses_everything_and_heals() {
    let mut world = World::new(&[("rtt", "20ms"), ("rate", "8Mbit/s")]);
    let sent = pattern(1_000_000, 3);
    world.unwritten[Side::Far.index()] = sent.clone();
    world.run_until(ms(300));
    for side in Side::BOTH {
        world.engine.set_cut(side, true);
    }
    let before = world.read[Side::Near.index()].len();
    world.run_until(ms(1000));
    assert_eq!(world.read[Side::Near.index()].len(), before);
    for side in Side::BOTH {
        world.engine.set_cut(side, false);
    }
    world.run_until(ms(10_000));
    assert!(world.read[Side::Near.index()] == sent);
}

#[test]
fn a_link_changes_while_bytes_flow() {
    let mut world = World::new(&[("rate", "8Mbit/s"), ("rtt", "20ms")]);
    world.unwritten[Side::Far.index()] = pattern(8_000_000, 4);
    world.run_until(ms(1000));
    let slower = links(&[("rate", "800kbit/s"), ("rtt", "20ms"), ("queue", "codel")]);
    world.engine.set_links(&slower);
    // The queue that has built up drains within a second and a half at a tenth of the rate.
    world.run_until(ms(20_000));
    let before = world.read[Side::Near.index()].len();
    world.run_until(ms(30_000));
    let rate = (world.read[Side::Near.index()].len() - before) as f64 / 10.0;
    // 800 kbit/s are 66.7 packets of 1448 bytes in a second. CoDel keeps a queue of some packets.
    let expected = 800e3 / 8.0 / 1500.0 * 1448.0;
    assert!(
        (0.95..1.01).contains(&(rate / expected)),
        "{rate} {expected}"
    );
}

#[test]
fn how_late_the_caller_is_changes_nothing_on_the_link() {
    let run = |step: u64| {
        let mut engine = engine(&[("rate", "8Mbit/s"), ("rtt", "20ms"), ("loss", "1%")]);
        let id = engine.open(&target(false, 7));
        engine.write(id, Side::Near, &pattern(30_000, 5));
        let mut departures = Vec::new();
        for at in (0..=60).map(|n| ms(n * 10)) {
            // Both runs accept the connection at the same instant.
            let mut now = Time::from_ns(at.as_ns().saturating_sub(10_000_000));
            while now < at {
                now = (now + Span::from_ns(step)).min(at);
                engine.advance(now, |to, due| departures.push((to, due)));
            }
            engine.accept(id);
        }
        departures
    };
    let often = run(100_000);
    assert!(often.len() > 20, "{often:?}");
    assert_eq!(often, run(10_000_000));
}

/// A link that drops, reorders and copies packets. Packets that are copied have a row for each.
#[test]
fn an_observer_sees_every_packet_and_changes_nothing() {
    let run = |observations: Option<Observations>| {
        let mut engine = engine(&[
            ("rate", "4Mbit/s"),
            ("rtt", "20ms"),
            ("loss", "2%"),
            ("duplicate", "3%"),
            ("queue", "fifo limit 12"),
        ]);
        if let Some(observations) = observations {
            engine.observe(observations);
        }
        let mut world = World::of(engine);
        world.unwritten[Side::Far.index()] = pattern(400_000, 6);
        world.run_until(ms(5000));
        world.engine.end_observation();
        let counts = Side::BOTH.map(|to| world.engine.counts(to));
        (counts, world.read[Side::Near.index()].len())
    };
    let (sender, observed) = std::sync::mpsc::channel();
    let interval = Span::from_ms(10);
    let with = run(Some(Observations { sender, interval }));
    assert_eq!(with, run(None));

    let mut rows = [[0_u64; 3]; 2];
    let (mut flows, mut last, mut released) = (Vec::new(), [None; 2], [0_u64; 2]);
    for observation in observed {
        match observation {
            Observation::Flow(flow) => flows.push(flow.name),
            Observation::Packets(pipe, packets) => {
                for packet in packets {
                    let place = match packet.fate {
                        Fate::Sent | Fate::Marked => 0,
                        Fate::Dropped(_) => 1,
                        Fate::Queued => 2,
                    };
                    rows[pipe.direction() as usize][place] += 1;
                }
            }
            Observation::Releases(all) => {
                for release in all {
                    released[release.direction as usize] += 1;
                }
            }
            Observation::Ends(ends) => {
                for end in ends {
                    last[end.direction as usize] = Some(end);
                }
            }
            _ => {}
        }
    }
    assert_eq!(flows, [target(false, 7).name]);
    for (direction, to) in [(Direction::Down, Side::Near), (Direction::Up, Side::Far)] {
        let counts = with.0[to.index()];
        let [sent, dropped, queued] = rows[direction as usize];
        assert_eq!((sent, dropped, queued), (counts.packets, counts.dropped, 0));
        assert_eq!(released[direction as usize], counts.packets);
    }
    assert!(with.0[Side::Near.index()].dropped > 0);
    // The payload that one end has sent is the payload that the other has received.
    let [down, up] = [Direction::Down, Direction::Up].map(|d| last[d as usize].unwrap());
    assert_eq!((down.sent, up.received), (400_000, 400_000));
    assert!(down.retransmits > 0);
}

/// Every frame has correct lengths and checksums, and its bytes at their place in the stream.
#[test]
fn a_capture_has_the_bytes_of_both_directions() {
    for is_v6 in [false, true] {
        let (frames, captured) = Frames::new();
        let sets = [("rate", "8Mbit/s"), ("rtt", "20ms"), ("loss", "3%")];
        let mut world = World::of_target(engine(&sets), &target(is_v6, 7), Some(frames));
        let sent = [pattern(2_000, 1), pattern(60_000, 2)];
        world.unwritten = sent.clone();
        world.run_until(ms(5_000));
        assert_eq!(world.read[Side::Near.index()], sent[Side::Far.index()]);
        let count = world.engine.counts(Side::Near).packets;
        world.engine.end_capture();
        let frames: Vec<Frame> = captured.into_iter().collect();
        let inbound = frames.iter().filter(|frame| frame.is_inbound).count();
        assert_eq!(inbound as u64, count);
        let mut streams = [vec![0; sent[0].len()], vec![0; sent[1].len()]];
        let mut first = [None; 2];
        for frame in &frames {
            assert_eq!(frame.bytes.len(), frame.original_len as usize);
            let packet = PacketHeaders::from_ethernet_slice(&frame.bytes).unwrap();
            let (Some(net), Some(TransportHeader::Tcp(tcp))) = (packet.net, packet.transport)
            else {
                panic!("{frame:?}");
            };
            let payload = packet.payload.slice();
            let checksum = match &net {
                NetHeaders::Ipv4(ip, _) => tcp.calc_checksum_ipv4(ip, payload),
                NetHeaders::Ipv6(ip, _) => tcp.calc_checksum_ipv6(ip, payload),
                NetHeaders::Arp(_) => panic!("ARP"),
            };
            assert_eq!(tcp.checksum, checksum.unwrap());
            let side = usize::from(frame.is_inbound);
            let ports = [tcp.source_port, tcp.destination_port];
            assert_eq!(ports[1 - side], 80);
            // RFC 9293 section 3.4: the first byte follows the SYN.
            let first = *first[side].get_or_insert(tcp.sequence_number.wrapping_add(1));
            let start = tcp.sequence_number.wrapping_sub(first) as usize;
            if !payload.is_empty() {
                streams[side][start..start + payload.len()].copy_from_slice(payload);
            }
        }
        assert_eq!(streams, sent);
    }
}

#[test]
fn a_capture_has_refusals_and_questions() {
    let (frames, captured) = Frames::new();
    let mut engine = engine(&[("rtt", "100ms")]);
    engine.capture(frames);
    let question = engine.question("resolver:53");
    engine.send_datagram(question, Side::Far, 60);
    for refusal in [Refusal::Closed, Refusal::Host] {
        let id = engine.open(&target(false, 7));
        let now = engine.clock + Span::from_ms(50);
        engine.advance(now, |_, _| {});
        engine.refuse(id, refusal);
        engine.advance(now + Span::from_ms(50), |_, _| {});
    }
    engine.end_capture();
    let seen = captured.into_iter().map(|mut frame: Frame| {
        // The payload of a question is not known.
        frame.bytes.resize(frame.original_len as usize, 0);
        let packet = PacketHeaders::from_ethernet_slice(&frame.bytes).unwrap();
        let (kind, is_reset) = match packet.transport.unwrap() {
            TransportHeader::Tcp(tcp) => ("tcp", tcp.rst),
            TransportHeader::Udp(_) => ("udp", false),
            TransportHeader::Icmpv4(_) => ("icmp", false),
            other => panic!("{other:?}"),
        };
        (kind, frame.is_inbound, is_reset, frame.original_len)
    });
    // Ethernet and IPv4 headers are 34 bytes; a SYN has 40 of TCP, a reset 20, an ICMP error 8 and
    // the SYN that it cites.
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            ("udp", false, false, 14 + 60),
            ("tcp", false, false, 74),
            ("tcp", true, true, 54),
            ("tcp", false, false, 74),
            ("icmp", true, false, 14 + 28 + 60),
        ]
    );
}

#[test]
fn datagrams_cross_the_link() {
    let mut engine = engine(&[("rtt", "100ms")]);
    let id = engine.question("resolver:53");
    engine.send_datagram(id, Side::Far, 60);
    engine.advance(ms(49), |_, _| {});
    assert!(engine.take_datagrams().is_empty());
    engine.advance(ms(50), |_, _| {});
    assert_eq!(engine.take_datagrams(), [(id, Side::Far)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What one end writes the other reads, whatever the link does, and however it is read.
    #[test]
    fn bytes_out_are_bytes_in(
        sizes in prop::array::uniform2(0_usize..60_000),
        loss in 0_u32..15,
        reorder in 0_u32..10,
        duplicate in 0_u32..10,
        corrupt in 0_u32..5,
        queue in prop::sample::select(vec!["fifo limit 20", "fq_codel", "red"]),
        rate in 1_u32..50,
    ) {
        let percent = |n: u32| format!("{n}%");
        let mut world = World::new(&[
            ("rate", &format!("{rate}Mbit/s")),
            ("rtt", "20ms"),
            ("loss", &percent(loss)),
            ("reorder", &percent(reorder)),
            ("duplicate", &percent(duplicate)),
            ("corrupt", &percent(corrupt)),
            ("queue", queue),
        ]);
        let sent = [pattern(sizes[0], 1), pattern(sizes[1], 2)];
        world.unwritten = sent.clone();
        let mut is_closed = [false; 2];
        for second in 1..600 {
            world.run_until(ms(second * 1000));
            for side in Side::BOTH {
                let i = side.index();
                if world.unwritten[i].is_empty() && !is_closed[i] {
                    is_closed[i] = true;
                    world.engine.close(world.id, side);
                }
            }
            if Side::BOTH.iter().all(|side| world.engine.has_ended(world.id, *side)) {
                break;
            }
        }
        prop_assert!(world.read[Side::Near.index()] == sent[Side::Far.index()]);
        prop_assert!(world.read[Side::Far.index()] == sent[Side::Near.index()]);
        for side in Side::BOTH {
            prop_assert!(world.engine.has_ended(world.id, side));
            world.engine.leave(world.id, side);
        }
        world.run_until(ms(1_200_000));
        prop_assert_eq!(world.engine.pairs.iter().flatten().count(), 0);
        prop_assert_eq!(world.engine.parcels.len(), 0);
        prop_assert_eq!(world.engine.next_due(), None);
    }
}
