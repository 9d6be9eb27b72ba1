//! The state of the connection when the segments in flight left. There is one record per ACK, since
//! the count of delivered bytes does not change between two ACKs.

use alloc::collections::VecDeque;

/// The state of the connection when a segment left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes in flight, including the burst to which the segment belongs.
    pub in_flight: u64,
    /// Bytes that had been lost.
    pub lost: u64,
}

/// The records of the ACKs since the oldest segment in flight left. Space: one record per ACK of a
/// round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    records: VecDeque<(u64, Sent)>,
}

impl History {
    /// The bytes delivered as of the last ACK.
    pub fn delivered(&self) -> u64 {
        self.records.back().map_or(0, |record| record.0)
    }

    /// Records the bytes in flight before an ACK, which include those sent since the last ACK.
    pub fn end_burst(&mut self, in_flight: u64) {
        match self.records.back_mut() {
            Some((_, sent)) => sent.in_flight = sent.in_flight.max(in_flight),
            None => self.records.push_back((0, Sent { in_flight, lost: 0 })),
        }
    }

    /// Records the state of the connection after an ACK.
    pub fn start_burst(&mut self, delivered: u64, in_flight: u64, lost: u64) {
        if delivered > self.delivered() {
            self.records
                .push_back((delivered, Sent { in_flight, lost }));
        }
    }

    /// Returns the state of the connection when a segment left with a count of `delivered` bytes.
    /// Forgets older records: a segment to which one belongs is acknowledged later only if it was
    /// overtaken.
    pub fn find(&mut self, delivered: u64) -> Sent {
        while self.records.get(1).is_some_and(|next| next.0 <= delivered) {
            self.records.pop_front();
        }
        self.records
            .front()
            .map(|first| first.1)
            .unwrap_or_default()
    }
}
