//! The language as a whole: accepted commands, refused ones with their messages, and canonical
//! forms that read as the same command.

mod random;

use super::*;

/// Reads a line and writes it back.
fn canonical(text: &str) -> String {
    match parse(text, 1, false) {
        Ok(line) => line.invocation.map(|i| i.to_string()).unwrap_or_default(),
        Err(error) => panic!("`{text}`: {error}"),
    }
}

/// Returns the message, exit status and column of a refusal.
fn refusal(text: &str) -> (String, u8, u32) {
    let error = parse(text, 1, false).expect_err(text);
    let column = error.at.map_or(0, |at| at.column);
    (error.to_string(), error.exit_code(), column)
}

fn warnings(text: &str, compat: bool) -> Vec<String> {
    let line = parse(text, 1, compat).unwrap_or_else(|error| panic!("`{text}`: {error}"));
    line.warnings.into_iter().map(|w| w.text).collect()
}

#[test]
fn a_command_has_64_kib_at_most_and_a_comment_may_be_longer() {
    let line = |bytes: usize| {
        let start = "table t add ";
        format!("{start}10.0.0.1{}", " ".repeat(bytes - start.len() - 8))
    };
    assert!(parse(&line(65_536), 1, false).is_ok());
    let commented = line(65_536) + "# " + &"a".repeat(100_000);
    assert!(parse(&commented, 1, false).is_ok());
    let (message, code, column) = refusal(&line(65_537));
    assert_eq!(
        message,
        "a command of 65537 bytes is too long: give at most 65536 bytes at a time, such as several \
         `table T add`, and name a long list of addresses by a table"
    );
    assert_eq!((code, column), (65, 1));
    let at = parse(&line(70_000), 7, false).unwrap_err().at;
    assert_eq!(at.map(|at| at.line), Some(7));
    // 8 bytes each, which are written with the name of the codepoint, in 10.
    let rule = |options| format!("add allow ip from any to any{}", " dscp 10".repeat(options));
    assert!(canonical(&rule(1)).ends_with(" dscp af11"));
    assert!(parse(&rule(6500), 1, false).is_ok());
    let (message, code, _) = refusal(&rule(6600));
    assert!(
        message.starts_with("the rule would have 66") && message.contains("when it is written"),
        "{message}"
    );
    assert_eq!(code, 65);
}

#[test]
fn a_line_has_a_hundred_warnings_and_the_number_of_the_others() {
    let many = format!("pipe 1 config codel{}", " a".repeat(20_000));
    let line = parse(&many, 1, false).unwrap();
    assert_eq!((line.warnings.len(), line.notices.len()), (101, 100));
    let last = &line.warnings[100].text;
    assert_eq!(last, "19900 more warnings about this line are left out");
    let many = format!("pipe show 7{}", ",x,65535".repeat(5000));
    let said = warnings(&many, false);
    assert_eq!(said.len(), 101);
    assert_eq!(said[100], "9900 more warnings about this line are left out");
    let all_said = format!("pipe show 7{}", ",x".repeat(100));
    assert_eq!(warnings(&all_said, false).len(), 100);
}

#[test]
fn object_commands_have_a_canonical_form() {
    for (text, expected) in [
        ("ipfw pipe 1 config", "pipe 1 config"),
        ("pipe config 1 bw 10Mb", "pipe 1 config bw 10Mbit/s"),
        (
            "dnctl pipe 0010 config delay 20",
            "pipe 10 config delay 20ms",
        ),
        ("pi 1 c bandwidth 1MByte/s", "pipe 1 config bw 8Mbit/s"),
        (
            "pipe 1 config burst 10k queue 20KBytes plr 0.1",
            "pipe 1 config burst 10240 queue 20KBytes plr 0.1",
        ),
        (
            "pipe 1 config plr 0.01,0.1,0.5,0.3",
            "pipe 1 config plr 0.01,0.1,0.5,0.3",
        ),
        (
            "pipe 1 config bw 64Kbit/s queue 20 droptail",
            "pipe 1 config bw 64Kbit/s queue 20",
        ),
        ("pipe 1 config mask all", "pipe 1 config mask all"),
        (
            "pipe 1 config mask src-ip 0xffffffff",
            "pipe 1 config mask src-ip 0xffffffff",
        ),
        (
            "queue 1 config sched 2 flow_mask dst-ip6 /64 flow-id 0xff",
            "queue 1 config sched 2 mask dst-ip6 64 flow-id 0x000ff",
        ),
        (
            "flowset 3 config pipe 1 weight 30 lmax 1500",
            "queue 3 config sched 1 weight 30 lmax 1500",
        ),
        (
            "pipe 1 config red 0.002/5/15/0.1 ecn",
            "pipe 1 config red 0.002/5/15/0.1 ecn",
        ),
        (
            "pipe 1 config gred 0.002/5K/15K/1",
            "pipe 1 config gred 0.002/5120/15360/1",
        ),
        (
            "pipe 1 config codel target 7 interval 0.16s ECN",
            "pipe 1 config codel target 7ms interval 160ms",
        ),
        (
            "sched 1 config type FIFO codel ecn",
            "sched 1 config type fifo codel ecn",
        ),
        (
            "sched 1 config pipe 1 type fq_codel target 7 quantum 2000 flows 2048",
            "sched 1 config sched 1 type fq_codel target 7ms quantum 2000 flows 2048",
        ),
        (
            "sched 1 config fq_codel noecn",
            "sched 1 config fq_codel noecn",
        ),
        (
            "pipe 1 config profile /tmp/dsl",
            "pipe 1 config profile /tmp/dsl",
        ),
        (
            "pipe 1 config jitter 2 jitter_reorder atm",
            "pipe 1 config jitter 2ms jitter_reorder cells atm",
        ),
        (
            "pipe 1 config jitter 2ms nojitter_reorder",
            "pipe 1 config jitter 2ms nojitter_reorder",
        ),
        ("pipe show 1-5,7 9", "pipe show 1-5 7 9"),
        ("pipe 1 show", "pipe show 1"),
        ("sched list", "sched show"),
        ("queue 1 delete", "queue delete 1"),
        ("pipe delete 1,2 3", "pipe delete 1 2 3"),
        ("pipe flush", "pipe flush"),
        (
            "pipe 1 config delay 1.5ms bw 2.5Gbit/s",
            "pipe 1 config bw 2500Mbit/s delay 1.5ms",
        ),
        (
            "pipe 1 config bw 1Tbit/s delay 20s queue 100000",
            "pipe 1 config bw 1000Gbit/s delay 20000ms queue 100000",
        ),
        ("# nothing", ""),
        ("", ""),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(canonical(expected), expected);
    }
}

#[test]
fn rule_commands_have_a_canonical_form() {
    for (text, expected) in [
        (
            "add 1000 pipe 1 all from 10.0.1.0/24 to any out",
            "add 01000 pipe 1 ip from 10.0.1.0/24 to any out",
        ),
        (
            "100 add allow ip from any to any",
            "add 00100 allow ip from any to any",
        ),
        (
            "add pass tcp from any to me 22,80-90 setup keep-state",
            "add allow tcp from any to me dst-port 22,80-90 setup keep-state :default",
        ),
        ("add pipe 1 out", "add pipe 1 ip from any to any out"),
        (
            "add pipe 1 src-port 443",
            "add pipe 1 ip from any to any src-port 443",
        ),
        ("add // the end", "add count ip from any to any // the end"),
        (
            "add deny { tcp or udp } from { 10.0.0.1 or not 10.0.0.0/8 } to any",
            "add deny { tcp or udp } from { 10.0.0.1 or not 10.0.0.0/8 } to any",
        ),
        (
            "add count {tcp or udp} from any http to any not 53 {via em0 or via em1*}",
            "add count { tcp or udp } from any 80 to any not dst-port 53 { via em0 or via em1* }",
        ),
        (
            "add set 5 prob 0.5 deny log logamount 10 icmp from any to any icmptypes 8,0",
            "add set 5 prob 0.500000 deny log logamount 10 icmp from any to any icmptypes 0,8",
        ),
        (
            "add prob 0.0000001 deny ip from any to any",
            "add prob 0.0000001 deny ip from any to any",
        ),
        (
            "add queue tablearg ip from table(T1) to any in recv em0",
            "add queue tablearg ip from table(T1) to any in recv em0",
        ),
        (
            "add skipto 500 ip6 from 2001:db8::/32 to any dscp ef,af11,1",
            "add skipto 500 ip6 from 2001:db8::/32 to any dscp 1,af11,ef",
        ),
        ("add check-state", "add check-state :default"),
        ("add check-state :web", "add check-state :web"),
        (
            "add allow tcp from any to any setup limit src-addr dst-port 4 :x",
            "add allow tcp from any to any setup limit src-addr dst-port 4 :x",
        ),
        (
            "add call 600 ip from any to any",
            "add call 600 ip from any to any",
        ),
        (
            "add 200 queue 2 from 172.16.0.0/16 to any",
            "add 00200 queue 2 ip from 172.16.0.0/16 to any",
        ),
        (
            "add return via any",
            "add return ip from any to any via any",
        ),
        (
            "add count tcp from any to any tcpflags syn,!ack iplen 0-100 iptos lowdelay,!mincost frag ipttl 1-5",
            "add count tcp from any to any tcpflags syn,!ack iplen 0-100 iptos lowdelay,!mincost frag ipttl 1-5",
        ),
        (
            "add count ip from any to any frag mf,!df lookup dst-port P layer2",
            "add count ip from any to any frag mf,!df lookup dst-port P layer2",
        ),
        ("set 3 delete", "set 3 delete"),
        ("delete 100 200-300 set 4", "set 4 delete 100 200-300"),
        ("delete set 4", "set 4 delete"),
        ("set disable 1 2 enable 3", "set disable 1 2 enable 3"),
        ("set move rule 100 to 5", "set move rule 100 to 5"),
        ("-q -f flush", "-q flush"),
        ("-aS list 100", "-aS list 100"),
        ("-d show 100 200-300", "-d show 100 200-300"),
        ("zero", "zero"),
        ("resetlog 5", "resetlog 5"),
        (
            "table T1 create type addr valtype pipe",
            "table T1 create type addr valtype pipe",
        ),
        (
            "table T1 create or-flush missing",
            "table T1 create type addr or-flush",
        ),
        ("table T1 add 10.0.0.0/24 5", "table T1 add 10.0.0.0/24 5"),
        ("table T1 add 10.0.0.0/24", "table T1 add 10.0.0.0/24"),
        ("table all list", "table all list"),
        ("table 1 swap 2", "table 1 swap 2"),
        ("enable one_pass", "enable one_pass"),
        (
            "sysctl net.inet.ip.fw.one_pass=0",
            "sysctl net.inet.ip.fw.one_pass=0",
        ),
        ("ipfw -q /etc/ipfw.rules", "-q /etc/ipfw.rules"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(canonical(expected), expected);
    }
}

const NO_JSON: &str =
    "`--json` is only for `show` and `list` of rules, pipes, queues and schedulers";

#[test]
fn refusals_have_dummynets_text_and_exit_status() {
    // Reference 1.2 to 1.6: exact messages; EX_USAGE 64 for a missing word, EX_DATAERR 65.
    for (text, message, exit, column) in [
        ("pipe config", "need a pipe/flowset/sched number", 64, 12),
        ("pipe 0 config", "need a pipe/flowset/sched number", 64, 6),
        ("--json set show", NO_JSON, 64, 1),
        ("-q --json table T lookup 10.0.0.1", NO_JSON, 64, 4),
        ("ipfw --json table all list", NO_JSON, 64, 6),
        ("--json sysctl -a", NO_JSON, 64, 1),
        ("pipe 1 config plr", "plr needs argument 0..1", 64, 18),
        (
            "pipe 1 config bw",
            "bw needs bandwidth or interface",
            64,
            17,
        ),
        (
            "pipe 1 config delay",
            "delay needs argument 0..10000ms",
            64,
            20,
        ),
        ("pipe 1 config queue", "queue needs queue size", 64, 20),
        ("pipe 1 config buckets", "buckets needs argument", 64, 22),
        ("queue 1 config weight", "weight needs argument", 64, 22),
        ("pipe 1 config mask", "mask needs mask specifier", 64, 19),
        ("pipe 1 config mask src-ip", "mask: value missing", 64, 26),
        ("pipe 1 config burst", "burst needs argument", 64, 20),
        (
            "pipe 1 config burst 3x",
            "burst: invalid argument (bytes, such as 15000 or 100k)",
            65,
            21,
        ),
        (
            "pipe 1 config burst 256T",
            "burst: out of range (0..2^48-1)",
            65,
            21,
        ),
        ("pipe 1 config bw 2Tbit/s", "bandwidth too large", 65, 18),
        ("pipe 1 config bw em0", "no if support", 1, 18),
        ("pipe 1 config delay 10001", "delay must be < 10000", 65, 21),
        (
            "pipe 1 config mask src-port 0x10000",
            "port mask must be 16 bit",
            65,
            29,
        ),
        (
            "pipe 1 config mask proto 256",
            "proto mask must be 8 bit",
            65,
            26,
        ),
        (
            "pipe 1 config mask flow-id 0x100000",
            "flow_id mask must be 20 bit",
            65,
            28,
        ),
        (
            "pipe 1 config mask src-ip6 129",
            "in6addr invalid mask len",
            65,
            28,
        ),
        (
            "pipe 1 config profile a profile b",
            "profile already set",
            65,
            25,
        ),
        (
            "add allow udp from any to any keep-state :any",
            "`:any` is for `check-state` only: a state has a name of its own",
            65,
            42,
        ),
        ("queue 1 config bw 1Mbit/s", "bw is only for links", 65, 16),
        ("sched 1 config bw 1Mbit/s", "bw is only for links", 65, 16),
        ("sched 1 config delay 1", "delay is only for links", 65, 16),
        (
            "queue 1 config type fifo",
            "type is only for schedulers",
            65,
            16,
        ),
        (
            "pipe 1 config fq_codel",
            "fq_codel/fq_pie is only for schd (write `sched N config pipe N type NAME` and \
             `queue N config sched N`, and give packets to the queue)",
            65,
            15,
        ),
        (
            "pipe 1 config codel quantum 1",
            "quantum is not for codel",
            65,
            21,
        ),
        (
            "pipe 1 config codel limit 1",
            "limit is not for codel, use queue instead",
            65,
            21,
        ),
        (
            "pipe 1 config codel flows 1",
            "flows is not for codel",
            65,
            21,
        ),
        ("pipe 1 config codel target", "target needs time", 65, 27),
        (
            "pipe 1 config codel interval",
            "interval needs time",
            65,
            29,
        ),
        (
            "pipe 1 config ecn",
            "ECN can be used with red/gred/codel/fq_codel only!",
            64,
            15,
        ),
        ("pipe 1 config red 0/5/15/0.1", "0 < w_q <= 1", 65, 15),
        ("pipe 1 config red 0.1/5/15/1.5", "0 <= max_p <= 1", 65, 15),
        (
            "pipe 1 config red 0.1/0/0/0.1",
            "max_th must be > 0",
            65,
            15,
        ),
        (
            "pipe 1 config red 0.1/9/9/0.1",
            "min_th must be < max_th",
            65,
            15,
        ),
        ("pipe 1 config foo", "unrecognised option ``foo''", 65, 15),
        (
            "pipe 70000 config",
            "setsockopt(IP_DUMMYNET_CONFIGURE): Invalid argument (number 70000 is outside 1 to 65535)",
            1,
            6,
        ),
        (
            "sched 1 config type abcdefghijklmnop",
            "setsockopt(IP_DUMMYNET_CONFIGURE): Invalid argument (type abcdefghijklmnop too long)",
            1,
            21,
        ),
        (
            "add prob 2 allow ip from any to any",
            "illegal match prob.",
            65,
            10,
        ),
        (
            "add pipe 0 ip from any to any",
            "illegal argument for pipe",
            65,
            10,
        ),
        (
            "add pipe 65535 ip from any to any",
            "illegal argument for pipe",
            65,
            10,
        ),
        (
            "add 100 queue 1 form any to any",
            "unrecognised option ``form'' (did you mean ``from''?)",
            65,
            17,
        ),
        (
            "add 100 queue 1 ip form any to any",
            "unrecognised option ``form'' (did you mean ``from''?)",
            65,
            20,
        ),
        ("add 100 queue 1 ip from any any", "missing ``to''", 65, 29),
        (
            "add divert natd ip from any to any",
            "`divert` is not supported: packets are classified and shaped, not handed to other programs",
            69,
            5,
        ),
        (
            "add nat 1 ip from any to any",
            "`nat` is not supported: headers are not rewritten",
            69,
            5,
        ),
        (
            "add fwd 1.1.1.1 ip from any to any",
            "`fwd` is not supported: routing is left to the host",
            69,
            5,
        ),
        (
            "add reset tcp from any to any",
            "`reset` is not supported: replies are never sent; use deny",
            69,
            5,
        ),
        (
            "add allow ip from any to any uid 0",
            "`uid` is not supported: a router has no sockets of its own",
            69,
            30,
        ),
        (
            "nat 1 config",
            "`nat` is not supported: packets are classified and shaped, headers are not rewritten",
            69,
            1,
        ),
        (
            "nat",
            "`nat` is not supported: packets are classified and shaped, headers are not rewritten",
            69,
            1,
        ),
        ("frobnicate", "bad command `frobnicate'", 64, 1),
        (
            "dnctl add allow ip from any to any",
            "bad command `add'",
            64,
            7,
        ),
        ("ipfw -z list", "unknown flag `-z`", 64, 6),
        ("ipfw", "no command is given", 64, 5),
    ] {
        assert_eq!(refusal(text), (message.to_string(), exit, column), "{text}");
    }
}

#[test]
fn a_relative_path_is_answered_with_the_rule_for_paths() {
    for text in ["w.rules", "-q ./w.rules", "--atomic etc/rules"] {
        let error = parse(text, 1, false).expect_err(text);
        assert!(matches!(&*error.kind, ErrorKind::BadCommand(_)), "{error}");
        let advice = error.advice.unwrap_or_default();
        assert!(advice.contains("by its absolute path"), "{error}");
    }
    // The word of a command with arguments is no path.
    let error = parse("w.rules list", 1, false).expect_err("no command");
    assert_eq!(error.advice, None);
}

#[test]
fn a_word_of_tc_is_answered_with_the_word_here() {
    for (text, advice) in [
        (
            "pipe 1 config bw 1Mbit/s fq_codel",
            "write `sched N config pipe N type NAME`",
        ),
        (
            "pipe 1 config bw 1Mbit/s pfifo limit 10",
            "tc's `pfifo limit N` is `fifo limit N`",
        ),
        (
            "queue 1 config pipe 1 bfifo limit 3000",
            "tc's `bfifo limit BYTES` is `fifo limit_bytes BYTES`",
        ),
        (
            "sched 1 config pipe 1 type drr",
            "tc's `drr` is `rr` for classes, or `fq_codel` for flows",
        ),
        (
            "sched 1 config pipe 1 type hfsc",
            "in place of tc's `hfsc`, `wf2q+` shares a link by weights",
        ),
        (
            "pipe 1 config netem delay 10ms",
            "tc's `netem` is a part of the link, not of its queue",
        ),
    ] {
        let error = parse(text, 1, false).expect_err(text);
        let found = error.advice.unwrap_or_default();
        assert!(found.starts_with(advice), "{text}: {found}");
        assert!(
            error.to_string().ends_with(&format!(" ({found})")),
            "{error}"
        );
    }
    let line = parse("sched 1 config pipe 1 type cake nat", 1, false).expect("a warning only");
    let warning = &line.warnings[0].text;
    assert!(
        warning.contains("is ignored (tc's `nat` looks up"),
        "{warning}"
    );
}

#[test]
fn a_mistyped_word_is_answered_with_the_nearest_one() {
    for (text, near) in [
        ("pipe 1 config bnadwidth 1M", "bandwidth"),
        ("pipe 1 config quue 10", "queue"),
        ("pipe 1 config coddel", "codel"),
        ("pipe 1 config mask scr-ip 1", "src-ip"),
        ("sched 1 config type fq_codell", "fq_codel"),
        ("add alow ip from any to any", "allow"),
        ("add allow tcpp from any to any", "from"),
        ("add allow tcp from any to any setpu", "setup"),
        ("add allow tcp from any to any dscp eff", "ef"),
        ("pip3 1 config", "pipe"),
    ] {
        let error = parse(text, 1, false).expect_err(text);
        // `tcpp` is not a protocol, so the rest is read as options, and no suggestion fits.
        if text.contains("tcpp") {
            assert_eq!(error.nearest, None);
        } else {
            assert_eq!(error.nearest.as_deref(), Some(near), "{text}");
        }
    }
}

#[test]
fn warnings_name_what_dummynet_silently_ignores() {
    for (text, part) in [
        ("pipe 1 config plr 2", "is above 1: 1 is used; 2 % is 0.02"),
        (
            "pipe 1 config bw 10",
            "`10` has no unit, and is 10 bit/s: write `10Mbit/s`",
        ),
        (
            "pipe 1 config codel target 5ms bw 1Mbit/s",
            "`bw` is not a parameter of codel and is ignored (write it before `codel`",
        ),
        ("pipe 1 config delay 1s", "dummynet would use 1 ms"),
        ("pipe 1 config delay 5foo", "`foo` in `5foo` is ignored"),
        (
            "pipe 1 config bw 5Mfoo",
            "`foo` in `5Mfoo` is not bit/s or Byte/s: 5Mbit/s is set, as in dummynet",
        ),
        // Dummynet ignores what follows the prefix, unless it begins with B or by.
        (
            "pipe 1 config bw 20Xbit/s",
            "`Xbit/s` in `20Xbit/s` is not bit/s or Byte/s: 20bit/s is set",
        ),
        (
            "pipe 1 config bw 20Mbis",
            "`bis` in `20Mbis` is not bit/s or Byte/s: 20Mbit/s is set",
        ),
        (
            "pipe 1 config bw 20KBx",
            "`Bx` in `20KBx` is not bit/s or Byte/s: 160kbit/s is set",
        ),
        (
            "pipe 1 config bw 1M bw 2M",
            "duplicate token, override bandwidth value!",
        ),
        ("pipe 1 config buckets 100000", "65536 is shown"),
        ("pipe 1 config codel target 0ms", "1us is used"),
        ("pipe 1 config codel tarqet", "did you mean `target`"),
        (
            "pipe 1 config mask dst-ip /24",
            "masks the low 24 bits (0x00ffffff), not a network prefix",
        ),
        ("pipe 1 config noerror", "never notified of drops"),
        ("queue 1 config pipe 1 pri 3", "no scheduler reads it"),
        ("pipe zero", "clears the counters of rules"),
        ("pipe show 5-3", "selects nothing"),
        ("pipe show x", "invalid number x"),
        ("queu 1 show", "DEPRECATED"),
        ("-s bytes pipe show", "has no effect"),
    ] {
        let said = warnings(text, false);
        assert!(said.iter().any(|w| w.contains(part)), "{text}: {said:?}");
    }
    assert!(
        warnings(
            "pipe 1 config bw 10Mbit/s delay 20ms queue 50 plr 0.01",
            false
        )
        .is_empty()
    );
}

#[test]
fn an_unknown_word_of_an_aqm_is_announced_as_dummynet_does() {
    // Reference 1.6: printed on stdout, exit status 0.
    let line = parse("pipe 1 config codel foo", 1, false).unwrap();
    assert_eq!(line.notices, ["foo is Invalid parameter"]);
}

#[test]
fn only_destructive_commands_ask_first() {
    let asks = |text| {
        parse(text, 1, false)
            .unwrap()
            .invocation
            .unwrap()
            .needs_confirmation()
    };
    assert!(asks("flush") && asks("pipe flush"));
    assert!(!asks("-f flush") && !asks("-q pipe flush") && !asks("pipe show"));
}
