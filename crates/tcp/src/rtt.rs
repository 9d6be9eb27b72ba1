//! Round-trip time: smoothed value, variation and retransmission timeout (RFC 6298), and the
//! minimum over a window, which RACK and the congestion controls use.
//!
//! Deviations, with [`RtoFloor::Variance`] only, all taken from Linux (`tcp_rtt_estimator`):
//! 1. the timeout is the smoothed RTT plus four times the largest mean deviation of a round trip. A
//!    larger deviation counts at once. A round trip with a smaller deviation reduces the term by a
//!    quarter of the difference, so thousands of equal samples in one round trip do not shorten the
//!    timeout;
//! 2. a sample below the smoothed RTT raises the deviation only an eighth as much as a sample above
//!    it.

use core::ops::Range;
use sluice_core::{Span, Time};

/// Lower bound of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The timeout as a whole is at least this long. RFC 6298 §2.4 recommends one second.
    Total(Span),
    /// The variance term is at least this long, so the timeout is at least the smoothed RTT plus
    /// this span. In Linux, it is 200 ms, and the variance term is the largest of a round trip.
    Variance(Span),
}

/// The estimator of RFC 6298 in integers: SRTT is scaled by 8 and RTTVAR by 4, so the gains of 1/8
/// and 1/4 lose no bits.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct RttEstimator {
    srtt_8: u64,
    /// The mean deviation.
    rttvar_4: u64,
    /// The variance term of the timeout, and the largest mean deviation of this round trip, neither
    /// below the floor. Only with [`RtoFloor::Variance`].
    term: u64,
    largest: u64,
    /// SND.NXT at the start of this round trip.
    round_end: u64,
    latest: Span,
    min: Span,
    min_at: Time,
    floor: RtoFloor,
    initial: Span,
    max: Span,
    backoff: u32,
}

impl RttEstimator {
    /// An estimator without a sample, whose timeout is `initial` (RFC 6298 §2.1).
    pub fn new(floor: RtoFloor, initial: Span, max: Span) -> Self {
        RttEstimator {
            srtt_8: 0,
            rttvar_4: 0,
            term: 0,
            largest: 0,
            round_end: 0,
            latest: Span::ZERO,
            min: Span::MAX,
            min_at: Time::ZERO,
            floor,
            initial,
            max,
            backoff: 0,
        }
    }

    /// Adds a sample. Retransmitted segments must not be measured (RFC 6298 §3). `flight` is the
    /// range from SND.UNA to SND.NXT, from which round trips are counted.
    pub fn on_sample(&mut self, now: Time, rtt: Span, flight: Range<u64>) {
        let r = rtt.as_ns().max(1);
        self.latest = Span::from_ns(r);
        if self.latest <= self.min || now.since(self.min_at) > MIN_RTT_WINDOW {
            self.min = self.latest;
            self.min_at = now;
        }
        let is_first = self.srtt_8 == 0;
        let error = (self.srtt_8 / 8).abs_diff(r);
        let is_shorter = r < self.srtt_8 / 8;
        if is_first {
            // RFC 6298 §2.2: SRTT <- R, RTTVAR <- R/2
            self.srtt_8 = r * 8;
            self.rttvar_4 = r * 2;
        } else {
            // RFC 6298 §2.3: RTTVAR before SRTT
            let faded = self.rttvar_4 / 4;
            self.rttvar_4 = match self.floor {
                RtoFloor::Variance(_) if is_shorter && error > faded => {
                    self.rttvar_4 + (error - faded) / 8
                }
                _ => self.rttvar_4 - faded + error,
            };
            self.srtt_8 = self.srtt_8 - self.srtt_8 / 8 + r;
        }
        if let RtoFloor::Variance(floor) = self.floor {
            self.note_deviation(floor.as_ns(), is_first, flight);
        }
    }

    /// Updates the variance term of the timeout. Cost: O(1).
    fn note_deviation(&mut self, floor: u64, is_first: bool, flight: Range<u64>) {
        if is_first {
            self.term = self.rttvar_4.max(floor);
            self.largest = self.term;
            self.round_end = flight.end;
            return;
        }
        self.largest = self.largest.max(self.rttvar_4);
        self.term = self.term.max(self.largest);
        if flight.start > self.round_end {
            self.term -= (self.term - self.largest) / 4;
            self.largest = floor;
            self.round_end = flight.end;
        }
    }

    /// The smoothed RTT; `None` before the first sample.
    pub fn srtt(&self) -> Option<Span> {
        (self.srtt_8 > 0).then(|| Span::from_ns(self.srtt_8 / 8))
    }

    /// The mean deviation.
    pub fn rttvar(&self) -> Span {
        Span::from_ns(self.rttvar_4 / 4)
    }

    /// The last sample.
    pub fn latest(&self) -> Span {
        self.latest
    }

    /// The minimum of the last five minutes (Linux `tcp_min_rtt_wlen`); [`Span::MAX`] before the
    /// first one.
    pub fn min(&self) -> Span {
        self.min
    }

    /// The timeout with the current backoff.
    pub fn rto(&self) -> Span {
        let base = match self.srtt() {
            None => self.initial,
            // RFC 6298 §2.3: SRTT + max(G, K * RTTVAR); the clock's granularity G is 1 ns
            Some(srtt) => match self.floor {
                RtoFloor::Total(floor) => {
                    let rto = srtt.saturating_add(Span::from_ns(self.rttvar_4.max(1)));
                    rto.max(floor)
                }
                RtoFloor::Variance(_) => srtt.saturating_add(Span::from_ns(self.term)),
            },
        };
        let doubled = u128::from(base.as_ns()) << self.backoff.min(32);
        Span::from_ns(u64::try_from(doubled).unwrap_or(u64::MAX)).min(self.max)
    }

    /// RFC 6298 §5.5: doubles the timeout.
    pub fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Resets the timeout to its computed value, after an ACK for new bytes or a sample.
    pub fn end_backoff(&mut self) {
        self.backoff = 0;
    }
}

const MIN_RTT_WINDOW: Span = Span::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Span {
        Span::from_ms(n)
    }

    #[test]
    fn srtt_and_rttvar_follow_rfc_6298() {
        let mut rtt = RttEstimator::new(RtoFloor::Total(ms(1000)), ms(1000), ms(60_000));
        assert_eq!(rtt.srtt(), None);
        assert_eq!(rtt.rto(), ms(1000));
        rtt.on_sample(Time::ZERO, ms(1000), 0..0);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(1000)), ms(500)));
        // SRTT + 4 RTTVAR
        assert_eq!(rtt.rto(), ms(3000));
        // RTTVAR 3/4 * 500 + 1/4 * |1000 - 1200| = 425; SRTT 7/8 * 1000 + 1/8 * 1200 = 1025
        rtt.on_sample(Time::ZERO, ms(1200), 0..0);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(1025)), ms(425)));
        // 3/4 * 425 + 1/4 * |1025 - 900| = 350; 7/8 * 1025 + 1/8 * 900 = 1009.375
        rtt.on_sample(Time::ZERO, ms(900), 0..0);
        assert_eq!(rtt.srtt(), Some(Span::from_us(1_009_375)));
        assert_eq!(rtt.rttvar(), ms(350));
    }

    #[test]
    fn the_two_floors_differ_by_the_smoothed_rtt() {
        let constant = |floor| {
            let mut rtt = RttEstimator::new(floor, ms(1000), ms(60_000));
            for round in 0..200 {
                rtt.on_sample(Time::ZERO, ms(20), round..round);
            }
            rtt.rto()
        };
        assert_eq!(constant(RtoFloor::Total(ms(1000))), ms(1000));
        // A constant RTT leaves no variance: 20 ms + 200 ms.
        assert_eq!(constant(RtoFloor::Variance(ms(200))), ms(220));
    }

    #[test]
    fn the_variance_term_is_the_largest_of_a_round_trip() {
        let floor = RtoFloor::Variance(ms(200));
        let mut rtt = RttEstimator::new(floor, ms(1000), ms(60_000));
        // The round trip ends with the first sample for which 10 has been acknowledged.
        rtt.on_sample(Time::ZERO, ms(800), 0..10);
        // 4 RTTVAR = 2 * 800
        assert_eq!(rtt.rto(), ms(800 + 1600));
        // A hundred samples without any deviation leave the term as it is.
        for una in 1..=10 {
            for _ in 0..10 {
                rtt.on_sample(Time::ZERO, ms(800), una..20);
            }
        }
        assert_eq!(rtt.rto(), ms(800 + 1600));
        assert!(rtt.rttvar() < Span::from_us(1));
        // The largest deviation of the first round trip was 1600. The second one had none, so its
        // largest is the floor: 1600 - (1600 - 200) / 4 = 1250, and 1250 - 1050 / 4 = 987.5.
        rtt.on_sample(Time::ZERO, ms(800), 11..20);
        assert_eq!(rtt.rto(), ms(800 + 1600));
        rtt.on_sample(Time::ZERO, ms(800), 21..30);
        assert_eq!(rtt.rto(), ms(800 + 1250));
        rtt.on_sample(Time::ZERO, ms(800), 31..40);
        assert_eq!(rtt.rto(), Span::from_us(800_000 + 987_500));
    }

    #[test]
    fn a_shorter_sample_raises_the_deviation_by_an_eighth_only() {
        for (floor, sample, expected) in [
            // 4 RTTVAR = 1600, of which three quarters remain, and the error of 480 is added
            (RtoFloor::Variance(ms(0)), 1280, 1600 - 400 + 480),
            (RtoFloor::Total(ms(0)), 320, 1600 - 400 + 480),
            // A shorter one: (480 - 400) / 8 is added
            (RtoFloor::Variance(ms(0)), 320, 1600 + 10),
            // The error is below a quarter of the deviation, so RFC 6298 applies unchanged.
            (RtoFloor::Variance(ms(0)), 480, 1600 - 400 + 320),
        ] {
            let mut rtt = RttEstimator::new(floor, ms(1000), ms(60_000));
            rtt.on_sample(Time::ZERO, ms(800), 0..1);
            rtt.on_sample(Time::ZERO, ms(sample), 0..1);
            assert_eq!(rtt.rttvar() * 4, ms(expected));
        }
    }

    #[test]
    fn backoff_doubles_up_to_the_maximum_and_ends() {
        let mut rtt = RttEstimator::new(RtoFloor::Total(ms(1000)), ms(1000), ms(60_000));
        let mut seen = [0; 8];
        for slot in &mut seen {
            *slot = rtt.rto().as_ns() / 1_000_000_000;
            rtt.back_off();
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 60, 60]);
        rtt.end_backoff();
        assert_eq!(rtt.rto(), ms(1000));
    }

    #[test]
    fn the_minimum_forgets_after_five_minutes() {
        let mut rtt = RttEstimator::new(RtoFloor::Total(ms(1000)), ms(1000), ms(60_000));
        rtt.on_sample(Time::ZERO, ms(10), 0..0);
        rtt.on_sample(Time::ZERO + Span::from_secs(300), ms(30), 0..0);
        assert_eq!(rtt.min(), ms(10));
        rtt.on_sample(Time::ZERO + Span::from_secs(301), ms(30), 0..0);
        assert_eq!(rtt.min(), ms(30));
    }
}
