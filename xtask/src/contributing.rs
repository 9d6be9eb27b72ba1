//! Checks that the example of `CONTRIBUTING.md` works as printed.
//!
//! Copies the workspace and follows the tutorial, which builds the same AQM, in the copy; nothing
//! else is changed. Then the command line, a scenario, a replay, the generated reference and the
//! tests over the registry must all include the new AQM. The copy is built in the workspace's own
//! target folder, so that no library is built a second time; another version number keeps its
//! crates apart from the workspace's.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tutorials;

/// The name of the example's AQM.
const NAME: &str = "bound";

const SCENARIO: &str = r#"
title = "The example"
duration = "2s"
[link]
rate = "10Mbit/s"
rtt = "20ms"
[matrix]
"link.queue" = ["bound bound 20ms", "fq_bound"]
[[flow]]
type = "udp"
name = "flood"
rate = "12Mbit/s"
"#;

const TRACE: &str = "time_ns,flow,size_bytes,ecn\n0,1,1000,0\n0,1,1000,0\n0,1,1000,2\n";

/// Runs the whole check.
pub fn check() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = target_folder(&root)?;
    let copy = target.join("contributing");
    copy_workspace(&root, &copy)?;
    let page = read(&root.join("CONTRIBUTING.md"))?;
    let (file, line) = example(&page)?;
    rename_version(&copy.join("Cargo.toml"))?;
    // The tutorial builds the same AQM, step by step.
    let tutorial = root.join(tutorials::IN_A_COPY);
    let variables = [
        ("CARGO_TARGET_DIR", &*target),
        ("CARGO_NET_OFFLINE", Path::new("true")),
    ];
    tutorials::follow(&tutorial, &copy, &target.join("debug"), &variables)?;
    if read(&copy.join(format!("crates/core/src/aqm/{NAME}.rs")))? != file
        || !read(&copy.join("crates/core/src/aqm.rs"))?.contains(line)
    {
        return Err(format!(
            "{} and CONTRIBUTING.md do not have the same example",
            tutorials::IN_A_COPY
        ));
    }

    let cargo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(args).current_dir(&copy);
        command.env("CARGO_TARGET_DIR", &target);
        // Expected files are those of the copy. The copy is inside the workspace, whose files would
        // be used otherwise.
        command.env("CARGO_WORKSPACE_DIR", &copy);
        command
    };
    // The registry's own tests: conservation, determinism, no allocation, pages.
    let mut args = vec!["test", "--offline", "-q", "-p", "sluice-core"];
    for test in ["conformance", "sched_allocation", "algorithm_pages"] {
        args.extend(["--test", test]);
    }
    run(&mut cargo(&args))?;

    run(&mut cargo(&[
        "build",
        "--offline",
        "-q",
        "-p",
        "sluice-cli",
    ]))?;
    let sluice = target.join("debug/sluice");
    let says = |args: &[&OsStr], words: &[&str]| {
        let said = run(Command::new(&sluice).args(args).current_dir(&copy))?;
        match words.iter().find(|word| !said.contains(**word)) {
            Some(word) => Err(format!(
                "`sluice {args:?}` does not print `{word}`:\n{said}"
            )),
            None => Ok(()),
        }
    };
    let flow_queued = format!("fq_{NAME}");
    says(&["list".as_ref()], &[NAME, &flow_queued])?;
    for name in [NAME, &flow_queued] {
        let words = ["drops packets that waited too long", "50ms", "noecn"];
        let words = if name == NAME {
            &words[..]
        } else {
            &words[..2]
        };
        says(&["list".as_ref(), name.as_ref()], words)?;
    }

    // Three packets of 0.8 ms each at 10 Mbit/s: the third waits 1.6 ms, longer than the bound, and
    // can be marked.
    let (trace, rows) = (copy.join("trace.csv"), copy.join("rows.csv"));
    write(&trace, TRACE)?;
    let queue = "bound bound 1ms ecn";
    let mut args: Vec<&OsStr> = vec!["replay".as_ref(), trace.as_ref()];
    for word in ["--queue", queue, "--rate", "10Mbit/s", "--out"] {
        args.push(word.as_ref());
    }
    args.push(rows.as_ref());
    says(&args, &[])?;
    let rows = read(&rows)?;
    let verdicts: Vec<Option<&str>> = rows.lines().skip(1).map(|r| r.split(',').nth(4)).collect();
    if verdicts != [Some("sent"), Some("sent"), Some("marked")] {
        return Err(format!(
            "the replay's verdicts are not sent, sent, marked:\n{rows}"
        ));
    }

    let scenario = copy.join("example.toml");
    write(&scenario, SCENARIO)?;
    let mut args: Vec<&OsStr> = vec!["run".as_ref(), scenario.as_ref()];
    args.extend(["--quiet", "--backend", "sim", "-o", "runs/example"].map(OsStr::new));
    says(&args, &[NAME, &flow_queued])?;

    let mut reference = cargo(&[
        "test",
        "--offline",
        "-q",
        "-p",
        "sluice-cli",
        "--test",
        "reference",
    ]);
    run(reference.env("UPDATE_EXPECT", "1"))?;
    let parameters = read(&copy.join("docs/algorithms/parameters.md"))?;
    let heading = format!("\n## {NAME}\n");
    if !parameters.contains(&heading) {
        return Err(format!(
            "the generated reference does not describe `{NAME}`"
        ));
    }
    fs::remove_dir_all(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    Ok("the example is one file and one line, and is found everywhere".to_owned())
}

/// Returns the example's file and its registry line: the first two blocks of Rust on the page.
fn example(page: &str) -> Result<(&str, &str), String> {
    let mut blocks = page.split("\n```rust\n").skip(1);
    let mut block = || {
        let text = blocks.next()?;
        text.split_once("```\n").map(|(block, _)| block)
    };
    let (file, line) = (block(), block());
    file.zip(line)
        .ok_or("CONTRIBUTING.md has no example".to_string())
}

/// Gives the copy's crates a version of their own: cargo treats crates at the same path of two
/// workspaces as the same.
fn rename_version(path: &Path) -> Result<(), String> {
    let text = read(path)?;
    let (before, after) = text
        .split_once("[workspace.package]\nversion = \"")
        .ok_or("Cargo.toml gives no version to the workspace")?;
    let (version, after) = after.split_once('"').ok_or("the version does not end")?;
    let version = format!("[workspace.package]\nversion = \"{version}-example\"");
    write(path, &format!("{before}{version}{after}"))
}

/// Copies the files that git tracks or would add, and the web pages that the laboratory embeds. The
/// copy keeps the time stamps of the source, so that cargo builds only what changed since the last
/// time.
fn copy_workspace(root: &Path, copy: &Path) -> Result<(), String> {
    if copy.exists() {
        fs::remove_dir_all(copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "-co", "--exclude-standard"]);
    let files = run(list.current_dir(root))?;
    let pages = ["web/dist/report.html", "web/dist/index.html"];
    for file in files.lines().chain(pages) {
        let (from, to) = (root.join(file), copy.join(file));
        if from.is_file() {
            let folder = to.parent().expect("a file is in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::copy(&from, &to))
                .map_err(|error| format!("cannot copy {file}: {error}"))?;
            let modified = fs::metadata(&from).and_then(|m| m.modified());
            let set = |time| {
                fs::File::options()
                    .write(true)
                    .open(&to)?
                    .set_modified(time)
            };
            modified
                .and_then(set)
                .map_err(|error| format!("{file}: {error}"))?;
        }
    }
    Ok(())
}

pub fn target_folder(root: &Path) -> Result<PathBuf, String> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let json = run(metadata.current_dir(root))?;
    let json: serde_json::Value =
        serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    let folder = json["target_directory"].as_str();
    folder
        .map(PathBuf::from)
        .ok_or("cargo metadata names no target directory".to_string())
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    Err(format!("{command:?} failed:\n{said}{complained}"))
}

pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
