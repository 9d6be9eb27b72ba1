//! The counts of a lane: every received frame is counted in exactly one place.

use sluice_core::{DropReason, Span};
use sluice_wire::frame::Fault;

use super::PortNumber;

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
    /// A kernel bridge had forwarded the frame while the loop hung
    /// ([`Forwarder::resume_after`](super::Forwarder::resume_after)).
    Bridged,
}

impl LostFrame {
    /// Every cause, in the order of the counters.
    pub const ALL: [LostFrame; 10] = [
        LostFrame::Malformed,
        LostFrame::NoSlot,
        LostFrame::Blocked,
        LostFrame::NoExit,
        LostFrame::TinySegments,
        LostFrame::Evasive,
        LostFrame::OverShare,
        LostFrame::Denied,
        LostFrame::HandOver,
        LostFrame::Bridged,
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
            LostFrame::Bridged => "bridged",
        }
    }
}

/// The counters of one lane. The `received` frames of its ports are the sum of `whole`, `plain`,
/// `bypassed`, `split`, `lost(Malformed)`, `lost(NoExit)`, `lost(TinySegments)`, `lost(Evasive)`,
/// `lost(Denied)`, `lost(Bridged)` and `lost(OverShare)`, unless that lost a segment. The `admitted`
/// packets, which include segments, are `sent + dropped + held + lost(Blocked) + lost(HandOver)`, unless a
/// link copied some. Between workers, this holds for their sums only. A super-packet that was admitted
/// whole counts once in all of them.
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
    last_ports: [Option<PortNumber>; LostFrame::ALL.len()],
}

impl LaneCounts {
    /// Packets that a queue or a link dropped for `reason`; a super-packet counts once.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets that queues and links dropped for any reason; a super-packet counts once.
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

    /// Returns the port at which a frame was lost last, as far as the cause has to do with one.
    pub const fn last_port(&self, cause: LostFrame) -> Option<PortNumber> {
        self.last_ports[cause as usize]
    }

    /// Counts frames that were lost at a port.
    pub(super) const fn lose_at(&mut self, port: PortNumber, cause: LostFrame, frames: u64) {
        self.last_ports[cause as usize] = Some(port);
        self.lose(cause, frames);
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

/// The lateness of packets, counted in intervals an eighth as long as their lower ends, at most. Its size
/// is fixed, so that it can always be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The first eight elements count the packets 0 to 7 ns late. Then every eight elements divide the
    /// interval from a power of two to the next.
    counts: [u64; FINE],
    most: Span,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness {
            counts: [0; FINE],
            most: Span::ZERO,
        }
    }
}

impl Lateness {
    /// Counts a packet.
    pub fn note(&mut self, late: Span) {
        self.counts[fine(late.as_ns())] += 1;
        self.most = self.most.max(late);
    }

    /// Adds the packets of another count.
    pub fn absorb(&mut self, other: &Lateness) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.most = self.most.max(other.most);
    }

    /// Packets that were counted.
    pub fn packets(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the packets that were counted after `before`, an earlier copy.
    #[must_use]
    pub fn since(&self, before: &Lateness) -> Lateness {
        let counts = |i| self.counts[i] - before.counts[i];
        Lateness {
            counts: std::array::from_fn(counts),
            most: self.most,
        }
    }

    /// Returns the counts by powers of two: element `i` counts the packets less than `2^i` ns late that
    /// no earlier element counts. The last element also counts those that are later.
    pub fn buckets(&self) -> [u64; 64] {
        let mut buckets = [0; 64];
        for (place, count) in self.counts.iter().enumerate() {
            let bits = u64::BITS - (end(place) - 1).leading_zeros();
            buckets[bits.min(63) as usize] += count;
        }
        buckets
    }

    /// Returns the largest lateness.
    pub const fn most(&self) -> Span {
        self.most
    }

    /// Returns an upper bound of the lateness of `per_mille` thousandths of the packets, at most an
    /// eighth above the true quantile.
    pub fn bound(&self, per_mille: u64) -> Span {
        let packets = self.packets();
        let wanted = packets.saturating_mul(per_mille.min(1000)).div_ceil(1000);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Span::from_ns(end(place)).min(self.most);
            }
        }
        Span::ZERO
    }
}

/// Returns the place of a lateness among the fine counts.
const fn fine(ns: u64) -> usize {
    if ns < 8 {
        return ns as usize;
    }
    let power = ns.ilog2();
    let eighth = (ns >> (power - 3)) & 7;
    (power as usize - 2) * 8 + eighth as usize
}

/// Returns the first lateness above those that a place counts, as far as there is one.
const fn end(place: usize) -> u64 {
    if place < 8 {
        return place as u64 + 1;
    }
    let (power, eighth) = (place / 8 + 2, place as u64 % 8);
    match (8 + eighth + 1).checked_mul(1 << (power - 3)) {
        Some(end) => end,
        None => u64::MAX,
    }
}

/// Places for all latenesses.
const FINE: usize = fine(u64::MAX) + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_lateness_is_at_most_an_eighth_above_the_quantile() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.bound(500), Span::ZERO);
        for ns in [0, 900, 1100, 1200, 5000] {
            lateness.note(Span::from_ns(ns));
        }
        // The third of five is 1100 ns. The interval from 1024 to 2048 has eight parts of 128.
        assert_eq!(lateness.bound(500), Span::from_ns(1152));
        // The last one's part ends at 5120, but nothing was later than 5000.
        assert_eq!(lateness.bound(1000), Span::from_ns(5000));
        assert_eq!(lateness.packets(), 5);
    }

    #[test]
    fn every_lateness_has_a_place_that_ends_soon_after_it() {
        let powers = (0..64).map(|power| 1_u64 << power);
        let near = powers.flat_map(|p| [p - 1, p, p + p / 8, p + p / 3, p + (p - 1)]);
        for ns in near {
            let end = end(fine(ns));
            let most = ns.saturating_add(ns / 8).saturating_add(1);
            assert!(end > ns || ns == u64::MAX, "{ns}: {end}");
            assert!(end <= most, "{ns}: {end}");
        }
        assert_eq!(fine(u64::MAX), FINE - 1);
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let mut lateness = Lateness::default();
        for ns in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 2047, 1 << 62, u64::MAX] {
            lateness.note(Span::from_ns(ns));
        }
        // Less than 1, 2, 4, 8, 16, 1024 and 2048 ns; what needs 63 bits or more is in the last one.
        let expected = [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 1),
            (10, 1),
            (11, 2),
            (63, 2),
        ];
        let buckets = lateness.buckets();
        for (place, count) in expected {
            assert_eq!(buckets[place], count, "{place}");
        }
        assert_eq!(buckets.iter().sum::<u64>(), 12);
    }
}
