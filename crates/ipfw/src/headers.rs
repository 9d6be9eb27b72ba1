//! The input of the rules from a host: the headers of a packet, and its interfaces.

use std::net::IpAddr;

/// Type of Ethernet frames with IPv4.
pub const IPV4: u16 = 0x0800;
/// Type of Ethernet frames with IPv6.
pub const IPV6: u16 = 0x86dd;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMP6: u8 = 58;
/// Protocol number of SCTP.
pub const SCTP: u8 = 132;
/// Protocol number of UDP-Lite.
pub const UDPLITE: u8 = 136;

/// The pass through the rules; a packet on a router makes two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The packet came in through an interface.
    #[default]
    In,
    /// The packet is about to leave through an interface.
    Out,
}

/// An interface, as an index into the list given to
/// [`Firewall::set_interfaces`](crate::Firewall::set_interfaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

/// An interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name that `via`, `recv` and `xmit` match.
    pub name: String,
    /// The interface's own addresses, which `me` matches.
    pub addresses: Vec<IpAddr>,
}

/// The headers of an IP packet, as parsed by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The pass.
    pub direction: Direction,
    /// The interface of arrival; `None` if the host sent the packet.
    pub recv: Option<InterfaceId>,
    /// The interface of departure. Rules see it in the outgoing pass only; in the incoming pass it
    /// makes the engine continue with the outgoing one.
    pub xmit: Option<InterfaceId>,
    /// Whether a bridge sees the packet below IP.
    pub is_layer2: bool,
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Protocol, after the extension headers of IPv6.
    pub proto: u8,
    /// Source port, or 0.
    pub src_port: u16,
    /// Destination port, or 0.
    pub dst_port: u16,
    /// TOS or traffic class octet.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Total length of the IP packet in bytes. The byte counters of rules add it up.
    pub ip_len: u32,
    /// Identification of IPv4.
    pub ip_id: u16,
    /// Flow label of IPv6.
    pub flow_label: u32,
    /// The fragmentation fields.
    pub fragment: Fragment,
    /// Flags of TCP, as on the wire.
    pub tcp_flags: u8,
    /// Type of ICMP or ICMPv6; `None` for other protocols and later fragments.
    pub icmp_type: Option<u8>,
    /// Identifier of an echo request or reply that is no fragment. Rules do not see it; it
    /// distinguishes flows.
    pub icmp_id: Option<u16>,
    /// The type of an Ethernet frame that is not IP; `None` for a packet. The fields of IP are
    /// unspecified then. Such frames are for [`Firewall::passes`](crate::Firewall::passes) only.
    pub frame: Option<u16>,
}

/// The fragmentation fields of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub has_more: bool,
    /// The packet must not be fragmented.
    pub dont: bool,
    /// The header with which the fragmented part begins, as every fragment states it; `None` if the
    /// packet is no fragment. In IPv6 it may be an extension header, behind which only the first fragment
    /// has its protocol. Rules do not see it; it distinguishes flows.
    pub begins_with: Option<u8>,
}

impl Headers {
    /// A packet without options. All other fields are zero, except a TTL of 64.
    pub const fn new(direction: Direction, proto: u8, src: IpAddr, dst: IpAddr) -> Self {
        Headers {
            direction,
            recv: None,
            xmit: None,
            is_layer2: false,
            src,
            dst,
            proto,
            src_port: 0,
            dst_port: 0,
            tos: 0,
            ttl: 64,
            ip_len: 0,
            ip_id: 0,
            flow_label: 0,
            fragment: Fragment {
                offset: 0,
                has_more: false,
                dont: false,
                begins_with: None,
            },
            tcp_flags: 0,
            icmp_type: None,
            icmp_id: None,
            frame: None,
        }
    }

    /// Returns the type of the Ethernet frame, which carries IPv4, IPv6, or something else.
    pub fn ethertype(&self) -> u16 {
        let ip = if self.src.is_ipv6() { IPV6 } else { IPV4 };
        self.frame.unwrap_or(ip)
    }

    /// Whether the port fields are valid: they are not in later fragments.
    pub const fn has_ports(&self) -> bool {
        self.fragment.offset == 0 && matches!(self.proto, TCP | UDP | SCTP | UDPLITE)
    }

    /// Differentiated services codepoint.
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Whether an address is link-local (IPv6).
    pub fn is_link_local(&self) -> bool {
        let is = |a: &IpAddr| matches!(a, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        is(&self.src) || is(&self.dst)
    }
}
