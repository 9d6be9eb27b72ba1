//! `sluice new`, `sluice check` and `sluice sweep`: files to start from, the picture of a check, and the
//! call of the Python package.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

fn sluice(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(words).current_dir(folder);
    command
}

fn output(command: &mut Command) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

/// Writes a replacement for Python, which answers the search for the package with `found` and
/// otherwise prints its arguments.
fn python(folder: &Path, found: i32) -> String {
    let path = folder.join("python");
    let text = format!("#!/bin/sh\n[ \"$2\" = -c ] && exit {found}\nprintf '<%s>' \"$@\"\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path.display().to_string()
}

#[test]
fn a_new_scenario_runs_and_meets_its_expectation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (is_well, said, _) = output(&mut sluice(folder, &["new", "scenario", "mine.toml"]));
    assert!(is_well);
    assert_eq!(said, "wrote mine.toml; run it with: sluice run mine.toml\n");
    let (is_well, _, complaint) = output(&mut sluice(folder, &["run", "mine.toml", "--quiet"]));
    assert!(is_well, "{complaint}");

    let written = fs::read_to_string(folder.join("mine.toml")).unwrap();
    fs::write(folder.join("mine.toml"), "changed").unwrap();
    let (is_well, _, complaint) = output(&mut sluice(folder, &["new", "scenario", "mine.toml"]));
    assert!(!is_well);
    assert_eq!(
        complaint,
        "sluice: `mine.toml` exists; choose another name\n"
    );
    assert_ne!(
        fs::read_to_string(folder.join("mine.toml")).unwrap(),
        written
    );
}

#[test]
fn a_new_aqm_hides_no_module_that_its_test_needs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, lang, owner) in [
        ("sluice", "py", "Sluice's own module"),
        ("sluice", "rust", "Sluice's own module"),
        ("queue", "py", "a module of Python"),
    ] {
        let words = ["new", "aqm", name, "--lang", lang];
        let (is_well, _, complaint) = output(&mut sluice(folder, &words));
        assert!(!is_well);
        assert_eq!(
            complaint,
            format!(
                "sluice: an AQM cannot have the name `{name}`, that of {owner}, which its file would \
                 hide; choose another name, such as `my_{name}`\n"
            )
        );
        assert!(!folder.join(name).exists());
    }
    // A module in C is not imported.
    let (is_well, _, complaint) =
        output(&mut sluice(folder, &["new", "aqm", "queue", "--lang", "c"]));
    assert!(is_well, "{complaint}");
}

#[test]
fn the_picture_of_a_check_follows_only_a_link_that_the_user_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (own, target) = (folder.join("check.png"), folder.join("target"));
    fs::write(&target, "of others").unwrap();
    symlink(&target, &own).unwrap();
    let (is_well, said, complaint) = output(&mut sluice(folder, &["check", "codel"]));
    assert!(is_well, "{complaint}");
    assert!(said.ends_with("  picture check.png\n"), "{said}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "of others");
    assert!(fs::symlink_metadata(&own).unwrap().is_file());

    let named = folder.join("named.svg");
    symlink(&target, &named).unwrap();
    let words = ["check", "codel", "--picture", "named.svg"];
    let (is_well, _, complaint) = output(&mut sluice(folder, &words));
    assert!(is_well, "{complaint}");
    assert!(fs::symlink_metadata(&named).unwrap().is_symlink());
    assert!(fs::read_to_string(&target).unwrap().starts_with("<svg"));
}

#[test]
fn a_sweep_is_passed_to_python_word_by_word() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = [
        "sweep",
        "--over",
        "link.rate=1..10Mbit/s:log:3",
        "--over=link.queue=fifo limit 10,codel",
        "--set",
        "duration=5s",
        "--seeds",
        "3",
        "-j",
        "2",
        "-o",
        "out",
        "-q",
        "--",
        "-weird name.toml",
    ];
    let mut command = sluice(folder, &words);
    let (is_well, said, complaint) = output(command.env("SLUICE_PYTHON", python(folder, 0)));
    assert!(is_well, "{complaint}");
    assert_eq!(
        said,
        "<-P><-m><sluice><sweep><--over=link.rate=1..10Mbit/s:log:3>\
         <--over=link.queue=fifo limit 10,codel><--set=duration=5s><--seeds=3><--jobs=2>\
         <--output=out><--quiet><--><-weird name.toml>"
    );
}

#[test]
fn a_file_in_the_current_folder_is_no_module_of_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let (here, packages) = (folder.path().join("here"), folder.path().join("packages"));
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(packages.join("sluice")).unwrap();
    for name in ["sluice.py", "queue.py"] {
        fs::write(here.join(name), "print('executed')\n").unwrap();
    }
    fs::write(packages.join("sluice/__init__.py"), "").unwrap();
    let main = "import queue\nqueue.Queue()\nprint('the package')\n";
    fs::write(packages.join("sluice/__main__.py"), main).unwrap();
    let mut command = sluice(&here, &["sweep", "x.toml", "--over", "link.queue=fifo"]);
    command.env_remove("SLUICE_PYTHON");
    let (_, said, complaint) = output(command.env("PYTHONPATH", &packages));
    assert_eq!(said, "the package\n", "{complaint}");
}

#[test]
fn a_missing_package_or_interpreter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = ["sweep", "x.toml", "--over", "link.queue=fifo"];
    let without = python(folder, 1);
    let (is_well, _, complaint) = output(sluice(folder, &words).env("SLUICE_PYTHON", &without));
    assert!(!is_well);
    assert!(complaint.contains(&format!("`{without}` has no package `sluice`")));
    let (is_well, _, complaint) = output(sluice(folder, &words).env("SLUICE_PYTHON", "./nothing"));
    assert!(!is_well);
    assert!(complaint.starts_with("sluice: cannot start `./nothing`: No such file"));
}
