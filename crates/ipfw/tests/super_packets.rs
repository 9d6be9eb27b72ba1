//! Super-packets that stay whole: which counters count them once, and which count their wire packets.

mod common;

use common::{Bench, ip, out, udp};
use sluice_core::{Cx, DropReason, Packet, Time};
use sluice_ipfw::Headers;
use sluice_ipfw::headers::TCP;

/// Sends super-packets of four wire packets each.
fn send_whole(bench: &mut Bench, count: u32, headers: &Headers) {
    for slot in 0..count {
        let mut packet = Packet::new(slot, 6000);
        packet.segments = 4;
        let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
        let _ = bench.firewall.handle(packet, headers, &mut cx);
    }
}

#[test]
fn what_a_limit_refuses_is_counted_as_what_the_host_drops() {
    let mut bench = Bench::new();
    bench.script("pipe 1 config bw 1Gbit/s\nadd pipe 1 ip from any to any");
    // The pipe may hold 4 * (0 + 1) packets.
    bench.firewall.set_free_packets(0);
    send_whole(&mut bench, 10, &udp(1));
    assert_eq!(bench.drops(DropReason::Overflow), 6);
    assert_eq!(bench.firewall.refusals().pipe_share, 6);
    // The counters of objects count wire packets.
    let shown = bench.ok("sysctl -n net.inet.ip.dummynet.io_pkt_drop");
    assert_eq!(shown.trim(), "24");
}

#[test]
fn a_state_counts_the_packets_that_its_rule_counts() {
    let mut bench = Bench::new();
    bench.script("add 10 allow tcp from any to any keep-state");
    let headers = out(TCP, ip(10, 0, 1, 1), ip(10, 0, 2, 2), (1000, 80));
    send_whole(&mut bench, 3, &headers);
    let shown = bench.ok("-a -d list 10");
    let lines = shown.lines().filter(|line| line.starts_with("00010"));
    let packets: Vec<_> = lines.map(|line| line.split_whitespace().nth(1)).collect();
    // The rule and its state.
    assert_eq!(packets, [Some("12"); 2], "{shown}");
}
