//! The settings of an AF_XDP port, and the reasons why it cannot be opened.

use crate::namespace::{LinkError, NamespaceError, OffloadError};
use crate::port::hold::HoldError;
use crate::port::remedy::remedy;
use std::io;

/// The settings of an AF_XDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Largest number of frames of one [`Port::receive`](crate::port::Port::receive).
    pub batch: usize,
    /// Entries of each ring; a power of two.
    pub ring: u32,
    /// Largest number of slots in the fill ring, for future frames; they are allocated from the
    /// pool.
    pub ready: u32,
    /// The only mode to accept.
    pub mode: Option<XdpMode>,
    /// In the modes in which the kernel copies frames out, send consecutive segments of a flow as
    /// one super-packet through a packet socket, if the interface neither segments super-packets
    /// itself nor has a queue. The receiver gets the same frames, at lower cost.
    pub trains: bool,
    /// Request promiscuous mode. Without it, a network card delivers only frames for its own
    /// addresses, which is not enough for a bridge.
    pub promiscuous: bool,
}

impl Default for XdpOptions {
    fn default() -> XdpOptions {
        XdpOptions {
            batch: 64,
            ring: 2048,
            ready: 1024,
            mode: None,
            trains: true,
            promiscuous: true,
        }
    }
}

/// The mode in which frames come from the interface. Defaults to the best mode that the driver
/// supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XdpMode {
    /// The stack copies each frame, after it has allocated a socket buffer.
    Generic,
    /// The driver's hook copies each frame.
    Copy,
    /// The device writes into the pool.
    ZeroCopy,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            XdpMode::Generic => "generic",
            XdpMode::Copy => "copy",
            XdpMode::ZeroCopy => "zero-copy",
        })
    }
}

/// The reasons why an AF_XDP port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The interface cannot be this port.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The packets of the interface do not fit a slot.
    #[error("interface {interface:?} has an MTU of {mtu}, but AF_XDP supports at most {most}")]
    Mtu {
        /// The interface.
        interface: String,
        /// The MTU of the interface.
        mtu: u32,
        /// The largest MTU that fits.
        most: u32,
    },
    /// Some frames of the interface would bypass the port.
    #[error(
        "interface {interface:?} has {queues} receive queues, but an AF_XDP port serves only one \
         (`ethtool -L {interface} combined 1` leaves only one)"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// The number of receive queues.
        queues: u32,
    },
    /// There is not one queue for each port.
    #[error(
        "interface {interface:?} has {queues} receive queues for {workers} workers, and AF_XDP needs \
         one for each (`ethtool -L {interface} combined {workers}`, or `--workers {queues}`)"
    )]
    Workers {
        /// The interface.
        interface: String,
        /// The number of receive queues.
        queues: u32,
        /// The number of workers.
        workers: u32,
    },
    /// The number of the interface's queues cannot be read.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The kernel refused a step.
    #[error("cannot {step} for interface {interface:?} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// The step.
        step: &'static str,
        /// The interface.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}
