//! Which ports a router owns.

use std::fmt;
use std::str::FromStr;

use sluice_net::Clock;
use sluice_net::frame::Link;
use sluice_net::namespace::{LinkError, Namespace};
use sluice_net::port::choose::{self, ChooseError, Kind};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::{TunError, TunOptions};
use sluice_net::port::{Pool, Port, TunPort};

/// A port as a user names it: `eth0`, `packet:eth0`, `xdp:eth0`, `tun:NAME` or `tap:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// What it is.
    pub kind: PortKind,
    /// The interface's name.
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
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// There is no such kind.
    #[error("`{0}` is no kind of port (auto, packet, xdp, tun, tap)")]
    Kind(String),
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
    /// It cannot be switched on.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A port that is open, and why it is what it is.
pub struct Opened {
    /// The port.
    pub port: Box<dyn Port + Send>,
    /// Its kind: `packet`, `xdp`, `tun` or `tap`.
    pub kind: String,
    /// Why that kind.
    pub reason: String,
    /// What it will not do, a sentence each.
    pub cannot: Vec<String>,
}

impl PortKind {
    /// Every kind.
    pub const ALL: [PortKind; 5] = [
        PortKind::Auto,
        PortKind::Packet,
        PortKind::Xdp,
        PortKind::Tun,
        PortKind::Tap,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            PortKind::Auto => "auto",
            PortKind::Packet => "packet",
            PortKind::Xdp => "xdp",
            PortKind::Tun => "tun",
            PortKind::Tap => "tap",
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
    /// What its frames start with.
    pub const fn link(&self) -> Link {
        match self.kind {
            PortKind::Tun => Link::Ip,
            PortKind::Auto | PortKind::Packet | PortKind::Xdp | PortKind::Tap => Link::Ethernet,
        }
    }

    /// Opens it in `namespace`, with frames in `pool`; a device is made and switched on.
    ///
    /// # Errors
    /// [`PortError`], which says what the process lacks.
    pub fn open(
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
            link: self.link(),
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
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
        assert_eq!("auto:eth0".parse::<PortSpec>().unwrap().to_string(), "eth0");
        for (text, expected) in [
            (
                "xdp9:eth0",
                "`xdp9` is no kind of port (auto, packet, xdp, tun, tap)",
            ),
            ("tun:", "`tun:` names no interface"),
            ("", "`` names no interface"),
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap_err().to_string(), expected);
        }
    }
}
