//! Writes the entries of `log` rules, changes of the configuration, events and warnings: on standard
//! error, as JSON or text, and to syslog.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use serde_json::json;
use sluice_ipfw::{Direction, LogEntry};
use sluice_router::control::Change;

use super::events::Event;

/// Where the entries of a router go.
pub(super) struct Log {
    entries: Option<Receiver<LogEntry>>,
    is_json: bool,
    syslog: Option<UnixDatagram>,
}

/// Syslog cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach syslog at {}: {error}", path.display())]
pub struct SyslogError {
    path: PathBuf,
    error: io::Error,
}

impl Log {
    /// Writes text or JSON, and to the socket of syslog if one is given.
    pub fn new(is_json: bool, syslog: Option<&Path>) -> Result<Log, SyslogError> {
        let connect = |path: &Path| -> io::Result<UnixDatagram> {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let syslog = syslog.map(|path| {
            connect(path).map_err(|error| SyslogError {
                path: path.to_owned(),
                error,
            })
        });
        Ok(Log {
            entries: None,
            is_json,
            syslog: syslog.transpose()?,
        })
    }

    /// Takes entries from a router.
    pub fn attach(&mut self, entries: Option<Receiver<LogEntry>>) {
        self.entries = entries;
    }

    /// Returns the text of all entries that are waiting, one line each. They have gone to syslog.
    pub fn drain(&self) -> String {
        let mut text = String::new();
        for entry in self.entries.iter().flat_map(Receiver::try_iter) {
            let said = entry.to_string();
            for line in said.lines() {
                if let Some(syslog) = &self.syslog {
                    // A daemon that is behind loses entries, as with syslog(3).
                    let _ = syslog.send(format!("<{PRIORITY}>ipfw: {line}").as_bytes());
                }
                if !self.is_json {
                    text.push_str(&format!("ipfw: {line}\n"));
                }
            }
            if self.is_json {
                text.push_str(&format!("{}\n", as_json(&entry)));
            }
        }
        text
    }

    /// Returns the text of changes of the configuration, one line each. They have gone to syslog.
    pub fn changes(&self, changes: &[Change]) -> String {
        let mut text = String::new();
        for change in changes {
            let Change {
                by, text: command, ..
            } = change;
            let mut value = json!({
                "log": "change",
                "unix_ms": change.unix_ms,
                "by": by,
                "text": command,
            });
            let line = match &change.refused {
                None => format!("{by} changed: {command}"),
                Some(why) => {
                    value["refused"] = why.as_str().into();
                    format!("{by} was refused: {command}: {why}")
                }
            };
            text.push_str(&self.notice(&line, &value));
        }
        text
    }

    /// Returns the text of events, one line each. They have gone to syslog.
    pub fn events(&self, events: &[Event]) -> String {
        let lines = events.iter();
        lines
            .map(|event| self.notice(&event.line, &event.json))
            .collect()
    }

    /// Sends a line to syslog, and returns its text.
    fn notice(&self, line: &str, value: &serde_json::Value) -> String {
        if let Some(syslog) = &self.syslog {
            let _ = syslog.send(format!("<{NOTICE}>sluice: {line}").as_bytes());
        }
        if self.is_json {
            format!("{value}\n")
        } else {
            format!("sluice: {line}\n")
        }
    }

    /// Writes the entries that are waiting to standard error.
    pub fn write(&self) {
        let text = self.drain();
        if !text.is_empty() {
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Returns an entry as an object; `limit` only if it is the last entry of its rule.
fn as_json(entry: &LogEntry) -> serde_json::Value {
    let headers = &entry.headers;
    let direction = match headers.direction {
        Direction::In => "in",
        Direction::Out => "out",
    };
    let mut value = json!({
        "log": "ipfw",
        "at_ns": entry.at.as_ns(),
        "rule": entry.rule,
        "action": entry.action,
        "protocol": headers.proto,
        "source": headers.src.to_string(),
        "source_port": headers.src_port,
        "destination": headers.dst.to_string(),
        "destination_port": headers.dst_port,
        "direction": direction,
        "interface": entry.interface,
        "bytes": headers.ip_len,
    });
    if let Some(limit) = entry.limit {
        value["limit"] = limit.into();
    }
    value
}

/// RFC 3164 section 4.1.1: facility 4, security and authorization (LOG_AUTH; FreeBSD's ipfw uses its
/// own LOG_SECURITY), severity 6, informational (LOG_INFO).
const PRIORITY: u8 = 4 * 8 + 6;
/// Facility 3, system daemons (LOG_DAEMON); severity 5, normal but significant (LOG_NOTICE).
const NOTICE: u8 = 3 * 8 + 5;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use sluice_core::Time;
    use sluice_ipfw::Headers;

    use super::*;

    fn entry(limit: Option<u32>) -> LogEntry {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut headers = Headers::new(Direction::In, 17, from, to);
        (headers.src_port, headers.dst_port, headers.ip_len) = (7, 9, 128);
        LogEntry {
            at: Time::from_ns(5),
            rule: 100,
            action: "Deny".to_owned(),
            headers,
            interface: "r2".to_owned(),
            limit,
        }
    }

    #[test]
    fn entries_reach_the_text_and_syslog() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut log = Log::new(false, Some(&path)).unwrap();
        let (sender, receiver) = channel();
        log.attach(Some(receiver));
        sender.send(entry(Some(1))).unwrap();
        let line = "ipfw: 100 Deny UDP 10.0.0.1:7 10.0.0.2:9 in via r2\n";
        let limit = "ipfw: limit 1 reached on entry 100\n";
        assert_eq!(log.drain(), format!("{line}{limit}"));
        assert_eq!(log.drain(), "");
        let heard = || {
            let mut buffer = [0; 256];
            let length = daemon.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        // LOG_AUTH | LOG_INFO is 38.
        assert_eq!(heard(), format!("<38>{}", line.trim_end()));
        assert_eq!(heard(), format!("<38>{}", limit.trim_end()));
    }

    #[test]
    fn json_has_one_object_per_entry() {
        let mut log = Log::new(true, None).unwrap();
        let (sender, receiver) = channel();
        log.attach(Some(receiver));
        sender.send(entry(None)).unwrap();
        sender.send(entry(Some(2))).unwrap();
        let text = log.drain();
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(read).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["source_port"], 7);
        assert!(lines[0]["limit"].is_null());
        assert_eq!(lines[1]["limit"], 2);
    }

    #[test]
    fn changes_are_logged_with_who_and_when() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let change = |refused: Option<&str>| Change {
            unix_ms: 5,
            by: "http 192.0.2.7".into(),
            text: "pipe 1 config".into(),
            refused: refused.map(str::to_owned),
        };
        let log = Log::new(false, Some(&path)).unwrap();
        let text = log.changes(&[change(None), change(Some("no"))]);
        let first = "sluice: http 192.0.2.7 changed: pipe 1 config\n";
        let second = "sluice: http 192.0.2.7 was refused: pipe 1 config: no\n";
        assert_eq!(text, format!("{first}{second}"));
        let mut buffer = [0; 256];
        let length = daemon.recv(&mut buffer).unwrap();
        // LOG_DAEMON | LOG_NOTICE is 29.
        let heard = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert_eq!(heard, format!("<29>{}", first.trim_end()));
        let log = Log::new(true, None).unwrap();
        let text = log.changes(&[change(Some("no"))]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["by"], "http 192.0.2.7");
        assert_eq!(
            (&value["unix_ms"], &value["refused"]),
            (&5.into(), &"no".into())
        );
    }

    #[test]
    fn a_missing_daemon_is_named() {
        let error = Log::new(false, Some(Path::new("/nowhere/log")))
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .starts_with("cannot reach syslog at /nowhere/log: ")
        );
    }
}
