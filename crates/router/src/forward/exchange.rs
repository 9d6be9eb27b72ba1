//! The exchange of packets between workers: loops on several cores that share the pipes of one
//! configuration.
//!
//! A packet whose pipe belongs to another worker is copied into a bounded queue with one sender and
//! one receiver, and from there into the receiver's packet memory. Neither side ever waits: a packet
//! that finds the queue full is lost and counted ([`LostFrame::HandOver`](super::LostFrame)). The
//! memory of the copies goes back to the sender, so that none is allocated in steady state. Of many
//! workers, most exchange nothing: two of them have queues from their first packet on.
//!
//! A sender rings a receiver's bell once per turn, and only if the receiver sleeps.

use std::fmt;
use std::sync::Arc;

use sluice_ipfw::Handed;
use sluice_net::port::{Carried, Pool, Slot};

use super::PortNumber;
use super::doorbell::Doorbell;
use super::way::{self, Memory, way};

/// Ends the sleep of a worker.
pub type WakeUp = Box<dyn Fn() + Send + Sync>;

/// One worker's end of the exchange.
pub struct Exchange {
    own: usize,
    /// By worker; `None` for this one.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    doorbells: Arc<[(Doorbell, WakeUp)]>,
}

type Outgoing = way::Outgoing<Errand, Carried>;
type Incoming = way::Incoming<Errand, Carried>;

impl Memory for Carried {
    fn capacity(&self) -> usize {
        Carried::capacity(self)
    }
}

/// What a packet that is sent needs from its receiver.
pub(super) enum Errand {
    /// A pipe, or the states of its flow.
    Handed(Handed),
    /// To be admitted as if it had arrived there, at this port.
    Arrived(PortNumber),
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

/// Creates the exchange between as many workers as there are bells, which wake them up. Returns the
/// end of each worker.
pub fn exchange(bells: Vec<WakeUp>) -> Vec<Exchange> {
    let workers = bells.len();
    let doorbells = bells.into_iter().map(|wake_up| (Doorbell::new(), wake_up));
    let doorbells: Arc<[_]> = doorbells.collect();
    let senders = workers.saturating_sub(1).max(1);
    let most_bytes = (MOST_BYTES / senders).max(LEAST_BYTES);
    let room = (MOST_PARCELS / senders).max(LEAST_PARCELS);
    let mut ends: Vec<Exchange> = (0..workers)
        .map(|own| Exchange {
            own,
            outgoing: (0..workers).map(|_| None).collect(),
            incoming: (0..workers).map(|_| None).collect(),
            doorbells: Arc::clone(&doorbells),
        })
        .collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (mut outgoing, mut incoming) = way(room, most_bytes);
            if workers <= MOST_AT_ONCE {
                outgoing.create();
                incoming.look();
            }
            ends[from].outgoing[to] = Some(outgoing);
            ends[to].incoming[from] = Some(incoming);
        }
    }
    ends
}

impl Exchange {
    /// Sends a packet with a copy of the frame in its slot, which remains. Returns false if there is no
    /// room.
    pub(super) fn send(&mut self, to: u32, errand: Errand, slot: Slot, pool: &Pool) -> bool {
        let way = self.outgoing[to as usize].as_mut();
        let way = way.expect("a worker keeps what is its own");
        way.send(errand, |frame| pool.carry(slot, frame))
    }

    /// Wakes up the workers to which something was sent, if they sleep.
    pub(super) fn ring(&mut self) {
        let mut is_ordered = false;
        for (to, way) in self.outgoing.iter_mut().enumerate() {
            let Some(way) = way else { continue };
            if !way.take_news() {
                continue;
            }
            if !std::mem::replace(&mut is_ordered, true) {
                Doorbell::have_sent();
            }
            let (doorbell, wake_up) = &self.doorbells[to];
            doorbell.ring(wake_up);
        }
    }

    /// Announces that this worker is about to sleep. Returns false if packets are waiting: then it
    /// must not.
    pub(super) fn sleep(&mut self) -> bool {
        let mut incoming = self.incoming.iter_mut().flatten();
        let has_waiting = || incoming.any(Incoming::has_next);
        self.doorbells[self.own].0.sleep(has_waiting)
    }

    /// Announces that this worker no longer sleeps.
    pub(super) fn wake_up(&self) {
        self.doorbells[self.own].0.wake_up();
    }

    /// Returns whether packets are waiting.
    pub(super) fn has_waiting(&mut self) -> bool {
        let mut incoming = self.incoming.iter_mut().flatten();
        incoming.any(Incoming::has_next)
    }

    /// Receives waiting packets, a batch from each worker. `put` gets each packet and its frame.
    pub(super) fn receive(&mut self, mut put: impl FnMut(Errand, &Carried)) {
        for way in self.incoming.iter_mut().flatten() {
            for _ in 0..BATCH {
                if !way.receive(&mut put) {
                    break;
                }
            }
        }
    }
}

/// Packets that may be on their way to one worker: 8 ms of one million per second.
const MOST_PARCELS: usize = 8192;
/// Packets that may be on their way from one worker to another.
const LEAST_PARCELS: usize = 128;
/// Bytes that may be on their way to one worker: 13 ms at 10 Gbit/s.
const MOST_BYTES: usize = 16 << 20;
/// Bytes that may be on their way from one worker to another: four super-packets.
const LEAST_BYTES: usize = 256 << 10;
/// Packets that are received at one time from one worker.
const BATCH: usize = 256;
/// Of so many workers, each has queues to every other one from the start. An array for 546 packets, which is
/// what each of 16 workers has from each other one, takes some tens of microseconds to create.
const MOST_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_net::port::PoolSize;
    use sluice_wire::frame::VnetHeader;

    fn ends(workers: usize) -> Vec<Exchange> {
        let bell = || -> WakeUp { Box::new(|| {}) };
        exchange((0..workers).map(|_| bell()).collect())
    }

    /// Returns the numbers of queues that senders and receivers have.
    fn queues(ends: &[Exchange]) -> [usize; 2] {
        let outgoing = ends.iter().flat_map(|end| end.outgoing.iter().flatten());
        let incoming = ends.iter().flat_map(|end| end.incoming.iter().flatten());
        [
            outgoing.filter(|way| way.books().0).count(),
            incoming.filter(|way| way.has_queues()).count(),
        ]
    }

    #[test]
    fn of_many_workers_those_that_exchange_packets_have_queues() {
        let mut ends = ends(128);
        assert_eq!(queues(&ends), [0, 0]);
        let size = PoolSize { slots: 4, large: 1 };
        let mut pool = Pool::new(size).unwrap();
        let slot = pool.allocate().unwrap();
        pool.room_mut(slot)[..3].copy_from_slice(b"abc");
        pool.set_frame(slot, 3, VnetHeader::default());

        assert!(ends[127].sleep(), "nothing is waiting");
        ends[127].wake_up();
        for _ in 0..3 {
            assert!(ends[5].send(127, Errand::Arrived(0), slot, &pool));
            assert!(!ends[127].sleep(), "a packet is waiting");
            ends[127].wake_up();
            let mut received = 0;
            ends[127].receive(|_, _| received += 1);
            assert_eq!(received, 1);
            assert_eq!(queues(&ends), [1, 1]);
        }
        // The memory of one packet has come back each time.
        let way = ends[5].outgoing[127].as_mut().unwrap();
        let (_, lent, kept, spare) = way.books();
        assert!(lent >= 3 && kept == 0 && spare.is_empty());
        way.collect();
        assert_eq!(way.books(), (true, 0, lent, vec![lent]));
    }

    #[test]
    fn few_workers_have_all_queues_from_the_start() {
        assert_eq!(queues(&ends(3)), [6, 6]);
    }
}
