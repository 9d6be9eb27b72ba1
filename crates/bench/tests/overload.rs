//! Sends ten times more packets than a pipe can carry, for ten seconds, in namespaces of its own.
//!
//! Part of `make test-live`: needs root or unprivileged user namespaces, and fails without them.

use sluice_bench::overload;
use sluice_core::Span;
use sluice_core::Stop;

#[test]
fn an_overload_is_bounded_and_every_packet_explained() {
    let accounts = overload(Span::from_secs(10), &Stop::new()).expect("the network can be made");
    println!("{accounts:?}");
    // 50 Mbit/s of 64-byte packets are 97 656 per second, of which the pipe carries a tenth. A busy
    // machine may offer less, but not less than twice what the pipe carries.
    assert!(accounts.sent >= 90_000, "{accounts:?}");
    assert!(accounts.received >= 2 * accounts.sent, "{accounts:?}");
    assert_eq!(accounts.unexplained, 0, "{accounts:?}");
    // The queue dropped the packets that it could not hold; no other part lost a packet.
    let by_queue: u64 = ["overflow", "evicted", "congestion"]
        .iter()
        .filter_map(|reason| accounts.lost.get(*reason))
        .sum();
    let inside = accounts.received - accounts.sent - accounts.held;
    assert_eq!(by_queue, inside, "{accounts:?}");
    // fq_codel holds 10 240 packets at most.
    assert!(accounts.held <= 10_240, "{accounts:?}");
    // Memory may grow by the receiver's bitmap of a million numbers and by the allocator's own
    // pages.
    assert!(accounts.grown_bytes < 4 << 20, "{accounts:?}");
    // The ping has a flow queue of its own. The kernel's receive queue before the loop is shared:
    // while another process uses the core, packets are lost there, perhaps also a ping.
    let (sent, answered) = accounts.pings;
    assert!(sent >= 400 && answered * 10 >= sent * 9, "{accounts:?}");
}
