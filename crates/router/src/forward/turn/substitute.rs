//! What forwards while a loop hangs.

use std::ops::Range;

use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::guardian::Bridging;

/// The kernel bridges of a guardian, as a loop sees them that has continued.
pub(super) struct Substitute {
    bridging: Bridging,
    /// When the loop last gave a sign of life.
    turned_at: Time,
    /// When the bridges forwarded and the loop did not, the last time.
    forwarded: Range<Time>,
}

impl Substitute {
    pub(super) const fn new(bridging: Bridging, now: Time) -> Substitute {
        Substitute {
            bridging,
            turned_at: now,
            forwarded: Time::ZERO..Time::ZERO,
        }
    }

    /// Notes that the loop turns.
    pub(super) fn note_turn(&mut self, now: Time, clock: &Clock) {
        let last = std::mem::replace(&mut self.turned_at, now);
        if now.since(last) >= HANG
            && let Some(began) = self.bridging.began(clock).filter(|began| *began > last)
        {
            self.forwarded = began..now;
        }
    }

    /// Returns whether the bridges have forwarded a frame that arrived then.
    pub(super) fn has_forwarded(&self, arrival: Time) -> bool {
        self.forwarded.contains(&arrival)
    }
}

/// A loop that has not turned for this long may have been taken for hung: the guardian waits for longer
/// than this.
const HANG: Span = Span::from_ms(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_discarded_that_arrived_between_the_take_over_and_the_end_of_the_hang() {
        let (clock, bridging) = (Clock::start(), Bridging::new().unwrap());
        let start = clock.now();
        let mut substitute = Substitute::new(bridging.clone(), start);
        let second = Span::from_ms(1000);
        // A hang without a bridge.
        substitute.note_turn(start + second, &clock);
        assert!(!substitute.has_forwarded(start));

        let mut substitute = Substitute::new(bridging.clone(), start);
        bridging.begin();
        let began = bridging.began(&clock).unwrap();
        assert!(began > start);
        let end = began + second;
        substitute.note_turn(end, &clock);
        let (before, last) = (
            Time::from_ns(began.as_ns() - 1),
            Time::from_ns(end.as_ns() - 1),
        );
        let arrivals = [before, began, last, end];
        assert_eq!(
            arrivals.map(|arrival| substitute.has_forwarded(arrival)),
            [false, true, true, false]
        );
        // The same bridge has nothing to do with the next hang.
        substitute.note_turn(end + second, &clock);
        assert!(!substitute.has_forwarded(end + Span::from_ms(500)));
        assert!(substitute.has_forwarded(began));
    }

    #[test]
    fn nothing_is_discarded_if_the_loop_turned_or_if_the_bridges_are_not_known() {
        let (clock, bridging) = (Clock::start(), Bridging::new().unwrap());
        let start = clock.now();
        let mut substitute = Substitute::new(bridging.clone(), start);
        bridging.begin();
        let began = bridging.began(&clock).unwrap();
        substitute.note_turn(began + Span::from_ms(100), &clock);
        assert!(!substitute.has_forwarded(began));
        bridging.forget();
        assert_eq!(bridging.began(&clock), None);
        substitute.note_turn(began + Span::from_ms(5000), &clock);
        assert!(!substitute.has_forwarded(began + Span::from_ms(200)));
    }
}
