//! The programs of a cache, which forgets those that are not used and frees them some at a time.

use std::collections::{VecDeque, hash_map};
use std::mem;
use std::rc::Rc;

use super::program::Step;
use crate::hash::{KeyedHash, Map};

/// The younger programs, beyond which the older ones are forgotten. Both together have at most
/// [`MOST_STEPS`] steps.
pub(super) const MOST_PROGRAMS: usize = 1 << 16;
const MOST_STEPS: usize = 1 << 22;
/// The programs that are freed with each new flow. To free all at once would take milliseconds.
const FREED_AT_ONCE: usize = 64;

/// Programs in two generations. When the younger one is full, the older one is forgotten, and the younger
/// one takes its place; what is used meanwhile moves into the new one.
pub(super) struct Store {
    hash: KeyedHash,
    /// That of the younger programs. A program of an earlier one than the one before is forgotten.
    generation: u32,
    /// The programs of even generations, and those of odd ones.
    halves: [Half; 2],
    freed: VecDeque<Freed>,
}

struct Half {
    programs: Vec<Rc<[Step]>>,
    known: Map<Rc<[Step]>, u32>,
    steps: usize,
}

/// Forgotten programs that are still to be freed. Each is in both.
struct Freed {
    programs: std::vec::IntoIter<Rc<[Step]>>,
    known: hash_map::IntoIter<Rc<[Step]>, u32>,
}

impl Store {
    pub fn new(hash: KeyedHash) -> Store {
        Store {
            hash,
            generation: FIRST,
            halves: [Half::new(0, hash), Half::new(0, hash)],
            freed: VecDeque::new(),
        }
    }

    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns whether programs of a generation are known.
    #[inline(always)]
    pub const fn has(&self, generation: u32) -> bool {
        self.generation.wrapping_sub(generation) <= 1
    }

    pub fn steps(&self, program: u32) -> &Rc<[Step]> {
        &self.halves[(program & 1) as usize].programs[(program >> 1) as usize]
    }

    /// Returns whether a program is in the generation that is forgotten next.
    pub const fn is_old(&self, program: u32) -> bool {
        program & 1 != self.generation & 1
    }

    /// Makes room for a program of so many steps. Returns whether the generations have wrapped, so that
    /// the numbers of earlier ones mean others from now on.
    pub fn make_room(&mut self, steps: usize) -> bool {
        self.free_some();
        let young = &self.halves[(self.generation & 1) as usize];
        if young.programs.len() < MOST_PROGRAMS && young.steps + steps <= MOST_STEPS / 2 {
            return false;
        }
        self.begin(1)
    }

    /// Stores a program in the younger generation, for which there is room.
    pub fn put(&mut self, steps: Vec<Step>) -> u32 {
        match self.find(&steps) {
            Some(known) => known,
            None => self.add(steps.into()),
        }
    }

    /// Moves a program of the older generation into the younger one, in which there is room.
    pub fn renew(&mut self, steps: Rc<[Step]>) -> u32 {
        match self.find(&steps) {
            Some(known) => known,
            None => self.add(steps),
        }
    }

    /// Forgets all programs. Returns as [`Store::make_room`].
    pub fn forget_all(&mut self) -> bool {
        self.discard(0);
        self.discard(1);
        self.begin(2)
    }

    fn find(&self, steps: &[Step]) -> Option<u32> {
        let young = &self.halves[(self.generation & 1) as usize];
        young.known.get(steps).copied()
    }

    fn add(&mut self, steps: Rc<[Step]>) -> u32 {
        let half = self.generation & 1;
        let young = &mut self.halves[half as usize];
        let program = (young.programs.len() as u32) << 1 | half;
        young.steps += steps.len();
        young.programs.push(Rc::clone(&steps));
        young.known.insert(steps, program);
        program
    }

    /// Begins the generation `later` behind the present one.
    fn begin(&mut self, later: u32) -> bool {
        let next = self.generation.checked_add(later);
        self.generation = next.unwrap_or(FIRST);
        if next.is_none() {
            self.discard(0);
            self.discard(1);
        }
        self.discard((self.generation & 1) as usize);
        next.is_none()
    }

    fn discard(&mut self, half: usize) {
        let count = self.halves[half].programs.len();
        if count > 0 {
            // As large as the last one: a table that grows is copied.
            let old = mem::replace(&mut self.halves[half], Half::new(count, self.hash));
            self.freed.push_back(Freed {
                programs: old.programs.into_iter(),
                known: old.known.into_iter(),
            });
        }
    }

    /// Frees some forgotten programs. Each was stored for a new flow, which frees more than one, so that
    /// they do not pile up.
    fn free_some(&mut self) {
        let Some(freed) = self.freed.front_mut() else {
            return;
        };
        for _ in 0..FREED_AT_ONCE {
            drop((freed.programs.next(), freed.known.next()));
        }
        if freed.programs.as_slice().is_empty() {
            self.freed.pop_front();
        }
    }
}

impl Half {
    fn new(room: usize, hash: KeyedHash) -> Half {
        Half {
            programs: Vec::with_capacity(room),
            known: Map::with_capacity_and_hasher(room, hash),
            steps: 0,
        }
    }
}

/// Later than 0, which is that of places without a flow, by more than one.
const FIRST: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn program(arg: u32) -> Vec<Step> {
        vec![Step {
            rule: 0,
            arg,
            has_body: true,
            asks: false,
            probes: false,
        }]
    }

    fn waiting(store: &Store) -> usize {
        store.freed.iter().map(|freed| freed.programs.len()).sum()
    }

    #[test]
    fn programs_are_freed_in_pieces_and_do_not_pile_up() {
        let mut store = Store::new(KeyedHash(1));
        let mut most = 0;
        for arg in 0..4 * MOST_PROGRAMS as u32 {
            let (before, old) = (waiting(&store), store.generation());
            store.make_room(1);
            let id = store.put(program(arg));
            assert_eq!((store.steps(id)[0].arg, store.is_old(id)), (arg, false));
            if store.generation() == old {
                assert!(before - waiting(&store) <= FREED_AT_ONCE);
            }
            most = most.max(waiting(&store));
        }
        // A generation was full three times; at the first one, there was no older one to forget.
        assert_eq!(store.generation(), FIRST + 3);
        assert_eq!((most, waiting(&store)), (MOST_PROGRAMS, 0));
    }

    #[test]
    fn a_generation_and_the_one_before_are_known() {
        let mut store = Store::new(KeyedHash(1));
        let first = store.generation();
        assert!(!store.has(0) && store.has(first));
        let id = store.put(program(7));
        assert_eq!(store.put(program(7)), id);
        assert!(!store.begin(1));
        assert!(store.has(first) && store.is_old(id));
        let steps = Rc::clone(store.steps(id));
        let renewed = store.renew(steps);
        assert!(!store.is_old(renewed));
        assert!(!store.begin(1));
        assert!(!store.has(first));
        assert_eq!(store.steps(renewed)[0].arg, 7);
        assert!(!store.forget_all());
        assert!(!store.has(first + 2));
        store.generation = u32::MAX;
        assert!(store.forget_all());
        assert!(store.has(FIRST) && !store.has(0));
    }
}
