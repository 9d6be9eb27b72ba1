//! Rest: when the timer of an AQM may stay unset.
//!
//! If an update of a controller changed nothing, the next one changes nothing either unless the
//! queue changes. The controller is then at rest until a packet arrives, leaves or is dropped, so a
//! link that is idle for years costs nothing. The first such updates of each rest are still made,
//! so that a table of updates has no gaps while there is traffic. The result is the same with and
//! without a listener.

use crate::units::{Span, Time};

/// Consecutive updates that changed nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Repetitions(u32);

impl Repetitions {
    /// Records an update.
    pub(super) fn note(&mut self, is_changed: bool) {
        self.0 = match is_changed {
            true => 0,
            false => self.0.saturating_add(1),
        };
    }

    /// Returns whether no update is needed until the queue changes.
    pub(super) const fn is_at_rest(&self) -> bool {
        self.0 >= MADE
    }

    /// Ends the rest: the queue changes.
    pub(super) fn end(&mut self) {
        self.0 = 0;
    }
}

/// Returns the first update, one every `period` from `first` on, that is not due yet.
pub(super) fn first_after(
    first: Time,
    period: Span,
    now: Time,
    is_due: fn(Time, Time) -> bool,
) -> Time {
    if !is_due(first, now) {
        return first;
    }
    let late = now.since(first).as_ns();
    let last = first.saturating_add(Span::from_ns(late - late % period.as_ns()));
    if is_due(last, now) {
        last.saturating_add(period)
    } else {
        last
    }
}

/// Updates without a change that are made before the rest: 15 s of PIE's default updates.
const MADE: u32 = 1_000;
