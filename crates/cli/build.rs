//! Puts the page of a running router where the program embeds it.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this for build scripts");
    let built = PathBuf::from(&here).join("../../web/dist/live.html");
    println!("cargo::rerun-if-changed={}", built.display());
    let page = fs::read_to_string(&built).unwrap_or_else(|_| {
        println!(
            "cargo::warning=web/dist/live.html is missing, so `--http` has no page: run `make -B \
             web/dist/report.html` (it needs Node 20 or newer)"
        );
        MISSING.to_owned()
    });
    let out = env::var_os("OUT_DIR").expect("cargo sets this for build scripts");
    fs::write(PathBuf::from(&out).join("live.html"), page).expect("the folder is writable");
}

/// The page of a program that was built without it.
const MISSING: &str = "<!doctype html><title>Sluice router</title><p>This program was built without \
                       its page. /metrics, /state and /events work.\n";
