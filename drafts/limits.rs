//! Warnings about limits of the router that packets meet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_router::control::Refused;
use sluice_router::process::{Status, StatusAsked};

/// Watches the counters of limits.
pub(super) struct Limits {
    asked: Option<StatusAsked>,
    next: Instant,
    /// The counts that were written, and when.
    written: BTreeMap<&'static str, (u64, Instant)>,
}

impl Limits {
    pub fn new() -> Limits {
        Limits {
            asked: None,
            next: Instant::now() + EVERY,
            written: BTreeMap::new(),
        }
    }

    /// Asks for the status from time to time, and returns new warnings. Never blocks.
    pub fn look(&mut self, ask: impl FnOnce() -> Result<StatusAsked, Refused>) -> Vec<String> {
        if let Some(asked) = &self.asked {
            return match asked.poll() {
                Ok(None) => Vec::new(),
                Ok(Some(status)) => {
                    self.asked = None;
                    self.warnings(&status, Instant::now())
                }
                Err(_) => {
                    self.asked = None;
                    Vec::new()
                }
            };
        }
        if Instant::now() >= self.next {
            self.next = Instant::now() + EVERY;
            self.asked = ask().ok();
        }
        Vec::new()
    }

    /// Returns a warning for each limit that was met since the last one, at most one in [`QUIET`].
    fn warnings(&mut self, status: &Status, now: Instant) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, what) in LIMITS {
            let count = count(status, name);
            let before = self.written.get(name).copied();
            let (known, is_quiet) = match before {
                Some((known, at)) => (known, now.duration_since(at) < QUIET),
                None => (0, false),
            };
            if count > known && !is_quiet {
                self.written.insert(name, (count, now));
                let packets = count - known;
                warnings.push(format!("{packets} packets are lost ({name}): {what}"));
            }
        }
        warnings
    }
}

/// Returns how many packets met a limit, of all ports.
fn count(status: &Status, name: &str) -> u64 {
    let ports = status.ports.iter().map(|port| &port.lost);
    let all = ports.chain([&status.lost, &status.refused]);
    all.filter_map(|counts| counts.get(name)).sum()
}

/// The limits, by the name of their counter, and how to raise them.
const LIMITS: [(&str, &str); 8] = [
    (
        "no_slot",
        "the packet memory is full; lower the limits of queues, or raise --room",
    ),
    (
        "no_large_slot",
        "the memory of super-packets is full; lower the limits of queues, or raise --room",
    ),
    (
        "over_share",
        "the packets from one port fill 16/17 of the packet memory; lower the limits of queues, or \
         raise --room",
    ),
    (
        "pipe_share",
        "one pipe fills 4/5 of the packet memory; lower its queue limit, or raise --room",
    ),
    (
        "dynamic_memory",
        "pipes of masks have used up their memory; use masks with fewer bits, or raise \
         --dynamic-memory",
    ),
    (
        "states_full",
        "the table of states is full; raise net.inet.ip.fw.dyn_max with sysctl",
    ),
    (
        "states_source",
        "one address has too many states; raise net.inet.ip.fw.dyn_src_max with sysctl",
    ),
    (
        "kernel_queue",
        "the kernel's queue of a port was full, because the loop was late; give it its own core (--cpu)",
    ),
];

/// The interval between two questions to the loop.
const EVERY: Duration = Duration::from_secs(1);
/// The time for which a limit that was reported is not reported again.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reported_at_once_and_then_once_a_minute() {
        let mut limits = Limits::new();
        let start = Instant::now();
        let mut status = Status::default();
        let mut after = |status: &Status, seconds| {
            limits.warnings(status, start + Duration::from_secs(seconds))
        };
        assert!(after(&status, 0).is_empty());
        status.refused.insert("dynamic_memory".into(), 5);
        let said = after(&status, 1);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("5 packets are lost (dynamic_memory): "),
            "{said:?}"
        );
        status.refused.insert("dynamic_memory".into(), 50);
        assert!(after(&status, 60).is_empty());
        // Another limit has its own minute.
        status.lost.insert("over_share".into(), 1);
        assert_eq!(after(&status, 60).len(), 1);
        let said = after(&status, 61);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("45 packets"), "{said:?}");
        assert!(after(&status, 200).is_empty(), "nothing new");
    }
}
