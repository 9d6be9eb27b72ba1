//! Duplication: a packet is followed immediately by a copy of itself.
//!
//! Only the host can copy bytes. [`Sink::copy`](crate::Sink::copy) returns the slot of the copy, or
//! `None` where the host cannot copy. The copy follows the original through corruption and the
//! queue, and is not duplicated again (as in tc-netem(8)).

use crate::param::Ratio;
use crate::params;

params! {
    /// Parameters of duplication.
    pub struct DuplicateParams {
        /// probability that a packet is duplicated
        duplicate: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a packet shares the fate of the one before it
        duplicate_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
    }
}
