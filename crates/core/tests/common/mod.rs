//! Random operation sequences over any registered algorithm, and the checks that hold for all.
//!
//! [`ops`] defines the operations and decodes them from proptest or from a fuzzer's bytes;
//! [`compose`] puts AQMs into schedulers; [`drive`] applies the operations and checks every step;
//! [`fuzz`] has the bodies of the fuzz targets. The conformance tests and the fuzz targets both
//! include this module.

// Each test binary that includes this module uses a part of it.
#![allow(dead_code)]

pub mod compose;
pub mod drive;
pub mod fuzz;
pub mod ops;
