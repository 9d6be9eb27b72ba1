//! The examples of the seeds: the paper on CoDel in dummynet, and the article on its schedulers.
//! Typing errors of the originals (`form`, a missing protocol) are kept where the language accepts
//! them, and noted where it does not.

mod common;

use common::{Bench, visible};

#[test]
fn one_pipe_controlled_by_codel() {
    let mut bench = Bench::new();
    bench.ok("ipfw pipe 1 config bw 1mbits/s codel");
    // "form" for "from", without a protocol, as printed: refused, with a suggestion.
    let (message, exit) = bench.refusal("ipfw add 100 pipe 1 form any to any");
    assert_eq!(
        message,
        "unrecognised option ``form'' (did you mean ``from''?)"
    );
    assert_eq!(exit, 65);
    assert_eq!(
        bench.ok("ipfw add 100 pipe 1 from any to any"),
        "00100 pipe 1 ip from any to any\n"
    );
    assert_eq!(
        visible(&bench.ok("ipfw pipe 1 show")),
        "00001:   1.000 Mbit/s    0 ms burst 0_\n\
         q131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0  AQM CoDel target 5ms interval 100ms NoECN\n \
         sched 65537 type FIFO flags 0x0 0 buckets 0 active\n"
    );
}

#[test]
fn two_queues_with_codel_on_the_implicit_wf2q() {
    let mut bench = Bench::new();
    bench.script(
        "ipfw pipe 1 config bw 10mbits/s delay 20ms
         ipfw queue 1 config pipe 1 codel target 7 ecn
         ipfw queue 2 config pipe 1 codel target 8 interval 160 ecn
         ipfw add 100 queue 1 from 192.168.0.0/16 to 192.168.0.0/16
         ipfw add 200 queue 2 from 172.16.0.0/16 to 172.16.0.0/16",
    );
    assert_eq!(
        visible(&bench.ok("sched 1 show")),
        "00001:  10.000 Mbit/s   20 ms burst 0_\n \
         sched 1 type WF2Q+ flags 0x0 0 buckets 0 active\n   \
         Children flowsets: 1 2_\n"
    );
    assert_eq!(
        bench.ok("queue show"),
        "q00001  50 sl. 0 flows (1 buckets) sched 1 weight 1 lmax 0 pri 0  AQM CoDel target 7ms interval 100ms ECN\n\
         q00002  50 sl. 0 flows (1 buckets) sched 1 weight 1 lmax 0 pri 0  AQM CoDel target 8ms interval 160ms ECN\n"
    );
    assert_eq!(
        bench.ok("list"),
        "00100 queue 1 ip from 192.168.0.0/16 to 192.168.0.0/16\n\
         00200 queue 2 ip from 172.16.0.0/16 to 172.16.0.0/16\n\
         65535 deny ip from any to any\n"
    );
}

#[test]
fn codel_and_droptail_queues_on_qfq() {
    // Section III.C describes the third example without printing it.
    let mut bench = Bench::new();
    bench.script(
        "ipfw pipe 1 config bw 5mbits/s
         ipfw sched 1 config pipe 1 type qfq
         ipfw queue 1 config sched 1 codel
         ipfw queue 2 config sched 1 droptail",
    );
    assert_eq!(
        visible(&bench.ok("sched show")),
        "00001:   5.000 Mbit/s    0 ms burst 0_\n \
         sched 1 type QFQ flags 0x0 0 buckets 0 active\n   \
         Children flowsets: 1 2_\n"
    );
    assert_eq!(
        bench.ok("queue 2 show"),
        "q00002  50 sl. 0 flows (1 buckets) sched 1 weight 1 lmax 1500 pri 0 droptail\n"
    );
}

#[test]
fn fq_codel_with_one_queue_and_with_two() {
    let mut bench = Bench::new();
    bench.script(
        "ipfw pipe 1 config bw 10mbits/s
         ipfw sched 1 config pipe 1 type fq_codel target 7 quantum 2000 flows 2048
         ipfw queue 1 config sched 1
         ipfw add 100 queue 1 ip from 192.168.0.0/16 to 192.168.0.0/16",
    );
    assert_eq!(
        visible(&bench.ok("sched 1 show")),
        "00001:  10.000 Mbit/s    0 ms burst 0_\n\
         q65537  50 sl. 0 flows (1 buckets) sched 1 weight 0 lmax 0 pri 0 droptail\n \
         sched 1 type FQ_CODEL flags 0x0 0 buckets 0 active\n \
         FQ_CODEL target 7ms interval 100ms quantum 2000 limit 10240 flows 2048 ECN\n   \
         Children flowsets: 1_\n"
    );
    bench.script(
        "ipfw -f flush
         ipfw pipe flush
         ipfw pipe 1 config delay 10ms
         ipfw sched 1 config pipe 1 type fq_codel interval 150 ecn
         ipfw queue 1 config sched 1
         ipfw queue 2 config sched 1
         ipfw add 200 queue 2 from 172.16.0.0/16 to 172.16.0.0/16",
    );
    assert_eq!(
        visible(&bench.ok("sched 1 show")),
        "00001: unlimited        10 ms burst 0_\n\
         q65537  50 sl. 0 flows (1 buckets) sched 1 weight 0 lmax 0 pri 0 droptail\n \
         sched 1 type FQ_CODEL flags 0x0 0 buckets 0 active\n \
         FQ_CODEL target 5ms interval 150ms quantum 1514 limit 10240 flows 1024 ECN\n   \
         Children flowsets: 1 2_\n"
    );
}

#[test]
fn the_patched_ipfw_shows_what_the_paper_says() {
    // Section V.B. The paper prints times without units and no ECN word; later versions of ipfw,
    // which the reference describes, print both.
    let mut bench = Bench::new();
    bench.ok("/usr/src/sbin/ipfw/ipfw pipe 1 config codel");
    assert_eq!(
        visible(&bench.ok("/usr/src/sbin/ipfw/ipfw pipe 1 show")),
        "00001: unlimited         0 ms burst 0_\n\
         q131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0  AQM CoDel target 5ms interval 100ms NoECN\n \
         sched 65537 type FIFO flags 0x0 0 buckets 0 active\n"
    );
}

#[test]
fn a_fifo_bottleneck() {
    let mut bench = Bench::new();
    bench.ok("ipfw pipe 1 config bw 10MBit/s delay 10ms");
    let echo = bench.ok("ipfw add 1000 pipe 1 all from 10.0.1.0/24 to any out");
    assert_eq!(echo, "01000 pipe 1 ip from 10.0.1.0/24 to any out\n");
    assert_eq!(
        visible(&bench.ok("pipe show")),
        "00001:  10.000 Mbit/s   10 ms burst 0_\n\
         q131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0 droptail\n \
         sched 65537 type FIFO flags 0x0 0 buckets 0 active\n"
    );
}

#[test]
fn weighted_fair_queueing() {
    let mut bench = Bench::new();
    bench.script(
        "ipfw pipe 1 config bw 10MBit/s delay 10ms
         ipfw sched 1 config pipe 1 type wf2q+
         ipfw queue 100 config sched 1 weight 69 mask all
         ipfw queue 200 config sched 1 weight 30 mask all
         ipfw queue 300 config sched 1 weight 1 mask all
         ipfw add 1000 queue 100 tcp from 10.0.1.0/24 to any out
         ipfw add 1001 queue 200 udp from 10.0.1.0/24 to any out
         ipfw add 1002 queue 300 icmp from 10.0.1.0/24 to any out",
    );
    assert_eq!(
        visible(&bench.ok("sched show")),
        "00001:  10.000 Mbit/s   10 ms burst 0_\n \
         sched 1 type WF2Q+ flags 0x0 0 buckets 0 active\n   \
         Children flowsets: 100 200 300_\n"
    );
    assert_eq!(
        bench.ok("queue show 200"),
        "q00200  50 sl. 0 flows (64 buckets) sched 1 weight 30 lmax 0 pri 0 droptail\n    \
         mask:  0xff 0xffffffff/0xffff -> 0xffffffff/0xffff\n"
    );
    assert_eq!(
        bench.ok("list 1000-1002"),
        "01000 queue 100 tcp from 10.0.1.0/24 to any out\n\
         01001 queue 200 udp from 10.0.1.0/24 to any out\n\
         01002 queue 300 icmp from 10.0.1.0/24 to any out\n"
    );
}
