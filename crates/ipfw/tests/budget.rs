//! Senders of very many sources cannot make masks take more memory than they may.
//!
//! One test, so that no other allocates meanwhile.

use std::net::{IpAddr, Ipv4Addr};

use sluice_core::event::{DropReason, Sink};
use sluice_core::{Cx, Packet, Rng, Span, Time};
use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};

const MIB: u64 = 1 << 20;

/// Counts the drops.
#[derive(Default)]
struct Drops(u64);

impl Sink for Drops {
    fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {
        self.0 += 1;
    }
}

/// The resident memory of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    // Pages of x86 and of most ARM machines; the test allows for 10 %.
    pages * 4096
}

struct Bench {
    firewall: Firewall,
    rng: Rng,
    drops: Drops,
    now: Time,
    /// Slots of packets that are inside.
    free: Vec<u32>,
    slots: u32,
    /// The hash of the last flow.
    sent: u32,
}

impl Bench {
    fn new(commands: &str, dynamic_bytes: u64) -> Bench {
        let mut firewall = Firewall::new(&Settings {
            dynamic_bytes,
            ..Settings::default()
        });
        let (mut rng, mut drops) = (Rng::from_seed(1), Drops::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut drops);
        for line in commands.lines() {
            firewall.command(line, &mut NoFiles, &mut cx).unwrap();
        }
        Bench {
            firewall,
            rng,
            drops,
            now: Time::ZERO,
            free: Vec::new(),
            slots: 0,
            sent: 0,
        }
    }

    /// Sends a packet of 1000 bytes. Returns whether it was dropped.
    fn send(&mut self, source: u32, destination: [u8; 4]) -> bool {
        let from = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + source));
        let headers = Headers::new(Direction::In, 17, from, IpAddr::from(destination));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots
        });
        let before = self.drops.0;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        let mut packet = Packet::new(slot, 1000);
        self.sent = self.sent.wrapping_add(0x9e37_79b9);
        packet.flow = self.sent;
        let _ = self.firewall.handle(packet, &headers, &mut cx);
        let is_dropped = self.drops.0 > before;
        if is_dropped {
            self.free.push(slot);
        }
        is_dropped
    }

    fn pass(&mut self, time: Span) {
        self.now += time;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        while let Some(departure) = self.firewall.poll(&mut cx) {
            self.free.push(departure.packet.slot);
        }
    }
}

const CAKE: &str = "pipe 1 config bw RATE
sched 1 config pipe 1 mask src-ip 0xffffffff type cake
queue 1 config sched 1
add queue 1 ip from any to any";

#[test]
fn masks_stay_within_their_memory() {
    // 300 000 sources, each with a busy pipe. A pipe of cake takes some 130 KB.
    let before = resident();
    let mut bench = Bench::new(&CAKE.replace("RATE", "1Kbit/s"), 128 * MIB);
    let mut refused = 0;
    for source in 0..300_000 {
        refused += u64::from(bench.send(source, [10, 0, 0, 1]));
        bench.pass(Span::from_us(1));
    }
    assert!(refused > 290_000, "{refused}");
    assert_eq!(bench.firewall.refusals().dynamic_memory, refused);
    // Each pipe has touched little of its memory; flows all over its table touch the rest.
    for source in 0..1000 {
        for _ in 0..100 {
            bench.send(source, [10, 0, 0, 1]);
        }
    }
    let held = resident().saturating_sub(before);
    eprintln!("{} MiB are held", held / MIB);
    assert!(held < 128 * MIB * 11 / 10, "{} MiB are held", held / MIB);
    drop(bench);

    // Pipes that fall idle make room for others: nothing is refused.
    let mut bench = Bench::new(&CAKE.replace("RATE", "1Gbit/s"), 32 * MIB);
    for source in 0..100_000 {
        assert!(!bench.send(source, [10, 0, 0, 1]), "{source}");
        bench.pass(Span::from_ms(1));
    }
    assert_eq!(bench.firewall.refusals().dynamic_memory, 0);

    // There are 2^18 queues at most, however much memory there is. Each has a packet.
    let mut bench = Bench::new(
        "pipe 1 config bw 1Kbit/s
queue 1 config pipe 1 mask src-ip 0xffffffff
add queue 1 ip from any to any",
        4096 * MIB,
    );
    let limit = bench.firewall.limits().dynamic_number;
    assert_eq!(limit, 262_144);
    for source in 0..limit as u32 {
        assert!(!bench.send(source, [10, 0, 0, 1]), "{source}");
    }
    assert!(bench.send(limit as u32, [10, 0, 0, 1]));
    let refused = bench.firewall.refusals();
    assert_eq!((refused.dynamic_number, refused.dynamic_memory), (1, 0));
    drop(bench);

    // One pipe with a mask holds 4/5 of the packet memory at most, so that another pipe has room.
    let mut bench = Bench::new(
        "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff
pipe 2 config bw 1Kbit/s
add pipe 1 ip from any to 10.0.0.1
add pipe 2 ip from any to any",
        512 * MIB,
    );
    let (mut taken, room) = (0u64, 1000);
    for source in 0..2000 {
        bench.firewall.set_free_packets(room - taken - 1);
        taken += u64::from(!bench.send(source, [10, 0, 0, 1]));
    }
    // 800 = 4 * 200.
    assert_eq!((taken, bench.firewall.refusals().pipe_share), (800, 1200));
    bench.firewall.set_free_packets(199);
    assert!(!bench.send(0, [10, 0, 0, 2]), "another pipe has room");
    // The share is free again when the packets have left.
    bench.pass(Span::from_ms(3_600_000));
    bench.firewall.set_free_packets(999);
    assert!(!bench.send(0, [10, 0, 0, 1]));
}
