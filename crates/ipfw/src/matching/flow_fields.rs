//! The fields that define a flow for the rules.

use std::net::IpAddr;

use crate::headers::{Direction, Headers, InterfaceId};

/// The fields of a packet that the flow cache distinguishes. Conditions that are tested once per
/// flow see these and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowFields {
    pub direction: Direction,
    pub recv: Option<InterfaceId>,
    pub xmit: Option<InterfaceId>,
    pub is_layer2: bool,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub proto: u8,
    /// Source and destination, if the packet has ports.
    pub ports: Option<(u16, u16)>,
    /// Below 64.
    pub dscp: u8,
    pub flow_label: u32,
}

impl FlowFields {
    #[inline]
    pub fn of(headers: &Headers) -> Self {
        FlowFields {
            direction: headers.direction,
            recv: headers.recv,
            xmit: headers.xmit,
            is_layer2: headers.is_layer2,
            src: headers.src,
            dst: headers.dst,
            proto: headers.proto,
            ports: headers
                .has_ports()
                .then_some((headers.src_port, headers.dst_port)),
            dscp: headers.dscp(),
            flow_label: headers.flow_label,
        }
    }

    /// The interface where the packet leaves; only known in the outgoing pass.
    pub fn leaving(&self) -> Option<InterfaceId> {
        self.xmit.filter(|_| self.direction == Direction::Out)
    }

    /// The interface of this pass.
    pub const fn via(&self) -> Option<InterfaceId> {
        match self.direction {
            Direction::In => self.recv,
            Direction::Out => self.xmit,
        }
    }
}

/// The key of the cache of programs: [`FlowFields`], packed for comparing and hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramKey(pub [u64; 6]);

impl ProgramKey {
    #[inline]
    pub fn of(headers: &Headers) -> Self {
        Self::pack(&FlowFields::of(headers))
    }

    /// Packs every field: a field that is left out here is an unused variable and does not compile.
    #[inline]
    #[deny(unused_variables)]
    fn pack(fields: &FlowFields) -> Self {
        let FlowFields {
            direction,
            recv,
            xmit,
            is_layer2,
            src,
            dst,
            proto,
            ports,
            dscp,
            flow_label,
        } = *fields;
        let words = |address: IpAddr| match address {
            IpAddr::V4(v4) => [0, u64::from(v4.to_bits())],
            IpAddr::V6(v6) => [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64],
        };
        let interface = |id: Option<InterfaceId>| id.map_or(0, |id| u64::from(id.0) + 1);
        let bit = |holds: bool| u64::from(holds);
        let [src_high, src_low] = words(src);
        let [dst_high, dst_low] = words(dst);
        let (src_port, dst_port) = ports.unwrap_or((0, 0));
        ProgramKey([
            src_high,
            src_low,
            dst_high,
            dst_low,
            u64::from(src_port) << 48 | u64::from(dst_port) << 32 | u64::from(flow_label),
            interface(recv) << 40
                | interface(xmit) << 23
                | u64::from(proto) << 15
                | u64::from(dscp) << 9
                | bit(dst.is_ipv6()) << 4
                | bit(ports.is_some()) << 3
                | bit(src.is_ipv6()) << 2
                | bit(is_layer2) << 1
                | bit(direction == Direction::Out),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// The fields that a key was packed from.
    fn unpack(ProgramKey([s1, s0, d1, d0, e, f]): ProgramKey) -> FlowFields {
        let address = |is_v6: bool, high: u64, low: u64| {
            if is_v6 {
                IpAddr::V6(Ipv6Addr::from_bits(
                    u128::from(high) << 64 | u128::from(low),
                ))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(low as u32))
            }
        };
        let interface = |bits: u64| match bits & 0x1_ffff {
            0 => None,
            id => Some(InterfaceId((id - 1) as u16)),
        };
        let bit = |n: u32| f >> n & 1 == 1;
        FlowFields {
            direction: if bit(0) {
                Direction::Out
            } else {
                Direction::In
            },
            recv: interface(f >> 40),
            xmit: interface(f >> 23),
            is_layer2: bit(1),
            src: address(bit(2), s1, s0),
            dst: address(bit(4), d1, d0),
            proto: (f >> 15) as u8,
            ports: bit(3).then_some(((e >> 48) as u16, (e >> 32) as u16)),
            dscp: (f >> 9) as u8 & 0x3f,
            flow_label: e as u32,
        }
    }

    fn addresses() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
            any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        ]
    }

    proptest! {
        /// No two packets that differ in a field have the same key.
        #[test]
        fn a_key_holds_all_fields(
            (src, dst) in (addresses(), addresses()),
            (recv, xmit) in any::<(Option<u16>, Option<u16>)>(),
            (is_out, is_layer2, proto) in any::<(bool, bool, u8)>(),
            ports in any::<Option<(u16, u16)>>(),
            (dscp, flow_label) in (0u8..64, any::<u32>()),
        ) {
            let fields = FlowFields {
                direction: if is_out { Direction::Out } else { Direction::In },
                recv: recv.map(InterfaceId),
                xmit: xmit.map(InterfaceId),
                is_layer2,
                src,
                dst,
                proto,
                ports,
                dscp,
                flow_label,
            };
            prop_assert_eq!(unpack(ProgramKey::pack(&fields)), fields);
        }
    }
}
