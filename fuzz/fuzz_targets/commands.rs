//! Lines of dummynet's command language.
#![no_main]

#[path = "../../crates/ipfw/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|text: &str| common::fuzz::commands(text));
