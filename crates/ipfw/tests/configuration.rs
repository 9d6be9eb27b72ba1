//! A configuration is written as commands that give another engine the same one.

mod common;

use common::fuzz::written_configuration_reads_as_the_same;
use common::{Bench, Texts};
use proptest::prelude::*;

fn written(script: &str) -> String {
    let mut bench = Bench::new();
    bench.script(script);
    written_configuration_reads_as_the_same(&mut bench);
    bench.firewall.configuration().commands()
}

#[test]
fn a_new_engine_needs_no_commands() {
    assert_eq!(written(""), "");
}

#[test]
fn objects_variables_tables_rules_and_sets_are_written_in_this_order() {
    let text = written(
        "set disable 3
add 200 set 3 deny tcp from any to any
table t add 10.0.0.0/8 7
table ports create type number valtype pipe limit 9
add 100 pipe 2 ip from table(t) to any // guests
sysctl net.inet.ip.fw.one_pass=0
queue 5 config pipe 2 weight 30 lmax 1500 mask src-ip 0xff
pipe 2 config bw 10Mbit/s delay 1.5ms queue 30KBytes plr 0.01
sched 2 config type rr",
    );
    assert_eq!(
        text,
        "pipe 2 config bw 10Mbit/s delay 1.5ms queue 30KBytes plr 0.01
sched 2 config type rr
queue 5 config sched 2 weight 30 lmax 1500 queue 50 buckets 64 mask src-ip 0x000000ff
sysctl net.inet.ip.fw.one_pass=0
table t create type addr
table t add 10.0.0.0/8 7
table ports create type number valtype pipe limit 9
add 00100 pipe 2 ip from table(t) to any // guests
add 00200 set 3 deny tcp from any to any
set disable 3
"
    );
}

#[test]
fn an_object_keeps_the_defaults_of_its_time() {
    let text = written(
        "sysctl net.inet.ip.dummynet.codel.target=7000
pipe 1 config bw 1Mbit/s codel
sysctl net.inet.ip.dummynet.codel.target=9000",
    );
    assert!(text.contains("codel target 7ms"), "{text}");
}

#[test]
fn a_scheduler_without_parameters_keeps_its_variant_by_the_variable_of_its_time() {
    let text = written(
        "sysctl net.inet.ip.dummynet.compat=1
pipe 5 config bw 1Mbit/s
sched 5 config type wf2q+ mask dst-ip 0xff
sysctl net.inet.ip.dummynet.compat=0",
    );
    let expected = "sysctl net.inet.ip.dummynet.compat=1
sched 5 config buckets 64 mask dst-ip 0x000000ff type wf2q+
sysctl net.inet.ip.dummynet.compat=0
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn limits_that_compat_enforces_do_not_refuse_a_written_queue() {
    let mut bench = Bench::compat();
    // A new engine has limits of 100 slots and 1 MiB, at the start and while it reads objects.
    bench.script(
        "sysctl net.inet.ip.dummynet.pipe_slot_limit=1000
sysctl net.inet.ip.dummynet.pipe_byte_limit=3000000
pipe 1 config bw 10Mbit/s queue 500
queue 2 config pipe 1 queue 2000KBytes",
    );
    written_configuration_reads_as_the_same(&mut bench);
}

#[test]
fn an_engine_that_starts_with_compat_reads_units_and_variants_as_they_were_written() {
    let mut bench = Bench::compat();
    bench.script(
        "pipe 1 config bw 1Mbit/s delay 3 codel
sched 1 config type wf2q+
sysctl net.inet.ip.dummynet.compat=0
pipe 2 config bw 5Gbit/s delay 0.5ms codel",
    );
    written_configuration_reads_as_the_same(&mut bench);
    assert_eq!(
        bench.firewall.configuration().commands(),
        "sysctl net.inet.ip.dummynet.compat=0
pipe 1 config bw 1Mbit/s delay 3ms queue 50 codel variant dummynet
sysctl net.inet.ip.dummynet.compat=1
sched 1 config type wf2q+
sysctl net.inet.ip.dummynet.compat=0
pipe 2 config bw 5Gbit/s delay 0.5ms queue 50 codel
sysctl net.inet.ip.dummynet.compat=0
"
    );
}

#[test]
fn a_scheduler_keeps_the_queue_that_it_adopted() {
    let text = written("queue 1 config sched 1 queue 20\nsched 1 config type fifo");
    assert!(
        text.starts_with("queue 1 config sched 1 queue 20\n"),
        "{text}"
    );
    written("sched 1 config type fifo queue 30\nqueue 1 config sched 1");
    written("sched 1 config type fifo red 0.5/5/9/0.1\npipe 1 config delay 3 mask all");
}

#[test]
fn an_aqm_that_a_scheduler_ignores_does_not_become_its_parameters() {
    let expected = "pipe 1 config queue 50\nsched 1 config type fq_codel\n";
    // Read as one line, the target of CoDel would be that of FQ-CoDel.
    for aqm in ["codel target 50ms", "red 0.5/5/9/0.1", "pie"] {
        let script = format!("sched 1 config type fq_codel\nsched 1 config {aqm}");
        assert_eq!(written(&script), expected, "{aqm}");
        // The type changes behind a FIFO that has an AQM, by either command.
        for object in ["pipe", "sched"] {
            let script = format!("sched 1 config type fifo {aqm}\n{object} 1 config type fq_codel");
            assert_eq!(written(&script), expected, "{aqm}");
        }
    }
    let text = written("sched 1 config type fifo codel target 50ms\npipe 1 config delay 3");
    assert!(
        text.ends_with("sched 1 config queue 50 type fifo codel target 50ms\n"),
        "{text}"
    );
    // An adopted queue keeps its AQM, with which it can move to another scheduler.
    let text = written("queue 1 config sched 1 codel\nsched 1 config type fq_codel");
    assert!(
        text.starts_with("queue 1 config sched 1 queue 50 codel\n"),
        "{text}"
    );
}

#[test]
fn what_was_accepted_without_a_warning_is_written_without_one() {
    let warnings = |script: &str| -> Vec<String> {
        let mut bench = Bench::new();
        let lines = script.lines();
        lines.flat_map(|line| bench.warnings(line)).collect()
    };
    for (script, expected) in [
        (
            "pipe 1 config bw 1Mbit/s delay 0.5ms
pipe 2 config delay 20000ms",
            "pipe 1 config bw 1Mbit/s delay 0.5ms queue 50
pipe 2 config delay 20000ms queue 50
",
        ),
        (
            "sched 3 config type fq_codel
pipe 3 config bw 1Mbit/s
queue 4 config sched 3",
            "pipe 3 config bw 1Mbit/s queue 50
sched 3 config type fq_codel
queue 4 config sched 3
",
        ),
        (
            "sched 3 config weight 5 type fq_codel",
            "pipe 3 config queue 50
sched 3 config weight 5 type fq_codel
",
        ),
    ] {
        assert_eq!(warnings(script), [""; 0], "{script}");
        let text = written(script);
        assert_eq!(text, expected);
        assert_eq!(warnings(&text), [""; 0], "{text}");
    }
    // A limit that somebody has given is written, and has its warning.
    let text = written("sched 3 config type fq_codel\nqueue 4 config sched 3 queue 60");
    assert!(
        text.ends_with("queue 4 config sched 3 queue 60\n"),
        "{text}"
    );
    assert_eq!(warnings(&text).len(), 1, "{text}");
}

#[test]
fn profiles_are_written_with_the_names_of_their_files() {
    let mut bench = Bench::new();
    let profile = "samples 10\nloss-level 0.9\nprob delay\n0 1\n1 20\n";
    bench.files = Texts(vec![("/p", profile.into())]);
    bench.script("pipe 1 config bw 1Mbit/s profile /p");
    written_configuration_reads_as_the_same(&mut bench);
    let configuration = bench.firewall.configuration();
    assert_eq!(configuration.files()["/p"], profile);
}

#[test]
fn the_parts_of_an_object_make_its_command() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10Mbit/s delay 3 codel target 7ms\npipe 2 config
sched 1 config type fq_codel limit 100\nqueue 4 config pipe 2 weight 7 red 0.5/5/9/0.1",
    );
    let objects = bench.firewall.configuration().objects(10);
    let parts: Vec<_> = objects
        .iter()
        .map(|o| {
            [
                o.name.as_str(),
                o.rate.as_deref().unwrap_or("-"),
                &o.settings,
                &o.algorithm,
            ]
        })
        .collect();
    assert_eq!(
        parts,
        [
            [
                "pipe 1",
                "10Mbit/s",
                "delay 3ms queue 50",
                "codel target 7ms"
            ],
            ["sched 1", "-", "", "type fq_codel limit 100"],
            ["pipe 2", "0", "queue 50", "droptail"],
            [
                "queue 4",
                "-",
                "sched 2 weight 7 queue 50",
                "red 0.5/5/9/0.1"
            ],
        ]
    );
    let before = bench.firewall.configuration().commands();
    for object in objects {
        let rate = object
            .rate
            .map_or(String::new(), |rate| format!("bw {rate}"));
        let (name, settings, algorithm) = (object.name, object.settings, object.algorithm);
        // A scheduler has no AQM to leave out.
        bench.ok(&format!("{name} config {rate} {settings} {algorithm}"));
    }
    assert_eq!(bench.firewall.configuration().commands(), before);
}

const COMMANDS: &[&str] = &[
    "pipe 1 config",
    "pipe 1 config bw 10Mbit/s delay 20 queue 20 plr 0.01,0.1,0.5,0.3",
    "pipe 1 config bw 9600 burst 10k mask src-ip 0xffffff00 buckets 256 codel target 7ms ecn",
    "pipe 2 config bw 1.5Mbit/s delay 250us gred 0.5/5/6/1 ecn",
    "pipe 2 config type fq_codel quantum 300 limit 1000 noecn",
    "pipe 2 config mask all weight 30 lmax 1500 pri 2 queue 3000B pie",
    "sched 1 config type fifo",
    "sched 1 config type fifo queue 30 red 0.002/5/15/0.1",
    "sched 1 config type fq_codel",
    "sched 1 config codel target 7ms",
    "sched 1 config type fifo queue 20 pie",
    "pipe 1 config type fq_codel",
    "pipe 1 config type fifo",
    "sched 1 config type qfq mask dst-ip 0xff",
    "sched 2 config type prio",
    "sched 3 config type cake bandwidth 5Mbit/s",
    "queue 1 config sched 1",
    "queue 1 config sched 1 weight 3 queue 40 mask queue",
    "queue 1 config sched 2 weight 9 codel",
    "queue 2 config pipe 2 weight 90 mask dst-ip6 64 queue pie",
    "queue 3 config sched 9",
    "pipe 1 delete",
    "queue 1 delete",
    "pipe flush",
    "sysctl net.inet.ip.dummynet.codel.target=7000",
    "sysctl net.inet.ip.dummynet.fqcodel.limit=500",
    "sysctl net.inet.ip.dummynet.hash_size=128",
    "sysctl net.inet.ip.dummynet.compat=1",
    "disable one_pass",
    "table 1 create type iface",
    "table a add 10.0.0.0/8 5 2001:db8::/32 7,8",
    "table a delete 10.0.0.0/8",
    "table 1 swap b",
    "add pipe 1 ip from any to any in recv em0",
    "add 50 set 5 prob 0.25 deny log logamount 5 tcp from { 10.0.0.1 or table(a) } 80,443 to not me",
    "add 50 skipto tablearg ip from table(a) to any keep-state :web",
    "add allow tcp from any to any setup limit src-addr 4 // a remark",
    "set disable 5",
    "set move 5 to 6",
    "delete 50",
    "flush",
];

proptest! {
    #[test]
    fn any_configuration_is_read_as_it_was_written(
        picks in proptest::collection::vec(0..COMMANDS.len(), 0..12)
    ) {
        let mut bench = Bench::new();
        for pick in picks {
            // Some are refused after others.
            let _ = bench.run(COMMANDS[pick]);
        }
        written_configuration_reads_as_the_same(&mut bench);
    }
}
