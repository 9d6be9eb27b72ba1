//! The way of packets from one worker to another, and of the memory of their copies back. `models/` runs it in
//! every order that the memory model allows.

use super::sync::{
    Arc, Mutex, OnceLock, PoisonError, Receiver, SyncSender, TrySendError, sync_channel,
};

/// The memory of a copy.
pub(super) trait Memory: Default {
    /// Returns the bytes that are allocated.
    fn capacity(&self) -> usize;
}

/// A packet: what it needs from its receiver, and its frame.
struct Parcel<E, M> {
    errand: E,
    frame: M,
}

/// The sender's end.
pub(super) struct Outgoing<E, M> {
    offer: Arc<Offer<E, M>>,
    /// Packets that the queue has room for.
    room: usize,
    /// Nothing is sent while this number of bytes is on its way, and no more than it and a frame is kept.
    most_bytes: usize,
    queues: Option<Sending<E, M>>,
    spare: Vec<M>,
    /// Bytes of memory on their way.
    lent: usize,
    /// Bytes of memory in `spare`.
    kept: usize,
    /// Whether the receiver must be woken up.
    has_news: bool,
}

/// The sender's ends of the queues.
struct Sending<E, M> {
    parcels: SyncSender<Parcel<E, M>>,
    /// Memory that comes back.
    returned: Receiver<M>,
}

/// The receiver's end.
pub(super) struct Incoming<E, M> {
    offer: Arc<Offer<E, M>>,
    queues: Option<Receiving<E, M>>,
    /// The next parcel, if it has been looked at.
    next: Option<Parcel<E, M>>,
}

/// The receiver's ends of the queues.
struct Receiving<E, M> {
    parcels: Receiver<Parcel<E, M>>,
    returns: SyncSender<M>,
}

/// The receiver's ends, on their way to it once the sender has created the queues. Only the receiver locks
/// it.
type Offer<E, M> = OnceLock<Mutex<Option<Receiving<E, M>>>>;

/// Creates a way for `room` packets and `most_bytes` of memory. The first packet creates its queues.
pub(super) fn way<E, M: Memory>(
    room: usize,
    most_bytes: usize,
) -> (Outgoing<E, M>, Incoming<E, M>) {
    let offer = Arc::new(Offer::new());
    let outgoing = Outgoing {
        offer: Arc::clone(&offer),
        room,
        most_bytes,
        queues: None,
        spare: Vec::new(),
        lent: 0,
        kept: 0,
        has_news: false,
    };
    let incoming = Incoming {
        offer,
        queues: None,
        next: None,
    };
    (outgoing, incoming)
}

impl<E, M: Memory> Outgoing<E, M> {
    /// Sends a packet, whose frame `fill` copies. Returns false if there is no room.
    pub(super) fn send(&mut self, errand: E, fill: impl FnOnce(&mut M)) -> bool {
        self.collect();
        if self.lent >= self.most_bytes {
            return false;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        self.kept -= frame.capacity();
        fill(&mut frame);
        let size = frame.capacity();
        match self.queues().parcels.try_send(Parcel { errand, frame }) {
            Ok(()) => {
                self.lent += size;
                self.has_news = true;
                true
            }
            Err(error) => {
                let (TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) = error;
                self.keep(parcel.frame);
                false
            }
        }
    }

    /// Returns whether something was sent since the last call.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Creates the queues, unless they are there.
    pub(super) fn create(&mut self) {
        self.queues();
    }

    /// Takes back the memory that has been returned.
    pub(super) fn collect(&mut self) {
        while let Some(frame) = self.returned() {
            self.lent -= frame.capacity();
            self.keep(frame);
        }
    }

    /// Returns the queues to the receiver. The first call creates them.
    fn queues(&mut self) -> &Sending<E, M> {
        self.queues.get_or_insert_with(|| {
            let (parcels, arrive) = sync_channel(self.room);
            // When the sender has looked for memory that comes back, there is none, and at most `room + 1`
            // packets are on their way: the receiver has one of them. It may make room for one more.
            let (returns, returned) = sync_channel(self.room + 2);
            let receiving = Receiving {
                parcels: arrive,
                returns,
            };
            let first = self.offer.set(Mutex::new(Some(receiving)));
            debug_assert!(first.is_ok(), "queues are created once");
            Sending { parcels, returned }
        })
    }

    /// Returns memory that has come back.
    fn returned(&self) -> Option<M> {
        self.queues.as_ref()?.returned.try_recv().ok()
    }

    /// Keeps memory for the next packet, up to a limit.
    fn keep(&mut self, frame: M) {
        if self.kept < self.most_bytes {
            self.kept += frame.capacity();
            self.spare.push(frame);
        }
    }

    /// Returns whether there are queues, the bytes on their way, those that are kept, and the bytes of each frame
    /// that is kept.
    #[cfg(test)]
    pub(super) fn books(&self) -> (bool, usize, usize, Vec<usize>) {
        let spare = self.spare.iter().map(Memory::capacity).collect();
        (self.queues.is_some(), self.lent, self.kept, spare)
    }
}

impl<E, M: Memory> Incoming<E, M> {
    /// Returns whether a packet is waiting.
    pub(super) fn has_next(&mut self) -> bool {
        if self.next.is_none() {
            let queues = self.queues();
            self.next = queues.and_then(|queues| queues.parcels.try_recv().ok());
        }
        self.next.is_some()
    }

    /// Receives a packet, if one is waiting, and returns its memory. `put` gets the packet and its frame.
    pub(super) fn receive(&mut self, put: impl FnOnce(E, &M)) -> bool {
        if !self.has_next() {
            return false;
        }
        let Some(Parcel { errand, frame }) = self.next.take() else {
            return false;
        };
        put(errand, &frame);
        // Without a sender, it is freed.
        let returned = self.queues().map(|queues| queues.returns.try_send(frame));
        debug_assert!(
            !matches!(returned, Some(Err(TrySendError::Full(_)))),
            "there is room for everything that was sent"
        );
        true
    }

    /// Takes the queues, if they are there.
    pub(super) fn look(&mut self) {
        self.queues();
    }

    /// Returns the queues from the sender, if it has created them.
    fn queues(&mut self) -> Option<&Receiving<E, M>> {
        if self.queues.is_none() {
            let offered = self.offer.get()?;
            let mut offered = offered.lock().unwrap_or_else(PoisonError::into_inner);
            self.queues = offered.take();
        }
        self.queues.as_ref()
    }

    #[cfg(test)]
    pub(super) const fn has_queues(&self) -> bool {
        self.queues.is_some()
    }
}
