//! The rules as one value: saved, restored, replaced as a whole, and copied in pieces.

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use super::frames::of_frames;
use super::index::Index;
use super::states::{Lifetimes, States};
use super::{DEFAULT_RULE, Entry, RuleId, Rules, any_has_states, state_name};
use crate::copying::PIECE;
use crate::headers::Interface;
use crate::tables::{Tables, TablesCopy};

/// The state that a failed batch restores. It includes the counters, because no packet arrives in
/// between.
#[derive(Clone)]
pub(crate) struct Saved {
    entries: Vec<Entry>,
    disabled_sets: u32,
    tables: Tables,
    states: States,
    lifetimes: Lifetimes,
    verbose_limit: u32,
}

/// The rules as commands define them: everything but the states and the caches of flows.
#[derive(Clone)]
pub(crate) struct Ruleset {
    entries: Vec<Entry>,
    serial: u64,
    disabled_sets: u32,
    tables: Tables,
    lifetimes: Lifetimes,
    verbose_limit: u32,
    interfaces: Vec<Interface>,
    own: Vec<IpAddr>,
    /// `None` for a copy that is going to be changed.
    digest: Option<Digest>,
    /// What takes time to free, of rules that were replaced.
    _freed: (Vec<u32>, Option<Arc<Index>>),
}

/// What packets ask of the rules as a whole. The answers take time in proportion to the number of
/// rules, so they are found beside the packet loop.
#[derive(Clone)]
struct Digest {
    index: Arc<Index>,
    of_frames: Box<[usize]>,
    has_states: bool,
    /// Scratch space: to allocate and to free this much can make the allocator tidy up for milliseconds.
    visited: Vec<u32>,
}

impl Ruleset {
    /// Adds the counters of equal rules.
    pub fn absorb(&mut self, other: &Ruleset) {
        let mut entries = other.entries.iter().peekable();
        for entry in &mut self.entries {
            // Both are in the order of the ids.
            while entries.next_if(|more| more.id() < entry.id()).is_some() {}
            if let Some(more) = entries.next_if(|more| more.id() == entry.id()) {
                entry.packets += more.packets;
                entry.bytes += more.bytes;
                entry.last_match = entry.last_match.max(more.last_match);
            }
        }
    }

    /// Returns the rules, the bits of disabled sets, and the tables.
    pub fn into_parts(self) -> (Vec<Entry>, u32, Tables) {
        (self.entries, self.disabled_sets, self.tables)
    }
}

/// A copy of the rules that is made in pieces.
#[derive(Default)]
pub(crate) struct RulesetCopy {
    entries: Vec<Vec<Entry>>,
    copied: usize,
    tables: TablesCopy,
}

impl Rules {
    pub fn save(&self) -> Saved {
        Saved {
            entries: self.entries.clone(),
            disabled_sets: self.disabled_sets,
            tables: self.tables.clone(),
            states: self.states.clone(),
            lifetimes: self.lifetimes,
            verbose_limit: self.verbose_limit,
        }
    }

    pub fn restore(&mut self, saved: Saved) {
        self.entries = saved.entries;
        self.disabled_sets = saved.disabled_sets;
        self.tables = saved.tables;
        self.states = saved.states;
        self.lifetimes = saved.lifetimes;
        self.verbose_limit = saved.verbose_limit;
        self.changed();
    }

    /// Makes these the rules of an engine that has none of its own.
    pub fn load(&mut self, mut new: Ruleset) {
        for entry in &mut new.entries {
            entry.state = state_name(&entry.rule).map(|name| self.states.name(name));
        }
        self.put(new);
    }

    /// Returns what commands made of the rules.
    pub fn into_ruleset(self) -> Ruleset {
        let digest = Digest {
            index: self.programs.index_of(&self.entries, self.disabled_sets),
            of_frames: of_frames(&self.entries, self.disabled_sets),
            has_states: any_has_states(&self.entries),
            visited: vec![0; self.entries.len()],
        };
        Ruleset {
            digest: Some(digest),
            _freed: Default::default(),
            entries: self.entries,
            serial: self.serial,
            disabled_sets: self.disabled_sets,
            tables: self.tables,
            lifetimes: self.lifetimes,
            verbose_limit: self.verbose_limit,
            interfaces: self.interfaces,
            own: self.own,
        }
    }

    /// Replaces the rules, tables and interfaces, and returns the old ones. Both rulesets have the
    /// same built-in rule.
    pub fn replace(&mut self, mut new: Ruleset) -> Ruleset {
        for entry in &mut new.entries {
            if entry.number != DEFAULT_RULE {
                // Packets inside remember rules by their serial numbers.
                entry.serial += self.serial;
            }
            entry.state = state_name(&entry.rule).map(|name| self.states.name(name));
        }
        new.serial += self.serial;
        let old = self.put(new);
        self.adopt(&old.entries);
        old
    }

    /// Puts an amended copy of these rules in place, and returns the old ones. Rules that remain
    /// keep their counters and states.
    pub fn exchange(&mut self, mut new: Ruleset) -> Ruleset {
        let mut remaining = self.entries.iter().peekable();
        for entry in &mut new.entries {
            entry.state = state_name(&entry.rule).map(|name| self.states.name(name));
            // Both are in the order of the ids.
            while remaining.next_if(|old| old.id() < entry.id()).is_some() {}
            if let Some(same) = remaining.next_if(|old| old.id() == entry.id()) {
                entry.take_counters(same);
                // An amended copy cannot change it, and `resetlog` may have done so meanwhile.
                entry.log_left = same.log_left;
            }
        }
        let old = self.put(new);
        self.forget_states_of(&old.entries);
        old
    }

    fn put(&mut self, new: Ruleset) -> Ruleset {
        let mut freed = (Vec::new(), self.programs.index.take());
        self.changed();
        if let Some(digest) = new.digest {
            freed.0 = mem::replace(&mut self.programs.scratch.visited, digest.visited);
            self.programs.index = Some(digest.index);
            self.of_frames = Some(digest.of_frames);
            self.has_states = Some(digest.has_states);
        }
        Ruleset {
            digest: None,
            _freed: freed,
            entries: mem::replace(&mut self.entries, new.entries),
            serial: mem::replace(&mut self.serial, new.serial),
            disabled_sets: mem::replace(&mut self.disabled_sets, new.disabled_sets),
            tables: mem::replace(&mut self.tables, new.tables),
            lifetimes: mem::replace(&mut self.lifetimes, new.lifetimes),
            verbose_limit: mem::replace(&mut self.verbose_limit, new.verbose_limit),
            interfaces: mem::replace(&mut self.interfaces, new.interfaces),
            own: mem::replace(&mut self.own, new.own),
        }
    }

    /// Copies the next rules or entries of tables, some hundred. Returns whether more are left.
    pub fn copy_piece(&self, copy: &mut RulesetCopy) -> bool {
        let start = copy.copied;
        if start < self.entries.len() {
            let end = (start + PIECE).min(self.entries.len());
            copy.entries.push(self.entries[start..end].to_vec());
            copy.copied = end;
            return true;
        }
        self.tables.copy_piece(&mut copy.tables)
    }

    /// Returns the rules of a whole copy of these.
    pub fn ruleset_of(&self, copy: RulesetCopy) -> Ruleset {
        Ruleset {
            entries: copy.entries.into_iter().flatten().collect(),
            serial: self.serial,
            disabled_sets: self.disabled_sets,
            tables: copy.tables.finish(),
            lifetimes: self.lifetimes,
            verbose_limit: self.verbose_limit,
            interfaces: self.interfaces.clone(),
            own: self.own.clone(),
            digest: None,
            _freed: Default::default(),
        }
    }

    /// Gives each rule that has the same place and text as a rule in `old` the counters, states and
    /// age of the old rule, so that packets inside continue behind the rule that sent them. States
    /// of other rules are removed.
    fn adopt(&mut self, old: &[Entry]) {
        if let (Some(built_in), Some(before)) = (self.entries.last_mut(), old.last()) {
            built_in.take_counters(before);
        }
        let mut number = 0;
        let mut before: &[Entry] = &[];
        let mut is_same = true;
        for entry in self.entries.iter_mut().filter(|e| e.number != DEFAULT_RULE) {
            if entry.number != number {
                number = entry.number;
                let start = old.partition_point(|e| e.number < number);
                let end = old.partition_point(|e| e.number <= number);
                before = &old[start..end];
                is_same = true;
            }
            // From the first difference on, rules are younger than those before it.
            is_same &= before.first().is_some_and(|o| o.rule == entry.rule);
            if let Some((first, rest)) = before.split_first().filter(|_| is_same) {
                entry.serial = first.serial;
                entry.take_counters(first);
                before = rest;
            }
        }
        self.forget_states_of(old);
    }

    /// Removes the states of rules that are gone, and the names of states that only they mention.
    fn forget_states_of(&mut self, old: &[Entry]) {
        let stateful = old.iter().filter(|entry| entry.rule.state.is_some());
        let ids = stateful.map(Entry::id);
        let remains = |id: &RuleId| self.entries.binary_search_by_key(id, Entry::id).is_ok();
        // Both are in the order of the ids.
        let gone: Vec<RuleId> = ids.filter(|id| !remains(id)).collect();
        self.states.forget_rules(&gone);
        // The present rules mention their names in addition.
        let names = old.iter().filter_map(|entry| entry.state);
        names.for_each(|name| self.states.forget_name(name));
    }
}
