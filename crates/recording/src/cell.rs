//! The content of a recording's tables: rows of cells, declared once as the fields of a struct.

use std::borrow::Cow;

use sluice_core::{Span, Time};

use sluice_scenario::PipeId;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A 64-bit whole number.
    Int,
    /// A 64-bit floating-point number.
    Float,
    /// A word.
    Text,
    /// True or false.
    Flag,
}

/// The declaration of a column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnDecl {
    /// Name, with the unit where it has one.
    pub name: &'static str,
    /// Type.
    pub kind: ColumnKind,
    /// Whether cells may be empty.
    pub is_optional: bool,
    /// Meaning.
    pub doc: &'static str,
}

impl ColumnDecl {
    /// Returns whether the file has the smallest and the largest value of the column in each row
    /// group, which let a reader skip the group. For columns with the same range in all groups, that
    /// would only take the time to find them.
    pub(crate) fn is_searched(&self) -> bool {
        self.name.ends_with("_ns") || matches!(self.name, "seq" | "packet" | "flow")
    }

    /// Returns whether the column is stored as differences. Times and sequence numbers are all
    /// different, and some other columns are nearly constant: a dictionary would be a waste.
    /// Differences of neighbours are small and leave little to compress.
    pub(crate) fn has_differences(&self) -> bool {
        let is_even = matches!(
            self.name,
            "seq" | "segments" | "ecn" | "class" | "packet" | "probe"
        );
        self.kind == ColumnKind::Int && (is_even || self.name.ends_with("_ns"))
    }
}

/// The value of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Int(i64),
    Float(f64),
    Text(&'a str),
    Flag(bool),
    Empty,
}

impl Cell<'_> {
    /// A whole number. Parquet's are signed; half of the range of u64 is 292 years in nanoseconds
    /// and 8 EiB.
    #[inline]
    pub fn whole(n: u64) -> Self {
        Cell::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Returns the number of a cell in a column of whole numbers; `None` if it is empty.
    #[inline(always)]
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Cell::Int(n) => Some(*n),
            Cell::Empty => None,
            _ => panic!("a cell has the kind of its column, whole numbers, not {self:?}"),
        }
    }
}

/// A row of a table.
pub trait Row: Sized {
    /// The name of the table.
    const TABLE: &'static str;

    /// The columns, in order.
    fn columns() -> Vec<ColumnDecl>;

    /// Returns the cell in a column, from 0. If that is a constant, nothing else is computed.
    ///
    /// # Panics
    /// There is no such column.
    fn cell(&self, column: usize) -> Cell<'_>;

    /// Passes on the cells in the order of the columns.
    fn write(&self, cell: impl FnMut(Cell<'_>));

    /// Creates a row from its cells, in the order of the columns, or returns the column with an
    /// invalid value.
    fn read(cells: &[Cell<'_>]) -> Result<Self, usize>;
}

/// A type that a cell can hold.
pub trait CellType: Sized {
    const KIND: ColumnKind;
    const IS_OPTIONAL: bool = false;
    fn to_cell(&self) -> Cell<'_>;
    fn from_cell(cell: Cell<'_>) -> Option<Self>;
}

macro_rules! whole_number {
    ($($type:ty),+) => {$(
        impl CellType for $type {
            const KIND: ColumnKind = ColumnKind::Int;
            #[inline]
            fn to_cell(&self) -> Cell<'_> {
                Cell::whole(u64::from(*self))
            }
            fn from_cell(cell: Cell<'_>) -> Option<Self> {
                match cell {
                    Cell::Int(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}

whole_number!(u16, u32, u64);

impl CellType for i64 {
    const KIND: ColumnKind = ColumnKind::Int;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::Int(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Int(n) => Some(n),
            _ => None,
        }
    }
}

impl CellType for Time {
    const KIND: ColumnKind = ColumnKind::Int;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::whole(self.as_ns())
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell).map(Time::from_ns)
    }
}

impl CellType for Span {
    const KIND: ColumnKind = ColumnKind::Int;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::whole(self.as_ns())
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell).map(Span::from_ns)
    }
}

impl CellType for f64 {
    const KIND: ColumnKind = ColumnKind::Float;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::Float(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Float(x) => Some(x),
            _ => None,
        }
    }
}

impl CellType for bool {
    const KIND: ColumnKind = ColumnKind::Flag;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::Flag(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Flag(b) => Some(b),
            _ => None,
        }
    }
}

impl CellType for PipeId {
    const KIND: ColumnKind = ColumnKind::Text;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::Text(self.word())
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Text(word) => PipeId::from_word(word),
            _ => None,
        }
    }
}

impl CellType for Cow<'static, str> {
    const KIND: ColumnKind = ColumnKind::Text;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        Cell::Text(self)
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Text(word) => Some(Cow::Owned(word.to_owned())),
            _ => None,
        }
    }
}

impl<T: CellType> CellType for Option<T> {
    const KIND: ColumnKind = T::KIND;
    const IS_OPTIONAL: bool = true;
    #[inline]
    fn to_cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Empty, T::to_cell)
    }
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Empty => Some(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

/// Declares a struct whose fields are the columns of a table.
macro_rules! table {
    ($(#[$meta:meta])* pub struct $name:ident = $table:literal {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $column:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl $crate::cell::Row for $name {
            const TABLE: &'static str = $table;

            fn columns() -> Vec<$crate::cell::ColumnDecl> {
                use $crate::cell::{CellType, ColumnDecl};
                vec![$(ColumnDecl {
                    name: $column,
                    kind: <$type as CellType>::KIND,
                    is_optional: <$type as CellType>::IS_OPTIONAL,
                    doc: concat!($($doc),+).trim_ascii(),
                },)+]
            }

            #[inline(always)]
            fn cell(&self, column: usize) -> $crate::cell::Cell<'_> {
                let mut left = column;
                $(
                    if left == 0 {
                        return $crate::cell::CellType::to_cell(&self.$field);
                    }
                    left = left.wrapping_sub(1);
                )+
                panic!("no column {column}: {left} too far")
            }

            #[inline]
            fn write(&self, mut cell: impl FnMut($crate::cell::Cell<'_>)) {
                $(cell($crate::cell::CellType::to_cell(&self.$field));)+
            }

            fn read(cells: &[$crate::cell::Cell<'_>]) -> Result<Self, usize> {
                let mut cells = cells.iter().copied().enumerate();
                $(
                    let (column, cell) = cells.next().expect("a row has a cell for each column");
                    let $field = <$type as $crate::cell::CellType>::from_cell(cell)
                        .ok_or(column)?;
                )+
                Ok($name { $($field,)+ })
            }
        }
    };
}

pub(crate) use table;
