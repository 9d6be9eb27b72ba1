//! `sluice new aqm` in every language: the result compiles, passes `sluice check`, and meets the
//! expectation of its scenario. `make test-modules` runs this, since it needs clang, lld, Zig and
//! rustc with the target of modules.

#[path = "../../wasm/tests/common/rustc.rs"]
mod rustc;

use std::path::Path;
use std::process::{Command, Output};

use rustc::rustc_for_wasm;

/// Runs a program with the `sluice` of this build in its path.
fn run(folder: &Path, program: &str, args: &[&str]) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_sluice")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(program)
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", own.display()))
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Creates an AQM and runs its test with the variables `set` of make.
fn make(lang: &str, set: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let made = run(
        folder.path(),
        "sluice",
        &["new", "aqm", "my_aqm", "--lang", lang],
    );
    assert!(made.status.success(), "{}", text(&made));
    let own = folder.path().join("my_aqm");
    let tested = run(&own, "make", &[&["test"], set].concat());
    assert!(tested.status.success(), "{lang}: {}", text(&tested));
    let said = text(&tested);
    assert!(said.contains("ok      conservation"), "{said}");
    assert!(own.join("check.png").is_file());
    // Nothing is overwritten.
    let again = run(
        folder.path(),
        "sluice",
        &["new", "aqm", "my_aqm", "--lang", lang],
    );
    assert!(text(&again).contains("`my_aqm` exists; choose another name"));
}

#[test]
fn an_aqm_in_c_is_compiled_and_conforms() {
    make("c", &[]);
}

#[test]
fn an_aqm_in_zig_is_compiled_and_conforms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.canonicalize().unwrap().join(".venv-zig/bin/python");
    make("zig", &[&format!("ZIG={} -m ziglang", python.display())]);
}

#[test]
fn an_aqm_in_rust_is_compiled_and_conforms() {
    make("rust", &[&format!("RUSTC={}", rustc_for_wasm().display())]);
}
