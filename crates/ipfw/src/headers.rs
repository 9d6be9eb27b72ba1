//! What a host tells the rules about a packet, and about its interfaces.

use std::net::IpAddr;

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

/// Which of the two passes through the rules a packet makes on a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// It came from an interface.
    #[default]
    In,
    /// It is about to leave through one.
    Out,
}

/// An interface, by its place in the list given to
/// [`Firewall::set_interfaces`](crate::Firewall::set_interfaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

/// An interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as `via` and its relatives write it.
    pub name: String,
    /// Its own addresses: what `me` means.
    pub addresses: Vec<IpAddr>,
}

/// The headers of an IP packet, parsed by the host. Frames that carry something else never come
/// to the rules; a bridge passes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Which pass this is.
    pub direction: Direction,
    /// Where it came in; none if the host made it.
    pub recv: Option<InterfaceId>,
    /// Where it will leave; only known in the outgoing pass.
    pub xmit: Option<InterfaceId>,
    /// Whether it is seen below IP, by a bridge.
    pub is_layer2: bool,
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Protocol, behind the extension headers of IPv6.
    pub proto: u8,
    /// Source port; 0 without one.
    pub src_port: u16,
    /// Destination port; 0 without one.
    pub dst_port: u16,
    /// TOS or traffic class octet.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Total length of the IP packet in bytes. Rules count bytes by it.
    pub ip_len: u32,
    /// Identification of IPv4.
    pub ip_id: u16,
    /// Flow label of IPv6.
    pub flow_label: u32,
    /// What the fragmentation fields say.
    pub fragment: Fragment,
    /// Flags of TCP, as on the wire.
    pub tcp_flags: u8,
    /// Type of ICMP or ICMPv6; `None` for other protocols and later fragments.
    pub icmp_type: Option<u8>,
}

/// The fragmentation fields of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub has_more: bool,
    /// It may not be fragmented.
    pub dont: bool,
}

impl Headers {
    /// A packet without options: everything that is not given is zero.
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
            },
            tcp_flags: 0,
            icmp_type: None,
        }
    }

    /// Whether the port fields mean something: not in later fragments.
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
