//! Settings of TCP that the simulator has and the kernel does not.

use sluice_core::Span;
use sluice_tcp::cc::{self, Descriptor};
use sluice_tcp::rtt::RtoFloor;

use super::super::error::{Problem, Problems};
use super::super::field::Word;
use super::super::schema::{Field, Keys as _, keys};
use super::super::tree::{Node, Table, Value};
use super::super::words::{Growth, SlowStart, TcpEcn};
use super::Flow;

keys! {
    /// Settings of TCP in the simulator.
    pub struct TcpSettings {
        /// unit in which `cubic` counts its growth: whole `segments` as Linux does, or `bytes` by
        /// the formulas of RFC 9438
        growth: Growth = Growth::Segments;
        /// after a mark, `reno` keeps 0.8 of its window and `cubic` 0.85 (RFC 8511), instead of 0.5
        /// and 0.7 as after a loss
        abe: bool = false;
        /// how slow start of `reno` and `cubic` ends before the first loss: `standard` at ssthresh;
        /// `hystart` at a long train of ACKs or an increased RTT, as Linux's CUBIC;
        /// `hystart_plus_plus` at an increased RTT, followed by conservative slow start (RFC 9406);
        /// if it is not given, `hystart` for `cubic`, `standard` for `reno`
        slow_start: Option<SlowStart>;
        /// spread segments over the round trip; if it is not given, the congestion control decides:
        /// `bbr` and `prague` pace
        pacing: Option<bool>;
        /// minimum by which a retransmission timeout exceeds the smoothed RTT, as in Linux; or
        /// `{ total = "1s" }` for a minimum of the whole timeout (RFC 6298 section 2.4)
        rto_floor: RtoFloor = LINUX_RTO_FLOOR, Span::from_ms(1) => Span::from_secs(60);
    }
}

impl TcpSettings {
    /// Reports settings that the congestion control does not have.
    pub(super) fn check(&self, cc: &Word, table: &Table, problems: &mut Problems) -> bool {
        type Has = fn(&Descriptor) -> bool;
        let asked: [(&str, bool, Has); 2] = [
            ("abe", self.abe, |cc| cc.has_abe),
            ("slow_start", self.slow_start.is_some(), |cc| cc.has_hystart),
        ];
        let mut is_right = true;
        for (key, is_asked, has) in asked {
            if !is_asked || cc::find(&cc.0).is_some_and(has) {
                continue;
            }
            let having = cc::REGISTRY.iter().filter(|cc| has(cc));
            let having: Vec<String> = having.map(|cc| format!("`{}`", cc.name)).collect();
            let at = table.node(key).map(|node| node.at.clone());
            let message = format!("`cc` {} has no `{key}`", cc.0);
            problems.push(
                Problem::new(at.unwrap_or_default(), message)
                    .hint(format!("it belongs to {}", having.join(" and "))),
            );
            is_right = false;
        }
        is_right
    }

    /// Returns warnings about settings that have no effect.
    pub(super) fn warnings(&self, cc: &Word, ecn: TcpEcn) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.growth != Growth::Segments && cc.0 != CUBIC {
            warnings.push(format!(
                "`growth` applies to `cc = \"{CUBIC}\"`; with `{}` it has no effect",
                cc.0
            ));
        }
        if self.abe && !ecn.is_on() {
            warnings.push("`abe` applies to marks; without `ecn` it has no effect".to_owned());
        }
        warnings
    }

    /// Returns the first key whose value differs from Linux's behaviour with `cc`, and that
    /// behaviour.
    fn beyond_kernel(&self, cc: &Word) -> Option<(&'static str, String)> {
        let known = cc::find(&cc.0);
        if self.growth != Growth::Segments && cc.0 == CUBIC {
            let reason = "the kernel's CUBIC grows by whole segments";
            return Some(("growth", reason.to_owned()));
        }
        if self.abe {
            let reason = "the kernel treats a mark as a loss";
            return Some(("abe", reason.to_owned()));
        }
        let differs = |word| known.is_none_or(|cc| cc.slow_start != word);
        if self.slow_start.map(Into::into).is_some_and(differs) {
            let reason = format!("the kernel's `{}` ends slow start in another way", cc.0);
            return Some(("slow_start", reason));
        }
        if let Some(pacing) = self.pacing
            && known.is_none_or(|cc| cc.paces != pacing)
        {
            let does = if pacing { "does not pace" } else { "paces" };
            return Some(("pacing", format!("the kernel's `{}` {does}", cc.0)));
        }
        if self.rto_floor != LINUX_RTO_FLOOR {
            let reason = "the kernel's is 200ms beyond the smoothed RTT";
            return Some(("rto_floor", reason.to_owned()));
        }
        None
    }
}

impl Flow {
    /// Returns the first setting that differs from the kernel's TCP: its key, the setting as written,
    /// and the kernel's behaviour.
    pub fn beyond_kernel(&self) -> Option<(&'static str, String, String)> {
        let (cc, _) = self.kind.tcp()?;
        let settings = self.tcp.as_ref()?;
        let (key, reason) = settings.beyond_kernel(cc)?;
        let mut table = Table::default();
        settings.write(&mut table);
        let value = match &table.node(key)?.value {
            Value::Text(text) => format!("\"{text}\""),
            other => other.to_string(),
        };
        Some((key, format!("{key} = {value}"), reason))
    }
}

impl From<SlowStart> for sluice_tcp::SlowStart {
    fn from(word: SlowStart) -> Self {
        match word {
            SlowStart::Standard => sluice_tcp::SlowStart::Standard,
            SlowStart::Hystart => sluice_tcp::SlowStart::Hystart,
            SlowStart::HystartPlusPlus => sluice_tcp::SlowStart::HystartPlusPlus,
        }
    }
}

impl Field for RtoFloor {
    type Scalar = Span;
    const KIND: &'static str = "time or table";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Value::Table(table) = &node.value else {
            return Span::read(key, node, problems).map(RtoFloor::Variance);
        };
        if let (Some(total), 1) = (table.node("total"), table.0.len()) {
            return Span::read("total", total, problems).map(RtoFloor::Total);
        }
        let message = format!("`{key}` as a table has other keys");
        let hint = "write \"200ms\" or { total = \"1s\" }";
        problems.refuse(Problem::new(node.at.clone(), message).hint(hint))
    }

    fn scalar(&self) -> Option<&Span> {
        let (RtoFloor::Variance(floor) | RtoFloor::Total(floor)) = self;
        Some(floor)
    }

    fn write(&self) -> Option<Value> {
        match self {
            RtoFloor::Variance(floor) => floor.write(),
            RtoFloor::Total(floor) => {
                let mut table = Table::default();
                table.push("total", floor.write()?);
                Some(Value::Table(table))
            }
        }
    }
}

/// The only congestion control whose growth can be counted in two units.
const CUBIC: &str = "cubic";
/// Linux `TCP_RTO_MIN`.
const LINUX_RTO_FLOOR: RtoFloor = RtoFloor::Variance(Span::from_ms(200));
