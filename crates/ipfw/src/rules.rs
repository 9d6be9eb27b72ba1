//! The rules: their order, sets and counters, and how a packet walks through them.

mod build;
pub(crate) mod compiled;
mod forgetting;
mod frames;
mod index;
pub(crate) mod program;
mod ruleset;
pub(crate) mod states;

use std::net::IpAddr;
use std::sync::Arc;

use sluice_core::Rng;
use sluice_core::units::Time;

use crate::grammar::{Action, LAST_RULE, RESERVED_SET, Rule, Target};
use crate::hash::KeyedHash;
use crate::headers::{Direction, Headers, Interface};
use crate::log::{self, Log, LogEntry};
use crate::matching::flow_fields::{FlowFields, ProgramKey};
use crate::matching::{Environment, Look};
use crate::tables::Tables;
use build::{first_at, skip_target};
use compiled::Compiled;
use program::{Cached, Programs, Step};
pub(crate) use ruleset::{Ruleset, RulesetCopy, Saved};
use states::{Lifetimes, LookedUp, States};

/// Identifies a rule: by its number, and by its age among rules of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RuleId {
    pub number: u32,
    pub serial: u64,
}

impl RuleId {
    /// Sorts before every rule.
    pub const START: RuleId = RuleId {
        number: 0,
        serial: 0,
    };
}

/// A rule, compiled for packets, with its counters.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub number: u32,
    pub serial: u64,
    pub rule: Arc<Rule>,
    pub compiled: Arc<Compiled>,
    /// Probability in units of 2^-32; `1 << 32` is certain.
    prob: u64,
    /// The name of the states that the rule looks up.
    pub state: Option<u32>,
    pub packets: u64,
    pub bytes: u64,
    pub last_match: Option<Time>,
    /// Log entries left; `None` means no limit.
    log_left: Option<LogLeft>,
}

/// The log entries that a rule may still make, and how many it may make between two resets.
#[derive(Clone, Copy, Debug)]
struct LogLeft {
    left: u32,
    of: u32,
}

impl LogLeft {
    /// Returns what is left of this limit behind the entries that a rule has made under the limit
    /// `before`. Without a limit, nobody has counted them.
    fn behind(self, before: Option<LogLeft>) -> LogLeft {
        let made = before.map_or(0, |log| log.of - log.left);
        LogLeft {
            left: self.of.saturating_sub(made),
            of: self.of,
        }
    }
}

/// The result of a walk through the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allow,
    Deny,
    /// The packet enters a pipe or a queue. When it leaves, the rules behind this one may apply.
    Into {
        is_pipe: bool,
        number: u32,
        from: Place,
    },
}

/// The place in the rules from which a packet was sent into a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub rule: RuleId,
    /// The calls under way; `None` outside a subroutine.
    pub calls: Option<Box<Calls>>,
}

/// The numbers of the rules whose `call` has not yet returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    numbers: [u32; MOST_CALLS],
    depth: u8,
}

impl Place {
    /// In front of all rules.
    pub const START: Place = Place {
        rule: RuleId::START,
        calls: None,
    };
}

impl Calls {
    /// Enters a subroutine; `false` if the stack is full.
    fn push(&mut self, number: u32) -> bool {
        let Some(free) = self.numbers.get_mut(usize::from(self.depth)) else {
            return false;
        };
        *free = number;
        self.depth += 1;
        true
    }

    fn pop(&mut self) -> Option<u32> {
        self.depth = self.depth.checked_sub(1)?;
        Some(std::mem::take(&mut self.numbers[usize::from(self.depth)]))
    }
}

/// The context of a walk.
pub(crate) struct Walk<'a> {
    pub now: Time,
    pub rng: &'a mut Rng,
    /// The number of wire packets in the handle.
    pub packets: u16,
    /// Whether a packet that leaves a pipe passes, instead of meeting the rules behind it.
    pub one_pass: bool,
    /// Receives the entries of `log` rules, if the host wants them.
    pub log: Option<&'a mut Log>,
}

/// All rules in order. The last one is the built-in rule 65535.
pub(crate) struct Rules {
    entries: Vec<Entry>,
    serial: u64,
    disabled_sets: u32,
    pub tables: Tables,
    pub states: States,
    pub lifetimes: Lifetimes,
    /// Log entries of a `log` rule that gives no number; 0 means no limit.
    pub verbose_limit: u32,
    interfaces: Vec<Interface>,
    own: Vec<IpAddr>,
    programs: Programs,
    /// The places of the rules for frames that are not IP; `None` after a change.
    of_frames: Option<Box<[usize]>>,
    /// Whether a rule has states; `None` after a change.
    has_states: Option<bool>,
    /// Packets with a `call` that had no effect.
    pub refused_calls: u64,
}

/// Returns whether an entry creates states or looks them up.
fn any_has_states(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.state.is_some())
}

/// The deepest nesting of `call`, as in ipfw.
pub(crate) const MOST_CALLS: usize = 16;
/// The most calls of one packet. Further calls belong to a loop and have no effect.
const MOST_CALLS_IN_ALL: u32 = 1024;
/// The number of the built-in rule.
pub(crate) const DEFAULT_RULE: u32 = 65535;

impl Rules {
    pub fn new(accepts_by_default: bool, hash: KeyedHash) -> Self {
        let action = if accepts_by_default {
            Action::Allow
        } else {
            Action::Deny
        };
        let mut tables = Tables::default();
        let rule = Rule {
            set: RESERVED_SET,
            ..Rule::new(action)
        };
        let compiled = Compiled::new(&rule, &[], &mut tables);
        let default = Entry {
            number: DEFAULT_RULE,
            serial: 0,
            rule: Arc::new(rule),
            compiled: Arc::new(compiled),
            prob: 1 << 32,
            state: None,
            packets: 0,
            bytes: 0,
            last_match: None,
            log_left: None,
        };
        Rules {
            entries: vec![default],
            serial: 0,
            disabled_sets: 0,
            tables,
            states: States::new(hash),
            lifetimes: Lifetimes::default(),
            verbose_limit: 0,
            interfaces: Vec::new(),
            own: Vec::new(),
            programs: Programs::new(hash),
            of_frames: None,
            has_states: None,
            refused_calls: 0,
        }
    }

    /// Must be called after every change of a rule.
    fn changed(&mut self) {
        self.programs.invalidate();
        self.of_frames = None;
        self.has_states = None;
    }

    /// Returns the rules in order; the built-in one is last.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the name of the interface of a packet's pass; empty if there is none.
    pub fn interface_of(&self, headers: &Headers) -> String {
        let id = match headers.direction {
            Direction::In => headers.recv,
            Direction::Out => headers.xmit,
        };
        let found = id.and_then(|id| self.interfaces.get(usize::from(id.0)));
        found.map_or(String::new(), |interface| interface.name.clone())
    }

    /// Replaces the host's interfaces.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>) {
        self.own = interfaces
            .iter()
            .flat_map(|i| i.addresses.iter().copied())
            .collect();
        self.own.sort_unstable();
        self.own.dedup();
        self.interfaces = interfaces;
        for entry in &mut self.entries {
            let compiled = Compiled::new(&entry.rule, &self.interfaces, &mut self.tables);
            entry.compiled = Arc::new(compiled);
        }
        self.changed();
    }

    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Must be called after every change of a table.
    pub fn tables_changed(&mut self) {
        self.programs.forget_flows();
    }

    /// Adds a rule and returns its number.
    pub fn add(&mut self, rule: Rule, step: u32) -> u32 {
        let number = match rule.number {
            Some(number) => number.value,
            None => {
                let last = self.entries.iter().rev().nth(1).map_or(0, |e| e.number);
                let next = last + step;
                if next > LAST_RULE { last } else { next }
            }
        };
        self.serial += 1;
        let compiled = Compiled::new(&rule, &self.interfaces, &mut self.tables);
        let state = state_name(&rule).map(|name| self.states.name(name));
        let entry = Entry {
            number,
            serial: self.serial,
            prob: rule.prob.map_or(1 << 32, |p| p.as_fixed(32)),
            state,
            packets: 0,
            bytes: 0,
            last_match: None,
            log_left: self.log_limit(&rule),
            rule: Arc::new(rule),
            compiled: Arc::new(compiled),
        };
        // Behind the rules of the same number.
        let at = self
            .entries
            .partition_point(|e| e.number <= number && e.number != DEFAULT_RULE);
        self.entries.insert(at, entry);
        self.changed();
        number
    }

    fn log_limit(&self, rule: &Rule) -> Option<LogLeft> {
        let of = rule
            .log
            .map_or(0, |log| log.amount.unwrap_or(self.verbose_limit));
        (of > 0).then_some(LogLeft { left: of, of })
    }

    /// Returns whether a rule creates states or looks them up.
    pub fn has_states(&mut self) -> bool {
        let entries = &self.entries;
        *self
            .has_states
            .get_or_insert_with(|| any_has_states(entries))
    }

    /// Removes the rules for which `is_meant` holds. Returns their number.
    pub fn remove(&mut self, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let before = self.entries.len();
        let (mut gone, mut names) = (Vec::new(), Vec::new());
        self.entries.retain(|entry| {
            let goes = entry.number != DEFAULT_RULE && is_meant(entry);
            if goes && entry.rule.state.is_some() {
                gone.push(entry.id());
            }
            if goes {
                names.extend(entry.state);
            }
            !goes
        });
        self.states.forget_rules(&gone);
        names
            .into_iter()
            .for_each(|name| self.states.forget_name(name));
        let removed = before - self.entries.len();
        if removed > 0 {
            self.changed();
        }
        removed
    }

    /// Resets the counters of the rules for which `is_meant` holds, or only their `log` counts, and
    /// returns the number of these rules.
    pub fn zero(&mut self, log_only: bool, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let mut count = 0;
        for index in 0..self.entries.len() {
            if !is_meant(&self.entries[index]) {
                continue;
            }
            count += 1;
            let log_left = self.log_limit(&Arc::clone(&self.entries[index].rule));
            let entry = &mut self.entries[index];
            entry.log_left = log_left;
            if !log_only {
                entry.packets = 0;
                entry.bytes = 0;
                entry.last_match = None;
            }
        }
        count
    }

    /// Moves rules to the set that `set` returns. Returns the number of rules that changed.
    pub fn change_sets(&mut self, set: impl Fn(&Entry) -> u8) -> usize {
        let mut count = 0;
        for entry in self.entries.iter_mut().filter(|e| e.number != DEFAULT_RULE) {
            let new = set(entry);
            if new != entry.rule.set {
                Arc::make_mut(&mut entry.rule).set = new;
                count += 1;
            }
        }
        self.changed();
        count
    }

    pub fn switch_sets(&mut self, disable: &[u8], enable: &[u8]) {
        for set in disable {
            self.disabled_sets |= 1 << set;
        }
        for set in enable {
            self.disabled_sets &= !(1 << set);
        }
        self.changed();
    }

    pub fn is_set_disabled(&self, set: u8) -> bool {
        set != RESERVED_SET && self.disabled_sets >> set & 1 == 1
    }

    /// Stores a hint with the flow whose packet was walked last.
    pub fn leave_hint(&mut self, place: u32, hint: u32) {
        self.programs.leave_hint(place, hint);
    }

    /// Walks a packet through the rules behind `after`. Returns the result and the flow's slot in
    /// the cache.
    pub fn walk(&mut self, headers: &Headers, after: &Place, walk: Walk<'_>) -> (Outcome, Cached) {
        let start = if after.rule == RuleId::START {
            0
        } else {
            self.entries.partition_point(|e| e.id() <= after.rule) as u32
        };
        // `return` leads to rules in front of this place.
        let anywhere = after.calls.as_ref().map(|_| program::ANYWHERE);
        let cached = self.cached(headers, anywhere.unwrap_or(start));
        let calls = after.calls.as_deref().cloned().unwrap_or_default();
        let outcome = self.run(cached.program, start, calls, headers, walk);
        (outcome, cached)
    }

    /// Calls `visit` for each pipe (`true`) or queue that this flow may enter in this pass. Returns
    /// whether the list is complete: it is not where states, or tables that each packet is tested
    /// against, decide.
    pub fn targets(&mut self, headers: &Headers, mut visit: impl FnMut(bool, u32)) -> bool {
        let program = self.cached(headers, 0).program;
        for step in self.programs.steps(program).iter() {
            if step.probes {
                return false;
            }
            let entry = &self.entries[step.rule as usize];
            let (is_pipe, target) = match entry.rule.action {
                Action::Pipe(target) => (true, target),
                Action::Queue(target) => (false, target),
                _ => continue,
            };
            match target {
                Target::Number(number) => visit(is_pipe, number),
                Target::TableArg if entry.asks_for_arg() => return false,
                Target::TableArg => visit(is_pipe, step.arg),
            }
        }
        true
    }

    /// Returns the place in the cache where a flow would be.
    pub fn place(&self, key: &ProgramKey) -> usize {
        self.programs.place(key)
    }

    /// Prefetches what [`Rules::hint`] reads.
    #[inline]
    pub fn prefetch_hint(&self, place: usize) {
        self.programs.prefetch_find(place);
    }

    /// Returns the hint stored with a flow at its place, if there is one.
    #[inline]
    pub fn hint(&self, key: &ProgramKey, place: usize) -> Option<u32> {
        let cached = self.programs.find_at(key, 0, place)?;
        (cached.hint != program::NO_HINT).then_some(cached.hint)
    }

    /// Returns the program of a flow for the rules from `start` on.
    fn cached(&mut self, headers: &Headers, start: u32) -> Cached {
        let key = ProgramKey::of(headers);
        if let Some(cached) = self.programs.find(&key, start) {
            return self.programs.keep(cached);
        }
        let env = Environment {
            interfaces: &self.interfaces,
            own: &self.own,
            tables: &self.tables,
        };
        let disabled = self.disabled_sets;
        let steps = self.programs.build(
            &self.entries,
            disabled,
            &FlowFields::of(headers),
            &env,
            start,
        );
        self.programs.insert(key, start, steps)
    }

    /// Runs a program from the rule at `start` on, inside `calls`.
    fn run(
        &mut self,
        program: u32,
        start: u32,
        mut calls: Calls,
        headers: &Headers,
        mut walk: Walk<'_>,
    ) -> Outcome {
        let steps: &[Step] = self.programs.steps(program);
        // Rules in front of it are in the program if a state, or `return`, may lead there.
        let mut at = match start {
            0 => 0,
            start => steps.partition_point(|step| step.rule < start),
        };
        let env = Environment {
            interfaces: &self.interfaces,
            own: &self.own,
            tables: &self.tables,
        };
        let entries = &mut self.entries;
        let mut looked_up = LookedUp::default();
        let mut calls_left = MOST_CALLS_IN_ALL;
        let mut is_refused = false;
        self.states.wire_packets = walk.packets;
        while let Some(step) = steps.get(at) {
            let mut index = step.rule as usize;
            // `prob` comes before all else, also before the lookup of states.
            let prob = entries[index].prob;
            if prob < 1 << 32 && !walk.rng.chance(prob) {
                at += 1;
                continue;
            }
            let mut arg = step.arg;
            let found = match entries[index]
                .state
                .filter(|name| step.probes && looked_up.is_new(*name))
            {
                Some(name) => self.states.find(headers, name, walk.now, &self.lifetimes),
                None => None,
            };
            let parent = found.and_then(|found| {
                let parent = entries.binary_search_by_key(&found.rule, Entry::id);
                Some((parent.ok()?, found))
            });
            debug_assert_eq!(
                found.is_some(),
                parent.is_some(),
                "states are removed with the rule that created them"
            );
            if let Some((parent, found)) = parent {
                index = parent;
                arg = found.arg;
                let compiled = &entries[index].compiled;
                // A changed value of the table applies from the next packet of the first sender on.
                if compiled.table_arg.is_some() && found.is_from_first {
                    let mut look = Look::new(&env);
                    let holds = compiled.holds_for_flow(&FlowFields::of(headers), &mut look);
                    if holds && look.value != 0 {
                        arg = look.value;
                        self.states.remember(headers, found.rule, found.name, arg);
                    }
                }
            } else {
                let entry = &entries[index];
                let mut look = Look::new(&env);
                look.value = arg;
                let matches = step.has_body
                    && (!step.asks || entry.compiled.holds_for_packet(headers, &mut look));
                if !matches {
                    at += 1;
                    continue;
                }
                arg = look.value;
                if let (Some(state), Some(name)) = (&entry.rule.state, entry.state) {
                    looked_up.is_new(name);
                    let id = entry.id();
                    let limit = state.limit.as_ref();
                    let added =
                        self.states
                            .add(headers, id, name, limit, walk.now, &self.lifetimes);
                    if added.is_err() {
                        return Outcome::Deny;
                    }
                    if entry.compiled.table_arg.is_some() {
                        self.states.remember(headers, id, name, arg);
                    }
                }
            }
            let entry = &mut entries[index];
            entry.count(headers, &mut walk);
            let number_of = |target: Target| match target {
                Target::Number(n) => n,
                Target::TableArg => arg,
            };
            let next = match entry.rule.action {
                Action::Allow => return Outcome::Allow,
                Action::Deny => return Outcome::Deny,
                Action::Pipe(target) | Action::Queue(target) => {
                    return Outcome::Into {
                        is_pipe: matches!(entry.rule.action, Action::Pipe(_)),
                        number: number_of(target),
                        from: Place {
                            rule: entry.id(),
                            calls: (calls.depth > 0 && !walk.one_pass).then(|| Box::new(calls)),
                        },
                    };
                }
                Action::Count | Action::CheckState(_) => index as u32 + 1,
                Action::SkipTo(target) => skip_target(entries, index, number_of(target)),
                Action::Call(target) if calls_left > 0 && calls.push(entry.number) => {
                    calls_left -= 1;
                    first_at(entries, number_of(target))
                }
                Action::Call(_) => {
                    if !is_refused {
                        self.refused_calls += 1;
                    }
                    is_refused = true;
                    index as u32 + 1
                }
                Action::Return => match calls.pop() {
                    Some(number) => first_at(entries, number + 1),
                    // There is nothing to return to.
                    None => index as u32 + 1,
                },
            };
            at = if next == step.rule + 1 {
                at + 1
            } else {
                steps.partition_point(|s| s.rule < next)
            };
        }
        Outcome::Deny
    }
}

/// Returns the name of the states that a rule looks up.
fn state_name(rule: &Rule) -> Option<&str> {
    match (&rule.action, &rule.state) {
        (Action::CheckState(flow), _) => Some(flow),
        (_, Some(state)) => Some(&state.flow),
        _ => None,
    }
}

impl Entry {
    pub const fn id(&self) -> RuleId {
        RuleId {
            number: self.number,
            serial: self.serial,
        }
    }

    fn take_counters(&mut self, from: &Entry) {
        (self.packets, self.bytes) = (from.packets, from.bytes);
        self.last_match = from.last_match;
        self.log_left = self.log_left.map(|log| log.behind(from.log_left));
    }

    fn is_disabled(&self, disabled_sets: u32) -> bool {
        let set = self.rule.set;
        self.number != DEFAULT_RULE && set != RESERVED_SET && disabled_sets >> set & 1 == 1
    }

    /// Whether packets must be tested individually, beyond the flow.
    fn asks(&self) -> bool {
        !self.is_for_all() || !self.compiled.per_packet.is_empty()
    }

    /// Whether no random draw excepts packets from the rule, and so from its lookup of states.
    const fn is_for_all(&self) -> bool {
        self.prob >= 1 << 32
    }

    /// Whether the table's value depends on the packet.
    fn asks_for_arg(&self) -> bool {
        self.compiled.table_arg.is_some() && self.compiled.constant.is_empty()
    }

    fn count(&mut self, headers: &Headers, walk: &mut Walk<'_>) {
        self.packets += u64::from(walk.packets);
        self.bytes += u64::from(headers.ip_len);
        self.last_match = Some(walk.now);
        if self.rule.log.is_none() || self.log_left.is_some_and(|log| log.left == 0) {
            return;
        }
        if let Some(log) = &mut walk.log {
            let mut limit = None;
            if let Some(log) = &mut self.log_left {
                log.left -= 1;
                limit = (log.left == 0).then_some(log.of);
            }
            log.push(|| LogEntry {
                at: walk.now,
                rule: self.number,
                action: log::action(&self.rule.action),
                headers: headers.clone(),
                interface: String::new(),
                limit,
            });
        }
    }
}

#[cfg(test)]
mod tests;
