//! Which rules a new flow evaluates.

use super::*;
use crate::rules::index::{Index, next};
use crate::visits::visits;

#[test]
fn a_flow_evaluates_the_rules_of_its_own_host() {
    let rules = rules(&a_pipe_for_each_host());
    let index = Index::new(rules.entries(), Vec::new(), KeyedHash(3));
    let mut candidates = Vec::new();
    index.find(&FlowFields::of(&to_host(1500)), &mut candidates);
    let first = next(&candidates, 0);
    assert_eq!(first, Some(1500));
    // The built-in rule matches everything.
    assert_eq!(next(&candidates, 1501), Some(3000));
}

/// Rules with states for 2000 hosts, between `before` and a rule for all.
fn states_for_each_host(before: &str) -> Rules {
    let rule = |i: u32| {
        let (high, low) = (i / 250, i % 250);
        format!("add 1000 allow udp from any to 10.1.{high}.{low} keep-state\n")
    };
    let hosts: String = (0..2000).map(rule).collect();
    rules(&format!(
        "{before}\n{hosts}add 2000 allow ip from any to any"
    ))
}

/// Returns how many rules the packet of a new flow evaluates once there is an index.
fn evaluated(mut rules: Rules, headers: &Headers) -> usize {
    rules.programs.index = Some(rules.programs.index_of(rules.entries()));
    let before = visits(|| {
        let mut candidates = Vec::new();
        let index = rules.programs.index.clone().expect("there is one");
        index.find(&FlowFields::of(headers), &mut candidates);
    });
    let all = visits(|| {
        walk_at(&mut rules, headers, 0);
    });
    all - before
}

/// Only the first lookup of a name has an effect.
#[test]
fn a_flow_evaluates_the_first_rule_with_states_and_those_of_its_own_host() {
    // The first rule with states, that of the host, which lets the packet pass.
    assert_eq!(evaluated(states_for_each_host(""), &to_host(1500)), 2);
    // The rule that jumps, that of the host, and the first lookup behind the jump.
    let jumps = "add 10 skipto 1000 udp from any to any\nadd 20 check-state\nadd 30 count tcp from any to any";
    assert_eq!(evaluated(states_for_each_host(jumps), &to_host(1500)), 3);
    // The lookup, and the last rule.
    let reset = "add 10 check-state";
    assert_eq!(evaluated(states_for_each_host(reset), &tcp(1, 2, 80)), 2);
    // A rule with `prob` looks up states for some packets only, so the next one is needed as well.
    let some = "add 10 prob 0.5 check-state";
    assert_eq!(evaluated(states_for_each_host(some), &tcp(1, 2, 80)), 3);
}
