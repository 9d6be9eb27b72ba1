use super::words::{Judgement, Purpose, judge, overall};
use super::*;

/// A variant by its goodput in Mbit/s, the 95th percentile of its pings in milliseconds, its Jain index,
/// and its drops of 10 000 packets.
fn row(name: &str, goodput: f64, p95_ms: f64, jain: Option<f64>, drops: f64) -> Row {
    Row {
        variant: name.into(),
        backend: Backend::Sim,
        algorithm: name.into(),
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
