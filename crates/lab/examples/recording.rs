//! Measures the cost of recording a simulation: every packet, flow and queue, compared with the
//! bare run.
//!
//! Fails if a recorded run takes more than twice the time. Both run in turn, and the least time of
//! each counts, since other load on the machine only ever adds to it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluice_core::Stop;
use sluice_lab::simulated;
use sluice_recording::{End, Environment, RunWriter};
use sluice_scenario::{Backend, Scenario};

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
const MOST: f64 = 2.0;

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

fn main() -> ExitCode {
    let variants = Scenario::parse("recording.toml", SCENARIO, &[]).expect("a valid scenario");
    let variant = &variants[0];
    let stop = Stop::new();
    let (mut bare, mut recorded) = (f64::MAX, f64::MAX);
    let mut rows = 0;
    for _ in 0..ROUNDS {
        bare = bare.min(timed(|| {
            simulated::run_unrecorded(&variant.scenario, &stop).expect("a run");
        }));
        let folder = tempfile::tempdir().expect("a folder for the recording");
        let dir = folder.path().join("run");
        let mut recording = None;
        recorded = recorded.min(timed(|| {
            let environment = Environment::here(Backend::Sim, "2026-01-01T00:00:00Z".to_owned());
            let mut writer = RunWriter::create(&dir, variant, &environment).expect("a writer");
            let ending = sluice_loader::Ending::new();
            let end = simulated::run(&variant.scenario, &mut writer, &stop, &ending, &mut |_| {});
            recording = Some(writer.finish(End::complete(end.expect("a run"))));
        }));
        let recording = recording.expect("it was timed").expect("a recording");
        rows = recording.packets().expect("its packets").count();
    }
    let times = recorded / bare;
    println!("4 flows, 100 Mbit/s, 60 s      bare ms  recorded ms  times  packets");
    println!("{bare:>38.1} {recorded:>12.1} {times:>6.2} {rows:>8}");
    if times <= MOST {
        ExitCode::SUCCESS
    } else {
        eprintln!("recording costs more than {MOST} times the run");
        ExitCode::FAILURE
    }
}
