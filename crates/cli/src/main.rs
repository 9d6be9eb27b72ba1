//! The program `sluice`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_loader::register(&[&sluice_wasm::WasmLoader, &sluice_cli::Redirect]);
    let words: Vec<OsString> = std::env::args_os().collect();
    sluice_cli::command(&words)
}
