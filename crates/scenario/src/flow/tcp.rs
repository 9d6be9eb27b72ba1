//! A TCP transfer.

use sluice_core::{Bytes, Span};

use super::super::error::{Problem, Problems};
use super::super::field::{Dscp, Word};
use super::super::schema::{Section, beyond_defaults, keys};
use super::super::tree::Table;
use super::super::words::TcpEcn;
use super::{FlentSeries, FlowType, Measured, TransferSettings};

keys! {
    /// A TCP transfer: bulk until it is stopped, or a number of bytes, once or repeatedly.
    pub struct Tcp {
        /// congestion control of the sender, by its name in the kernel or the simulator
        cc: Word = Word::new("cubic");
        /// segments that the sender may send before the first acknowledgement; if it is not given,
        /// the congestion control decides: 10 (RFC 6928), `ledbat` 2. More than 45 have no effect: a
        /// SYN-ACK offers 65535 bytes at most (RFC 7323, 2.2)
        initial_window: Option<u64>, 1 => 1000;
        /// negotiate ECN (RFC 3168), or accurate ECN (RFC 9768)
        ecn: TcpEcn = TcpEcn::Off;
        /// payload after which the flow ends; without it the flow sends until it is stopped
        bytes: Option<Bytes>, Bytes::new(1) => Bytes::new(1 << 50);
        /// with `bytes`: time between the arrival of all bytes and the start of the next transfer;
        /// without it there is only one
        pause: Option<Span>, Span::ZERO => Span::from_secs(3600);
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Tcp {
    const DOC: &'static str =
        "A TCP transfer: bulk until it is stopped, or a number of bytes, once or repeatedly.";
    const METRICS: &'static [&'static str] = &[
        "goodput",
        "retransmits",
        "transfers",
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
    const MEASURED: Measured = Measured::Connections;
    const FLENT: FlentSeries = FlentSeries::Tcp;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let ecn = match self.ecn {
            TcpEcn::Off => "",
            TcpEcn::On => ", ECN",
            TcpEcn::Accurate => ", accurate ECN",
        };
        let bytes = self.bytes.map_or(String::new(), |n| format!(", {n}"));
        let others = beyond_defaults(self, &["cc", "ecn", "bytes"]);
        format!("tcp {}{ecn}{bytes}{others}", self.cc.0)
    }

    fn transfer(&self) -> Option<TransferSettings> {
        Some(TransferSettings {
            bytes: self.bytes,
            repeats: self.pause.is_some(),
        })
    }

    fn tcp(&self) -> Option<(&Word, TcpEcn)> {
        Some((&self.cc, self.ecn))
    }

    fn initial_window(&self) -> Option<u64> {
        self.initial_window
    }

    fn check(&self, table: &Table, _section: &Section, problems: &mut Problems) -> bool {
        if self.pause.is_none() || self.bytes.is_some() {
            return true;
        }
        let at = table.node("pause").map(|node| node.at.clone());
        problems.push(
            Problem::new(at.unwrap_or_default(), "`pause` needs `bytes`")
                .hint("a transfer without a size does not end by itself"),
        );
        false
    }
}
