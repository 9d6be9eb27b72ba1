//! The receiving half: the window it offers, when it acknowledges, and the echo of congestion
//! marks. What arrives out of order is kept in [`crate::reassembly`].

use crate::cc::scale;
use crate::config::{Config, EcnMode, Reading};
use crate::reassembly::Reassembly;
use crate::scoreboard::DUP_THRESH;
use crate::segment::{Flags, Segment, expand};
use sluice_core::{Ecn, Span, Time};

/// The receiving half. As in the sender, what every segment touches comes first: with what precedes it
/// in the endpoint it fills three cache lines, up to the first fields of [`Receiver::gaps`].
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// RCV.NXT.
    nxt: u64,
    /// What the application has read, as a sequence number.
    read: u64,
    /// The right edge of the offered window, which never moves back (RFC 9293 §3.8.6.2.1).
    edge: u64,
    /// RCV.NXT of the last ACK.
    acked: u64,
    /// When a delayed ACK is due.
    ack_at: Time,
    /// TS.Recent (RFC 7323 §4.3).
    ts_recent: Time,
    last_arrival: Time,
    /// The window that is offered to a sender whose bytes are read at once.
    limit: u64,
    /// What the buffer holds at present; [`Receiver::limit`] grows towards it.
    space: u64,
    /// When the present measurement of what arrives in an RTT began.
    measured_at: Time,
    /// The receiver's own estimate of the RTT, by timestamps.
    rtt: Span,
    ack_delay: Span,
    mss: u32,
    ack_every: u32,
    quick_acks_left: u32,
    scale: u8,
    reading: Reading,
    ack_now: bool,
    ecn: EcnMode,
    /// RFC 3168 §6.1.3: repeat ECE until CWR. RFC 8257 §3.2: DCTCP.CE.
    echo: bool,
    /// The FIN has arrived and everything before it.
    is_finished: bool,
    has_fin: bool,
    /// How many arrivals the next ACK for what lies beyond a gap stands for.
    compressed: u32,
    /// An ACK number and ECE that must leave before the next ACK (RFC 8257 §3.2).
    split_ack: Option<(u64, bool)>,
    /// What lies beyond the first gap.
    gaps: Reassembly,
    /// CE-marked segments (RFC 9768 §3.2.2: r.cep starts at 5).
    ce_count: u32,
    ce_reported: u32,
    /// RCV.NXT when ACKs for what lies beyond a gap were last counted, and how many left at once since
    /// then.
    gap_nxt: u64,
    gap_acks: u32,
    /// How long such an ACK may wait.
    sack_delay: Span,
    /// The RTT of the handshake.
    path_rtt: Span,
    /// Sequence number of the FIN, if `has_fin`.
    fin_at: u64,
    quick_acks: u32,
    /// What the buffer may become.
    max_space: u64,
    /// The timestamp that the last estimate of the RTT was taken from.
    last_echo: Time,
    /// What had been read when the present measurement began.
    measured_from: u64,
    /// The most that was read in an RTT.
    read_per_rtt: u64,
}

/// How the window field has to be shifted so that it can express `buffer` (RFC 7323 §2.3).
pub(crate) fn window_scale(buffer: u64) -> u8 {
    (0..14)
        .find(|scale| (65_535 << scale) >= buffer)
        .unwrap_or(14)
}

/// RFC 9768 §3.2.1: the initial value of r.cep and s.cep.
pub(crate) const CE_COUNT_START: u32 = 5;
/// RFC 9768 §3.2.2.5.1: an ACK after at most this many new CE marks; 6 is the largest allowed.
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
            // Linux: the sender's initial window comes anyway.
            read_per_rtt: 10 * u64::from(config.mss),
        }
    }

    /// The peer's SYN has arrived: its first byte will be `start`.
    pub fn open(&mut self, start: u64, ts: Time) {
        self.nxt = start;
        self.read = start;
        self.measured_from = start;
        self.edge = start;
        self.acked = start;
        self.ts_recent = ts;
    }

    /// The handshake has measured the path.
    pub fn set_path_rtt(&mut self, rtt: Span) {
        self.path_rtt = rtt;
    }

    pub fn set_ecn(&mut self, ecn: EcnMode) {
        self.ecn = ecn;
    }

    /// See [`crate::Endpoint::peek`].
    pub fn peek(&self) -> u64 {
        self.limit ^ u64::from(self.has_split_ack())
    }

    /// See [`crate::Endpoint::peek_gaps`].
    pub fn peek_gaps(&self) -> u64 {
        self.gaps.peek()
    }

    /// RCV.NXT.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Bytes that wait for the application.
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

    /// The application takes up to `bytes`; returns how many there were.
    pub fn read(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.unread());
        self.read += taken;
        // RFC 9293 §3.8.6.2.2: tell the sender once half the buffer or one segment is free.
        let gain = (self.nxt + self.window()).saturating_sub(self.edge);
        if gain >= u64::from(self.mss).min(self.space / 2)
            && self.edge - self.nxt < u64::from(self.mss)
        {
            self.ack_now = true;
        }
        taken
    }

    /// Takes a segment that occupies sequence space; returns the bytes that became readable.
    ///
    /// `timeout` tells the retransmission timeout, the measure of an idle time.
    pub fn handle(&mut self, now: Time, segment: &Segment, timeout: impl FnOnce() -> Span) -> u64 {
        let seq = expand(segment.seq, self.nxt);
        let payload_end = seq + u64::from(segment.len);
        let mut end = payload_end;
        if segment.flags.has(Flags::FIN) {
            end += 1;
        }
        // A pause longer than the timeout starts a new burst that wants its ACKs at once, as
        // at the start (Linux).
        let pause = now.since(self.last_arrival);
        if pause > self.ack_delay && self.last_arrival > Time::ZERO && pause > timeout() {
            self.quick_acks_left = self.quick_acks;
        }
        if self.last_arrival == Time::ZERO {
            self.note_overhead();
            self.measured_at = now;
        }
        self.last_arrival = now;
        self.note_ecn(segment);
        let before = self.nxt;
        if end <= self.nxt || payload_end > self.edge {
            // RFC 9293 §3.10.7.4: an unacceptable segment is answered by an ACK.
            self.gaps.note_duplicate(seq, end.min(self.nxt));
            self.ack_now = true;
            // Linux: ACKs were lost, or the sender believes so; the next ones leave at once.
            self.quick_acks_left = self.quick_acks;
            return 0;
        }
        if end > payload_end && !self.has_fin {
            self.has_fin = true;
            self.fin_at = payload_end;
        }
        // RFC 7323 §4.3 (2): TS.Recent is the timestamp of the segment that the next ACK
        // answers, so a delayed ACK echoes its first segment and a hole the one that fills it.
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
                    self.schedule_gap_ack(now);
                }
            }
            // Linux: an application that reads up to the end of a write answers it at once, and a
            // sender ends each super-packet like a write. What lies beyond a gap keeps it waiting.
            if segment.flags.has(Flags::PSH)
                && self.gaps.is_empty()
                && self.reading == Reading::Immediate
            {
                self.ack_now = true;
            }
        } else {
            self.gaps.insert(seq, end);
            self.grow_window(u64::from(segment.len));
            self.schedule_gap_ack(now);
        }
        let mut fin = 0;
        if self.has_fin && !self.is_finished && self.nxt > self.fin_at {
            self.is_finished = true;
            self.ack_now = true;
            fin = 1;
        }
        if self.reading == Reading::Immediate {
            self.read = self.nxt - u64::from(self.is_finished);
        }
        if segment.ts_echo != self.last_echo && segment.len >= self.mss {
            self.note_rtt(now, segment.ts_echo);
        }
        if now.since(self.measured_at) >= self.rtt && self.rtt > Span::ZERO {
            self.measure(now);
        }
        self.nxt - before - fin
    }

    /// When a delayed ACK is due; [`Time::MAX`] without one.
    pub fn ack_due(&self) -> Time {
        if self.ack_now {
            Time::ZERO
        } else {
            self.ack_at
        }
    }

    /// Whether an ACK should leave now.
    pub fn wants_ack(&self, now: Time) -> bool {
        self.ack_now || self.ack_at <= now
    }

    /// Takes a segment without payload. Returns whether it must be answered: one that lies outside
    /// the window (RFC 9293 §3.10.7.4), as the probe of a closed window does on purpose.
    pub fn handle_pure_ack(&mut self, segment: &Segment) -> bool {
        let seq = expand(segment.seq, self.nxt);
        // RFC 7323 §4.3 (2): it updates TS.Recent like any other, so that a receiver that only
        // acknowledges finds its own time in the next data and can tell the RTT.
        if segment.ts >= self.ts_recent && seq <= self.acked {
            self.ts_recent = segment.ts;
        }
        seq < self.acked
    }

    /// Whether an ACK with an older state must leave before anything else.
    pub fn has_split_ack(&self) -> bool {
        self.split_ack.is_some()
    }

    /// Asks for an ACK with the next poll.
    pub fn acknowledge(&mut self) {
        self.ack_now = true;
    }

    /// Fills in everything that the receiving half says, in any segment that leaves.
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
        // RFC 7323 §2.4: rounding up keeps an already offered edge from moving back.
        let field = if edge < self.edge {
            (self.edge - self.nxt).div_ceil(unit).min(65_535)
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

    /// Bytes that may arrive beyond RCV.NXT. What lies beyond a gap takes room meanwhile, so it lets the
    /// window open by as much less; the edge that was offered stays.
    fn window(&self) -> u64 {
        let waiting = self.gaps.end().map_or(0, |end| end - self.nxt);
        (self.read + self.space)
            .saturating_sub(self.nxt + waiting)
            .min(self.limit)
    }

    /// Linux `tcp_grow_window`: each segment that arrives, in order or not, opens the window by two, up to
    /// the buffer, and is acknowledged at once meanwhile. What is left of the quick ACKs is made odd
    /// for that, so an even number of them stays as it is until the window has stopped growing.
    fn grow_window(&mut self, len: u64) {
        if self.limit < self.space {
            self.limit = (self.limit + 2 * len).min(self.space);
            self.quick_acks_left |= 1;
        }
    }

    /// The first segment tells how much of the buffer is payload (Linux `tcp_measure_rcv_mss`): of
    /// 2304 bytes of memory 1448 or five eighths, where half was reckoned with.
    fn note_overhead(&mut self) {
        self.space = self.space.max((self.space / 4 * 5).min(self.max_space));
    }

    /// Linux `tcp_rcv_rtt_update`: the RTT by timestamps, at once where it is less, else smoothed.
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
    /// RTT the buffer becomes twice what was read in it, if that is the most so far, and twice what
    /// another such growth would add, so that a sender in slow start finds room for the next round
    /// and the one after it.
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

    /// RFC 5681 §4.2 wants an ACK at once for whatever does not fill the gap. Linux compresses them
    /// (`tcp_comp_sack_delay_ns`, `_nr`, `_slack_ns`): after the three that make the sender repair
    /// the loss, one waits for a twentieth of the RTT, a millisecond at most, and up to 44 arrivals.
    fn schedule_gap_ack(&mut self, now: Time) {
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
        } else {
            if self.compressed == 0 {
                let rtt = self.rtt.min(self.path_rtt);
                let delay = self.sack_delay.min(Span::from_ns(rtt.as_ns() / 20));
                // The timer of an idle processor ends with its slack.
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
                // RFC 3168 §6.1.3: CWR ends the echo, a CE on the same segment starts it anew.
                if segment.flags.has(Flags::CWR) {
                    self.echo = false;
                    // Linux: the sender's window may be a single segment now.
                    self.ack_now |= segment.len > 0;
                }
                if is_ce {
                    if !self.echo {
                        // Linux answers the first marks at once, so that the sender reacts
                        // within one RTT.
                        self.quick_acks_left = self.quick_acks_left.max(2);
                    }
                    self.echo = true;
                }
            }
            EcnMode::Dctcp => {
                // RFC 8257 §3.2: what came before a change of CE is acknowledged with the old
                // state. Linux acknowledges the segment that brought the change at once, too.
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
                    // RFC 9768 §3.2.2.5.1: increment-triggered ACKs keep three bits enough.
                    if self.ce_count.wrapping_sub(self.ce_reported) >= CE_PER_ACK {
                        self.ack_now = true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::SackBlock;

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(&Config {
            mss: 100,
            quick_acks: 0,
            // A window that opens would ask for an ACK of each segment.
            initial_receive_window: 6 << 20,
            ..Config::default()
        });
        receiver.set_path_rtt(Span::from_ms(40));
        receiver.open(1000, Time::ZERO);
        // The handshake has offered the whole buffer.
        let mut ack = Segment::default();
        receiver.stamp(&mut ack);
        receiver
    }

    fn data(seq: u32, len: u32) -> Segment {
        Segment {
            seq,
            len,
            ..Segment::default()
        }
    }

    fn ack(receiver: &mut Receiver) -> Segment {
        let mut segment = Segment::default();
        receiver.stamp(&mut segment);
        segment
    }

    const NOW: Time = Time::from_ns(1_000_000);
    const IDLE: fn() -> Span = || Span::from_secs(1);

    #[test]
    fn every_second_full_segment_is_acknowledged() {
        let mut receiver = receiver();
        assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 100);
        assert!(!receiver.wants_ack(NOW));
        assert_eq!(receiver.ack_due(), NOW + Span::from_ms(40));
        assert_eq!(receiver.handle(NOW, &data(1100, 100), IDLE), 100);
        assert!(receiver.wants_ack(NOW));
        assert_eq!(ack(&mut receiver).ack, 1200);
        assert_eq!(receiver.ack_due(), Time::MAX);
    }

    #[test]
    fn quick_acks_do_not_run_out_while_the_window_opens() {
        let mut receiver = Receiver::new(&Config {
            mss: 1000,
            quick_acks: 5,
            initial_receive_window: 10_000,
            ..Config::default()
        });
        receiver.open(0, Time::ZERO);
        // The handshake's ACK offers the window and is one of the five.
        ack(&mut receiver);
        // The first segment makes it 12 500 bytes, which two segments open by 2000 and 500: four are
        // made five and four again, twice. Then the four follow, and the seventh segment waits.
        for number in 0..7 {
            receiver.handle(NOW, &data(number * 1000, 1000), IDLE);
            assert_eq!(receiver.wants_ack(NOW), number < 6, "segment {number}");
            if number < 6 {
                ack(&mut receiver);
            }
        }
    }

    #[test]
    fn segments_beyond_a_gap_open_the_window_and_take_room_in_it() {
        let mut receiver = Receiver::new(&Config {
            mss: 1000,
            initial_receive_window: 10_000,
            ..Config::default()
        });
        receiver.open(0, Time::ZERO);
        assert_eq!(ack(&mut receiver).window, 10_000 >> 7);
        // 12 500 bytes of buffer and a window of 12 000, less 2000 up to the end of what arrived:
        // 10 500, in units of 128.
        receiver.handle(NOW, &data(1000, 1000), IDLE);
        assert_eq!(receiver.limit, 12_000);
        assert_eq!(ack(&mut receiver).window, 10_500 >> 7);
    }

    #[test]
    fn a_segment_with_cwr_is_acknowledged_at_once() {
        let mut receiver = receiver();
        receiver.set_ecn(EcnMode::Classic);
        let mut segment = data(1000, 100);
        segment.flags = Flags::CWR;
        receiver.handle(NOW, &segment, IDLE);
        assert!(receiver.wants_ack(NOW));
    }

    #[test]
    fn the_end_of_a_write_is_acknowledged_at_once() {
        let mut receiver = receiver();
        let mut pushed = data(1000, 100);
        pushed.flags = Flags::PSH;
        receiver.handle(NOW, &pushed, IDLE);
        assert!(receiver.wants_ack(NOW));
    }

    #[test]
    fn the_window_becomes_twice_what_is_read_in_an_rtt_and_twice_the_next_growth() {
        let mut receiver = Receiver::new(&Config {
            mss: 5000,
            quick_acks: 0,
            ..Config::default()
        });
        receiver.open(1000, Time::ZERO);
        // 64 KiB of window, in units of 2^7 bytes: 6 MiB need a scale of 7.
        assert_eq!(ack(&mut receiver).window, 512);
        // 12 segments in each RTT of 10 ms, and the one that ends the first measurement, are 65 kB,
        // where the ten of an initial window, 50 kB, were expected: 2 * 65 kB, and
        // 2 * 130 kB * (65 - 50) / 50 for as much growth again: 208 kB.
        let mut seq = 1000;
        for round in 0..3_u64 {
            for _ in 0..12 {
                let mut segment = data(seq, 5000);
                segment.ts_echo = NOW + Span::from_ms(10 * round);
                let now = segment.ts_echo + Span::from_ms(10);
                receiver.handle(now, &segment, IDLE);
                ack(&mut receiver);
                seq += 5000;
            }
            if round == 0 {
                // The first segment has made it five eighths of 128 KiB instead of a half.
                assert_eq!(receiver.limit, 80 << 10);
            }
        }
        // The window opens by two bytes for each that arrives from then on.
        assert_eq!(ack(&mut receiver).window, (208_000 >> 7) as u16);
        assert_eq!(receiver.limit, 208_000);
    }

    #[test]
    fn blocks_are_reported_latest_first_and_merge() {
        // RFC 2018 §8, case 2: every other segment is lost.
        let mut receiver = receiver();
        let block = |start, end| SackBlock { start, end };
        receiver.handle(NOW, &data(1100, 100), IDLE);
        assert_eq!(ack(&mut receiver).sacks(), [block(1100, 1200)]);
        receiver.handle(NOW, &data(1300, 100), IDLE);
        assert_eq!(
            ack(&mut receiver).sacks(),
            [block(1300, 1400), block(1100, 1200)]
        );
        receiver.handle(NOW, &data(1500, 100), IDLE);
        receiver.handle(NOW, &data(1700, 100), IDLE);
        assert_eq!(
            ack(&mut receiver).sacks(),
            [block(1700, 1800), block(1500, 1600), block(1300, 1400)]
        );
        // Filling 1400..1500 joins two of them.
        receiver.handle(NOW, &data(1400, 100), IDLE);
        let report = ack(&mut receiver);
        assert_eq!(report.sacks(), [block(1300, 1600), block(1700, 1800)]);
        assert_eq!(report.ack, 1000);
        // Filling the first hole makes 1000..1200 readable.
        assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 200);
        let report = ack(&mut receiver);
        assert_eq!(report.ack, 1200);
        assert_eq!(report.sacks(), [block(1300, 1600), block(1700, 1800)]);
    }

    #[test]
    fn a_duplicate_is_reported_once_and_first() {
        let mut receiver = receiver();
        receiver.handle(NOW, &data(1000, 100), IDLE);
        receiver.handle(NOW, &data(1200, 100), IDLE);
        assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 0);
        let report = ack(&mut receiver);
        // RFC 2883 §4.1: below the cumulative ACK
        assert_eq!(
            report.sacks()[0],
            SackBlock {
                start: 1000,
                end: 1100
            }
        );
        assert_eq!(
            report.sacks()[1],
            SackBlock {
                start: 1200,
                end: 1300
            }
        );
        assert_eq!(ack(&mut receiver).sacks().len(), 1);
        assert_eq!(receiver.duplicate_bytes(), 100);
    }

    #[test]
    fn after_three_acks_for_a_gap_the_others_are_compressed() {
        let mut receiver = receiver();
        receiver.rtt = Span::from_ms(10);
        receiver.measured_at = Time::MAX;
        for i in 1..=3 {
            receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
            assert!(receiver.wants_ack(NOW));
            ack(&mut receiver);
        }
        // min(1 ms, 10 ms / 20) and 100 us of slack, from the first that waits
        receiver.handle(NOW, &data(1400, 100), IDLE);
        receiver.handle(NOW + Span::from_us(100), &data(1500, 100), IDLE);
        assert_eq!(receiver.ack_due(), NOW + Span::from_us(600));
        let report = ack(&mut receiver);
        let block = |start, end| SackBlock { start, end };
        assert_eq!(report.sacks(), [block(1100, 1600)]);
        // 44 wait at most.
        for i in 0..44 {
            receiver.handle(NOW, &data(1600 + i * 100, 100), IDLE);
            assert!(!receiver.wants_ack(NOW));
        }
        receiver.handle(NOW, &data(1600 + 4400, 100), IDLE);
        assert!(receiver.wants_ack(NOW));
        ack(&mut receiver);
        // What fills the gap is acknowledged at once.
        receiver.handle(NOW, &data(1000, 100), IDLE);
        assert!(receiver.wants_ack(NOW));
        assert_eq!(ack(&mut receiver).ack, 1600 + 4500);
    }

    #[test]
    fn a_new_gap_has_three_acks_at_once_again() {
        let mut receiver = receiver();
        receiver.rtt = Span::from_ms(10);
        receiver.measured_at = Time::MAX;
        for i in [1, 2, 3, 5, 6] {
            receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
            receiver.wants_ack(NOW).then(|| ack(&mut receiver));
        }
        assert!(!receiver.wants_ack(NOW));
        // The first gap is filled, the second remains: RCV.NXT has moved.
        receiver.handle(NOW, &data(1000, 100), IDLE);
        assert!(receiver.wants_ack(NOW));
        ack(&mut receiver);
        receiver.handle(NOW, &data(1700, 100), IDLE);
        assert!(receiver.wants_ack(NOW));
    }

    #[test]
    fn the_window_closes_and_opens_with_the_reader() {
        let mut receiver = Receiver::new(&Config {
            mss: 100,
            receive_buffer: 1000,
            reading: Reading::Explicit,
            ..Config::default()
        });
        receiver.open(1000, Time::ZERO);
        assert_eq!(ack(&mut receiver).window, 1000);
        for i in 0..10 {
            assert_eq!(receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE), 100);
        }
        assert_eq!(ack(&mut receiver).window, 0);
        // Less than a segment is not worth an update (RFC 9293 §3.8.6.2.2).
        assert_eq!(receiver.read(50), 50);
        assert!(!receiver.wants_ack(NOW));
        assert_eq!(receiver.read(450), 450);
        assert!(receiver.wants_ack(NOW));
        assert_eq!(ack(&mut receiver).window, 500);
    }

    #[test]
    fn the_scale_is_the_least_that_can_express_the_buffer() {
        assert_eq!(window_scale(65_535), 0);
        assert_eq!(window_scale(65_536), 1);
        // 65535 << 7 = 8388480 is the first to exceed 6 MiB = 6291456
        assert_eq!(window_scale(6 << 20), 7);
        assert_eq!(window_scale(1 << 30), 14);
    }

    #[test]
    fn the_classic_echo_lasts_until_cwr() {
        let mut receiver = receiver();
        receiver.set_ecn(EcnMode::Classic);
        let mut segment = data(1000, 100);
        segment.ecn = Ecn::Ce;
        receiver.handle(NOW, &segment, IDLE);
        assert!(ack(&mut receiver).flags.has(Flags::ECE));
        receiver.handle(NOW, &data(1100, 100), IDLE);
        assert!(ack(&mut receiver).flags.has(Flags::ECE));
        let mut segment = data(1200, 100);
        segment.flags = Flags::CWR;
        receiver.handle(NOW, &segment, IDLE);
        assert!(!ack(&mut receiver).flags.has(Flags::ECE));
    }

    #[test]
    fn the_ace_counter_starts_at_five_and_asks_for_an_ack_every_two_marks() {
        let mut receiver = receiver();
        receiver.set_ecn(EcnMode::Accurate);
        let mut segment = data(1000, 10);
        segment.ecn = Ecn::Ce;
        receiver.handle(NOW, &segment, IDLE);
        assert!(!receiver.wants_ack(NOW));
        segment.seq = 1010;
        receiver.handle(NOW, &segment, IDLE);
        assert!(receiver.wants_ack(NOW));
        assert_eq!(ack(&mut receiver).flags.ace(), 7);
    }
}
