//! Writes rows of cells as Parquet to any writer.
//!
//! Rows are collected and written as row groups of [`GROUP_ROWS`], so that memory stays bounded for
//! any number of rows.

use std::io;
use std::sync::Arc;

use super::cell::{Cell, ColumnDecl, ColumnKind};
use super::columns::{Columns, GROUP_ROWS};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, ColumnPath, Type};

/// The values of a column that was read.
pub(super) enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Flag(Vec<bool>),
}

/// Writes rows of cells.
pub struct CellWriter<W: io::Write + Send> {
    file: GroupWriter<W>,
    columns: Columns,
}

impl<W: io::Write + Send> CellWriter<W> {
    /// Creates the table called `table` in `out`.
    pub fn new(out: W, table: &str, columns: Vec<ColumnDecl>) -> Result<Self, ParquetError> {
        Ok(CellWriter {
            file: GroupWriter::new(out, table, &columns)?,
            columns: Columns::new(columns),
        })
    }

    /// Appends a row: `cells` supplies a cell for each column, in their order.
    pub fn row(
        &mut self,
        cells: impl FnOnce(&mut dyn FnMut(Cell<'_>)),
    ) -> Result<(), ParquetError> {
        self.columns.push_cells(cells);
        if self.columns.rows() == GROUP_ROWS {
            self.file.write(&mut self.columns)?;
        }
        Ok(())
    }

    /// Returns the inner writer.
    pub fn inner(&self) -> &W {
        self.file.file.inner()
    }

    /// Writes the remaining rows and the table's footer, and returns the inner writer.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.file.write(&mut self.columns)?;
        self.file.finish()
    }
}

/// Writes row groups whose columns are collected elsewhere.
pub(super) struct GroupWriter<W: io::Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<ColumnDescPtr>,
}

impl<W: io::Write + Send> GroupWriter<W> {
    /// Creates the table called `table` in `out`.
    pub fn new(out: W, table: &str, columns: &[ColumnDecl]) -> Result<Self, ParquetError> {
        let properties = Arc::new(properties(columns));
        let file = SerializedFileWriter::new(out, schema(table, columns)?, properties)?;
        let columns = file.schema_descr().columns().to_vec();
        Ok(GroupWriter { file, columns })
    }

    /// Writes the collected rows as a row group, if there are any, and clears them.
    pub fn write(&mut self, columns: &mut Columns) -> Result<(), ParquetError> {
        if columns.rows() == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        columns.write(&mut group, &self.columns)?;
        group.close()?;
        Ok(())
    }

    /// Writes the table's footer, and returns the inner writer.
    pub fn finish(self) -> Result<W, ParquetError> {
        self.file.into_inner()
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
        .set_statistics_enabled(EnabledStatistics::None);
    for decl in columns {
        let path = ColumnPath::from(decl.name);
        if decl.is_searched() {
            properties =
                properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
        }
        if decl.has_differences() {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}
