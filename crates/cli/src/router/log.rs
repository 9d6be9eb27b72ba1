//! Writes the entries of `log` rules, changes of the configuration, events and warnings: on standard
//! error, as JSON or text, and to syslog.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_ipfw::{Direction, LogEntry};
use sluice_router::control::Change;
use sluice_router::process::confine::privileged;

use super::events::Event;

/// Where the entries of a router go.
pub(super) struct Log {
    entries: Option<Receiver<LogEntry>>,
    is_json: bool,
    syslog: Option<Syslog>,
    /// Refused changes that wait for their line, by who asked for them.
    refused: RefCell<BTreeMap<String, Held>>,
    /// Changes that are not logged and not reported yet.
    missed: RefCell<Held>,
}

/// What there is at most one line a second about.
#[derive(Default)]
struct Held {
    /// The end of the second after the last line.
    until: Option<Instant>,
    /// Changes since then.
    count: u64,
    /// The last of them, if it is to be shown.
    last: Option<Change>,
}

impl Held {
    /// Whether there may be a line now.
    fn is_due(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

/// The daemon of syslog.
struct Syslog {
    path: PathBuf,
    state: RefCell<Daemon>,
}

struct Daemon {
    socket: UnixDatagram,
    /// Lines that no daemon has received, since the last that one has.
    lost: u64,
    /// The last attempt to connect again.
    tried: Option<Instant>,
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
        let syslog = syslog.map(|path| {
            Syslog::new(path).map_err(|error| SyslogError {
                path: path.to_owned(),
                error,
            })
        });
        Ok(Log {
            entries: None,
            is_json,
            syslog: syslog.transpose()?,
            refused: RefCell::default(),
            missed: RefCell::default(),
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
                    let said = syslog.send(&format!("<{PRIORITY}>ipfw: {line}"));
                    text.extend(said.map(|said| self.message(&said)));
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

    /// Returns the text of the changes of the configuration behind the first `seen`, of `noted`, one line
    /// each. They have gone to syslog. A line says how many of them are not in `changes`, which are the
    /// last ones. Of changes that were refused, there is at most one line a second for each who asked for
    /// them; it says how many there were.
    pub fn changes_since(&self, seen: u64, changes: &[Change], noted: u64) -> String {
        self.changes_at(seen, changes, noted, Instant::now())
    }

    /// Returns the text of what still waits for its line.
    pub fn rest(&self) -> String {
        let mut held = self.refused.borrow_mut();
        held.values_mut()
            .chain([&mut *self.missed.borrow_mut()])
            .for_each(|held| held.until = None);
        drop(held);
        self.changes_since(0, &[], 0)
    }

    fn changes_at(&self, seen: u64, changes: &[Change], noted: u64, now: Instant) -> String {
        let missed = noted
            .saturating_sub(seen)
            .saturating_sub(changes.len() as u64);
        let mut held = self.missed.borrow_mut();
        held.count += missed;
        let missed = match held.is_due(now) {
            true => std::mem::take(&mut held.count),
            false => 0,
        };
        if missed > 0 {
            held.until = Some(now + SECOND);
        }
        let line = match missed {
            0 => String::new(),
            _ => self.notice(
                &format!(
                    "{missed} changes of the configuration are not logged, because they were made \
                     faster than the log is written"
                ),
                &json!({"log": "change", "missed": missed}),
            ),
        };
        line + &self.changes(changes, now)
    }

    /// Returns the text of changes of the configuration, one line each, and of those that have waited for
    /// a line. They have gone to syslog.
    fn changes(&self, changes: &[Change], now: Instant) -> String {
        let mut text = String::new();
        let mut refused = self.refused.borrow_mut();
        refused.retain(|_, held| {
            if !held.is_due(now) {
                return true;
            }
            let Some(last) = held.last.take() else {
                return false;
            };
            let before = std::mem::take(&mut held.count) - 1;
            text.push_str(&self.change(&last, before));
            held.until = Some(now + SECOND);
            true
        });
        for change in changes {
            if change.refused.is_some() {
                let held = refused.entry(change.by.clone()).or_default();
                if !held.is_due(now) {
                    held.count += 1;
                    held.last = Some(change.clone());
                    continue;
                }
                held.until = Some(now + SECOND);
            }
            text.push_str(&self.change(change, 0));
        }
        text
    }

    /// Returns the line of a change. `before` counts the refused ones before it that have none.
    fn change(&self, change: &Change, before: u64) -> String {
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
        if before == 0 {
            return self.notice(&line, &value);
        }
        value["before"] = before.into();
        let line = format!("{line} (and {before} more before, since the last line)");
        self.notice(&line, &value)
    }

    /// Returns the text of events, one line each. They have gone to syslog.
    pub fn events(&self, events: &[Event]) -> String {
        let lines = events.iter();
        lines
            .map(|event| self.notice(&event.line, &event.json))
            .collect()
    }

    /// Sends a line to syslog, and returns its text. An object without a time gets the current one.
    fn notice(&self, line: &str, value: &Value) -> String {
        let syslog = self.syslog.as_ref();
        let said = syslog.and_then(|syslog| syslog.send(&format!("<{NOTICE}>sluice: {line}")));
        let said = said.map(|said| self.message(&said)).unwrap_or_default();
        if self.is_json {
            let mut value = value.clone();
            if value["unix_ms"].is_null() {
                value["unix_ms"] = unix_ms().into();
            }
            format!("{said}{value}\n")
        } else {
            format!("{said}sluice: {line}\n")
        }
    }

    /// Returns the text of a message about the log itself.
    fn message(&self, text: &str) -> String {
        if self.is_json {
            let value = json!({"log": "syslog", "unix_ms": unix_ms(), "text": text});
            format!("{value}\n")
        } else {
            format!("sluice: warning: {text}\n")
        }
    }
}

impl Syslog {
    fn new(path: &Path) -> io::Result<Syslog> {
        Ok(Syslog {
            path: path.to_owned(),
            state: RefCell::new(Daemon {
                socket: connect(path)?,
                lost: 0,
                tried: None,
            }),
        })
    }

    /// Sends a line; connects again if the daemon is another one by now. Returns what there is to say
    /// about the daemon. One that is behind loses lines, as with syslog(3).
    fn send(&self, line: &str) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let Daemon {
            socket,
            lost,
            tried,
        } = &mut *state;
        let mut sent = socket.send(line.as_bytes()).map(drop);
        let is_gone = |sent: &io::Result<()>| {
            let error = sent.as_ref().err();
            error.is_some_and(|error| error.kind() != io::ErrorKind::WouldBlock)
        };
        if is_gone(&sent) && tried.is_none_or(|tried| tried.elapsed() >= AGAIN) {
            *tried = Some(Instant::now());
            // A confined thread may not open the path.
            let path = &self.path;
            sent = privileged(|| connect(path)).and_then(|new| {
                *socket = new;
                socket.send(line.as_bytes()).map(drop)
            });
        }
        let path = self.path.display();
        match sent {
            Ok(()) if *lost > 0 => {
                let lost = std::mem::take(lost);
                Some(format!(
                    "syslog at {path} receives lines again; {lost} were lost"
                ))
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                *lost += 1;
                (*lost == 1)
                    .then(|| format!("lines are lost on the way to syslog at {path}: {error}"))
            }
            Ok(()) | Err(_) => None,
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the time by the system's clock, since the Unix epoch.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Returns an entry as an object; `limit` only if it is the last entry of its rule. A frame that is not IP
/// has `mac_type` in place of a protocol, addresses and ports.
fn as_json(entry: &LogEntry) -> Value {
    let headers = &entry.headers;
    let direction = match headers.direction {
        Direction::In => "in",
        Direction::Out => "out",
    };
    let mut value = json!({
        "log": "ipfw",
        "unix_ms": unix_ms(),
        "at_ns": entry.at.as_ns(),
        "rule": entry.rule,
        "action": entry.action,
    });
    if let Some(kind) = headers.frame {
        value["mac_type"] = kind.into();
    } else {
        value["protocol"] = headers.proto.into();
        value["source"] = headers.src.to_string().into();
        value["source_port"] = headers.src_port.into();
        value["destination"] = headers.dst.to_string().into();
        value["destination_port"] = headers.dst_port.into();
    }
    value["direction"] = direction.into();
    value["interface"] = entry.interface.as_str().into();
    value["bytes"] = headers.ip_len.into();
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
/// The least time between two attempts to connect again.
const AGAIN: Duration = Duration::from_secs(1);
/// The least time between two lines about refused changes.
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use sluice_core::Time;
    use sluice_ipfw::Headers;

    use super::*;
    use crate::documented;

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
        assert!(lines[0]["mac_type"].is_null());
    }

    #[test]
    fn the_page_of_json_has_the_keys_of_every_line() {
        let mut log = Log::new(true, None).unwrap();
        let (sender, receiver) = channel();
        log.attach(Some(receiver));
        let mut frame = entry(Some(1));
        frame.headers.frame = Some(0x88cc);
        for entry in [entry(None), frame] {
            sender.send(entry).unwrap();
        }
        let change = Change {
            refused: Some("no".into()),
            ..Change::default()
        };
        // One of three is kept; before another one, two were refused.
        let text = log.drain()
            + &log.message("lost")
            + &log.changes_since(0, std::slice::from_ref(&change), 3)
            + &log.change(&change, 2);
        documented::check_log(&text);
    }

    /// Of the kinds of lines, two have the time of what they are about, and the others their own.
    #[test]
    fn every_line_of_json_has_the_time() {
        let mut log = Log::new(true, None).unwrap();
        let (sender, receiver) = channel();
        log.attach(Some(receiver));
        sender.send(entry(None)).unwrap();
        let change = Change {
            unix_ms: 5,
            ..Change::default()
        };
        let event = |json: Value| Event {
            line: String::new(),
            json,
        };
        let before = unix_ms();
        assert!(before > 1_700_000_000_000, "milliseconds after 2023");
        let events = [
            event(json!({"log": "event", "unix_ms": 6})),
            event(json!({"log": "limit"})),
        ];
        let text = log.drain()
            + &log.message("lost")
            + &log.changes_since(0, &[change], 3)
            + &log.events(&events);
        let times = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["log"].clone(), line["unix_ms"].as_u64().unwrap())
        });
        let times: Vec<(Value, u64)> = times.collect();
        let kinds: Vec<&Value> = times.iter().map(|(kind, _)| kind).collect();
        assert_eq!(
            kinds,
            ["ipfw", "syslog", "change", "change", "event", "limit"]
        );
        for (number, (kind, at)) in times.iter().enumerate() {
            match number {
                3 => assert_eq!(*at, 5),
                4 => assert_eq!(*at, 6),
                _ => assert!((before..=unix_ms()).contains(at), "{kind}: {at}"),
            }
        }
    }

    #[test]
    fn a_frame_has_its_type_and_no_addresses() {
        let mut log = Log::new(true, None).unwrap();
        let (sender, receiver) = channel();
        log.attach(Some(receiver));
        let mut frame = entry(None);
        frame.headers.frame = Some(0x88cc);
        sender.send(frame).unwrap();
        let value: serde_json::Value = serde_json::from_str(&log.drain()).unwrap();
        assert_eq!(value["mac_type"], 0x88cc);
        assert_eq!(value["bytes"], 128);
        for key in ["protocol", "source", "destination", "source_port"] {
            assert!(value[key].is_null(), "{key}");
        }
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
        let text = log.changes_since(0, &[change(None), change(Some("no"))], 2);
        let first = "sluice: http 192.0.2.7 changed: pipe 1 config\n";
        let second = "sluice: http 192.0.2.7 was refused: pipe 1 config: no\n";
        assert_eq!(text, format!("{first}{second}"));
        let mut buffer = [0; 256];
        let length = daemon.recv(&mut buffer).unwrap();
        // LOG_DAEMON | LOG_NOTICE is 29.
        let heard = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert_eq!(heard, format!("<29>{}", first.trim_end()));
        let log = Log::new(true, None).unwrap();
        let text = log.changes_since(0, &[change(Some("no"))], 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["by"], "http 192.0.2.7");
        assert_eq!(
            (&value["unix_ms"], &value["refused"]),
            (&5.into(), &"no".into())
        );
    }

    #[test]
    fn refused_changes_have_one_line_a_second_for_each_who_asked() {
        let change = |by: &str, text: &str, is_refused: bool| Change {
            by: by.into(),
            text: text.into(),
            refused: is_refused.then(|| "no".into()),
            ..Change::default()
        };
        let log = Log::new(false, None).unwrap();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // 100 refused changes of one client, and one of another.
        let mut flood: Vec<Change> = (0..100)
            .map(|number| change("uid 0", &format!("pipe {number}"), true))
            .collect();
        flood.push(change("uid 7", "flush", true));
        let first = "sluice: uid 0 was refused: pipe 0: no\n";
        let other = "sluice: uid 7 was refused: flush: no\n";
        let text = log.changes_at(0, &flood, 101, at(0));
        assert_eq!(text, format!("{first}{other}"));
        // What is done is logged at once.
        let done = [change("uid 0", "pipe 1", false)];
        let text = log.changes_at(101, &done, 102, at(100));
        assert_eq!(text, "sluice: uid 0 changed: pipe 1\n");
        assert_eq!(log.changes_at(102, &[], 102, at(999)), "");
        // 99 of the first client have waited: the last one, and 98 before it.
        let waited =
            "sluice: uid 0 was refused: pipe 99: no (and 98 more before, since the last line)\n";
        assert_eq!(log.changes_at(102, &[], 102, at(1000)), waited);
        assert_eq!(log.changes_at(102, &[], 102, at(3000)), "");
        assert!(log.refused.borrow().is_empty(), "nobody is remembered");
        // At the end of the router, nothing waits any longer.
        let text = log.changes_at(102, &flood[..2], 104, at(3000));
        assert_eq!(text, first);
        assert_eq!(log.rest(), "sluice: uid 0 was refused: pipe 1: no\n");
        assert_eq!(log.rest(), "");
    }

    #[test]
    fn changes_that_are_no_longer_kept_are_counted() {
        let change = Change {
            by: "uid 0".into(),
            text: "pipe 1 config".into(),
            ..Change::default()
        };
        let two = [change.clone(), change];
        let log = Log::new(false, None).unwrap();
        let line = "sluice: uid 0 changed: pipe 1 config\n";
        assert_eq!(log.changes_since(9, &two[..1], 10), line);
        // Of the changes 11 to 15, two are kept.
        let missed = "sluice: 3 changes of the configuration are not logged, because they were made \
                      faster than the log is written\n";
        let start = Instant::now();
        let text = log.changes_at(10, &two, 15, start);
        assert_eq!(text, format!("{missed}{line}{line}"));
        // At most once a second: 1 of 3, and 2 of 4.
        let text = log.changes_at(15, &two, 18, start + SECOND / 2);
        assert_eq!(text, format!("{line}{line}"));
        let text = log.changes_at(18, &two, 22, start + SECOND);
        assert_eq!(text, format!("{missed}{line}{line}"));
        let log = Log::new(true, None).unwrap();
        let text = log.changes_since(10, &two, 15);
        let value: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(value["missed"], 3);
        assert_eq!(log.changes_since(15, &[], 15), "");
    }

    #[test]
    fn a_daemon_that_was_started_again_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("log");
        let changes = [Change {
            by: "uid 0".into(),
            text: "pipe 1 config".into(),
            ..Change::default()
        }];
        let first = UnixDatagram::bind(&path).unwrap();
        let log = Log::new(false, Some(&path)).unwrap();
        let line = "sluice: uid 0 changed: pipe 1 config\n".to_owned();
        assert_eq!(log.changes_since(0, &changes, 1), line);
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let lost = log.changes_since(0, &changes, 1);
        assert!(
            lost.contains("lines are lost on the way to syslog"),
            "{lost}"
        );
        assert_eq!(log.changes_since(0, &changes, 1), line, "said once");
        let second = UnixDatagram::bind(&path).unwrap();
        // It is looked for once a second.
        let syslog = log.syslog.as_ref().unwrap();
        syslog.state.borrow_mut().tried = None;
        let found = log.changes_since(0, &changes, 1);
        assert!(
            found.contains("receives lines again; 2 were lost"),
            "{found}"
        );
        let mut buffer = [0; 256];
        let length = second.recv(&mut buffer).unwrap();
        let heard = String::from_utf8_lossy(&buffer[..length]);
        assert_eq!(heard, format!("<29>{}", line.trim_end()));
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
