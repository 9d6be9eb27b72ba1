//! The status of a router: for the status line, the summary, and clients of the socket.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sluice_core::DropReason;
use sluice_ipfw::Refusals;
use sluice_net::port::Loss;

use super::InterfaceState;
use crate::control::{Answered, Orders, Pending, Refused, TeamStatus, Why, Work};
use crate::forward::LostFrame;

/// The state of a router. A super-packet that stays whole counts once, wherever packets are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of the program that runs.
    #[serde(default)]
    pub version: String,
    /// The start of the router in milliseconds since the Unix epoch, as the system's clock showed it then;
    /// `None` without a router's process.
    #[serde(default)]
    pub started_unix_ms: Option<u64>,
    /// Time since the router started.
    pub uptime_ns: u64,
    /// The ports in order; those of a pair are adjacent.
    pub ports: Vec<PortStatus>,
    /// Packets that were passed to the rules; each segment of a split super-packet counts.
    pub admitted: u64,
    /// Frames that are not IP and bypassed the rules.
    pub bypassed: u64,
    /// Packets transmitted.
    pub sent: u64,
    /// Packets dropped by rules, queues and links, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames lost on the way to a queue or to a port, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Packets among the dropped ones that found no room because of a limit of the whole router, by
    /// limit.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// The sizes of the limits by which packets are lost or refused, by the name of the counter, for
    /// each worker: packets, bytes (`dynamic_memory`), or what the counter names.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// The rule, the pipe or the port at which a packet was lost last, by the name of the counter. Of
    /// several workers, it may name several.
    #[serde(default)]
    pub last_refused: BTreeMap<String, String>,
    /// Clients of the control socket that were turned away, by reason.
    #[serde(default)]
    pub clients_refused: BTreeMap<String, u64>,
    /// Frames with malformed headers, by fault. Those with readable addresses were forwarded.
    #[serde(default)]
    pub damaged: BTreeMap<String, u64>,
    /// Half of the packets left less than this after they were due.
    pub late_p50_ns: u64,
    /// 99 of 100 packets left less than this after they were due.
    pub late_p99_ns: u64,
    /// Requests with commands since the start, including refused ones, reloads and undone changes.
    pub commands: u64,
    /// Whether the loop has priority over ordinary threads (SCHED_FIFO).
    pub is_real_time: bool,
    /// Packets that the loop has sent to itself to keep the kernel's packet path in the caches
    /// (`--spin always`).
    #[serde(default)]
    pub warmth_requests: Option<u64>,
    /// The limit of idle-state exit latency that the router requests for all cores while it runs,
    /// if any.
    #[serde(default)]
    pub cpu_latency_ns: Option<u64>,
    /// Entries of `log` rules that were passed to the log. It reports lines that could not be written.
    #[serde(default)]
    pub logged: u64,
    /// Entries of `log` rules that were lost, because they were made faster than written.
    #[serde(default)]
    pub log_lost: u64,
    /// What the router's threads but the broker have given up: `capabilities`, `system_calls`, `files`
    /// (where the kernel has Landlock), `user`. Loops that decide over the kernel's own packets have
    /// given up `capabilities_but_net_admin`. Empty with `--unconfined`.
    #[serde(default)]
    pub given_up: Vec<String>,
    /// Whether the process that watches the router lives (`--fail-open`); `None` without it.
    #[serde(default)]
    pub fail_open: Option<bool>,
    /// The part of each worker, if there are several.
    #[serde(default)]
    pub workers: Vec<WorkerStatus>,
    /// Packets that workers have handed over to one another.
    #[serde(default)]
    pub handed_over: u64,
    /// Slots of the packet memory: each frame or packet in the router occupies one.
    #[serde(default)]
    pub slots: u64,
    /// Slots that are free.
    #[serde(default)]
    pub free_slots: u64,
    /// Slots that ports keep for future frames, or have lent to the kernel. The other ones that are not
    /// free hold packets in queues.
    #[serde(default)]
    pub port_slots: u64,
}

/// The part of one of several workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Frames received.
    pub received: u64,
    /// Packets transmitted.
    pub sent: u64,
    /// Packets handed over to other workers.
    pub handed_over: u64,
    /// 99 of 100 packets left less than this after they were due.
    pub late_p99_ns: u64,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The name that the user gave.
    pub name: String,
    /// The kind: `packet`, `xdp`, `tun` or `tap`.
    #[serde(default)]
    pub kind: String,
    /// The reason for the choice of the kind.
    #[serde(default)]
    pub reason: String,
    /// The state of the port's interface; `None` without one, or if the kernel does not say.
    #[serde(default)]
    pub interface: Option<InterfaceState>,
    /// Whether the interface delivers frames for all addresses; `None` where there is no filter, and while
    /// the interface is gone.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Frames received.
    pub received: u64,
    /// Bytes of the frames received.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of the frames sent.
    pub sent_bytes: u64,
    /// Super-packets that the port built from several frames each.
    #[serde(default)]
    pub sent_trains: u64,
    /// Frames that the port or the kernel lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// The sizes of the limits by which this port loses frames, by the reason.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// Why the port cannot attach to its interface, although there is one that is up; `None` as soon as it can.
    #[serde(default)]
    pub attach_error: Option<String>,
    /// The system's answer to the last write, if the port's file refused it; `None` as soon as the file
    /// accepts a write.
    #[serde(default)]
    pub write_error: Option<String>,
}

/// A request for the status that the loop may not have answered yet.
pub struct StatusAsked(Pending<Status>);

impl StatusAsked {
    /// Sends a request to the loop that executes these orders.
    ///
    /// # Errors
    /// As for [`Orders::post`].
    pub fn of(orders: &Orders<Status>) -> Result<StatusAsked, Refused> {
        orders.post(Work::Status).map(StatusAsked)
    }

    /// Returns the status, once the loop has answered. Never blocks.
    ///
    /// # Errors
    /// The loop has ended.
    pub fn poll(&self) -> Result<Option<Status>, Refused> {
        Ok(self.0.poll()?.map(|answer| match answer {
            Answered::Status(status) => *status,
            Answered::Commands(..)
            | Answered::Survey(_)
            | Answered::Watched(_)
            | Answered::Replaced(_)
            | Answered::Draft(_)
            | Answered::Stale(_) => {
                unreachable!("a request for the status is answered with the status")
            }
        }))
    }
}

impl TeamStatus for Status {
    fn join(all: Vec<Status>) -> Status {
        let workers: Vec<WorkerStatus> = all.iter().map(WorkerStatus::of).collect();
        let mut parts = all.into_iter();
        let mut whole = parts.next().unwrap_or_default();
        for part in parts {
            whole.absorb(part);
        }
        whole.workers = workers;
        whole
    }
}

impl WorkerStatus {
    fn of(status: &Status) -> WorkerStatus {
        WorkerStatus {
            received: status.ports.iter().map(|port| port.received).sum(),
            sent: status.sent,
            handed_over: status.handed_over,
            late_p99_ns: status.late_p99_ns,
        }
    }
}

impl PortStatus {
    /// Returns every reason that [`PortStatus::lost`] can have.
    pub fn loss_names() -> impl Iterator<Item = &'static str> {
        Loss::ALL.into_iter().map(Loss::name)
    }

    fn absorb(&mut self, part: &PortStatus) {
        self.received += part.received;
        self.received_bytes += part.received_bytes;
        self.sent += part.sent;
        self.sent_bytes += part.sent_bytes;
        self.sent_trains += part.sent_trains;
        add(&mut self.lost, &part.lost);
        // Some workers may only send through it.
        if self.promiscuous.is_none() || part.promiscuous == Some(false) {
            self.promiscuous = part.promiscuous;
        }
        if self.attach_error.is_none() {
            self.attach_error.clone_from(&part.attach_error);
        }
        if self.write_error.is_none() {
            self.write_error.clone_from(&part.write_error);
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *counts.entry(name.clone()).or_default() += count;
    }
}

impl Status {
    /// Returns every reason that [`Status::dropped`] can have.
    pub fn drop_names() -> impl Iterator<Item = &'static str> {
        DropReason::ALL.iter().map(|reason| reason.name())
    }

    /// Returns every cause that [`Status::lost`] can have.
    pub fn loss_names() -> impl Iterator<Item = &'static str> {
        LostFrame::ALL.into_iter().map(LostFrame::name)
    }

    /// Returns every limit that [`Status::refused`] can have.
    pub fn refusal_names() -> impl Iterator<Item = &'static str> {
        let counts = Refusals::default().counts();
        counts.into_iter().map(|(name, _)| name)
    }

    /// Returns every reason that [`Status::clients_refused`] can have.
    pub fn client_names() -> impl Iterator<Item = &'static str> {
        Why::ALL.into_iter().map(Why::name)
    }

    /// Adds the part of another worker. Counters add up; of the rest, the worst counts.
    fn absorb(&mut self, part: Status) {
        for (port, part) in self.ports.iter_mut().zip(&part.ports) {
            port.absorb(part);
        }
        self.uptime_ns = self.uptime_ns.max(part.uptime_ns);
        self.admitted += part.admitted;
        self.bypassed += part.bypassed;
        self.sent += part.sent;
        self.handed_over += part.handed_over;
        self.slots += part.slots;
        self.free_slots += part.free_slots;
        self.port_slots += part.port_slots;
        self.logged += part.logged;
        self.log_lost += part.log_lost;
        for (counts, more) in [
            (&mut self.dropped, &part.dropped),
            (&mut self.lost, &part.lost),
            (&mut self.refused, &part.refused),
            (&mut self.damaged, &part.damaged),
        ] {
            add(counts, more);
        }
        for (name, what) in part.last_refused {
            let known = self
                .last_refused
                .entry(name)
                .or_insert_with(|| what.clone());
            if !known.split(" or ").any(|one| one == what) {
                known.push_str(" or ");
                known.push_str(&what);
            }
        }
        // Most limits of the workers are equal; that of a rule comes with its refusal.
        for (name, size) in part.limits {
            self.limits.entry(name).or_insert(size);
        }
        self.late_p50_ns = self.late_p50_ns.max(part.late_p50_ns);
        self.late_p99_ns = self.late_p99_ns.max(part.late_p99_ns);
        self.is_real_time &= part.is_real_time;
        self.warmth_requests = match (self.warmth_requests, part.warmth_requests) {
            (Some(own), Some(more)) => Some(own + more),
            (own, more) => own.or(more),
        };
        self.given_up.retain(|what| part.given_up.contains(what));
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns one line on the changes since `before`.
    pub fn line(&self, before: &Status) -> String {
        let span_ns = self.uptime_ns.saturating_sub(before.uptime_ns).max(1);
        let mut line = String::new();
        for (port, old) in self.ports.iter().zip(&before.ports) {
            let mbit =
                |new: u64, old: u64| (new.saturating_sub(old)) as f64 * 8_000.0 / span_ns as f64;
            line.push_str(&format!(
                "{} in {:.1} out {:.1} Mbit/s  ",
                port.name,
                mbit(port.received_bytes, old.received_bytes),
                mbit(port.sent_bytes, old.sent_bytes)
            ));
        }
        let dropped = self.dropped_total() - before.dropped_total().min(self.dropped_total());
        line.push_str(&format!("dropped {dropped}"));
        line
    }
}

/// Writes a summary for people.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>12} {:>14} {:>12} {:>14} {:>8}",
            "port", "frames in", "bytes in", "frames out", "bytes out", "lost"
        )?;
        for port in &self.ports {
            writeln!(
                f,
                "{:<12} {:>12} {:>14} {:>12} {:>14} {:>8}",
                port.name,
                port.received,
                port.received_bytes,
                port.sent,
                port.sent_bytes,
                port.lost.values().sum::<u64>()
            )?;
        }
        for port in self.ports.iter().filter(|port| !port.lost.is_empty()) {
            let causes = port.lost.iter();
            let causes: Vec<String> = causes
                .map(|(cause, count)| format!("{cause} {count}"))
                .collect();
            writeln!(f, "lost at {}: {}", port.name, causes.join(", "))?;
            // Frames that were lost for other reasons are not missing because of the error.
            let is_cut = port.lost.get(Loss::Refused.name()).is_some_and(|n| *n > 0);
            if let Some(error) = port.write_error.as_ref().filter(|_| is_cut) {
                writeln!(f, "the file of {} is not complete: {error}", port.name)?;
            }
        }
        for (is_on, text) in [
            (true, "promiscuous:"),
            (
                false,
                "not promiscuous, frames may be lost without being counted:",
            ),
        ] {
            let ports = self
                .ports
                .iter()
                .filter(|port| port.promiscuous == Some(is_on));
            let names: Vec<&str> = ports.map(|port| port.name.as_str()).collect();
            if !names.is_empty() {
                writeln!(f, "{text} {}", names.join(", "))?;
            }
        }
        writeln!(
            f,
            "up {:.1} s, {} packets through the rules, {} sent, {} bypassed, {} dropped, {} commands",
            self.uptime_ns as f64 / 1e9,
            self.admitted,
            self.sent,
            self.bypassed,
            self.dropped_total(),
            self.commands
        )?;
        for (what, counts) in [
            ("dropped", &self.dropped),
            ("lost", &self.lost),
            ("refused", &self.refused),
            ("damaged", &self.damaged),
            ("clients refused:", &self.clients_refused),
        ] {
            for (reason, count) in counts {
                writeln!(f, "{what} {reason}: {count}")?;
            }
        }
        for (number, worker) in self.workers.iter().enumerate() {
            writeln!(
                f,
                "worker {number}: {} frames received, {} handed over, {} packets sent",
                worker.received, worker.handed_over, worker.sent
            )?;
        }
        if !self.given_up.is_empty() {
            writeln!(f, "privileges given up: {}", self.given_up.join(", "))?;
        }
        if self.logged + self.log_lost > 0 {
            let (logged, lost) = (self.logged, self.log_lost);
            writeln!(f, "log: {logged} entries passed on, {lost} lost")?;
        }
        writeln!(
            f,
            "packets left at most {:.0} us (median) and {:.0} us (99th percentile) after they were due",
            self.late_p50_ns as f64 / 1e3,
            self.late_p99_ns as f64 / 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_which_ports_are_promiscuous() {
        let port = |name: &str, promiscuous| PortStatus {
            name: name.into(),
            promiscuous,
            ..PortStatus::default()
        };
        let status = Status {
            ports: vec![
                port("eth0", Some(true)),
                port("tap:t0", None),
                port("xdp:eth1", Some(false)),
                port("eth2", Some(true)),
            ],
            ..Status::default()
        };
        let text = status.to_string();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("promiscuous"))
            .collect();
        assert_eq!(
            lines,
            [
                "promiscuous: eth0, eth2",
                "not promiscuous, frames may be lost without being counted: xdp:eth1"
            ]
        );
    }

    #[test]
    fn the_summary_says_why_each_port_lost_frames() {
        let port = |name: &str, lost: &[(&str, u64)]| PortStatus {
            name: name.into(),
            lost: lost.iter().map(|(why, n)| ((*why).into(), *n)).collect(),
            ..PortStatus::default()
        };
        let status = Status {
            ports: vec![
                port("eth0", &[]),
                port("eth1", &[("too_long", 3), ("down", 2)]),
                PortStatus {
                    write_error: Some("No space left on device".into()),
                    ..port("pcap::out.pcap", &[("refused", 7)])
                },
                PortStatus {
                    write_error: Some("No space left on device".into()),
                    ..port("pcap::waits.pcap", &[("too_long", 1)])
                },
            ],
            ..Status::default()
        };
        let text = status.to_string();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("lost") || line.contains("file"))
            .collect();
        assert_eq!(
            lines,
            [
                "lost at eth1: down 2, too_long 3",
                "lost at pcap::out.pcap: refused 7",
                "the file of pcap::out.pcap is not complete: No space left on device",
                "lost at pcap::waits.pcap: too_long 1"
            ]
        );
    }

    #[test]
    fn the_line_tells_rates_since_the_last_one() {
        let before = Status {
            uptime_ns: 1_000_000_000,
            ports: vec![PortStatus {
                name: "eth0".into(),
                received_bytes: 1_000_000,
                ..PortStatus::default()
            }],
            ..Status::default()
        };
        let mut now = before.clone();
        now.uptime_ns = 3_000_000_000;
        now.ports[0].received_bytes += 2_500_000;
        now.dropped.insert("overflow".into(), 3);
        // 2.5 MB in 2 s are 10 Mbit/s.
        assert_eq!(now.line(&before), "eth0 in 10.0 out 0.0 Mbit/s  dropped 3");
    }
}
