//! Arrival traces: CSV, pcap, pcapng.
#![no_main]

use sluice_scenario::trace::{Hash, Trace};

libfuzzer_sys::fuzz_target!(|bytes: Vec<u8>| {
    let Ok(mut trace) = Trace::from_bytes(bytes, Hash::Flow, 1) else {
        return;
    };
    let mut before = sluice_core::Time::ZERO;
    while let Ok(Some(arrival)) = trace.read() {
        assert!(arrival.time >= before && arrival.len > 0);
        before = arrival.time;
    }
    let _ = trace.warnings();
});
