//! A link that was built from a scenario, with the changes that the scenario schedules.

use sluice_core::link::{Link, PipeParams};
use sluice_core::sched::Wake;
use sluice_core::{Rate, Span, Time};

use super::super::schedule::Schedule;

/// A link and its schedules. The host applies the changes of the delay, since it decides who
/// receives the events that a change causes; the link itself follows the schedule of its rate.
pub struct ScheduledLink {
    /// The link.
    pub link: Link,
    pub(super) rate: Schedule,
    pub(super) has_effects: bool,
    /// Later delays, the next one last.
    pub(super) delays: Vec<(Time, Span)>,
}

impl ScheduledLink {
    /// Returns whether super-packets that arrive at `at` should be split: the link is slower than
    /// `below`, follows a trace, or has effects on single packets.
    pub fn splits(&self, at: Time, below: Rate) -> bool {
        let rate = self.rate.at(at.since(Time::ZERO));
        self.has_effects || self.rate.is_trace() || rate.is_none_or(|rate| rate < below)
    }

    /// Returns the next change of the delay that is due by `now`: its instant, and the parameters
    /// for [`Link::set_pipe`] at that instant. Call it until it returns `None`, before the link is
    /// used at `now`.
    pub fn take_change(&mut self, now: Time) -> Option<(Time, PipeParams)> {
        let (at, delay) = self.delays.pop_if(|(at, _)| *at <= now)?;
        let params = PipeParams {
            delay,
            ..self.link.pipe_params().clone()
        };
        Some((at, params))
    }

    /// Returns when the link or its delay next has something to do; a time in the past means now.
    pub fn next_wake(&self) -> Option<Time> {
        let wake = match self.link.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let change = self.delays.last().map(|(at, _)| *at);
        wake.into_iter().chain(change).min()
    }
}
