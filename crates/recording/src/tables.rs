//! Collects the rows of all tables of a run, and has them encoded a piece at a time.

use std::path::Path;

use super::cell::Row;
use super::encoder::{Closing, Encoder, Files};
use super::error::RecordError;
use super::keep::Keep;
use super::pieces::{Collected, PIECE_ROWS, Piece};
use super::rows::{DECLARED, Place, TABLES};
use super::table::TableFile;
use sluice_scenario::Backend;

/// The tables of a run that is being recorded.
pub(crate) struct Tables {
    /// The rows of each table that are not encoded yet, in the order of [`TABLES`]; `None` for a
    /// table that is not recorded.
    collected: [Option<Piece>; TABLES.len()],
    encoder: Encoder,
}

impl Tables {
    /// Begins the tables that `keep` names, in the folder `dir` or in memory.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn begin(keep: Keep, dir: Option<&Path>, backend: Backend) -> Result<Self, RecordError> {
        let mut files = Files::default();
        let mut collected = [const { None }; TABLES.len()];
        for (place, declared) in DECLARED.into_iter().enumerate() {
            if keep < Keep::of_table(declared.0) {
                continue;
            }
            match dir {
                Some(dir) => files.add(place, TableFile::create(declared, dir, backend)?),
                None => files.add_in_memory(place, declared),
            }
            collected[place] = Some(Piece::of_table(declared.0));
        }
        // The rows of a live run already come from a thread of their own, and its router needs the
        // other processors.
        let encoder = Encoder::new(files, backend == Backend::Sim);
        Ok(Tables { collected, encoder })
    }

    /// Keeps the rows that pages show in memory, too. There must be none yet.
    pub fn keep_rows(&mut self) {
        self.encoder.keep_rows();
    }

    /// Returns whether the rows of `R` are recorded.
    #[inline]
    pub fn has<R: Row>(&self) -> bool {
        self.collected[Place::<R>::OF].is_some()
    }

    /// Appends a row; if its table is not recorded, nothing happens.
    ///
    /// # Errors
    /// A file cannot be written. With a thread of its own, that may be the file of an earlier row.
    #[inline]
    pub fn push<R: Collected>(&mut self, row: R) -> Result<(), RecordError> {
        let Some(piece) = &mut self.collected[Place::<R>::OF] else {
            return Ok(());
        };
        let rows = R::among_mut(piece);
        rows.push(row);
        if rows.len() < PIECE_ROWS {
            return Ok(());
        }
        self.encoder.write(Place::<R>::OF, piece)
    }

    /// Has the remaining rows written, and all tables closed, even if one fails, so that complete
    /// tables are kept.
    pub fn close(self) -> Closing {
        let rest = self.collected.into_iter().enumerate();
        let rest = rest.filter_map(|(place, piece)| Some((place, piece?)));
        self.encoder.close(rest.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sluice_core::record::{Fate, PacketRecord};
    use sluice_core::{Ecn, Span, Time};

    use super::super::columns::GROUP_ROWS;
    use super::super::encoder::Written;
    use super::super::rows::{Header, PacketRow};
    use super::*;
    use sluice_scenario::Direction;

    fn row(seq: u64) -> PacketRow {
        let arrival = Time::from_ns(seq * seq % 1_000_003);
        PacketRow {
            pipe: Direction::Up.into(),
            record: PacketRecord {
                seq,
                packet: Some(seq),
                arrival,
                flow: (seq % 7) as u32,
                len: 1500,
                segments: 1,
                ecn: Ecn::Ect0,
                class: 0,
                fate: Fate::Sent,
                at: arrival + Span::from_ns(seq % 1013),
            },
        }
    }

    fn begin(dir: &Path) -> Tables {
        Tables::begin(Keep::Packets, Some(dir), Backend::Sim).unwrap()
    }

    /// Writes `groups` row groups of packets and some rows more, until there is an error.
    fn write(
        mut tables: Tables,
        has_thread: bool,
        groups: usize,
    ) -> (Result<(), RecordError>, Written) {
        match has_thread {
            true => tables.encoder.start(),
            false => tables.encoder.stay(),
        }
        let rows = (groups * GROUP_ROWS) as u64 + 17;
        let written = (0..rows).try_for_each(|seq| tables.push(row(seq)));
        tables.push(Header::empty(0, 0, true)).unwrap();
        (written, tables.close().join())
    }

    #[test]
    fn a_thread_writes_the_same_files() {
        let (here, apart) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, has_thread) in [(&here, false), (&apart, true)] {
            let (written, closed) = write(begin(dir.path()), has_thread, 5);
            written.unwrap();
            assert!(
                closed
                    .tables
                    .iter()
                    .all(|table| matches!(table, Some(Ok(_))))
            );
        }
        for table in TABLES {
            let read = |dir: &tempfile::TempDir| {
                fs::read(dir.path().join(table).with_extension("parquet")).unwrap()
            };
            assert!(read(&here) == read(&apart), "{table}");
        }
    }

    #[test]
    fn a_full_disk_is_reported_during_the_run_and_at_its_end() {
        for has_thread in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            // Every write to this device fails with ENOSPC.
            let path = Path::new("/dev/full");
            let place = Place::<PacketRow>::OF;
            let mut tables = begin(dir.path());
            let full = TableFile::on_device(DECLARED[place], path);
            tables.encoder.replace(place, full);
            // One row group is being written, the pieces of two wait, and the next piece waits for them.
            let (written, mut closed) = write(tables, has_thread, 6);
            let expected = format!(
                "cannot write `{}`: No space left on device (os error 28)",
                path.display()
            );
            assert_eq!(written.unwrap_err().to_string(), expected);
            let packets = closed.tables[place].take().unwrap();
            assert_eq!(packets.err().unwrap().to_string(), expected);
            let headers = closed.tables[Place::<Header>::OF].take().unwrap();
            assert!(headers.is_ok(), "the other tables are kept");
        }
    }
}
