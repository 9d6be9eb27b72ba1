//! The laboratory: a scenario becomes a run, a run a recording, a recording figures and pictures.
//!
//! - [`scenario`]: an experiment as one TOML file, read into typed variants;
//! - [`run`]: carrying a variant out and recording it; [`reuse`] finds what has been run before;
//! - [`suite`]: many scenarios at once;
//! - [`live`]: the backend with real packets in namespaces of its own;
//! - [`simulated`]: the backend in virtual time;
//! - [`recording`]: the folder that a run writes, and reading it back;
//! - [`metrics`]: figures from a recording; [`figures`] and [`results`]: of several runs of a variant;
//! - [`expect`]: whether the figures are as expected;
//! - [`export`]: a recording in the formats of other tools;
//! - [`runs`]: all runs of a folder; [`compare`] says what differs between two, [`agreement`] how the
//!   simulator and real packets agree, [`index`] makes a page of them;
//! - [`table`]: the figures as text and as JSON;
//! - [`report`]: the page and the pictures, which [`report_of`] fills from recordings and [`pages`]
//!   writes;
//! - [`reproduction`]: a page of published figures beside ours;
//! - [`replay`]: a recorded trace of arrivals through one queue; [`replay_run`]: a live run's arrivals
//!   through the same queues;
//! - [`mod@bench`]: what the packet path does on this machine, beside what the kernel does.

pub mod agreement;
pub mod bench;
pub mod compare;
pub mod expect;
pub mod export;
pub mod figures;
pub mod index;
pub mod live;
pub mod metrics;
mod packet_rows;
pub mod pages;
mod part;
pub mod recording;
pub mod replay;
pub mod replay_run;
pub mod report;
pub mod report_of;
pub mod reproduction;
pub mod results;
pub mod reuse;
pub mod run;
pub mod runs;
pub mod scenario;
pub mod simulated;
pub mod suite;
pub mod table;
