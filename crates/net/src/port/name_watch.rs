//! Whether the interface of a port still has the port's name, and why a port cannot attach to one.
//!
//! A port is its name: rules, the status and events speak of this name. An interface that gets another
//! name raises no error at the sockets on it, nor does another MTU. So the helper looks the name up twice
//! a second.

use crate::errand::{Errand, NotDone};
use crate::namespace::{Interface, LinkError, Links, Namespace};
use crate::sys;

/// The regular question for the interface of a name.
pub(super) struct NameWatch {
    next_ns: u64,
    links: Option<Links>,
    /// When the question under way was asked.
    asked_ns: u64,
    asked: Option<Errand<Answer>>,
}

/// The connection that the helper used, and what the kernel said.
type Answer = (Option<Links>, Option<Seen>);

/// What has the name.
pub(super) enum Seen {
    Interface(Interface),
    Nothing,
}

impl NameWatch {
    /// Creates a watch that asks for the first time after the usual interval.
    pub(super) fn new() -> NameWatch {
        NameWatch {
            next_ns: sys::clock_ns(libc::CLOCK_MONOTONIC_COARSE) + EVERY_NS,
            links: None,
            asked_ns: 0,
            asked: None,
        }
    }

    /// Lets the helper look up the name, or returns its answer, if there is one.
    pub(super) fn look(&mut self, namespace: &Namespace, interface: &str) -> Option<Seen> {
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC_COARSE);
        if let Some(asked) = self.asked.take() {
            match asked.poll() {
                Err(NotDone::Pending) => self.asked = Some(asked),
                Err(NotDone::Failed) => {}
                Ok((links, seen)) => {
                    self.links = links;
                    // A port that only sends may have had nothing to send since.
                    if now_ns < self.asked_ns + STALE_NS {
                        return seen;
                    }
                }
            }
            return None;
        }
        if now_ns < self.next_ns {
            return None;
        }
        (self.next_ns, self.asked_ns) = (now_ns + EVERY_NS, now_ns);
        let links = self.links.take();
        let namespace = match links {
            Some(_) => None,
            None => Some(namespace.try_clone().ok()?),
        };
        let interface = interface.to_owned();
        self.asked = Some(Errand::send(move || {
            let mut links = links.or_else(|| namespace?.links().ok());
            let found = links.as_mut().map(|links| links.interface(&interface));
            let seen = found.and_then(seen_in);
            // After an error, the next question has a connection of its own.
            (links.filter(|_| seen.is_some()), seen)
        }));
        None
    }

    /// Takes no notice of the answer that is under way: it may be about an interface that the port has
    /// left.
    pub(super) fn forget(&mut self) {
        self.asked = None;
    }
}

/// Why a port cannot attach to an interface that has its name.
#[derive(Default)]
pub(super) struct Refusals {
    /// Searches in a row that ended with a reason.
    count: u32,
    last: Option<String>,
}

impl Refusals {
    /// Notes the end of a search, with the reason if the interface is there.
    pub(super) fn note(&mut self, reason: Option<String>) {
        self.count = match reason {
            Some(_) => self.count.saturating_add(1),
            None => 0,
        };
        self.last = reason;
    }

    /// Returns the last reason, unless it may soon be over: the kernel frees a queue some time after its
    /// last socket was closed.
    pub(super) fn lasting(&self) -> Option<String> {
        self.last.clone().filter(|_| self.count >= LASTING)
    }
}

/// Returns what the kernel said; `None` if it did not say.
fn seen_in(found: Result<Interface, LinkError>) -> Option<Seen> {
    match found {
        Ok(link) => Some(Seen::Interface(link)),
        Err(error) => error.is_absence().then_some(Seen::Nothing),
    }
}

const EVERY_NS: u64 = 500_000_000;
/// An answer to a question that is older is not used.
const STALE_NS: u64 = 2 * EVERY_NS;
/// A port searches ten times a second.
const LASTING: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_comes_five_times_in_a_row_is_told_until_it_is_over() {
        let mut refusals = Refusals::default();
        let busy = || Some("busy".to_owned());
        for end in [busy(), busy(), busy(), busy(), None] {
            refusals.note(end);
            assert_eq!(refusals.lasting(), None);
        }
        (0..5).for_each(|_| refusals.note(busy()));
        assert_eq!(refusals.lasting(), busy());
        refusals.note(Some("too long".to_owned()));
        assert_eq!(refusals.lasting().as_deref(), Some("too long"));
        refusals.note(None);
        assert_eq!(refusals.lasting(), None);
    }
}
