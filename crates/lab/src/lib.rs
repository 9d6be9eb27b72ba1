//! From a scenario file to a recording, its metrics and a report.

pub mod replay;
//! See the crate description.
pub mod report;
