//! Arrivals from a packet capture: pcap or pcapng.
//!
//! Time counts from the first packet. A packet whose time lies before that of the one in front of
//! it (several capture queues do that) arrives together with it, and the reader says how often
//! that was. The length of a packet is the one that it had on the wire, as far as the capture
//! knows it: with an Ethernet header if the capture has one, otherwise that of the IP packet.

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{
    Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader,
    traits::PcapReaderIterator,
};
use sluice_core::{Ecn, Time};
use sluice_net::frame::{Addresses, FlowHasher, Link, Transport, View, parse_head, set_ce};

use super::trace::{Arrival, Hash, TraceError};

/// What is wrong with a packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The file is cut off.
    #[error("the file ends inside it; the capture is truncated")]
    Truncated,
    /// The file's structure is broken.
    #[error("it cannot be read; the capture is damaged")]
    Damaged,
    /// The file cannot be read on.
    #[error("the file cannot be read")]
    Unreadable,
    /// A link type that is not understood.
    #[error(
        "link type {0} is not understood; Ethernet (1), raw IP (101, 228, 229) and Linux cooked \
         (113, 276) are"
    )]
    LinkType(i32),
    /// A packet of an interface that was not described.
    #[error("it belongs to interface {0}, which the capture does not describe")]
    Interface(u32),
    /// A packet without a time (a simple packet block).
    #[error("it carries no time")]
    NoTime,
    /// A clock that cannot be counted in nanoseconds.
    #[error("its clock has a resolution of {0:#04x}, which is not understood")]
    Resolution(u8),
    /// A packet that is longer than any.
    #[error("it claims {0} bytes; a packet has at most 16777216")]
    TooLong(u32),
    /// A packet without content.
    #[error("it has no bytes")]
    Empty,
    /// A packet long after the first one.
    #[error("it comes more than three years after the first one")]
    TooLate,
}

/// The bytes of a packet.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    /// Bytes that the packet had; some may not have been captured.
    pub(super) original_len: u32,
    /// Where the network packet starts that `view` speaks of.
    offset: usize,
    view: View,
}

impl Frame {
    /// The captured bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of its IP packet; zero for anything but IP.
    pub(super) const fn ip_len(&self) -> u32 {
        self.view.ip_len
    }

    /// Sets CE in the IP header, and corrects its checksum.
    pub(super) fn mark(&mut self) {
        set_ce(&mut self.bytes[self.offset..], &self.view);
    }

    /// Takes over the content of `other` without a new allocation.
    pub(super) fn copy_from(&mut self, other: &Frame) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.original_len = other.original_len;
        self.offset = other.offset;
        self.view = other.view;
    }
}

/// Reads a capture packet by packet.
pub(super) struct Capture {
    reader: Box<dyn PcapReaderIterator>,
    path: PathBuf,
    hash: Hash,
    hasher: FlowHasher,
    /// Numbers of the flows, in the order in which they appeared.
    flows: HashMap<FlowKey, u32>,
    interfaces: Vec<Interface>,
    is_big_endian: bool,
    link: Option<Linktype>,
    has_several_links: bool,
    /// Absolute time of the first packet.
    origin: Option<i128>,
    before: u64,
    packets: u64,
    frame: Frame,
    odd: Odd,
    /// Bytes that the reader's buffer holds.
    capacity: usize,
}

/// What is worth a warning.
#[derive(Clone, Copy, Debug, Default)]
struct Odd {
    backwards: u64,
    farthest_back_ns: i128,
    long: u64,
}

/// An interface of a capture.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    resolution: u8,
    offset_s: i64,
}

/// What makes packets one flow: the fields that [`FlowHasher::flow`] hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    ethertype: u16,
    source: Option<std::net::IpAddr>,
    destination: Option<std::net::IpAddr>,
    protocol: u8,
    ports: (u16, u16),
}

/// A packet as the file has it.
struct Raw<'a> {
    interface: u32,
    /// Ticks of the interface's clock (pcapng).
    ticks: Option<u64>,
    /// Seconds and ticks beyond them (pcap).
    seconds: (u32, u32),
    original_len: u32,
    bytes: &'a [u8],
}

impl Capture {
    /// Whether `head` starts a capture.
    pub(super) fn is_one(head: &[u8]) -> bool {
        const MAGIC: [[u8; 4]; 7] = [
            [0xa1, 0xb2, 0xc3, 0xd4],
            [0xd4, 0xc3, 0xb2, 0xa1],
            [0xa1, 0xb2, 0x3c, 0x4d],
            [0x4d, 0x3c, 0xb2, 0xa1],
            [0xa1, 0xb2, 0xcd, 0x34],
            [0x34, 0xcd, 0xb2, 0xa1],
            [0x0a, 0x0d, 0x0d, 0x0a],
        ];
        MAGIC.iter().any(|magic| head.starts_with(magic))
    }

    pub(super) fn new(
        mut reader: impl Read + 'static,
        path: &Path,
        hash: Hash,
        seed: u64,
    ) -> Result<Self, TraceError> {
        // The library wants to see the whole head at its first read.
        let mut head = Vec::with_capacity(HEAD);
        let first = reader.by_ref().take(HEAD as u64).read_to_end(&mut head);
        first.map_err(|error| TraceError::Read {
            path: path.to_owned(),
            error,
        })?;
        let is_ng = head.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
        let whole = Cursor::new(head).chain(reader);
        let reader: Result<Box<dyn PcapReaderIterator>, _> = if is_ng {
            PcapNGReader::new(CAPACITY, whole).map(|reader| Box::new(reader) as Box<_>)
        } else {
            LegacyPcapReader::new(CAPACITY, whole).map(|reader| Box::new(reader) as Box<_>)
        };
        let reader = reader.map_err(|error| TraceError::Capture {
            path: path.to_owned(),
            packet: 0,
            error: match error {
                PcapError::Incomplete(_) => CaptureError::Truncated,
                _ => CaptureError::Damaged,
            },
        })?;
        Ok(Capture {
            reader,
            path: path.to_owned(),
            hash,
            hasher: FlowHasher::new(seed),
            flows: HashMap::new(),
            interfaces: Vec::new(),
            is_big_endian: false,
            link: None,
            has_several_links: false,
            origin: None,
            before: 0,
            packets: 0,
            frame: Frame::empty(),
            odd: Odd::default(),
            capacity: CAPACITY,
        })
    }

    pub(super) fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        let found = self.read_packet();
        match found {
            Ok(None) => Ok(None),
            Ok(Some((time_ns, interface))) => {
                self.packets += 1;
                self.arrival(time_ns, interface)
                    .map(Some)
                    .map_err(|error| self.fail(self.packets, error))
            }
            Err(error) => Err(self.fail(self.packets + 1, error)),
        }
    }

    /// The packet that came last.
    pub(super) const fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The link type of the packets so far; `None` if they had several.
    pub(super) fn link(&self) -> Option<u16> {
        match self.link {
            Some(link) if !self.has_several_links => Some(link.0 as u16),
            _ => None,
        }
    }

    /// Absolute time of the first packet, ns since 1970.
    pub(super) fn origin_ns(&self) -> i128 {
        self.origin.unwrap_or(0)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let odd = &self.odd;
        if odd.backwards > 0 {
            warnings.push(format!(
                "times before that of the packet in front: {}, by up to {} ns; such packets arrive \
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

    /// Reads on to the next packet and puts its bytes into `frame`; gives its absolute time in ns.
    fn read_packet(&mut self) -> Result<Option<(i128, Interface)>, CaptureError> {
        loop {
            let (offset, found) = match self.reader.next() {
                Ok((offset, block)) => {
                    let raw = match block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            self.interfaces = vec![Interface {
                                link: Linktype(header.network.0 & 0xffff),
                                resolution: if header.is_nanosecond_precision() {
                                    9
                                } else {
                                    6
                                },
                                offset_s: 0,
                            }];
                            None
                        }
                        PcapBlockOwned::Legacy(packet) => Some(Raw {
                            interface: 0,
                            ticks: None,
                            seconds: (packet.ts_sec, packet.ts_usec),
                            original_len: packet.origlen,
                            bytes: packet.data,
                        }),
                        PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                            self.interfaces.clear();
                            self.is_big_endian = section.big_endian();
                            None
                        }
                        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                            // The library reads the offset as little-endian always.
                            let offset_s = interface.if_tsoffset;
                            self.interfaces.push(Interface {
                                link: interface.linktype,
                                resolution: interface.if_tsresol,
                                offset_s: if self.is_big_endian {
                                    offset_s.swap_bytes()
                                } else {
                                    offset_s
                                },
                            });
                            None
                        }
                        PcapBlockOwned::NG(Block::EnhancedPacket(ref packet)) => Some(Raw {
                            interface: packet.if_id,
                            ticks: Some(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low)),
                            seconds: (0, 0),
                            original_len: packet.origlen,
                            bytes: packet.packet_data(),
                        }),
                        PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                            return Err(CaptureError::NoTime);
                        }
                        PcapBlockOwned::NG(_) => None,
                    };
                    let found = match raw {
                        None => None,
                        Some(raw) => {
                            let interface = *usize::try_from(raw.interface)
                                .ok()
                                .and_then(|i| self.interfaces.get(i))
                                .ok_or(CaptureError::Interface(raw.interface))?;
                            let time_ns = raw.time_ns(interface)?;
                            self.frame.bytes.clear();
                            self.frame.bytes.extend_from_slice(raw.bytes);
                            self.frame.original_len = raw.original_len;
                            Some((time_ns, interface))
                        }
                    };
                    (offset, found)
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => {
                    match self.reader.refill() {
                        Ok(()) => continue,
                        Err(_) => return Err(CaptureError::Unreadable),
                    };
                }
                Err(PcapError::BufferTooSmall) if self.capacity < MAX_CAPACITY => {
                    self.capacity *= 2;
                    self.reader.grow(self.capacity);
                    continue;
                }
                Err(PcapError::UnexpectedEof) => return Err(CaptureError::Truncated),
                Err(PcapError::ReadError) => return Err(CaptureError::Unreadable),
                Err(_) => return Err(CaptureError::Damaged),
            };
            self.reader.consume(offset);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn arrival(&mut self, time_ns: i128, interface: Interface) -> Result<Arrival, CaptureError> {
        let frame = &mut self.frame;
        frame.original_len = frame.original_len.max(frame.bytes.len() as u32);
        if frame.original_len > MAX_LEN {
            return Err(CaptureError::TooLong(frame.original_len));
        }
        frame.parse(interface.link)?;
        let len = frame.original_len - frame.offset as u32;
        if len == 0 {
            return Err(CaptureError::Empty);
        }
        self.odd.long += u64::from(len > LONG);
        self.has_several_links |= self.link.is_some_and(|link| link != interface.link);
        self.link.get_or_insert(interface.link);
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
    pub(super) fn empty() -> Self {
        Frame {
            bytes: Vec::new(),
            original_len: 0,
            offset: 0,
            view: parse_head(&[], 0, Link::Ip),
        }
    }

    /// Reads the headers, as `link` lays them out.
    fn parse(&mut self, link: Linktype) -> Result<(), CaptureError> {
        let bytes = &self.bytes;
        let protocol_at = match link.0 {
            1 => None,
            // Raw IP, also under the numbers that OpenBSD and others write; then IPv4 and IPv6.
            12 | 14 | 101 | 228 | 229 => None,
            113 => Some((14, 16)),
            276 => Some((0, 20)),
            other => return Err(CaptureError::LinkType(other)),
        };
        let (protocol, offset) = match protocol_at {
            None => (None, 0),
            Some((at, offset)) if bytes.len() >= offset => {
                let protocol = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                (Some(protocol), offset)
            }
            Some(_) => return Err(CaptureError::Damaged),
        };
        let layout = if link.0 == 1 {
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

impl Raw<'_> {
    /// Nanoseconds since 1970.
    fn time_ns(&self, interface: Interface) -> Result<i128, CaptureError> {
        let r = interface.resolution;
        // pcapng (draft-ietf-opsawg-pcapng section 4.2): a power of two if the highest bit is set,
        // else of ten.
        let per_second: u128 = match (r & 0x80 == 0, u32::from(r & 0x7f)) {
            (true, digits @ 0..=19) => 10u128.pow(digits),
            (false, bits @ 0..=63) => 1 << bits,
            _ => return Err(CaptureError::Resolution(r)),
        };
        let ticks = match self.ticks {
            Some(ticks) => u128::from(ticks),
            None => u128::from(self.seconds.0) * per_second + u128::from(self.seconds.1),
        };
        let ns = (ticks * 1_000_000_000 / per_second) as i128;
        Ok(ns + i128::from(interface.offset_s) * 1_000_000_000)
    }
}

impl FlowKey {
    fn of(view: &View) -> Self {
        let (source, destination) = match view.addresses {
            Addresses::None => (None, None),
            Addresses::V4 {
                source,
                destination,
            } => (Some(source.into()), Some(destination.into())),
            Addresses::V6 {
                source,
                destination,
            } => (Some(source.into()), Some(destination.into())),
        };
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
            source,
            destination,
            protocol: view.protocol,
            ports,
        }
    }
}

/// Bytes that are read before the library sees the file.
const HEAD: usize = 1 << 18;
/// Bytes of the library's buffer: the longest block, until one needs more.
const CAPACITY: usize = 1 << 20;
const MAX_CAPACITY: usize = 1 << 26;
const MAX_LEN: u32 = 1 << 24;
/// Longer than jumbo frames: several segments in one.
const LONG: u32 = 9216;
/// Three years.
const MAX_SPAN_NS: u64 = 100_000_000_000_000_000;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

#[cfg(test)]
mod tests;
