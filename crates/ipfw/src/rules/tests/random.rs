//! Random rules and packets: a program gives the results of the rules read one by one.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const ACTIONS: &[&str] = &[
    "allow",
    "deny",
    "count",
    "pipe 1",
    "pipe 2",
    "queue 3",
    "skipto 15",
    "skipto 25",
    "skipto 35",
    "call 20",
    "call 5",
    "return",
    "pipe tablearg",
    "skipto tablearg",
    "check-state",
    "check-state :b",
    "check-state :any",
];

/// Set 5 is disabled.
const SETS: &[&str] = &["", "", "", "set 5"];

const BODIES: &[&str] = &[
    "ip from any to any",
    "tcp from any to any",
    "udp from any to any 53",
    "ip from 10.0.0.1 to any",
    "ip from table(T) to any",
    "{ tcp or udp } from any to not 10.0.0.2",
];

const OPTIONS: &[&str] = &[
    "",
    "in",
    "out",
    "iplen 0-100",
    "not iplen 0-100",
    "setup",
    "{ in or iplen 0-100 }",
    "{ src-ip table(T) or setup }",
    "keep-state",
    "limit src-addr 1",
    "keep-state :b",
];

/// A direct interpretation of the language without programs: rule by rule, condition by condition.
fn plain_walk(rules: &mut Rules, headers: &Headers, now: Time, after: &Place) -> Outcome {
    let is_behind = |e: &Entry| after.rule == RuleId::START || e.id() > after.rule;
    let mut index = rules.entries.iter().position(is_behind).unwrap();
    let mut calls = Vec::new();
    if let Some(begun) = &after.calls {
        calls.extend(&begun.numbers[..usize::from(begun.depth)]);
    }
    let mut looked_up = Vec::new();
    let mut calls_left = MOST_CALLS_IN_ALL;
    loop {
        let env = Environment {
            interfaces: &rules.interfaces,
            own: &rules.own,
            tables: &rules.tables,
        };
        let entry = &rules.entries[index];
        let mut look = Look::new(&env);
        let mut at = index;
        let mut matches = !entry.is_disabled(rules.disabled_sets);
        let mut known = None;
        let name = entry.state.filter(|name| {
            matches && !looked_up.contains(name) && !looked_up.contains(&states::ANY)
        });
        looked_up.extend(name);
        if let Some(name) = name
            && let Some(found) = rules.states.find(headers, name, now, &rules.lifetimes)
        {
            at = rules
                .entries
                .iter()
                .position(|e| e.id() == found.rule)
                .expect("the rule exists");
            known = Some(found);
        }
        let entry = &rules.entries[at];
        if let Some(found) = known {
            let flow = FlowFields::of(headers);
            let holds = entry.compiled.holds_for_flow(&flow, &mut look);
            if !holds || !found.is_from_first || look.value == 0 {
                look.value = found.arg;
            }
        } else {
            matches = matches
                && !matches!(entry.rule.action, Action::CheckState(_))
                && entry
                    .compiled
                    .holds_for_flow(&FlowFields::of(headers), &mut look)
                && entry.compiled.holds_for_packet(headers, &mut look);
        }
        if !matches {
            index += 1;
            continue;
        }
        let (id, rule) = (entry.id(), Arc::clone(&entry.rule));
        let mut name_of_state = known.map(|found| found.name);
        if let (Some(state), Some(name), None) = (&rule.state, entry.state, known) {
            name_of_state = Some(name);
            let limit = state.limit.as_ref();
            if rules
                .states
                .add(headers, id, name, limit, now, &rules.lifetimes)
                .is_err()
            {
                return Outcome::Deny;
            }
        }
        if let Some(name) = name_of_state {
            rules.states.remember(headers, id, name, look.value);
        }
        rules.entries[at].packets += 1;
        let number_of = |target: Target| match target {
            Target::Number(n) => n,
            Target::TableArg => look.value,
        };
        let from = || {
            let mut begun = Calls {
                depth: calls.len() as u8,
                ..Calls::default()
            };
            begun.numbers[..calls.len()].copy_from_slice(&calls);
            Place {
                rule: id,
                calls: (!calls.is_empty()).then(|| Box::new(begun)),
            }
        };
        let first_at = |number: u32| {
            rules
                .entries
                .iter()
                .position(|e| e.number >= number)
                .unwrap()
        };
        index = match rule.action {
            Action::Allow => return Outcome::Allow,
            Action::Deny => return Outcome::Deny,
            Action::Pipe(t) => {
                return Outcome::Into {
                    is_pipe: true,
                    number: number_of(t),
                    from: from(),
                };
            }
            Action::Queue(t) => {
                return Outcome::Into {
                    is_pipe: false,
                    number: number_of(t),
                    from: from(),
                };
            }
            Action::SkipTo(t) => first_at(number_of(t)).max(at + 1),
            Action::Call(t) if calls.len() < MOST_CALLS && calls_left > 0 => {
                calls_left -= 1;
                calls.push(rules.entries[at].number);
                first_at(number_of(t))
            }
            Action::Return if !calls.is_empty() => {
                let number = calls.pop().expect("the stack is not empty");
                first_at(number + 1)
            }
            _ => at + 1,
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Programs and their cache give the same result as evaluating rule by rule, for any rules.
    #[test]
    fn the_cache_changes_nothing(
        lines in prop::collection::vec(
            (
                (1u32..40, prop::sample::select(SETS)),
                prop::sample::select(ACTIONS),
                prop::sample::select(BODIES),
                prop::sample::select(OPTIONS),
            ),
            0..16,
        ),
        packets in prop::collection::vec((0usize..6, 0u64..40), 1..40),
    ) {
        let lines: Vec<String> = lines
            .iter()
            .map(|((number, set), action, body, options)| {
                // A rule that only looks up states has no body.
                let (body, options) = if action.starts_with("check") { ("", "") } else { (*body, *options) };
                format!("add {number} {set} {action} {body} {options}")
            })
            .collect();
        let flows = [
            tcp(1, 2, 80),
            Headers { tcp_flags: 0x02, ip_len: 60, ..tcp(1, 2, 80) },
            Headers { src_port: 80, ..tcp(2, 1, 40_000) },
            Headers { proto: UDP, ..tcp(1, 3, 53) },
            Headers { proto: UDP, ip_len: 60, direction: Direction::Out, ..tcp(1, 3, 53) },
            Headers { proto: UDP, src_port: 53, ..tcp(3, 1, 40_000) },
        ];
        let (mut fast, mut plain) = (rules(&lines.join("\n")), rules(&lines.join("\n")));
        for rules in [&mut fast, &mut plain] {
            let id = rules.tables.find_or_create("T", grammar::TableKind::Addr);
            rules.tables.table_mut(id).add(Key::V4(0x0a00_0001, 32), vec![25], false);
            rules.tables_changed();
            rules.switch_sets(&[5], &[]);
        }
        let mut packets = packets;
        packets.sort_by_key(|(_, second)| *second);
        for (flow, second) in packets {
            let now = Time::from_ns(second * 1_000_000_000);
            let mut from = Place::START;
            // Twice through a pipe at most: a rule may send a packet back.
            for _ in 0..3 {
                let expected = plain_walk(&mut plain, &flows[flow], now, &from);
                let found = walk_from(&mut fast, &flows[flow], second, &from);
                prop_assert_eq!(&found, &expected, "{:?}", lines);
                let Outcome::Into { from: next, .. } = found else { break };
                from = next;
            }
        }
        prop_assert_eq!(super::tests::packets(&fast), super::tests::packets(&plain), "{:?}", lines);
    }
}
