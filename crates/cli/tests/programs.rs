//! Programs as traffic: `[[flow]] type = "command"`, in namespaces that the tests create.
//!
//! These tests need root or unprivileged user namespaces, iperf3 and ping (`scripts/setup.sh
//! programs`), and run one at a time (`make test-live`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn sluice(out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["run", "--quiet", "-o"]).arg(out);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run_json(dir: &Path) -> Value {
    let text = fs::read_to_string(dir.join("run.json")).expect("a recording");
    serde_json::from_str(&text).expect("JSON")
}

/// Writes a scenario with these flows, which starts at line 5.
fn scenario(folder: &Path, flows: &str) -> PathBuf {
    let path = folder.join("s.toml");
    let head = "duration = \"3s\"\nbackend = \"live\"\n[link]\nrate = \"10Mbit/s\"\n";
    fs::write(&path, format!("{head}{flows}\n")).expect("writable");
    path
}

/// The scenario and Sluice are the same, but the program is not.
#[test]
fn a_run_with_a_program_is_not_reused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = scenario(
        folder.path(),
        "[[flow]]\nname = \"app\"\ntype = \"command\"\nrun = \"sh app.sh\"\n\
         figures = { errors = \"/errors\" }\n[[expect]]\nmetric = \"app.errors\"\nmax = 0",
    );
    let run_with = |errors: u32| {
        let app = format!("echo '{{\"errors\": {errors}}}'\n");
        fs::write(folder.path().join("app.sh"), app).expect("writable");
        let mut command = sluice(&folder.path().join("out"));
        let output = command.current_dir(folder.path()).arg(&path).output();
        output.expect("the binary starts")
    };
    let first = run_with(0);
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let second = run_with(7);
    assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
}

/// Runs a scenario with these flows, which must fail. Returns the messages and `run.json`.
fn failed(flows: &str) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let path = scenario(folder.path(), flows);
    let output = sluice(&out).arg(&path).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let place = format!("{}:", path.display());
    (
        stderr(&output).replace(&place, "s.toml:"),
        run_json(&run_of(&out)),
    )
}

/// The folder of the only run.
fn run_of(out: &Path) -> PathBuf {
    let mut runs = fs::read_dir(out).expect("runs").flatten();
    let run = runs.find(|entry| entry.path().join("run.json").exists());
    run.expect("a run").path()
}

/// Returns whether a process has this word as an argument.
fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|own| own == word.as_bytes())
        })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "not in time: {what}"
        );
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_tools_of_the_scenarios_report_what_the_link_does() {
    for name in ["iperf3", "ping"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../scenarios/programs")
            .join(name)
            .with_extension("toml");
        // Another virtual machine may have used the processor for half a second.
        let met = (0..3).any(|_| {
            let output = sluice(folder.path()).arg(&path).output().expect("runs");
            eprintln!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                stderr(&output)
            );
            output.status.success()
        });
        assert!(met, "{name}");
        let run = run_json(&run_of(folder.path()));
        for program in run["programs"].as_array().expect("programs") {
            let dir = run_of(folder.path());
            let file = program["output"].as_str().expect("a file");
            let kept = fs::read_to_string(dir.join(file)).expect("kept");
            assert!(!kept.is_empty(), "{program}");
        }
    }
}

#[test]
fn packets_of_a_program_are_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let ping = |name: &str, count: u32| {
        format!(
            "[[flow]]\ntype = \"command\"\nname = \"{name}\"\nrun = \"ping -i 0.1 -c {count} {{peer}}\"\n\
             figures = {{ received = {{ match = '([0-9]+) received' }} }}\n"
        )
    };
    let link = "queue = \"fifo\"\nloss = \"20%\"\n[measure]\nwarmup = \"0s\"\n";
    let flows = format!("{link}{}{}", ping("few", 5), ping("many", 20));
    let path = scenario(folder.path(), &flows);
    let out = folder.path().join("out");
    // 20 pings take 2 s, and more if the machine is busy.
    let command = &mut sluice(&out);
    let output = command.args(["--set", "duration=10s"]).arg(path).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(run_of(&out).join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    for (name, sent) in [("few", 5), ("many", 20)] {
        let flows = summary["flows"].as_array().expect("flows");
        let flow = flows
            .iter()
            .find(|flow| flow["name"] == name)
            .expect("the flow");
        let lost_up = flow["drops"].as_u64().expect("a number");
        let received = flow["reported"]["received"]["value"]
            .as_f64()
            .expect("a number");
        // A request that is lost on the path up has no answer. Answers may be lost, too.
        assert!(received as u64 <= sent - lost_up, "{flow}");
        let passed = flow["sojourn"]["count"].as_u64().unwrap_or(0);
        assert_eq!(passed + lost_up, sent, "{flow}");
    }
}

#[test]
fn a_program_that_fails_ends_the_run_and_leaves_its_output() {
    let (text, run) = failed(
        "[[flow]]\ntype = \"command\"\nname = \"tool\"\nrun = \"sh -c 'echo here; echo the reason >&2; exit 3'\"",
    );
    let expected = "s.toml:8:7: flow `tool`: `sh -c 'echo here; echo the reason >&2; exit 3'` exited \
                    with status 3: the reason";
    assert!(text.contains(expected), "{text}");
    assert_eq!(run["status"], "partial", "{run}");
    assert!(
        run["reason"]
            .as_str()
            .expect("a reason")
            .contains("status 3"),
        "{run}"
    );
    assert_eq!(run["programs"][0]["end"], "exited with status 3", "{run}");
    assert_eq!(run["programs"][0]["errors"], "programs/tool.err", "{run}");
    let (text, run) =
        failed("[[flow]]\ntype = \"command\"\nname = \"tool\"\nrun = \"sh -c 'kill -SEGV $$'\"");
    assert!(text.contains("was ended by signal 11"), "{text}");
    assert_eq!(run["status"], "partial", "{run}");
}

#[test]
fn a_missing_figure_makes_the_run_partial() {
    let flow = |run: &str| {
        format!(
            "[[flow]]\ntype = \"command\"\nname = \"tool\"\nrun = \"{run}\"\nfigures = {{ rate = \"/end/rate\" }}"
        )
    };
    let (text, run) = failed(&flow("echo hello"));
    let expected = "s.toml:8:7: flow `tool`: `echo hello` reports no figure `rate`: the output is not \
                    JSON: expected value at line 1 column 1";
    assert!(text.contains(expected), "{text}");
    assert_eq!(run["status"], "partial", "{run}");
    assert_eq!(run["programs"][0]["output"], "programs/tool.out", "{run}");
    let (text, _) = failed(&flow("echo '{\\\"end\\\": {\\\"sum\\\": 1}}'"));
    assert!(
        text.contains("the output has no `/end/rate`; `/end` has sum"),
        "{text}"
    );
    let (text, _) = failed(&flow("sleep 60"));
    let expected = "`sleep 60` reports no figure `rate`: the output is empty; it still ran when its \
                    time was over";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn what_cannot_start_is_reported_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let refused = |flows: &str, more: &[&str]| {
        let path = scenario(folder.path(), flows);
        let output = sluice(&out).args(more).arg(&path).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output).replace(&format!("{}:", path.display()), "s.toml:")
    };
    let command = |keys: &str| format!("[[flow]]\ntype = \"command\"\nname = \"tool\"\n{keys}");
    assert_eq!(
        refused(&command("run = \"no-such-tool -x\""), &[]),
        "sluice: s.toml:8:7: flow `tool`: there is no program `no-such-tool` in PATH; install it, or \
         give its path\n"
    );
    assert_eq!(
        refused(&command("run = \"true\""), &["--backend", "sim"]),
        "sluice: s.toml:8:7: flow `tool` runs a program, which needs real packets: use `--backend \
         live`, or write `backend = \"live\"` at the top of the scenario\n"
    );
    assert!(!out.exists(), "nothing is recorded");
    let text = refused(
        &command("run = \"sh -c 'echo port taken >&2; exit 1'\"\nready = 80"),
        &[],
    );
    let expected = "s.toml:8:7: flow `tool`: `sh -c 'echo port taken >&2; exit 1'` exited with status 1: \
                    port taken, before it listened on port 80";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn programs_and_their_children_end_with_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    // Words that no other process has. A child in its own session outlives its parent.
    let ended = "[[flow]]\ntype = \"command\"\nname = \"tool\"\nrun = \"sh -c 'setsid sleep 7.654321 & sleep 7.654322'\"";
    let path = scenario(folder.path(), ended);
    let output = sluice(&out).arg(&path).output().expect("runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let run = run_json(&run_of(&out));
    assert_eq!(
        run["programs"][0]["end"], "was stopped at the end of its time",
        "{run}"
    );
    assert!(!is_running("7.654321") && !is_running("7.654322"));

    // The same after `kill -9`.
    let killed = ended.replace("7.65", "9.87");
    let path = scenario(folder.path(), &killed);
    let mut child = sluice(&folder.path().join("killed"))
        .args(["--set", "duration=60s"])
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    wait_until("both run", || {
        is_running("9.874321") && is_running("9.874322")
    });
    kill_process(Pid::from_child(&child), Signal::KILL).expect("it runs");
    child.wait().expect("it ends");
    wait_until("both end", || {
        !is_running("9.874321") && !is_running("9.874322")
    });
}

#[test]
fn a_run_ends_when_only_services_are_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let flows = "[[flow]]\ntype = \"command\"\nname = \"server\"\nrun = \"python3 -m http.server 8000\"\nhost = \"h3\"\nready = 8000\n\
                 [[flow]]\ntype = \"command\"\nname = \"client\"\nrun = \"python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).status)' http://{peer}:8000/\"\n\
                 figures = { status = { match = '^([0-9]+)' } }\n\
                 [[expect]]\nmetric = \"client.status\"\nmin = 200\nmax = 200";
    let path = scenario(folder.path(), flows);
    let start = Instant::now();
    let output = sluice(&out)
        .args(["--set", "duration=60s"])
        .arg(&path)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        start.elapsed() < Duration::from_secs(40),
        "it waited for the server"
    );
}
