//! Flows of numbered packets, for routers with several workers.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_net::namespace::Namespace;

pub const FLOWS: u16 = 64;
pub const FIRST_PORT: u16 = 20_000;

/// A seed whose hash keys put the flows of the tests into different queues of `fq_codel`. With random
/// keys, two of 64 flows would share one of 65 535 queues, and its rate, in 3 % of all runs.
pub const SEED_WITHOUT_COLLISIONS: &str = "1";

/// Sets a flag when it is dropped, also by a panic: the threads of a scope must end.
pub struct Sets<'a>(pub &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends a packet of each flow, again and again, as long as `next` returns a pause. The flows have the
/// source ports from [`FIRST_PORT`] on; a payload begins with the number of the round. Returns the
/// number of packets of each flow.
pub fn send(
    namespace: &Namespace,
    (here, there): (&str, (&str, u16)),
    payload: usize,
    mut next: impl FnMut(u32) -> Option<Duration> + Send,
) -> u32 {
    let sending = move || {
        let sockets = (0..FLOWS).map(|flow| UdpSocket::bind((here, FIRST_PORT + flow)).unwrap());
        let sockets: Vec<UdpSocket> = sockets.collect();
        let mut payload = vec![0; payload];
        let mut round = 0u32;
        while let Some(pause) = next(round) {
            payload[..4].copy_from_slice(&round.to_be_bytes());
            for socket in &sockets {
                socket.send_to(&payload, there).unwrap();
            }
            round += 1;
            std::thread::sleep(pause);
        }
        round
    };
    namespace.enter(sending).unwrap()
}

/// Returns whether `next` may go on to this round: waits until at most 500 packets are under way, for
/// which every queue has room, however long the router pauses.
pub fn has_room(arrived: &AtomicU64, round: u32) -> bool {
    let sent = u64::from(round) * u64::from(FLOWS);
    have_arrived(arrived, sent.saturating_sub(500))
}

/// Returns whether this number of packets arrives within 20 s.
pub fn have_arrived(arrived: &AtomicU64, packets: u64) -> bool {
    let start = Instant::now();
    while arrived.load(Ordering::Acquire) < packets {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Checks that the packets of each flow have arrived in the order of their numbers.
pub fn assert_in_order(seen: &[(u16, u32)]) {
    let mut last = BTreeMap::new();
    for (flow, number) in seen {
        let before = last.insert(*flow, *number);
        assert!(
            before < Some(*number),
            "flow {flow}: {number} after {before:?}"
        );
    }
}

/// Checks that the flows had equal shares of a pipe while each of them still sent: Jain's index of at
/// least 0.999. Jain, Chiu, Hawe: "A Quantitative Measure of Fairness" (DEC-TR-301, 1984).
pub fn assert_shared_fairly(seen: &[(u16, u32)]) {
    let mut shares = vec![0f64; usize::from(FLOWS)];
    for (flow, _) in &seen[..seen.len() * 3 / 4] {
        shares[usize::from(*flow)] += 1.0;
    }
    let (sum, squares) = (
        shares.iter().sum::<f64>(),
        shares.iter().map(|share| share * share).sum::<f64>(),
    );
    let jain = sum * sum / (shares.len() as f64 * squares);
    assert!(jain >= 0.999, "{jain}: {shares:?}");
}

/// Checks that there are so many workers, and that all of them received packets, sent some, and handed
/// some over.
pub fn assert_all_work(status: &Value, workers: usize) {
    let parts = status["workers"].as_array().unwrap();
    assert_eq!(parts.len(), workers);
    for worker in parts {
        for count in ["received", "sent", "handed_over"] {
            assert!(worker[count].as_u64() > Some(0), "{status}");
        }
    }
}
