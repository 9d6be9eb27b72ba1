//! Checks that the pages which reports are made from have been built, and says how to build them.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this for build scripts");
    for name in ["report.html", "index.html"] {
        let page = PathBuf::from(&here).join("../../web/dist").join(name);
        println!("cargo::rerun-if-changed={}", page.display());
        let problem = match fs::read_to_string(&page) {
            Err(_) => "is missing",
            Ok(text) if !has_markers(&text) => "does not hold {{title}} and then {{model}}",
            Ok(_) => continue,
        };
        println!(
            "cargo::error=web/dist/{name} {problem}: run `make -B web/dist/report.html` (it needs Node 20 or newer)"
        );
    }
}

fn has_markers(text: &str) -> bool {
    text.find("{{title}}")
        .is_some_and(|title| text[title..].contains("{{model}}"))
}
