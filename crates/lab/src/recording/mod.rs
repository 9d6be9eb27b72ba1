//! The folder of a run.
//!
//! | file | rows |
//! |---|---|
//! | `run.json` | the resolved scenario, seed, versions, host, kernel, how it ended, checksums of the tables |
//! | `packets.parquet` | one per packet and pipe: [`PacketRow`] |
//! | `flows.parquet` | one per flow and interval: [`FlowSample`] |
//! | `queues.parquet` | one per variable of a queue and interval or change: [`QueueSample`] |
//! | `pings.parquet` | one per probe: [`PingSample`] |
//! | `transfers.parquet` | one per complete transfer: [`Transfer`] |
//! | `releases.parquet` | one per packet that a live router sent on: [`Release`] |
//! | `arrivals.parquet` | one per packet that a live router queued: [`Arrival`] |
//! | `summary.json` | the run in figures: [`crate::metrics::Summary`] |
//! | `report.html` | pictures |
//!
//! A file bears its name only when it is whole. run.json is the first to be written, with the status
//! `running`, and the last, with `complete` or `partial`.

mod cell;
mod cells;
mod checksum;
mod reader;
mod reference;
mod rows;
mod run_file;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use cell::{Cell, Row};
pub use cell::{ColumnDecl, ColumnKind};
pub(crate) use cells::CellWriter;
pub use checksum::{Checksum, program};
pub use reader::{ReadError, Recording};
pub use reference::reference;
pub use rows::{
    Arrival, BACKLOG_BYTES, BACKLOG_PACKETS, FlowSample, NO_FLOW, PacketRow, PingSample,
    QueueSample, Release, Transfer,
};
pub use run_file::{Environment, FlowEntry, Process, RunFile, Status};
pub use table::Rows;
pub use writer::{End, RecordError, RunWriter, settle_abandoned};

/// The name of the summary in a run's folder.
pub(crate) const SUMMARY_JSON: &str = "summary.json";
