//! A limit of the calls that an algorithm asks for itself.

use sluice_core::{Span, Time};

/// The time that an algorithm may take by calls for which it asks itself, such as those of its timers.
///
/// There are as many calls about packets as there are packets. But a timer that is due again 1 ns later
/// would stop the packet loop for good, since each call takes longer than that. All times are those of
/// the run, so that the same calls are refused on every machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    /// The instant up to which the time has been taken.
    taken: Time,
}

impl Allowance {
    /// Takes `time` at `now`. Returns whether there was so much: at most 40 ms, which come back as time
    /// passes.
    pub fn take(&mut self, time: Span, now: Time) -> bool {
        let taken = self.taken.max(now).saturating_add(time);
        let is_left = taken.since(now) <= CREDIT;
        if is_left {
            self.taken = taken;
        }
        is_left
    }
}

/// The time that can be taken at one instant, such as by the timers of many queues.
const CREDIT: Span = Span::from_ms(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_milliseconds_can_be_taken_at_once_and_come_back_as_time_passes() {
        let mut allowance = Allowance::default();
        let mut take =
            |ms: u64, at: u64| allowance.take(Span::from_ms(ms), Time::from_ns(at * 1_000_000));
        assert!(take(40, 1_000));
        assert!(!take(1, 1_000));
        // 10 ms later there are 10 ms, and no more after a long time than at the start.
        assert!(!take(11, 1_010));
        assert!(take(10, 1_010));
        assert!(!take(41, 9_000));
        assert!(take(40, 9_000));
    }

    #[test]
    fn calls_that_ask_for_the_next_one_a_nanosecond_later_end() {
        let mut allowance = Allowance::default();
        let time = Span::from_us(4);
        let calls = (1..20_000).take_while(|ns| allowance.take(time, Time::from_ns(*ns)));
        // 40 ms / 4 us = 10 000, and 10 us pass meanwhile, which are two more calls and 2 us.
        assert_eq!(calls.count(), 10_002);
        // A call each 4 us goes on.
        let mut allowance = Allowance::default();
        assert!((0..50_000).all(|call| allowance.take(time, Time::from_ns(call * 4_000))));
    }
}
