//! `tablearg` in rules that keep state: the flow has one value in both directions.

use super::*;

/// The address of `ip(last)` as a key.
fn host(last: u8) -> Key {
    Key::V4(0x0a00_0000 | u32::from(last), 32)
}

/// Gives a host this value in table T.
fn set(rules: &mut Rules, last: u8, value: u32) {
    let id = rules.tables.find("T").expect("a rule names the table");
    let table = rules.tables.table_mut(id);
    table.add(host(last), vec![value], true);
    rules.tables_changed();
}

#[test]
fn both_directions_have_the_value_of_the_first_packet() {
    let mut rules = rules("add pipe tablearg ip from table(T) to any keep-state");
    set(&mut rules, 1, 5);
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk(&mut rules, &back), Outcome::Deny);
    assert_eq!(into(&mut rules, &there), Some(5));
    assert_eq!(into(&mut rules, &back), Some(5));
    // The other end has a value of its own, for flows that it begins.
    set(&mut rules, 2, 6);
    assert_eq!(into(&mut rules, &back), Some(5));
    // A new value applies to both directions from the next packet of the first sender on.
    set(&mut rules, 1, 7);
    assert_eq!(into(&mut rules, &back), Some(5));
    assert_eq!(into(&mut rules, &there), Some(7));
    assert_eq!(into(&mut rules, &back), Some(7));
    // Without an entry, the flow keeps the value as long as its state.
    let id = rules.tables.find("T").unwrap();
    rules.tables.table_mut(id).remove(&host(1));
    rules.tables_changed();
    assert_eq!(into(&mut rules, &there), Some(7));
    assert_eq!(into(&mut rules, &back), Some(7));
}

#[test]
fn a_jump_leads_both_directions_to_the_same_rule() {
    let mut rules = rules(
        "add 10 skipto tablearg udp from table(T) to any keep-state
         add 20 deny ip from any to any
         add 30 pipe 4 ip from any to any",
    );
    set(&mut rules, 1, 30);
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk(&mut rules, &back), Outcome::Deny);
    assert_eq!(into(&mut rules, &there), Some(4));
    assert_eq!(into(&mut rules, &back), Some(4));
}

#[test]
fn a_value_that_one_packet_found_holds_for_the_flow() {
    let mut rules = rules("add pipe tablearg { iplen 0-100 or src-ip table(T) } keep-state");
    set(&mut rules, 1, 9);
    let [there, back] = a_question_and_its_answer();
    assert_eq!(into(&mut rules, &there), Some(9));
    let small = |packet: &Headers| Headers {
        ip_len: 60,
        ..packet.clone()
    };
    for packet in [&there, &back] {
        assert_eq!(into(&mut rules, packet), Some(9));
        assert_eq!(into(&mut rules, &small(packet)), Some(9));
    }
}
