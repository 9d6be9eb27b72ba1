//! Random operation sequences over any registered algorithm, and the checks that hold for all.
//!
//! [`ops`] says what can be done to a queue and reads it from proptest or from a fuzzer's bytes;
//! [`compose`] puts AQMs into schedulers; [`drive`] does it and checks every step; [`fuzz`] does what the
//! fuzz targets do. Both the conformance tests and the fuzz targets include this module.

// Each test binary that includes this module uses a part of it.
#![allow(dead_code)]

pub mod compose;
pub mod drive;
pub mod fuzz;
pub mod ops;
