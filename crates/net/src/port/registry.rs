//! What a kind of port declares, and how ports are named and opened.
//!
//! A kind of port is a file beside this one and a line in `kinds!` in `port/mod.rs`. The router's
//! process opens the ports of [`KINDS`], the bench measures them, the command's help and the table
//! in `docs/ports.md` list them.

use super::choose::{self, Attach};
use super::pcap::Speed;
use super::{KINDS, Pool, Port};
use crate::clock::Clock;
use crate::namespace::Namespace;
use sluice_core::Time;
use sluice_wire::frame::Link;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A kind of port: its name, what it can do, and how it is opened.
pub struct Kind {
    /// The word before the colon, as in `packet:eth0`.
    pub name: &'static str,
    /// What follows the colon: `INTERFACE`, `NAME`, `IN:OUT`.
    pub argument: &'static str,
    /// What it is, in one line.
    pub doc: &'static str,
    /// What becomes of super-packets; `None` if it carries none.
    pub super_packets: Option<&'static str>,
    /// Whether arrivals carry the kernel's timestamp.
    pub arrivals: &'static str,
    /// The privileges it needs, in Markdown.
    pub needs: &'static str,
    /// Whether it works in a user namespace.
    pub in_user_namespace: bool,
    /// Reads what follows the colon. `None` for a kind that no router opens by name.
    pub parse: Option<Parse>,
    /// What it makes of its argument.
    pub role: Role,
}

/// Reads the argument of a kind.
pub type Parse = fn(&str) -> Result<Arc<dyn Named>, PortSpecError>;

/// What a kind of port makes of its argument.
#[derive(Clone, Copy)]
pub enum Role {
    /// Attaches to an interface that exists.
    Interface(&'static dyn Attach),
    /// Makes a device, whose frames start with this.
    Device(Link),
    /// Takes packets out of the kernel's stack and gives them back to it.
    Queue,
    /// Reads and writes files.
    Files,
}

/// A port that a user has named, and that is not open yet.
pub trait Named: fmt::Debug + Send + Sync {
    /// Returns what rules call it, as the port with this number.
    fn interface(&self, number: usize) -> String;

    /// Returns what its frames start with; `None` if it carries what the other ports carry.
    ///
    /// # Errors
    /// When that has to be looked up and cannot be.
    fn link(&self) -> Result<Option<Link>, OpenError>;

    /// Opens it.
    ///
    /// # Errors
    /// Those of its kind.
    fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError>;
}

/// Where a port is opened.
pub struct Site<'a> {
    /// The namespace of its interface.
    pub namespace: &'a Namespace,
    /// The memory of its frames.
    pub pool: &'a mut Pool,
    /// The clock that its arrivals are stamped on.
    pub clock: Clock,
    /// What the frames of all ports start with, if one of them says so.
    pub link: Option<Link>,
}

/// A port that has been opened, and why it is what it is.
pub struct Opened {
    /// The port.
    pub port: Box<dyn Port + Send>,
    /// Its kind.
    pub kind: &'static Kind,
    /// Why that kind.
    pub reason: String,
    /// Its limitations, one sentence each.
    pub cannot: Vec<String>,
    /// What a user should know about it.
    pub remarks: Vec<String>,
}

/// A port that plays a recording.
pub trait Playback {
    /// Returns when the first frame was recorded, in nanoseconds since 1970; `None` without frames.
    fn first_ns(&self) -> Option<i128>;

    /// Returns when frames arrive.
    fn speed(&self) -> Speed;

    /// Lets what was recorded at `file_ns` arrive at `at`. Recordings of one event are given the
    /// same.
    fn begin(&mut self, file_ns: i128, at: Time);
}

/// Why a port could not be opened: the error of its kind.
pub type OpenError = Box<dyn Error + Send + Sync>;

/// A port as a user names it: `eth0`, or the name of a kind and its argument, as in `xdp:eth0`.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// `None` if the kind is to be chosen.
    kind: Option<&'static Kind>,
    argument: String,
    named: Arc<dyn Named>,
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// There is no such kind.
    #[error("`{0}` is not a kind of port: expected {kinds}", kinds = words())]
    Kind(String),
    /// Nothing follows the kind.
    #[error("`{0}` names no interface")]
    Name(String),
    /// The kind cannot read its argument.
    #[error("{0}")]
    Argument(String),
}

/// Returns the kind of that name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// Returns the kinds that attach to an interface that exists.
pub fn attaching() -> impl DoubleEndedIterator<Item = (&'static Kind, &'static dyn Attach)> {
    KINDS
        .iter()
        .filter_map(|kind| Some((*kind, kind.attach()?)))
}

/// Returns the forms of a port that a router opens: `packet:INTERFACE, ...`.
pub fn synopsis() -> String {
    let named = KINDS.iter().filter(|kind| kind.parse.is_some());
    let forms = named.map(|kind| format!("{}:{}", kind.name, kind.argument));
    forms.collect::<Vec<_>>().join(", ")
}

/// Returns the table of all kinds in Markdown, as in `docs/ports.md`.
pub fn table() -> String {
    let mut table = "| kind | what it is | super-packets | arrivals stamped by the kernel | needs \
                     | works in a user namespace |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for kind in KINDS {
        let works = if kind.in_user_namespace { "yes" } else { "no" };
        table.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {works} |\n",
            kind.name,
            kind.doc,
            kind.super_packets.unwrap_or("no"),
            kind.arrivals,
            kind.needs
        ));
    }
    table
}

/// Returns the words that can precede the colon.
fn words() -> String {
    let named = KINDS.iter().filter(|kind| kind.parse.is_some());
    let words = named.map(|kind| kind.name);
    std::iter::once(AUTO)
        .chain(words)
        .collect::<Vec<_>>()
        .join(", ")
}

impl Kind {
    /// Returns how it attaches to an interface that exists, if it does.
    pub fn attach(&self) -> Option<&'static dyn Attach> {
        match self.role {
            Role::Interface(attach) => Some(attach),
            Role::Device(_) | Role::Queue | Role::Files => None,
        }
    }
}

impl PortSpec {
    /// Names an interface that exists, with the kind that serves it best.
    pub fn auto(interface: &str) -> PortSpec {
        PortSpec {
            kind: None,
            argument: interface.to_owned(),
            named: choose::attached(interface, None),
        }
    }

    /// Returns the same port, attached by `kind` if no kind was named.
    ///
    /// # Panics
    /// If `kind` does not attach to interfaces.
    #[must_use]
    pub fn or_kind(self, kind: &'static Kind) -> PortSpec {
        assert!(kind.attach().is_some(), "the kind attaches to interfaces");
        match self.kind {
            Some(_) => self,
            None => PortSpec {
                named: choose::attached(&self.argument, Some(kind)),
                kind: Some(kind),
                ..self
            },
        }
    }

    /// Returns what follows the kind: the interface's name, or the files.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// Returns what rules call it, as the port with this number.
    pub fn interface(&self, number: usize) -> String {
        self.named.interface(number)
    }

    /// Returns what its frames start with; `None` if it carries what the other ports carry.
    ///
    /// # Errors
    /// When that has to be looked up and cannot be.
    pub fn link(&self) -> Result<Option<Link>, OpenError> {
        self.named.link()
    }

    /// Opens it.
    ///
    /// # Errors
    /// Those of its kind.
    pub fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError> {
        self.named.open(site)
    }
}

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> Result<Self, PortSpecError> {
        let (word, argument) = text.split_once(':').unwrap_or((AUTO, text));
        let unknown = || PortSpecError::Kind(word.to_owned());
        let parse = match (word, kind(word)) {
            (AUTO, _) => None,
            (_, kind) => {
                let kind = kind.ok_or_else(unknown)?;
                Some((kind, kind.parse.ok_or_else(unknown)?))
            }
        };
        if argument.is_empty() {
            return Err(PortSpecError::Name(text.to_owned()));
        }
        match parse {
            None => Ok(PortSpec::auto(argument)),
            Some((kind, parse)) => Ok(PortSpec {
                kind: Some(kind),
                argument: argument.to_owned(),
                named: parse(argument)?,
            }),
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            None => f.write_str(&self.argument),
            Some(kind) => write!(f, "{}:{}", kind.name, self.argument),
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

/// The word for a kind that is to be chosen.
pub const AUTO: &str = "auto";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_printed() {
        for text in [
            "eth0",
            "packet:eth0",
            "xdp:eth0",
            "tun:left",
            "tap:t0",
            "eth0.100",
            "pcap:a:b:full",
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
        assert_eq!("auto:eth0".parse::<PortSpec>().unwrap().to_string(), "eth0");
        let kinds = words();
        assert!(kinds.starts_with("auto, ") && kinds.contains("packet, xdp, tun, tap"));
        for word in ["xdp9", "nfqueue"] {
            let error = format!("{word}:eth0").parse::<PortSpec>().unwrap_err();
            let expected = format!("`{word}` is not a kind of port: expected {kinds}");
            assert_eq!(error.to_string(), expected);
        }
        for (text, expected) in [
            ("tun:", "`tun:` names no interface"),
            ("", "`` names no interface"),
            ("pcap:", "`pcap:` names no interface"),
            (
                "pcap:a:b:c",
                "`c` is not a speed: expected `recorded` or `full` (file names cannot contain colons)",
            ),
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_kind_is_used_where_none_was_named() {
        let xdp = kind("xdp").unwrap();
        let spec = |text: &str| text.parse::<PortSpec>().unwrap().or_kind(xdp).to_string();
        assert_eq!(spec("eth0"), "xdp:eth0");
        assert_eq!(spec("packet:eth0"), "packet:eth0");
        assert_eq!(spec("tun:t0"), "tun:t0");
    }

    /// `UPDATE_EXPECT=1 cargo test -p sluice-net --lib` writes the table anew.
    #[test]
    fn the_table_of_the_docs_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ports.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find("| kind |").expect("the page has the table");
        let end = start + page[start..].find("\n\n").expect("text follows the table") + 1;
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let page = [&page[..start], &table(), &page[end..]].concat();
            return std::fs::write(path, page).unwrap();
        }
        assert_eq!(&page[start..end], table());
    }
}
