//! Changed run files and tables are read or refused.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;

use super::memory::{Encoded, Memory};
use super::rows::TABLES;
use super::{ReadError, Recording, Row, Rows};

fn folder(ending: &str) -> Vec<Vec<u8>> {
    mutate::corpus("fuzz/corpus/recording", ending)
}

/// Reads a table to its end, or to its first error.
fn drain<R: Row>(rows: Result<Rows<R>, ReadError>) {
    let error = match rows {
        Ok(rows) => rows.take(1 << 17).find_map(Result::err),
        Err(error) => Some(error),
    };
    assert!(error.is_none_or(|error| !error.to_string().is_empty()));
}

fn read(recording: &Recording) {
    drain(recording.packets());
    drain(recording.headers());
    drain(recording.flow_samples());
    drain(recording.queue_samples());
    drain(recording.pings());
    drain(recording.transfers());
    drain(recording.releases());
    drain(recording.arrivals());
}

#[test]
fn a_changed_run_file_is_a_recording_or_an_error() {
    let tables = mutate::files("fuzz/corpus/recording", ".parquet");
    let with_tables = || {
        let temp = tempfile::tempdir().unwrap();
        for table in &tables {
            fs::copy(table, temp.path().join(table.file_name().unwrap())).unwrap();
        }
        temp
    };
    mutate::check("run", &folder("run.json"), with_tables, |temp, input| {
        fs::write(temp.path().join("run.json"), input).unwrap();
        match Recording::open(temp.path()) {
            Ok(recording) => {
                read(&recording);
                let _ = recording.check_all();
                let _ = recording.stored_summary();
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn a_changed_table_has_rows_or_an_error() {
    let temp = tempfile::tempdir().unwrap();
    // Its panics become errors; their messages would fill the terminal.
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_library = |file: &str| file.contains("/parquet-");
        if !panic
            .location()
            .is_some_and(|place| is_library(place.file()))
        {
            others(panic);
        }
    }));
    let run = mutate::files("fuzz/corpus/recording", "run.json");
    fs::copy(&run[0], temp.path().join("run.json")).unwrap();
    let run = Recording::open(temp.path()).unwrap().run().clone();
    let none = || ();
    mutate::check("parquet", &folder(".parquet"), none, |(), input| {
        // Whatever the table is, the bytes are offered as each of them.
        let bytes = Bytes::copy_from_slice(input);
        let tables: BTreeMap<_, _> = TABLES.map(|table| (table, bytes.clone())).into();
        let tables = Memory::of_tables(Encoded {
            bytes: tables,
            ..Encoded::default()
        });
        read(&Recording::in_memory(run.clone(), tables));
    });
}
