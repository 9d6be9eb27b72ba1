//! Corruption: one bit of a packet is flipped.
//!
//! The link chooses the bit and the host flips it ([`Sink::corrupt`](crate::Sink::corrupt)). The
//! fields of the handle stay unchanged, because they were read before the packet was damaged.
//! Checksums are not corrected: the receiver drops the packet, as it drops one that was damaged on
//! a real link.

use crate::param::Ratio;
use crate::params;

params! {
    /// Parameters of corruption.
    pub struct CorruptParams {
        /// probability that a bit of a packet is flipped
        corrupt: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a packet shares the fate of the one before it
        corrupt_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
    }
}
