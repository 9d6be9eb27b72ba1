//! An engine as one of several workers.

use sluice_core::event::Cx;

use crate::engine::Firewall;
use crate::objects::instance::NONE;
use crate::objects::share::{Handed, Purpose, Worker};

impl Firewall {
    /// Makes this engine one of several workers. All of them have the same settings, get the same
    /// commands in the same order, and each handles one part of the traffic. A pipe, with all its
    /// queues, belongs to one of them; so does each pipe that a mask creates. A packet that enters a
    /// pipe of another worker leaves this one through [`Firewall::take_handed`].
    ///
    /// # Panics
    /// If the number is not below the number of workers.
    pub fn share(&mut self, worker: Worker) {
        assert!(worker.number < worker.of, "workers are numbered from 0");
        self.runtime.worker = (worker.of > 1).then_some(worker);
    }

    /// Returns whether some rule has states. All packets of a flow, in both directions, must then be
    /// given to the same worker.
    pub fn has_states(&mut self) -> bool {
        self.rules.has_states()
    }

    /// Returns the next packet that has come to a pipe of another worker. The packet and its slot no
    /// longer belong to this engine. Call this after every other call, until it returns `None`.
    pub fn take_handed(&mut self) -> Option<Handed> {
        self.runtime.handed.pop_front()
    }

    /// Puts a packet that another worker has handed over into its pipe, at `cx.now`, as if the rules of
    /// this worker had sent it there. A packet that comes back from its pipe continues behind the rule
    /// that sent it. The packet's slot is one of this engine's.
    pub fn accept(&mut self, handed: Handed, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let Handed {
            packet,
            passage,
            purpose,
            ..
        } = handed;
        let number = passage.flowset;
        match purpose {
            Purpose::Continue => return self.proceed(packet, &passage, now, cx),
            Purpose::Enter | Purpose::Move => self.runtime.ensure(number, &self.layout),
        }
        if purpose == Purpose::Enter {
            self.runtime.enter_here(packet, number, passage, NONE, cx);
        } else {
            self.runtime.move_here(packet, number, passage, cx);
        }
    }
}
