//! Which ports a router owns.

use std::fmt;
use std::str::FromStr;

use sluice_net::Clock;
use sluice_net::frame::Link;
use sluice_net::namespace::{LinkError, Namespace};
use sluice_net::port::packet::{PacketError, PacketOptions};
use sluice_net::port::tun::{TunError, TunOptions};
use sluice_net::port::{PacketPort, Port, TunPort};

/// A port as a user names it: `eth0`, `tun:NAME` or `tap:NAME`.
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
    /// An interface that exists, through a packet socket.
    Packet,
    /// A device of IP packets that the router makes.
    Tun,
    /// A device of Ethernet frames that the router makes.
    Tap,
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// There is no such kind.
    #[error("`{0}` is no kind of port (packet, tun, tap)")]
    Kind(String),
    /// Nothing stands behind the kind.
    #[error("`{0}` names no interface")]
    Name(String),
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A packet socket.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// It cannot be switched on.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl PortKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            PortKind::Packet => "packet",
            PortKind::Tun => "tun",
            PortKind::Tap => "tap",
        }
    }
}

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> Result<Self, PortSpecError> {
        let (kind, name) = match text.split_once(':') {
            None => (PortKind::Packet, text),
            Some((word, name)) => {
                let all = [PortKind::Packet, PortKind::Tun, PortKind::Tap];
                let found = all.into_iter().find(|kind| kind.name() == word);
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
            PortKind::Packet => f.write_str(&self.name),
            kind => write!(f, "{}:{}", kind.name(), self.name),
        }
    }
}

impl PortSpec {
    /// What its frames start with.
    pub const fn link(&self) -> Link {
        match self.kind {
            PortKind::Tun => Link::Ip,
            PortKind::Packet | PortKind::Tap => Link::Ethernet,
        }
    }

    /// Opens it in `namespace`; a device is made and switched on.
    ///
    /// # Errors
    /// [`PortError`], which says what the process lacks.
    pub fn open(
        &self,
        namespace: &Namespace,
        clock: &Clock,
    ) -> Result<Box<dyn Port + Send>, PortError> {
        if self.kind == PortKind::Packet {
            let options = PacketOptions {
                timestamps: Some(*clock),
                ..PacketOptions::default()
            };
            return Ok(Box::new(PacketPort::open(namespace, &self.name, options)?));
        }
        let options = TunOptions {
            link: self.link(),
            ..TunOptions::default()
        };
        let port = TunPort::create(namespace, &self.name, options)?;
        namespace.links()?.set_up(&self.name, true)?;
        Ok(Box::new(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_they_are_printed() {
        for text in ["eth0", "tun:left", "tap:t0", "eth0.100"] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
        assert_eq!(
            "packet:eth0".parse::<PortSpec>().unwrap().to_string(),
            "eth0"
        );
        for (text, expected) in [
            ("xdp9:eth0", "`xdp9` is no kind of port (packet, tun, tap)"),
            ("tun:", "`tun:` names no interface"),
            ("", "`` names no interface"),
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap_err().to_string(), expected);
        }
    }
}
