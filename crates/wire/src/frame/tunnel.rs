//! Super-packets inside a tunnel: VXLAN, Geneve, GRE, IP in IP.
//!
//! The sender's kernel describes the packet inside: its kind, its segment size and, by the start of the
//! checksum, its transport header. The headers around it are those of one long packet. Each segment
//! repeats all of them, with:
//! - outer IP: as for any segment (see [`SuperPacket`]);
//! - outer UDP (RFC 768): length, and the checksum if the sender wrote one (RFC 7348 section 4.1, RFC
//!   6935);
//! - GRE (RFC 2784 section 2.1): the checksum if there is one.

use super::checksum::{Sum, pseudo_header};
use super::gso::{GsoError, SuperPacket, rewrite_network};
use super::view::{IPV4, TCP, Transport, UDP, View};
use super::vnet::{GsoKind, VnetHeader};

/// The headers around the packet that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) network: u16,
    transport: u16,
    is_v4: bool,
    kind: Kind,
    has_checksum: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Udp,
    Gre,
    /// The packet inside follows at once.
    Ip,
}

impl SuperPacket {
    /// Reads the frame that `view` and `vnet` describe, a super-packet inside a tunnel. `head` has its
    /// first bytes, all headers included.
    ///
    /// No kernel sends such a frame whole: its offload header cannot name the tunnel.
    ///
    /// # Errors
    /// The frame is not such a super-packet, or must not be split.
    pub fn in_tunnel(view: &View, vnet: &VnetHeader, head: &[u8]) -> Result<SuperPacket, GsoError> {
        let kind = vnet.gso().ok_or(GsoError::NotSuper)?;
        let (is_tcp, field) = match kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => (true, 16),
            GsoKind::Udp => (false, 6),
            GsoKind::Other(raw) => return Err(GsoError::Kind(raw)),
        };
        if !vnet.needs_checksum() || vnet.csum_offset != field {
            return Err(GsoError::Headers);
        }
        let outer = Outer::of(view, head).ok_or(GsoError::Headers)?;
        let transport = vnet.csum_start;
        let end = u32::from(view.network) + view.ip_len;
        let search = Search {
            head,
            first: usize::from(outer.transport) + outer.header_len(),
            transport: usize::from(transport),
            end: end as usize,
            protocol: if is_tcp { TCP } else { UDP },
        };
        let found = match kind {
            GsoKind::TcpV4 => search.v4().map(|network| (network, true)),
            GsoKind::TcpV6 => search.v6().map(|network| (network, false)),
            _ => {
                let v4 = search.v4().map(|network| (network, true));
                v4.or_else(|| search.v6().map(|network| (network, false)))
            }
        };
        let found = found.filter(|(network, _)| !search.is_nested(*network));
        let (network, is_v4) = found.ok_or(GsoError::Headers)?;
        let transport_len = match is_tcp {
            true => {
                let offset = head.get(search.transport + 12).ok_or(GsoError::Headers)?;
                offset >> 4 << 2
            }
            false => 8,
        };
        if is_tcp && transport_len < 20 {
            return Err(GsoError::Headers);
        }
        let header_len = transport + u16::from(transport_len);
        if head.len() < usize::from(header_len) {
            return Err(GsoError::Headers);
        }
        SuperPacket {
            network: network as u16,
            transport,
            header_len,
            payload_len: 0,
            gso_size: vnet.gso_size,
            is_v4,
            is_tcp,
            is_cwr_once: vnet.is_cwr_once(),
            outer: Some(outer),
        }
        .ending_at(end)
    }

    /// Returns whether it is inside a tunnel.
    pub const fn is_in_tunnel(&self) -> bool {
        self.outer.is_some()
    }
}

impl Outer {
    /// Reads the outer headers; `None` if they are damaged, or not those of a tunnel.
    fn of(view: &View, head: &[u8]) -> Option<Outer> {
        let is_plain = view.fault.is_none() && view.fragment.is_none() && !view.is_encapsulated;
        if !is_plain || view.is_routed || view.is_jumbo || view.is_authenticated {
            return None;
        }
        let at = usize::from(view.transport_at);
        let (kind, has_checksum) = match view.protocol {
            UDP if matches!(view.transport, Transport::Udp { .. }) => {
                (Kind::Udp, head.get(at + 6..at + 8)? != [0, 0])
            }
            GRE => {
                let flags = head.get(at..at + 4)?;
                // Numbers of packets cannot be repeated (RFC 2890 section 2.2), and another version is
                // another protocol.
                if flags[0] & SEQUENCE != 0 || flags[1] & VERSION != 0 {
                    return None;
                }
                (Kind::Gre, flags[0] & CHECKSUM != 0)
            }
            IPV4_INSIDE | IPV6_INSIDE => (Kind::Ip, false),
            _ => return None,
        };
        Some(Outer {
            network: view.network,
            transport: view.transport_at,
            is_v4: view.ethertype == IPV4,
            kind,
            has_checksum,
        })
    }

    /// Returns the least length of the tunnel's own header.
    const fn header_len(&self) -> usize {
        match (self.kind, self.has_checksum) {
            (Kind::Udp, _) | (Kind::Gre, true) => 8,
            (Kind::Gre, false) => 4,
            (Kind::Ip, _) => 0,
        }
    }

    /// Writes what differs in segment `index` of `length` bytes, whose headers, with the checksum of the
    /// packet inside left partial, are in `headers`. `inside` is where the transport header of the packet
    /// inside is, and `field` its checksum.
    pub(super) fn rewrite(
        &self,
        headers: &mut [u8],
        index: u32,
        length: u32,
        (inside, field): (usize, usize),
    ) {
        let (network_at, transport_at) = (usize::from(self.network), usize::from(self.transport));
        // At most 65535, as `SuperPacket::ending_at` has checked.
        let transport_len = (length - u32::from(self.transport)) as u16;
        let (before, transport) = headers.split_at_mut(transport_at);
        let network = &mut before[network_at..];
        rewrite_network(network, self.is_v4, index, transport_len);
        if self.kind == Kind::Udp {
            transport[4..6].copy_from_slice(&transport_len.to_be_bytes());
        }
        if !self.has_checksum {
            return;
        }
        let (mut sum, own) = match self.kind {
            Kind::Udp => (pseudo_header(network, self.is_v4, UDP, transport_len), 6),
            Kind::Gre | Kind::Ip => (Sum::new(), 4),
        };
        transport[own..own + 2].fill(0);
        // The transport header inside and its payload, with the complete checksum, add up to the
        // complement of their pseudo-header's sum, which the field holds (RFC 1071 section 1).
        let (inside, field) = (inside - transport_at, field - transport_at);
        sum.add(&transport[..inside]);
        let partial = u16::from_be_bytes([transport[field], transport[field + 1]]);
        sum.add(&(!partial).to_be_bytes());
        let checksum = match sum.finish() {
            0 if self.kind == Kind::Udp => 0xffff,
            checksum => checksum,
        };
        transport[own..own + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The search for the network header in front of a known transport header.
struct Search<'a> {
    head: &'a [u8],
    /// Where it begins at the earliest.
    first: usize,
    transport: usize,
    /// Where the packet ends.
    end: usize,
    protocol: u8,
}

impl Search<'_> {
    /// Returns where the IPv4 header begins. It must be correct in every field that tells.
    fn v4(&self) -> Option<usize> {
        (20..=60).step_by(4).find_map(|len| {
            let start = self.transport.checked_sub(len)?;
            let header = self.head.get(start..self.transport)?;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let fragment = u16::from_be_bytes([header[6], header[7]]) & !DONT_FRAGMENT;
            let mut sum = Sum::new();
            sum.add(header);
            let is_header = start >= self.first
                && usize::from(header[0]) == 0x40 | (len / 4)
                && start + total == self.end
                && fragment == 0
                && header[9] == self.protocol
                && sum.folded() == u16::MAX;
            is_header.then_some(start)
        })
    }

    /// Returns whether another packet that ends where this one does begins before the header at `start`:
    /// a tunnel inside the tunnel, whose headers would not be corrected.
    fn is_nested(&self, start: usize) -> bool {
        (self.first..start).any(|at| {
            let word = |from: usize| match self.head.get(at + from..at + from + 2) {
                Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
                _ => 0,
            };
            let (end, protocol) = match word(0) >> 12 {
                4 => (at + word(2), word(8) as u8),
                6 => (at + 40 + word(4), (word(6) >> 8) as u8),
                _ => return false,
            };
            end == self.end && matches!(protocol, UDP | GRE | IPV4_INSIDE | IPV6_INSIDE)
        })
    }

    /// Returns where the IPv6 header begins, if it has no extensions.
    fn v6(&self) -> Option<usize> {
        let start = self.transport.checked_sub(40)?;
        let header = self.head.get(start..self.transport)?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let is_header = start >= self.first
            && header[0] >> 4 == 6
            && self.transport + payload == self.end
            && header[6] == self.protocol;
        is_header.then_some(start)
    }
}

/// Protocol numbers of tunnels: RFC 2784, RFC 2003, RFC 4213.
const GRE: u8 = 47;
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
/// Bits of GRE's first two bytes (RFC 2784 section 2, RFC 2890 section 2).
const CHECKSUM: u8 = 0x80;
const SEQUENCE: u8 = 0x10;
const VERSION: u8 = 7;
/// Also the bit that is reserved (RFC 791 section 3.1).
const DONT_FRAGMENT: u16 = 0xc000;
