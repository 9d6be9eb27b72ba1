//! The `sluice` command with real packets, in namespaces that the tests create.
//!
//! These tests need root or unprivileged user namespaces and fail without them. They run one at a
//! time because they measure (`make test-live`).

#[path = "live/module.rs"]
mod module;
#[path = "live/seeds.rs"]
mod seeds;
#[path = "live/watched.rs"]
mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn sluice() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(name)
}

fn first_light() -> PathBuf {
    scenario("first-light.toml")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Waits until `path` exists. A run creates its first file before anything else.
fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{} did not appear",
            path.display()
        );
        sleep(Duration::from_millis(20));
    }
}

/// The network namespaces of the threads in `dir`, each once.
fn spaces(dir: &Path) -> Vec<PathBuf> {
    let mut spaces: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_link(task.path().join("ns/net")).ok())
        .collect();
    spaces.sort();
    spaces.dedup();
    spaces
}

/// The threads of a process.
fn threads(child: &Child) -> PathBuf {
    PathBuf::from(format!("/proc/{}/task", child.id()))
}

/// A run that lasts long enough for the test to end it. It has its namespaces: its own, h2, router and
/// h3.
fn start_long_run(out: &Path) -> Child {
    let child = sluice()
        .args(["run", "--backend", "live", "--quiet"])
        .args(["--set", "duration=60s"])
        .arg(first_light())
        .arg("-o")
        .arg(out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    wait_for(&out.join("fifo/run.json"));
    let start = Instant::now();
    while spaces(&threads(&child)).len() < 4 {
        assert!(start.elapsed() < Duration::from_secs(20), "no namespaces");
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_secs(3));
    child
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Returns the names of the machine's own interfaces.
fn interfaces() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")
        .expect("sysfs is there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn first_light_meets_its_expectations() {
    let before = interfaces();
    // The report is kept, because `make test-report` opens it in a browser.
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../artifacts/first-light");
    let temp = tempfile::tempdir().expect("a folder");
    let file = temp.path().join("first-light.toml");
    let text = fs::read_to_string(first_light()).expect("the scenario");
    let none_lost = expect("accuracy.lost", "", "backend = \"live\"\nmax = 0");
    fs::write(&file, format!("{text}\n{none_lost}")).expect("writable");
    let figures = run_until_undisturbed(&file, &out);
    assert_eq!(figures.as_array().map(Vec::len), Some(3), "{figures}");
    for variant in ["fifo", "codel", "fq_codel"] {
        let dir = out.join(variant);
        let run = json(&dir.join("run.json"));
        assert_eq!(run["status"], "complete", "{run}");
        assert_eq!(run["lost"], serde_json::json!({}), "{run}");
        for file in ["packets", "flows", "queues", "pings", "releases"] {
            assert!(dir.join(format!("{file}.parquet")).is_file(), "{file}");
        }
        assert!(dir.join("report.html").is_file());
        assert!(dir.join("summary.json").is_file());
    }
    assert!(out.join("report.html").is_file());
    assert_eq!(
        interfaces(),
        before,
        "the machine's interfaces are untouched"
    );
}

#[test]
fn a_live_run_gets_the_same_verdicts_in_virtual_time() {
    let out = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(first_light()).expect("the scenario");
    let scenario = out.path().join("s.toml");
    // Queues that decide by time, at random and by length, with enough load for all of them.
    let queues = "[\"fifo limit 30\", \"codel\", \"fq_codel ecn\", \"pie\", \"cake\"]";
    let text = text.replace("[\"fifo limit 1000\", \"codel\", \"fq_codel\"]", queues);
    let text = text.split("\n# 1000 packets").next().expect("the flows");
    fs::write(&scenario, text).expect("writable");
    let runs = out.path().join("out");
    let output = sluice()
        .args([
            "run",
            "--backend",
            "live",
            "--quiet",
            "--set",
            "duration=4s",
        ])
        .arg(&scenario)
        .arg("-o")
        .arg(&runs)
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", stderr(&output));
    for queue in ["fifo", "codel", "fq_codel", "pie", "cake"] {
        let folder = fs::read_dir(&runs)
            .expect("runs")
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                path.is_dir()
                    && path.file_name().is_some_and(|n| {
                        n.to_string_lossy().split(['-', ' ']).next() == Some(queue)
                    })
            })
            .unwrap_or_else(|| panic!("a run with {queue}"));
        let output = sluice()
            .args(["replay", "--json"])
            .arg(&folder)
            .output()
            .expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{queue}: {text}{}",
            stderr(&output)
        );
        let replay: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for pipe in replay["pipes"].as_array().expect("two directions") {
            assert!(pipe["packets"].as_u64() > Some(1000), "{queue}: {text}");
            assert_eq!(pipe["differing"], 0, "{queue}: {text}");
        }
        let up = &replay["pipes"][0];
        let decided = ["dropped", "marked"].map(|key| up[key].as_u64().unwrap_or(0));
        assert!(
            decided.iter().sum::<u64>() > 0,
            "{queue} had nothing to do: {text}"
        );
    }
}

/// Runs the scenario, up to three times. Runs it again only if an expectation was not met and the
/// run's own counters show that the machine was busy. A wrong behaviour of the queues is never
/// excused.
fn run_until_undisturbed(scenario: &Path, out: &Path) -> Value {
    for attempt in 1.. {
        match run_once(scenario, out) {
            Ok(figures) => return figures,
            Err(failed) => {
                assert!(failed.was_disturbed && attempt < 3, "{}", failed.said);
                eprintln!("attempt {attempt} was disturbed: {}", failed.said);
            }
        }
    }
    unreachable!("the third attempt passes or fails")
}

/// A run that did not meet an expectation.
struct Failed {
    said: String,
    was_disturbed: bool,
}

fn run_once(scenario: &Path, out: &Path) -> Result<Value, Failed> {
    let output = sluice()
        .args(["run", "--backend", "live", "--fresh", "--quiet"])
        .args(["--json", "--report"])
        .arg(scenario)
        .arg("-o")
        .arg(out)
        .output()
        .expect("the binary starts");
    let figures: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    if output.status.success() {
        return Ok(figures);
    }
    // A slot of the link lasts 1.2 ms. A packet that is later was delayed for longer than a
    // real link would delay it.
    let was_disturbed = figures.as_array().into_iter().flatten().any(|result| {
        let late = &result["summary"]["accuracy"]["lateness"];
        late["p99_ns"].as_u64() > Some(1_200_000) || late["max_ns"].as_u64() > Some(12_000_000)
    });
    Err(Failed {
        said: stderr(&output),
        was_disturbed,
    })
}

/// The scenario's upper bounds on the ping include the time in which the machine wakes a host. On
/// any machine, the emulation itself guarantees only that no packet is early or lost, and that the
/// rate is correct.
#[test]
fn delay_and_rate_agree_with_the_scenario() {
    let temp = tempfile::tempdir().expect("a folder");
    let mut text = fs::read_to_string(scenario("accuracy.toml")).expect("the scenario");
    for (on_a_quiet_machine, on_any) in [
        ("max = \"20.3ms\"", "max = \"30ms\""),
        ("max = \"21ms\"", "min = \"20ms\""),
        // The queue grows by 200 packets a second, and does not drain while the sender does not run.
        ("\"fifo limit 100\"", "\"fifo limit 1000\""),
    ] {
        assert!(text.contains(on_a_quiet_machine), "{on_a_quiet_machine}");
        text = text.replace(on_a_quiet_machine, on_any);
    }
    let file = temp.path().join("s.toml");
    fs::write(&file, text).expect("writable");
    let figures = run_until_undisturbed(&file, &temp.path().join("out"));
    let expect = figures[0]["expect"].as_array().expect("expectations");
    assert_eq!(expect.len(), 5, "{figures}");
}

#[test]
fn ctrl_c_keeps_a_partial_recording() {
    let out = tempfile::tempdir().expect("a folder");
    let child = start_long_run(out.path());
    kill_process(pid(&child), Signal::INT).expect("the child runs");
    let output = child.wait_with_output().expect("the child ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("interrupted: 3 of 3 runs"),
        "{}",
        stderr(&output)
    );
    let run = json(&out.path().join("fifo/run.json"));
    assert_eq!(run["status"], "partial", "{run}");
    assert_eq!(run["reason"], "interrupted", "{run}");
    assert!(out.path().join("fifo/packets.parquet").is_file());
    assert!(out.path().join("report.html").is_file());
}

#[test]
fn a_killed_run_leaves_no_network_and_is_recognised() {
    let before = interfaces();
    let out = tempfile::tempdir().expect("a folder");
    let mut child = start_long_run(out.path());
    let used = spaces(&threads(&child));
    assert!(used.len() >= 4, "own, h2, router and h3: {used:?}");
    child.kill().expect("the child runs");
    child.wait().expect("the child ends");

    let own = fs::read_link("/proc/self/ns/net").expect("procfs is there");
    let left: Vec<PathBuf> = fs::read_dir("/proc")
        .expect("procfs is there")
        .flatten()
        .flat_map(|process| spaces(&process.path().join("task")))
        .filter(|space| *space != own && used.contains(space))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "namespaces without owner");
    assert_eq!(interfaces(), before);
    assert_eq!(json(&out.path().join("fifo/run.json"))["status"], "running");

    // The next run in the same folder reports this and continues.
    let output = sluice()
        .args([
            "run",
            "--backend",
            "live",
            "--quiet",
            "--set",
            "duration=1500ms",
            "--set",
            "link.queue=codel",
        ])
        .arg(short_scenario(out.path()))
        .arg("-o")
        .arg(out.path())
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("left by a run that was killed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json(&out.path().join("fifo/run.json"))["status"], "partial");
}

/// A scenario of one run. It is beside the folder `out`, so it is not part of it.
fn short_scenario(out: &Path) -> PathBuf {
    let path = out.with_extension("toml");
    fs::write(
        &path,
        "duration = \"1s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[measure]\nwarmup = \"0s\"\n\
         [[flow]]\ntype = \"ping\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n",
    )
    .expect("the temporary folder is writable");
    path
}

#[test]
fn an_unknown_congestion_control_is_reported_with_the_known_ones() {
    let out = tempfile::tempdir().expect("a folder");
    let scenario = out.path().join("s.toml");
    let text = fs::read_to_string(first_light()).expect("the scenario");
    fs::write(&scenario, text.replace("\"cubic\"", "\"vegas9\"")).expect("writable");
    let dir = out.path().join("out");
    let output = sluice()
        .args(["run", "--backend", "live"])
        .arg(&scenario)
        .arg("-o")
        .arg(&dir)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("vegas9") && message.contains("cubic"),
        "{message}"
    );
    assert!(!dir.exists(), "nothing was started");
}

#[test]
fn an_unwritable_output_is_reported_before_the_run_starts() {
    let started = Instant::now();
    let output = sluice()
        .args(["run", "--backend", "live"])
        .arg(first_light())
        .args(["-o", "/proc/nowhere"])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("/proc/nowhere"),
        "{}",
        stderr(&output)
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "nothing was run"
    );
}

/// Runs the text of a scenario live. Returns its summary as JSON and the printed text.
fn run_text(text: &str) -> (Value, String) {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("x.toml");
    fs::write(&file, text).unwrap();
    let out = temp.path().join("run");
    let output = sluice()
        .args(["run", "--backend", "live", "--quiet"])
        .arg(&file)
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap();
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        stderr(&output)
    );
    assert!(output.status.success(), "{printed}");
    let variant = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("summary.json").exists());
    let summary = variant.unwrap_or(out).join("summary.json");
    (json(&summary), printed)
}

/// Runs the text of a scenario, as [`run_until_undisturbed`] does.
fn run_text_until_undisturbed(text: &str) {
    let temp = tempfile::tempdir().expect("a folder");
    let file = temp.path().join("s.toml");
    fs::write(&file, text).expect("writable");
    run_until_undisturbed(&file, &temp.path().join("out"));
}

/// Every kind of traffic over two links with effects. The bounds are wide, since the machine may be
/// busy. They show that each kind works and has the path that the scenario describes.
#[test]
fn every_kind_of_traffic_crosses_a_path_of_two_links() {
    run_text_until_undisturbed(
        r#"
duration = "5s"
[link]
rate = "20Mbit/s"
rtt = "20ms"
queue = "fq_codel"
loss = "1%"
driver = "3000B"
[[hop]]
rate = { every = "1s", rates = ["20Mbit/s", "10Mbit/s"] }
rtt = "10ms"
queue = "codel"
[[flow]]
type = "tcp"
name = "repeated"
bytes = "50kB"
pause = "200ms"
[[flow]]
type = "udp"
name = "bursts"
rate = "2Mbit/s"
spacing = "on_off"
on = "100ms"
off = "100ms"
[[flow]]
type = "voip"
direction = "down"
[[flow]]
type = "rr"
[[flow]]
type = "web"
direction = "down"
interval = "300ms"
size = "5kB"
objects = 3
[[flow]]
type = "ping"
name = "first"
protocol = "udp"
hops = 1
[[flow]]
type = "ping"
name = "far"
rtt = "80ms"
[[expect]]
metric = "repeated.transfers"
min = 3
[[expect]]
metric = "bursts.goodput"
min = "700kbit/s"
max = "1.2Mbit/s"
[[expect]]
metric = "voip.down.p50"
min = "15ms"
max = "25ms"
[[expect]]
metric = "voip.loss"
max = 0.1
[[expect]]
metric = "rr.p50"
min = "30ms"
max = "45ms"
[[expect]]
metric = "web.transfers"
min = 4
[[expect]]
metric = "web.fct.p50"
min = "60ms"
# Only the first link, and only the flow with the longer path.
[[expect]]
metric = "first.p50"
min = "20ms"
max = "29ms"
[[expect]]
metric = "far.p50"
min = "80ms"
max = "95ms"
[[expect]]
metric = "up.drops.loss"
min = 1
[[expect]]
metric = "up2.packets"
min = 100
"#,
    );
}

#[test]
fn a_live_router_has_the_rules_of_the_scenario() {
    run_text_until_undisturbed(
        r#"
duration = "5s"
rules = """
pipe 1 config bw 4Mbit/s delay 10ms
sched 1 config pipe 1 type wf2q+
queue 100 config sched 1 weight 69
queue 200 config sched 1 weight 30
queue 300 config sched 1 weight 1
add 1000 queue 100 udp from 10.0.23.2 to any dscp ef out xmit h3
add 1001 queue 200 udp from 10.0.23.2 to any out xmit h3
add 1002 queue 300 icmp from 10.0.23.2 to any out xmit h3
add 2000 allow ip from any to any
"""
[[flow]]
type = "udp"
name = "heavy"
rate = "4Mbit/s"
dscp = "ef"
[[flow]]
type = "udp"
name = "light"
rate = "4Mbit/s"
[[flow]]
type = "ping"
interval = "50ms"
# 69 and 30 of 99 parts of 4 Mbit/s, of which 1200 of 1228 bytes are payload: 2.72 and 1.18 Mbit/s.
[[expect]]
metric = "heavy.goodput"
min = "2.5Mbit/s"
max = "2.8Mbit/s"
[[expect]]
metric = "light.goodput"
min = "1.05Mbit/s"
max = "1.35Mbit/s"
# As simulated: 10 ms, 16.8 ms of its weight, 2.5 ms of a packet in transmission, and the machine.
[[expect]]
metric = "ping.p50"
min = "10ms"
max = "40ms"
"#,
    );
}

/// An expectation as in a scenario: a figure, optionally a variant, and the bounds.
fn expect(metric: &str, variant: &str, bounds: &str) -> String {
    let of_it = match variant {
        "" => String::new(),
        name => format!("variant = \"{name}\"\n"),
    };
    format!("[[expect]]\nmetric = \"{metric}\"\n{of_it}{bounds}\n")
}

/// 55 segments over 100 ms: handshake, then flights of 3, 6, 12, 24 and 10 segments, or of 30 and
/// 25. One flight more would add 100 ms.
#[test]
fn live_flows_begin_with_their_initial_window() {
    let flow = |name: &str, window: u32| {
        format!(
            "[[flow]]\ntype = \"tcp\"\nname = \"{name}\"\ncc = \"reno\"\ninitial_window = {window}\n\
             bytes = \"79640B\"\n"
        )
    };
    let text = [
        "duration = \"3s\"\n[link]\nrate = \"100Mbit/s\"\nrtt = \"100ms\"\n".to_owned(),
        flow("three", 3),
        flow("thirty", 30),
        expect("three.fct", "", "min = \"550ms\"\nmax = \"640ms\""),
        expect("thirty.fct", "", "min = \"250ms\"\nmax = \"340ms\""),
    ];
    run_text_until_undisturbed(&text.concat());
}

/// Settings that only the simulator has are refused by name.
#[test]
fn settings_of_the_simulators_tcp_are_refused() {
    let temp = tempfile::tempdir().expect("a folder");
    let file = temp.path().join("s.toml");
    for (key, expected) in [
        (
            "cc = \"ledbat\"",
            "the kernel has no congestion control \"ledbat\"",
        ),
        (
            "growth = \"bytes\"",
            "`growth = \"bytes\"` of flow `tcp` (the kernel's CUBIC grows by whole segments) is not possible",
        ),
        (
            "abe = true",
            "`abe = true` of flow `tcp` (the kernel treats a mark as a loss) is not possible",
        ),
    ] {
        let text = format!(
            "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"tcp\"\n{key}\n"
        );
        fs::write(&file, text).expect("writable");
        let output = sluice()
            .args(["run", "--backend", "live", "--check"])
            .arg(&file)
            .output()
            .expect("the binary starts");
        assert!(!output.status.success());
        let told = stderr(&output);
        assert!(told.contains(expected), "{told}");
        // The key is in the sixth line.
        assert!(told.contains("s.toml:6:"), "{told}");
        assert!(
            told.contains("the simulator (`--backend sim`) has it"),
            "{told}"
        );
    }
}

/// Traffic of a capture: packets that the simulator exported, sent live.
#[test]
fn a_capture_is_replayed_on_live_packets() {
    let temp = tempfile::tempdir().expect("a folder");
    let path = |name: &str| temp.path().join(name);
    let first = "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[measure]\nwarmup = \"0s\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nsize = 972\nect = true\nstop = \"1s\"\n";
    fs::write(path("first.toml"), first).expect("writable");
    let done = |output: Output| assert!(output.status.success(), "{}", stderr(&output));
    let run = sluice()
        .arg("run")
        .arg(path("first.toml"))
        .arg("-q")
        .arg("-o")
        .arg(path("a"))
        .output();
    done(run.expect("the binary starts"));
    let export = sluice()
        .arg("export")
        .arg(path("a/fifo"))
        .arg("--pcapng")
        .arg(path("cap"))
        .output();
    done(export.expect("the binary starts"));
    let captures: Vec<PathBuf> = fs::read_dir(path("cap"))
        .expect("captures")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let at_h2 = captures.iter().find(|p| p.to_string_lossy().contains("h2"));
    let at_h2 = at_h2.unwrap_or_else(|| panic!("{captures:?}"));
    // 1 Mbit/s in packets of 1000 bytes: 125 in the first second, of 972 bytes of payload.
    let second = format!(
        "duration = \"3s\"\n[link]\nrate = \"800kbit/s\"\nrtt = \"20ms\"\nqueue = \"codel ecn ce_threshold 1us\"\n\
         [measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"pcap\"\nname = \"old\"\nfile = \"{}\"\nstop = \"2s\"\n",
        at_h2.display()
    );
    let (summary, _) = run_text(&second);
    let up = &summary["pipes"][0];
    assert_eq!(up["packets"], 125, "{summary}");
    assert_eq!(summary["flows"][0]["name"], "old", "{summary}");
    assert_eq!(summary["flows"][0]["bytes"], 125 * 972, "{summary}");
    assert_eq!(summary["flows"][0]["loss"], 0.0, "{summary}");
    // The packets arrive faster than the link carries them, so all but the first are queued, and
    // they are marked because they are ECN-capable.
    assert!(up["marks"].as_u64() >= Some(120), "{summary}");
}
