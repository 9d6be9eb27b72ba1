//! Rules and packets: which rules match, in which order, and that the cache changes no result.

mod cache;
mod index;
mod log_limits;
mod places;
mod probability;
mod random;
mod table_values;

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_core::Rng;

use super::*;
use crate::grammar::{self, Command};
use crate::headers::{Direction, Fragment, ICMP, ICMP6, InterfaceId, TCP, UDP};
use crate::tables::Key;

const EM0: Option<InterfaceId> = Some(InterfaceId(0));
const EM1: Option<InterfaceId> = Some(InterfaceId(1));

fn add(rules: &mut Rules, lines: &str) {
    for line in lines.lines().filter(|l| !l.trim().is_empty()) {
        let parsed = grammar::parse(line, 1, false).unwrap_or_else(|e| panic!("{line}: {e}"));
        match parsed.invocation.map(|i| i.command) {
            Some(Command::Add(rule)) => {
                rules.add(*rule, 100);
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

fn rules(lines: &str) -> Rules {
    let mut rules = Rules::new(false, KeyedHash(3));
    rules.set_interfaces(vec![
        Interface {
            name: "em0".into(),
            addresses: vec![ip(254)],
        },
        Interface {
            name: "em1".into(),
            addresses: vec![IpAddr::V6(Ipv6Addr::LOCALHOST)],
        },
    ]);
    add(&mut rules, lines);
    rules
}

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn tcp(from: u8, to: u8, port: u16) -> Headers {
    Headers {
        src_port: 40_000,
        dst_port: port,
        recv: EM0,
        ip_len: 1500,
        ..Headers::new(Direction::In, TCP, ip(from), ip(to))
    }
}

fn walk_from(rules: &mut Rules, headers: &Headers, seconds: u64, after: &Place) -> Outcome {
    let walk = Walk {
        now: Time::from_ns(seconds * 1_000_000_000),
        rng: &mut Rng::from_seed(1),
        packets: 1,
        one_pass: false,
        log: None,
    };
    rules.walk(headers, after, walk).0
}

fn walk_at(rules: &mut Rules, headers: &Headers, seconds: u64) -> Outcome {
    walk_from(rules, headers, seconds, &Place::START)
}

fn walk(rules: &mut Rules, headers: &Headers) -> Outcome {
    walk_at(rules, headers, 0)
}

/// The number of the pipe or queue that a packet enters.
fn into(rules: &mut Rules, headers: &Headers) -> Option<u32> {
    match walk(rules, headers) {
        Outcome::Into { number, .. } => Some(number),
        Outcome::Allow | Outcome::Deny => None,
    }
}

fn packets(rules: &Rules) -> Vec<u64> {
    rules.entries().iter().map(|e| e.packets).collect()
}

/// Whether a condition holds for a packet, evaluated and from the cache.
fn holds(condition: &str, headers: &Headers) -> bool {
    let mut plain = rules(&format!("add allow {condition}"));
    let answer = walk(&mut plain, headers) == Outcome::Allow;
    // Again, from the cache.
    assert_eq!(
        walk(&mut plain, headers) == Outcome::Allow,
        answer,
        "{condition} cached"
    );
    answer
}

#[test]
fn every_condition_matches_and_does_not_match() {
    let base = tcp(1, 2, 80);
    let with = |change: fn(&mut Headers)| {
        let mut headers = base.clone();
        change(&mut headers);
        headers
    };
    let v6 = Headers {
        recv: EM1,
        flow_label: 5,
        ..Headers::new(
            Direction::In,
            UDP,
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        )
    };
    let out = with(|h| {
        h.direction = Direction::Out;
        h.xmit = EM1;
    });
    let echo = with(|h| {
        h.proto = ICMP;
        h.icmp_type = Some(8);
    });
    let later = with(|h| {
        h.fragment = Fragment {
            offset: 1480,
            has_more: true,
            ..Fragment::default()
        }
    });
    for (condition, yes, no) in [
        ("tcp from any to any", &base, &v6),
        ("ip4 from any to any", &base, &v6),
        ("ip6 from any to any", &v6, &base),
        ("ip from 10.0.0.0/24 to any", &base, &v6),
        ("ip from 10.0.0.0/24{1,3} to any", &base, &tcp(2, 1, 80)),
        ("ip from not 10.0.0.1 to any", &tcp(2, 1, 80), &base),
        ("ip from 2001:db8::/32,::1 to any", &v6, &base),
        ("ip from any to me", &tcp(1, 254, 80), &base),
        ("ip from me6 to any", &v6, &tcp(254, 1, 80)),
        ("ip from any to any 80,443", &base, &tcp(1, 2, 81)),
        ("ip from any to any 80", &base, &later),
        ("ip from any 40000 to any", &base, &echo),
        ("in", &base, &out),
        ("out", &out, &base),
        ("recv em0", &base, &v6),
        ("recv em*", &base, &with(|h| h.recv = None)),
        ("xmit em1", &out, &base),
        ("via em1", &out, &base),
        ("via 10.0.0.254", &base, &out),
        ("via any", &base, &with(|h| h.recv = None)),
        ("layer2", &with(|h| h.is_layer2 = true), &base),
        ("mac-type ipv4,arp", &base, &v6),
        ("mac-type 0x86dd", &v6, &base),
        (
            "iptos lowdelay,!throughput",
            &with(|h| h.tos = 0x10),
            &with(|h| h.tos = 0x18),
        ),
        ("ipprecedence 5", &with(|h| h.tos = 5 << 5), &base),
        ("dscp ef,cs1", &with(|h| h.tos = 46 << 2 | 3), &base),
        ("iplen 1000-2000", &base, &with(|h| h.ip_len = 100)),
        ("ipid 7", &with(|h| h.ip_id = 7), &base),
        ("ipttl 1-3", &with(|h| h.ttl = 2), &base),
        ("ipversion 6", &v6, &base),
        ("frag", &later, &base),
        ("frag mf,!df", &later, &base),
        (
            "tcpflags syn,!ack",
            &with(|h| h.tcp_flags = 0x02),
            &with(|h| h.tcp_flags = 0x12),
        ),
        (
            "setup",
            &with(|h| h.tcp_flags = 0x02),
            &with(|h| h.tcp_flags = 0x12),
        ),
        (
            "established",
            &with(|h| h.tcp_flags = 0x10),
            &with(|h| h.tcp_flags = 0x02),
        ),
        ("icmptypes 0,8", &echo, &base),
        ("flow-id 5", &v6, &base),
        ("{ in or iplen 1 }", &base, &out),
        ("not in", &out, &base),
    ] {
        assert!(holds(condition, yes), "{condition} holds");
        assert!(!holds(condition, no), "{condition} does not hold");
    }
}

/// Packets that differ from one another in one field or a few.
fn various() -> Vec<Headers> {
    let base = tcp(1, 2, 80);
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let changes: &[fn(&mut Headers)] = &[
        |_| {},
        |h| h.direction = Direction::Out,
        |h| (h.direction, h.xmit) = (Direction::Out, EM1),
        |h| h.recv = None,
        |h| h.recv = EM1,
        |h| h.is_layer2 = true,
        |h| h.proto = UDP,
        |h| (h.proto, h.icmp_type) = (ICMP, Some(8)),
        |h| (h.proto, h.icmp_type) = (ICMP6, Some(135)),
        |h| (h.src_port, h.dst_port) = (5060, 443),
        |h| h.dst_port = 7,
        |h| h.tos = 46 << 2 | 1,
        |h| h.tos = 0x10,
        |h| h.tos = 5 << 5,
        |h| h.ttl = 1,
        |h| h.ip_len = 40,
        |h| h.ip_id = 7,
        |h| h.flow_label = 5,
        |h| h.fragment.offset = 1480,
        |h| h.fragment.has_more = true,
        |h| h.tcp_flags = 0x02,
        |h| h.tcp_flags = 0x12,
    ];
    let mut packets = Vec::new();
    for change in changes {
        for (src, dst) in [(ip(1), ip(2)), (ip(254), ip(1)), (v6(1), v6(2))] {
            let mut headers = Headers {
                src,
                dst,
                ..base.clone()
            };
            change(&mut headers);
            packets.push(headers);
        }
    }
    packets
}

/// An option whose answer is cached although it depends on more than the key would fail here. The
/// types already prevent such an option.
#[test]
fn the_cache_gives_every_packet_its_own_answer() {
    let packets = various();
    for option in grammar::OPTIONS {
        let example = option.example;
        for options in [
            example.to_string(),
            format!("{{ not {example} or ipid 7 }}"),
        ] {
            let mut cached = rules(&format!("add allow {options}"));
            for headers in packets.iter().chain(&packets) {
                cached.programs.invalidate();
                let expected = walk(&mut cached, headers);
                // The cache holds the answers for all other packets first.
                for other in &packets {
                    walk(&mut cached, other);
                }
                assert_eq!(
                    walk(&mut cached, headers),
                    expected,
                    "{options}: {headers:?}"
                );
            }
        }
    }
}

#[test]
fn the_first_terminal_action_ends_the_walk_and_count_continues() {
    let mut rules = rules(
        "add 10 count ip from any to any
         add 20 count udp from any to any
         add 30 pipe 5 ip from any to any dst-port 80
         add 40 allow ip from any to any",
    );
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(5));
    assert_eq!(walk(&mut rules, &tcp(1, 2, 22)), Outcome::Allow);
    assert_eq!(packets(&rules), [2, 0, 1, 1, 0]);
    assert_eq!(rules.entries()[0].bytes, 3000);
}

#[test]
fn a_packet_without_a_match_meets_the_built_in_rule() {
    let mut closed = rules("add allow udp from any to any");
    assert_eq!(walk(&mut closed, &tcp(1, 2, 80)), Outcome::Deny);
    let mut open = Rules::new(true, KeyedHash(3));
    assert_eq!(walk(&mut open, &tcp(1, 2, 80)), Outcome::Allow);
    assert_eq!(packets(&open), [1]);
}

#[test]
fn numbers_are_given_in_steps_and_equal_ones_keep_their_order() {
    let mut rules = rules(
        "add count ip from any to any
         add 50 count ip from any to any
         add count udp from any to any
         add 50 count udp from any to any
         add 65534 count ip from any to any
         add count tcp from any to any",
    );
    let numbers: Vec<u32> = rules.entries().iter().map(|e| e.number).collect();
    // Beyond the last number, the same number is used again.
    assert_eq!(numbers, [50, 50, 100, 200, 65534, 65534, 65535]);
    walk(&mut rules, &tcp(1, 2, 80));
    assert_eq!(packets(&rules), [1, 0, 1, 0, 1, 1, 1]);
}

#[test]
fn skipto_goes_forward_and_call_comes_back() {
    let mut rules = rules(
        "add 10 skipto 100 tcp from any to any
         add 20 allow ip from any to any
         add 100 call 500 ip from any to any
         add 110 pipe 1 ip from any to any
         add 500 count ip from any to any
         add 510 return ip from any to any
         add 520 deny ip from any to any",
    );
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(1));
    assert_eq!(packets(&rules), [1, 0, 1, 1, 1, 1, 0, 0]);
    let udp = Headers {
        proto: UDP,
        ..tcp(1, 2, 80)
    };
    assert_eq!(walk(&mut rules, &udp), Outcome::Allow);
}

#[test]
fn a_skipto_backwards_is_the_next_rule_and_a_loop_of_calls_ends() {
    let mut rules = rules(
        "add 100 skipto 50 ip from any to any
         add 200 allow udp from any to any
         add 300 call 100 ip from any to any",
    );
    assert_eq!(walk(&mut rules, &tcp(1, 2, 80)), Outcome::Deny);
    // At a depth of sixteen the stack is full, and the call has no effect.
    assert_eq!(rules.entries()[2].packets, 17);
    assert_eq!(rules.refused_calls, 1, "once for the packet");
}

#[test]
fn a_conditional_skipto_keeps_both_branches() {
    let mut rules = rules(
        "add 10 skipto 100 ip from any to any iplen 0-100
         add 20 pipe 1 ip from any to any
         add 100 pipe 2 ip from any to any",
    );
    let small = Headers {
        ip_len: 60,
        ..tcp(1, 2, 80)
    };
    for _ in 0..2 {
        assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(1));
        assert_eq!(into(&mut rules, &small), Some(2));
    }
}

#[test]
fn sets_are_switched_moved_and_swapped() {
    let mut rules = rules(
        "add 10 set 1 pipe 1 ip from any to any
         add 20 set 2 pipe 2 ip from any to any",
    );
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(1));
    rules.switch_sets(&[1], &[]);
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(2));
    rules.change_sets(|e| match e.rule.set {
        1 => 2,
        2 => 1,
        other => other,
    });
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(1));
    assert_eq!(rules.remove(|e| e.rule.set == 2), 1);
    assert_eq!(walk(&mut rules, &tcp(1, 2, 80)), Outcome::Deny);
    rules.switch_sets(&[], &[1]);
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(2));
}

#[test]
fn a_table_gives_its_value_and_its_changes_are_seen() {
    let mut rules = rules("add pipe tablearg ip from table(T) to any");
    let id = rules
        .tables
        .find("T")
        .expect("a rule makes the table that it names");
    let key = |text: &str| {
        let text = grammar::At::new(text.to_string(), grammar::Position::default());
        Key::read(grammar::TableKind::Addr, &text).unwrap()
    };
    assert_eq!(walk(&mut rules, &tcp(1, 2, 80)), Outcome::Deny);
    rules
        .tables
        .table_mut(id)
        .add(key("10.0.0.0/24"), vec![5], false);
    rules.tables_changed();
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(5));
    rules
        .tables
        .table_mut(id)
        .add(key("10.0.0.1/32"), vec![7], false);
    rules.tables_changed();
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(7));
    assert_eq!(into(&mut rules, &tcp(2, 2, 80)), Some(5));
}

#[test]
fn a_table_in_a_per_packet_clause_is_searched_for_each_packet() {
    let mut rules = rules("add pipe tablearg { iplen 0-100 or src-ip table(T) }");
    let id = rules.tables.find("T").unwrap();
    rules
        .tables
        .table_mut(id)
        .add(Key::V4(0x0a00_0001, 32), vec![9], false);
    rules.tables_changed();
    let small = Headers {
        ip_len: 60,
        ..tcp(1, 2, 80)
    };
    for _ in 0..2 {
        assert_eq!(into(&mut rules, &tcp(1, 2, 80)), Some(9));
        // The length matched first, so no table matched: there is no pipe 0.
        assert_eq!(into(&mut rules, &small), Some(0));
    }
}

/// Returns packets of UDP from 10.0.0.1 to port 53 of 10.0.0.2, and back.
fn a_question_and_its_answer() -> [Headers; 2] {
    let there = Headers {
        proto: UDP,
        ..tcp(1, 2, 53)
    };
    let back = Headers {
        src_port: 53,
        dst_port: 40_000,
        proto: UDP,
        ..tcp(2, 1, 53)
    };
    [there, back]
}

#[test]
fn states_let_replies_pass() {
    let mut rules = rules(
        "add 10 check-state
         add 20 pipe 3 udp from 10.0.0.1 to any keep-state
         add 30 deny ip from any to any",
    );
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk_at(&mut rules, &back, 0), Outcome::Deny);
    assert!(matches!(
        walk_at(&mut rules, &there, 1),
        Outcome::Into { number: 3, .. }
    ));
    assert!(matches!(
        walk_at(&mut rules, &back, 5),
        Outcome::Into { number: 3, .. }
    ));
    // The state expires 10 s after the last packet.
    assert_eq!(walk_at(&mut rules, &back, 16), Outcome::Deny);
    // Packets of the state count for the rule that created it.
    assert_eq!(packets(&rules), [0, 2, 2, 0]);
    rules.remove(|e| e.number == 20);
    assert_eq!(rules.states.len(), 0);
}

#[test]
fn check_state_any_finds_the_states_of_all_names_and_is_the_last_lookup() {
    let mut rules = rules(
        "add 10 check-state :any
         add 20 deny ip from 10.0.0.2 to any
         add 30 pipe 3 udp from any to any keep-state :web",
    );
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk_at(&mut rules, &back, 0), Outcome::Deny);
    assert_eq!(into(&mut rules, &there), Some(3));
    assert_eq!(into(&mut rules, &back), Some(3));
    // The state expires 10 s after its last packet.
    assert_eq!(walk_at(&mut rules, &back, 11), Outcome::Deny);
    // A rule that continues sends its packets through rule 10 again; they find no state there.
    let mut rules = self::rules(
        "add 5 count udp from 10.0.0.1 to any keep-state :one
         add 10 check-state :any
         add 20 check-state :one
         add 30 pipe 4 ip from any to any",
    );
    assert_eq!(into(&mut rules, &there), Some(4));
    assert_eq!(into(&mut rules, &back), Some(4));
    // `there` at 5, and at 10 by its new state; `back` at 5, and again at 10.
    assert_eq!(packets(&rules), [4, 0, 0, 2, 0]);
}

#[test]
fn a_rule_that_keeps_state_and_continues_resumes_behind_itself() {
    let mut rules = rules(
        "add 10 check-state
         add 20 skipto 100 udp from 10.0.0.1 to any keep-state
         add 30 deny ip from any to any
         add 100 pipe 4 ip from any to any",
    );
    let [there, back] = a_question_and_its_answer();
    assert_eq!(walk(&mut rules, &back), Outcome::Deny);
    assert_eq!(into(&mut rules, &there), Some(4));
    assert_eq!(into(&mut rules, &back), Some(4));
}

#[test]
fn a_limit_refuses_further_states() {
    let mut rules = rules("add allow udp from any to any limit src-addr 2");
    let flow = |port| Headers {
        proto: UDP,
        src_port: port,
        ..tcp(1, 2, 53)
    };
    let outcomes: Vec<Outcome> = (1..=3).map(|p| walk(&mut rules, &flow(p))).collect();
    assert_eq!(outcomes, [Outcome::Allow, Outcome::Allow, Outcome::Deny]);
    assert_eq!(walk(&mut rules, &flow(1)), Outcome::Allow);
}

/// Returns what three packets leave in the log.
fn logged(rules: &mut Rules) -> Vec<crate::log::LogEntry> {
    let mut log = Log::default();
    for _ in 0..3 {
        let mut rng = Rng::from_seed(1);
        let walk = Walk {
            now: Time::ZERO,
            rng: &mut rng,
            packets: 1,
            one_pass: true,
            log: Some(&mut log),
        };
        rules.walk(&tcp(1, 2, 80), &Place::START, walk);
    }
    log.take().0
}

#[test]
fn log_entries_stop_at_their_limit_until_it_is_reset() {
    let mut rules = rules("add 100 allow log logamount 2 ip from any to any");
    let seen = |rules: &mut Rules| {
        let entries = logged(rules);
        entries.iter().map(|entry| entry.limit).collect::<Vec<_>>()
    };
    // The last one says so.
    assert_eq!(seen(&mut rules), [None, Some(2)]);
    assert!(seen(&mut rules).is_empty());
    rules.zero(true, |e| e.number == 100);
    assert_eq!(seen(&mut rules), [None, Some(2)]);
    assert_eq!(packets(&rules), [9, 0]);
}

#[test]
fn a_rule_without_logamount_takes_the_limit_of_the_variable() {
    let mut rules = rules("");
    rules.verbose_limit = 1;
    add(
        &mut rules,
        "add 100 count log ip from any to any
         add 200 count log logamount 2 ip from any to any
         add 300 count log logamount 0 ip from any to any",
    );
    let entries = logged(&mut rules);
    let of = |number: u32| entries.iter().filter(|e| e.rule == number).count();
    // 0 means without a limit, so all of the three.
    assert_eq!([of(100), of(200), of(300)], [1, 2, 3]);
}

/// Rules for 3000 hosts, each with a pipe of its own.
fn a_pipe_for_each_host() -> String {
    let rule = |i: u32| {
        format!(
            "add {0} pipe {0} udp from any to 10.1.{1}.{2}\n",
            i + 1,
            i / 250,
            i % 250
        )
    };
    (0..3000).map(rule).collect()
}

fn to_host(i: u32) -> Headers {
    let to = IpAddr::V4(Ipv4Addr::new(10, 1, (i / 250) as u8, (i % 250) as u8));
    Headers::new(Direction::In, UDP, ip(1), to)
}

#[test]
fn among_many_rules_each_flow_finds_its_own() {
    let mut rules = rules(&a_pipe_for_each_host());
    // The first flows are evaluated without an index, the others with it.
    for i in (0..3000).step_by(60) {
        assert_eq!(into(&mut rules, &to_host(i)), Some(i + 1));
    }
    assert_eq!(into(&mut rules, &tcp(1, 2, 80)), None);
    // A change applies to the next packet.
    add(&mut rules, "add 1 skipto 2000 udp from 10.0.0.1 to any");
    assert_eq!(into(&mut rules, &to_host(60)), None);
    assert_eq!(into(&mut rules, &to_host(2040)), Some(2041));
}

#[test]
fn rules_that_replace_others_come_with_what_packets_ask_of_all_of_them() {
    let lines: String = (0..2000)
        .map(|n| {
            format!(
                "add {} deny tcp from 10.1.{}.{} to any\n",
                n + 1,
                n / 250,
                n % 250
            )
        })
        .collect();
    let lines = format!("{lines}add 3000 allow mac-type arp\nadd 4000 allow tcp from any to any");
    let read = rules(&lines);
    let mut replaced = rules("add 100 allow ip from any to any keep-state");
    replaced.replace(rules(&lines).into_ruleset());
    let mut exchanged = rules("add 100 allow ip from any to any keep-state");
    exchanged.exchange(rules(&lines).into_ruleset());
    assert!(read.programs.index.is_none());
    for mut rules in [replaced, exchanged] {
        assert!(rules.programs.index.is_some());
        assert_eq!(rules.of_frames.as_deref(), Some(&[2000][..]));
        assert_eq!(rules.has_states, Some(false));
        let mut denied = tcp(1, 2, 80);
        denied.src = [10, 1, 7, 249].into();
        assert_eq!(walk_at(&mut rules, &denied, 0), Outcome::Deny);
        denied.src = [10, 1, 7, 250].into();
        assert_eq!(walk_at(&mut rules, &denied, 0), Outcome::Allow);
        // A command changes what was asked.
        add(&mut rules, "add 1 allow ip from any to any keep-state");
        assert!(rules.programs.index.is_none());
        assert_eq!((&rules.of_frames, rules.has_states), (&None, None));
        assert!(rules.has_states());
    }
}
