//! Warnings about limits of the router that packets meet: which limit, how often, and how to raise it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_router::control::Refused;
use sluice_router::process::{Status, StatusAsked};

use super::events::Event;

/// Watches the counters of limits.
pub(super) struct Limits {
    asked: Option<StatusAsked>,
    next: Instant,
    /// The counts that lines have reported.
    told: BTreeMap<&'static str, u64>,
}

impl Limits {
    pub fn new() -> Limits {
        Limits {
            asked: None,
            next: Instant::now() + EVERY,
            told: BTreeMap::new(),
        }
    }

    /// Returns new warnings: at most one in [`EVERY`] for each limit. Never blocks.
    pub fn look(&mut self, ask: impl FnOnce() -> Result<StatusAsked, Refused>) -> Vec<Event> {
        if let Some(asked) = &self.asked {
            let answer = asked.poll();
            if matches!(answer, Ok(None)) {
                return Vec::new();
            }
            self.asked = None;
            return match answer {
                Ok(Some(status)) => self.warnings(&status, Instant::now()),
                _ => Vec::new(),
            };
        }
        if Instant::now() >= self.next {
            self.asked = ask().ok();
        }
        Vec::new()
    }

    /// Returns a warning for each limit that was met since the last status.
    fn warnings(&mut self, status: &Status, now: Instant) -> Vec<Event> {
        self.next = now + EVERY;
        let mut warnings = Vec::new();
        for (name, what) in LIMITS {
            let count = count(status, name);
            let known = self.told.insert(name, count).unwrap_or(0);
            if count > known {
                warnings.push(warning(name, what, count - known));
            }
        }
        warnings
    }
}

fn warning(name: &str, what: &str, packets: u64) -> Event {
    let of = match name {
        "log_lost" => "entries",
        _ => "packets",
    };
    Event {
        line: format!("warning: {packets} {of} lost ({name}): {what}"),
        json: json!({"log": "limit", "limit": name, "lost": packets, "text": what}),
    }
}

/// Returns how often a limit was met, at all ports.
fn count(status: &Status, name: &str) -> u64 {
    if name == "log_lost" {
        return status.log_lost;
    }
    let ports = status.ports.iter().map(|port| &port.lost);
    let all = ports.chain([&status.lost, &status.refused]);
    all.filter_map(|counts| counts.get(name)).sum()
}

/// The limits, by the name of their counter, and how to raise them. The `limit` of a rule is not among
/// them: the operator wanted it.
const LIMITS: [(&str, &str); 10] = [
    (
        "hand_over",
        "the worker that owns the pipe is too far behind; move pipes to other workers (pipe N \
         belongs to worker N modulo --workers)",
    ),
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
        "the packets from one port fill 16/17 of the packet memory; lower the limits of queues, or raise \
         --room",
    ),
    (
        "pipe_share",
        "one pipe fills 4/5 of the packet memory; lower the limit of its queue, or raise --room",
    ),
    (
        "dynamic_memory",
        "the pipes of masks have used up their memory; use masks with fewer bits, or raise \
         --dynamic-memory",
    ),
    (
        "states_full",
        "the table of states is full; raise net.inet.ip.fw.dyn_max with `sluice ipfw sysctl`",
    ),
    (
        "states_source",
        "one address has too many states; raise net.inet.ip.fw.dyn_src_max with `sluice ipfw sysctl`",
    ),
    (
        "kernel_queue",
        "the kernel's queue of a port was full, because the loop was late; give the loop a core of its \
         own with --cpu",
    ),
    (
        "log_lost",
        "rules with `log` have more entries than can be written; use `logamount`",
    ),
];

/// The interval between two questions to the loop.
const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(warnings: &[Event]) -> Vec<&str> {
        warnings.iter().map(|event| event.line.as_str()).collect()
    }

    #[test]
    fn a_limit_that_is_met_has_a_line_with_its_remedy_at_most_once_a_second() {
        let mut limits = Limits::new();
        let start = Instant::now();
        let mut status = Status::default();
        assert!(limits.warnings(&status, start).is_empty());
        assert_eq!(
            limits.next,
            start + EVERY,
            "the next question comes a second later"
        );
        status.refused.insert("dynamic_memory".into(), 5);
        status.lost.insert("over_share".into(), 1);
        let said = limits.warnings(&status, start);
        let expected = [
            "warning: 1 packets lost (over_share): the packets from one port fill 16/17 of the packet \
             memory; lower the limits of queues, or raise --room",
            "warning: 5 packets lost (dynamic_memory): the pipes of masks have used up their memory; use \
             masks with fewer bits, or raise --dynamic-memory",
        ];
        assert_eq!(lines(&said), expected);
        assert!(limits.warnings(&status, start).is_empty(), "nothing new");
        status.refused.insert("dynamic_memory".into(), 50);
        let said = limits.warnings(&status, start);
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].json["lost"], 45);
    }

    #[test]
    fn counts_of_all_ports_are_added() {
        let mut status = Status::default();
        status.lost.insert("no_slot".into(), 1);
        for n in [2, 4] {
            let mut port = sluice_router::process::PortStatus::default();
            port.lost.insert("no_slot".into(), n);
            status.ports.push(port);
        }
        assert_eq!(count(&status, "no_slot"), 7);
    }

    /// The names are those of counters, so a line cannot be missing because of a mistake in a name.
    #[test]
    fn every_limit_is_a_counter_of_the_documentation() {
        let page = include_str!("../../../../docs/router-status.md");
        for (name, _) in LIMITS {
            assert!(page.contains(name), "{name}");
        }
    }
}
