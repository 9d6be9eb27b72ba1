//! Compares the modules of `sdk/examples`, compiled with clang, with the algorithms of `core`:
//! every packet of every trace has the same fate at the same nanosecond. `make test-modules` runs
//! this.

#[path = "../../core/tests/aqm_reference/link.rs"]
#[allow(dead_code)]
mod link;
#[path = "../../core/tests/aqm_reference/ours.rs"]
#[allow(dead_code)]
mod ours;
#[path = "common/rustc.rs"]
mod rustc;
#[path = "../../core/tests/aqm_reference/traces.rs"]
mod traces;

use std::path::{Path, PathBuf};
use std::process::Command;

use ours::Ours;
use sluice_core::registry::Spec;
use sluice_core::{Cx, Discipline, DropCounter, DropReason, Packet, Rng, Time};

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

#[test]
fn earliest_deadline_first_in_c_gives_the_order_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    compile("edf.c", folder.path());
    compare_edf(folder.path());
}

#[test]
fn earliest_deadline_first_in_rust_gives_the_order_of_ours() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
    let folder = tempfile::tempdir().unwrap();
    let rustc = |args: &[&str], source: &str| {
        let status = Command::new(rustc::rustc_for_wasm())
            .args(["--edition=2021", "--target=wasm32-unknown-unknown", "-O"])
            .args(["-Cpanic=abort", "--out-dir"])
            .arg(folder.path())
            .args(args)
            .arg(sdk.join(source))
            .status();
        assert!(status.unwrap().success(), "rustc refuses {source}");
    };
    let crate_name = ["--crate-type=rlib", "--crate-name=sluice_sdk"];
    rustc(&crate_name, "rust/src/lib.rs");
    let library = folder.path().join("libsluice_sdk.rlib");
    let library = format!("--extern=sluice_sdk={}", library.display());
    let link = ["-Clink-args=-zstack-size=8192", "-Cstrip=symbols"];
    rustc(
        &[&["--crate-type=cdylib", &library], &link[..]].concat(),
        "examples/edf.rs",
    );
    compare_edf(folder.path());
}

/// Compares `edf.wasm` in `folder` with ours.
fn compare_edf(folder: &Path) {
    register();
    for setting in ["", " deadline 1ms limit 40"] {
        let ours = order(&queue(&format!("pifo rank edf{setting}"), folder));
        let module = order(&queue(&format!("wasm:edf.wasm{setting}"), folder));
        assert!(ours == module, "edf{setting}");
        let (left, evicted) = ours;
        // The queue is not a FIFO, and when full it drops the packet with the latest deadline.
        assert!(!left.is_sorted());
        assert!(evicted > 100, "{evicted} evicted");
    }
    assert_eq!(sluice_loader::errors(), 0);
}

/// Sends packets at 3/2 of the link's rate, with deadlines of 2 ms, of 30 ms, or none. Returns those
/// that left, in their order, and the number of evicted ones.
fn order(spec: &Spec) -> (Vec<u32>, u64) {
    let mut queue = spec.build().unwrap();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut deadlines = Rng::from_seed(2);
    let mut left = Vec::new();
    for slot in 0..6000_u32 {
        let mut cx = Cx::new(
            Time::from_ns(800_000 * u64::from(slot)),
            &mut rng,
            &mut dropped,
        );
        let mut packet = Packet::new(slot, 1500);
        packet.arrival = cx.now;
        packet.tag = [0, 2_000, 30_000][(deadlines.next_u64() % 3) as usize];
        queue.enqueue(packet, &mut cx);
        if slot % 3 != 0 {
            left.extend(queue.dequeue(&mut cx).map(|packet| packet.slot));
        }
    }
    (left, dropped.count(DropReason::Evicted))
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
