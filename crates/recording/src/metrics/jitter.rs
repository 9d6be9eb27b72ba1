//! Jitter: the variation of a delay.

/// The interarrival jitter of RFC 3550 section 6.4.1, in nanoseconds.
///
/// `J += (|D| - J) / 16` for the difference `D` of two consecutive transit times, in the order of
/// arrival. The result is the mean of the estimator over all packets, because the last value alone
/// depends on the last few packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    last: Option<u64>,
    estimate: f64,
    sum: f64,
    distances: f64,
    count: u64,
}

impl Jitter {
    /// Adds a packet that arrived after this transit time.
    pub fn transit(&mut self, ns: u64) {
        if let Some(distance) = self.estimated(ns) {
            self.sum += self.estimate;
            self.distances += distance;
            self.count += 1;
        }
    }

    /// Adds a packet that arrived before the measured time: the estimator, which takes some dozens of
    /// packets to rise from zero, has its value when that time begins, and the mean leaves it out.
    pub fn lead_in(&mut self, ns: u64) {
        self.estimated(ns);
    }

    /// Moves the estimator by a packet, and returns the difference from the last one.
    fn estimated(&mut self, ns: u64) -> Option<f64> {
        let last = self.last.replace(ns)?;
        let distance = ns.abs_diff(last) as f64;
        self.estimate += (distance - self.estimate) / 16.0;
        Some(distance)
    }

    /// Returns the mean of the estimator; `None` with fewer than two packets.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum / self.count as f64).round() as u64)
    }

    /// Returns the sum of the estimator over all packets, in nanoseconds.
    pub const fn sum_ns(&self) -> f64 {
        self.sum
    }

    /// Returns the sum of the differences of consecutive transit times, in nanoseconds.
    pub const fn variation_sum_ns(&self) -> f64 {
        self.distances
    }

    /// Returns the mean difference of two consecutive transit times (IPDV, RFC 3393); `None` with
    /// fewer than two packets.
    pub fn mean_variation_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.distances / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimator_moves_by_a_sixteenth() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.mean_ns(), None);
        for transit in [1000, 2600, 2600] {
            jitter.transit(transit);
        }
        // |D| is 1600, then 0: J is 100, then 100 - 100/16 = 93.75; their mean is 96.875.
        assert_eq!(jitter.mean_ns(), Some(97));
        assert_eq!(jitter.mean_variation_ns(), Some(800.0));
    }

    #[test]
    fn the_estimator_runs_through_the_lead_in_which_the_mean_leaves_out() {
        let mut jitter = Jitter::default();
        jitter.lead_in(1000);
        jitter.lead_in(2600);
        assert_eq!((jitter.mean_ns(), jitter.mean_variation_ns()), (None, None));
        // J was 1600/16 = 100; |D| is 1600 again, so J is 100 + 1500/16 = 193.75.
        jitter.transit(1000);
        assert_eq!(jitter.mean_ns(), Some(194));
        assert_eq!(jitter.mean_variation_ns(), Some(1600.0));
    }
}
