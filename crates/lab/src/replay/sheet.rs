//! Rows to a file, whose ending says how: `.csv` or `.parquet`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use sluice_core::record;

use super::ReplayError;
use super::part::Part;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole number.
    Number,
    /// A whole or decimal number.
    Decimal,
    /// A word.
    Text,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    kind: Kind,
}

impl Column {
    pub(super) const fn new(name: &'static str, kind: Kind) -> Self {
        Column { name, kind }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Number(u64),
    Decimal(f64),
    Text(&'static str),
}

impl From<record::Cell> for Cell {
    fn from(cell: record::Cell) -> Self {
        match cell {
            record::Cell::Number(n) => Cell::Number(n),
            record::Cell::Text(word) => Cell::Text(word),
            record::Cell::Empty => Cell::Text(""),
        }
    }
}

/// A file of rows.
pub(super) struct Sheet {
    path: PathBuf,
    form: Form,
}

enum Form {
    Csv(Part),
    Parquet(Box<Table>),
}

impl Sheet {
    /// Begins a file with `columns`.
    pub(super) fn create(path: &Path, columns: &[Column]) -> Result<Self, ReplayError> {
        let fail = |error: Box<dyn std::error::Error + Send + Sync>| ReplayError::Write {
            path: path.to_owned(),
            error,
        };
        let form = match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => {
                let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
                let begin = || {
                    let mut part = Part::create(path)?;
                    writeln!(part, "{}", names.join(","))?;
                    Ok(part)
                };
                Form::Csv(begin().map_err(|error: std::io::Error| fail(error.into()))?)
            }
            Some("parquet") => {
                let table = Table::create(path, columns).map_err(|error| fail(error.into()))?;
                Form::Parquet(Box::new(table))
            }
            _ => {
                return Err(ReplayError::Ending {
                    path: path.to_owned(),
                    endings: &[".csv", ".parquet"],
                });
            }
        };
        Ok(Sheet {
            path: path.to_owned(),
            form,
        })
    }

    /// Appends a row; a cell for each column.
    pub(super) fn row(&mut self, cells: impl Iterator<Item = Cell>) -> Result<(), ReplayError> {
        let written = match &mut self.form {
            Form::Csv(part) => write_line(part, cells).map_err(Into::into),
            Form::Parquet(table) => table.row(cells).map_err(Into::into),
        };
        written.map_err(|error| self.fail(error))
    }

    /// Writes what is left and gives the file its name.
    pub(super) fn finish(self) -> Result<(), ReplayError> {
        let Sheet { path, form } = self;
        let finished = match form {
            Form::Csv(part) => part.finish().map_err(Into::into),
            Form::Parquet(table) => table.finish().map_err(Into::into),
        };
        finished.map_err(|error| ReplayError::Write { path, error })
    }

    fn fail(&self, error: Box<dyn std::error::Error + Send + Sync>) -> ReplayError {
        ReplayError::Write {
            path: self.path.clone(),
            error,
        }
    }
}

fn write_line(part: &mut Part, cells: impl Iterator<Item = Cell>) -> std::io::Result<()> {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            part.write_all(b",")?;
        }
        match cell {
            Cell::Number(n) => write!(part, "{n}")?,
            // The shortest text that reads back as the same number.
            Cell::Decimal(x) => write!(part, "{x}")?,
            Cell::Text(word) => part.write_all(word.as_bytes())?,
        }
    }
    part.write_all(b"\n")
}

/// A Parquet file, written in groups of rows so that memory stays bounded.
struct Table {
    file: SerializedFileWriter<Part>,
    columns: Vec<Gathered>,
    rows: usize,
}

/// The values of a column that are not written yet.
enum Gathered {
    Number(Vec<i64>),
    Decimal(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl Table {
    fn create(path: &Path, columns: &[Column]) -> Result<Self, ParquetError> {
        let fields = columns.iter().map(|column| {
            let (physical, logical) = match column.kind {
                Kind::Number => (Physical::INT64, None),
                Kind::Decimal => (Physical::DOUBLE, None),
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            };
            Type::primitive_type_builder(column.name, physical)
                .with_logical_type(logical)
                .with_repetition(Repetition::REQUIRED)
                .build()
                .map(Arc::new)
        });
        let schema = Type::group_type_builder("replay")
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("sluice ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY);
        // Times and sequence numbers are all different: a dictionary of them is waste, differences
        // of neighbours are small.
        for column in columns {
            if column.name == "seq" || column.name.ends_with("_ns") {
                let path = ColumnPath::from(column.name);
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let part = Part::create(path)?;
        let file = SerializedFileWriter::new(part, Arc::new(schema), Arc::new(properties.build()))?;
        let gathered = columns.iter().map(|column| match column.kind {
            Kind::Number => Gathered::Number(Vec::new()),
            Kind::Decimal => Gathered::Decimal(Vec::new()),
            Kind::Text => Gathered::Text(Vec::new()),
        });
        Ok(Table {
            file,
            columns: gathered.collect(),
            rows: 0,
        })
    }

    fn row(&mut self, cells: impl Iterator<Item = Cell>) -> Result<(), ParquetError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                // Times of a run end long before 2^63 ns.
                (Gathered::Number(values), Cell::Number(n)) => values.push(n as i64),
                (Gathered::Decimal(values), Cell::Number(n)) => values.push(n as f64),
                (Gathered::Decimal(values), Cell::Decimal(x)) => values.push(x),
                (Gathered::Text(values), Cell::Text(word)) => {
                    values.push(ByteArray::from(word.as_bytes().to_vec()));
                }
                _ => panic!("a cell has the kind of its column"),
            }
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for gathered in &mut self.columns {
            let mut column = group
                .next_column()?
                .expect("a row group has all columns of the schema");
            match gathered {
                Gathered::Number(values) => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(values, None, None)?;
                    values.clear();
                }
                Gathered::Decimal(values) => {
                    column
                        .typed::<DoubleType>()
                        .write_batch(values, None, None)?;
                    values.clear();
                }
                Gathered::Text(values) => {
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(values, None, None)?;
                    values.clear();
                }
            }
            column.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        self.flush()?;
        let part = self.file.into_inner()?;
        part.finish()?;
        Ok(())
    }
}

/// Rows that are gathered before they are written.
const GROUP: usize = 1 << 16;
