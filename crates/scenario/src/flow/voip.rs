//! One direction of a telephone call.

use sluice_core::{Rate, Span};

use super::super::field::Dscp;
use super::super::schema::{beyond_defaults, keys};
use super::{FlentSeries, FlowType, Measured};

keys! {
    /// One direction of a telephone call with G.711.
    pub struct Voip {
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::new(46).expect("46 is a codepoint");
    }
}

impl Voip {
    /// Time between two packets (RFC 3551 §4.5: 20 ms of speech is the default).
    pub const INTERVAL: Span = Span::from_ms(20);
    /// Bytes of UDP payload: 20 ms at 64 kbit/s are 160 bytes, behind 12 of RTP (RFC 3551
    /// §4.5.14, RFC 3550 §5.1).
    pub const SIZE: u64 = 172;

    /// The rate of the IP packets: 200 bytes every 20 ms.
    pub const fn rate() -> Rate {
        Rate::from_bps(80_000)
    }
}

impl FlowType for Voip {
    const DOC: &'static str = "One direction of a telephone call with G.711: 172 bytes of payload \
        every 20 ms, 80 kbit/s with headers. The one-way delay and the loss of every packet are recorded.";
    const METRICS: &'static [&'static str] = &[
        "loss",
        "jitter",
        "mos",
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
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
    ];
    const MEASURED: Measured = Measured::Delays;
    const FLENT: FlentSeries = FlentSeries::Voip;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let others = beyond_defaults(self, &[]);
        format!("one direction of a call with G.711{others}")
    }
}
