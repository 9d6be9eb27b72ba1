//! One direction of the link.

use sluice_core::event::StateValue;
use sluice_core::link::Departure;
use sluice_core::{Backlog, Cx, Packet, Rng, Sink, Time};
use sluice_scenario::{Pipe, ScheduledLink};

/// A direction: its link and the schedule of its changes.
pub struct DirectedLink {
    scheduled: ScheduledLink,
    pipe: Pipe,
    rng: Rng,
    /// Whether the link is cut: it loses everything.
    pub is_cut: bool,
}

impl DirectedLink {
    pub fn new(pipe: &Pipe, rng: Rng) -> DirectedLink {
        DirectedLink {
            scheduled: pipe.build(&rng),
            pipe: pipe.clone(),
            rng,
            is_cut: false,
        }
    }

    /// Returns the current parameters of the direction.
    pub fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Returns the backlog of the queue.
    pub fn backlog(&self) -> Backlog {
        self.scheduled.link.backlog()
    }

    /// Returns the backlog of the queue, and the variables of its algorithm.
    pub fn state(&self) -> (Backlog, Vec<(u32, &'static str, StateValue)>) {
        let mut state = Vec::new();
        let queue = self.scheduled.link.queue();
        queue.state(&mut |queue, name, value| state.push((queue, name, value)));
        (self.backlog(), state)
    }

    /// Returns whether no packet is in the queue or on the link.
    pub fn is_empty(&self) -> bool {
        let link = &self.scheduled.link;
        link.backlog().is_empty() && link.in_flight().is_empty()
    }

    /// Changes the direction to `pipe`. Packets on the link keep their due times; packets in the
    /// old queue move to the new queue.
    pub fn set(&mut self, pipe: &Pipe, now: Time, sink: &mut dyn Sink) {
        if self.pipe == *pipe {
            return;
        }
        let mut cx = Cx::new(now, &mut self.rng, sink);
        self.scheduled.change(&self.pipe, pipe, &mut cx);
        self.pipe = pipe.clone();
    }

    pub fn enqueue(&mut self, packet: Packet, now: Time, sink: &mut dyn Sink) {
        let mut cx = Cx::new(now, &mut self.rng, sink);
        self.scheduled.catch_up(&mut cx);
        if self.is_cut {
            cx.discard(packet, sluice_core::DropReason::Loss);
        } else {
            self.scheduled.link.enqueue(packet, &mut cx);
        }
    }

    /// Returns the next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> Option<Departure> {
        let mut cx = Cx::new(now, &mut self.rng, sink);
        self.scheduled.catch_up(&mut cx);
        self.scheduled.link.poll(&mut cx)
    }

    /// Returns the time of the next event, for which [`DirectedLink::poll`] must be called.
    pub fn next_wake(&self) -> Option<Time> {
        // Only packets are events: a change of the delay has no effect without one.
        self.scheduled.next_packet()
    }
}
