//! Measures the cost of recording a simulation at each level of `--record`, with its figures and
//! with its report, compared with the bare run.
//!
//! Fails if one takes more than its limit. All run in turn, and the least time of each counts, since
//! other load on the machine only ever adds to it.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluice_core::Stop;
use sluice_lab::simulated;
use sluice_recording::{End, Environment, Keep, PAGE, Pages as _, Recording, RunWriter};
use sluice_report::pages::HtmlPages;
use sluice_scenario::{Backend, Scenario, Variant};

/// The second of the scenarios that are compared with ns-3.
const SCENARIO: &str = "
duration = \"60s\"
[link]
rate = \"100Mbit/s\"
rtt = \"20ms\"
queue = \"fq_codel\"
[[flow]]
type = \"tcp\"
count = 4
";

const ROUNDS: usize = 7;

/// Time that this thread has been running on a processor (Linux: proc(5), schedstat).
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

/// Returns the processor time of `work` in milliseconds; the elapsed time where the system does not
/// report it.
fn timed(work: impl FnOnce()) -> f64 {
    let (start, before) = (Instant::now(), cpu_time());
    work();
    let took = match (before, cpu_time()) {
        (Some(before), Some(after)) => after - before,
        _ => start.elapsed(),
    };
    took.as_secs_f64() * 1e3
}

/// What a run keeps, and the most times the bare run's time that it may take.
struct Row {
    name: &'static str,
    keep: Keep,
    with_page: bool,
    most: f64,
}

const ROWS: [Row; 4] = [
    Row {
        name: "figures",
        keep: Keep::Figures,
        with_page: false,
        most: 1.7,
    },
    Row {
        name: "flows",
        keep: Keep::Flows,
        with_page: false,
        most: 1.7,
    },
    Row {
        name: "packets",
        keep: Keep::Packets,
        with_page: false,
        most: 3.5,
    },
    Row {
        name: "packets, with the report",
        keep: Keep::Packets,
        with_page: true,
        most: 5.5,
    },
];

fn main() -> ExitCode {
    let variants = Scenario::parse("recording.toml", SCENARIO, &[]).expect("a valid scenario");
    let variant = &variants[0];
    let stop = Stop::new();
    let mut bare = f64::MAX;
    let mut least = ROWS.map(|_| f64::MAX);
    let mut packets = 0;
    for _ in 0..ROUNDS {
        bare = bare.min(timed(|| {
            simulated::run_unrecorded(&variant.scenario, &stop).expect("a run");
        }));
        for (row, least) in ROWS.iter().zip(&mut least) {
            let folder = tempfile::tempdir().expect("a folder for the recording");
            let dir = folder.path().join("run");
            let mut recording = None;
            *least = least.min(timed(|| {
                let made = run(row.keep, &dir, variant, &stop);
                if row.with_page {
                    let page = dir.join(PAGE);
                    HtmlPages.write_run(&page, &made).expect("a page");
                }
                recording = Some(made);
            }));
            if row.with_page {
                let recording = recording.expect("it was timed");
                packets = recording.packets().expect("its packets").count();
            }
        }
    }
    println!("4 flows, 100 Mbit/s, 60 s, {packets} packets      ms  times   most");
    println!("{:<38} {bare:>8.1} {:>6.2}", "not recorded", 1.0);
    let mut code = ExitCode::SUCCESS;
    for (row, least) in ROWS.iter().zip(least) {
        let (name, most, times) = (row.name, row.most, least / bare);
        println!("{name:<38} {least:>8.1} {times:>6.2} {most:>6.2}");
        if times > most {
            eprintln!("recording {name} costs more than {most} times the run");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Simulates `variant` with a recording at the level `keep` in the folder `dir`, and its figures.
fn run(keep: Keep, dir: &Path, variant: &Variant, stop: &Stop) -> Recording {
    let environment = Environment::here(Backend::Sim, "2026-01-01T00:00:00Z".to_owned());
    let writer = RunWriter::create_keeping(keep, dir, variant, &environment);
    let mut writer = writer.expect("a writer");
    let ending = sluice_loader::Ending::new();
    let end = simulated::run(&variant.scenario, &mut writer, stop, &ending, &mut |_| {});
    let recording = writer.finish(End::complete(end.expect("a run")));
    recording.expect("a recording")
}
