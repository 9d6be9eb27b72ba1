//! The agenda: a heap of the instances by their next event, whose items can be found by instance.
//!
//! Four children per node halve the depth of a binary heap, and four items of 16 bytes fill one
//! cache line. Equal instants are ordered by instance number, so the order of events does not
//! depend on the history of the heap.

use sluice_core::prefetch;
use sluice_core::units::Time;

/// Instances in the order of their next events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    items: Vec<(Time, u32)>,
    /// The index of each instance in the heap.
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;
const CHILDREN: usize = 4;

impl Agenda {
    /// Returns the first instant and its instance.
    #[inline]
    pub fn first(&self) -> Option<(Time, u32)> {
        self.items.first().copied()
    }

    /// Prefetches what [`Agenda::set`] needs for an instance.
    pub fn prefetch_set(&self, instance: u32) {
        prefetch::index(&self.places, instance as usize);
    }

    /// Sets or moves the next event of an instance.
    pub fn set(&mut self, instance: u32, at: Time) {
        if self.places.len() <= instance as usize {
            self.places.resize(instance as usize + 1, ABSENT);
        }
        let place = self.places[instance as usize];
        if place == ABSENT {
            self.items.push((at, instance));
            self.up(self.items.len() - 1);
            return;
        }
        let place = place as usize;
        let old = std::mem::replace(&mut self.items[place], (at, instance));
        if (at, instance) < old {
            self.up(place);
        } else {
            self.down(place);
        }
    }

    /// Removes an instance, if present.
    pub fn remove(&mut self, instance: u32) {
        let place = match self.places.get(instance as usize) {
            Some(place) if *place != ABSENT => *place as usize,
            _ => return,
        };
        self.places[instance as usize] = ABSENT;
        let last = self
            .items
            .pop()
            .expect("an instance with a place is in the heap");
        if place < self.items.len() {
            self.items[place] = last;
            self.up(place);
            self.down(self.places[last.1 as usize] as usize);
        }
    }

    fn up(&mut self, mut place: usize) {
        let item = self.items[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.items[parent] <= item {
                break;
            }
            self.put(place, self.items[parent]);
            place = parent;
        }
        self.put(place, item);
    }

    fn down(&mut self, mut place: usize) {
        let item = self.items[place];
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.items.len());
            let Some(least) = children.min_by_key(|i| self.items[*i]) else {
                break;
            };
            if self.items[least] >= item {
                break;
            }
            self.put(place, self.items[least]);
            place = least;
        }
        self.put(place, item);
    }

    fn put(&mut self, place: usize, item: (Time, u32)) {
        self.items[place] = item;
        self.places[item.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with an ordered map: both have the same first item after any operations.
        #[test]
        fn the_first_item_is_the_least(ops in prop::collection::vec((0u32..20, prop::option::of(0u64..50)), 1..200)) {
            let mut agenda = Agenda::default();
            let mut plain: BTreeMap<u32, u64> = BTreeMap::new();
            for (instance, at) in ops {
                match at {
                    Some(at) => {
                        agenda.set(instance, Time::from_ns(at));
                        plain.insert(instance, at);
                    }
                    None => {
                        agenda.remove(instance);
                        plain.remove(&instance);
                    }
                }
                let least = plain.iter().map(|(i, at)| (Time::from_ns(*at), *i)).min();
                prop_assert_eq!(agenda.first(), least);
            }
        }
    }
}
