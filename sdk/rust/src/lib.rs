//! AQMs and schedulers for Sluice in Rust, as WebAssembly modules: see [`sluice`].
#![no_std]
#![deny(missing_docs)]

pub mod sluice;

pub use sluice::{Aqm, Packet, Params, Queue, Rank, Verdict};
