//! A link that was built from a scenario, with the changes that the scenario schedules.

use sluice_core::link::{Link, PipeParams};
use sluice_core::sched::Wake;
use sluice_core::{Cx, Rate, Span, Time};

use super::super::schedule::Schedule;
use super::Pipe;

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

    /// Returns the rate at `at`; `None` if the link follows a trace.
    pub fn rate_at(&self, at: Time) -> Option<Rate> {
        let rate = self.rate.at(at.since(Time::ZERO));
        rate.filter(|_| !self.rate.is_trace())
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

    /// Applies the changes of the delay that are due by `cx.now`, each at its own instant.
    pub fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some((at, params)) = self.take_change(now) {
            cx.now = at;
            self.link.set_pipe(&params, cx);
            cx.now = now;
        }
    }

    /// Turns the link from `before` into `after`. Packets on the link stay where they are; the
    /// queue's move to the new queue.
    pub fn change(&mut self, before: &Pipe, after: &Pipe, cx: &mut Cx<'_>) {
        let at = cx.now.since(Time::ZERO);
        let mut params = after.params();
        params.pipe.delay = after.delay.at(at);
        self.link.set_params(&params, after.files(), cx);
        if before.queue != after.queue {
            self.link.replace_queue(after.build_queue(), cx);
        }
        self.rate = after.rate.clone();
        self.has_effects = after.has_effects();
        self.delays = after.delays_after(at);
    }

    /// Returns when the link next has something to do; a time in the past means now.
    pub fn next_packet(&self) -> Option<Time> {
        match self.link.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        }
    }

    /// Returns when the link or its delay next has something to do; a time in the past means now.
    pub fn next_wake(&self) -> Option<Time> {
        let change = self.delays.last().map(|(at, _)| *at);
        self.next_packet().into_iter().chain(change).min()
    }
}
