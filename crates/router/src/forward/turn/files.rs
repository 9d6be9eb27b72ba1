//! The loop in the time of files: all ports are files, so nothing waits for the machine's clock.
//!
//! The loop advances to the next arrival or the next due packet, whichever is first, and each
//! packet is written with the time at which it was due. The output is that of a router that is
//! never late: the same bytes on every machine, however busy.

use std::thread;
use std::time::Duration;

use sluice_core::{Cx, Span, Time};
use sluice_net::port::Port;
use sluice_net::port::registry::Playback;

use super::{Forwarder, Lane, LostFrame, Observer, Queueing};

/// The time that a [`Forwarder`] between files has reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTime {
    /// `None` before the first instant.
    now: Option<Time>,
}

impl FileTime {
    /// Calls a lane's queues between two steps, as [`Forwarder::with`] does in the machine's time.
    pub fn with<P: Port, Q: Queueing, O: Observer, T>(
        &mut self,
        forwarder: &mut Forwarder<P, Q, O>,
        lane: usize,
        work: impl FnOnce(&mut Q, &mut Cx<'_>) -> T,
    ) -> T {
        let now = self.now.unwrap_or(Time::ZERO);
        forwarder.lanes[lane].with(now, &mut forwarder.pool, work)
    }

    /// Forwards at up to `instants` points in time. Returns whether more follow. None follows when
    /// no frame will arrive and no held frame will ever be due. If more follow, but a file that is
    /// written is far behind, for example because the disk is full, returns early, after a pause.
    pub fn advance<P: Port, Q: Queueing, O: Observer>(
        &mut self,
        forwarder: &mut Forwarder<P, Q, O>,
        instants: usize,
    ) -> bool {
        for _ in 0..instants {
            let next = |port: &mut P| port.playback()?.next_arrival();
            let arrival = forwarder.ports.iter_mut().filter_map(next).min();
            if arrival.is_none() && forwarder.pool.held() == 0 {
                return false;
            }
            let due = forwarder.lanes.iter().filter_map(Lane::next_wake).min();
            let Some(next) = arrival.into_iter().chain(due).min() else {
                return false;
            };
            // At the end, nothing needs room: what waits is for `release_ports`.
            if !forwarder.files_have_room() {
                thread::sleep(PAUSE);
                return true;
            }
            // A packet that is due immediately was not due before, and time advances at every step.
            let least = self.now.map(|now| now.saturating_add(Span::from_ns(1)));
            let now = least.map_or(next, |least| next.max(least));
            self.now = Some(now);
            forwarder.turn_at(now);
        }
        true
    }
}

impl<P: Port, Q: Queueing, O: Observer> Forwarder<P, Q, O> {
    /// Returns whether no frame will arrive and none is held: between files, at their end.
    pub fn is_through(&mut self) -> bool {
        let is_at_end = |file: &mut dyn Playback| file.next_arrival().is_none();
        let mut ports = self.ports.iter_mut();
        self.pool.held() == 0 && ports.all(|port| port.playback().is_some_and(is_at_end))
    }

    /// Returns whether all files that are written have room for the frames of an instant.
    fn files_have_room(&mut self) -> bool {
        let mut ports = self.ports.iter_mut();
        ports.all(|port| port.playback().is_none_or(|file| file.has_room()))
    }

    /// Makes the ports free the slots that they hold, and write what they have buffered.
    pub fn release_ports(&mut self) {
        for port in &mut self.ports {
            port.release(&mut self.pool);
        }
    }

    fn turn_at(&mut self, now: Time) {
        for (number, port) in self.ports.iter_mut().enumerate() {
            let Some(lane) = self.lane_of[number] else {
                continue;
            };
            set_time(port, now);
            port.receive(&mut self.pool, &mut self.received);
            for slot in self.received.drain(..) {
                let (pool, outboxes) = (&mut self.pool, &mut self.outboxes);
                self.lanes[lane].admit(slot, number, now, pool, outboxes);
            }
        }
        for lane in &mut self.lanes {
            lane.collect(now, &mut self.pool, &mut self.outboxes);
        }
        for (port, outbox) in self.ports.iter_mut().zip(&mut self.outboxes) {
            for (slot, note) in outbox.slots.drain(..).zip(outbox.notes.drain(..)) {
                let due = note.due.map_or(now, |(due, _)| due);
                set_time(port, due);
                let lane = &mut self.lanes[note.lane];
                if port.transmit(&mut self.pool, &[slot]) == 0 {
                    self.pool.free(slot);
                    lane.counts_mut().lose(LostFrame::Blocked, 1);
                    continue;
                }
                lane.counts_mut().sent += 1;
                if let Some((due, len)) = note.due {
                    lane.released(due, len, due);
                }
            }
        }
    }
}

/// In this time, a fast disk writes some megabytes, and the loop is late for no order.
const PAUSE: Duration = Duration::from_millis(1);

/// Sets the time of a port that plays files.
fn set_time(port: &mut impl Port, now: Time) {
    if let Some(file) = port.playback() {
        file.set_time(now);
    }
}
