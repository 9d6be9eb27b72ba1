//! Framing: what a packet occupies on the link beyond its own bytes (headers, padding, cells).
//!
//! The order is that of CAKE: `strip` bytes that the host counts but the link does not carry are
//! subtracted, `overhead` is added, a short packet is padded to `mpu`, and the result is cut into
//! cells. Framing changes how long a transmission lasts. Queues, limits and statistics still count
//! [`Packet::len`].
//!
//! Sources: ITU-T I.432.1 and AAL5 (I.363.5) for ATM: cells of 53 bytes carry 48; ITU-T G.993.2
//! annex N for PTM: 65 bytes carry 64. The order and the names follow `tc-cake(8)`.

use crate::packet::Packet;
use crate::{choice, params};

choice! {
    /// The division of frames into cells.
    pub enum Cells {
        /// Not at all.
        Whole = "whole",
        /// ATM: 48 bytes in a cell of 53, the last one padded.
        Atm = "atm",
        /// PTM (VDSL2): one byte more for each block of up to 64 bytes.
        Ptm = "ptm",
    }
}

params! {
    /// Parameters of framing.
    pub struct FramingParams {
        /// bytes of each packet that the host counts but the link does not carry
        strip: u64 = Count(0), Count(0) => Count(256), "none; 14 if the host counts Ethernet headers and the link carries IP";
        /// bytes that the link adds to each packet
        overhead: u64 = Count(0), Count(0) => Count(256), "none; Ethernet with preamble, FCS and gap: 24";
        /// smallest number of bytes that a packet occupies
        mpu: u64 = Count(0), Count(0) => Count(256), "none; Ethernet with preamble and gap: 84";
        /// how the link cuts frames into cells
        cells: Cells = Choice("whole"), "most links do not";
    }
}

impl FramingParams {
    /// Returns whether framing changes nothing.
    pub const fn is_plain(&self) -> bool {
        self.strip == 0 && self.overhead == 0 && self.mpu == 0 && matches!(self.cells, Cells::Whole)
    }

    /// Returns the bytes that the packet occupies. Each segment of a super-packet is framed
    /// separately.
    ///
    /// ```
    /// use sluice_core::{Packet, framing::{Cells, FramingParams}};
    /// // PPPoE over AAL5: 1500 + 40 B need 33 cells (1584 B of payload), 33 * 53 = 1749 B.
    /// let adsl = FramingParams { overhead: 40, cells: Cells::Atm, ..FramingParams::default() };
    /// assert_eq!(adsl.wire_len(&Packet::new(0, 1500)), 1749);
    /// ```
    #[inline]
    pub fn wire_len(&self, packet: &Packet) -> u64 {
        let segments = u64::from(packet.segments.max(1));
        let one = u64::from(packet.segment_len());
        let framed = (one.saturating_sub(self.strip) + self.overhead).max(self.mpu);
        segments
            * match self.cells {
                Cells::Whole => framed,
                Cells::Atm => framed.div_ceil(48) * 53,
                Cells::Ptm => framed + framed.div_ceil(64),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire_len(params: &FramingParams, len: u32) -> u64 {
        params.wire_len(&Packet::new(0, len))
    }

    #[test]
    fn cells_are_begun_and_padded() {
        let atm = FramingParams {
            cells: Cells::Atm,
            ..FramingParams::default()
        };
        assert_eq!(wire_len(&atm, 48), 53);
        assert_eq!(wire_len(&atm, 49), 106);
        let ptm = FramingParams {
            cells: Cells::Ptm,
            ..FramingParams::default()
        };
        // 1500 B need 24 blocks of 64 B.
        assert_eq!(wire_len(&ptm, 1500), 1524);
        assert_eq!(wire_len(&ptm, 64), 65);
    }

    #[test]
    fn overhead_is_added_before_padding() {
        // A frame of 60 B without FCS is 64 B with it, 84 B with preamble and gap (IEEE 802.3).
        let ethernet = FramingParams {
            overhead: 24,
            mpu: 84,
            ..FramingParams::default()
        };
        assert_eq!(wire_len(&ethernet, 60), 84);
        assert_eq!(wire_len(&ethernet, 40), 84);
        assert_eq!(wire_len(&ethernet, 1514), 1538);
    }

    #[test]
    fn each_segment_is_framed() {
        let framing = FramingParams {
            strip: 14,
            overhead: 38,
            ..FramingParams::default()
        };
        let mut packet = Packet::new(0, 10 * 1514);
        packet.segments = 10;
        assert_eq!(framing.wire_len(&packet), 10 * 1538);
    }
}
