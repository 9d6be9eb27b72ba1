p='crates/ipfw/src/objects/budget.rs'
s=open(p).read()
s=s.replace('''    /// There was no memory for another pipe or queue of a mask.
    pub dynamic_memory: u64,
}''','''    /// There was no memory for another pipe or queue of a mask.
    pub dynamic_memory: u64,
    /// The table of states was full of answered flows.
    pub states_full: u64,
    /// The source owned too many states.
    pub states_source: u64,
    /// The group of a `limit` option was full.
    pub states_limit: u64,
}''')
open(p,'w').write(s)
p='crates/ipfw/src/engine.rs'
s=open(p).read()
s=s.replace('''    pub const fn refusals(&self) -> Refusals {
        self.runtime.refusals()
    }''','''    pub const fn refusals(&self) -> Refusals {
        let states = self.rules.states.refusals;
        Refusals {
            states_full: states.full,
            states_source: states.source,
            states_limit: states.limit,
            ..self.runtime.refusals()
        }
    }''')
open(p,'w').write(s)
p='crates/router/src/process/running.rs'
s=open(p).read()
s=s.replace('''            ("dynamic_memory", refusals.dynamic_memory),
''','''            ("dynamic_memory", refusals.dynamic_memory),
            ("states_full", refusals.states_full),
            ("states_source", refusals.states_source),
            ("states_limit", refusals.states_limit),
''')
open(p,'w').write(s)
p='docs/router-status.md'
s=open(p).read()
s=s.replace('''`dynamic_memory`, the pipes that masks create have used up `--dynamic-memory` |''','''`dynamic_memory`, the pipes that masks create have used up `--dynamic-memory`; `states_full`, the table has no room for a state of the flow; `states_source`, the source has too many states; `states_limit`, a rule's `limit` |''')
open(p,'w').write(s)
p='docs/how-to/operate-a-router.md'
s=open(p).read()
s=s.replace('''if there are too few, new flows are refused | `dyn_evicted`, `dyn_refused_full` |''','''if there are too few, new flows are refused | `refused.states_full`, `dyn_evicted` |''')
s=s.replace('''its new flows are refused | `dyn_refused_src` |''','''its new flows are refused | `refused.states_source` |''')
s=s.replace('''`sluice router --json` prints the [status]''','''When one of these limits is met, the router writes a warning with the number of packets, the limit, and
how to raise it: at once, and then at most once a minute for each limit.

`sluice router --json` prints the [status]''')
open(p,'w').write(s)
open('crates/cli/src/router/limits.rs','w').write('''//! Warnings about limits of the router that packets meet.

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
        "the packets from one port fill 16/17 of the packet memory; lower the limits of queues, or \\
         raise --room",
    ),
    (
        "pipe_share",
        "one pipe fills 4/5 of the packet memory; lower its queue limit, or raise --room",
    ),
    (
        "dynamic_memory",
        "pipes of masks have used up their memory; use masks with fewer bits, or raise \\
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
        assert!(said[0].starts_with("5 packets are lost (dynamic_memory): "), "{said:?}");
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
''')
p='crates/cli/src/router.rs'
s=open(p).read()
s=s.replace('mod hooks;\nmod log;','mod hooks;\nmod limits;\nmod log;')
s=s.replace('''    let mut service = service::Service::ready();
''','''    let mut service = service::Service::ready();
    let mut limits = limits::Limits::new();
''')
s=s.replace('''                    service.look(|| router.ask_status());
''','''                    service.look(|| router.ask_status());
                    for warning in limits.look(|| router.ask_status()) {
                        bar.suspend(|| eprintln!("sluice: warning: {warning}"));
                    }
''')
open(p,'w').write(s)
p='CHANGELOG.md'
s=open(p).read()
i=s.index('- `sluice router --fail-open`:')
s=s[:i]+'''- `sluice router` warns when packets meet a limit (packet memory, `--dynamic-memory`, states, ...), and
  says how to raise it; at most once a minute per limit. The status has the refusals of the state
  table: `refused.states_full`, `states_source`, `states_limit`.
'''+s[i:]
open(p,'w').write(s)
