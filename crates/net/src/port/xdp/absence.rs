//! Handles the removal of an AF_XDP port's interface, and attaches the port to the new one. An
//! interface that is down when frames are sent counts as removed.
//!
//! The kernel unbinds the sockets of a removed interface permanently: a new interface with the same
//! name needs new sockets. No descriptor reports the removal, so the port checks ten times a
//! second while nothing arrives. The packet memory is registered again if no other port has
//! registered it.
//!
//! Closing old sockets and opening new ones takes long, so the [helper](crate::errand) does both.
//! The kernel owns the port's slots until the old sockets are closed.

use super::fit::check;
use super::socket::{Connected, Outward, Place, connect, statistics, wake_receive};
use super::{Lent, Part, XdpError, XdpOptions, XdpPort, open_trains, take_back_and_free};
use crate::errand::{Errand, NotDone, drop_elsewhere};
use crate::namespace::{Interface, Links, Namespace};
use crate::port::hold::Hold;
use crate::port::name_watch::Seen;
use crate::port::pool::SlotMemory;
use crate::port::trains::Trains;
use crate::port::{Loss, Pool, Port as _, Promiscuity, Slot, promiscuous};
use crate::sys;
use sluice_core::Span;
use socket2::Socket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// New rings for a sending half.
pub(super) struct Rings {
    outward: Outward,
    link: Interface,
    hold: Hold,
    trains: Option<Trains>,
}

/// What the helper does for a port whose interface is gone.
#[derive(Default)]
pub(super) struct Absence {
    links: Option<Links>,
    /// The old sockets are being closed.
    closing: Option<Errand<()>>,
    search: Option<Errand<Answer>>,
}

impl Absence {
    /// Returns the time within which the port must look again.
    pub(super) const fn looks_within(&self) -> Span {
        match self.closing.is_some() || self.search.is_some() {
            true => ANSWER_WITHIN,
            false => LOOK_EVERY,
        }
    }

    /// Waits until old sockets are closed, for a short time. Returns whether they are.
    pub(super) fn is_over(&mut self) -> bool {
        let closing = self.closing.take();
        closing.is_none_or(|closing| closing.wait(CLOSE_WITHIN) != Err(NotDone::Pending))
    }
}

/// The connection that the helper used, and what it found, or why it could not attach.
type Answer = (Option<Links>, Result<Found, Option<String>>);

/// What the helper needs to find an interface and to open sockets on it.
struct Search {
    namespace: Namespace,
    interface: String,
    /// The interface that the port has left.
    index: u32,
    place: Place,
    memory: SlotMemory,
    options: XdpOptions,
    promiscuous: Option<Socket>,
}

/// An interface on which sockets are open.
struct Found {
    link: Interface,
    hold: Hold,
    connected: Connected,
    promiscuity: Option<Promiscuity>,
    trains: Option<Trains>,
}

impl Search {
    /// Returns nothing, or the reason, if the interface is there and up.
    fn run(&self, links: &mut Links) -> Result<Found, Option<String>> {
        // It may exist, with another name.
        if let Some(socket) = &self.promiscuous {
            promiscuous::leave(socket, self.index);
        }
        let link = links.interface(&self.interface).map_err(|_| None)?;
        // While it is down, nothing can be sent.
        if !link.is_up {
            return Err(None);
        }
        self.attach(links, link)
            .map_err(|error| Some(error.to_string()))
    }

    fn attach(&self, links: &mut Links, link: Interface) -> Result<Found, XdpError> {
        let workers = self.place.programs.queues();
        check(&self.namespace, &self.interface, &link, workers)?;
        let hold = Hold::take_link(&self.namespace, &self.interface, &link, links)?;
        let refused = |(step, source)| XdpError::Kernel {
            step,
            interface: self.interface.clone(),
            namespace: self.namespace.name().to_owned(),
            source,
        };
        let connected = self
            .namespace
            .enter(|| connect(link.index, &self.place, &self.memory, self.options, 0))?
            .map_err(refused)?;
        connected.inward.open().map_err(refused)?;
        let socket = self.promiscuous.as_ref();
        let look = || links.interface(&self.interface);
        let promiscuity = socket.map(|socket| Promiscuity::ask(socket, link.index, look));
        // Its offloads may differ now.
        let trains = open_trains(&self.namespace, &link, self.options, connected.mode);
        Ok(Found {
            link,
            hold,
            connected,
            promiscuity,
            trains,
        })
    }
}

impl XdpPort {
    /// Leaves the interface if it has another name now, if a port of its new name has taken it, or if the
    /// other half has left it.
    pub(super) fn follow_name(&mut self, pool: &mut Pool) {
        if self.inward.is_none() && self.outward.is_none() {
            self.watch.forget();
            return;
        }
        let is_other = match self.watch.look(&self.namespace, &self.interface) {
            None => false,
            Some(Seen::Interface(link)) if link.index == self.index => {
                self.capabilities.mtu = link.mtu;
                false
            }
            Some(_) => true,
        };
        if is_other || self.hold.is_lost() {
            self.lose_interface(pool);
        }
    }

    /// Gives up the rings of both halves if the sending half has given up its own.
    pub(super) fn follow_other_half(&mut self, pool: &mut Pool) {
        let is_wanted = matches!(&self.part, Part::Receives(exchange) if exchange.is_wanted());
        if is_wanted && self.inward.is_some() {
            self.lose_interface(pool);
        }
    }

    /// Checks, at most ten times a second, whether the interface was removed, or has returned.
    pub(super) fn look(&mut self, pool: &mut Pool) {
        if !self.is_closed(pool) {
            return;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < self.next_look_ns && self.absence.search.is_none() {
            return;
        }
        self.next_look_ns = now_ns + LOOK_EVERY.as_ns();
        if let Some(inward) = &self.inward {
            if wake_receive(inward.socket.as_fd()) {
                return;
            }
            self.lose_interface(pool);
        }
        match &self.part {
            Part::Released => {}
            Part::Sends(exchange) => {
                if let Some(rings) = exchange.take() {
                    self.descriptor = Arc::clone(&rings.outward.socket);
                    self.send_through(rings);
                }
            }
            Part::Whole | Part::Receives(_) => self.search(pool),
        }
    }

    /// Takes the slots back once the helper has closed the old sockets. Returns whether it has.
    fn is_closed(&mut self, pool: &mut Pool) -> bool {
        let Some(closing) = self.absence.closing.take() else {
            return true;
        };
        if closing.poll() == Err(NotDone::Pending) {
            self.absence.closing = Some(closing);
            return false;
        }
        for (number, lent) in self.lent.iter_mut().enumerate() {
            if std::mem::replace(lent, Lent::No) != Lent::No {
                take_back_and_free(pool, number);
            }
        }
        true
    }

    /// Lets the helper close the sockets, and counts the frames that were not sent as lost.
    pub(super) fn lose_interface(&mut self, pool: &mut Pool) {
        self.hold.give_up();
        self.collect_sent(pool);
        self.counters = self.counters();
        let rings = self.take_rings();
        self.absence.closing = Some(Errand::send(move || drop(rings)));
        self.ready = 0;
        for (number, lent) in self.lent.iter_mut().enumerate() {
            if *lent == Lent::Sending {
                let slot = Slot::from_number(number as u32);
                self.counters.sent -= 1;
                self.counters.sent_bytes -= pool.frame_len(slot) as u64;
                self.counters.lose(Loss::Down, 1);
                *lent = Lent::Ready;
            }
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

    /// Takes the rings, with which the sockets are closed. The descriptor to wait on is replaced by
    /// one that never becomes ready.
    pub(super) fn take_rings(&mut self) -> impl Send + 'static + use<> {
        let mut last = None;
        if let Ok(silent) = sys::event() {
            last = Some(std::mem::replace(&mut self.descriptor, Arc::new(silent)));
        }
        (self.inward.take(), self.outward.take(), last)
    }

    /// Sends through new rings.
    fn send_through(&mut self, rings: Rings) {
        self.outward = Some(rings.outward);
        self.hold = rings.hold;
        self.index = rings.link.index;
        self.capabilities.mtu = rings.link.mtu;
        drop_elsewhere(std::mem::replace(&mut self.trains, rings.trains));
        if let Some(trains) = &mut self.trains {
            trains.begin(&self.counters);
        }
    }

    /// Lets the helper look for the interface, or uses its answer.
    fn search(&mut self, pool: &mut Pool) {
        if let Some(search) = self.absence.search.take() {
            match search.poll() {
                Err(NotDone::Pending) => self.absence.search = Some(search),
                Err(NotDone::Failed) => {}
                Ok((links, found)) => {
                    self.absence.links = links;
                    let reason = found.as_ref().err().cloned().flatten();
                    self.refusals.note(reason);
                    if let Ok(found) = found {
                        self.attach(found, pool);
                    }
                }
            }
            return;
        }
        let Ok(namespace) = self.namespace.try_clone() else {
            return;
        };
        let socket = self.promiscuous.0.as_ref();
        let search = Search {
            namespace,
            interface: self.interface.clone(),
            index: self.index,
            place: self.place.clone(),
            memory: pool.slot_memory(),
            options: self.options,
            promiscuous: socket.and_then(|socket| socket.try_clone().ok()),
        };
        let links = self.absence.links.take();
        self.absence.search = Some(Errand::send(move || {
            let mut links = links.or_else(|| search.namespace.links().ok());
            let found = links.as_mut().map(|links| search.run(links));
            (links, found.unwrap_or(Err(None)))
        }));
    }

    fn attach(&mut self, found: Found, pool: &mut Pool) {
        let Connected {
            inward,
            outward,
            mode,
        } = found.connected;
        self.descriptor = Arc::clone(&inward.socket);
        self.inward = Some(inward);
        self.mode = mode;
        self.hold = found.hold;
        self.index = found.link.index;
        self.capabilities.mtu = found.link.mtu;
        if let Some(promiscuity) = found.promiscuity {
            self.promiscuous.1 = promiscuity;
        }
        let rings = Rings {
            outward,
            link: found.link,
            hold: self.hold.clone(),
            trains: found.trains,
        };
        match &self.part {
            Part::Receives(exchange) => exchange.put(rings),
            _ => self.send_through(rings),
        }
        self.refill(pool);
        // The helper has let frames in, but the slots are the loop's. So the first frames found none,
        // however many are free.
        let inward = self.inward.as_ref();
        let seen = inward.and_then(|inward| statistics(&inward.socket));
        self.unready = seen.map_or(0, |seen| seen.rx_fill_ring_empty_descs);
    }
}

const LOOK_EVERY: Span = Span::from_ms(100);
/// The interval at which the port checks whether the helper has an answer.
const ANSWER_WITHIN: Span = Span::from_ms(5);
/// Closing sockets takes some milliseconds, or longer while interfaces change.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errand::{self, hold_helper};
    use crate::port::PoolSize;
    use crate::port::live::{self, frame, receive_one, send_one};
    use std::sync::PoisonError;
    use std::sync::mpsc::Sender;

    fn pool() -> Pool {
        let size = PoolSize {
            slots: 256,
            large: 1,
        };
        Pool::new(size).unwrap()
    }

    /// Returns a port whose interface was removed and made again, and what holds the helper, so that the port
    /// has not found it yet.
    fn lost(namespace: &Namespace, pool: &mut Pool) -> (Sender<()>, XdpPort) {
        let options = XdpOptions {
            ready: 64,
            ..XdpOptions::default()
        };
        let mut left = XdpPort::open(namespace, "left", pool, options).unwrap();
        let held = hold_helper();
        namespace.links().unwrap().remove("left").unwrap();
        let mut got = Vec::new();
        live::within_10_s(|| {
            left.receive(pool, &mut got);
            left.inward.is_none()
        });
        live::connect(namespace);
        (held, left)
    }

    /// As for packet ports; the slots are the kernel's until the helper has closed the sockets.
    #[test]
    fn no_call_of_a_port_waits_for_sockets_and_programs() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let _alone = errand::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pool = pool();
        let (held, mut left) = lost(&namespace, &mut pool);
        // As if the interface that was removed had refused it.
        left.promiscuous.1 = Promiscuity::Refused("a test".to_owned());
        let mut none = Vec::new();
        let mut right = live::raw_socket(&namespace, "right");
        for _ in 0..3 {
            assert_eq!(left.receive(&mut pool, &mut none), 0);
            send_one(&mut left, &mut pool, &frame(1));
            assert_eq!(left.looks_within(), Some(ANSWER_WITHIN));
        }
        assert_eq!(left.counters().lost(Loss::Down), 3);
        assert_eq!(pool.available(), 256 - 64, "the sockets may still be open");
        drop(held);
        live::within_10_s(|| {
            left.receive(&mut pool, &mut none);
            left.inward.is_some()
        });
        assert_eq!(left.promiscuity(), Promiscuity::On, "of the new interface");
        send_one(&mut left, &mut pool, &frame(2));
        assert_eq!(receive_one(&mut right), frame(2));
        left.release(&mut pool);
        assert_eq!(pool.available(), 256);
    }

    #[test]
    fn frames_that_come_before_there_are_slots_do_not_count_as_a_full_pool() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let _alone = errand::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pool = pool();
        let (held, mut left) = lost(&namespace, &mut pool);
        let mut got = Vec::new();
        let right = live::raw_socket(&namespace, "right");
        drop(held);
        live::within_10_s(|| {
            left.receive(&mut pool, &mut got);
            left.absence.search.is_some()
        });
        // Work is done in its order, so the sockets are open afterwards.
        assert_eq!(Errand::send(|| ()).wait(Duration::from_secs(10)), Ok(()));
        for number in 0..3 {
            right.send(&frame(number)).unwrap();
        }
        live::within_10_s(|| {
            left.receive(&mut pool, &mut got);
            got.len() as u64 + left.counters().lost_total() == 3
        });
        // The kernel may have been slow with some of them, which then found slots.
        let counters = left.counters();
        assert_eq!(counters.lost(Loss::NoSlot), 0, "{counters:?}");
        got.into_iter().for_each(|slot| pool.free(slot));
        left.release(&mut pool);
        assert_eq!(pool.available(), 256);
    }
}
