//! The limit of log entries of rules that replace others, as a reload does.

use super::*;

/// A rule that logs up to the limit of the variable.
fn limited_to(limit: u32) -> Rules {
    let mut rules = rules("");
    rules.verbose_limit = limit;
    add(&mut rules, "add 100 count log ip from any to any");
    rules
}

#[test]
fn a_new_limit_applies_to_a_rule_that_stays() {
    let mut rules = limited_to(2);
    let mut seen = |new: Option<u32>| {
        if let Some(new) = new {
            rules.replace(limited_to(new).into_ruleset());
        }
        let entries = logged(&mut rules);
        entries.iter().map(|entry| entry.limit).collect::<Vec<_>>()
    };
    // Three packets each time. The entry that reaches the limit says so.
    assert_eq!(seen(None), [None, Some(2)]);
    assert!(seen(Some(2)).is_empty());
    // 2 of 5 are made, and then 5 of 4.
    assert_eq!(seen(Some(5)), [None, None, Some(5)]);
    assert!(seen(Some(4)).is_empty());
    // 0 is no limit, and its entries are not counted.
    assert_eq!(seen(Some(0)), [None; 3]);
    assert_eq!(seen(Some(1)), [Some(1)]);
}

#[test]
fn an_amended_copy_keeps_the_count() {
    let mut rules = limited_to(2);
    assert_eq!(logged(&mut rules).len(), 2);
    let mut copy = RulesetCopy::default();
    while rules.copy_piece(&mut copy) {}
    let copy = rules.ruleset_of(copy);
    rules.exchange(copy);
    assert_eq!(logged(&mut rules).len(), 0);
}
