//! BBR's memory of past rounds: the highest bandwidth, the aggregation of ACKs, and the rate of a
//! policer.

use super::super::scale;
use super::UNIT;
use sluice_core::Time;

/// The maximum over the last ten rounds, from the maxima of three sub-windows (the filter of
/// Kathleen Nichols that Linux uses): constant time and space.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cc) struct WindowedMax {
    best: [(u64, u64); 3],
}

impl WindowedMax {
    pub fn max(&self) -> u64 {
        self.best[0].1
    }

    pub fn update(&mut self, round: u64, value: u64) {
        let sample = (round, value);
        if value >= self.best[0].1 || round - self.best[2].0 > BANDWIDTH_ROUNDS {
            self.best = [sample; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if value >= self.best[2].1 {
            self.best[2] = sample;
        }
        let age = round - self.best[0].0;
        if age > BANDWIDTH_ROUNDS {
            // The best has expired, so the second best becomes the best.
            self.best = [self.best[1], self.best[2], sample];
            if round - self.best[0].0 > BANDWIDTH_ROUNDS {
                self.best = [self.best[1], self.best[2], sample];
            }
        } else if self.best[1].0 == self.best[0].0 && age > BANDWIDTH_ROUNDS / 4 {
            // A quarter of the window has passed without a second best.
            self.best[1] = sample;
            self.best[2] = sample;
        } else if self.best[2].0 == self.best[1].0 && age > BANDWIDTH_ROUNDS / 2 {
            self.best[2] = sample;
        }
    }
}

/// The largest excess of acknowledged bytes over those that the bandwidth explains, in the last
/// five to ten rounds (Linux `bbr_update_ack_aggregation`). The window grows by this excess, so
/// that the sender can continue while ACKs are held back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Maxima of the current and of the last window of five rounds.
    extra: [u64; 2],
    index: usize,
    rounds: u32,
    /// The epoch: its start and the bytes acknowledged since.
    at: Time,
    acked: u64,
}

impl Aggregation {
    /// Starts an epoch, after a pause in which nothing was in flight.
    pub fn restart(&mut self, now: Time) {
        self.at = now;
        self.acked = 0;
    }

    /// Counts one ACK of `delivered` bytes. `bandwidth` is the estimate in bytes per second.
    pub fn update(
        &mut self,
        now: Time,
        delivered: u64,
        is_round_start: bool,
        bandwidth: u64,
        cwnd: u64,
    ) {
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= AGGREGATION_ROUNDS {
                self.rounds = 0;
                self.index ^= 1;
                self.extra[self.index] = 0;
            }
        }
        let mut expected = scale(bandwidth, now.since(self.at).as_ns(), 1_000_000_000);
        // An epoch ends when ACKs arrive more slowly than the bandwidth.
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked += delivered;
        let extra = (self.acked - expected).min(cwnd);
        self.extra[self.index] = self.extra[self.index].max(extra);
    }

    /// The bytes by which the window grows: the maximum, but at most the bytes that the bandwidth
    /// delivers in 100 ms.
    pub fn extra(&self, bandwidth: u64) -> u64 {
        self.extra[0].max(self.extra[1]).min(bandwidth / 10)
    }
}

/// The counters of one ACK from which a policer is recognised.
pub(super) struct Sample {
    pub now: Time,
    pub delivered: u64,
    pub lost: u64,
    pub has_losses: bool,
    pub is_app_limited: bool,
    pub is_round_start: bool,
    pub probes_bandwidth: bool,
}

/// Detection of a token bucket policer (Linux `bbr_lt_bw_sampling`): two intervals of at least four
/// rounds with 20 % losses and nearly equal rates. The mean of the rates is then used for 48
/// rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    /// The rate of the last interval with high loss, in bytes per second; zero if there was none.
    rate: u64,
    is_used: bool,
    is_sampling: bool,
    rounds: u32,
    /// Counters at the start of the interval.
    at: Time,
    delivered: u64,
    lost: u64,
}

impl Policer {
    /// The rate to send at, if a policer has been recognised.
    pub fn rate(&self) -> Option<u64> {
        self.is_used.then_some(self.rate)
    }

    /// Forgets the rate, and waits for the next loss.
    pub fn reset(&mut self) {
        *self = Policer::default();
    }

    fn start_interval(&mut self, sample: &Sample) {
        self.at = sample.now;
        self.delivered = sample.delivered;
        self.lost = sample.lost;
        self.rounds = 0;
    }

    /// Processes one ACK. Returns whether the rate has expired, so that probing starts again.
    pub fn update(&mut self, sample: &Sample) -> bool {
        if self.is_used {
            self.rounds += u32::from(sample.probes_bandwidth && sample.is_round_start);
            let has_expired = self.rounds >= POLICER_ROUNDS;
            if has_expired {
                self.reset();
            }
            return has_expired;
        }
        // The first loss shows that the tokens are used up.
        if !self.is_sampling {
            if !sample.has_losses {
                return false;
            }
            self.start_interval(sample);
            self.is_sampling = true;
        }
        if sample.is_app_limited {
            self.reset();
            return false;
        }
        self.rounds += u32::from(sample.is_round_start);
        if self.rounds < INTERVAL_ROUNDS {
            return false;
        }
        if self.rounds > 4 * INTERVAL_ROUNDS {
            self.reset();
            return false;
        }
        // An interval ends with a loss, when the tokens are used up again.
        if sample.has_losses {
            self.end_interval(sample);
        }
        false
    }

    fn end_interval(&mut self, sample: &Sample) {
        let lost = sample.lost - self.lost;
        let delivered = sample.delivered - self.delivered;
        let ms = sample.now.since(self.at).as_ns() / 1_000_000;
        if delivered == 0 || ms == 0 || lost * UNIT < POLICER_LOSS * delivered {
            return;
        }
        let rate = scale(delivered, 1000, ms);
        let difference = rate.abs_diff(self.rate);
        if self.rate > 0 && (difference * 8 <= self.rate || difference * 99 / 100 <= NEARLY_EQUAL) {
            self.rate = u64::midpoint(rate, self.rate);
            self.is_used = true;
            self.rounds = 0;
            return;
        }
        self.rate = rate;
        self.start_interval(sample);
    }
}

/// §4.1.1.2: BtlBwFilterLen.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Linux `bbr_extra_acked_win_rtts`.
const AGGREGATION_ROUNDS: u32 = 5;
/// Linux `bbr_lt_intvl_min_rtts`, `bbr_lt_bw_max_rtts`, `bbr_lt_loss_thresh` (in 1/256) and
/// `bbr_lt_bw_diff` (bytes per second).
const INTERVAL_ROUNDS: u32 = 4;
const POLICER_ROUNDS: u32 = 48;
const POLICER_LOSS: u64 = 50;
const NEARLY_EQUAL: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Span;

    #[test]
    fn the_filter_forgets_a_maximum_after_ten_rounds() {
        let mut filter = WindowedMax::default();
        filter.update(1, 100);
        for round in 2..=11 {
            filter.update(round, 50);
            assert_eq!(filter.max(), 100, "round {round}");
        }
        filter.update(12, 50);
        assert_eq!(filter.max(), 50);
    }

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn the_excess_of_an_epoch_is_what_the_bandwidth_does_not_explain() {
        let mut aggregation = Aggregation::default();
        // 1 MB/s explains 1000 bytes per millisecond. An ACK of 2000 bytes starts an epoch with an
        // excess of 2000. Another 2000 bytes 1 ms later make it 4000 - 1000. After 10 ms of silence
        // the epoch is over.
        aggregation.update(at_ms(100), 2000, false, 1_000_000, 90_000);
        assert_eq!(aggregation.extra(1_000_000), 2000);
        aggregation.update(at_ms(101), 2000, false, 1_000_000, 90_000);
        assert_eq!(aggregation.extra(1_000_000), 3000);
        aggregation.update(at_ms(111), 1000, false, 1_000_000, 90_000);
        assert_eq!(aggregation.extra(1_000_000), 3000);
        // 100 ms of 20 kB/s are 2000 bytes.
        assert_eq!(aggregation.extra(20_000), 2000);
    }

    #[test]
    fn the_excess_is_forgotten_after_ten_rounds() {
        let mut aggregation = Aggregation::default();
        aggregation.update(at_ms(100), 9000, false, 1_000_000, 90_000);
        for round in 1..=9 {
            aggregation.update(at_ms(100 + 20 * round), 1000, true, 1_000_000, 90_000);
            assert_eq!(aggregation.extra(1_000_000), 9000, "round {round}");
        }
        aggregation.update(at_ms(300), 1000, true, 1_000_000, 90_000);
        assert_eq!(aggregation.extra(1_000_000), 1000);
    }

    /// A round of 20 ms that delivers `delivered` bytes and loses `lost`.
    fn round(number: u64, delivered: u64, lost: u64) -> Sample {
        Sample {
            now: at_ms(20 * number),
            delivered: delivered * number,
            lost: lost * number,
            has_losses: lost > 0,
            is_app_limited: false,
            is_round_start: true,
            probes_bandwidth: true,
        }
    }

    #[test]
    fn two_equal_intervals_with_a_fifth_lost_are_a_policer_for_48_rounds() {
        let mut policer = Policer::default();
        let first = (1..).find(|&n| {
            assert!(!policer.update(&round(n, 10_000, 2500)));
            policer.rate().is_some()
        });
        // The first loss starts an interval. The fourth round start is in the round itself plus
        // three; the next interval starts there and has four more.
        assert_eq!(first, Some(8));
        // 10000 bytes in 20 ms
        assert_eq!(policer.rate(), Some(500_000));
        let last = (9..).find(|&n| policer.update(&round(n, 10_000, 2500)));
        assert_eq!(last, Some(8 + 48));
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn a_tenth_lost_is_no_policer() {
        let mut policer = Policer::default();
        for n in 1..200 {
            policer.update(&round(n, 10_000, 1000));
            assert_eq!(policer.rate(), None);
        }
    }
}
