//! Random operation sequences over any registered algorithm, and the checks that hold for all.
//!
//! [`sluice_core::conformance`] has the operations and applies them; [`compose`] puts AQMs into
//! schedulers; [`fuzz`] has the bodies of the fuzz targets. The conformance tests and the fuzz
//! targets both include this module.

// Each test binary that includes this module uses a part of it.
#![allow(dead_code)]

pub mod compose;
pub mod fuzz;

pub use sluice_core::conformance::{drive, ops};
