//! The parsed headers of a frame.
//!
//! References: RFC 791 (IPv4), RFC 8200 (IPv6 and its extension headers), RFC 4302 (AH),
//! RFC 3168 (ECN field), RFC 9293 (TCP), IEEE 802.1Q and 802.1ad (tags), RFC 2516 (PPPoE),
//! RFC 3032 (MPLS).

use super::labels::packet_type;
use super::trailer::shortest_frame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The header that a frame starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet, possibly followed by tags.
    Ethernet,
    /// IP (TUN without a link layer).
    Ip,
}

/// The headers of a frame, as far as they could be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Bytes of the whole frame, link header included.
    pub frame_len: u32,
    /// Offset of the network header.
    pub network: u16,
    /// Type of the network header, after all tags, and inside PPPoE and MPLS if that is IP (0 if
    /// the frame is too short).
    pub ethertype: u16,
    /// Whether the IP packet is inside PPPoE or MPLS. PPPoE states the length of the packet, so the
    /// frame must not be split or joined.
    pub is_encapsulated: bool,
    /// Identifier and priority of the outermost tag (IEEE 802.1Q TCI).
    pub vlan: Option<u16>,
    /// Number of tags.
    pub vlans: u8,
    /// Source and destination.
    pub addresses: Addresses,
    /// Length of the IP packet, header included: as the header states, but at most what the frame
    /// holds, and all of that if the stated length does not cover the header. Zero for anything but
    /// IP.
    pub ip_len: u32,
    /// Offset of the transport header; zero when there is none (not IP, later fragment, or
    /// the chain could not be followed).
    pub transport_at: u16,
    /// The transport protocol's number; zero for anything but IP.
    pub protocol: u8,
    /// Differentiated services codepoint, 0 to 63.
    pub dscp: u8,
    /// IP ECN field: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE (RFC 3168 section 5).
    pub ecn: u8,
    /// Set when the packet is a fragment, the first one included.
    pub fragment: Option<Fragment>,
    /// The fields of the transport header.
    pub transport: Transport,
    /// An IPv6 routing header has segments left: the destination is not the final one, which
    /// transport checksums cover (RFC 8200 section 8.1).
    pub is_routed: bool,
    /// An IPv6 authentication header (RFC 4302) stands in front of the transport header.
    pub is_authenticated: bool,
    /// The IPv6 header does not state the length, but a hop-by-hop header (RFC 2675), or none in a
    /// super-packet that is longer than it could state.
    pub is_jumbo: bool,
    /// The first fault.
    pub fault: Option<Fault>,
}

/// Source and destination of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Not IP, or too short.
    None,
    /// IPv4.
    V4 {
        /// Source.
        source: Ipv4Addr,
        /// Destination.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source.
        source: Ipv6Addr,
        /// Destination.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns source and destination of either version; `None` if it is not IP.
    pub fn pair(self) -> Option<(IpAddr, IpAddr)> {
        match self {
            Addresses::None => None,
            Addresses::V4 {
                source,
                destination,
            } => Some((source.into(), destination.into())),
            Addresses::V6 {
                source,
                destination,
            } => Some((source.into(), destination.into())),
        }
    }
}

/// A fragment's place in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Byte offset of this fragment's payload.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
    /// The header with which the fragmented part of the packet begins, as every fragment states it: the
    /// transport protocol, or an extension header of IPv6 in front of it.
    pub protocol: u8,
}

/// The transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// An unknown one, or not in this fragment.
    Opaque,
    /// TCP.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
        flags: u8,
        /// Bytes of the header with its options.
        header_len: u8,
    },
    /// UDP.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// Another protocol whose header starts with two ports: SCTP, DCCP, UDP-Lite.
    Ports {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Identifier, for the types that have one (echo).
        id: Option<u16>,
    },
}

/// A fault of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The bytes end inside a header.
    #[error("bytes end inside a header")]
    Truncated,
    /// The version nibble contradicts the link header, or is neither 4 nor 6.
    #[error("IP version {0} contradicts the link header")]
    Version(u8),
    /// A header length below the fixed part or past the end of the packet.
    #[error("header length {0} below the minimum or past the packet")]
    HeaderLength(u8),
    /// The IP length does not even cover the IP header.
    #[error("IP length {0} shorter than its header")]
    LengthTooShort(u32),
    /// The IP length reaches past the end of the frame.
    #[error("IP length {0} reaches past the frame")]
    LengthBeyondFrame(u32),
    /// The UDP length does not cover its header, or reaches past the end of the packet.
    #[error("UDP length {0} below 8 or past the packet")]
    UdpLength(u16),
    /// More tags than are followed.
    #[error("more than {MAX_VLANS} tags")]
    VlanDepth,
    /// More IPv6 extension headers than are followed.
    #[error("more than {MAX_EXTENSIONS} extension headers")]
    ExtensionDepth,
    /// More MPLS labels than are followed.
    #[error("more than {MAX_LABELS} labels")]
    LabelDepth,
    /// A second fragment header (RFC 8200 section 4.1 allows one).
    #[error("two fragment headers")]
    FragmentTwice,
}

impl Fault {
    /// The name of every kind, in the order of [`Fault::number`].
    pub const NAMES: [&'static str; 10] = [
        "truncated",
        "ip_version",
        "header_length",
        "ip_length_short",
        "ip_length_beyond_frame",
        "udp_length",
        "vlan_depth",
        "extension_depth",
        "label_depth",
        "fragment_twice",
    ];

    /// Returns the kind's index in [`Fault::NAMES`].
    pub const fn number(self) -> usize {
        match self {
            Fault::Truncated => 0,
            Fault::Version(_) => 1,
            Fault::HeaderLength(_) => 2,
            Fault::LengthTooShort(_) => 3,
            Fault::LengthBeyondFrame(_) => 4,
            Fault::UdpLength(_) => 5,
            Fault::VlanDepth => 6,
            Fault::ExtensionDepth => 7,
            Fault::LabelDepth => 8,
            Fault::FragmentTwice => 9,
        }
    }

    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        Fault::NAMES[self.number()]
    }
}

impl View {
    /// Returns source and destination port, if the protocol has them and this fragment carries
    /// them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.transport {
            Transport::Tcp {
                source,
                destination,
                ..
            }
            | Transport::Udp {
                source,
                destination,
            }
            | Transport::Ports {
                source,
                destination,
            } => Some((source, destination)),
            Transport::Opaque | Transport::Icmp { .. } => None,
        }
    }

    /// Returns whether this is an IPv4 or IPv6 packet whose addresses could be read.
    pub fn is_ip(&self) -> bool {
        self.addresses != Addresses::None
    }

    fn empty(frame_len: usize) -> View {
        View {
            frame_len: u32::try_from(frame_len).unwrap_or(u32::MAX),
            network: 0,
            ethertype: 0,
            is_encapsulated: false,
            vlan: None,
            vlans: 0,
            addresses: Addresses::None,
            ip_len: 0,
            transport_at: 0,
            protocol: 0,
            dscp: 0,
            ecn: 0,
            fragment: None,
            transport: Transport::Opaque,
            is_routed: false,
            is_authenticated: false,
            is_jumbo: false,
            fault: None,
        }
    }

    fn read_link(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = 12;
        self.ethertype = be16(bytes, at)?;
        at += 2;
        while matches!(self.ethertype, TAG_8021Q | TAG_8021AD | TAG_QINQ) {
            if self.vlans == MAX_VLANS {
                return Err(Fault::VlanDepth);
            }
            let tci = be16(bytes, at)?;
            self.vlan.get_or_insert(tci);
            self.vlans += 1;
            self.ethertype = be16(bytes, at + 2)?;
            at += 4;
        }
        self.network = at as u16;
        match self.ethertype {
            PPPOE => self.read_pppoe(bytes, at),
            MPLS | MPLS_MULTICAST => self.read_labels(bytes, at),
            _ => Ok(()),
        }
    }

    /// RFC 2516 section 4: version and type, code, session, length; then the protocol of PPP, which
    /// many receivers also accept in one byte (RFC 1661 section 6.5).
    fn read_pppoe(&mut self, bytes: &[u8], at: usize) -> Result<(), Fault> {
        let header: &[u8; 8] = array(bytes, at)?;
        let (protocol, len) = match header[6] & 1 {
            0 => (u16::from_be_bytes([header[6], header[7]]), 8),
            _ => (u16::from(header[6]), 7),
        };
        // Other protocols (LCP, IPCP, ...) are not IP packets.
        match protocol {
            PPP_IPV4 => self.enter(at + len, IPV4),
            PPP_IPV6 => self.enter(at + len, IPV6),
            _ => {}
        }
        Ok(())
    }

    /// RFC 3032 section 2.1: labels of four bytes, of which the last has a bit set.
    fn read_labels(&mut self, bytes: &[u8], mut at: usize) -> Result<(), Fault> {
        for _ in 0..MAX_LABELS {
            let label: &[u8; 4] = array(bytes, at)?;
            at += 4;
            if label[2] & 1 == 0 {
                continue;
            }
            byte(bytes, at)?;
            let room = self.frame_len.saturating_sub(at as u32);
            let is_padded = self.frame_len <= shortest_frame(self.vlans);
            if let Some(ethertype) = packet_type(&bytes[at..], room, is_padded) {
                self.enter(at, ethertype);
            }
            return Ok(());
        }
        Err(Fault::LabelDepth)
    }

    fn enter(&mut self, at: usize, ethertype: u16) {
        (self.network, self.ethertype) = (at as u16, ethertype);
        self.is_encapsulated = true;
    }

    fn read_ip(&mut self, bytes: &[u8], link: Link) -> Result<(), Fault> {
        let at = usize::from(self.network);
        match (link, self.ethertype) {
            (Link::Ethernet, IPV4) => self.read_v4(bytes, at),
            (Link::Ethernet, IPV6) => self.read_v6(bytes, at),
            (Link::Ethernet, _) => Ok(()),
            (Link::Ip, _) => match byte(bytes, at)? >> 4 {
                4 => {
                    self.ethertype = IPV4;
                    self.read_v4(bytes, at)
                }
                6 => {
                    self.ethertype = IPV6;
                    self.read_v6(bytes, at)
                }
                other => Err(Fault::Version(other)),
            },
        }
    }

    fn read_v4(&mut self, bytes: &[u8], at: usize) -> Result<(), Fault> {
        let header: &[u8; 20] = array(bytes, at)?;
        if header[0] >> 4 != 4 {
            return Err(Fault::Version(header[0] >> 4));
        }
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header_len < 20 {
            return Err(Fault::HeaderLength(header_len as u8));
        }
        self.dscp = header[1] >> 2;
        self.ecn = header[1] & 3;
        self.protocol = header[9];
        self.addresses = Addresses::V4 {
            source: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
            destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
        };
        let claimed = u32::from(u16::from_be_bytes([header[2], header[3]]));
        self.set_ip_len(at, claimed, header_len as u32)?;
        let word = u16::from_be_bytes([header[6], header[7]]);
        if word & 0x3fff != 0 {
            self.fragment = Some(Fragment {
                offset: (word & 0x1fff) * 8,
                more: word & 0x2000 != 0,
                id: u32::from(u16::from_be_bytes([header[4], header[5]])),
                protocol: self.protocol,
            });
        }
        self.read_transport(bytes, at + header_len)
    }

    fn read_v6(&mut self, bytes: &[u8], at: usize) -> Result<(), Fault> {
        let header: &[u8; 40] = array(bytes, at)?;
        if header[0] >> 4 != 6 {
            return Err(Fault::Version(header[0] >> 4));
        }
        let class = (header[0] << 4) | (header[1] >> 4);
        self.dscp = class >> 2;
        self.ecn = class & 3;
        self.protocol = header[6];
        let (source, rest) = header[8..].split_first_chunk().expect("40-byte header");
        let destination = rest.first_chunk().expect("40-byte header");
        self.addresses = Addresses::V6 {
            source: Ipv6Addr::from(*source),
            destination: Ipv6Addr::from(*destination),
        };
        let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
        let room = self.frame_len.saturating_sub(at as u32);
        // RFC 2675 section 3: a jumbo payload is announced by length 0 and a hop-by-hop header, which
        // a kernel may leave out of a super-packet that is too long for the field.
        self.is_jumbo = payload == 0 && (header[6] == HOP_BY_HOP || room > LONGEST_IPV6);
        let claimed = if self.is_jumbo { room } else { payload + 40 };
        self.set_ip_len(at, claimed, 40)?;
        self.walk_extensions(bytes, at + 40)
    }

    fn set_ip_len(&mut self, at: usize, claimed: u32, header_len: u32) -> Result<(), Fault> {
        let room = self.frame_len.saturating_sub(at as u32);
        if claimed < header_len {
            // All its bytes take link time, whatever the header states.
            self.ip_len = room;
            return Err(Fault::LengthTooShort(claimed));
        }
        self.ip_len = claimed.min(room);
        if claimed > room {
            // The headers that are present can still be read.
            self.fault = Some(Fault::LengthBeyondFrame(claimed));
        }
        Ok(())
    }

    /// RFC 8200 section 4.1: follow the chain to the transport header.
    fn walk_extensions(&mut self, bytes: &[u8], mut at: usize) -> Result<(), Fault> {
        let bytes = &bytes[..bytes.len().min(self.ip_end())];
        for _ in 0..=MAX_EXTENSIONS {
            let length = match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HIP | SHIM6 => {
                    if self.protocol == ROUTING {
                        self.is_routed |= byte(bytes, at + 3)? != 0;
                    }
                    // In units of 8 bytes, the first 8 not counted.
                    (usize::from(byte(bytes, at + 1)?) + 1) * 8
                }
                AUTHENTICATION => {
                    self.is_authenticated = true;
                    // RFC 4302 section 2.2: in units of 4 bytes, minus 2.
                    (usize::from(byte(bytes, at + 1)?) + 2) * 4
                }
                FRAGMENT => {
                    let header: &[u8; 8] = array(bytes, at)?;
                    let word = u16::from_be_bytes([header[2], header[3]]);
                    let fragment = Fragment {
                        offset: word & 0xfff8,
                        more: word & 1 != 0,
                        id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                        protocol: header[0],
                    };
                    self.protocol = header[0];
                    if self.fragment.replace(fragment).is_some() {
                        return Err(Fault::FragmentTwice);
                    }
                    if fragment.offset != 0 {
                        return Ok(());
                    }
                    at += 8;
                    continue;
                }
                _ => return self.read_transport(bytes, at),
            };
            self.protocol = byte(bytes, at)?;
            at += length;
        }
        Err(Fault::ExtensionDepth)
    }

    fn read_transport(&mut self, bytes: &[u8], at: usize) -> Result<(), Fault> {
        if self.fragment.is_some_and(|f| f.offset != 0) {
            return Ok(());
        }
        // Bytes after the IP packet are padding, not a transport header.
        let bytes = &bytes[..bytes.len().min(self.ip_end())];
        match self.protocol {
            TCP => {
                let header: &[u8; 14] = array(bytes, at)?;
                let header_len = (header[12] >> 4) * 4;
                self.transport = Transport::Tcp {
                    source: u16::from_be_bytes([header[0], header[1]]),
                    destination: u16::from_be_bytes([header[2], header[3]]),
                    flags: header[13],
                    header_len,
                };
                let is_past =
                    self.fragment.is_none() && at + usize::from(header_len) > self.ip_end();
                if header_len < 20 || is_past {
                    return Err(Fault::HeaderLength(header_len));
                }
            }
            UDP => {
                self.transport = Transport::Udp {
                    source: be16(bytes, at)?,
                    destination: be16(bytes, at + 2)?,
                };
                self.check_udp_length(be16(bytes, at + 4)?, self.ip_end().saturating_sub(at));
            }
            DCCP | SCTP | UDP_LITE => {
                self.transport = Transport::Ports {
                    source: be16(bytes, at)?,
                    destination: be16(bytes, at + 2)?,
                };
            }
            ICMP | ICMPV6 => {
                let (kind, code) = (byte(bytes, at)?, byte(bytes, at + 1)?);
                // RFC 792 and RFC 4443 section 4: the identifier follows the checksum.
                let is_echo = match self.protocol {
                    ICMP => matches!(kind, 0 | 8),
                    _ => matches!(kind, 128 | 129),
                };
                let id = if is_echo {
                    Some(be16(bytes, at + 4)?)
                } else {
                    None
                };
                self.transport = Transport::Icmp { kind, code, id };
            }
            _ => {}
        }
        self.transport_at = u16::try_from(at).map_err(|_| Fault::Truncated)?;
        Ok(())
    }

    /// `room` is the space that the IP packet has for the datagram. The space may be larger than
    /// the datagram (RFC 768 does not forbid trailing bytes); a fragment holds only a part of the
    /// datagram, and a datagram of more than 65535 bytes has length 0 (RFC 2675 section 4).
    fn check_udp_length(&mut self, length: u16, room: usize) {
        let is_jumbo = length == 0 && room > usize::from(u16::MAX);
        let is_right = (8..=room).contains(&usize::from(length));
        if self.fragment.is_none() && !is_right && !is_jumbo {
            self.fault.get_or_insert(Fault::UdpLength(length));
        }
    }

    fn ip_end(&self) -> usize {
        usize::from(self.network) + self.ip_len as usize
    }
}

/// Reads an Ethernet frame.
///
/// ```
/// use sluice_wire::frame::{parse, Fault};
/// assert_eq!(parse(&[]).fault, Some(Fault::Truncated));
/// ```
pub fn parse(bytes: &[u8]) -> View {
    parse_head(bytes, bytes.len(), Link::Ethernet)
}

/// Reads the first `head.len()` bytes of a frame of `frame_len` bytes.
pub fn parse_head(head: &[u8], frame_len: usize, link: Link) -> View {
    let head = &head[..head.len().min(frame_len)];
    let mut view = View::empty(frame_len);
    let read = match link {
        Link::Ethernet => view.read_link(head),
        Link::Ip => Ok(()),
    };
    if let Err(fault) = read.and_then(|()| view.read_ip(head, link)) {
        view.fault.get_or_insert(fault);
    }
    view
}

pub(super) fn byte(bytes: &[u8], at: usize) -> Result<u8, Fault> {
    bytes.get(at).copied().ok_or(Fault::Truncated)
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Result<u16, Fault> {
    array(bytes, at).map(|two| u16::from_be_bytes(*two))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], Fault> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Fault::Truncated)
}

/// Deeper stacks of tags do not occur; the bound limits the cost of a hostile frame.
pub(super) const MAX_VLANS: u8 = 8;
/// Networks use up to a handful.
pub(super) const MAX_LABELS: u8 = 16;
/// The longest packet whose header states its length: 40 bytes, and a payload of 16 bits.
pub(super) const LONGEST_IPV6: u32 = 40 + 65_535;
/// RFC 8200 section 4.1 lists seven kinds, one of which may occur twice; this leaves some room.
pub(super) const MAX_EXTENSIONS: u8 = 16;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
const TAG_8021Q: u16 = 0x8100;
const TAG_8021AD: u16 = 0x88a8;
/// Used for outer tags before 802.1ad.
const TAG_QINQ: u16 = 0x9100;

pub(super) const PPPOE: u16 = 0x8864;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

pub(super) const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const DCCP: u8 = 33;
pub(super) const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;
pub(super) const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
