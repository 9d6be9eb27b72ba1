//! UDP without congestion control.

use sluice_core::{Rate, Span, traffic};

use super::super::error::{Problem, Problems};
use super::super::field::Dscp;
use super::super::schema::{Section, beyond_defaults, keys};
use super::super::tree::Table;
use super::super::words::SpacingWord;
use super::{FlentSeries, FlowType, Measured};

keys! {
    /// UDP without congestion control.
    pub struct Udp {
        /// bits per second of the flow's IP packets, with headers, while it sends
        rate: Rate, Rate::from_bps(1) => Rate::from_bps(1_000_000_000_000);
        /// bytes of payload in a packet; the measurement needs 24; a packet is never fragmented
        size: u64 = 1200, 24 => 1472;
        /// instants at which packets leave: `constant` at equal intervals, `poisson` at
        /// exponentially distributed intervals, `on_off` at equal intervals for `on` and then none
        /// for `off`, `random_on_off` the same with exponentially distributed lengths of these
        /// means
        spacing: SpacingWord = SpacingWord::Constant;
        /// length of a burst
        on: Option<Span>, Span::from_us(1) => Span::from_secs(3600);
        /// length of the silence between two bursts
        off: Option<Span>, Span::ZERO => Span::from_secs(3600);
        /// mark packets as ECN-capable (ECT(0)), although the sender does not respond to marks
        ect: bool = false;
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl Udp {
    /// Returns the instants at which its packets leave, with the lengths of bursts and silences.
    pub fn spacing(&self) -> traffic::Spacing {
        let (on, off) = (self.on.unwrap_or_default(), self.off.unwrap_or_default());
        match self.spacing {
            SpacingWord::Constant => traffic::Spacing::Constant,
            SpacingWord::Poisson => traffic::Spacing::Poisson,
            SpacingWord::OnOff => traffic::Spacing::OnOff { on, off },
            SpacingWord::RandomOnOff => traffic::Spacing::RandomOnOff { on, off },
        }
    }
}

impl FlowType for Udp {
    const DOC: &'static str = "UDP without congestion control, evenly or in bursts.";
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
    const MEASURED: Measured = Measured::Datagrams;
    const FLENT: FlentSeries = FlentSeries::Udp;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let others = beyond_defaults(self, &["rate", "size"]);
        format!("udp {}, {} B{others}", self.rate, self.size)
    }

    fn check(&self, table: &Table, section: &Section, problems: &mut Problems) -> bool {
        let mut is_right = true;
        for (key, span) in [("on", self.on), ("off", self.off)] {
            let problem = match (self.spacing.has_bursts(), span) {
                (true, None) => {
                    let message = format!("`spacing` {} needs `{key}`", self.spacing);
                    Problem::new(section.at.clone(), message).hint("such as \"500ms\"")
                }
                (false, Some(_)) => {
                    let at = table.node(key).map(|node| node.at.clone());
                    let message = format!("`spacing` {} has no `{key}`", self.spacing);
                    Problem::new(at.unwrap_or_default(), message)
                        .hint("it belongs to `on_off` and `random_on_off`")
                }
                _ => continue,
            };
            problems.push(problem);
            is_right = false;
        }
        is_right
    }
}
