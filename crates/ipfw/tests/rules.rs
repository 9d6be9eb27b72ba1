//! Rules, their sets, states and tables: the output of `list` and `show`, and the counters.

mod common;

use common::{Bench, S, ip, out, udp};
use sluice_core::{Cx, DropReason, Time};
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{Direction, Headers, InterfaceId, Mode, NoFiles, Output};

#[test]
fn rules_are_listed_counted_and_cleared() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.ok("add 100 allow udp from any to any 53"),
        "00100 allow udp from any to any dst-port 53\n"
    );
    assert_eq!(bench.ok("-q add 200 deny ip from any to any // rest"), "");
    for _ in 0..12 {
        bench.send(1500, &udp(1));
    }
    assert_eq!(
        bench.ok("show"),
        "00100 12 18000 allow udp from any to any dst-port 53\n\
         00200  0     0 deny ip from any to any // rest\n\
         65535  0     0 deny ip from any to any\n"
    );
    assert_eq!(bench.ok("-c list 200"), "00200 deny // rest\n");
    assert_eq!(bench.ok("-b list 100"), "00100 allow\n");
    assert_eq!(
        bench.ok("-N list 100"),
        "00100 allow udp from any to any dst-port domain\n"
    );
    assert_eq!(
        bench.ok("-S list 100"),
        "00100 set 0 allow udp from any to any dst-port 53\n"
    );
    bench.now = 3_000_000_000;
    bench.send(1500, &udp(1));
    assert_eq!(
        bench.ok("-T list 100"),
        "00100          3 allow udp from any to any dst-port 53\n"
    );
    assert_eq!(
        bench.ok("-t list 100"),
        "00100 Thu Jan  1 00:00:03 1970 allow udp from any to any dst-port 53\n"
    );
    // The host's date was one day too early.
    bench.firewall.set_origin(86_400);
    assert_eq!(
        bench.ok("-t list 100"),
        "00100 Fri Jan  2 00:00:03 1970 allow udp from any to any dst-port 53\n"
    );
    assert_eq!(bench.ok("zero 100"), "Entry 100 cleared.\n");
    assert_eq!(
        bench.ok("show 100"),
        "00100 0 0 allow udp from any to any dst-port 53\n"
    );
    assert_eq!(bench.ok("zero"), "Accounting cleared.\n");
    assert_eq!(bench.ok("flush"), "Flushed all rules.\n");
    assert_eq!(bench.ok("list"), "65535 deny ip from any to any\n");
}

#[test]
fn set_31_survives_a_flush_and_disabled_sets_are_hidden() {
    let mut bench = Bench::new();
    bench.script("add 10 set 31 allow ip from any to any\nadd 20 set 3 deny ip from any to any");
    bench.ok("set disable 3");
    assert!(
        bench
            .ok("set show")
            .starts_with("disable 3 enable 0 1 2 4 5")
    );
    assert!(!bench.ok("list").contains("00020"));
    // `show_static_rule` of ipfw(8) writes the mark before the number.
    let text = bench.ok("-S show");
    let lines: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(
        lines,
        [
            "00010 0 0 set 31 allow ip from any to any",
            "# DISABLED 00020 0 0 set 3 deny ip from any to any"
        ]
    );
    bench.ok("-f flush");
    assert_eq!(
        bench.ok("list"),
        "00010 allow ip from any to any\n65535 deny ip from any to any\n"
    );
    assert_eq!(bench.refusal("set disable 31").1, 65);
}

/// `ipfw_delete` of ipfw(8) warns, and leaves the program only without `-f`; with `-q` it does not
/// warn of rules.
#[test]
fn force_goes_on_without_what_is_not_there_to_delete() {
    let mut bench = Bench::new();
    bench.script(
        "add 100 count ip from any to any\nadd 200 count ip from any to any\npipe 1 config",
    );
    let missing = "rule 777 not found";
    assert_eq!(bench.refusal("delete 777 100"), (missing.into(), 69));
    assert_eq!(bench.warnings("-f delete 777 100"), [missing]);
    assert_eq!(bench.warnings("-q delete 777"), [""; 0]);
    assert_eq!(bench.warnings("-f delete 65535"), ["rule 65535 not found"]);
    assert_eq!(
        bench.ok("list"),
        "00200 count ip from any to any\n65535 deny ip from any to any\n"
    );
    let missing = "rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument (pipe 7 does not exist)";
    assert_eq!(bench.refusal("pipe delete 7 1"), (missing.into(), 69));
    assert!(bench.ok("pipe show").starts_with("00001: "));
    assert_eq!(bench.warnings("-f pipe delete 7 1"), [missing]);
    assert_eq!(bench.ok("pipe show"), "");
    bench.ok("-q -f delete 777\nadd 400 count ip from any to any");
    assert!(bench.ok("list").contains("00400 count"));
}

#[test]
fn states_are_listed() {
    let mut bench = Bench::new();
    bench.script("add 100 check-state\nadd 200 allow udp from any to any keep-state");
    bench.send(1500, &udp(1));
    bench.now = 2_000_000_000;
    assert_eq!(
        bench.ok("-D show"),
        "## Dynamic rules (1):\n00200 1 1500 (8s) STATE udp 10.0.1.1 1000 <-> 10.0.2.2 53 :default\n"
    );
    assert!(
        bench
            .ok("-d list")
            .starts_with("00100 check-state :default\n")
    );
    let mut seen = |text: &str| {
        let snapshot = bench.run(text).unwrap().snapshot.unwrap();
        let states = snapshot.states.iter().map(|state| {
            let ends = [(state.src, state.src_port), (state.dst, state.dst_port)];
            let ends = ends.map(|(address, port)| format!("{address} {port}"));
            let left = state.expires_in_ns / 1_000_000_000;
            let (packets, bytes) = (state.packets, state.bytes);
            format!(
                "{} {} {} {packets} {bytes} ({left}s) {} <-> {}",
                state.rule, state.name, state.proto, ends[0], ends[1]
            )
        });
        (snapshot.rules.len(), states.collect::<Vec<_>>())
    };
    // As above; UDP is protocol 17.
    let state = "200 default 17 1 1500 (8s) 10.0.1.1 1000 <-> 10.0.2.2 53".to_owned();
    assert_eq!(seen("--json list"), (3, Vec::new()));
    assert_eq!(seen("--json -d list"), (3, vec![state.clone()]));
    assert_eq!(seen("--json -D show"), (0, vec![state]));
    bench.now = 20_000_000_000;
    assert_eq!(bench.ok("-D show"), "");
    assert!(bench.ok("-De show").contains("(0s) STATE"));
    let snapshot = bench.run("--json -De show").unwrap().snapshot.unwrap();
    assert_eq!(snapshot.states[0].expires_in_ns, 0);
}

/// `show_dyn_state` of ipfw(8) lists each group as a `PARENT` without packets. The kernel keeps it for
/// 5 s (`dyn_short_lifetime`) after a packet has asked for a state of it.
#[test]
fn states_of_a_limit_are_listed_with_their_groups() {
    let mut bench = Bench::new();
    bench.ok("add 100 allow udp from any to any limit src-addr 2");
    // The third is refused.
    for (second, port) in [(0, 1000), (1, 1001), (2, 1002)] {
        bench.now = second * S;
        bench.send(
            1500,
            &out(UDP, ip(10, 0, 1, 1), ip(10, 0, 2, 2), (port, 53)),
        );
    }
    assert_eq!(bench.drops(DropReason::Denied), 1);
    bench.now = 3 * S;
    // A state of UDP lives for 10 s.
    assert_eq!(
        bench.ok("-D show"),
        "## Dynamic rules (3):\n\
         00100 1 1500 (7s) LIMIT udp 10.0.1.1 1000 <-> 10.0.2.2 53 :default\n\
         00100 1 1500 (8s) LIMIT udp 10.0.1.1 1001 <-> 10.0.2.2 53 :default\n\
         00100 0    0 (4s) PARENT 2 udp 10.0.1.1 0 <-> 0.0.0.0 0 :default\n"
    );
    let snapshot = bench.run("--json -D list").unwrap().snapshot.unwrap();
    assert!(snapshot.states.iter().all(|state| state.kind == "limit"));
    let groups: Vec<_> = snapshot.groups.iter().collect();
    let [group] = groups[..] else {
        panic!("{groups:?}");
    };
    assert_eq!((group.rule, group.proto, group.states), (100, 17, 2));
    assert_eq!((group.src, group.dst), (ip(10, 0, 1, 1), ip(0, 0, 0, 0)));
    bench.now = 20 * S;
    assert_eq!(bench.ok("-D show"), "");
}

#[test]
fn a_refused_change_of_entries_leaves_the_table_as_it_was() {
    let mut bench = Bench::new();
    bench.ok("table T add 10.0.0.1 1 10.0.0.2 2 10.1.0.0/16 3");
    let before = bench.ok("table T list");
    // The second entry replaces, the third is refused.
    let refused = bench.refusal("-q table T add 10.0.0.9 9 10.0.0.1 8 10.0.0.300 1");
    assert!(refused.0.contains("10.0.0.300"), "{}", refused.0);
    assert_eq!(bench.ok("table T list"), before);
    bench.refusal("table T delete 10.0.0.2 10.1.0.0/16 10.0.0.2");
    assert_eq!(bench.ok("table T list"), before);
    // The longest prefix is still found: the lengths in use were taken back, too.
    assert_eq!(bench.ok("table T lookup 10.1.2.3"), "10.1.0.0/16 3\n");
    assert_eq!(bench.ok("table T lookup 10.0.0.2"), "10.0.0.2/32 2\n");
}

#[test]
fn a_refused_command_prints_nothing_of_what_it_has_taken_back() {
    let mut bench = Bench::new();
    bench.ok("table T add 10.0.0.5 5");
    for text in [
        "table t add 10.0.0.1 1 10.0.0.2 2 10.0.0.1 3",
        "table T delete 10.0.0.5 10.0.0.6",
        "sysctl net.inet.ip.fw.one_pass=0 net.inet.ip.fw.one_pass=2",
        "sysctl net.inet.ip.fw.one_pass=0 net.inet.ip.fw.nosuch=1",
    ] {
        let mut output = Output::default();
        let mut cx = Cx::new(Time::ZERO, &mut bench.rng, &mut bench.dropped);
        let result =
            bench
                .firewall
                .execute(text, Mode::Command, &mut NoFiles, &mut output, &mut cx);
        assert!(result.is_err(), "{text}");
        assert_eq!(output.stdout, "", "{text}");
    }
    assert_eq!(
        bench.ok("table all list"),
        "--- table(T), set(0) ---\n10.0.0.5/32 5\n"
    );
    assert_eq!(bench.ok("sysctl -n net.inet.ip.fw.one_pass"), "1\n");
}

#[test]
fn frames_that_are_not_ip_are_logged_with_their_type() {
    let mut bench = Bench::new();
    bench.script(
        "sysctl net.inet.ip.fw.verbose=1
add 100 deny log logamount 2 ip from any to any not mac-type ipv4,ipv6,arp",
    );
    let mut headers = Headers::new(Direction::In, 0, ip(0, 0, 0, 0), ip(0, 0, 0, 0));
    headers.recv = Some(InterfaceId(0));
    // LLDP.
    headers.frame = Some(0x88cc);
    let mut cx = Cx::new(Time::ZERO, &mut bench.rng, &mut bench.dropped);
    for _ in 0..3 {
        assert!(!bench.firewall.passes(&headers, &mut cx));
    }
    let (entries, lost) = bench.firewall.take_log();
    let lines: Vec<String> = entries.iter().map(ToString::to_string).collect();
    let line = "100 Deny MAC 0x88cc in via em0";
    let last = format!("{line}\nlimit 2 reached on entry 100");
    assert_eq!(lines, [line.to_owned(), last]);
    assert_eq!(lost, 0);
}

#[test]
fn a_table_that_exists_is_kept_or_flushed_as_the_command_says() {
    let mut bench = Bench::new();
    bench.script("table T create type addr\ntable T add 10.0.0.1 1");
    let exists = "Table creation failed: table T exists";
    assert_eq!(bench.refusal("table T create type addr").0, exists);
    bench.ok("table T create type addr missing");
    assert_eq!(bench.ok("table T list"), "10.0.0.1/32 1\n");
    // Neither word changes a table of another type.
    for word in ["missing", "or-flush"] {
        let refused = bench.refusal(&format!("table T create type number {word}"));
        assert_eq!(refused.0, exists);
    }
    assert_eq!(bench.ok("table T list"), "10.0.0.1/32 1\n");
    // ipfw(8): `or-flush` flushes the existing table instead of an error, and implies `missing`.
    bench.ok("table T create type addr or-flush");
    assert_eq!(bench.ok("table T list"), "");
    bench.ok("table T add 10.0.0.1 2");
    bench.ok("table T create type addr or-flush missing");
    assert_eq!(bench.ok("table T list"), "");
}

#[test]
fn a_rule_that_creates_its_table_is_named_when_another_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.warnings("add 100 deny ip from table(bad) to any"),
        [
            "table bad does not exist: it is created empty, of type addr, and this test matches no \
             packet until it has entries"
        ]
    );
    let create = "table bad create type addr";
    let exists = "Table creation failed: table bad exists";
    assert_eq!(
        bench.refusal(create),
        (
            format!(
                "{exists} (rule 100 names it and has created it: write `create` before the rule, or \
                 leave it out)"
            ),
            69
        )
    );
    bench.ok("-f flush");
    assert_eq!(
        bench.refusal(create).0,
        format!("{exists} (a rule that is gone has created it: destroy it first)")
    );
    bench.script("table bad destroy\ntable bad create type addr");
    bench.ok("add 100 deny ip from table(bad) to any");
    assert_eq!(bench.refusal(create).0, exists);
}

#[test]
fn neither_numbers_nor_misspelled_tables_are_suggested() {
    let mut bench = Bench::new();
    bench.script("table 1 create\ntable guests create");
    let mut said = |name: &str| {
        let said = bench.warnings(&format!("add count ip from table({name}) to any"));
        said.join("\n")
    };
    let question = "(did you mean ``guests''?)";
    assert!(said("guest").contains(question));
    // Table `guest` exists only since the rule above has named it.
    assert!(said("gues").contains(question));
    assert!(!said("3").contains("did you mean"));
    assert_eq!(
        bench.refusal("table guestz list").0,
        format!("Table guestz does not exist {question}")
    );
    assert_eq!(bench.refusal("table 2 list").0, "Table 2 does not exist");
}

#[test]
fn what_is_written_like_a_network_makes_no_table_of_interfaces() {
    let mut bench = Bench::new();
    for key in ["1.2.3.4/33", "1.2.3.400", "2001:db8::/129", "fe80::zz"] {
        let refused = bench.refusal(&format!("table new add {key} 1"));
        assert!(
            refused.0.contains("an address or a network"),
            "{}",
            refused.0
        );
        // Nor does a refused entry leave an empty table.
        assert_eq!(bench.ok("table all list"), "");
    }
    bench.ok("table new add vlan0.100 1");
    assert!(bench.ok("table new info").contains("type: iface"));
}

#[test]
fn a_flag_after_the_command_is_answered_with_its_place() {
    let mut bench = Bench::new();
    for line in [
        "list -a",
        "add -q allow ip from any to any",
        "table T list --json",
    ] {
        let refused = bench.refusal(line).0;
        let place = "(flags come before the command: `ipfw -a list`)";
        assert!(refused.ends_with(place), "{line}: {refused}");
    }
    // It is not one of the flags.
    assert!(!bench.refusal("list -100").0.contains("flags"));
}

#[test]
fn sysctl_without_a_name_shows_all_variables() {
    let mut bench = Bench::new();
    let all = bench.ok("sysctl");
    assert!(all.contains("net.inet.ip.fw.one_pass: 1\n"), "{all}");
    assert!(
        all.contains("net.inet.ip.dummynet.hash_size: 64\n"),
        "{all}"
    );
    assert_eq!(bench.ok("sysctl -a"), all);
    for line in all.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(bench.ok(&format!("sysctl -n {name}")), format!("{value}\n"));
    }
}

#[test]
fn tables_are_kept_and_shown() {
    let mut bench = Bench::new();
    bench.ok("table T create type addr valtype pipe,skipto");
    assert_eq!(
        bench.ok("table T add 10.0.0.0/24 5,100"),
        "added: 10.0.0.0/24 5,100\n"
    );
    assert_eq!(
        bench.refusal("table T add 10.0.0.0/24 6").0,
        "Adding record failed: record already exists (10.0.0.0/24)"
    );
    assert_eq!(bench.ok("-q table T add 10.0.0.0/24 6"), "");
    assert_eq!(bench.ok("table T lookup 10.0.0.9"), "10.0.0.0/24 6\n");
    assert_eq!(
        bench.refusal("table T lookup 10.1.0.9").0,
        "Entry 10.1.0.9 not found"
    );
    bench.ok("add pipe tablearg ip from table(T) to any");
    assert_eq!(
        bench.refusal("table T destroy").0,
        "failed to destroy table T: Device busy (1 in rules)"
    );
    assert_eq!(
        bench.ok("table T info"),
        "--- table(T), set(0) ---\n kindex: 0, type: addr\n references: 1, valtype: pipe,skipto\n items: 1\n"
    );
    assert_eq!(
        bench.ok("table T delete 10.0.0.0/24"),
        "deleted: 10.0.0.0/24 6\n"
    );
    // The first entry creates the table.
    bench.ok("table 7 add 192.0.2.1");
    assert_eq!(
        bench.ok("table all list"),
        "--- table(7), set(0) ---\n192.0.2.1/32 0\n--- table(T), set(0) ---\n"
    );
    // All entries of a command or none.
    assert!(bench.run("table 7 add 192.0.2.2 1 192.0.2.1 1").is_err());
    assert_eq!(bench.ok("table 7 list"), "192.0.2.1/32 0\n");
    assert_eq!(
        bench.refusal("add count ip from any to any via table(7)").0,
        "table 7 is of type addr, not iface"
    );
}

#[test]
fn an_interface_that_does_not_exist_is_remarked() {
    let mut bench = Bench::new();
    let mut said = |test: &str| bench.warnings(&format!("add count ip from any to any {test}"));
    assert_eq!(
        said("out xmit nosuch0"),
        ["there is no interface nosuch0, so this test matches no packet"]
    );
    assert_eq!(
        said("not recv ix*"),
        ["there is no interface ix*, so this test matches every packet"]
    );
    for known in ["via em0", "recv em*", "xmit any", "via 10.9.9.9", "in"] {
        assert!(said(known).is_empty(), "{known}");
    }
}

#[test]
fn packets_without_a_pipe_are_dropped_and_count_for_their_rule() {
    let mut bench = Bench::new();
    let said = bench.warnings("add 10 pipe 5 ip from any to any");
    assert_eq!(
        said,
        ["pipe 5 does not exist: packets that match are dropped until it does"]
    );
    bench.send(1500, &udp(1));
    assert_eq!(bench.drops(DropReason::NoRoute), 1);
    assert!(bench.ok("show 10").starts_with("00010 1 1500 "));
    let said = bench.warnings("queue 3 config sched 3");
    assert_eq!(
        said,
        ["scheduler 3 does not exist: packets of queue 3 are dropped until it does"]
    );
    bench.ok("add 5 queue 3 ip from any to any");
    bench.send(1500, &udp(1));
    assert_eq!(bench.drops(DropReason::NoRoute), 2);
    bench.ok("pipe 3 config");
    bench.send(1500, &udp(1));
    bench.drain();
    assert_eq!(bench.out.len(), 1);
}

/// The limit is 1000 pipes for one packet.
#[test]
fn a_packet_that_rules_send_through_too_many_pipes_is_dropped_and_counted() {
    let mut bench = Bench::new();
    bench.script("sysctl net.inet.ip.fw.one_pass=0\npipe 1 config");
    for number in 1..=1000 {
        bench.ok(&format!("add {number} pipe 1 ip from any to any"));
    }
    bench.ok("add 1002 allow ip from any to any");
    bench.send(1500, &udp(1));
    bench.drain();
    assert_eq!(
        (bench.out.len(), bench.firewall.refusals().pipe_loop),
        (1, 0)
    );
    bench.ok("add 1001 pipe 1 ip from any to any");
    bench.send(1500, &udp(1));
    bench.drain();
    assert_eq!((bench.out.len(), bench.drops(DropReason::NoRoute)), (1, 1));
    assert_eq!(bench.firewall.refusals().pipe_loop, 1);
    assert_eq!(bench.firewall.limits().pipe_loop, 1000);
}

#[test]
fn a_disabled_firewall_passes_everything() {
    let mut bench = Bench::new();
    bench.send(1500, &udp(1));
    assert_eq!(bench.drops(DropReason::Denied), 1);
    bench.ok("disable firewall");
    bench.send(1500, &udp(1));
    assert_eq!(bench.out.len(), 1);
}
