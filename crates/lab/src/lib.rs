//! From a scenario file to a recording, its metrics and a report.

pub mod replay;
pub mod report;
