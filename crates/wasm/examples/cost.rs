//! Cost per decision of an AQM in a module, compared with the same AQM of `core`.
//!
//! ```console
//! $ clang --target=wasm32 -O2 -nostdlib -fno-builtin -I sdk/c \
//!     -Wl,--no-entry,--stack-first,-z,stack-size=8192 -o codel.wasm sdk/examples/codel.c
//! $ cargo run --release -p sluice-wasm --example cost codel.wasm
//! ```

use std::path::Path;
use std::time::Instant;

use sluice_core::aqm::{Aqm, QueueView};
use sluice_core::registry::Spec;
use sluice_core::{Cx, DropCounter, Packet, Rng, Span, Time};

fn main() {
    sluice_loader::register(&[&sluice_wasm::WasmLoader]);
    let module = std::env::args().nth(1).expect("the path of a module");
    let words = ["codel".to_owned(), format!("wasm:{module}")];
    let specs = words.map(|words| {
        sluice_loader::parse_queue(&words, Path::new("")).unwrap_or_else(|error| panic!("{error}"))
    });
    // Interleaved, so that a slower machine affects both.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (spec, times) in specs.iter().zip(&mut times) {
            times.push(round(spec));
        }
    }
    for (spec, mut times) in specs.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!(
            "{spec}: {:.1} ns per decision (median of {ROUNDS})",
            times[ROUNDS / 2]
        );
    }
}

/// Returns the nanoseconds per decision of one round.
fn round(spec: &Spec) -> f64 {
    let mut aqm: Box<dyn Aqm> = spec
        .algorithm
        .build_aqm(&spec.values)
        .expect("it is an AQM")
        .expect("it was parsed");
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
    let mut packet = Packet::new(0, 1500);
    let queue = QueueView {
        packets: 50,
        bytes: 75_000,
        ..QueueView::default()
    };
    let start = Instant::now();
    for i in 0..DECISIONS {
        packet.arrival = Time::from_ns(1_200_000 * i);
        // The delay swings around the target, as with a controlled queue.
        cx.now = packet.arrival + Span::from_ns(2_000_000 + 3_000 * (i % 2_000));
        std::hint::black_box(aqm.on_dequeue(&packet, &queue, &mut cx));
    }
    start.elapsed().as_nanos() as f64 / DECISIONS as f64
}

const ROUNDS: usize = 21;
const DECISIONS: u64 = 200_000;
