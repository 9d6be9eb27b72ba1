//! One direction of the link.

use sluice_core::link::{Departure, Link, PipeParams};
use sluice_core::{Backlog, Cx, Packet, Rng, Span, Time, Wake};
use sluice_scenario::Pipe;

use super::parcels::Parcels;

/// A direction: its link, and what changes it.
pub struct Way {
    link: Link,
    pipe: Pipe,
    rng: Rng,
    /// Later delays, the next one last.
    delays: Vec<(Time, Span)>,
    /// Whether the link is cut: it loses everything.
    pub is_cut: bool,
}

impl Way {
    pub fn new(pipe: &Pipe, rng: Rng) -> Way {
        Way {
            link: Link::new(&pipe.params(), pipe.files(), queue(pipe), &rng),
            pipe: pipe.clone(),
            delays: later_delays(pipe, Time::ZERO),
            rng,
            is_cut: false,
        }
    }

    /// Returns what the direction is at present.
    pub fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Returns what waits in the queue.
    pub fn backlog(&self) -> Backlog {
        self.link.backlog()
    }

    /// Returns whether no packet is in the queue or on the link.
    pub fn is_empty(&self) -> bool {
        self.link.backlog().is_empty() && self.link.in_flight().is_empty()
    }

    /// Turns the direction into `pipe`. Packets on the link stay where they are; the queue's move
    /// to the new queue.
    pub fn set(&mut self, pipe: &Pipe, now: Time, parcels: &mut Parcels) {
        if self.pipe == *pipe {
            return;
        }
        let mut params = pipe.params();
        params.pipe.delay = pipe.delay.at(now.since(Time::ZERO));
        let mut cx = Cx::new(now, &mut self.rng, parcels);
        self.link.set_params(&params, pipe.files(), &mut cx);
        if self.pipe.queue != pipe.queue {
            self.link.replace_queue(queue(pipe), &mut cx);
        }
        self.delays = later_delays(pipe, now);
        self.pipe = pipe.clone();
    }

    pub fn enqueue(&mut self, packet: Packet, now: Time, parcels: &mut Parcels) {
        let mut cx = Cx::new(now, &mut self.rng, parcels);
        follow(&mut self.link, &mut self.delays, &mut cx);
        if self.is_cut {
            cx.discard(packet, sluice_core::DropReason::Loss);
        } else {
            self.link.enqueue(packet, &mut cx);
        }
    }

    /// Returns the next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Time, parcels: &mut Parcels) -> Option<Departure> {
        let mut cx = Cx::new(now, &mut self.rng, parcels);
        follow(&mut self.link, &mut self.delays, &mut cx);
        loop {
            let departure = self.link.poll(&mut cx)?;
            if !self.is_cut {
                return Some(departure);
            }
            cx.discard(departure.packet, sluice_core::DropReason::Loss);
        }
    }

    /// Returns when [`Way::poll`] next has something to do.
    pub fn next_wake(&self) -> Option<Time> {
        let wake = match self.link.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        // A change of the delay matters only to packets.
        wake
    }
}

/// Applies the delays that have come into force by `cx.now`, each at its own instant.
fn follow(link: &mut Link, delays: &mut Vec<(Time, Span)>, cx: &mut Cx<'_>) {
    let now = cx.now;
    while let Some((at, delay)) = delays.pop_if(|(at, _)| *at <= now) {
        let params = PipeParams {
            delay,
            ..link.pipe_params().clone()
        };
        cx.now = at;
        link.set_pipe(&params, cx);
        cx.now = now;
    }
}

fn later_delays(pipe: &Pipe, now: Time) -> Vec<(Time, Span)> {
    let steps = pipe.delay.steps().iter().rev();
    let steps = steps.map(|(at, delay)| (Time::ZERO + *at, *delay));
    steps.filter(|(at, _)| *at > now).collect()
}

fn queue(pipe: &Pipe) -> Box<dyn sluice_core::Discipline> {
    let queue = pipe.queue.0.build();
    queue.expect("a queue that was parsed can be built")
}
