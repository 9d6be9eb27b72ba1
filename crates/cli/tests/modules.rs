//! Modules as queues in `list`, in `replay`, and in a scenario with `--set` and a matrix; and the
//! files that they leave.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use sluice_recording::Recording;

fn sluice(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .args(args)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a folder with `lab/codel.wasm`: `sdk/examples/codel.c`, compiled.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("lab");
    fs::create_dir(&lab).unwrap();
    fs::copy("../../fuzz/corpus/module/codel", lab.join("codel.wasm")).unwrap();
    folder
}

#[test]
fn a_module_is_listed_with_its_parameters() {
    let folder = folder();
    let output = sluice(folder.path(), &["list", "wasm:lab/codel.wasm"]);
    let text = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in [
        "controlled delay",
        "target 5ms",
        "a time from 1us to 100s",
        "limit 1000",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn a_replay_through_a_module_gives_the_rows_of_codel() {
    let folder = folder();
    // 20 Mbit/s of full packets into 10 Mbit/s.
    let mut trace = String::from("time_ns,flow,size_bytes,ecn\n");
    for i in 0..3000_u64 {
        trace += &format!("{},{},1500,{}\n", i * 600_000, i % 3, i % 2 * 2);
    }
    fs::write(folder.path().join("t.csv"), trace).unwrap();
    let rows = |queue: &str| {
        let args = [
            "replay", "t.csv", "--queue", queue, "--rate", "10Mbit/s", "--out", "o.csv",
        ];
        let output = sluice(folder.path(), &args);
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(folder.path().join("o.csv")).unwrap()
    };
    let ours = rows("codel ecn");
    assert!(ours.contains("congestion"), "CoDel drops");
    assert_eq!(ours, rows("wasm:lab/codel.wasm ecn"));
    assert_eq!(rows("fq_codel"), rows("fq_wasm:lab/codel.wasm"));
}

#[test]
fn a_router_finds_a_module_beside_its_configuration_from_any_folder() {
    let folder = folder();
    let lab = folder.path().join("lab").canonicalize().unwrap();
    let config = lab.join("r.conf");
    fs::write(&config, "pipe 1 config wasm:codel.wasm target 7ms\n").unwrap();
    let absolute = config.to_str().unwrap();
    for (place, config) in [
        (&*lab, "r.conf"),
        (folder.path(), "lab/r.conf"),
        (Path::new("/"), absolute),
    ] {
        let output = sluice(place, &["router", "--check", config]);
        assert!(output.status.success(), "{config}: {output:?}");
    }
    // The error names the place where the module would be.
    fs::rename(lab.join("codel.wasm"), folder.path().join("codel.wasm")).unwrap();
    let output = sluice(folder.path(), &["router", "--check", "lab/r.conf"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    assert!(
        error.contains(&format!(
            "`{}`: No such file",
            lab.join("codel.wasm").display()
        )),
        "{error}"
    );
}

#[test]
fn a_scenario_finds_its_module_beside_it_and_gives_the_tables_of_codel() {
    let folder = folder();
    let scenario = "duration = \"3s\"\n[link]\nrate = \"10Mbit/s\"\ndelay = \"20ms\"\n\
                    queue = \"codel\"\n[[flow]]\ntype = \"tcp\"\ncount = 2\n";
    fs::write(folder.path().join("lab/s.toml"), scenario).unwrap();
    let run = |queue: &str, out: &str| {
        let set = format!("link.queue={queue:?}");
        let args = [
            "run",
            "lab/s.toml",
            "--backend",
            "sim",
            "--set",
            &set,
            "-o",
            out,
        ];
        let output = sluice(folder.path(), &args);
        assert!(output.status.success(), "{output:?}");
    };
    run("codel", "ours");
    run("wasm:codel.wasm", "module");
    let tables = |out: &str| {
        let mut tables = Vec::new();
        let mut folders = vec![folder.path().join(out)];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "parquet") {
                    let name = path.file_name().unwrap().to_owned();
                    tables.push((name, fs::read(&path).unwrap()));
                }
            }
        }
        tables.sort();
        tables
    };
    let (ours, module) = (tables("ours"), tables("module"));
    assert!(ours.len() >= 3, "{} tables", ours.len());
    for (ours, module) in ours.iter().zip(&module) {
        assert!(ours == module, "{:?} and {:?} differ", ours.0, module.0);
    }
    // The recording is read without the module.
    fs::remove_file(folder.path().join("lab/codel.wasm")).unwrap();
    let output = sluice(folder.path(), &["report", "module"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn rules_of_a_scenario_find_their_module_beside_it() {
    let folder = folder();
    let lab = folder.path().join("lab");
    let rules = "pipe 1 config bw 10Mbit/s delay 10ms wasm:codel.wasm target 7ms\n\
                 add 100 pipe 1 ip from any to any out\nadd 200 allow ip from any to any\n";
    fs::create_dir(lab.join("rules")).unwrap();
    fs::write(lab.join("rules/r.conf"), rules).unwrap();
    let inline = format!("\"\"\"\n{rules}\"\"\"");
    for (value, out) in [
        (inline.as_str(), "inline"),
        ("{ file = \"rules/r.conf\" }", "file"),
    ] {
        let scenario = format!("duration = \"3s\"\nrules = {value}\n[[flow]]\ntype = \"ping\"\n");
        fs::write(lab.join("s.toml"), scenario).unwrap();
        let args = ["run", "lab/s.toml", "--backend", "sim", "-o", out];
        let output = sluice(folder.path(), &args);
        assert!(output.status.success(), "{output:?}");
    }
    // The recordings are read without the module.
    fs::remove_file(lab.join("codel.wasm")).unwrap();
    for out in ["inline", "file"] {
        let output = sluice(folder.path(), &["report", out]);
        assert!(output.status.success(), "{output:?}");
    }
    let output = sluice(folder.path(), &["run", "lab/s.toml", "--backend", "sim"]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("cannot load `wasm:codel.wasm`") && error.contains("lab/codel.wasm`"),
        "{error}"
    );
}

/// A module that fails when the fifth packet leaves its queue.
const FAILS: &str = r#"(module (@custom "sluice" "abi 1")
    (global $calls (mut i32) (i32.const 0))
    (func (export "create") (result i32) i32.const 0)
    (func (export "on_dequeue") (param i32 i64 i32 i32 i32 i64 i64 i64) (result i32)
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.eq (global.get $calls) (i32.const 5)) (then unreachable))
        i32.const 0))"#;

/// Returns what a simulation of a TCP flow over `path` with [`FAILS`] prints to standard error.
fn stopped(folder: &Path, path: &str, out: &str) -> String {
    let lab = folder.join("lab");
    fs::write(lab.join("fails.wasm"), wat::parse_str(FAILS).unwrap()).unwrap();
    let scenario = format!("duration = \"2s\"\n{path}[[flow]]\ntype = \"tcp\"\n");
    fs::write(lab.join("s.toml"), scenario).unwrap();
    let args = ["run", "lab/s.toml", "--backend", "sim", "-o", out];
    let output = sluice(folder, &args);
    assert!(!output.status.success(), "{output:?}");
    text(&output.stderr)
}

/// A link with [`FAILS`].
const LINK: &str = "[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"wasm:fails.wasm\"\n";

#[test]
fn a_replay_of_a_module_that_was_stopped_fails_and_says_so() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("fails.wasm"), wat::parse_str(FAILS).unwrap()).unwrap();
    let mut trace = String::from("time_ns,flow,size_bytes,ecn\n");
    for i in 0..20_u64 {
        trace += &format!("{},1,1500,0\n", i * 600_000);
    }
    fs::write(at("t.csv"), trace).unwrap();
    let replay = [
        "replay",
        "t.csv",
        "--queue",
        "wasm:fails.wasm",
        "--rate",
        "10Mbit/s",
    ];
    let output = sluice(
        folder.path(),
        &[&replay[..], &["--json", "--report", "r"]].concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = text(&output.stderr);
    assert!(
        error.contains("the figures are not those of the queue"),
        "{error}"
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = summary["stopped"][0].as_str().expect("a reason");
    assert!(
        why.starts_with("`fails.wasm` is stopped: `on_dequeue` of "),
        "{why}"
    );
    let recording = Recording::open(&at("r")).unwrap();
    assert_eq!(recording.run().stopped, [why]);
}

#[test]
fn the_error_of_a_module_names_its_pipe() {
    let folder = folder();
    let rules = "rules = \"\"\"\npipe 7 config bw 10Mbit/s delay 10ms wasm:fails.wasm\n\
                 add 100 pipe 7 ip from any to any out\nadd 200 allow ip from any to any\n\"\"\"\n";
    for (path, out, pipes) in [
        (LINK, "link", &["up", "down"][..]),
        (rules, "rules", &["pipe 7"][..]),
    ] {
        let error = stopped(folder.path(), path, out);
        for pipe in pipes {
            let place = format!(" ns, queue 0 of `{pipe}`, and its queues pass every packet");
            assert!(error.contains(&place), "{pipe}: {error}");
        }
    }
}

#[test]
fn the_error_of_a_module_has_the_packet_as_it_is_in_the_table() {
    let folder = folder();
    let error = stopped(folder.path(), LINK, "out");
    let recording = Recording::open(&folder.path().join("out/wasm-fails.wasm")).unwrap();
    let rows = recording.packets().unwrap().map(Result::unwrap);
    let up = rows.filter(|row| row.pipe.word() == "up");
    // The rows are in the order of arrival, in which packets leave a queue with an AQM.
    let fifth = up.map(|row| row.record).nth(4).expect("it leaves");
    let number = fifth.packet.expect("a simulation numbers packets");
    let (len, arrival, at) = (fifth.len, fifth.arrival.as_ns(), fifth.at.as_ns());
    let packet = format!("packet {number} ({len} bytes, arrived at {arrival} ns)");
    let expected = format!("`on_dequeue` of {packet} at {at} ns, queue 0 of `up`");
    assert!(error.contains(&expected), "{expected}: {error}");
}

#[test]
fn what_is_wrong_is_shown_at_its_place() {
    let folder = folder();
    let args = |queue| ["replay", "t.csv", "--rate", "1Mbit/s", "--queue", queue];
    let error = |queue| text(&sluice(folder.path(), &args(queue)).stderr);
    let unknown = error("wasm:lab/codel.wasm tarqet 7ms");
    assert!(
        unknown.contains("`wasm:lab/codel.wasm` has no parameter `tarqet`; did you mean `target`?"),
        "{unknown}"
    );
    assert!(unknown.contains("^^^^^^"), "{unknown}");
    let scheme = error("wasn:codel.wasm");
    assert!(
        scheme.contains("no loader is called `wasn:`; write `wasm:FILE`"),
        "{scheme}"
    );
    let python = error("py:codel.py:Codel");
    assert!(
        python.contains("cannot load `py:codel.py:Codel`: `codel.py`: No such file"),
        "{python}"
    );
    let hostile = error("wasm:a\u{1b}]0;title\u{7}");
    assert!(
        hostile.contains("wasm:a\\u{1b}]0;title\\u{7}") && !hostile.contains('\u{1b}'),
        "{hostile}"
    );
    let missing = error("wasm:codel.wasm");
    assert!(
        missing.contains("cannot load `wasm:codel.wasm`: `codel.wasm`"),
        "{missing}"
    );
    let scenario = "duration = \"1s\"\n[link]\nrate = \"10Mbit/s\"\nqueue = \"wasm:gone.wasm\"\n\
                    [[flow]]\ntype = \"tcp\"\n";
    fs::write(folder.path().join("lab/s.toml"), scenario).unwrap();
    let output = sluice(folder.path(), &["run", "lab/s.toml", "--backend", "sim"]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("cannot load `wasm:gone.wasm`") && error.contains("s.toml:4"),
        "{error}"
    );
}

/// Writes a replacement for the interpreter, which has the package or not, and prints its
/// arguments.
fn interpreter(folder: &Path, has_package: bool) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("python");
    let found = if has_package { 0 } else { 1 };
    let text = format!("#!/bin/sh\n[ \"$2\" = -c ] && exit {found}\necho \"$@\"\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_run_with_a_module_is_not_reused() {
    let folder = folder();
    let scenario = "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\n[[flow]]\ntype = \"tcp\"\n";
    fs::write(folder.path().join("lab/s.toml"), scenario).unwrap();
    let is_reused = |queue: &str| {
        let set = format!("link.queue={queue:?}");
        let output = sluice(
            folder.path(),
            &["run", "lab/s.toml", "--set", &set, "-o", "out"],
        );
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).contains("1 of 1 run reused")
    };
    assert!(!is_reused("codel"));
    assert!(is_reused("codel"));
    assert!(!is_reused("fq_wasm:codel.wasm"));
    // A custom section named "a": the module is another one.
    let module = folder.path().join("lab/codel.wasm");
    let mut bytes = fs::read(&module).unwrap();
    bytes.extend([0, 2, 1, b'a']);
    fs::write(&module, bytes).unwrap();
    assert!(!is_reused("fq_wasm:codel.wasm"));
}

#[test]
fn runs_of_an_earlier_version_of_a_module_are_left_out() {
    let folder = folder();
    let scenario = "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\nqueue = \"wasm:codel.wasm\"\n\
                    [[flow]]\ntype = \"tcp\"\n";
    fs::write(folder.path().join("lab/s.toml"), scenario).unwrap();
    let run = |repeat: &str| {
        let args = ["run", "lab/s.toml", "--repeat", repeat, "-o", "out", "-q"];
        let output = sluice(folder.path(), &args);
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let module = folder.path().join("lab/codel.wasm");
    // The fingerprint is that of the file, as `sha256sum` prints it.
    let check_fingerprint = || {
        let run = fs::read(folder.path().join("out/wasm-codel.wasm/run.json")).unwrap();
        let run: serde_json::Value = serde_json::from_slice(&run).unwrap();
        let expected = sluice_recording::Checksum::of_file(&module).unwrap().sha256;
        assert_eq!(run["algorithms"]["wasm:codel.wasm"], expected);
    };
    run("2");
    check_fingerprint();
    let said = run("1");
    assert!(!said.contains("earlier version"), "the same module: {said}");
    // A custom section named "a": the module is another one.
    let mut bytes = fs::read(&module).unwrap();
    bytes.extend([0, 2, 1, b'a']);
    fs::write(&module, bytes).unwrap();
    let said = run("1");
    let expected =
        "`out` has runs of an earlier version of the scenario, the program or its algorithms";
    assert!(said.contains(expected), "{said}");
    assert!(
        said.contains("leave out: `wasm-codel.wasm.seed-2`;"),
        "{said}"
    );
    check_fingerprint();
}

#[test]
fn a_queue_in_python_is_carried_out_by_the_package() {
    let folder = folder();
    fs::write(folder.path().join("a.py"), "").unwrap();
    let scenario = "duration = \"3s\"\n[link]\nrate = \"10Mbit/s\"\nqueue = \"fq_py:a.py:A x 3\"\n\
                    [[flow]]\ntype = \"tcp\"\n";
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    fs::write(
        folder.path().join("r.conf"),
        "pipe 1 config bw 1Mbit/s py:a.py\n",
    )
    .unwrap();
    let python = interpreter(folder.path(), true);
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .current_dir(folder.path())
            .env("SLUICE_PYTHON", &python)
            .args(args)
            .output()
            .unwrap()
    };
    for args in [
        &["run", "s.toml", "-q"][..],
        &["list", "py:a.py:A"],
        &["check", "a.py:A"],
        &["router", "--check", "r.conf"],
        &["router", "left", "right", "--config", "r.conf"],
        &["replay", "t.csv", "--queue", "py:a.py", "--rate", "1Mbit/s"],
        &["exec", "--queue", "py:a.py", "--", "true"],
    ] {
        let output = run(args);
        assert_eq!(
            text(&output.stdout),
            format!("-P -m sluice {}\n", args.join(" ")),
            "{output:?}"
        );
    }
    interpreter(folder.path(), false);
    let output = run(&["run", "s.toml"]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("has no package `sluice`: run `pip install .`"),
        "{error}"
    );
    assert!(error.contains("s.toml:4"), "{error}");
    // A recording is read without Python.
    let output = run(&["report", "s.toml"]);
    assert!(!text(&output.stdout).contains("-m sluice"), "{output:?}");
}
