//! Ten times more packets than a pipe takes, for ten seconds, in namespaces of its own.
//!
//! Part of `make test-live`: it needs root or unprivileged user namespaces, and fails without.

use sluice_bench::overload;
use sluice_core::Span;
use sluice_core::Stop;

#[test]
fn an_overload_is_bounded_and_every_packet_explained() {
    let accounts = overload(Span::from_secs(10), &Stop::new()).expect("the network can be made");
    println!("{accounts:?}");
    // 50 Mbit/s of 64-byte packets are 97 656 per second, of which the pipe takes a tenth. A machine
    // that is busy with other things may offer less, but not less than twice what is taken.
    assert!(accounts.sent >= 90_000, "{accounts:?}");
    assert!(accounts.received >= 2 * accounts.sent, "{accounts:?}");
    assert_eq!(accounts.unexplained, 0, "{accounts:?}");
    // What the queue did not take, it dropped; nothing else inside lost a packet.
    let by_queue: u64 = ["overflow", "evicted", "congestion"]
        .iter()
        .filter_map(|reason| accounts.lost.get(*reason))
        .sum();
    let inside = accounts.received - accounts.sent - accounts.held;
    assert_eq!(by_queue, inside, "{accounts:?}");
    // fq_codel holds 10 240 packets at most.
    assert!(accounts.held <= 10_240, "{accounts:?}");
    // What may grow: the receiver's bitmap of a million numbers, and the allocator's own pages.
    assert!(accounts.grown_bytes < 4 << 20, "{accounts:?}");
    // The ping has a flow queue of its own. The kernel's receive queue before the loop is shared:
    // what is lost there while another process has the core may be the ping's.
    let (sent, answered) = accounts.pings;
    assert!(sent >= 400 && answered * 10 >= sent * 9, "{accounts:?}");
}
