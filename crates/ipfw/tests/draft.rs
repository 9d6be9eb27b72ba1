//! Changes on a copy of the configuration, beside the engine.

mod common;

use common::{Bench, MS, udp};
use sluice_core::{Cx, Time};
use sluice_ipfw::{Amended, Amendment, CommandError, Draft, Mode, Output, Settings};

/// Executes `text` on a copy of the configuration of `bench`.
fn amend(bench: &mut Bench, text: &str, mode: Mode) -> (Output, Result<Amendment, CommandError>) {
    assert!(Draft::is_for(text, mode), "{text}");
    let mut draft = bench.firewall.draft();
    while bench.firewall.continue_draft(&mut draft) {}
    let mut output = Output::default();
    let settings = Settings::default();
    let amended = draft.amend(&settings, text, mode, &mut bench.files, &mut output);
    (output, amended)
}

fn exchange(bench: &mut Bench, amended: Amended) -> Result<(), Box<Amended>> {
    let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
    bench.firewall.exchange(amended, &mut cx).map(drop)
}

fn whole(bench: &mut Bench, text: &str) -> (Output, Result<(), CommandError>) {
    execute(bench, text, Mode::Atomic)
}

fn execute(bench: &mut Bench, text: &str, mode: Mode) -> (Output, Result<(), CommandError>) {
    let mut output = Output::default();
    let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
    let result = bench
        .firewall
        .execute(text, mode, &mut bench.files, &mut output, &mut cx);
    (output, result)
}

const BASE: &str = "pipe 1 config bw 1Mbit/s queue 40
pipe 2 config bw 2Mbit/s
sched 3 config type qfq
queue 1 config sched 3 weight 10
queue 2 config sched 3 weight 1
table t create type addr
table t add 10.0.1.1/32 1
table u add 10.0.1.2/32 3
add 100 count ip from any to any
add 100 queue 1 ip from 10.0.1.3 to any
add 200 pipe tablearg ip from table(t) to any
add 300 queue 2 udp from any to any keep-state
add 400 set 7 count ip from any to any";

const CHANGES: [&str; 9] = [
    "add 77 count ip from any to any\nlist\ndelete 100\n-S list 77 200-300",
    "pipe 1 config bw 3Mbit/s queue 5 codel\nadd 90 count udp from any to any",
    "queue 1 config sched 3 weight 50\nqueue 3 config sched 3\nadd 95 queue 3 ip from 10.0.1.3 to any",
    "table t flush\ntable t add 10.0.1.0/24 2\ntable u destroy",
    "delete 100\nadd 100 count ip from any to any\nset move 7 to 9\nset disable 9",
    "delete 300\nadd 300 queue 1 udp from any to any",
    "sysctl net.inet.ip.fw.one_pass=0\ndisable verbose\ntable v create type iface",
    "flush\npipe flush\npipe 7 config bw 9Mbit/s\nadd pipe 7 ip from any to any",
    "queue 1 config pipe 2 weight 7\npipe 1 delete\ntable t list\nadd 500 deny tcp from table(w) to me",
];

/// Sends packets of several flows, and lets some of them leave.
fn traffic(bench: &mut Bench) {
    for step in 0..60_u8 {
        let now = bench.now + MS;
        bench.run_until(now);
        bench.send(1000, &udp(1 + step % 4));
    }
}

fn state(bench: &mut Bench) -> Vec<String> {
    let shown = [
        "-a list",
        "-d list",
        "pipe show",
        "sched show",
        "queue show",
        "table all list",
    ];
    let mut state: Vec<String> = shown.iter().map(|command| bench.ok(command)).collect();
    state.push(bench.ok("sysctl -n net.inet.ip.fw.one_pass net.inet.ip.dummynet.fsk_count"));
    state.push(format!("{:?} {:?}", bench.out, bench.dropped));
    state
}

#[test]
fn a_change_on_a_copy_does_what_it_does_in_the_engine() {
    for change in CHANGES {
        let (mut inside, mut beside) = (Bench::new(), Bench::new());
        for bench in [&mut inside, &mut beside] {
            bench.script(BASE);
            traffic(bench);
        }
        let (said, result) = whole(&mut inside, change);
        assert_eq!(result, Ok(()), "{change}");
        let (said_beside, amended) = amend(&mut beside, change, Mode::Atomic);
        let Ok(Amendment::Change(amended)) = amended else {
            panic!("{change}: {amended:?}");
        };
        // Packets come and go meanwhile.
        traffic(&mut beside);
        assert!(exchange(&mut beside, *amended).is_ok());
        assert_eq!(said, said_beside, "{change}");
        let tables = |bench: &mut Bench| (bench.ok("list"), bench.ok("table all list"));
        assert_eq!(tables(&mut inside), tables(&mut beside), "{change}");

        // The same at the same instant: equal in all respects from then on.
        let (mut inside, mut beside) = (Bench::new(), Bench::new());
        for bench in [&mut inside, &mut beside] {
            bench.script(BASE);
            traffic(bench);
        }
        assert_eq!(whole(&mut inside, change).1, Ok(()));
        let (_, amended) = amend(&mut beside, change, Mode::Atomic);
        let Ok(Amendment::Change(amended)) = amended else {
            panic!("{change}: {amended:?}");
        };
        assert!(exchange(&mut beside, *amended).is_ok());
        assert_eq!(state(&mut inside), state(&mut beside), "{change}");
        traffic(&mut inside);
        traffic(&mut beside);
        assert_eq!(state(&mut inside), state(&mut beside), "{change}");
    }
}

#[test]
fn a_copy_that_is_older_than_the_configuration_is_refused() {
    let mut bench = Bench::new();
    bench.script(BASE);
    let (_, amended) = amend(&mut bench, "add 77 count ip from any to any", Mode::Atomic);
    let Ok(Amendment::Change(amended)) = amended else {
        panic!("{amended:?}");
    };
    bench.ok("table t add 10.0.9.9/32 4");
    let before = state(&mut bench);
    assert!(exchange(&mut bench, *amended).is_err());
    assert_eq!(state(&mut bench), before);
}

#[test]
fn a_command_that_only_reads_does_not_make_a_copy_stale() {
    let mut bench = Bench::new();
    bench.script(BASE);
    traffic(&mut bench);
    for text in [
        "table t list",
        "table t lookup 10.0.1.1",
        "table t info",
        "table all detail",
        "set show",
        "sysctl net.inet.ip.fw.one_pass",
        "-a list",
        "pipe show",
        // Rules that remain keep the counters that they have at the exchange.
        "resetlog",
        "zero 100",
    ] {
        let (_, amended) = amend(
            &mut bench,
            "delete 400\nadd 400 count ip from any to any",
            Mode::Atomic,
        );
        let Ok(Amendment::Change(amended)) = amended else {
            panic!("{text}: {amended:?}");
        };
        bench.ok(text);
        assert!(exchange(&mut bench, *amended).is_ok(), "{text}");
    }
    let counted = bench.ok("-a list 100");
    let packets = counted.lines().map(|line| line.split_whitespace().nth(1));
    // Both rules of this number.
    assert_eq!(packets.collect::<Vec<_>>(), [Some("0"); 2], "{counted}");
}

#[test]
fn one_change_of_commands_that_only_read_exchanges_nothing() {
    let mut bench = Bench::new();
    bench.script(BASE);
    let text = "table t lookup 10.0.1.1\nlist 400";
    let (output, amended) = amend(&mut bench, text, Mode::Atomic);
    assert!(matches!(amended, Ok(Amendment::Nothing)), "{amended:?}");
    assert_eq!(output, whole(&mut bench, text).0);
}

#[test]
fn a_refused_line_on_a_copy_changes_nothing_and_is_named() {
    let mut bench = Bench::new();
    bench.script(BASE);
    let before = state(&mut bench);
    let text = "add 77 count ip from any to any\npipe 1 config bw nonsense";
    let (_, amended) = amend(&mut bench, text, Mode::Atomic);
    let error = amended.unwrap_err();
    assert_eq!(Some(error), whole(&mut bench, text).1.err());
    assert_eq!(state(&mut bench), before);
}

#[test]
fn what_shows_packets_needs_the_engine_and_a_trial_changes_nothing() {
    let mut bench = Bench::new();
    bench.script(BASE);
    for text in [
        "add 7 count ip from any to any\n-a list",
        "add 7 count ip from any to any\nshow\nadd 8 count ip from any to any",
        "-d list",
        "zero 100",
        "sysctl -a",
        "pipe show",
    ] {
        let (output, amended) = amend(&mut bench, text, Mode::Atomic);
        assert!(
            matches!(amended, Ok(Amendment::NeedsEngine)),
            "{text}: {amended:?}"
        );
        assert_eq!(output, Output::default());
    }
    bench.files.0.push((
        "/rules",
        "add 7 count ip from any to any\nadd 8 count ip from any to any".into(),
    ));
    for (text, changes) in [
        ("-n add 7 count ip from any to any", false),
        ("-n /rules", false),
        ("--atomic /rules", true),
    ] {
        let (_, amended) = amend(&mut bench, text, Mode::Command);
        assert_eq!(
            matches!(amended, Ok(Amendment::Change(_))),
            changes,
            "{text}: {amended:?}"
        );
        assert!(changes || matches!(amended, Ok(Amendment::Nothing)));
    }
    for (text, mode) in [
        ("/rules", Mode::Command),
        ("pipe 1 config", Mode::Command),
        ("list", Mode::Batch),
    ] {
        assert!(!Draft::is_for(text, mode), "{text}");
    }
}

#[test]
fn nothing_is_printed_of_lines_that_do_not_take_effect() {
    let text = "add 5 count ip from any to any\ntable t add 10.0.0.1\npipe 1 config bv 2Mbit/s\n";
    let mut bench = Bench::new();
    bench.files.0.push(("/rules", text.into()));
    let refused = |(output, error): (Output, CommandError)| {
        assert!(
            error.to_string().starts_with("Line 3: column 15"),
            "{error}"
        );
        output
    };
    for (text, mode) in [
        (text, Mode::Atomic),
        (text, Mode::Replace),
        ("--atomic /rules", Mode::Command),
        ("-n /rules", Mode::Command),
    ] {
        let (output, result) = execute(&mut bench, text, mode);
        let said = refused((output, result.unwrap_err()));
        assert_eq!(said, Output::default(), "{text}");
        if mode != Mode::Replace {
            let (output, result) = amend(&mut bench, text, mode);
            let said = refused((output, result.unwrap_err()));
            assert_eq!(said, Output::default(), "{text}");
        }
    }
    let (output, result) = execute(&mut bench, "/rules", Mode::Command);
    let said = refused((output, result.unwrap_err()));
    assert_eq!(
        said.stdout,
        "00005 count ip from any to any\nadded: 10.0.0.1/32 0\n"
    );
}

#[test]
fn a_long_change_that_needs_the_engine_is_refused() {
    let mut bench = Bench::new();
    bench.script(BASE);
    let rule = |number: usize| format!("add {number} count ip from any to any");
    let rules = |count: usize| (1..=count).map(rule).collect::<Vec<_>>();
    let mut text = rules(99);
    text.insert(10, "zero 100".into());
    let (_, amended) = amend(&mut bench, &text.join("\n"), Mode::Atomic);
    assert!(matches!(amended, Ok(Amendment::NeedsEngine)), "{amended:?}");
    // The command may come before or behind the hundredth.
    for at in [10, 100] {
        let mut text = rules(100);
        text.insert(at, "zero 100".into());
        let (_, amended) = amend(&mut bench, &text.join("\n"), Mode::Atomic);
        let error = amended.unwrap_err().to_string();
        assert!(error.contains("Line 101"), "{error}");
        assert!(error.contains("`zero'"), "{error}");
    }
}

#[test]
fn pipes_exist_before_their_first_packet() {
    let mut bench = Bench::new();
    bench.script(BASE);
    // dummynet's pipes 1 and 2 and scheduler 3, each with a FIFO beside it.
    assert_eq!(
        bench.ok("sysctl -n net.inet.ip.dummynet.schk_count").trim(),
        "6"
    );
    let shown = bench.ok("pipe show");
    assert!(shown.contains("00001:   1.000 Mbit/s"), "{shown}");
    // A queue whose scheduler is configured later, and one whose scheduler changes its type before
    // the first packet.
    bench.run("queue 9 config sched 8").unwrap();
    bench.ok("add 50 queue 9 ip from 10.0.1.4 to any");
    bench.send(1000, &udp(4));
    assert_eq!(bench.dropped.0.len(), 1);
    bench.ok("pipe 8 config bw 1Mbit/s");
    bench.ok("sched 8 config type rr");
    bench.send(1000, &udp(4));
    bench.drain();
    assert_eq!((bench.out.len(), bench.dropped.0.len()), (1, 1));
}
