//! The compiler of modules in Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a `rustc` with the target `wasm32-unknown-unknown`: the usual one, or Debian's.
pub fn rustc_for_wasm() -> PathBuf {
    let has_target = |rustc: &PathBuf| {
        let args = [
            "--print",
            "target-libdir",
            "--target",
            "wasm32-unknown-unknown",
        ];
        let output = Command::new(rustc).args(args).output();
        output.is_ok_and(|output| {
            let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success() && Path::new(&folder).is_dir()
        })
    };
    [PathBuf::from("rustc"), PathBuf::from("/usr/bin/rustc")]
        .into_iter()
        .find(has_target)
        .expect("this test needs `scripts/setup.sh wasm`: rustc for wasm32-unknown-unknown")
}
