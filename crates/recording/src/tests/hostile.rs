//! Recordings of others: files that lead out of their folder, have no end, or take all memory.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::files::MOST_TEXT;

/// Records a run with a program that has printed `printed` and nothing to its standard error.
fn with_program(dir: &Path, printed: &str) -> Recording {
    let mut writer = begin(dir);
    let program = ProgramRecord {
        flow: 0,
        name: "tool",
        command: "tool",
        started: Time::ZERO,
        ended: Time::ZERO,
        end: "ended with status 0".into(),
        output: printed.as_bytes(),
        errors: b"",
        figures: BTreeMap::new(),
    };
    writer.program(&program).unwrap();
    writer.finish(End::complete(Time::ZERO)).unwrap()
}

#[test]
fn the_output_of_a_program_is_copied() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let recording = with_program(&path("run"), "figures");
    let copy = recording.save(&path("copy")).unwrap();
    let program = &copy.run().programs[0];
    assert_eq!(program.output.as_deref(), Some("programs/tool.out"));
    assert_eq!(program.errors, None);
    let copied = fs::read_to_string(path("copy/programs/tool.out")).unwrap();
    assert_eq!(copied, "figures");
}

#[test]
fn the_output_of_a_program_is_in_its_folder() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    with_program(&path("run"), "figures");
    let text = fs::read_to_string(path("run/run.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    let precious = path("precious.out");
    fs::write(&precious, "precious").unwrap();
    let outside = [
        precious.to_str().unwrap(),
        "../precious.out",
        "programs/../../precious.out",
        "programs//tool.out",
        "programs/tool.html",
        "programs/.out",
        "programs/..",
        "programstool.out",
        "run.json",
        "",
    ];
    for file in outside {
        for key in ["output", "errors"] {
            let mut run = written.clone();
            run["programs"][0][key] = file.into();
            fs::write(path("run/run.json"), run.to_string()).unwrap();
            // Where the name is accepted, a copy writes the file, or empties it.
            let opened = Recording::open(&path("run"));
            let saved = opened.map(|run| run.save(&path("copy")).is_ok());
            let error = saved.expect_err(file).to_string();
            assert!(error.contains(&format!("not in `{file}`")), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn the_output_of_a_program_is_not_read_through_a_link() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let recording = with_program(&path("run"), "figures");
    fs::create_dir(path("private")).unwrap();
    fs::write(path("private/tool.out"), "a secret").unwrap();
    let is_refused = |copy: &str| {
        let error = recording.save(&path(copy)).unwrap_err().to_string();
        let start = format!(
            "cannot open `{}`: ",
            path("run/programs/tool.out").display()
        );
        assert!(error.starts_with(&start), "{error}");
        assert!(!path(copy).join("programs/tool.out").exists());
    };
    fs::remove_file(path("run/programs/tool.out")).unwrap();
    symlink(path("private/tool.out"), path("run/programs/tool.out")).unwrap();
    is_refused("of a link");
    fs::remove_dir_all(path("run/programs")).unwrap();
    symlink(path("private"), path("run/programs")).unwrap();
    is_refused("of a linked folder");
}

#[test]
fn a_run_replaces_links_in_its_folder() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    with_program(&path("run"), "figures");
    fs::create_dir(path("private")).unwrap();
    let precious = path("private/precious.out");
    fs::write(&precious, "precious").unwrap();
    fs::remove_dir_all(path("run/programs")).unwrap();
    symlink(path("private"), path("run/programs")).unwrap();
    for name in [
        ".probe",
        "summary.json",
        "run.json.part",
        "pings.parquet.part",
    ] {
        symlink(&precious, path("run").join(name)).unwrap();
    }
    let recording = with_program(&path("run"), "others");
    recording.check_all().unwrap();
    let printed = fs::read_to_string(path("run/programs/tool.out")).unwrap();
    assert_eq!(printed, "others");
    let left: Vec<_> = fs::read_dir(path("private")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

/// Reads a file of the recording in a folder.
type Reader = fn(&Path) -> Result<(), ReadError>;

#[test]
fn only_regular_files_of_a_recording_are_read() {
    let readers: [(&str, Reader); 5] = [
        ("run.json", |dir: &Path| Recording::open(dir).map(|_| ())),
        ("summary.json", |dir: &Path| {
            Recording::open(dir)?.stored_summary().map(|_| ())
        }),
        ("pings.parquet", |dir: &Path| {
            Recording::open(dir)?.parquet("pings").map(|_| ())
        }),
        ("pings.parquet", |dir: &Path| {
            Recording::open(dir)?.pings().map(|_| ())
        }),
        ("pings.parquet", |dir: &Path| {
            Recording::open(dir)?.check_all()
        }),
    ];
    for (name, read) in readers {
        let temp = tempfile::tempdir().unwrap();
        begin(temp.path())
            .finish(End::complete(Time::ZERO))
            .unwrap();
        let path = temp.path().join(name);
        let is_refused = |why: &str| {
            let error = read(temp.path()).unwrap_err().to_string();
            assert_eq!(error, format!("cannot open `{}`: {why}", path.display()));
            fs::remove_file(&path).unwrap();
        };
        // A stored summary is not part of every recording.
        let _ = fs::remove_file(&path);
        // It has no end.
        symlink("/dev/zero", &path).unwrap();
        is_refused("it is a symbolic link, which is not followed");
        // Nobody writes to it.
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        is_refused("it is not a regular file");
    }
}

#[test]
fn a_text_beyond_the_limit_is_not_read() {
    let temp = tempfile::tempdir().unwrap();
    let recording = begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap();
    // A file of holes takes no space.
    let path = temp.path().join("summary.json");
    fs::File::create(&path)
        .unwrap()
        .set_len(MOST_TEXT + 1)
        .unwrap();
    let error = recording.stored_summary().unwrap_err().to_string();
    // 2^30 + 1.
    let why = "it has 1073741825 bytes, and at most 1073741824 are read";
    assert_eq!(error, format!("cannot open `{}`: {why}", path.display()));
}

#[test]
fn a_run_ends_before_its_figures_take_all_memory() {
    let temp = tempfile::tempdir().unwrap();
    begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap();
    let path = temp.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut run: serde_json::Value = serde_json::from_str(&text).unwrap();
    // It may have been stopped long before its planned end.
    run["scenario"]["duration"] = "87600h".into();
    let mut open = |end_ns: u64| {
        run["end_ns"] = end_ns.into();
        fs::write(&path, run.to_string()).unwrap();
        Recording::open(temp.path())
    };
    assert!(open(15_000_000_000).is_ok());
    let error = open(u64::MAX).unwrap_err().to_string();
    assert!(
        error.contains("`end_ns` is 18446744073709551615, "),
        "{error}"
    );
    // It may end a day late: 87 600 h and 24 h.
    let error = open(315_446_400_000_000_001).unwrap_err().to_string();
    assert!(
        error.contains("ends at 315446400000000000 at the latest"),
        "{error}"
    );
    // 3650 days have 1 261 440 000 windows, one each 250 ms, with two bulk flows: six values each.
    let error = open(315_360_000_000_000_000).unwrap_err().to_string();
    assert!(error.contains("windows are 7568640000 values"), "{error}");
}

#[test]
fn a_table_of_more_than_fits_into_memory_is_named() {
    let temp = tempfile::tempdir().unwrap();
    begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap();
    // 8192 rows of 65 535 packets are 536 862 720, and 2^29 are 536 870 912.
    let row = |seq| PacketRow {
        pipe: Direction::Up.into(),
        record: PacketRecord {
            segments: u16::MAX,
            ..packet(seq, Fate::Sent)
        },
    };
    let path = temp.path().join("packets.parquet");
    let opened = |rows: u64| {
        write_table(temp.path(), (0..rows).map(row));
        let recording = Recording::open(temp.path()).unwrap();
        recording.without_checksums().packets().unwrap()
    };
    assert_eq!(opened(3).at_most(3).map(Iterator::count).unwrap(), 3);
    let error = opened(3).at_most(2).err().expect("three are more than two");
    let start = format!("`{}` has more than 2 rows, which", path.display());
    assert!(error.to_string().starts_with(&start), "{error}");

    let mut passed = 0;
    opened(8192).for_each_passage(|_| passed += 1).unwrap();
    assert_eq!(passed, 8192);
    let more = opened(8193).for_each_passage(|_| passed += 1);
    let error = more.unwrap_err().to_string();
    assert_eq!(passed, 2 * 8192);
    let start = format!("`{}` has more than 536870912 packets", path.display());
    assert!(error.starts_with(&start), "{error}");
}
