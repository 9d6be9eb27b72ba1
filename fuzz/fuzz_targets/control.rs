//! Bytes on a router's control socket.
#![no_main]

#[path = "../../crates/router/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::requests(bytes));
