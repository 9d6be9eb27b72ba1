//! Recordings that are cut, damaged, foreign or of a later program.

use super::*;

#[test]
fn a_truncated_table_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer
        .packet(Direction::Up, &packet(0, Fate::Sent))
        .unwrap();
    let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
    let path = temp.path().join("packets.parquet");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = recording.packets().err().unwrap().to_string();
    let start = format!("`{}` is not a complete Parquet file: ", path.display());
    assert!(error.starts_with(&start), "{error}");
    fs::remove_file(&path).unwrap();
    let error = recording.packets().err().unwrap().to_string();
    assert!(
        error.starts_with(&format!("cannot open `{}`: ", path.display())),
        "{error}"
    );
}

table! {
    /// Probes of another program.
    pub struct ForeignPing = "pings" {
        /// when
        time: Time = "time_ns",
        /// which flow
        flow: f64 = "flow",
    }
}

table! {
    /// Drops of another program.
    pub struct ForeignQueue = "queues" {
        /// when
        time: Time = "time_ns",
        /// not a direction
        pipe: std::borrow::Cow<'static, str> = "pipe",
        /// queue
        queue: Option<u32> = "queue",
        /// name
        variable: std::borrow::Cow<'static, str> = "variable",
        /// kind
        kind: std::borrow::Cow<'static, str> = "kind",
        /// value
        value: f64 = "value",
    }
}

/// Writes a table as another program would.
#[test]
fn a_foreign_table_is_refused_by_file_and_column() {
    let temp = tempfile::tempdir().unwrap();
    let recording = begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap()
        .without_checksums();

    let row = ForeignPing {
        time: Time::ZERO,
        flow: 1.0,
    };
    write_table(temp.path(), [row]);
    let pings = temp.path().join("pings.parquet");
    let error = recording.pings().err().unwrap().to_string();
    assert_eq!(
        error,
        format!("column `flow` of `{}` holds DOUBLE", pings.display())
    );

    let row = ForeignQueue {
        time: Time::ZERO,
        pipe: "sideways".into(),
        queue: None,
        variable: "count".into(),
        kind: "count".into(),
        value: 1.0,
    };
    write_table(temp.path(), [row]);
    let queues = temp.path().join("queues.parquet");
    let error = recording
        .queue_samples()
        .unwrap()
        .next()
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "column `pipe` of `{}` has an invalid value in row 0 of row group 0",
            queues.display()
        )
    );

    fs::copy(&queues, &pings).unwrap();
    let error = recording.pings().err().unwrap().to_string();
    assert_eq!(error, format!("`{}` has no column `flow`", pings.display()));
}

#[test]
fn a_damaged_table_is_told_from_a_whole_one() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    for seq in 0..1000 {
        let probe = PingSample {
            time: Time::from_ns(seq * 7919),
            flow: 0,
            seq,
            rtt: Some(Span::from_ns(seq * seq)),
            up: None,
            down: None,
            is_lost: false,
        };
        writer.ping(&probe).unwrap();
    }
    writer.finish(End::complete(Time::ZERO)).unwrap();
    let path = temp.path().join("pings.parquet");
    let mut bytes = fs::read(&path).unwrap();
    // In the middle of a data page, where Parquet does not detect a changed number.
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let recording = Recording::open(temp.path()).unwrap();
    let error = recording.pings().err().unwrap();
    assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
    assert!(recording.check_all().is_err());
    assert_eq!(
        recording.packets().unwrap().count(),
        0,
        "the others are sound"
    );
}

#[test]
fn a_later_format_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap();
    let path = temp.path().join("run.json");
    fs::write(&path, r#"{ "format": 2, "of": "the future" }"#).unwrap();
    let error = Recording::open(temp.path()).unwrap_err().to_string();
    let expected = format!(
        "`{}` has format 2; this program reads format 1",
        path.display()
    );
    assert_eq!(error, expected);
}
