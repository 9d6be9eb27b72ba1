//! Bytes behind the IP packet of a frame.
//!
//! The length in the header determines the end of a packet (RFC 791 section 3.1, RFC 8200 section 3). A
//! sender pads a packet to the shortest Ethernet frame (RFC 894), and every receiver ignores what
//! follows the packet. A frame may be much longer than that, though: it would take more time of a
//! link than its packet states. Linux cuts such bytes off where it accepts a packet (`ip_rcv_core`,
//! `ip6_rcv_core`), and so does [`trim`].

use super::view::{PPPOE, View, be16};
use super::vnet::VnetHeader;

/// Cuts off the bytes behind the IP packet that `view` found in a frame, except the padding to the
/// shortest Ethernet frame. Returns whether there were such bytes; `view.frame_len` is then the length
/// without them. `head` is the beginning of the frame with all headers.
///
/// A super-packet has no padding, because segmentation would make it payload. The length that PPPoE
/// states is reduced with the frame. A frame without an IP packet stays as it is, and so does one whose
/// packet does not state a length that covers its header.
///
/// ```
/// use sluice_wire::frame::{Link, VnetHeader, parse_head, trim};
/// // RFC 791: 20 bytes, protocol 59; and a byte behind the packet.
/// let mut bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xee];
/// let mut view = parse_head(&bytes, bytes.len(), Link::Ip);
/// assert!(trim(&mut bytes, &mut view, &VnetHeader::default()));
/// assert_eq!(view.frame_len, 20);
/// ```
pub fn trim(head: &mut [u8], view: &mut View, vnet: &VnetHeader) -> bool {
    let end = u32::from(view.network) + view.ip_len;
    // Without a link header, a frame has no shortest length.
    let shortest = if view.network == 0 || vnet.gso().is_some() {
        0
    } else {
        shortest_frame(view.vlans)
    };
    let length = end.max(shortest);
    if !view.is_ip() || view.frame_len <= length {
        return false;
    }
    shorten_pppoe(head, view);
    view.frame_len = length;
    true
}

/// Returns the length up to which an Ethernet frame may have padding.
pub(super) fn shortest_frame(vlans: u8) -> u32 {
    SHORTEST + TAG_LEN * u32::from(vlans)
}

/// RFC 2516 section 4: version and type, code, session, and the length of what follows, which is the
/// protocol of PPP and the packet.
fn shorten_pppoe(head: &mut [u8], view: &View) {
    let ethertype_at = 12 + TAG_LEN as usize * usize::from(view.vlans);
    if !view.is_encapsulated || be16(head, ethertype_at) != Ok(PPPOE) {
        return;
    }
    let length_at = ethertype_at + 6;
    let payload_at = length_at + 2;
    let payload_len = u32::from(view.network) - payload_at as u32 + view.ip_len;
    if let Some(field) = head.get_mut(length_at..payload_at) {
        let stated = u16::from_be_bytes([field[0], field[1]]);
        let length = u16::try_from(payload_len).map_or(stated, |length| length.min(stated));
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// IEEE 802.3: 64 bytes with the checksum of 4 bytes, which hosts do not see.
const SHORTEST: u32 = 60;
/// Some senders pad a packet before its tags are inserted.
const TAG_LEN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::super::{Fault, Link, parse, parse_head};
    use super::*;

    /// An IPv4 packet of 28 bytes: an empty datagram of UDP.
    const V4: [u8; 28] = [
        0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0,
    ];

    /// Returns the bytes of `frame` that remain.
    fn trimmed(frame: &[u8], link: Link, vnet: VnetHeader) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        let mut view = parse_head(&bytes, bytes.len(), link);
        let has_changed = trim(&mut bytes, &mut view, &vnet);
        assert_eq!(has_changed, (view.frame_len as usize) < frame.len());
        bytes.truncate(view.frame_len as usize);
        // What remains has the same packet, and nothing to cut off.
        let again = parse_head(&bytes, bytes.len(), link);
        assert_eq!(again, view);
        bytes
    }

    #[test]
    fn a_frame_ends_with_its_packet_or_as_the_shortest_frame() {
        let none = VnetHeader::default();
        let ethernet = |tags: usize, packet: &[u8], more: usize| {
            let tags = [0x81, 0, 0, 5].repeat(tags);
            [&[2; 12][..], &tags, &[8, 0], packet, &vec![0xee; more]].concat()
        };
        for (tags, more, length) in [
            // 14 + 28 bytes, 60 with padding, and 4 more for each tag.
            (0, 0, 42),
            (0, 18, 60),
            (0, 19, 60),
            (0, 1472, 60),
            (1, 1472, 64),
            (2, 1472, 68),
            (2, 10, 60),
        ] {
            let frame = ethernet(tags, &V4, more);
            assert_eq!(trimmed(&frame, Link::Ethernet, none), frame[..length]);
        }
        // A packet of 100 bytes.
        let mut long = V4.to_vec();
        (long[3], long[25]) = (100, 80);
        long.resize(100, 7);
        let frame = ethernet(0, &long, 5);
        assert_eq!(trimmed(&frame, Link::Ethernet, none), frame[..114]);
        // Without a link header, and in a super-packet, nothing is padding.
        let bare = [&V4[..], &[0xee; 4]].concat();
        assert_eq!(trimmed(&bare, Link::Ip, none), V4);
        let vnet = VnetHeader {
            gso_type: 5,
            gso_size: 1,
            ..none
        };
        let frame = ethernet(0, &V4, 18);
        assert_eq!(trimmed(&frame, Link::Ethernet, vnet), frame[..42]);
    }

    #[test]
    fn ipv6_ends_with_its_payload_unless_the_header_cannot_state_it() {
        let none = VnetHeader::default();
        // RFC 8200 section 4.7: nothing follows the header of 40 bytes.
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        v6.extend([0xfd; 32]);
        let end = v6.len();
        v6.resize(1500, 0xee);
        assert_eq!(trimmed(&v6, Link::Ip, none), v6[..end]);
        // A super-packet of 70 000 bytes has length 0, with a hop-by-hop header or without one.
        for next in [0, 6] {
            v6[6] = next;
            v6.resize(70_000, 0);
            assert_eq!(trimmed(&v6, Link::Ip, none).len(), 70_000);
            let view = parse_head(&v6[..200], v6.len(), Link::Ip);
            assert!(view.is_jumbo);
            assert_eq!(view.ip_len, 70_000);
        }
    }

    #[test]
    fn what_states_no_length_keeps_its_bytes() {
        let none = VnetHeader::default();
        let mut short = [&V4[..], &[0; 100]].concat();
        short[3] = 19;
        let view = parse_head(&short, short.len(), Link::Ip);
        assert_eq!(view.fault, Some(Fault::LengthTooShort(19)));
        assert_eq!(trimmed(&short, Link::Ip, none), short);
        let arp = [&[2_u8; 12][..], &[8, 6], &[0; 200]].concat();
        assert_eq!(trimmed(&arp, Link::Ethernet, none), arp);
    }

    #[test]
    fn pppoe_states_the_length_that_is_left() {
        let none = VnetHeader::default();
        // The protocol of PPP in two bytes, or in one (RFC 1661 section 6.5).
        for protocol in [&[0, 0x21][..], &[0x21]] {
            let frame = |stated: u16, more: usize| {
                let [high, low] = stated.to_be_bytes();
                let header = [0x88, 0x64, 0x11, 0, 0, 1, high, low];
                let trailer = vec![0xee; more];
                [&[2; 12][..], &header, protocol, &V4, &trailer].concat()
            };
            let own = (protocol.len() + V4.len()) as u16;
            // Padding inside of PPP, and behind PPPoE.
            for stated in [own + 1400, own] {
                let left = trimmed(&frame(stated, 1400), Link::Ethernet, none);
                assert_eq!(left, frame(own, 1400)[..60]);
                assert_eq!(parse(&left).fault, None);
            }
            // A length that does not cover the packet does not grow.
            let left = trimmed(&frame(9, 1400), Link::Ethernet, none);
            assert_eq!(left, frame(9, 1400)[..60]);
        }
    }
}
