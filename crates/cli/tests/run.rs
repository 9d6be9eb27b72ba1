//! `sluice run` in virtual time: what it prints, where, and its exit status.

#[path = "run/replaced.rs"]
mod replaced;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Half a second of probes beside a slow flow of datagrams, through two queues.
const SCENARIO: &str = r#"
duration = "500ms"
[link]
rate = "10Mbit/s"
rtt = "20ms"
[measure]
warmup = "0s"
window = "100ms"
step = "100ms"
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

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn sluice(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(self.0.path()).args(args);
        command
    }

    /// The command with SIGHUP ignored.
    fn under_nohup(&self, args: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_sluice")]);
        command.current_dir(self.0.path()).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.sluice(args).output().expect("the binary starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn the_simulator_is_the_default_and_results_are_reused() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let output = place.run(&["run", "s.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("report: runs/s/report.html"));
    assert!(place.path("runs/s/fifo/report.html").is_file());
    let again = place.run(&["run", "s.toml"]);
    assert!(
        text(&again.stdout).contains("2 of 2 runs reused"),
        "{}",
        text(&again.stdout)
    );
    let results = json(&place.run(&["run", "s.toml", "--json"]));
    assert_eq!(results[1]["variant"], "codel");
    assert_eq!(results[1]["backend"], "sim");
    assert_eq!(results[1]["runs"][0]["reused"], true);
    assert_eq!(results[1]["summary"]["variant"], "codel");
}

#[test]
fn options_for_live_runs_cause_a_warning_without_one() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let output = place.run(&[
        "run",
        "s.toml",
        "--check",
        "--cpu",
        "0",
        "--cpu-latency",
        "0us",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr),
        "sluice: warning: --cpu applies to live runs only, and none of these runs is live\n\
         sluice: warning: --cpu-latency applies to live runs only, and none of these runs is live\n"
    );
}

#[test]
fn a_limit_of_idle_states_is_a_time_and_checked_before_anything_starts() {
    let place = Place::new();
    for command in [
        &["router", "left", "right"][..],
        &["run", "s.toml"],
        &["bench"],
    ] {
        let output = place.run(&[command, &["--cpu-latency", "20"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let told = text(&output.stderr);
        let expected = "invalid value '20' for '--cpu-latency <TIME>'";
        assert!(told.contains(expected), "{told}");
    }
    // Ports that do not exist are not opened.
    let output = place.run(&["router", "left", "right", "--cpu-latency", "2000s"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "sluice: no idle state has an exit latency of 2000s: expected less than 2000s\n"
    );
}

#[test]
fn a_setting_of_hosts_has_a_name_of_the_network_and_a_value() {
    let place = Place::new();
    for word in [
        "net.ipv4.tcp_ecn",
        "net.ipv4.tcp_ecn=",
        "vm.swappiness=1",
        "net..x=1",
        "net.=1",
    ] {
        let output = place.run(&["bench", "--host-sysctl", word]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let told = text(&output.stderr);
        assert!(told.contains(&format!("'{word}'")), "{told}");
        assert!(told.contains("such as net.ipv4.tcp_ecn=1"), "{told}");
    }
}

#[test]
fn an_option_of_a_section_that_is_not_measured_is_refused() {
    let place = Place::new();
    for option in [
        &["--host-sysctl", "net.ipv4.tcp_ecn=1"][..],
        &["--thread-per-flow"],
        &["--figures", "ping_us"],
        &["--real-time"],
        &["--chart", "chart.svg"],
    ] {
        let output = place.run(&[&["bench", "--only", "time"], option].concat());
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        let expected = format!("{} applies to the path section", option[0]);
        assert!(told.contains(&expected), "{told}");
    }
    let output = place.run(&["bench", "--only", "overload,cores", "--rounds", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "sluice: --rounds applies to the path, time and shaped sections, which --only leaves out; \
         add one of them or a forwarding method to --only\n"
    );
}

#[test]
fn a_folder_ends_with_a_list_of_what_failed() {
    let place = Place::new();
    place.write("all/good.toml", SCENARIO);
    place.write("all/bad.toml", "duration = \"1x\"\n");
    let hopeless = "[[expect]]\nmetric = \"ping.p50\"\nmax = \"1ms\"\n";
    place.write("all/deep/unmet.toml", &format!("{SCENARIO}{hopeless}"));
    let output = place.run(&["run", "all", "-o", "out"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("all/bad.toml"), "{errors}");
    // An empty path takes 20 ms.
    assert!(
        errors.contains("sluice: deep/unmet: 2 expectations not met"),
        "{errors}"
    );
    assert!(text(&output.stdout).contains("not met: `ping.p50`"));
    assert!(errors.contains("2 expectations not met"), "{errors}");
    for page in ["out/good/report.html", "out/deep/unmet/codel/report.html"] {
        assert!(place.path(page).is_file(), "{page}");
    }
    let figures = text(&output.stdout);
    assert!(
        figures.lines().all(|line| line.chars().count() <= 80),
        "{figures}"
    );
}

#[test]
fn a_transfer_that_did_not_finish_is_the_reason_for_a_missing_figure() {
    let place = Place::new();
    // 10 MB need 8 s at 10 Mbit/s, and the run lasts 0.5 s.
    let file = "[[flow]]\ntype = \"tcp\"\nname = \"file\"\nbytes = \"10MB\"\n\
                [[expect]]\nmetric = \"file.fct\"\nmax = \"1s\"\n";
    place.write("s.toml", &format!("{SCENARIO}{file}"));
    let output = place.run(&["run", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    let words: Vec<&str> = table.split_whitespace().collect();
    let table = words.join(" ");
    let reason = "not met: `file.fct` of `fifo` was not measured: no transfer of the flow was \
                  complete when the run ended; expected at most 1s";
    assert!(table.contains(reason), "{table}");
}

#[test]
fn a_seed_and_repetitions_are_named_on_the_line() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let results = json(&place.run(&["run", "s.toml", "--seed", "5", "--repeat", "2", "--json"]));
    let seeds: Vec<u64> = results[0]["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .filter_map(|run| run["seed"].as_u64())
        .collect();
    assert_eq!(seeds, [5, 6]);
    assert_eq!(results[0]["figures"]["ping.p50"]["unit"], "time");
}

#[test]
fn a_long_run_says_how_long_it_takes() {
    let place = Place::new();
    // 10 Mbit/s for a week are 504 million packets of 1500 bytes, and each takes about a microsecond:
    // 8.4 min. Up to half as many acknowledgements, and a quarter for what is sent again: 15.75 min.
    let bulk = "duration = \"168h\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[[flow]]\ntype = \"tcp\"\n";
    place.write("s.toml", bulk);
    let output = place.run(&["run", "s.toml", "--check", "--jobs", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    let (_, minutes) = told
        .split_once("packets, which takes about ")
        .expect("a time");
    let (minutes, rest) = minutes.split_once(" min").expect("minutes");
    assert_eq!(rest, " on 1 core\n");
    assert!(
        (8..=16).contains(&minutes.parse().expect("a number")),
        "{told}"
    );
    let short = place.run(&["run", "s.toml", "--check", "--set", "duration=1h"]);
    assert_eq!(text(&short.stderr), "");
}

#[test]
fn checking_starts_nothing() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let output = place.run(&["run", "s.toml", "--check"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "2 runs of 1 scenario can be run\n");
    assert!(!place.path("runs").exists());
    // Where nothing is run, there are no figures.
    let output = place.run(&["run", "s.toml", "--check", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let told = text(&output.stderr);
    assert!(told.contains("cannot be used with"), "{told}");
}

#[test]
fn ctrl_c_keeps_what_has_been_simulated() {
    let place = Place::new();
    let mut child = endless(&place, &[]);
    let begun = place.path("out/fifo/run.json");
    // Under nohup, the end of a terminal is none of a run's business.
    kill_process(Pid::from_child(&child), Signal::HUP).expect("the child runs");
    sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("a child").is_none(), "it has ended");
    kill_process(Pid::from_child(&child), Signal::INT).expect("the child runs");
    let output = child.wait_with_output().expect("the child ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(errors.contains("interrupted: 2 of 2 runs"), "{errors}");
    let run = fs::read_to_string(begun).expect("run.json");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["status"], "partial", "{run}");
    assert!(place.path("out/report.html").is_file());
    // Its folder shows what was recorded; beside finished runs, it would be left out.
    let one = place.run(&["report", "out/fifo"]);
    assert!(one.status.success());
    assert_eq!(
        text(&one.stderr),
        "sluice: warning: the run in `out/fifo` was not finished: interrupted\n"
    );
    let all = text(&place.run(&["report", "out"]).stderr);
    assert!(all.contains("`out/fifo` (interrupted)"), "{all}");
}

/// Starts runs that would take hours, and waits until the first one is recorded.
fn endless(place: &Place, args: &[&str]) -> Child {
    place.write(
        "endless.toml",
        &SCENARIO.replace("500ms", "48h").replace("10Mbit", "2Mbit"),
    );
    let child = place
        .under_nohup(&[&["run", "endless.toml", "-o", "out"], args].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let start = Instant::now();
    while !place.path("out/fifo/run.json").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it does not begin"
        );
        sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_folder_belongs_to_one_process_until_it_ends() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut first = endless(&place, &[]);
    let second = place.run(&["run", "s.toml", "-o", "out"]);
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(
        text(&second.stderr),
        format!(
            "sluice: process {} is running scenarios into `out`: wait until it ends, or choose \
             another folder (-o DIR)\n",
            first.id()
        )
    );
    // SIGKILL leaves no lock behind.
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let third = place.run(&["run", "s.toml", "-o", "out"]);
    assert!(third.status.success(), "{}", text(&third.stderr));
}

#[test]
fn a_run_that_was_killed_is_named_and_left_out() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let mut killed = endless(&place, &["--set", "link.queue=fifo"]);
    for folder in ["out", "out/fifo"] {
        let output = place.run(&["report", folder]);
        let errors = text(&output.stderr);
        let goes_on = format!("process {} is still running", killed.id());
        assert!(errors.contains(&goes_on), "{errors}");
        assert!(errors.contains("; wait for its end"), "{errors}");
    }
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let why = format!(
        "process {} was killed before it closed its tables",
        killed.id()
    );
    let done = place.run(&["run", "s.toml", "-o", "done"]);
    assert!(done.status.success(), "{}", text(&done.stderr));

    // Alone, it is refused.
    let folders = [
        &["report", "out"][..],
        &["compare", "done", "out"],
        &["export", "out", "--tidy", "a.csv"],
    ];
    for args in folders {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let errors = text(&output.stderr);
        let named = format!("sluice: no run in `out` was finished: `out/fifo` ({why}); run");
        assert!(errors.starts_with(&named), "{args:?}: {errors}");
    }
    let output = place.run(&["report", "out/fifo"]);
    assert_eq!(
        text(&output.stderr),
        format!(
            "sluice: the run in `out/fifo` recorded nothing: {why}; \
             run the scenario or the program again\n"
        )
    );

    // Beside others, it is left out.
    fs::rename(place.path("out/fifo"), place.path("done/killed")).expect("a new name");
    let left_out =
        format!("sluice: warning: left out, because not finished: `done/killed` ({why})\n");
    for args in [
        &["report", "done"][..],
        &["compare", "done/fifo", "done"],
        &["export", "done", "--tidy", "a.csv"],
    ] {
        let output = place.run(args);
        assert!(output.status.success(), "{args:?}");
        assert_eq!(text(&output.stderr), left_out, "{args:?}");
    }
    let rows = fs::read_to_string(place.path("a.csv")).expect("the table");
    assert_eq!(rows.lines().count(), 3, "a heading and two runs: {rows}");
}

/// A page with the progress, from the start until the runs end.
#[test]
fn the_page_shows_which_runs_are_done_and_running() {
    let place = Place::new();
    // The first run ends at once, the second one only by the signal.
    let scenario = SCENARIO.replace("duration = \"500ms\"\n", "");
    let scenario = scenario.replace("[matrix]", "[matrix]\nduration = [\"500ms\", \"48h\"]");
    place.write(
        "s.toml",
        &scenario.replace("[\"fifo\", \"codel\"]", "[\"fifo\"]"),
    );
    let args = [
        "run", "s.toml", "--yes", "--jobs", "1", "--record", "flows", "--report",
    ];
    let mut child = place
        .sluice(&args)
        .args(["--http", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    let address = lines
        .find_map(|line| {
            let line = line.expect("text");
            Some(
                line.strip_prefix("sluice: progress at http://")?
                    .trim_end_matches('/')
                    .to_owned(),
            )
        })
        .expect("it prints the address");
    // What follows must not fill the pipe.
    let rest = std::thread::spawn(move || lines.count());
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        body.to_owned()
    };
    assert!(get("/").contains("<title>Sluice</title>"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let state = loop {
        let state: Value = serde_json::from_str(&get("/runs")).expect("it is JSON");
        if state["done"] == 1 && state["runs"][1]["state"] == "running" {
            break state;
        }
        assert!(Instant::now() < deadline, "{state}");
        sleep(Duration::from_millis(20));
    };
    assert_eq!([&state["total"], &state["failed"]], [2, 0]);
    let first = &state["runs"][0];
    assert_eq!(
        (&first["part"], &first["has_report"]),
        (&Value::from(1.0), &Value::from(true))
    );
    assert!(get("/report/0").contains("<title>"));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    // The page learns that the runs are over, though the second one is not done.
    loop {
        let state: Value = serde_json::from_str(&get("/runs")).expect("it is JSON");
        if state["is_over"] == true {
            assert_eq!(state["live"], Value::Null);
            break;
        }
        assert!(Instant::now() < deadline, "{state}");
        sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    rest.join().expect("it reads to the end");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let output = place.run(&["run", "s.toml", "-o", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("/proc/nowhere/fifo"), "{errors}");
}

#[test]
fn a_full_disk_is_reported_with_the_file() {
    // /dev/full accepts a file's name but no byte of content.
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    assert!(place.run(&["run", "s.toml", "-o", "out"]).status.success());
    let output = place.run(&["report", "out", "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot write `/dev/full`"), "{errors}");
    assert!(Path::new("/dev/full").exists());
}

#[test]
fn a_report_replaces_links_with_its_default_name_only() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    assert!(place.run(&["run", "s.toml", "-o", "out"]).status.success());
    place.write("precious", "precious");
    let content = |name: &str| fs::read_to_string(place.path(name)).expect("it exists");
    // A recording from others can contain both.
    for name in ["out/report.html", "out/report.html.part"] {
        let _ = fs::remove_file(place.path(name));
        symlink(place.path("precious"), place.path(name)).expect("writable");
        let output = place.run(&["report", "out"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(content("precious"), "precious", "{name}");
        assert!(content("out/report.html").contains("<html"), "{name}");
    }
    // A link that the user names is followed.
    symlink("precious", place.path("mine.html")).expect("writable");
    let output = place.run(&["report", "out", "-o", "mine.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(content("precious").contains("<html"));
}

#[test]
fn a_picture_of_another_format_is_refused_before_anything_is_drawn() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    assert!(place.run(&["run", "s.toml", "-o", "out"]).status.success());
    let output = place.run(&["report", "out", "--png", "a.jpg"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("`a.jpg`: its name must end in .png"),
        "{errors}"
    );
    assert!(!place.path("a.jpg").exists());
}

/// Returns the model inside a page: JSON, raw deflate, base64.
fn embedded(page: &str) -> Value {
    let (_, rest) = page
        .split_once("<script id=\"model\" type=\"application/octet-stream\">")
        .expect("the page has a place for its model");
    let (encoded, _) = rest.split_once("</script>").expect("scripts end");
    let deflated = STANDARD.decode(encoded).expect("base64");
    let inflated = DeflateDecoder::new(deflated.as_slice());
    serde_json::from_reader(inflated).expect("JSON")
}

#[test]
fn two_sets_of_runs_are_compared_and_indexed() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    assert!(place.run(&["run", "s.toml", "-o", "a"]).status.success());
    assert!(place.run(&["run", "s.toml", "-o", "b"]).status.success());
    let slower = ["run", "s.toml", "-o", "c", "--set", "link.rate=500kbit/s"];
    assert!(place.run(&slower).status.success());
    let same = place.run(&["compare", "a", "b", "--fail-on-change"]);
    assert!(same.status.success(), "{}", text(&same.stdout));
    let changed = place.run(&["compare", "a", "c", "--fail-on-change", "--json"]);
    assert_eq!(changed.status.code(), Some(1));
    assert_eq!(json(&changed)["pairs"].as_array().map(Vec::len), Some(2));
    let named = place.run(&["compare", "a/fifo", "c/fifo", "--figures", "up.drops"]);
    let named = text(&named.stdout);
    let lines: Vec<&str> = named.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 2, "{named}");
    assert_eq!(lines[0], "fifo: 1 run against 1");
    assert!(lines[1].starts_with("  up.drops "), "{named}");
    let others = ["run", "s.toml", "-o", "d", "--set", "link.queue=fq_codel"];
    assert!(place.run(&others).status.success());
    let apart = place.run(&["compare", "a", "d"]);
    assert_eq!(apart.status.code(), Some(1));
    let errors = text(&apart.stderr);
    assert!(
        errors
            .starts_with("sluice: `a` and `d` have no variant in common, so nothing was compared"),
        "{errors}"
    );
    assert!(text(&apart.stdout).contains("only in the second: fq_codel\n"));
    let nothing = place.run(&["compare", "a", "nowhere"]);
    assert!(text(&nothing.stderr).contains("`nowhere`"));

    let output = place.run(&["index", "."]);
    assert_eq!(text(&output.stdout), "index: ./index.html\n");
    let page = fs::read_to_string(place.path("index.html")).expect("the page");
    let index = embedded(&page);
    let scenarios = index["scenarios"].as_array().expect("scenarios");
    let variants = scenarios
        .iter()
        .flat_map(|scenario| scenario["variants"].as_array().expect("variants"));
    let links: Vec<&str> = variants
        .filter_map(|variant| variant["link"].as_str())
        .collect();
    assert!(links.contains(&"a/codel/report.html"), "{links:?}");
}

#[test]
fn a_trace_needs_a_queue_and_a_run_has_its_own() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    place.write("t.csv", "time_ns,flow,size_bytes,ecn\n0,1,100,0\n");
    assert!(place.run(&["run", "s.toml", "-o", "out"]).status.success());
    let trace = place.run(&["replay", "t.csv"]);
    assert!(
        text(&trace.stderr).contains("--queue is required"),
        "{}",
        text(&trace.stderr)
    );
    for (option, value) in [("--queue", "codel"), ("--hash", "flow"), ("--seed", "7")] {
        let run = place.run(&["replay", "out/codel", option, value]);
        assert!(
            text(&run.stderr).contains(&format!("{option} is for traces")),
            "{}",
            text(&run.stderr)
        );
    }
    let simulated = place.run(&["replay", "out/codel"]);
    assert!(
        text(&simulated.stderr).contains("was simulated"),
        "{}",
        text(&simulated.stderr)
    );
}

#[test]
fn standard_input_is_refused() {
    let place = Place::new();
    let output = place.run(&["run", "-"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("sluice: `-` is not read: "), "{errors}");
}

#[test]
fn a_manual_page_has_usage_and_examples_as_the_help_does() {
    let place = Place::new();
    assert!(place.run(&["manual", "man"]).status.success());
    let page = fs::read_to_string(place.path("man/sluice-compare.1")).expect("the page");
    let page = page.replace("\\-", "-");
    assert!(
        page.contains(".SH SYNOPSIS\n.nf\nsluice compare [OPTIONS] <FIRST> <SECOND>\n.fi\n"),
        "{page}"
    );
    assert!(
        page.contains(".SH EXAMPLES\n.nf\n  sluice compare runs/before runs/after\n"),
        "{page}"
    );
    assert!(!page.contains("EXTRA"), "{page}");
}

#[test]
fn help_fits_a_terminal() {
    let place = Place::new();
    let all = text(&place.run(&["--help"]).stdout);
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(commands.contains(&"export"), "{commands:?}");
    for command in commands {
        // In dummynet's language, -h is a flag of the command.
        let flags = ["--help", "-h"];
        for flag in flags.iter().take(if command == "ipfw" { 1 } else { 2 }) {
            let output = place.run(&[command, flag]);
            assert!(output.status.success(), "{command}");
            let help = text(&output.stdout);
            let is_wide = |line: &&str| line.chars().count() > 80;
            assert_eq!(help.lines().find(is_wide), None, "{command} {flag}");
            assert!(!help.contains('\x1b'), "no colours without a terminal");
        }
    }
}
