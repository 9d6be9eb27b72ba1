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
use super::forgetting::Store;
use super::index::{self, Index};
use super::states::ANY;
use crate::grammar::{Action, Target};
use crate::hash::KeyedHash;
use crate::matching::flow_fields::{FlowFields, ProgramKey};
use crate::matching::{Environment, Look};
use crate::visits::visit;

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
    /// Scratch space of [`Programs::build`], a number per rule.
    pub(super) visited: Vec<u32>,
    visit: u32,
    /// Likewise, a number per name of states.
    seen: Vec<u32>,
    candidates: Vec<u64>,
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
            visited: Vec::new(),
            visit: 0,
            seen: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Empties the cache and drops the index, because the rules or the interfaces have changed.
    pub fn invalidate(&mut self) {
        self.index = None;
        self.unindexed = 0;
        self.forget_flows();
    }

    /// Returns an index of `entries`, which takes time in proportion to their number.
    pub fn index_of(&self, entries: &[Entry]) -> Arc<Index> {
        Arc::new(Index::new(entries, resumptions(entries), self.hash))
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
        self.visited.resize(entries.len(), 0);
        self.visit = self.visit.wrapping_add(1);
        if self.visit == 0 {
            self.visited.fill(0);
            self.seen.fill(0);
            self.visit = 1;
        }
        if self.index.is_none() {
            self.unindexed += 1;
            if entries.len() <= FEW_RULES || self.unindexed > FLOWS_BEFORE_INDEX {
                self.index = Some(self.index_of(entries));
            }
        }
        match &self.index {
            Some(index) => index.find(flow, &mut self.candidates),
            None => index::all(entries.len(), &mut self.candidates),
        }
        let mut look = Look::new(env);
        let mut steps: Vec<Step> = Vec::new();
        let mut has_jumps = start == ANYWHERE;
        let mut pending: Vec<u32> = if has_jumps {
            (0..entries.len() as u32).collect()
        } else {
            vec![start]
        };
        let mut is_resumable = false;
        while let Some(from) = pending.pop() {
            let mut next = from as usize;
            while let Some(index) = index::next(&self.candidates, next) {
                next = index + 1;
                if std::mem::replace(&mut self.visited[index], self.visit) == self.visit {
                    break;
                }
                visit();
                let entry = &entries[index];
                if entry.is_disabled(disabled_sets) {
                    continue;
                }
                look.value = 0;
                let step = Step {
                    rule: index as u32,
                    has_body: !matches!(entry.rule.action, Action::CheckState(_))
                        && entry.compiled.holds_for_flow(flow, &mut look),
                    arg: look.value,
                    asks: entry.asks(),
                    probes: entry.state.is_some(),
                };
                if step.probes && !is_resumable {
                    // A known state may send the packet behind any rule that creates states and
                    // continues.
                    is_resumable = true;
                    let before = pending.len();
                    match &self.index {
                        Some(index) => pending.extend(&index.resumptions),
                        None => pending.extend(resumptions(entries)),
                    }
                    has_jumps |= pending.len() > before;
                }
                if !step.has_body && !step.probes {
                    continue;
                }
                steps.push(step);
                if step.has_body
                    && leaves(entries, index, step.arg, &mut pending, &mut has_jumps)
                    && !step.asks
                {
                    break;
                }
            }
        }
        steps.sort_unstable_by_key(|step| step.rule);
        if !has_jumps {
            drop_repeated_probes(entries, &mut steps, &mut self.seen, self.visit);
        }
        steps
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

/// Whether a match ends the sequence. Records in `pending` where it continues.
fn leaves(
    entries: &[Entry],
    index: usize,
    arg: u32,
    pending: &mut Vec<u32>,
    has_jumps: &mut bool,
) -> bool {
    let number_of = |target: Target| match target {
        Target::Number(n) => n,
        Target::TableArg => arg,
    };
    match entries[index].rule.action {
        Action::Allow | Action::Deny | Action::Pipe(_) | Action::Queue(_) => true,
        Action::Count | Action::CheckState(_) => false,
        Action::SkipTo(target) => {
            *has_jumps = true;
            if entries[index].asks_for_arg() {
                // The target depends on the packet: it may be any later rule.
                pending.extend(index as u32 + 1..entries.len() as u32);
                return false;
            }
            pending.push(skip_target(entries, index, number_of(target)));
            true
        }
        Action::Call(target) => {
            *has_jumps = true;
            if entries[index].asks_for_arg() {
                pending.extend(0..entries.len() as u32);
            } else {
                pending.push(first_at(entries, number_of(target)));
            }
            // `return` continues behind all rules of this number, and a call with a full stack has
            // no effect.
            pending.push(first_at(entries, entries[index].number + 1));
            false
        }
        Action::Return => {
            *has_jumps = true;
            false
        }
    }
}

/// Returns every place behind a rule that creates states and lets packets continue.
fn resumptions(entries: &[Entry]) -> Vec<u32> {
    let mut places = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let goes_on = !matches!(
            entry.rule.action,
            Action::Allow | Action::Deny | Action::Pipe(_) | Action::Queue(_)
        );
        if entry.rule.state.is_some() && goes_on {
            places.push(index as u32 + 1);
            places.push(first_at(entries, entry.number + 1));
            match entry.rule.action {
                Action::SkipTo(Target::Number(n)) => {
                    places.push(skip_target(entries, index, n));
                }
                Action::SkipTo(Target::TableArg) => {
                    places.extend(index as u32 + 1..entries.len() as u32);
                }
                Action::Call(Target::Number(n)) => places.push(first_at(entries, n)),
                Action::Call(Target::TableArg) => places.extend(0..entries.len() as u32),
                _ => {}
            }
        }
    }
    places
}

/// Keeps the lookups of each name of states up to the first that every packet makes: without jumps,
/// a packet meets it first.
///
/// `seen` has a number per name, which is `visit` for those that the packet has looked up.
fn drop_repeated_probes(entries: &[Entry], steps: &mut Vec<Step>, seen: &mut Vec<u32>, visit: u32) {
    let mut has_seen_all = false;
    steps.retain_mut(|step| {
        let entry = &entries[step.rule as usize];
        if let Some(name) = entry.state.filter(|_| step.probes) {
            let place = name as usize;
            step.probes = !has_seen_all && seen.get(place) != Some(&visit);
            // Only some packets look up the states of a rule with `prob`.
            if step.probes && entry.prob >= 1 << 32 {
                if name == ANY {
                    has_seen_all = true;
                } else {
                    seen.resize(seen.len().max(place + 1), 0);
                    seen[place] = visit;
                }
            }
        }
        step.has_body || step.probes
    });
}

/// Returns the index of the first rule with at least this number.
pub(crate) fn first_at(entries: &[Entry], number: u32) -> u32 {
    entries.partition_point(|e| e.number < number) as u32
}

/// Returns where `skipto` continues; it never goes backwards.
pub(crate) fn skip_target(entries: &[Entry], from: usize, number: u32) -> u32 {
    first_at(entries, number).max(from as u32 + 1)
}
