//! The parameters of a link as text.
#![no_main]

#[path = "../../crates/core/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|text: &str| common::fuzz::link(text));
