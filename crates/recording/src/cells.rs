//! Writes rows of cells as Parquet to any writer.
//!
//! Rows are collected and written as row groups of [`GROUP_ROWS`], so that memory stays bounded for
//! any number of rows.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::cell::{Cell, ColumnDecl, ColumnKind};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

/// The number of rows in a row group.
pub const GROUP_ROWS: usize = 1 << 16;

/// The values of a column that was read.
pub(super) enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Flag(Vec<bool>),
}

/// The values of a column, collected for a row group.
enum Gathered {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Words),
    Flag(Vec<bool>),
}

struct Column {
    decl: ColumnDecl,
    values: Gathered,
    /// 1 for a value, 0 for an empty cell; unused if the column is not optional.
    levels: Vec<i16>,
}

impl Column {
    fn new(decl: ColumnDecl) -> Self {
        Column {
            decl,
            values: match decl.kind {
                ColumnKind::Int => Gathered::Int(Vec::new()),
                ColumnKind::Float => Gathered::Float(Vec::new()),
                ColumnKind::Text => Gathered::Text(Words::default()),
                ColumnKind::Flag => Gathered::Flag(Vec::new()),
            },
            levels: Vec::new(),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        if self.decl.is_optional {
            self.levels.push(i16::from(cell != Cell::Empty));
        }
        match (&mut self.values, cell) {
            (Gathered::Int(values), Cell::Int(n)) => values.push(n),
            (Gathered::Float(values), Cell::Float(x)) => values.push(x),
            // Variables with and without fractions share a column. Only text formats need the
            // difference: they print all digits of a whole number.
            (Gathered::Float(values), Cell::Int(n)) => values.push(n as f64),
            (Gathered::Flag(values), Cell::Flag(b)) => values.push(b),
            (Gathered::Text(words), Cell::Text(word)) => words.push(word),
            (_, Cell::Empty) => {
                assert!(
                    self.decl.is_optional,
                    "a column that is not optional has no empty cell"
                );
            }
            _ => panic!("a cell has the kind of its column"),
        }
    }

    /// Writes the collected values and clears them.
    fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let levels = self.decl.is_optional.then_some(self.levels.as_slice());
        let mut column = group
            .next_column()?
            .expect("a row group has all columns of the schema");
        match &mut self.values {
            Gathered::Int(values) => {
                let writer = column.typed::<Int64Type>();
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            Gathered::Float(values) => {
                let writer = column.typed::<DoubleType>();
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            Gathered::Text(words) => words.write(column.typed::<ByteArrayType>(), levels)?,
            Gathered::Flag(values) => {
                let writer = column.typed::<BoolType>();
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
        }
        self.levels.clear();
        column.close()
    }
}

/// The words of a column: each is stored once and referred to by its number.
#[derive(Default)]
struct Words {
    known: Vec<ByteArray>,
    numbers: BTreeMap<String, u32>,
    gathered: Vec<u32>,
    /// The previous word, which is often repeated.
    last: Option<u32>,
}

impl Words {
    fn push(&mut self, word: &str) {
        let is_last = |n: &u32| self.known[*n as usize].data() == word.as_bytes();
        let number = self.last.filter(is_last).unwrap_or_else(|| {
            self.numbers.get(word).copied().unwrap_or_else(|| {
                let number = self.known.len() as u32;
                self.known.push(ByteArray::from(word));
                self.numbers.insert(word.to_owned(), number);
                number
            })
        });
        self.last = Some(number);
        self.gathered.push(number);
    }

    /// Writes the collected words piece by piece and clears them.
    fn write(
        &mut self,
        column: &mut ColumnWriterImpl<'_, ByteArrayType>,
        levels: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        // A piece resembles the one before it, so only the differing words are replaced.
        let mut numbers: Vec<u32> = Vec::with_capacity(PIECE);
        let mut words: Vec<ByteArray> = Vec::with_capacity(PIECE);
        let mut put = |piece: &[u32], levels: Option<&[i16]>| {
            for (place, number) in piece.iter().enumerate() {
                let word = &self.known[*number as usize];
                if place == numbers.len() {
                    numbers.push(*number);
                    words.push(word.clone());
                } else if numbers[place] != *number {
                    numbers[place] = *number;
                    words[place] = word.clone();
                }
            }
            column.write_batch(&words[..piece.len()], levels, None)
        };
        match levels {
            None => {
                for piece in self.gathered.chunks(PIECE) {
                    put(piece, None)?;
                }
            }
            Some(levels) => {
                let mut left = self.gathered.as_slice();
                for levels in levels.chunks(PIECE) {
                    let present = levels.iter().filter(|level| **level == 1).count();
                    let (piece, rest) = left.split_at(present);
                    put(piece, Some(levels))?;
                    left = rest;
                }
            }
        }
        self.gathered.clear();
        Ok(())
    }
}

/// The number of words in a piece.
const PIECE: usize = 1024;

/// Writes rows of cells.
pub struct CellWriter<W: io::Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
}

impl<W: io::Write + Send> CellWriter<W> {
    /// Creates the table called `table` in `out`.
    pub fn new(out: W, table: &str, columns: Vec<ColumnDecl>) -> Result<Self, ParquetError> {
        let properties = Arc::new(properties(&columns));
        Ok(CellWriter {
            file: SerializedFileWriter::new(out, schema(table, &columns)?, properties)?,
            columns: columns.into_iter().map(Column::new).collect(),
            rows: 0,
        })
    }

    /// Appends a row: `cells` supplies a cell for each column, in their order.
    pub fn row(
        &mut self,
        cells: impl FnOnce(&mut dyn FnMut(Cell<'_>)),
    ) -> Result<(), ParquetError> {
        let mut columns = self.columns.iter_mut();
        cells(&mut |cell| {
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

    /// Returns the inner writer.
    pub fn inner(&self) -> &W {
        self.file.inner()
    }

    /// Writes the remaining rows and the table's footer, and returns the inner writer.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.flush()?;
        self.file.into_inner()
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

pub(super) fn physical(kind: ColumnKind) -> (Physical, Option<LogicalType>) {
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
        .set_compression(Compression::SNAPPY)
        // The smallest and the largest value of a row group let a reader skip it.
        .set_statistics_enabled(EnabledStatistics::Chunk);
    // Times and sequence numbers are all different, and the other columns are nearly constant: a
    // dictionary would be a waste. Differences of neighbours are small and leave little to
    // compress.
    let is_even = |name: &str| {
        matches!(
            name,
            "seq" | "segments" | "ecn" | "class" | "packet" | "probe"
        )
    };
    for decl in columns
        .iter()
        .filter(|d| d.kind == ColumnKind::Int && (is_even(d.name) || d.name.ends_with("_ns")))
    {
        let path = ColumnPath::from(decl.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}
