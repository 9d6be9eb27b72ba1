//! Super-packets: their size on the wire, and splitting them into the packets that they stand for.
//!
//! The sender's kernel hands over one header and up to 64 KB of payload with the segment size
//! (`gso_size`). Segment `i` repeats the headers in front of its share of the payload, with:
//! - IPv4: total length, identification + i, header checksum; IPv6: payload length;
//! - TCP (RFC 9293): sequence number advanced by the payload before it, FIN and PSH only on the
//!   last; CWR only on the first where it answers one reduction (RFC 3168 section 6.1.2), on all
//!   where it is a bit of accurate ECN's counter (RFC 9768): see [`VnetHeader::is_cwr_once`];
//! - UDP: length; every segment is a datagram of its own.
//!
//! A jumbogram (RFC 2675, as Linux frames super-packets above 64 KB on IPv6) is not split: its
//! hop-by-hop header states a length that no segment has.

use super::checksum::{Sum, complete_checksum, pseudo_header};
use super::tunnel::Outer;
use super::view::{IPV4, TCP, Transport, UDP, View};
use super::vnet::{GsoKind, VnetHeader};

/// A super-packet that can be measured and split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperPacket {
    pub(super) network: u16,
    pub(super) transport: u16,
    pub(super) header_len: u16,
    pub(super) payload_len: u32,
    pub(super) gso_size: u16,
    pub(super) is_v4: bool,
    pub(super) is_tcp: bool,
    pub(super) is_cwr_once: bool,
    /// The headers in front of `network`, if it is inside a tunnel.
    pub(super) outer: Option<Outer>,
}

/// A frame's bytes in two pieces: the head holds all headers, the tail (often empty) the
/// payload that did not fit.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// The bytes after them.
    pub tail: &'a [u8],
}

/// The form in which the transport checksum of a segment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Computed over the payload.
    Complete,
    /// Left partial, for the receiver or its device to complete, if the port carries
    /// [`VnetHeader`]s: only the sum of the pseudo-header is written, so the payload need not be
    /// read.
    Partial,
}

/// The reason why a frame is not a super-packet that can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GsoError {
    /// The offload header announces a single packet.
    #[error("the offload header announces no segments")]
    NotSuper,
    /// Neither TCP nor UDP segmentation.
    #[error("segmentation type {0} is not one of TCPv4 (1), TCPv6 (4), UDP (5)")]
    Kind(u8),
    /// The headers are not of the announced type, are damaged, are inside PPPoE, MPLS or a tunnel, are a
    /// fragment's or a jumbogram's, or a routing header hides the address that the checksum covers.
    #[error("the headers are not those of a whole packet of the announced type")]
    Headers,
    /// A segment size of zero, or one that makes packets longer than IP allows.
    #[error("segment size 0 or above what an IP packet of 65535 bytes holds")]
    SegmentSize,
    /// Segments so small that one frame would become tens of thousands of packets, which no
    /// legitimate sender requests.
    #[error("segment size {0} is below {LEAST_SEGMENT}")]
    TinySegments(u16),
}

impl SuperPacket {
    /// Reads the frame that `view` and `vnet` describe. For one inside a tunnel, there is
    /// [`SuperPacket::in_tunnel`].
    ///
    /// # Errors
    /// The frame is not a super-packet, or must not be split.
    pub fn new(view: &View, vnet: &VnetHeader) -> Result<SuperPacket, GsoError> {
        let kind = vnet.gso().ok_or(GsoError::NotSuper)?;
        let is_v4 = view.ethertype == IPV4;
        let (is_tcp, transport_len) = match (kind, view.transport) {
            (GsoKind::TcpV4, Transport::Tcp { header_len, .. })
                if is_v4 && view.protocol == TCP =>
            {
                (true, header_len)
            }
            (GsoKind::TcpV6, Transport::Tcp { header_len, .. })
                if !is_v4 && view.protocol == TCP =>
            {
                (true, header_len)
            }
            (GsoKind::Udp, Transport::Udp { .. }) if view.protocol == UDP => (false, 8),
            (GsoKind::Other(raw), _) => return Err(GsoError::Kind(raw)),
            _ => return Err(GsoError::Headers),
        };
        // The offsets in a damaged or fragmented packet have no meaning.
        let is_plain = view.fault.is_none() && view.fragment.is_none() && !view.is_encapsulated;
        // The kernel describes the packet inside of a tunnel.
        let is_inside = vnet.needs_checksum() && vnet.csum_start > view.transport_at;
        if !is_plain || view.is_routed || view.is_jumbo || is_inside {
            return Err(GsoError::Headers);
        }
        SuperPacket {
            network: view.network,
            transport: view.transport_at,
            header_len: view.transport_at + u16::from(transport_len),
            payload_len: 0,
            gso_size: vnet.gso_size,
            is_v4,
            is_tcp,
            is_cwr_once: vnet.is_cwr_once(),
            outer: None,
        }
        .ending_at(u32::from(view.network) + view.ip_len)
    }

    /// Sets the length of its payload. Checks that segments are possible.
    pub(super) fn ending_at(self, end: u32) -> Result<SuperPacket, GsoError> {
        if self.gso_size == 0 {
            return Err(GsoError::SegmentSize);
        }
        let payload_len = end
            .checked_sub(self.header_len())
            .ok_or(GsoError::Headers)?;
        let gso_size = u32::from(self.gso_size);
        if self.header_len() - u32::from(self.outermost()) + gso_size > u32::from(u16::MAX) {
            return Err(GsoError::SegmentSize);
        }
        let segments = payload_len.div_ceil(gso_size);
        if self.gso_size < LEAST_SEGMENT && (self.is_tcp || segments > MOST_DATAGRAMS) {
            return Err(GsoError::TinySegments(self.gso_size));
        }
        Ok(SuperPacket {
            payload_len,
            ..self
        })
    }

    /// Returns where the first network header begins.
    fn outermost(&self) -> u16 {
        self.outer.map_or(self.network, |outer| outer.network)
    }

    /// Returns the number of packets that it is split into: at least one.
    pub fn segments(&self) -> u32 {
        self.payload_len.div_ceil(u32::from(self.gso_size)).max(1)
    }

    /// Returns the length of link, network and transport headers, which every segment repeats.
    pub fn header_len(&self) -> u32 {
        u32::from(self.header_len)
    }

    /// Returns the total length of all segments, link headers included.
    pub fn wire_len(&self) -> u32 {
        self.segments() * self.header_len() + self.payload_len
    }

    /// Returns the total length of all segments without their link headers.
    pub fn ip_len(&self) -> u32 {
        self.wire_len() - self.segments() * u32::from(self.outermost())
    }

    /// Returns the length of segment `index`, link header included.
    pub fn segment_len(&self, index: u32) -> u32 {
        self.header_len() + self.payload(index).len() as u32
    }

    /// Returns where in the frame the payload of segment `index` is.
    pub fn payload(&self, index: u32) -> std::ops::Range<usize> {
        let start = index * u32::from(self.gso_size);
        let end = (start + u32::from(self.gso_size)).min(self.payload_len);
        let header_len = usize::from(self.header_len);
        header_len + start as usize..header_len + end as usize
    }

    /// Opens the checksum of a super-packet of datagrams whose own checksums are complete, as the kernel
    /// merges them with `rx-gro-list`: writes the sum of the pseudo-header, from which a sender computes
    /// those of the segments. Returns the offload header to send it with; `None` if nothing is to be done.
    ///
    /// Since Linux 6.11, `virtio_net_hdr_to_skb` refuses such a super-packet as it is.
    pub fn open_checksum(&self, vnet: &VnetHeader, head: &mut [u8]) -> Option<VnetHeader> {
        if self.is_tcp || self.outer.is_some() || vnet.needs_checksum() {
            return None;
        }
        let (network, transport) = (usize::from(self.network), usize::from(self.transport));
        let length = u32::from(self.header_len - self.transport) + self.payload_len;
        let sum = pseudo_header(
            head.get(network..transport)?,
            self.is_v4,
            UDP,
            u16::try_from(length).ok()?,
        );
        let field = head.get_mut(transport + 6..transport + 8)?;
        field.copy_from_slice(&sum.folded().to_be_bytes());
        Some(VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            hdr_len: self.header_len,
            csum_start: self.transport,
            csum_offset: 6,
            ..*vnet
        })
    }

    /// Writes segment `index` to the start of `out`. Returns its length and the offload header to
    /// send it with; `None` when `out` or `frame` is too short.
    ///
    /// `index` is below [`SuperPacket::segments`]. Costs one copy of the payload, and one pass over
    /// it for [`Checksums::Complete`].
    pub fn write_segment(
        &self,
        index: u32,
        frame: Gather<'_>,
        checksums: Checksums,
        out: &mut [u8],
    ) -> Option<(u32, VnetHeader)> {
        let length = self.segment_len(index);
        let out = out.get_mut(..length as usize)?;
        let (headers, payload) = out.split_at_mut(usize::from(self.header_len));
        frame.copy(self.payload(index).start, payload)?;
        let vnet = self.write_headers(index, frame.head, headers)?;
        let vnet = match checksums {
            Checksums::Partial => vnet,
            Checksums::Complete => {
                complete_checksum(headers, payload, &vnet);
                VnetHeader::default()
            }
        };
        Some((length, vnet))
    }

    /// Writes the headers of segment `index` to the start of `out`; those of the super-packet are
    /// at the start of `head`. Returns the offload header to send the segment with; its checksum is
    /// left partial. Returns `None` if either buffer is too short.
    ///
    /// `index` is below [`SuperPacket::segments`].
    pub fn write_headers(&self, index: u32, head: &[u8], out: &mut [u8]) -> Option<VnetHeader> {
        let header_len = usize::from(self.header_len);
        let headers = out.get_mut(..header_len)?;
        headers.copy_from_slice(head.get(..header_len)?);

        let is_last = index + 1 == self.segments();
        let (link_and_network, transport) = headers.split_at_mut(usize::from(self.transport));
        let network = &mut link_and_network[usize::from(self.network)..];
        let transport_len = (transport.len() + self.payload(index).len()) as u16;
        rewrite_network(network, self.is_v4, index, transport_len);
        let csum_offset = if self.is_tcp {
            rewrite_tcp(transport, index, u32::from(self.gso_size), is_last);
            if index > 0 && self.is_cwr_once {
                transport[13] &= !CWR;
            }
            16
        } else {
            transport[4..6].copy_from_slice(&transport_len.to_be_bytes());
            6
        };
        let protocol = if self.is_tcp { TCP } else { UDP };
        let sum = pseudo_header(network, self.is_v4, protocol, transport_len);
        transport[csum_offset..csum_offset + 2].copy_from_slice(&sum.folded().to_be_bytes());
        if let Some(outer) = &self.outer {
            let inside = usize::from(self.transport);
            let places = (inside, inside + csum_offset);
            outer.rewrite(headers, index, self.segment_len(index), places);
        }
        Some(VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            hdr_len: self.header_len,
            csum_start: self.transport,
            csum_offset: csum_offset as u16,
            ..VnetHeader::default()
        })
    }
}

impl Gather<'_> {
    /// Copies `out.len()` bytes from offset `at`; `None` when there are fewer.
    fn copy(&self, at: usize, out: &mut [u8]) -> Option<()> {
        let from_head = self.head.len().saturating_sub(at).min(out.len());
        let (first, second) = out.split_at_mut(from_head);
        if from_head > 0 {
            first.copy_from_slice(&self.head[at..at + from_head]);
        }
        let tail_at = (at + from_head).saturating_sub(self.head.len());
        second.copy_from_slice(self.tail.get(tail_at..tail_at + second.len())?);
        Some(())
    }
}

/// Writes what differs in the network header of segment `index`.
pub(super) fn rewrite_network(network: &mut [u8], is_v4: bool, index: u32, transport_len: u16) {
    if !is_v4 {
        let extensions = (network.len() - 40) as u16;
        network[4..6].copy_from_slice(&(extensions + transport_len).to_be_bytes());
        return;
    }
    let total = network.len() as u16 + transport_len;
    network[2..4].copy_from_slice(&total.to_be_bytes());
    let id = u16::from_be_bytes([network[4], network[5]]).wrapping_add(index as u16);
    network[4..6].copy_from_slice(&id.to_be_bytes());
    network[10..12].fill(0);
    let mut sum = Sum::new();
    sum.add(network);
    network[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

fn rewrite_tcp(tcp: &mut [u8], index: u32, gso_size: u32, is_last: bool) {
    let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let sequence = first.wrapping_add(index.wrapping_mul(gso_size));
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_last {
        tcp[13] &= !(FIN | PSH);
    }
}

/// Linux sends no smaller segments over TCP (`net.ipv4.tcp_min_snd_mss`).
pub(super) const LEAST_SEGMENT: u16 = 48;
/// Datagrams may have any size, but Linux sends at most this many in one super-packet
/// (`UDP_MAX_SEGMENTS` of linux/udp.h).
const MOST_DATAGRAMS: u32 = 128;
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 128;
