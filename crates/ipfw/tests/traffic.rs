//! Traffic in virtual time: rates, weights, masks.

mod common;

use std::collections::BTreeMap;

use common::{Bench, MS, S, ip, out, udp};
use sluice_core::DropReason;
use sluice_ipfw::headers::{ICMP, TCP, UDP};
use sluice_ipfw::{Direction, Headers};

/// Sends `bytes` every `every` ns from now until `until` for each of `flows`. Returns the bytes
/// that passed, by flow.
fn flood(bench: &mut Bench, flows: &[Headers], bytes: u32, every: u64, until: u64) -> Vec<u64> {
    let mut flow_of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut passed = vec![0; flows.len()];
    let mut at = bench.now;
    while at < until {
        bench.run_until(at);
        for (_, slot, len) in bench.out.drain(..) {
            // Packets sent earlier do not count.
            if let Some(flow) = flow_of.get(&slot) {
                passed[*flow] += u64::from(len);
            }
        }
        for (index, headers) in flows.iter().enumerate() {
            flow_of.insert(bench.send(bytes, headers), index);
        }
        at += every;
    }
    bench.run_until(until);
    for (_, slot, len) in bench.out.drain(..) {
        if let Some(flow) = flow_of.get(&slot) {
            passed[*flow] += u64::from(len);
        }
    }
    passed
}

/// Bits per second.
fn bps(bytes: u64, ns: u64) -> u64 {
    bytes * 8 * S / ns
}

#[test]
fn a_pipe_has_its_rate_and_delay() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 10Mbit/s delay 20\nadd pipe 1 ip from any to any");
    // 1250 B take 1 ms at 10 Mbit/s, and the delay is 20 ms.
    bench.send(1250, &udp(1));
    bench.send(1250, &udp(1));
    bench.drain();
    let due: Vec<u64> = bench.out.drain(..).map(|(due, ..)| due).collect();
    assert_eq!(due, [21 * MS, 22 * MS]);
    let start = bench.now;
    let passed = flood(&mut bench, &[udp(1)], 1250, 100_000, start + 10 * S);
    // The arrival rate is ten times the link's. The link is busy from the first packet on, which
    // arrives after 21 ms, so at most one packet is missing from 10 s minus 21 ms.
    let expected = 10_000_000 * (10_000 - 20) / 1000 / 8;
    assert!(
        passed[0].abs_diff(expected) <= 1250,
        "{}, not {expected}",
        passed[0]
    );
}

#[test]
fn subscribers_behind_a_mask_have_their_own_rate_each() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 2Mbit/s mask src-ip 0xffffffff
         add pipe 1 ip from 10.0.1.0/24 to any",
    );
    let passed = flood(&mut bench, &[udp(1), udp(2)], 1250, MS, 10 * S);
    for bytes in passed {
        // Each source sends 8 Mbit/s and may pass 2; the first packet arrives after 5 ms.
        assert!(bps(bytes, 10 * S).abs_diff(2_000_000) <= 2_000, "{bytes}");
    }
    let text = bench.ok("pipe 1 show");
    assert!(
        text.contains(" 2 active") && text.contains("10.0.1.1/0") && text.contains("10.0.1.2/0"),
        "{text}"
    );
}

#[test]
fn weights_share_the_link_of_wf2q() {
    // The article's network: TCP 69, UDP 30, ICMP 1 on one link of 10 Mbit/s.
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10MBit/s delay 10ms
         sched 1 config pipe 1 type wf2q+
         queue 100 config sched 1 weight 69 mask all
         queue 200 config sched 1 weight 30 mask all
         queue 300 config sched 1 weight 1 mask all
         add 1000 queue 100 tcp from 10.0.1.0/24 to any out
         add 1001 queue 200 udp from 10.0.1.0/24 to any out
         add 1002 queue 300 icmp from 10.0.1.0/24 to any out",
    );
    let flow = |proto| out(proto, ip(10, 0, 1, 2), ip(10, 0, 2, 2), (1000, 2000));
    let flows = [flow(TCP), flow(UDP), flow(ICMP)];
    let passed = flood(&mut bench, &flows, 1250, 500_000, 10 * S);
    let all: u64 = passed.iter().sum();
    for (bytes, weight) in passed.iter().zip([69, 30, 1]) {
        // 8000 packets pass. WF2Q+ deviates from the fluid share by at most a packet or two, and
        // the delay line holds 10 packets at the end.
        let expected = all * weight / 100;
        assert!(
            bytes.abs_diff(expected) <= 15 * 1250,
            "{bytes} of {all}, not {expected}"
        );
    }
    // 70/30 between TCP and UDP.
    let share = passed[0] * 1000 / (passed[0] + passed[1]);
    assert!(share.abs_diff(697) <= 3, "{share}");
    // A flow that is alone has the whole link.
    bench.drain();
    let start = bench.now;
    let passed = flood(&mut bench, &[flow(UDP)], 1250, 500_000, start + 10 * S);
    assert!(bps(passed[0], 10 * S) > 9_900_000, "{passed:?}");
    assert!(bench.ok("queue 200 show").contains(" udp "));
}

#[test]
fn a_mask_on_a_queue_gives_each_flow_the_whole_weight() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10Mbit/s
         sched 1 config type rr
         queue 1 config sched 1 weight 1 mask src-ip 0xffffffff
         queue 2 config sched 1 weight 1
         add queue 1 ip from 10.0.1.0/30 to any
         add queue 2 ip from any to any",
    );
    // Weights are per queue and not per flowset: three sources, and a fourth one in the other
    // queue.
    let flows = [udp(1), udp(2), udp(3), udp(9)];
    let passed = flood(&mut bench, &flows, 1250, MS, 4 * S);
    for bytes in &passed {
        assert!(bytes.abs_diff(passed[0]) <= 2 * 1250, "{passed:?}");
    }
}

#[test]
fn a_mask_on_a_scheduler_gives_each_flow_a_link() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 1Mbit/s
         sched 1 config mask src-ip 0xffffffff type fq_droptail
         queue 1 config sched 1
         add queue 1 ip from any to any",
    );
    let passed = flood(&mut bench, &[udp(1), udp(2)], 1250, 5 * MS, 10 * S);
    for bytes in passed {
        assert!(bps(bytes, 10 * S).abs_diff(1_000_000) < 2_000, "{bytes}");
    }
    assert!(bench.ok("sched 1 show").contains(" 2 active"));
}

#[test]
fn late_polls_change_no_instant_of_a_chain_of_pipes() {
    let script = "pipe 1 config bw 8Mbit/s delay 3
         pipe 2 config bw 4Mbit/s delay 1
         disable one_pass
         add 10 pipe 1 ip from any to any
         add 20 pipe 2 ip from any to any
         add 30 allow ip from any to any";
    let run = |poll_every: Option<u64>| {
        let mut bench = Bench::new();
        bench.script(script);
        for i in 0..100 {
            bench.now = i * MS / 2;
            bench.send(1000, &udp((i % 7) as u8));
            if let Some(every) = poll_every
                && i % every == 0
            {
                bench.now += MS / 4;
                bench.poll();
            }
        }
        bench.drain();
        let mut due: Vec<u64> = bench.out.iter().map(|(due, ..)| *due).collect();
        due.sort_unstable();
        due
    };
    let exact = run(Some(1));
    assert_eq!(run(None), exact);
    assert_eq!(run(Some(13)), exact);
    // 1000 B: 1 ms on the first link, 2 ms on the second, the bottleneck, which holds 50. From the
    // first packet at 1 + 3 + 2 + 1 = 7 ms on, one packet leaves every 2 ms.
    assert_eq!(exact[..3], [7 * MS, 9 * MS, 11 * MS]);
}

#[test]
fn loss_comes_before_the_queue_and_counts() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config plr 0.1\nadd pipe 1 ip from any to any");
    for _ in 0..10_000 {
        bench.send(100, &udp(1));
        bench.drain();
    }
    // 10 000 draws at 0.1: mean 1000, standard deviation 30; five of them either way.
    let lost = bench.drops(DropReason::Loss);
    assert!((850..=1150).contains(&lost), "{lost}");
    let text = bench.ok("pipe 1 show");
    assert!(
        text.contains(&format!(" 10000  1000000  0    0 {lost}\n")),
        "{text}"
    );
    assert_eq!(bench.ok("sysctl -n net.inet.ip.dummynet.io_pkt"), "10000\n");
    assert_eq!(
        bench.ok("sysctl -n net.inet.ip.dummynet.io_pkt_drop"),
        format!("{lost}\n")
    );
}

/// As `docs/dummynet.md` says: no timer looks for idle flows.
#[test]
fn compat_removes_an_idle_flow_when_the_next_packet_arrives() {
    let mut bench = Bench::compat();
    bench.script(
        "pipe 1 config bw 8Mbit/s mask src-ip 0xffffffff
         add pipe 1 ip from any to any",
    );
    let shows = |bench: &mut Bench| {
        let text = bench.ok("pipe show");
        [" 10.0.1.1/0 ", " 10.0.1.2/0 "].map(|flow| text.contains(flow))
    };
    bench.send(1500, &udp(1));
    bench.run_until(10 * S);
    assert_eq!(shows(&mut bench), [true, false]);
    bench.send(1500, &udp(2));
    assert_eq!(shows(&mut bench), [false, true]);
}

#[test]
fn idle_flows_release_their_memory_and_keep_their_counters() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config mask src-ip 0xffffffff\nadd pipe 1 ip from any to any");
    bench.send(1000, &udp(1));
    bench.drain();
    // The traffic drives the search for idle flows: 64 flows are visited per ms.
    for ms in 0..11_000 {
        bench.now = ms * MS;
        bench.send(100, &udp(2));
        bench.drain();
    }
    let text = bench.ok("pipe 1 show");
    assert!(text.contains(" 1 active"), "{text}");
    assert!(
        text.contains("10.0.1.1/0             0.0.0.0/0        1     1000  0    0   0\n"),
        "{text}"
    );
    // The next packet wakes the flow up, and counting continues.
    bench.send(1000, &udp(1));
    bench.drain();
    let text = bench.ok("pipe 1 show");
    assert!(
        text.contains(" 2 active") && text.contains("    2     2000  0    0   0\n"),
        "{text}"
    );
}

#[test]
fn a_queue_is_shown_with_as_many_flows_as_rows() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 100Mbit/s
         queue 1 config pipe 1 mask src-ip 0xffffffff
         add queue 1 ip from any to any",
    );
    bench.send(1000, &udp(1));
    bench.drain();
    for ms in 0..11_000 {
        bench.now = ms * MS;
        bench.send(100, &udp(2));
        bench.drain();
    }
    let text = bench.ok("queue 1 show");
    let rows = text
        .lines()
        .filter(|line| line.contains(" 10.0.1."))
        .count();
    // One of them is idle.
    assert_eq!(rows, 2, "{text}");
    assert!(text.starts_with("q00001  50 sl. 2 flows ("), "{text}");
}

#[test]
fn the_snapshot_has_what_the_text_lacks() {
    let mut bench = Bench::new();
    // A packet takes 10 ms: a smaller target would empty the queue.
    bench.script(
        "pipe 1 config bw 1Mbit/s delay 50 codel target 15ms ecn\nadd pipe 1 ip from any to any",
    );
    let mut at = 0;
    while at < 4 * S {
        bench.run_until(at);
        bench.send(1250, &udp(1));
        at += 9 * MS;
    }
    let output = bench.run("--json pipe 1 show").unwrap();
    let snapshot = output.snapshot.expect("--json gives values");
    let flow = &snapshot.pipes[0].flows[0];
    // 4 s in steps of 9 ms.
    assert_eq!(flow.counters.packets, 445);
    // The link is always busy: 1 Mbit/s at the far end, five packets of 10 ms in flight.
    assert!(
        flow.rate_bps.abs_diff(1_000_000) < 15_000,
        "{}",
        flow.rate_bps
    );
    assert_eq!(flow.in_flight_packets, 6);
    let wait = flow.wait.expect("packets have waited");
    assert!(wait.p50_ns <= wait.p95_ns && wait.p99_ns <= wait.max_ns && wait.max_ns > 5 * MS);
    assert!(
        flow.counters
            .dropped_for
            .iter()
            .any(|(reason, n)| *reason == "congestion" && *n > 0)
    );
    assert!(flow.variables.iter().any(|(_, name, _)| *name == "count"));
    assert_eq!(output.stdout, "");
}

#[test]
fn passes_in_both_directions_are_distinguished() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config delay 5
         pipe 2 config delay 9
         add pipe 1 ip from any to any in recv em0
         add pipe 2 ip from any to any out xmit em1",
    );
    bench.send(
        100,
        &Headers {
            direction: Direction::In,
            xmit: None,
            ..udp(1)
        },
    );
    bench.send(100, &udp(1));
    bench.drain();
    let due: Vec<u64> = bench.out.iter().map(|(due, ..)| *due).collect();
    assert_eq!(due, [5 * MS, 9 * MS]);
}

#[test]
fn connected_interfaces_make_both_passes_at_their_own_instants() {
    use sluice_ipfw::InterfaceId;
    let came_in = Headers {
        direction: Direction::In,
        xmit: None,
        ..udp(1)
    };
    // 5 ms on the pass in, 9 ms on the pass out. With one rule for both passes, 5 ms twice.
    for (rules, due) in [
        (
            "add pipe 1 ip from any to any in recv em0\nadd pipe 2 ip from any to any out recv em0 xmit em1",
            14,
        ),
        (
            "add pipe 2 ip from any to any out\nadd allow ip from any to any",
            9,
        ),
        ("add pipe 1 ip from any to any", 10),
        (
            "sysctl net.inet.ip.fw.one_pass=0\nadd pipe 1 ip from any to any in\nadd pipe 2 ip from any to any\nadd allow ip from any to any",
            5 + 9 + 9,
        ),
    ] {
        let mut bench = Bench::new();
        bench.firewall.connect(InterfaceId(0), InterfaceId(1));
        bench.script("pipe 1 config delay 5\npipe 2 config delay 9");
        bench.script(rules);
        bench.send(100, &came_in);
        // Late polls change nothing, because everything is due earlier.
        bench.now = 50 * MS;
        bench.poll();
        let all: Vec<u64> = bench.out.iter().map(|(due, ..)| *due / MS).collect();
        assert_eq!(all, [due], "{rules}");
    }
}

#[test]
fn link_local_traffic_is_shaped_here_and_dropped_under_compat() {
    let link_local: std::net::IpAddr = "fe80::1".parse().unwrap();
    for (mut bench, passed) in [(Bench::new(), 1), (Bench::compat(), 0)] {
        bench.script("pipe 1 config\nadd pipe 1 ip6 from any to any");
        bench.send(100, &out(ICMP, link_local, link_local, (0, 0)));
        bench.drain();
        assert_eq!(bench.out.len(), passed);
    }
}

#[test]
fn red_has_the_thresholds_that_it_was_given() {
    // With w_q 1 the average equals the queue: no drops up to min_th, and all packets dropped from
    // max_th on (RED), so 40 packets that arrive at once find 20 places out of 1000.
    let at_once = |words: &str| {
        let mut bench = Bench::new();
        bench.script(&format!(
            "pipe 1 config bw 1Mbit/s queue 1000 {words}\nadd pipe 1 ip from any to any"
        ));
        for _ in 0..40 {
            bench.send(1250, &udp(1));
        }
        40 - bench.dropped.0.len()
    };
    // The first packet is on the link, and the average is computed before a packet is added.
    assert!(
        (19..=21).contains(&at_once("red 1/19/20/1")),
        "{}",
        at_once("red 1/19/20/1")
    );
    assert!((34..=40).contains(&at_once("red 1/35/39/0.5")));
    assert_eq!(at_once("red 0.002/100/200/0.1"), 40);
    // The thresholds are in bytes where the queue counts bytes: 12 packets of 1250 are 15000.
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 1Mbit/s queue 200KBytes red 1/14000/15000/1\nadd pipe 1 ip from any to any",
    );
    for _ in 0..40 {
        bench.send(1250, &udp(1));
    }
    let kept = 40 - bench.dropped.0.len();
    assert!((11..=14).contains(&kept), "{kept}");
}

#[test]
fn super_packets_are_split_for_the_pipes_that_their_flow_may_enter() {
    use sluice_core::Rate;
    let threshold = Rate::from_bps(1_000_000_000);
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10Mbit/s
         pipe 2 config bw 10Gbit/s
         pipe 3 config bw 10Gbit/s jitter 1ms
         pipe 4 config bw 10Gbit/s plr 0.1
         table t create type addr valtype pipe
         table t add 10.0.1.5/32 1
         table t add 10.0.1.6/32 2
         add 100 pipe 1 ip from 10.0.1.1 to any
         add 110 pipe 2 ip from 10.0.1.2 to any
         add 120 pipe 3 ip from 10.0.1.3 to any
         add 130 pipe 4 ip from 10.0.1.4 to any
         add 140 pipe tablearg ip from table(t) to any
         add 150 prob 0.5 pipe 1 ip from 10.0.1.7 to any
         add 160 pipe 2 ip from 10.0.1.7 to any
         add 65000 allow ip from any to any",
    );
    // Counted: the slow pipe, jitter, loss, the table's slow pipe, and uncertain cases. Not
    // counted: the fast pipe, the table's fast pipe, and no pipe at all.
    let split: Vec<u8> = (1..=8)
        .filter(|host| bench.firewall.splits(&udp(*host), threshold))
        .collect();
    assert_eq!(split, [1, 3, 4, 5, 7]);
    // Rules behind a pipe may send a packet into any other pipe; so may a known state.
    bench.ok("sysctl net.inet.ip.fw.one_pass=0");
    assert!(bench.firewall.splits(&udp(2), threshold));
    bench.ok("sysctl net.inet.ip.fw.one_pass=1");
    assert!(!bench.firewall.splits(&udp(2), threshold));
    bench.ok("add 50 check-state");
    assert!(bench.firewall.splits(&udp(2), threshold));
    // Without a slow pipe nothing needs splitting.
    bench.script("-q pipe flush\npipe 2 config bw 10Gbit/s");
    assert!(!bench.firewall.splits_any(threshold));
}

#[test]
fn both_passes_decide_whether_a_super_packet_is_split() {
    use sluice_core::Rate;
    use sluice_ipfw::InterfaceId;
    let mut bench = Bench::new();
    bench.firewall.connect(InterfaceId(0), InterfaceId(1));
    bench.script(
        "pipe 1 config bw 10Mbit/s
         add 100 pipe 1 ip from any to any out xmit em1
         add 200 allow ip from any to any",
    );
    let threshold = Rate::from_bps(1_000_000_000);
    let arriving = |from: u16| Headers {
        direction: Direction::In,
        recv: Some(InterfaceId(from)),
        xmit: None,
        ..udp(1)
    };
    assert!(bench.firewall.splits(&arriving(0), threshold));
    assert!(!bench.firewall.splits(&arriving(1), threshold));
}

#[test]
fn to_be_told_of_packets_changes_nothing() {
    let run = |is_told: bool| {
        let mut bench = Bench::new();
        bench.script(
            "sched 1 config mask src-ip 0xffffffff type fq_codel
             pipe 1 config bw 1Mbit/s
             queue 1 config sched 1
             pipe 2 config bw 1Mbit/s mask dst-ip 0xffffffff codel
             add queue 1 ip from any to any src-port 1000
             add pipe 2 ip from any to any",
        );
        let headers = |turn: u32| {
            let host = turn % 3_000;
            out(
                UDP,
                ip(10, 1, (host / 250) as u8, (host % 250) as u8),
                ip(10, 0, 2, (turn % 7) as u8),
                (1000 + (turn / 3_000 % 2) as u16, 53),
            )
        };
        for batch in 0..600_u32 {
            let turns = batch * 20..(batch + 1) * 20;
            let coming: Vec<Headers> = turns.clone().map(headers).collect();
            if is_told {
                bench.firewall.expect(&coming);
            }
            // The host may lose some of what it has announced.
            let skipped = usize::from(batch % 3 == 0);
            for (turn, headers) in turns.zip(&coming).skip(skipped) {
                bench.run_until(u64::from(turn) * 100_000);
                bench.send(1000, headers);
            }
        }
        assert!(bench.firewall.is_wide());
        bench.drain();
        (bench.out, bench.dropped.0)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_show_in_pieces_equals_a_show() {
    use sluice_core::{Cx, Time};
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 2Mbit/s mask src-ip 0xffffffff codel
         pipe 2 config
         sched 3 config mask dst-ip 0xff type fq_codel
         queue 3 config sched 3
         sched 4 config
         queue 4 config sched 4 mask src-ip 0xffffffff
         add pipe 1 ip from any to any src-port 1000
         add queue 3 ip from any to any src-port 1001
         add queue 4 ip from any to any",
    );
    for turn in 0..900_u32 {
        let source = ip(10, 0, (turn / 200) as u8, (turn % 200) as u8);
        let ports = (1000 + (turn % 3) as u16, 53);
        bench.send(
            1000,
            &out(UDP, source, ip(10, 0, 2, (turn % 7) as u8), ports),
        );
    }
    bench.run_until(20 * MS);
    for command in [
        "pipe show",
        "pipe 2 show",
        "-v pipe list 1-5",
        "sched show",
        "sched 3 show",
        "ipfw sched 4 show",
        "--json pipe show",
        "--json sched show",
        "pipe 7 show",
        "queue show",
        "queue 4 show",
        "--json queue show",
    ] {
        let said = bench.run(command).unwrap();
        let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
        let survey = bench.firewall.survey(command, &mut cx);
        let mut survey = survey.expect("it only shows objects");
        let mut pieces = 1;
        while bench.firewall.look(&mut survey, 40, &mut cx) {
            pieces += 1;
        }
        assert!(pieces > 6, "{pieces}");
        assert_eq!(survey.finish(), said, "{command}");
    }
    // Commands that do more, or that warn, are not shown in pieces.
    for command in ["pipe 1 delete", "pipe show nine", "list", "-n pipe show"] {
        let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
        assert!(
            bench.firewall.survey(command, &mut cx).is_none(),
            "{command}"
        );
    }
}

#[test]
fn a_pipe_that_sleeps_between_packets_loses_what_it_should() {
    // 12 s apart: the pipe sleeps after 10 s. With `compat`, it is deleted after 64 ms.
    for (mut bench, apart) in [(Bench::new(), 12 * S), (Bench::compat(), 12 * S)] {
        bench.script("pipe 1 config bw 10Mbit/s loss 0.5\nadd pipe 1 ip from any to any");
        for _ in 0..400 {
            bench.run_until(bench.now + apart);
            bench.send(100, &udp(2));
        }
        // Mean 200, sigma sqrt(400 * .5 * .5) = 10; 5 sigma = 50.
        let lost = bench.dropped.0.len();
        assert!(lost.abs_diff(200) < 50, "{lost}");
    }
}

#[test]
fn a_pipe_that_sleeps_goes_on_in_its_pattern() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 10Mbit/s lose_every 3\nadd pipe 1 ip from any to any");
    for _ in 0..9 {
        bench.run_until(bench.now + 12 * S);
        bench.send(100, &udp(2));
    }
    // The third, sixth and ninth.
    let lost: Vec<u64> = bench
        .dropped
        .0
        .iter()
        .map(|(at, ..)| at / (12 * S))
        .collect();
    assert_eq!(lost, [3, 6, 9]);
}

#[test]
fn the_hosts_behind_a_mask_lose_packets_of_their_own_after_a_change() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10Mbit/s loss 0.5 mask src-ip 0xffffffff\nadd pipe 1 ip from any to any",
    );
    let send_to_all = |bench: &mut Bench, count: usize| {
        let mut lost = vec![Vec::new(); 8];
        for _ in 0..count {
            for (host, lost) in (1..).zip(&mut lost) {
                let before = bench.dropped.0.len();
                bench.send(100, &udp(host));
                lost.push(bench.dropped.0.len() > before);
            }
            bench.run_until(bench.now + 10 * MS);
        }
        lost
    };
    send_to_all(&mut bench, 1);
    bench.ok("pipe 1 config bw 20Mbit/s loss 0.5 mask src-ip 0xffffffff");
    // Two of eight hosts agree in 64 packets with a probability of 28 / 2^64.
    let mut lost = send_to_all(&mut bench, 64);
    lost.sort();
    lost.dedup();
    assert_eq!(lost.len(), 8);
}
