//! The words of a queue.
#![no_main]

#[path = "../../crates/core/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|text: &str| common::fuzz::queue(text));
