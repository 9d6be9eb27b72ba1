//! The fields of a TCP acknowledgement, and whether a later one makes it redundant.
//!
//! An ACK filter ([`cake`](crate::sched::cake)) asks the host through its [`Sink`](crate::Sink),
//! because only the host can read headers. The host fills an [`Ack`] from each of two segments and
//! compares them here. One rule therefore applies to live packets, simulated packets and those of a
//! trace.
//!
//! Sources: RFC 9293 (sequence numbers), RFC 2018 and 2883 (SACK, D-SACK), RFC 7323 (timestamps),
//! RFC 3168 section 6.1 (ECE, CWR). The rule is that of `ack-filter` in `tc-cake(8)`.

/// The acknowledgement in a TCP segment. The host checks that two segments belong to one flow.
///
/// ```
/// use sluice_core::ack::Ack;
/// let ack = |acked| Ack { acked, ..Ack::default() };
/// assert!(ack(3000).supersedes(&ack(1000)));
/// assert!(!ack(1000).supersedes(&ack(1000)), "a duplicate reports a loss");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Acknowledgement number.
    pub acked: u32,
    /// ECE and CWR flags.
    pub ecn_flags: [bool; 2],
    /// TSval and TSecr of the timestamps option.
    pub timestamps: Option<[u32; 2]>,
    /// SACK blocks: the first byte and the byte after the last. Unused blocks are empty.
    pub blocks: [[u32; 2]; 4],
}

impl Ack {
    /// Returns whether this segment carries everything that `older`, sent earlier in the same flow,
    /// carries, and more.
    pub fn supersedes(&self, older: &Ack) -> bool {
        // RFC 3168 section 6.1.3: ECE is repeated until CWR arrives, so each change matters.
        if self.ecn_flags != older.ecn_flags || is_before(self.acked, older.acked) {
            return false;
        }
        match (self.timestamps, older.timestamps) {
            (None, Some(_)) => return false,
            (Some(new), Some(old)) if (0..2).any(|i| is_before(new[i], old[i])) => return false,
            _ => {}
        }
        // RFC 2883 section 4: a block below the acknowledged number reports a duplicate, once.
        if older.blocks().any(|[from, _]| is_before(from, older.acked)) {
            return false;
        }
        let covers = |[from, to]: [u32; 2]| {
            !is_before(self.acked, to)
                || self
                    .blocks()
                    .any(|[low, high]| !is_before(from, low) && !is_before(high, to))
        };
        if !older.blocks().all(covers) {
            return false;
        }
        let bytes = |ack: &Ack| -> u64 {
            let lens = ack
                .blocks()
                .map(|[from, to]| u64::from(to.wrapping_sub(from)));
            lens.sum()
        };
        self.acked != older.acked || bytes(self) > bytes(older)
    }

    fn blocks(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        self.blocks.iter().copied().filter(|[from, to]| from != to)
    }
}

/// Returns whether `a` precedes `b` in the circle of sequence numbers (RFC 9293 section 3.4).
const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(acked: u32) -> Ack {
        Ack {
            acked,
            ..Ack::default()
        }
    }

    fn sack(acked: u32, first: [u32; 2], second: [u32; 2]) -> Ack {
        Ack {
            blocks: [first, second, [0; 2], [0; 2]],
            ..ack(acked)
        }
    }

    #[test]
    fn only_a_higher_number_supersedes() {
        assert!(ack(2).supersedes(&ack(1)));
        assert!(!ack(1).supersedes(&ack(2)));
        assert!(!ack(1).supersedes(&ack(1)));
        // Across the wrap-around of sequence numbers.
        assert!(ack(100).supersedes(&ack(u32::MAX - 100)));
        assert!(!ack(u32::MAX - 100).supersedes(&ack(100)));
    }

    #[test]
    fn changed_flags_and_older_timestamps_are_kept() {
        let ece = Ack {
            ecn_flags: [true, false],
            ..ack(2)
        };
        assert!(!ece.supersedes(&ack(1)) && !ack(3).supersedes(&ece));
        let at = |acked, value, echo| Ack {
            timestamps: Some([value, echo]),
            ..ack(acked)
        };
        assert!(at(2, 11, 7).supersedes(&at(1, 10, 7)));
        assert!(!at(2, 9, 7).supersedes(&at(1, 10, 7)), "reordered");
        assert!(!at(2, 11, 6).supersedes(&at(1, 10, 7)));
        assert!(!ack(2).supersedes(&at(1, 10, 7)));
        assert!(at(2, 11, 7).supersedes(&ack(1)));
    }

    #[test]
    fn a_block_is_covered_by_a_larger_one_or_by_the_number() {
        let old = sack(1000, [3000, 4000], [6000, 7000]);
        assert!(sack(1000, [3000, 5000], [6000, 7000]).supersedes(&old));
        assert!(sack(1000, [3000, 7000], [0; 2]).supersedes(&old));
        assert!(sack(4000, [6000, 7000], [0; 2]).supersedes(&old));
        assert!(ack(7000).supersedes(&old));
        assert!(!old.supersedes(&old), "the same once more");
        assert!(!sack(1000, [3000, 5000], [0; 2]).supersedes(&old));
        assert!(!ack(4000).supersedes(&old), "the second block is forgotten");
        assert!(!ack(1000).supersedes(&old));
    }

    #[test]
    fn a_report_of_a_duplicate_is_kept() {
        let duplicate = sack(4000, [1000, 2000], [0; 2]);
        assert!(!ack(9000).supersedes(&duplicate));
        assert!(duplicate.supersedes(&ack(3000)));
    }
}
