//! The folder of a run.
//!
//! | file | content |
//! |---|---|
//! | `run.json` | the resolved scenario, seed, versions, host, kernel, how it ended, checksums of the tables |
//! | `packets.parquet` | one per packet and pipe: [`PacketRow`] |
//! | `headers.parquet` | one per segment or echo message that a simulated host sent: [`Header`] |
//! | `flows.parquet` | one per flow and interval: [`FlowSample`] |
//! | `queues.parquet` | one per variable of a queue and interval or change: [`QueueSample`] |
//! | `pings.parquet` | one per probe: [`PingSample`] |
//! | `transfers.parquet` | one per complete transfer, and per page that was open at the end: [`Transfer`] |
//! | `releases.parquet` | one per packet that a live router sent: [`Release`] |
//! | `arrivals.parquet` | one per packet that a live router queued: [`Arrival`] |
//! | `summary.json` | the figures of the run: [`sluice_scenario::metric::Summary`] |
//! | `report.html` | the charts of the run |
//!
//! A file has its name only when it is complete. run.json is written first with the status
//! `running`, and last with `complete` or `partial`.

mod cell;
mod cells;
mod checksum;
mod chunk;
mod columns;
pub mod csv;
mod dictionary;
mod encoder;
mod error;
pub mod expect;
pub mod figures;
mod files;
mod folder;
#[cfg(test)]
mod fuzz;
pub mod headers;
mod identity;
mod keep;
mod kept;
mod lock;
mod memory;
pub mod metrics;
mod outdated;
mod pages;
pub mod part;
mod passages;
mod pieces;
mod program;
mod reader;
mod reference;
mod repetitions;
pub mod results;
mod rows;
mod run_file;
pub mod runs;
mod seal;
mod table;
mod tables;
pub mod testing;
#[cfg(test)]
mod tests;
mod unfinished;
mod writer;

pub use cell::{Cell, ColumnDecl, ColumnKind, Row};
pub use cells::CellWriter;
pub use checksum::Checksum;
pub use error::{ReadError, RecordError};
pub use files::read_text;
pub use identity::{identity_of, program, set_program};
pub use keep::Keep;
pub use lock::FolderLock;
pub use outdated::{
    missing_in_words, missing_runs, other_repetitions, outdated_in_words, outdated_runs,
    repetitions_in_words, take_outdated,
};
pub use pages::{Pages, PagesError};
pub use passages::Passage;
pub use program::{ProgramEntry, ProgramRecord};
pub use reader::{Recording, if_recorded};
pub use reference::reference;
pub use repetitions::repetitions;
pub use rows::{
    Arrival, BACKLOG_BYTES, BACKLOG_PACKETS, FlowSample, Header, NO_FLOW, PacketRow, PingSample,
    QueueSample, Release, Transfer,
};
pub use run_file::{
    Environment, FlowEntry, PROGRAM_ENDS, Process, RUN_JSON, RunFile, Status, algorithms_of,
};
pub use table::Rows;
pub use unfinished::{Unfinished, take_unfinished};
pub use writer::{End, RunWriter, settle_abandoned};

/// The name of the summary in a run's folder.
pub const SUMMARY_JSON: &str = "summary.json";

/// The name of the page in a run's folder, and in the folder of all runs of a scenario.
pub const PAGE: &str = "report.html";
