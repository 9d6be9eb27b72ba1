//! Processing of ACKs.

use super::{Sender, Timer};
use crate::cc::{Ack, Phase, Signal};
use crate::ecn::EcnMode;
use crate::rate::Newest;
use crate::scoreboard::Entry;
use crate::segment::{Flags, SackBlock, Segment, expand};
use sluice_core::{Span, Time};

/// Facts about the segments that one ACK newly delivers.
struct Gathered {
    delivered: u64,
    /// The transmissions of the segments acknowledged cumulatively and of the segments SACKed, for
    /// the RTT.
    acked: Transmissions,
    sacked: Transmissions,
    /// Whether one of these segments was sent once only, and before the current recovery episode.
    has_original: bool,
    /// For the delivery rate.
    rate: Newest,
}

/// Oldest and newest transmission of segments that were sent once only.
#[derive(Default)]
struct Transmissions {
    oldest: Option<Time>,
    newest: Option<Time>,
    /// Whether a segment was sent more than once.
    has_retransmission: bool,
}

impl Sender {
    /// Processes the acknowledgement, window, SACK and ECN fields of a segment.
    pub fn handle_ack(&mut self, now: Time, segment: &Segment) {
        let ack = expand(segment.ack, self.board.una());
        if ack > self.board.nxt() {
            return;
        }
        self.is_deferring = false;
        self.prefers_new = false;
        let window_moved = self.update_window(ack, segment);
        let prior_una = self.board.una();
        let prior_in_flight = self.board.in_flight();
        let is_quiet = ack == prior_una && segment.sack_count == 0;
        let is_plain_duplicate = is_quiet && segment.len == 0 && !window_moved;
        if is_quiet && self.board.is_empty() {
            // The segment carries data, and this side has nothing outstanding. Or it answers a probe
            // without reporting the duplicate.
            if is_plain_duplicate {
                self.end_tail_probe(now, ack, true);
            }
            return;
        }
        let mut gathered = Gathered {
            delivered: 0,
            acked: Transmissions::default(),
            sacked: Transmissions::default(),
            has_original: false,
            rate: Newest::default(),
        };
        self.rack.start_ack();
        let dsack = self.take_sacks(now, segment, ack, &mut gathered);
        while let Some(entry) = self.board.pop_acked(ack) {
            let end = self.board.una();
            if !entry.is_sacked() {
                self.take_delivered(now, &entry, end, segment.ts_echo, &mut gathered);
            }
        }
        let advanced = self.board.una() > prior_una;
        if advanced {
            // RFC 6298 §5.3: a new ACK restarts the timer, and ends the backoff.
            self.rto_base = now;
            self.rtt.end_backoff();
            self.expiries = 0;
        } else if let (Some(sacked), Some(head)) = (gathered.sacked.oldest, self.board.head())
            && sacked < self.board.entry(head).sent_at
        {
            // Linux (`tcp_clean_rtx_queue`): the SACK of a segment that was sent before the last
            // transmission of the first one also restarts the timer.
            self.rto_base = now;
        }
        let rtt = self.sample_rtt(now, segment, advanced, &gathered);
        let sample = self.rate.finish(&gathered.rate, self.rtt.min());
        let is_superseded = ack < prior_una;
        let ce_bytes = if is_superseded {
            0
        } else {
            self.take_ce(segment, gathered.delivered)
        };
        let has_ece =
            matches!(self.ecn, EcnMode::Classic | EcnMode::Dctcp) && segment.flags.has(Flags::ECE);
        self.end_tail_probe(now, ack, dsack || is_plain_duplicate);
        if dsack {
            self.rack.on_dsack(self.board.una(), self.board.nxt());
        }
        let mut lost = if self.board.has_sacked() || self.board.is_repairing() {
            self.detect_losses(now)
        } else {
            self.reordering_deadline = Time::MAX;
            0
        };
        let undos = self.counters.undos;
        self.try_undo(segment, advanced);
        let is_new_sacked = gathered.sacked.is_some();
        self.check_timeout(
            advanced,
            gathered.has_original,
            is_new_sacked || is_plain_duplicate,
        );
        if self.counters.undos > undos && self.board.has_sacked() {
            // An undo forgets all losses. Losses with other evidence are found again here.
            lost = self.detect_losses(now);
        }
        // A loss beyond the end of a recovery starts another recovery (RFC 6582 §3.2, step 2), even
        // if the loss was found, and perhaps repaired, before that end.
        let goes_on = self.end_episode() && self.board.has_lost();
        if lost > 0 || goes_on {
            self.on_loss_found(
                now,
                prior_in_flight,
                gathered.delivered,
                advanced && lost == 0,
            );
        } else if (has_ece || ce_bytes > 0) && self.phase == Phase::Open && !self.cc.handles_marks()
        {
            self.on_mark(now, prior_in_flight, gathered.delivered, advanced);
        } else if matches!(self.phase, Phase::Recovery | Phase::Reducing)
            && !self.cc.owns_window()
            && gathered.delivered > 0
        {
            self.reduce(gathered.delivered, advanced);
        }
        let is_round_start = self.board.una() > self.round_end;
        if is_round_start {
            self.round_end = self.board.nxt();
            self.size_super_packet();
        }
        self.burst_len = 0;
        let event = Ack {
            now,
            phase: self.phase,
            has_progress: advanced,
            is_round_start,
            delivered: gathered.delivered,
            lost,
            una: self.board.una(),
            nxt: self.board.nxt(),
            rtt,
            delay: (segment.ts_echo > Time::ZERO).then(|| segment.ts.since(segment.ts_echo)),
            srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
            min_rtt: self.rtt.min(),
            prior_in_flight,
            in_flight: self.board.in_flight(),
            departure: self.pace_at,
            is_cwnd_limited: self.is_cwnd_limited
                || (self.window.is_slow_start() && self.window.cwnd < 2 * self.largest_flight),
            has_ece,
            ce_bytes,
            total_delivered: self.rate.delivered,
            rate: sample,
        };
        self.cc.on_ack(&event, &mut self.window);
        if self.cc.limits_samples() {
            self.rate.on_app_limited(self.board.in_flight());
        }
        if !is_quiet || self.board.is_empty() {
            self.arm(now);
        }
    }

    /// RFC 9293 §3.10.7.4: updates the peer's window; returns whether its right edge moved. SND.WL1
    /// and SND.WL2, which prevent an old segment from shrinking the window, are not needed: a
    /// receiver of this crate never moves its edge back.
    fn update_window(&mut self, ack: u64, segment: &Segment) -> bool {
        if ack < self.board.una() {
            return false;
        }
        let window = u64::from(segment.window) << self.peer_scale;
        self.largest_window = self.largest_window.max(window);
        let edge = ack + window;
        if edge <= self.edge {
            return false;
        }
        self.edge = edge;
        if self.timer == Timer::Persist {
            self.set_timer(Timer::Off, Time::MAX);
            self.rtt.end_backoff();
        }
        true
    }

    /// Enters SACK blocks into the scoreboard; returns whether one reports a duplicate.
    fn take_sacks(
        &mut self,
        now: Time,
        segment: &Segment,
        ack: u64,
        gathered: &mut Gathered,
    ) -> bool {
        let count = segment.sacks().len();
        if count == 0 {
            return false;
        }
        let una = self.board.una();
        let expanded = |block: SackBlock| (expand(block.start, una), expand(block.end, una));
        let mut blocks = segment.sack.map(expanded);
        let blocks = &mut blocks[..count];
        // RFC 2883 §5: the first block is a duplicate if it lies below the cumulative ACK of the same
        // segment or inside the second block.
        let dsack = match *blocks {
            [first, ..] if first.0 < ack => true,
            [first, second, ..] => second.0 <= first.0 && first.1 <= second.1,
            _ => false,
        };
        if dsack && let Some(undo) = &mut self.undo {
            undo.unaccounted = undo.unaccounted.saturating_sub(1);
        }
        let blocks = &mut blocks[usize::from(dsack)..];
        // In the order of the sequence, as in Linux, although the first block is the newest one: RACK
        // uses the RTT of the segment that is taken last (RFC 8985 §6.2, step 2).
        blocks.sort_unstable();
        for &mut (start, end) in blocks {
            let (rack, rate) = (&mut self.rack, &mut self.rate);
            let (min_rtt, ts_echo) = (self.rtt.min(), segment.ts_echo);
            let recovery_end = self.recovery_end;
            self.board.sack(start, end, |entry, end| {
                rack.on_delivered(now, entry, end, ts_echo, min_rtt);
                rate.on_delivered(now, entry, &mut gathered.rate);
                gathered.note(entry, end <= recovery_end);
                gathered.sacked.note(entry);
            });
        }
        dsack
    }

    fn take_delivered(
        &mut self,
        now: Time,
        entry: &Entry,
        end: u64,
        ts_echo: Time,
        gathered: &mut Gathered,
    ) {
        self.rack
            .on_delivered(now, entry, end, ts_echo, self.rtt.min());
        self.rate.on_delivered(now, entry, &mut gathered.rate);
        gathered.note(entry, end <= self.recovery_end);
        gathered.acked.note(entry);
    }

    /// RFC 6298 §3: measures the RTT of the oldest acknowledged segment, if all were sent once
    /// only. If one was retransmitted, it may have delayed the ACK of the others; then a SACKed
    /// segment is measured, or otherwise the echoed timestamp (RFC 7323 §4.1). Returns the RTT of
    /// the newest segment, which contains no delay of the ACK.
    fn sample_rtt(
        &mut self,
        now: Time,
        segment: &Segment,
        advanced: bool,
        gathered: &Gathered,
    ) -> Option<Span> {
        let flight = self.board.una()..self.board.nxt();
        let acked = &gathered.acked;
        let oldest_acked = acked.oldest.filter(|_| !acked.has_retransmission);
        if let Some(oldest) = oldest_acked.or(gathered.sacked.oldest) {
            self.rtt.on_sample(now, now.since(oldest), flight);
            // RFC 6298 §5.5, as in Linux: a valid sample replaces the timeout that was doubled.
            self.rtt.end_backoff();
        } else if advanced && segment.ts_echo > Time::ZERO {
            self.rtt.on_sample(now, now.since(segment.ts_echo), flight);
        }
        let newest_acked = acked.newest.filter(|_| !acked.has_retransmission);
        let newest = newest_acked.max(gathered.sacked.newest)?;
        Some(now.since(newest))
    }

    /// RFC 9768 §3.2.2.2: derives the number of segments marked since the last ACK from three bits.
    /// An ACK that a later one has overtaken is ignored. Returns the marked bytes, at most the bytes
    /// newly delivered.
    fn take_ce(&mut self, segment: &Segment, delivered: u64) -> u64 {
        if self.ecn != EcnMode::Accurate {
            if segment.flags.has(Flags::ECE) && self.ecn != EcnMode::Off {
                self.counters.ce_segments += 1;
            }
            return 0;
        }
        let new = segment.flags.ace().wrapping_sub(self.ce_seen) & 7;
        self.ce_seen = self.ce_seen.wrapping_add(new);
        let mut marks = u64::from(new);
        if delivered > 7 * self.mss {
            marks = self.likely_marks(marks, delivered);
        } else if delivered > 0 {
            self.doubtful = 0;
        }
        self.counters.ce_segments += marks;
        (marks * self.mss).min(delivered)
    }

    /// RFC 9768 §3.2.2.5.2: an ACK for more than seven segments, before which others were lost, may
    /// report eight marks more than the `new` ones that its three bits show, or sixteen. Returns the
    /// number that is nearest to the recent share of marks on the ACKs that leave no doubt. The
    /// largest number, which Appendix A.2.1 takes, would be eight or more marks for each such ACK of
    /// a path without marks. A share that no ACK has renewed for long is out of date, and the three bits
    /// count as they are.
    #[cold]
    fn likely_marks(&mut self, new: u64, delivered: u64) -> u64 {
        self.doubtful = self.doubtful.saturating_add(1);
        let before = (self.rate.delivered.saturating_sub(delivered) >> 10) as u32;
        let kib = before.wrapping_sub(self.uncounted_kib);
        let known = (self.counters.ce_segments as u32).wrapping_sub(self.uncounted_marks);
        let segments = delivered / self.mss;
        let expected = match self.doubtful > MOST_DOUBTFUL {
            true => 0,
            false => delivered
                .saturating_mul(u64::from(known))
                .checked_div(u64::from(kib) << 10)
                .unwrap_or(0)
                .min(segments),
        };
        let mut marks = new + (expected.saturating_sub(new) + 4) / 8 * 8;
        if marks > segments {
            marks -= 8;
        }
        // This ACK does not count for the share, and a half of the older ones no longer does.
        let (old_kib, old_marks) = match kib > RECENT_KIB {
            true => (kib / 2, known / 2),
            false => (0, 0),
        };
        let here = ((self.rate.delivered >> 10) as u32).wrapping_sub(before);
        let without_kib = here + old_kib;
        let without_marks = marks as u32 + old_marks;
        self.uncounted_kib = self.uncounted_kib.wrapping_add(without_kib);
        self.uncounted_marks = self.uncounted_marks.wrapping_add(without_marks);
        marks
    }

    /// RFC 8985 §7.4: detects a loss that the probe has repaired, for which there is no other
    /// evidence. §7.4.2: after a reported duplicate or a plain duplicate ACK both copies have
    /// arrived. Such an ACK may follow the ACK of the original, so the loss is certain only with an
    /// ACK beyond the probe.
    fn end_tail_probe(&mut self, now: Time, ack: u64, both_arrived: bool) {
        let Some(probe) = self.tail_probe else {
            return;
        };
        let is_repair = probe.is_retransmission && !both_arrived;
        if ack < probe.end || (is_repair && ack == probe.end) {
            return;
        }
        self.tail_probe = None;
        if is_repair && self.phase == Phase::Open {
            let episode = self.episode(now);
            self.cc
                .on_congestion(Signal::Loss, &episode, &mut self.window);
            self.announce_reduction();
            if !self.cc.owns_window() {
                self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
            }
        }
    }
}

/// The share of marks is that of 256 KiB at least, about 180 segments, if there were as many.
const RECENT_KIB: u32 = 256;
/// The number of doubtful ACKs in a row after which the share of marks is out of date.
const MOST_DOUBTFUL: u8 = 16;

impl Gathered {
    /// Records a delivered segment. `is_before` is true if it was first sent before the current
    /// recovery episode.
    fn note(&mut self, entry: &Entry, is_before: bool) {
        self.delivered += entry.len();
        self.has_original |= is_before && !entry.was_retransmitted();
    }
}

impl Transmissions {
    fn note(&mut self, entry: &Entry) {
        if entry.was_retransmitted() {
            self.has_retransmission = true;
        } else {
            let sent_at = entry.sent_at;
            self.oldest = Some(self.oldest.map_or(sent_at, |t| t.min(sent_at)));
            self.newest = self.newest.max(Some(sent_at));
        }
    }

    fn is_some(&self) -> bool {
        self.has_retransmission || self.oldest.is_some()
    }
}
