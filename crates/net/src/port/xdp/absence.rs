//! Handles the removal of an AF_XDP port's interface, and attaches the port to the new one. An
//! interface that is down when frames are sent counts as removed.
//!
//! The kernel unbinds the sockets of a removed interface permanently: a new interface with the same
//! name needs new sockets. No descriptor reports the removal, so the port checks ten times a
//! second while nothing arrives. The packet memory is registered again if no other port has
//! registered it.

use super::socket::{Connected, Outward, connect, wake_receive};
use super::{Lent, Part, XdpPort, open_trains};
use crate::namespace::Interface;
use crate::port::{Loss, Pool, Port as _, Promiscuity, Slot};
use crate::sys;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A place in which the receiving half of an interface leaves new rings for the sending half, with
/// the properties of the interface. It is not used on the packet path.
#[derive(Clone, Default)]
pub(super) struct Exchange {
    rings: Arc<Mutex<Option<(Outward, Interface)>>>,
    /// Whether the sending half has closed its rings and found no new ones.
    is_wanted: Arc<AtomicBool>,
}

impl Exchange {
    pub(super) fn take(&self) -> Option<(Outward, Interface)> {
        self.rings().take()
    }

    fn put(&self, rings: (Outward, Interface)) {
        let mut held = self.rings();
        *held = Some(rings);
        self.is_wanted.store(false, Ordering::Relaxed);
    }

    fn want(&self) {
        let held = self.rings();
        self.is_wanted.store(held.is_none(), Ordering::Relaxed);
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    fn rings(&self) -> MutexGuard<'_, Option<(Outward, Interface)>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl XdpPort {
    /// Gives up the rings of both halves if the sending half has given up its own.
    pub(super) fn follow_other_half(&mut self, pool: &mut Pool) {
        let is_wanted = matches!(&self.part, Part::Receives(exchange) if exchange.is_wanted());
        if is_wanted && self.inward.is_some() {
            self.lose_interface(pool);
        }
    }

    /// Checks, at most ten times a second, whether the interface was removed, or has returned.
    pub(super) fn look(&mut self, pool: &mut Pool) {
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_EVERY_NS;
        if let Some(inward) = &self.inward {
            if wake_receive(inward.socket.as_fd()) {
                return;
            }
            self.lose_interface(pool);
        }
        match &self.part {
            Part::Released => {}
            Part::Sends(exchange) => {
                if let Some((outward, link)) = exchange.take() {
                    self.descriptor = Arc::clone(&outward.socket);
                    self.outward = Some(outward);
                    self.capabilities.mtu = link.mtu;
                    self.reopen_trains(&link);
                }
            }
            Part::Whole | Part::Receives(_) => self.attach(pool),
        }
    }

    /// Takes back all slots from the kernel, and counts the frames that it has not sent as lost.
    pub(super) fn lose_interface(&mut self, pool: &mut Pool) {
        self.collect_sent(pool);
        self.counters = self.counters();
        self.close();
        self.ready = 0;
        for (number, lent) in self.lent.iter_mut().enumerate() {
            let slot = Slot::from_number(number as u32);
            match std::mem::replace(lent, Lent::No) {
                Lent::No => continue,
                Lent::Ready => {}
                Lent::Sending => {
                    self.counters.sent -= 1;
                    self.counters.sent_bytes -= pool.frame_len(slot) as u64;
                    self.counters.lose(Loss::Down, 1);
                }
            }
            pool.take_back(slot);
            pool.free(slot);
        }
        if let Part::Sends(exchange) = &self.part {
            exchange.want();
        }
        // An interface that has already returned is found at once.
        self.next_look_ns = 0;
    }

    /// Returns the receiving socket, which both halves hold while they are open.
    pub(super) fn receiver(&self) -> Option<Weak<OwnedFd>> {
        let inward = self.inward.as_ref().map(|inward| &inward.socket);
        let outward = self.outward.as_ref().map(|outward| &outward.receiver);
        inward.or(outward).map(Arc::downgrade)
    }

    /// Closes the sockets. The descriptor to wait on is replaced by one that never becomes ready.
    pub(super) fn close(&mut self) {
        (self.inward, self.outward) = (None, None);
        if let Ok(silent) = sys::event() {
            self.descriptor = Arc::new(silent);
        }
    }

    /// Opens the trains again: the interface is a new one and may have other offloads.
    fn reopen_trains(&mut self, link: &Interface) {
        self.trains = open_trains(
            &self.namespace,
            link,
            &self.counters,
            self.options,
            self.mode,
        );
    }

    fn attach(&mut self, pool: &mut Pool) {
        if self.links.is_none() {
            self.links = self.namespace.links().ok();
        }
        let Some(links) = &mut self.links else {
            return;
        };
        let Ok(link) = links.interface(&self.interface) else {
            return;
        };
        let queues = self.namespace.receive_queues(&self.interface);
        // While it is down, nothing can be sent.
        if !link.is_up || link.mtu > XdpPort::MOST_MTU || queues.is_ok_and(|queues| queues > 1) {
            return;
        }
        let (memory, options) = (&*pool, self.options);
        let connected = self
            .namespace
            .enter(|| connect(link.index, memory, options, 0));
        let Ok(Ok(Connected {
            inward,
            outward,
            mode,
        })) = connected
        else {
            return;
        };
        pool.set_registered(&inward.socket);
        self.descriptor = Arc::clone(&inward.socket);
        self.inward = Some(inward);
        self.mode = mode;
        self.capabilities.mtu = link.mtu;
        if let (Some(socket), promiscuity) = &mut self.promiscuous {
            *promiscuity = Promiscuity::ask(socket, link.index);
        }
        match &self.part {
            Part::Receives(exchange) => exchange.put((outward, link)),
            _ => {
                self.outward = Some(outward);
                self.reopen_trains(&link);
            }
        }
        self.refill(pool);
    }
}

const LOOK_EVERY_NS: u64 = 100_000_000;
