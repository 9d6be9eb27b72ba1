//! The sender's record of the segments in flight: one entry per transmitted segment.
//!
//! Entries are kept in a ring in sequence order. Acknowledging, SACKing and finding a segment take
//! amortised constant time, whatever the window:
//! - an entry is found by dividing the distance by the segment size; only after short segments a
//!   binary search is needed;
//! - runs of SACKed entries are skipped by path-compressed links, so SACK blocks that are reported
//!   repeatedly cost no more than new ones;
//! - loss detection needs segments in the order of transmission (RFC 8985 §5.2). First
//!   transmissions are in sequence order, so a cursor passes each of them once. Retransmissions
//!   have a separate list.
//!
//! `in_flight` is the pipe of RFC 6675 §4: bytes sent, less those SACKed or lost, plus
//! retransmissions.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use sluice_core::{Time, prefetch};

/// The delivery state of the connection when a segment left (draft-cheng-iccrg-delivery-rate-
/// estimation §3.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxState {
    /// Bytes that had been delivered.
    pub delivered: u64,
    /// The instant at which the last of these bytes were delivered.
    pub delivered_at: Time,
    /// Transmission time of the first segment of the sample.
    pub first_sent_at: Time,
    /// Whether the sender had less data to send than it was allowed to send.
    pub app_limited: bool,
}

/// One transmitted segment, in 32 bytes: half a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(crate) struct Entry {
    seq: u32,
    len: u16,
    flags: u8,
    /// The entry after the run of SACKed entries that this one belongs to.
    skip: u32,
    /// The low half of [`TxState::delivered`]; less than 2^32 bytes are delivered while a segment
    /// is outstanding.
    delivered: u32,
    /// The last transmission.
    pub sent_at: Time,
    /// How long before `sent_at` the other two instants of [`TxState`] were, in units of 16 ns: 68
    /// s at most. A rate sample over a longer time has no meaning.
    delivered_ago: u32,
    first_sent_ago: u32,
}

const AGO_UNIT_NS: u64 = 16;
const _: () = assert!(size_of::<Entry>() == 32);

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// A retransmission is in flight.
const RETRANSMITTED: u8 = 4;
/// The segment has been retransmitted at least once, so Karn's rule applies.
const EVER_RETRANSMITTED: u8 = 8;
const APP_LIMITED: u8 = 16;
const FIN: u8 = 32;

impl Entry {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sequence space that the segment occupies.
    pub fn len(&self) -> u64 {
        u64::from(self.len)
    }

    /// Whether the segment ends with the FIN, which is the last unit of its length.
    pub fn is_fin(&self) -> bool {
        self.has(FIN)
    }

    /// Whether the segment has been sent more than once.
    pub fn was_retransmitted(&self) -> bool {
        self.has(EVER_RETRANSMITTED)
    }

    /// Whether the receiver has reported the segment.
    pub fn is_sacked(&self) -> bool {
        self.has(SACKED)
    }

    /// The delivery state when the segment left; `delivered` is the current count.
    pub fn tx(&self, delivered: u64) -> TxState {
        let before = |units: u32| {
            let ns = self.sent_at.as_ns();
            Time::from_ns(ns.saturating_sub(u64::from(units) * AGO_UNIT_NS))
        };
        TxState {
            delivered: delivered - u64::from((delivered as u32).wrapping_sub(self.delivered)),
            delivered_at: before(self.delivered_ago),
            first_sent_at: before(self.first_sent_ago),
            app_limited: self.has(APP_LIMITED),
        }
    }

    fn set_tx(&mut self, tx: TxState) {
        let ago = |at: Time| {
            let units = self.sent_at.since(at).as_ns() / AGO_UNIT_NS;
            u32::try_from(units).unwrap_or(u32::MAX)
        };
        self.delivered = tx.delivered as u32;
        (self.delivered_ago, self.first_sent_ago) = (ago(tx.delivered_at), ago(tx.first_sent_at));
        self.flags = self.flags & !APP_LIMITED | if tx.app_limited { APP_LIMITED } else { 0 };
    }
}

/// The number of an entry. Numbers increase and wrap.
pub(crate) type Id = u32;

#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Scoreboard {
    /// Sequence numbers of the first entry and after the last one.
    una: u64,
    nxt: u64,
    ring: Box<[Entry]>,
    head: Id,
    tail: Id,
    /// Loss detection has processed all first transmissions below this entry.
    cursor: Id,
    sacked_count: u32,
    mss: u64,
    sacked_bytes: u64,
    lost_bytes: u64,
    retransmitted_bytes: u64,
    /// The state needed only for repairs, allocated separately.
    repair: Box<Repair>,
    /// The three highest SACKed entries, highest first. By the DupThresh rule, everything below the
    /// third is lost (RFC 6675 §4).
    top: [Id; DUP_THRESH],
    top_len: u8,
    /// Whether `repair` has entries.
    has_repaired: bool,
}

#[derive(Clone, Debug, Default)]
struct Repair {
    /// Retransmissions in the order in which they left.
    resent: VecDeque<(Id, Time)>,
    /// Lost entries that wait for retransmission: first losses and lost retransmissions. Each list
    /// is in ascending order, except where the second one wraps.
    lost: VecDeque<Id>,
    lost_again: VecDeque<Id>,
}

/// The number of entries that are allocated with the first segment. An end that only receives
/// allocates none.
const FIRST_ROOM: usize = 16;

/// A hole is a loss when this number of segments above it is SACKed (RFC 6675 §2).
pub(crate) const DUP_THRESH: usize = 3;

impl Scoreboard {
    pub fn new(start: u64, mss: u32) -> Self {
        Scoreboard {
            ring: Box::default(),
            head: 0,
            tail: 0,
            una: start,
            nxt: start,
            mss: u64::from(mss),
            sacked_bytes: 0,
            lost_bytes: 0,
            retransmitted_bytes: 0,
            sacked_count: 0,
            top: [0; DUP_THRESH],
            top_len: 0,
            cursor: 0,
            has_repaired: false,
            repair: Box::default(),
        }
    }

    /// Sets the segment size that lookups assume.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
    }

    /// See [`crate::Endpoint::prefetch_elsewhere`].
    pub fn prefetch_elsewhere(&self) {
        if self.is_empty() {
            return;
        }
        prefetch::line(self.entry(self.head));
        // Most ACKs acknowledge two segments.
        prefetch::line(self.entry(self.head.wrapping_add(2)));
        prefetch::line(self.entry(self.tail));
        if self.is_repairing() {
            prefetch::line(&self.repair.resent);
            prefetch::line(&self.repair.lost_again);
            prefetch::line(self.entry(self.head.wrapping_add(4)));
        }
    }

    /// See [`crate::Endpoint::prefetch_last`].
    pub fn prefetch_last(&self) {
        if self.is_repairing() {
            let Repair {
                resent,
                lost,
                lost_again,
            } = &*self.repair;
            resent.front().into_iter().for_each(prefetch::line);
            lost.front().into_iter().for_each(prefetch::line);
            lost_again.front().into_iter().for_each(prefetch::line);
        }
    }

    /// The first unacknowledged sequence number.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The next new sequence number.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Bytes sent and not cumulatively acknowledged (RFC 5681: FlightSize).
    pub fn flight(&self) -> u64 {
        self.nxt - self.una
    }

    /// Bytes believed to be in the network (RFC 6675 §4: pipe).
    pub fn in_flight(&self) -> u64 {
        self.flight() + self.retransmitted_bytes - self.sacked_bytes - self.lost_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Number of segments that have not been acknowledged cumulatively.
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether at least [`DUP_THRESH`] segments are SACKed.
    pub fn has_dup_thresh(&self) -> bool {
        self.sacked_count as usize >= DUP_THRESH
    }

    /// Whether any segment is SACKed.
    pub fn has_sacked(&self) -> bool {
        self.sacked_count > 0
    }

    /// Whether losses or retransmissions are outstanding, so that loss detection must run even
    /// without SACKed segments.
    pub fn is_repairing(&self) -> bool {
        self.retransmitted_bytes > 0 || self.lost_bytes > 0
    }

    /// Whether a lost segment has not been acknowledged yet, retransmitted or not.
    pub fn has_lost(&self) -> bool {
        self.lost_bytes > 0
    }

    /// Whether a retransmission is in flight.
    pub fn is_resending(&self) -> bool {
        self.retransmitted_bytes > 0
    }

    /// Number of retransmissions in flight, in full segments.
    pub fn resending(&self) -> u32 {
        self.retransmitted_bytes.div_ceil(self.mss) as u32
    }

    pub fn entry(&self, id: Id) -> &Entry {
        &self.ring[id as usize & (self.ring.len() - 1)]
    }

    fn entry_mut(&mut self, id: Id) -> &mut Entry {
        let mask = self.ring.len() - 1;
        &mut self.ring[id as usize & mask]
    }

    pub fn head(&self) -> Option<Id> {
        (!self.is_empty()).then_some(self.head)
    }

    pub fn last(&self) -> Option<Id> {
        (!self.is_empty()).then(|| self.tail.wrapping_sub(1))
    }

    /// The sequence number of an entry in the window.
    pub fn seq(&self, id: Id) -> u64 {
        self.una + u64::from(self.entry(id).seq.wrapping_sub(self.una as u32))
    }

    /// The sequence number after an entry in the window.
    pub fn end(&self, id: Id) -> u64 {
        self.seq(id) + self.entry(id).len()
    }

    /// Records the transmission of a new segment of `len` sequence numbers at `nxt`.
    pub fn push(&mut self, len: u16, fin: bool, now: Time, tx: TxState) -> Id {
        if self.len() as usize == self.ring.len() {
            self.grow();
        }
        let id = self.tail;
        let seq = self.nxt as u32;
        let entry = self.entry_mut(id);
        *entry = Entry {
            seq,
            len,
            flags: if fin { FIN } else { 0 },
            skip: 0,
            sent_at: now,
            ..Entry::default()
        };
        entry.set_tx(tx);
        self.tail = self.tail.wrapping_add(1);
        self.nxt += u64::from(len);
        id
    }

    /// Removes and returns the first entry if it ends at or before `ack`.
    ///
    /// An ACK inside a segment does not acknowledge a part of it: receivers accept only whole
    /// segments.
    pub fn pop_acked(&mut self, ack: u64) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let entry = *self.entry(self.head);
        if self.una + entry.len() > ack {
            return None;
        }
        let len = entry.len();
        if entry.has(SACKED) {
            self.sacked_bytes -= len;
            self.sacked_count -= 1;
            while self.top_len > 0 && self.top[usize::from(self.top_len) - 1] == self.head {
                self.top_len -= 1;
            }
        } else {
            self.forget_in_flight(&entry);
        }
        if self.cursor == self.head {
            self.cursor = self.cursor.wrapping_add(1);
        }
        self.head = self.head.wrapping_add(1);
        self.una += len;
        if self.is_empty() {
            self.start_over();
        }
        Some(entry)
    }

    /// Marks the entries wholly inside `start..end` as SACKed; calls `on_sacked` for each newly
    /// SACKed entry, with its end.
    pub fn sack(&mut self, start: u64, end: u64, mut on_sacked: impl FnMut(&Entry, u64)) {
        let (start, end) = (start.max(self.una), end.min(self.nxt));
        if start >= end {
            return;
        }
        let mut id = self.find(start);
        if self.seq(id) < start {
            id = id.wrapping_add(1);
        }
        loop {
            id = self.next_unsacked(id);
            if id == self.tail {
                return;
            }
            let after = self.end(id);
            if after > end {
                return;
            }
            let entry = *self.entry(id);
            self.forget_in_flight(&entry);
            self.sacked_bytes += entry.len();
            self.sacked_count += 1;
            self.note_top(id);
            let slot = self.entry_mut(id);
            slot.flags = slot.flags & !(LOST | RETRANSMITTED) | SACKED;
            slot.skip = id.wrapping_add(1);
            on_sacked(&entry, after);
            id = id.wrapping_add(1);
        }
    }

    /// Forgets all SACKs if the receiver has reneged. RFC 2018 §8: a receiver may discard data that
    /// it has SACKed. It has done so if the first entry is SACKed but not acknowledged at a
    /// timeout.
    pub fn forget_sacks_of_reneging_receiver(&mut self) {
        if self.is_empty() || !self.entry(self.head).is_sacked() {
            return;
        }
        let mut id = self.head;
        while id != self.tail {
            self.entry_mut(id).flags &= !SACKED;
            id = id.wrapping_add(1);
        }
        self.sacked_bytes = 0;
        self.sacked_count = 0;
        self.top_len = 0;
        self.cursor = self.head;
    }

    /// Passes each outstanding transmission to `is_lost`, oldest first, until it returns false, and
    /// marks the others as lost. Returns the bytes marked.
    ///
    /// The arguments of `is_lost` are the entry and the sequence number after it.
    pub fn mark_lost_while(&mut self, mut is_lost: impl FnMut(&Entry, u64) -> bool) -> u64 {
        let mut marked = 0;
        while self.cursor != self.tail {
            let id = self.cursor;
            let entry = *self.entry(id);
            if !entry.has(SACKED | LOST | RETRANSMITTED) {
                if !is_lost(&entry, self.end(id)) {
                    break;
                }
                marked += self.mark_lost(id);
            }
            self.cursor = id.wrapping_add(1);
        }
        if self.retransmitted_bytes == 0 {
            return marked;
        }
        while let Some(&(id, sent_at)) = self.repair.resent.front() {
            if self.is_current_retransmission(id, sent_at) {
                let entry = *self.entry(id);
                if !is_lost(&entry, self.end(id)) {
                    break;
                }
                marked += self.mark_lost(id);
            }
            self.repair.resent.pop_front();
        }
        marked
    }

    /// The time of the latest transmission that may still become a loss: `is_overtaken` is true for
    /// it, and it is neither SACKed nor lost.
    pub fn latest_overtaken(&mut self, is_overtaken: impl Fn(Time, u64) -> bool) -> Time {
        let mut latest = Time::ZERO;
        let mut id = self.next_unsacked(self.cursor);
        while id != self.tail {
            let entry = *self.entry(id);
            if !entry.has(LOST | RETRANSMITTED) {
                if !is_overtaken(entry.sent_at, self.end(id)) {
                    break;
                }
                latest = latest.max(entry.sent_at);
            }
            id = self.next_unsacked(id.wrapping_add(1));
        }
        if self.retransmitted_bytes > 0 {
            for &(id, sent_at) in &self.repair.resent {
                if self.is_current_retransmission(id, sent_at) {
                    if !is_overtaken(sent_at, self.end(id)) {
                        break;
                    }
                    latest = latest.max(sent_at);
                }
            }
        }
        latest
    }

    /// Marks the first transmissions below the third highest SACKed segment. RFC 6675 §4 (IsLost)
    /// counts three blocks, or bytes of more than two full segments; here segments of any size
    /// count, as in Linux. Returns the bytes marked.
    pub fn mark_lost_by_dup_thresh(&mut self) -> u64 {
        if usize::from(self.top_len) < DUP_THRESH {
            return 0;
        }
        let limit = self.top[DUP_THRESH - 1];
        let mut marked = 0;
        while self.is_before(self.cursor, limit) {
            let id = self.cursor;
            if !self.entry(id).has(SACKED | LOST | RETRANSMITTED) {
                marked += self.mark_lost(id);
            }
            self.cursor = id.wrapping_add(1);
        }
        marked
    }

    /// Marks the first entry as lost after a timeout, unless it is SACKed.
    pub fn mark_head_lost(&mut self) {
        if self
            .head()
            .is_some_and(|head| !self.entry(head).is_sacked())
        {
            self.mark_lost(self.head);
        }
    }

    /// Removes all loss marks after a spurious recovery.
    pub fn unmark_losses(&mut self) {
        let mut id = self.head;
        while id != self.tail {
            let entry = self.entry_mut(id);
            if entry.has(LOST) {
                let len = entry.len();
                entry.flags &= !LOST;
                self.lost_bytes -= len;
            }
            id = id.wrapping_add(1);
        }
        self.repair.lost.clear();
        self.repair.lost_again.clear();
        self.cursor = self.head;
    }

    /// The lost entry to retransmit next.
    pub fn next_lost(&mut self) -> Option<Id> {
        if self.lost_bytes == 0 {
            return None;
        }
        while let Some(&id) = self.repair.lost.front() {
            if self.is_waiting(id) {
                break;
            }
            self.repair.lost.pop_front();
        }
        while let Some(&id) = self.repair.lost_again.front() {
            if self.is_waiting(id) {
                break;
            }
            self.repair.lost_again.pop_front();
        }
        match (self.repair.lost.front(), self.repair.lost_again.front()) {
            (Some(&first), Some(&again)) if self.is_before(again, first) => Some(again),
            (Some(&first), _) => Some(first),
            (None, again) => again.copied(),
        }
    }

    /// Records a retransmission of `id`.
    pub fn on_retransmit(&mut self, id: Id, now: Time, tx: TxState) {
        let entry = self.entry_mut(id);
        let len = entry.len();
        let already = entry.has(RETRANSMITTED);
        entry.flags |= RETRANSMITTED | EVER_RETRANSMITTED;
        entry.sent_at = now;
        entry.set_tx(tx);
        if !already {
            self.retransmitted_bytes += len;
        }
        self.has_repaired = true;
        self.repair.resent.push_back((id, now));
    }

    /// Returns to the front of the ring when nothing is outstanding, so that a small window stays
    /// within one or two cache lines.
    fn start_over(&mut self) {
        (self.head, self.tail, self.cursor) = (0, 0, 0);
        if core::mem::take(&mut self.has_repaired) {
            self.repair.resent.clear();
            self.repair.lost.clear();
            self.repair.lost_again.clear();
        }
    }

    fn mark_lost(&mut self, id: Id) -> u64 {
        let entry = self.entry_mut(id);
        let len = entry.len();
        let (was_lost, was_resent) = (entry.has(LOST), entry.has(RETRANSMITTED));
        if was_lost && !was_resent {
            return 0;
        }
        entry.flags = (entry.flags | LOST) & !RETRANSMITTED;
        self.has_repaired = true;
        if was_resent {
            self.retransmitted_bytes -= len;
            self.repair.lost_again.push_back(id);
        } else {
            self.repair.lost.push_back(id);
        }
        if !was_lost {
            self.lost_bytes += len;
        }
        len
    }

    fn forget_in_flight(&mut self, entry: &Entry) {
        if entry.has(LOST) {
            self.lost_bytes -= entry.len();
        }
        if entry.has(RETRANSMITTED) {
            self.retransmitted_bytes -= entry.len();
        }
    }

    fn note_top(&mut self, id: Id) {
        let mut at = 0;
        let len = usize::from(self.top_len);
        while at < len && self.is_before(id, self.top[at]) {
            at += 1;
        }
        if at == DUP_THRESH {
            return;
        }
        let last = len.min(DUP_THRESH - 1);
        self.top.copy_within(at..last, at + 1);
        self.top[at] = id;
        self.top_len = (len + 1).min(DUP_THRESH) as u8;
    }

    fn is_before(&self, a: Id, b: Id) -> bool {
        a.wrapping_sub(self.head) < b.wrapping_sub(self.head)
    }

    fn is_in_window(&self, id: Id) -> bool {
        id.wrapping_sub(self.head) < self.len()
    }

    fn is_waiting(&self, id: Id) -> bool {
        self.is_in_window(id) && {
            let entry = self.entry(id);
            entry.has(LOST) && !entry.has(RETRANSMITTED)
        }
    }

    fn is_current_retransmission(&self, id: Id, sent_at: Time) -> bool {
        self.is_in_window(id) && {
            let entry = self.entry(id);
            entry.has(RETRANSMITTED) && entry.sent_at == sent_at
        }
    }

    /// The entry that contains `seq`, which lies in `una..nxt`.
    fn find(&self, seq: u64) -> Id {
        let guess = ((seq - self.una) / self.mss).min(u64::from(self.len()) - 1) as u32;
        let id = self.head.wrapping_add(guess);
        let first = self.seq(id);
        if first <= seq && seq < first + self.entry(id).len() {
            return id;
        }
        let (mut low, mut high) = (0, self.len());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.seq(self.head.wrapping_add(middle)) <= seq {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.head.wrapping_add(low)
    }

    /// The first entry from `id` on that is not SACKed, or `tail`. Compresses the links that it
    /// followed.
    fn next_unsacked(&mut self, id: Id) -> Id {
        let mut end = id;
        while end != self.tail && self.entry(end).is_sacked() {
            end = self.entry(end).skip;
        }
        let mut at = id;
        while at != end {
            let entry = self.entry_mut(at);
            at = entry.skip;
            entry.skip = end;
        }
        end
    }

    fn grow(&mut self) {
        let mut ring =
            vec![Entry::default(); (self.ring.len() * 2).max(FIRST_ROOM)].into_boxed_slice();
        let mask = ring.len() - 1;
        let mut id = self.head;
        while id != self.tail {
            ring[id as usize & mask] = *self.entry(id);
            id = id.wrapping_add(1);
        }
        self.ring = ring;
    }
}

#[cfg(test)]
mod tests;
