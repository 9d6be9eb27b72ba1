//! Operation sequences on every registered algorithm, with random parameters.
#![no_main]

#[path = "../../crates/core/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::fuzz::Case::from_bytes(bytes).check());
