//! Collects rows of cells by columns, until they are written as a row group.

use std::collections::BTreeMap;
use std::io;

use super::cell::{Cell, ColumnDecl, ColumnKind, Row};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;

/// The columns of a row group that is being collected.
pub(super) struct Columns {
    columns: Vec<Column>,
    rows: usize,
}

impl Columns {
    /// Creates empty columns.
    pub fn new(columns: Vec<ColumnDecl>) -> Columns {
        Columns {
            columns: columns.into_iter().map(Column::new).collect(),
            rows: 0,
        }
    }

    /// Creates empty columns with the same declarations.
    pub fn like(&self) -> Columns {
        Columns::new(self.columns.iter().map(|column| column.decl).collect())
    }

    /// Appends a row.
    #[inline]
    pub fn push<R: Row>(&mut self, row: &R) {
        let mut columns = self.columns.iter_mut();
        row.write(|cell| columns.next().expect(A_CELL_EACH).push(cell));
        self.rows += 1;
    }

    /// Appends a row of cells: `cells` passes on a cell for each column, in their order.
    pub fn push_cells(&mut self, cells: impl FnOnce(&mut dyn FnMut(Cell<'_>))) {
        let mut columns = self.columns.iter_mut();
        cells(&mut |cell| columns.next().expect(A_CELL_EACH).push(cell));
        self.rows += 1;
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Column::clear);
        self.rows = 0;
    }

    /// Encodes the columns as the row group `group` and clears them.
    pub fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        for column in &mut self.columns {
            column.write(group)?;
        }
        self.rows = 0;
        Ok(())
    }
}

const A_CELL_EACH: &str = "a row has a cell for each column";

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

    /// Appends a cell.
    #[inline(always)]
    fn push(&mut self, cell: Cell<'_>) {
        match (&mut self.values, cell) {
            (Gathered::Int(values), Cell::Int(n)) => values.push(n),
            (Gathered::Float(values), Cell::Float(x)) => values.push(x),
            // Variables with and without fractions share a column. Only text formats need the
            // difference: they print all digits of a whole number.
            (Gathered::Float(values), Cell::Int(n)) => values.push(n as f64),
            (Gathered::Flag(values), Cell::Flag(b)) => values.push(b),
            (Gathered::Text(words), Cell::Text(word)) => words.push(word),
            (_, Cell::Empty) if self.decl.is_optional => {}
            _ => self.refuse(cell),
        }
        if self.decl.is_optional {
            self.levels.push(i16::from(!matches!(cell, Cell::Empty)));
        }
    }

    #[cold]
    fn refuse(&self, cell: Cell<'_>) -> ! {
        panic!(
            "a cell has the kind of its column, {:?}, not {cell:?}",
            self.decl
        )
    }

    fn clear(&mut self) {
        match &mut self.values {
            Gathered::Int(values) => values.clear(),
            Gathered::Float(values) => values.clear(),
            Gathered::Text(words) => words.gathered.clear(),
            Gathered::Flag(values) => values.clear(),
        }
        self.levels.clear();
    }

    /// Encodes the collected values and clears them.
    fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let levels = self.decl.is_optional.then_some(self.levels.as_slice());
        let mut column = group
            .next_column()?
            .expect("a row group has all columns of the schema");
        match &self.values {
            Gathered::Int(values) => {
                let writer = column.typed::<Int64Type>();
                writer.write_batch(values, levels, None)?;
            }
            Gathered::Float(values) => {
                let writer = column.typed::<DoubleType>();
                writer.write_batch(values, levels, None)?;
            }
            Gathered::Text(words) => words.write(column.typed::<ByteArrayType>(), levels)?,
            Gathered::Flag(values) => {
                let writer = column.typed::<BoolType>();
                writer.write_batch(values, levels, None)?;
            }
        }
        self.clear();
        column.close()
    }
}

/// The words of a column: each is stored once and referred to by its number.
#[derive(Default)]
struct Words {
    known: Vec<ByteArray>,
    numbers: BTreeMap<String, u32>,
    gathered: Vec<u32>,
    /// The previous word, which is often repeated, and its number.
    last_word: String,
    last: u32,
}

impl Words {
    #[inline]
    fn push(&mut self, word: &str) {
        if self.last_word != word || self.known.is_empty() {
            self.change(word);
        }
        self.gathered.push(self.last);
    }

    /// Makes `word` the previous one.
    #[inline(never)]
    fn change(&mut self, word: &str) {
        self.last = self.numbers.get(word).copied().unwrap_or_else(|| {
            let number = self.known.len() as u32;
            self.known.push(ByteArray::from(word));
            self.numbers.insert(word.to_owned(), number);
            number
        });
        word.clone_into(&mut self.last_word);
    }

    /// Writes the collected words piece by piece.
    fn write(
        &self,
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
        Ok(())
    }
}

/// The number of words in a piece.
const PIECE: usize = 1024;
