//! The declarations of the kinds of port, and the naming and opening of ports.
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

/// A kind of port: its name, its capabilities, and the function that opens it.
pub struct Kind {
    /// The word before the colon, as in `packet:eth0`.
    pub name: &'static str,
    /// The part after the colon: `INTERFACE`, `NAME`, `IN:OUT`.
    pub argument: &'static str,
    /// A description in one line.
    pub doc: &'static str,
    /// The treatment of super-packets; `None` if the port carries none.
    pub super_packets: Option<&'static str>,
    /// Whether arrivals carry the kernel's timestamp.
    pub arrivals: &'static str,
    /// The privileges it needs, in Markdown, separated by `, `; or `nothing`.
    pub needs: &'static str,
    /// Whether the kind works in a user namespace.
    pub in_user_namespace: bool,
    /// Parses the text after the colon. `None` for a kind that no router opens by name.
    pub parse: Option<Parse>,
    /// Parses the argument.
    pub role: Role,
}

/// Parses the argument of a kind.
pub type Parse = fn(&str) -> Result<Arc<dyn Named>, PortSpecError>;

/// The form of a kind of port, which its argument determines.
#[derive(Clone, Copy)]
pub enum Role {
    /// Attaches to an interface that exists.
    Interface(&'static dyn Attach),
    /// Creates a device, whose frames start with this link header.
    Device(Link),
    /// Takes packets out of the kernel's stack and returns them to the stack.
    Queue,
    /// Reads and writes files.
    Files,
}

/// A port that a user has named, and that is not open yet.
pub trait Named: fmt::Debug + Send + Sync {
    /// Returns the name of the port in rules, as the port with this number.
    fn interface(&self, number: usize) -> String;

    /// Returns the link header of the port's frames; `None` if it is that of the other ports.
    ///
    /// # Errors
    /// The information has to be looked up and is not available.
    fn link(&self) -> Result<Option<Link>, OpenError>;

    /// Opens the port.
    ///
    /// # Errors
    /// Those of the port's kind.
    fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError>;

    /// Opens the port for several workers, which share what arrives, with frames in one of `pools` each.
    /// `None` if the kind has no way to do that.
    ///
    /// # Errors
    /// Those of the port's kind.
    fn open_group(
        &self,
        namespace: &Namespace,
        clock: Clock,
        pools: &mut [&mut Pool],
        sharing: Sharing,
    ) -> Option<Result<OpenedGroup, OpenError>> {
        let _ = (namespace, clock, pools, sharing);
        None
    }
}

/// How several workers share what arrives at a port. All of them send through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The flows are spread over the workers.
    Flows,
    /// The worker with this number receives everything.
    One(usize),
}

impl Sharing {
    /// Returns the reason for the choice of a kind.
    pub(super) fn reason(self) -> String {
        match self {
            Sharing::Flows => "its flows are spread over the workers".to_owned(),
            Sharing::One(worker) => format!("worker {worker} receives what arrives"),
        }
    }

    /// Returns the refusal of a kind whose queues belong to one worker each.
    pub(super) fn refusal(kind: &Kind) -> OpenError {
        let name = kind.name;
        format!(
            "every worker receives from a queue of its own of `{name}` ports: for --workers \
             per-bridge, use `packet` ports"
        )
        .into()
    }
}

/// The surroundings in which a port is opened.
pub struct Site<'a> {
    /// The namespace of the port's interface.
    pub namespace: &'a Namespace,
    /// The memory of the port's frames.
    pub pool: &'a mut Pool,
    /// The clock of the arrival times.
    pub clock: Clock,
    /// The link header of the frames of all ports, if one of the ports determines it.
    pub link: Option<Link>,
}

/// A port that has been opened, and the reason for its kind.
pub struct Opened {
    /// The port.
    pub port: Box<dyn Port + Send>,
    /// The kind of the port.
    pub kind: &'static Kind,
    /// The reason for the choice of the kind.
    pub reason: String,
    /// The limitations of the port, one sentence each.
    pub cannot: Vec<String>,
    /// Remarks for the user.
    pub remarks: Vec<String>,
}

/// A port that has been opened for several workers.
pub struct OpenedGroup {
    /// One port for each worker.
    pub ports: Vec<Box<dyn Port + Send>>,
    /// The kind of the ports.
    pub kind: &'static Kind,
    /// The reason for the choice of the kind.
    pub reason: String,
    /// The limitations of the ports, one sentence each.
    pub cannot: Vec<String>,
    /// Whether both directions of a flow arrive at the same worker, at this and all other such ports.
    pub keeps_flows: bool,
}

/// A port that plays a recording.
pub trait Playback {
    /// Returns the time of the first frame, in nanoseconds since 1970; `None` without frames.
    fn first_ns(&self) -> Option<i128>;

    /// Returns the speed at which frames arrive.
    fn speed(&self) -> Speed;

    /// Makes the frames recorded at `file_ns` arrive at `at`. Recordings of the same event get the
    /// same arguments.
    fn begin(&mut self, file_ns: i128, at: Time);

    /// Returns the arrival of the next frame; `None` if no further frame arrives.
    fn next_arrival(&self) -> Option<Time>;

    /// Sets the time of the port, which then no longer follows the machine's clock.
    fn set_time(&mut self, now: Time);

    /// Returns whether the port can write the frames of an instant without waiting for its file. A host
    /// that keeps the time lets the time stand still meanwhile.
    fn has_room(&self) -> bool {
        true
    }

    /// Returns the system's answer to the last write, if the port's file refused it; it is tried again, or
    /// given up at the end. `None` as soon as the file accepts a write, or if there is no file to write.
    fn write_error(&self) -> Option<String> {
        None
    }
}

/// The reason why a port cannot be opened: the error of its kind.
pub type OpenError = Box<dyn Error + Send + Sync>;

/// A port as a user names it: `eth0`, or the name of a kind and its argument, as in `xdp:eth0`.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// `None` if the kind is to be chosen.
    kind: Option<&'static Kind>,
    argument: String,
    named: Arc<dyn Named>,
}

/// The reasons why a text does not name a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// The kind does not exist.
    #[error("`{0}` is not a kind of port: expected {kinds}", kinds = words())]
    Kind(String),
    /// The argument of the kind is missing.
    #[error("`{0}` names no interface")]
    Name(String),
    /// The kind cannot parse its argument.
    #[error("{0}")]
    Argument(String),
}

/// Returns the kind called `name`.
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
    /// Returns whether every user may open it.
    pub fn needs_nothing(&self) -> bool {
        self.needs == "nothing"
    }

    /// Returns the function that attaches to an existing interface, if the kind has one.
    pub fn attach(&self) -> Option<&'static dyn Attach> {
        match self.role {
            Role::Interface(attach) => Some(attach),
            Role::Device(_) | Role::Queue | Role::Files => None,
        }
    }
}

impl PortSpec {
    /// Names an existing interface, with the kind that serves it best.
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

    /// Returns the kind of the port; `None` if it is to be chosen.
    pub fn kind(&self) -> Option<&'static Kind> {
        self.kind
    }

    /// Returns the argument of the kind: the interface's name, or the files.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// Returns the name of the port in rules, as the port with this number.
    pub fn interface(&self, number: usize) -> String {
        self.named.interface(number)
    }

    /// Returns the link header of the port's frames; `None` if it is that of the other ports.
    ///
    /// # Errors
    /// The information has to be looked up and is not available.
    pub fn link(&self) -> Result<Option<Link>, OpenError> {
        self.named.link()
    }

    /// Opens the port.
    ///
    /// # Errors
    /// Those of the port's kind.
    pub fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError> {
        self.named.open(site)
    }

    /// Opens the port for several workers, which share what arrives, with frames in one of `pools` each.
    ///
    /// # Errors
    /// Those of the port's kind, or the kind serves one worker only.
    pub fn open_group(
        &self,
        namespace: &Namespace,
        clock: Clock,
        pools: &mut [&mut Pool],
        sharing: Sharing,
    ) -> Result<OpenedGroup, OpenError> {
        let opened = self.named.open_group(namespace, clock, pools, sharing);
        opened.unwrap_or_else(|| {
            let workers = pools.len();
            Err(format!("{self} serves one worker, not {workers}: use --workers 1").into())
        })
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

    /// `UPDATE_EXPECT=1 cargo test -p sluice-net --lib` updates the table.
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
