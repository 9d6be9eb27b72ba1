//! What is left of the rules for one flow, and the cache that keeps it.
//!
//! Most conditions give the same answer for every packet of a flow. For a flow that is seen for the
//! first time all rules are asked those questions once; what remains is a program: the rules that
//! may still match, with the questions that each packet must answer itself (length, flags,
//! probability, states). Later packets run the program, so their cost depends on the rules that
//! concern them, not on the number of rules. Flows with equal programs share one.
//!
//! A change of rules, sets, tables or interfaces forgets everything. The cache has a fixed size per
//! step of growth, and a full set gives up its oldest entry, so that a flood of new flows costs
//! time, never memory.

use std::rc::Rc;

use sluice_core::prefetch;

use super::Entry;
use super::matching::{Environment, FlowKey};
use crate::grammar::{Action, Target};
use crate::hash::{KeyedHash, Map};
use crate::headers::Headers;

/// One rule that may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// Its place among the rules.
    pub rule: u32,
    /// The value that its table gave.
    pub arg: u32,
    /// Its flow-constant conditions hold. If not, it is only here for its state.
    pub has_body: bool,
    /// Packets must be asked more: conditions of their own, or a draw.
    pub asks: bool,
    /// A known state is looked for first.
    pub probes: bool,
}

/// A program, and the flow's place in the objects behind the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub program: u32,
    /// Where in the cache it is, to leave a hint there.
    pub place: u32,
    /// What was left there.
    pub hint: u32,
}

/// No hint was left.
pub(crate) const NO_HINT: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    key: FlowKey,
    /// Where in the rules the packet begins.
    start: u32,
    program: u32,
    generation: u32,
    hint: u32,
}

/// A slot is one cache line.
const _: () = assert!(size_of::<Slot>() == 64);

/// Slots that a key may be in.
const WAYS: usize = 4;
const FIRST_SLOTS: usize = 1 << 10;
const MOST_SLOTS: usize = 1 << 18;
/// Beyond so many programs, or steps in them, everything is forgotten.
const MOST_PROGRAMS: usize = 1 << 16;
const MOST_STEPS: usize = 1 << 22;

/// The programs of the flows seen lately.
pub(crate) struct Programs {
    slots: Vec<Slot>,
    hash: KeyedHash,
    generation: u32,
    /// Live slots overwritten since the last growth.
    evictions: usize,
    turn: u32,
    programs: Vec<Rc<[Step]>>,
    known: Map<Rc<[Step]>, u32>,
    steps: usize,
    /// Scratch of [`build`].
    visited: Vec<u32>,
    visit: u32,
}

impl Programs {
    pub fn new(hash: KeyedHash) -> Self {
        Programs {
            slots: vec![Slot::EMPTY; FIRST_SLOTS],
            hash,
            generation: 1,
            evictions: 0,
            turn: 0,
            programs: Vec::new(),
            known: Map::with_hasher(hash),
            steps: 0,
            visited: Vec::new(),
            visit: 0,
        }
    }

    /// Forgets everything: the rules, or what they look into, have changed.
    pub fn invalidate(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // A slot of the first generation must not come alive again.
            self.slots.fill(Slot::EMPTY);
            self.generation = 1;
        }
        self.programs.clear();
        self.known.clear();
        self.steps = 0;
    }

    /// The program of a known flow.
    #[inline]
    pub fn find(&self, key: &FlowKey, start: u32) -> Option<Cached> {
        let first = self.first_slot(key, start);
        (first..first + WAYS)
            .find(|i| {
                let slot = &self.slots[*i];
                slot.generation == self.generation && slot.key == *key && slot.start == start
            })
            .map(|i| Cached {
                program: self.slots[i].program,
                place: i as u32,
                hint: self.slots[i].hint,
            })
    }

    /// Where a flow would be found.
    pub fn place(&self, key: &FlowKey) -> usize {
        self.first_slot(key, 0)
    }

    /// Prefetches what [`Programs::find`] reads at a place.
    #[inline]
    pub fn prefetch_find(&self, place: usize) {
        // Most sets have two flows or fewer.
        let first = self.slots[place].generation;
        prefetch::read([u64::from(first ^ self.slots[place + 1].generation)]);
    }

    /// Keeps the program of a flow.
    pub fn insert(&mut self, key: FlowKey, start: u32, steps: Vec<Step>) -> Cached {
        if self.programs.len() >= MOST_PROGRAMS || self.steps + steps.len() > MOST_STEPS {
            self.invalidate();
        }
        let program = self.intern(steps);
        if self.evictions > self.slots.len() / 4 && self.slots.len() < MOST_SLOTS {
            self.grow();
        }
        let first = self.first_slot(&key, start);
        let stale = (first..first + WAYS).find(|i| self.slots[*i].generation != self.generation);
        let place = stale.unwrap_or_else(|| {
            self.evictions += 1;
            self.turn = self.turn.wrapping_add(1);
            first + self.turn as usize % WAYS
        });
        self.slots[place] = Slot {
            key,
            start,
            program,
            generation: self.generation,
            hint: NO_HINT,
        };
        Cached {
            program,
            place: place as u32,
            hint: NO_HINT,
        }
    }

    /// Leaves a hint with a flow that was just found or inserted.
    pub fn leave_hint(&mut self, place: u32, hint: u32) {
        self.slots[place as usize].hint = hint;
    }

    pub fn steps(&self, program: u32) -> &Rc<[Step]> {
        &self.programs[program as usize]
    }

    fn intern(&mut self, steps: Vec<Step>) -> u32 {
        if let Some(known) = self.known.get(steps.as_slice()) {
            return *known;
        }
        let steps: Rc<[Step]> = steps.into();
        let id = self.programs.len() as u32;
        self.steps += steps.len();
        self.programs.push(Rc::clone(&steps));
        self.known.insert(steps, id);
        id
    }

    fn first_slot(&self, key: &FlowKey, start: u32) -> usize {
        let [a, b, c, d, e, f] = key.0;
        let hash = self.hash.of(&[a, b, c, d, e, f ^ u64::from(start) << 57]);
        (hash as usize & (self.slots.len() / WAYS - 1)) * WAYS
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 4).min(MOST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; size]);
        self.evictions = 0;
        for slot in old.into_iter().filter(|s| s.generation == self.generation) {
            let first = self.first_slot(&slot.key, slot.start);
            let free = (first..first + WAYS).find(|i| self.slots[*i].generation != self.generation);
            if let Some(free) = free {
                self.slots[free] = slot;
            }
        }
    }

    /// What is left of `entries` for a flow that begins at `start`.
    pub fn build(
        &mut self,
        entries: &[Entry],
        disabled_sets: u32,
        headers: &Headers,
        env: &Environment<'_>,
        start: u32,
    ) -> Vec<Step> {
        self.visited.resize(entries.len(), 0);
        self.visit = self.visit.wrapping_add(1);
        if self.visit == 0 {
            self.visited.fill(0);
            self.visit = 1;
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut pending = vec![start];
        let mut has_jumps = false;
        let mut is_resumable = false;
        while let Some(from) = pending.pop() {
            for index in from as usize..entries.len() {
                if std::mem::replace(&mut self.visited[index], self.visit) == self.visit {
                    break;
                }
                let entry = &entries[index];
                if entry.is_disabled(disabled_sets) {
                    continue;
                }
                let mut arg = 0;
                let step = Step {
                    rule: index as u32,
                    has_body: !matches!(entry.rule.action, Action::CheckState(_))
                        && entry.compiled.holds_for_flow(headers, env, &mut arg),
                    arg,
                    asks: entry.asks(),
                    probes: entry.state.is_some(),
                };
                if step.probes && !is_resumable {
                    // A known state may take the packet to any rule that makes states and goes on.
                    is_resumable = true;
                    has_jumps |= push_resumptions(entries, &mut pending);
                }
                if !step.has_body && !step.probes {
                    continue;
                }
                steps.push(step);
                if step.has_body
                    && leaves(entries, index, arg, &mut pending, &mut has_jumps)
                    && !step.asks
                {
                    break;
                }
            }
        }
        steps.sort_unstable_by_key(|step| step.rule);
        if !has_jumps {
            drop_repeated_probes(entries, &mut steps);
        }
        steps
    }
}

impl Slot {
    const EMPTY: Slot = Slot {
        key: FlowKey([0; 6]),
        start: 0,
        program: 0,
        generation: 0,
        hint: NO_HINT,
    };
}

/// Whether a rule that matches sends every packet elsewhere; where it goes on is noted.
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
                // Where it leads is only known with the packet: anywhere behind.
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
            // `return` leads behind all rules of this number; a call that finds the stack full does
            // nothing.
            pending.push(first_at(entries, entries[index].number + 1));
            false
        }
        Action::Return => {
            *has_jumps = true;
            false
        }
    }
}

/// Notes every rule behind one that makes states and lets packets go on.
fn push_resumptions(entries: &[Entry], pending: &mut Vec<u32>) -> bool {
    let before = pending.len();
    for (index, entry) in entries.iter().enumerate() {
        let goes_on = !matches!(
            entry.rule.action,
            Action::Allow | Action::Deny | Action::Pipe(_) | Action::Queue(_)
        );
        if entry.rule.state.is_some() && goes_on {
            pending.push(index as u32 + 1);
            pending.push(first_at(entries, entry.number + 1));
            match entry.rule.action {
                Action::SkipTo(Target::Number(n)) => {
                    pending.push(skip_target(entries, index, n));
                }
                Action::SkipTo(Target::TableArg) => {
                    pending.extend(index as u32 + 1..entries.len() as u32);
                }
                Action::Call(Target::Number(n)) => pending.push(first_at(entries, n)),
                Action::Call(Target::TableArg) => pending.extend(0..entries.len() as u32),
                _ => {}
            }
        }
    }
    pending.len() > before
}

/// A packet looks for a state of a name once. Where no rule jumps, that is at the first rule.
fn drop_repeated_probes(entries: &[Entry], steps: &mut Vec<Step>) {
    let mut seen: Vec<u16> = Vec::new();
    steps.retain_mut(|step| {
        let entry = &entries[step.rule as usize];
        if let Some(name) = entry.state.filter(|_| step.probes) {
            step.probes = !seen.contains(&name);
            if step.probes {
                seen.push(name);
            }
        }
        step.has_body || step.probes
    });
}

/// The first rule with at least this number.
pub(crate) fn first_at(entries: &[Entry], number: u32) -> u32 {
    entries.partition_point(|e| e.number < number) as u32
}

/// Where `skipto` leads: never backwards.
pub(crate) fn skip_target(entries: &[Entry], from: usize, number: u32) -> u32 {
    first_at(entries, number).max(from as u32 + 1)
}
