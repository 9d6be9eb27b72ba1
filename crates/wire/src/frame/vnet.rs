//! The offload header that accompanies a frame (`struct virtio_net_hdr`).
//!
//! Layout: virtio 1.2 section 5.1.6, the 10-byte legacy form in host byte order, which is
//! what `PACKET_VNET_HDR` and `IFF_VNET_HDR` exchange by default.

/// Offload state of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CSUM`] and others.
    pub flags: u8,
    /// Raw type: see [`VnetHeader::gso`].
    pub gso_type: u8,
    /// The length of the headers according to the kernel; a hint that is not trusted.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// The start of the checksummed range, with `NEEDS_CSUM`.
    pub csum_start: u16,
    /// The offset of the checksum in that range.
    pub csum_offset: u16,
}

/// The kind of segments of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams (`UDP_SEGMENT`), over either.
    Udp,
    /// Something this crate does not split: the raw type.
    Other(u8),
}

impl VnetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;
    /// The transport checksum holds only the pseudo-header's sum.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum was already verified.
    pub const DATA_VALID: u8 = 2;
    /// Bit of `gso_type`: CWR belongs to the first segment only (RFC 3168).
    pub const GSO_ECN: u8 = 0x80;
    /// Bit of `gso_type` that is proposed for the next virtio: CWR is a part of accurate ECN's
    /// counter and belongs to every segment. Kernels do not write it yet; they omit
    /// [`VnetHeader::GSO_ECN`].
    pub const GSO_ACCURATE_ECN: u8 = 0x10;

    /// Reads the ten bytes.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> VnetHeader {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// Writes the ten bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        bytes[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
        bytes
    }

    /// Returns the kind of super-packet, if it is one.
    pub fn gso(&self) -> Option<GsoKind> {
        match self.gso_type & !(Self::GSO_ECN | Self::GSO_ACCURATE_ECN) {
            0 => None,
            1 => Some(GsoKind::TcpV4),
            4 => Some(GsoKind::TcpV6),
            5 => Some(GsoKind::Udp),
            other => Some(GsoKind::Other(other)),
        }
    }

    /// Returns whether a CWR flag is a single event that one segment signals, rather than part of a
    /// counter that all segments carry. A sender that follows RFC 3168 sets the flag on a
    /// super-packet only together with the bit (SKB_GSO_TCP_ECN), so CWR without it belongs to
    /// accurate ECN (SKB_GSO_TCP_ACCECN).
    pub fn is_cwr_once(&self) -> bool {
        self.gso_type & Self::GSO_ECN != 0 && self.gso_type & Self::GSO_ACCURATE_ECN == 0
    }

    /// Returns whether the transport checksum still has to be completed.
    pub fn needs_checksum(&self) -> bool {
        self.flags & Self::NEEDS_CSUM != 0
    }
}
