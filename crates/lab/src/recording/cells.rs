//! Rows of cells to Parquet, whatever is written to.
//!
//! Rows are gathered and written as row groups of [`GROUP_ROWS`], so that memory stays bounded
//! however many there are.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::cell::{Cell, ColumnDecl, ColumnKind};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

/// Rows that are gathered before they are written.
pub(crate) const GROUP_ROWS: usize = 1 << 16;

/// The values of a column, gathered for a row group.
pub(super) enum Values {
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
    /// The last one, which often comes again.
    last_word: ByteArray,
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
            last_word: ByteArray::from(""),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        if self.decl.is_optional {
            self.levels.push(i16::from(cell != Cell::Empty));
        }
        match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(n)) => values.push(n),
            (Values::Float(values), Cell::Float(x)) => values.push(x),
            // A column of variables that are whole or not; as text, whole ones keep all digits.
            (Values::Float(values), Cell::Int(n)) => values.push(n as f64),
            (Values::Flag(values), Cell::Flag(b)) => values.push(b),
            (Values::Text(values), Cell::Text(word)) => {
                if self.last_word.data() != word.as_bytes() {
                    if !self.words.contains_key(word) {
                        self.words.insert(word.to_owned(), ByteArray::from(word));
                    }
                    self.last_word = self.words[word].clone();
                }
                values.push(self.last_word.clone());
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

/// Writes rows of cells.
pub(crate) struct CellWriter<W: io::Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
}

impl<W: io::Write + Send> CellWriter<W> {
    /// Begins the table called `table` in `out`.
    pub fn new(out: W, table: &str, columns: Vec<ColumnDecl>) -> Result<Self, ParquetError> {
        let properties = Arc::new(properties(&columns));
        Ok(CellWriter {
            file: SerializedFileWriter::new(out, schema(table, &columns)?, properties)?,
            columns: columns.into_iter().map(Column::new).collect(),
            rows: 0,
        })
    }

    /// Appends a row: `cells` gives a cell for each column, in their order.
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

    /// What is written to.
    pub fn inner(&self) -> &W {
        self.file.inner()
    }

    /// Writes what is left and the end of the table, and gives back what was written to.
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
        // Least and greatest value of a row group tell a reader whether to look into it.
        .set_statistics_enabled(EnabledStatistics::Chunk);
    // Times and sequence numbers are all different: a dictionary of them is waste, differences of
    // neighbours are small, and there is little left to compress in them.
    for decl in columns
        .iter()
        .filter(|d| d.name == "seq" || d.name.ends_with("_ns"))
    {
        let path = ColumnPath::from(decl.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}
