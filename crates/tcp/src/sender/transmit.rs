//! The choice of the segments to send, and of their instants.

use super::{Sender, TailProbe, Timer};
use crate::cc::Phase;
use crate::ecn::EcnMode;
use crate::scoreboard::Id;
use crate::segment::{Flags, Segment};
use sluice_core::{Ecn, Rate, Span, Time};

impl Sender {
    /// Fills in sequence number, length and flags of the next segment, if one may be sent.
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
        if self.prefers_new {
            if self.poll_new(now, out) {
                return true;
            }
            // RFC 5682 §3.1, step 2 b: without a new segment, the timeout is considered genuine.
            if self.board.nxt() > self.recovery_end {
                return false;
            }
            self.prefers_new = false;
            self.may_be_spurious = false;
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
        self.poll_new(now, out)
    }

    /// Fills in the next new segment, if one may be sent.
    fn poll_new(&mut self, now: Time, out: &mut Segment) -> bool {
        let Some((len, fin)) = self.next_new(now) else {
            return false;
        };
        // RFC 6675 §5 (C): a segment is sent when the pipe has room for it. SACKed segments have
        // left the pipe, so each of the first two duplicate ACKs releases a new segment: limited
        // transmit (RFC 3042 §2; with SACK RFC 6675 §5, step 3).
        if !self.has_room(len) {
            self.is_cwnd_limited = true;
            return false;
        }
        if !self.may_leave(now) || (self.burst_len == 0 && !self.starts_super_packet(now)) {
            return false;
        }
        self.transmit(now, len, fin, out);
        true
    }

    /// Whether the window has room for one more segment. The FIN of a full segment needs no room.
    fn has_room(&self, len: u64) -> bool {
        self.board.in_flight() + len.min(self.mss) <= self.window.cwnd
    }

    /// The length of the next new segment in sequence space and whether a FIN ends it, if the
    /// application, the peer's window and the rules against small segments allow one.
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
            // RFC 9293 §3.8.6.2.1: a window without room for a full segment is used only if it is
            // at least half the largest one; otherwise the persist timer decides.
            if len == 0 || len < self.largest_window / 2 {
                if self.board.is_empty() && self.timer == Timer::Off && buffered >= self.mss {
                    let at = now.saturating_add(self.rtt.rto());
                    self.set_timer(Timer::Persist, at);
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
        let is_first = self.board.is_empty();
        if is_first {
            self.resume(now);
            self.rto_base = now;
        }
        let sent_at = self.stamp(now);
        let tx = self.rate.on_send(now, is_first);
        out.seq = self.board.nxt() as u32;
        out.ts = sent_at;
        let id = self.board.push(len as u16, fin, sent_at, tx);
        self.fin_sent |= fin;
        out.len = (len - u64::from(fin)) as u32;
        if fin {
            out.flags = out.flags.with(Flags::FIN);
        }
        if self.ends_super_packet() || self.board.nxt() >= self.limit {
            out.flags = out.flags.with(Flags::PSH);
        }
        // RFC 3168 §6.1.2: the first new data after a reduction carry CWR.
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

    /// Determines the number of segments of the next super-packet, as Linux does: up to half of the
    /// window, so that two super-packets are in flight. Returns false if a partial super-packet
    /// should wait for the next ACK (`tcp_tso_should_defer`).
    fn starts_super_packet(&mut self, now: Time) -> bool {
        if self.is_paced {
            // With pacing, each burst is one super-packet.
            self.burst_goal = self.super_packet;
            return true;
        }
        let room = self.window.cwnd.saturating_sub(self.board.in_flight());
        let by_peer = self.edge.saturating_sub(self.board.nxt());
        let largest = u64::from(self.super_packet) * self.mss;
        if room.min(by_peer) < largest {
            self.is_deferring |= self.defers(now, room, by_peer);
            if self.is_deferring {
                return false;
            }
        }
        let half = (self.window.cwnd / 2).max(self.mss);
        let bytes = room.min(half).min(by_peer).min(largest);
        self.burst_goal = (bytes / self.mss).max(1) as u16;
        true
    }

    /// Linux's `tcp_tso_should_defer`: a partial super-packet waits if another one was sent within
    /// the last millisecond, less than a third of the window is free, and the next ACK is expected
    /// within a millisecond (half of the RTT on a shorter path).
    fn defers(&mut self, now: Time, room: u64, by_peer: u64) -> bool {
        let queued = self.limit.saturating_sub(self.board.nxt());
        let window = self
            .window
            .cwnd
            .min(self.edge.saturating_sub(self.board.una()));
        if queued <= self.mss
            || matches!(self.phase, Phase::Recovery | Phase::Loss)
            || now.since(self.last_sent) > DEFER_LIMIT
            || room.min(by_peer) >= window / 3
            || (self.is_closing && queued <= room.min(by_peer))
        {
            return false;
        }
        let (Some(head), Some(srtt)) = (self.board.head(), self.rtt.srtt()) else {
            return false;
        };
        let expected = self.board.entry(head).sent_at.saturating_add(srtt);
        if expected.since(now) > DEFER_LIMIT.min(Span::from_ns(srtt.as_ns() / 2)) {
            return false;
        }
        self.is_cwnd_limited |= room < by_peer;
        true
    }

    /// Whether the segment just sent is the last of a super-packet. In Linux, such a segment
    /// carries PSH. Receivers acknowledge it at once, so it determines when ACKs are sent.
    fn ends_super_packet(&mut self) -> bool {
        self.burst_len += 1;
        let ends_burst = || {
            self.burst_left <= self.mss
                || !self.has_room(self.mss)
                || self.board.nxt() + self.mss > self.edge
        };
        let is_last = self.burst_len >= self.burst_goal || (self.is_paced && ends_burst());
        let is_several = self.burst_len > 1;
        if is_last {
            self.burst_len = 0;
        }
        is_last && is_several
    }

    /// Chooses the size of super-packets once per round trip, as Linux does (`tcp_tso_autosize`):
    /// the bytes that the pacing rate sends in 1 ms, more if the RTT is only a few milliseconds, at
    /// least two segments, at most 64 KiB.
    pub fn size_super_packet(&mut self) {
        let Some(rate) = self.pacing_rate() else {
            return;
        };
        // 2^-10 s of the rate, in bytes; and 64 KiB halved for each 512 us of the RTT
        let by_rate = rate.as_bps() >> 13;
        let by_rtt = 65_536 >> (self.rtt.min().as_ns() / 512_000).min(63);
        let bytes = (by_rate + by_rtt).min(65_536);
        self.super_packet = (bytes / self.mss).max(2) as u16;
    }

    fn retransmit(&mut self, now: Time, id: Id, out: &mut Segment) {
        let sent_at = self.stamp(now);
        let tx = self.rate.on_send(now, false);
        let entry = *self.board.entry(id);
        out.ts = sent_at;
        out.seq = self.board.seq(id) as u32;
        out.len = (entry.len() - u64::from(entry.is_fin())) as u32;
        if entry.is_fin() {
            out.flags = out.flags.with(Flags::FIN);
        }
        // RFC 3168 §6.1.5: retransmissions are Not-ECT. Packets for L4S are ECT(1) (RFC 9331 §4.1),
        // including retransmissions (RFC 8311 §4.3 allows it for experiments).
        if self.ecn == EcnMode::Accurate {
            out.ecn = Ecn::Ect1;
        }
        if self.board.head() == Some(id) {
            self.rto_base = now;
        }
        self.board.on_retransmit(id, sent_at, tx);
        self.counters.retransmits += 1;
        self.counters.bytes_retransmitted += u64::from(out.len);
        self.first_retransmit = self.first_retransmit.min(sent_at);
        if let Some(undo) = &mut self.undo {
            undo.unaccounted += 1;
        }
        self.on_sent(now, entry.len(), u64::from(out.len));
    }

    /// The transmission time to record. Several segments are sent at one instant of virtual time,
    /// and loss detection orders transmissions by time (RFC 8985 §5.2), so each transmission has
    /// its own nanosecond.
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
        // RFC 7661 §4.5.3, as in Linux: the window counts as used if it was full at least once in
        // the last round trip.
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

    /// RFC 2861 §3.1, as in Linux: an idle sender halves its window for each timeout that has
    /// passed, down to the initial window.
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

    /// RFC 8985 §7.3: sends a new segment if there is one, otherwise the last one again.
    fn send_probe(&mut self, now: Time, out: &mut Segment) -> bool {
        let Some(last) = self.board.last() else {
            return false;
        };
        self.counters.probes += 1;
        let is_retransmission = match self.next_new(now) {
            Some((len, fin)) => {
                (self.burst_len, self.burst_goal) = (0, 1);
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
        // RFC 8985 §7.3: the retransmission timer is restarted after the probe.
        self.rto_base = now;
        self.arm(now);
        true
    }

    /// RFC 9293 §3.8.6.1: probes the window with a segment that the peer must answer, or uses a
    /// small window that has been open for a timeout.
    fn send_window_probe(&mut self, now: Time, out: &mut Segment) -> bool {
        let nxt = self.board.nxt();
        let room = self.edge.saturating_sub(nxt);
        let available = self.limit.saturating_sub(nxt);
        if room > 0 && available > 0 {
            let len = room.min(available).min(self.mss);
            (self.burst_len, self.burst_goal) = (0, 1);
            self.transmit(now, len, false, out);
        } else {
            out.seq = self.board.una().wrapping_sub(1) as u32;
            let at = now.saturating_add(self.rtt.rto());
            self.set_timer(Timer::Persist, at);
        }
        true
    }

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
        let burst = burst(rate, self.cc.burst(), self.mss);
        if self.counters.segments.next_multiple_of(burst / self.mss) < FIRST_PACED {
            return;
        }
        if now >= self.pace_at {
            self.pace_at = now;
            self.burst_left = burst;
        }
        self.burst_left = self.burst_left.saturating_sub(len);
        self.pace_at += rate.transmission(len);
    }

    /// The rate of the congestion control, or without one Linux's multiple of window / SRTT.
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
}

/// Linux `tcp_update_skb_after_send`: pacing begins with the super-packet that contains this segment
/// of a connection.
const FIRST_PACED: u64 = 10;

/// A partial super-packet waits only if the last super-packet was sent within this span, and the
/// next ACK is expected within this span.
const DEFER_LIMIT: Span = Span::from_ms(1);

/// Bytes of a burst when pacing: as many as the rate sends in `span`, but at least one segment
/// (from 1.2 Mbit/s on, two segments) and at most 64 KiB
/// (draft-cardwell-iccrg-bbr-congestion-control-00 §4.2.2).
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
