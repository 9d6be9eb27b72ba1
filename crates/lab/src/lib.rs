//! The laboratory: a scenario becomes a run, a run a recording, a recording figures and pictures.
//!
//! - [`scenario`]: an experiment as one TOML file, read into typed variants;
//! - [`run`]: carrying a variant out and recording it;
//! - [`live`]: the backend with real packets in namespaces of its own;
//! - [`simulated`]: the backend in virtual time;
//! - [`recording`]: the folder that a run writes, and reading it back;
//! - [`metrics`]: figures from a recording;
//! - [`expect`]: whether the figures are as expected;
//! - [`export`]: a recording in the formats of other tools;
//! - [`table`]: the figures as text and as JSON;
//! - [`report`]: the page and the pictures, which [`report_of`] fills from recordings;
//! - [`replay`]: a recorded trace of arrivals through one queue;
//! - [`bench`]: what the packet path does on this machine, beside what the kernel does.

pub mod bench;
pub mod expect;
pub mod export;
pub mod live;
pub mod metrics;
pub mod recording;
pub mod replay;
pub mod report;
pub mod report_of;
pub mod run;
pub mod scenario;
pub mod simulated;
pub mod table;
