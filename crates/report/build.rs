//! Says what to do when the page that reports are made from has not been built.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this for build scripts");
    let page = PathBuf::from(here).join("../../web/dist/report.html");
    println!("cargo::rerun-if-changed={}", page.display());
    match fs::read_to_string(&page) {
        Err(_) => println!(
            "cargo::error=web/dist/report.html is missing: run `make web/dist/report.html` first (it needs Node 20 or newer)"
        ),
        Ok(text)
            if text
                .find("{{title}}")
                .is_none_or(|title| !text[title..].contains("{{report}}")) =>
        {
            println!(
                "cargo::error=web/dist/report.html does not hold {{{{title}}}} and then {{{{report}}}}: run `make web/dist/report.html` again"
            )
        }
        Ok(_) => {}
    }
}
