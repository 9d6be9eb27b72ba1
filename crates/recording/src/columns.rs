//! Collects rows of cells by columns, until they are written as a row group.

use std::collections::BTreeMap;
use std::io;

use super::cell::{Cell, ColumnDecl, ColumnKind, Row};
use super::dictionary::{Chunk, MOST_VALUES, Numbering};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::ColumnDescPtr;

/// The number of rows in a row group.
pub const GROUP_ROWS: usize = 1 << 16;

/// The columns of a row group that is being collected.
pub(super) struct Columns {
    columns: Vec<Column>,
    rows: usize,
    numbering: Numbering,
}

impl Columns {
    /// Creates empty columns.
    pub fn new(columns: Vec<ColumnDecl>) -> Columns {
        Columns {
            columns: columns.into_iter().map(Column::new).collect(),
            rows: 0,
            numbering: Numbering::default(),
        }
    }

    /// Appends rows. Each column takes the cells of a block of rows in a loop of its own, in which
    /// the kind of the cell is known: that costs a fraction of going through the columns row by row.
    pub fn extend<R: Row>(&mut self, rows: &[R]) {
        for column in &mut self.columns {
            column.make_room(rows.len());
        }
        for block in rows.chunks(BLOCK) {
            for (place, column) in self.columns.iter_mut().enumerate() {
                column.extend_at(block, place);
            }
        }
        self.rows += rows.len();
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

    /// Encodes the columns, which the file describes as `described`, as the row group `group` and
    /// clears them.
    pub fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        described: &[ColumnDescPtr],
    ) -> Result<(), ParquetError> {
        for (column, described) in self.columns.iter_mut().zip(described) {
            column.write(group, described, &mut self.numbering)?;
        }
        self.rows = 0;
        Ok(())
    }
}

const A_CELL_EACH: &str = "a row has a cell for each column";

/// Rows whose columns are taken together: few enough to stay in the cache meanwhile.
const BLOCK: usize = 512;

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

    /// Makes room for `more` rows; if there are some already, for a row group, whose memory would
    /// otherwise be copied again and again while it grows.
    fn make_room(&mut self, more: usize) {
        fn reserve<T>(values: &mut Vec<T>, more: usize) {
            if values.capacity() - values.len() < more {
                let group = GROUP_ROWS.saturating_sub(values.len());
                let more = if values.is_empty() {
                    more
                } else {
                    group.max(more)
                };
                values.reserve_exact(more);
            }
        }
        match &mut self.values {
            Gathered::Int(values) => reserve(values, more),
            Gathered::Float(values) => reserve(values, more),
            Gathered::Text(words) => reserve(&mut words.gathered, more),
            Gathered::Flag(values) => reserve(values, more),
        }
        if self.decl.is_optional {
            reserve(&mut self.levels, more);
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

    /// Appends the cells of `rows` in the column at `place`.
    fn extend_at<R: Row>(&mut self, rows: &[R], place: usize) {
        macro_rules! of_place {
            ($($n:literal)+) => {
                match place {
                    $($n => self.extend::<R, $n>(rows),)+
                    _ => unreachable!("no table has more columns"),
                }
            };
        }
        of_place!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }

    /// Appends the cells of `rows` in the column at `N`.
    fn extend<R: Row, const N: usize>(&mut self, rows: &[R]) {
        match (&mut self.values, self.decl.is_optional) {
            (Gathered::Int(values), false) => {
                let value = |row: &R| row.cell(N).as_int().expect(A_CELL_EACH);
                values.extend(rows.iter().map(value));
            }
            (Gathered::Int(values), true) => {
                let value = |row: &R| row.cell(N).as_int();
                values.extend(rows.iter().filter_map(value));
                let level = |row: &R| i16::from(value(row).is_some());
                self.levels.extend(rows.iter().map(level));
            }
            _ => rows.iter().for_each(|row| self.push(row.cell(N))),
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
            Gathered::Text(words) => words.clear(),
            Gathered::Flag(values) => values.clear(),
        }
        self.levels.clear();
    }

    /// Encodes the collected values and clears them.
    fn write<W: io::Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        described: &ColumnDescPtr,
        numbering: &mut Numbering,
    ) -> Result<(), ParquetError> {
        let levels = self.decl.is_optional.then_some(self.levels.as_slice());
        let chunk = match &self.values {
            Gathered::Int(values) if !self.decl.has_differences() => {
                numbering.chunk(values, levels, self.decl.is_searched())
            }
            Gathered::Text(words) => words.chunk(levels),
            _ => None,
        };
        if let Some(chunk) = chunk {
            let (bytes, closed) = chunk.encode(described.clone())?;
            group.append_column(&bytes, closed)?;
            self.clear();
            return Ok(());
        }
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
            Gathered::Text(words) => {
                let writer = column.typed::<ByteArrayType>();
                writer.write_batch(&words.all(), levels, None)?;
            }
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
    /// The number of the previous word, which is often repeated.
    last: u32,
}

impl Words {
    #[inline]
    fn push(&mut self, word: &str) {
        let last = self.known.get(self.last as usize);
        if last.is_none_or(|last| last.data() != word.as_bytes()) {
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
    }

    /// Returns the column chunk of the words; `None` if too many are different.
    fn chunk<'a>(&'a self, levels: Option<&'a [i16]>) -> Option<Chunk<'a>> {
        if self.known.len() > MOST_VALUES {
            return None;
        }
        let mut values = Vec::new();
        for word in &self.known {
            values.extend((word.len() as u32).to_le_bytes());
            values.extend(word.data());
        }
        Some(Chunk {
            values: values.into(),
            count: self.known.len(),
            numbers: &self.gathered,
            levels,
            statistics: None,
        })
    }

    /// Returns all words.
    fn all(&self) -> Vec<ByteArray> {
        let word = |number: &u32| self.known[*number as usize].clone();
        self.gathered.iter().map(word).collect()
    }

    fn clear(&mut self) {
        *self = Words {
            gathered: std::mem::take(&mut self.gathered),
            ..Words::default()
        };
        self.gathered.clear();
    }
}
