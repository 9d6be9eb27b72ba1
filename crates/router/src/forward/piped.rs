//! A lane of one pipe, whose rate may change over time.

use sluice_core::link::{Pipe, PipeParams};
use sluice_core::registry::Spec;
use sluice_core::{Cx, Packet, Rate, Time, Wake};
use sluice_wire::frame::View;

use super::{Departure, Origin, PortNumber, Queueing};

/// A rate from an instant on.
pub type RateStep = (Time, Rate);

/// One pipe from a port to another, without rules.
pub struct Piped {
    pipe: Pipe,
    to: PortNumber,
    /// Later rates; the last element is the next one.
    steps: Vec<RateStep>,
    split_below: Rate,
}

impl Piped {
    /// Creates a pipe with `queue` before it; packets leave through port `to`.
    ///
    /// Super-packets are split while the pipe's rate is below `split_below`. `steps` are later
    /// rates in the order of time.
    ///
    /// # Panics
    /// If `queue` cannot be built, which a parsed one can.
    pub fn new(
        params: &PipeParams,
        mut steps: Vec<RateStep>,
        queue: &Spec,
        to: PortNumber,
        split_below: Rate,
    ) -> Self {
        let queue = queue.build().expect("a queue that was parsed can be built");
        steps.reverse();
        Piped {
            pipe: Pipe::new(params, queue),
            to,
            steps,
            split_below,
        }
    }

    /// Returns the pipe.
    pub const fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Applies the rates that have come into force by `cx.now`, each at its own instant.
    fn follow_schedule(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some((at, rate)) = self.steps.pop_if(|(at, _)| *at <= now) {
            let params = PipeParams {
                rate,
                ..self.pipe.params().clone()
            };
            cx.now = at;
            self.pipe.set_params(&params, cx);
            cx.now = now;
        }
    }
}

impl Queueing for Piped {
    type Key = ();

    fn key(&self, _from: Origin, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, _from: PortNumber, (): &(), at: Time) -> bool {
        let step = self.steps.iter().rev().take_while(|step| step.0 <= at);
        let rate = step.last().map_or(self.pipe.params().rate, |step| step.1);
        rate < self.split_below
    }

    fn admit(&mut self, packet: Packet, (): &(), cx: &mut Cx<'_>) {
        self.follow_schedule(cx);
        self.pipe.enqueue(packet, cx);
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.follow_schedule(cx);
        let departure = self.pipe.poll(cx)?;
        Some(Departure {
            packet: departure.packet,
            due: departure.due,
            to: self.to,
        })
    }

    fn next_wake(&self) -> Option<Time> {
        let wake = match self.pipe.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let step = self.steps.last().map(|step| step.0);
        wake.into_iter().chain(step).min()
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        Some(self.to)
    }
}
