//! A module is replaced while a router runs: the queued packets stay, and the new version decides
//! about them. The test uses the engine of the router in virtual time.

mod verdict;

use std::fs;

use sluice_core::sched::Wake;
use sluice_core::{Cx, DropCounter, DropReason, Packet, Rng, Time};
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};
use verdict::write_module;

#[test]
fn a_router_keeps_its_packets_when_a_module_is_replaced() {
    sluice_loader::register(&[&sluice_wasm::WasmLoader]);
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("m.wasm");
    let mut firewall = Firewall::new(&Settings::default());
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
    let config = format!("pipe 1 config bw 10Mbit/s wasm:{}", module.display());
    let headers = Headers {
        src_port: 5000,
        dst_port: 53,
        ip_len: 1250,
        ..Headers::new(
            Direction::Out,
            UDP,
            [192, 0, 2, 1].into(),
            [198, 51, 100, 1].into(),
        )
    };
    const PASS: i32 = 0;
    const DROP: i32 = 2;
    write_module(&module, PASS);
    for command in [config.as_str(), "add 100 pipe 1 udp from any to any"] {
        firewall.command(command, &mut NoFiles, &mut cx).unwrap();
    }
    for slot in 0..10 {
        let _ = firewall.handle(Packet::new(slot, 1250), &headers, &mut cx);
    }
    // 1250 bytes take 1 ms: four leave by 4.5 ms, and the fifth is on the link.
    let mut left = Vec::new();
    let mut leave_until = |firewall: &mut Firewall, cx: &mut Cx<'_>, end: u64| {
        while let Wake::At(at) = firewall.next_wake()
            && at.as_ns() <= end
        {
            cx.now = at;
            while let Some(departure) = firewall.poll(cx) {
                left.push(departure.packet.slot);
            }
        }
        cx.now = Time::from_ns(end);
        left.clone()
    };
    assert_eq!(leave_until(&mut firewall, &mut cx, 4_500_000), [0, 1, 2, 3]);
    // The same words again: nothing changes for the packets.
    write_module(&module, PASS);
    firewall.command(&config, &mut NoFiles, &mut cx).unwrap();
    assert_eq!(
        leave_until(&mut firewall, &mut cx, 6_500_000),
        [0, 1, 2, 3, 4, 5]
    );
    // The new version drops: the packet on the link leaves, and the queued packets are dropped.
    write_module(&module, DROP);
    firewall.command(&config, &mut NoFiles, &mut cx).unwrap();
    assert_eq!(
        leave_until(&mut firewall, &mut cx, 100_000_000),
        [0, 1, 2, 3, 4, 5, 6]
    );
    // A version that cannot be loaded is refused, and the queue stays as it was.
    fs::write(&module, "abi 9").unwrap();
    let refused = firewall
        .command(&config, &mut NoFiles, &mut cx)
        .unwrap_err();
    assert!(
        refused.to_string().contains("is not a WebAssembly module"),
        "{refused}"
    );
    drop(firewall);
    assert_eq!(dropped.count(DropReason::Congestion), 3);
    assert_eq!(dropped.count(DropReason::Reconfigured), 0);
}
