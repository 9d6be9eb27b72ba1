//! Requests and responses over one connection.

use sluice_core::{Bytes, Span};

use super::super::field::{Dscp, Word};
use super::super::schema::{beyond_defaults, keys};
use super::super::words::TcpEcn;
use super::{FlentSeries, FlowType, Measured};

keys! {
    /// Requests and responses over one TCP connection. Each request follows the previous response.
    pub struct Rr {
        /// payload of a request
        request: Bytes = Bytes::new(1), Bytes::new(1) => Bytes::new(1 << 30);
        /// payload of a response
        response: Bytes = Bytes::new(1), Bytes::new(1) => Bytes::new(1 << 30);
        /// time between a response and the next request
        think: Span = Span::ZERO, Span::ZERO => Span::from_secs(3600);
        /// congestion control of both ends
        cc: Word = Word::new("cubic");
        /// segments that each end may send before the first acknowledgement; if it is not given,
        /// the congestion control decides: 10 (RFC 6928), `ledbat` 2. More than 45 have no effect: a
        /// SYN-ACK offers 65535 bytes at most (RFC 7323, 2.2)
        initial_window: Option<u64>, 1 => 1000;
        /// negotiate ECN (RFC 3168), or accurate ECN (RFC 9768)
        ecn: TcpEcn = TcpEcn::Off;
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Rr {
    const DOC: &'static str = "Requests and responses over one TCP connection. Each request follows \
        the previous response. Requests go in the `direction`. The flow measures the time from a \
        request to its complete response.";
    const METRICS: &'static [&'static str] = &[
        "min",
        "p50",
        "p95",
        "p99",
        "max",
        "jitter",
        "loss",
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
    ];
    const MEASURED: Measured = Measured::Delays;
    const FLENT: FlentSeries = FlentSeries::TcpPing;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let others = beyond_defaults(self, &["request", "response"]);
        format!("requests of {} for {}{others}", self.request, self.response)
    }

    fn tcp(&self) -> Option<(&Word, TcpEcn)> {
        Some((&self.cc, self.ecn))
    }

    fn initial_window(&self) -> Option<u64> {
        self.initial_window
    }
}
