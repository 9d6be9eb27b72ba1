//! Which ports a router owns.

use std::fmt;
use std::str::FromStr;

use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::{LinkError, Namespace};
use sluice_net::port::choose::{self, ChooseError, Kind};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::pcap::{PcapError, PcapSpec, PcapSpecError, Speed};
use sluice_net::port::tun::{TunError, TunOptions};
use sluice_net::port::{PcapPort, Pool, Port, Promiscuity, TunPort};

use sluice_wire::frame::Link;

use super::{PortChoice, StartError};

/// A port as a user names it: `eth0`, `packet:eth0`, `xdp:eth0`, `tun:NAME`, `tap:NAME` or
/// `pcap:IN:OUT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// What it is.
    pub kind: PortKind,
    /// The interface's name, or the files.
    pub name: String,
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// An interface that exists, through what serves it best.
    Auto,
    /// An interface that exists, through a packet socket.
    Packet,
    /// An interface that exists, through AF_XDP.
    Xdp,
    /// A device of IP packets that the router makes.
    Tun,
    /// A device of Ethernet frames that the router makes.
    Tap,
    /// Captures: [`PcapSpec`].
    Pcap,
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// There is no such kind.
    #[error("`{0}` is no kind of port (auto, packet, xdp, tun, tap, pcap)")]
    Kind(String),
    /// The files.
    #[error(transparent)]
    Pcap(#[from] PcapSpecError),
    /// Nothing stands behind the kind.
    #[error("`{0}` names no interface")]
    Name(String),
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// An interface that exists.
    #[error(transparent)]
    Interface(#[from] ChooseError),
    /// A device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Captures.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// It cannot be switched on.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A port that is open, and why it is what it is.
struct Opened {
    /// The port.
    port: Box<dyn Port + Send>,
    /// Its kind: `packet`, `xdp`, `tun` or `tap`.
    kind: String,
    /// Why that kind.
    reason: String,
    /// What it will not do, a sentence each.
    cannot: Vec<String>,
}

impl PortKind {
    /// Every kind.
    pub const ALL: [PortKind; 6] = [
        PortKind::Auto,
        PortKind::Packet,
        PortKind::Xdp,
        PortKind::Tun,
        PortKind::Tap,
        PortKind::Pcap,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            PortKind::Auto => "auto",
            PortKind::Packet => "packet",
            PortKind::Xdp => "xdp",
            PortKind::Tun => "tun",
            PortKind::Tap => "tap",
            PortKind::Pcap => "pcap",
        }
    }
}

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> Result<Self, PortSpecError> {
        let (kind, name) = match text.split_once(':') {
            None => (PortKind::Auto, text),
            Some((word, name)) => {
                let found = PortKind::ALL.into_iter().find(|kind| kind.name() == word);
                (found.ok_or_else(|| PortSpecError::Kind(word.into()))?, name)
            }
        };
        if name.is_empty() {
            return Err(PortSpecError::Name(text.into()));
        }
        if kind == PortKind::Pcap {
            name.parse::<PcapSpec>()?;
        }
        Ok(PortSpec {
            kind,
            name: name.into(),
        })
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PortKind::Auto => f.write_str(&self.name),
            kind => write!(f, "{}:{}", kind.name(), self.name),
        }
    }
}

impl PortSpec {
    /// The files, if it is of files.
    fn files(&self) -> Option<PcapSpec> {
        (self.kind == PortKind::Pcap).then(|| {
            let files = self.name.parse();
            files.expect("a port's name was read as files before")
        })
    }

    /// What its frames start with; nothing if the port takes what the others have.
    fn link(&self) -> Result<Option<Link>, PortError> {
        match (self.kind, self.files()) {
            (PortKind::Tun, _) => Ok(Some(Link::Ip)),
            (_, Some(files)) => Ok(files.link()?),
            _ => Ok(Some(Link::Ethernet)),
        }
    }

    /// What rules call it, as the port of this number.
    pub(super) fn interface(&self, number: usize) -> String {
        match self.kind {
            PortKind::Pcap => format!("pcap{number}"),
            _ => self.name.clone(),
        }
    }

    /// Opens it in `namespace`, with frames in `pool`; a device is made and switched on.
    fn open(
        &self,
        namespace: &Namespace,
        pool: &mut Pool,
        clock: &Clock,
    ) -> Result<Opened, PortError> {
        let wants = match self.kind {
            PortKind::Auto => None,
            PortKind::Packet => Some(Kind::Packet),
            PortKind::Xdp => Some(Kind::Xdp),
            PortKind::Tun | PortKind::Tap => return self.create(namespace),
            PortKind::Pcap => unreachable!("files are opened together"),
        };
        let options = PacketOptions {
            timestamps: Some(*clock),
            ..PacketOptions::default()
        };
        let (port, choice) = choose::open(namespace, &self.name, pool, wants, options)?;
        Ok(Opened {
            port,
            kind: choice.kind.to_string(),
            reason: choice.reason,
            cannot: choice.cannot,
        })
    }

    fn create(&self, namespace: &Namespace) -> Result<Opened, PortError> {
        let options = TunOptions {
            link: match self.kind {
                PortKind::Tap => Link::Ethernet,
                _ => Link::Ip,
            },
            ..TunOptions::default()
        };
        let port = TunPort::create(namespace, &self.name, options)?;
        namespace.links()?.set_up(&self.name, true)?;
        Ok(Opened {
            port: Box::new(port),
            kind: self.kind.name().to_owned(),
            reason: "made by this router".to_owned(),
            cannot: Vec::new(),
        })
    }
}

/// The ports of a router.
pub(super) struct Ports {
    pub(super) all: Vec<Box<dyn Port + Send>>,
    /// What a user should know about them.
    pub(super) remarks: Vec<String>,
    /// What each has become, and why.
    pub(super) choices: Vec<PortChoice>,
    pub(super) time: PortTime,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortTime {
    /// The machine's, without end.
    Machine,
    /// The machine's, until the files end.
    Played,
    /// That of the files, as fast as the machine can.
    Files,
}

/// Opens all, or none.
pub(super) fn open(
    specs: &[PortSpec],
    namespace: &Namespace,
    pool: &mut Pool,
    clock: &Clock,
) -> Result<Ports, StartError> {
    // One lane takes from all ports, and its frames begin alike.
    let mut link: Option<(Link, &PortSpec)> = None;
    for spec in specs {
        let Some(own) = spec.link()? else { continue };
        match link {
            None => link = Some((own, spec)),
            Some((other, _)) if other == own => {}
            Some((_, other)) => return Err(StartError::Unlike(other.clone(), spec.clone())),
        }
    }
    let link = link.map(|(link, _)| link);
    let mut played = Vec::new();
    for files in specs.iter().filter_map(PortSpec::files) {
        let port = PcapPort::open(&files, link, *clock).map_err(PortError::from)?;
        played.push((files.speed, port));
    }
    let time = if played.len() < specs.len() {
        PortTime::Machine
    } else if played.iter().all(|(speed, _)| *speed == Speed::Full) {
        PortTime::Files
    } else {
        PortTime::Played
    };
    // Captures of one event have one clock.
    let first_ns = played.iter().filter_map(|(_, port)| port.scan().first_ns);
    if let Some(first_ns) = first_ns.min() {
        let start = match time {
            PortTime::Files => Time::ZERO,
            PortTime::Machine | PortTime::Played => clock.now() + LEAD,
        };
        for (_, port) in &mut played {
            port.begin(first_ns, start);
        }
    }
    let mut remarks: Vec<String> = played.iter().flat_map(|(_, port)| port.remarks()).collect();
    let mut played = played.into_iter();
    let mut all: Vec<Box<dyn Port + Send>> = Vec::with_capacity(specs.len());
    let mut choices = Vec::with_capacity(specs.len());
    for spec in specs {
        let opened = if spec.kind == PortKind::Pcap {
            let (_, port) = played.next().expect("each was opened");
            Opened {
                port: Box::new(port),
                kind: spec.kind.name().to_owned(),
                reason: "captures".to_owned(),
                cannot: Vec::new(),
            }
        } else {
            spec.open(namespace, pool, clock)?
        };
        if let Promiscuity::Refused(why) = opened.port.promiscuity() {
            remarks.push(format!(
                "{spec}: the kernel refuses promiscuous mode: {why}. Frames for addresses that are not the \
                 interface's own may be lost before they get here, and no counter shows them"
            ));
        }
        all.push(opened.port);
        choices.push(PortChoice {
            name: spec.to_string(),
            kind: opened.kind,
            reason: opened.reason,
            cannot: opened.cannot,
        });
    }
    Ok(Ports {
        all,
        remarks,
        choices,
        time,
    })
}

/// Before the first packet of a file arrives, the loop runs.
const LEAD: Span = Span::from_ms(20);

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
        for (text, expected) in [
            (
                "xdp9:eth0",
                "`xdp9` is no kind of port (auto, packet, xdp, tun, tap, pcap)",
            ),
            ("tun:", "`tun:` names no interface"),
            ("", "`` names no interface"),
            ("pcap:", "`pcap:` names no interface"),
            (
                "pcap:a:b:c",
                "`c` is no speed; `recorded` and `full` are (file names cannot contain colons)",
            ),
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap_err().to_string(), expected);
        }
    }
}
