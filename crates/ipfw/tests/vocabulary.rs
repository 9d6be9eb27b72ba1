//! Every word of dummynet's grammar, one line each: its effect, or the name by which it is refused.
//!
//! The words are those of FreeBSD's ipfw(8): options of pipes, queues and schedulers first, then
//! the parts of a rule. The expected text is dummynet's `show` or the canonical form of `list`:
//! five digits, `ip` for `all`, `allow` for its synonyms, ports as numbers.

mod common;

use common::{Bench, Texts};

/// A table with one line per row, which the formatter would spread over five.
macro_rules! rows {
    ($($first:expr => $($rest:expr)=>+),+ $(,)?) => { &[$(($first, $($rest),+)),+] };
}

/// A command, what to show, and a part of the output.
const OBJECTS: &[(&str, &str, &str)] = rows! {
    // bw: letters behind the number; B and `by` are bytes.
    "pipe 1 config bw 10Mbit/s" => "pipe show" => "00001:  10.000 Mbit/s    0 ms burst 0 \n",
    "pipe 1 config bandwidth 10Mb" => "pipe show" => "00001:  10.000 Mbit/s ",
    "pipe 1 config bw 1mbits/s" => "pipe show" => "00001:   1.000 Mbit/s ",
    "pipe 1 config bw 30Byte/s" => "pipe show" => "00001: 240.000 bit/s  ",
    "pipe 1 config bw 1MByte/s" => "pipe show" => "00001:   8.000 Mbit/s ",
    "pipe 1 config bw 300Kbit/s" => "pipe show" => "00001: 300.000 Kbit/s ",
    "pipe 1 config bw 50KBytes" => "pipe show" => "00001: 400.000 Kbit/s ",
    "pipe 1 config bw 10k" => "pipe show" => "00001:  10.000 Kbit/s ",
    "pipe 1 config bw 2Gbit/s" => "pipe show" => "00001:   2.000 Gbit/s ",
    "pipe 1 config bw 0x1000" => "pipe show" => "00001:   4.096 Kbit/s ",
    "pipe 1 config bw 010" => "pipe show" => "00001:   8.000 bit/s  ",
    "pipe 1 config bw 0" => "pipe show" => "00001: unlimited         0 ms burst 0 \n",
    // delay, burst.
    "pipe 1 config delay 20" => "pipe show" => "00001: unlimited        20 ms burst 0 \n",
    "pipe 1 config delay 20ms" => "pipe show" => "   20 ms burst 0 \n",
    "pipe 1 config delay 10000" => "pipe show" => "10000 ms burst 0 \n",
    "pipe 1 config bw 1Mbit/s burst 10k" => "pipe show" => " burst 10240 \n",
    "pipe 1 config bw 1Mbit/s burst 1m" => "pipe show" => " burst 1048576 \n",
    // queue: slots, K times 1024 bytes, B bytes.
    "pipe 1 config queue 20" => "pipe show" => "q131073  20 sl. 0 flows",
    "pipe 1 config queue 10K" => "pipe show" => "q131073 10 KB 0 flows",
    "pipe 1 config queue 8000B" => "pipe show" => "q131073 8000 B 0 flows",
    "pipe 1 config queue 50KBytes" => "pipe show" => "q131073 50 KB 0 flows",
    "pipe 1 config plr 0.1" => "pipe show" => "q131073  50 sl.plr 0.100000 0 flows",
    "pipe 1 config buckets 128" => "pipe show" => "(1 buckets)",
    "pipe 1 config buckets 128 mask src-ip 0xff" => "pipe show" => "flags 0x1 128 buckets",
    "pipe 1 config noerror" => "pipe show" => "droptail",
    "pipe 1 config droptail" => "pipe show" => "pri 0 droptail\n",
    // Masks; /n is the low n bits for IPv4 and a prefix for IPv6.
    "pipe 1 config mask src-ip 0xffffffff" => "pipe show" => "    mask:  0x00 0xffffffff/0x0000 -> 0x00000000/0x0000\n",
    "pipe 1 config mask dst-ip /24" => "pipe show" => "    mask:  0x00 0x00000000/0x0000 -> 0x00ffffff/0x0000\n",
    "pipe 1 config mask src-port 0xffff dst-port /8" => "pipe show" => "    mask:  0x00 0x00000000/0xffff -> 0x00000000/0x00ff\n",
    "pipe 1 config mask proto 0xff" => "pipe show" => "    mask:  0xff 0x00000000/0x0000 -> 0x00000000/0x0000\n",
    "pipe 1 config mask all" => "pipe show" => "0xff 0xffffffff/0xffff -> 0xffffffff/0xffff",
    "pipe 1 config mask queue" => "pipe show" => "    mask: queue, 0x00 0x00000000/0x0000 -> 0x00000000/0x0000\n",
    "pipe 1 config sched_mask src-ip 0xff" => "pipe show" => "0x000000ff/0x0000 -> 0x00000000",
    "pipe 1 config flow_mask src-ip 0xff" => "pipe show" => "0x000000ff/0x0000 -> 0x00000000",
    "pipe 1 config mask src-ip6 /64" => "pipe show" => "mask: proto: 0x00, flow_id: 0x00000000,",
    "pipe 1 config mask src-ipv6 64 dst-ip6 128 dst-ipv6 /128" => "pipe show" => "mask: proto: 0x00",
    "pipe 1 config mask flow-id 0xfffff src-ip6 1" => "pipe show" => "flow_id: 0x000fffff",
    "pipe 1 config mask src-ip 0" => "pipe show" => "flags 0x0 0 buckets",
    // AQMs.
    "pipe 1 config red 0.002/5/15/0.1" => "pipe show" => "RED w_q 0.002000 min_th 5 max_th 15 max_p 0.100000\n",
    "pipe 1 config gred 0.002/5/15/0.1" => "pipe show" => "GRED w_q 0.002000 min_th 5 max_th 15 max_p 0.100000\n",
    "pipe 1 config red 0.002/5/15/0.1 ecn" => "pipe show" => "max_p 0.100000 (ecn)\n",
    "pipe 1 config red 1/20/20/1 ecn" => "pipe show" => "min_th 20 max_th 20",
    "pipe 1 config codel" => "pipe show" => " AQM CoDel target 5ms interval 100ms NoECN\n",
    "pipe 1 config codel target 7 interval 200ms ecn" => "pipe show" => " AQM CoDel target 7ms interval 200ms ECN\n",
    "pipe 1 config codel target 500us noecn" => "pipe show" => " AQM CoDel target 500us interval 100ms NoECN\n",
    "pipe 1 config pie" => "pipe show" => " AQM type PIE target 15ms tupdate 15ms alpha 0.125 beta 1.25 max_burst 150ms max_ecnth 0.1 NoECN CapDrop",
    "pipe 1 config pie nocapdrop" => "pipe show" => "NoCapDrop",
    "pipe 1 config pie onoff" => "pipe show" => "OnOff",
    "pipe 1 config pie ts" => "pipe show" => " TS ",
    "pipe 1 config pie dre" => "pipe show" => " DRE ",
    "pipe 1 config pie derand" => "pipe show" => " Derand",
    "pipe 1 config pie noderand" => "pipe show" => " NoDerand",
    "pipe 1 config pie target 20ms tupdate 30ms alpha 0.25 beta 2.5 max_burst 200ms max_ecnth 0.2 ecn" => "pipe show" => "target 20ms tupdate 30ms alpha 0.25 beta 2.5 max_burst 200ms max_ecnth 0.2 ECN",
    // Schedulers and the queues on them.
    "sched 1 config" => "sched show" => " sched 1 type WF2Q+ flags 0x0 0 buckets 0 active\n",
    "sched 1 config type fifo" => "sched show" => " sched 1 type FIFO ",
    "sched 1 config type RR" => "sched show" => " sched 1 type RR ",
    "sched 1 config type qfq" => "sched show" => " sched 1 type QFQ ",
    "sched 1 config type WF2Q+" => "sched show" => " sched 1 type WF2Q+ ",
    "sched 1 config type PRIO" => "sched show" => " sched 1 type PRIO ",
    "sched 1 config type fq_codel" => "sched show" => " FQ_CODEL target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ECN\n",
    "sched 1 config type fq_codel quantum 300 limit 100 flows 64 noecn" => "sched show" => " FQ_CODEL target 5ms interval 100ms quantum 300 limit 100 flows 64 NoECN\n",
    "sched 1 config type fq_pie" => "sched show" => "  FQ_PIE target 15ms tupdate 15ms alpha 0.125 beta 1.25 max_burst 150ms max_ecnth 0.1 quantum 1514 limit 10240 flows 1024 ECN CapDrop",
    "sched 1 config type fq_pie derand ts" => "sched show" => "TS Derand",
    "queue 1 config pipe 1" => "queue show" => "q00001  50 sl. 0 flows (1 buckets) sched 1 weight ",
    "queue 1 config sched 1" => "queue show" => " sched 1 weight ",
    "flowset 1 config pipe 1" => "flowset show" => "q00001 ",
    "queue 1 config sched 1 weight 5" => "queue show" => " weight 5 lmax ",
    "queue 1 config sched 1 lmax 500" => "queue show" => " lmax 500 ",
    "queue 1 config sched 1 maxlen 500" => "queue show" => " lmax 500 ",
    "queue 1 config sched 1 pri 3" => "queue show" => " pri 3 ",
    "queue 1 config sched 1 priority 3" => "queue show" => " pri 3 ",
    // The number behind the verb, prefixes, one argument with spaces, the names of the programs.
    "pipe config 1 bw 1Mbit/s" => "pipe show" => "00001:   1.000 Mbit/s ",
    "p 1 conf bw 1Mbit/s" => "pi 1 sh" => "00001:   1.000 Mbit/s ",
    "\"pipe 1 config bw 1Mbit/s\"" => "pipe list" => "00001:   1.000 Mbit/s ",
    "ipfw -q pipe 1 config bw 1Mbit/s # fast enough" => "pipe print" => "00001:   1.000 Mbit/s ",
    "/sbin/dnctl pipe 1 config bw 1Mbit/s" => "dnctl pipe show 1-5,7 9" => "00001:   1.000 Mbit/s ",
    "pipe 1 config bw 1Mbit/s profile /p" => "pipe show" => "\t profile: name \"x\" loss 0.860000 samples 100\n",
};

const PROFILE: &str = "name x\nsamples 100\nloss-level 0.86\nprob delay\n0 200\n0.5 200\n0.5 300\n0.8 1000\n0.9 1300\n1 1300\n";

#[test]
fn every_option_of_an_object_takes_effect() {
    let mut wrong = Vec::new();
    for (command, show, expected) in OBJECTS {
        let mut bench = Bench::new();
        bench.files = Texts(vec![("/p", PROFILE.into())]);
        // Queues need a scheduler.
        bench.ok("sched 9 config");
        match bench.run(command) {
            Ok(_) => {
                let shown = bench.ok(show);
                if !shown.contains(expected) {
                    wrong.push(format!("`{command}`: no `{expected}` in\n{shown}"));
                }
            }
            Err(error) => wrong.push(format!("`{command}`: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A rule as written behind `add 10`, and its echo.
const RULES: &[(&str, &str)] = rows! {
    // Actions.
    "allow ip from any to any" => "allow ip from any to any",
    "accept all from any to any" => "allow ip from any to any",
    "pass ip from any to any" => "allow ip from any to any",
    "permit ip from any to any" => "allow ip from any to any",
    "deny ip from any to any" => "deny ip from any to any",
    "drop ip from any to any" => "deny ip from any to any",
    "count ip from any to any" => "count ip from any to any",
    "pipe 1 ip from any to any" => "pipe 1 ip from any to any",
    "queue 1 ip from any to any" => "queue 1 ip from any to any",
    "pipe tablearg ip from table(T) to any" => "pipe tablearg ip from table(T) to any",
    "queue tablearg ip from table(T) to any" => "queue tablearg ip from table(T) to any",
    "skipto 100 ip from any to any" => "skipto 100 ip from any to any",
    "skipto tablearg ip from table(T) to any" => "skipto tablearg ip from table(T) to any",
    "call 100 ip from any to any" => "call 100 ip from any to any",
    "return ip from any to any" => "return ip from any to any",
    "check-state" => "check-state :default",
    "check-state :web" => "check-state :web",
    "check-state :any" => "check-state :any",
    "// text" => "count ip from any to any // text",
    // Words in front of the action, log and remarks.
    "set 5 allow ip from any to any" => "allow ip from any to any",
    "prob 0.5 deny ip from any to any" => "prob 0.500000 deny ip from any to any",
    "deny log ip from any to any" => "deny log ip from any to any",
    "deny log logamount 5 ip from any to any" => "deny log logamount 5 ip from any to any",
    "deny ip from any to any // why" => "deny ip from any to any // why",
    // Protocols.
    "allow ip4 from any to any" => "allow ip4 from any to any",
    "allow ipv4 from any to any" => "allow ip4 from any to any",
    "allow ip6 from any to any" => "allow ip6 from any to any",
    "allow ipv6 from any to any" => "allow ip6 from any to any",
    "allow tcp from any to any" => "allow tcp from any to any",
    "allow 17 from any to any" => "allow udp from any to any",
    "allow 253 from any to any" => "allow 253 from any to any",
    "allow { tcp or udp } from any to any" => "allow { tcp or udp } from any to any",
    "allow not tcp from any to any" => "allow not tcp from any to any",
    // Addresses.
    "allow ip from 10.0.0.1 to any" => "allow ip from 10.0.0.1 to any",
    "allow ip from 10.1.2.3/8 to any" => "allow ip from 10.0.0.0/8 to any",
    "allow ip from 10.0.0.0:255.255.0.0 to any" => "allow ip from 10.0.0.0/16 to any",
    "allow ip from 10.0.0.0/24{1,5-9} to any" => "allow ip from 10.0.0.0/24{1,5-9} to any",
    "allow ip from 10.0.0.1,10.0.0.2 to any" => "allow ip from 10.0.0.1,10.0.0.2 to any",
    "allow ip from not 10.0.0.1 to any" => "allow ip from not 10.0.0.1 to any",
    "allow ip from { 10.0.0.1 or me } to any" => "allow ip from { 10.0.0.1 or me } to any",
    "allow ip from me to me6" => "allow ip from me to me6",
    "allow ip from table(T) to table(T,5)" => "allow ip from table(T) to table(T,5)",
    "allow ip6 from fd00::1 to fd00::/8" => "allow ip6 from fd00::1 to fd00::/8",
    // Ports.
    "allow tcp from any 1024-65535 to any 80" => "allow tcp from any 1024-65535 to any dst-port 80",
    "allow tcp from any to any ssh,80-90,443" => "allow tcp from any to any dst-port 22,80-90,443",
    "allow tcp from any to any not 22" => "allow tcp from any to any not dst-port 22",
    // Options.
    "pipe 1 out" => "pipe 1 ip from any to any out",
    "pipe 1 src-port 443" => "pipe 1 ip from any to any src-port 443",
    "allow ip from any to any in" => "allow ip from any to any in",
    "allow ip from any to any in recv em0" => "allow ip from any to any in recv em0",
    "allow ip from any to any out recv em0 xmit em1" => "allow ip from any to any out recv em0 xmit em1",
    "allow ip from any to any via em*" => "allow ip from any to any via em*",
    "allow ip from any to any via any" => "allow ip from any to any via any",
    "allow ip from any to any via 10.0.1.1" => "allow ip from any to any via 10.0.1.1",
    "allow ip from any to any via table(I)" => "allow ip from any to any via table(I)",
    "allow src-ip 10.0.0.1 dst-ip 10.0.0.2" => "allow ip from any to any src-ip 10.0.0.1 dst-ip 10.0.0.2",
    "allow src-ip6 fd00::1 dst-ip6 fd00::2" => "allow ip from any to any src-ip6 fd00::1 dst-ip6 fd00::2",
    "allow dst-port 53 proto udp" => "allow ip from any to any dst-port 53 proto udp",
    "allow ip from any to any layer2" => "allow ip from any to any layer2",
    "allow ip from any to any iptos lowdelay,throughput,reliability,mincost,congestion" => "allow ip from any to any iptos lowdelay,throughput,reliability,mincost,congestion",
    "allow ip from any to any iptos !lowdelay" => "allow ip from any to any iptos !lowdelay",
    "allow ip from any to any ipprecedence 5" => "allow ip from any to any ipprecedence 5",
    "allow ip from any to any dscp ef,cs1,af11" => "allow ip from any to any dscp cs1,af11,ef",
    "allow ip from any to any dscp va,63" => "allow ip from any to any dscp va,63",
    "allow ip from any to any iplen 0-500,1500" => "allow ip from any to any iplen 0-500,1500",
    "allow ip from any to any ipid 7" => "allow ip from any to any ipid 7",
    "allow ip from any to any ipttl 64" => "allow ip from any to any ipttl 64",
    "allow ip from any to any ipversion 6" => "allow ip from any to any ipversion 6",
    "allow ip from any to any ipver 4" => "allow ip from any to any ipversion 4",
    "allow ip from any to any frag" => "allow ip from any to any frag",
    "allow ip from any to any frag mf,!df,offset" => "allow ip from any to any frag mf,!df,offset",
    "allow tcp from any to any tcpflags syn,!ack" => "allow tcp from any to any tcpflags syn,!ack",
    "allow tcp from any to any setup" => "allow tcp from any to any setup",
    "allow tcp from any to any established" => "allow tcp from any to any established",
    "allow icmp from any to any icmptypes 8,0" => "allow icmp from any to any icmptypes 0,8",
    "allow ip6 from any to any icmp6types 128,129" => "allow ip6 from any to any icmp6types 128,129",
    "allow ip6 from any to any flow-id 7" => "allow ip6 from any to any flow-id 7",
    "allow ip from any to any lookup dst-port T" => "allow ip from any to any lookup dst-port T",
    "allow ip from any to any { in or out }" => "allow ip from any to any { in or out }",
    "allow tcp from any to any keep-state" => "allow tcp from any to any keep-state :default",
    "allow tcp from any to any keep-state :web" => "allow tcp from any to any keep-state :web",
    "allow tcp from any to any limit src-addr 4" => "allow tcp from any to any limit src-addr 4 :default",
    "allow tcp from any to any limit src-addr src-port dst-addr dst-port 4" => "allow tcp from any to any limit src-addr src-port dst-addr dst-port 4 :default",
};

#[test]
fn every_part_of_a_rule_is_echoed_in_its_canonical_form() {
    let mut wrong = Vec::new();
    for (body, expected) in RULES {
        let mut bench = Bench::new();
        match bench.run(&format!("add 10 {body}")) {
            Ok(output) => {
                let expected = format!("00010 {expected}\n");
                if output.stdout != expected {
                    wrong.push(format!("`{body}`: {}not {expected}", output.stdout));
                    continue;
                }
                // The echo equals the listing and reads as the same rule.
                let again = bench.ok(&format!("add 20 {}", &expected[6..]));
                assert_eq!(again[6..], expected[6..]);
                assert!(bench.ok("list").starts_with(&expected), "{body}");
            }
            Err(error) => wrong.push(format!("`{body}`: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words for other parts of the kernel. The message names them, and the status is 69 (unavailable).
const FOREIGN_ACTIONS: &[&str] = &[
    "reject",
    "reset",
    "reset6",
    "unreach port",
    "unreach6 port",
    "divert 8668",
    "tee 8668",
    "fwd 10.0.0.1",
    "forward 10.0.0.1",
    "nat 1",
    "setfib 1",
    "setdscp ef",
    "netgraph 1",
    "ngtee 1",
    "reass",
    "tcp-setmss 1400",
    "abort",
    "setmark 1",
];

const FOREIGN_OPTIONS: &[&str] = &[
    "mac any any",
    "ipoptions ssrr",
    "tcpack 1",
    "tcpseq 1",
    "tcpwin 1",
    "tcpdatalen 1",
    "tcpmss 1400",
    "tcpoptions mss",
    "ext6hdr frag",
    "record-state",
    "set-limit src-addr 1",
    "defer-action",
    "tagged 1",
    "flow table(1)",
    "uid 0",
    "gid 0",
    "jail 1",
    "verrevpath",
    "versrcreach",
    "antispoof",
    "mark 1",
    "diverted",
    "diverted-loopback",
    "diverted-output",
    "ipsec",
    "sockarg",
    "fib 1",
];

const FOREIGN_COMMANDS: &[&str] = &["nat 1 config if em0", "internal iflist"];

#[test]
fn words_outside_the_purpose_are_refused_by_name() {
    let actions = FOREIGN_ACTIONS.iter().map(|text| {
        let command = format!("add 10 {text} ip from any to any");
        (command, *text)
    });
    let options = FOREIGN_OPTIONS.iter().map(|text| {
        let command = format!("add 10 allow ip from any to any {text}");
        (command, *text)
    });
    let modifiers = ["altq q", "tag 1", "untag 1"].iter().map(|text| {
        let command = format!("add 10 allow {text} ip from any to any");
        (command, *text)
    });
    let commands = FOREIGN_COMMANDS
        .iter()
        .map(|text| (text.to_string(), *text));
    for (command, text) in actions.chain(options).chain(modifiers).chain(commands) {
        let mut bench = Bench::new();
        let word = text.split(' ').next().expect("it has words");
        let (message, exit) = bench.refusal(&command);
        assert!(
            message.starts_with(&format!("`{word}` ")) && !message.contains("unrecognised"),
            "`{command}`: {message}"
        );
        assert_eq!(exit, 69, "{command}");
        assert_eq!(bench.ok("list"), "65535 deny ip from any to any\n");
    }
}

/// Options in wrong places and values out of bounds: dummynet's own messages.
const REFUSALS: &[(&str, &str, u8)] = rows! {
    "queue 1 config pipe 1 bw 1Mbit/s" => "bw is only for links" => 65,
    "queue 1 config pipe 1 delay 5" => "delay is only for links" => 65,
    "sched 1 config bw 1Mbit/s" => "bw is only for links" => 65,
    "pipe 1 config bw" => "bw needs bandwidth or interface" => 64,
    "pipe 1 config delay" => "delay needs argument 0..10000ms" => 64,
    "pipe 1 config queue" => "queue needs queue size" => 64,
    "pipe 1 config plr" => "plr needs argument 0..1" => 64,
    "pipe 1 config buckets" => "buckets needs argument" => 64,
    "queue 1 config pipe 1 weight" => "weight needs argument" => 64,
    "pipe 1 config mask" => "mask needs mask specifier" => 64,
    "pipe 1 config burst" => "burst needs argument" => 64,
    "pipe 1 config mask src-ip" => "mask: value missing" => 64,
    "pipe 1 config mask src-port 0x10000" => "port mask must be 16 bit" => 65,
    "pipe 1 config mask proto 0x100" => "proto mask must be 8 bit" => 65,
    "pipe 1 config mask flow-id 0x100000" => "flow_id mask must be 20 bit" => 65,
    "pipe 1 config delay 10001" => "delay must be < 10000" => 65,
    "pipe 1 config wrong 5" => "unrecognised option ``wrong''" => 65,
    "pipe 1 config ecn" => "ECN can be used with red/gred/codel/fq_codel only!" => 64,
    "pipe 1 config codel target" => "target needs time" => 65,
    "pipe 1 config codel quantum 300" => "quantum is not for codel" => 65,
    "pipe 1 config codel limit 300" => "limit is not for codel, use queue instead" => 65,
    "pipe 1 config codel flows 300" => "flows is not for codel" => 65,
    "pipe 1 config pie tupdate" => "tupdate needs time" => 65,
    "pipe 1 config pie alpha" => "alpha needs number" => 65,
    "pipe config bw 1Mbit/s" => "need a pipe/flowset/sched number" => 64,
    "add 10 prob 2 deny ip from any to any" => "illegal match prob." => 65,
    "add 10 pipe 70000 ip from any to any" => "illegal argument for pipe" => 65,
    "delete 77" => "rule 77 not found" => 69,
    "list 77" => "rule 77 does not exist" => 69,
};

#[test]
fn mistakes_have_dummynets_words_and_exit_status() {
    let mut wrong = Vec::new();
    for (command, expected, status) in REFUSALS {
        let mut bench = Bench::new();
        match bench.run(command) {
            Ok(_) => wrong.push(format!("`{command}` is accepted")),
            Err(error) => {
                let text = error.to_string();
                let exit = error.exit_code();
                if !text.contains(expected) || exit != *status {
                    wrong.push(format!(
                        "`{command}`: {text} ({exit}), not {expected} ({status})"
                    ));
                }
            }
        }
        assert_eq!(bench.ok("pipe show"), "", "{command}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Variables and their defaults. Times are in microseconds; the last three of PIE in thousandths.
const VARIABLES: &[(&str, &str)] = &[
    ("net.inet.ip.dummynet.hash_size", "64"),
    ("net.inet.ip.dummynet.pipe_slot_limit", "100"),
    ("net.inet.ip.dummynet.pipe_byte_limit", "1048576"),
    ("net.inet.ip.dummynet.io_fast", "0"),
    ("net.inet.ip.dummynet.expire", "1"),
    ("net.inet.ip.dummynet.debug", "0"),
    ("net.inet.ip.dummynet.red_lookup_depth", "256"),
    ("net.inet.ip.dummynet.red_avg_pkt_size", "512"),
    ("net.inet.ip.dummynet.red_max_pkt_size", "1500"),
    ("net.inet.ip.dummynet.tick_lost", "0"),
    ("net.inet.ip.dummynet.schk_count", "0"),
    ("net.inet.ip.dummynet.si_count", "0"),
    ("net.inet.ip.dummynet.fsk_count", "0"),
    ("net.inet.ip.dummynet.queue_count", "0"),
    ("net.inet.ip.dummynet.io_pkt", "0"),
    ("net.inet.ip.dummynet.io_pkt_fast", "0"),
    ("net.inet.ip.dummynet.io_pkt_drop", "0"),
    ("net.inet.ip.dummynet.codel.target", "5000"),
    ("net.inet.ip.dummynet.codel.interval", "100000"),
    ("net.inet.ip.dummynet.fqcodel.target", "5000"),
    ("net.inet.ip.dummynet.fqcodel.interval", "100000"),
    ("net.inet.ip.dummynet.fqcodel.quantum", "1514"),
    ("net.inet.ip.dummynet.fqcodel.flows", "1024"),
    ("net.inet.ip.dummynet.fqcodel.limit", "10240"),
    ("net.inet.ip.dummynet.pie.target", "15000"),
    ("net.inet.ip.dummynet.pie.tupdate", "15000"),
    ("net.inet.ip.dummynet.pie.max_burst", "150000"),
    ("net.inet.ip.dummynet.pie.max_ecnth", "99"),
    ("net.inet.ip.dummynet.pie.alpha", "125"),
    ("net.inet.ip.dummynet.pie.beta", "1250"),
    ("net.inet.ip.dummynet.fqpie.quantum", "1514"),
    ("net.inet.ip.dummynet.fqpie.flows", "1024"),
    ("net.inet.ip.dummynet.fqpie.limit", "10240"),
    ("net.inet.ip.fw.one_pass", "1"),
    ("net.inet.ip.fw.enable", "1"),
    ("net.inet.ip.fw.autoinc_step", "100"),
    ("net.inet.ip.fw.default_rule", "65535"),
    ("net.inet.ip.fw.default_to_accept", "0"),
    ("net.inet.ip.fw.verbose", "0"),
    ("net.inet.ip.fw.verbose_limit", "0"),
    ("net.inet.ip.fw.tables_max", "128"),
    ("net.inet.ip.fw.tables_sets", "0"),
    ("net.inet6.ip6.fw.enable", "1"),
    ("net.link.ether.ipfw", "0"),
    ("net.link.bridge.ipfw", "0"),
];

#[test]
fn every_variable_has_its_default() {
    let mut bench = Bench::new();
    for (name, value) in VARIABLES {
        assert_eq!(
            bench.ok(&format!("sysctl {name}")),
            format!("{name}: {value}\n")
        );
        assert_eq!(bench.ok(&format!("sysctl -n {name}")), format!("{value}\n"));
    }
}
