//! The search for an interface that is down or gone.
//!
//! The kernel detaches all packet sockets from an interface that is removed, and a socket without an
//! interface cannot send (`packet_notifier` and `packet_snd` in Linux's net/packet/af_packet.c). The
//! interface may come back under the same name, with another index. Asking for it and attaching to it
//! may take long, so the [helper](crate::errand) does both.
//!
//! The kernel does not detach a socket from an interface that gets another name. A port leaves such an
//! interface by itself: it gets new sockets.

use super::super::hold::Hold;
use super::super::name_watch::Seen;
use super::super::trains::Trains;
use super::super::{Pool, Promiscuity};
use super::group::Member;
use super::{LOOK_EVERY, PacketError, PacketOptions, PacketPort, bind, is_bound, protocol};
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
type Answer = (Option<Links>, Sought);

/// The end of a search.
#[derive(Default)]
struct Sought {
    found: Option<Found>,
    /// New sockets that are attached to no interface, for a port that has left its own.
    unattached: Option<Box<PacketPort>>,
    /// Why the port cannot attach to the interface.
    refused: Option<String>,
}

/// Why a search found nothing.
enum Missing {
    /// There is no interface of this name.
    Name,
    /// The kernel did not say, or it is not up.
    Answer,
    /// The port cannot attach to it.
    Access(PacketError),
}

impl From<PacketError> for Missing {
    fn from(error: PacketError) -> Missing {
        Missing::Access(error)
    }
}

/// What the helper needs to find an interface and to attach the sockets to it.
struct Search {
    namespace: Namespace,
    socket: Socket,
    segmenting: Option<Socket>,
    interface: String,
    index: u32,
    protocol: libc::c_int,
    options: PacketOptions,
    /// Whether the sockets are on an interface of another name.
    is_astray: bool,
    member: Option<Member>,
}

/// An interface that the sockets are attached to.
struct Found {
    link: Interface,
    hold: Hold,
    /// `None` if the sockets were attached before.
    promiscuity: Option<Promiscuity>,
    /// `Some` if the interface is up and trains pay off.
    trains: Option<Trains>,
    /// `Some` if the port needs new sockets.
    anew: Option<Box<PacketPort>>,
}

impl Search {
    fn run(&self, links: &mut Links) -> Sought {
        let found = self.attach(links);
        let is_left = match &found {
            Ok(_) => false,
            // An interface that is down may have got another name.
            Err(Missing::Name) => self.is_astray || self.has_interface(),
            Err(Missing::Answer | Missing::Access(_)) => {
                let mut has_other = || {
                    let named = links.interface(&self.interface);
                    named.is_ok_and(|named| named.index != self.index)
                };
                self.is_astray || self.has_interface() && has_other()
            }
        };
        let (found, refused) = match found {
            Ok(found) => (Some(found), None),
            Err(Missing::Access(error)) => (None, Some(error.to_string())),
            Err(Missing::Name | Missing::Answer) => (None, None),
        };
        let open = || {
            let opened = PacketPort::open_at(&self.namespace, &self.interface, self.options, None);
            opened.ok().map(Box::new)
        };
        Sought {
            unattached: is_left.then(open).flatten(),
            found,
            refused,
        }
    }

    /// Returns whether the sockets are still attached to an interface.
    fn has_interface(&self) -> bool {
        self.index > 0 && is_bound(&self.socket, self.index)
    }

    /// Looks for the interface under its name; its index may be another one.
    fn attach(&self, links: &mut Links) -> Result<Found, Missing> {
        let link = links.interface(&self.interface);
        let link = link.map_err(|error| match error.is_absence() {
            true => Missing::Name,
            false => Missing::Answer,
        })?;
        let hold = Hold::take_link(&self.namespace, &self.interface, &link, links);
        let hold = hold.map_err(PacketError::from)?;
        let mut promiscuity = None;
        let is_astray = self.is_astray || link.index != self.index && self.has_interface();
        // An interface that was moved away and back may keep its index, but the sockets were detached
        // from it.
        let is_there = |socket: &Socket| is_bound(socket, link.index);
        let is_attached = link.index == self.index
            && is_there(&self.socket)
            && self.segmenting.as_ref().is_none_or(is_there)
            && !is_astray;
        let anew = match &self.member {
            Some(member) if !is_attached => {
                let reopened = member.reopen(&self.namespace, &link)?;
                Some(reopened.ok_or(Missing::Answer)?)
            }
            None if is_astray => {
                let at = Some((&link, hold.clone()));
                let opened =
                    PacketPort::open_at(&self.namespace, &self.interface, self.options, at);
                Some(opened?)
            }
            _ => None,
        };
        if let Some(anew) = anew {
            return Ok(Found {
                link,
                hold,
                promiscuity,
                trains: None,
                anew: Some(Box::new(anew)),
            });
        }
        if !is_attached {
            let bind = |socket: &Socket, protocol| {
                bind(socket, link.index, protocol).map_err(|source| PacketError::Kernel {
                    step: "bind the packet socket",
                    interface: self.interface.clone(),
                    namespace: self.namespace.name().to_owned(),
                    source,
                })
            };
            if let Some(segmenting) = &self.segmenting {
                bind(segmenting, protocol(false))?;
            }
            bind(&self.socket, self.protocol)?;
            let look = || links.interface(&self.interface);
            let ask = || Promiscuity::ask(&self.socket, link.index, look);
            promiscuity = self.options.wants_all().then(ask);
        }
        let trains = (self.options.trains && link.is_up)
            .then(|| Trains::open(&self.namespace, &link))
            .flatten();
        Ok(Found {
            link,
            hold,
            promiscuity,
            trains,
            anew: None,
        })
    }
}

impl PacketPort {
    /// Leaves the interface if it has another name now, or if a port of its new name has taken it.
    pub(super) fn follow_name(&mut self) {
        if self.hold.is_lost() {
            self.leave();
        }
        if self.absence.is_some() {
            self.watch.forget();
            return;
        }
        match self.watch.look(&self.namespace, &self.interface) {
            None => {}
            Some(Seen::Interface(link)) if link.index == self.index => {
                self.capabilities.mtu = link.mtu;
            }
            Some(_) => self.leave(),
        }
    }

    /// Neither sends nor receives until the helper has opened new sockets.
    fn leave(&mut self) {
        self.hold.give_up();
        self.is_astray = true;
        // What the helper finds at this moment is for the old sockets.
        self.absence.get_or_insert_default().errors += 1;
    }

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
                Ok((links, sought)) => {
                    absence.links = links;
                    self.refusals.note(sought.refused);
                    let is_current = absence.errors == errors;
                    if let Some(unattached) = sought.unattached {
                        self.continue_with(*unattached, pool);
                    }
                    if let Some(found) = sought.found {
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
            options: self.options,
            is_astray: self.is_astray,
            member: self.member.clone(),
        };
        let links = absence.links.take();
        let answer = Errand::send(move || {
            let mut links = links.or_else(|| search.namespace.links().ok());
            let sought = links.as_mut().map(|links| search.run(links));
            (links, sought.unwrap_or_default())
        });
        absence.search = Some((answer, absence.errors));
    }

    /// Uses an interface to which the helper has attached the sockets. `is_current` is false if the
    /// interface was lost again meanwhile.
    fn attach(&mut self, found: Found, is_current: bool, pool: &mut Pool) {
        if let Some(anew) = found.anew {
            self.continue_with(*anew, pool);
            if is_current && found.link.is_up {
                self.absence = None;
            }
            return;
        }
        self.index = found.link.index;
        self.hold = found.hold;
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
            hold: Hold::default(),
            promiscuity: Some(refused.clone()),
            trains: None,
            anew: None,
        };
        left.attach(found, true, &mut pool);
        assert_eq!(left.promiscuity(), refused);
    }
}
