//! Duplication: a packet is followed at once by a copy of itself.
//!
//! Only the host can copy bytes: it is asked through [`Sink::copy`](crate::Sink::copy), which
//! gives the slot of the copy, or nothing where the host cannot copy. The copy comes right behind
//! the original, goes through corruption and the queue like it, and is not duplicated again (as
//! in tc-netem(8)).

use crate::param::Ratio;
use crate::params;

params! {
    /// Packets that come twice.
    pub struct DuplicateParams {
        /// probability that a packet is duplicated
        duplicate: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a packet is duplicated or not as the one before it
        duplicate_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
    }
}
