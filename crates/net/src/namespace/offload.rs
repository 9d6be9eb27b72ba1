//! Offload switches of an interface (`ethtool -k`).
#![allow(unsafe_code)]

use super::{Namespace, NamespaceError};
use crate::sys;
use socket2::{Domain, Socket, Type};
use std::io;
use std::os::fd::AsRawFd;

/// The offloads that an interface has switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums are left to the device or the receiver.
    pub tx_checksum: bool,
    /// The interface accepts TCP super-packets (TSO).
    pub tcp_segmentation: bool,
    /// The stack keeps super-packets whole until the driver (GSO).
    pub generic_segmentation: bool,
    /// Received packets are merged (GRO).
    pub generic_receive: bool,
    /// The VLAN tag is removed from received frames, and kept beside them (`rx-vlan-offload`).
    pub tag_removal: bool,
}

/// The reason why an offload could not be read or switched.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The name is empty, or longer than the 15 bytes that the kernel allows.
    #[error("interface name {0:?} must have 1 to 15 bytes")]
    Name(String),
    /// The kernel refused.
    #[error(
        "cannot {verb} {feature} of interface {interface:?} in namespace {namespace:?}: {source}"
    )]
    Kernel {
        /// "read" or "switch".
        verb: &'static str,
        /// The offload.
        feature: &'static str,
        /// The interface.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Offloads {
    /// Everything on: super-packets stay whole, and tags are kept beside the frames.
    pub const ON: Offloads = Offloads {
        tx_checksum: true,
        tcp_segmentation: true,
        generic_segmentation: true,
        generic_receive: true,
        tag_removal: true,
    };
    /// Everything off: no packet above the MTU, no checksum left open, no tag removed.
    pub const OFF: Offloads = Offloads {
        tx_checksum: false,
        tcp_segmentation: false,
        generic_segmentation: false,
        generic_receive: false,
        tag_removal: false,
    };
}

impl Namespace {
    /// Switches the offloads of `interface`.
    ///
    /// # Errors
    /// The error names the offload that the driver refuses to switch.
    pub fn set_offloads(&self, interface: &str, offloads: Offloads) -> Result<(), OffloadError> {
        // Segmentation requires checksums: switched on in this order, and off in the reverse order.
        let mut steps = [
            (TX_CHECKSUM, offloads.tx_checksum),
            (GSO, offloads.generic_segmentation),
            (TSO, offloads.tcp_segmentation),
            (GRO, offloads.generic_receive),
            (TAG_REMOVAL, offloads.tag_removal),
        ];
        if !offloads.tx_checksum {
            steps.reverse();
        }
        let socket = self.ethtool_socket("switch", interface)?;
        for (feature, on) in steps {
            feature.switch(&socket, interface, on).map_err(|source| {
                refusal("switch", feature.name, interface, self.name(), source)
            })?;
        }
        Ok(())
    }

    /// Reads the offloads of `interface`.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn offloads(&self, interface: &str) -> Result<Offloads, OffloadError> {
        self.device_settings(interface)?.offloads()
    }

    /// Returns the number of receive queues of `interface`; one if its driver does not report it.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn receive_queues(&self, interface: &str) -> Result<u32, OffloadError> {
        Ok(self.device_settings(interface)?.queues()?.receive)
    }

    /// Returns a handle for reading the settings of `interface`, now and later.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn device_settings(&self, interface: &str) -> Result<DeviceSettings, OffloadError> {
        Ok(DeviceSettings {
            socket: self.ethtool_socket("read", interface)?,
            interface: interface.to_owned(),
            namespace: self.name().to_owned(),
        })
    }

    fn ethtool_socket(&self, verb: &'static str, interface: &str) -> Result<Socket, OffloadError> {
        if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
            return Err(OffloadError::Name(interface.to_owned()));
        }
        self.enter(|| Socket::new(Domain::IPV4, Type::DGRAM, None))?
            .map_err(|source| refusal(verb, "offloads", interface, self.name(), source))
    }
}

/// Returns the number of queues that an interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// For received packets.
    pub receive: u32,
    /// For sent packets.
    pub transmit: u32,
}

/// The settings of one interface, read without entering its namespace again.
pub struct DeviceSettings {
    socket: Socket,
    interface: String,
    namespace: String,
}

impl DeviceSettings {
    /// Returns its offloads.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn offloads(&self) -> Result<Offloads, OffloadError> {
        let read = |feature: Feature| {
            ethtool(&self.socket, &self.interface, feature.read, 0)
                .map(|value| value & feature.bit != 0)
                .map_err(|source| self.refusal(feature.name, source))
        };
        Ok(Offloads {
            tx_checksum: read(TX_CHECKSUM)?,
            tcp_segmentation: read(TSO)?,
            generic_segmentation: read(GSO)?,
            generic_receive: read(GRO)?,
            tag_removal: read(TAG_REMOVAL)?,
        })
    }

    /// Returns its queues; one of each if its driver does not report them.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn queues(&self) -> Result<Queues, OffloadError> {
        let mut channels = EthtoolChannels {
            command: CHANNELS,
            counts: [0; 8],
        };
        match ethtool_call(&self.socket, &self.interface, &mut channels) {
            Ok(()) => {
                let [.., receive, transmit, _, combined] = channels.counts;
                Ok(Queues {
                    receive: (receive + combined).max(1),
                    transmit: (transmit + combined).max(1),
                })
            }
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Queues {
                receive: 1,
                transmit: 1,
            }),
            Err(error) => Err(self.refusal("queues", error)),
        }
    }

    fn refusal(&self, feature: &'static str, source: io::Error) -> OffloadError {
        refusal("read", feature, &self.interface, &self.namespace, source)
    }
}

fn refusal(
    verb: &'static str,
    feature: &'static str,
    interface: &str,
    namespace: &str,
    source: io::Error,
) -> OffloadError {
    OffloadError::Kernel {
        verb,
        feature,
        interface: interface.to_owned(),
        namespace: namespace.to_owned(),
        source,
    }
}

/// linux/ethtool.h: `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// linux/ethtool.h: `struct ethtool_channels`. First the maximum of each kind, then what is in use:
/// receive, transmit, other, combined.
#[repr(C)]
struct EthtoolChannels {
    command: u32,
    counts: [u32; 8],
}

/// linux/ethtool.h: ETHTOOL_GCHANNELS.
const CHANNELS: u32 = 0x3c;

/// The structs that ethtool commands read and write, the command first.
trait EthtoolArgument {}
impl EthtoolArgument for EthtoolValue {}
impl EthtoolArgument for EthtoolChannels {}

fn ethtool(socket: &Socket, interface: &str, command: u32, value: u32) -> io::Result<u32> {
    let mut argument = EthtoolValue { command, value };
    ethtool_call(socket, interface, &mut argument)?;
    Ok(argument.value)
}

fn ethtool_call<T: EthtoolArgument>(
    socket: &Socket,
    interface: &str,
    argument: &mut T,
) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(argument).cast();
    // SAFETY: the request names a zero-terminated interface (its length was checked) and
    // points to the struct that the command in it reads and writes; both outlive the call.
    sys::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) })
        .map(drop)
}

#[derive(Clone, Copy)]
struct Feature {
    name: &'static str,
    read: u32,
    set: u32,
    /// Its bit in the value of these commands.
    bit: u32,
}

impl Feature {
    /// Leaves the other bits of the value as they are.
    fn switch(self, socket: &Socket, interface: &str, on: bool) -> io::Result<()> {
        let others = ethtool(socket, interface, self.read, 0)? & !self.bit;
        let own = if on { self.bit } else { 0 };
        ethtool(socket, interface, self.set, others | own).map(drop)
    }
}

// linux/ethtool.h: ETHTOOL_G* and ETHTOOL_S*.
const TX_CHECKSUM: Feature = Feature {
    name: "transmit checksums",
    read: 0x16,
    set: 0x17,
    bit: 1,
};
const TSO: Feature = Feature {
    name: "TCP segmentation",
    read: 0x1e,
    set: 0x1f,
    bit: 1,
};
const GSO: Feature = Feature {
    name: "generic segmentation",
    read: 0x23,
    set: 0x24,
    bit: 1,
};
const GRO: Feature = Feature {
    name: "generic receive",
    read: 0x2b,
    set: 0x2c,
    bit: 1,
};
/// ETH_FLAG_RXVLAN of ETHTOOL_GFLAGS and ETHTOOL_SFLAGS.
const TAG_REMOVAL: Feature = Feature {
    name: "removal of VLAN tags",
    read: 0x25,
    set: 0x26,
    bit: 1 << 8,
};
