//! Probes and their answers.

use sluice_core::Span;

use super::super::field::Dscp;
use super::super::schema::{beyond_defaults, keys};
use super::super::words::Protocol;
use super::{FlentSeries, FlowType, Measured};

keys! {
    /// Probes and their answers: round-trip time, and delay in each direction, since both ends
    /// share a clock.
    pub struct Ping {
        /// time between two probes
        interval: Span = Span::from_ms(20), Span::from_us(100) => Span::from_secs(60);
        /// bytes of payload in a probe; the measurement needs 24
        size: u64 = 56, 24 => 1472;
        /// `icmp` for echo requests, or `udp` for datagrams
        protocol: Protocol = Protocol::Icmp;
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Ping {
    const DOC: &'static str =
        "Probes and their answers: round-trip time, and delay in each direction.";
    const METRICS: &'static [&'static str] = &[
        "min",
        "p50",
        "p95",
        "p99",
        "max",
        "mean",
        "deviation",
        "up.p50",
        "up.p95",
        "up.p99",
        "up.max",
        "up.mean",
        "up.deviation",
        "down.p50",
        "down.p95",
        "down.p99",
        "down.max",
        "down.mean",
        "down.deviation",
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
    const MEASURED: Measured = Measured::Delays;
    const FLENT: FlentSeries = FlentSeries::Ping;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let others = beyond_defaults(self, &["protocol", "interval", "size"]);
        format!(
            "ping by {} every {}, {} B{others}",
            self.protocol, self.interval, self.size
        )
    }
}
