//! LEDBAT (RFC 6817): a scavenger. It keeps the delay that it adds to a path near a target, and
//! yields to other flows.
//!
//! The window follows the one-way delay of the data: it grows below the target and shrinks above
//! it, in proportion to the distance (RFC 6817 §2.4.2). A loss or a mark halves it, as in standard
//! TCP. There is no slow start.
//!
//! Units: bytes, nanoseconds. Fractions of a byte are carried from step to step.
//!
//! Choices that RFC 6817 leaves open, and differences between TCP and the protocol that it assumes:
//! 1. the delay of a packet is the difference of the ACK's two timestamps: the receiver's clock
//!    when the ACK left, and the sender's clock when the packet left (§4.1). It includes the time
//!    of a delayed ACK, which FILTER() removes;
//! 2. FILTER() is the minimum of the last four delays that are not older than a round trip (§2.4.2:
//!    a MIN filter, against delayed ACKs in TCP; §2.5: at least 4 samples, none older than an RTT);
//! 3. each minute without a sample adds an empty minimum (§2.4.2, the paragraph on idle times; the
//!    pseudocode shifts the list only once);
//! 4. proportional rate reduction halves the window, and timeouts are those of TCP (§2.4.2: if
//!    implemented in TCP, RFC 6298). After a timeout the window grows from one segment by the same
//!    rule;
//! 5. the window is limited to the flight only while the application does not fill it. The pseudocode
//!    limits it at each ACK, but a sender that waits for room for a super-packet has a flight below
//!    its window at most ACKs (§2.4.2: the limit is for a flow that is application-limited; RFC 7661
//!    §4.5.3: the window is used if it was full once in the last round trip).

use super::{
    Ack, CongestionControl, Descriptor, Episode, Params, Signal, SlowStart, Window, scale,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;
use sluice_core::{Span, Time};

/// The two parameters.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// TARGET: the queueing delay that the flow may add.
    pub target: Span,
    /// GAIN: segments by which the window grows in a round trip without queueing delay.
    pub gain: u32,
}

impl Settings {
    /// RFC 6817 §2.5: TARGET at most 100 ms, GAIN at most 1.
    pub const RFC_6817: Settings = Settings {
        target: Span::from_ms(100),
        gain: 1,
    };
    /// RFC 7928 §5.4 for tests of AQMs: 5 ms and 10, a GAIN that RFC 6817 §2.5 does not allow.
    pub const RFC_7928: Settings = Settings {
        target: Span::from_ms(5),
        gain: 10,
    };
}

/// LEDBAT.
pub static LEDBAT: Descriptor = Descriptor {
    name: "ledbat",
    summary: "LEDBAT: adds at most 100 ms of delay and yields to other flows; not in Linux",
    source: "RFC 6817",
    ecn: EcnMode::Classic,
    paces: false,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: INIT_CWND,
    create: |params| Box::new(Ledbat::new(params, Settings::RFC_6817)),
};

/// LEDBAT with the parameters of RFC 7928 for tests of AQMs.
pub static LEDBAT_5MS: Descriptor = Descriptor {
    name: "ledbat_5ms",
    summary: "LEDBAT with a target of 5 ms and a gain of 10; not in Linux",
    source: "RFC 6817, RFC 7928 section 5.4",
    create: |params| Box::new(Ledbat::new(params, Settings::RFC_7928)),
    ..LEDBAT
};

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Ledbat {
    mss: u64,
    settings: Settings,
    /// base_delays: the minimum delay of each of the last minutes, the current one last.
    base_delays: [Span; BASE_HISTORY],
    /// The minute of the last entry; `None` before the first sample.
    minute: Option<u64>,
    /// current_delays, each with the instant of its measurement. The oldest is overwritten next.
    current_delays: [(Time, Span); CURRENT_FILTER],
    oldest: usize,
    queueing_delay: Span,
    /// Change of the window still to be made, in bytes times bytes.
    owed: i128,
}

impl Ledbat {
    /// The state of a new connection.
    pub fn new(params: &Params, settings: Settings) -> Self {
        Ledbat {
            mss: params.mss,
            settings,
            base_delays: [Span::MAX; BASE_HISTORY],
            minute: None,
            current_delays: [(Time::ZERO, Span::MAX); CURRENT_FILTER],
            oldest: 0,
            queueing_delay: Span::ZERO,
            owed: 0,
        }
    }

    /// RFC 6817 §2.4.2: update_base_delay().
    fn update_base_delay(&mut self, now: Time, delay: Span) {
        let minute = now.as_ns() / Span::from_secs(60).as_ns();
        let passed = minute - self.minute.replace(minute).unwrap_or(minute);
        for _ in 0..passed.min(BASE_HISTORY as u64) {
            self.base_delays.rotate_left(1);
            self.base_delays[BASE_HISTORY - 1] = Span::MAX;
        }
        let last = &mut self.base_delays[BASE_HISTORY - 1];
        *last = delay.min(*last);
    }

    /// RFC 6817 §2.4.2: update_current_delay().
    fn update_current_delay(&mut self, now: Time, delay: Span) {
        self.current_delays[self.oldest] = (now, delay);
        self.oldest = (self.oldest + 1) % CURRENT_FILTER;
    }

    /// RFC 6817 §2.4.2: FILTER(current_delays) - MIN(base_delays).
    fn measure(&self, now: Time, srtt: Span) -> Span {
        let is_recent = |(at, _): &&(Time, Span)| now.since(*at) <= srtt;
        let recent = self.current_delays.iter().filter(is_recent);
        let current = recent.map(|(_, delay)| *delay).min();
        let base = self.base_delays.iter().copied().min();
        match (current, base) {
            (Some(current), Some(base)) if current != Span::MAX => current.saturating_sub(base),
            _ => self.queueing_delay,
        }
    }
}

impl CongestionControl for Ledbat {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if let Some(delay) = ack.delay.filter(|_| ack.has_progress) {
            self.update_base_delay(ack.now, delay);
            self.update_current_delay(ack.now, delay);
            self.queueing_delay = self.measure(ack.now, ack.srtt);
        }
        if !ack.has_progress || !(ack.is_open() || ack.phase == super::Phase::Loss) {
            return;
        }
        // RFC 6817 §2.4.2: off_target = (TARGET - queuing_delay) / TARGET
        // cwnd += GAIN * off_target * bytes_newly_acked * MSS / cwnd
        let target = i128::from(self.settings.target.as_ns());
        let distance = target - i128::from(self.queueing_delay.as_ns());
        let bytes = i128::from(ack.delivered) * i128::from(self.mss);
        self.owed += i128::from(self.settings.gain) * distance * bytes / target;
        let cwnd = i128::from(window.cwnd.max(1));
        let step = self.owed / cwnd;
        self.owed -= step * cwnd;
        let moved = u64::try_from((cwnd + step).max(0)).unwrap_or(u64::MAX);
        // max_allowed_cwnd = flightsize + ALLOWED_INCREASE * MSS, with the flight before this ACK,
        // "to limit the growth when flow is application limited"
        let most = match ack.is_cwnd_limited {
            true => u64::MAX,
            false => ack.prior_in_flight + ALLOWED_INCREASE * self.mss,
        };
        window.cwnd = moved.min(most).max(MIN_CWND * self.mss);
    }

    fn on_congestion(&mut self, _signal: Signal, _episode: &Episode, window: &mut Window) {
        // RFC 6817 §2.4.2: cwnd = min(cwnd, max(cwnd / 2, MIN_CWND * MSS)); §1.3: a mark has the
        // same effect as a loss.
        let half = scale(window.cwnd, 1, 2).max(MIN_CWND * self.mss);
        window.ssthresh = half.min(window.cwnd);
        self.owed = 0;
    }

    fn variable(&self) -> (&'static str, u64) {
        ("queueing_us", self.queueing_delay.as_ns() / 1000)
    }
}

/// RFC 6817 §2.5: minutes whose minimum delay is kept.
const BASE_HISTORY: usize = 10;
/// RFC 6817 §2.5: at least 4 samples in each RTT.
const CURRENT_FILTER: usize = 4;
/// RFC 6817 §2.5: segments by which the window may exceed the flight.
const ALLOWED_INCREASE: u64 = 1;
/// RFC 6817 §2.5, INIT_CWND: segments at the start.
const INIT_CWND: u32 = 2;
/// RFC 6817 §2.5: the smallest window in segments.
const MIN_CWND: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::Phase;
    use crate::cc::testing::{self, MSS};

    const fn ms(n: u64) -> Span {
        Span::from_ms(n)
    }

    /// An ACK at `at` with a one-way delay, of `segments` of a flight of `flight` segments.
    fn ack(at: u64, delay: Span, segments: u64, flight: u64) -> Ack {
        Ack {
            now: Time::ZERO + ms(at),
            delay: Some(delay),
            prior_in_flight: flight * MSS,
            srtt: ms(50),
            ..testing::ack(segments * MSS)
        }
    }

    fn new() -> Ledbat {
        Ledbat::new(&testing::PARAMS, Settings::RFC_6817)
    }

    #[test]
    fn without_a_queue_the_window_grows_by_gain_segments_in_a_round_trip() {
        for (settings, expected) in [(Settings::RFC_6817, 21), (Settings::RFC_7928, 30)] {
            let mut ledbat = Ledbat::new(&testing::PARAMS, settings);
            let mut window = testing::window(20);
            let start = window.cwnd;
            // One round trip: 20 segments are acknowledged at once.
            ledbat.on_ack(&ack(0, ms(10), 20, 1000), &mut window);
            // GAIN * 1 * 20 segments * MSS / 20 segments
            assert_eq!(window.cwnd - start, (expected - 20) * MSS);
        }
    }

    #[test]
    fn the_window_moves_by_the_distance_from_the_target() {
        // Queueing delay, and GAIN * (100 ms - delay) / 100 ms of a segment for a whole window.
        for (delay, change) in [(0, 1000), (25, 750), (100, 0), (150, -500), (250, -1500)] {
            let mut ledbat = new();
            let mut window = testing::window(20);
            ledbat.update_base_delay(Time::ZERO, ms(10));
            ledbat.on_ack(&ack(1, ms(10 + delay), 20, 1000), &mut window);
            assert_eq!(window.cwnd as i64 - 20_000, change, "{delay} ms");
        }
    }

    #[test]
    fn fractions_of_a_byte_are_carried() {
        let mut ledbat = new();
        let mut window = testing::window(1000);
        // Each adds MSS / 1000 = 1 byte at 1000 segments, and less as the window grows: the sum of
        // 10^6 / cwnd from 10^6 bytes on. 500 of them: cwnd^2 grows by 2 * 500 * 10^6, so cwnd is
        // sqrt(10^12 + 10^9) = 1000499.9.
        for _ in 0..500 {
            ledbat.on_ack(&ack(1, ms(10), 1, 2000), &mut window);
        }
        assert!((1_000_498..=1_000_500).contains(&window.cwnd), "{window:?}");
    }

    #[test]
    fn an_idle_application_keeps_the_window_within_one_segment_of_the_flight_and_above_two() {
        let mut ledbat = new();
        let mut window = testing::window(40);
        // flightsize + ALLOWED_INCREASE * MSS = 11 segments, with an application that has sent ten
        let idle = Ack {
            is_cwnd_limited: false,
            ..ack(0, ms(10), 2, 10)
        };
        ledbat.on_ack(&idle, &mut window);
        assert_eq!(window.cwnd, 11 * MSS);
        // Ten times the target: 11 segments less 9 for each window acknowledged, but at least two
        ledbat.on_ack(&ack(1000, ms(1010), 11, 11), &mut window);
        assert_eq!(window.cwnd, 2 * MSS);
        ledbat.on_ack(&ack(1001, ms(1010), 2, 2), &mut window);
        assert_eq!(window.cwnd, 2 * MSS);
    }

    #[test]
    fn a_full_window_is_not_cut_to_the_flight() {
        let mut ledbat = new();
        let mut window = testing::window(40);
        // The sender waits for room for a super-packet of 13 segments. GAIN * 1 * 20 * MSS / 40
        ledbat.on_ack(&ack(0, ms(10), 20, 27), &mut window);
        assert_eq!(window.cwnd, 40 * MSS + MSS / 2);
    }

    #[test]
    fn a_loss_a_mark_and_a_timeout_take_half() {
        for signal in [Signal::Loss, Signal::Ecn, Signal::Timeout] {
            for (segments, expected) in [(20, 10), (3, 2), (2, 2), (1, 1)] {
                let mut window = testing::window(segments);
                let episode = testing::episode(segments * MSS);
                new().on_congestion(signal, &episode, &mut window);
                assert_eq!(window.ssthresh, expected * MSS, "{signal:?} {segments}");
            }
        }
    }

    #[test]
    fn nothing_moves_while_the_sender_reduces() {
        let mut ledbat = new();
        let mut window = testing::window(20);
        let during = Ack {
            phase: Phase::Recovery,
            ..ack(0, ms(10), 20, 1000)
        };
        ledbat.on_ack(&during, &mut window);
        assert_eq!(window.cwnd, 20 * MSS);
    }

    #[test]
    fn the_filter_is_the_least_of_four_delays_of_the_last_round_trip() {
        let mut ledbat = new();
        let mut window = testing::window(20);
        for (at, delay, expected) in [
            (0, 10, 0),
            // A delayed ACK does not count while a delay of the same round trip is smaller.
            (10, 50, 0),
            // Then the first is older than the round trip of 50 ms: the minimum of 50 and 30
            // remains.
            (51, 30, 20),
            (52, 60, 20),
            (53, 60, 20),
            (54, 60, 20),
            // The delay measured at 51 ms is now the fifth last.
            (55, 60, 50),
        ] {
            ledbat.on_ack(&ack(at, ms(delay), 1, 1000), &mut window);
            assert_eq!(ledbat.queueing_delay, ms(expected), "at {at}");
        }
    }

    #[test]
    fn the_base_delay_is_the_least_of_ten_minutes() {
        let mut ledbat = new();
        let minute = |n: u64| Time::ZERO + Span::from_secs(60 * n);
        let base = |ledbat: &Ledbat| ledbat.base_delays.iter().copied().min();
        ledbat.update_base_delay(minute(0), ms(10));
        for n in 1..10 {
            ledbat.update_base_delay(minute(n), ms(30));
            assert_eq!(base(&ledbat), Some(ms(10)), "minute {n}");
        }
        ledbat.update_base_delay(minute(10), ms(30));
        assert_eq!(base(&ledbat), Some(ms(30)));
        // A smaller delay counts at once; after ten idle minutes the measurement starts again.
        ledbat.update_base_delay(minute(10), ms(20));
        assert_eq!(base(&ledbat), Some(ms(20)));
        ledbat.update_base_delay(minute(20), ms(90));
        assert_eq!(base(&ledbat), Some(ms(90)));
    }

    #[test]
    fn it_is_registered_with_the_values_of_both_documents() {
        let of = |descriptor: &Descriptor| (descriptor.name, descriptor.initial_window);
        assert_eq!(of(&LEDBAT), ("ledbat", 2));
        assert_eq!(of(&LEDBAT_5MS), ("ledbat_5ms", 2));
        assert!(Settings::RFC_6817.target <= ms(100) && Settings::RFC_6817.gain <= 1);
    }
}
