//! The exchange of packets between workers: loops on several cores that share the pipes of one
//! configuration.
//!
//! A packet whose pipe belongs to another worker is copied into a bounded queue with one sender and
//! one receiver, and from there into the receiver's packet memory. Neither side ever waits: a packet
//! that finds the queue full is lost and counted ([`LostFrame::HandOver`](super::LostFrame)). The
//! memory of the copies goes back to the sender, so that none is allocated in steady state.
//!
//! A sender rings a receiver's bell once per turn, and only if the receiver sleeps.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use sluice_ipfw::Handed;
use sluice_net::port::{Carried, Pool, Slot};

use super::PortNumber;
use super::doorbell::Doorbell;

/// Ends the sleep of a worker.
pub type WakeUp = Box<dyn Fn() + Send + Sync>;

/// One worker's end of the exchange.
pub struct Exchange {
    own: usize,
    /// By worker; `None` for this one.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    doorbells: Arc<[(Doorbell, WakeUp)]>,
    /// Largest number of bytes on their way to one worker.
    most_bytes: usize,
}

/// What a packet that is sent needs from its receiver.
pub(super) enum Errand {
    /// A pipe, or the states of its flow.
    Handed(Handed),
    /// To be admitted as if it had arrived there, at this port.
    Arrived(PortNumber),
}

/// A packet with its frame.
struct Parcel {
    errand: Errand,
    frame: Carried,
}

struct Outgoing {
    parcels: SyncSender<Parcel>,
    /// Memory that comes back.
    returned: Receiver<Carried>,
    spare: Vec<Carried>,
    /// Bytes of memory on their way.
    lent: usize,
    /// Bytes of memory in `spare`.
    kept: usize,
    /// Whether the receiver must be woken up.
    has_news: bool,
}

struct Incoming {
    parcels: Receiver<Parcel>,
    returns: SyncSender<Carried>,
    /// The next parcel, if it has been looked at.
    next: Option<Parcel>,
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
            most_bytes,
        })
        .collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (parcels, arrive) = sync_channel(room);
            // When the sender has looked for memory that comes back, there is none, and at most `room + 1`
            // packets are on their way: the receiver has one of them. It may make room for one more.
            let (returns, returned) = sync_channel(room + 2);
            ends[from].outgoing[to] = Some(Outgoing {
                parcels,
                returned,
                spare: Vec::new(),
                lent: 0,
                kept: 0,
                has_news: false,
            });
            ends[to].incoming[from] = Some(Incoming {
                parcels: arrive,
                returns,
                next: None,
            });
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
        while let Ok(frame) = way.returned.try_recv() {
            way.lent -= frame.capacity();
            way.keep(frame, self.most_bytes);
        }
        if way.lent >= self.most_bytes {
            return false;
        }
        let mut frame = way.spare.pop().unwrap_or_default();
        way.kept -= frame.capacity();
        pool.carry(slot, &mut frame);
        let size = frame.capacity();
        match way.parcels.try_send(Parcel { errand, frame }) {
            Ok(()) => {
                way.lent += size;
                way.has_news = true;
                true
            }
            Err(error) => {
                let (TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) = error;
                way.keep(parcel.frame, self.most_bytes);
                false
            }
        }
    }

    /// Wakes up the workers to which something was sent, if they sleep.
    pub(super) fn ring(&mut self) {
        let mut is_ordered = false;
        for (to, way) in self.outgoing.iter_mut().enumerate() {
            let Some(way) = way else { continue };
            if !std::mem::take(&mut way.has_news) {
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
                if !way.has_next() {
                    break;
                }
                let Some(Parcel { errand, frame }) = way.next.take() else {
                    break;
                };
                put(errand, &frame);
                // Without a sender, it is freed.
                let returned = way.returns.try_send(frame);
                debug_assert!(
                    !matches!(returned, Err(TrySendError::Full(_))),
                    "there is room for everything that was sent"
                );
            }
        }
    }
}

impl Incoming {
    fn has_next(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.parcels.try_recv().ok();
        }
        self.next.is_some()
    }
}

impl Outgoing {
    /// Keeps memory for the next packet, up to a limit.
    fn keep(&mut self, frame: Carried, most_bytes: usize) {
        if self.kept < most_bytes {
            self.kept += frame.capacity();
            self.spare.push(frame);
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
