//! Frames whose packets wait in the kernel for a verdict.

use super::{NOBODY, Pool, Slot};

/// A port that gives verdicts on the packets in slots, also on those that are freed unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Watcher(pub(super) u8);

/// A packet that waits in the kernel for a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::port) struct Ticket {
    /// The number that the kernel gave to the packet.
    pub(in crate::port) id: u32,
    /// The kernel's queue: its place in the group that the port belongs to.
    pub(in crate::port) queue: u16,
    /// The bytes that a CE mark changes, as they arrived.
    pub(in crate::port) marks: [u8; 4],
    /// Whether the slot has the whole packet.
    pub(in crate::port) is_whole: bool,
}

/// The tickets of frames.
#[derive(Default)]
pub(super) struct Tickets {
    /// By slot; empty in a pool without such frames.
    of_slots: Vec<Ticket>,
    /// Those of slots that were freed, by watcher.
    abandoned: Vec<Vec<Ticket>>,
    watchers: u8,
}

impl Tickets {
    /// Makes room for what a watcher abandons.
    fn know(&mut self, watcher: Watcher) {
        let known = self.abandoned.len();
        let needed = usize::from(watcher.0) + 1;
        self.abandoned.resize_with(known.max(needed), Vec::new);
    }

    /// Records that a slot was freed.
    pub(super) fn abandon(&mut self, slot: Slot, watcher: u8) {
        self.abandoned[usize::from(watcher)].push(self.of_slots[slot.index()]);
    }
}

impl Pool {
    /// Creates a watcher.
    pub(in crate::port) fn watcher(&mut self) -> Watcher {
        let watcher = Watcher(self.tickets.watchers);
        assert!(watcher.0 != NOBODY, "a pool has fewer watchers than that");
        self.tickets.watchers += 1;
        self.tickets.know(watcher);
        watcher
    }

    /// Declares that the packet in a slot waits in the kernel. [`Pool::next_abandoned`] reports it
    /// when the slot is freed.
    pub(in crate::port) fn set_ticket(&mut self, slot: Slot, watcher: Watcher, ticket: Ticket) {
        let tickets = &mut self.tickets;
        if tickets.of_slots.is_empty() {
            tickets.of_slots = vec![Ticket::default(); self.frames.len()];
        }
        tickets.of_slots[slot.index()] = ticket;
        self.frames[slot.index()].watcher = watcher.0;
    }

    /// Returns the packet in the kernel that waits for a verdict of `watcher` on the slot, if there is
    /// one.
    pub(in crate::port) fn ticket(&self, slot: Slot, watcher: Watcher) -> Option<Ticket> {
        let is_watched = self.frames[slot.index()].watcher == watcher.0;
        is_watched.then(|| self.tickets.of_slots[slot.index()])
    }

    /// Frees a slot whose packet has its verdict, or waits for that of another pool's port
    /// ([`Pool::carry`]).
    pub fn free_settled(&mut self, slot: Slot) {
        self.frames[slot.index()].watcher = NOBODY;
        self.free(slot);
    }

    /// Returns a packet whose slot was freed while `watcher` watched it; each is returned once.
    pub(in crate::port) fn next_abandoned(&mut self, watcher: Watcher) -> Option<Ticket> {
        self.tickets.abandoned[usize::from(watcher.0)].pop()
    }

    /// Returns whether packets in the kernel wait for the verdict on a slot that was freed, which their
    /// port gives when it is called next.
    pub fn has_abandoned(&self) -> bool {
        let mut abandoned = self.tickets.abandoned.iter();
        abandoned.any(|tickets| !tickets.is_empty())
    }

    /// Returns the ticket of a slot, for another pool.
    pub(super) fn ticket_to_carry(&self, slot: Slot) -> Option<(Watcher, Ticket)> {
        let watcher = self.frames[slot.index()].watcher;
        (watcher != NOBODY).then(|| (Watcher(watcher), self.tickets.of_slots[slot.index()]))
    }

    /// Accepts the ticket of another pool's slot, whose frame found a slot here or did not.
    pub(super) fn accept_ticket(
        &mut self,
        slot: Option<Slot>,
        (watcher, ticket): (Watcher, Ticket),
    ) {
        // Workers have the same ports. That of this pool may not have been called yet.
        self.tickets.know(watcher);
        match slot {
            Some(slot) => self.set_ticket(slot, watcher, ticket),
            None => self.tickets.abandoned[usize::from(watcher.0)].push(ticket),
        }
    }
}
