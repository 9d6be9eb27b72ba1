//! The receiving half: the offered window, the times of ACKs, and the echo of congestion marks.
//! Data that arrived out of order are in [`crate::reassembly`].

use crate::cc::scale;
use crate::config::{Config, Reading};
use crate::ecn::EcnMode;
use crate::reassembly::Reassembly;
use crate::scoreboard::DUP_THRESH;
use crate::segment::{Flags, Segment, expand};
use sluice_core::{Ecn, Span, Time, prefetch};

/// The receiving half. As in the sender, the fields that every segment touches come first. Together
/// with the fields before it in the endpoint they fill three cache lines, up to the first fields of
/// [`Receiver::gaps`].
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// RCV.NXT.
    nxt: u64,
    /// The next sequence number that the application reads.
    read: u64,
    /// The right edge of the offered window, which never moves back (RFC 9293 §3.8.6.2.1).
    edge: u64,
    /// RCV.NXT of the last ACK.
    acked: u64,
    /// The due time of a delayed ACK.
    ack_at: Time,
    /// TS.Recent (RFC 7323 §4.3).
    ts_recent: Time,
    last_arrival: Time,
    /// The window to offer if the application reads bytes at once.
    limit: u64,
    /// The current size of the buffer; [`Receiver::limit`] grows towards it.
    space: u64,
    /// The start of the current measurement of the bytes per RTT.
    measured_at: Time,
    /// The receiver's own estimate of the RTT, from timestamps.
    rtt: Span,
    /// The timestamp of the last RTT sample.
    last_echo: Time,
    ack_delay: Span,
    mss: u32,
    ack_every: u32,
    quick_acks_left: u32,
    scale: u8,
    reading: Reading,
    ack_now: bool,
    ecn: EcnMode,
    /// Classic ECN: repeat ECE until CWR (RFC 3168 §6.1.3). DCTCP: DCTCP.CE (RFC 8257 §3.2).
    /// Accurate ECN: whether the last segment was marked.
    echo: bool,
    /// Whether the FIN and everything before it have arrived.
    is_finished: bool,
    has_fin: bool,
    /// Number of segments beyond a gap that the next ACK answers.
    compressed: u32,
    /// ACK number and ECE of an ACK that must be sent before the next one (RFC 8257 §3.2).
    split_ack: Option<(u64, bool)>,
    /// Data beyond the first gap.
    gaps: Reassembly,
    /// CE-marked segments (RFC 9768 §3.2.1: r.cep starts at 5).
    ce_count: u32,
    ce_reported: u32,
    /// RCV.NXT when ACKs for data beyond a gap were last counted, and how many have been sent at
    /// once since then.
    gap_nxt: u64,
    gap_acks: u32,
    /// The longest time that such an ACK may wait.
    sack_delay: Span,
    /// The RTT of the handshake.
    path_rtt: Span,
    /// Sequence number of the FIN, if `has_fin`.
    fin_at: u64,
    quick_acks: u32,
    /// The largest size of the buffer.
    max_space: u64,
    /// The value of `read` when the current measurement began.
    measured_from: u64,
    /// The most bytes that were read in an RTT.
    read_per_rtt: u64,
    /// The sequence number up to which the application reads at once, with
    /// [`Reading::Allowed`].
    read_limit: u64,
}

/// The smallest window scale that can express `buffer` (RFC 7323 §2.3).
pub(crate) fn window_scale(buffer: u64) -> u8 {
    (0..14)
        .find(|scale| (65_535 << scale) >= buffer)
        .unwrap_or(14)
}

/// RFC 9768 §3.2.1: the initial value of r.cep and s.cep.
pub(crate) const CE_COUNT_START: u32 = 5;
/// RFC 9768 §3.2.2.5.1: the number of new CE marks after which an ACK is sent while there are
/// unacknowledged data.
const CE_PER_ACK: u32 = 2;
/// Linux `tcp_comp_sack_nr`.
const MOST_COMPRESSED: u32 = 44;
/// Linux `tcp_comp_sack_slack_ns`.
const SACK_SLACK: Span = Span::from_us(100);

impl Receiver {
    pub fn new(config: &Config) -> Self {
        Receiver {
            nxt: 0,
            read: 0,
            edge: 0,
            acked: 0,
            ack_at: Time::MAX,
            ts_recent: Time::ZERO,
            last_arrival: Time::ZERO,
            limit: config.initial_receive_window.min(config.receive_buffer),
            space: config.initial_receive_window.min(config.receive_buffer),
            measured_at: Time::ZERO,
            mss: config.mss,
            ack_every: config.ack_every,
            quick_acks_left: config.quick_acks,
            scale: window_scale(config.receive_buffer),
            reading: config.reading,
            ack_now: false,
            ecn: EcnMode::Off,
            echo: false,
            is_finished: false,
            has_fin: false,
            ce_count: CE_COUNT_START,
            ce_reported: CE_COUNT_START,
            ack_delay: config.ack_delay,
            split_ack: None,
            gaps: Reassembly::default(),
            gap_nxt: 0,
            gap_acks: 0,
            compressed: 0,
            sack_delay: config.sack_delay,
            path_rtt: Span::ZERO,
            fin_at: 0,
            quick_acks: config.quick_acks,
            max_space: config.receive_buffer,
            rtt: Span::ZERO,
            last_echo: Time::ZERO,
            measured_from: 0,
            // Linux starts with the initial window of the sender.
            read_per_rtt: 10 * u64::from(config.mss),
            read_limit: 0,
        }
    }

    /// Handles the peer's SYN. The peer's first byte has the number `start`.
    pub fn open(&mut self, start: u64, ts: Time) {
        self.nxt = start;
        self.read = start;
        // Bytes allowed before the connection opened count from the first byte.
        self.read_limit += start;
        self.measured_from = start;
        self.edge = start;
        self.acked = start;
        self.ts_recent = ts;
    }

    /// Sets the RTT that the handshake has measured.
    pub fn set_path_rtt(&mut self, rtt: Span) {
        self.path_rtt = rtt;
    }

    pub fn set_ecn(&mut self, ecn: EcnMode) {
        self.ecn = ecn;
    }

    /// See [`crate::Endpoint::prefetch`].
    pub fn prefetch_segment(&self) {
        self.prefetch_ack();
        self.gaps.prefetch();
    }

    /// See [`crate::Endpoint::prefetch`].
    pub fn prefetch_ack(&self) {
        prefetch::line(&self.limit);
        prefetch::line(&self.split_ack);
    }

    /// See [`crate::Endpoint::prefetch`].
    pub fn prefetch_timer(&self) {
        prefetch::line(&self.ack_at);
    }

    /// See [`crate::Endpoint::prefetch_elsewhere`].
    pub fn prefetch_elsewhere(&self) {
        self.gaps.prefetch_elsewhere();
    }

    /// RCV.NXT.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// The sequence number after the last byte that has arrived beyond a gap.
    pub fn highest(&self) -> Option<u64> {
        self.gaps.end()
    }

    /// Whether a sequence number lies in the window that was offered.
    pub fn is_in_window(&self, seq: u64) -> bool {
        (self.nxt..self.edge).contains(&seq)
    }

    /// Bytes that the application has not read.
    pub fn unread(&self) -> u64 {
        self.nxt - self.read - u64::from(self.is_finished)
    }

    pub fn duplicate_bytes(&self) -> u64 {
        self.gaps.duplicate_bytes()
    }

    /// Whether all bytes and the FIN have arrived.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Reads up to `bytes` bytes. Returns the number of bytes read.
    pub fn read(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.unread());
        self.read += taken;
        // RFC 9293 §3.8.6.2.2: the window is updated once half the buffer or one segment is free.
        let gain = (self.nxt + self.window()).saturating_sub(self.edge);
        if gain >= self.least_gain() && self.edge - self.nxt < u64::from(self.mss) {
            self.ack_now = true;
        }
        taken
    }

    /// Allows the application to read `bytes` more bytes at once.
    pub fn allow_reading(&mut self, bytes: u64) {
        self.read_limit += bytes;
        if self.reading == Reading::Allowed && self.unread() > 0 {
            self.read(self.read_limit.saturating_sub(self.read));
        }
    }

    /// Whether the application has read everything, as soon as it arrived.
    fn is_read_at_once(&self) -> bool {
        match self.reading {
            Reading::Immediate => true,
            Reading::Explicit => false,
            Reading::Allowed => self.nxt - u64::from(self.is_finished) <= self.read_limit,
        }
    }

    /// RFC 9293 §3.8.6.2.2: the smallest step by which the window opens. If the application reads
    /// at once, the window opens as in Linux ([`Receiver::grow_window`]).
    fn least_gain(&self) -> u64 {
        if self.is_read_at_once() {
            0
        } else {
            u64::from(self.mss).min(self.space / 2)
        }
    }

    /// Processes a segment that occupies sequence space; returns the bytes that became readable.
    ///
    /// `timeout` gives the retransmission timeout: a longer pause is an idle period.
    pub fn handle(&mut self, now: Time, segment: &Segment, timeout: impl FnOnce() -> Span) -> u64 {
        let seq = expand(segment.seq, self.nxt);
        let payload_end = seq + u64::from(segment.len);
        let mut end = payload_end;
        if segment.flags.has(Flags::FIN) {
            end += 1;
        }
        // Linux: after a pause longer than the timeout, segments are acknowledged one by one, as at
        // the start.
        let pause = now.since(self.last_arrival);
        if pause > self.ack_delay && self.last_arrival > Time::ZERO && pause > timeout() {
            self.quick_acks_left = self.quick_acks;
        }
        if self.last_arrival == Time::ZERO {
            self.note_overhead();
            self.measured_at = now;
        }
        self.last_arrival = now;
        let before = self.nxt;
        if end <= self.nxt || payload_end > self.edge {
            // RFC 9293 §3.10.7.4: an unacceptable segment is answered by an ACK. Its ECN field is
            // ignored (RFC 3168 §6.1.5), by accurate ECN as well (RFC 9768 §3.2).
            self.gaps.note_duplicate(seq, end.min(self.nxt));
            self.ack_now = true;
            // Linux: ACKs were lost, or the sender believes so. So the next segments are
            // acknowledged one by one.
            self.quick_acks_left = self.quick_acks;
            return 0;
        }
        self.note_ecn(segment);
        if end > payload_end && !self.has_fin {
            self.has_fin = true;
            self.fin_at = payload_end;
        }
        // RFC 7323 §4.3 (2): TS.Recent is the timestamp of the segment that the next ACK answers. A
        // delayed ACK echoes its first segment, the ACK after a gap the segment that fills it.
        if segment.ts >= self.ts_recent && seq <= self.acked {
            self.ts_recent = segment.ts;
        }
        if seq <= self.nxt {
            if seq < self.nxt {
                self.gaps.note_duplicate(seq, self.nxt);
            }
            self.nxt = end;
            self.grow_window(u64::from(segment.len));
            if self.gaps.is_empty() {
                self.schedule_ack(now);
            } else {
                self.nxt = self.gaps.drain(self.nxt, seq);
                if self.gaps.is_empty() {
                    // RFC 5681 §4.2: a segment that fills the gap is acknowledged at once.
                    self.ack_now = true;
                } else {
                    self.schedule_gap_ack(now, false);
                }
            }
            // Linux: reading up to the end of a write sends an ACK at once, and a sender ends each
            // super-packet like a write. This does not apply to data beyond a gap.
            if segment.flags.has(Flags::PSH) && self.gaps.is_empty() && self.is_read_at_once() {
                self.ack_now = true;
            }
        } else {
            let is_scattered = self.gaps.insert(seq, end);
            self.grow_window(u64::from(segment.len));
            self.schedule_gap_ack(now, is_scattered);
        }
        let mut fin = 0;
        if self.has_fin && !self.is_finished && self.nxt > self.fin_at {
            self.is_finished = true;
            self.ack_now = true;
            fin = 1;
        }
        let readable = self.nxt - u64::from(self.is_finished);
        match self.reading {
            Reading::Immediate => self.read = readable,
            Reading::Explicit => {}
            Reading::Allowed => self.read = self.read.max(readable.min(self.read_limit)),
        }
        if segment.ts_echo != self.last_echo && segment.len >= self.mss {
            self.note_rtt(now, segment.ts_echo);
        }
        if now.since(self.measured_at) >= self.rtt && self.rtt > Span::ZERO {
            self.measure(now);
        }
        self.nxt - before - fin
    }

    /// The instant at which a delayed ACK is due; [`Time::MAX`] without one.
    pub fn ack_due(&self) -> Time {
        if self.ack_now {
            Time::ZERO
        } else {
            self.ack_at
        }
    }

    /// Whether an ACK is to be sent now.
    pub fn wants_ack(&self, now: Time) -> bool {
        self.ack_now || self.ack_at <= now
    }

    /// Processes a segment without payload. Returns whether an answer is required: a segment
    /// outside of the window requires one (RFC 9293 §3.10.7.4), such as the probe of a closed
    /// window.
    pub fn handle_pure_ack(&mut self, segment: &Segment) -> bool {
        let seq = expand(segment.seq, self.nxt);
        // RFC 7323 §4.3 (2): a pure ACK updates TS.Recent like any other segment. So the next data
        // segment echoes its timestamp, from which a peer that only acknowledges measures the RTT.
        if segment.ts >= self.ts_recent && seq <= self.acked {
            self.ts_recent = segment.ts;
        }
        seq < self.acked
    }

    /// Whether an ACK with an older state must be sent before anything else.
    pub fn has_split_ack(&self) -> bool {
        self.split_ack.is_some()
    }

    /// Requests an ACK with the next poll.
    pub fn acknowledge(&mut self) {
        self.ack_now = true;
    }

    /// Fills in the fields of the receiving half in a segment to be sent.
    pub fn stamp(&mut self, segment: &mut Segment) {
        segment.flags = segment.flags.with(Flags::ACK);
        if let Some((ack, echo)) = self.split_ack.take() {
            segment.ack = ack as u32;
            segment.ts_echo = self.ts_recent;
            segment.window = ((self.edge - ack) >> self.scale).min(65_535) as u16;
            if echo {
                segment.flags = segment.flags.with(Flags::ECE);
            }
            return;
        }
        segment.ack = self.nxt as u32;
        segment.ts_echo = self.ts_recent;
        let free = self.window();
        let unit = 1_u64 << self.scale;
        let field = (free >> self.scale).min(65_535);
        let edge = self.nxt + (field << self.scale);
        // RFC 7323 §2.4: rounding up keeps an offered edge from moving back. RFC 9293 §3.8.6.2.2:
        // the edge also stays while it could advance only by less than a segment and less than half
        // the buffer.
        let field = if edge < self.edge + self.least_gain() {
            self.edge
                .saturating_sub(self.nxt)
                .div_ceil(unit)
                .min(65_535)
        } else {
            field
        };
        self.edge = self.edge.max(self.nxt + (field << self.scale));
        segment.window = field as u16;
        if self.gaps.has_report() {
            self.gaps.stamp(segment);
        }
        match self.ecn {
            EcnMode::Off => {}
            EcnMode::Classic | EcnMode::Dctcp => {
                if self.echo {
                    segment.flags = segment.flags.with(Flags::ECE);
                }
            }
            EcnMode::Accurate => {
                segment.flags = segment.flags.with_ace(self.ce_count);
                self.ce_reported = self.ce_count;
            }
        }
        self.quick_acks_left = self.quick_acks_left.saturating_sub(1);
        self.acked = self.nxt;
        self.compressed = 0;
        self.ack_now = false;
        self.ack_at = Time::MAX;
    }

    /// Fills in the window and timestamp echo of a SYN, whose window is not scaled
    /// (RFC 7323 §2.2).
    pub fn stamp_syn(&mut self, segment: &mut Segment) {
        segment.window = self.limit.min(65_535) as u16;
        segment.wscale = self.scale;
        segment.ts_echo = self.ts_recent;
        self.edge = self.edge.max(self.nxt + u64::from(segment.window));
    }

    /// Bytes that may arrive beyond RCV.NXT. Data beyond a gap occupy a part of the buffer, so the
    /// window opens by less. An edge that was offered does not move back.
    fn window(&self) -> u64 {
        let waiting = self.gaps.end().map_or(0, |end| end - self.nxt);
        (self.read + self.space)
            .saturating_sub(self.nxt + waiting)
            .min(self.limit)
    }

    /// Linux `tcp_grow_window`: each segment that arrives, in order or not, opens the window by two
    /// segments, up to the size of the buffer, and is acknowledged at once. To this end, the number
    /// of remaining quick ACKs is made odd. So quick ACKs do not end before the window has stopped
    /// growing.
    fn grow_window(&mut self, len: u64) {
        if self.limit < self.space {
            self.limit = (self.limit + 2 * len).min(self.space);
            self.quick_acks_left |= 1;
        }
    }

    /// The first segment shows which share of the buffer is payload (Linux `tcp_measure_rcv_mss`):
    /// 1448 of 2304 bytes of memory, or five eighths. Before, half is assumed.
    fn note_overhead(&mut self) {
        self.space = self.space.max((self.space / 4 * 5).min(self.max_space));
    }

    /// Linux `tcp_rcv_rtt_update`: the RTT from timestamps. A smaller sample counts at once, a
    /// larger one is smoothed.
    fn note_rtt(&mut self, now: Time, echo: Time) {
        self.last_echo = echo;
        let sample = now.since(echo);
        self.rtt = if self.rtt == Span::ZERO || sample < self.rtt {
            sample
        } else {
            Span::from_ns((7 * self.rtt.as_ns() + sample.as_ns()) / 8)
        };
    }

    /// Dynamic right-sizing (Fisk and Feng, 2001) as in Linux's `tcp_rcv_space_adjust`: once per
    /// RTT, if more bytes than ever were read in it, the buffer is set to twice these bytes plus
    /// twice the bytes that another such growth would add. So a sender in slow start has room for
    /// the next two rounds.
    #[cold]
    fn measure(&mut self, now: Time) {
        let read = self.read - self.measured_from;
        self.measured_from = self.read;
        self.measured_at = now;
        if read > self.read_per_rtt {
            let more = scale(2 * read, read - self.read_per_rtt, self.read_per_rtt);
            self.read_per_rtt = read;
            let waiting = self.gaps.end().map_or(0, |end| end - self.nxt);
            let space = (2 * read).saturating_add(2 * more) + waiting;
            self.space = self.space.max(space.min(self.max_space));
        }
    }

    fn schedule_ack(&mut self, now: Time) {
        // RFC 5681 §4.2: at least every second full segment is acknowledged.
        let waiting = self.nxt - self.acked;
        if self.quick_acks_left > 0 || waiting > u64::from((self.ack_every - 1) * self.mss) {
            self.ack_now = true;
        } else if self.ack_at == Time::MAX {
            self.ack_at = now.saturating_add(self.ack_delay);
        }
    }

    /// RFC 5681 §4.2 requires an ACK at once for each segment beyond a gap. Linux compresses these
    /// ACKs (`tcp_comp_sack_delay_ns`, `_nr`, `_slack_ns`): the first three, which cause the sender
    /// to repair the loss, are sent at once. Later ones wait for a twentieth of the RTT (a
    /// millisecond at most) or for 44 segments. But an ACK has room for three blocks only. So a
    /// segment that begins a third block, or extends one that far back, is acknowledged at once
    /// (`tcp_sack_compress_send_ack`; Linux acknowledges the segments before it at this moment).
    fn schedule_gap_ack(&mut self, now: Time, is_scattered: bool) {
        let waiting = self.nxt - self.acked;
        let is_due = self.quick_acks_left > 0
            || waiting > u64::from((self.ack_every - 1) * self.mss)
            || self.gaps.has_duplicate()
            || self.sack_delay == Span::ZERO
            || self.compressed >= MOST_COMPRESSED;
        if self.gap_nxt != self.nxt {
            self.gap_nxt = self.nxt;
            self.gap_acks = 0;
        }
        if is_due {
            self.ack_now = true;
        } else if self.gap_acks < DUP_THRESH as u32 {
            self.gap_acks += 1;
            self.ack_now = true;
        } else if is_scattered {
            self.ack_now = true;
        } else {
            if self.compressed == 0 {
                let rtt = self.rtt.min(self.path_rtt);
                let delay = self.sack_delay.min(Span::from_ns(rtt.as_ns() / 20));
                // On an idle processor the timer expires at the end of its slack.
                self.ack_at = self.ack_at.min(now + delay + SACK_SLACK);
            }
            self.compressed += 1;
        }
    }

    fn note_ecn(&mut self, segment: &Segment) {
        let is_ce = segment.ecn == Ecn::Ce;
        match self.ecn {
            EcnMode::Off => {}
            EcnMode::Classic => {
                // RFC 3168 §6.1.3: CWR ends the echo, and CE on the same segment starts it again.
                if segment.flags.has(Flags::CWR) {
                    self.echo = false;
                    // Linux: the sender's window may be one segment now.
                    self.ack_now |= segment.len > 0;
                }
                if is_ce {
                    if !self.echo {
                        // Linux acknowledges the first marks at once, so that the sender reacts
                        // within one RTT.
                        self.quick_acks_left = self.quick_acks_left.max(2);
                    }
                    self.echo = true;
                }
            }
            EcnMode::Dctcp => {
                // RFC 8257 §3.2: segments before a change of CE are acknowledged with the old
                // state. Linux also acknowledges the segment with the change at once.
                if is_ce != self.echo {
                    if self.nxt > self.acked {
                        self.split_ack = Some((self.nxt, self.echo));
                    }
                    self.ack_now = true;
                    self.echo = is_ce;
                }
            }
            EcnMode::Accurate => {
                if is_ce {
                    self.ce_count = self.ce_count.wrapping_add(1);
                    // RFC 9768 §3.2.2.5.1: the first of a run of marks is reported at once, and
                    // then every second one, so that three bits suffice.
                    if !self.echo || self.ce_count.wrapping_sub(self.ce_reported) >= CE_PER_ACK {
                        self.ack_now = true;
                    }
                }
                self.echo = is_ce;
            }
        }
    }
}

#[cfg(test)]
mod tests;
