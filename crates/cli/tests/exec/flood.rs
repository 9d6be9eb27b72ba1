//! Senders that are faster than the relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// So many take more of the cores than the relay, whose datagrams cost two calls each.
const SENDERS: u32 = 4;
/// The flood ends with the run, but not later than this.
const LONGEST: Duration = Duration::from_secs(20);

#[test]
fn a_flood_of_datagrams_does_not_keep_a_run_from_its_end() {
    let world = World::new();
    let socket = datagram_server(&world);
    let has_ended = Arc::new(AtomicBool::new(false));
    let of_run = has_ended.clone();
    let server = std::thread::spawn(move || {
        let (_, program) = socket.recv_from(&mut [0; 8]).unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    while !of_run.load(Ordering::Acquire) && start.elapsed() < LONGEST {
                        let _ = socket.send_to(b"x", program);
                    }
                });
            }
        });
        start.elapsed()
    });
    let script = format!(
        "exec 3<>/dev/udp/{}/5000; echo first >&3; head -c 1 <&3",
        SERVER[0]
    );
    let output = world.bash(&[], &script);
    has_ended.store(true, Ordering::Release);
    let flood = server.join().unwrap();
    assert_eq!(stdout(&output), "x", "{}", stderr(&output));
    assert!(flood < LONGEST, "the run ended after the flood: {flood:?}");
}
