//! Which kind of port serves an interface best, and opening it.
//!
//! Super-packets are worth ten times the throughput, so where hosts hand them over, the port is one
//! that lets them through. Without them the cost is that of packets, which AF_XDP makes lowest.

use super::packet::{PacketError, PacketOptions};
use super::xdp::{XdpError, XdpOptions};
use super::{PacketPort, Pool, Port, XdpPort};
use crate::namespace::{Interface, LinkError, Namespace, OffloadError, Offloads};
use std::fmt;
use std::str::FromStr;

/// A kind of port that attaches to an existing interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// AF_PACKET: [`PacketPort`].
    Packet,
    /// AF_XDP: [`XdpPort`].
    Xdp,
}

/// What was chosen for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which kind.
    pub kind: Kind,
    /// Why.
    pub reason: String,
    /// What the port will not do there, a sentence each.
    pub cannot: Vec<String>,
}

/// Why a kind of port cannot be chosen or opened.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Its offloads cannot be read.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The packet port.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The AF_XDP port.
    #[error(transparent)]
    Xdp(#[from] XdpError),
}

/// A word that names no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no port kind `{0}`; `packet` and `xdp` attach to an interface")]
pub struct UnknownKind(String);

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 2] = [Kind::Packet, Kind::Xdp];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Packet => "packet",
            Kind::Xdp => "xdp",
        })
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(word: &str) -> Result<Kind, UnknownKind> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.to_string() == word)
            .ok_or_else(|| UnknownKind(word.to_owned()))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.reason)
    }
}

/// Chooses for `interface`: what the user `wants`, or the best.
///
/// # Errors
/// When there is no such interface.
pub fn choose(
    namespace: &Namespace,
    interface: &str,
    wants: Option<Kind>,
) -> Result<Choice, ChooseError> {
    let link = namespace.links()?.interface(interface)?;
    let offloads = namespace.offloads(interface)?;
    let (kind, reason) = match wants {
        Some(kind) => (kind, "as asked for".to_owned()),
        None => best(&link, offloads, namespace.receive_queues(interface)?),
    };
    let cannot = match kind {
        Kind::Packet => packet_cannot(offloads),
        Kind::Xdp => xdp_cannot(offloads),
    };
    Ok(Choice {
        kind,
        reason,
        cannot,
    })
}

/// Opens the port that was chosen. `options` are those of a packet port; an AF_XDP port takes its
/// batch size. When AF_XDP was chosen and not asked for, and does not work after all, a packet port
/// is opened, and the choice says so.
///
/// # Errors
/// When the kernel refuses; see [`PacketPort::open`] and [`XdpPort::open`].
pub fn open(
    namespace: &Namespace,
    interface: &str,
    pool: &mut Pool,
    wants: Option<Kind>,
    options: PacketOptions,
) -> Result<(Box<dyn Port + Send>, Choice), ChooseError> {
    let mut choice = choose(namespace, interface, wants)?;
    if choice.kind == Kind::Xdp {
        let xdp = XdpOptions {
            batch: options.batch,
            promiscuous: options.promiscuous,
            ..XdpOptions::default()
        };
        match XdpPort::open(namespace, interface, pool, xdp) {
            Ok(port) => {
                choice.reason = format!("{}, {} mode", choice.reason, port.mode());
                return Ok((Box::new(port), choice));
            }
            Err(error) if wants.is_some() => return Err(error.into()),
            Err(error) => {
                choice = Choice {
                    kind: Kind::Packet,
                    reason: format!("AF_XDP would be faster, but: {error}"),
                    cannot: packet_cannot(namespace.offloads(interface)?),
                };
            }
        }
    }
    let port = PacketPort::open(namespace, interface, options)?;
    Ok((Box::new(port), choice))
}

fn best(link: &Interface, offloads: Offloads, queues: u32) -> (Kind, String) {
    let packet = |reason: &str| (Kind::Packet, reason.to_owned());
    if has_super_packets(offloads) {
        return packet(
            "segmentation or receive offloads are on, and it lets super-packets through",
        );
    }
    if link.mtu > XdpPort::MOST_MTU {
        return packet("the MTU is larger than AF_XDP frames can be");
    }
    if queues > 1 {
        return packet("it receives over several queues, of which AF_XDP would serve one");
    }
    let reason = "no offload makes super-packets here, and it is the fastest for single packets";
    (Kind::Xdp, reason.to_owned())
}

fn has_super_packets(offloads: Offloads) -> bool {
    offloads.tcp_segmentation || offloads.generic_segmentation || offloads.generic_receive
}

fn packet_cannot(offloads: Offloads) -> Vec<String> {
    let mut cannot = vec![
        "packets above 65535 bytes (BIG TCP) are dropped and counted as `oversize`".to_owned(),
        "the stack also sees what arrives; addresses on the interface keep answering".to_owned(),
    ];
    if !has_super_packets(offloads) {
        cannot.push("every packet costs a copy each way; AF_XDP spares one".to_owned());
    }
    cannot
}

fn xdp_cannot(offloads: Offloads) -> Vec<String> {
    let mut cannot = vec![
        format!(
            "packets above {} bytes are dropped and counted as `oversize`",
            XdpPort::MOST_MTU
        ),
        "the interface's own addresses get nothing: every frame goes to the router".to_owned(),
        "arrivals carry no kernel timestamp: they count from when the router sees them".to_owned(),
    ];
    if has_super_packets(offloads) {
        cannot.push(
            "offloads are on at the interface: super-packets that reach it are dropped and counted \
             as `oversize` (`ethtool -K` switches them off)"
                .to_owned(),
        );
    }
    cannot
}
