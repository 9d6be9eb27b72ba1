//! The sending half: what may leave and when, and what each ACK means.

use crate::cc::{Ack, CongestionControl, Descriptor, Episode, Params, Phase, Signal, Window};
use crate::config::{Config, EcnMode, LossDetection, Pacing};
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rate::{RateEstimator, RateSample};
use crate::receiver::CE_COUNT_START;
use crate::rtt::RttEstimator;
use crate::scoreboard::{Entry, Id, Scoreboard};
use crate::segment::{Flags, Segment, expand};
use alloc::boxed::Box;
use sluice_core::{Ecn, Rate, Span, Time};

/// What the sender has counted since the connection opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with payload or FIN, first transmissions and retransmissions.
    pub segments: u64,
    /// Payload bytes in them.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes (RFC 8985 §7).
    pub probes: u64,
    /// Recoveries entered.
    pub recoveries: u64,
    /// Reductions because of marks.
    pub ecn_reductions: u64,
    /// Reductions taken back because their losses were none.
    pub undos: u64,
    /// Segments that the receiver reported as CE-marked, as far as its feedback tells.
    pub ce_segments: u64,
}

/// What expires next (RFC 8985 §5.4: one timer for all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// RFC 6298 §5.
    Retransmission,
    /// RFC 8985 §6.2: overtaken segments become losses.
    Reordering,
    /// RFC 8985 §7.2.
    Probe,
    /// RFC 9293 §3.8.6.1: the peer's window is closed.
    Persist,
}

/// What a reduction replaced, for the case that it was spurious.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: Window,
    /// When the first segment was retransmitted in this episode.
    first_retransmit: Option<Time>,
    /// Retransmissions that have not been reported as duplicates.
    unaccounted: u32,
}

/// A tail loss probe in flight (RFC 8985 §7.4).
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// TLP.end_seq.
    end: u64,
    is_retransmission: bool,
}

/// What one call of `handle_ack` gathers from the segments it delivers.
struct Gathered {
    delivered: u64,
    /// Oldest and newest first transmission among them, for the RTT.
    oldest: Option<Time>,
    newest: Option<Time>,
    /// Whether a retransmission is among them.
    has_retransmission: bool,
}

#[derive(Debug)]
pub(crate) struct Sender {
    mss: u64,
    board: Scoreboard,
    /// The sequence number after the last byte that the application has made available.
    limit: u64,
    is_closing: bool,
    fin_sent: bool,
    /// The right edge of the peer's window, its scale and the largest window it has offered.
    edge: u64,
    peer_scale: u8,
    largest_window: u64,
    send_buffer: u64,
    nagle: bool,
    pub rtt: RttEstimator,
    rack: Rack,
    prr: Prr,
    rate: RateEstimator,
    last_rate: RateSample,
    pub window: Window,
    pub cc: Box<dyn CongestionControl>,
    params: Params,
    descriptor: &'static Descriptor,
    pub phase: Phase,
    /// SND.NXT at the start of the episode (RFC 6675 §5: RecoveryPoint).
    recovery_end: u64,
    undo: Option<Undo>,
    detection: LossDetection,
    timer: Option<(Timer, Time)>,
    /// When the retransmission timer was last started.
    rto_base: Time,
    reordering_deadline: Option<Time>,
    tail_probe: Option<TailProbe>,
    /// A probe must leave with the next poll, whatever the window.
    owes_probe: bool,
    /// A probe of a closed window must leave with the next poll.
    owes_window_probe: bool,
    max_retries: u32,
    pub has_given_up: bool,
    is_paced: bool,
    /// When the next burst may leave, and what is left of the present one.
    pace_at: Time,
    burst_left: u64,
    /// When poll wants to be called although no timer runs; [`Time::MAX`] for never.
    wake_at: Time,
    is_cwnd_limited: bool,
    usage_end: u64,
    largest_flight: u64,
    last_sent: Time,
    /// SND.NXT at the start of the present round trip.
    round_end: u64,
    ecn: EcnMode,
    owes_cwr: bool,
    /// Low three bits: s.cep (RFC 9768 §3.2.2).
    ce_seen: u32,
    pub counters: Counters,
}

impl Sender {
    pub fn new(config: &Config, start: u64) -> Self {
        let descriptor = config.congestion_control;
        let is_paced = match config.pacing {
            Pacing::Auto => descriptor.paces,
            Pacing::Off => false,
            Pacing::On => true,
        };
        let mss = u64::from(config.mss);
        let initial_window = mss * u64::from(config.initial_window);
        let params = Params {
            mss,
            initial_window,
            slow_start: config.slow_start,
            abe: config.abe,
            is_paced,
            seed: config.seed,
        };
        Sender {
            mss,
            board: Scoreboard::new(start, config.mss),
            limit: start,
            is_closing: false,
            fin_sent: false,
            edge: start,
            peer_scale: 0,
            largest_window: 0,
            send_buffer: config.send_buffer,
            nagle: config.nagle,
            rtt: RttEstimator::new(config.rto_floor, config.rto_initial, config.rto_max),
            rack: Rack::new(),
            prr: Prr::default(),
            rate: RateEstimator::default(),
            last_rate: RateSample::default(),
            window: Window {
                cwnd: initial_window,
                ssthresh: u64::MAX,
            },
            cc: (descriptor.create)(&params),
            params,
            descriptor,
            phase: Phase::Open,
            recovery_end: start,
            undo: None,
            detection: config.loss_detection,
            timer: None,
            rto_base: Time::ZERO,
            reordering_deadline: None,
            tail_probe: None,
            owes_probe: false,
            owes_window_probe: false,
            max_retries: config.max_retries,
            has_given_up: false,
            is_paced,
            pace_at: Time::ZERO,
            burst_left: 0,
            wake_at: Time::MAX,
            is_cwnd_limited: false,
            usage_end: start,
            largest_flight: 0,
            last_sent: Time::ZERO,
            round_end: start,
            ecn: EcnMode::Off,
            owes_cwr: false,
            ce_seen: CE_COUNT_START,
            counters: Counters::default(),
        }
    }

    /// The peer's SYN has told its segment size and window scale.
    pub fn open(&mut self, peer_mss: u32, peer_scale: u8, window: u16, ecn: EcnMode) {
        // RFC 9293 §3.7.1: the smaller of the two sizes
        if u64::from(peer_mss) < self.mss && peer_mss >= 64 {
            self.mss = u64::from(peer_mss);
            self.board.set_mss(peer_mss);
            self.params.initial_window = self.params.initial_window / self.params.mss * self.mss;
            self.params.mss = self.mss;
            self.window.cwnd = self.params.initial_window;
            self.cc = (self.descriptor.create)(&self.params);
        }
        self.peer_scale = peer_scale;
        self.ecn = ecn;
        // RFC 7323 §2.2: the window of a SYN is never scaled.
        self.edge = self.board.una() + u64::from(window);
        self.largest_window = u64::from(window);
    }

    /// RFC 5681 §3.1: one segment if the SYN or its answer was lost.
    pub fn on_handshake_loss(&mut self) {
        self.window.cwnd = self.mss;
        // RFC 6298 §5.7
        self.rtt.raise_initial(Span::from_secs(3));
    }

    /// SND.NXT.
    pub fn nxt(&self) -> u64 {
        self.board.nxt()
    }

    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// Bytes that the application has written and the peer has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        if self.limit == u64::MAX {
            return u64::MAX;
        }
        self.limit.saturating_sub(self.board.una())
    }

    /// The delivery rate of the last ACK that gave one.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.last_rate.rate()
    }

    /// Bytes that have arrived at the receiver, as far as its ACKs tell.
    pub fn delivered(&self) -> u64 {
        self.rate.delivered
    }

    /// Makes `bytes` more available; `u64::MAX` for an endless source.
    pub fn write(&mut self, bytes: u64) {
        if !self.is_closing {
            self.limit = self.limit.saturating_add(bytes);
        }
    }

    /// Sends FIN after everything written; an endless source ends with what has been sent.
    pub fn close(&mut self) {
        if self.limit == u64::MAX {
            self.limit = self.board.nxt();
        }
        self.is_closing = true;
    }

    /// Whether everything including the FIN has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.fin_sent && self.board.is_empty()
    }

    /// When `poll` or `handle_timeout` has something to do; [`Time::MAX`] for never.
    pub fn next_timeout(&self) -> Time {
        let timer = self.timer.map_or(Time::MAX, |(_, at)| at);
        timer.min(self.wake_at)
    }

    // ---- sending -----------------------------------------------------------------------

    /// Puts the next segment's sequence number, length and flags into `out`, if one may leave.
    pub fn poll(&mut self, now: Time, out: &mut Segment) -> bool {
        self.wake_at = Time::MAX;
        if self.owes_window_probe {
            self.owes_window_probe = false;
            return self.send_window_probe(now, out);
        }
        if self.owes_probe {
            self.owes_probe = false;
            return self.send_probe(now, out);
        }
        if let Some(id) = self.board.next_lost() {
            let len = self.board.entry(id).len();
            if !self.has_room(len) {
                self.is_cwnd_limited = true;
                return false;
            }
            if !self.may_leave(now) {
                return false;
            }
            self.retransmit(now, id, out);
            return true;
        }
        let Some((len, fin)) = self.next_new(now) else {
            return false;
        };
        // RFC 6675 §5 (C): a segment leaves when the pipe has room for it. Segments SACKed
        // have left the pipe, so the first two duplicate ACKs let new segments out, which is
        // limited transmit (RFC 3042).
        if !self.has_room(len) {
            self.is_cwnd_limited = true;
            return false;
        }
        if !self.may_leave(now) {
            return false;
        }
        self.transmit(now, len, fin, out);
        true
    }

    /// Whether the window takes a segment more; FIN at the end of a full one does not count.
    fn has_room(&self, len: u64) -> bool {
        self.board.in_flight() + len.min(self.mss) <= self.window.cwnd
    }

    /// The length of the next new segment in sequence space and whether FIN ends it, if the
    /// application, the peer's window and the rules against small segments let it go.
    fn next_new(&mut self, now: Time) -> Option<(u64, bool)> {
        let nxt = self.board.nxt();
        let available = self.limit - nxt.min(self.limit);
        if available == 0 {
            if self.is_closing && !self.fin_sent {
                return Some((1, true));
            }
            if self.board.in_flight() < self.window.cwnd && self.board.next_lost().is_none() {
                self.rate.on_app_limited(self.board.in_flight());
            }
            return None;
        }
        let buffered = self.send_buffer.saturating_sub(self.board.flight());
        let room = self.edge.saturating_sub(nxt).min(buffered);
        let len = available.min(self.mss).min(room);
        if len < self.mss && len < available {
            // RFC 9293 §3.8.6.2.1: a window that cannot take a full segment is used only if
            // it is at least half the largest one; else the persist timer decides.
            if len == 0 || len < self.largest_window / 2 {
                if self.board.is_empty() && self.timer.is_none() && buffered >= self.mss {
                    let at = now.saturating_add(self.rtt.rto());
                    self.timer = Some((Timer::Persist, at));
                }
                return None;
            }
        } else if len < self.mss && self.nagle && !self.is_closing && !self.board.is_empty() {
            // RFC 9293 §3.7.4 (Nagle): a small segment waits while anything is outstanding.
            return None;
        }
        let fin = self.is_closing && len == available;
        Some((len + u64::from(fin), fin))
    }

    fn transmit(&mut self, now: Time, len: u64, fin: bool, out: &mut Segment) -> Id {
        if self.board.is_empty() {
            self.resume(now);
            self.rto_base = now;
        }
        let sent_at = self.stamp(now);
        let tx = self.rate.on_send(now, self.board.in_flight() == 0);
        out.seq = self.board.nxt() as u32;
        out.ts = sent_at;
        let id = self.board.push(len as u16, fin, sent_at, tx);
        self.fin_sent |= fin;
        out.len = (len - u64::from(fin)) as u32;
        if fin {
            out.flags = out.flags.with(Flags::FIN);
        }
        if self.board.nxt() >= self.limit {
            out.flags = out.flags.with(Flags::PSH);
        }
        // RFC 3168 §6.1.2: CWR goes with the first new data after the reduction.
        if self.owes_cwr {
            self.owes_cwr = false;
            out.flags = out.flags.with(Flags::CWR);
        }
        out.ecn = match self.ecn {
            EcnMode::Off => Ecn::NotEct,
            EcnMode::Classic | EcnMode::Dctcp => Ecn::Ect0,
            EcnMode::Accurate => Ecn::Ect1,
        };
        self.on_sent(now, len, u64::from(out.len));
        id
    }

    fn retransmit(&mut self, now: Time, id: Id, out: &mut Segment) {
        let sent_at = self.stamp(now);
        let tx = self.rate.on_send(now, self.board.in_flight() == 0);
        let entry = *self.board.entry(id);
        out.ts = sent_at;
        out.seq = self.board.seq(id) as u32;
        out.len = (entry.len() - u64::from(entry.is_fin())) as u32;
        if entry.is_fin() {
            out.flags = out.flags.with(Flags::FIN);
        }
        // RFC 3168 §6.1.5: retransmissions are Not-ECT; L4S marks them all the same
        // (RFC 9331 §4.1).
        if self.ecn == EcnMode::Accurate {
            out.ecn = Ecn::Ect1;
        }
        if self.board.head() == Some(id) {
            self.rto_base = now;
        }
        self.board.on_retransmit(id, sent_at, tx);
        self.counters.retransmits += 1;
        if let Some(undo) = &mut self.undo {
            undo.first_retransmit.get_or_insert(sent_at);
            undo.unaccounted += 1;
        }
        self.on_sent(now, entry.len(), u64::from(out.len));
    }

    /// The transmission time to remember. Several segments leave at one instant of virtual time,
    /// and loss detection orders transmissions by time (RFC 8985 §5.2), so each gets its own
    /// nanosecond.
    fn stamp(&mut self, now: Time) -> Time {
        self.last_sent = now.max(self.last_sent + Span::from_ns(1));
        self.last_sent
    }

    fn on_sent(&mut self, now: Time, len: u64, payload: u64) {
        self.counters.segments += 1;
        self.counters.bytes += payload;
        if matches!(self.phase, Phase::Recovery | Phase::Reducing) {
            self.prr.on_sent(len);
        }
        if self.is_paced {
            self.pace(now, len);
        }
        // RFC 7661 §4.1 in the manner of Linux: the window counts as used when it was full at
        // least once in the last round trip.
        let is_full = self.board.in_flight() + self.mss > self.window.cwnd;
        let flight = self.board.flight();
        if is_full
            || self.board.una() >= self.usage_end
            || (!self.is_cwnd_limited && flight > self.largest_flight)
        {
            self.is_cwnd_limited = is_full;
            self.largest_flight = flight;
            self.usage_end = self.board.nxt();
        }
        self.arm(now);
    }

    /// RFC 2861 §3, as Linux does it: an idle sender halves its window for each timeout that
    /// has passed, down to the initial window.
    fn resume(&mut self, now: Time) {
        if self.last_sent == Time::ZERO {
            return;
        }
        let mut idle = now.since(self.last_sent);
        self.cc.on_resume(now, idle, &mut self.window);
        let rto = self.rtt.rto();
        if self.cc.owns_window() || idle <= rto {
            return;
        }
        let cwnd = self.window.cwnd;
        let restart = self.params.initial_window.min(cwnd);
        if self.window.ssthresh != u64::MAX {
            self.window.ssthresh = self.window.ssthresh.max(cwnd / 4 * 3);
        }
        while idle > rto && self.window.cwnd > restart {
            idle = idle.saturating_sub(rto);
            self.window.cwnd /= 2;
        }
        self.window.cwnd = self.window.cwnd.max(restart);
    }

    /// RFC 8985 §7.3: a new segment if there is one, else the last one again.
    fn send_probe(&mut self, now: Time, out: &mut Segment) -> bool {
        let Some(last) = self.board.last() else {
            return false;
        };
        self.counters.probes += 1;
        let is_retransmission = match self.next_new(now) {
            Some((len, fin)) => {
                self.transmit(now, len, fin, out);
                false
            }
            None => {
                self.retransmit(now, last, out);
                true
            }
        };
        self.tail_probe = Some(TailProbe {
            end: self.board.nxt(),
            is_retransmission,
        });
        // RFC 8985 §7.3: the retransmission timer starts afresh after the probe.
        self.rto_base = now;
        self.arm(now);
        true
    }

    /// RFC 9293 §3.8.6.1: asks for the window with a segment that the peer must answer, or
    /// uses a small window that has been open for a timeout.
    fn send_window_probe(&mut self, now: Time, out: &mut Segment) -> bool {
        let nxt = self.board.nxt();
        let room = self.edge.saturating_sub(nxt);
        let available = self.limit.saturating_sub(nxt);
        if room > 0 && available > 0 {
            let len = room.min(available).min(self.mss);
            self.transmit(now, len, false, out);
        } else {
            out.seq = self.board.una().wrapping_sub(1) as u32;
            let at = now.saturating_add(self.rtt.rto());
            self.timer = Some((Timer::Persist, at));
        }
        true
    }

    // ---- pacing ------------------------------------------------------------------------

    fn may_leave(&mut self, now: Time) -> bool {
        if !self.is_paced || self.burst_left > 0 || now >= self.pace_at {
            return true;
        }
        self.wake_at = self.pace_at;
        false
    }

    fn pace(&mut self, now: Time, len: u64) {
        let Some(rate) = self.pacing_rate() else {
            return;
        };
        if now >= self.pace_at {
            self.pace_at = now;
            self.burst_left = burst(rate, self.cc.burst(), self.mss);
        }
        self.burst_left = self.burst_left.saturating_sub(len);
        self.pace_at += rate.transmission(len);
    }

    /// The rate of the congestion control, or Linux's multiple of window / SRTT.
    pub fn pacing_rate(&self) -> Option<Rate> {
        if let Some(rate) = self.cc.pacing_rate() {
            return Some(rate);
        }
        let srtt = self.rtt.srtt()?;
        // sysctl tcp_pacing_ss_ratio and tcp_pacing_ca_ratio, in percent
        let percent = if self.window.cwnd < self.window.ssthresh / 2 {
            200
        } else {
            120
        };
        let bits = u128::from(self.window.cwnd) * 8 * percent / 100;
        let bps = bits * 1_000_000_000 / u128::from(srtt.as_ns().max(1));
        Some(Rate::from_bps(
            u64::try_from(bps).unwrap_or(u64::MAX - 1).max(1),
        ))
    }

    // ---- timers ------------------------------------------------------------------------

    /// Chooses the timer that runs (RFC 8985 §5.4, §7.2; RFC 6298 §5).
    fn arm(&mut self, now: Time) {
        if self.board.is_empty() {
            self.timer = None;
            return;
        }
        let rto_at = self.rto_base.saturating_add(self.rtt.rto());
        self.timer = Some(if let Some(at) = self.reordering_deadline {
            (Timer::Reordering, at)
        } else if self.may_probe() {
            // RFC 8985 §7.2: the probe leaves when the timer would have expired at the latest.
            let probe_at = now.saturating_add(self.probe_timeout());
            (Timer::Probe, probe_at.min(rto_at))
        } else {
            (Timer::Retransmission, rto_at)
        });
    }

    /// RFC 8985 §7.2: one probe at a time, and none in recovery or with segments SACKed.
    fn may_probe(&self) -> bool {
        self.detection == LossDetection::RackTlp
            && self.tail_probe.is_none()
            && matches!(self.phase, Phase::Open | Phase::Reducing)
            && !self.board.has_sacked()
            && !self.board.is_repairing()
    }

    /// RFC 8985 §7.2: PTO = 2 * SRTT, and the peer's delayed ACK if one segment is out.
    fn probe_timeout(&self) -> Span {
        match self.rtt.srtt() {
            None => Span::from_secs(1),
            Some(srtt) if self.board.len() == 1 => srtt * 2 + WORST_ACK_DELAY,
            Some(srtt) => srtt * 2,
        }
    }

    /// Acts on the timer if it is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let Some((timer, at)) = self.timer else {
            return;
        };
        if now < at {
            return;
        }
        self.timer = None;
        match timer {
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
        if self.rtt.backoff() >= self.max_retries {
            self.has_given_up = true;
            return;
        }
        // RFC 5681 §3.1: ssthresh is reduced once for a flight, not again for each backoff.
        let is_new = matches!(self.phase, Phase::Open | Phase::Reducing);
        if is_new || self.board.una() >= self.recovery_end {
            self.remember_for_undo();
            let episode = self.episode(now);
            self.cc
                .on_congestion(Signal::Timeout, &episode, &mut self.window);
        }
        self.phase = Phase::Loss;
        self.recovery_end = self.board.nxt();
        self.tail_probe = None;
        self.reordering_deadline = None;
        self.board.forget_sacks_of_reneging_receiver();
        // RFC 8985 §6.3: the first segment is lost, and all that are older than an RTT.
        self.board.mark_head_lost();
        let window = self.reordering_window();
        let (rack, is_rack) = (&self.rack, self.detection == LossDetection::RackTlp);
        self.board
            .mark_lost_while(|entry, _| !is_rack || rack.deadline(entry.sent_at, window) <= now);
        // RFC 5681 §3.1: the loss window is one segment, beside what may still be in flight.
        self.window.cwnd = self.board.in_flight() + self.mss;
        self.rtt.back_off();
        self.rto_base = now;
        self.arm(now);
    }

    // ---- acknowledgements --------------------------------------------------------------

    /// Takes the acknowledgement, window, SACK and ECN fields of a segment.
    pub fn handle_ack(&mut self, now: Time, segment: &Segment) {
        let ack = expand(segment.ack, self.board.una());
        if ack > self.board.nxt() {
            return;
        }
        let window_moved = self.update_window(ack, segment);
        let prior_una = self.board.una();
        let prior_in_flight = self.board.in_flight();
        let is_quiet = ack == prior_una && segment.sack_count == 0;
        if is_quiet && self.board.is_empty() {
            // Data from the peer while this side has nothing outstanding.
            return;
        }
        let mut gathered = Gathered {
            delivered: 0,
            oldest: None,
            newest: None,
            has_retransmission: false,
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
            // RFC 6298 §5.3: a new ACK restarts the timer; and ends the backoff.
            self.rto_base = now;
            self.rtt.end_backoff();
        }
        let rtt = self.sample_rtt(now, segment, advanced, &gathered);
        let sample = self.rate.finish(self.rtt.min());
        if sample.delivered > 0 {
            self.last_rate = sample;
        }
        let ce_bytes = self.take_ce(segment, gathered.delivered);
        let has_ece =
            matches!(self.ecn, EcnMode::Classic | EcnMode::Dctcp) && segment.flags.has(Flags::ECE);
        let is_plain_duplicate = is_quiet && segment.len == 0 && !window_moved;
        self.end_tail_probe(now, ack, dsack || is_plain_duplicate);
        if dsack {
            self.rack.on_dsack(self.board.una(), self.board.nxt());
        }
        let lost = if self.board.has_sacked() || self.board.is_repairing() {
            self.detect_losses(now)
        } else {
            self.reordering_deadline = None;
            0
        };
        self.try_undo(segment, advanced);
        self.end_episode();
        if lost > 0 {
            self.on_loss_found(now, prior_in_flight, gathered.delivered, advanced);
        } else if (has_ece || ce_bytes > 0) && self.phase == Phase::Open && !self.cc.handles_marks()
        {
            self.on_mark(now, prior_in_flight, gathered.delivered, advanced);
        } else if matches!(self.phase, Phase::Recovery | Phase::Reducing)
            && !self.cc.owns_window()
            && gathered.delivered > 0
        {
            self.reduce(gathered.delivered, advanced, lost == 0);
        }
        let is_round_start = self.board.una() > self.round_end;
        if is_round_start {
            self.round_end = self.board.nxt();
        }
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
            srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
            min_rtt: self.rtt.min(),
            prior_in_flight,
            in_flight: self.board.in_flight(),
            is_cwnd_limited: self.is_cwnd_limited
                || (self.window.is_slow_start() && self.window.cwnd < 2 * self.largest_flight),
            has_ece,
            ce_bytes,
            total_delivered: self.rate.delivered,
            rate: sample,
        };
        self.cc.on_ack(&event, &mut self.window);
        if !is_quiet || self.board.is_empty() {
            self.arm(now);
        }
    }

    /// RFC 9293 §3.10.7.4: takes the peer's window; returns whether its right edge moved.
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
        if matches!(self.timer, Some((Timer::Persist, _))) {
            self.timer = None;
            self.rtt.end_backoff();
        }
        true
    }

    /// Enters SACK blocks into the scoreboard; returns whether one reported a duplicate.
    fn take_sacks(
        &mut self,
        now: Time,
        segment: &Segment,
        ack: u64,
        gathered: &mut Gathered,
    ) -> bool {
        let mut dsack = false;
        let una = self.board.una();
        for (i, block) in segment.sacks().iter().enumerate() {
            let start = expand(block.start, una);
            let end = expand(block.end, una);
            // RFC 2883 §4: the first block is a duplicate if it lies below the cumulative ACK
            // or inside the second block.
            let inside_second = || {
                segment.sacks().get(1).is_some_and(|second| {
                    expand(second.start, una) <= start && end <= expand(second.end, una)
                })
            };
            if i == 0 && (start < ack || inside_second()) {
                dsack = true;
                if let Some(undo) = &mut self.undo {
                    undo.unaccounted = undo.unaccounted.saturating_sub(1);
                }
                continue;
            }
            let (rack, rate) = (&mut self.rack, &mut self.rate);
            let (min_rtt, ts_echo) = (self.rtt.min(), segment.ts_echo);
            self.board.sack(start, end, |entry, end| {
                rack.on_delivered(now, entry, end, ts_echo, min_rtt);
                rate.on_delivered(now, entry);
                gathered.note(entry);
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
        self.rate.on_delivered(now, entry);
        gathered.note(entry);
    }

    /// RFC 6298 §3: the oldest segment of the ACK, if all were sent once only. A segment that
    /// was retransmitted may have held up the others at the receiver; then the echoed timestamp
    /// tells (RFC 7323 §4.1). Returns the RTT of the newest, which no delayed ACK stretches.
    fn sample_rtt(
        &mut self,
        now: Time,
        segment: &Segment,
        advanced: bool,
        gathered: &Gathered,
    ) -> Option<Span> {
        if gathered.has_retransmission {
            if advanced && segment.ts_echo > Time::ZERO {
                self.rtt.on_sample(now, now.since(segment.ts_echo));
            }
            return None;
        }
        if let Some(oldest) = gathered.oldest {
            self.rtt.on_sample(now, now.since(oldest));
        }
        gathered.newest.map(|newest| now.since(newest))
    }

    /// RFC 9768 §3.2.2: how many segments were marked since the last ACK, from three bits; the
    /// bytes are those of the newly delivered segments at most (§3.2.2.5.2).
    fn take_ce(&mut self, segment: &Segment, delivered: u64) -> u64 {
        if self.ecn != EcnMode::Accurate {
            if segment.flags.has(Flags::ECE) && self.ecn != EcnMode::Off {
                self.counters.ce_segments += 1;
            }
            return 0;
        }
        let new = u32::from(segment.flags.ace()).wrapping_sub(self.ce_seen) & 7;
        self.ce_seen = self.ce_seen.wrapping_add(new);
        self.counters.ce_segments += u64::from(new);
        (u64::from(new) * self.mss).min(delivered)
    }

    /// RFC 8985 §7.4: whether the probe repaired a loss that nothing else has told of.
    /// §7.4.2: a report of a duplicate or a plain duplicate ACK says that both copies arrived.
    fn end_tail_probe(&mut self, now: Time, ack: u64, both_arrived: bool) {
        let Some(probe) = self.tail_probe else {
            return;
        };
        if ack < probe.end {
            return;
        }
        self.tail_probe = None;
        if probe.is_retransmission && !both_arrived && self.phase == Phase::Open {
            let episode = self.episode(now);
            self.cc
                .on_congestion(Signal::Loss, &episode, &mut self.window);
            if !self.cc.owns_window() {
                self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
            }
        }
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

    /// Marks losses and sets the deadline of those that may become some; returns the bytes.
    fn detect_losses(&mut self, now: Time) -> u64 {
        self.reordering_deadline = None;
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
                    self.reordering_deadline = Some(rack.last_deadline(window));
                }
                lost
            }
        }
    }

    fn episode(&self, now: Time) -> Episode {
        Episode {
            now,
            flight: self.board.flight(),
            in_flight: self.board.in_flight(),
        }
    }

    fn remember_for_undo(&mut self) {
        self.undo = Some(Undo {
            window: self.window,
            first_retransmit: None,
            unaccounted: 0,
        });
    }

    /// Enters recovery unless the window is already being reduced for this flight.
    fn on_loss_found(&mut self, now: Time, prior_in_flight: u64, delivered: u64, advanced: bool) {
        match self.phase {
            Phase::Open => {
                self.remember_for_undo();
                let episode = self.episode(now);
                self.cc
                    .on_congestion(Signal::Loss, &episode, &mut self.window);
                self.prr = Prr::start(prior_in_flight);
            }
            // The reduction for a mark in the same window is enough (RFC 3168 §6.1.2).
            Phase::Reducing => {}
            Phase::Recovery | Phase::Loss => {
                if self.phase == Phase::Recovery && !self.cc.owns_window() && delivered > 0 {
                    self.reduce(delivered, advanced, false);
                }
                return;
            }
        }
        self.counters.recoveries += 1;
        self.phase = Phase::Recovery;
        self.recovery_end = self.board.nxt();
        self.tail_probe = None;
        if !self.cc.owns_window() {
            self.reduce(delivered, advanced, false);
        }
    }

    fn on_mark(&mut self, now: Time, prior_in_flight: u64, delivered: u64, advanced: bool) {
        let episode = self.episode(now);
        self.undo = None;
        self.cc
            .on_congestion(Signal::Ecn, &episode, &mut self.window);
        self.counters.ecn_reductions += 1;
        self.owes_cwr = self.ecn != EcnMode::Accurate;
        self.phase = Phase::Reducing;
        self.recovery_end = self.board.nxt();
        self.prr = Prr::start(prior_in_flight);
        self.reduce(delivered, advanced, true);
    }

    /// RFC 9937 §6.2.
    fn reduce(&mut self, delivered: u64, advanced: bool, nothing_lost: bool) {
        self.window.cwnd = self.prr.window(
            self.board.in_flight(),
            self.window.ssthresh,
            self.mss,
            delivered,
            advanced && nothing_lost,
        );
    }

    /// Ends the episode once everything sent before it has been acknowledged.
    fn end_episode(&mut self) {
        let una = self.board.una();
        let is_over = match self.phase {
            Phase::Open => return,
            Phase::Recovery | Phase::Loss => una >= self.recovery_end,
            // One segment more, so that the receiver has seen CWR.
            Phase::Reducing => una > self.recovery_end || self.board.is_empty(),
        };
        if !is_over {
            return;
        }
        if self.phase != Phase::Reducing {
            self.rack.on_recovered();
        }
        // RFC 9937 §6.4: cwnd = ssthresh; after a timeout slow start goes on from where it is.
        if self.phase != Phase::Loss && !self.cc.owns_window() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.phase = Phase::Open;
    }

    /// Takes a reduction back when its losses turn out to be none: by timestamps (RFC 3522
    /// §3.2: the ACK echoes a segment sent before the first retransmission) or because every
    /// retransmission was reported as a duplicate (RFC 2883 §5, RFC 4015 §3.2).
    fn try_undo(&mut self, segment: &Segment, advanced: bool) {
        let Some(undo) = self.undo else { return };
        let Some(first_retransmit) = undo.first_retransmit else {
            return;
        };
        let echoes_original =
            advanced && segment.ts_echo > Time::ZERO && segment.ts_echo < first_retransmit;
        if !echoes_original && undo.unaccounted > 0 {
            if self.phase == Phase::Open && self.board.una() > self.recovery_end {
                self.undo = None;
            }
            return;
        }
        self.undo = None;
        self.counters.undos += 1;
        self.board.unmark_losses();
        self.reordering_deadline = None;
        self.window.cwnd = self.window.cwnd.max(undo.window.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(undo.window.ssthresh);
        self.cc.on_undo(&mut self.window);
        self.phase = Phase::Open;
    }
}

impl Gathered {
    fn note(&mut self, entry: &Entry) {
        self.delivered += entry.len();
        if entry.was_retransmitted() {
            self.has_retransmission = true;
        } else {
            let sent_at = entry.sent_at;
            self.oldest = Some(self.oldest.map_or(sent_at, |t| t.min(sent_at)));
            self.newest = Some(self.newest.map_or(sent_at, |t| t.max(sent_at)));
        }
    }
}

/// What leaves at once when pacing: `span`'s worth, between one segment and 64 KiB, but two
/// segments from 1.2 Mbit/s on (draft-cardwell-iccrg-bbr-congestion-control-00 §4.2.2).
fn burst(rate: Rate, span: Span, mss: u64) -> u64 {
    let bps = rate.as_bps();
    if bps < 1_200_000 {
        mss
    } else if bps < 24_000_000 {
        2 * mss
    } else {
        rate.bytes_in(span).clamp(2 * mss, 65_536.max(2 * mss))
    }
}

/// RFC 8985 §7.2: WCDelAckT.
const WORST_ACK_DELAY: Span = Span::from_ms(200);
