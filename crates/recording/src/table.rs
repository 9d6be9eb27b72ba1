//! A table of a recording: converts rows to Parquet columns and back.
//!
//! A table in a folder is written under a temporary name and gets its own only when it is complete.
//! A table in memory has the same bytes.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::cell::{Cell, ColumnDecl, Row};
use super::cells::{GroupWriter, Values, physical};
use super::checksum::{Checksum, Summing};
use super::chunk::{Chunks, Source};
use super::columns::{Columns, GROUP_ROWS};
use super::files::open_file;
use super::rows::Declared;
use super::{ReadError, RecordError};
use crate::part::Part;
use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;
use sluice_scenario::Backend;

/// The destination of a table's bytes.
enum Output {
    File(Part),
    Memory(Vec<u8>),
}

impl Write for Output {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self {
            Output::File(part) => part.write(piece),
            Output::Memory(bytes) => bytes.write(piece),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::File(part) => part.flush(),
            Output::Memory(_) => Ok(()),
        }
    }
}

/// A complete table.
pub(crate) struct Finished {
    pub checksum: Checksum,
    /// The bytes of a table in memory.
    pub bytes: Option<Bytes>,
}

/// Writes the row groups of a table to a file or to memory.
pub(crate) struct TableFile {
    groups: GroupWriter<Summing<Output>>,
    /// The columns of the row group that is being written.
    columns: Columns,
    path: PathBuf,
}

impl TableFile {
    /// Creates a table of a run in the folder `dir`.
    pub fn create(declared: Declared, dir: &Path, backend: Backend) -> Result<Self, RecordError> {
        let path = path_in(dir, declared.0);
        let part = Part::create(&path).map(|part| Output::File(part.of_run(backend)));
        let file = part.map_err(ParquetError::from);
        let file = file.and_then(|output| TableFile::to(output, declared, path.clone()));
        file.map_err(|error| write_error(&path, error))
    }

    /// Creates a table in memory.
    pub fn in_memory(declared: Declared) -> Result<Self, RecordError> {
        let path = path_in(Path::new(""), declared.0);
        let file = TableFile::to(Output::Memory(Vec::new()), declared, path.clone());
        file.map_err(|error| write_error(&path, error))
    }

    /// Creates a table on the device at `path`.
    #[cfg(test)]
    pub fn on_device(declared: Declared, path: &Path) -> Self {
        let device = std::fs::File::options().write(true).open(path);
        let part = Part::on(device.expect("the device can be opened"), path);
        TableFile::to(Output::File(part), declared, path.to_owned())
            .expect("nothing is written yet")
    }

    fn to(output: Output, (table, columns): Declared, path: PathBuf) -> Result<Self, ParquetError> {
        let columns = columns();
        Ok(TableFile {
            groups: GroupWriter::new(Summing::new(output), table, &columns)?,
            columns: Columns::new(columns),
            path,
        })
    }

    /// Adds `rows`, and writes a row group if it is full.
    pub fn add<R: Row>(&mut self, rows: &[R]) -> Result<(), RecordError> {
        self.columns.extend(rows);
        if self.columns.rows() < GROUP_ROWS {
            return Ok(());
        }
        let written = self.groups.write(&mut self.columns);
        written.map_err(|error| write_error(&self.path, error))
    }

    /// Writes the remaining rows and the footer, and gives a file its name. An incomplete file is removed:
    /// without its footer it is useless and takes space that run.json may need.
    pub fn finish(mut self) -> Result<Finished, RecordError> {
        let finish = || {
            self.groups.write(&mut self.columns)?;
            let output = self.groups.finish()?;
            let checksum = output.checksum();
            let bytes = match output.into_inner() {
                Output::File(part) => {
                    part.finish()?;
                    None
                }
                Output::Memory(bytes) => Some(Bytes::from(bytes)),
            };
            Ok(Finished { checksum, bytes })
        };
        finish().map_err(|error| write_error(&self.path, error))
    }
}

fn write_error(path: &Path, error: ParquetError) -> RecordError {
    let error = match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    RecordError::Write {
        path: path.to_owned(),
        error,
    }
}

/// Returns the path of the table of `R` in a recording.
pub(crate) fn path_of<R: Row>(dir: &Path) -> PathBuf {
    path_in(dir, R::TABLE)
}

fn path_in(dir: &Path, table: &str) -> PathBuf {
    dir.join(table).with_extension("parquet")
}

/// The rows of a table, read one row group at a time.
pub struct Rows<R> {
    path: PathBuf,
    /// `None` if the table does not exist.
    file: Option<Box<dyn Chunks>>,
    decls: Vec<ColumnDecl>,
    /// The position of each declared column in the file; `None` for one that older programs did not
    /// write.
    indices: Vec<Option<usize>>,
    next_group: usize,
    group: Vec<Loaded>,
    next_row: usize,
    rows: usize,
    /// All rows, if they are in memory; then there is no file.
    kept: Option<Box<dyn Iterator<Item = R> + Send>>,
}

/// A column of a row group.
pub(crate) struct Loaded {
    values: Values,
    levels: Option<Vec<i16>>,
    next_value: usize,
}

/// The largest row group that is read. It is loaded as a whole, and run lengths can claim billions
/// of rows in a few bytes. Sluice writes 65 536 ([`GROUP_ROWS`]); other
/// programs that rewrite a table usually make 2^20.
const MOST_GROUP_ROWS: i64 = 1 << 22;
/// The largest row group in bytes, as it says itself.
const MOST_GROUP_BYTES: i64 = 1 << 30;

/// The columns of the widest table.
const MOST_COLUMNS: usize = 32;

/// Returns the most rows of a table that are kept in memory, where they take 8 to 100 bytes each: those
/// that fit into the 8 GB of a small machine.
fn most_rows(table: &str) -> u64 {
    match table {
        "flows" | "pings" => 1 << 25,
        "queues" | "transfers" => 1 << 26,
        // Of a release, the figures keep 8 bytes: how late it was.
        "releases" => 1 << 29,
        _ => 1 << 27,
    }
}

impl<R: Row> Rows<R> {
    /// Returns the rows for a caller that keeps all of them, unless they would take all memory: run lengths
    /// can claim billions of rows in a few bytes.
    ///
    /// # Errors
    /// [`ReadError::TooMany`].
    pub fn bounded(self) -> Result<Self, ReadError> {
        self.at_most(most_rows(R::TABLE))
    }

    /// Does the same for at most `most` rows.
    pub(crate) fn at_most(self, most: u64) -> Result<Self, ReadError> {
        let groups = self.file.as_ref().map(|file| file.metadata().row_groups());
        match groups.is_some_and(|groups| all_rows(groups) > most) {
            true => Err(ReadError::TooMany {
                path: self.path,
                what: "rows",
                most,
            }),
            false => Ok(self),
        }
    }

    /// Returns how many rows the table has, as it says itself; the largest number if they are in memory.
    pub fn claimed(&self) -> usize {
        match (&self.kept, &self.file) {
            (Some(_), _) => usize::MAX,
            (None, Some(file)) => all_rows(file.metadata().row_groups()) as usize,
            (None, None) => 0,
        }
    }

    /// Reads only the columns with these names from now on, and returns their places. The others are
    /// empty, so that no whole rows can be read.
    pub(crate) fn keep_columns<const N: usize>(&mut self, names: [&str; N]) -> [usize; N] {
        let place = |name| self.decls.iter().position(|decl| decl.name == name);
        let places = names.map(|name| place(name).expect("the table declares the column"));
        for (at, index) in self.indices.iter_mut().enumerate() {
            if !places.contains(&at) {
                *index = None;
            }
        }
        places
    }

    /// Reads the next row group; returns whether there was one.
    pub(crate) fn load_next(&mut self) -> Result<bool, ReadError> {
        let loaded = guarded(|| self.load());
        loaded.map_err(|error| ReadError::Table {
            path: self.path.clone(),
            error,
        })
    }

    /// Returns the number of rows of the row group.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Takes the columns of the row group.
    pub(crate) fn take_group(&mut self) -> Vec<Loaded> {
        std::mem::take(&mut self.group)
    }

    /// Returns the path of the table.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A table without rows.
    pub(crate) fn none(dir: &Path) -> Self {
        Rows {
            path: path_of::<R>(dir),
            file: None,
            decls: R::columns(),
            indices: Vec::new(),
            next_group: 0,
            group: Vec::new(),
            next_row: 0,
            rows: 0,
            kept: None,
        }
    }

    /// A table whose rows are in memory.
    pub(crate) fn kept(dir: &Path, rows: impl Iterator<Item = R> + Send + 'static) -> Self {
        Rows {
            kept: Some(Box::new(rows)),
            ..Rows::none(dir)
        }
    }

    /// Takes all rows that are in memory; `None` if they must be read.
    pub(crate) fn take_kept(&mut self) -> Option<impl Iterator<Item = R>> {
        self.kept.take()
    }

    pub(crate) fn open(dir: &Path) -> Result<Self, ReadError> {
        let path = path_of::<R>(dir);
        let file = match open_file(&path) {
            Ok(file) => guarded(|| Source::new(file)),
            Err(error) => return Err(ReadError::Open { path, error }),
        };
        Rows::of(dir, file)
    }

    /// Reads a table in memory.
    pub(crate) fn in_memory(bytes: Bytes) -> Result<Self, ReadError> {
        let file = guarded(|| Source::new(bytes));
        Rows::of(Path::new(""), file)
    }

    fn of<C: ChunkReader + 'static>(
        dir: &Path,
        file: Result<Source<C>, ParquetError>,
    ) -> Result<Self, ReadError> {
        let mut rows = Rows::none(dir);
        let file = file.map_err(|error| ReadError::Table {
            path: path_of::<R>(dir),
            error,
        })?;
        let schema = file.metadata().file_metadata().schema_descr();
        for decl in &rows.decls {
            let found = schema.columns().iter().position(|c| c.name() == decl.name);
            let Some(index) = found else {
                if decl.is_optional {
                    rows.indices.push(None);
                    continue;
                }
                return Err(ReadError::NoColumn {
                    path: rows.path,
                    column: decl.name,
                });
            };
            let column = schema.column(index);
            if column.physical_type() != physical(decl.kind).0 || column.max_rep_level() > 0 {
                return Err(ReadError::ColumnType {
                    path: rows.path,
                    column: decl.name,
                    found: column.physical_type().to_string(),
                });
            }
            rows.indices.push(Some(index));
        }
        rows.file = Some(Box::new(file));
        Ok(rows)
    }

    /// Reads the next row group; returns whether there was one.
    fn load(&mut self) -> Result<bool, ParquetError> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let metadata = file.metadata();
        let group = self.next_group;
        if group == metadata.num_row_groups() {
            return Ok(false);
        }
        self.next_group += 1;
        self.next_row = 0;
        self.rows = rows_of(metadata.row_group(group))?;
        self.group.clear();
        for index in &self.indices {
            let Some(index) = index else {
                self.group.push(Loaded::missing(self.rows));
                continue;
            };
            let column = metadata.file_metadata().schema_descr().column(*index);
            let loaded = match get_column_reader(column, file.pages(group, *index)?) {
                ColumnReader::Int64ColumnReader(c) => load_column(c, self.rows, Values::Int),
                ColumnReader::DoubleColumnReader(c) => load_column(c, self.rows, Values::Float),
                ColumnReader::ByteArrayColumnReader(c) => load_column(c, self.rows, Values::Text),
                ColumnReader::BoolColumnReader(c) => load_column(c, self.rows, Values::Flag),
                _ => Err(ParquetError::General("a column of another type".into())),
            };
            self.group.push(loaded?);
        }
        Ok(true)
    }

    fn read_row(&mut self) -> Result<R, ReadError> {
        // On the stack, without an allocation for each row, and no larger than needed: the cells are
        // emptied for each row.
        match self.group.len() {
            0..=8 => self.read_row_in::<8>(),
            9..=16 => self.read_row_in::<16>(),
            _ => self.read_row_in::<MOST_COLUMNS>(),
        }
    }

    /// Reads a row of at most `N` columns.
    fn read_row_in<const N: usize>(&mut self) -> Result<R, ReadError> {
        let row = self.next_row;
        self.next_row += 1;
        let mut cells = [Cell::Empty; N];
        let cells = &mut cells[..self.group.len()];
        for ((cell, loaded), decl) in cells.iter_mut().zip(&mut self.group).zip(&self.decls) {
            match loaded.cell(row) {
                Some(found) => *cell = found,
                None => return Err(self.bad_cell(row, decl)),
            }
        }
        R::read(cells).map_err(|column| self.bad_cell(row, &self.decls[column]))
    }

    fn bad_cell(&self, row: usize, decl: &ColumnDecl) -> ReadError {
        ReadError::Cell {
            path: self.path.clone(),
            column: decl.name,
            row,
            group: self.next_group - 1,
        }
    }
}

/// Turns a panic of the library into an error: some damaged files make it calculate with lengths that
/// it has not checked. Whatever `read` has changed must not be used after an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let what = "the table is damaged: its lengths contradict each other";
        Err(ParquetError::General(what.to_owned()))
    })
}

/// Returns the number of rows of all row groups.
fn all_rows(groups: &[RowGroupMetaData]) -> u64 {
    let rows = groups.iter().map(|group| group.num_rows().max(0) as u64);
    rows.fold(0, u64::saturating_add)
}

/// Returns the number of rows of a row group that is not too large to be loaded.
fn rows_of(group: &RowGroupMetaData) -> Result<usize, ParquetError> {
    let (rows, bytes) = (group.num_rows(), group.total_byte_size());
    let refused = |what: String| Err(ParquetError::General(what));
    if !(0..=MOST_GROUP_ROWS).contains(&rows) {
        return refused(format!(
            "a row group of {rows} rows, but at most {MOST_GROUP_ROWS} are read at once"
        ));
    }
    if bytes > MOST_GROUP_BYTES {
        return refused(format!(
            "a row group of {bytes} bytes, but at most {MOST_GROUP_BYTES} are read at once"
        ));
    }
    Ok(rows as usize)
}

fn load_column<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    wrap: fn(Vec<T::T>) -> Values,
) -> Result<Loaded, ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (records, _, _) =
            reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(ParquetError::General(format!("{read} of {rows} rows")));
        }
        read += records;
    }
    Ok(Loaded {
        values: wrap(values),
        // A required column has no levels.
        levels: (!levels.is_empty()).then_some(levels),
        next_value: 0,
    })
}

impl Loaded {
    /// Returns the values of a column of whole numbers.
    pub fn numbers(&self) -> &[i64] {
        match &self.values {
            Values::Int(values) => values,
            _ => &[],
        }
    }

    /// Returns the values of a column of words.
    pub fn words(&self) -> &[ByteArray] {
        match &self.values {
            Values::Text(values) => values,
            _ => &[],
        }
    }

    /// Returns 1 for each row with a value, and 0 for each without; `None` if all have one.
    pub fn levels(&self) -> Option<&[i16]> {
        self.levels.as_deref()
    }

    /// A column without values.
    fn missing(rows: usize) -> Loaded {
        Loaded {
            values: Values::Int(Vec::new()),
            levels: Some(vec![0; rows]),
            next_value: 0,
        }
    }

    /// Returns the cell of `row`; rows must be requested in order. `None` if the file has fewer
    /// values than it claims.
    fn cell(&mut self, row: usize) -> Option<Cell<'_>> {
        if let Some(levels) = &self.levels
            && *levels.get(row)? == 0
        {
            return Some(Cell::Empty);
        }
        let index = self.next_value;
        self.next_value += 1;
        Some(match &self.values {
            Values::Int(values) => Cell::Int(*values.get(index)?),
            Values::Float(values) => Cell::Float(*values.get(index)?),
            Values::Flag(values) => Cell::Flag(*values.get(index)?),
            Values::Text(values) => Cell::Text(values.get(index)?.as_utf8().ok()?),
        })
    }
}

impl<R: Row> Iterator for Rows<R> {
    type Item = Result<R, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(kept) = &mut self.kept {
            return kept.next().map(Ok);
        }
        while self.next_row == self.rows {
            match guarded(|| self.load()) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.file = None;
                    let path = self.path.clone();
                    return Some(Err(ReadError::Table { path, error }));
                }
            }
        }
        let row = self.read_row();
        if row.is_err() {
            // From here on, the columns may be at different rows.
            self.file = None;
            self.rows = self.next_row;
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::schema::types::{SchemaDescriptor, Type};
    use std::sync::Arc;

    fn group(rows: i64, bytes: i64) -> RowGroupMetaData {
        let root = Type::group_type_builder("schema").build().unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        let group = RowGroupMetaData::builder(schema).set_num_rows(rows);
        group.set_total_byte_size(bytes).build().unwrap()
    }

    #[test]
    fn a_row_group_that_would_fill_the_memory_is_refused() {
        assert_eq!(rows_of(&group(1 << 20, 1 << 28)).unwrap(), 1 << 20);
        // Two billion rows of one value take a few bytes as a run length.
        let error = rows_of(&group(1 << 31, 100)).unwrap_err().to_string();
        assert!(error.contains("2147483648 rows"), "{error}");
        let error = rows_of(&group(1, 1 << 40)).unwrap_err().to_string();
        assert!(error.contains("1099511627776 bytes"), "{error}");
        assert!(rows_of(&group(-1, 0)).is_err());
    }

    #[test]
    fn the_rows_of_all_row_groups_count() {
        // Nine groups of four million rows, each of which can be loaded.
        let groups: Vec<_> = (0..9).map(|_| group(4_000_000, 100)).collect();
        assert!(rows_of(&groups[0]).is_ok());
        assert_eq!(all_rows(&groups), 36_000_000);
        assert!(all_rows(&groups) > most_rows("flows"));
        // 11 h at 100 Mbit/s: 100e6 / (8 * 1500) = 8333 packets a second, and half as many ACKs.
        assert!(most_rows("releases") >= 11 * 3600 * (8333 + 4167));
        assert!(8 * most_rows("releases") <= 1 << 32);
        let claims = [group(i64::MAX, 0), group(i64::MAX, 0), group(i64::MAX, 0)];
        assert_eq!(all_rows(&claims), u64::MAX);
        assert_eq!(all_rows(&[group(-1, 0)]), 0);
    }
}
