use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::*;
use sluice_recording::Status;
use sluice_recording::expect::Outcome;
use sluice_recording::results::RunResult;
use sluice_scenario::Backend;
use sluice_scenario::metric::{Percentiles, Unit, Window};

const MS: u64 = 1_000_000;

fn delays(p50_ms: u64) -> Option<Percentiles> {
    Some(Percentiles {
        count: 100,
        min_ns: MS,
        p50_ns: p50_ms * MS,
        p95_ns: 2 * p50_ms * MS,
        p99_ns: 3 * p50_ms * MS,
        max_ns: 4 * p50_ms * MS,
        mean_ns: p50_ms * MS,
        deviation_ns: MS,
    })
}

fn flow(name: &str, goodput_bps: Option<f64>) -> FlowSummary {
    FlowSummary {
        name: name.into(),
        type_name: "tcp".into(),
        direction: "up".into(),
        goodput_bps,
        bytes: goodput_bps.map(|bps| bps as u64),
        retransmits: goodput_bps.map(|_| 17),
        srtt: goodput_bps.and(delays(30)),
        rtt: if goodput_bps.is_none() {
            delays(21)
        } else {
            None
        },
        ..FlowSummary::default()
    }
}

fn pipe(name: &str, utilisation: f64, drops: &[(&str, u64)]) -> PipeSummary {
    PipeSummary {
        name: name.into(),
        utilisation: Some(utilisation),
        sojourn: delays(11),
        packets: 1000,
        sent: 900,
        drops: drops
            .iter()
            .map(|(reason, n)| ((*reason).to_owned(), *n))
            .collect(),
        ..PipeSummary::default()
    }
}

fn result(variant: &str, flows: Vec<FlowSummary>) -> VariantResult {
    let summary = Summary {
        variant: variant.into(),
        window: Window {
            warmup_ns: 0,
            end_ns: 0,
        },
        total_goodput_bps: flows
            .iter()
            .filter_map(|f| f.goodput_bps)
            .reduce(|a, b| a + b),
        flows,
        groups: Vec::new(),
        crowds: Vec::new(),
        pipes: vec![
            pipe("up", 0.9987, &[("overflow", 123_456), ("congestion", 4)]),
            pipe("down", 0.03, &[]),
        ],
        directions: Vec::new(),
        jain: None,
        jain_min: None,
        jain_mean: None,
        accuracy: None,
    };
    VariantResult {
        scenario: "test".into(),
        variant: variant.into(),
        coordinates: Vec::new(),
        backend: Backend::Sim,
        runs: vec![RunResult {
            seed: 1,
            folder: "test".into(),
            status: Status::Complete,
            reused: false,
            stopped: Vec::new(),
            summary,
        }],
        expect: Vec::new(),
    }
}

#[test]
fn a_row_whose_algorithm_was_stopped_is_marked_and_gives_the_reason() {
    let flows = || vec![flow("bulk", Some(9.612e6)), flow("ping", None)];
    let mut stopped = result("py:a.py:A", flows());
    stopped.runs[0].stopped =
        vec!["`py:a.py:A` is stopped at 1 ns, and its packets pass: no".into()];
    let shown = text(&[result("fifo", flows()), stopped]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("py:a.py:A (stopped)")),
        "{shown}"
    );
    assert!(!shown.contains("fifo (stopped)"), "{shown}");
    let whole = shown.replace("\n    ", " ");
    let why = "not measured: py:a.py:A (stopped): `py:a.py:A` is stopped at 1 ns, and its packets pass: no";
    assert!(whole.contains(why), "{shown}");
}

#[test]
fn a_traceback_stays_as_it_is_while_the_sentence_before_it_is_broken() {
    let traceback = "Traceback (most recent call last):
  File \"/a/folder/whose/name/is/long/enough/that/no/line/has/80/columns/bad.py\", line 8, in on_enqueue
    return 1 / self.zero + 1 / self.one + 1 / self.two + 1 / self.three + 1 / self.four
           ~~^~~~~~~~~~~
";
    let error = "`py:bad.py:A` is stopped at 1 ns, queue 0, and its queue passes every packet from now \
                 on: ZeroDivisionError: division by zero";
    let mut stopped = result("py:bad.py:A", vec![flow("bulk", Some(9.612e6))]);
    stopped.runs[0].stopped = vec![format!("{error}\n{}", traceback.trim_end())];
    let shown = text(&[stopped]);
    assert!(shown.ends_with(&format!("zero\n{traceback}")), "{shown}");
    let (sentence, _) = shown.split_once("\nTraceback").expect("it has one");
    assert!(
        sentence.lines().all(|line| line.width() <= WIDTH),
        "{shown}"
    );
}

#[test]
fn an_unmet_expectation_names_its_backend_if_there_are_several() {
    let missed = |backend, ms: f64| {
        let mut result = result("fifo", vec![flow("bulk", Some(9.6e6))]);
        let outcome = Outcome::new(
            "fifo",
            "ping.p50",
            Unit::Time,
            Some(ms * 1e6),
            "at most 90ms",
        );
        (result.backend, result.expect) = (backend, vec![outcome]);
        result
    };
    let both = [missed(Backend::Sim, 149.0), missed(Backend::Live, 154.0)];
    let lines = |results: &[VariantResult]| text(results).replace("\n    ", " ");
    assert!(
        lines(&both).contains("`ping.p50` of `fifo` (sim) is 149ms"),
        "{}",
        lines(&both)
    );
    assert!(
        lines(&both).contains("`ping.p50` of `fifo` (live) is 154ms"),
        "{}",
        lines(&both)
    );
    assert!(
        lines(&both[1..]).contains("of `fifo` is 154ms"),
        "{}",
        lines(&both[1..])
    );
}

#[test]
fn the_name_of_the_direction_of_a_hop_is_apart_from_the_unit_before_it() {
    let mut result = result(
        "fifo",
        vec![flow("bulk", Some(9.612e6)), flow("ping", None)],
    );
    result.runs[0].summary.pipes[0].name = "down2".into();
    assert_eq!(
        text(&[result]),
        "            goodput    used    ping          sojourn down2
variant      Mbit/s down2 %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
fifo           9.61    99.9    21.0    63.0     11.0    33.0   123k      0     -
"
    );
}

#[test]
fn one_flow_and_a_ping_take_a_line_per_variant() {
    let flows = || vec![flow("bulk", Some(9.612e6)), flow("ping", None)];
    let mut second = result("fq_codel", flows());
    second.runs[0].summary.pipes[0].drops = BTreeMap::new();
    second.runs[0].summary.pipes[0].marks = 12;
    assert_eq!(
        text(&[result("fifo", flows()), second]),
        "             goodput   used    ping          sojourn up
variant       Mbit/s   up %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
fifo            9.61   99.9    21.0    63.0     11.0    33.0   123k      0     -
fq_codel        9.61   99.9    21.0    63.0     11.0    33.0      0     12     -
"
    );
}

#[test]
fn a_comparison_never_mixes_pings() {
    let flows = || vec![flow("far", None), flow("near", None)];
    let mut starving = result("fifo", flows());
    let summary = &mut starving.runs[0].summary;
    // The replies of `far` are lost; what arrived gives it a score, which makes it no call.
    summary.flows[0].rtt = None;
    summary.flows[0].mos = Some(1.5);
    summary.flows[1].rtt = delays(5);
    let shown = text(&[starving, result("codel", flows())]);
    let ping = |line: &str| -> Vec<String> {
        // Behind the name, goodput and utilisation.
        let words = line.split_whitespace().skip(3).take(2);
        words.map(str::to_owned).collect()
    };
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(ping(lines[2]), ["-", "-"], "{shown}");
    // 21 ms, and three times as much.
    assert_eq!(ping(lines[3]), ["21.0", "63.0"], "{shown}");
    assert!(!shown.contains("MOS"), "{shown}");
}

#[test]
fn a_comparison_never_mixes_directions() {
    let flows = || vec![flow("bulk", Some(9.612e6)), flow("ping", None)];
    let of = |name: &str, up: f64, down: f64, waits: [u64; 2]| {
        let mut result = result(name, flows());
        let pipes = &mut result.runs[0].summary.pipes;
        pipes[0].utilisation = Some(up);
        pipes[1].utilisation = Some(down);
        pipes[0].sojourn = delays(waits[0]);
        pipes[1].sojourn = delays(waits[1]);
        pipes
            .iter_mut()
            .for_each(|pipe| pipe.drops = BTreeMap::new());
        result
    };
    // For cake, the downlink is the busier link; for the others, it is not.
    let results = [
        of("fifo", 0.99, 0.60, [631, 1]),
        of("pie", 0.98, 0.60, [15, 1]),
        of("cake", 0.90, 0.95, [9, 4]),
    ];
    assert_eq!(
        text(&results),
        "             goodput   used    ping          sojourn up
variant       Mbit/s   up %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
fifo            9.61   99.0    21.0    63.0      631    1893      0      0     -
pie             9.61   98.0    21.0    63.0     15.0    45.0      0      0     -
cake            9.61   90.0    21.0    63.0     9.00    27.0      0      0     -

                                     used  sojourn
variant                    queue        %   p50 ms  p95 ms  p99 ms  drops  marks
fifo                       up        99.0      631    1262    1893      0      0
                           down      60.0     1.00    2.00    3.00      0      0
pie                        up        98.0     15.0    30.0    45.0      0      0
                           down      60.0     1.00    2.00    3.00      0      0
cake                       up        90.0     9.00    18.0    27.0      0      0
                           down      95.0     4.00    8.00    12.0      0      0
"
    );
}

#[test]
fn several_flows_take_a_line_each() {
    let flows = vec![
        flow("video", Some(9.612e6)),
        flow("a name that is too long for its column", Some(12_345.0)),
    ];
    let mut result = result("wf2q+", flows);
    result.runs[0].summary.jain = Some(0.50123);
    result.runs[0].summary.accuracy = Some(Accuracy {
        rate_error: Some(-0.000_123),
        busy_ns: 1,
        lateness: delays(1),
        lost: BTreeMap::new(),
    });
    assert_eq!(
        text(&[result]),
        "             goodput   used    ping          sojourn up
variant       Mbit/s   up %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
wf2q+           9.62   99.9       -       -     11.0    33.0   123k      0 0.501

                                          goodput    sent     RTT           loss
variant   flow                    way      Mbit/s   again  p50 ms  p99 ms      %
wf2q+     video                   up         9.61      17    30.0    90.0      -
          a name that is too long for its column
                                  up         0.01      17    30.0    90.0      -

                                      rate     late                         lost
accuracy                           error %   p50 us   p99 us   max us  elsewhere
wf2q+                               -0.012     1000     3000     4000          0
"
    );
}

#[test]
fn many_flows_are_shown_by_quantiles() {
    // Flow n has n Mbit/s. Of 1 to 1000, 950 are not larger than 950, 500 not than 500, 50 not than
    // 50. A flow of another type keeps its line, and so do 24 flows.
    let bulk = |n: u32| flow(&format!("bulk-{n}"), Some(f64::from(n) * 1e6));
    let mut flows: Vec<FlowSummary> = (1..=1000).rev().map(bulk).collect();
    flows.push(FlowSummary {
        type_name: "web".into(),
        direction: "down".into(),
        ..flow("browser", Some(5e6))
    });
    let many = result("fq_codel", flows);
    let text = text(&[many, result("fifo", (1..=24).map(bulk).collect())]);
    let table = text.split("\n\n").nth(1).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let expected = "\
variant             flow          way      Mbit/s   again  p50 ms  p99 ms      %
fq_codel            largest       up         1000      17    30.0    90.0      -
                    95 %          up          950      17    30.0    90.0      -
                    median        up          500      17    30.0    90.0      -
                    5 %           up         50.0      17    30.0    90.0      -
                    smallest      up         1.00      17    30.0    90.0      -
                    browser       down       5.00      17    30.0    90.0      -
fifo                bulk-1        up         1.00      17    30.0    90.0      -";
    assert_eq!(lines[1..9].join("\n"), expected);
    assert_eq!(lines.len(), 2 + 6 + 24 + 1);
    let note = "quantiles of each column over 1000 tcp flows up; summary.json has every flow";
    assert_eq!(lines[32], note);
}

#[test]
fn a_count_of_millions_has_three_digits() {
    for (n, shown) in [
        (10_000_000.0, "10.0M"),
        (10_949_999.0, "10.9M"),
        (19_999_999.0, "20.0M"),
        (99_949_999.0, "99.9M"),
        (99_950_000.0, "100M"),
        (199_999_999.0, "200M"),
        (9_999_499_999.0, "9999M"),
        (9_999_500_000.0, "10.0G"),
        (19.94e9, "19.9G"),
        (99.95e9, "100G"),
    ] {
        assert_eq!(count(n), shown);
    }
}

#[test]
fn what_is_not_met_stands_below_and_no_line_is_too_wide() {
    let name = "fq_codel target 5ms interval 100ms quantum 300 limit 1200 雪雪雪雪雪雪";
    let mut result = result(name, vec![flow("bulk", Some(1e15)), flow("ping", None)]);
    result.runs[0].summary.pipes[0].utilisation = Some(1e7);
    result.expect = vec![Outcome::new(
        name,
        "ping.p50",
        Unit::Time,
        Some(31.25e6),
        "at least 200ms and at most 300ms",
    )];
    let text = text(&[result]);
    for line in text.lines() {
        assert!(line.width() <= WIDTH, "{} columns: {line}", line.width());
    }
    assert_eq!(
        text,
        "             goodput   used    ping          sojourn up
variant       Mbit/s   up %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
fq_codel target 5ms interval 100ms quantum 300 limit 1200 雪雪雪雪雪雪
                 1e9    1e9    21.0    63.0     11.0    33.0   123k      0     -

not met: `ping.p50` of `fq_codel target 5ms interval 100ms quantum 300 limit
    1200 雪雪雪雪雪雪` is 31.25ms; expected at least 200ms and at most 300ms;
    see \"Summary\" in the report
"
    );
}

#[test]
fn a_miss_on_a_busy_machine_is_put_down_to_the_machine() {
    let late = |p99_ns| {
        let mut result = result("codel", vec![flow("bulk", Some(9e6))]);
        result.runs[0].summary.accuracy = Some(Accuracy {
            rate_error: None,
            busy_ns: 1,
            lateness: Some(Percentiles {
                p99_ns,
                ..delays(1).unwrap()
            }),
            lost: BTreeMap::new(),
        });
        result
    };
    let sentence = "the machine was busy: the router sent 1 % of the packets more than 12.3 ms";
    let miss = || Outcome::new("codel", "ping.p50", Unit::Time, Some(31e6), "at most 23ms");
    let mut busy = late(12_300_000);
    assert!(!text(&[busy.clone()]).contains("the machine was busy"));
    busy.expect = vec![miss()];
    let said = text(&[busy]);
    assert!(said.contains(sentence), "{said}");
    assert!(said.lines().all(|line| line.width() <= WIDTH));
    let mut quiet = late(999_999);
    quiet.expect = vec![miss()];
    assert!(!text(&[quiet]).contains("the machine was busy"));
}

#[test]
fn the_results_are_json_too() {
    let json = json(&[result("fifo", vec![flow("bulk", Some(9.612e6))])]);
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read[0]["summary"]["flows"][0]["goodput_bps"], 9.612e6);
    assert_eq!(read[0]["summary"]["pipes"][0]["drops"]["overflow"], 123_456);
}

#[test]
fn repeated_runs_show_the_median_and_the_extremes() {
    let mut repeated = result("codel", vec![flow("bulk", Some(9.0e6)), flow("ping", None)]);
    for (seed, goodput, drops) in [(2, 9.6e6, 8), (3, 9.4e6, 5)] {
        let mut run = repeated.runs[0].clone();
        run.seed = seed;
        run.summary.total_goodput_bps = Some(goodput);
        run.summary.pipes[0].drops = BTreeMap::from([("congestion".to_owned(), drops)]);
        repeated.runs.push(run);
    }
    assert_eq!(
        text(&[repeated]),
        "             goodput   used    ping          sojourn up
variant       Mbit/s   up %  p50 ms  p99 ms   p50 ms  p99 ms  drops  marks  Jain
codel           9.40   99.9    21.0    63.0     11.0    33.0      8      0     -
  smallest      9.00   99.9    21.0    63.0     11.0    33.0      5      0     -
  largest       9.60   99.9    21.0    63.0     11.0    33.0   123k      0     -
medians of 3 runs, with the smallest and the largest
"
    );
}

#[test]
fn figures_that_some_runs_did_not_measure_are_named() {
    let mut repeated = result("codel", vec![flow("bulk", Some(9e6)), flow("ping", None)]);
    let mut run = repeated.runs[0].clone();
    // In the second run no probe was answered.
    run.summary.flows[1].rtt = None;
    repeated.runs.push(run);
    let shown = text(&[repeated]);
    let note = shown.split("\n\n").last().expect("a part");
    assert!(
        note.starts_with("not measured in all runs of codel: "),
        "{shown}"
    );
    assert!(note.contains("ping.p95 in 1 of 2"), "{shown}");
    assert!(!note.contains("bulk"), "{shown}");
}

/// Pages of this median, with twice as much for the 95th percentile, two of which are open; two files of
/// one declaration; and a bulk flow.
fn with_transfers(variant: &str, page_ms: u64) -> VariantResult {
    let pages = FlowSummary {
        type_name: "web".into(),
        direction: "down".into(),
        fct: delays(page_ms),
        open: Some(2),
        ..flow("pages", Some(1e6))
    };
    let file = |name: &str, count: u64| FlowSummary {
        fct: delays(950).map(|times| Percentiles { count, ..times }),
        open: Some(0),
        ..flow(name, Some(1e6))
    };
    let flows = vec![
        flow("bulk", Some(9e6)),
        pages,
        file("file-1", 1),
        file("file-2", 1),
    ];
    let mut result = result(variant, flows);
    result.runs[0].summary.groups = vec![file("file", 2)];
    result
}

#[test]
fn completion_times_of_pages_and_transfers_have_their_table() {
    let mut starving = with_transfers("fq_codel", 1);
    let pages = &mut starving.runs[0].summary.flows[1];
    (pages.fct, pages.open) = (None, Some(3));
    let shown = text(&[with_transfers("fifo", 3970), starving]);
    assert_eq!(
        shown.split("\n\n").last(),
        Some(
            "                                             completion
variant              transfers       way         p50 ms  p95 ms  complete   open
fifo                 pages           down          3970    7940       100      2
                     file            up             950    1900         2      0
fq_codel             pages           down             -       -         0      3
                     file            up             950    1900         2      0
"
        )
    );
    assert!(shown.lines().all(|line| line.width() <= WIDTH), "{shown}");
    // Without transfers there is no table.
    let without = text(&[result("fifo", vec![flow("bulk", Some(9e6))])]);
    assert!(!without.contains("completion"), "{without}");
}

#[test]
fn completion_times_of_repetitions_are_medians() {
    // The median of 100 and 300 ms is 200 ms, and of 2 and 5 open pages 3.5.
    let mut repeated = with_transfers("codel", 100);
    let mut other = with_transfers("codel", 300).runs.remove(0);
    other.summary.flows[1].open = Some(5);
    repeated.runs.push(other);
    let shown = text(&[repeated]);
    let line = "codel                pages           down           200     400       100    3.5\n";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn completion_times_of_many_flows_are_one_line() {
    let file = |n: u64| FlowSummary {
        fct: delays(n),
        open: Some(0),
        ..flow(&format!("file-{n}"), Some(1e6))
    };
    let files = |count: u64| {
        let mut result = result("fifo", (1..=count).map(file).collect());
        let all = FlowSummary {
            name: format!("{count} flows"),
            fct: delays(50).map(|times| Percentiles { count, ..times }),
            open: Some(3),
            ..file(1)
        };
        result.runs[0].summary.crowds = vec![all];
        let shown = text(&[result]);
        let table = shown.split("\n\n").last().expect("a table");
        let lines = table.lines().skip(2).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    let line = "fifo                 600 flows       up            50.0     100       600      3";
    assert_eq!(files(600), [line]);
    // 24 flows have their lines, as in the table of flows.
    assert_eq!(files(24).len(), 24);
    assert_eq!(files(25).len(), 1);
}
