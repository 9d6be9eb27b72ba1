//! Which rules a new flow evaluates.

use super::*;
use crate::rules::index::{Index, next};
use crate::visits::visits;

#[test]
fn a_flow_evaluates_the_rules_of_its_own_host() {
    let rules = rules(&a_pipe_for_each_host());
    let index = Index::new(rules.entries(), 0, Vec::new(), KeyedHash(3));
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

/// Returns how many rules the packet of a new flow looks at once there is an index: it finds those whose
/// lookups it may need, and evaluates rules.
fn looked_at(mut rules: Rules, headers: &Headers) -> usize {
    let index = rules
        .programs
        .index_of(rules.entries(), rules.disabled_sets);
    rules.programs.index = Some(Arc::clone(&index));
    let keys = visits(|| index.find(&FlowFields::of(headers), &mut Vec::new()));
    let all = visits(|| {
        walk_at(&mut rules, headers, 0);
    });
    all - keys
}

/// Only the first lookup of a name has an effect.
#[test]
fn a_flow_looks_at_the_first_rule_with_states_and_at_those_of_its_own_host() {
    // Finds the first rule with states; evaluates it and that of the host, which lets the packet pass.
    assert_eq!(looked_at(states_for_each_host(""), &to_host(1500)), 3);
    // Finds the first lookups at the start and behind the jump; evaluates the jump, the second of these
    // lookups, and the rule of the host.
    let jump = "add 10 skipto 1000 udp from any to any
        add 20 check-state
        add 30 count tcp from any to any";
    assert_eq!(looked_at(states_for_each_host(jump), &to_host(1500)), 5);
    // Finds the lookup; evaluates it and the last rule.
    let reset = "add 10 check-state";
    assert_eq!(looked_at(states_for_each_host(reset), &tcp(1, 2, 80)), 3);
    // A rule with `prob` looks up states for some packets only, so the next one is needed as well.
    let some = "add 10 prob 0.5 check-state";
    assert_eq!(looked_at(states_for_each_host(some), &tcp(1, 2, 80)), 5);
}

/// A rule in front of them keeps a flow from rules with states, and rules of disabled sets cost nothing.
#[test]
fn a_flow_that_is_denied_first_or_meets_a_disabled_set_looks_at_few_rules() {
    let mut rules = states_for_each_host("add 10 deny tcp from any to any");
    let id = |entry: &Entry| entry.number == 1000;
    rules.change_sets(|entry| if id(entry) { 5 } else { entry.rule.set });
    rules.switch_sets(&[5], &[]);
    assert_eq!(looked_at(rules, &tcp(1, 2, 80)), 1);
    let some = "add 10 deny tcp from any to any\n".to_owned()
        + &"add 20 prob 0.5 check-state\n".repeat(17);
    // All 2017 rules with states are candidates, none of which is evaluated.
    assert_eq!(looked_at(states_for_each_host(&some), &tcp(1, 2, 80)), 1);
}

/// Packets enter the rules at many places: all rules with states are evaluated, as without an index.
#[test]
fn many_places_names_or_draws_leave_all_rules_with_states_to_every_flow() {
    let count = |before: &str| looked_at(states_for_each_host(before), &to_host(1500));
    let jumps = |count: usize| "add 10 skipto 20 tcp from any to any\n".repeat(count);
    assert!(count(&jumps(64)) < 70);
    assert!(count(&jumps(65)) > 1500);
    // Each has one place where packets with a known state continue.
    let accounts = |count: u32| -> String {
        let account = |n| format!("add {} count tcp from any to any keep-state\n", 10 + n);
        (0..count).map(account).collect()
    };
    assert!(count(&accounts(64)) < 300);
    assert!(count(&accounts(65)) > 1500);
    let names = |count: u32| -> String {
        let name = |n| format!("add 10 check-state :name{n}\n");
        (0..count).map(name).collect()
    };
    // With that of the hosts.
    assert!(count(&names(15)) < 50);
    assert!(count(&names(16)) > 1500);
}
