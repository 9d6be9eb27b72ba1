//! Bytes that a program sends to `sluice proxy`: SOCKS5, HTTP, the control API.
#![no_main]

#[path = "../../crates/proxy/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::conversation(bytes));
