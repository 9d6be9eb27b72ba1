//! Arrivals from a packet capture: pcap or pcapng.
//!
//! Time starts at the first packet. A packet with an earlier timestamp than the one before it
//! (common with several capture queues) arrives together with that one; the reader counts such
//! packets. The length of a packet is its length on the wire, as far as the capture records it:
//! with the Ethernet header if the capture has one, otherwise the length of the IP packet.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sluice_core::{Ecn, Time};
use sluice_wire::capture::{ReadError, Reader, link_type};
use sluice_wire::frame::{Addresses, FlowHasher, Link, Transport, View, parse_head, set_ce};

use super::{Arrival, Hash, TraceError};

/// An error in a packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The packet cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The link type is not supported.
    #[error(
        "link type {0} is not understood; Ethernet (1), raw IP (101, 228, 229) and Linux cooked \
         (113, 276) are"
    )]
    LinkType(u32),
    /// A packet without content.
    #[error("it has no bytes")]
    Empty,
    /// The packet is too long after the first one.
    #[error("it arrives more than three years after the first one")]
    TooLate,
}

/// The bytes of a packet.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    /// The length of the packet; the capture may contain less.
    pub original_len: u32,
    /// The offset of the network packet that `view` describes.
    offset: usize,
    view: View,
}

impl Frame {
    /// Returns the captured bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length of the IP packet; 0 for other packets.
    pub const fn ip_len(&self) -> u32 {
        self.view.ip_len
    }

    /// Sets CE in the IP header and corrects its checksum.
    pub fn mark(&mut self) {
        set_ce(&mut self.bytes[self.offset..], &self.view);
    }

    /// Copies the content of `other` without a new allocation.
    pub fn copy_from(&mut self, other: &Frame) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.original_len = other.original_len;
        self.offset = other.offset;
        self.view = other.view;
    }
}

/// Reads a capture packet by packet.
pub struct Capture {
    reader: Reader<Box<dyn Read>>,
    path: PathBuf,
    hash: Hash,
    hasher: FlowHasher,
    /// Numbers of the flows, in the order in which they appeared.
    flows: HashMap<FlowKey, u32>,
    link: Option<u32>,
    has_several_links: bool,
    /// Absolute time of the first packet.
    origin: Option<i128>,
    before: u64,
    packets: u64,
    frame: Frame,
    odd: Odd,
    /// Whether the file ends within a packet.
    is_cut: bool,
}

/// The counts that lead to warnings.
#[derive(Clone, Copy, Debug, Default)]
struct Odd {
    backwards: u64,
    farthest_back_ns: i128,
    long: u64,
}

/// The fields that identify a flow: those that [`FlowHasher::flow`] hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    ethertype: u16,
    addresses: Addresses,
    protocol: u8,
    ports: (u16, u16),
}

impl Capture {
    pub fn new(
        reader: impl Read + 'static,
        path: &Path,
        hash: Hash,
        seed: u64,
    ) -> Result<Self, TraceError> {
        let reader = Reader::new(Box::new(reader) as Box<dyn Read>);
        let reader = reader.map_err(|error| TraceError::Capture {
            path: path.to_owned(),
            packet: 0,
            error: error.into(),
        })?;
        Ok(Capture {
            reader,
            path: path.to_owned(),
            hash,
            hasher: FlowHasher::new(seed),
            flows: HashMap::new(),
            link: None,
            has_several_links: false,
            origin: None,
            before: 0,
            packets: 0,
            frame: Frame::empty(),
            odd: Odd::default(),
            is_cut: false,
        })
    }

    /// Returns the next packet. A file that ends within a packet ends before it; the reader warns
    /// of that.
    pub fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        if self.is_cut {
            return Ok(None);
        }
        match self.reader.read(&mut self.frame.bytes) {
            Ok(None) => Ok(None),
            Ok(Some(record)) => {
                self.packets += 1;
                self.frame.original_len = record.original_len;
                self.arrival(record.time_ns, record.link)
                    .map(Some)
                    .map_err(|error| self.fail(self.packets, error))
            }
            // Without a packet before the cut there is nothing to read.
            Err(ReadError::Truncated) if self.packets > 0 => {
                self.is_cut = true;
                Ok(None)
            }
            Err(error) => Err(self.fail(self.packets + 1, error.into())),
        }
    }

    /// Returns the packet that was read last.
    pub const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the link type of the packets so far; `None` if they had several.
    pub fn link(&self) -> Option<u32> {
        match self.link {
            Some(link) if !self.has_several_links => Some(link),
            _ => None,
        }
    }

    /// Returns the error of a file that ends within a packet.
    pub(super) fn cut(&self) -> Option<TraceError> {
        let error = CaptureError::Read(ReadError::Truncated);
        self.is_cut.then(|| self.fail(self.packets + 1, error))
    }

    /// Returns the absolute time of the first packet, ns since 1970.
    pub fn origin_ns(&self) -> i128 {
        self.origin.unwrap_or(0)
    }

    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let odd = &self.odd;
        if self.is_cut {
            warnings.push(format!(
                "the file is cut within packet {}; it was read up to packet {}, {:.6} s after the first",
                self.packets + 1,
                self.packets,
                self.before as f64 / 1e9
            ));
        }
        if odd.backwards > 0 {
            warnings.push(format!(
                "timestamps earlier than the previous packet's: {}, by up to {} ns; such packets arrive \
                 together with it",
                odd.backwards, odd.farthest_back_ns
            ));
        }
        if odd.long > 0 {
            warnings.push(format!(
                "packets longer than {LONG} bytes, joined by offloads of the capturing host: {}; each \
                 counts as one packet here",
                odd.long
            ));
        }
        warnings
    }

    fn fail(&self, packet: u64, error: CaptureError) -> TraceError {
        TraceError::Capture {
            path: self.path.clone(),
            packet,
            error,
        }
    }

    /// Returns the flows so far, by number, with names that are valid in a scenario:
    /// `SOURCE:PORT-DESTINATION:PORT` for TCP, with `-udp` at the end for UDP. Flows of packets that
    /// are cut before their addresses may share a name.
    pub fn flows(&self) -> impl Iterator<Item = (u32, impl fmt::Display)> {
        self.flows.iter().map(|(key, number)| (*number, key))
    }

    fn arrival(&mut self, time_ns: i128, link: u32) -> Result<Arrival, CaptureError> {
        let frame = &mut self.frame;
        frame.parse(link)?;
        let len = frame.original_len - frame.offset as u32;
        if len == 0 {
            return Err(CaptureError::Empty);
        }
        self.odd.long += u64::from(len > LONG);
        self.has_several_links |= self.link.is_some_and(|other| other != link);
        self.link.get_or_insert(link);
        let since_first = time_ns - *self.origin.get_or_insert(time_ns);
        let behind = i128::from(self.before) - since_first;
        if behind > 0 {
            self.odd.backwards += 1;
            self.odd.farthest_back_ns = self.odd.farthest_back_ns.max(behind);
        } else {
            self.before = u64::try_from(since_first)
                .ok()
                .filter(|ns| *ns <= MAX_SPAN_NS)
                .ok_or(CaptureError::TooLate)?;
        }
        let view = &self.frame.view;
        let next = self.flows.len() as u32;
        let flow = *self.flows.entry(FlowKey::of(view)).or_insert(next);
        let hasher = &self.hasher;
        Ok(Arrival {
            time: Time::from_ns(self.before),
            flow,
            hashes: match self.hash {
                Hash::Flow => [flow, hasher.source(view), hasher.destination(view)],
                Hash::Seeded => [
                    hasher.flow(view),
                    hasher.source(view),
                    hasher.destination(view),
                ],
            },
            len,
            segments: 1,
            ecn: Ecn::from_bits(view.ecn),
            dscp: view.dscp,
            class: 0,
        })
    }
}

impl Frame {
    pub fn empty() -> Self {
        Frame {
            bytes: Vec::new(),
            original_len: 0,
            offset: 0,
            view: parse_head(&[], 0, Link::Ip),
        }
    }

    /// Parses the headers of a packet of link type `link`.
    fn parse(&mut self, link: u32) -> Result<(), CaptureError> {
        let bytes = &self.bytes;
        let protocol_at = match link {
            link_type::ETHERNET | link_type::RAW | link_type::IPV4 | link_type::IPV6 => None,
            other if link_type::RAW_OF_OTHERS.contains(&other) => None,
            LINUX_COOKED => Some((14, 16)),
            LINUX_COOKED_2 => Some((0, 20)),
            other => return Err(CaptureError::LinkType(other)),
        };
        let (protocol, offset) = match protocol_at {
            None => (None, 0),
            Some((at, offset)) if bytes.len() >= offset => {
                let protocol = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                (Some(protocol), offset)
            }
            Some(_) => return Err(ReadError::Damaged.into()),
        };
        let layout = if link == link_type::ETHERNET {
            Link::Ethernet
        } else {
            Link::Ip
        };
        self.offset = offset;
        self.view = match protocol {
            None | Some(IPV4 | IPV6) => {
                let len = self.original_len as usize - offset;
                parse_head(&bytes[offset..], len, layout)
            }
            Some(other) => View {
                ethertype: other,
                ..parse_head(&[], 0, Link::Ip)
            },
        };
        Ok(())
    }
}

impl FlowKey {
    fn of(view: &View) -> Self {
        let ports = if view.fragment.is_some() {
            (0, 0)
        } else {
            match view.transport {
                Transport::Icmp { id, .. } => (id.unwrap_or(0), 0),
                _ => view.ports().unwrap_or((0, 0)),
            }
        };
        FlowKey {
            ethertype: view.ethertype,
            addresses: view.addresses,
            protocol: view.protocol,
            ports,
        }
    }
}

/// Distinct for distinct flows with addresses.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [source, destination]: [IpAddr; 2] = match self.addresses {
            Addresses::None => return write!(f, "ethertype-{:04x}", self.ethertype),
            Addresses::V4 {
                source,
                destination,
            } => [source.into(), destination.into()],
            Addresses::V6 {
                source,
                destination,
            } => [source.into(), destination.into()],
        };
        let host = |f: &mut fmt::Formatter<'_>, host: IpAddr, port: Option<u16>| match (host, port)
        {
            (IpAddr::V4(host), None) => write!(f, "{host}"),
            (IpAddr::V4(host), Some(port)) => write!(f, "{host}:{port}"),
            (IpAddr::V6(host), None) => write!(f, "[{host}]"),
            (IpAddr::V6(host), Some(port)) => write!(f, "[{host}]:{port}"),
        };
        let (first, second) = self.ports;
        let is_icmp = matches!(self.protocol, ICMP | ICMP6);
        // Fragments have no ports.
        let has_ports = !is_icmp && self.ports != (0, 0);
        host(f, source, has_ports.then_some(first))?;
        f.write_str("-")?;
        host(f, destination, has_ports.then_some(second))?;
        match self.protocol {
            TCP => Ok(()),
            UDP => f.write_str("-udp"),
            ICMP | ICMP6 => write!(f, "-icmp-{first}"),
            other => write!(f, "-protocol-{other}"),
        }
    }
}

const LINUX_COOKED: u32 = 113;
const LINUX_COOKED_2: u32 = 276;
/// Larger than a jumbo frame: several segments in one packet.
const LONG: u32 = 9216;
/// Three years.
const MAX_SPAN_NS: u64 = 100_000_000_000_000_000;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Protocol numbers of IANA.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

#[cfg(test)]
mod tests;
