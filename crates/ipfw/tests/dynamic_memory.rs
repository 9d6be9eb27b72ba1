//! Pipes and queues of masks whose algorithms take much memory, or cannot start.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sluice_core::aqm::Aqm;
use sluice_core::event::{DropReason, Sink};
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};
use sluice_core::{Cx, Packet, Rng, Span, Time};
use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};
use sluice_loader::{Code, Loaded, Loader, Source};

const MIB: u64 = 1 << 20;
/// The bytes of a `big` AQM: one page of WebAssembly.
const BIG: usize = 64 << 10;

/// The AQMs `big:FILE`, which pass every packet and hold [`BIG`] bytes each.
struct Big;

/// An AQM, and its memory.
struct Held;

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static CAN_START: AtomicBool = AtomicBool::new(true);

impl Loader for Big {
    fn scheme(&self) -> &'static str {
        "big"
    }
    fn synopsis(&self) -> &'static str {
        "big:FILE"
    }
    fn load(&self, _source: &Source<'_>) -> Result<Loaded, String> {
        Ok(Loaded {
            doc: String::new(),
            params: Vec::new(),
            code: Code::Aqm(Box::new(Big)),
        })
    }
}

impl Outside for Big {
    fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
        match CAN_START.load(Ordering::Relaxed) {
            true => Ok(Box::new(Big)),
            false => Err(ParamError::Contradiction("no memory".into())),
        }
    }
}

impl Started for Big {
    fn aqm(&self) -> Box<dyn Aqm> {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Box::new(Held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Aqm for Held {
    fn memory(&self) -> usize {
        BIG
    }
}

/// Counts the drops.
#[derive(Default)]
struct Drops(u64);

impl Sink for Drops {
    fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {
        self.0 += 1;
    }
}

struct Bench {
    firewall: Firewall,
    rng: Rng,
    drops: Drops,
    now: Time,
    slots: u32,
}

impl Bench {
    fn new(commands: &str, dynamic_bytes: u64) -> Bench {
        sluice_loader::register(&[&Big]);
        let mut bench = Bench {
            firewall: Firewall::new(&Settings {
                dynamic_bytes,
                ..Settings::default()
            }),
            rng: Rng::from_seed(1),
            drops: Drops::default(),
            now: Time::ZERO,
            slots: 0,
        };
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for line in commands.replace("big", &format!("big:{file}")).lines() {
            let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.drops);
            bench.firewall.command(line, &mut NoFiles, &mut cx).unwrap();
        }
        bench
    }

    /// Sends a packet of 1000 bytes. Returns whether it was dropped.
    fn send(&mut self, source: u32) -> bool {
        let from = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + source));
        let to = IpAddr::from([10, 0, 0, 1]);
        let headers = Headers::new(Direction::In, 17, from, to);
        let before = self.drops.0;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        self.slots += 1;
        let _ = self
            .firewall
            .handle(Packet::new(self.slots, 1000), &headers, &mut cx);
        self.drops.0 > before
    }

    /// Lets time pass. Returns the packets that leave.
    fn pass(&mut self, time: Span) -> usize {
        self.now += time;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        std::iter::from_fn(|| self.firewall.poll(&mut cx)).count()
    }

    fn refused(&self) -> u64 {
        self.firewall.refusals().dynamic_memory
    }
}

const QUEUES: &str = "pipe 1 config bw RATE
sched 1 config pipe 1 type wf2q+
queue 1 config sched 1 mask src-ip 0xffffffff big
queue 2 config sched 1 mask src-ip 0xffffffff
add queue 2 ip from 10.1.0.0/16 to any
add queue 1 ip from any to any";

/// The first source of queue 2.
const SECOND: u32 = 0x1_0000;

/// One test, because all count the AQMs that are alive.
#[test]
fn masks_stay_within_their_memory_whatever_their_algorithms_take() {
    // New pipes and queues get 3/4 of 16 MiB, which is room for 192 AQMs of 64 KiB.
    let most = 192;
    let pipes = "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff big
add pipe 1 ip from any to any";
    // The configuration itself has a few AQMs, from which others are made.
    let few = 2;
    for commands in [pipes, &QUEUES.replace("RATE", "1Kbit/s")] {
        let mut bench = Bench::new(commands, 16 * MIB);
        let mut refused = 0;
        for source in 0..2000 {
            refused += u64::from(bench.send(source));
            let alive = ALIVE.load(Ordering::Relaxed);
            assert!(alive <= most + few, "{source}: {alive}");
        }
        assert!(ALIVE.load(Ordering::Relaxed) > most / 2);
        assert!(refused > 2000 - most as u64, "{refused}");
        assert_eq!(bench.refused(), refused);
    }

    // Pipes and queues that fall idle make room for others: nothing is refused.
    for commands in [pipes, QUEUES] {
        let commands = commands.replace("1Kbit/s", "RATE");
        let mut bench = Bench::new(&commands.replace("RATE", "1Gbit/s"), 16 * MIB);
        for source in 0..2000 {
            assert!(!bench.send(source), "{source}");
            bench.pass(Span::from_us(10));
            let alive = ALIVE.load(Ordering::Relaxed);
            assert!(alive <= most + few, "{source}: {alive}");
        }
        assert_eq!(bench.refused(), 0);
    }

    // Queues that were closed when they were idle are opened within the memory, too, and so are those
    // that get the records of others: 10 000 of a cheap kind were there before.
    let mut bench = Bench::new(&QUEUES.replace("RATE", "1Gbit/s"), 16 * MIB);
    for source in 0..10_000 {
        assert!(!bench.send(SECOND + source), "{source}");
        bench.pass(Span::from_us(10));
    }
    for _ in 0..2 {
        for source in 0..2000 {
            bench.send(source);
            bench.pass(Span::from_us(10));
            let alive = ALIVE.load(Ordering::Relaxed);
            assert!(alive <= most + few, "{source}: {alive}");
        }
        // After ten seconds, idle queues are closed, 64 each millisecond with a packet.
        bench.pass(Span::from_secs(11));
        for _ in 0..400 {
            bench.send(SECOND);
            bench.pass(Span::from_ms(1));
        }
        assert!(ALIVE.load(Ordering::Relaxed) <= few);
    }
    // Now all of them have packets.
    bench = {
        let mut bench = bench;
        let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.drops);
        let slow = "pipe 1 config bw 1Kbit/s";
        bench.firewall.command(slow, &mut NoFiles, &mut cx).unwrap();
        bench
    };
    let before = bench.refused();
    let mut refused = 0;
    for source in 0..2000 {
        refused += u64::from(bench.send(source));
        let alive = ALIVE.load(Ordering::Relaxed);
        assert!(alive <= most + few, "{source}: {alive}");
    }
    assert!(refused > 2000 - most as u64, "{refused}");
    assert_eq!(bench.refused(), before + refused);
    drop(bench);

    // An AQM that cannot start lets its packets pass. Loading it has worked.
    for commands in [pipes, &QUEUES.replace("RATE", "1Kbit/s")] {
        CAN_START.store(true, Ordering::Relaxed);
        let mut bench = Bench::new(commands, 16 * MIB);
        CAN_START.store(false, Ordering::Relaxed);
        assert!(!bench.send(1));
        bench.pass(Span::from_secs(60));
        let states = ALIVE.load(Ordering::Relaxed);
        assert!(states <= few, "{states}");
    }
}

/// A pipe that is empty, but whose queue was long, holds all memory. Then it is put to sleep to make
/// room for its own next packet.
#[test]
fn an_idle_pipe_that_holds_the_whole_memory_accepts_packets() {
    let mut bench = Bench::new(
        "pipe 1 config bw 1Mbit/s queue 4000 mask src-ip 0xffffffff
add pipe 1 ip from any to any",
        48 << 10,
    );
    // 4000 packets are more than 48 KiB, and leave within 32 s.
    let mut inside = 0;
    for _ in 0..4000 {
        inside += usize::from(!bench.send(1));
        inside -= bench.pass(Span::from_ms(1));
    }
    let refused = bench.refused();
    assert!(refused > 0);
    while inside > 0 {
        inside -= bench.pass(Span::from_ms(10));
    }
    assert!(!bench.send(1));
    // After ten seconds, the pipe sleeps anyway.
    bench.pass(Span::from_secs(11));
    assert!(!bench.send(1));
    assert_eq!(bench.refused(), refused);
}

/// All queues but one have packets for 48 s. One drains and is closed, and another flow's queue
/// replaces it, twice.
#[test]
fn a_queue_that_replaced_another_one_is_replaced_in_turn() {
    let mut bench = Bench::new(
        "pipe 1 config bw 1Mbit/s
queue 1 config pipe 1 mask src-ip 0xffffffff
add queue 1 ip from any to any",
        128 << 10,
    );
    let count = (0..).find(|source| bench.send(*source)).unwrap();
    // Each packet takes 8 ms.
    assert!((100..300).contains(&count), "{count}");
    for source in 1..count {
        for _ in 0..6000 / count {
            bench.send(source);
        }
    }
    for round in 1..=3 {
        // The idle queue sends its packet within 2.4 s, and is closed after ten more. Each packet from
        // outside visits 64 queues.
        bench.pass(Span::from_secs(13));
        for _ in 0..5 {
            bench.send(1);
            bench.pass(Span::from_ms(1));
        }
        // Each attempt visits 64, too.
        assert!((0..5).any(|_| !bench.send(1000 + round)), "{round}");
    }
}

/// Pipes hold all memory before the first queue of a mask, or there is none.
#[test]
fn the_first_pipe_and_queue_are_refused_without_memory() {
    let commands = "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff
pipe 2 config bw 1Kbit/s
queue 2 config pipe 2 mask src-ip 0xffffffff
add queue 2 ip from 10.1.0.0/16 to any
add pipe 1 ip from any to any";
    for limit in [64 << 10, 0] {
        let mut bench = Bench::new(commands, limit);
        let refused = (0..300).filter(|source| bench.send(*source)).count();
        assert!(
            refused > 200 && (refused == 300) == (limit == 0),
            "{refused}"
        );
        assert!(bench.send(SECOND));
    }
}
