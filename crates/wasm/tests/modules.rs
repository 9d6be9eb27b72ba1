//! Modules that are invalid, never end, use too much memory or draw random numbers, in
//! WebAssembly's text form.

use sluice_core::event::StateValue;
use sluice_core::link::{Pipe, PipeParams};
use sluice_core::registry::Spec;
use sluice_core::{Cx, Discipline, DropCounter, DropReason, Event, Packet, Rng, Sink, Time};
use sluice_loader::Ending;

/// Returns a module with the declarations `lines` and the `body`, whose `create` returns 0 unless
/// the body has its own.
fn module(lines: &str, body: &str) -> Vec<u8> {
    let create = match body.contains("\"create\"") {
        true => "",
        false => "(func (export \"create\") (result i32) i32.const 0)",
    };
    let text = format!("(module (@custom \"sluice\" \"{lines}\") {body} {create})");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const HOOK: &str = "(param i32 i64 i32 i32 i32 i64 i64 i64) (result i32)";

/// A module whose `on_dequeue` is `code`.
fn hook(code: &str) -> Vec<u8> {
    module(
        "abi 1",
        &format!("(func (export \"on_dequeue\") {HOOK} {code})"),
    )
}

thread_local!(static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap());

/// Writes a module to `m.wasm` and loads it.
fn load(bytes: &[u8]) -> Result<Spec, String> {
    FOLDER.with(|folder| std::fs::write(folder.path().join("m.wasm"), bytes).unwrap());
    load_as("wasm:m.wasm")
}

fn load_as(words: &str) -> Result<Spec, String> {
    sluice_loader::register(&[&sluice_wasm::WasmLoader]);
    FOLDER
        .with(|folder| sluice_loader::parse_queue(words, folder.path()).map_err(|e| e.to_string()))
}

/// Sends `count` packets through a queue and returns those that leave, and the variable `stopped`.
fn pass(bytes: &[u8], count: u32) -> (Vec<u32>, bool) {
    let mut queue = load(bytes).unwrap().build().unwrap();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::from_ns(5), &mut rng, &mut dropped);
    for slot in 0..count {
        queue.enqueue(Packet::new(slot, 100), &mut cx);
    }
    let left = std::iter::from_fn(|| queue.dequeue(&mut cx).map(|p| p.slot)).collect();
    (left, is_stopped(&*queue))
}

fn is_stopped(queue: &dyn Discipline) -> bool {
    let mut stopped = false;
    queue.state(&mut |_, name, value| {
        stopped |= (name, value) == ("stopped", StateValue::Flag(true));
    });
    stopped
}

#[test]
fn a_module_with_more_than_10_000_functions_is_refused_before_they_are_read() {
    // With `create`, there are 10 001.
    let error = load(&module("abi 1", &"(func)".repeat(10_000))).unwrap_err();
    let expected = "it has 10001 functions; a module can have at most 10000";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_verdict_decides() {
    assert_eq!(pass(&hook("i32.const 0"), 3), (vec![0, 1, 2], false));
    assert_eq!(pass(&hook("i32.const 2"), 3), (vec![], false));
}

#[test]
fn an_endless_loop_stops_the_module_and_its_packets_pass() {
    let endless = hook("(loop br 0) i32.const 2");
    assert_eq!(pass(&endless, 3), (vec![0, 1, 2], true));
}

#[test]
fn a_module_that_asks_for_too_much_memory_is_stopped() {
    // One page and 31 more are 2 MiB; the result of `memory.grow` would be -1 for one more.
    let grow = |pages: u32| {
        let body = format!(
            "(memory 1) (func (export \"on_dequeue\") {HOOK}
                (drop (memory.grow (i32.const {pages}))) i32.const 0)"
        );
        module("abi 1", &body)
    };
    assert_eq!(pass(&grow(31), 1), (vec![0], false));
    assert_eq!(pass(&grow(32), 3), (vec![0, 1, 2], true));
    // An error of `create` is one of the module itself, so its message is seen before any packet.
    let create = "(memory 1) (func (export \"create\") (result i32) (memory.grow (i32.const 32)))";
    let hook = format!("(func (export \"on_dequeue\") {HOOK} i32.const 0)");
    let error = load(&module("abi 1", &format!("{create} {hook}"))).unwrap_err();
    assert!(
        error.ends_with(
            "`create` asked for more memory than the 2097152 bytes that a module may have"
        ),
        "{error}"
    );
}

#[test]
fn a_trap_a_wrong_verdict_and_a_mark_on_an_incapable_packet_stop_the_module() {
    for code in ["unreachable", "i32.const 3", "i32.const -1", "i32.const 1"] {
        assert_eq!(pass(&hook(code), 2), (vec![0, 1], true), "{code}");
    }
}

#[test]
fn a_timer_that_does_not_advance_stops_the_module() {
    let body = format!(
        "(func (export \"on_enqueue\") {HOOK} i32.const 0)
         (func (export \"next_timer\") (param i32) (result i64) i64.const 7)
         (func (export \"on_timer\") (param i32 i64 i64 i64))"
    );
    let mut queue = load(&module("abi 1", &body)).unwrap().build().unwrap();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::from_ns(5), &mut rng, &mut dropped);
    queue.enqueue(Packet::new(0, 100), &mut cx);
    assert_eq!(queue.next_timer(), Some(Time::from_ns(7)));
    cx.now = Time::from_ns(7);
    queue.on_timer(&mut cx);
    assert_eq!((queue.next_timer(), is_stopped(&*queue)), (None, true));
}

/// A module whose timer is due again `step` nanoseconds later. Each call of it spins `rounds` times.
fn ticking(step: u64, rounds: u64) -> Vec<u8> {
    let body = format!(
        "(global $due (mut i64) (i64.const 1))
         (func (export \"on_enqueue\") {HOOK} i32.const 0)
         (func (export \"next_timer\") (param i32) (result i64) global.get $due)
         (func (export \"on_timer\") (param i32 i64 i64 i64) (local $left i64)
            (local.set $left (i64.const {rounds}))
            (loop $spin
                (local.set $left (i64.sub (local.get $left) (i64.const 1)))
                (br_if $spin (i64.gt_s (local.get $left) (i64.const 0))))
            (global.set $due (i64.add (local.get 1) (i64.const {step}))))"
    );
    module("abi 1", &body)
}

#[test]
fn a_timer_that_expires_too_often_stops_the_module_and_the_link_goes_on() {
    // A second of the link's time, with a packet at its beginning and one at its end.
    let second = |step, rounds, words: &str| {
        load(&ticking(step, rounds)).unwrap();
        let queue = load_as(words).unwrap().build().unwrap();
        let mut pipe = Pipe::new(&PipeParams::default(), queue);
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::from_ns(5), &mut rng, &mut dropped);
        let ending = Ending::new();
        let left = ending.within(|| {
            pipe.enqueue(Packet::new(0, 100), &mut cx);
            cx.now = Time::from_ns(1_000_000_000);
            pipe.enqueue(Packet::new(1, 100), &mut cx);
            std::iter::from_fn(|| pipe.poll(&mut cx)).count()
        });
        assert_eq!(left, 2);
        let mut errors = 0;
        pipe.queue().state(&mut |_, name, value| {
            if let ("errors", StateValue::Count(count)) = (name, value) {
                errors = count;
            }
        });
        (errors, is_stopped(pipe.queue()), ending.stopped())
    };
    // 40 ms are at most 100 000 calls with 100 units of 4 ns, not 10^9. With 10 000 rounds, which take a
    // unit or more, a call takes 40 us at least: one each 20 us is too often.
    for (step, rounds) in [(1, 1), (20_000, 10_000)] {
        let (errors, stopped, why) = second(step, rounds, "wasm:m.wasm");
        assert_eq!((errors, stopped, why.len()), (1, true, 1), "{why:?}");
        let expected = format!("timers expire too often: the next one is {step} ns later");
        assert!(why[0].contains(&expected), "{why:?}");
    }
    // The module goes on, and so does its timer with the next packet.
    let (errors, stopped, _) = second(1, 1, "wasm:m.wasm on_error pass");
    assert_eq!((errors, stopped), (1, false));
    // A call takes 100 units and about ten of its own: less than 2500 units in 10 us.
    assert_eq!(second(10_000, 1, "wasm:m.wasm"), (0, false, vec![]));
}

#[test]
fn randomness_is_that_of_the_run() {
    // The parity of one draw decides.
    let body = format!(
        "(import \"sluice\" \"random\" (func $random (result i64)))
         (func (export \"on_dequeue\") {HOOK}
            (i32.mul (i32.const 2) (i32.wrap_i64 (i64.and (call $random) (i64.const 1)))))"
    );
    let mut rng = Rng::from_seed(1);
    let expected: Vec<u32> = (0..50).filter(|_| rng.next_u64() & 1 == 0).collect();
    assert_eq!(pass(&module("abi 1", &body), 50), (expected, false));
}

#[test]
fn parameters_reach_the_module_as_numbers() {
    // `on_dequeue` drops unless the parameter is 20 ms in nanoseconds.
    let body = format!(
        "(global $bound (mut i64) (i64.const 0))
         (func (export \"set_param\") (param i32 i64) (global.set $bound (local.get 1)))
         (func (export \"on_dequeue\") {HOOK}
            (i32.mul (i32.const 2) (i64.ne (global.get $bound) (i64.const 20000000))))"
    );
    let bytes = module("abi 1\\nparam bound span 20ms 1ms 1s a bound", &body);
    assert_eq!(pass(&bytes, 1), (vec![0], false));
}

#[test]
fn what_is_wrong_with_a_module_is_named() {
    let error = |bytes: &[u8]| load(bytes).unwrap_err();
    let has = |bytes: &[u8], text: &str| {
        let error = error(bytes);
        assert!(error.starts_with("cannot load `wasm:m.wasm`: "), "{error}");
        assert!(error.contains(text), "{error}");
    };
    has(b"abi 1", "it is not a WebAssembly module");
    has(b"\0asm\x01\0\0", "unexpected end");
    // Section 10 (code) of 1001 = 7 * 128 + 105 bytes: one for the number of functions, and the rest.
    let mut no_functions = b"\0asm\x01\0\0\0\x0a\xe9\x07".to_vec();
    no_functions.resize(no_functions.len() + 1001, 0);
    has(&no_functions, "trailing bytes at end of section");
    let none = wat::parse_str("(module)").unwrap();
    has(&none, "it has no custom section `sluice`");
    has(
        &module("abi 7", ""),
        "made for version 7 of the interface; this program has version 1",
    );
    has(
        &module("abi 1", ""),
        "exports none of `on_enqueue` and `on_dequeue` (an AQM) and `rank` (a scheduler)",
    );
    let hooked = |body: &str| {
        module(
            "abi 1",
            &format!("{body} (func (export \"on_dequeue\") {HOOK} i32.const 0)"),
        )
    };
    let bare = "(module (@custom \"sluice\" \"abi 1\"))";
    has(
        &wat::parse_str(bare).unwrap(),
        "does not export `create`, () -> (i32)",
    );
    let wrong = "(func (export \"create\") (result i64) i64.const 0)";
    has(
        &hooked(wrong),
        "its export `create` is () -> (i64) instead of () -> (i32)",
    );
    let param = module(
        "abi 1\\nparam a count 1 0 2",
        &format!("(func (export \"on_dequeue\") {HOOK} i32.const 0)"),
    );
    has(&param, "does not export `set_param`, (i32, i64) -> ()");
    let fine = module(
        "abi 1\\nparam g ratio 0.00000000001 0 1",
        &format!("(func (export \"on_dequeue\") {HOOK} i32.const 0)"),
    );
    has(
        &fine,
        "`0.00000000001`: needs more than the nine decimals that are kept",
    );
    let limit = module(
        "abi 1\\nparam limit count 1 0 2",
        &format!(
            "(func (export \"set_param\") (param i32 i64))
             (func (export \"on_dequeue\") {HOOK} i32.const 0)"
        ),
    );
    has(
        &limit,
        "its parameter `limit` is declared twice, or a queue has it already",
    );
    // 33 pages of 64 KiB are more than 2 MiB.
    has(&hooked("(memory 33)"), "a module may have 2097152 bytes");
    has(
        &hooked("(import \"sluice\" \"clock\" (func (result i64)))"),
        "it imports `clock` from `sluice`; a module can import from `sluice` only random, ",
    );
    has(
        &hooked("(func (param f64) (drop (f64.neg (local.get 0))))"),
        "float",
    );
    has(&hooked("(func $s) (start $s)"), "start");
    let endless = "(func (export \"create\") (result i32) (loop br 0) i32.const 0)";
    has(
        &hooked(endless),
        "`create` did not end within 100000 units of work",
    );
}

/// A module that ranks packets by `code`.
fn ranked(code: &str) -> Vec<u8> {
    let imports = "(import \"sluice\" \"class\" (func $class (result i64)))
        (import \"sluice\" \"hold_until\" (func $hold (param i64)))";
    let packet = "(param i32 i64 i32 i32 i32 i64 i64 i64)";
    module(
        "abi 1",
        &format!("{imports} (func (export \"rank\") {packet} (result i64) {code})"),
    )
}

/// Sends packets of these classes at 5 ns through a queue for `limit` packets, and returns those
/// that have left by 5 ns and by 9 ns.
fn order(bytes: &[u8], limit: u32, classes: &[u32]) -> (Vec<u32>, Vec<u32>, bool) {
    load(bytes).unwrap();
    let mut queue = load_as(&format!("wasm:m.wasm limit {limit}"))
        .unwrap()
        .build()
        .unwrap();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::from_ns(5), &mut rng, &mut dropped);
    for (slot, class) in (0..).zip(classes) {
        let mut packet = Packet::new(slot, 100);
        packet.class = *class;
        packet.arrival = cx.now;
        queue.enqueue(packet, &mut cx);
    }
    let mut left = |ns| {
        cx.now = Time::from_ns(ns);
        std::iter::from_fn(|| queue.dequeue(&mut cx).map(|p| p.slot)).collect()
    };
    let (early, late) = (left(5), left(9));
    (early, late, is_stopped(&*queue))
}

#[test]
fn a_module_that_ranks_is_a_scheduler() {
    let by_class = ranked("call $class");
    let (left, _, stopped) = order(&by_class, 10, &[5, 2, 7, 2]);
    assert_eq!((left, stopped), (vec![1, 3, 0, 2], false));
    // Ranks are unsigned, so the packet whose rank is all ones is the last. The full queue drops
    // this packet.
    let last = ranked("(i64.sub (call $class) (i64.const 1))");
    assert_eq!(order(&last, 2, &[0, 3, 1]).0, [2, 1]);
    // A packet of class 1 is held until 9 ns.
    let held = ranked(
        "(if (i64.eq (call $class) (i64.const 1)) (then (call $hold (i64.const 9)))) i64.const 0",
    );
    let (early, late, _) = order(&held, 10, &[1, 0, 1, 0]);
    assert_eq!((early, late), (vec![1, 3], vec![0, 2]));
}

#[test]
fn a_scheduler_that_fails_is_stopped_and_its_packets_leave_in_the_order_of_arrival() {
    // It fails at the first packet of class 9; the packet with a rank leaves first.
    let fails = ranked(
        "(if (i64.eq (call $class) (i64.const 9)) (then unreachable)) (i64.add (call $class) (i64.const 7))",
    );
    let (left, _, stopped) = order(&fails, 10, &[3, 9, 2, 1]);
    assert_eq!((left, stopped), (vec![0, 1, 2, 3], true));
}

#[test]
fn a_scheduler_hears_what_was_accepted_and_what_left() {
    // The variable is 100 for each packet accepted, its rank for each that left.
    let packet = "(param i32 i64 i32 i32 i32 i64 i64 i64 i64)";
    let body = format!(
        "(global $sum (mut i64) (i64.const 0))
         (func $add (param i64) (global.set $sum (i64.add (global.get $sum) (local.get 0))))
         (func (export \"rank\") (param i32 i64 i32 i32 i32 i64 i64 i64) (result i64) i64.const 7)
         (func (export \"on_enqueue\") {packet} (call $add (i64.const 100)))
         (func (export \"on_dequeue\") {packet} (call $add (local.get 8)))
         (func (export \"variable\") (param i32 i32) (result i64) global.get $sum)"
    );
    load(&module("abi 1\\nvar sum count", &body)).unwrap();
    let mut queue = load_as("wasm:m.wasm limit 2").unwrap().build().unwrap();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
    // The third finds no room.
    for slot in 0..3 {
        queue.enqueue(Packet::new(slot, 100), &mut cx);
    }
    assert_eq!(queue.dequeue(&mut cx).map(|p| p.slot), Some(0));
    let mut seen = Vec::new();
    queue.state(&mut |_, name, value| seen.push((name, value)));
    assert_eq!(seen, [("sum", StateValue::Count(207))]);
}

/// Notes the variables that are reported, each with its time.
struct Reported {
    wants_all: bool,
    seen: Vec<(u64, &'static str, StateValue)>,
}

impl Sink for Reported {
    fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {}

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        if let Event::State { name, value, .. } = event {
            self.seen.push((now.as_ns(), *name, *value));
        }
    }

    fn wants_state(&self) -> bool {
        self.wants_all
    }
}

#[test]
fn changes_of_variables_are_reported_to_a_host_that_wants_them() {
    // `n` counts the packets, `five` is constant.
    let body = format!(
        "(global $n (mut i64) (i64.const 0))
         (func (export \"on_enqueue\") {HOOK}
            (global.set $n (i64.add (global.get $n) (i64.const 1))) i32.const 0)
         (func (export \"variable\") (param i32 i32) (result i64)
            (select (global.get $n) (i64.const 5) (i32.eqz (local.get 1))))"
    );
    let bytes = module("abi 1\\nvar n count\\nvar five count", &body);
    let reported = |wants_all| {
        let mut queue = load(&bytes).unwrap().build().unwrap();
        let (mut rng, seen) = (Rng::from_seed(1), Vec::new());
        let mut sink = Reported { wants_all, seen };
        for (slot, ns) in [(0, 5), (1, 6)] {
            let mut cx = Cx::new(Time::from_ns(ns), &mut rng, &mut sink);
            queue.enqueue(Packet::new(slot, 100), &mut cx);
        }
        sink.seen
    };
    let count = StateValue::Count;
    let all = [
        (5_u64, "n", count(1)),
        (5, "five", count(5)),
        (6, "n", count(2)),
    ];
    assert_eq!(reported(true), all);
    assert!(reported(false).is_empty());
}

#[test]
fn a_scheduler_is_no_aqm() {
    let rank =
        "(func (export \"rank\") (param i32 i64 i32 i32 i32 i64 i64 i64) (result i64) i64.const 7)";
    let both = format!("{rank} (func (export \"on_empty\") (param i32 i64))");
    let error = load(&module("abi 1", &both)).unwrap_err();
    assert!(
        error.contains("`on_empty`, which is called in AQMs only"),
        "{error}"
    );
    let hook = format!("{rank} (func (export \"on_dequeue\") {HOOK} i32.const 0)");
    let error = load(&module("abi 1", &hook)).unwrap_err();
    assert!(error.contains("its export `on_dequeue` is"), "{error}");
    load(&module("abi 1", rank)).unwrap();
    let error = load_as("fq_wasm:m.wasm").unwrap_err();
    assert!(error.contains("leave out `fq_`"), "{error}");
    let error = load_as("wasm:m.wasm on_error pass").unwrap_err();
    assert!(error.contains("stop, end"), "{error}");
}
