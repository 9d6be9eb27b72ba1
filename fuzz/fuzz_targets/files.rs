//! Schedules, Mahimahi traces, tables of deviations, delay profiles.
#![no_main]

#[path = "../../crates/core/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|text: &str| common::fuzz::files(text));
