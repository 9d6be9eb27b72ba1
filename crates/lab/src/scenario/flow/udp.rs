//! UDP at a constant rate.

use sluice_core::Rate;

use super::super::field::Dscp;
use super::super::schema::keys;
use super::FlowType;

keys! {
    /// UDP at a constant rate.
    pub struct Udp {
        /// bits per second of its IP packets, headers counted, as the link counts them
        rate: Rate, Rate::from_bps(1) => Rate::from_bps(1_000_000_000_000);
        /// bytes of payload in a packet, of which the measurement needs 24; a packet is never fragmented
        size: u64 = 1200, 24 => 1472;
        /// codepoint of its packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Udp {
    const DOC: &'static str = "UDP at a constant rate.";
    const METRICS: &'static [&'static str] = &[
        "goodput",
        "loss",
        "jitter",
        "mos",
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
    ];
}
