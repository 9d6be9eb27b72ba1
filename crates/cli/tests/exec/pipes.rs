//! Captures in pipes, whose readers may come late, or take nothing.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::*;

/// With namespaces, and with a proxy.
const BOTH: [&[&str]; 2] = [&[], &["--proxy"]];

fn pipe(folder: &Path, number: usize) -> PathBuf {
    let path = folder.join(number.to_string());
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

#[test]
fn a_signal_ends_the_wait_for_the_reader_of_a_capture() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    for (number, options) in BOTH.into_iter().enumerate() {
        let path = pipe(folder.path(), number);
        let capture = format!("--pcapng={}", path.display());
        let options = [options, &[capture.as_str()]].concat();
        let mut child = world.start(&mut world.exec(&options, &["echo", "started"]));
        let expected = format!("waiting for a reader of {}", path.display());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_waiting = lines.any(|line| line.unwrap() == format!("sluice: {expected}"));
        assert!(is_waiting, "{options:?}");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(rest, [format!("sluice: SIGTERM while {expected}")]);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 15), "{options:?}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn the_reader_of_a_capture_may_come_late() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    for (number, options) in BOTH.into_iter().enumerate() {
        let path = pipe(folder.path(), number);
        let capture = format!("--pcapng={}", path.display());
        let options = [options, &[capture.as_str()]].concat();
        let mut child = world.start(&mut world.exec(&options, &["true"]));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("waiting for a reader")));
        // A section block of pcapng.
        let read = std::fs::read(&path).unwrap();
        assert_eq!(read[..4], 0x0a0d_0d0a_u32.to_le_bytes());
        assert!(child.wait().unwrap().success(), "{options:?}");
    }
}

/// Starts a program whose capture goes to a pipe that is full. Returns the reader, which takes nothing.
fn start_stuck(world: &World, path: &Path, options: &[&str]) -> (File, Child) {
    let mut both = File::options();
    let mut reader = both.read(true).write(true).open(path).unwrap();
    // The capacity of a pipe (pipe(7)).
    reader.write_all(&[0; 65_536]).unwrap();
    let capture = format!("--pcapng={}", path.display());
    let options = [options, &[capture.as_str()]].concat();
    // Signals are passed on to a program that runs.
    let program = ["sh", "-c", "trap '' TERM; echo ends; exit 3"];
    (reader, world.start(&mut world.exec(&options, &program)))
}

fn check_stuck(output: &Output) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("what reads it takes nothing"), "{text}");
    assert!(text.contains("exit status was 3"), "{text}");
}

#[test]
fn the_end_of_a_run_does_not_depend_on_the_reader_of_its_capture() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let runs = BOTH.into_iter().enumerate().map(|(number, options)| {
        let path = pipe(folder.path(), number);
        start_stuck(&world, &path, options)
    });
    let runs: Vec<(File, Child)> = runs.collect();
    for (_reader, child) in runs {
        check_stuck(&child.wait_with_output().unwrap());
    }
}

#[test]
fn signals_end_the_wait_for_the_reader_of_a_capture_at_the_end() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    for (number, options) in BOTH.into_iter().enumerate() {
        let path = pipe(folder.path(), number);
        let (_reader, mut child) = start_stuck(&world, &path, options);
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        assert_eq!(said, "ends\n");
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            sleep(Duration::from_millis(100));
        }
        // Without signals, the reader has 10 s.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(9), "{options:?}: {took:?}");
        check_stuck(&child.wait_with_output().unwrap());
    }
}
