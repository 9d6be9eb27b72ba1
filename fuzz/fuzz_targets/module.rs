//! WebAssembly modules: each is refused with a reason, or decides about packets.
#![no_main]

#[path = "../../crates/wasm/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    common::check(bytes);
});
