//! Runs whose process does not run any more, or runs elsewhere.

use super::*;

/// Gives the run in `dir` a process that does not run here.
fn change_process(dir: &Path, host: Option<&str>) {
    let text = fs::read_to_string(dir.join("run.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Linux assigns process numbers up to 2^22 (PID_MAX_LIMIT).
    json["pid"] = (1_u64 << 31).into();
    if let Some(host) = host {
        json["environment"]["host"] = host.into();
    }
    fs::write(dir.join("run.json"), json.to_string()).unwrap();
}

/// Makes `copy` the folder that `writer`, which records to `dir`, would leave if it was killed.
fn kill(dir: &Path, copy: &Path, host: Option<&str>) {
    fs::create_dir(copy).unwrap();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    change_process(copy, host);
}

fn begin_with_a_packet(dir: &Path) -> RunWriter {
    let mut writer = begin(dir);
    writer
        .packet(Direction::Up, &packet(0, Fate::Sent))
        .unwrap();
    writer
}

#[test]
fn a_run_whose_process_was_killed_is_marked_partial() {
    let temp = tempfile::tempdir().unwrap();
    let (running, dir) = (temp.path().join("running"), temp.path().join("codel"));
    let writer = begin_with_a_packet(&running);
    assert!(
        settle_abandoned(temp.path()).unwrap().is_empty(),
        "its process runs"
    );
    kill(&running, &dir, None);
    let reason = "process 2147483648 was killed before it closed its tables".to_owned();
    let unsettled = Recording::open(&dir).unwrap();
    assert_eq!(
        unsettled.run().status,
        Status::Partial {
            reason: reason.clone()
        }
    );
    assert_eq!(unsettled.packets().unwrap().count(), 0);

    assert_eq!(settle_abandoned(temp.path()).unwrap(), [dir.as_path()]);
    let text = fs::read_to_string(dir.join("run.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["status"], "partial");
    assert_eq!(json["reason"], reason);
    assert!(!dir.join("packets.parquet.part").exists());
    assert!(settle_abandoned(temp.path()).unwrap().is_empty());
    writer.finish(End::complete(Time::ZERO)).unwrap();
}

#[test]
fn a_run_that_another_container_records_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("codel");
    let writer = begin_with_a_packet(&dir);
    // Seen from outside, its process has no number, or that of another one.
    change_process(&dir, None);
    for above in [temp.path(), &dir] {
        assert!(settle_abandoned(above).unwrap().is_empty());
    }
    assert!(dir.join("packets.parquet.part").exists());
    let seen = Recording::open(&dir).unwrap();
    let why = "process 2147483648 is still running";
    assert_eq!(seen.unfinished().as_deref(), Some(why));

    let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
    assert_eq!(recording.unfinished(), None);
    assert_eq!(recording.packets().unwrap().count(), 1);
}

#[test]
fn a_run_of_another_machine_is_not_marked() {
    let temp = tempfile::tempdir().unwrap();
    let (running, dir) = (temp.path().join("running"), temp.path().join("codel"));
    let _writer = begin_with_a_packet(&running);
    // No host has this name (RFC 1123, section 2.1).
    kill(&running, &dir, Some("another host"));
    assert!(settle_abandoned(temp.path()).unwrap().is_empty());
    assert!(dir.join("packets.parquet.part").exists());
    let why = "process 2147483648 on `another host` has not closed its tables";
    let seen = Recording::open(&dir).unwrap();
    assert_eq!(seen.unfinished().as_deref(), Some(why));
}

#[test]
fn a_recording_of_a_program_that_breaks_off_after_days_can_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let mut variant = variant();
    // As for a program, whose flows and duration are not known yet.
    variant.scenario.flows.clear();
    variant.scenario.measure.warmup = Span::ZERO;
    variant.scenario.duration = Span::from_secs(1);
    let mut writer = RunWriter::create(temp.path(), &variant, &environment()).unwrap();
    let ran = Span::from_secs(25 * 3600);
    let late = PacketRecord {
        arrival: Time::ZERO + ran,
        at: Time::ZERO + ran,
        ..packet(0, Fate::Sent)
    };
    writer.packet(Direction::Up, &late).unwrap();
    drop(writer);
    let recording = Recording::open(temp.path()).unwrap();
    assert!(matches!(recording.run().status, Status::Partial { .. }));
    assert_eq!(recording.run().end_ns, ran.as_ns());
    assert_eq!(recording.run().scenario.duration, ran);
    assert_eq!(recording.packets().unwrap().count(), 1);
}
