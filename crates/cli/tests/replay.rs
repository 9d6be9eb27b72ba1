//! `sluice replay` from the outside: the example of its page, stored traces with explained results,
//! the files that it writes, and its messages about wrong input.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sluice_core::registry;

fn sluice(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .args(args)
        .output()
        .expect("the command runs")
}

/// Splits the words of a command line, some of which are quoted.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (i, part) in line.split('"').enumerate() {
        if i % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

/// Returns the content of the fenced block that `head` opens.
fn block<'a>(page: &'a str, head: &str) -> &'a str {
    let fence = format!("```{head}\n");
    let start = page.find(&fence).expect("the page has the block") + fence.len();
    let end = page[start..].find("```").expect("the block ends");
    &page[start..start + end]
}

#[test]
fn the_example_of_the_page_prints_what_the_page_says() {
    let page = fs::read_to_string("../../docs/replay.md").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("burst.csv"),
        block(&page, "csv burst.csv"),
    )
    .unwrap();
    assert_eq!(follow(&page, folder.path()), 3);
}

/// Executes the page's commands and returns their number.
fn follow(page: &str, folder: &Path) -> usize {
    let mut seen = 0;
    for command in block(page, "console").split("$ ").skip(1) {
        let (line, expected) = command.split_once('\n').expect("a command is a line");
        let found = match words(line).as_slice() {
            ["cat", file] => fs::read_to_string(folder.join(file)).unwrap(),
            ["sluice", args @ ..] => {
                let output = sluice(folder, args);
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stdout).unwrap()
            }
            other => panic!("{other:?} is not understood"),
        };
        assert_eq!(found, expected, "{line}");
        seen += 1;
    }
    seen
}

#[test]
fn the_examples_of_the_algorithms_print_what_their_pages_say() {
    let pages = Path::new("../../docs/algorithms");
    let algorithms = registry::algorithms().filter(|a| !a.name.starts_with("fq_"));
    let mut seen = 0;
    for name in algorithms.map(|a| a.name).chain(["fq"]) {
        // A new algorithm works without a page.
        let Ok(page) = fs::read_to_string(pages.join(format!("{name}.md"))) else {
            continue;
        };
        assert!(page.contains("## Example"), "{name}.md has no example");
        seen += follow(&page, pages);
    }
    assert!(seen >= 21, "only {seen} examples");
}

/// The first line of each trace has the options of the replay. The other comments of the trace
/// explain the rows in the file beside it.
#[test]
fn stored_traces_give_the_rows_that_they_explain() {
    let folder = tempfile::tempdir().unwrap();
    let stored = fs::canonicalize("tests/replay").unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(&stored).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".csv").filter(|n| !n.ends_with(".rows")) else {
            continue;
        };
        let trace = stored.join(name).with_extension("csv");
        let text = fs::read_to_string(&trace).unwrap();
        let line = text.lines().next().unwrap().trim_start_matches("# ");
        let mut args = vec!["replay", trace.to_str().unwrap()];
        args.extend(words(line));
        args.extend(["--hash", "flow", "--out", "rows.csv"]);
        let output = sluice(folder.path(), &args);
        assert!(output.status.success(), "{name}: {output:?}");
        let found = fs::read_to_string(folder.path().join("rows.csv")).unwrap();
        let expected = fs::read_to_string(stored.join(format!("{name}.rows.csv"))).unwrap();
        assert_eq!(found, expected, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 4);
}

#[test]
fn an_interrupt_leaves_no_unfinished_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder.path())
        .args([
            "replay",
            "/dev/stdin",
            "--queue",
            "codel",
            "--rate",
            "1Gbit/s",
        ])
        .args(["--out", "rows.csv", "--state", "state.parquet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // A pipe holds 64 KiB: when half a megabyte has gone into it, most of it has been replayed.
    for _ in 0..50_000 {
        input.write_all(b"7,1,1000,0\n").unwrap();
    }
    let files = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files(), ["rows.csv.part", "state.parquet.part"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(files().is_empty(), "{:?}", files());
}

#[test]
fn wrong_input_is_refused_with_its_place_and_a_status() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("back.csv"), "5,1,1500,0\n4,1,1500,0\n").unwrap();
    fs::write(folder.path().join("good.csv"), "5,1,1500,0\n").unwrap();
    let rates = "time_ns,bits_per_second\n0,8000000\n9,8 Mbit\n";
    fs::write(folder.path().join("rates.csv"), rates).unwrap();
    fs::write(folder.path().join("draws.txt"), "0x7f\n-1\n").unwrap();
    fs::write(
        folder.path().join("few.txt"),
        "# one\n9223372036854775808\n",
    )
    .unwrap();
    fs::write(folder.path().join("many.csv"), "5,1,1500,0\n".repeat(10)).unwrap();
    let codel = ["--queue", "codel", "--rate", "1Mbit/s", "--out", "o.csv"];
    let with = |trace, more: &[&'static str]| [&["replay", trace], more].concat();
    for (args, code, said) in [
        (
            with("back.csv", &codel),
            1,
            "back.csv:2:1: time 4 follows 5",
        ),
        (with("none.csv", &codel), 1, "none.csv"),
        (
            with(
                "good.csv",
                &[&["--draws", "draws.txt"][..], &codel].concat(),
            ),
            2,
            "draws.txt:2:1: `-1` is not a number from 0",
        ),
        (
            with(
                "many.csv",
                &["--queue", "red min 1 max 3 wq 1", "--rate", "1Mbit/s"]
                    .into_iter()
                    .chain(["--draws", "few.txt", "--out", "o.csv"])
                    .collect::<Vec<_>>(),
            ),
            1,
            "`few.txt` has 1 numbers; at ",
        ),
        (
            with("good.csv", &["--queue", "coddel", "--rate", "1Mbit/s"]),
            2,
            "`codel`",
        ),
        (
            with("good.csv", &["--queue", "codel", "--rate", "rates.csv"]),
            2,
            "rates.csv:3:3",
        ),
        (
            with(
                "good.csv",
                &["--queue", "codel target 7", "--rate", "1Mbot/s"],
            ),
            2,
            "1Mbot/s",
        ),
    ] {
        let output = sluice(folder.path(), &args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
        assert!(!folder.path().join("o.csv").exists());
        assert!(!folder.path().join("o.csv.part").exists());
    }
}
