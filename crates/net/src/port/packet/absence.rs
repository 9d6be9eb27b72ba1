//! The search for an interface that is down or gone.
//!
//! The kernel detaches all packet sockets from an interface that is removed, and a socket without an
//! interface cannot send (`packet_notifier` and `packet_snd` in Linux's net/packet/af_packet.c). The
//! interface may come back under the same name, with another index. Asking for it and attaching to it
//! may take long, so the [helper](crate::errand) does both.

use super::super::trains::Trains;
use super::super::{Pool, Promiscuity};
use super::group::Member;
use super::{LOOK_EVERY, PacketPort, bind, is_bound, protocol};
use crate::errand::{Errand, NotDone, drop_elsewhere};
use crate::namespace::{Interface, Links, Namespace};
use crate::sys;
use sluice_core::Span;
use socket2::Socket;

/// The state of the search for an interface that is down or gone.
#[derive(Default)]
pub(super) struct Absence {
    next_look_ns: u64,
    links: Option<Links>,
    /// Errors of the interface so far: an answer is old if there were more after the question.
    pub(super) errors: u64,
    /// The helper's search, and the number of errors when it began.
    search: Option<(Errand<Answer>, u64)>,
}

impl Absence {
    /// Returns the time within which the port must look again.
    pub(super) const fn looks_within(&self) -> Span {
        match self.search {
            Some(_) => ANSWER_WITHIN,
            None => LOOK_EVERY,
        }
    }
}

/// The connection that the helper used, and what it found.
type Answer = (Option<Links>, Option<Found>);

/// What the helper needs to find an interface and to attach the sockets to it.
struct Search {
    namespace: Namespace,
    socket: Socket,
    segmenting: Option<Socket>,
    interface: String,
    index: u32,
    protocol: libc::c_int,
    sends_trains: bool,
    is_promiscuous: bool,
    member: Option<Member>,
}

/// An interface that the sockets are attached to.
struct Found {
    link: Interface,
    /// `None` if the sockets were attached before.
    promiscuity: Option<Promiscuity>,
    /// `Some` if the interface is up and trains pay off.
    trains: Option<Trains>,
    /// `Some` if the port needs new sockets.
    anew: Option<Box<PacketPort>>,
}

impl Search {
    /// Looks for the interface under its name; its index may be another one.
    fn run(&self, links: &mut Links) -> Option<Found> {
        let link = links.interface(&self.interface).ok()?;
        let mut promiscuity = None;
        // An interface that was moved away and back may keep its index, but the sockets were detached
        // from it.
        let is_there = |socket: &Socket| is_bound(socket, link.index);
        let is_attached = link.index == self.index
            && is_there(&self.socket)
            && self.segmenting.as_ref().is_none_or(is_there);
        if let Some(member) = self.member.as_ref().filter(|_| !is_attached) {
            let anew = member.reopen(&self.namespace, &link)?;
            return Some(Found {
                link,
                promiscuity,
                trains: None,
                anew: Some(Box::new(anew)),
            });
        }
        if !is_attached {
            if let Some(segmenting) = &self.segmenting {
                bind(segmenting, link.index, protocol(false)).ok()?;
            }
            bind(&self.socket, link.index, self.protocol).ok()?;
            let look = || links.interface(&self.interface);
            let ask = || Promiscuity::ask(&self.socket, link.index, look);
            promiscuity = self.is_promiscuous.then(ask);
        }
        let trains = (self.sends_trains && link.is_up)
            .then(|| Trains::open(&self.namespace, &link))
            .flatten();
        Some(Found {
            link,
            promiscuity,
            trains,
            anew: None,
        })
    }
}

impl PacketPort {
    /// Lets the helper check, ten times a second, whether an interface that was lost is back, or
    /// uses its answer.
    pub(super) fn look_for_it(&mut self, pool: &mut Pool) {
        let Some(absence) = &mut self.absence else {
            return;
        };
        if let Some((answer, errors)) = absence.search.take() {
            match answer.poll() {
                Err(NotDone::Pending) => absence.search = Some((answer, errors)),
                Err(NotDone::Failed) => {}
                Ok((links, found)) => {
                    absence.links = links;
                    let is_current = absence.errors == errors;
                    if let Some(found) = found {
                        self.attach(found, is_current, pool);
                    }
                }
            }
            return;
        }
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns < absence.next_look_ns {
            return;
        }
        absence.next_look_ns = now_ns + LOOK_EVERY.as_ns();
        let (Ok(namespace), Ok(socket), Ok(segmenting)) = (
            self.namespace.try_clone(),
            self.socket.try_clone(),
            self.segmenting.as_ref().map(Socket::try_clone).transpose(),
        ) else {
            return;
        };
        let search = Search {
            namespace,
            socket,
            segmenting,
            interface: self.interface.clone(),
            index: self.index,
            protocol: self.protocol,
            sends_trains: self.sends_trains,
            is_promiscuous: self.promiscuity != Promiscuity::NotAsked,
            member: self.member.clone(),
        };
        let links = absence.links.take();
        let answer = Errand::send(move || {
            let mut links = links.or_else(|| search.namespace.links().ok());
            let found = links.as_mut().and_then(|links| search.run(links));
            (links, found)
        });
        absence.search = Some((answer, absence.errors));
    }

    /// Uses an interface to which the helper has attached the sockets. `is_current` is false if the
    /// interface was lost again meanwhile.
    fn attach(&mut self, found: Found, is_current: bool, pool: &mut Pool) {
        if let Some(anew) = found.anew {
            self.continue_with(*anew, pool);
            if is_current {
                self.absence = None;
            }
            return;
        }
        self.index = found.link.index;
        self.capabilities.mtu = found.link.mtu;
        if let Some(promiscuity) = found.promiscuity {
            self.promiscuity = promiscuity;
        }
        if !found.link.is_up || !is_current {
            return;
        }
        self.absence = None;
        // Its offloads may differ now, and no frame waits in a queue of the interface that was lost.
        self.is_segmenting = false;
        let old = std::mem::replace(&mut self.trains, found.trains);
        drop_elsewhere(old);
        if let Some(trains) = &mut self.trains {
            trains.begin(&self.counters);
        }
    }
}

/// The interval at which the port checks whether the helper has an answer.
const ANSWER_WITHIN: Span = Span::from_ms(5);

#[cfg(test)]
mod tests {
    use super::super::PacketOptions;
    use super::*;
    use crate::errand::{self, hold_helper};
    use crate::port::live::{self, frame, receive_one, send_one};
    use crate::port::{Loss, PoolSize, Port as _};
    use std::sync::PoisonError;

    /// The helper stands for the kernel: whatever waits for it would wait here without end.
    #[test]
    fn no_call_of_a_port_waits_for_the_kernels_configuration() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let _alone = errand::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let size = PoolSize {
            slots: 64,
            large: 64,
        };
        let mut pool = Pool::new(size).unwrap();
        let open = || PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
        let mut left = open();
        assert!(
            left.trains.is_some(),
            "it asks for the interface's counters"
        );
        let mut right = live::raw_socket(&namespace, "right");
        let held = hold_helper();
        // The check of the interface for trains is due, and is not answered.
        std::thread::sleep(std::time::Duration::from_millis(110));
        left.counters();
        send_one(&mut left, &mut pool, &frame(1));
        assert_eq!(receive_one(&mut right), frame(1));
        // The interface is removed, and made again: the port asks, and gets no answer.
        namespace.links().unwrap().remove("left").unwrap();
        send_one(&mut left, &mut pool, &frame(2));
        assert_eq!(left.counters().lost(Loss::Down), 1);
        live::connect(&namespace);
        right = live::raw_socket(&namespace, "right");
        for _ in 0..3 {
            assert_eq!(left.receive(&mut pool, &mut Vec::new()), 0);
            assert_eq!(left.looks_within(), Some(ANSWER_WITHIN));
        }
        drop(held);
        // With the answer it goes on.
        live::within_10_s(|| {
            left.receive(&mut pool, &mut Vec::new());
            left.absence.is_none()
        });
        assert_eq!(left.promiscuity(), Promiscuity::On);
        send_one(&mut left, &mut pool, &frame(3));
        assert_eq!(receive_one(&mut right), frame(3));
        left.release(&mut pool);
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn a_port_whose_interface_returns_without_the_mode_says_so() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let size = PoolSize {
            slots: 16,
            large: 16,
        };
        let mut pool = Pool::new(size).unwrap();
        let mut left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
        assert_eq!(left.promiscuity(), Promiscuity::On);
        let refused = Promiscuity::Refused("a test".to_owned());
        let found = Found {
            link: namespace.links().unwrap().interface("left").unwrap(),
            promiscuity: Some(refused.clone()),
            trains: None,
            anew: None,
        };
        left.attach(found, true, &mut pool);
        assert_eq!(left.promiscuity(), refused);
    }
}
