//! A table of a recording: rows to Parquet columns and back.
//!
//! Rows are gathered and written as row groups of [`GROUP_ROWS`], so that memory stays bounded however
//! long a run is. A table is written under a temporary name and takes its own only when it is whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ReadError;
use super::cell::{Cell, ColumnDecl, ColumnKind, Row};
use super::checksum::{Checksum, Summing};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

/// Rows that are gathered before they are written.
pub(crate) const GROUP_ROWS: usize = 1 << 16;

/// The values of a column, gathered for a row group.
enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Flag(Vec<bool>),
}

struct Column {
    decl: ColumnDecl,
    values: Values,
    /// 1 where there is a value, 0 where there is none; unused if the column is not optional.
    levels: Vec<i16>,
    /// The words seen so far, so that each is held once.
    words: BTreeMap<String, ByteArray>,
}

impl Column {
    fn new(decl: ColumnDecl) -> Self {
        Column {
            decl,
            values: match decl.kind {
                ColumnKind::Int => Values::Int(Vec::new()),
                ColumnKind::Float => Values::Float(Vec::new()),
                ColumnKind::Text => Values::Text(Vec::new()),
                ColumnKind::Flag => Values::Flag(Vec::new()),
            },
            levels: Vec::new(),
            words: BTreeMap::new(),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        if self.decl.is_optional {
            self.levels.push(i16::from(cell != Cell::Empty));
        }
        match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(n)) => values.push(n),
            (Values::Float(values), Cell::Float(x)) => values.push(x),
            (Values::Flag(values), Cell::Flag(b)) => values.push(b),
            (Values::Text(values), Cell::Text(word)) => {
                if !self.words.contains_key(word) {
                    self.words.insert(word.to_owned(), ByteArray::from(word));
                }
                values.push(self.words[word].clone());
            }
            (_, Cell::Empty) => {
                assert!(
                    self.decl.is_optional,
                    "a column that is not optional has no empty cell"
                );
            }
            _ => panic!("a cell has the kind of its column"),
        }
    }

    fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let levels = self.decl.is_optional.then_some(self.levels.as_slice());
        let mut column = group
            .next_column()?
            .expect("a row group has all columns of the schema");
        match &mut self.values {
            Values::Int(v) => column.typed::<Int64Type>().write_batch(v, levels, None)?,
            Values::Float(v) => column.typed::<DoubleType>().write_batch(v, levels, None)?,
            Values::Text(v) => column
                .typed::<ByteArrayType>()
                .write_batch(v, levels, None)?,
            Values::Flag(v) => column.typed::<BoolType>().write_batch(v, levels, None)?,
        };
        self.clear();
        column.close()
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Int(values) => values.clear(),
            Values::Float(values) => values.clear(),
            Values::Text(values) => values.clear(),
            Values::Flag(values) => values.clear(),
        }
    }
}

/// Writes rows to a file.
pub(crate) struct TableWriter<R> {
    path: PathBuf,
    part: PathBuf,
    file: SerializedFileWriter<Summing<File>>,
    columns: Vec<Column>,
    rows: usize,
    row: PhantomData<fn(&R)>,
}

impl<R: Row> TableWriter<R> {
    /// Begins the table in the folder `dir`.
    pub fn create(dir: &Path) -> Result<Self, ParquetError> {
        let path = path_of::<R>(dir);
        let part = part_of(&path);
        let columns = R::columns();
        let file = SerializedFileWriter::new(
            Summing::new(File::create(&part)?),
            schema(R::TABLE, &columns)?,
            Arc::new(properties(&columns)),
        )?;
        Ok(TableWriter {
            path,
            part,
            file,
            columns: columns.into_iter().map(Column::new).collect(),
            rows: 0,
            row: PhantomData,
        })
    }

    pub fn push(&mut self, row: &R) -> Result<(), ParquetError> {
        let mut columns = self.columns.iter_mut();
        row.write(&mut |cell| {
            columns
                .next()
                .expect("a row has a cell for each column")
                .push(cell);
        });
        self.rows += 1;
        if self.rows == GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left and gives the file its name; tells its checksum.
    pub fn finish(mut self) -> Result<Checksum, ParquetError> {
        self.flush()?;
        self.file.finish()?;
        let file = self.file.inner();
        file.inner().sync_all()?;
        fs::rename(&self.part, &self.path)?;
        Ok(file.checksum())
    }

    /// The file's name when it is whole.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

/// Where the table of `R` is in a recording.
pub(crate) fn path_of<R: Row>(dir: &Path) -> PathBuf {
    dir.join(R::TABLE).with_extension("parquet")
}

/// The name of a file that is not whole yet.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn schema(table: &str, columns: &[ColumnDecl]) -> Result<Arc<Type>, ParquetError> {
    let field = |decl: &ColumnDecl| {
        let (physical, logical) = physical(decl.kind);
        Type::primitive_type_builder(decl.name, physical)
            .with_logical_type(logical)
            .with_repetition(if decl.is_optional {
                Repetition::OPTIONAL
            } else {
                Repetition::REQUIRED
            })
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Ok(Arc::new(
        Type::group_type_builder(table)
            .with_fields(fields)
            .build()?,
    ))
}

fn physical(kind: ColumnKind) -> (Physical, Option<LogicalType>) {
    match kind {
        ColumnKind::Int => (Physical::INT64, None),
        ColumnKind::Float => (Physical::DOUBLE, None),
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Flag => (Physical::BOOLEAN, None),
    }
}

fn properties(columns: &[ColumnDecl]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("sluice ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY);
    // Times and sequence numbers are all different: a dictionary of them is waste, differences of
    // neighbours are small.
    for decl in columns
        .iter()
        .filter(|d| d.name == "seq" || d.name.ends_with("_ns"))
    {
        let path = ColumnPath::from(decl.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// The rows of a table, read one row group at a time.
pub struct Rows<R> {
    path: PathBuf,
    /// None if the table is not there.
    file: Option<SerializedFileReader<File>>,
    decls: Vec<ColumnDecl>,
    /// Where each declared column is in the file.
    indices: Vec<usize>,
    next_group: usize,
    group: Vec<Loaded>,
    next_row: usize,
    rows: usize,
    row: PhantomData<fn() -> R>,
}

/// A column of a row group.
struct Loaded {
    values: Values,
    levels: Option<Vec<i16>>,
    next_value: usize,
}

impl<R: Row> Rows<R> {
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
            row: PhantomData,
        }
    }

    pub(crate) fn open(dir: &Path) -> Result<Self, ReadError> {
        let mut rows = Rows::none(dir);
        let open = |error| ReadError::Open {
            path: path_of::<R>(dir),
            error,
        };
        let table = |error| ReadError::Table {
            path: path_of::<R>(dir),
            error,
        };
        let file = File::open(&rows.path).map_err(open)?;
        let file = SerializedFileReader::new(file).map_err(table)?;
        let schema = file.metadata().file_metadata().schema_descr();
        for decl in &rows.decls {
            let found = schema.columns().iter().position(|c| c.name() == decl.name);
            let Some(index) = found else {
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
            rows.indices.push(index);
        }
        rows.file = Some(file);
        Ok(rows)
    }

    /// Reads the next row group; tells whether there was one.
    fn load(&mut self) -> Result<bool, ParquetError> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        if self.next_group == file.num_row_groups() {
            return Ok(false);
        }
        let group = file.get_row_group(self.next_group)?;
        self.next_group += 1;
        self.next_row = 0;
        self.rows = usize::try_from(group.metadata().num_rows())
            .map_err(|_| ParquetError::General("a negative number of rows".into()))?;
        self.group.clear();
        for index in &self.indices {
            let loaded = match group.get_column_reader(*index)? {
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
        let row = self.next_row;
        self.next_row += 1;
        let mut cells = Vec::with_capacity(self.group.len());
        for (loaded, decl) in self.group.iter_mut().zip(&self.decls) {
            match loaded.cell(row) {
                Some(cell) => cells.push(cell),
                None => return Err(self.bad_cell(row, decl)),
            }
        }
        R::read(&cells).map_err(|column| self.bad_cell(row, &self.decls[column]))
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
    /// The cell of `row`; rows are asked for in order. None if the file lies about its values.
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
        while self.next_row == self.rows {
            match self.load() {
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
            // The columns may be out of step from here on.
            self.file = None;
            self.rows = self.next_row;
        }
        Some(row)
    }
}
