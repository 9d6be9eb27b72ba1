//! Data that arrived beyond a gap, and the blocks that report them (SACK, RFC 2018; D-SACK, RFC
//! 2883).

use crate::segment::{MAX_SACK_BLOCKS, SackBlock, Segment};
use alloc::collections::VecDeque;
use sluice_core::prefetch;

/// Linux `TCP_SACK_BLOCKS_EXPECTED`: an ACK has room for three blocks, and may be lost.
const BLOCKS_EXPECTED: usize = 2;

/// Received sequence numbers `start..end`.
type Range = (u64, u64);

#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Reassembly {
    /// The number of valid entries in [`Reassembly::recent`].
    recent_len: u32,
    has_duplicate: bool,
    /// Whether `out_of_order` has ranges. A segment in order needs only this cache line.
    has_ranges: bool,
    /// Bytes beyond the first gap, in order and disjoint.
    out_of_order: VecDeque<Range>,
    /// The blocks to report, most recently changed first (RFC 2018 §4).
    recent: [Range; MAX_SACK_BLOCKS],
    /// A segment that arrived twice (RFC 2883 §4), if `has_duplicate`.
    duplicate: Range,
    /// Bytes that arrived a second time.
    duplicate_bytes: u64,
}

impl Reassembly {
    /// Whether there is no gap.
    pub fn is_empty(&self) -> bool {
        !self.has_ranges
    }

    /// The sequence number after the last byte; `None` without a gap.
    pub fn end(&self) -> Option<u64> {
        if !self.has_ranges {
            return None;
        }
        self.out_of_order.back().map(|last| last.1)
    }

    /// Whether the next ACK must carry blocks.
    pub fn has_report(&self) -> bool {
        self.recent_len > 0 || self.has_duplicate
    }

    pub fn has_duplicate(&self) -> bool {
        self.has_duplicate
    }

    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// See [`crate::Endpoint::prefetch`].
    pub fn prefetch(&self) {
        prefetch::line(&self.recent);
    }

    /// See [`crate::Endpoint::prefetch_elsewhere`].
    pub fn prefetch_elsewhere(&self) {
        if self.has_ranges
            && let Some(last) = self.out_of_order.back()
        {
            prefetch::line(last);
            prefetch::line(&self.recent);
            prefetch::line(&self.duplicate_bytes);
        }
    }

    /// Writes the blocks to report into `segment`.
    pub fn stamp(&mut self, segment: &mut Segment) {
        let mut count = 0;
        // RFC 2883 §4: the duplicate comes first, and is reported once.
        if self.has_duplicate {
            self.has_duplicate = false;
            let (start, end) = self.duplicate;
            segment.sack[0] = SackBlock {
                start: start as u32,
                end: end as u32,
            };
            count = 1;
        }
        for &(start, end) in &self.recent[..self.recent_len as usize] {
            if count < MAX_SACK_BLOCKS {
                segment.sack[count] = SackBlock {
                    start: start as u32,
                    end: end as u32,
                };
                count += 1;
            }
        }
        segment.sack_count = count as u8;
    }

    /// Records that `start..end` has arrived twice.
    pub fn note_duplicate(&mut self, start: u64, end: u64) {
        if start < end {
            self.has_duplicate = true;
            self.duplicate = (start, end);
            self.duplicate_bytes += end - start;
        }
    }

    /// Stores `start..end` beyond the gap; its block becomes the first of the report. Returns whether
    /// it pushes a block towards the end of the report: at least [`BLOCKS_EXPECTED`] others were
    /// reported before its own.
    pub fn insert(&mut self, start: u64, end: u64) -> bool {
        // In most cases, the segment extends the last range, or starts a new one after it.
        let mut at = self.out_of_order.len();
        while at > 0 && self.out_of_order[at - 1].1 >= start {
            // A few steps back suffice for mild reordering. For a distant hole, a binary search is
            // faster.
            if self.out_of_order.len() - at >= 8 {
                at = self.out_of_order.partition_point(|&(_, e)| e < start);
                break;
            }
            at -= 1;
        }
        let mut merged = (start, end);
        let mut after = at;
        while after < self.out_of_order.len() && self.out_of_order[after].0 <= end {
            let (s, e) = self.out_of_order[after];
            let overlap = (start.max(s), end.min(e));
            self.note_duplicate(overlap.0, overlap.1);
            merged = (merged.0.min(s), merged.1.max(e));
            after += 1;
        }
        match after - at {
            0 => self.out_of_order.insert(at, merged),
            1 => self.out_of_order[at] = merged,
            _ => {
                self.out_of_order[at] = merged;
                self.out_of_order.drain(at + 1..after);
            }
        }
        self.has_ranges = true;
        // RFC 2018 §4: the block with the latest segment first, then those reported before.
        let mut blocks = [(0, 0); MAX_SACK_BLOCKS];
        blocks[0] = merged;
        let mut count = 1;
        let mut place = self.recent_len as usize;
        for (i, &(s, e)) in self.recent[..self.recent_len as usize].iter().enumerate() {
            let is_inside = merged.0 <= s && e <= merged.1;
            if is_inside {
                place = place.min(i);
            } else if count < MAX_SACK_BLOCKS {
                blocks[count] = (s, e);
                count += 1;
            }
        }
        self.recent = blocks;
        self.recent_len = count as u32;
        place >= BLOCKS_EXPECTED
    }

    /// Removes the ranges that `nxt` has reached and returns the sequence number after them.
    /// `arrived` is the start of the segment that has advanced `nxt`.
    pub fn drain(&mut self, mut nxt: u64, arrived: u64) -> u64 {
        while let Some(&(start, end)) = self.out_of_order.front() {
            if start > nxt {
                break;
            }
            self.note_duplicate(start.max(arrived), end.min(nxt));
            nxt = nxt.max(end);
            self.out_of_order.pop_front();
        }
        self.has_ranges = !self.out_of_order.is_empty();
        let mut kept = 0;
        for i in 0..self.recent_len as usize {
            if self.recent[i].1 > nxt {
                self.recent[kept] = self.recent[i];
                kept += 1;
            }
        }
        self.recent_len = kept as u32;
        nxt
    }
}
