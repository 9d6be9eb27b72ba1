//! Reactions to losses, marks and timeouts.

use super::{Sender, Timer, Undo};
use crate::cc::{Phase, Signal};
use crate::config::LossDetection;
use crate::prr::Prr;
use crate::segment::Segment;
use sluice_core::{Span, Time};

impl Sender {
    // ---- timers ------------------------------------------------------------------------

    /// Chooses and starts the timer (RFC 8985 §5.4, §7.2; RFC 6298 §5).
    pub(super) fn arm(&mut self, now: Time) {
        if self.board.is_empty() {
            self.set_timer(Timer::Off, Time::MAX);
            return;
        }
        let rto_at = self.rto_base.saturating_add(self.rtt.rto());
        let (timer, at) = if self.reordering_deadline != Time::MAX {
            (Timer::Reordering, self.reordering_deadline)
        } else if self.may_probe() {
            // RFC 8985 §7.2: the probe is sent at the latest when the retransmission timer would
            // have expired.
            let probe_at = now.saturating_add(self.probe_timeout());
            (Timer::Probe, probe_at.min(rto_at))
        } else {
            (Timer::Retransmission, rto_at)
        };
        self.set_timer(timer, at);
    }

    /// RFC 8985 §7.2: there is only one probe at a time, and none in recovery or while segments are
    /// SACKed.
    fn may_probe(&self) -> bool {
        self.detection == LossDetection::RackTlp
            && self.tail_probe.is_none()
            && matches!(self.phase, Phase::Open | Phase::Reducing)
            && !self.board.has_sacked()
            && !self.board.is_repairing()
    }

    /// RFC 8985 §7.2: PTO = 2 * SRTT, plus the peer's delayed ACK if one segment is outstanding.
    fn probe_timeout(&self) -> Span {
        match self.rtt.srtt() {
            None => Span::from_secs(1),
            Some(srtt) if self.board.len() == 1 => srtt * 2 + WORST_ACK_DELAY,
            Some(srtt) => srtt * 2,
        }
    }

    /// Acts on the timer if it has expired.
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.timer_at {
            return;
        }
        let timer = self.timer;
        self.set_timer(Timer::Off, Time::MAX);
        match timer {
            Timer::Off => {}
            Timer::Probe => {
                self.owes_probe = true;
                self.arm(now);
            }
            Timer::Reordering => {
                let lost = self.detect_losses(now);
                if lost > 0 {
                    self.on_loss_found(now, self.board.in_flight() + lost, 0, false);
                }
                self.arm(now);
            }
            Timer::Retransmission => self.on_rto(now),
            Timer::Persist => {
                self.rtt.back_off();
                self.owes_window_probe = true;
            }
        }
    }

    fn on_rto(&mut self, now: Time) {
        if self.board.is_empty() {
            return;
        }
        self.counters.timeouts += 1;
        if self.expiries >= self.max_retries {
            self.has_given_up = true;
            return;
        }
        // RFC 5681 §3.1: ssthresh is reduced once per flight, not again for each backoff. As in
        // Linux, a timeout during a recovery keeps the value of the recovery, and a timeout after a
        // partial ACK reduces it again.
        let is_new = matches!(self.phase, Phase::Open | Phase::Reducing);
        let is_repeated = self.expiries > 0;
        let is_another = self.phase == Phase::Loss && !is_repeated;
        if is_new || is_another || self.board.una() >= self.recovery_end {
            self.remember_for_undo();
            let episode = self.episode(now);
            self.cc
                .on_congestion(Signal::Timeout, &episode, &mut self.window);
            self.announce_reduction();
        }
        self.phase = Phase::Loss;
        self.recovery_end = self.board.nxt();
        // RFC 5682 §3.1, step 1. Linux omits this for the first timeout during a recovery.
        self.may_be_spurious = is_new || is_repeated;
        self.tail_probe = None;
        self.reordering_deadline = Time::MAX;
        // RFC 2018 §5.1 forgets all SACKs here. RFC 6675 §5.1 allows a sender to keep them if it
        // detects reneging, as Linux does.
        self.board.forget_sacks_of_reneging_receiver();
        // RFC 8985 §6.3: the first segment is lost, and so are all that are older than an RTT. The
        // RFC adds the reordering window to the RTT, Linux does not.
        self.board.mark_head_lost();
        let (rack, is_rack) = (&self.rack, self.detection == LossDetection::RackTlp);
        self.board.mark_lost_while(|entry, _| {
            !is_rack || rack.deadline(entry.sent_at, Span::ZERO) <= now
        });
        // RFC 5681 §3.1: the loss window is one segment, in addition to segments that may still be
        // in flight: the RFC considers them lost, RACK does not.
        self.window.cwnd = self.board.in_flight() + self.mss;
        self.expiries += 1;
        self.rtt.back_off();
        self.rto_base = now;
        self.arm(now);
    }

    // ---- loss and recovery -------------------------------------------------------------

    fn reordering_window(&self) -> Span {
        let expects_loss =
            matches!(self.phase, Phase::Recovery | Phase::Loss) || self.board.has_dup_thresh();
        self.rack.reordering_window(
            expects_loss,
            self.rtt.min(),
            self.rtt.srtt().unwrap_or(Span::ZERO),
        )
    }

    /// Marks lost segments and sets the deadline of those that may be lost; returns the bytes
    /// marked.
    pub(super) fn detect_losses(&mut self, now: Time) -> u64 {
        self.reordering_deadline = Time::MAX;
        match self.detection {
            LossDetection::DupAck => self.board.mark_lost_by_dup_thresh(),
            LossDetection::RackTlp => {
                let window = self.reordering_window();
                let rack = &self.rack;
                let mut waiting = false;
                let lost = self.board.mark_lost_while(|entry, end| {
                    if !rack.is_overtaken(entry.sent_at, end) {
                        return false;
                    }
                    let is_lost = rack.deadline(entry.sent_at, window) <= now;
                    waiting |= !is_lost;
                    is_lost
                });
                if waiting {
                    let latest = self
                        .board
                        .latest_overtaken(|sent_at, end| rack.is_overtaken(sent_at, end));
                    self.reordering_deadline = rack.deadline(latest, window);
                }
                lost
            }
        }
    }

    fn remember_for_undo(&mut self) {
        // A retransmission that is still in flight also belongs to this episode.
        self.undo = Some(Undo {
            window: self.window,
            unaccounted: self.board.resending(),
        });
    }

    /// Enters recovery unless the window is already being reduced for this flight.
    pub(super) fn on_loss_found(
        &mut self,
        now: Time,
        prior_in_flight: u64,
        delivered: u64,
        is_safe: bool,
    ) {
        match self.phase {
            Phase::Open => {
                self.remember_for_undo();
                let episode = self.episode(now);
                self.prr = Prr::start(self.used_window(prior_in_flight));
                self.cc
                    .on_congestion(Signal::Loss, &episode, &mut self.window);
                self.announce_reduction();
            }
            // The window has been reduced for a mark in the same round trip (RFC 3168 §6.1.2).
            Phase::Reducing => {}
            Phase::Recovery | Phase::Loss => {
                if self.phase == Phase::Recovery && !self.cc.owns_window() && delivered > 0 {
                    self.reduce(delivered, is_safe);
                }
                return;
            }
        }
        self.counters.recoveries += 1;
        self.phase = Phase::Recovery;
        self.recovery_end = self.board.nxt();
        self.tail_probe = None;
        if !self.cc.owns_window() {
            self.reduce(delivered, is_safe);
        }
    }

    pub(super) fn on_mark(
        &mut self,
        now: Time,
        prior_in_flight: u64,
        delivered: u64,
        advanced: bool,
    ) {
        let episode = self.episode(now);
        self.undo = None;
        self.prr = Prr::start(self.used_window(prior_in_flight));
        self.cc
            .on_congestion(Signal::Ecn, &episode, &mut self.window);
        self.counters.ecn_reductions += 1;
        self.announce_reduction();
        self.phase = Phase::Reducing;
        self.recovery_end = self.board.nxt();
        self.reduce(delivered, advanced);
    }

    /// RFC 9937 §6.2. The proportional part is rounded up to whole segments, as in Linux: a segment
    /// may be sent as soon as its first byte may.
    pub(super) fn reduce(&mut self, delivered: u64, is_safe: bool) {
        let (in_flight, ssthresh) = (self.board.in_flight(), self.window.ssthresh);
        let cwnd = self
            .prr
            .window(in_flight, ssthresh, self.mss, delivered, is_safe);
        self.window.cwnd = if in_flight > ssthresh {
            in_flight + (cwnd - in_flight).next_multiple_of(self.mss)
        } else {
            cwnd
        };
    }

    /// Ends the episode once everything sent before it has been acknowledged; returns whether it
    /// ended.
    pub(super) fn end_episode(&mut self) -> bool {
        let una = self.board.una();
        let is_over = match self.phase {
            Phase::Open => {
                if !self.board.is_resending() {
                    self.first_retransmit = Time::MAX;
                }
                return false;
            }
            Phase::Recovery | Phase::Loss => una >= self.recovery_end,
            // The episode ends one segment later, so that the receiver has seen CWR.
            Phase::Reducing => una > self.recovery_end || self.board.is_empty(),
        };
        if !is_over {
            return false;
        }
        if self.phase != Phase::Reducing {
            self.rack.on_recovered();
        }
        // RFC 9937 §6.4: cwnd = ssthresh. After a timeout slow start continues instead.
        if self.phase != Phase::Loss && !self.cc.owns_window() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.phase = Phase::Open;
        true
    }

    /// Undoes a reduction whose losses turn out to be spurious: by timestamps (RFC 3522 §3.2, step
    /// 4: the ACK echoes a segment sent before the first retransmission) or because every
    /// retransmission was reported as a duplicate (RFC 3708 §3). Like Linux it omits step 5 of RFC
    /// 3522, which looks for duplicates, and restores the whole window. RFC 4015 §3.4 sends at most
    /// one initial window at once, and keeps the reduction if the ACK carries ECE.
    pub(super) fn try_undo(&mut self, segment: &Segment, advanced: bool) {
        let Some(undo) = self.undo else { return };
        if self.first_retransmit == Time::MAX {
            return;
        }
        let echoes_original =
            advanced && segment.ts_echo > Time::ZERO && segment.ts_echo < self.first_retransmit;
        if !echoes_original && undo.unaccounted > 0 {
            if self.phase == Phase::Open && self.board.una() > self.recovery_end {
                self.undo = None;
            }
            return;
        }
        self.undo_reduction();
    }

    /// Restores the state before the reduction, and forgets which segments are lost.
    fn undo_reduction(&mut self) {
        self.counters.undos += 1;
        self.board.unmark_losses();
        self.reordering_deadline = Time::MAX;
        if let Some(undo) = self.undo.take() {
            self.window.cwnd = self.window.cwnd.max(undo.window.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(undo.window.ssthresh);
            self.cc.on_undo(&mut self.window);
        }
        self.owes_cwr = false;
        self.phase = Phase::Open;
    }

    /// F-RTO (RFC 5682 §3.1, the version with SACK): the ACKs after a timeout show whether it was
    /// spurious. As in Linux, a segment that was sent once only and is now acknowledged or SACKed
    /// suffices.
    ///
    /// `has_original` is true if the ACK delivers such a segment, `is_duplicate` if it is a
    /// duplicate ACK or has new SACKs.
    pub(super) fn check_timeout(&mut self, advanced: bool, has_original: bool, is_duplicate: bool) {
        if self.phase != Phase::Loss || !self.may_be_spurious {
            return;
        }
        if has_original {
            // Step 3 b: the timeout was spurious.
            self.may_be_spurious = false;
            self.undo_reduction();
        } else if self.board.nxt() > self.recovery_end {
            // Step 3 a: a duplicate ACK for the new segments; the losses are real.
            self.may_be_spurious &= !is_duplicate;
        } else if advanced && self.board.una() < self.recovery_end {
            // Step 2 b: the ACK acknowledges the retransmission, so new segments are sent before
            // further retransmissions.
            self.recovery_end = self.board.nxt();
            self.prefers_new = true;
        }
    }
}

/// RFC 8985 §7.2: WCDelAckT.
const WORST_ACK_DELAY: Span = Span::from_ms(200);
