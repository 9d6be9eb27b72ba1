//! Flow identifiers, and the masks that create dynamic pipes and queues from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::headers::Headers;

/// The fields by which dummynet distinguishes flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// Source address, most significant word first. An IPv4 address occupies the first word.
    pub src: [u32; 4],
    /// Destination address.
    pub dst: [u32; 4],
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Flow label of IPv6.
    pub flow_label: u32,
    /// The flowset, if the mask includes `queue`.
    pub extra: u32,
    /// Protocol.
    pub proto: u8,
    /// Address family; masks keep it.
    pub is_v6: bool,
}

/// The bits of a [`FlowId`] that distinguish flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Bits of the protocol.
    pub proto: u8,
    /// Bits of an IPv4 source address.
    pub src: u32,
    /// Bits of an IPv4 destination address.
    pub dst: u32,
    /// Bits of the source port.
    pub src_port: u16,
    /// Bits of the destination port.
    pub dst_port: u16,
    /// Prefix length of an IPv6 source address.
    pub src_v6_len: u8,
    /// Prefix length of an IPv6 destination address.
    pub dst_v6_len: u8,
    /// Bits of the flow label.
    pub flow_label: u32,
    /// The flowset.
    pub queue: bool,
}

/// The bits of a flow label.
pub const FLOW_LABEL_BITS: u32 = 0xf_ffff;

fn address_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [v4.to_bits(), 0, 0, 0],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// Returns the mask of the first `len` bits of an IPv6 address.
pub(crate) const fn v6_mask(len: u8) -> u128 {
    if len == 0 {
        0
    } else {
        u128::MAX << (128 - len as u32)
    }
}

impl FlowId {
    /// Returns the flow of a packet that enters flowset `extra`.
    pub fn of(headers: &Headers, extra: u32) -> Self {
        // Later fragments and other protocols have no ports.
        let has_ports = headers.has_ports();
        FlowId {
            src: address_words(headers.src),
            dst: address_words(headers.dst),
            src_port: if has_ports { headers.src_port } else { 0 },
            dst_port: if has_ports { headers.dst_port } else { 0 },
            flow_label: headers.flow_label,
            extra,
            // One for all fragments of a packet.
            proto: headers.fragment.begins_with.unwrap_or(headers.proto),
            is_v6: headers.src.is_ipv6(),
        }
    }

    /// Applies `mask`.
    #[must_use]
    pub fn masked(&self, mask: &Mask) -> Self {
        let and = |address: [u32; 4], v4: u32, v6_len: u8| {
            if self.is_v6 {
                let bits = v6_mask(v6_len);
                let words = [96, 64, 32, 0].map(|shift| (bits >> shift) as u32);
                std::array::from_fn(|i| address[i] & words[i])
            } else {
                [address[0] & v4, 0, 0, 0]
            }
        };
        FlowId {
            src: and(self.src, mask.src, mask.src_v6_len),
            dst: and(self.dst, mask.dst, mask.dst_v6_len),
            src_port: self.src_port & mask.src_port,
            dst_port: self.dst_port & mask.dst_port,
            flow_label: if self.is_v6 {
                self.flow_label & mask.flow_label
            } else {
                0
            },
            extra: if mask.queue { self.extra } else { 0 },
            proto: self.proto & mask.proto,
            is_v6: self.is_v6,
        }
    }

    /// Returns one end's address.
    pub fn address(&self, words: [u32; 4]) -> IpAddr {
        if self.is_v6 {
            let bits = words
                .iter()
                .fold(0u128, |bits, w| bits << 32 | u128::from(*w));
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(words[0]))
        }
    }

    /// dummynet's own hash, for the bucket column of `show` only. The tables use a keyed hash.
    pub fn bucket_hash(&self) -> u32 {
        let ports = (u32::from(self.dst_port) << 1) ^ u32::from(self.src_port);
        let ends = if self.is_v6 {
            let fold = |words: [u32; 4], f: fn(u32) -> u32| words.iter().fold(0, |h, w| h ^ f(*w));
            fold(self.dst, |d| d ^ (d >> 15))
                ^ fold(self.src, |s| (s << 1) ^ (s >> 16))
                ^ self.flow_label
        } else {
            let (d, s) = (self.dst[0], self.src[0]);
            d ^ (d >> 15) ^ (s << 1) ^ (s >> 16)
        };
        ends ^ self.extra ^ ports ^ u32::from(self.proto)
    }
}

impl Mask {
    /// All bits except the flowset.
    pub const ALL: Mask = Mask {
        proto: u8::MAX,
        src: u32::MAX,
        dst: u32::MAX,
        src_port: u16::MAX,
        dst_port: u16::MAX,
        src_v6_len: 128,
        dst_v6_len: 128,
        flow_label: FLOW_LABEL_BITS,
        queue: false,
    };

    /// Whether the mask distinguishes no flows.
    pub fn is_empty(&self) -> bool {
        *self == Mask::default()
    }

    /// Returns the bits of both masks.
    #[must_use]
    pub fn or(&self, other: &Mask) -> Mask {
        Mask {
            proto: self.proto | other.proto,
            src: self.src | other.src,
            dst: self.dst | other.dst,
            src_port: self.src_port | other.src_port,
            dst_port: self.dst_port | other.dst_port,
            src_v6_len: self.src_v6_len.max(other.src_v6_len),
            dst_v6_len: self.dst_v6_len.max(other.dst_v6_len),
            flow_label: self.flow_label | other.flow_label,
            queue: self.queue | other.queue,
        }
    }

    /// Whether the mask has IPv6 fields only.
    pub const fn is_v6_only(&self) -> bool {
        let names_v6 = self.src_v6_len > 0 || self.dst_v6_len > 0 || self.flow_label > 0;
        names_v6 && self.src == 0 && self.dst == 0
    }
}

/// Returns the number of buckets that dummynet allocates for a configured number: a power of two.
pub(crate) fn real_buckets(configured: u32) -> u32 {
    let mut size = 1u32;
    while size < 65536 && size * 4 / 3 < configured {
        size *= 2;
    }
    size
}

impl FlowId {
    /// Returns the identifier as words, for hashing.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 6] {
        let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        [
            pair(self.src[0], self.src[1]),
            pair(self.src[2], self.src[3]),
            pair(self.dst[0], self.dst[1]),
            pair(self.dst[2], self.dst[3]),
            pair(ports, self.flow_label),
            pair(
                self.extra,
                u32::from(self.proto) << 1 | u32::from(self.is_v6),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Direction, TCP, UDP};

    #[test]
    fn an_ipv4_mask_lets_all_ipv6_traffic_share_one_flow() {
        // Reference 1.5: fields of the other family mask to 0, the family itself is kept.
        let mask = Mask {
            src: u32::MAX,
            ..Mask::default()
        };
        let v6 = |last| {
            let src = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
            let headers = Headers::new(Direction::In, TCP, src, src);
            FlowId::of(&headers, 0).masked(&mask)
        };
        assert_eq!(v6(1), v6(2));
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let other = FlowId::of(&Headers::new(Direction::In, TCP, v4, v4), 0).masked(&mask);
        assert_ne!(v6(1), other);
        assert_eq!(other.src[0], 0x0a00_0001);
        assert_eq!(other.dst[0], 0);
    }

    #[test]
    fn fragments_of_a_packet_have_one_protocol() {
        // UDP behind the destination options of IPv6 (60), which begin the fragmented part.
        let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let fragment = |proto, offset| {
            let mut headers = Headers::new(Direction::In, proto, address, address);
            headers.fragment.offset = offset;
            headers.fragment.begins_with = Some(60);
            FlowId::of(&headers, 0)
        };
        assert_eq!(fragment(UDP, 0), fragment(60, 1232));
        assert_eq!(fragment(UDP, 0).proto, 60);
    }

    #[test]
    fn the_bucket_hash_is_dummynets() {
        // Reference 3.4 by hand for 10.0.0.1:5 -> 0.0.0.0:0 tcp: s<<1 ^ s>>16 ^ sport ^ proto
        // = 0x14000002 ^ 0x0a00 ^ 5 ^ 6 = 0x14000a01.
        let flow = FlowId {
            src: [0x0a00_0001, 0, 0, 0],
            src_port: 5,
            proto: 6,
            ..FlowId::default()
        };
        assert_eq!(flow.bucket_hash(), 0x1400_0a01);
    }

    #[test]
    fn buckets_become_the_nearest_power_of_two() {
        assert_eq!(
            [1, 64, 85, 86, 100, 256, 65536].map(real_buckets),
            [1, 64, 64, 128, 128, 256, 65536]
        );
    }
}
