//! `one_pass`: where a packet goes that leaves a pipe.

mod common;

use common::{Bench, MS, udp};
use sluice_core::DropReason;

#[test]
fn one_pass_decides_when_a_packet_goes_in() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config delay 5
         pipe 2 config delay 7
         add 10 pipe 1 ip from any to any
         add 20 pipe 2 ip from any to any
         add 30 allow ip from any to any",
    );
    bench.send(1000, &udp(1));
    bench.ok("disable one_pass");
    bench.send(1000, &udp(2));
    bench.ok("enable one_pass");
    bench.drain();
    let due: Vec<u64> = bench.out.iter().map(|(due, ..)| *due).collect();
    // The first packet leaves after 5 ms; the second one enters the other pipe, 7 ms more.
    assert_eq!(due, [5 * MS, 12 * MS]);
    // The rule of the pipe counts once; the others saw the second packet only.
    assert_eq!(
        bench.ok("show"),
        "00010 2 3000 pipe 1 ip from any to any\n\
         00020 1 1500 pipe 2 ip from any to any\n\
         00030 0    0 allow ip from any to any\n\
         65535 0    0 deny ip from any to any\n"
    );
    // Packets entered the second pipe under one_pass 1 again. With 0, the rules behind it decide,
    // here the built-in one.
    bench.script("delete 30\ndisable one_pass");
    bench.send(1000, &udp(3));
    bench.drain();
    assert_eq!(bench.drops(DropReason::Denied), 1);
}

#[test]
fn packets_that_leave_a_pipe_inside_a_subroutine_return_from_it() {
    let mut bench = Bench::new();
    bench.script(
        "disable one_pass
         pipe 1 config delay 5
         add 100 call 1000 ip from any to any
         add 200 count ip from any to any
         add 300 allow ip from any to any
         add 1000 pipe 1 ip from any to any
         add 1010 return ip from any to any
         add 1020 deny ip from any to any",
    );
    for packet in 0..3 {
        bench.send(1000 * packet, &udp(1));
    }
    bench.drain();
    assert_eq!(
        bench.ok("show"),
        "00100 3 4500 call 1000 ip from any to any\n\
         00200 3 4500 count ip from any to any\n\
         00300 3 4500 allow ip from any to any\n\
         01000 3 4500 pipe 1 ip from any to any\n\
         01010 3 4500 return ip from any to any\n\
         01020 0    0 deny ip from any to any\n\
         65535 0    0 deny ip from any to any\n"
    );
}

#[test]
fn rules_that_loop_packets_through_pipes_end() {
    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config
         disable one_pass
         add 10 pipe 1 ip from any to any
         add 20 call 10 ip from any to any",
    );
    bench.send(1000, &udp(1));
    bench.drain();
    // At a depth of sixteen the call has no effect, and the built-in rule denies.
    assert!(bench.ok("show 10").starts_with("00010 17 "));
    assert_eq!(bench.drops(DropReason::Denied), 1);
    // Two calls at each depth are more than 1000 pipes.
    bench.script(
        "add 30 call 10 ip from any to any
         add 40 return ip from any to any",
    );
    bench.send(1000, &udp(1));
    bench.drain();
    assert_eq!(bench.drops(DropReason::NoRoute), 1);
}
