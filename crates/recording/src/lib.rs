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
//! | `summary.json` | the run in figures: [`sluice_scenario::metric::Summary`] |
//! | `report.html` | pictures |
//!
//! A file bears its name only when it is whole. run.json is the first to be written, with the status
//! `running`, and the last, with `complete` or `partial`.

mod cell;
mod cells;
mod checksum;
pub mod expect;
pub mod figures;
pub mod metrics;
mod pages;
pub mod part;
mod reader;
mod reference;
pub mod results;
mod rows;
mod run_file;
pub mod runs;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub use cell::{Cell, ColumnDecl, ColumnKind, Row};
pub use cells::CellWriter;
pub use checksum::{Checksum, program};
pub use pages::{Pages, PagesError};
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
pub const SUMMARY_JSON: &str = "summary.json";

/// The name of the page in a run's folder, and in that of all runs of a scenario.
pub const PAGE: &str = "report.html";
