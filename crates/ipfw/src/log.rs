//! The log of `log` rules.
//!
//! An entry is written as a line in the format of ipfw's syslog entries (`ip_fw_log.c`). The code of
//! an ICMP message is left out, since rules do not read it. A frame that is not IP has its type behind
//! ipfw's word `MAC`.

use std::fmt;
use std::net::IpAddr;

use sluice_core::Time;

use crate::grammar::{Action, Target};
use crate::headers::{Direction, Headers, ICMP, ICMP6, TCP, UDP};

/// A packet that a `log` rule matched.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// The time of the match.
    pub at: Time,
    /// The number of the rule.
    pub rule: u32,
    /// The action of the rule, such as `Deny` or `Pipe 1`.
    pub action: String,
    /// The packet, or the frame that is not IP.
    pub headers: Headers,
    /// The interface of this pass, by name; empty if the host has none of its number.
    pub interface: String,
    /// The limit of the rule's entries, if this one is the last until `resetlog`.
    pub limit: Option<u32>,
}

/// The line of ipfw, without a line feed; behind the last entry of a rule a second one.
impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = &self.headers;
        write!(f, "{} {} ", self.rule, self.action)?;
        let (from, to) = (headers.src, headers.dst);
        match (headers.frame, headers.proto) {
            (Some(kind), _) => write!(f, "MAC {kind:#06x}")?,
            (None, proto) if headers.fragment.offset > 0 => {
                write!(f, "P:{proto} {} {}", host(from), host(to))?;
            }
            (None, TCP | UDP) => {
                let name = if headers.proto == TCP { "TCP" } else { "UDP" };
                let (source, destination) = (headers.src_port, headers.dst_port);
                write!(
                    f,
                    "{name} {}:{source} {}:{destination}",
                    host(from),
                    host(to)
                )?;
            }
            (None, ICMP | ICMP6) => {
                let name = if headers.proto == ICMP {
                    "ICMP"
                } else {
                    "ICMPv6"
                };
                write!(f, "{name}:{} ", headers.icmp_type.unwrap_or(0))?;
                write!(f, "{} {}", host(from), host(to))?;
            }
            (None, other) => write!(f, "P:{other} {} {}", host(from), host(to))?,
        }
        let way = match headers.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        write!(f, " {way}")?;
        if !self.interface.is_empty() {
            write!(f, " via {}", self.interface)?;
        }
        if headers.fragment.offset > 0 || headers.fragment.has_more {
            let more = if headers.fragment.has_more { "+" } else { "" };
            let (id, offset) = (headers.ip_id, headers.fragment.offset);
            write!(f, " (frag {id}:{}@{offset}{more})", headers.ip_len)?;
        }
        if let Some(limit) = self.limit {
            write!(f, "\nlimit {limit} reached on entry {}", self.rule)?;
        }
        Ok(())
    }
}

/// An address as ipfw logs it: in brackets if it is of IPv6.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Returns ipfw's word for what a rule does with the packet.
pub(crate) fn action(action: &Action) -> String {
    let with = |word: &str, target: &Target| match target {
        Target::Number(number) => format!("{word} {number}"),
        Target::TableArg => format!("{word} tablearg"),
    };
    match action {
        Action::Allow | Action::CheckState(_) => "Accept".to_owned(),
        Action::Deny => "Deny".to_owned(),
        Action::Count => "Count".to_owned(),
        Action::Pipe(target) => with("Pipe", target),
        Action::Queue(target) => with("Queue", target),
        Action::SkipTo(target) => with("SkipTo", target),
        Action::Call(target) => with("Call", target),
        Action::Return => "Return".to_owned(),
    }
}

/// Entries that the host has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Vec<LogEntry>,
    lost: u64,
}

impl Log {
    pub(crate) fn push(&mut self, entry: impl FnOnce() -> LogEntry) {
        if self.entries.len() < MOST_KEPT {
            self.entries.push(entry());
        } else {
            self.lost += 1;
        }
    }

    /// Returns the entries, and the number of those that found no room.
    pub(crate) fn take(&mut self) -> (Vec<LogEntry>, u64) {
        let lost = std::mem::take(&mut self.lost);
        (std::mem::take(&mut self.entries), lost)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Entries that are kept until the host takes them: more than a batch of packets makes.
const MOST_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Fragment;

    fn entry(proto: u8, from: &str, to: &str) -> LogEntry {
        let mut headers = Headers::new(
            Direction::In,
            proto,
            from.parse().unwrap(),
            to.parse().unwrap(),
        );
        (headers.src_port, headers.dst_port) = (1234, 80);
        headers.icmp_type = Some(8);
        LogEntry {
            at: Time::ZERO,
            rule: 100,
            action: action(&Action::Deny),
            headers,
            interface: "em0".to_owned(),
            limit: None,
        }
    }

    /// The formats of `log_packet` in FreeBSD's `ip_fw_log.c`.
    #[test]
    fn entries_read_like_those_of_ipfw() {
        let said = |entry: LogEntry| entry.to_string();
        assert_eq!(
            said(entry(TCP, "10.0.0.1", "10.0.0.2")),
            "100 Deny TCP 10.0.0.1:1234 10.0.0.2:80 in via em0"
        );
        assert_eq!(
            said(entry(ICMP, "10.0.0.1", "10.0.0.2")),
            "100 Deny ICMP:8 10.0.0.1 10.0.0.2 in via em0"
        );
        assert_eq!(
            said(entry(UDP, "fd00::1", "fd00::2")),
            "100 Deny UDP [fd00::1]:1234 [fd00::2]:80 in via em0"
        );
        let mut last = entry(47, "10.0.0.1", "10.0.0.2");
        (last.limit, last.interface) = (Some(5), String::new());
        last.headers.direction = Direction::Out;
        assert_eq!(
            said(last),
            "100 Deny P:47 10.0.0.1 10.0.0.2 out\nlimit 5 reached on entry 100"
        );
        let mut frame = entry(0, "0.0.0.0", "0.0.0.0");
        frame.headers.frame = Some(0x806);
        assert_eq!(said(frame), "100 Deny MAC 0x0806 in via em0");
        let mut fragment = entry(UDP, "10.0.0.1", "10.0.0.2");
        fragment.headers.ip_id = 7;
        fragment.headers.ip_len = 1500;
        fragment.headers.fragment = Fragment {
            offset: 1480,
            has_more: true,
            ..Fragment::default()
        };
        assert_eq!(
            said(fragment),
            "100 Deny P:17 10.0.0.1 10.0.0.2 in via em0 (frag 7:1500@1480+)"
        );
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut log = Log::default();
        for _ in 0..MOST_KEPT + 3 {
            log.push(|| entry(TCP, "10.0.0.1", "10.0.0.2"));
        }
        let (entries, lost) = log.take();
        assert_eq!((entries.len(), lost), (MOST_KEPT, 3));
        assert_eq!(log.take(), (Vec::new(), 0));
    }
}
