use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use sluice_router::control::Change;
use sluice_router::process::watch::{ObjectSample, Sample};
use sluice_router::process::{InterfaceState, PortStatus};

use super::app::{App, Order};
use super::draw;
use crate::router::status::tests::sample;

/// Draws on a screen of 80 by 24 and returns its text.
fn screen(app: &App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..24)
        .map(|y| format!("{}\n", row(y).trim_end()))
        .collect()
}

fn app() -> App {
    let mut app = App::new(Order::Rate, String::new());
    app.take(sample());
    app
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        assert!(app.press(KeyCode::Char(key)), "`{key}` ends");
    }
}

/// A sample of pipes with these numbers, rates, backlogs and drops.
fn pipes(rows: &[(u32, u64, u64, u64)]) -> Sample {
    let objects = rows.iter().map(|(number, rate, backlog, drops)| {
        let mut object = ObjectSample {
            name: format!("pipe {number}"),
            words: "droptail".into(),
            backlog_packets: *backlog,
            ..ObjectSample::default()
        };
        object.traffic.rate_bps = *rate;
        if *drops > 0 {
            object.traffic.dropped.insert("overflow".into(), *drops);
        }
        object
    });
    Sample {
        number: 2,
        objects: objects.collect(),
        ..Sample::default()
    }
}

fn names(app: &App) -> Vec<String> {
    app.objects()
        .iter()
        .map(|object| object.name.clone())
        .collect()
}

#[test]
fn the_screen_of_80_by_24_has_ports_rows_log_and_keys() {
    let text = screen(&app());
    for expected in [
        "sluice top ",
        "packet:a-very-l~ in   988Mbit/s",
        "pipe or queue",
        "sched 65535",
        "1.00G  1.00G   123k  4.21ms   1.20s   123k",
        "q quit  s sort: rate",
        "sched 65535 drops packets",
    ] {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
    assert!(text.lines().next_back().unwrap().starts_with("q quit"));
}

#[test]
fn a_port_whose_interface_is_gone_is_marked() {
    let mut sample = sample();
    sample.status.ports.push(PortStatus {
        interface: Some(InterfaceState::Gone),
        ..PortStatus::default()
    });
    let mut app = App::new(Order::Rate, String::new());
    app.take(sample);
    let text = screen(&app);
    assert!(text.contains("packet:a-v~ down in   988Mbit/s"), "{text}");
}

#[test]
fn rows_are_sorted_by_rate_backlog_and_drops() {
    let mut app = App::new(Order::Rate, String::new());
    app.take(pipes(&[(1, 10, 5, 0), (2, 30, 1, 7), (3, 20, 9, 2)]));
    assert_eq!(names(&app), ["pipe 2", "pipe 3", "pipe 1"]);
    press(&mut app, "s");
    assert_eq!(names(&app), ["pipe 3", "pipe 1", "pipe 2"]);
    press(&mut app, "ss");
    assert_eq!(names(&app), ["pipe 2", "pipe 3", "pipe 1"]);
    press(&mut app, "s");
    assert_eq!(names(&app), ["pipe 1", "pipe 2", "pipe 3"]);
}

#[test]
fn the_filter_keeps_rows_with_its_text() {
    let mut app = App::new(Order::Rate, String::new());
    app.take(pipes(&[(1, 10, 0, 0), (12, 30, 0, 0), (3, 20, 0, 0)]));
    press(&mut app, "/PIPE 1");
    assert!(screen(&app).contains("filter: PIPE 1_"));
    assert_eq!(names(&app), ["pipe 12", "pipe 1"]);
    app.press(KeyCode::Enter);
    assert!(!app.press(KeyCode::Char('q')), "q ends again");
    app.press(KeyCode::Esc);
    assert_eq!(names(&app).len(), 3);
}

#[test]
fn a_pipe_opens_with_its_facts_and_flows() {
    let mut app = app();
    app.press(KeyCode::Enter);
    let text = screen(&app);
    for expected in [
        "sched 65535: 1.00Gbit/s, delay 0, fq_codel",
        "p95 104ms",
        "overflow 123k, congestion 7",
        "state: count 12, p 0.0125",
        "tcp [2001:db8:1234:5678:9abc:def0:1234:5678]:65535 > 10.0.0.2:443",
    ] {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
    app.press(KeyCode::Esc);
    app.press(KeyCode::Down);
    app.press(KeyCode::Enter);
    let text = screen(&app);
    assert!(text.contains("pipe 2 10.255.255.255:65535"), "{text}");
    assert!(
        text.contains("no flow"),
        "the flow is in another pipe:\n{text}"
    );
}

fn change(unix_ms: u64, text: &str) -> Change {
    Change {
        unix_ms,
        by: "uid 0".into(),
        text: text.into(),
        refused: None,
    }
}

/// A change has the time of the clock, which may be set back, and which two changes may share.
#[test]
fn the_log_has_each_change_whatever_its_time() {
    let mut app = App::new(Order::Rate, String::new());
    let mut take = |uptime_ns, changes: Vec<Change>, changes_total| {
        let mut sample = pipes(&[]);
        sample.status.uptime_ns = uptime_ns;
        (sample.changes, sample.changes_total) = (changes, changes_total);
        app.take(sample);
    };
    let first = |unix_ms| change(unix_ms, "pipe 1 config bw 1M");
    take(10, vec![first(7_200_000)], 1);
    // The clock was set back by an hour.
    take(20, vec![first(3_600_000), change(3_601_000, "flush")], 2);
    let last = vec![change(3_601_000, "flush"), change(3_601_000, "zero")];
    take(30, last.clone(), 3);
    take(40, last, 3);
    // Another router.
    take(5, vec![change(3_602_000, "pipe 2 config bw 2M")], 1);
    press(&mut app, "l");
    let text = screen(&app);
    for expected in [
        "02:00:00 pipe 1 config bw 1M",
        "01:00:01 flush",
        "01:00:01 zero",
        "01:00:02 pipe 2 config bw 2M",
    ] {
        assert_eq!(text.matches(expected).count(), 1, "`{expected}` in\n{text}");
    }
    assert_eq!(app.events.len(), 4);
}

#[test]
fn the_log_has_changes_once_and_what_began_and_ended() {
    let mut app = App::new(Order::Rate, String::new());
    let mut first = pipes(&[(1, 0, 0, 3)]);
    first.changes = vec![change(1000, "pipe 1 config bw 1M")];
    first.changes_total = 1;
    app.take(first);
    let mut second = pipes(&[(1, 0, 0, 0)]);
    second.changes = vec![change(1000, "pipe 1 config bw 1M"), change(2000, "flush")];
    second.changes_total = 2;
    app.take(second);
    press(&mut app, "l");
    let text = screen(&app);
    assert_eq!(text.matches("pipe 1 config bw 1M").count(), 1, "{text}");
    for expected in [
        "00:00:02 flush",
        "pipe 1 drops packets",
        "pipe 1 no longer drops packets",
    ] {
        assert!(text.contains(expected), "no `{expected}` in\n{text}");
    }
}

#[test]
fn the_log_opens_at_its_newest_lines_and_follows_there() {
    let log = |count: u64| {
        let mut sample = pipes(&[]);
        let changes = (1..=count).map(|n| change(n * 1000, &format!("pipe {n} config")));
        sample.changes = changes.collect();
        sample.changes_total = count;
        sample
    };
    let mut app = App::new(Order::Rate, String::new());
    app.take(log(30));
    press(&mut app, "l");
    let shows = |app: &App, n: u64| screen(app).contains(&format!("pipe {n} config"));
    // 24 lines without two heads and the keys.
    assert!(shows(&app, 30) && shows(&app, 10) && !shows(&app, 9));
    app.take(log(31));
    assert!(shows(&app, 31) && !shows(&app, 10));
    press(&mut app, "k");
    app.take(log(32));
    assert!(shows(&app, 30) && !shows(&app, 31));
    app.press(KeyCode::Home);
    assert!(shows(&app, 1));
}

#[test]
fn the_first_and_the_last_line_fit_80_columns() {
    let mut sample = pipes(&[]);
    sample.unix_ms = 27_856_000;
    sample.status.uptime_ns = (1000 * 3600 + 179) * 1_000_000_000;
    sample.status.commands = 1000;
    (sample.lateness.p50_ns, sample.lateness.p99_ns) = (100_000, 65_500_000);
    let mut app = App::new(Order::Sojourn, String::new());
    app.take(sample);
    let text = screen(&app);
    let first = "sluice top 07:44:16 UTC  up 1000:02:59  late p50 100us p99 65.5ms  1000 commands";
    assert_eq!(text.lines().next(), Some(first));
    let last = "q quit  s sort: sojourn  Enter open  Esc back  f flows  l log  p pause  / filter";
    assert_eq!(text.lines().next_back(), Some(last));
    press(&mut app, "p");
    assert!(screen(&app).starts_with("sluice top PAUSED  07:44:16 UTC  up "));
}

#[test]
fn a_router_that_ends_leaves_the_last_figures_and_says_so() {
    let mut app = app();
    app.fail("no router listens at /run/sluice.sock".into());
    let text = screen(&app);
    assert!(text.contains("no answer: no router listens"), "{text}");
    assert!(text.contains("sched 65535"), "{text}");
    app.take(sample());
    assert!(!screen(&app).contains("no answer"));
}

#[test]
fn pausing_keeps_the_screen() {
    let mut app = App::new(Order::Rate, String::new());
    app.take(pipes(&[(1, 10, 0, 0)]));
    press(&mut app, "p");
    app.take(pipes(&[(2, 10, 0, 0)]));
    assert_eq!(names(&app), ["pipe 1"]);
    assert!(screen(&app).contains("PAUSED"));
    press(&mut app, "p");
    app.take(pipes(&[(2, 10, 0, 0)]));
    assert_eq!(names(&app), ["pipe 2"]);
}

/// Their texts begin alike, and are longer than the column of names.
#[test]
fn the_flows_of_a_mask_can_be_told_apart_in_80_columns() {
    let mut sample = pipes(&[(2, 1000, 0, 0)]);
    let object = sample.objects[0].clone();
    let flow = |n: usize| format!("10.77.0.2 > :502{n:02}");
    let with = |n| ObjectSample {
        flow: Some(flow(n)),
        ..object.clone()
    };
    sample.objects = (0..20).map(with).collect();
    let mut app = App::new(Order::Rate, String::new());
    app.take(sample);
    // 24 lines without the heads of the screen and of the rows, and the keys: ten rows of two lines.
    let shown = |app: &App| -> Vec<usize> {
        let text = screen(app);
        let is_shown = |n: &usize| text.contains(&format!("pipe 2 {}\n", flow(*n)));
        (0..20).filter(is_shown).collect()
    };
    assert_eq!(shown(&app), (0..10).collect::<Vec<_>>());
    for _ in 0..10 {
        app.press(KeyCode::Down);
    }
    assert_eq!(shown(&app), (10..20).collect::<Vec<_>>());
    // Printed, all of them.
    let lines = app.lines(79, usize::MAX);
    let rows = lines.iter().filter(|line| line.text.starts_with("pipe 2 "));
    assert_eq!(rows.count(), 20);
    assert!(lines.iter().all(|line| line.text.chars().count() <= 79));
}

#[test]
fn small_screens_show_what_fits() {
    let app = app();
    for (width, height) in [(1, 1), (20, 3), (40, 10), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &app)).unwrap();
    }
}
