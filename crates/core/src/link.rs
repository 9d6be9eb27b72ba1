//! Links: what happens to packets between a queue and the far end.

pub mod pipe;

pub use pipe::{Departure, Pipe, PipeParams};
