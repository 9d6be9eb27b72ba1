//! The laboratory: a scenario becomes a run, a run a recording, a recording figures and pictures.
//!
//! - [`scenario`]: an experiment as one TOML file, read into typed variants;
//! - [`recording`]: the folder that a run writes, and reading it back;
//! - [`metrics`]: figures from a recording;
//! - [`expect`]: whether the figures are as expected;
//! - [`table`]: the figures as text and as JSON.

pub mod expect;
pub mod metrics;
pub mod recording;
pub mod scenario;
pub mod table;
