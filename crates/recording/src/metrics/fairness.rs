//! Fairness over time, and the time until a new flow has its fair share.

use sluice_core::{Span, Time};

use super::goodput::{Arrived, bytes_at};
use super::percentile::jain;

/// A flow that sends as much as it can from `start` to `stop`.
#[derive(Clone, Copy, Debug)]
pub struct Greedy<'a> {
    /// Payload that arrived, over time.
    pub samples: &'a [Arrived],
    /// The start.
    pub start: Time,
    /// The end.
    pub stop: Time,
}

/// The goodputs of the flows that were active during a whole window.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// The end of the window.
    pub at: Time,
    /// The goodput of each flow, by its index; `None` if it was not active during the whole window.
    pub bps: Vec<Option<f64>>,
}

impl Shares {
    fn active(&self) -> Vec<f64> {
        self.bps.iter().copied().flatten().collect()
    }

    /// Returns Jain's index over the active flows; `None` with fewer than two.
    pub fn jain(&self) -> Option<f64> {
        jain(&self.active())
    }
}

/// Returns the shares in windows of length `window` that end at `window`, `window + step` ...
/// `end`. All of them may take much memory.
pub fn shares(
    flows: &[Greedy<'_>],
    window: Span,
    step: Span,
    end: Time,
) -> impl Iterator<Item = Shares> {
    assert!(
        window > Span::ZERO && step > Span::ZERO,
        "the window and its step are above zero"
    );
    let mut places = vec![(0, 0); flows.len()];
    let mut from = Time::ZERO;
    std::iter::from_fn(move || {
        let to = from.saturating_add(window);
        if to > end {
            return None;
        }
        let of = |flow: &Greedy<'_>, (low, high): &mut (usize, usize)| {
            let is_active = flow.start <= from && to <= flow.stop;
            if !is_active || flow.samples.is_empty() {
                return None;
            }
            // A flow that sends as much as it can does not pause.
            let by = |place: &mut usize, at| bytes_at(flow.samples, place, Span::MAX, at);
            let bytes = by(high, to) - by(low, from);
            Some(bytes.max(0.0) * 8.0 / window.as_secs_f64())
        };
        let bps = flows
            .iter()
            .zip(&mut places)
            .map(|(f, p)| of(f, p))
            .collect();
        from = from.saturating_add(step);
        Some(Shares { at: to, bps })
    })
}

/// Returns the time from the start of the flow at `place` until its goodput in a window was first
/// within a fifth (`NEAR`) of the mean of all active flows. `None` if that never happened while
/// another flow was active.
///
/// This is the delta-fair convergence time of RFC 5166 with delta = 0.2, for any number of flows.
pub fn convergence(shares: &[Shares], place: usize, start: Time) -> Option<Span> {
    let has_share = |window: &&Shares| {
        let (Some(own), active) = (window.bps[place], window.active()) else {
            return false;
        };
        let mean = active.iter().sum::<f64>() / active.len() as f64;
        active.len() > 1 && mean > 0.0 && (own - mean).abs() <= NEAR * mean
    };
    shares.iter().find(has_share).map(|w| w.at.since(start))
}

/// The largest relative distance from the mean that counts as an equal share.
pub const NEAR: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_ns(s * 1_000_000_000)
    }

    fn arrived(bytes: &[u64]) -> Vec<Arrived> {
        (0..).map(at).zip(bytes.iter().copied()).collect()
    }

    #[test]
    fn shares_are_those_of_the_flows_that_were_there_all_the_time() {
        // 1000 B/s alone for 2 s, then 900, 500 and 500 B/s beside a newcomer of 100, 500 and 500 B/s.
        let (old, new) = (
            arrived(&[0, 1000, 2000, 2900, 3400, 3900]),
            arrived(&[0, 0, 0, 100, 600, 1100]),
        );
        let greedy = |samples, start| Greedy {
            samples,
            start: at(start),
            stop: at(5),
        };
        let flows = [greedy(&old[..], 0), greedy(&new[..], 2)];
        let second = Span::from_secs(1);
        let all: Vec<Shares> = shares(&flows, second, second, at(5)).collect();
        assert_eq!(all.len(), 5);
        assert_eq!(all[1].bps, [Some(8000.0), None]);
        assert_eq!(all[1].jain(), None);
        assert_eq!(all[2].bps, [Some(7200.0), Some(800.0)]);
        // (9 + 1)^2 / (2 * (81 + 1)) = 100/164
        assert!((all[2].jain().unwrap() - 100.0 / 164.0).abs() < 1e-12);
        assert_eq!(all[3].jain(), Some(1.0));
        // The window from 3 to 4 s is the first with equal shares: 2 s after the newcomer's start.
        assert_eq!(convergence(&all, 1, at(2)), Some(Span::from_secs(2)));
        assert_eq!(convergence(&all[..3], 1, at(2)), None);
    }
}
