//! Rows of any table of a recording, collected to be written as a row group.

use super::cell::Row;
use super::error::RecordError;
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, Transfer,
};
use super::table::TableFile;

macro_rules! row_groups {
    ($($row:ident,)+) => {
        /// Rows of one of the tables.
        #[derive(Debug)]
        pub(crate) enum RowGroup { $($row(Vec<$row>),)+ }

        impl RowGroup {
            /// Creates a group without rows of the table called `table`.
            pub fn of_table(table: &str) -> RowGroup {
                $(if table == $row::TABLE {
                    return RowGroup::$row(Vec::new());
                })+
                unreachable!("every table has rows, `{table}` too")
            }

            /// Returns the bytes that the rows take.
            pub fn bytes(&self) -> usize {
                match self { $(RowGroup::$row(rows) => size_of_val(rows.as_slice()),)+ }
            }

            /// Removes all rows.
            pub fn clear(&mut self) {
                match self { $(RowGroup::$row(rows) => rows.clear(),)+ }
            }

            /// Creates room for as many rows of the same table.
            pub fn like(&self) -> RowGroup {
                match self {
                    $(RowGroup::$row(rows) => RowGroup::$row(Vec::with_capacity(rows.len())),)+
                }
            }

            /// Writes the rows to the file of their table.
            pub fn write(&self, file: &mut TableFile) -> Result<(), RecordError> {
                match self { $(RowGroup::$row(rows) => file.write(rows),)+ }
            }
        }

        $(impl Collected for $row {
            #[inline]
            fn among(group: &RowGroup) -> &Vec<Self> {
                match group {
                    RowGroup::$row(rows) => rows,
                    _ => unreachable!("a table has rows of one kind"),
                }
            }

            #[inline]
            fn among_mut(group: &mut RowGroup) -> &mut Vec<Self> {
                match group {
                    RowGroup::$row(rows) => rows,
                    _ => unreachable!("a table has rows of one kind"),
                }
            }
        })+
    };
}

row_groups! {
    PacketRow,
    Header,
    FlowSample,
    QueueSample,
    PingSample,
    Transfer,
    Release,
    Arrival,
}

/// A row of one of the tables of a recording.
pub(crate) trait Collected: Row + Clone + Send + Sync + 'static {
    /// Returns the rows of `group`, which are of this table.
    fn among(group: &RowGroup) -> &Vec<Self>;

    /// Returns the rows of `group`, which are of this table, to add more.
    fn among_mut(group: &mut RowGroup) -> &mut Vec<Self>;
}
