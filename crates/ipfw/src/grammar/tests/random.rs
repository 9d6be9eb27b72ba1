//! Random lines: accepted ones read back as the same command, and nothing panics.

use proptest::prelude::*;

use super::*;

const OBJECT_PARTS: &[&str] = &[
    "bw 10Mbit/s",
    "bw 1.5Mbit/s",
    "bw 0",
    "bw 9600",
    "delay 20",
    "delay 1.5ms",
    "delay 250us",
    "burst 10k",
    "queue 20",
    "queue 30KBytes",
    "queue 3000B",
    "plr 0.01",
    "plr 0.01,0.1,0.5,0.3",
    "noerror",
    "buckets 256",
    "mask all",
    "mask queue",
    "mask src-ip 0xffffff00 dst-port 0xff",
    "mask dst-ip6 64 queue",
    "mask proto 0",
    "weight 30",
    "lmax 1500",
    "pri 2",
    "sched 5",
    "pipe 7",
    "type fifo",
    "red 0.002/5/15/0.1",
    "gred 0.5/5/6/1 ecn",
    "droptail",
    "profile x",
];

const OBJECT_TAILS: &[&str] = &[
    "",
    "codel",
    "codel target 5ms interval 0.1s ecn",
    "codel noecn target 100us mtu 1500",
    "fq_codel",
    "type fq_codel quantum 300 limit 1000 flows 64 noecn target 7",
    "headdrop",
    "type fq_droptail limit 500",
];

const RULE_HEADS: &[&str] = &[
    "allow",
    "deny log",
    "count log logamount 5",
    "pipe 5",
    "queue tablearg",
    "skipto 500",
    "call 10",
    "return",
];

const RULE_BODIES: &[&str] = &[
    "",
    "ip from any to any",
    "tcp from 10.0.0.0/8 to any 80",
    "{ udp or 50 } from me to not me6",
    "all from { 1.2.3.4,5.6.7.8 or table(T,5) } 1000-2000,53 to 10.0.0.0/24{1,3-5} not 1-5",
    "ip6 from 2001:db8::/32 to ::1",
    "not icmp from any to 1.2.3.4:255.0.255.0",
];

const RULE_OPTIONS: &[&str] = &[
    "in",
    "out",
    "not via em0",
    "recv em*",
    "xmit 10.0.0.1",
    "{ via any or via table(I) }",
    "src-ip 1.1.1.1",
    "dst-ip6 ::/0",
    "src-port 1,2-3",
    "proto udp",
    "layer2",
    "iptos lowdelay,!congestion",
    "iptos ecntransport",
    "ipprecedence 5",
    "dscp ef,cs1,7",
    "iplen 40-1500",
    "ipid 7",
    "ipttl 1,64",
    "ipversion 6",
    "frag",
    "frag df,!mf",
    "setup",
    "tcpflags fin,!ack",
    "established",
    "icmptypes 0,3,8",
    "icmp6types 135,136",
    "flow-id 5,9-12",
    "lookup dscp D",
];

const RULE_STATES: &[&str] = &[
    "",
    "keep-state",
    "keep-state :web",
    "limit src-addr dst-port 4 :x",
];

fn pick(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(list)
}

/// The example of each option.
fn examples() -> impl Strategy<Value = &'static str> {
    let examples: Vec<&str> = OPTIONS.iter().map(|option| option.example).collect();
    prop::sample::select(examples)
}

/// Lines most of which are accepted.
fn lines() -> impl Strategy<Value = String> {
    let object = (
        prop::sample::select(&["pipe 1", "queue 65535", "sched 100"][..]),
        prop::collection::vec(pick(OBJECT_PARTS), 0..5),
        pick(OBJECT_TAILS),
    )
        .prop_map(|(object, parts, tail)| format!("{object} config {} {tail}", parts.join(" ")));
    let rule = (
        pick(&[
            "add",
            "add 100",
            "set 3 add",
            "add 7 set 9 prob 0.25",
            "-q add prob 0.3333333",
        ]),
        pick(RULE_HEADS),
        pick(RULE_BODIES),
        prop::collection::vec(prop_oneof![pick(RULE_OPTIONS), examples()], 0..4),
        pick(RULE_STATES),
        pick(&["", "// a remark"]),
    )
        .prop_map(|(add, head, body, options, state, remark)| {
            format!("{add} {head} {body} {} {state} {remark}", options.join(" "))
        });
    prop_oneof![object, rule]
}

/// Words of the language in random order, and some others.
fn noise() -> impl Strategy<Value = String> {
    let words: Vec<&'static str> = OBJECT_PARTS
        .iter()
        .chain(OBJECT_TAILS)
        .chain(RULE_HEADS)
        .chain(RULE_BODIES)
        .chain(RULE_OPTIONS)
        .chain(RULE_STATES)
        .flat_map(|part| part.split(' '))
        .chain([
            "pipe", "queue", "sched", "config", "show", "delete", "add", "set", "table", "list",
        ])
        .chain([
            "create", "swap", "flush", "zero", "sysctl", "enable", "-f", "-qs", "{", "}", "or",
        ])
        .chain([
            "not",
            "#",
            "//",
            ",",
            "",
            "\"",
            "é",
            "{{",
            "}}",
            "a{,",
            "99999999999999999999999999999999999999999",
        ])
        .collect();
    prop::collection::vec(prop::sample::select(words), 0..12).prop_map(|words| words.join(" "))
}

/// An accepted line reads back as the same command.
fn check_round_trip(text: &str) -> Result<bool, TestCaseError> {
    let Ok(line) = parse(text, 1, false) else {
        return Ok(false);
    };
    let Some(first) = line.invocation else {
        return Ok(false);
    };
    let written = first.to_string();
    let again = parse(&written, 1, false);
    let again = again.map_err(|e| TestCaseError::fail(format!("`{text}` -> `{written}`: {e}")))?;
    prop_assert_eq!(
        again.invocation.as_ref(),
        Some(&first),
        "`{}` -> `{}`",
        text,
        written
    );
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn written_commands_read_as_the_same_command(text in lines()) {
        check_round_trip(&text)?;
    }

    #[test]
    fn words_in_any_order_are_read_or_refused(text in noise(), compat: bool) {
        check_round_trip(&text)?;
        let _ = parse(&text, 1, compat);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}", compat: bool) {
        check_round_trip(&text)?;
        let _ = parse(&text, 1, compat);
    }
}

#[test]
fn most_generated_lines_are_accepted() {
    // Otherwise the round-trip property would prove nothing.
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted = (0..500)
        .filter(|_| {
            let text = lines()
                .new_tree(&mut runner)
                .expect("the strategy has values")
                .current();
            check_round_trip(&text).is_ok_and(|is_accepted| is_accepted)
        })
        .count();
    assert!(accepted > 250, "{accepted} of 500");
}
