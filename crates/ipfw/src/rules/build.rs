//! Building the program of a flow: which rules remain for it.
//!
//! The walk follows the rules as a packet would, from its start and from each place to which a rule may
//! send it, and evaluates the conditions that hold for a whole flow.

use super::Entry;
use super::index::{self, Index};
use super::program::{ANYWHERE, Step};
use super::states::ANY;
use crate::grammar::{Action, Target};
use crate::matching::flow_fields::FlowFields;
use crate::matching::{Environment, Look};
use crate::visits::visit;

/// The rules, and an index of them if there is one.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub entries: &'a [Entry],
    pub disabled_sets: u32,
    pub index: Option<&'a Index>,
}

/// Space for the walks, kept from flow to flow.
#[derive(Default)]
pub(super) struct Scratch {
    /// For each rule, the number of the last walk that visited it.
    pub visited: Vec<u32>,
    visit: u32,
    /// Likewise for each name of states.
    seen: Vec<u32>,
    candidates: Vec<u64>,
    needed: Vec<u32>,
}

/// A walk over the rules.
struct Walk {
    steps: Vec<Step>,
    /// Where the walk continues when it has come to an end.
    pending: Vec<u32>,
    /// Whether packets may pass the rules in another order than that of their numbers.
    has_jumps: bool,
    /// Whether packets may continue where the state of a flow sends them.
    is_resumable: bool,
}

/// The parts of the rules that were walked.
#[derive(Default)]
struct Runs(Vec<Run>);

/// A part that was walked from one rule to the next.
struct Run {
    from: u32,
    /// Behind the last rule that was visited.
    behind: u32,
    /// The last rule that a packet can reach from there without a jump.
    reach: u32,
}

impl Runs {
    /// Returns the last rule that a packet can reach without a jump from one that was visited.
    fn reach(&self, rule: u32) -> u32 {
        let of = self
            .0
            .iter()
            .find(|run| (run.from..run.behind).contains(&rule));
        of.expect("a walk has visited the rule").reach
    }
}

impl Scratch {
    /// Returns the steps that remain for a flow that starts at `start`, which may be [`ANYWHERE`].
    pub fn build(
        &mut self,
        rules: &Rules<'_>,
        flow: &FlowFields,
        env: &Environment<'_>,
        start: u32,
    ) -> Vec<Step> {
        let entries = rules.entries;
        self.visited.resize(entries.len(), 0);
        self.visit = self.visit.wrapping_add(1);
        if self.visit == 0 {
            self.visited.fill(0);
            self.seen.fill(0);
            self.visit = 1;
        }
        match rules.index {
            Some(index) => index.find(flow, &mut self.candidates),
            None => index::all(entries.len(), &mut self.candidates),
        }
        let has_jumps = start == ANYWHERE;
        // With these, a rule with states is a candidate only if it may match; without, all of them are.
        let mut lookups = rules.index.and_then(|index| index.lookups.as_ref());
        if has_jumps && let Some(all) = lookups.take() {
            all.add_all(&mut self.candidates);
        }
        let mut walk = Walk {
            steps: Vec::new(),
            pending: match has_jumps {
                true => (0..entries.len() as u32).collect(),
                false => vec![start],
            },
            has_jumps,
            is_resumable: false,
        };
        let mut runs = Runs::default();
        let mut look = Look::new(env);
        while let Some(from) = walk.pending.pop() {
            self.needed.clear();
            if let Some(lookups) = lookups {
                lookups.find(entries, from, &mut self.needed);
            }
            let mut needed = self.needed.iter().copied().peekable();
            let visited = &mut self.visited;
            let mut is_new = |rule: u32| {
                std::mem::replace(&mut visited[rule as usize], self.visit) != self.visit
            };
            let mut next = from;
            let reach = loop {
                let candidate = index::next(&self.candidates, next as usize);
                let rule = candidate.unwrap_or(entries.len()) as u32;
                while let Some(lookup) = needed.next_if(|lookup| *lookup < rule) {
                    if is_new(lookup) {
                        walk.look_up(rules, lookup);
                    }
                }
                if candidate.is_none() {
                    break rule;
                }
                needed.next_if_eq(&rule);
                next = rule + 1;
                if !is_new(rule) {
                    // The rules behind it are visited, but names may be looked up there that were
                    // looked up before on the other way.
                    let Some(_) = lookups else { break rule };
                    let reach = runs.reach(rule);
                    while let Some(lookup) = needed.next_if(|lookup| *lookup <= reach) {
                        if is_new(lookup) {
                            walk.look_up(rules, lookup);
                        }
                    }
                    break reach;
                }
                if walk.visit(rules, rule, flow, &mut look) {
                    break rule;
                }
            };
            if lookups.is_some() && !walk.pending.is_empty() {
                runs.0.push(Run {
                    from,
                    behind: next,
                    reach,
                });
            }
        }
        let mut steps = walk.steps;
        steps.sort_unstable_by_key(|step| step.rule);
        if !walk.has_jumps {
            drop_repeated_probes(entries, &mut steps, &mut self.seen, self.visit);
        }
        steps
    }
}

impl Walk {
    /// Evaluates a rule. Returns whether every packet of the flow leaves the sequence there.
    fn visit(
        &mut self,
        rules: &Rules<'_>,
        rule: u32,
        flow: &FlowFields,
        look: &mut Look<'_>,
    ) -> bool {
        visit();
        let entry = &rules.entries[rule as usize];
        if entry.is_disabled(rules.disabled_sets) {
            return false;
        }
        look.value = 0;
        let step = Step {
            rule,
            has_body: !matches!(entry.rule.action, Action::CheckState(_))
                && entry.compiled.holds_for_flow(flow, look),
            arg: look.value,
            asks: entry.asks(),
            probes: entry.state.is_some(),
        };
        self.add(rules, step);
        let mut leaves = || {
            leaves(
                rules.entries,
                rule as usize,
                step.arg,
                &mut self.pending,
                &mut self.has_jumps,
            )
        };
        step.has_body && leaves() && !step.asks
    }

    /// Adds the lookup of a rule that does not match.
    fn look_up(&mut self, rules: &Rules<'_>, rule: u32) {
        visit();
        let asks = rules.entries[rule as usize].asks();
        self.add(
            rules,
            Step {
                rule,
                arg: 0,
                has_body: false,
                asks,
                probes: true,
            },
        );
    }

    fn add(&mut self, rules: &Rules<'_>, step: Step) {
        if step.probes && !self.is_resumable {
            // A known state may send the packet behind any rule that creates states and continues.
            self.is_resumable = true;
            let before = self.pending.len();
            match rules.index {
                Some(index) => self.pending.extend(&index.resumptions),
                None => self.pending.extend(resumptions(rules.entries)),
            }
            self.has_jumps |= self.pending.len() > before;
        }
        if step.has_body || step.probes {
            self.steps.push(step);
        }
    }
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
pub(super) fn resumptions(entries: &[Entry]) -> Vec<u32> {
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
    places.sort_unstable();
    places.dedup();
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
            if step.probes && entry.is_for_all() {
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
