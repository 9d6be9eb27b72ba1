//! Proportional rate reduction: the bytes that may be sent for each ACK while the window shrinks
//! from its old size to ssthresh (RFC 6937, with the rules of its successor RFC 9937).

/// State of one reduction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    recover_fs: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    /// Starts a reduction with `recover_fs` bytes in flight (RFC 6937 §3: RecoverFS).
    pub fn start(recover_fs: u64) -> Self {
        Prr {
            recover_fs: recover_fs.max(1),
            delivered: 0,
            out: 0,
        }
    }

    /// Counts bytes sent during the reduction (RFC 6937 §3: prr_out).
    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// The window after an ACK that newly delivered `delivered` bytes.
    ///
    /// `is_safe` is true if the ACK advanced SND.UNA and no further loss was found. Only then may
    /// the window grow by more than the bytes delivered (RFC 9937 §6.2: SafeACK).
    pub fn window(
        &mut self,
        in_flight: u64,
        ssthresh: u64,
        mss: u64,
        delivered: u64,
        is_safe: bool,
    ) -> u64 {
        self.delivered += delivered;
        let allowed = if in_flight > ssthresh {
            // RFC 6937 §3: sndcnt = CEIL(prr_delivered * ssthresh / RecoverFS) - prr_out
            let due = (u128::from(self.delivered) * u128::from(ssthresh))
                .div_ceil(u128::from(self.recover_fs)) as u64;
            due.saturating_sub(self.out)
        } else {
            // RFC 9937 §6.2: the bytes delivered, and one segment more if the ACK is safe. RFC 6937
            // §3 has two variants: the slow start bound always adds the segment; the conservative
            // bound has neither the segment nor the maximum.
            let limit = self.delivered.saturating_sub(self.out).max(delivered);
            let limit = limit + if is_safe { mss } else { 0 };
            limit.min(ssthresh - in_flight)
        };
        // RFC 9937 §6.2: the first retransmission is always allowed.
        let allowed = if self.out == 0 {
            allowed.max(mss)
        } else {
            allowed
        };
        in_flight + allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    #[test]
    fn proportional_part_sends_the_ratio_of_what_was_delivered() {
        // RecoverFS 200000, ssthresh 100000: 51000 delivered allow ceil(51000 * 0.5) = 25500.
        let mut prr = Prr::start(200_000);
        assert_eq!(prr.window(200_000, 100_000, MSS, 51_000, false), 225_500);
    }

    #[test]
    fn conservation_does_not_wrap_below_zero() {
        // 50000 sent against 2000 delivered: prr_delivered - prr_out is negative, so the 1000
        // bytes just delivered count: 50000 + 1000.
        let mut prr = Prr::start(200_000);
        prr.on_sent(50_000);
        prr.window(50_000, 100_000, MSS, 1_000, false);
        assert_eq!(prr.window(50_000, 100_000, MSS, 1_000, false), 51_000);
    }

    #[test]
    fn slow_start_part_adds_a_segment_but_stops_at_ssthresh() {
        let mut prr = Prr::start(20_000);
        prr.on_sent(1_000);
        // prr_delivered - prr_out = 1000, DeliveredData = 2000, + MSS
        assert_eq!(prr.window(4_000, 10_000, MSS, 2_000, true), 7_000);
        assert_eq!(prr.window(9_500, 10_000, MSS, 2_000, true), 10_000);
    }

    #[test]
    fn the_first_retransmission_is_never_held_back() {
        let mut prr = Prr::start(20_000);
        assert_eq!(prr.window(19_000, 10_000, MSS, 0, false), 20_000);
    }
}
