use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use sluice_core::{Stop, Time};

use sluice_recording::metrics::measure;
use sluice_recording::{End, Environment, Keep, Pages, PagesError, Recording, RunWriter};

use super::*;
use sluice_recording::Status;
use sluice_scenario::Backend;

/// A second of probes beside a slow flow of datagrams.
const SCENARIO: &str = r#"
duration = "1s"
[link]
rate = "10Mbit/s"
rtt = "20ms"
[measure]
warmup = "0s"
[matrix]
"link.queue" = ["fifo", "codel"]
[[flow]]
type = "ping"
[[flow]]
type = "udp"
rate = "1Mbit/s"
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("writable");
        fs::write(&path, text).expect("writable");
        path
    }

    fn request(&self, what: &str) -> Request {
        Request {
            paths: vec![self.path(what)],
            repeat: 1,
            output: Some(self.path("out")),
            ..Request::default()
        }
    }
}

/// Pages that say what they are: the suite decides when and where they are written.
struct Blank;

impl Pages for Blank {
    fn write_run(&self, path: &Path, _: &Recording) -> Result<(), PagesError> {
        Ok(fs::write(path, "run")?)
    }

    fn write_overview(&self, path: &Path, _: &[&Recording]) -> Result<(), PagesError> {
        Ok(fs::write(path, "overview")?)
    }
}

fn options<'a>(interrupt: &'a Stop, watch: &'a (dyn Fn(Progress<'_>) + Sync)) -> Options<'a> {
    Options {
        is_fresh: false,
        threads: None,
        core: None,
        is_watched: false,
        keep: None,
        pages: Some(&Blank),
        has_all_pages: false,
        interrupt,
        watch,
    }
}

fn run(suite: &Suite) -> Vec<Executed> {
    execute(suite, &options(&Stop::new(), &|_| {}))
}

/// Returns the number of reused runs.
fn reused(executed: &[Executed]) -> usize {
    let results = executed.iter().flat_map(|e| &e.results);
    results
        .flat_map(|result| &result.runs)
        .filter(|run| run.reused)
        .count()
}

#[test]
fn a_folder_is_searched_to_its_depths_in_order() {
    let place = Place::new();
    for name in ["s/b.toml", "s/a/z.toml", "s/.hidden.toml", "s/notes.txt"] {
        place.write(name, SCENARIO);
    }
    let suite = place.request("s").plan().expect("a plan");
    let names: Vec<&str> = suite.experiments.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["a/z", "b"]);
    assert_eq!(suite.experiments[0].output, place.path("out/a/z"));
}

#[test]
fn every_run_has_a_folder_of_its_own() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut request = place.request("s.toml");
    request.repeat = 2;
    request.sets = vec!["seed=7".into()];
    request.backends = Some(Backends::Both);
    let suite = request.plan().expect("a plan");
    let runs: Vec<(&str, Backend, u64)> = suite.experiments[0]
        .runs
        .iter()
        .map(|run| {
            let folder = run.dir.strip_prefix(place.path("out")).expect("below it");
            let folder = folder.to_str().expect("plain words");
            (folder, run.backend, run.variant.scenario.seed)
        })
        .collect();
    assert_eq!(
        runs,
        [
            ("fifo", Backend::Sim, 7),
            ("fifo.seed-8", Backend::Sim, 8),
            ("codel", Backend::Sim, 7),
            ("codel.seed-8", Backend::Sim, 8),
            ("fifo.live", Backend::Live, 7),
            ("fifo.live.seed-8", Backend::Live, 8),
            ("codel.live", Backend::Live, 7),
            ("codel.live.seed-8", Backend::Live, 8),
        ]
    );
}

#[test]
fn a_folder_without_scenarios_is_an_error() {
    let place = Place::new();
    place.write("s/notes.txt", "");
    let error = place.request("s").plan().expect_err("nothing to run");
    assert!(error.to_string().contains("no scenario"), "{error}");
}

#[test]
fn two_scenarios_of_one_name_are_refused() {
    let place = Place::new();
    let mut request = place.request("a/s.toml");
    request.paths.push(place.path("b/s.toml"));
    place.write("a/s.toml", SCENARIO);
    place.write("b/s.toml", SCENARIO);
    let error = request.plan().expect_err("they share a folder");
    assert!(matches!(error, PlanError::Clash { .. }), "{error}");
}

#[test]
fn a_scenario_that_is_named_twice_and_a_folder_of_runs_are_told_as_such() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut request = place.request("s.toml");
    request.paths.push(place.path("s.toml"));
    let error = request.plan().expect_err("they share a folder");
    assert!(matches!(error, PlanError::Twice { .. }), "{error}");
    sluice_recording::testing::recording(&place.path("runs/fifo"));
    let error = place.request("runs").plan().expect_err("no scenario");
    assert!(error.to_string().contains("contains runs"), "{error}");
}

#[test]
fn a_broken_scenario_does_not_stop_the_others() {
    let place = Place::new();
    place.write("s/a.toml", "duration = \"1x\"");
    place.write("s/b.toml", SCENARIO);
    let unknown = SCENARIO.replace("type = \"ping\"", "type = \"tcp\"\ncc = \"vegas9\"");
    place.write("s/c.toml", &unknown.replace("1s", "2s"));
    let mut suite = place.request("s").plan().expect("a plan");
    suite.check(false);
    let failed: Vec<&str> = suite.failures.iter().map(|f| f.what.as_str()).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed[0].ends_with("a.toml") && failed[1].ends_with("c.toml"));
    let executed = run(&suite);
    assert_eq!(executed.len(), 1);
    assert_eq!(executed[0].results.len(), 2);
    assert!(place.path("out/b/report.html").is_file());
    assert!(place.path("out/b/summary.json").is_file());
    assert!(place.path("out/b/codel/report.html").is_file());
}

#[test]
fn a_device_among_the_scenarios_of_a_folder_is_named_and_not_read() {
    let place = Place::new();
    place.write("s/a.toml", SCENARIO);
    let endless = place.path("s/endless.toml");
    std::os::unix::fs::symlink("/dev/zero", &endless).expect("a link");
    let suite = place.request("s").plan().expect("a plan");
    assert_eq!((suite.failures.len(), suite.experiments.len()), (1, 1));
    let failure = &suite.failures[0];
    assert_eq!(failure.what, endless.display().to_string());
    let error = failure.error.to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
}

#[test]
fn repetitions_beyond_the_largest_seed_or_of_too_many_runs_are_refused_before_any_run() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let planned = |seed: &str, repeat| {
        let request = Request {
            sets: vec![format!("seed={seed}")],
            repeat,
            ..place.request("s.toml")
        };
        let suite = request.plan().expect("a plan");
        let errors = suite.failures.iter().map(|f| f.error.to_string());
        (suite.len(), errors.collect::<Vec<_>>())
    };
    // 2^63 - 1, and two variants.
    assert_eq!(planned("9223372036854775807", 1), (2, Vec::new()));
    assert_eq!(planned("9223372036854775806", 2), (4, Vec::new()));
    let beyond = "`--repeat 2` counts up from the seed 9223372036854775807; the largest seed is \
                  9223372036854775807";
    assert_eq!(
        planned("9223372036854775807", 2),
        (0, vec![beyond.to_owned()])
    );
    let many = "`--repeat 4000000000` makes 8000000000 runs; at most 100000 are accepted";
    assert_eq!(planned("1", 4_000_000_000), (0, vec![many.to_owned()]));
}

#[test]
fn an_error_of_some_variants_names_its_place_and_them() {
    let place = Place::new();
    let error = |flow: &str, matrix: &str, backend| {
        let text = SCENARIO.replace("type = \"udp\"\nrate = \"1Mbit/s\"", flow);
        let file = place.write(
            "s.toml",
            &text.replace("[matrix]\n", &format!("[matrix]\n{matrix}")),
        );
        let request = Request {
            backends: Some(Backends::One(backend)),
            repeat: 2,
            ..place.request("s.toml")
        };
        let mut suite = request.plan().expect("a plan");
        suite.check(false);
        assert_eq!((suite.failures.len(), suite.len()), (1, 0));
        let error = suite.failures[0].error.to_string();
        error.replace(&format!("{}:", file.display()), "s.toml:")
    };
    let refused = "s.toml:9:22: `pacing = true` of flow `tcp` (the kernel's `cubic` does not pace) is \
                   not possible with the live backend; the simulator (`--backend sim`) has it";
    // Line 8 is `[matrix]`, and the value begins behind `"flow.tcp.pacing" = [`.
    assert_eq!(
        error(
            "type = \"tcp\"",
            "\"flow.tcp.pacing\" = [true, false]\n",
            Backend::Live
        ),
        format!("{refused} (in 2 of 4 variants: `pacing=true fifo`, `pacing=true codel`)")
    );
    let unknown = error("type = \"tcp\"\ncc = \"cubik\"", "", Backend::Sim);
    assert!(
        unknown.starts_with(
            "s.toml:14:6: flow `tcp`: the simulator has no congestion control `cubik`; did you"
        ),
        "{unknown}"
    );
    assert!(unknown.ends_with(" (in all 2 variants)"), "{unknown}");
}

#[test]
fn more_than_sixteen_runs_get_pages_on_request_only() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let page = place.path("out/report.html");
    let of_run = place.path("out/codel.seed-9/report.html");
    let runs = |repeat, has_all_pages| {
        let mut request = place.request("s.toml");
        request.repeat = repeat;
        let interrupt = Stop::new();
        let options = Options {
            has_all_pages,
            ..options(&interrupt, &|_| {})
        };
        let executed = execute(&request.plan().expect("a plan"), &options);
        assert!(executed[0].failures.is_empty());
        (reused(&executed), page.is_file(), of_run.is_file())
    };
    // Two variants with eight seeds are sixteen runs.
    assert_eq!(runs(8, false), (0, true, false));
    // The older page does not show the two new runs, so it goes.
    assert_eq!(runs(9, false), (16, false, false));
    assert!(place.path("out/summary.json").is_file());
    assert_eq!(runs(9, true), (18, true, true));
    // What was drawn on request stays while it shows the same runs.
    assert_eq!(runs(9, false), (18, true, true));
}

#[test]
fn the_page_of_an_only_run_is_drawn_once() {
    let place = Place::new();
    place.write("s/one.toml", &SCENARIO.replace("\"fifo\", ", ""));
    place.write("s/two.toml", SCENARIO);
    run(&place.request("s").plan().expect("a plan"));
    let page = |of: &str| fs::read_to_string(place.path(of)).expect("a page");
    assert_eq!(page("out/one/report.html"), "run");
    assert_eq!(page("out/two/report.html"), "overview");
}

#[test]
fn a_run_that_cannot_be_written_does_not_stop_the_others() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    place.write("out/fifo", "a file where a folder should be");
    let executed = run(&place.request("s.toml").plan().expect("a plan"));
    assert_eq!(executed[0].results.len(), 1);
    assert_eq!(executed[0].failures.len(), 1);
    let failure = &executed[0].failures[0];
    assert!(failure.what.ends_with("s.toml: fifo"), "{}", failure.what);
    assert!(failure.error.to_string().contains("out/fifo"));
}

#[test]
fn runs_are_reused_until_scenario_or_seed_change_or_a_table_is_damaged() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let request = place.request("s.toml");
    let plan = |request: &Request| request.plan().expect("a plan");
    let first = run(&plan(&request));
    assert_eq!(reused(&first), 0);
    let second = run(&plan(&request));
    assert_eq!(reused(&second), 2);
    // Figures that went through a file are the same to the last bit.
    let figures = |executed: &[Executed]| executed[0].results[0].runs[0].summary.clone();
    assert_eq!(figures(&second), figures(&first));

    let interrupt = Stop::new();
    let fresh = Options {
        is_fresh: true,
        ..options(&interrupt, &|_| {})
    };
    let again = execute(&plan(&request), &fresh);
    assert_eq!((reused(&again), figures(&again)), (0, figures(&first)));

    let mut other = request.clone();
    other.sets = vec!["seed=5".into()];
    assert_eq!(reused(&run(&plan(&other))), 0, "another seed");
    assert_eq!(
        reused(&run(&plan(&request))),
        0,
        "which has replaced the first"
    );

    // A copy of the table with a later time is read, and is the same table.
    let table = place.path("out/codel/packets.parquet");
    let bytes = fs::read(&table).expect("the table");
    fs::write(&table, bytes).expect("writable");
    assert_eq!(reused(&run(&plan(&request))), 2, "no table is damaged");

    // A byte in the middle of a page, which Parquet itself does not notice.
    let mut bytes = fs::read(&table).expect("the table");
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).expect("writable");
    assert_eq!(reused(&run(&plan(&request))), 1, "one table is damaged");
    assert_eq!(reused(&run(&plan(&request))), 2, "and its run was repeated");
}

#[test]
fn files_that_a_crash_of_the_machine_left_empty_are_made_again() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let request = place.request("s.toml");
    let run = || reused(&run(&request.plan().expect("a plan")));
    assert_eq!(run(), 0);
    for file in ["run.json", "summary.json", "packets.parquet"] {
        fs::write(place.path("out/codel").join(file), "").expect("writable");
        assert_eq!(run(), 1, "{file}");
        assert_eq!(run(), 2, "{file}");
    }
}

#[test]
fn figures_are_the_same_at_every_level_of_recording() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let request = place.request("s.toml");
    let plan = || request.plan().expect("a plan");
    let interrupt = Stop::new();
    let recorded = |keep| {
        let options = Options {
            keep: Some(keep),
            ..options(&interrupt, &|_| {})
        };
        let executed = execute(&plan(), &options);
        let of_run = |at: usize| executed[0].results[at].runs[0].summary.clone();
        (reused(&executed), [of_run(0), of_run(1)])
    };
    let all = recorded(Keep::Packets);
    assert_eq!(recorded(Keep::Figures), (2, all.1.clone()), "it has more");
    let table = |name: &str| place.path("out/codel").join(name);
    for (keep, has) in [(Keep::Figures, [false; 2]), (Keep::Flows, [true, false])] {
        fs::remove_dir_all(place.path("out")).expect("the folder");
        assert_eq!(recorded(keep), (0, all.1.clone()));
        let tables = ["flows.parquet", "packets.parquet"].map(|name| table(name).is_file());
        assert_eq!(tables, has);
        assert_eq!(table("report.html").is_file(), has[0]);
        // The figures in the file are those of the run, and a table that is not there is named.
        let recording = Recording::open(&place.path("out/codel")).expect("a recording");
        let read = measure(&recording).expect("figures");
        assert!(all.1.contains(&read));
        let error = recording.packets().err().expect("no packets").to_string();
        let says = error.contains("no table `packets`") && error.contains("--record packets");
        assert!(says, "{error}");
    }
    assert_eq!(recorded(Keep::Packets).0, 0, "packets are missing");
}

#[test]
fn the_runs_of_another_program_are_not_reused() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let suite = place.request("s.toml").plan().expect("a plan");
    run(&suite);
    let run_json = place.path("out/fifo/run.json");
    let text = fs::read_to_string(&run_json).expect("run.json");
    let this = sluice_recording::program().expect("the program's checksum");
    let other: String = this.chars().rev().collect();
    fs::write(&run_json, text.replace(this, &other)).expect("writable");
    assert_eq!(reused(&run(&suite)), 1);
}

#[test]
fn repeated_runs_become_one_result_with_medians() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut request = place.request("s.toml");
    request.repeat = 3;
    let executed = run(&request.plan().expect("a plan"));
    let results = &executed[0].results;
    assert_eq!(results.len(), 2);
    let seeds: Vec<u64> = results[0].runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [1, 2, 3]);
    let stored = fs::read_to_string(place.path("out/summary.json")).expect("summary.json");
    let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    let goodput = &stored[0]["figures"]["total.goodput"];
    let value = |key: &str| goodput[key].as_f64().expect("a number");
    let values: Vec<f64> = goodput["values"]
        .as_array()
        .expect("a value per run")
        .iter()
        .filter_map(serde_json::Value::as_f64)
        .collect();
    assert_eq!(values.len(), 3);
    assert!(values.contains(&value("median")) && values.contains(&value("max")));
    assert!(value("min") <= value("median") && value("median") <= value("max"));
}

/// A report puts runs in the order in which they began.
#[test]
fn runs_begin_in_the_order_of_the_suite_also_if_a_thread_is_slow() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut request = place.request("s.toml");
    request.repeat = 3;
    let suite = request.plan().unwrap();
    let interrupt = Stop::new();
    let slow = |progress: Progress<'_>| {
        if matches!(progress, Progress::Begun(0, _)) {
            thread::sleep(Duration::from_millis(200));
        }
    };
    let mut options = options(&interrupt, &slow);
    options.threads = NonZeroUsize::new(2);
    execute(&suite, &options);
    let began = |run: &Planned| {
        let recording = Recording::open(&run.dir).unwrap();
        recording.run().environment.started_at.clone()
    };
    let began: Vec<String> = suite.experiments[0].runs.iter().map(began).collect();
    assert_eq!(began.len(), 6);
    assert!(began.windows(2).all(|two| two[0] < two[1]), "{began:?}");
}

#[test]
fn an_interruption_keeps_what_has_run_and_begins_nothing_more() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let suite = place.request("s.toml").plan().expect("a plan");
    let interrupt = Stop::new();
    let begun = Mutex::new(0);
    let watch = |progress: Progress<'_>| {
        *begun.lock().expect("nobody panics") += i32::from(matches!(progress, Progress::Begun(..)));
        // The interruption comes during the first run.
        if matches!(progress, Progress::At(..)) {
            interrupt.stop();
        }
    };
    let options = Options {
        threads: std::num::NonZeroUsize::new(1),
        core: None,
        is_watched: false,
        ..options(&interrupt, &watch)
    };
    let executed = execute(&suite, &options);
    assert_eq!(*begun.lock().expect("nobody panics"), 1);
    assert_eq!(executed[0].missing, 2);
    assert_eq!(executed[0].results.len(), 1);
    let partial = Status::Partial {
        reason: "interrupted".into(),
    };
    assert_eq!(executed[0].results[0].runs[0].status, partial);
    assert!(Path::new(&place.path("out/report.html")).is_file());
}

/// Leaves an earlier run without traffic in the folder of each run of the request.
fn leave_earlier(request: &Request, is_complete: bool) {
    let suite = request.plan().expect("a plan");
    for run in suite.experiments.iter().flat_map(|one| &one.runs) {
        let environment = Environment::here(run.backend, "2026-01-02T03:04:05Z".into());
        let writer = RunWriter::create(&run.dir, &run.variant, &environment).expect("a recording");
        let end = Time::ZERO + run.variant.scenario.duration;
        let end = match is_complete {
            true => End::complete(end),
            false => End::partial(end, "interrupted"),
        };
        writer.finish(end).expect("a recording");
    }
}

#[test]
fn a_live_run_is_replaced_only_by_a_live_run_with_its_settings() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let request = |backend, set: &str| Request {
        backends: Some(Backends::One(backend)),
        sets: vec![set.to_owned()],
        ..place.request("s.toml")
    };
    // Returns what is said and refused, and the number of runs that are left.
    let kept = |request: Request| {
        let mut suite = request.plan().expect("a plan");
        let said = suite.keep_live_runs();
        let refused: Vec<String> = suite.failures.iter().map(|f| f.error.to_string()).collect();
        (said, refused, suite.len())
    };
    let none = Vec::<String>::new;
    let place_of = |who: &str| format!("{who} in `{}`", place.path("out/fifo").display());
    let settings = "of other settings (there `seed = 1`, here `seed = 7`)";

    leave_earlier(&request(Backend::Live, "seed=1"), true);
    // Its own settings: a title sets nothing.
    let same = kept(request(Backend::Live, "title=another"));
    assert_eq!(same, (none(), none(), 2));
    let what_to_do = "choose another folder (-o DIR), or replace";
    let simulated = format!(
        "{} and 1 more folder would be replaced by simulations; {what_to_do} them with --fresh",
        place_of("the live runs")
    );
    let found = kept(request(Backend::Sim, "seed=1"));
    assert_eq!(found, (none(), vec![simulated], 0));
    let other = format!(
        "{} and 1 more folder would be replaced by runs {settings}; {what_to_do} them with --fresh",
        place_of("the live runs")
    );
    let found = kept(request(Backend::Live, "seed=7"));
    assert_eq!(found, (none(), vec![other], 0));
    // One run of another scenario's matrix.
    let mut one = request(Backend::Sim, "seed=1");
    one.sets.push("link.queue=fifo".into());
    let simulated = format!(
        "{} would be replaced by a simulation; {what_to_do} it with --fresh",
        place_of("the live run")
    );
    assert_eq!(kept(one), (none(), vec![simulated], 0));

    // Simulations can be made again, and an interrupted live run is not complete.
    for (backend, is_complete) in [(Backend::Sim, true), (Backend::Live, false)] {
        leave_earlier(&request(backend, "seed=1"), is_complete);
        assert_eq!(kept(request(backend, "seed=1")), (none(), none(), 2));
        let said = format!(
            "{} and 1 more folder are replaced by runs {settings}; another folder (-o DIR) keeps them",
            place_of("the earlier runs")
        );
        let found = kept(request(backend, "seed=7"));
        assert_eq!(found, (vec![said], none(), 2));
    }
}

#[test]
fn links_with_the_names_of_the_files_are_replaced() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let precious = place.write("precious", "precious");
    fs::create_dir(place.path("out")).expect("writable");
    let names = ["summary.json", "summary.json.part"];
    for name in names.map(|name| place.path("out").join(name)) {
        std::os::unix::fs::symlink(&precious, name).expect("writable");
    }
    run(&place.request("s.toml").plan().expect("a plan"));
    assert_eq!(fs::read_to_string(&precious).expect("the file"), "precious");
    let summary = fs::symlink_metadata(place.path("out/summary.json")).expect("it is written");
    assert!(summary.is_file());
}

#[test]
fn no_link_leads_out_of_the_folder_that_the_user_has_named() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    place.write("many/b/s.toml", SCENARIO);
    let outside = place.path("outside");
    fs::create_dir_all(outside.join("nested")).expect("writable");
    fs::create_dir_all(place.path("many-out")).expect("writable");
    // The folder that the user names may itself be a link.
    let links = [
        ("out", "real"),
        ("real/codel", "outside"),
        ("many-out/b", "outside"),
    ];
    fs::create_dir(place.path("real")).expect("writable");
    for (link, to) in links {
        std::os::unix::fs::symlink(place.path(to), place.path(link)).expect("writable");
    }
    let one = place.request("s.toml");
    let many = Request {
        output: Some(place.path("many-out")),
        ..place.request("many")
    };
    for (request, link, results) in [(one, "out/codel", 1), (many, "many-out/b", 0)] {
        let executed = run(&request.plan().expect("a plan"));
        assert_eq!(executed[0].results.len(), results);
        let failures = &executed[0].failures;
        assert_eq!(failures.len(), 2 - results, "{failures:?}");
        let expected = format!(
            "`{}` is a symbolic link, which is not followed: remove it, or choose another folder (-o DIR)",
            place.path(link).display()
        );
        assert_eq!(failures[0].error.to_string(), expected);
    }
    assert!(place.path("real/fifo/run.json").is_file());
    let left: Vec<_> = fs::read_dir(&outside)
        .expect("it exists")
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
