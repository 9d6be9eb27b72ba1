//! Packets that left a pipe continue behind the rule that sent them.

use super::*;

#[test]
fn a_packet_continues_behind_a_rule_that_was_deleted() {
    let mut rules = rules(
        "add 10 pipe 1 ip from any to any
         add 20 pipe 2 ip from any to any
         add 30 allow ip from any to any",
    );
    let headers = tcp(1, 2, 80);
    let Outcome::Into { from, .. } = walk(&mut rules, &headers) else {
        panic!("rule 10 is a pipe");
    };
    assert!(matches!(
        walk_from(&mut rules, &headers, 0, &from),
        Outcome::Into { number: 2, .. }
    ));
    rules.remove(|e| e.number <= 20);
    assert_eq!(walk_from(&mut rules, &headers, 0, &from), Outcome::Allow);
}

#[test]
fn a_packet_that_leaves_a_pipe_does_not_enter_it_again_because_of_its_state() {
    let mut rules = rules(
        "add 10 skipto 20 tcp from any to any keep-state
         add 20 pipe 1 ip from any to any
         add 30 allow tcp from any to any 80 keep-state :web",
    );
    let headers = tcp(1, 2, 80);
    let Outcome::Into { from, .. } = walk(&mut rules, &headers) else {
        panic!("rule 20 is a pipe");
    };
    assert_eq!(walk_from(&mut rules, &headers, 0, &from), Outcome::Allow);
    assert_eq!(packets(&rules), [1, 1, 1, 0]);
}

#[test]
fn a_packet_that_leaves_a_pipe_inside_a_subroutine_returns_from_it() {
    let mut rules = rules(
        "add 10 call 100 ip from any to any
         add 20 allow ip from any to any
         add 100 call 200 ip from any to any
         add 110 return ip from any to any
         add 200 pipe 1 ip from any to any
         add 210 return ip from any to any
         add 220 deny ip from any to any",
    );
    let headers = tcp(1, 2, 80);
    let Outcome::Into { from, .. } = walk(&mut rules, &headers) else {
        panic!("rule 200 is a pipe");
    };
    assert_eq!(packets(&rules), [1, 0, 1, 0, 1, 0, 0, 0]);
    assert_eq!(walk_from(&mut rules, &headers, 0, &from), Outcome::Allow);
    assert_eq!(packets(&rules), [1, 1, 1, 1, 1, 1, 0, 0]);
    // Others are not in a subroutine.
    let other = Place {
        calls: None,
        ..from
    };
    assert_eq!(walk_from(&mut rules, &headers, 0, &other), Outcome::Deny);
}

/// Serial numbers grow by the number of rules with each reload: 20 000 rules reloaded once a minute need
/// 32 bits after 2^32 / 20 000 minutes, which are 149 days.
#[test]
fn rules_that_replace_others_are_younger_after_any_number_of_reloads() {
    let text = |last: &str| {
        rules(&format!(
            "add 10 allow udp from 10.0.0.1 to any keep-state\nadd 10 {last} ip from any to any"
        ))
    };
    let mut rules = text("count");
    rules.serial = u64::from(u32::MAX);
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk(&mut rules, &there), Outcome::Allow);
    rules.replace(text("deny").into_ruleset());
    // The first rule stays, with its state; the second one is new.
    let serials: Vec<u64> = rules.entries().iter().map(|entry| entry.serial).collect();
    assert_eq!(serials, [1, u64::from(u32::MAX) + 2, 0]);
    assert_eq!(walk(&mut rules, &back), Outcome::Allow);
}
