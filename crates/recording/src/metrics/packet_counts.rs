//! The packets that a flow of datagrams sent and received within a time, and their delays.

use sluice_core::{Span, Time};

use crate::FlowSample;

/// The counts of a flow at an instant, from the start of the flow.
#[derive(Clone, Copy, Debug)]
struct Counts {
    at: Time,
    sent: u64,
    lost: u64,
    sums: [u64; SUMS],
}

const SUMS: usize = 5;

/// The counts of a flow around the beginning of its measured time, and at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketCounts {
    /// The last sample that is not within the measured time, or is at its very beginning.
    before: Option<Counts>,
    /// The first sample after that.
    after: Option<Counts>,
    last: Option<Counts>,
}

/// What a flow did in its measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub sent: f64,
    /// The packets that did not arrive.
    pub lost: f64,
    /// The packets whose delay is known, and the sum of their delays.
    delays: f64,
    delay_sum_ns: f64,
    /// The pairs of consecutive packets, and the sums of their differences and of the jitter.
    pairs: f64,
    variation_sum_ns: f64,
    jitter_sum_ns: f64,
}

impl Counted {
    /// Returns the mean one-way delay.
    pub fn mean_delay_ns(&self) -> Option<f64> {
        (self.delays > 0.0).then(|| self.delay_sum_ns / self.delays)
    }

    /// Returns the mean difference between the delays of consecutive packets.
    pub fn mean_variation_ns(&self) -> Option<f64> {
        (self.pairs > 0.0).then(|| self.variation_sum_ns / self.pairs)
    }

    /// Returns the mean interarrival jitter.
    pub fn mean_jitter_ns(&self) -> Option<u64> {
        (self.pairs > 0.0).then(|| (self.jitter_sum_ns / self.pairs).round() as u64)
    }
}

impl PacketCounts {
    /// Adds a sample, later than those before it. The measured time begins at `from`.
    pub fn sample(&mut self, from: Time, sample: &FlowSample) {
        let (Some(sent), Some(received)) = (sample.sent_packets, sample.received_packets) else {
            return;
        };
        let sum = |span: Option<Span>| span.map_or(0, Span::as_ns);
        // Older programs recorded no delays.
        let delays = sample.delays.unwrap_or(0);
        let counts = Some(Counts {
            at: sample.time,
            sent,
            lost: sent.saturating_sub(received),
            sums: [
                delays,
                sum(sample.delay_sum),
                // The first packet has none before it.
                delays.saturating_sub(1),
                sum(sample.variation_sum),
                sum(sample.jitter_sum),
            ],
        });
        if sample.time <= from {
            self.before = counts;
        } else if self.after.is_none() {
            self.after = counts;
        }
        self.last = counts;
    }

    /// Returns what a flow that started at `start` did between `from` and `to`; `None` if it sent
    /// nothing. The last sample may be later than `to`, since packets arrive after they were sent.
    ///
    /// Samples are taken when packets arrive, so none need be at `from`. The counts there are on the
    /// line between those of the samples before and after it.
    pub fn measured(&self, start: Time, from: Time, to: Time) -> Option<Counted> {
        let last = self.last.filter(|_| from < to)?;
        let zero = Counts {
            at: start,
            sent: 0,
            lost: 0,
            sums: [0; SUMS],
        };
        let before = self.before.unwrap_or(zero);
        let after = self.after.unwrap_or(last);
        // Nothing is sent after `to`.
        let apart = after.at.min(to).since(before.at).as_ns();
        let passed = from.since(before.at).as_ns();
        let part = (passed as f64 / apart.max(1) as f64).min(1.0);
        let since = |pick: &dyn Fn(&Counts) -> u64| {
            let [before, after, last] = [&before, &after, &last].map(|c| pick(c) as f64);
            last - (before + (after - before) * part)
        };
        let sent = since(&|c| c.sent);
        let [delays, delay_sum_ns, pairs, variation_sum_ns, jitter_sum_ns] =
            std::array::from_fn(|sum| since(&|c| c.sums[sum]));
        (sent > 0.0).then(|| Counted {
            sent,
            lost: since(&|c| c.lost).clamp(0.0, sent),
            delays,
            delay_sum_ns,
            pairs,
            variation_sum_ns,
            jitter_sum_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// The counts of samples of an instant in seconds, packets sent and packets received.
    fn counts(from: Time, samples: &[(u64, u64, u64)]) -> PacketCounts {
        let mut counts = PacketCounts::default();
        for (second, sent, received) in samples {
            let sample = FlowSample {
                sent_packets: Some(*sent),
                received_packets: Some(*received),
                ..FlowSample::empty(at(*second), 0)
            };
            counts.sample(from, &sample);
        }
        counts
    }

    fn measured(counts: &PacketCounts, from: Time, to: Time) -> Option<(f64, f64)> {
        let counted = counts.measured(at(0), from, to)?;
        Some((counted.sent, counted.lost))
    }

    #[test]
    fn packets_before_the_measured_time_do_not_count() {
        // 100 packets per second: half of them lost in the first 4 s, then one in ten.
        let samples = [(3, 300, 150), (4, 400, 200), (5, 500, 290), (8, 800, 560)];
        let counts = counts(at(4), &samples);
        assert_eq!(measured(&counts, at(4), at(8)), Some((400.0, 40.0)));
        assert_eq!(measured(&counts, at(8), at(8)), None);
    }

    #[test]
    fn a_gap_in_the_arrivals_belongs_in_part_to_the_warm_up() {
        // Nothing arrives from 2 s to 6 s, so 400 of the packets are lost, half of them before 4 s.
        let counts = counts(at(4), &[(2, 200, 200), (6, 600, 200), (8, 800, 400)]);
        assert_eq!(measured(&counts, at(4), at(8)), Some((400.0, 200.0)));
    }

    #[test]
    fn a_flow_without_arrivals_loses_everything() {
        // It stopped at 8 s; the last sample is the end of the run. 7 of 8 seconds are measured.
        let counts = counts(at(1), &[(9, 800, 0)]);
        assert_eq!(measured(&counts, at(1), at(8)), Some((700.0, 700.0)));
    }

    #[test]
    fn delays_are_those_of_the_measured_time() {
        let mut counts = PacketCounts::default();
        // 10 packets of 90 ms in the first second, then 20 of 10 ms and 14 ms in turn.
        for (second, delays, delay_ms, variation_ms, jitter_ms) in
            [(1, 10, 900, 0, 0), (3, 30, 900 + 240, 76 + 76, 40)]
        {
            let sample = FlowSample {
                sent_packets: Some(delays),
                received_packets: Some(delays),
                delays: Some(delays),
                delay_sum: Some(Span::from_ms(delay_ms)),
                variation_sum: Some(Span::from_ms(variation_ms)),
                jitter_sum: Some(Span::from_ms(jitter_ms)),
                ..FlowSample::empty(at(second), 0)
            };
            counts.sample(at(1), &sample);
        }
        let counted = counts.measured(at(0), at(1), at(3)).unwrap();
        assert_eq!(counted.mean_delay_ns(), Some(12e6));
        // 20 differences: one of 76 ms, from 90 ms to 14 ms, and 19 of 4 ms.
        assert_eq!(counted.mean_variation_ns(), Some(152e6 / 20.0));
        assert_eq!(counted.mean_jitter_ns(), Some(2_000_000));
    }
}
