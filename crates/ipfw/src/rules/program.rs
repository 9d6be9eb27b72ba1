//! Programs: the rules that remain for one flow, and the cache of them.
//!
//! Most conditions give the same answer for every packet of a flow. When a flow is first seen, the
//! engine evaluates these conditions of all rules once. What remains is a program: the rules that
//! may still match, with the tests that each packet must pass itself (length, flags, probability,
//! states). Later packets run the program, so their cost depends on the rules that may match them
//! and not on the number of rules. Flows with equal programs share one.
//!
//! To evaluate few rules for a new flow, an [index](super::index) names those that may match.
//!
//! A change of rules, sets, tables or interfaces empties the cache. The cache grows in steps up to
//! a fixed size, and a full set evicts an entry, so a flood of new flows costs time but never
//! memory. Too many programs push out those that no packet has used for long ([`super::forgetting`]).

use std::rc::Rc;
use std::sync::Arc;

use sluice_core::prefetch;

use super::Entry;
use super::build::{self, Scratch};
use super::forgetting::Store;
use super::index::Index;
use crate::hash::KeyedHash;
use crate::matching::Environment;
use crate::matching::flow_fields::{FlowFields, ProgramKey};

/// One rule that may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// The index of the rule.
    pub rule: u32,
    /// The value that the table of the rule returned.
    pub arg: u32,
    /// Whether the flow-constant conditions hold. If not, the step only looks up a state.
    pub has_body: bool,
    /// Whether packets must be tested individually, by conditions or by a random draw.
    pub asks: bool,
    /// Whether a known state is looked up first.
    pub probes: bool,
}

/// A program, and the slot of the flow in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub program: u32,
    /// The slot, so that a hint can be stored there.
    pub place: u32,
    /// The hint stored there.
    pub hint: u32,
}

/// In place of the rule at which a packet starts: the program holds every rule that may match,
/// wherever the packet comes from.
pub(crate) const ANYWHERE: u32 = u32::MAX;

/// No hint was stored.
pub(crate) const NO_HINT: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    key: ProgramKey,
    /// The index of the rule at which the packet starts.
    start: u32,
    program: u32,
    generation: u32,
    hint: u32,
}

/// A slot is one cache line.
const _: () = assert!(size_of::<Slot>() == 64);

/// The slots in which a key may be stored.
const WAYS: usize = 4;
const FIRST_SLOTS: usize = 1 << 10;
const MOST_SLOTS: usize = 1 << 18;

/// With more rules than this, the first new flows after a command evaluate all of them, so that a
/// series of commands does not make an index for each. Rules that replace others as a whole come with
/// their index.
const FEW_RULES: usize = 1 << 10;
/// How many flows. To index a rule costs about as much as to evaluate it for this number of flows.
const FLOWS_BEFORE_INDEX: u32 = 16;

/// The programs of recently seen flows.
pub(crate) struct Programs {
    slots: Vec<Slot>,
    hash: KeyedHash,
    /// Live slots overwritten since the last growth.
    evictions: usize,
    turn: u32,
    store: Store,
    /// The index of the current rules; `None` after a change.
    pub(super) index: Option<Arc<Index>>,
    /// The flows evaluated without an index since the last change of the rules.
    unindexed: u32,
    pub(super) scratch: Scratch,
}

impl Programs {
    pub fn new(hash: KeyedHash) -> Self {
        Programs {
            slots: vec![Slot::EMPTY; FIRST_SLOTS],
            hash,
            evictions: 0,
            turn: 0,
            store: Store::new(hash),
            index: None,
            unindexed: 0,
            scratch: Scratch::default(),
        }
    }

    /// Empties the cache and drops the index, because the rules or the interfaces have changed.
    pub fn invalidate(&mut self) {
        self.index = None;
        self.unindexed = 0;
        self.forget_flows();
    }

    /// Returns an index of `entries`, which takes time in proportion to their number. It is valid until
    /// rules or sets change.
    pub fn index_of(&self, entries: &[Entry], disabled_sets: u32) -> Arc<Index> {
        let resumptions = build::resumptions(entries);
        Arc::new(Index::new(entries, disabled_sets, resumptions, self.hash))
    }

    /// Empties the cache, because tables have changed.
    pub fn forget_flows(&mut self) {
        // A slot of an early generation must not become valid again.
        if self.store.forget_all() {
            self.slots.fill(Slot::EMPTY);
        }
    }

    /// Returns the program of a known flow.
    #[inline]
    pub fn find(&self, key: &ProgramKey, start: u32) -> Option<Cached> {
        self.find_at(key, start, self.first_slot(key, start))
    }

    /// Like [`Programs::find`], for a flow whose place is known.
    #[inline(always)]
    pub fn find_at(&self, key: &ProgramKey, start: u32, place: usize) -> Option<Cached> {
        let set = self.slots.get(place..place + WAYS)?;
        let is_it = |slot: &Slot| {
            self.store.has(slot.generation) && slot.key == *key && slot.start == start
        };
        let at = set.iter().position(is_it)?;
        Some(Cached {
            program: set[at].program,
            place: (place + at) as u32,
            hint: set[at].hint,
        })
    }

    /// Returns the place where a flow would be.
    pub fn place(&self, key: &ProgramKey) -> usize {
        self.first_slot(key, 0)
    }

    /// Prefetches what [`Programs::find_at`] reads.
    #[inline]
    pub fn prefetch_find(&self, place: usize) {
        // The first is the oldest, and most sets have few flows.
        prefetch::index(&self.slots, place);
    }

    /// Stores the program of a flow.
    pub fn insert(&mut self, key: ProgramKey, start: u32, steps: Vec<Step>) -> Cached {
        self.make_room(steps.len());
        let program = self.store.put(steps);
        if self.evictions > self.slots.len() / 4 && self.slots.len() < MOST_SLOTS {
            self.grow();
        }
        let first = self.first_slot(&key, start);
        let stale = (first..first + WAYS).find(|i| !self.store.has(self.slots[*i].generation));
        let place = stale.unwrap_or_else(|| {
            self.evictions += 1;
            self.turn = self.turn.wrapping_add(1);
            first + self.turn as usize % WAYS
        });
        self.slots[place] = Slot {
            key,
            start,
            program,
            generation: self.store.generation(),
            hint: NO_HINT,
        };
        Cached {
            program,
            place: place as u32,
            hint: NO_HINT,
        }
    }

    /// Stores a hint with a flow that was just found or inserted.
    pub fn leave_hint(&mut self, place: u32, hint: u32) {
        self.slots[place as usize].hint = hint;
    }

    /// Keeps the program of a flow that was just found from being forgotten next.
    #[inline]
    pub fn keep(&mut self, cached: Cached) -> Cached {
        if self.store.is_old(cached.program) {
            return self.renew(cached);
        }
        cached
    }

    #[cold]
    fn renew(&mut self, cached: Cached) -> Cached {
        let steps = Rc::clone(self.steps(cached.program));
        let slot = self.slots[cached.place as usize];
        self.make_room(steps.len());
        let program = self.store.renew(steps);
        self.slots[cached.place as usize] = Slot {
            program,
            generation: self.store.generation(),
            ..slot
        };
        Cached { program, ..cached }
    }

    fn make_room(&mut self, steps: usize) {
        if self.store.make_room(steps) {
            self.slots.fill(Slot::EMPTY);
        }
    }

    pub fn steps(&self, program: u32) -> &Rc<[Step]> {
        self.store.steps(program)
    }

    fn first_slot(&self, key: &ProgramKey, start: u32) -> usize {
        let [a, b, c, d, e, f] = key.0;
        let hash = self.hash.of(&[a, b, c, d, e, f ^ u64::from(start) << 57]);
        (hash as usize & (self.slots.len() / WAYS - 1)) * WAYS
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 4).min(MOST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; size]);
        self.evictions = 0;
        for slot in old.into_iter().filter(|s| self.store.has(s.generation)) {
            let first = self.first_slot(&slot.key, slot.start);
            let free = (first..first + WAYS).find(|i| !self.store.has(self.slots[*i].generation));
            if let Some(free) = free {
                self.slots[free] = slot;
            }
        }
    }

    /// Returns the steps that remain of `entries` for a flow that starts at `start`, which may be
    /// [`ANYWHERE`].
    pub fn build(
        &mut self,
        entries: &[Entry],
        disabled_sets: u32,
        flow: &FlowFields,
        env: &Environment<'_>,
        start: u32,
    ) -> Vec<Step> {
        if self.index.is_none() {
            self.unindexed += 1;
            if entries.len() <= FEW_RULES || self.unindexed > FLOWS_BEFORE_INDEX {
                self.index = Some(self.index_of(entries, disabled_sets));
            }
        }
        let index = self.index.as_deref();
        let rules = build::Rules {
            entries,
            disabled_sets,
            index,
        };
        self.scratch.build(&rules, flow, env, start)
    }
}

impl Slot {
    const EMPTY: Slot = Slot {
        key: ProgramKey([0; 6]),
        start: 0,
        program: 0,
        generation: 0,
        hint: NO_HINT,
    };
}
