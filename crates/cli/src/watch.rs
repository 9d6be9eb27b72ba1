//! What `sluice router status` and `sluice top` share: the client, and figures as short text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sluice_router::control::{AskError, Request, ask, default_socket};
use sluice_router::process::InterfaceState;
use sluice_router::process::watch::{ObjectSample, Sample, Sojourn, TrafficSample};

/// The reason why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The router cannot be reached or did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The router refused.
    #[error("the router at {} refuses: {why}", .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The reason.
        why: String,
        /// The exit status that the router names.
        exit_code: u8,
    },
    /// The router has another version.
    #[error("the answer of the router at {} cannot be read: {source}; is it of this version?", .path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
}

impl WatchError {
    /// Returns the exit status of a command that ends with this error.
    pub fn exit_status(&self) -> u8 {
        match self {
            WatchError::Ask(error) => error.exit_code(),
            WatchError::Refused { exit_code, .. } => *exit_code,
            WatchError::Strange { .. } => PROTOCOL,
        }
    }
}

/// EX_PROTOCOL of sysexits.h.
const PROTOCOL: u8 = 76;

/// Returns the path of the router's socket: the given one, or the default one.
pub fn socket(given: Option<&PathBuf>) -> PathBuf {
    given.cloned().unwrap_or_else(default_socket)
}

/// Returns the newest sample with a number above `after`, as JSON.
///
/// # Errors
/// [`WatchError`].
pub fn fetch_json(path: &Path, after: u64) -> Result<String, WatchError> {
    let reply = ask(path, &Request::Watch { after })?;
    match (reply.sample, reply.error) {
        (Some(sample), _) => Ok(sample.get().to_owned()),
        (None, error) => {
            let no_sample = || ("no sample".to_owned(), PROTOCOL);
            let (why, exit_code) =
                error.map_or_else(no_sample, |error| (error.message, error.exit_code));
            let path = path.to_owned();
            Err(WatchError::Refused {
                path,
                why,
                exit_code,
            })
        }
    }
}

/// Like [`fetch_json`], as values.
///
/// # Errors
/// [`WatchError`].
pub fn fetch(path: &Path, after: u64) -> Result<Sample, WatchError> {
    let json = fetch_json(path, after)?;
    serde_json::from_str(&json).map_err(|source| WatchError::Strange {
        path: path.to_owned(),
        source,
    })
}

/// Writes a number with three digits and a unit of thousands: `0`, `999`, `1.23k`, `45.6M`.
pub fn short(value: f64) -> String {
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut unit = 0;
    let mut scaled = value;
    // 999.5 would be written as 1000.
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = match scaled {
        _ if unit == 0 && scaled.fract() == 0.0 => 0,
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{}", UNITS[unit])
}

/// Writes a time with three digits: `0`, `850us`, `4.21ms`, `1.50s`.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (scaled, unit) = match ns {
        0.0 => return "0".to_owned(),
        ns if ns < 999_500.0 => (ns / 1e3, "us"),
        ns if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = match scaled {
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}

/// Writes sojourn times: median, 95th and 99th percentile.
pub fn sojourn(traffic: &TrafficSample) -> [String; 3] {
    times(traffic.sojourn.as_ref())
}

/// Writes median, 95th and 99th percentile.
pub fn times(sojourn: Option<&Sojourn>) -> [String; 3] {
    match sojourn {
        Some(s) => [s.p50_ns, s.p95_ns, s.p99_ns].map(time),
        None => ["-", "-", "-"].map(str::to_owned),
    }
}

/// Returns whether the interface of a port, by its number, is down or gone.
pub fn is_down(sample: &Sample, port: usize) -> bool {
    let port = sample.status.ports.get(port);
    let state = port.and_then(|port| port.interface);
    matches!(state, Some(InterfaceState::Down | InterfaceState::Gone))
}

/// Writes counts by reason: `overflow 3, congestion 1`.
pub fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, &u64)> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words = counts
        .iter()
        .map(|(reason, count)| format!("{reason} {}", short(**count as f64)));
    words.collect::<Vec<_>>().join(", ")
}

/// Writes the variables of an algorithm: `count 10, drop_next in 5.30ms, dropping yes`.
pub fn state(object: &ObjectSample) -> String {
    let words = object.state.iter().map(|(name, value)| {
        let ns = value.abs() as u64;
        let text = match object.state_kinds.get(name).map_or("", String::as_str) {
            "instant" if *value < 0.0 => format!("{} ago", time(ns)),
            "instant" => format!("in {}", time(ns)),
            "span" => time(ns),
            "ratio" => format!("{value:.4}"),
            "flag" if *value == 0.0 => "no".to_owned(),
            "flag" => "yes".to_owned(),
            _ => short(*value),
        };
        format!("{name} {text}")
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Cuts a text to at most `width` columns; the last one shows that something is missing. Control
/// characters, which a foreign name may contain, are replaced.
pub fn cut(text: &str, width: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut kept: String = clean.clone().take(width).collect();
    if clean.count() > width && width > 0 {
        kept.pop();
        kept.push('~');
    }
    kept
}

/// Breaks a text into lines of at most `width` columns, between its words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| cut(line, width)).collect()
}

/// Returns the time of day, UTC.
pub fn clock(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{h:02}:{m:02}:{s:02}")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// The numbers are those of sysexits.h.
    #[test]
    fn exit_statuses_say_why_there_is_no_sample() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s");
        let status = || fetch(&path, 0).unwrap_err().exit_status();
        assert_eq!(status(), 75, "no router listens");
        let listener = UnixListener::bind(&path).unwrap();
        let answered = |answer: &str| {
            thread::scope(|scope| {
                let asked = scope.spawn(status);
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                BufReader::new(&stream).read_line(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                drop(stream);
                asked.join().unwrap()
            })
        };
        let reply = |rest: &str| format!("{{\"stdout\":\"\",\"warnings\":[],{rest}}}\n");
        let busy = r#""error":{"place":{"line":0,"column":0},"message":"busy","exit_code":75}"#;
        assert_eq!(answered(&reply(busy)), 75);
        let foreign = r#""error":{"place":{"line":0,"column":0},"message":"no","exit_code":77}"#;
        assert_eq!(answered(&reply(foreign)), 77);
        assert_eq!(answered(&reply(r#""sample":{"number":"one"}"#)), 76);
        assert_eq!(answered("HTTP/1.1 400 Bad Request\n"), 76);
        assert_eq!(answered(""), 74);
    }

    #[test]
    fn numbers_and_times_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (999.0, "999"),
            (999.9, "1.00k"),
            (1234.0, "1.23k"),
            (45_600_000.0, "45.6M"),
            (999_600_000.0, "1.00G"),
        ] {
            assert_eq!(short(value), text);
        }
        for (ns, text) in [
            (0, "0"),
            (850, "0.85us"),
            (42_000, "42.0us"),
            (999_600, "1.00ms"),
            (14_200_000, "14.2ms"),
            (1_500_000_000, "1.50s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn variables_have_units() {
        let mut object = ObjectSample::default();
        for (name, kind, value) in [
            ("count", "count", 12_000.0),
            ("delay", "span", 4_210_000.0),
            ("drop_next", "instant", 5_300_000.0),
            ("dropping", "flag", 1.0),
            ("first_above", "instant", -400_000_000.0),
            ("probability", "ratio", 0.012_34),
        ] {
            object.state.insert(name.to_owned(), value);
            object.state_kinds.insert(name.to_owned(), kind.to_owned());
        }
        assert_eq!(
            state(&object),
            "count 12.0k, delay 4.21ms, drop_next in 5.30ms, dropping yes, first_above 400ms ago, \
             probability 0.0123"
        );
    }

    #[test]
    fn a_cut_text_shows_it_and_holds_no_control_characters() {
        assert_eq!(cut("pipe 1", 6), "pipe 1");
        assert_eq!(cut("pipe 10", 6), "pipe ~");
        assert_eq!(cut("a\u{1b}[2Jb", 10), "a?[2Jb");
        assert_eq!(clock(86_399_000), "23:59:59");
        assert_eq!(wrapped("proto 6 :1 > :2", 12), ["proto 6 :1 >", ":2"]);
        assert_eq!(wrapped("proto 6 :1 > :2", 15), ["proto 6 :1 > :2"]);
        assert_eq!(wrapped("flow-id 0x12345", 6), ["flow-~", "0x123~"]);
    }
}
