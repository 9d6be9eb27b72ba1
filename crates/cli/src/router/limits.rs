//! Warnings about what a router refuses: which limit packets met, what it is, how often, and how to
//! raise it. Also about files of ports that the system refuses to write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_router::control::{Refused, Why};
use sluice_router::process::{PortStatus, Status, StatusAsked};

use super::events::Event;

/// Watches the counters of limits.
pub(super) struct Limits {
    asked: Option<StatusAsked>,
    next: Instant,
    /// Whether a line has reported the end of the guardian.
    is_unguarded: bool,
    /// The counts that lines have reported: of the whole router, and of each port.
    told: BTreeMap<(&'static str, Option<usize>), u64>,
    /// The system's answers that lines have reported, by port, of files that still refuse to be written.
    answers: BTreeMap<String, String>,
    /// The reasons that lines have reported, by port, of ports that still cannot attach.
    unattached: BTreeMap<String, String>,
    /// The ports that lines have reported, as long as they are not promiscuous.
    filtered: BTreeSet<String>,
}

impl Limits {
    pub fn new() -> Limits {
        Limits {
            asked: None,
            next: Instant::now() + EVERY,
            is_unguarded: false,
            told: BTreeMap::new(),
            answers: BTreeMap::new(),
            unattached: BTreeMap::new(),
            filtered: BTreeSet::new(),
        }
    }

    /// Returns new warnings: at most one in [`EVERY`] for each counter. Never blocks.
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

    /// Returns a warning for each counter that has grown since the last status, for each file whose
    /// write is refused and each port that cannot attach, unless it was in the last status, too, and for the
    /// same reason, and for each port that is not promiscuous any more.
    fn warnings(&mut self, status: &Status, now: Instant) -> Vec<Event> {
        self.next = now + EVERY;
        let ports = &status.ports;
        let answer = |port: &PortStatus| port.write_error.clone();
        let mut warnings = new_errors(&mut self.answers, ports, answer, write_error);
        let reason = |port: &PortStatus| port.attach_error.clone();
        warnings.extend(new_errors(
            &mut self.unattached,
            ports,
            reason,
            attach_error,
        ));
        warnings.extend(self.not_promiscuous(status));
        for (name, what) in REFUSALS {
            let growth = self.growth(status, name);
            if growth.count > 0 {
                let size = growth.port.and_then(|port| port.limits.get(name));
                let size = size.or(status.limits.get(name)).copied();
                warnings.push(warning((name, what), size, &growth, status));
            }
        }
        if status.fail_open == Some(false) && !self.is_unguarded {
            self.is_unguarded = true;
            warnings.push(unguarded());
        }
        warnings
    }

    /// Returns by how much a counter has grown since the last status.
    fn growth<'a>(&mut self, status: &'a Status, name: &'static str) -> Growth<'a> {
        let mut new = |place, count: u64| {
            let known = self.told.insert((name, place), count).unwrap_or(0);
            count.saturating_sub(known)
        };
        let mut growth = Growth {
            count: new(None, count(status, name)),
            port: None,
        };
        let mut most = 0;
        for (number, port) in status.ports.iter().enumerate() {
            let of_port = new(Some(number), port.lost.get(name).copied().unwrap_or(0));
            growth.count += of_port;
            if of_port > most {
                (most, growth.port) = (of_port, Some(port));
            }
        }
        growth
    }

    fn not_promiscuous(&mut self, status: &Status) -> Vec<Event> {
        let filtered = status.ports.iter();
        let filtered = filtered.filter(|port| port.promiscuous == Some(false));
        let filtered: BTreeSet<String> = filtered.map(|port| port.name.clone()).collect();
        let new = filtered.difference(&self.filtered);
        let warnings = new.map(|port| not_promiscuous(port)).collect();
        self.filtered = filtered;
        warnings
    }
}

/// The growth of a counter between two looks.
struct Growth<'a> {
    count: u64,
    /// The port that lost most of them, if ports did.
    port: Option<&'a PortStatus>,
}

/// Returns the warning that the interface of a port filters frames by their address.
fn not_promiscuous(port: &str) -> Event {
    Event {
        line: format!(
            "warning: the interface of {port} is not promiscuous: frames for other addresses than its own \
             may be lost, and no counter shows them; restart the router, or use `ip link set dev IFACE \
             promisc on`"
        ),
        json: json!({"log": "not_promiscuous", "port": port}),
    }
}

/// Returns an event for each port with an error that has another text than the known one. Forgets those
/// that are over: the next one is another one, even with the same text.
fn new_errors(
    known: &mut BTreeMap<String, String>,
    ports: &[PortStatus],
    error: impl Fn(&PortStatus) -> Option<String>,
    event: fn(&str, &str) -> Event,
) -> Vec<Event> {
    let mut warnings = Vec::new();
    for port in ports {
        let Some(text) = error(port) else {
            known.remove(&port.name);
            continue;
        };
        let before = known.insert(port.name.clone(), text.clone());
        if before.as_ref() != Some(&text) {
            warnings.push(event(&port.name, &text));
        }
    }
    warnings
}

/// Returns the warning that a port cannot attach to its interface.
fn attach_error(port: &str, reason: &str) -> Event {
    Event {
        line: format!(
            "warning: {port} cannot attach: {reason}; it is tried again ten times a second, and frames for \
             the port are lost (`down`)"
        ),
        json: json!({"log": "attach_error", "port": port, "error": reason}),
    }
}

/// Returns the warning that the file of a port cannot be written.
fn write_error(port: &str, answer: &str) -> Event {
    Event {
        line: format!(
            "warning: the file of {port} cannot be written: {answer}; it is tried again, frames wait as \
             long as there is room, and `sluice router status` counts those that are lost"
        ),
        json: json!({"log": "write_error", "port": port, "error": answer}),
    }
}

fn warning(
    (name, what): (&str, &str),
    size: Option<u64>,
    growth: &Growth<'_>,
    status: &Status,
) -> Event {
    let size_text = size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    let what = what.replace("{}", &size_text);
    let of = match name {
        "log_lost" => "entries lost",
        "call_loop" => "packets met a limit",
        "states_evicted" => "states removed",
        "bridged" => "packets not sent again",
        "busy" | "late" | "gone" => "commands refused",
        _ if name.starts_with("http_") => "requests refused",
        _ if Why::ALL.iter().any(|why| why.name() == name) => "clients refused",
        _ => "packets lost",
    };
    let count = growth.count;
    // Ports have counters of their own; of rules and pipes, the status has the last one.
    let port = growth.port.map(|port| &port.name);
    let last = status.last_refused.get(name);
    let place = match (port, last) {
        (Some(port), _) => format!(", most at {port}"),
        (None, Some(last)) => format!(", last at {last}"),
        (None, None) => String::new(),
    };
    let at = port.or(last);
    Event {
        line: format!("warning: {count} {of} ({name}{place}): {what}"),
        json: json!({
            "log": "limit", "limit": name, "size": size, "lost": count, "at": at, "text": what
        }),
    }
}

/// Returns the warning that the guardian has ended.
fn unguarded() -> Event {
    let text = "the process that watches this router has ended: --fail-open has no effect until the router \
                is restarted";
    Event {
        line: format!("warning: {text}"),
        json: json!({"log": "fail_open", "text": text}),
    }
}

/// Returns how often a limit was met, except at ports.
fn count(status: &Status, name: &str) -> u64 {
    if name == "log_lost" {
        return status.log_lost;
    }
    let all = [&status.lost, &status.refused, &status.clients_refused];
    all.into_iter().filter_map(|counts| counts.get(name)).sum()
}

/// The counters of what a router refuses, except for refused commands and reloads, which have lines as
/// changes of the configuration, and why: the limit, and how to raise it, or how to let such
/// frames pass. `{}` is the size of the limit.
const REFUSALS: [(&str, &str); 49] = [
    (
        "hand_over",
        "the worker that owns the pipe is more than 8192 packets or 16 MiB behind; move pipes to other \
         workers (pipe N belongs to worker N modulo --workers)",
    ),
    (
        "bridged",
        "the kernel bridge of --fail-open forwarded them while the packet loop hung; look for what stopped \
         the router",
    ),
    (
        "no_slot",
        "the packet memory, {} packets, is full; lower the limits of queues, or raise --room",
    ),
    (
        "no_large_slot",
        "the memory of super-packets, {} of them, is full; lower the limits of queues, or raise --room",
    ),
    (
        "over_share",
        "the packets from one port fill their share of the packet memory, {} packets; lower the limits \
         of queues, or raise --room",
    ),
    (
        "pipe_share",
        "one pipe fills its share of the packet memory, {} packets; lower the limit of its queue, or \
         raise --room",
    ),
    (
        "dynamic_memory",
        "the pipes of masks have used up their memory, {} bytes; use masks with fewer bits, or raise \
         --dynamic-memory",
    ),
    (
        "dynamic_number",
        "there are {} pipes or queues, which is the largest number; use masks with fewer bits",
    ),
    (
        "states_full",
        "the table of states is full with {}; raise net.inet.ip.fw.dyn_max with `sluice ipfw sysctl`",
    ),
    (
        "states_evicted",
        "the table of states, {}, is full, and the oldest flows without an answer make room for new ones; \
         raise net.inet.ip.fw.dyn_max with `sluice ipfw sysctl`",
    ),
    (
        "states_source",
        "one address has {} states; raise net.inet.ip.fw.dyn_src_max with `sluice ipfw sysctl`",
    ),
    (
        "states_limit",
        "flows are above the `limit` of a rule, {}; raise it in the rule",
    ),
    (
        "pipe_loop",
        "rules sent a packet through {} pipes, which is the most; with one_pass=0, a rule behind that of \
         the pipe must let the packet pass",
    ),
    (
        "call_loop",
        "rules `call` more than {} rules deep, or 1024 times for one packet, and further calls have no \
         effect; end each block with `return`, and let no block call itself",
    ),
    (
        "evasive",
        "headers hide what rules match, and --strict drops such frames; without --strict they pass",
    ),
    (
        "tiny_segments",
        "super-packets ask for TCP segments, or for more than 128 datagrams, below 48 bytes, which no \
         sender makes; turn off offloads at the interface (ethtool -K IFACE gro off tso off gso off)",
    ),
    (
        "malformed",
        "the headers of frames end early or contradict each other (see `damaged` in the status)",
    ),
    (
        "kernel_queue",
        "the kernel's queue of a port, {} bytes, was full, because the loop was late; give the loop a core \
         of its own with --cpu, or raise --workers: each worker has such a queue",
    ),
    (
        "port_blocked",
        "the interface accepts no more frames, because its queue is full; shape below its rate, or raise \
         its queue (ip link set dev IFACE txqueuelen N, ethtool -G)",
    ),
    (
        "no_exit",
        "frames that are not IP have no port to leave through, as only IP packets pass rules; give the \
         port a partner",
    ),
    (
        "oversize",
        "frames are longer than a port accepts, which is 67520 bytes, or an MTU of 1770 through `xdp`; turn \
         off receive offloads and BIG TCP (ethtool -K IFACE gro off lro off), or use `packet`",
    ),
    (
        "too_long",
        "frames are longer than the interface sends, whose MTU is {}; raise it (ip link set dev IFACE mtu \
         N), or lower those of the others",
    ),
    (
        "refused",
        "the interface has no carrier or its queue is full, the file of the port cannot be written or read, or \
         as many packets of --forward or --local wait as --room allows; shape below its rate, or raise its \
         queue (ip link set dev IFACE txqueuelen N) or --room",
    ),
    (
        "down",
        "the interface is down or gone, or the port cannot attach to it (see `attach_error` in the status); \
         set it up (ip link set dev IFACE up)",
    ),
    (
        "offload",
        "the port cannot describe super-packets of this kind to the kernel, or the kernel to the port; turn \
         off offloads where they come from (ethtool -K IFACE gro off tso off gso off)",
    ),
    (
        "no_file",
        "the port has no file to write; name one (pcap:IN:OUT), or let no rule send packets there",
    ),
    (
        "other",
        "the kernel refuses frames, or cuts what belongs to them, for another reason; see `ip -s link show \
         dev IFACE`",
    ),
    (
        "log_lost",
        "rules with `log` have more entries than can be written, and {} are waiting; use `logamount`",
    ),
    (
        "other_user",
        "a process of another user connected to the control socket, which serves its owner and root only",
    ),
    (
        "too_many",
        "{} clients of the control socket are served at a time, and twice as many may wait for samples; all \
         places are taken, wait for one",
    ),
    (
        "silent",
        "{} clients of the control socket are served at a time, and the one that was silent for longest \
         made room for another; close connections that are not used",
    ),
    (
        "slow",
        "a client of the control socket did not complete its request, or did not read the answer, in {} \
         s; send requests as a whole",
    ),
    (
        "unreadable",
        "a request at the control socket was not one of at most {} bytes; use `sluice ipfw`",
    ),
    (
        "thread",
        "no thread could be had for a client of the control socket; raise the limit of tasks (TasksMax of the \
         unit, or ulimit -u)",
    ),
    (
        "accept",
        "the system did not accept connections to the control socket, most likely because too many files \
         are open; raise the limit (LimitNOFILE of the unit, or ulimit -n)",
    ),
    (
        "busy",
        "{} commands wait for the loop at a time; send fewer at a time, or many in one file",
    ),
    (
        "late",
        "the loop did not begin commands within {} s, and they were withdrawn; send fewer at a time, or give \
         the loop a core of its own with --cpu",
    ),
    (
        "gone",
        "a client of the control socket hung up before its command was executed, which was withdrawn; let \
         clients wait for the answer",
    ),
    (
        "http_host",
        "a request to the page did not name its host by an address or as localhost; open the page by its \
         address",
    ),
    (
        "http_origin",
        "the page of another site tried to use this page; close it, or open this page by its address",
    ),
    (
        "http_no_token",
        "a request to the page had no token; open the page with #token=TOKEN behind its address",
    ),
    (
        "http_wrong_token",
        "a request to the page had a wrong token, or the cookie of an earlier start; log in again",
    ),
    (
        "http_too_many",
        "{} clients of the page are served at a time, and all are at work; close pages that are not used",
    ),
    (
        "http_address",
        "{} clients of the page from one address are served at a time, and all are at work; close pages \
         that are not used",
    ),
    (
        "http_thread",
        "no thread could be started for a client of the page; raise the limit of tasks (TasksMax of the \
         unit, or ulimit -u)",
    ),
    (
        "http_accept",
        "the system did not accept connections to the page, most likely because too many files are open; \
         raise the limit (LimitNOFILE of the unit, or ulimit -n)",
    ),
    (
        "http_long",
        "the head of a request to the page had more than {} bytes, or its body more than 65536; send \
         fewer headers, or commands in pieces",
    ),
    (
        "http_slow",
        "a client of the page did not complete its request in {} s; send requests as a whole",
    ),
    (
        "http_unreadable",
        "what a client sent to the page was not a GET or POST of HTTP/1.1; use a browser or curl",
    ),
];

/// The interval between two questions to the loop.
const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
