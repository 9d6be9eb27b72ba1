//! The answer to "which is better, and is it more than chance?".
//!
//! Only key figures decide. For goodput and fairness, higher is better. For completion times and
//! for the delay of probes and calls (without them, of the queue), lower is better. A figure counts
//! for a side if the medians differ by at least [`MATTERS`] and the difference is more than the
//! runs' own variation.

use std::fmt::Write as _;

use super::{Compared, Pair, Verdict};
use sluice_recording::figures::rounded;

/// Which values of a figure are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    High,
    Low,
}

/// A smaller difference of the medians, as a part of the first, does not count.
const MATTERS: f64 = 0.01;

/// The ends of the names of figures that decide, in order of their weight. In each row, the first
/// measured figure decides.
const DECIDING: [(Good, &[&str]); 5] = [
    (Good::Low, &[".p95", "up.sojourn.p95", "down.sojourn.p95"]),
    (Good::High, &["total.goodput"]),
    (Good::High, &[".mos"]),
    (Good::Low, &[".fct.p95", ".fct"]),
    (Good::High, &["jain"]),
];

/// One figure's part in the answer.
struct Say<'a> {
    figure: &'a Compared,
    good: Good,
}

impl Say<'_> {
    /// Whether the second side is better; `None` if the sides are about the same.
    fn second_is_better(&self) -> Option<bool> {
        let change = self.figure.change?;
        let is_more = change > 0.0;
        let is_real = change.abs() >= MATTERS && self.figure.verdict.is_change();
        is_real.then_some(is_more == (self.good == Good::High))
    }

    fn words(&self) -> String {
        let show = |side: &Option<super::Repeated>| match side {
            Some(side) => self.figure.unit.show(rounded(side.spread.median)),
            None => "-".into(),
        };
        let (first, second) = (show(&self.figure.first), show(&self.figure.second));
        format!("{} {first} to {second}", self.figure.metric)
    }
}

/// Returns the answer for a pair as lines of text; empty if no deciding figure was measured.
pub(super) fn lines(pair: &Pair) -> String {
    let says = deciding(&pair.figures);
    if says.is_empty() {
        return String::new();
    }
    let [first, second] = &pair.sides;
    let of = |is_second: bool| -> Vec<&Say<'_>> {
        says.iter()
            .filter(|say| say.second_is_better() == Some(is_second))
            .collect()
    };
    let (for_first, for_second) = (of(false), of(true));
    let is_known = pair.runs.iter().all(|runs| *runs > 1);
    let chance = match is_known {
        true => "more than chance",
        false => "from one run on a side, so perhaps chance: `--repeat 5` would tell",
    };
    let mut out = String::new();
    let _ = match (for_first.is_empty(), for_second.is_empty()) {
        (true, true) if is_known => {
            writeln!(
                out,
                "  neither is better: what differs is no more than chance"
            )
        }
        (true, true) => writeln!(out, "  neither is better"),
        (false, true) => writeln!(out, "  {first} is better ({chance})"),
        (true, false) => writeln!(out, "  {second} is better ({chance})"),
        (false, false) => writeln!(out, "  each is better at something ({chance})"),
    };
    for (side, says) in [(first, &for_first), (second, &for_second)] {
        for say in says {
            let _ = writeln!(out, "    {side}: {}", say.words());
        }
    }
    for say in says.iter().filter(|say| say.second_is_better().is_none()) {
        let within = match say.figure.verdict {
            Verdict::WithinSpread => ", within chance",
            _ => "",
        };
        let _ = writeln!(out, "    about the same: {}{within}", say.words());
    }
    out
}

fn deciding(figures: &[Compared]) -> Vec<Say<'_>> {
    let both = |figure: &&Compared| {
        figure.first.is_some() && figure.second.is_some() && !figure.is_of_member
    };
    let mut says: Vec<Say<'_>> = Vec::new();
    for (good, names) in DECIDING {
        let found = names.iter().find_map(|name| {
            let is_it = |figure: &&Compared| match name.strip_prefix('.') {
                // A figure of a flow: `ping.p95`, and not `ping.up.p95` or `up.sojourn.p95`.
                Some(end) => figure
                    .metric
                    .split_once('.')
                    .is_some_and(|(_, rest)| rest == end),
                None => figure.metric == *name,
            };
            figures.iter().filter(both).find(is_it)
        });
        says.extend(found.map(|figure| Say { figure, good }));
    }
    says
}
