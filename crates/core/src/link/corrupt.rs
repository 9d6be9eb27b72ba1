//! Corruption: one bit of a packet is flipped.
//!
//! The link says which bit of the packet's bytes; the host flips it
//! ([`Sink::corrupt`](crate::Sink::corrupt)). The handle's own fields stay as they are: the
//! queue decided on what it had read. Checksums are not repaired, so that the receiver drops the
//! packet, as it does with one damaged on a wire whose own check did not notice.

use crate::param::Ratio;
use crate::params;

params! {
    /// Packets that are damaged.
    pub struct CorruptParams {
        /// probability that a bit of a packet is flipped
        corrupt: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a packet is damaged or not as the one before it
        corrupt_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
    }
}
