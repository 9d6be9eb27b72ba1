//! What follows the labels of MPLS.
//!
//! No field states it (RFC 3032 section 2.1). An IP packet begins with its version, 4 or 6, and the
//! control word of a pseudowire with zero (RFC 4385). But a pseudowire may have no control word (RFC
//! 4448); then these four bits belong to the Ethernet address of the destination and have any value
//! (RFC 4928). So what follows is an IP packet only if everything that its header states about
//! itself is right: in IPv4 the lengths and the checksum, in IPv6 the length.
//!
//! What remains: an Ethernet frame is taken for IPv6 if its destination begins with 6 and the last two
//! bytes of that address are by chance the length of the frame minus 40; and for IPv4 in one of 65 536
//! cases, if the address begins with 45 to 4f.

use super::checksum::Sum;
use super::view::{IPV4, IPV6, LONGEST_IPV6};

/// Returns the type of the IP packet with which `bytes` begin, if there is one. `room` is the number of
/// bytes of the frame behind the labels, and `is_padded` says that some of them may be padding.
pub(super) fn packet_type(bytes: &[u8], room: u32, is_padded: bool) -> Option<u16> {
    match bytes.first()? >> 4 {
        4 if is_v4(bytes, room) => Some(IPV4),
        6 if is_v6(bytes, room, is_padded) => Some(IPV6),
        _ => None,
    }
}

/// RFC 791 section 3.1.
fn is_v4(bytes: &[u8], room: u32) -> bool {
    let header_len = usize::from(bytes[0] & 0x0f) * 4;
    let Some(header) = bytes.get(..header_len.max(20)) else {
        return false;
    };
    let length = u32::from(u16::from_be_bytes([header[2], header[3]]));
    let mut sum = Sum::new();
    sum.add(header);
    header.len() == header_len
        && (header_len as u32..=room).contains(&length)
        && sum.folded() == 0xffff
}

/// RFC 8200 section 3. There is no checksum, so the packet must fill its room.
fn is_v6(bytes: &[u8], room: u32, is_padded: bool) -> bool {
    let Some(header) = bytes.first_chunk::<40>() else {
        return false;
    };
    let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
    let length = 40 + payload;
    let is_jumbo = payload == 0 && room > LONGEST_IPV6;
    length == room || is_jumbo || (is_padded && length < room)
}

#[cfg(test)]
mod tests {
    use super::super::{Fault, View, parse};
    use super::*;

    /// RFC 791: 24 bytes with an option, protocol 253 (RFC 3692), and a payload of 40 bytes. The words of
    /// the header without the checksum add up to 0x9d4b, so that is 0x62b4.
    fn v4() -> Vec<u8> {
        let mut packet = vec![0x46, 2, 0, 64, 0, 7, 0, 0, 64, 253, 0x62, 0xb4];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
        packet.resize(64, 0x5a);
        packet
    }

    /// RFC 8200: a payload of 64 bytes of protocol 253.
    fn v6() -> Vec<u8> {
        let mut packet = vec![0x60, 0x20, 0, 0, 0, 64, 253, 64];
        packet.extend([0xfd; 32]);
        packet.resize(104, 0x5a);
        packet
    }

    /// Returns the view of a frame with two labels in front of `bytes`.
    fn behind_labels(bytes: &[u8]) -> View {
        let labels = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
        parse(&[&[2; 12][..], &labels, bytes].concat())
    }

    #[test]
    fn a_packet_is_found_and_anything_else_is_not_ip() {
        let with = |mut packet: Vec<u8>, changes: &[(usize, u8)]| {
            changes.iter().for_each(|(at, byte)| packet[*at] = *byte);
            packet
        };
        let longer = |packet: Vec<u8>| [&packet[..], &[0]].concat();
        for (name, bytes, is_ip) in [
            ("IPv4", v4(), true),
            ("IPv4 with a byte behind it", longer(v4()), true),
            ("IHL 4", with(v4(), &[(0, 0x44)]), false),
            ("IHL 15", with(v4(), &[(0, 0x4f)]), false),
            // The checksum falls by what the length gains.
            ("63 bytes", with(v4(), &[(3, 63), (11, 0xb5)]), true),
            ("65 bytes", with(v4(), &[(3, 65), (11, 0xb3)]), false),
            ("23 bytes", with(v4(), &[(3, 23), (11, 0xdd)]), false),
            ("wrong checksum", with(v4(), &[(11, 0xb5)]), false),
            ("half a header", v4()[..12].to_vec(), false),
            ("IPv6", v6(), true),
            ("IPv6 with a byte behind it", longer(v6()), false),
            ("IPv6 beyond the frame", with(v6(), &[(5, 65)]), false),
            ("half of IPv6", v6()[..39].to_vec(), false),
            ("a control word", vec![0; 64], false),
        ] {
            let view = behind_labels(&bytes);
            assert_eq!(view.is_ip(), is_ip, "{name}");
            assert_eq!(view.is_encapsulated, is_ip, "{name}");
            assert_eq!(view.ethertype == 0x8847, !is_ip, "{name}");
            assert_eq!(view.fault, None, "{name}");
        }
        assert_eq!(behind_labels(&[]).fault, Some(Fault::Truncated));
        // A packet of 40 bytes behind one label, padded to 12 + 6 + 42 = 60 bytes. A longer frame has no
        // padding.
        let short = [&[2; 12][..], &[0x88, 0x47, 0, 2, 1, 64], &v6()[..42]].concat();
        let mut short = with(short, &[(18 + 5, 0)]);
        assert_eq!(short.len(), 60);
        assert!(parse(&short).is_ip());
        short.push(0);
        assert!(!parse(&short).is_ip());
    }

    /// Destinations that begin like IP: 40:a6:b7 belongs to Intel, 44:38:39 to Cumulus Networks.
    #[test]
    fn an_ethernet_frame_without_a_control_word_is_not_ip() {
        for destination in [
            [0x40, 0xa6, 0xb7, 0, 0, 1],
            [0x44, 0x38, 0x39, 0, 0, 1],
            [0x45, 0x02, 0, 60, 0, 1],
            [0x4f, 0x02, 0, 60, 0, 1],
            [0x60, 0x20, 0, 0, 0, 20],
        ] {
            let frame = [&destination[..], &[2; 6], &[8, 0], &v4()].concat();
            let view = behind_labels(&frame);
            assert_eq!((view.is_ip(), view.fault), (false, None), "{destination:?}");
            assert_eq!(view.ethertype, 0x8847);
        }
    }
}
