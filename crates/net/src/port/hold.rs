//! The interfaces that the ports of this process use, so that no two names share one.
//!
//! A port is its name. If two interfaces exchange their names, the port that notices it first attaches to
//! the interface which the other port still uses. The other one loses it at that moment, and not when
//! it notices by itself: meanwhile, one frame would arrive at both ports.

use crate::namespace::{Interface, Links, Namespace};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The reasons why an interface cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The interface carries no Ethernet frames.
    #[error(
        "interface {0:?} carries no Ethernet frames, so it cannot be bridged: shape what the kernel routes \
         through it instead (`--forward`)"
    )]
    NotEthernet(String),
    /// The interface is a port by another of its names.
    #[error("interface {interface:?} is the port {other:?} already: name it once")]
    Shared {
        /// The interface.
        interface: String,
        /// The other name.
        other: String,
    },
}

/// The use of an interface by a port, by both halves of one, or by all members of a group.
#[derive(Clone, Default)]
pub(super) struct Hold(Option<Arc<Held>>);

struct Held {
    /// The identity of the namespace.
    namespace: (u64, u64),
    index: u32,
    /// The name of the port.
    interface: String,
    is_lost: AtomicBool,
}

/// All uses. Only the helper waits for this lock, and threads that open a port.
static ALL: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

impl HoldError {
    /// Refuses an interface that carries no Ethernet frames.
    pub(super) fn unless_ethernet(interface: &str, link: &Interface) -> Result<(), HoldError> {
        match link.has_ethernet {
            true => Ok(()),
            false => Err(HoldError::NotEthernet(interface.to_owned())),
        }
    }
}

impl Hold {
    /// Takes the interface `link` for the port `interface`, if it can be one.
    ///
    /// # Errors
    /// [`HoldError`].
    pub(super) fn take_link(
        namespace: &Namespace,
        interface: &str,
        link: &Interface,
        links: &mut Links,
    ) -> Result<Hold, HoldError> {
        HoldError::unless_ethernet(interface, link)?;
        let is_named = |other: &str| {
            let found = links.interface(other);
            found.is_ok_and(|found| found.index == link.index)
        };
        Hold::take(namespace, interface, link.index, is_named).map_err(|other| HoldError::Shared {
            interface: interface.to_owned(),
            other,
        })
    }

    /// Takes the interface with this index for the port `interface`. Ports of other names lose it.
    ///
    /// # Errors
    /// The name of such a port, if `is_named` says that the interface has that name, too.
    fn take(
        namespace: &Namespace,
        interface: &str,
        index: u32,
        mut is_named: impl FnMut(&str) -> bool,
    ) -> Result<Hold, String> {
        let Ok(namespace) = namespace.identity() else {
            return Ok(Hold::default());
        };
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|held| held.strong_count() > 0);
        let is_shared = |held: &Arc<Held>| {
            let is_same = held.namespace == namespace && held.index == index;
            is_same && held.interface != interface && !held.is_lost.load(Ordering::Relaxed)
        };
        let held = all.iter().filter_map(Weak::upgrade);
        let others: Vec<Arc<Held>> = held.filter(is_shared).collect();
        if let Some(other) = others.iter().find(|held| is_named(&held.interface)) {
            return Err(other.interface.clone());
        }
        for other in others {
            other.is_lost.store(true, Ordering::Release);
        }
        let own = Arc::new(Held {
            namespace,
            index,
            interface: interface.to_owned(),
            is_lost: AtomicBool::new(false),
        });
        all.push(Arc::downgrade(&own));
        Ok(Hold(Some(own)))
    }

    /// Gives the interface up, for all that share this.
    pub(super) fn give_up(&mut self) {
        if let Some(held) = self.0.take() {
            held.is_lost.store(true, Ordering::Release);
        }
    }

    /// Returns whether the interface was taken for a port of another name, or the other half gave it up.
    pub(super) fn is_lost(&self) -> bool {
        let held = self.0.as_ref();
        held.is_some_and(|held| held.is_lost.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(namespace: &Namespace, name: &str, index: u32) -> Hold {
        Hold::take(namespace, name, index, |_| false).unwrap()
    }

    /// The current namespace has no interfaces with these indexes.
    #[test]
    fn a_port_loses_its_interface_to_another_name_only() {
        let namespace = Namespace::current().unwrap();
        let (first, second) = (1_000_001, 1_000_002);
        let left = [
            take(&namespace, "left", first),
            take(&namespace, "left", first),
        ];
        let right = take(&namespace, "right", second);
        assert!(!left[0].is_lost() && !left[1].is_lost() && !right.is_lost());
        // They have exchanged their names.
        let taken = take(&namespace, "left", second);
        assert!(right.is_lost());
        assert!(
            !taken.is_lost() && !left[0].is_lost(),
            "nobody has taken it"
        );
        let other = take(&namespace, "right", first);
        assert!(left[0].is_lost() && left[1].is_lost());
        assert!(!taken.is_lost() && !other.is_lost());
    }

    #[test]
    fn an_interface_with_two_names_is_one_port() {
        let namespace = Namespace::current().unwrap();
        let index = 1_000_003;
        let held = take(&namespace, "left", index);
        let refused = Hold::take(&namespace, "alias", index, |name| name == "left");
        assert_eq!(refused.err().as_deref(), Some("left"));
        assert!(!held.is_lost());
        drop(held);
        let taken = Hold::take(&namespace, "alias", index, |_| {
            unreachable!("nobody has it")
        });
        assert!(taken.is_ok());
    }

    #[test]
    fn both_halves_give_up() {
        let namespace = Namespace::current().unwrap();
        let mut half = take(&namespace, "left", 1_000_004);
        let other = half.clone();
        half.give_up();
        assert!(other.is_lost() && !half.is_lost());
    }
}
