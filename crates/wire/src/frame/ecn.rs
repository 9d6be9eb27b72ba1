//! Writes a CE mark into a frame.

use super::view::{IPV4, IPV6, View};

/// Sets Congestion Experienced in the IP header that `view` found in `bytes`. Returns whether the
/// packet carries CE afterwards.
///
/// A packet that is not ECN-capable stays unchanged (RFC 3168 section 5), as does one that already
/// carries CE. The IPv4 header checksum is updated, not recomputed: a damaged header stays damaged.
pub fn set_ce(bytes: &mut [u8], view: &View) -> bool {
    let at = usize::from(view.network);
    if !view.is_ip() || view.ecn == NOT_ECT {
        return false;
    }
    if view.ecn == CE {
        return true;
    }
    match view.ethertype {
        IPV4 => {
            let Some(header) = bytes.get_mut(at..at + 20) else {
                return false;
            };
            let old = u16::from_be_bytes([header[0], header[1]]);
            header[1] |= CE;
            let new = u16::from_be_bytes([header[0], header[1]]);
            let checksum = u16::from_be_bytes([header[10], header[11]]);
            header[10..12].copy_from_slice(&updated(checksum, old, new).to_be_bytes());
            true
        }
        IPV6 => {
            // The traffic class straddles the first two bytes; its low two bits are bits 5
            // and 4 of the second. No checksum covers it.
            let Some(second) = bytes.get_mut(at + 1) else {
                return false;
            };
            *second |= CE << 4;
            true
        }
        _ => false,
    }
}

/// RFC 1624 section 3, equation 3: `HC' = ~(~HC + ~m + m')`.
fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

const NOT_ECT: u8 = 0;
const CE: u8 = 3;
