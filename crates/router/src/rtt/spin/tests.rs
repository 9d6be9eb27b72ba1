use std::collections::BTreeMap;

use sluice_core::Rng;
use sluice_ipfw::Direction;

use super::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// Two endpoints of RFC 9000 section 17.4 with a router between them. Times are in microseconds.
struct Path {
    /// Times from the client to the router, on to the server, back to the router, on to the client, of
    /// a packet that is sent at an instant.
    legs: fn(u64) -> [u64; 4],
    /// What a packet is late at the router, by its direction and number.
    late: fn(Toward, u64) -> u64,
    /// The bit that an endpoint sends, by the bit that RFC 9000 demands, and the packet's number.
    bit: fn(Toward, bool, u64, &mut Rng) -> bool,
    /// Intervals between packets of the client and of the server.
    every: [u64; 2],
    server_port: u16,
    has_handshake: bool,
    seconds: u64,
    seed: u64,
}

/// The client is 2 ms from the router, the server 15 ms. Both send a packet each millisecond.
const PATH: Path = Path {
    legs: |_| [2_000, 15_000, 15_000, 2_000],
    late: |_, _| 0,
    bit: |_, bit, _, _| bit,
    every: [1_000, 1_000],
    server_port: 443,
    has_handshake: true,
    seconds: 10,
    seed: 1,
};

enum Event {
    Send(Toward),
    AtRouter(Toward, u64, bool),
    Arrive(Toward, u64, bool),
}

/// The round trips that were measured, in milliseconds, by the host that answered.
#[derive(Default)]
struct Measured {
    server: Vec<f64>,
    client: Vec<f64>,
    /// The shortest time between two edges of a direction, false ones included.
    shortest: f64,
}

fn see(
    meter: &mut SpinMeter,
    us: u64,
    toward: Toward,
    port: u16,
    header: QuicHeader,
) -> Option<RoundTrip> {
    let (mut src, mut dst) = ((CLIENT, 40_000), (SERVER, port));
    if toward == Toward::Client {
        (src, dst) = (dst, src);
    }
    let mut headers = Headers::new(Direction::In, 17, src.0.into(), dst.0.into());
    (headers.src_port, headers.dst_port) = (src.1, dst.1);
    let at = Time::ZERO + Span::from_us(us);
    let object = || (toward == Toward::Server).then_some(ObjectName::Pipe(1));
    meter.see(&headers, header, at, object)
}

impl Path {
    fn measure(&self) -> Measured {
        self.measure_with(&mut SpinMeter::default())
    }

    fn measure_with(&self, meter: &mut SpinMeter) -> Measured {
        let mut rng = Rng::from_seed(self.seed);
        let mut measured = Measured {
            shortest: f64::MAX,
            ..Measured::default()
        };
        let mut events = BTreeMap::new();
        let mut tie = 0;
        let mut put = |events: &mut BTreeMap<(u64, u64), Event>, at, event| {
            tie += 1;
            events.insert((at, tie), event);
        };
        if self.has_handshake {
            let [a, b, c, d] = (self.legs)(0);
            let long = |begins| QuicHeader::Long { begins };
            let mut see = |at, toward, begins| {
                let _ = see(meter, at, toward, self.server_port, long(begins));
            };
            see(a, Toward::Server, true);
            see(a + b + c, Toward::Client, true);
            see(a + b + c + d + a, Toward::Server, false);
        }
        let start = 200_000;
        put(&mut events, start, Event::Send(Toward::Server));
        put(
            &mut events,
            start + self.every[0] / 2,
            Event::Send(Toward::Client),
        );
        // The next number, and the number and bit of the newest packet, of client and server.
        let mut next = [0, 0];
        let mut newest = [None::<(u64, bool)>, None];
        let mut seen = [None::<(bool, u64)>, None];
        while let Some(((at, _), event)) = events.pop_first() {
            match event {
                Event::Send(toward) => {
                    let end = toward as usize;
                    let number = next[end];
                    next[end] += 1;
                    let inverts = toward == Toward::Server;
                    let demanded = newest[end].is_some_and(|(_, bit)| bit != inverts);
                    let bit = (self.bit)(toward, demanded, number, &mut rng);
                    let leg = (self.legs)(at)[if inverts { 0 } else { 2 }];
                    let late = (self.late)(toward, number);
                    put(
                        &mut events,
                        at + leg + late,
                        Event::AtRouter(toward, number, bit),
                    );
                    if at < self.seconds * 1_000_000 {
                        put(&mut events, at + self.every[end], Event::Send(toward));
                    }
                }
                Event::AtRouter(toward, number, spin) => {
                    let leg = (self.legs)(at)[if toward == Toward::Server { 1 } else { 3 }];
                    put(&mut events, at + leg, Event::Arrive(toward, number, spin));
                    let header = QuicHeader::Short { spin };
                    if let Some(trip) = see(meter, at, toward, self.server_port, header) {
                        let ms = trip.time.as_ms_f64();
                        if trip.host == IpAddr::from(SERVER) {
                            assert_eq!(trip.object, Some(ObjectName::Pipe(1)));
                            measured.server.push(ms);
                        } else {
                            assert_eq!(trip.object, None);
                            measured.client.push(ms);
                        }
                    }
                    let seen = &mut seen[toward as usize];
                    if seen.is_none_or(|(old, _)| old != spin) {
                        if let Some((_, edge)) = *seen {
                            measured.shortest = measured.shortest.min((at - edge) as f64 / 1e3);
                        }
                        *seen = Some((spin, at));
                    }
                }
                Event::Arrive(toward, number, bit) => {
                    let newest = &mut newest[1 - toward as usize];
                    if newest.is_none_or(|(old, _)| number > old) {
                        *newest = Some((number, bit));
                    }
                }
            }
        }
        measured
    }
}

#[track_caller]
fn within(times: &[f64], least: f64, most: f64) {
    assert!(
        times.iter().all(|ms| (least..=most).contains(ms)),
        "not from {least} to {most} ms: {times:?}"
    );
}

#[test]
fn the_times_are_those_from_the_router_to_each_host_and_back() {
    let measured = PATH.measure();
    // 2 · 15 ms and 2 · 2 ms, and up to 1 ms until the next packet carries the edge.
    within(&measured.server, 30.0, 31.0);
    within(&measured.client, 4.0, 5.0);
    // A round trip of 34 to 36 ms in 9.8 s, less 8 until the flow is trusted.
    for times in [&measured.server, &measured.client] {
        assert!((260..=290).contains(&times.len()), "{}", times.len());
    }
}

#[test]
fn overtaken_packets_make_no_false_samples() {
    // 6.5 ms are longer than the whole round trip to the client, which answers before such a packet
    // comes. Rarely, so that the flow is trusted, and for one edge in 15 to 20. Squares are not in step
    // with the edges.
    let rarely = |toward, number: u64| match toward {
        Toward::Client if (500..509).contains(&(number * number % 997)) => 6_500,
        _ => 0,
    };
    let often = |toward, number: u64| match toward {
        Toward::Server if number.is_multiple_of(100) => 5_000,
        Toward::Client if number.is_multiple_of(101) => 6_500,
        _ => 0,
    };
    type Late = fn(Toward, u64) -> u64;
    let cases: [(Late, u64, usize); 2] = [(rarely, 60, 1000), (often, 10, 50)];
    for (late, seconds, least) in cases {
        let path = Path {
            late,
            seconds,
            ..PATH
        };
        let measured = path.measure();
        // The bits as they are seen would give times of 1 ms.
        assert!(measured.shortest <= 1.0, "{}", measured.shortest);
        // The packet with the edge itself may be late, and the next one comes 1 ms later.
        within(&measured.server, 30.0, 32.0);
        within(&measured.client, 4.0, 6.0);
        let count = measured.server.len();
        assert!(count > least, "{count}");
    }
    // Where each packet may overtake many others, there is no edge to measure from.
    let late = |_, number: u64| number * 7919 % 10_000;
    let measured = Path { late, ..PATH }.measure();
    assert_eq!((measured.server.len(), measured.client.len()), (0, 0));
}

#[test]
fn bits_that_do_not_spin_make_no_samples() {
    let random = |_, _, _, rng: &mut Rng| rng.next_u32().is_multiple_of(2);
    let servers = |toward, bit, _, rng: &mut Rng| match toward {
        Toward::Client => rng.next_u32().is_multiple_of(2),
        Toward::Server => bit,
    };
    let clients = |toward, bit, _, rng: &mut Rng| match toward {
        Toward::Server => rng.next_u32().is_multiple_of(2),
        Toward::Client => bit,
    };
    // A random bit for each connection ID, which is used for half a second.
    let of_ids = |toward, _, number: u64, _: &mut Rng| {
        (number / 500 * 7919 + toward as u64).is_multiple_of(3)
    };
    let constant = |toward, _, _, _: &mut Rng| toward == Toward::Server;
    type Bit = fn(Toward, bool, u64, &mut Rng) -> bool;
    let bits: [Bit; 5] = [random, servers, clients, of_ids, constant];
    for (number, bit) in bits.into_iter().enumerate() {
        // Many packets in a round trip, about one, and many in one direction only.
        for every in [[1_000, 1_000], [35_000, 35_000], [20_000, 1_000]] {
            for seed in 1..=8 {
                let path = Path {
                    bit,
                    every,
                    seed,
                    ..PATH
                };
                let Measured { server, client, .. } = path.measure();
                if every == [1_000, 1_000] {
                    assert!(server.is_empty() && client.is_empty(), "bits {number}");
                }
                // The other host answers as it should: those times are right. Of the one that does
                // not, only those count that are near the handshake's, 30 and 4 ms.
                within(&server, 30.0, 60.0);
                within(&client, 4.0, 8.0);
            }
        }
    }
}

#[test]
fn the_pauses_of_an_application_are_no_round_trips() {
    // Each end sends a packet a quarter of a second after that of the other.
    let path = Path {
        every: [500_000, 500_000],
        seconds: 60,
        ..PATH
    };
    for has_handshake in [false, true] {
        let measured = Path {
            has_handshake,
            ..path
        }
        .measure();
        let samples = [measured.server, measured.client].concat();
        assert!(samples.is_empty(), "{samples:?}");
    }
}

#[test]
fn a_sparse_flow_is_measured_if_its_handshake_was_seen() {
    let path = Path {
        every: [20_000, 20_000],
        ..PATH
    };
    let measured = path.measure();
    // Up to 20 ms until the next packet; at most twice the 30 ms of the handshake.
    within(&measured.server, 30.0, 50.0);
    assert!(measured.server.len() > 50, "{}", measured.server.len());
    let measured = Path {
        has_handshake: false,
        ..path
    }
    .measure();
    assert_eq!((measured.server.len(), measured.client.len()), (0, 0));
}

#[test]
fn a_queue_that_builds_up_and_drains_is_followed() {
    // To the server: from 2 s on, the queue grows by 1 s per second to 200 ms; from 5 s on, it drains.
    let legs = |at: u64| {
        let grown = at.saturating_sub(2_000_000).min(200_000);
        let drained = at.saturating_sub(5_000_000) / 2;
        [2_000, 15_000 + grown.saturating_sub(drained), 15_000, 2_000]
    };
    let before = Path {
        legs,
        seconds: 1,
        ..PATH
    };
    let during = Path {
        seconds: 5,
        ..before
    };
    let after = Path {
        seconds: 10,
        ..before
    };
    let [before, during, after] = [before, during, after].map(|path| path.measure().server);
    within(&before, 30.0, 31.0);
    // 30 ms, and 200 ms of queue.
    let full = during.iter().filter(|ms| (230.0..=231.0).contains(*ms));
    assert!(full.count() >= 8, "{during:?}");
    // All of 10 s include the times before; what is new ends with 30 ms again.
    within(&after, 30.0, 231.0);
    within(&after[after.len() - 50..], 30.0, 31.0);
}

#[test]
fn a_flow_on_another_port_is_known_from_its_handshake() {
    let path = Path {
        server_port: 4433,
        ..PATH
    };
    let measured = path.measure();
    within(&measured.server, 30.0, 31.0);
    assert!(measured.server.len() > 200);
    let measured = Path {
        has_handshake: false,
        ..path
    }
    .measure();
    assert!(measured.server.is_empty());
}

#[test]
fn flows_beyond_the_table_cost_samples_and_no_memory() {
    let mut meter = SpinMeter::default();
    let header = QuicHeader::Short { spin: true };
    for host in 0..100_000_u32 {
        let src = IpAddr::from(host.to_be_bytes());
        let mut headers = Headers::new(Direction::In, 17, src, SERVER.into());
        (headers.src_port, headers.dst_port) = (40_000, 443);
        let none = meter.see(&headers, header, Time::ZERO, || None);
        assert_eq!(none, None);
    }
    assert_eq!(meter.flows.len(), MOST_FLOWS);
    assert!(size_of::<Option<Flow>>() * MOST_FLOWS <= 1_200_000);
    // The oldest make room.
    assert!(PATH.measure_with(&mut meter).server.len() > 200);
}
