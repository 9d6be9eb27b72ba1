//! Rings of classes that take turns.

use alloc::vec::Vec;

use super::allocated;
use super::pool::NONE;

/// Links of classes, each of which is in at most one ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Vec<Link>);

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    prev: u32,
}

/// A ring, identified by the class whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    first: u32,
}

impl Ring {
    pub(crate) const EMPTY: Ring = Ring { first: NONE };

    pub(crate) const fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// Returns the class whose turn it is.
    #[inline]
    pub(crate) fn first(self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl Links {
    /// Returns the bytes that have been allocated.
    pub(crate) fn memory(&self) -> usize {
        allocated(&self.0)
    }

    /// Makes room for the class `id`.
    pub(crate) fn reserve(&mut self, id: u32) {
        if self.0.len() <= id as usize {
            let unlinked = Link {
                next: NONE,
                prev: NONE,
            };
            self.0.resize(id as usize + 1, unlinked);
        }
    }

    /// Appends `id` to `ring`.
    #[inline]
    pub(crate) fn push_back(&mut self, ring: &mut Ring, id: u32) {
        let Some(first) = ring.first() else {
            self.0[id as usize] = Link { next: id, prev: id };
            ring.first = id;
            return;
        };
        let last = self.0[first as usize].prev;
        self.0[id as usize] = Link {
            next: first,
            prev: last,
        };
        self.0[last as usize].next = id;
        self.0[first as usize].prev = id;
    }

    /// Removes `id` from `ring`, of which it is a member.
    #[inline]
    pub(crate) fn remove(&mut self, ring: &mut Ring, id: u32) {
        let Link { next, prev } = self.0[id as usize];
        if next == id {
            ring.first = NONE;
            return;
        }
        self.0[prev as usize].next = next;
        self.0[next as usize].prev = prev;
        if ring.first == id {
            ring.first = next;
        }
    }

    /// Ends the turn of the first: it becomes the last.
    #[inline]
    pub(crate) fn rotate(&self, ring: &mut Ring) {
        if let Some(first) = ring.first() {
            ring.first = self.0[first as usize].next;
        }
    }

    /// Iterates over the members of `ring`, beginning with the first.
    pub(crate) fn iter(&self, ring: Ring) -> impl Iterator<Item = u32> + '_ {
        let mut at = ring.first();
        core::iter::from_fn(move || {
            let id = at?;
            let next = self.0[id as usize].next;
            at = (next != ring.first).then_some(next);
            Some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_take_turns_and_leave() {
        let (mut links, mut ring) = (Links::default(), Ring::EMPTY);
        for id in 0..4 {
            links.reserve(id);
            links.push_back(&mut ring, id);
        }
        let members = |links: &Links, ring| links.iter(ring).collect::<Vec<_>>();
        links.rotate(&mut ring);
        assert_eq!(members(&links, ring), [1, 2, 3, 0]);
        links.remove(&mut ring, 1);
        links.remove(&mut ring, 3);
        assert_eq!(members(&links, ring), [2, 0]);
        links.push_back(&mut ring, 3);
        assert_eq!(members(&links, ring), [2, 0, 3]);
        for id in [3, 2, 0] {
            links.remove(&mut ring, id);
        }
        assert!(ring.is_empty() && members(&links, ring).is_empty());
    }
}
