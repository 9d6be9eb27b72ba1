use super::overall::overall;
use super::*;
use crate::judgement::{self, Assessment, DelayOf, Figures, Purpose, setting};
use sluice_core::Span;
use sluice_recording::metrics::measure;
use sluice_recording::{End, Environment, PingSample, RunWriter};
use sluice_scenario::{Backend, Scenario};

/// A variant by its goodput in Mbit/s, the 95th percentile of its pings in milliseconds, its Jain index,
/// and its drops of 10 000 packets.
fn row(name: &str, goodput: f64, p95_ms: f64, jain: Option<f64>, drops: f64) -> Row {
    Row {
        candidate: Candidate {
            name: name.into(),
            backend: Backend::Sim,
            algorithm: name.into(),
            setting: String::new(),
            is_complete: true,
            figures: Figures {
                goodput: Some(goodput * 1e6),
                queue: "up".into(),
                p95: Some(p95_ms * 1e6),
                jain,
                drops,
                loss: Some(drops / 10_000.0),
                ..Figures::default()
            },
        },
        runs: 1,
        partial: None,
        link: None,
        met: 0,
        unmet: Vec::new(),
        curve: Curve::default(),
    }
}

fn judge(rows: &[Row]) -> Vec<Assessment> {
    let candidates: Vec<&Candidate> = rows.iter().map(|row| &row.candidate).collect();
    judgement::judge(&candidates)
}

#[test]
fn seconds_of_delay_do_not_win_by_a_little_more_goodput() {
    let rows = [
        row("fifo", 9.6, 3000.0, None, 0.0),
        row("fq_codel", 8.4, 22.0, None, 0.0),
    ];
    let all = judge(&rows);
    assert!(!good_for(&all[0]).contains(&Purpose::Waiting), "{all:?}");
    assert!(good_for(&all[1]).contains(&Purpose::Waiting), "{all:?}");
}

#[test]
fn a_queue_that_loses_the_pings_is_not_best_by_the_delay_of_the_rest() {
    // 16.2 % and 10 to 11 % of the pings lost: 80 of 100 pings came back within 47.2 ms.
    let lossy = |name, goodput, p95, lost| {
        let mut row = row(name, goodput, p95, None, 0.0);
        row.candidate.figures.lost_probes = lost;
        row
    };
    let rows = [
        lossy("fifo", 9.5, 47.2, 0.162),
        lossy("codel", 9.5, 228.0, 0.101),
        lossy("pie", 9.5, 63.4, 0.107),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), []);
    assert!(
        all[0].why.starts_with(
            "95 % of the pings that came back (84 %) within 47.2 ms, but more pings are lost than \
             with pie"
        ),
        "{all:?}"
    );
    assert_eq!(good_for(&all[2]), [Purpose::Waiting]);
    assert!(
        all[2].why.starts_with(
            "the lowest delay of the queues that lose fewer pings: 95 % of the pings that came \
             back (89 %) within 63.4 ms"
        ),
        "{all:?}"
    );

    // Without a loss among the others, 2 % are allowed.
    let few = |lost| {
        [
            lossy("fifo", 9.5, 47.2, lost),
            row("pie", 9.5, 63.4, None, 0.0),
        ]
    };
    let best = |lost| good_for(&judge(&few(lost))[0]).to_vec();
    assert_eq!(best(0.019), [Purpose::Waiting]);
    assert_eq!(best(0.021), []);
}

#[test]
fn a_queue_from_which_no_ping_returns_is_not_best_by_its_delay() {
    // All of the goodput, and no reply: 85 % with replies is the lower delay.
    let mut starving = row("prio", 10.0, 0.0, None, 0.0);
    starving.candidate.figures.p95 = None;
    starving.candidate.figures.lost_probes = 1.0;
    let all = judge(&[starving, row("fq_codel", 8.5, 30.0, None, 0.0)]);
    assert_eq!(good_for(&all[0]), [Purpose::Transfers]);
    assert!(all[0].why.starts_with("no ping came back; "), "{all:?}");
    assert_eq!(good_for(&all[1]), [Purpose::Waiting]);
}

#[test]
fn nothing_is_a_share_of_no_goodput_or_a_multiple_of_no_wait() {
    let waiting = |name, goodput, p95_ms| {
        let mut row = row(name, goodput, p95_ms, None, 0.0);
        row.candidate.figures.delay_of = DelayOf::Packets;
        row
    };
    let all = judge(&[waiting("fifo", 9.5, 0.0), waiting("codel", 9.5, 1.2)]);
    assert_eq!(
        all[1].why,
        "95 % of packets in the queue up take up to 1.20 ms, longer than with fifo; full goodput \
         (9.50 Mbit/s); drops no packets"
    );
    // Of two queues that are mostly empty, none is slower.
    let all = judge(&[waiting("fifo", 9.5, 0.0), waiting("codel", 5.0, 0.0)]);
    assert!(
        all[1].why.starts_with(
            "95 % of packets in the queue up within 0.00 µs, about the same as with fifo; "
        ),
        "{all:?}"
    );
    for one in judge(&[
        row("fifo", 0.0, 20.0, None, 0.0),
        row("codel", 0.0, 30.0, None, 0.0),
    ]) {
        assert!(one.why.contains("; no payload arrived; "), "{one:?}");
    }
}

#[test]
fn a_queue_is_not_best_for_games_if_another_has_a_lower_delay() {
    // 62 ms at 90 % of the goodput: not below a third of 173 ms.
    let rows = [
        row("fifo", 9.6, 900.0, None, 0.0),
        row("codel", 9.5, 173.0, None, 0.0),
        row("pie", 8.64, 62.0, None, 0.0),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[1]), [Purpose::Compromise]);
    assert_eq!(good_for(&all[2]), []);
}

#[test]
fn measured_calls_are_judged_by_their_score() {
    let with_call = |name: &str, p95_ms, mos| {
        let mut row = row(name, 9.5, p95_ms, None, 0.0);
        row.candidate.figures.mos = Some(mos);
        row
    };
    let rows = [
        with_call("codel", 25.0, 4.08),
        with_call("cobalt", 40.0, 4.39),
        with_call("fifo", 900.0, 1.2),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), [Purpose::Games]);
    assert_eq!(good_for(&all[1]), [Purpose::Calls]);
    assert_eq!(good_for(&all[2]), []);
    assert!(
        all[1].why.contains("calls have a score (MOS) of 4.39"),
        "{all:?}"
    );
    // A difference below a tenth cannot be heard.
    let rows = [
        with_call("codel", 25.0, 4.33),
        with_call("cobalt", 40.0, 4.39),
    ];
    assert_eq!(good_for(&judge(&rows)[0]), [Purpose::Waiting]);
}

/// A variant without pings by the 95th percentile of the wait in its queue up, and the median load time
/// of its pages in seconds.
fn with_pages(name: &str, p95_ms: f64, page_s: f64) -> Row {
    let mut row = row(name, 0.9, p95_ms, None, 0.0);
    row.candidate.figures.delay_of = DelayOf::Packets;
    row.candidate.figures.page = Some(page_s * 1e9);
    row
}

#[test]
fn measured_pages_decide_which_queue_is_best_for_browsing() {
    let rows = vec![
        with_pages("fifo", 900.0, 3.97),
        with_pages("fq_codel", 95.2, 2.50),
        with_pages("cake", 130.0, 1.94),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), []);
    assert_eq!(all[0].in_words().outcome, "another queue is better");
    // The lowest wait of packets up is no merit for pages.
    assert_eq!(good_for(&all[1]), [Purpose::CallsAndGames]);
    // 2.50 / 1.94 = 1.29.
    assert_eq!(
        all[1].why,
        "the lowest delay of all: 95 % of packets in the queue up within 95.2 ms; half of the pages \
         take up to 2.50 s, 1.3 times as long as with cake; full goodput (900 kbit/s); drops no \
         packets"
    );
    assert_eq!(good_for(&all[2]), [Purpose::Browsing]);
    assert_eq!(
        all[2].in_words().outcome,
        "best for browsing on a busy link"
    );
    // What decides comes first. 130 / 95.2 = 1.37.
    assert!(
        all[2].why.starts_with(
            "the fastest pages of all: half of them within 1.94 s; 95 % of packets in the queue up \
             take up to 130 ms, 1.4 times as long as with fq_codel; "
        ),
        "{all:?}"
    );
    // Over all scenarios, the queue that is best for calls comes first.
    let kinds = overall(&[entry(rows)]);
    assert_eq!(kinds[0].algorithm, "fq_codel");
    assert_eq!(kinds[0].good_for, [(Purpose::CallsAndGames, 1)]);
    assert_eq!(kinds[1].good_for, [(Purpose::Browsing, 1)]);

    // The fastest pages beside the lowest delay: the same queue is best for all of them.
    let all = judge(&[
        with_pages("fifo", 900.0, 3.97),
        with_pages("cake", 95.2, 1.94),
    ]);
    assert_eq!(good_for(&all[1]), [Purpose::Waiting]);
    // A single variant is compared with nothing.
    let alone = judge(&[with_pages("cake", 95.2, 1.94)]);
    assert!(
        alone[0]
            .why
            .contains("; half of the pages load within 1.94 s; "),
        "{alone:?}"
    );
}

#[test]
fn pages_that_are_as_fast_with_all_queues_are_no_merit() {
    // 2.15 / 2.00 is below 1.1.
    let rows = [
        with_pages("fifo", 900.0, 2.00),
        with_pages("codel", 20.0, 2.15),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), []);
    assert_eq!(good_for(&all[1]), [Purpose::CallsAndGames]);
    assert!(
        all[1].why.contains(
            "; the pages load about as fast as with the others: half of them within 2.15 s; "
        ),
        "{all:?}"
    );
    // With other calls, the lowest delay is best for games only.
    let mut rows = rows;
    rows[0].candidate.figures.mos = Some(4.4);
    rows[1].candidate.figures.mos = Some(4.0);
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), [Purpose::Calls]);
    assert_eq!(good_for(&all[1]), [Purpose::OnlyGames]);
}

#[test]
fn queues_with_the_same_delay_and_different_pages_are_not_alike() {
    let mut rows = [
        with_pages("fifo", 20.0, 4.0),
        with_pages("cake", 20.0, 2.0),
        with_pages("fq_codel", 20.0, 2.1),
        with_pages("prio", 20.0, f64::INFINITY),
    ];
    let all = judge(&rows);
    assert_eq!(all[0].in_words().outcome, "another queue is better");
    // 2.1 / 2.0 is below 1.1.
    for fast in &all[1..3] {
        assert_eq!(good_for(fast), [Purpose::Browsing]);
        assert!(
            fast.why.starts_with("some of the fastest pages: "),
            "{fast:?}"
        );
    }
    assert!(all[3].why.contains("; no page was complete; "), "{all:?}");
    assert_eq!(good_for(&all[3]), []);
    // Of several runs, some may have complete pages.
    rows[3].candidate.figures.runs = 3;
    let all = judge(&rows);
    let words = "; in half of the runs or more, no page was complete; ";
    assert!(all[3].why.contains(words), "{all:?}");
}

#[test]
fn variants_that_differ_in_more_than_their_queues_are_not_compared() {
    let mut slow = row("codel", 1.9, 60.0, None, 0.0);
    slow.candidate.setting = "rate = 2Mbit/s".into();
    let rows = [
        row("fifo", 9.6, 500.0, None, 0.0),
        row("codel", 9.5, 30.0, None, 0.0),
        slow,
    ];
    let all = judge(&rows);
    assert!(good_for(&all[2]).is_empty(), "it has no rival: {all:?}");
    assert!(!all[2].why.contains("gives up"), "{all:?}");
}

fn good_for(assessment: &Assessment) -> &[Purpose] {
    &assessment.good_for
}

#[test]
fn the_lowest_delay_at_nearly_the_best_goodput_is_best_for_calls() {
    let rows = [
        row("fifo", 9.6, 1100.0, None, 50.0),
        row("codel", 9.5, 28.0, None, 40.0),
        row("fq_codel", 9.5, 22.0, None, 40.0),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), []);
    assert_eq!(
        all[0].why,
        "95 % of pings take up to 1.10 s, 50 times as long as with fq_codel; full goodput (9.60 Mbit/s)"
    );
    // 28 / 22 = 1.27: more than about the same.
    assert!(
        all[1].why.contains("1.3 times as long as with fq_codel"),
        "{}",
        all[1].why
    );
    assert_eq!(good_for(&all[2]), [Purpose::Waiting]);
    assert_eq!(
        all[2].why,
        "the lowest delay of all: 95 % of pings within 22.0 ms; full goodput (9.50 Mbit/s)"
    );
}

#[test]
fn a_low_delay_bought_with_goodput_does_not_win() {
    let rows = [
        row("short", 7.0, 21.0, None, 0.0),
        row("long", 9.6, 40.0, None, 0.0),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), []);
    assert!(
        all[0].why.contains("at the expense of goodput"),
        "{}",
        all[0].why
    );
    // 1 - 7.0 / 9.6 = 27 %.
    assert!(
        all[0].why.contains("gives up 27 % of the goodput"),
        "{}",
        all[0].why
    );
    assert_eq!(good_for(&all[1]), [Purpose::Waiting]);
}

#[test]
fn a_delay_that_is_far_lower_is_worth_some_goodput() {
    // The CoDel paper's link of 100, 10 and 1 Mbit/s: a full buffer keeps it busy at each change.
    let rows = [
        row("droptail", 41.9, 677.0, None, 0.0),
        row("codel", 38.4, 6.8, None, 0.0),
        row("starved", 30.0, 1.0, None, 0.0),
    ];
    let all = judge(&rows);
    assert_eq!(good_for(&all[0]), [Purpose::Transfers]);
    assert_eq!(good_for(&all[1]), [Purpose::Waiting]);
    // 30.0 / 41.9 = 72 %.
    assert_eq!(good_for(&all[2]), []);
    assert!(
        all[1]
            .why
            .starts_with("the lowest delay of the queues with enough goodput"),
        "{}",
        all[1].why
    );
    // 1 - 38.4 / 41.9 = 8 %.
    assert!(
        all[1].why.contains("gives up 8 % of the goodput"),
        "{}",
        all[1].why
    );
}

#[test]
fn equal_shares_and_few_losses_speak_for_a_queue_too() {
    let rows = [
        row("codel", 9.5, 22.0, Some(0.7), 300.0),
        row("drr", 9.5, 60.0, Some(0.99), 20.0),
    ];
    let all = judge(&rows);
    // Losses of 0.2 % against 3 %.
    assert_eq!(good_for(&all[1]), [Purpose::Shares, Purpose::Losses]);
    assert!(
        all[0]
            .why
            .contains("shares unevenly (Jain's index 0.70); drops 3.0 % of the packets")
    );
}

#[test]
fn backends_are_judged_each_by_itself() {
    let mut live = row("fifo", 9.0, 15.0, None, 0.0);
    live.candidate.backend = Backend::Live;
    let rows = [row("fifo", 9.0, 30.0, None, 0.0), live];
    assert_eq!(judge(&rows)[0].good_for, []);
    assert_eq!(
        judge(&rows)[0].why,
        "95 % of pings within 30.0 ms; 9.00 Mbit/s of goodput; drops no packets"
    );
}

fn entry(rows: Vec<Row>) -> Entry {
    Entry {
        place: "a/b".into(),
        title: "Two <queues> & a link".into(),
        about: None,
        link: Some("a/b/report.html".into()),
        rows,
    }
}

#[test]
fn kinds_of_queues_are_ranked_by_how_often_they_win() {
    let entries = [
        entry(vec![
            row("fifo", 9.6, 1000.0, None, 0.0),
            row("codel", 9.6, 20.0, None, 0.0),
        ]),
        entry(vec![
            row("fifo", 9.6, 40.0, None, 0.0),
            row("codel", 9.6, 20.0, None, 0.0),
        ]),
        // Nothing to compare with.
        entry(vec![row("fifo", 9.6, 1.0, None, 0.0)]),
    ];
    let all = overall(&entries);
    let names: Vec<&str> = all.iter().map(|one| one.algorithm.as_str()).collect();
    assert_eq!(names, ["codel", "fifo"]);
    assert_eq!(
        (&all[0].good_for[..], all[0].comparisons),
        (&[(Purpose::Waiting, 2)][..], 2)
    );
    // Half way between 50 and 2 times the best delay.
    assert_eq!(
        (all[1].good_for.len(), all[1].delay_factor),
        (0, Some(26.0))
    );
    assert_eq!(
        all[1].sentence(),
        "others are better in 2 of 2 comparisons; typically 26 times the lowest delay, 100 % of the best \
         goodput"
    );
}

#[test]
fn both_backends_of_a_scenario_are_one_comparison() {
    let live = |mut row: Row| {
        row.candidate.backend = Backend::Live;
        row
    };
    let all = overall(&[entry(vec![
        row("fifo", 9.6, 1000.0, None, 0.0),
        row("codel", 9.6, 20.0, None, 0.0),
        live(row("fifo", 9.6, 900.0, None, 0.0)),
        live(row("codel", 9.6, 25.0, None, 0.0)),
    ])]);
    assert_eq!(
        (all[0].algorithm.as_str(), all[0].comparisons),
        ("codel", 1)
    );
    assert_eq!(all[0].good_for, [(Purpose::Waiting, 1)]);
    assert!(
        all[0].sentence().contains("in 1 of 1 comparison"),
        "{}",
        all[0].sentence()
    );
}

#[test]
fn the_page_holds_the_index() {
    let mut first = row("fifo", 9.6, 1000.0, None, 0.0);
    first.curve.points = vec![(0.0, 20.0), (0.5, 700.0), (0.505, 300.0), (1.0, 1000.0)];
    first.unmet = vec!["not met: `ping.p50` of `fifo` is 1s; expected at most 20ms".into()];
    first.link = Some(relative(
        Path::new("runs"),
        Path::new("runs/a/fifo limit=1000/report.html"),
    ));
    let entry = entry(vec![first, row("codel", 9.6, 20.0, None, 0.0)]);
    let index = Index::of(&[entry]);
    let page = index_html(&index);
    let written = crate::tests::embedded(&page);
    assert_eq!(written, serde_json::to_value(&index).unwrap());
    assert!(!page.contains("Two <queues>"), "names are embedded as data");
    assert!(page.contains("<title>Sluice: all runs</title>"), "{page}");

    let scenario = &written["scenarios"][0];
    assert_eq!(scenario["title"], "Two <queues> & a link");
    let fifo = &scenario["variants"][0];
    assert_eq!(fifo["link"], "a/fifo%20limit%3D1000/report.html");
    assert_eq!(fifo["expectations_unmet"].as_array().map(Vec::len), Some(1));
    assert_eq!(fifo["judgement"]["outcome"], "another queue is better");
    assert_eq!(
        scenario["variants"][1]["judgement"]["outcome"],
        "best for calls, games and browsing on a busy link"
    );
    // Of 90 columns of a second, 0.5 s and 0.505 s fall into the 46th: 0.505 * 90 = 45.45.
    let trace = &fifo["trace"];
    assert_eq!(trace["of"], "ping");
    assert_eq!(
        (&trace["low"][0], &trace["high"][0]),
        (&20.0.into(), &20.0.into())
    );
    assert_eq!(
        (&trace["low"][45], &trace["high"][45]),
        (&300.0.into(), &700.0.into())
    );
    assert_eq!(trace["high"][89], 1000.0);
    assert_eq!(trace["high"][1], serde_json::Value::Null);
}

/// The policy that keeps a page from loading anything, and its scripts and styles inside the file.
#[test]
fn the_index_has_the_policy_of_the_report() {
    let policy = |page: &str| {
        let (_, rest) = page
            .split_once("http-equiv=\"Content-Security-Policy\" content=\"")
            .expect("the page has a policy");
        rest.split_once('"').expect("attributes end").0.to_owned()
    };
    let index = index_html(&Index::of(&[]));
    let report = crate::html(crate::Report::default());
    assert_eq!(policy(&index), policy(&report));
    assert!(policy(&index).starts_with("default-src 'none'; "));
}

#[test]
fn an_incomplete_run_is_not_compared() {
    let mut broken = row("codel", 9.5, 30.0, None, 0.0);
    broken.candidate.is_complete = false;
    let rows = [row("fifo", 9.6, 500.0, None, 0.0), broken];
    for one in judge(&rows) {
        assert!(!one.has_rivals, "{one:?}");
        assert_eq!(one.in_words().outcome, "");
    }
}

#[test]
fn what_is_expected_of_a_variant_does_not_make_it_another_experiment() {
    let text = "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[matrix]\n\
        \"link.queue\" = [\"fifo\", \"codel\"]\n[[flow]]\ntype = \"ping\"\n\
        [[expect]]\nmetric = \"ping.p50\"\nvariant = \"codel\"\nmax = \"1s\"\n";
    let variants = Scenario::parse("x.toml", text, &[]).unwrap();
    assert_ne!(variants[0].scenario.expect, variants[1].scenario.expect);
    assert_eq!(
        setting(&variants[0].scenario),
        setting(&variants[1].scenario)
    );
    let slower = Scenario::parse("x.toml", &text.replace("1Mbit", "2Mbit"), &[]).unwrap();
    assert_ne!(setting(&variants[0].scenario), setting(&slower[0].scenario));
}

#[test]
fn a_far_lower_wait_in_the_queue_is_worth_some_goodput() {
    let of_packets = |name: &str, goodput: f64, p95_ms: f64| {
        let mut row = row(name, goodput, p95_ms, None, 300.0);
        row.candidate.figures.delay_of = DelayOf::Packets;
        row
    };
    let rows = [
        of_packets("droptail", 41.5, 492.0),
        of_packets("red", 31.6, 42.8),
        of_packets("codel", 30.8, 13.9),
    ];
    let all = judge(&rows);
    // 30.8 / 41.5 = 74.2 %, above 65 %, and 492 / 13.9 is more than ten.
    assert_eq!(good_for(&all[2]), [Purpose::Waiting]);
    assert!(
        all[2]
            .why
            .contains("95 % of packets in the queue up within 13.9 ms")
    );
    // 25.0 / 41.5 = 60 %: no delay is worth that.
    let short = [
        of_packets("droptail", 41.5, 492.0),
        of_packets("short", 25.0, 1.0),
    ];
    assert_eq!(good_for(&judge(&short)[1]), []);
}

#[test]
fn queues_that_perform_alike_have_no_merit() {
    let rows = vec![
        row("rfc", 9.6, 20.0, Some(0.99), 0.0),
        row("linux", 9.6, 20.0, Some(0.99), 0.0),
        row("dummynet", 9.5, 21.0, Some(0.985), 0.0),
    ];
    let all = judge(&rows);
    assert!(all.iter().all(|one| one.good_for.is_empty() && one.is_draw));
    assert!(
        all[0]
            .why
            .starts_with("about the same delay as the others: 95 % of pings within 20.0 ms"),
        "{}",
        all[0].why
    );
    let kinds = overall(&[entry(rows)]);
    assert!(
        kinds[0]
            .sentence()
            .starts_with("about as good as the others"),
        "{}",
        kinds[0].sentence()
    );
}

#[test]
fn where_nothing_arrives_no_queue_is_judged() {
    let failed = |name: &str| {
        let mut row = row(name, 0.0, 0.0, None, 10_000.0);
        row.candidate.figures.p95 = None;
        row.candidate.figures.lost_probes = 1.0;
        row
    };
    let rows = || vec![failed("codel"), failed("pie")];
    for one in judge(&rows()) {
        assert_eq!(one.in_words().outcome, "no queue can be judged", "{one:?}");
    }
    assert!(overall(&[entry(rows())]).is_empty());
    // Nor does it count beside a comparison that codel wins.
    let won = vec![
        row("codel", 9.5, 22.0, None, 0.0),
        row("pie", 9.5, 60.0, None, 0.0),
    ];
    let all = overall(&[entry(rows()), entry(won)]);
    assert!(all.iter().all(|one| one.comparisons == 1), "{all:?}");
}

#[test]
fn few_losses_speak_for_the_queue_that_has_the_fewest() {
    let rows = [
        row("codel", 9.5, 22.0, None, 300.0),
        row("pie", 9.5, 60.0, None, 100.0),
        row("drr", 9.5, 60.0, None, 20.0),
    ];
    let all = judge(&rows);
    // Losses of 3 %, 1 % and 0.2 %.
    assert_eq!(good_for(&all[1]), []);
    assert_eq!(good_for(&all[2]), [Purpose::Losses]);
}

#[test]
fn the_picture_shows_the_ping_of_the_table() {
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"3s\"\n[link]\nrate = \"1Mbit/s\"\n[measure]\nwarmup = \"0s\"\n\
        [[flow]]\ntype = \"voip\"\nname = \"call\"\n\
        [[flow]]\ntype = \"ping\"\nname = \"far\"\n\
        [[flow]]\ntype = \"ping\"\nname = \"near\"\n";
    let variant = Scenario::parse("x", text, &[]).unwrap().remove(0);
    let run = |name: &str, far_ms: Option<u64>| {
        let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
        let mut writer =
            RunWriter::create(&temp.path().join(name), &variant, &environment).unwrap();
        // A packet of a call has a delay in its direction only.
        let delays = [(None, Some(5)), (far_ms, None), (Some(4), None)];
        for (flow, (rtt_ms, up_ms)) in (0..).zip(delays) {
            let probe = PingSample {
                time: Time::from_ns(1_000_000_000),
                flow,
                seq: 0,
                rtt: rtt_ms.map(Span::from_ms),
                up: up_ms.map(Span::from_ms),
                down: None,
                is_lost: rtt_ms.is_none() && up_ms.is_none(),
            };
            writer.ping(&probe).unwrap();
        }
        let end = End::complete(Time::from_ns(3_000_000_000));
        let recording = writer.finish(end).unwrap();
        let summary = measure(&recording).unwrap();
        (recording, summary)
    };
    let (good, starving) = (run("good", Some(30)), run("starving", None));
    let subject = Subject::of(&[&good.1, &starving.1]);
    let curve = Curve::of(&good.0, &[&good.1], &subject).unwrap();
    assert_eq!((curve.of, curve.points), (TraceOf::Ping, vec![(1.0, 30.0)]));
    // That of the other ping would be no picture of the delay in the table.
    let curve = Curve::of(&starving.0, &[&starving.1], &subject).unwrap();
    assert_eq!((curve.of, curve.points), (TraceOf::Backlog, Vec::new()));
}
