//! TCP segments as headers without payload bytes, and 32-bit sequence arithmetic.
//!
//! A [`Segment`] holds what a header on the wire holds: 32-bit sequence numbers that wrap, a 16-bit
//! window that the peer scales, the nine flags and up to three SACK blocks. Payload is only a
//! length. There are two differences: the timestamp option carries nanoseconds instead of a 32-bit
//! tick (RFC 7323 leaves the tick to the sender), and the ECN field of the IP header is part of the
//! segment, so that a simulated network can set CE.

use sluice_core::{Ecn, Time};

/// The control bits of the TCP header (RFC 9293 §3.1, RFC 3168 §6.1, RFC 9768 §3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// The sender has no more bytes.
    pub const FIN: Flags = Flags(1);
    /// Opens a connection.
    pub const SYN: Flags = Flags(1 << 1);
    /// Aborts a connection.
    pub const RST: Flags = Flags(1 << 2);
    /// The segment ends with the last byte that the application has written so far.
    pub const PSH: Flags = Flags(1 << 3);
    /// The acknowledgement field is valid.
    pub const ACK: Flags = Flags(1 << 4);
    /// ECN echo; the lowest bit of the ACE counter in accurate mode.
    pub const ECE: Flags = Flags(1 << 6);
    /// Congestion window reduced; the middle bit of the ACE counter in accurate mode.
    pub const CWR: Flags = Flags(1 << 7);
    /// Accurate ECN; the highest bit of the ACE counter in accurate mode.
    pub const AE: Flags = Flags(1 << 8);

    /// No flag.
    pub const fn empty() -> Self {
        Flags(0)
    }

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    pub const fn with(self, other: Flags) -> Self {
        Flags(self.0 | other.0)
    }

    /// The three-bit ACE counter in AE, CWR and ECE (RFC 9768 §3.2.2).
    pub const fn ace(self) -> u8 {
        (self.0 >> 6 & 7) as u8
    }

    /// These flags with `counter` (modulo 8) in AE, CWR and ECE.
    pub const fn with_ace(self, counter: u32) -> Self {
        Flags(self.0 & !(7 << 6) | ((counter & 7) as u16) << 6)
    }

    /// The bits as in the TCP header.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// A range of received sequence numbers, `start..end` (RFC 2018 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first sequence number of the block.
    pub start: u32,
    /// The sequence number after the block.
    pub end: u32,
}

/// SACK blocks in a header that also carries timestamps (RFC 2018 §3: 40 bytes of options).
pub const MAX_SACK_BLOCKS: usize = 3;

/// One TCP segment: 64 bytes, copied freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number of the first payload byte (or of SYN or FIN).
    pub seq: u32,
    /// The next sequence number that its sender expects; valid with [`Flags::ACK`].
    pub ack: u32,
    /// Payload bytes.
    pub len: u32,
    /// The receive window, to be shifted left by the scale of the sender's SYN.
    pub window: u16,
    /// The control bits.
    pub flags: Flags,
    /// Maximum segment size option; only on SYN, zero elsewhere.
    pub mss: u16,
    /// Window scale option; only on SYN.
    pub wscale: u8,
    /// The ECN field of the IP header around this segment.
    pub ecn: Ecn,
    /// The number of valid entries in [`Segment::sack`].
    pub sack_count: u8,
    /// Timestamp value: when this segment was transmitted.
    pub ts: Time,
    /// Timestamp echo reply; [`Time::ZERO`] if there is none.
    pub ts_echo: Time,
    /// Selective acknowledgements, the most recent first.
    pub sack: [SackBlock; MAX_SACK_BLOCKS],
}

impl Segment {
    /// The valid SACK blocks.
    pub fn sacks(&self) -> &[SackBlock] {
        &self.sack[..usize::from(self.sack_count).min(MAX_SACK_BLOCKS)]
    }

    /// Whether the segment is a pure ACK, which occupies no sequence space.
    pub const fn is_pure_ack(&self) -> bool {
        self.len == 0 && !self.flags.has(Flags::SYN) && !self.flags.has(Flags::FIN)
    }

    /// Length of the TCP header with its options, padded to four bytes (RFC 9293 §3.1).
    pub const fn tcp_header_len(&self) -> u32 {
        if self.flags.has(Flags::SYN) {
            // 20 + MSS (4) + SACK permitted (2) + timestamps (10) + NOP + window scale (3)
            return 40;
        }
        if self.flags.has(Flags::RST) && !self.flags.has(Flags::ACK) {
            // A reset of a closed port has no options.
            return 20;
        }
        // 20 + NOP NOP timestamps (12), and NOP NOP kind length + 8 a block with SACK
        32 + if self.sack_count > 0 {
            4 + 8 * self.sack_count as u32
        } else {
            0
        }
    }

    /// Length of the IPv4 packet around this segment.
    pub const fn ip_len(&self) -> u32 {
        20 + self.tcp_header_len() + self.len
    }
}

impl Default for Segment {
    fn default() -> Self {
        Segment {
            seq: 0,
            ack: 0,
            len: 0,
            window: 0,
            flags: Flags::empty(),
            mss: 0,
            wscale: 0,
            ecn: Ecn::NotEct,
            sack_count: 0,
            ts: Time::ZERO,
            ts_echo: Time::ZERO,
            sack: [SackBlock::default(); MAX_SACK_BLOCKS],
        }
    }
}

/// The 64-bit sequence number nearest to `near` whose low 32 bits are `wire`.
///
/// An endpoint works with 64-bit sequence numbers, which never wrap; RFC 7323 §2.3 distinguishes
/// old from new numbers within 2^31 bytes.
pub const fn expand(wire: u32, near: u64) -> u64 {
    near.wrapping_add_signed(wire.wrapping_sub(near as u32) as i32 as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_fits_one_cache_line() {
        assert!(size_of::<Segment>() <= 64);
    }

    #[test]
    fn expansion_is_the_inverse_of_truncation_within_half_the_space() {
        for near in [1_u64 << 32, (1 << 32) + 5, (1 << 33) - 1, 0x1_7fff_ffff] {
            for distance in [0_i64, 1, -1, 0x7fff_ffff, -0x8000_0000] {
                let seq = near.wrapping_add_signed(distance);
                assert_eq!(expand(seq as u32, near), seq);
            }
        }
    }

    #[test]
    fn the_ace_field_occupies_its_three_bits_only() {
        let flags = Flags::ACK.with(Flags::FIN).with_ace(13);
        assert_eq!(flags.ace(), 5);
        assert!(flags.has(Flags::ACK.with(Flags::FIN)));
        assert!(flags.has(Flags::AE) && !flags.has(Flags::CWR) && flags.has(Flags::ECE));
    }
}
