//! The division of pipes among workers: engines that have the same configuration and one part of the
//! traffic each.
//!
//! Each instance of a scheduler - a pipe or scheduler, and the masked flow if it has a mask - belongs
//! to one worker. Only that worker queues packets for it, so its queues, its AQM and its rate are
//! those of a single engine. Without a mask, the owner of number `n` is worker `n` modulo the number
//! of workers, so that the numbers in a configuration decide which pipes share a worker. With a mask,
//! a hash of the flow is added to the number, unless the workers are to keep the pipes of a mask
//! together.
//!
//! The rules of the worker at which a packet arrived decide. Behind a pipe of another worker, the
//! rules of that worker continue if no rule has states (`keep-state`, `limit`, `check-state`): they
//! are equal. If one has, the packet goes back first, because only the worker at which a flow arrives
//! has its states.

use sluice_core::event::Cx;
use sluice_core::packet::Packet;
use sluice_core::units::Time;

use super::instance::NONE;
use super::layout::STRIDE;
use super::packets::Passage;
use super::runtime::Runtime;
use crate::flow::FlowId;
use crate::headers::Headers;

/// One of several workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number, from 0.
    pub number: u32,
    /// The number of workers.
    pub of: u32,
    /// Whether all pipes that a mask creates belong to the worker of their number. Otherwise they are
    /// spread over the workers.
    pub keeps_masks: bool,
}

/// A packet on its way to another worker ([`Firewall::accept`](crate::Firewall::accept)): to the one
/// that owns the pipe that the packet enters, or back to the one that has the states of its flow.
#[derive(Debug)]
pub struct Handed {
    /// The worker that owns the pipe, or that has the states of the packet's flow.
    pub to: u32,
    /// The packet. Its slot is one of the sender's; the receiver sets its own.
    pub packet: Packet,
    /// The instant at which the packet came to the pipe, or left one.
    pub at: Time,
    pub(crate) passage: Passage,
    pub(crate) purpose: Purpose,
}

/// What the receiver does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The rules sent the packet into a pipe.
    Enter,
    /// The packet was in a queue that was reconfigured.
    Move,
    /// The packet has left a pipe, and the rules that follow depend on the states of its flow.
    Continue,
}

impl Handed {
    /// Returns the headers of the packet in the pass that led to the pipe.
    pub fn headers(&self) -> &Headers {
        &self.passage.headers
    }
}

impl Runtime {
    /// Puts a packet into flowset `number` at `cx.now`, or keeps it for the worker that owns the pipe.
    /// `hint` is the hint of the previous packet of its flow; the new one is kept for the next packet.
    pub fn enter(
        &mut self,
        packet: Packet,
        number: u32,
        passage: Passage,
        hint: u32,
        cx: &mut Cx<'_>,
    ) -> u32 {
        if let Some(owner) = self.other_owner(number, &passage.headers) {
            self.hand_over(owner, packet, passage, Purpose::Enter, cx.now);
            return hint;
        }
        self.enter_here(packet, number, passage, hint, cx)
    }

    /// Returns the worker that owns the instance of flowset `number` for these headers, unless this is
    /// it. A flowset without a scheduler belongs to everybody.
    #[inline]
    pub(super) fn other_owner(&self, number: u32, headers: &Headers) -> Option<u32> {
        let worker = self.worker?;
        let slot = self.flowsets.get(&number)?.scheduler;
        if slot == NONE {
            return None;
        }
        let scheduler = self.schedulers[slot as usize]
            .as_ref()
            .expect("a flowset's scheduler exists");
        let mut sum = u64::from(scheduler.number % STRIDE);
        let mask = &scheduler.config.mask;
        if !mask.is_empty() && !worker.keeps_masks {
            let flow = FlowId::of(headers, number % STRIDE).masked(mask);
            // Only some bits, so that the sum does not overflow.
            sum += self.hash.of(&flow.words()) >> 16;
        }
        let owner = (sum % u64::from(worker.of)) as u32;
        (owner != worker.number).then_some(owner)
    }

    /// Keeps a packet for the worker that owns its pipe.
    pub(crate) fn hand_over(
        &mut self,
        to: u32,
        packet: Packet,
        passage: Passage,
        purpose: Purpose,
        at: Time,
    ) {
        self.handed.push_back(Handed {
            to,
            packet,
            at,
            passage,
            purpose,
        });
    }

    /// Puts a packet that was in a queue of another worker into flowset `number`.
    pub fn move_here(&mut self, packet: Packet, number: u32, passage: Passage, cx: &mut Cx<'_>) {
        let flow = FlowId::of(&passage.headers, number % STRIDE);
        self.passages.put(packet.slot, passage);
        self.admit(packet, number, flow, NONE, false, cx);
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Cx, DropCounter, Packet, Rng, Time};

    use super::Worker;
    use crate::{Direction, Firewall, Headers, NoFiles, Settings};

    /// With the mask, half of the pipes belong to worker 0 of two; without it, pipe 1 belongs to worker 1.
    #[test]
    fn a_packet_that_moves_to_another_worker_is_no_longer_held_here() {
        let mut firewall = Firewall::new(&Settings::default());
        firewall.share(Worker {
            number: 0,
            of: 2,
            keeps_masks: false,
        });
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let masked = "pipe 1 config bw 8Kbit/s mask src-ip 0xffffffff\n\
                      add pipe 1 ip from any to any";
        firewall.command(masked, &mut NoFiles, &mut cx).unwrap();
        for slot in 0..3 * 64_u32 {
            let source = [10, 0, 0, (slot % 64) as u8];
            let headers = Headers::new(Direction::In, 17, source.into(), [10, 0, 1, 1].into());
            firewall.handle(Packet::new(slot, 1000), &headers, &mut cx);
        }
        while firewall.take_handed().is_some() {}
        let held = |firewall: &Firewall| -> u32 {
            (0..8)
                .map(|slot| firewall.runtime.passages.held(slot))
                .sum()
        };
        let before = held(&firewall);
        // The first packet of each pipe is on its link now.
        let mut cx = Cx::new(Time::from_ns(1), &mut rng, &mut sink);
        let plain = "pipe 1 config bw 8Kbit/s";
        firewall.command(plain, &mut NoFiles, &mut cx).unwrap();
        let moved = std::iter::from_fn(|| firewall.take_handed()).count() as u32;
        assert!(0 < moved && moved < before, "{moved} of {before}");
        // The others are on their links.
        assert_eq!(held(&firewall), before - moved);
    }
}
