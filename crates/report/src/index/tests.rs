use super::words::{Judgement, Purpose, judge, overall};
use super::*;

/// A variant by its goodput in Mbit/s, the 95th percentile of its pings in milliseconds, its Jain index,
/// and its drops of 10 000 packets.
fn row(name: &str, goodput: f64, p95_ms: f64, jain: Option<f64>, drops: f64) -> Row {
    Row {
        variant: name.into(),
        backend: Backend::Sim,
        algorithm: name.into(),
        setting: String::new(),
        runs: 1,
        partial: None,
        link: None,
        figures: Figures {
            goodput: Some(goodput * 1e6),
            p95: Some(p95_ms * 1e6),
            jain,
            drops,
            packets: 10_000.0,
            ..Figures::default()
        },
        met: 0,
        unmet: Vec::new(),
        trace: Trace::default(),
    }
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
fn variants_that_differ_in_more_than_their_queues_are_not_compared() {
    let slow = Row {
        setting: "rate = 2Mbit/s".into(),
        ..row("codel", 1.9, 60.0, None, 0.0)
    };
    let rows = [
        row("fifo", 9.6, 500.0, None, 0.0),
        row("codel", 9.5, 30.0, None, 0.0),
        slow,
    ];
    let all = judge(&rows);
    assert!(good_for(&all[2]).is_empty(), "it has no rival: {all:?}");
    assert!(!all[2].why.contains("gives up"), "{all:?}");
}

fn good_for(judgement: &Judgement) -> &[Purpose] {
    &judgement.good_for
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
        all[0].why.contains("at a price in goodput"),
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
            .starts_with("the lowest delay of those that carry enough"),
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
            .contains("shares unevenly (Jain 0.70); drops 3.0 % of the packets")
    );
}

#[test]
fn backends_are_judged_each_by_itself() {
    let mut live = row("fifo", 9.0, 15.0, None, 0.0);
    live.backend = Backend::Live;
    let rows = [row("fifo", 9.0, 30.0, None, 0.0), live];
    assert_eq!(judge(&rows)[0].good_for, []);
    assert_eq!(
        judge(&rows)[0].why,
        "95 % of pings within 30.0 ms; 9.00 Mbit/s of payload; drops nothing"
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
        // Nobody to be compared with.
        entry(vec![row("fifo", 9.6, 1.0, None, 0.0)]),
    ];
    let all = overall(&entries);
    let names: Vec<&str> = all.iter().map(|one| one.algorithm.as_str()).collect();
    assert_eq!(names, ["codel", "fifo"]);
    assert_eq!(
        (&all[0].good_for[..], all[0].scenarios),
        (&[(Purpose::Waiting, 2)][..], 2)
    );
    // Half way between 50 and 2 times the best delay.
    assert_eq!(
        (all[1].good_for.len(), all[1].delay_factor),
        (0, Some(26.0))
    );
    assert_eq!(
        all[1].sentence(),
        "others do better in all 2 scenarios; typically 26 times the lowest delay, 100 % of the best \
         goodput"
    );
}

#[test]
fn the_page_is_one_file_whose_names_are_escaped() {
    let mut first = row("fifo", 9.6, 1000.0, None, 0.0);
    first.trace.points = vec![(0.0, 20.0), (1.0, 1000.0)];
    first.unmet = vec!["not met: `ping.p50` of `fifo` is 1s; expected at most 20ms".into()];
    first.link = Some(relative(
        Path::new("runs"),
        Path::new("runs/a/fifo limit=1000/report.html"),
    ));
    let page = page::html(&[entry(vec![first, row("codel", 9.6, 20.0, None, 0.0)])]);
    assert!(page.contains("Two &lt;queues&gt; &amp; a link"), "{page}");
    assert!(
        page.contains("href=\"a/fifo%20limit%3D1000/report.html\""),
        "{page}"
    );
    assert!(page.contains("1 of 1 expectations were not met"), "{page}");
    assert!(page.contains("<svg class=\"spark\""), "{page}");
    for outside in ["http://", "https://", "<script", "src="] {
        assert!(!page.contains(outside), "{outside}");
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
fn queues_that_do_alike_share_a_sentence() {
    let rows = vec![
        row("rfc", 9.6, 20.0, None, 0.0),
        row("linux", 9.6, 20.0, None, 0.0),
        row("fifo", 9.6, 900.0, None, 0.0),
    ];
    let page = page::html(&[entry(rows)]);
    assert!(
        page.contains("<code>rfc</code> and <code>linux</code>: <b>best for"),
        "{page}"
    );
    assert_eq!(page.matches("<b>best for").count(), 1, "{page}");
}

#[test]
fn nothing_speaks_for_queues_that_all_do_alike() {
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
            .starts_with("about the same delay with all: 95 % of pings within 20.0 ms"),
        "{}",
        all[0].why
    );
    let kinds = overall(&[entry(rows)]);
    assert!(
        kinds[0]
            .sentence()
            .starts_with("neither better nor worse than others"),
        "{}",
        kinds[0].sentence()
    );
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
