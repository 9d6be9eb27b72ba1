//! Compares the modules of `sdk/examples`, compiled with clang, with the algorithms of `core`:
//! every packet of every trace has the same fate at the same nanosecond. `make test-modules` runs
//! this.

#[path = "../../core/tests/aqm_reference/link.rs"]
#[allow(dead_code)]
mod link;
#[path = "../../core/tests/aqm_reference/ours.rs"]
#[allow(dead_code)]
mod ours;
#[path = "../../core/tests/aqm_reference/traces.rs"]
mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;

use ours::Ours;
use sluice_core::registry::Spec;

/// Compiles an example of the SDK as its header describes.
fn compile(name: &str, folder: &Path) -> PathBuf {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
    let module = folder.join(name).with_extension("wasm");
    let status = Command::new("clang")
        .args([
            "--target=wasm32",
            "-O2",
            "-Wall",
            "-Werror",
            "-nostdlib",
            "-fno-builtin",
        ])
        .arg("-Wl,--no-entry,--stack-first,-z,stack-size=8192")
        .arg("-I")
        .arg(sdk.join("c"))
        .arg("-o")
        .arg(&module)
        .arg(sdk.join("examples").join(name))
        .status();
    let status = status.unwrap_or_else(|error| panic!("clang and lld are needed: {error}"));
    assert!(status.success(), "clang refuses {name}");
    module
}

fn register() {
    sluice_loader::register(&[&sluice_wasm::WasmLoader]);
}

fn queue(words: &str, folder: &Path) -> Spec {
    sluice_loader::parse_queue(words, folder).unwrap_or_else(|error| panic!("`{words}`: {error}"))
}

#[test]
fn codel_in_c_gives_the_fate_of_every_packet_of_every_trace() {
    let settings = [
        "",
        " ecn",
        " target 1ms interval 20ms mtu 0",
        " limit 40 ecn",
    ];
    compare("codel", &settings);
}

#[test]
fn a_step_in_c_gives_the_fate_of_every_packet_of_every_trace() {
    let settings = ["", " threshold 5ms drop", " threshold_bytes 30000 l4s drop"];
    compare("step", &settings);
}

/// Compares the example `name` with the algorithm of that name, plain and flow-queued.
fn compare(name: &str, settings: &[&str]) {
    register();
    let folder = tempfile::tempdir().unwrap();
    compile(&format!("{name}.c"), folder.path());
    let mut signals = 0;
    for scene in traces::all() {
        for setting in settings {
            for form in ["", "fq_"] {
                // `fq_codel` marks by default, and so does every flow-queued form.
                let ours = queue(&format!("{form}{name}{setting}"), folder.path());
                let module = queue(&format!("{form}wasm:{name}.wasm{setting}"), folder.path());
                let ours = link::run(&scene, &mut Ours::of(ours.build().unwrap()));
                let module = link::run(&scene, &mut Ours::of(module.build().unwrap()));
                let scene = scene.name;
                for (id, (a, b)) in ours.iter().zip(&module).enumerate() {
                    assert_eq!(a, b, "packet {id} of `{scene}`, {form}{name}{setting}");
                }
                let is_signal = |fate: &&link::Fate| {
                    matches!(fate, link::Fate::Dropped(_) | link::Fate::Marked(_))
                };
                signals += ours.iter().filter(is_signal).count();
            }
        }
    }
    // The traces are overloads: without signals they would prove nothing.
    assert!(signals > 10_000, "{signals} signals");
    assert_eq!(sluice_loader::errors(), 0);
}

#[test]
fn a_module_is_described_like_any_other_algorithm() {
    register();
    let folder = tempfile::tempdir().unwrap();
    compile("codel.c", folder.path());
    let spec = queue("wasm:codel.wasm target 7ms noecn", folder.path());
    assert_eq!(spec.to_string(), "wasm:codel.wasm target 7ms noecn");
    let names: Vec<&str> = spec.algorithm.params().map(|decl| decl.name).collect();
    assert_eq!(
        names,
        [
            "target",
            "interval",
            "ecn",
            "mtu",
            "on_error",
            "limit",
            "limit_bytes"
        ]
    );
    let error = |text: &str| sluice_loader::parse_queue(text, folder.path()).unwrap_err();
    let unknown = error("wasm:codel.wasm tarqet 7ms");
    assert_eq!(
        unknown.to_string(),
        "`wasm:codel.wasm` has no parameter `tarqet`"
    );
    assert_eq!(unknown.nearest(), ["target"]);
    let range = error("wasm:codel.wasm target 0ns");
    assert_eq!(range.to_string(), "`target 0ns` is outside 1us to 100s");
}

#[test]
fn a_thousand_flows_take_less_than_two_megabytes() {
    use sluice_core::{Cx, Discipline, DropCounter, Packet, Rng, Time};

    register();
    let folder = tempfile::tempdir().unwrap();
    compile("codel.c", folder.path());
    let spec = queue("fq_wasm:codel.wasm flows 1024", folder.path());
    let held = allocation_counter::measure(|| {
        let mut queue = spec.build().unwrap();
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
        for flow in 0..1024 {
            let mut packet = Packet::new(flow, 1500);
            packet.flow = flow;
            queue.enqueue(packet, &mut cx);
        }
        assert_eq!(queue.backlog().packets, 1024);
        assert_eq!(std::iter::from_fn(|| queue.dequeue(&mut cx)).count(), 1024);
    });
    println!("{} bytes at most", held.bytes_max);
    assert!(held.bytes_max < 2 << 20, "{} bytes", held.bytes_max);
}
