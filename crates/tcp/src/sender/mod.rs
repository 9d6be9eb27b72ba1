//! The sending half: the choice of segments to send (`transmit`), the processing of ACKs (`ack`),
//! and the reactions to losses, marks and timeouts (`recovery`).

mod ack;
mod recovery;
mod transmit;

use crate::cc::{CongestionControl, Descriptor, Episode, Params, Phase, SlowStart, Window};
use crate::config::{Config, LossDetection, Pacing};
use crate::ecn::EcnMode;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rate::RateEstimator;
use crate::receiver::CE_COUNT_START;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::segment::expand;
use alloc::boxed::Box;
use core::ops::Range;
use sluice_core::{Rate, Time, prefetch};

/// The counters of a sender, since the connection opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with payload or FIN, first transmissions and retransmissions.
    pub segments: u64,
    /// Payload bytes in these segments.
    pub bytes: u64,
    /// Segments retransmitted, and the payload bytes in them.
    pub retransmits: u64,
    /// See [`Counters::retransmits`].
    pub bytes_retransmitted: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes (RFC 8985 §7).
    pub probes: u64,
    /// Recoveries entered.
    pub recoveries: u64,
    /// Reductions in response to marks.
    pub ecn_reductions: u64,
    /// Reductions that were undone because they were spurious.
    pub undos: u64,
    /// Segments that the receiver reported as CE-marked.
    pub ce_segments: u64,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// The purpose of the running timer (RFC 8985 §5.4: one timer serves all purposes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Off,
    /// RFC 6298 §5.
    Retransmission,
    /// RFC 8985 §6.2: overtaken segments become losses.
    Reordering,
    /// RFC 8985 §7.2.
    Probe,
    /// RFC 9293 §3.8.6.1: the peer's window is closed, or too small (§3.8.6.2.1).
    Persist,
}

/// The state before a reduction, to be restored if it was spurious.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: Window,
    /// Retransmissions that the receiver has not reported as duplicates.
    unaccounted: u32,
}

/// A tail loss probe whose effect is not known yet (RFC 8985 §7.4).
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// TLP.end_seq.
    end: u64,
    is_retransmission: bool,
}

/// The sending half of an endpoint.
///
/// The fields are in the order of their use: those that every ACK and every segment touch come
/// first, so that among thousands of connections each event loads as few cache lines as possible.
/// Absent instants are [`Time::MAX`] for the same reason.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Sender {
    // ---- every segment and every ACK ----
    /// The sequence number after the last byte that the application has written.
    limit: u64,
    board: Scoreboard,
    /// The right edge of the peer's window.
    edge: u64,
    pub window: Window,
    mss: u64,
    timer_at: Time,
    /// The instant at which `poll` must be called although no timer is running; [`Time::MAX`] for
    /// never.
    wake_at: Time,
    /// The last start of the retransmission timer.
    rto_base: Time,
    last_sent: Time,
    usage_end: u64,
    largest_flight: u64,
    /// SND.NXT at the start of the current round trip.
    round_end: u64,
    send_buffer: u64,
    /// The number of segments of the current super-packet that have been sent, the number that it
    /// will have, and the largest number that a super-packet may have.
    burst_len: u16,
    burst_goal: u16,
    super_packet: u16,
    timer: Timer,
    pub phase: Phase,
    peer_scale: u8,
    ecn: EcnMode,
    detection: LossDetection,
    is_closing: bool,
    fin_sent: bool,
    nagle: bool,
    is_paced: bool,
    is_cwnd_limited: bool,
    /// Whether a partial super-packet waits for the next ACK or write.
    is_deferring: bool,
    /// Whether the next poll must send a probe, whatever the window.
    owes_probe: bool,
    /// Whether the next poll must probe a closed window.
    owes_window_probe: bool,
    owes_cwr: bool,
    /// F-RTO (RFC 5682): whether the last timeout may turn out to be spurious.
    may_be_spurious: bool,
    /// F-RTO: whether new segments are sent before lost ones until the next ACK.
    prefers_new: bool,
    pub has_given_up: bool,
    /// Low three bits: s.cep (RFC 9768 §3.2.1).
    ce_seen: u8,
    /// ACKs in a row that may report eight marks more than they show.
    doubtful: u8,
    /// Expiries of the retransmission timer since the last new ACK (Linux `icsk_retransmits`).
    expiries: u32,
    /// Marks that do not count for their share; see [`Sender::likely_marks`].
    uncounted_marks: u32,
    rate: RateEstimator,
    // ---- every ACK ----
    pub rtt: RttEstimator,
    rack: Rack,
    pub cc: Box<dyn CongestionControl>,
    reordering_deadline: Time,
    largest_window: u64,
    tail_probe: Option<TailProbe>,
    undo: Option<Undo>,
    pub counters: Counters,
    // ---- pacing, recovery, the beginning ----
    /// The instant at which the next burst may be sent, and the bytes left of the current burst.
    pace_at: Time,
    burst_left: u64,
    prr: Prr,
    /// SND.NXT at the start of the episode (RFC 6675 §5, step 4.1: RecoveryPoint).
    recovery_end: u64,
    /// The instant of the first retransmission that is in flight or belongs to this episode;
    /// [`Time::MAX`] without one (Linux `retrans_stamp`).
    first_retransmit: Time,
    max_retries: u32,
    /// KiB that do not count for the share of marks.
    uncounted_kib: u32,
    params: Params,
    descriptor: &'static Descriptor,
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
            slow_start: match config.slow_start {
                SlowStart::Auto => descriptor.slow_start,
                chosen => chosen,
            },
            growth: config.growth,
            abe: config.abe,
            is_paced,
            seed: config.seed,
        };
        Sender {
            board: Scoreboard::new(start, config.mss),
            limit: start,
            edge: start,
            window: Window {
                cwnd: initial_window,
                ssthresh: u64::MAX,
            },
            mss,
            timer_at: Time::MAX,
            wake_at: Time::MAX,
            rto_base: Time::ZERO,
            last_sent: Time::ZERO,
            usage_end: start,
            largest_flight: 0,
            round_end: start,
            send_buffer: config.send_buffer,
            burst_len: 0,
            burst_goal: 0,
            super_packet: u16::MAX,
            timer: Timer::Off,
            phase: Phase::Open,
            peer_scale: 0,
            ecn: EcnMode::Off,
            detection: config.loss_detection,
            is_closing: false,
            fin_sent: false,
            nagle: config.nagle,
            is_paced,
            is_cwnd_limited: false,
            is_deferring: false,
            owes_probe: false,
            owes_window_probe: false,
            owes_cwr: false,
            may_be_spurious: false,
            prefers_new: false,
            has_given_up: false,
            ce_seen: CE_COUNT_START as u8,
            doubtful: 0,
            expiries: 0,
            uncounted_marks: 0,
            rate: RateEstimator::default(),
            rtt: RttEstimator::new(config.rto_floor, config.rto_initial, config.rto_max),
            rack: Rack::new(),
            cc: (descriptor.create)(&params),
            reordering_deadline: Time::MAX,
            largest_window: 0,
            tail_probe: None,
            counters: Counters::default(),
            pace_at: Time::ZERO,
            burst_left: 0,
            prr: Prr::default(),
            recovery_end: start,
            undo: None,
            first_retransmit: Time::MAX,
            max_retries: config.max_retries,
            uncounted_kib: 0,
            params,
            descriptor,
        }
    }

    /// Sets the segment size, window scale and first window from the peer's SYN.
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

    /// Sets the window of the peer's last segment, which an idle sender has not processed.
    pub fn set_peer_window(&mut self, window: u16) {
        let window = u64::from(window) << self.peer_scale;
        self.largest_window = self.largest_window.max(window);
        self.edge = self.edge.max(self.board.una() + window);
    }

    /// Records a write after a pause: the application, not the network, limits the rate of the next
    /// segments.
    pub fn on_wake(&mut self) {
        self.rate.on_app_limited(0);
    }

    /// Records that the SYN or its answer was lost, and was sent again `retries` times.
    pub fn on_handshake_loss(&mut self, retries: u32) {
        // In this case, RFC 5681 §3.1 starts with one segment. RFC 6928 §2 recommends this only
        // after more than one repetition, since a timeout of one second may be spurious. Linux
        // follows RFC 6928.
        if retries > 1 {
            self.window.cwnd = self.mss;
        }
    }

    /// Payload bytes of a full segment, as negotiated.
    pub fn mss(&self) -> u64 {
        self.mss
    }

    /// See [`crate::Endpoint::prefetch`]: the numbers in the answer to a segment.
    pub fn prefetch_numbers(&self) {
        prefetch::line(&self.limit);
    }

    /// See [`crate::Endpoint::prefetch`].
    pub fn prefetch_timer(&self) {
        prefetch::line(&self.timer_at);
    }

    /// See [`crate::Endpoint::prefetch`]: all lines up to the first counters.
    pub fn prefetch_ack(&self) {
        let (first, last) = (&raw const self.limit, &raw const self.counters.bytes);
        let lines = (last.addr() - first.addr()) / LINE;
        prefetch_lines(first.cast(), 0..lines + 1);
    }

    /// See [`crate::Endpoint::prefetch_elsewhere`].
    pub fn prefetch_elsewhere(&self) {
        self.board.prefetch_elsewhere();
        if matches!(self.phase, Phase::Open | Phase::Loss) {
            let state: *const dyn CongestionControl = &*self.cc;
            // It begins anywhere in a line.
            let lines = (state.addr() % LINE + size_of_val(&*self.cc)).div_ceil(LINE);
            prefetch_lines(state.cast(), 0..lines);
        }
    }

    /// See [`crate::Endpoint::prefetch_last`].
    pub fn prefetch_last(&self) {
        self.board.prefetch_last();
    }

    /// SND.NXT.
    pub fn nxt(&self) -> u64 {
        self.board.nxt()
    }

    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// Whether nothing is outstanding and there is nothing to send, so that ACKs and polls have no
    /// effect. An ACK may still show that a probe was not needed.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty()
            && self.limit == self.board.nxt()
            && (!self.is_closing || self.fin_sent)
            && self.tail_probe.is_none()
    }

    /// Bytes that the application has written and the peer has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        if self.limit == u64::MAX {
            return u64::MAX;
        }
        self.limit.saturating_sub(self.board.una())
    }

    /// See [`crate::Endpoint::remaining`].
    pub fn remaining(&self, seq: u32) -> Option<u64> {
        let is_endless = self.limit == u64::MAX;
        (!is_endless).then(|| self.limit.saturating_sub(expand(seq, self.board.una())))
    }

    /// The delivery rate of the last ACK that gave a sample.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.rate.last_rate()
    }

    /// Bytes that the receiver has acknowledged, cumulatively or selectively.
    pub fn delivered(&self) -> u64 {
        self.rate.delivered
    }

    /// Writes `bytes` bytes; `u64::MAX` for an endless source.
    pub fn write(&mut self, bytes: u64) {
        self.is_deferring = false;
        if !self.is_closing {
            self.limit = self.limit.saturating_add(bytes);
        }
    }

    /// Sends FIN after everything written; an endless source ends with what has been sent.
    pub fn close(&mut self) {
        self.is_deferring = false;
        if self.limit == u64::MAX {
            self.limit = self.board.nxt();
        }
        self.is_closing = true;
    }

    /// Whether everything including the FIN has been acknowledged.
    pub fn is_finished(&self) -> bool {
        self.fin_sent && self.board.is_empty()
    }

    /// The instant at which `poll` or `handle_timeout` must be called; [`Time::MAX`] for never.
    pub fn next_timeout(&self) -> Time {
        self.timer_at.min(self.wake_at)
    }

    /// RFC 3168 §6.1.2: after any reduction of the window, the next new segment carries CWR.
    /// Accurate ECN has no such flag (RFC 9768 §3.1.5).
    fn announce_reduction(&mut self) {
        self.owes_cwr |= matches!(self.ecn, EcnMode::Classic | EcnMode::Dctcp);
    }

    fn set_timer(&mut self, timer: Timer, at: Time) {
        self.timer = timer;
        self.timer_at = at;
    }

    fn episode(&self, now: Time) -> Episode {
        Episode {
            now,
            flight: self.used_window(self.board.flight()),
            in_flight: self.board.in_flight(),
        }
    }

    /// The base of a reduction. If the window was full within the last round trip, it is the
    /// window, since the bytes that the ACK has just acknowledged have not been replaced yet.
    /// Otherwise it is the flight.
    fn used_window(&self, flight: u64) -> u64 {
        if self.is_cwnd_limited {
            flight.max(self.window.cwnd)
        } else {
            flight
        }
    }
}

/// Prefetches the cache lines with the given numbers, counted from `first`.
fn prefetch_lines(first: *const u8, lines: Range<usize>) {
    for line in lines {
        prefetch::address(first.wrapping_add(line * LINE));
    }
}
