//! Pipes, schedulers, queues and rules that change under load.

mod common;

use common::{Bench, MS, ip, out, udp};
use proptest::prelude::*;
use sluice_core::DropReason;
use sluice_ipfw::Headers;
use sluice_ipfw::headers::{TCP, UDP};

#[test]
fn a_pipe_changed_under_load_loses_only_what_its_queue_drops() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 10Mbit/s delay 5 queue 100\nadd pipe 1 ip from any to any");
    let changes = [
        "pipe 1 config bw 12Mbit/s delay 1 queue 100",
        "pipe 1 config bw 8Mbit/s delay 20 queue 200 codel target 50ms",
        "pipe 1 config bw 10Mbit/s queue 100KBytes",
        "pipe 1 config bw 10Mbit/s delay 5 queue 100 mask src-ip 0xff",
        "pipe 1 config bw 10Mbit/s delay 5 queue 100",
    ];
    // 9.6 Mbit/s on average over 10 s: a packet of 1200 B every ms.
    let mut sent = 0;
    for ms in 0..10_000 {
        bench.run_until(ms * MS);
        bench.send(1200, &udp((ms % 3) as u8));
        sent += 1;
        if ms % 100 == 99 {
            bench.ok(changes[(ms / 100) as usize % changes.len()]);
        }
    }
    bench.drain();
    assert_eq!(bench.drops(DropReason::Reconfigured), 0);
    let other = bench.drops(DropReason::Overflow) + bench.drops(DropReason::Congestion);
    assert_eq!(bench.out.len() + other, sent);
    // 8 Mbit/s for a fifth of the time falls short by 160 kB each time; the queue holds 240 kB.
    assert_eq!(other, 0);
}

#[test]
fn the_average_of_red_falls_at_the_rate_that_the_pipe_has_now() {
    // The average follows the queue beyond the upper threshold, above which every packet is dropped.
    let policy = "queue 50 red 0.05/1/2/0.001";
    let sched = "sched 1 config pipe 1 type wf2q+\nadd queue 1 ip from any to any";
    for (pipe, rest) in [
        (policy, "add pipe 1 ip from any to any".to_owned()),
        ("", format!("queue 1 config sched 1 {policy}\n{sched}")),
    ] {
        let mut bench = Bench::new();
        bench.script(&format!("pipe 1 config bw 10Mbit/s {pipe}\n{rest}"));
        for _ in 0..40 {
            bench.send(1250, &udp(1));
        }
        bench.drain();
        // 512 bytes take 4096 ticks of 1 ms at 1 kbit/s, and a step of the table for the idle time takes
        // 4096 * 3 / 0.05 / 256 = 960 of them: 60 ms leave 0.95 of the average. At 10 Mbit/s a step
        // takes one tick, and they leave 0.95^61 = 0.04.
        let before = bench.drops(DropReason::Congestion);
        assert!((20..40).contains(&before), "{before}");
        bench.ok(&format!("pipe 1 config bw 1Kbit/s {pipe}"));
        bench.now += 60 * MS;
        bench.send(1250, &udp(1));
        assert_eq!(bench.drops(DropReason::Congestion), before + 1, "{pipe}");
    }
}

#[test]
fn a_scheduler_that_changes_its_type_keeps_packets_and_their_queues() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 1Mbit/s
         sched 1 config type wf2q+
         queue 1 config sched 1 weight 10
         queue 2 config sched 1 weight 1
         add queue 1 ip from 10.0.1.1 to any
         add queue 2 ip from any to any",
    );
    for i in 0..40 {
        bench.send(1250, &udp(1 + i % 2));
    }
    for kind in ["qfq", "rr", "fq_codel", "fifo", "prio", "wf2q+"] {
        bench.ok(&format!("sched 1 config type {kind}"));
    }
    let text = bench.ok("queue show");
    assert!(text.contains("q00001  50 sl. 1 flows"), "{text}");
    bench.drain();
    assert_eq!(bench.out.len(), 40);
    assert!(bench.dropped.0.is_empty());
    // The link was never idle and never faster: 1250 B take 10 ms at 1 Mbit/s.
    let due: Vec<u64> = bench.out.iter().map(|(due, ..)| *due).collect();
    let expected: Vec<u64> = (1..=40).map(|i| i * 10 * MS).collect();
    assert_eq!(due, expected);
}

#[test]
fn a_smaller_limit_drops_the_youngest_and_says_why() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 1Mbit/s queue 50\nadd pipe 1 ip from any to any");
    let slots: Vec<u32> = (0..21).map(|_| bench.send(1250, &udp(1))).collect();
    bench.run_until(1);
    // One packet is on the link and 20 wait; 5 may stay.
    bench.ok("pipe 1 config bw 1Mbit/s queue 5");
    assert_eq!(bench.drops(DropReason::Reconfigured), 15);
    let gone: Vec<u32> = bench.dropped.0.iter().map(|(_, slot, _)| *slot).collect();
    assert_eq!(gone, slots[6..]);
    bench.drain();
    assert_eq!(bench.out.len(), 6);
    let text = bench.ok("pipe 1 show");
    assert!(text.contains("   21    26250  0    0  15\n"), "{text}");
}

#[test]
fn deleting_drops_queued_packets_and_delivers_those_in_flight() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 1Mbit/s delay 100\nadd pipe 1 ip from any to any");
    for _ in 0..5 {
        bench.send(1250, &udp(1));
    }
    // After 25 ms two packets are in the delay line, one is on the link, two wait.
    bench.run_until(25 * MS);
    bench.ok("pipe 1 delete");
    assert_eq!(bench.drops(DropReason::Reconfigured), 2);
    bench.drain();
    assert_eq!(bench.out.len(), 3);
    bench.send(1250, &udp(1));
    assert_eq!(bench.drops(DropReason::NoRoute), 1);
}

#[test]
fn a_configuration_is_replaced_without_losing_a_packet() {
    let config = "-f flush\npipe flush\npipe 1 config bw 1Mbit/s delay 10\nsched 1 config type fq_codel\n\
         queue 1 config sched 1\nadd 100 queue 1 ip from any to any\n";
    let mut bench = Bench::new();
    bench.ok(config);
    for _ in 0..10 {
        bench.send(1250, &udp(1));
    }
    bench
        .files
        .0
        .push(("/etc/ipfw.rules", config.replace("delay 10", "delay 30")));
    bench.ok("--atomic /etc/ipfw.rules");
    bench.drain();
    assert_eq!(bench.out.len(), 10);
    assert!(bench.dropped.0.is_empty());
}

#[test]
fn one_change_does_not_warn_of_what_it_creates_itself() {
    let rules = "add 10 pipe 1 ip from any to any\nadd 20 queue 2 ip from any to any\n\
         add 30 deny ip from table(bad) to any\nqueue 2 config sched 3\n";
    let objects = "pipe 1 config\nsched 3 config\ntable bad add 10.0.0.1\n";
    let mut bench = Bench::new();
    let file = |bench: &mut Bench, text: String| bench.files.0.push(("/rules", text));
    file(&mut bench, format!("{rules}{objects}"));
    assert_eq!(bench.warnings("--atomic /rules"), [""; 0]);
    bench.ok("-f flush");
    // Lines that take effect one by one leave gaps.
    let mut other = Bench::new();
    file(&mut other, format!("{rules}{objects}"));
    assert_eq!(other.warnings("/rules").len(), 4);
    let mut third = Bench::new();
    file(&mut third, rules.to_owned());
    // Without the other lines, queue 2 is all that exists.
    assert_eq!(third.warnings("--atomic /rules").len(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8, u8),
    Wait(u32),
    Command(usize),
}

const COMMANDS: &[&str] = &[
    "pipe 1 config bw 1Mbit/s delay 3",
    "pipe 1 config bw 10Mbit/s queue 3",
    "pipe 1 config bw 2Mbit/s queue 4000B mask src-ip 0xff",
    "pipe 1 config codel target 1ms interval 2ms",
    "pipe 1 config bw 1Mbit/s plr 0.2 jitter 1ms delay 2",
    "pipe 1 config bw 500Kbit/s burst 5000 droptail",
    "pipe 1 delete",
    "sched 1 config type wf2q+",
    "sched 1 config type rr mask dst-port 0xff",
    "sched 1 config type qfq",
    "sched 1 config type prio",
    "sched 1 config type fifo queue 5",
    "sched 1 config type fq_codel flows 4 limit 6",
    "sched 1 config type sfq",
    "queue 1 config sched 1 weight 3",
    "queue 1 config sched 1 mask all codel",
    "queue 1 config sched 1 queue 2 weight 9",
    "queue 1 config sched 2",
    "queue 2 config pipe 1",
    "queue 2 delete",
    "pipe 2 config bw 3Mbit/s",
    "pipe flush",
    "sysctl net.inet.ip.fw.one_pass=0",
    "sysctl net.inet.ip.fw.one_pass=1",
    "sysctl net.inet.ip.dummynet.compat=1",
    "sysctl net.inet.ip.dummynet.compat=0",
    "add 10 pipe 1 udp from any to any",
    "add 20 queue 1 tcp from any to any",
    "add 30 queue 2 ip from any to any iplen 0-700",
    "add 40 pipe 2 ip from any to any",
    "add 50 allow ip from any to any",
    "-q flush",
    "delete 10",
    "pipe show",
    "sched show",
    "queue show",
    "--json pipe show",
    "-d show",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<u8>(), any::<u8>()).prop_map(|(flow, size)| Step::Send(flow, size)),
        2 => (0u32..5_000_000).prop_map(Step::Wait),
        2 => (0..COMMANDS.len()).prop_map(Step::Command),
    ];
    prop::collection::vec(step, 1..120)
}

fn headers_of(flow: u8) -> Headers {
    let proto = if flow & 1 == 0 { UDP } else { TCP };
    let mut headers = out(
        proto,
        ip(10, 0, 1, flow >> 1 & 3),
        ip(10, 0, 2, 2),
        (1000, u16::from(flow >> 3)),
    );
    if flow >= 200 {
        headers.src = "2001:db8::1".parse().unwrap();
        headers.dst = "2001:db8::2".parse().unwrap();
    }
    headers.ip_len = u32::from(flow) * 8;
    headers
}

/// The packets that passed, the packets that were dropped, and the number sent.
type Carried = (Vec<(u64, u32, u32)>, Vec<(u64, u32, DropReason)>, usize);

/// Executes steps.
fn carry_out(steps: &[Step], extra_polls: bool) -> Carried {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 1Mbit/s
         queue 1 config pipe 1
         add 20 queue 1 tcp from any to any
         add 40 pipe 1 ip from any to any",
    );
    let mut sent = 0;
    let mut slot = 0;
    for step in steps {
        match step {
            Step::Send(flow, size) => {
                // Slots are not reused, so that both runs give packets the same names.
                let mut packet = sluice_core::Packet::new(slot, 64 + u32::from(*size) * 5);
                packet.flow = u32::from(*flow);
                slot += 1;
                sent += 1;
                let mut cx = sluice_core::Cx::new(
                    sluice_core::Time::from_ns(bench.now),
                    &mut bench.rng,
                    &mut bench.dropped,
                );
                let taken = bench.firewall.handle(packet, &headers_of(*flow), &mut cx);
                if let sluice_ipfw::Disposition::Pass(packet) = taken {
                    bench.out.push((bench.now, packet.slot, packet.len));
                }
            }
            Step::Wait(ns) => {
                if extra_polls {
                    bench.run_until(bench.now + u64::from(*ns) / 2);
                    bench.now += u64::from(*ns) - u64::from(*ns) / 2;
                } else {
                    bench.now += u64::from(*ns);
                }
            }
            // Refusals change nothing; which commands are refused depends on the steps before.
            Step::Command(index) => drop(bench.run(COMMANDS[*index])),
        }
    }
    bench.drain();
    (bench.out, bench.dropped.0, sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every packet leaves exactly once, whatever is configured in between.
    #[test]
    fn no_packet_is_lost_or_duplicated(steps in steps()) {
        let (out, dropped, sent) = carry_out(&steps, false);
        let mut slots: Vec<u32> = out.iter().map(|(_, slot, _)| *slot).collect();
        slots.extend(dropped.iter().map(|(_, slot, _)| *slot));
        slots.sort_unstable();
        let expected: Vec<u32> = (0..sent as u32).collect();
        prop_assert_eq!(slots, expected);
    }

    /// Polls at other instants change neither the fate of packets nor its time.
    #[test]
    fn polls_change_nothing(steps in steps()) {
        let sort = |(mut out, mut dropped, _): (Vec<_>, Vec<_>, usize)| {
            out.sort_unstable();
            dropped.sort_unstable();
            (out, dropped)
        };
        prop_assert_eq!(sort(carry_out(&steps, true)), sort(carry_out(&steps, false)));
    }
}

#[test]
fn a_scheduler_refuses_the_queue_that_is_too_much_however_it_got_the_others() {
    // The weights of QFQ's queues add up to at most 2^17 (core's `sched::qfq`): 131 times 1000.
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 1Mbit/s\nsched 1 config type qfq");
    for queue in 1..=131 {
        bench.ok(&format!("queue {queue} config sched 1 weight 1000"));
    }
    let one_more = "queue 132 config sched 1 weight 1000";
    let sum = "the weights would add up to 132000, more than 131072";
    let refused = |bench: &mut Bench| bench.run(one_more).unwrap_err().to_string();
    assert!(refused(&mut bench).contains(sum));
    assert!(refused(&mut bench).contains(sum));
    for makes_room in ["queue 7 config weight 1", "queue 7 delete"] {
        bench.ok(makes_room);
        bench.ok(one_more);
        bench.ok("queue 132 delete");
        bench.ok("queue 7 config sched 1 weight 1000");
        assert!(refused(&mut bench).contains(sum), "{makes_room}");
    }
    // A queue that moves to another scheduler makes room, too.
    bench.script("pipe 2 config bw 1Mbit/s\nsched 2 config type qfq");
    bench.ok("queue 7 config sched 2");
    bench.ok(one_more);
    // Types without a limit take any number.
    bench.ok("sched 1 config type wf2q+");
    bench.ok("queue 7 config sched 1 weight 1000");
}
