//! The counts of a lane: every received frame is counted in exactly one place.

use sluice_core::{DropReason, Span};
use sluice_wire::frame::Fault;

/// The causes of losses outside the queues and the ports' interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostFrame {
    /// The frame could not be parsed.
    Malformed,
    /// The pool had no room for a segment of a super-packet.
    NoSlot,
    /// The port through which the frame was to leave would have blocked.
    Blocked,
    /// The frame is not IP, and there is no port to forward it to.
    NoExit,
    /// A super-packet with far more segments than senders make.
    TinySegments,
    /// The headers hide what a rule would match, and the queueing refuses that
    /// ([`Queueing::is_strict`](super::Queueing::is_strict)).
    Evasive,
    /// The frames from its port fill the port's share of the pool.
    OverShare,
    /// The frame is not IP, and a rule dropped it ([`Queueing::passes`](super::Queueing::passes)).
    Denied,
    /// The packet was for another worker, which was too far behind
    /// ([`Exchange`](super::Exchange)).
    HandOver,
}

impl LostFrame {
    /// Every cause, in the order of the counters.
    pub const ALL: [LostFrame; 9] = [
        LostFrame::Malformed,
        LostFrame::NoSlot,
        LostFrame::Blocked,
        LostFrame::NoExit,
        LostFrame::TinySegments,
        LostFrame::Evasive,
        LostFrame::OverShare,
        LostFrame::Denied,
        LostFrame::HandOver,
    ];

    /// Returns the cause as one word.
    pub const fn name(self) -> &'static str {
        match self {
            LostFrame::Malformed => "malformed",
            LostFrame::NoSlot => "no_slot",
            LostFrame::Blocked => "port_blocked",
            LostFrame::NoExit => "no_exit",
            LostFrame::TinySegments => "tiny_segments",
            LostFrame::Evasive => "evasive",
            LostFrame::OverShare => "over_share",
            LostFrame::Denied => "denied",
            LostFrame::HandOver => "hand_over",
        }
    }
}

/// The counters of one lane. The `received` frames of its ports are the sum of `whole`, `plain`,
/// `bypassed`, `split`, `lost(Malformed)`, `lost(NoExit)`, `lost(TinySegments)`, `lost(Evasive)`,
/// `lost(Denied)` and `lost(OverShare)`, unless that lost a segment. The `admitted` packets, which
/// include segments, are `sent + dropped + held + lost(Blocked) + lost(HandOver)`, unless a link copied
/// some. Between workers, this holds for their sums only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Super-packets that were split.
    pub split: u64,
    /// Super-packets that were admitted whole.
    pub whole: u64,
    /// Frames that are not IP and bypassed the queues.
    pub bypassed: u64,
    /// Packets that were admitted to the queues, including segments and copies of packets.
    pub admitted: u64,
    /// Packets that were transmitted, including those that bypassed the queues.
    pub sent: u64,
    /// Packets that were handed over to other workers.
    pub handed_over: u64,
    dropped: [u64; DropReason::ALL.len()],
    lost: [u64; LostFrame::ALL.len()],
    faulty: [u64; Fault::NAMES.len()],
}

impl LaneCounts {
    /// Packets that a queue or a link dropped for `reason`; a super-packet counts once.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets that queues and links dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Frames lost to neither a queue nor an interface, by cause.
    pub const fn lost(&self, cause: LostFrame) -> u64 {
        self.lost[cause as usize]
    }

    /// Frames lost to neither a queue nor an interface, for any cause.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// Returns the number of frames with each kind of malformed header ([`Fault::NAMES`]). Frames
    /// with readable addresses were forwarded, as by any bridge; the others are
    /// [`LostFrame::Malformed`].
    pub fn faulty(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Fault::NAMES.into_iter().zip(self.faulty)
    }

    pub(super) const fn note_fault(&mut self, fault: Fault) {
        self.faulty[fault.number()] += 1;
    }

    pub(super) const fn drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    pub(super) const fn lose(&mut self, cause: LostFrame, frames: u64) {
        self.lost[cause as usize] += frames;
    }
}

/// The lateness of packets, counted by powers of two of nanoseconds. Its size is fixed, so that it
/// can always be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Element `i` counts the packets less than `2^i` ns late that no earlier element counts.
    buckets: [u64; 64],
    most: Span,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness {
            buckets: [0; 64],
            most: Span::ZERO,
        }
    }
}

impl Lateness {
    /// Counts a packet.
    pub fn note(&mut self, late: Span) {
        let bucket = 64 - late.as_ns().leading_zeros();
        self.buckets[bucket.min(63) as usize] += 1;
        self.most = self.most.max(late);
    }

    /// Adds the packets of another count.
    pub fn absorb(&mut self, other: &Lateness) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count += more;
        }
        self.most = self.most.max(other.most);
    }

    /// Packets that were counted.
    pub fn packets(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the packets that were counted after `before`, an earlier copy.
    #[must_use]
    pub fn since(&self, before: &Lateness) -> Lateness {
        let counts = |i| self.buckets[i] - before.buckets[i];
        Lateness {
            buckets: std::array::from_fn(counts),
            most: self.most,
        }
    }

    /// Returns the counts: element `i` counts the packets less than `2^i` ns late that no earlier
    /// element counts.
    pub const fn buckets(&self) -> &[u64; 64] {
        &self.buckets
    }

    /// Returns the largest lateness.
    pub const fn most(&self) -> Span {
        self.most
    }

    /// Returns an upper bound of the lateness of `per_mille` thousandths of the packets: the next
    /// power of two nanoseconds, so at most twice the true quantile.
    pub fn bound(&self, per_mille: u64) -> Span {
        let packets = self.packets();
        let wanted = packets.saturating_mul(per_mille.min(1000)).div_ceil(1000);
        let mut seen = 0;
        for (exponent, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Span::from_ns(1 << exponent.min(63)).min(self.most);
            }
        }
        Span::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_lateness_is_the_power_of_two_above_the_quantile() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.bound(500), Span::ZERO);
        for ns in [0, 900, 1100, 1200, 5000] {
            lateness.note(Span::from_ns(ns));
        }
        // The third of five is 1100 ns: below 2048, not below 1024.
        assert_eq!(lateness.bound(500), Span::from_ns(2048));
        // The last one's power of two is 8192, but nothing was later than 5000.
        assert_eq!(lateness.bound(1000), Span::from_ns(5000));
        assert_eq!(lateness.packets(), 5);
    }
}
