//! The check of the fuzzer and of the replay of its corpus.

use sluice_core::aqm::{Aqm, QueueView};
use sluice_core::param::Values;
use sluice_core::registry::Outside;
use sluice_core::{Cx, DropCounter, Ecn, Packet, Rng, Time};

/// Loads a module. It is either refused with a reason or decides about packets, even if badly. Only
/// ECN-capable packets are marked, and a timer is later than now. Returns whether it was loaded.
pub fn check(bytes: &[u8]) -> bool {
    let (declared, module) = match sluice_wasm::Module::new(bytes, "module") {
        Ok(loaded) => loaded,
        Err(why) => {
            assert!(!why.is_empty());
            return false;
        }
    };
    let mut values = Values::new();
    for decl in &declared.params {
        values.set(decl.name, decl.range.map_or(decl.default, |(low, _)| low));
    }
    let Ok(started) = module.start(&values) else {
        return true;
    };
    let mut aqms: Vec<Box<dyn Aqm>> = (0..3).map(|_| started.aqm()).collect();
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
    let queue = QueueView::default();
    for step in 0..12 {
        cx.now = Time::from_ns(step * 40_000_000);
        let mut packet = Packet::new(step as u32, 1500);
        packet.ecn = Ecn::from_bits(step as u8);
        let aqm = &mut aqms[step as usize % 3];
        for verdict in [
            aqm.on_enqueue(&packet, &queue, &mut cx),
            aqm.on_dequeue(&packet, &queue, &mut cx),
        ] {
            let is_mark = verdict == sluice_core::aqm::Verdict::Mark;
            assert!(!is_mark || packet.ecn.is_capable());
        }
        if aqm.next_timer().is_some_and(|at| at <= cx.now) {
            aqm.on_timer(&queue, &mut cx);
            assert!(aqm.next_timer().is_none_or(|at| at > cx.now));
        }
        aqm.on_empty(&mut cx);
        aqm.state(&mut |name, _| assert!(!name.is_empty()));
    }
    true
}
