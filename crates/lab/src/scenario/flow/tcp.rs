//! A TCP transfer.

use sluice_core::Bytes;

use super::super::field::{Dscp, Word};
use super::super::schema::keys;
use super::FlowType;

keys! {
    /// A TCP transfer: bulk until it is stopped, or a number of bytes.
    pub struct Tcp {
        /// congestion control of the sender, as the kernel or the simulator calls it
        cc: Word = Word("cubic".into());
        /// negotiate ECN (RFC 3168)
        ecn: bool = false;
        /// end after so many bytes of payload; without it the flow sends until it is stopped
        bytes: Option<Bytes>, Bytes::new(1) => Bytes::new(1 << 50);
        /// codepoint of its packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Tcp {
    const DOC: &'static str = "A TCP transfer: bulk until it is stopped, or a number of bytes.";
    const METRICS: &'static [&'static str] = &[
        "goodput",
        "retransmits",
        "fct",
        "fct.p50",
        "fct.p95",
        "fct.p99",
        "fct.max",
        "srtt.p50",
        "srtt.p95",
        "srtt.p99",
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
        "convergence",
    ];

    fn is_sized(&self) -> bool {
        self.bytes.is_some()
    }
}
