use super::*;
use crate::headers::Direction;
use crate::visits::visits;
use std::net::{Ipv4Addr, Ipv6Addr};

const RULE: RuleId = RuleId {
    number: 100,
    serial: 1,
};

/// `limit src-addr 2`.
const PER_SOURCE: StateLimit = StateLimit {
    by_source: true,
    by_source_port: false,
    by_destination: false,
    by_destination_port: false,
    most: 2,
};

fn headers(proto: u8, from: (u8, u16), to: (u8, u16), flags: u8) -> Headers {
    let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    Headers {
        src_port: from.1,
        dst_port: to.1,
        tcp_flags: flags,
        ip_len: 100,
        ..Headers::new(Direction::In, proto, ip(from.0), ip(to.0))
    }
}

fn at(seconds: u64) -> Time {
    Time::from_ns(seconds * 1_000_000_000)
}

#[test]
fn a_state_covers_both_directions_for_its_lifetime() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let name = states.name("default");
    let there = headers(UDP, (1, 1000), (2, 53), 0);
    let back = headers(UDP, (2, 53), (1, 1000), 0);
    assert_eq!(states.add(&there, RULE, name, None, at(0), &times), Ok(()));
    let found = |is_from_first| {
        Some(Found {
            rule: RULE,
            name,
            arg: 0,
            is_from_first,
        })
    };
    assert_eq!(states.find(&back, name, at(9), &times), found(false));
    // The reply at 9 s restarted the 10 s.
    assert_eq!(states.find(&there, name, at(18), &times), found(true));
    assert_eq!(states.find(&there, name, at(28), &times), None);
    assert_eq!(states.len(), 0);
}

#[test]
fn a_state_remembers_the_value_of_its_rule_only() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let (a, b) = (states.name("a"), states.name("b"));
    let there = headers(UDP, (1, 1000), (2, 53), 0);
    let back = headers(UDP, (2, 53), (1, 1000), 0);
    states.add(&there, RULE, a, None, at(0), &times).unwrap();
    states.remember(&there, RULE, a, 5);
    let other = RuleId { serial: 2, ..RULE };
    states.remember(&there, other, a, 6);
    states.remember(&there, RULE, b, 7);
    let arg = |packet| Some(states.find(packet, a, at(1), &times)?.arg);
    assert_eq!([&there, &back].map(arg), [Some(5); 2]);
}

#[test]
fn names_separate_states() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let (a, b) = (states.name("a"), states.name("b"));
    let packet = headers(UDP, (1, 1000), (2, 53), 0);
    states.add(&packet, RULE, a, None, at(0), &times).unwrap();
    assert_eq!(states.find(&packet, b, at(1), &times), None);
}

#[test]
fn a_connection_lives_by_its_flags() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let name = states.name("default");
    let there = |flags| headers(TCP, (1, 1000), (2, 80), flags);
    let back = |flags| headers(TCP, (2, 80), (1, 1000), flags);
    let expires = |states: &States| states.list(at(0), true)[0].expires;
    states
        .add(&there(SYN), RULE, name, None, at(0), &times)
        .unwrap();
    assert_eq!(expires(&states), at(20));
    states.find(&back(SYN | 0x10), name, at(1), &times);
    assert_eq!(expires(&states), at(301));
    states.find(&there(FIN | 0x10), name, at(2), &times);
    assert_eq!(expires(&states), at(302));
    states.find(&back(FIN | 0x10), name, at(3), &times);
    assert_eq!(expires(&states), at(4));
}

#[test]
fn a_limit_counts_states_that_live() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let name = states.name("default");
    let mut add = |port, second| {
        let packet = headers(UDP, (1, port), (2, 53), 0);
        states.add(&packet, RULE, name, Some(&PER_SOURCE), at(second), &times)
    };
    assert_eq!(add(1, 0), Ok(()));
    assert_eq!(add(2, 5), Ok(()));
    assert_eq!(add(3, 6), Err(Refused::Limit));
    // The first state expires after 10 s.
    assert_eq!(add(3, 11), Ok(()));
    states.forget_rules(&[RULE]);
    assert_eq!((states.len(), states.groups.members.len()), (0, 0));
}

/// `dyn_lookup_ipv4_parent` of ipfw compares the protocol, too; IPv6 has groups of its own.
#[test]
fn a_limit_counts_each_protocol_and_version_of_ip_by_itself() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let name = states.name("default");
    let limit = StateLimit {
        by_source: false,
        by_source_port: true,
        most: 1,
        ..PER_SOURCE
    };
    let mut add = |packet: &Headers| states.add(packet, RULE, name, Some(&limit), at(0), &times);
    let udp = |from| headers(UDP, (from, 7), (2, 53), 0);
    assert_eq!(add(&udp(1)), Ok(()));
    assert_eq!(add(&headers(TCP, (1, 7), (2, 53), SYN)), Ok(()));
    let six = Headers {
        src: Ipv6Addr::LOCALHOST.into(),
        dst: Ipv6Addr::UNSPECIFIED.into(),
        ..udp(1)
    };
    assert_eq!(add(&six), Ok(()));
    assert_eq!(add(&udp(3)), Err(Refused::Limit));
}

/// TCP from many addresses to one.
fn from(source: u32, flags: u8) -> Headers {
    Headers {
        src: IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + source)),
        ..headers(TCP, (1, 1000), (2, 80), flags)
    }
}

fn few(most: u32) -> Lifetimes {
    Lifetimes {
        most,
        ..Lifetimes::default()
    }
}

#[test]
fn a_connection_seen_from_the_middle_is_half_open_until_it_is_answered() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let name = states.name("default");
    let there = headers(TCP, (1, 1000), (2, 80), 0x10);
    let back = headers(TCP, (2, 80), (1, 1000), 0x10);
    states.add(&there, RULE, name, None, at(0), &times).unwrap();
    // dyn_syn_lifetime is 20 s, dyn_ack_lifetime 300 s.
    assert_eq!(states.list(at(0), true)[0].expires, at(20));
    states.find(&back, name, at(1), &times);
    assert_eq!(states.list(at(0), true)[0].expires, at(301));
}

#[test]
fn a_flood_of_half_open_connections_leaves_open_ones_alone() {
    let mut states = States::new(KeyedHash(1));
    let times = few(100);
    let name = states.name("default");
    // 40 open connections, then a flood: the last 60 of it stay.
    for n in 0..40 {
        let there = from(n, SYN);
        let back = Headers {
            src: there.dst,
            dst: there.src,
            src_port: there.dst_port,
            dst_port: there.src_port,
            ..there.clone()
        };
        states.add(&there, RULE, name, None, at(0), &times).unwrap();
        states.find(&back, name, at(0), &times).unwrap();
    }
    for n in 1000..2000 {
        let added = states.add(&from(n, SYN), RULE, name, None, at(1), &times);
        assert_eq!(added, Ok(()));
    }
    assert_eq!(states.len(), 100);
    let lives = |states: &mut States, n| states.find(&from(n, 0x10), name, at(2), &times);
    assert!((0..40).all(|n| lives(&mut states, n).is_some()));
    assert!((1000..1940).all(|n| lives(&mut states, n).is_none()));
    assert!((1940..2000).all(|n| lives(&mut states, n).is_some()));
    assert_eq!(states.refusals.evicted, 1000 - 60);
}

#[test]
fn a_table_full_of_open_connections_refuses() {
    let mut states = States::new(KeyedHash(1));
    let times = few(4);
    let name = states.name("default");
    for port in 1..=4 {
        let there = headers(UDP, (1, port), (2, 53), 0);
        let back = headers(UDP, (2, 53), (1, port), 0);
        states.add(&there, RULE, name, None, at(0), &times).unwrap();
        states.find(&back, name, at(0), &times).unwrap();
    }
    let more = headers(UDP, (1, 5), (2, 53), 0);
    let added = states.add(&more, RULE, name, None, at(1), &times);
    assert_eq!((added, states.refusals.full), (Err(Refused::Full), 1));
    // All have expired after 10 s.
    assert_eq!(states.add(&more, RULE, name, None, at(10), &times), Ok(()));
    assert_eq!(states.len(), 1);
}

#[test]
fn one_source_owns_a_share_of_the_table_at_most() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes {
        per_source: 3,
        ..Lifetimes::default()
    };
    let name = states.name("default");
    let mut add = |host, port, second| {
        let packet = headers(UDP, (host, port), (9, 53), 0);
        states.add(&packet, RULE, name, None, at(second), &times)
    };
    (1..=3).for_each(|port| add(1, port, 0).unwrap());
    assert_eq!(add(1, 4, 1), Err(Refused::Source));
    assert_eq!(add(2, 4, 1), Ok(()));
    assert_eq!(add(1, 4, 10), Ok(()));
}

#[test]
fn shorter_lifetimes_apply_at_once() {
    let mut states = States::new(KeyedHash(1));
    let name = states.name("default");
    let packet = |port| headers(UDP, (1, port), (2, 53), 0);
    let times = Lifetimes::default();
    states
        .add(&packet(1), RULE, name, None, at(0), &times)
        .unwrap();
    states
        .add(&packet(2), RULE, name, None, at(0), &times)
        .unwrap();
    let short = Lifetimes { udp: 2, ..times };
    // Both had until 10 s; now they have until 3 s.
    states.find(&packet(2), name, at(1), &short).unwrap();
    states
        .add(&packet(3), RULE, name, None, at(4), &short)
        .unwrap();
    assert_eq!(states.len(), 1);
}

proptest::proptest! {
    #[test]
    fn index_lists_and_counts_agree_after_any_packets(
        steps in proptest::collection::vec((0u32..12, 0u8..3, proptest::bool::ANY, 0u64..4), 1..300)
    ) {
        const FLAGS: [u8; 3] = [SYN, 0x10, RST];
        let times = few(8);
        let mut states = States::new(KeyedHash(1));
        let name = states.name("default");
        let mut now = 0;
        for (host, flags, is_back, pause) in steps {
            now += pause;
            let there = from(host, FLAGS[usize::from(flags)]);
            let headers = if is_back {
                Headers {
                    src: there.dst,
                    dst: there.src,
                    src_port: there.dst_port,
                    dst_port: there.src_port,
                    ..there
                }
            } else {
                there
            };
            if states.find(&headers, name, at(now), &times).is_none() {
                let _ = states.add(&headers, RULE, name, None, at(now), &times);
            }
            states.check();
            proptest::prop_assert!(states.len() <= 8);
        }
    }
}

impl States {
    /// Checks that index, lists, free places and counts agree.
    fn check(&self) {
        let mut listed = 0;
        for (phase, list) in self.lists.iter().enumerate() {
            let (mut at, mut before, mut len) = (list.head, NONE, 0);
            let mut expires = Time::ZERO;
            while at != NONE {
                let place = &self.places[at as usize];
                assert_eq!(place.previous, before);
                assert_eq!(place.state.phase as usize, phase);
                assert_eq!(self.index.get(&place.state.key()), Some(&at));
                assert!(place.state.expires >= expires);
                expires = place.state.expires;
                (before, at) = (at, place.next);
                len += 1;
            }
            assert_eq!((list.tail, list.len), (before, len));
            listed += len;
        }
        assert_eq!(listed, self.index.len());
        let (mut free, mut at) = (0, self.free);
        while at != NONE {
            free += 1;
            at = self.places[at as usize].next;
        }
        assert_eq!(free + listed, self.places.len());
        assert_eq!(self.sources.values().sum::<u32>() as usize, listed);
    }
}

fn numbered(proto: u8, source: u8, n: u32) -> Headers {
    let [a, b, c, d] = n.to_be_bytes();
    let to = IpAddr::V4(Ipv4Addr::new(172, a | 16, b, c));
    Headers {
        src_port: 1000,
        dst_port: u16::from(d),
        ip_len: 100,
        ..Headers::new(Direction::In, proto, [10, 0, 0, source].into(), to)
    }
}

fn reversed(headers: &Headers) -> Headers {
    Headers {
        src: headers.dst,
        dst: headers.src,
        src_port: headers.dst_port,
        dst_port: headers.src_port,
        ..headers.clone()
    }
}

/// Sends 50 000 packets within a second, each of another flow, as the rules do: look up, then add. Returns
/// the most visits of states and lookups for one of them.
fn most_visits(
    states: &mut States,
    (limit, expected): (Option<&StateLimit>, Option<Refused>),
    times: &Lifetimes,
) -> usize {
    let name = states.name("default");
    let one = |n: u32| {
        let packet = numbered(UDP, 1, n);
        let now = at(1) + Span::from_us(20) * u64::from(n);
        visits(|| {
            assert_eq!(states.find(&packet, name, now, times), None);
            let added = states.add(&packet, RULE, name, limit, now, times);
            assert_eq!(added.err(), expected, "{n}");
        })
    };
    (0..50_000).map(one).max().unwrap()
}

/// A lookup, and the heads of all lists: none has expired.
const A_LOOK: usize = 1 + PHASES;

#[test]
fn a_flow_that_a_full_table_refuses_looks_at_no_more_than_the_heads_of_the_lists() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes {
        most: 10_000,
        per_source: 0,
        ..Lifetimes::default()
    };
    let name = states.name("default");
    for n in 0..10_000 {
        let packet = numbered(UDP, 2, n);
        states
            .add(&packet, RULE, name, None, at(0), &times)
            .unwrap();
        states
            .find(&reversed(&packet), name, at(0), &times)
            .unwrap();
    }
    let most = most_visits(&mut states, (None, Some(Refused::Full)), &times);
    assert!((1..=A_LOOK).contains(&most), "{most}");
    assert_eq!(states.refusals.full, 50_000);
}

#[test]
fn a_flow_that_a_limit_or_its_source_refuses_looks_at_no_more_than_the_heads_of_the_lists() {
    for limit in [Some(&PER_SOURCE), None] {
        let mut states = States::new(KeyedHash(1));
        let times = Lifetimes {
            per_source: 2,
            ..Lifetimes::default()
        };
        let name = states.name("default");
        for n in 60_000..60_002 {
            let packet = numbered(UDP, 1, n);
            states
                .add(&packet, RULE, name, limit, at(0), &times)
                .unwrap();
        }
        let refused = match limit {
            Some(_) => Refused::Limit,
            None => Refused::Source,
        };
        let most = most_visits(&mut states, (limit, Some(refused)), &times);
        assert!((1..=A_LOOK).contains(&most), "{refused:?}: {most}");
    }
}

/// Each packet of a flood finds at most 64 states that have expired, and looks at each twice: as the head
/// of its list, and to remove it. One more is thrown away for the new one.
#[test]
fn a_flow_of_a_flood_removes_a_few_states_at_most() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes {
        most: 30_000,
        per_source: 0,
        ..Lifetimes::default()
    };
    let name = states.name("default");
    // They expire at 1 s, all at once.
    let short = Lifetimes { udp: 1, ..times };
    for n in 0..30_000 {
        let packet = numbered(UDP, 2, n);
        states
            .add(&packet, RULE, name, None, at(0), &short)
            .unwrap();
    }
    let most = most_visits(&mut states, (None, None), &short);
    assert!(
        (1..=A_LOOK + 2 * EXPIRED_AT_ONCE + 1).contains(&most),
        "{most}"
    );
}

/// 20 000 states have expired when a packet asks for room in a group whose two states have not.
#[test]
fn a_full_limit_waits_for_a_part_of_the_expired_states_only() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes {
        most: 30_000,
        per_source: 0,
        ..Lifetimes::default()
    };
    let name = states.name("default");
    for n in 0..20_000 {
        let packet = numbered(UDP, 2, n);
        states
            .add(&packet, RULE, name, None, at(0), &times)
            .unwrap();
    }
    for n in 0..2 {
        let packet = numbered(UDP, 1, n);
        let added = states.add(&packet, RULE, name, Some(&PER_SOURCE), at(9), &times);
        added.unwrap();
    }
    let packet = numbered(UDP, 1, 2);
    let visits = visits(|| {
        let added = states.add(&packet, RULE, name, Some(&PER_SOURCE), at(11), &times);
        assert_eq!(added, Err(Refused::Limit));
    });
    let most = (MOST_TURNS + 1) * (2 * EXPIRED_AT_ONCE + PHASES);
    assert!(visits <= most, "{visits}");
    assert_eq!(states.len(), 20_002 - (MOST_TURNS + 1) * EXPIRED_AT_ONCE);
}

/// A packet with `:any` looks up the names that rules mention, and not those of earlier rules.
#[test]
fn names_of_rules_that_are_gone_cost_packets_nothing() {
    let mut states = States::new(KeyedHash(1));
    let times = Lifetimes::default();
    let gone: Vec<u32> = (0..1000).map(|n| states.name(&format!("n{n}"))).collect();
    let (a, b) = (states.name("a"), states.name("b"));
    gone.into_iter().for_each(|name| states.forget_name(name));
    assert_ne!(a, b);
    let packet = numbered(UDP, 1, 1);
    states.add(&packet, RULE, b, None, at(0), &times).unwrap();
    let other = numbered(UDP, 1, 2);
    let missed = visits(|| assert_eq!(states.find(&other, ANY, at(1), &times), None));
    assert_eq!(missed, 2);
    let found = states.find(&packet, ANY, at(1), &times);
    assert_eq!(found.map(|found| found.name), Some(b));
}
