//! The messages about errors: the whole text, as a user sees it.

use super::super::*;
use super::PLAIN;

pub(super) fn errors(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    match Scenario::parse("x.toml", text, &sets) {
        Ok(variants) => panic!("nothing is wrong with {variants:?}"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    assert_eq!(
        errors(&PLAIN.replace("rtt", "rte"), &[]),
        "\
error: unknown key `rte` in [link]
 --> x.toml:6:1
  |
6 | rte = \"20ms\"
  | ^^^ did you mean `rate` or `rtt`?"
    );
}

#[test]
fn a_key_like_no_other_is_answered_with_all_of_them() {
    assert_eq!(
        errors(&format!("{PLAIN}colour = \"blue\""), &[]),
        "\
error: unknown key `colour` in a flow of type `tcp`
  --> x.toml:10:1
   |
10 | colour = \"blue\"
   | ^^^^^^ one of: type, name, count, stagger, direction, start, stop, rtt, hops, host_up, host_down, class, cc, initial_window, ecn, bytes, pause, dscp, growth, abe, slow_start, pacing, rto_floor"
    );
}

#[test]
fn a_missing_key_is_named_with_what_it_takes() {
    assert_eq!(
        errors(&PLAIN.replace("rate = \"10Mbit/s\"\n", ""), &[]),
        "\
error: [link] needs `rate`
 --> x.toml:4:1
  |
4 | [link]
  | ^^^^^^ `rate` is a rate, schedule or file"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_told_what_is_accepted() {
    assert_eq!(
        errors(&PLAIN.replace("\"10s\"", "true"), &[]),
        "\
error: `duration` takes a time such as \"20ms\", not a boolean
 --> x.toml:2:12
  |
2 | duration = true
  |            ^^^^"
    );
}

#[test]
fn a_missing_unit_is_asked_for() {
    assert_eq!(
        errors(&PLAIN.replace("\"20ms\"", "20"), &[]),
        "\
error: `rtt` has no unit
 --> x.toml:6:7
  |
6 | rtt = 20
  |       ^^ write it as in \"20ms\"; units: ns, us, ms, s, min, h"
    );
    assert_eq!(
        errors(&PLAIN.replace("20ms", "20"), &[]),
        "\
error: `rtt` has no unit
 --> x.toml:6:8
  |
6 | rtt = \"20\"
  |        ^^ units: ns, us, ms, s, min, h"
    );
}

#[test]
fn a_wrong_unit_is_pointed_at_within_its_string() {
    assert_eq!(
        errors(&PLAIN.replace("10Mbit/s", "10 Mbits"), &[]),
        "\
error: `Mbits` is not a unit of rate
 --> x.toml:5:12
  |
5 | rate = \"10 Mbits\"
  |            ^^^^^ did you mean `Mbit/s`?"
    );
}

#[test]
fn an_impossible_value_is_answered_with_the_range() {
    let text = format!("{PLAIN}[[flow]]\ntype = \"ping\"\nsize = 4000\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: `size` cannot be 4000
  --> x.toml:12:8
   |
12 | size = 4000
   |        ^^^^ 24 to 1472 is accepted"
    );
    assert_eq!(
        errors(&PLAIN.replace("10Mbit/s", "0Mbit/s"), &[]),
        "\
error: `rate` cannot be 0Mbit/s
 --> x.toml:5:9
  |
5 | rate = \"0Mbit/s\"
  |         ^^^^^^^ must be more than zero"
    );
}

#[test]
fn a_negative_value_is_told_so() {
    for set in [
        "duration=-5s",
        "link.rate=-5Mbit/s",
        "link.loss=-1",
        "link.loss=-10%",
        "seed=-1",
    ] {
        let (path, value) = set.split_once('=').unwrap();
        let key = path.rsplit('.').next().unwrap();
        let text = errors(PLAIN, &[set]);
        let first = format!("error: `{key}` cannot be {value}\n");
        assert!(text.starts_with(&first), "{text}");
        assert!(text.ends_with("^ must not be negative"), "{text}");
    }
}

#[test]
fn a_delay_contradicts_a_round_trip_time() {
    assert_eq!(
        errors(
            &PLAIN.replace("rtt = \"20ms\"", "rtt = \"20ms\"\ndelay = \"10ms\""),
            &[]
        ),
        "\
error: `delay` contradicts `rtt`
 --> x.toml:7:1
  |
6 | rtt = \"20ms\"
  | --- `rtt` is set
7 | delay = \"10ms\"
  | ^^^^^ give one of them"
    );
}

#[test]
fn a_flow_outside_the_run_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}start = \"5s\"\nstop = \"3s\"\n"), &[]),
        "\
error: flow `tcp` stops at 3s before it starts
  --> x.toml:11:8
   |
11 | stop = \"3s\"
   |        ^^^^ it starts at 5s"
    );
    assert_eq!(
        errors(&format!("{PLAIN}start = \"20s\"\n"), &[]),
        "\
error: flow `tcp` starts at 20s, after the end of the run
  --> x.toml:10:9
   |
10 | start = \"20s\"
   |         ^^^^^ the run lasts 10s"
    );
}

#[test]
fn a_warm_up_that_leaves_nothing_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}[measure]\nwarmup = \"10s\"\n"), &[]),
        "\
error: nothing is left after a warm-up of 10s
  --> x.toml:11:10
   |
11 | warmup = \"10s\"
   |          ^^^^^ the run lasts 10s"
    );
    assert_eq!(
        errors(&format!("{PLAIN}start = \"9.5s\"\n"), &[]),
        "\
error: flow `tcp` lasts 500ms, and its warm-up is 1s
  --> x.toml:10:9
   |
10 | start = \"9.5s\"
   |         ^^^^^^ it must last longer, or `warmup` in [measure] be shorter"
    );
}

#[test]
fn a_queue_is_pointed_at_word_by_word() {
    let queue = |words: &str| errors(PLAIN, &[&format!("link.queue={words}")]);
    assert_eq!(
        queue("codel tarqet 5ms"),
        "\
error: `codel` has no parameter `tarqet`
 |
 | --set link.queue=codel tarqet 5ms
 |                        ^^^^^^ did you mean `target`?"
    );
    assert_eq!(
        queue("codel target"),
        "\
error: `target` needs a value
 |
 | --set link.queue=codel target
 |                        ^^^^^^"
    );
    let text =
        format!("{PLAIN}[matrix]\n\"link.queue\" = [\"fifo\", \"fq_codel  interval 200s\"]\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: `interval 200s` is outside 1us to 100s
  --> x.toml:11:45
   |
11 | \"link.queue\" = [\"fifo\", \"fq_codel  interval 200s\"]
   |                                             ^^^^"
    );
}

#[test]
fn two_flows_of_one_name_are_refused() {
    let text = format!(
        "{PLAIN}name = \"a-2\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nname = \"a\"\ncount = 3\n"
    );
    assert_eq!(
        errors(&text, &[]),
        "\
error: two flows are named `a-2`
  --> x.toml:14:8
   |
10 | name = \"a-2\"
   |        ----- the first is named
...
14 | name = \"a\"
   |        ^^^"
    );
}

#[test]
fn a_flow_and_several_of_the_same_name_are_refused() {
    // `a.goodput` would be the figure of the first, or of the other three together.
    let text = format!("{PLAIN}name = \"a\"\n[[flow]]\ntype = \"tcp\"\nname = \"a\"\ncount = 3\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: two flows are named `a`
  --> x.toml:13:8
   |
10 | name = \"a\"
   |        --- the first is named
...
13 | name = \"a\"
   |        ^^^"
    );
}

#[test]
fn a_flow_written_as_one_table_is_one_error() {
    assert_eq!(
        errors(&PLAIN.replace("[[flow]]", "[flow]"), &[]),
        "\
error: `flow` is a list of tables, not a table
 --> x.toml:8:1
  |
8 | [flow]
  | ^^^^^^ write it as [[flow]]"
    );
    let two = format!("{PLAIN}[[flow]]\ntype = \"ping\"\n").replace("[[flow]]", "[flow]");
    assert_eq!(
        errors(&two, &[]),
        "\
error: not TOML: duplicate key
  --> x.toml:10:2
   |
10 | [flow]
   |  ^^^^ `flow` is a list: write each as [[flow]]"
    );
}

#[test]
fn a_missing_bracket_is_one_error() {
    assert_eq!(
        errors(&PLAIN.replace("[[flow]]", "[[flow]"), &[]),
        "\
error: not TOML: unclosed array table, expected `]`
 --> x.toml:8:8
  |
8 | [[flow]
  |        ^ write [[flow]]"
    );
    // Without its bracket, the array would go on to the end of the file.
    let rate = "rate = [[\"0s\", \"10Mbit/s\"], [\"1s\", \"5Mbit/s\"]";
    assert_eq!(
        errors(&PLAIN.replace("rate = \"10Mbit/s\"", rate), &[]),
        "\
error: not TOML: missing comma between array elements, expected `,`
 --> x.toml:6:1
  |
6 | rtt = \"20ms\"
  | ^ a `,` or a `]` is missing before it"
    );
}

#[test]
fn an_empty_matrix_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}[matrix]\n\"link.queue\" = []\n"), &[]),
        "\
error: `link.queue` in [matrix] has no values
  --> x.toml:11:16
   |
11 | \"link.queue\" = []
   |                ^^ give at least one"
    );
    assert_eq!(
        errors(&format!("{PLAIN}[matrix]\n"), &[]),
        "\
error: [matrix] is empty
  --> x.toml:10:2
   |
10 | [matrix]
   |  ^^^^^^ give a key with values, such as \"link.queue\" = [\"fifo\", \"fq_codel\"]"
    );
}

#[test]
fn a_matrix_of_a_key_that_is_not_there_is_refused_once() {
    let text = format!("{PLAIN}[matrix]\n\"link.quue\" = [\"fifo\", \"codel\"]\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: unknown key `quue` in [link]
  --> x.toml:11:1
   |
11 | \"link.quue\" = [\"fifo\", \"codel\"]
   | ^^^^^^^^^^^ did you mean `queue`?"
    );
}

#[test]
fn an_expectation_of_nothing_is_refused() {
    let text = format!(
        "{PLAIN}[[expect]]\nmetric = \"tcp.goodputs\"\nmin = \"1Mbit/s\"\n\
         [[expect]]\nmetric = \"jain\"\nvariant = \"fifi\"\nmin = 0.9\n\
         [[expect]]\nmetric = \"jain\"\n\
         [[expect]]\nmetric = \"up.sojourn.p50\"\nmin = \"3ms\"\nmax = \"2ms\"\n"
    );
    assert_eq!(
        errors(&text, &[]),
        "\
error: `tcp` has no metric `goodputs`
  --> x.toml:11:15
   |
11 | metric = \"tcp.goodputs\"
   |               ^^^^^^^^ did you mean `goodput`?

error: there is no variant `fifi`
  --> x.toml:15:11
   |
15 | variant = \"fifi\"
   |           ^^^^^^ did you mean `fifo`?

error: [[expect]] has neither `min` nor `max`
  --> x.toml:17:1
   |
17 | [[expect]]
   | ^^^^^^^^^^ give one of them or both

error: no value is at least 3ms and at most 2ms
  --> x.toml:22:7
   |
21 | min = \"3ms\"
   |       ----- `min` is set
22 | max = \"2ms\"
   |       ^^^^^"
    );
}

#[test]
fn wrong_values_are_told_up_to_the_first_error_of_syntax() {
    assert_eq!(
        errors("duration = 10s\n[link\nrate = \"1Mbit/s\"\n", &[]),
        "\
error: a string must be quoted
 --> x.toml:1:12
  |
1 | duration = 10s
  |            ^^^ write \"10s\"

error: not TOML: unclosed table, expected `]`
 --> x.toml:2:6
  |
2 | [link
  |      ^ write [link]"
    );
}

#[test]
fn a_wrong_override_is_shown_as_it_was_given() {
    assert_eq!(
        errors(
            PLAIN,
            &["link.rate", "flow.bulk.cc=bbr", "flow.tcp.start=1"]
        ),
        "\
error: an override needs `=`
 |
 | --set link.rate
 |       ^^^^^^^^^ write it as KEY=VALUE, such as link.rate=10Mbit/s

error: there is no flow `bulk`
 |
 | --set flow.bulk.cc=bbr
 |       ^^^^^^^^^^^^ one of: tcp

error: `start` has no unit
 |
 | --set flow.tcp.start=1
 |                      ^ write it as in \"20ms\"; units: ns, us, ms, s, min, h"
    );
}

#[test]
fn a_schedule_out_of_order_is_refused() {
    let rate = r#"[["0s", "1Mbit/s"], ["3s", "2Mbit/s"], ["2s", "1Mbit/s"]]"#;
    let text = PLAIN.replace(r#""10Mbit/s""#, rate);
    let expected = "error: a step at 2s cannot follow one at 3s\n --> x.toml:5:48\n";
    assert!(
        errors(&text, &[]).starts_with(expected),
        "{}",
        errors(&text, &[])
    );
    let text = PLAIN.replace(
        r#""10Mbit/s""#,
        r#"[["0s", "1Mbit/s"], ["30s", "2Mbit/s"]]"#,
    );
    let expected = "error: the rate's step at 30s comes after the run\n --> x.toml:5:8\n";
    assert!(
        errors(&text, &[]).starts_with(expected),
        "{}",
        errors(&text, &[])
    );
    let text = format!(
        "{PLAIN}[[hop]]\nrate = \"1Mbit/s\"\n[hop.down]\ndelay = [[\"0s\", \"1ms\"], [\"10s\", \"2ms\"]]\n"
    );
    let said = errors(&text, &[]);
    let expected = "error: the delay's step at 10s comes after the run\n  --> x.toml:13:9\n";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Scenario::load("no/such.toml".as_ref(), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read the scenario `no/such.toml`: "),
        "{error}"
    );
}

#[test]
fn an_empty_file_is_told_what_it_lacks() {
    let errors = errors("", &[]);
    assert!(errors.contains("the scenario needs `duration`"), "{errors}");
    assert!(errors.contains("there is no [link]"), "{errors}");
    assert!(errors.contains("x.toml:1:1"), "{errors}");
}

#[test]
fn a_path_in_the_matrix_does_not_repeat_its_name() {
    let text = format!("{PLAIN}[matrix]\n\"matrix.link.queue\" = [\"fifo\", \"codel\"]\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: a path in [matrix] does not begin with `matrix`
  --> x.toml:11:1
   |
11 | \"matrix.link.queue\" = [\"fifo\", \"codel\"]
   | ^^^^^^^^^^^^^^^^^^^ leave out `matrix.`, as in \"link.queue\" = [\"fifo\", \"codel\"]"
    );
    let said = "error: a path in [matrix] does not begin with `matrix`\n";
    let unquoted = errors(
        &text.replace("\"matrix.link.queue\"", "matrix.link.queue"),
        &[],
    );
    assert!(unquoted.starts_with(said), "{unquoted}");
    let option = errors(PLAIN, &["matrix.matrix.link.queue=[\"fifo\"]"]);
    assert!(option.starts_with(said), "{option}");
    let whole = errors(PLAIN, &["matrix=[\"fifo\"]"]);
    assert!(whole.starts_with("error: `matrix` is a table"), "{whole}");
}

#[test]
fn an_expectation_of_no_variant_is_refused() {
    let text = format!("{PLAIN}[[expect]]\nmetric = \"jain\"\nvariant = []\nmin = 0.9\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: `variant` is an empty list
  --> x.toml:12:11
   |
12 | variant = []
   |           ^^ name variants, or leave it out to mean all"
    );
}

#[test]
fn a_scenario_without_a_flow_is_refused() {
    let text = PLAIN.replace("[[flow]]\ntype = \"tcp\"\n", "");
    let printed = errors(&text, &[]);
    assert!(
        printed.starts_with("error: there is no [[flow]]\n --> x.toml:1:1\n"),
        "{printed}"
    );
    assert!(
        printed.contains("add one, such as [[flow]] with type = \"tcp\""),
        "{printed}"
    );
    let printed = errors(&format!("flow = []\n{text}"), &[]);
    assert!(
        printed.starts_with("error: there is no [[flow]]\n --> x.toml:1:8\n"),
        "{printed}"
    );
}

#[test]
fn a_window_longer_than_the_run_is_refused() {
    let text = format!("{PLAIN}[measure]\nwindow = \"11s\"\nstep = \"12s\"\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: a `window` of 11s is longer than the run
  --> x.toml:11:10
   |
11 | window = \"11s\"
   |          ^^^^^ the run lasts 10s

error: a `step` of 12s is longer than the run
  --> x.toml:12:8
   |
12 | step = \"12s\"
   |        ^^^^^ the run lasts 10s"
    );
}

#[test]
fn a_suggested_unit_is_of_the_size_that_was_meant() {
    let rate = |unit: &str| errors(&PLAIN.replace("10Mbit/s", &format!("1{unit}")), &[]);
    for (unit, meant) in [
        ("Mb", "Mbit/s"),
        ("mb/s", "Mbit/s"),
        ("Kbits", "kbit/s"),
        ("MBps", "MB/s"),
        ("Mbytes/s", "MB/s"),
    ] {
        let printed = rate(unit);
        assert!(
            printed.ends_with(&format!("did you mean `{meant}`?")),
            "{printed}"
        );
    }
    for unit in ["MB", "ms", "s", "MiB/s", "TB/s"] {
        let printed = rate(unit);
        assert!(
            printed.contains("units: bit/s, kbit/s, Mbit/s"),
            "{printed}"
        );
    }
    let time = errors(&PLAIN.replace("10s", "10secs"), &[]);
    assert!(time.ends_with("did you mean `s`?"), "{time}");
    let time = errors(&PLAIN.replace("\"10s", "\"10m"), &[]);
    assert!(time.ends_with("units: ns, us, ms, s, min, h"), "{time}");
}

#[test]
fn a_queue_in_the_words_of_tc_is_answered_with_ours() {
    let with = |queue: &str| {
        errors(
            &PLAIN.replace("[[flow]]", &format!("queue = \"{queue}\"\n[[flow]]")),
            &[],
        )
    };
    assert!(with("pfifo limit 100").contains("^^^^^ tc's `pfifo limit N` is `fifo limit N`"));
    assert!(with("cake ack-filter").contains("`ack-filter` is `ack_filter on`"));
    assert!(with("cake nat").contains("leave it out"));
    assert!(with("netem delay 10ms").contains("is a part of the link"));
}

#[test]
fn a_host_that_is_not_there_is_answered_with_those_that_are() {
    let flow = |keys: &str| format!("{PLAIN}{keys}\n");
    assert_eq!(
        errors(&flow("host_up = 3"), &[]),
        "\
error: there is no host 3 for flow `tcp`
  --> x.toml:10:11
   |
10 | host_up = 3
   |           ^ `up` in [hosts] is 1: set it to 3 or more"
    );
    let text = errors(&flow("host_down = 5\n[hosts]\ndown = 4"), &[]);
    assert!(text.contains("there is no host 5 for flow `tcp`"), "{text}");
    assert!(
        text.ends_with("^ `down` in [hosts] is 4: hosts 1 to 4"),
        "{text}"
    );
    let text = errors(&flow("host_up = 0"), &[]);
    assert!(text.contains("`host_up`"), "{text}");
    let program = "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[hosts]\nup = 2\n\
        [[flow]]\ntype = \"command\"\nrun = \"true\"\nhost_up = 2\n";
    let text = errors(program, &[]);
    assert!(
        text.ends_with("^ a program has an address of its own, as another host has"),
        "{text}"
    );
}

#[test]
fn a_bound_of_a_share_is_not_above_the_whole() {
    let bound =
        |metric: &str, bound: &str| format!("{PLAIN}[[expect]]\nmetric = \"{metric}\"\n{bound}\n");
    assert_eq!(
        errors(&bound("up.utilisation", "min = 90"), &[]),
        "\
error: `min` of `up.utilisation`, which is a ratio from 0 to 1, is 90
  --> x.toml:12:7
   |
12 | min = 90
   |       ^^ write 0.9 or \"90%\" for 90 per cent"
    );
    assert!(
        errors(&bound("jain", "max = 2"), &[]).ends_with("write 0.02 or \"2%\" for 2 per cent")
    );
    assert!(errors(&bound("jain", "min = 101"), &[]).ends_with("such as 0.95 or \"95%\""));
    // A packet more than the rate allows within the measured time is no mistake.
    for accepted in ["min = 1", "max = 1.01", "min = \"100%\""] {
        assert!(Scenario::parse("x.toml", &bound("up.utilisation", accepted), &[]).is_ok());
    }
}

#[test]
fn a_wrong_matrix_has_no_errors_about_the_variants_that_it_would_have() {
    let text = format!(
        "{PLAIN}[matrix]\nlink.queue = [\"cake\", \"cake\"]\n\
         [[expect]]\nmetric = \"jain\"\nvariant = \"cake\"\nmin = 0.9\n"
    );
    let said = errors(&text, &[]);
    assert!(
        said.starts_with("error: two variants are named `cake`"),
        "{said}"
    );
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[test]
fn the_goodput_of_a_call_is_refused_because_it_is_not_measured() {
    let text = format!(
        "{PLAIN}[[flow]]\ntype = \"voip\"\n\
         [[expect]]\nmetric = \"voip.goodput\"\nmin = \"60kbit/s\"\n"
    );
    let said = errors(&text, &[]);
    assert!(
        said.starts_with("error: `voip` has no metric `goodput`"),
        "{said}"
    );
}
