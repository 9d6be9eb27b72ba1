//! Measures whether the recording of a live run disturbs its router: the lateness of 100 000 packets
//! per second, recorded on disk and not recorded, in turn.
//!
//! ```text
//! cargo run --release -p sluice-lab --example recorded_lateness [ROUNDS]
//! ```
//!
//! Needs root or an unprivileged user namespace. Fails if the recording raises the median lateness by
//! more than 10 %. Lateness depends on what else the machine does, so both kinds of runs take turns,
//! and the median of the rounds counts. A round without any disturbance is rare and a matter of luck:
//! the least of the rounds, which is printed as well, differs by half from one call to the next.

use std::process::ExitCode;

use sluice_core::{Span, Stop};
use sluice_lab::live::{self, Listener, LiveOptions, Observation};
use sluice_lab::run::record;
use sluice_recording::{Environment, Keep, RunWriter};
use sluice_scenario::{Backend, Scenario, Variant};

/// Packets of 128 bytes, 100 000 in a second, on a link that is never full.
const SCENARIO: &str = "
duration = \"3s\"
[link]
rate = \"1Gbit/s\"
rtt = \"2ms\"
queue = \"fq_codel\"
[[flow]]
type = \"udp\"
rate = \"102.4Mbit/s\"
size = 100
";

/// The most times the lateness without a recording.
const MOST: f64 = 1.1;

/// Keeps the lateness of each packet, and nothing else.
struct Lateness(Vec<u64>);

impl Listener for Lateness {
    fn observe(&mut self, observation: Observation) {
        if let Observation::Releases(releases) = observation {
            self.0.extend(releases.iter().map(|it| it.late.as_ns()));
        }
    }

    fn progress(&mut self, _elapsed: Span) {}
}

/// Packets, and the quantiles of their lateness in microseconds.
struct Row {
    packets: usize,
    quantiles: [f64; QUANTILES.len()],
}

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

impl Row {
    fn of(mut late: Vec<u64>) -> Row {
        late.sort_unstable();
        let at = |q: f64| late[((late.len() - 1) as f64 * q) as usize] as f64 / 1e3;
        Row {
            packets: late.len(),
            quantiles: QUANTILES.map(at),
        }
    }
}

fn not_recorded(variant: &Variant) -> Row {
    let mut lateness = Lateness(Vec::new());
    live::run(
        &variant.scenario,
        LiveOptions::default(),
        &Stop::new(),
        &mut lateness,
    )
    .expect("a live run");
    Row::of(lateness.0)
}

fn recorded(variant: &Variant) -> Row {
    let folder = tempfile::tempdir().expect("a folder for the recording");
    let environment = Environment::here(Backend::Live, "2026-01-01T00:00:00Z".to_owned());
    let dir = folder.path().join("run");
    let writer = RunWriter::create_keeping(Keep::Packets, &dir, variant, &environment);
    let writer = writer.expect("a writer");
    let stop = Stop::new();
    let live = LiveOptions::default();
    let run = record(variant, Backend::Live, live, writer, &stop, &mut |_| {});
    let releases = run.expect("a live run").recording.releases();
    let late = releases.expect("its table").map(|row| row.expect("a row"));
    Row::of(late.map(|row| row.late.as_ns()).collect())
}

/// The median and the least of a quantile over all rounds.
fn of_rounds(rows: &[Row], number: usize) -> (f64, f64) {
    let mut values: Vec<f64> = rows.iter().map(|row| row.quantiles[number]).collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0])
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1);
    let rounds: usize = rounds.and_then(|n| n.parse().ok()).unwrap_or(9);
    let variants = Scenario::parse("lateness.toml", SCENARIO, &[]).expect("a valid scenario");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(not_recorded(&variants[0]));
        with.push(recorded(&variants[0]));
    }
    println!("lateness, us: median (least) of {rounds} rounds");
    println!("                       p50                p99              p99.9    packets");
    for (name, rows) in [("not recorded", &without), ("recorded", &with)] {
        let cells = [0, 1, 2].map(|number| of_rounds(rows, number));
        let [p50, p99, p999] = cells.map(|(median, least)| format!("{median:.1} ({least:.1})"));
        let packets = rows.iter().map(|row| row.packets).sum::<usize>() / rounds;
        println!("{name:12} {p50:>18} {p99:>18} {p999:>18} {packets:>10}");
    }
    let times = of_rounds(&with, 0).0 / of_rounds(&without, 0).0;
    println!("recorded: {times:.2} times the median lateness");
    if times > MOST {
        eprintln!("a recording makes packets more than 10 % later");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
