//! Command lines of the dummynet reference: their effect on the objects, and the text of `show`.

mod common;

use common::{Bench, Texts, out, udp, visible};
use sluice_ipfw::headers::TCP;

const ANY: &str = "add 10 allow ip from any to any";

#[test]
fn every_command_line_is_accepted() {
    let mut bench = Bench::new();
    bench.files = Texts(vec![("/tmp/x", "name x\nsamples 100\nloss-level 0.86\nprob delay\n0 200\n0.5 200\n0.5 300\n0.8 1000\n0.9 1300\n1 1300\n".into())]);
    for line in [
        "pipe 1 config bw 10Mbit/s delay 20 codel",
        "pipe 1 config",
        "pipe 1 config bw 10Mbit/s",
        "sched 1 config type fq_codel",
        "queue 1 config sched 1",
        "pipe config 2 bw 300Kbit/s",
        "pipe 3 config bw 50KBytes delay 20ms burst 10k queue 10K",
        "pipe 3 config bw 30Byte/s queue 20",
        "pipe 3 config plr 0.1",
        "pipe 3 config plr 0.01,0.1,0.5,0.3",
        "pipe 3 config noerror buckets 128",
        "pipe 3 config mask src-ip 0xffffffff codel",
        "pipe 3 config mask all",
        "pipe 3 config mask queue",
        "pipe 3 config mask proto 0xff src-port 0xffff dst-port /16 flow-id 0xfffff src-ip6 /64 dst-ipv6 128",
        "pipe 3 config bw 1Mbit/s profile /tmp/x",
        "pipe 3 config codel target 0ms interval 0ms",
        "queue 3 config pipe 1 weight 5 lmax 1500 pri 2",
        "queue 4 config sched 1 flow_mask dst-ip 0xffffffff",
        "sched 5 config",
        "sched 5 config type FIFO",
        "sched 5 config type RR",
        "sched 5 config type QFQ",
        "sched 5 config type PRIO",
        "sched 5 config type WF2Q+ mask dst-ip 0xffffffff buckets 256",
        "sched 5 config type fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn",
        "sched 5 config fq_codel noecn",
        "pipe show",
        "pipe list 1-5,7 9",
        "pipe 1 show",
        "queue show",
        "sched show",
        "pipe print",
        "add pipe 1 out",
        "add pipe 1 src-port 443",
        "add // text",
        "add 100 set 5 prob 0.5 deny log logamount 5 ip from any to any",
        "100 add count ip from any to any",
        "add allow { tcp or udp } from not 10.0.0.0/8,192.168.0.0/16 to me 22,80-90",
        "add deny ip from any to 10.0.0.0/24{1,5-9}",
        "add count ip from 10.0.0.0:255.255.0.0 to any via em*",
        "add pipe 1 ip from any to any via table(I)",
        "add count ip from any to any recv any xmit em1 out",
        "add count tcp from any to any setup established tcpflags syn,!ack",
        "add count ip from any to any iptos lowdelay,!reliability ipprecedence 5 dscp ef,af11,7 iplen 40-1500 ipttl 64",
        "add count icmp from any to any icmptypes 0,8",
        "add count ip6 from any to any flow-id 7 icmp6types 128",
        "add allow udp from any to any keep-state",
        "add allow tcp from any to any limit src-addr 4",
        "add check-state :flow",
        "add skipto 1000 ip from any to any frag",
        "add call 2000 ip from any to any",
        "add return",
        "table T1 create type addr valtype pipe",
        "table T1 add 10.0.0.0/24 5",
        "add pipe tablearg ip from table(T1) to any",
        "table T1 list",
        "table T1 info",
        "table T1 lookup 10.0.0.7",
        "table T2 create type number algo number:array",
        "table T2 add 80 1",
        "table T3 create type iface",
        "table T3 add em0",
        "table all list",
        "table T2 flush",
        "table T2 destroy",
        "list",
        "show",
        "-t show",
        "-T show 100 200-300",
        "-S list",
        "-d show",
        "-c list",
        "-b list",
        "set 5 show",
        "set disable 5",
        "set enable 5",
        "set move 5 to 6",
        "set move rule 100 to 7",
        "set swap 6 7",
        "set show",
        "zero",
        "zero 100",
        "resetlog",
        "delete 100",
        "delete set 6",
        "enable one_pass",
        "disable firewall",
        "enable firewall",
        "sysctl net.inet.ip.dummynet.io_fast=1",
        "sysctl net.inet.ip.dummynet.hash_size=256 net.inet.ip.dummynet.expire=0",
        "sysctl -n net.inet.ip.fw.one_pass",
        // Sections 1.1 and 7: prefixes, order, attached commas, units by their first letters.
        "p 1 show",
        "\"pipe 1 config bw 1Mbit/s\"",
        "pipe 6 config bandwidth 10Mb",
        "pipe 6 config bw 1mbits/s",
        "pipe 6 config bw 1MByte/s",
        "pipe 6 config bw 10k",
        "pipe 6 config bw 0x1000",
        "pipe 6 config bw 0",
        "pipe 6 config delay 20ms # comment",
        "pipe 6 config delay 10000",
        "pipe 6 config sched_mask src-ip 0xff buckets 64",
        "flowset 6 config pipe 1 priority 3 maxlen 1500",
        "flowset 6 show",
        "pipe 6 config red 0.002/5/15/0.1",
        "pipe 6 config gred 0.002/5K/15K/0.1 queue 50KBytes",
        "pipe 6 config red 1/20/20/1 ecn",
        "pipe 6 config droptail",
        "pipe 6 config pie target 15ms tupdate 15ms alpha 0.125 beta 1.25 max_burst 150ms max_ecnth 0.1 ecn capdrop onoff dre noderand",
        "sched 6 config type fq_pie target 15ms ts nocapdrop quantum 1514 limit 10240 flows 1024 noecn",
        "sched 7 config type prio",
        "queue 7 config sched 7 weight 0",
        "table T1 detail",
        "table T4 create type addr limit 10 missing",
        "table T1 swap T4",
        "table T4 delete 10.0.0.0/24",
        "add 5 pipe 1 ip from any to any out via em0",
        "delete 5",
        "list 65535",
        "zero 65535",
        "disable one_pass",
        "sysctl net.inet.ip.dummynet.codel.target=7000 net.inet.ip.dummynet.fqpie.alpha=125",
        "sysctl net.inet.ip.dummynet.queue_count",
        "pipe 6 delete",
        "pipe 3 delete",
        "queue 4 delete",
        "-f flush",
        "-q pipe flush",
    ] {
        bench.ok(line);
    }
}

#[test]
fn the_worked_samples_match_to_the_space() {
    let mut bench = Bench::new();
    bench.ok("pipe 1 config bw 10Mbit/s delay 20 codel");
    assert_eq!(
        visible(&bench.ok("pipe 1 show")),
        "00001:  10.000 Mbit/s   20 ms burst 0_\n\
         q131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0  AQM CoDel target 5ms interval 100ms NoECN\n \
         sched 65537 type FIFO flags 0x0 0 buckets 0 active\n"
    );
    bench.ok("pipe 1 config");
    assert!(
        visible(&bench.ok("pipe 1 show")).starts_with("00001: unlimited         0 ms burst 0_\n")
    );

    let mut bench = Bench::new();
    bench.script(
        "pipe 1 config bw 10Mbit/s
         sched 1 config type fq_codel
         queue 1 config sched 1
         add queue 1 ip from any to any",
    );
    // 20 packets at once: one is on the link, 19 wait.
    for port in 0..20 {
        bench.send(1500, &out(TCP, udp(1).src, udp(1).dst, (port, 80)));
    }
    bench.run_until(1);
    assert_eq!(
        visible(&bench.ok("sched 1 show")),
        "00001:  10.000 Mbit/s    0 ms burst 0_\n\
         q65537  50 sl. 0 flows (1 buckets) sched 1 weight 0 lmax 0 pri 0 droptail\n \
         sched 1 type FQ_CODEL flags 0x0 0 buckets 1 active\n \
         FQ_CODEL target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ECN\n   \
         Children flowsets: 1_\n\
         BKT Prot ___Source IP/port____ ____Dest. IP/port____ Tot_pkt/bytes Pkt/Byte Drp\n  \
         0 ip           0.0.0.0/0             0.0.0.0/0       20    30000 19 28500   0\n"
    );
    assert_eq!(
        bench.ok("queue 1 show"),
        "q00001  50 sl. 0 flows (1 buckets) sched 1 weight 0 lmax 0 pri 0 droptail\n"
    );
}

#[test]
fn a_masked_pipe_is_shown_as_seen_in_the_wild() {
    let mut bench = Bench::new();
    bench.script(
        "sysctl net.inet.ip.dummynet.hash_size=256
         pipe 10000 config bw 82Mbit/s mask dst-ip 0xffffffff
         add pipe 10000 ip from any to any",
    );
    assert_eq!(
        visible(&bench.ok("pipe show")),
        "10000:  82.000 Mbit/s    0 ms burst 0_\n\
         q141072  50 sl. 0 flows (1 buckets) sched 75536 weight 0 lmax 0 pri 0 droptail\n \
         sched 75536 type FIFO flags 0x1 256 buckets 0 active\n    \
         mask:  0x00 0x00000000/0x0000 -> 0xffffffff/0x0000\n"
    );
    bench.send(1500, &udp(1));
    let text = bench.ok("pipe show");
    // The hash of 10.0.2.2 alone (reference 3.4): d ^ d>>15 = 0x0a000202 ^ 0x1400 = 0x0a001602;
    // its low 8 bits are the bucket.
    assert!(text.contains("1 active"), "{text}");
    assert!(
        text.ends_with(
            "  2 ip           0.0.0.0/0            10.0.2.2/0        1     1500  1 1500   0\n"
        ),
        "{text}"
    );
}

#[test]
fn options_are_shown_in_their_forms() {
    let mut bench = Bench::new();
    bench.files = Texts(vec![(
        "slow",
        "name slow\nsamples 4\nloss-level 0.5\nprob delay\n0 10\n1 10\n".into(),
    )]);
    let first_two = |bench: &mut Bench| {
        let text = bench.ok("pipe 1 show");
        text.lines().take(2).map(str::to_string).collect::<Vec<_>>()
    };
    bench.ok("pipe 1 config bw 64Kbit/s delay 1.5ms burst 10k queue 20KBytes plr 0.1");
    assert_eq!(
        first_two(&mut bench),
        [
            "00001:  64.000 Kbit/s  1.5 ms burst 10240 ",
            "q131073 20 KBplr 0.100000 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0 droptail"
        ]
    );
    bench.ok("pipe 1 config queue 3000B plr 0.01,0.1,0.5,0.3");
    assert_eq!(
        first_two(&mut bench)[1],
        "q131073 3000 Bplr 0.010000,0.100000,0.500000,0.300000 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0 droptail"
    );
    bench.ok("pipe 1 config bw 1Mbit/s profile slow");
    assert_eq!(
        first_two(&mut bench)[1],
        "\t profile: name \"slow\" loss 0.500000 samples 4"
    );
    bench.ok("pipe 1 config bw 1Mbit/s overhead 18 atm");
    assert_eq!(first_two(&mut bench)[1], "\t link: overhead 18 cells atm");
    bench.ok("pipe 1 config mask src-ip6 64");
    let text = bench.ok("pipe 1 show");
    assert!(
        text.ends_with("\n\n        mask: proto: 0x00, flow_id: 0x00000000,  ffff:ffff:ffff:ffff::/0x0000 -> ::/0x0000\n"),
        "{text}"
    );
    bench.ok("pipe 1 config burst 20g");
    assert!(
        first_two(&mut bench)[0].ends_with("burst 20971520 K"),
        "{:?}",
        first_two(&mut bench)[0]
    );
    assert!(
        bench
            .ok("-v pipe 1 show")
            .starts_with("00001: unlimited         0 ms burst 21474836480\n")
    );
}

#[test]
fn every_scheduler_has_a_fifo_beside_it() {
    let mut bench = Bench::new();
    bench.ok("sched 5 config");
    assert!(
        bench
            .ok("pipe show")
            .starts_with("00005: unlimited         0 ms burst 0 \nq131077")
    );
    bench.ok("queue 5 config sched 5");
    let text = bench.ok("sched show");
    assert!(
        text.contains(" sched 5 type WF2Q+ flags 0x0 0 buckets 0 active"),
        "{text}"
    );
    // Two flowsets of four schedulers at work (5 and its FIFO).
    assert_eq!(
        bench.ok("sysctl net.inet.ip.dummynet.schk_count"),
        "net.inet.ip.dummynet.schk_count: 2\n"
    );
    assert_eq!(bench.ok("sysctl -n net.inet.ip.dummynet.fsk_count"), "2\n");
}

#[test]
fn a_scheduler_with_one_queue_takes_over_a_flowset_of_its_number() {
    let mut bench = Bench::new();
    bench.ok("queue 1 config sched 1");
    bench.ok("sched 1 config type fq_codel");
    let text = bench.ok("sched show");
    assert!(text.contains("\nq00001  50 sl. "), "{text}");
    assert!(!text.contains("Children"), "{text}");
    // In the reverse order the scheduler gets its own.
    let mut bench = Bench::new();
    bench.ok("sched 1 config type fq_codel");
    bench.ok("queue 1 config sched 1");
    assert!(bench.ok("sched show").contains("\nq65537  50 sl. "));
}

#[test]
fn config_of_a_queue_or_a_scheduler_says_what_reverts() {
    let mut bench = Bench::new();
    bench.ok("sched 1 config type wf2q+");
    bench.ok("queue 11 config sched 1 weight 76 queue 200 codel");
    assert_eq!(
        bench.warnings("queue 11 config weight 50"),
        ["queue 11 is reconfigured: queue, the AQM are not given and return to their defaults"]
    );
    bench.ok("queue 12 config sched 1 plr 0.1 mask dst-ip 0xffffffff");
    assert_eq!(
        bench.warnings("queue 12 config weight 10"),
        ["queue 12 is reconfigured: plr, mask are not given and return to their defaults"]
    );
    // Nothing is left to lose, and a queue keeps its weight.
    assert_eq!(bench.warnings("queue 12 config"), [""; 0]);
    assert_eq!(bench.warnings("queue 11 config weight 50"), [""; 0]);
    bench.ok("sched 18 config mask src-ip 0xff type fq_codel quantum 300 flows 64 noecn");
    assert_eq!(
        bench.warnings("sched 18 config fq_codel flows 64 target 1ms"),
        [
            "scheduler 18 is reconfigured: ecn, quantum, mask are not given and return to their defaults"
        ]
    );
    assert_eq!(
        bench.warnings("sched 18 config type fq_codel"),
        ["scheduler 18 is reconfigured: target, flows are not given and return to their defaults"]
    );
    // The parameters of another type are no loss, nor are those of a scheduler that is not named.
    bench.ok("sched 18 config type fq_codel quantum 300");
    assert_eq!(bench.warnings("sched 18 config"), [""; 0]);
    assert_eq!(bench.warnings("sched 18 config type rr"), [""; 0]);
    // The effects of a pipe.
    bench.ok("pipe 3 config bw 1Mbit/s loss 0.1 jitter 5ms");
    assert_eq!(
        bench.warnings("pipe 3 config bw 1Mbit/s loss 0.1"),
        ["pipe 3 is reconfigured: jitter is not given and returns to its default"]
    );
}

#[test]
fn config_replaces_and_says_what_reverts() {
    let mut bench = Bench::new();
    bench.ok("pipe 1 config bw 1Mbit/s delay 5 queue 20");
    let said = bench.warnings("pipe 1 config bw 2Mbit/s");
    assert_eq!(
        said,
        ["pipe 1 is reconfigured: delay, queue are not given and return to their defaults"]
    );
    assert!(
        bench
            .ok("pipe 1 show")
            .starts_with("00001:   2.000 Mbit/s    0 ms burst 0 \nq131073  50 sl.")
    );
    // The queue of a FIFO scheduler likewise.
    bench.ok("sched 5 config type fifo plr 0.1 queue 10");
    assert!(bench.ok("sched 5 show").contains("10 sl.plr 0.100000"));
    assert_eq!(
        bench.warnings("sched 5 config type fifo"),
        ["scheduler 5 is reconfigured: queue, plr are not given and return to their defaults"]
    );
    assert!(bench.ok("sched 5 show").contains("50 sl. "));
    // A queue keeps its weight and its scheduler, and a pipe the type of its scheduler.
    bench.ok("sched 1 config type rr");
    bench.ok("queue 7 config sched 1 weight 9");
    bench.ok("queue 7 config queue 20");
    assert!(
        bench
            .ok("queue 7 show")
            .starts_with("q00007  20 sl. 0 flows (1 buckets) sched 1 weight 9 lmax 1500")
    );
    bench.ok("pipe 1 config bw 3Mbit/s");
    assert!(bench.ok("sched 1 show").contains("type RR"));
}

#[test]
fn shares_are_limited_to_the_range_of_the_scheduler() {
    let mut bench = Bench::new();
    bench.ok("sched 1 config type qfq");
    let said = bench.warnings("queue 1 config sched 1 weight 100000");
    assert_eq!(
        said,
        ["weight 100000 is outside the range of qfq: 65536 is used"]
    );
    assert!(bench.ok("queue 1 show").contains("weight 65536 lmax 1500"));
    bench.ok("queue 2 config sched 1 weight 65536");
    // The weights of QFQ add up to at most 2^17.
    let (message, exit) = bench.refusal("queue 3 config sched 1 weight 1");
    assert_eq!(exit, 1);
    assert!(
        message.starts_with("setsockopt(IP_DUMMYNET_CONFIGURE): Invalid argument (the weights would add up to 131073"),
        "{message}"
    );
    assert_eq!(bench.ok("queue 3 show"), "");
}

#[test]
fn refusals_of_the_kernel_carry_their_reason() {
    let mut bench = Bench::new();
    for (line, message, exit) in [
        (
            "queue 1 config weight 5",
            "setsockopt(IP_DUMMYNET_CONFIGURE): Operation not permitted (queue 1 is new: name its scheduler with `pipe M` or `sched M`)",
            1,
        ),
        (
            "sched 1 config type nonsuch",
            "setsockopt(IP_DUMMYNET_CONFIGURE): Invalid argument (there is no scheduler type `nonsuch`)",
            1,
        ),
        (
            "sched 1 delete",
            "rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument (a scheduler is deleted with its pipe: pipe 1 delete)",
            69,
        ),
        (
            "pipe 9 delete",
            "rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument (pipe 9 does not exist)",
            69,
        ),
        ("delete 100", "rule 100 not found", 69),
        ("delete 65535", "rule 65535 not found", 69),
        ("list 9", "rule 9 does not exist", 69),
        ("zero 9", "rule 9 not found", 69),
        (
            "pipe 1 config profile nowhere",
            "fopen: nowhere: No such file or directory",
            69,
        ),
        (
            "/etc/nowhere",
            "fopen: /etc/nowhere: No such file or directory",
            69,
        ),
        ("table T list", "Table T does not exist", 69),
        (
            "sysctl net.inet.ip.dummynet.red_lookup_depth=5",
            "oid 'net.inet.ip.dummynet.red_lookup_depth' is read only",
            1,
        ),
    ] {
        assert_eq!(bench.refusal(line), (message.to_string(), exit), "{line}");
    }
    bench.ok("sched 2 config type fq_codel");
    let (message, _) = bench.refusal("sched 2 config fq_droptail");
    assert!(
        message
            .contains("the scheduler is of type fq_codel: write `type fq_droptail` to change it"),
        "{message}"
    );
}

#[test]
fn profile_errors_are_dummynets() {
    let mut bench = Bench::new();
    for (text, fault) in [
        (
            "samples 100\nsamples 5",
            "at line 2: duplicate ``samples'' line",
        ),
        ("samples x", "at line 1: invalid number of samples"),
        (
            "samples 2000",
            "at line 1: too many samples, maximum is 1024",
        ),
        ("name a b", "at line 1: too many arguments"),
        ("name", "at line 1: missing arg for name"),
        ("name a\nname b", "at line 2: duplicated token: name"),
        ("loss-level 2", "at line 1: loss-level greater than 1.0"),
        ("prob delay\n0 x", "at line 2: invalid point found"),
        ("prob delay\n2 1", "at line 2: probability greater than 1.0"),
        ("colour red", "at line 1: unrecognised command 'colour'"),
        ("prob delay\n0 1", "too few samples, need at least 2"),
    ] {
        bench.files = Texts(vec![("f", text.into())]);
        let (message, exit) = bench.refusal("pipe 1 config profile f");
        assert!(
            message.starts_with("error in f at line ") && message.contains(fault),
            "{text}: {message}"
        );
        assert_eq!(exit, 65);
    }
}

#[test]
fn a_batch_stops_at_its_first_error_or_changes_nothing() {
    let text = "pipe 1 config bw 1Mbit/s\n# a comment\n\npipe 1 config bv 2Mbit/s\nadd allow ip from any to any\n";
    let mut bench = Bench::new();
    assert_eq!(
        bench.refusal(text),
        (
            "Line 4: column 15: unrecognised option ``bv'' (did you mean ``bw''?)".to_string(),
            65
        )
    );
    assert!(bench.ok("pipe show").starts_with("00001:   1.000 Mbit/s"));
    let mut bench = Bench::new();
    bench.files = Texts(vec![
        ("/etc/rules", text.into()),
        (
            "/etc/good",
            "-q add 5 allow ip from any to any\npipe 2 config\n".into(),
        ),
    ]);
    assert!(
        bench
            .refusal("--atomic /etc/rules")
            .0
            .starts_with("Line 4: column 15: ")
    );
    assert_eq!(bench.ok("pipe show"), "");
    bench.ok("ipfw -q /etc/good");
    assert_eq!(
        bench.ok("list"),
        "00005 allow ip from any to any\n65535 deny ip from any to any\n"
    );
}

#[test]
fn a_trial_changes_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.ok("-n pipe 1 config bw 1Mbit/s"), "");
    assert_eq!(bench.ok("pipe show"), "");
    assert_eq!(bench.ok("-n add 100 allow ip from any to any"), "");
    assert_eq!(bench.ok("list"), "65535 deny ip from any to any\n");
    assert!(
        bench
            .refusal("-n queue 1 config")
            .0
            .contains("Operation not permitted")
    );
    bench.files = Texts(vec![(
        "/f",
        "pipe 1 config\nqueue 1 config pipe 1\n".into(),
    )]);
    assert_eq!(bench.ok("-n /f"), "");
    bench.files = Texts(vec![(
        "/f",
        "add 5 allow ip from any to any\nlist\n".into(),
    )]);
    assert_eq!(bench.ok("-n /f"), "");
    assert_eq!(bench.ok("queue show"), "");
}

#[test]
fn files_that_include_one_another_are_refused() {
    let mut bench = Bench::new();
    bench.files = Texts(vec![("/a", "/b\n".into()), ("/b", "/a\n".into())]);
    assert!(bench.refusal("/a").0.ends_with("files include one another"));
}

#[test]
fn compat_reads_and_shows_as_dummynet() {
    let mut bench = Bench::compat();
    assert_eq!(
        bench.refusal("pipe 1 config queue 101"),
        ("2 <= queue size <= 100".into(), 65)
    );
    assert_eq!(
        bench.refusal("pipe 1 config queue 2000000B"),
        ("queue size must be < 1048576B".into(), 65)
    );
    assert_eq!(
        bench.refusal("pipe 1 config bw 5Gbit/s"),
        ("bandwidth too large".into(), 65)
    );
    let said = bench.warnings("pipe 1 config delay 1s codel interval 1s");
    assert_eq!(said, ["`s` in `1s` is ignored: the delay is 1 ms"]);
    let text = bench.ok("pipe 1 show");
    assert!(
        text.contains("   1 ms burst") && text.contains("interval 1fs"),
        "{text}"
    );
    bench.ok("sysctl net.inet.ip.dummynet.compat=0");
    bench.ok("pipe 1 config queue 101");
    bench.ok(ANY);
}

#[test]
fn compat_limits_shares_as_dummynet() {
    // The kernel's bounds: `lmax` 1 to 2000 (qfq) or 64 to 2048 (rr), default 1500; `weight` 1 to 100
    // (wf2q+), default 1. It clamps a value above, and replaces one below, or none, by the default.
    for (kind, words, shown) in [
        ("qfq", "", "weight 1 lmax 1500 "),
        ("qfq", "lmax 1", "weight 1 lmax 1 "),
        ("qfq", "lmax 9000", "weight 1 lmax 2000 "),
        ("rr", "", "weight 1 lmax 1500 "),
        ("rr", "lmax 63", "weight 1 lmax 1500 "),
        ("rr", "lmax 64", "weight 1 lmax 64 "),
        ("rr", "lmax 9000", "weight 1 lmax 2048 "),
        ("wf2q+", "weight 0", "weight 1 lmax 0 "),
        ("wf2q+", "weight 500", "weight 100 lmax 0 "),
    ] {
        let mut bench = Bench::compat();
        bench.ok("pipe 1 config bw 8Mbit/s");
        bench.ok(&format!("sched 1 config type {kind}"));
        bench.ok(&format!("queue 1 config sched 1 {words}"));
        let text = bench.ok("queue show");
        assert!(text.contains(shown), "{kind} {words}: {text}");
    }
}

#[test]
fn variables_are_defaults_of_what_is_configured_later() {
    let mut bench = Bench::new();
    bench.ok("pipe 1 config codel");
    assert_eq!(
        bench.ok("sysctl net.inet.ip.dummynet.codel.target=7000"),
        "net.inet.ip.dummynet.codel.target: 5000 -> 7000\n"
    );
    bench.ok("pipe 2 config codel");
    bench.ok("pipe 3 config codel target 3");
    let text = bench.ok("pipe show");
    for part in ["target 5ms", "target 7ms", "target 3ms"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn limits_below_a_packet_are_raised_with_a_warning() {
    let mut bench = Bench::new();
    let said = bench.warnings("pipe 1 config queue 1000B");
    assert_eq!(
        said,
        ["a queue of 1000 bytes cannot hold a packet of 1500: 16384 bytes are used"]
    );
    assert!(bench.ok("pipe show").contains("q131073 16 KB 0 flows"));
    let said = bench.warnings("pipe 1 config queue 0");
    assert_eq!(said, ["`queue 0` stands for the default: 50 slots"]);
}

#[test]
fn settings_that_a_scheduler_ignores_give_a_warning() {
    let mut bench = Bench::new();
    bench.ok("sched 1 config type fq_codel");
    let said = bench.warnings("queue 1 config sched 1 weight 5 queue 20 plr 0.1 mask all");
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(
        said[0],
        "weight of queue 1 has no effect: scheduler 1 is fq_codel and has limits of its own"
    );
    let said = bench.warnings("sched 10 config pipe 1");
    assert_eq!(
        said,
        ["scheduler 10 uses the link of pipe 10, not that of pipe 1: configure pipe 10"]
    );
}
