//! Rows of any table of a recording, collected to be encoded a piece at a time.

use super::cell::Row;
use super::columns::GROUP_ROWS;
use super::error::RecordError;
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, Transfer,
};
use super::table::TableFile;

macro_rules! pieces {
    ($($row:ident,)+) => {
        /// Rows of one of the tables.
        #[derive(Debug)]
        pub(crate) enum Piece { $($row(Vec<$row>),)+ }

        impl Piece {
            /// Creates a piece without rows of the table called `table`.
            pub fn of_table(table: &str) -> Piece {
                $(if table == $row::TABLE {
                    return Piece::$row(Vec::new());
                })+
                unreachable!("every table has rows, `{table}` too")
            }

            /// Returns the bytes that the rows take.
            pub fn bytes(&self) -> usize {
                match self { $(Piece::$row(rows) => size_of_val(rows.as_slice()),)+ }
            }

            /// Removes all rows.
            pub fn clear(&mut self) {
                match self { $(Piece::$row(rows) => rows.clear(),)+ }
            }

            /// Creates room for as many rows of the same table.
            pub fn like(&self) -> Piece {
                match self {
                    $(Piece::$row(rows) => Piece::$row(Vec::with_capacity(rows.len())),)+
                }
            }

            /// Adds the rows to the file of their table.
            pub fn write(&self, file: &mut TableFile) -> Result<(), RecordError> {
                match self { $(Piece::$row(rows) => file.add(rows),)+ }
            }
        }

        $(impl Collected for $row {
            #[inline]
            fn among(piece: &Piece) -> &Vec<Self> {
                match piece {
                    Piece::$row(rows) => rows,
                    _ => unreachable!("a table has rows of one kind"),
                }
            }

            #[inline]
            fn among_mut(piece: &mut Piece) -> &mut Vec<Self> {
                match piece {
                    Piece::$row(rows) => rows,
                    _ => unreachable!("a table has rows of one kind"),
                }
            }
        })+
    };
}

pieces! {
    PacketRow,
    Header,
    FlowSample,
    QueueSample,
    PingSample,
    Transfer,
    Release,
    Arrival,
}

/// The rows of a piece: few enough that they are still in a processor's cache when they are encoded, on
/// another core as well, and that a run uses little memory for them. A row group has whole pieces.
pub(crate) const PIECE_ROWS: usize = 1 << 12;

const _: () = assert!(GROUP_ROWS.is_multiple_of(PIECE_ROWS));

/// A row of one of the tables of a recording.
pub(crate) trait Collected: Row + Clone + Send + Sync + 'static {
    /// Returns the rows of `piece`, which are of this table.
    fn among(piece: &Piece) -> &Vec<Self>;

    /// Returns the rows of `piece`, which are of this table, to add more.
    fn among_mut(piece: &mut Piece) -> &mut Vec<Self>;
}
