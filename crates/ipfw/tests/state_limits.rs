//! The limits of states: what each refuses is counted by its name.

mod common;

use common::{Bench, ip, out, udp};
use sluice_core::DropReason;
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{Headers, LastRefused, Refusals};

/// A UDP packet of flow `port` from 10.0.1.1.
fn flow(port: u16) -> Headers {
    out(UDP, ip(10, 0, 1, 1), ip(10, 0, 2, 2), (port, 53))
}

/// The answer to `udp(last)`.
fn answer(last: u8) -> Headers {
    out(UDP, ip(10, 0, 2, 2), ip(10, 0, 1, last), (53, 1000))
}

#[test]
fn flows_without_an_answer_make_room_in_a_full_table_and_are_counted() {
    let mut bench = Bench::new();
    bench.script("sysctl net.inet.ip.fw.dyn_max=4\nadd 100 allow udp from any to any keep-state");
    for last in 1..=6 {
        bench.send(1500, &udp(last));
    }
    // The table has room for four of six.
    let expected = Refusals {
        states_evicted: 2,
        ..Refusals::default()
    };
    assert_eq!(bench.firewall.refusals(), expected);
    assert_eq!(bench.firewall.limits().states_full, 4);
    assert_eq!(bench.drops(DropReason::Denied), 0, "no packet is lost");
}

#[test]
fn a_table_full_of_answered_flows_refuses_others_and_counts_them() {
    let mut bench = Bench::new();
    bench.script("sysctl net.inet.ip.fw.dyn_max=4\nadd 100 allow udp from any to any keep-state");
    for last in 1..=4 {
        bench.send(1500, &udp(last));
        bench.send(1500, &answer(last));
    }
    for last in 5..=7 {
        bench.send(1500, &udp(last));
    }
    let expected = Refusals {
        states_full: 3,
        ..Refusals::default()
    };
    assert_eq!(bench.firewall.refusals(), expected);
    assert_eq!(bench.drops(DropReason::Denied), 3);
}

#[test]
fn flows_of_an_address_with_too_many_states_are_counted() {
    let mut bench = Bench::new();
    bench.script(
        "sysctl net.inet.ip.fw.dyn_src_max=3\nadd 100 allow udp from any to any keep-state",
    );
    for port in 1001..=1005 {
        bench.send(1500, &flow(port));
    }
    // Three of five.
    let expected = Refusals {
        states_source: 2,
        ..Refusals::default()
    };
    assert_eq!(bench.firewall.refusals(), expected);
    assert_eq!(bench.firewall.limits().states_source, 3);
    assert_eq!(bench.drops(DropReason::Denied), 2);
}

#[test]
fn flows_above_the_limit_of_a_rule_are_counted() {
    let mut bench = Bench::new();
    bench.ok("add 100 allow udp from any to any limit src-addr 2");
    for port in 1001..=1005 {
        bench.send(1500, &flow(port));
    }
    // Two of five.
    let expected = Refusals {
        states_limit: 3,
        ..Refusals::default()
    };
    assert_eq!(bench.firewall.refusals(), expected);
    assert_eq!(bench.drops(DropReason::Denied), 3);
    let last = LastRefused {
        states_limit: Some((100, 2)),
        ..LastRefused::default()
    };
    assert_eq!(bench.firewall.last_refused(), last);
    // Another rule, with another limit.
    bench.ok("add 50 allow udp from any to any limit dst-port 1");
    for port in 2001..=2002 {
        bench.send(1500, &flow(port));
    }
    let last = bench.firewall.last_refused();
    assert_eq!(last.states_limit, Some((50, 1)));
}
