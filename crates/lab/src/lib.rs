//! From a scenario file to a recording, its metrics and a report.

pub mod replay;
//! See the crate description.
pub mod report;
//! The laboratory: a scenario becomes a run, a run a recording, a recording figures and pictures.
//!
//! - [`scenario`]: an experiment as one TOML file, read into typed variants;
//! - [`recording`]: the folder that a run writes, and reading it back;
//! - [`metrics`]: figures from a recording.
pub mod metrics;
pub mod recording;
pub mod scenario;
