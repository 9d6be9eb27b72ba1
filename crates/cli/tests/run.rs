//! `sluice run` in virtual time: what it prints, where, and its exit status.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
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
    // Without hosts in the plan, the setting would have no effect.
    for option in [
        &["--host-sysctl", "net.ipv4.tcp_ecn=1"][..],
        &["--thread-per-flow"],
    ] {
        let output = place.run(&[&["bench", "--only", "time"], option].concat());
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        let expected = format!("{} applies to the path section", option[0]);
        assert!(told.contains(&expected), "{told}");
    }
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
fn checking_starts_nothing() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let output = place.run(&["run", "s.toml", "--check"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "2 runs of 1 scenario can be run\n");
    assert!(!place.path("runs").exists());
}

#[test]
fn ctrl_c_keeps_what_has_been_simulated() {
    let place = Place::new();
    place.write(
        "s.toml",
        &SCENARIO.replace("500ms", "48h").replace("10Mbit", "2Mbit"),
    );
    let child = place
        .sluice(&["run", "s.toml", "-o", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let begun = place.path("out/fifo/run.json");
    let start = Instant::now();
    while !begun.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it does not begin"
        );
        sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("the child runs");
    let output = child.wait_with_output().expect("the child ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(errors.contains("interrupted: 2 of 2 runs"), "{errors}");
    let run = fs::read_to_string(begun).expect("run.json");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!(run["status"], "partial", "{run}");
    assert!(place.path("out/report.html").is_file());
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
    let run = place.run(&["replay", "out/codel", "--queue", "codel"]);
    assert!(
        text(&run.stderr).contains("--queue is for traces"),
        "{}",
        text(&run.stderr)
    );
    let simulated = place.run(&["replay", "out/codel"]);
    assert!(
        text(&simulated.stderr).contains("was simulated"),
        "{}",
        text(&simulated.stderr)
    );
}

#[test]
fn help_fits_a_terminal() {
    for command in ["run", "report", "replay", "compare", "index", "list"] {
        let place = Place::new();
        for flag in ["-h", "--help"] {
            let output = place.run(&[command, flag]);
            assert!(output.status.success(), "{command}");
            let help = text(&output.stdout);
            let is_wide = |line: &&str| line.chars().count() > 80;
            assert_eq!(help.lines().find(is_wide), None, "{command} {flag}");
            assert!(!help.contains('\x1b'), "no colours without a terminal");
        }
    }
}
