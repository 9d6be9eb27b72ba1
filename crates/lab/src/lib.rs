//! See the crate description.

pub mod report;
