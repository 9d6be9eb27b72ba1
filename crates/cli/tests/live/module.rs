//! An AQM in C, compiled to a module, on live packets.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{sluice, stderr};

/// Replays a live run, and returns what it printed.
fn replay(run: &Path) -> Value {
    let output = sluice()
        .args(["replay", "--json"])
        .arg(run)
        .output()
        .expect("the binary starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// Returns the folder of the only run below `folder`.
fn run_in(folder: &Path) -> PathBuf {
    if folder.join("run.json").is_file() {
        return folder.to_owned();
    }
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut folders = entries.map(|e| e.path()).filter(|path| path.is_dir());
    run_in(&folders.next().expect("a run"))
}

#[test]
fn codel_in_c_decides_about_live_packets_as_ours_does() {
    let out = tempfile::tempdir().expect("a folder");
    // `sdk/examples/codel.c`, compiled.
    let module = out.path().join("codel.wasm");
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/module/codel");
    fs::copy(compiled, &module).expect("the module");
    let words = format!("wasm:{}", module.display());
    let scenario = format!(
        "duration = \"4s\"\n[link]\nrate = \"20Mbit/s\"\nrtt = \"20ms\"\nqueue = \"{words} ecn\"\n\
         [[flow]]\ntype = \"tcp\"\n[[flow]]\ntype = \"tcp\"\nname = \"ecn\"\necn = true\n"
    );
    let file = out.path().join("s.toml");
    fs::write(&file, scenario).expect("writable");
    let runs = out.path().join("runs");
    let output = sluice()
        .args(["run", "--backend", "live", "--quiet"])
        .arg(&file)
        .arg("-o")
        .arg(&runs)
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let run = run_in(&runs);
    let of_module = replay(&run);
    // The same arrivals through the CoDel of this program.
    let described = fs::read_to_string(run.join("run.json")).expect("a run");
    assert!(described.contains(&words), "{described}");
    fs::write(run.join("run.json"), described.replace(&words, "codel")).expect("writable");
    for replayed in [of_module, replay(&run)] {
        for pipe in replayed["pipes"].as_array().expect("two directions") {
            assert!(pipe["packets"].as_u64() > Some(1000), "{replayed}");
            assert_eq!(pipe["differing"], 0, "{replayed}");
        }
        // Both kinds of signals: the second flow is ECN-capable.
        for signal in ["dropped", "marked"] {
            assert!(
                replayed["pipes"][0][signal].as_u64() > Some(0),
                "{replayed}"
            );
        }
    }
}
