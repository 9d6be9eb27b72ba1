//! The first header of a QUIC datagram, as far as it is visible on the path.
//!
//! References: RFC 9000 section 17.2 (long header), 17.3.1 (short header), 17.4 (spin bit) and 14.1
//! (size of the first datagrams), RFC 9369 section 3 (version 2).

use super::view::{Transport, View};

/// The header that a QUIC datagram starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicHeader {
    /// A packet of the handshake, of version 1 or 2.
    Long {
        /// Whether it is an Initial packet in a datagram of at least 1200 bytes, with which a client
        /// begins.
        begins: bool,
    },
    /// A packet after the handshake.
    Short {
        /// The latency spin bit.
        spin: bool,
    },
}

/// Returns the header of a UDP datagram that can be QUIC. Packets with a short header look like a
/// quarter of all random bytes: whether a flow is QUIC is known from its port, or from a long header
/// before.
pub fn quic(view: &View, head: &[u8]) -> Option<QuicHeader> {
    let Transport::Udp { .. } = view.transport else {
        return None;
    };
    if view.fault.is_some() || view.fragment.is_some() {
        return None;
    }
    let at = usize::from(view.transport_at) + UDP_HEADER;
    let length = (view.ip_len as usize + usize::from(view.network)).checked_sub(at)?;
    let (first, rest) = head.get(at..)?.split_first()?;
    match first & (LONG | FIXED) {
        FIXED if length >= LEAST_SHORT => Some(QuicHeader::Short {
            spin: first & SPIN != 0,
        }),
        both if both == LONG | FIXED => {
            let version = u32::from_be_bytes(*rest.first_chunk()?);
            let (_, initial) = VERSIONS.iter().find(|(number, _)| *number == version)?;
            let connection_id = usize::from(*rest.get(4)?);
            (connection_id <= LONGEST_ID).then_some(QuicHeader::Long {
                begins: first & TYPE == *initial && length >= LEAST_FIRST,
            })
        }
        _ => None,
    }
}

const UDP_HEADER: usize = 8;
const LONG: u8 = 0x80;
const FIXED: u8 = 0x40;
const SPIN: u8 = 0x20;
const TYPE: u8 = 0x30;
/// Versions, and the type of an Initial packet in each.
const VERSIONS: [(u32, u8); 2] = [(1, 0x00), (0x6b33_43cf, 0x10)];
/// The longest connection ID of these versions.
const LONGEST_ID: usize = 20;
/// The smallest datagram with which a client begins.
const LEAST_FIRST: usize = 1200;
/// The smallest packet with a short header: the sample of header protection is the 16 bytes from the
/// fifth byte behind the connection ID on, which may be empty (RFC 9001 section 5.4.2).
const LEAST_SHORT: usize = 1 + 4 + 16;

#[cfg(test)]
mod tests {
    use super::super::{Link, parse_head};
    use super::*;

    /// An IPv4 packet of a UDP datagram with this payload, padded to `length`.
    fn read(payload: &[u8], length: usize) -> Option<QuicHeader> {
        let total = (28 + length) as u16;
        let mut bytes = vec![0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x9c, 0x40, 0x01, 0xbb]);
        bytes.extend((8 + length as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes.resize(usize::from(total), 0xaa);
        quic(&parse_head(&bytes, bytes.len(), Link::Ip), &bytes)
    }

    #[test]
    fn the_spin_bit_is_the_third_of_a_short_header() {
        // RFC 9000 figure 19: form 0, fixed 1, spin.
        let short = |spin| Some(QuicHeader::Short { spin });
        assert_eq!(read(&[0b0100_0000], 21), short(false));
        assert_eq!(read(&[0b0110_0011], 21), short(true));
        // Too short for header protection, or without the fixed bit.
        assert_eq!(read(&[0b0100_0000], 20), None);
        assert_eq!(read(&[0b0010_0000], 100), None);
    }

    #[test]
    fn an_initial_packet_begins_a_connection() {
        let long = |begins| Some(QuicHeader::Long { begins });
        let (v1, v2) = ([0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf]);
        let packet = |first: u8, version: [u8; 4], id: u8, length| {
            let mut bytes = vec![first];
            bytes.extend(version);
            bytes.push(id);
            read(&bytes, length)
        };
        assert_eq!(packet(0xc3, v1, 8, 1200), long(true));
        // A client pads its first datagrams to 1200 bytes.
        assert_eq!(packet(0xc3, v1, 8, 1199), long(false));
        // Handshake packet; the types of version 2 are others.
        assert_eq!(packet(0xe0, v1, 8, 1200), long(false));
        assert_eq!(packet(0xd0, v2, 8, 1200), long(true));
        assert_eq!(packet(0xc0, v2, 8, 1200), long(false));
        // An unknown version, an identifier of more than 20 bytes, RTP (version 2, RFC 3550).
        assert_eq!(packet(0xc0, [0; 4], 8, 1200), None);
        assert_eq!(packet(0xc0, v1, 21, 1200), None);
        assert_eq!(packet(0x80, v1, 8, 1200), None);
    }

    #[test]
    fn other_protocols_and_cut_datagrams_have_none() {
        assert_eq!(read(&[], 0), None);
        assert_eq!(read(&[0xc0, 0, 0], 3), None);
        let mut tcp = vec![0x45, 0, 0, 61, 0, 0, 0x40, 0, 64, 6, 0, 0];
        tcp.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        tcp.extend([0x40; 41]);
        assert_eq!(quic(&parse_head(&tcp, tcp.len(), Link::Ip), &tcp), None);
    }
}
