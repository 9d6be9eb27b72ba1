//! The tables of a recording in memory. They are encoded when one of them is first needed: often only
//! the figures of a short run are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::checksum::Checksum;
use super::encoder::{Closed, Rest};
use super::error::RecordError;
use super::rows::TABLES;

/// The tables of a recording in memory.
pub(crate) struct Memory {
    encoded: OnceLock<Result<Encoded, String>>,
    /// What is not encoded yet.
    rest: Mutex<Option<Rest>>,
}

/// Complete tables.
#[derive(Default)]
pub(crate) struct Encoded {
    /// Their checksums, by name.
    pub checksums: BTreeMap<String, Checksum>,
    /// Their bytes, if they are in memory.
    pub bytes: BTreeMap<&'static str, Bytes>,
    /// The first error of a table that could not be written.
    pub failed: Option<RecordError>,
}

impl Encoded {
    /// Sorts the tables of a run by name.
    pub fn of(closed: [Closed; TABLES.len()]) -> Encoded {
        let mut encoded = Encoded::default();
        for (table, result) in TABLES.into_iter().zip(closed) {
            match result {
                None => {}
                Some(Ok(finished)) => {
                    encoded
                        .checksums
                        .insert(table.to_owned(), finished.checksum);
                    encoded
                        .bytes
                        .extend(finished.bytes.map(|bytes| (table, bytes)));
                }
                Some(Err(error)) => {
                    encoded.failed.get_or_insert(error);
                }
            }
        }
        encoded
    }
}

impl Memory {
    /// Keeps rows, to encode them later.
    pub fn of_rest(rest: Rest) -> Memory {
        Memory {
            encoded: OnceLock::new(),
            rest: Mutex::new(Some(rest)),
        }
    }

    /// Keeps tables.
    pub fn of_tables(encoded: Encoded) -> Memory {
        Memory {
            encoded: Ok(encoded).into(),
            rest: Mutex::new(None),
        }
    }

    /// Returns the tables, or why one could not be encoded.
    pub fn tables(&self) -> Result<&Encoded, &str> {
        let encode = || {
            let rest = self.rest.lock();
            let rest = rest.unwrap_or_else(PoisonError::into_inner).take();
            let rest = rest.expect("what is not encoded is there");
            let encoded = Encoded::of(rest.close().tables);
            match encoded.failed {
                Some(error) => Err(error.to_string()),
                None => Ok(encoded),
            }
        };
        let encoded = self.encoded.get_or_init(encode);
        encoded.as_ref().map_err(String::as_str)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = self.encoded.get().and_then(|tables| tables.as_ref().ok());
        let tables = encoded.map(|tables| &tables.checksums);
        f.debug_struct("Memory").field("tables", &tables).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{packet, variant};
    use super::super::{End, Environment, Recording, RunWriter};
    use sluice_core::Time;
    use sluice_core::record::Fate;
    use sluice_scenario::{Backend, Direction};

    fn recorded(packets: u64) -> Recording {
        let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
        let mut writer = RunWriter::in_memory(&variant(), &environment).unwrap();
        for ms in 0..packets {
            let record = packet(ms, ms + 1, Fate::Sent);
            writer.packet(Direction::Up, &record).unwrap();
        }
        let end = End::complete(Time::from_ns(10_000_000_000));
        writer.finish(end).unwrap()
    }

    #[test]
    fn tables_in_memory_are_encoded_when_they_are_needed() {
        let recording = recorded(3);
        let copy = recording.clone();
        assert!(recording.described().tables.is_empty());
        let read: Result<Vec<_>, _> = recording.packets().unwrap().collect();
        let arrivals = read.unwrap().into_iter().map(|row| row.record.arrival);
        assert!(arrivals.eq([0, 1_000_000, 2_000_000].map(Time::from_ns)));
        // What one copy has encoded, all have.
        for recording in [recording, copy] {
            let bytes = recording.parquet("packets").unwrap();
            let run = recording.run();
            assert_eq!(run.tables["packets"].bytes, bytes.len() as u64);
            assert_eq!(run.tables.len(), 8, "tables without rows as well");
            assert!(recording.pings().unwrap().next().is_none());
        }
    }

    #[test]
    fn a_long_run_in_memory_has_all_its_rows() {
        // More than a piece, of which a full one is encoded during the run.
        let recording = recorded(5000);
        let rows = recording.packets().unwrap().map(Result::unwrap);
        assert_eq!(rows.count(), 5000);
        let dir = tempfile::tempdir().unwrap();
        let saved = recording.save(&dir.path().join("saved")).unwrap();
        saved.check_all().unwrap();
        assert_eq!(saved.run(), recording.run());
        assert_eq!(saved.packets().unwrap().count(), 5000);
    }
}
