//! The protocol between the senders of orders and their loop: a bounded queue, a bell that makes a descriptor
//! readable, and a claim on each order. `models/` runs it in every order that the memory model allows.

use super::bell::{Claim, Flag};
use super::sync::{Arc, Receiver, SyncSender, TrySendError, sync_channel};

/// One of two connected descriptors.
pub(super) trait Wire {
    /// Makes the other descriptor readable.
    fn put(&self);

    /// Reads everything, so that this descriptor is no longer readable.
    fn drain(&self);
}

/// The bell of a loop.
#[derive(Debug)]
pub(super) struct Ring<W> {
    wire: W,
    flag: Flag,
}

impl<W: Wire> Ring<W> {
    pub(super) fn ring(&self) {
        self.flag.ring(|| self.wire.put());
    }

    /// Resets the flag alone, as if the thread that rings had not set it yet.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.flag.hear(false, || {});
    }
}

/// An order in the queue.
struct Put<O> {
    order: O,
    claim: Arc<Claim>,
}

/// The end of the senders.
pub(super) struct Putting<O, W> {
    orders: SyncSender<Put<O>>,
    ring: Arc<Ring<W>>,
}

/// The loop's end.
pub(super) struct Taking<O, W> {
    orders: Receiver<Put<O>>,
    wire: W,
    ring: Arc<Ring<W>>,
    /// Whether the loop has seen that the descriptor is readable.
    has_rung: bool,
}

/// Creates a mailbox for as many orders. What is put into `ring` makes `heard` readable.
pub(super) fn mailbox<O, W: Wire>(
    waiting: usize,
    ring: W,
    heard: W,
) -> (Taking<O, W>, Putting<O, W>) {
    let (sender, receiver) = sync_channel(waiting);
    let ring = Arc::new(Ring {
        wire: ring,
        flag: Flag::new(),
    });
    let taking = Taking {
        orders: receiver,
        wire: heard,
        ring: Arc::clone(&ring),
        has_rung: false,
    };
    let putting = Putting {
        orders: sender,
        ring,
    };
    (taking, putting)
}

impl<O, W: Wire> Putting<O, W> {
    /// Puts an order into the queue, and rings.
    pub(super) fn put(&self, order: O, claim: &Arc<Claim>) -> Result<(), TrySendError<()>> {
        let put = Put {
            order,
            claim: Arc::clone(claim),
        };
        self.orders.try_send(put).map_err(|error| match error {
            TrySendError::Full(_) => TrySendError::Full(()),
            TrySendError::Disconnected(_) => TrySendError::Disconnected(()),
        })?;
        self.ring.ring();
        Ok(())
    }

    /// Returns the bell.
    pub(super) const fn ring(&self) -> &Arc<Ring<W>> {
        &self.ring
    }
}

impl<O, W: Wire> Taking<O, W> {
    /// Returns the descriptor that is readable while the bell rings.
    pub(super) const fn wire(&self) -> &W {
        &self.wire
    }

    /// Notes whether the loop has seen that the descriptor is readable.
    pub(super) const fn has_rung(&mut self, has_rung: bool) {
        self.has_rung |= has_rung;
    }

    /// Resets the bell.
    pub(super) fn quiet(&mut self) {
        let has_rung = std::mem::take(&mut self.has_rung);
        self.ring.flag.hear(has_rung, || self.wire.drain());
    }

    /// Resets the bell, and returns the next order that is not withdrawn.
    pub(super) fn take(&mut self) -> Option<O> {
        self.quiet();
        loop {
            let put = self.orders.try_recv().ok()?;
            if put.claim.begin() {
                return Some(put.order);
            }
        }
    }

    #[cfg(test)]
    pub(super) const fn bell(&self) -> &Arc<Ring<W>> {
        &self.ring
    }
}

/// What has become of an order whose sender does not wait any longer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GivenUp<A> {
    /// No loop has begun it, and none will.
    Withdrawn,
    /// A loop has begun it, and has not answered.
    Begun,
    /// The answer has come since.
    Answered(A),
}

/// Withdraws an order, unless a loop has begun it.
pub(super) fn give_up<A>(claim: &Claim, answered: &Receiver<A>) -> GivenUp<A> {
    if claim.put(Claim::WITHDRAWN) {
        return GivenUp::Withdrawn;
    }
    answered
        .try_recv()
        .map_or(GivenUp::Begun, GivenUp::Answered)
}
