//! Measures the cost of recording a simulation at each level of `--record`, with its figures and
//! with its report, compared with the bare run: the elapsed time, which a user waits for, and the
//! processor time of all threads of the process.
//!
//! Fails if the elapsed time of one is over its limit. All run in turn, and the least time of each
//! counts, since other load on the machine only ever adds to it. Arguments choose the rows to
//! measure by their first word: `figures`, `flows`, `packets`, `report`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
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

/// Elapsed time and processor time, in milliseconds.
#[derive(Clone, Copy)]
struct Cost {
    elapsed: f64,
    processor: f64,
}

impl Cost {
    const MOST: Cost = Cost {
        elapsed: f64::MAX,
        processor: f64::MAX,
    };

    /// Returns the lesser of each.
    fn min(self, other: Cost) -> Cost {
        Cost {
            elapsed: self.elapsed.min(other.elapsed),
            processor: self.processor.min(other.processor),
        }
    }
}

/// Returns the processor time of all threads, those that have ended included.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the cost of `work`.
fn timed(work: impl FnOnce()) -> Cost {
    let (start, before) = (Instant::now(), processor_time());
    work();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Cost {
        elapsed: ms(start.elapsed()),
        processor: ms(processor_time() - before),
    }
}

/// What a run keeps, and how many times the elapsed time of the bare run it should take, and may take
/// at most.
struct Row {
    name: &'static str,
    keep: Keep,
    with_page: bool,
    goal: f64,
    most: f64,
}

const ROWS: [Row; 4] = [
    Row {
        name: "figures",
        keep: Keep::Figures,
        with_page: false,
        goal: 1.2,
        most: 1.5,
    },
    Row {
        name: "flows",
        keep: Keep::Flows,
        with_page: false,
        goal: 1.6,
        most: 1.6,
    },
    Row {
        name: "packets",
        keep: Keep::Packets,
        with_page: false,
        goal: 3.0,
        most: 3.0,
    },
    Row {
        name: "report, with the packets",
        keep: Keep::Packets,
        with_page: true,
        goal: 3.0,
        most: 3.5,
    },
];

fn main() -> ExitCode {
    let variants = Scenario::parse("recording.toml", SCENARIO, &[]).expect("a valid scenario");
    let variant = &variants[0];
    let stop = Stop::new();
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |row: &&Row| {
        let word = row.name.split([',', ' ']).next();
        chosen.is_empty() || chosen.iter().any(|name| Some(name.as_str()) == word)
    };
    let rows: Vec<&Row> = ROWS.iter().filter(is_chosen).collect();
    let mut bare = Cost::MOST;
    let mut least = vec![Cost::MOST; rows.len()];
    for _ in 0..ROUNDS {
        bare = bare.min(timed(|| {
            simulated::run_unrecorded(&variant.scenario, &stop).expect("a run");
        }));
        for (row, least) in rows.iter().zip(&mut least) {
            let folder = tempfile::tempdir().expect("a folder for the recording");
            let dir = folder.path().join("run");
            *least = least.min(timed(|| {
                let made = run(row.keep, &dir, variant, &stop);
                if row.with_page {
                    HtmlPages.write_run(&dir.join(PAGE), &made).expect("a page");
                }
            }));
        }
    }
    println!(
        "4 flows, 100 Mbit/s, 60 s        elapsed ms  times   goal   most  processor ms  times"
    );
    let line = |name: &str, cost: Cost, limits: String| {
        let (elapsed, processor) = (cost.elapsed, cost.processor);
        let times = (elapsed / bare.elapsed, processor / bare.processor);
        println!(
            "{name:<32} {elapsed:>10.1} {:>6.2} {limits:>13} {processor:>13.1} {:>6.2}",
            times.0, times.1
        );
    };
    line("not recorded", bare, String::new());
    let mut code = ExitCode::SUCCESS;
    for (row, least) in rows.iter().zip(least) {
        let (name, most) = (row.name, row.most);
        line(name, least, format!("{:>6.2} {most:>6.2}", row.goal));
        if least.elapsed / bare.elapsed > most {
            eprintln!("recording {name} takes more than {most} times as long as the run");
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
    let recording = writer.finish(End::complete(end.expect("a run").at));
    recording.expect("a recording")
}
