//! The memory of instances is reported, so that masks stay within theirs.
//!
//! One test, so that no other allocates meanwhile.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use allocation_counter::measure;
use sluice_core::event::{DropReason, Sink};
use sluice_core::{Cx, Discipline, DropCounter, Packet, Rng, Time};
use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};

const PAGE: usize = 64 << 10;
const MIB: u64 = 1 << 20;
const HOOK: &str = "(param i32 i64 i32 i32 i32 i64 i64 i64)";

fn module(body: &str) -> Vec<u8> {
    let create = match body.contains("\"create\"") {
        true => "",
        false => "(func (export \"create\") (result i32) i32.const 0)",
    };
    let text = format!("(module (@custom \"sluice\" \"abi 1\") {body} {create})");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A module with `more`, whose `on_enqueue` executes `code` and passes every packet.
fn aqm(more: &str, code: &str) -> Vec<u8> {
    let hook = format!("(func (export \"on_enqueue\") {HOOK} (result i32) {code} i32.const 0)");
    module(&format!("{more} {hook}"))
}

/// Returns the bytes that a queue of `count` flows reports and those that it holds.
fn memory(words: &str, folder: &Path, count: u32) -> (usize, usize) {
    let spec = sluice_loader::parse_queue(words, folder).unwrap();
    let mut queue: Option<Box<dyn Discipline>> = None;
    let info = measure(|| {
        let mut built = spec.build().unwrap();
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
        for slot in 0..count {
            let mut packet = Packet::new(slot, 100);
            packet.flow = slot;
            built.enqueue(packet, &mut cx);
        }
        queue = Some(built);
    });
    let queue = queue.unwrap();
    (queue.memory(), info.bytes_current as usize)
}

#[derive(Default)]
struct Drops(u64);

impl Sink for Drops {
    fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {
        self.0 += 1;
    }
}

/// Sends one packet of each of `sources` through masks that may hold `limit` bytes. Returns the
/// packets that were refused.
fn flood(commands: &str, limit: u64, sources: u32) -> u64 {
    let mut refused = 0;
    let mut firewall = None;
    let info = measure(|| {
        let mut built = Firewall::new(&Settings {
            dynamic_bytes: limit,
            ..Settings::default()
        });
        let (mut rng, mut drops) = (Rng::from_seed(1), Drops::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut drops);
        for line in commands.lines() {
            built.command(line, &mut NoFiles, &mut cx).unwrap();
        }
        for source in 0..sources {
            let from = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + source));
            let headers = Headers::new(Direction::In, 17, from, IpAddr::from([10, 0, 0, 1]));
            let _ = built.handle(Packet::new(source, 1000), &headers, &mut cx);
        }
        refused = drops.0;
        firewall = Some(built);
    });
    let firewall = firewall.unwrap();
    assert_eq!(firewall.refusals().dynamic_memory, refused);
    let held = info.bytes_current as u64;
    assert!(held < limit, "{} KiB of {} KiB", held >> 10, limit >> 10);
    refused
}

#[test]
fn the_memory_of_instances_is_reported_and_masks_stay_within_theirs() {
    sluice_loader::register(&[&sluice_wasm::WasmLoader]);
    let folder = tempfile::tempdir().unwrap();
    let adds = "i64.const 1 i64.add ".repeat(16);
    let funcs = format!("(func (param i64) (result i64) local.get 0 {adds})").repeat(500);
    let rank = format!("(memory 2) (func (export \"rank\") {HOOK} (result i64) i64.const 0)");
    let create = "(func (export \"create\") (result i32) (memory.grow (i32.const 1)))";
    for (name, bytes, pages) in [
        ("none", aqm("", ""), 0),
        ("one", aqm("(memory 1)", ""), 1),
        ("table", aqm("(memory 4) (table 1024 funcref)", ""), 4),
        ("funcs", aqm(&format!("(memory 1) {funcs}"), ""), 1),
        ("rank", module(&rank), 2),
        // One page, one for each call of `create`, and three for one packet. `create` is called when
        // the queue is built, and for the state of the queue. The pages have room for eight.
        (
            "grows",
            aqm(
                &format!("(memory 1) {create}"),
                "(drop (memory.grow (i32.const 3)))",
            ),
            8,
        ),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let (reported, held) = memory(&format!("wasm:{name}"), folder.path(), 1);
        eprintln!("{name}: {reported} bytes are reported, {held} are held");
        assert!(reported >= held.max(pages * PAGE), "{name}: {reported}");
        // Beside the pages, a queue has less than one page, or the functions of the module.
        assert!(held < (pages + 6) * PAGE, "{name}: {held}");
    }
    // The flows of a discipline share an instance: the 21 flows are in pages of 16 queues.
    for flows in [1, 8, 21] {
        let (reported, held) = memory("fq_wasm:one", folder.path(), flows);
        eprintln!("{flows} flows: {reported} bytes are reported, {held} are held");
        assert!(
            reported >= held.max(PAGE) && reported < 3 * PAGE,
            "{flows}: {reported}"
        );
    }

    // New pipes and queues of masks get 3/4 of 16 MiB: fewer than 192 instances of one page.
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (one, grows, rank) = (at("one"), at("grows"), at("rank"));
    for (commands, most) in [
        (
            format!(
                "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff wasm:{one}
add pipe 1 ip from any to any"
            ),
            192,
        ),
        // Room for eight pages each.
        (
            format!(
                "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff wasm:{grows}
add pipe 1 ip from any to any"
            ),
            24,
        ),
        (
            format!(
                "pipe 1 config bw 1Kbit/s
sched 1 config pipe 1 mask src-ip 0xffffffff type fq_wasm:{one}
queue 1 config sched 1
add queue 1 ip from any to any"
            ),
            192,
        ),
        (
            format!(
                "pipe 1 config bw 1Kbit/s
sched 1 config pipe 1 mask src-ip 0xffffffff type wasm:{rank}
queue 1 config sched 1
add queue 1 ip from any to any"
            ),
            96,
        ),
        (
            format!(
                "pipe 1 config bw 1Kbit/s
sched 1 config pipe 1 type wf2q+
queue 1 config sched 1 mask src-ip 0xffffffff wasm:{one}
add queue 1 ip from any to any"
            ),
            192,
        ),
    ] {
        let refused = flood(&commands, 16 * MIB, 1000);
        let passed = 1000 - refused;
        eprintln!("{passed} pass: {commands}");
        assert!(passed < most && passed > most / 2, "{passed}: {commands}");
    }
}
