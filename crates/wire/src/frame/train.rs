//! Trains: consecutive segments of one TCP flow that can leave as one super-packet.
//!
//! This is the exact inverse of [`SuperPacket`](super::SuperPacket): segmentation restores the same
//! bytes. Segments therefore join only if they differ in nothing but what segmentation writes:
//! IPv4's total length, identification (one more each) and checksum, IPv6's payload length, TCP's
//! sequence number (advanced by the payload before it) and checksum, PSH (on the last only). All
//! have one size; only the last may be shorter. A segment with a wrong checksum does not join:
//! segmentation computes new checksums, which would hide the damage.

use super::checksum::{Sum, pseudo_header};
use super::gso::LEAST_SEGMENT;
use super::view::{IPV4, TCP, Transport, View};
use super::vnet::VnetHeader;

/// A frame whose headers allow it to be part of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    network: u16,
    transport: u16,
    header_len: u16,
    payload_len: u16,
    is_v4: bool,
    is_pushed: bool,
    sequence: u32,
    id: u16,
}

/// Segments that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    first: Segment,
    payload_len: u32,
    segments: u16,
    /// No segment may follow: the last one had PSH set, or was shorter.
    is_complete: bool,
    is_pushed: bool,
}

impl Segment {
    /// Reads `frame`, which is complete. Returns `None` unless it is a TCP segment with payload and
    /// carries only data and an acknowledgement: no SYN, FIN, RST, URG or CWR, no IP options.
    pub fn of(view: &View, vnet: &VnetHeader, frame: &[u8]) -> Option<Segment> {
        let Transport::Tcp {
            flags, header_len, ..
        } = view.transport
        else {
            return None;
        };
        let is_v4 = view.ethertype == IPV4;
        let network_len = if is_v4 { 20 } else { 40 };
        let is_plain = view.fault.is_none()
            && view.fragment.is_none()
            && !view.is_routed
            && !view.is_jumbo
            // Not every kernel finds the headers behind them.
            && view.vlans == 0
            && !view.is_encapsulated
            && vnet.gso().is_none()
            && view.transport_at == view.network + network_len
            && flags & !(PSH | ECE) == ACK;
        // Padding after the packet is refused too: no segment would have it.
        if !is_plain || frame.len() != view.network as usize + view.ip_len as usize {
            return None;
        }
        let (network, transport) = (usize::from(view.network), usize::from(view.transport_at));
        let header_len = view.transport_at + u16::from(header_len);
        let payload_len = u16::try_from(frame.len()).ok()?.checked_sub(header_len)?;
        if payload_len == 0 {
            return None;
        }
        let sequence = frame.get(transport + 4..transport + 8)?.first_chunk()?;
        let id = frame.get(network + 4..network + 6)?.first_chunk()?;
        Some(Segment {
            network: view.network,
            transport: view.transport_at,
            header_len,
            payload_len,
            is_v4,
            is_pushed: flags & PSH != 0,
            sequence: u32::from_be_bytes(*sequence),
            id: u16::from_be_bytes(*id),
        })
    }

    /// Returns the length of the headers, which all segments of a train share.
    pub fn header_len(&self) -> usize {
        usize::from(self.header_len)
    }

    /// Returns whether the IPv4 and TCP checksums are correct, or TCP's is correctly left partial.
    /// A checksum that the kernel has verified is not computed again.
    pub fn is_intact(&self, vnet: &VnetHeader, frame: &[u8]) -> bool {
        let (headers, transport) = frame.split_at(usize::from(self.transport));
        let network = &headers[usize::from(self.network)..];
        // A receiver accepts all ones as well as zero, but segmentation would not write them again.
        if self.is_v4 {
            let mut sum = Sum::new();
            sum.add(network);
            if sum.folded() != u16::MAX || network[10..12] == ALL_ONES {
                return false;
            }
        }
        let mut sum = pseudo_header(network, self.is_v4, TCP, transport.len() as u16);
        if vnet.needs_checksum() {
            return vnet.csum_start == self.transport
                && vnet.csum_offset == CHECKSUM as u16
                && transport[CHECKSUM..CHECKSUM + 2] == sum.folded().to_be_bytes();
        }
        if vnet.flags & VnetHeader::DATA_VALID != 0 {
            return true;
        }
        sum.add(transport);
        sum.folded() == u16::MAX && transport[CHECKSUM..CHECKSUM + 2] != ALL_ONES
    }
}

impl Train {
    /// Creates a train of one segment.
    pub const fn new(first: Segment) -> Train {
        Train {
            first,
            payload_len: first.payload_len as u32,
            segments: 1,
            is_complete: first.is_pushed,
            is_pushed: first.is_pushed,
        }
    }

    /// Returns its first segment.
    pub const fn first(&self) -> &Segment {
        &self.first
    }

    /// Returns the number of segments.
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Appends `next`, with the headers in `frame`, to a train whose first frame is `first_frame`.
    /// Returns `false` if it does not fit.
    pub fn join(&mut self, first_frame: &[u8], next: &Segment, frame: &[u8]) -> bool {
        let first = &self.first;
        let total = u32::from(first.header_len) + self.payload_len + u32::from(next.payload_len);
        let fits = !self.is_complete
            && total <= MOST_LEN
            // Splitting refuses a super-packet of smaller segments.
            && first.payload_len >= LEAST_SEGMENT
            && (first.network, first.transport, first.header_len)
                == (next.network, next.transport, next.header_len)
            && next.payload_len <= first.payload_len
            && next.sequence == first.sequence.wrapping_add(self.payload_len)
            && (!first.is_v4 || next.id == first.id.wrapping_add(self.segments))
            && has_equal_headers(first, first_frame, frame);
        if fits {
            self.payload_len += u32::from(next.payload_len);
            self.segments += 1;
            self.is_pushed = next.is_pushed;
            self.is_complete = next.is_pushed || next.payload_len < first.payload_len;
        }
        fits
    }

    /// Turns the headers at the start of `frame`, those of the first segment, into the headers of
    /// the super-packet. Returns the offload header to send it with.
    pub fn write_headers(&self, frame: &mut [u8]) -> VnetHeader {
        let first = &self.first;
        let transport_at = usize::from(first.transport);
        let tcp_len = u32::from(first.header_len - first.transport) + self.payload_len;
        // At most `MOST_LEN`.
        let tcp_len = tcp_len as u16;
        let (headers, transport) = frame.split_at_mut(transport_at);
        let network = &mut headers[usize::from(first.network)..];
        if first.is_v4 {
            let total = network.len() as u16 + tcp_len;
            network[2..4].copy_from_slice(&total.to_be_bytes());
            network[10..12].fill(0);
            let mut sum = Sum::new();
            sum.add(network);
            network[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        } else {
            network[4..6].copy_from_slice(&tcp_len.to_be_bytes());
        }
        let sum = pseudo_header(network, first.is_v4, TCP, tcp_len);
        transport[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.folded().to_be_bytes());
        transport[FLAGS] = transport[FLAGS] & !PSH | if self.is_pushed { PSH } else { 0 };
        VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: if first.is_v4 { 1 } else { 4 },
            hdr_len: first.header_len,
            gso_size: first.payload_len,
            csum_start: first.transport,
            csum_offset: CHECKSUM as u16,
        }
    }
}

/// Returns whether two headers of the same shape differ only in what segmentation writes.
fn has_equal_headers(shape: &Segment, one: &[u8], other: &[u8]) -> bool {
    let network = usize::from(shape.network);
    let transport = usize::from(shape.transport);
    let equal = |range: std::ops::Range<usize>| one[range.clone()] == other[range];
    let is_same_network = if shape.is_v4 {
        // Between them: total length and identification, checksum.
        equal(0..network + 2) && equal(network + 6..network + 10) && equal(network + 12..transport)
    } else {
        equal(0..network + 4) && equal(network + 6..transport)
    };
    is_same_network
        && equal(transport..transport + 4)
        && equal(transport + 8..transport + FLAGS)
        && one[transport + FLAGS] & !PSH == other[transport + FLAGS] & !PSH
        && equal(transport + 14..transport + CHECKSUM)
        && equal(transport + 18..shape.header_len())
}

const ALL_ONES: [u8; 2] = [0xff; 2];
/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;
/// Offset of the checksum in a TCP header.
const CHECKSUM: usize = 16;
const PSH: u8 = 8;
const ACK: u8 = 16;
const ECE: u8 = 64;
/// The longest IP packet; the link header before it does not matter.
const MOST_LEN: u32 = 65535;
