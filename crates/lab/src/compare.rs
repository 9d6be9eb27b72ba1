//! Compares two sets of runs: finds the differences, and whether they exceed the runs' own
//! variation.
//!
//! Variants are compared with variants of the same name, figure by figure. With several runs on
//! both sides, Welch's t test ([`Spread::differs`](sluice_recording::metrics::Spread::differs))
//! decides. With a single run on one side, the variation is unknown, which is a separate verdict.

mod answer;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use crate::table::cut;
use sluice_recording::expect::Outcome;
use sluice_recording::figures::{FlowNames, Repeated, is_key_figure, repeated_beside, rounded};
use sluice_recording::results::VariantResult;
use sluice_recording::runs::{Found, Place};
use sluice_scenario::metric::{FlowSummary, Unit};
use sluice_scenario::{Backend, Flow};

/// Two compared sets of runs.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Variants in both sets.
    pub pairs: Vec<Pair>,
    /// Variants in the first set only.
    pub only_first: Vec<String>,
    /// Variants in the second set only.
    pub only_second: Vec<String>,
}

/// A variant in both sets.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// Scenario, variant and backend. If the names differ, both.
    pub name: String,
    /// The name of each side: the variant, or "the first" and "the second" if the variants have the
    /// same name.
    pub sides: [String; 2],
    /// The number of its runs in each set.
    pub runs: [usize; 2],
    /// The differences between the scenarios: lines of the scenario that only one side has, except
    /// expectations.
    pub differences: Vec<Line>,
    /// Expectations that both sides have and only one meets.
    pub expectations: Vec<Turned>,
    /// All figures.
    pub figures: Vec<Compared>,
}

/// A line of a scenario that only one side has.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whether it is the first side.
    pub is_first: bool,
    /// The line.
    pub text: String,
}

/// An expectation that only one side meets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Turned {
    /// The figure.
    pub metric: String,
    /// The bounds in words.
    pub bounds: String,
    /// Whether the second side meets it.
    pub is_met: bool,
}

/// A figure of both sides.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Name.
    pub metric: String,
    /// Its unit.
    pub unit: Unit,
    /// The first side's values; `None` if it was not measured there.
    pub first: Option<Repeated>,
    /// The second side's values.
    pub second: Option<Repeated>,
    /// The difference of the medians, as a part of the first; `None` if another part of the runs
    /// measured the figure on each side.
    pub change: Option<f64>,
    /// The probability of such a difference by chance, by Welch's t test; of the numbers of runs that
    /// measured the figure, by Fisher's exact test, if they differ. `None` if one side has a single run.
    pub p: Option<f64>,
    /// The verdict on the difference.
    pub verdict: Verdict,
    /// Whether it belongs to one of several flows of a group, which has figures of its own.
    #[serde(skip)]
    pub is_of_member: bool,
    /// Whether it belongs to a call.
    #[serde(skip)]
    is_of_call: bool,
    /// Whether it belongs to a ping.
    #[serde(skip)]
    is_of_ping: bool,
    /// Whether it is one of the few that describe a run.
    #[serde(skip)]
    is_key: bool,
    /// The flow whose figure it is; `None` for figures of the run or of a link.
    #[serde(skip)]
    flow: Option<String>,
    /// In how many runs of each side the figure was measured, and the number of runs; `None` if one
    /// side does not have what is measured.
    #[serde(skip)]
    parts: Option<[(usize, usize); 2]>,
}

/// The verdict on two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The values are the same, within the tolerance.
    Same,
    /// The values differ by no more than the runs' own variation.
    WithinSpread,
    /// The values differ by more than the runs' own variation.
    BeyondSpread,
    /// The values differ, and the runs' own variation is unknown: one side has only one run.
    Differs,
    /// Another part of the runs measured the figure, perhaps none, so the values are not those of
    /// like runs.
    Missing,
}

impl Verdict {
    /// Returns whether the figure may have changed.
    pub const fn is_change(self) -> bool {
        matches!(
            self,
            Verdict::BeyondSpread | Verdict::Differs | Verdict::Missing
        )
    }

    const fn words(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::WithinSpread => "within the spread",
            Verdict::BeyondSpread => "more than the spread",
            Verdict::Differs => "spread unknown",
            Verdict::Missing => "measured in others",
        }
    }
}

/// Compares `first` with `second`. Medians that differ by no more than the part `tolerance` are the
/// same.
pub fn compare(first: &[Place], second: &[Place], tolerance: f64) -> Comparison {
    let has_places = first.len() > 1 || second.len() > 1;
    let first: Vec<&Found> = first.iter().flat_map(|place| &place.results).collect();
    let second: Vec<&Found> = second.iter().flat_map(|place| &place.results).collect();
    let mut comparison = Comparison {
        pairs: Vec::new(),
        only_first: Vec::new(),
        only_second: Vec::new(),
    };
    // Two single variants are compared whatever their names.
    if let ([a], [b]) = (&first[..], &second[..]) {
        comparison.pairs.push(pair(a, b, has_places, tolerance));
        return comparison;
    }
    let key = |found: &Found| {
        let result = &found.result;
        (
            result.scenario.clone(),
            result.variant.clone(),
            result.backend,
        )
    };
    let mut used = BTreeSet::new();
    for a in &first {
        let namesake = (0..second.len())
            .find(|number| !used.contains(number) && key(second[*number]) == key(a));
        match namesake {
            Some(number) => {
                used.insert(number);
                comparison
                    .pairs
                    .push(pair(a, second[number], has_places, tolerance));
            }
            None => comparison.only_first.push(name(&a.result, has_places)),
        }
    }
    let rest = (0..second.len()).filter(|number| !used.contains(number));
    comparison.only_second = rest
        .map(|number| name(&second[number].result, has_places))
        .collect();
    comparison
}

fn name(result: &VariantResult, has_places: bool) -> String {
    let place = match has_places && !result.scenario.is_empty() {
        true => format!("{} ", result.scenario),
        false => String::new(),
    };
    let backend = match result.backend {
        Backend::Sim => "",
        Backend::Live => " (live)",
    };
    format!("{place}{}{backend}", result.variant)
}

fn pair(a: &Found, b: &Found, has_places: bool, tolerance: f64) -> Pair {
    let names = [a, b].map(|found| name(&found.result, has_places));
    let figures_of = |found: &Found, other: &Found| {
        repeated_beside(&found.result.summaries(), &other.result.summaries())
    };
    let mut sides: IndexMap<String, [Option<Repeated>; 2]> = IndexMap::new();
    for (side, figures) in [figures_of(a, b), figures_of(b, a)].into_iter().enumerate() {
        for (metric, figure) in figures {
            sides.entry(metric).or_default()[side] = Some(figure);
        }
    }
    let (shared, runs) = (shared(a, b), [a, b].map(|found| found.result.runs.len()));
    let summaries = [a.result.summaries(), b.result.summaries()].concat();
    let names_of_flows = FlowNames::of(&summaries);
    let compare = |(metric, [first, second]): (String, [Option<Repeated>; 2])| {
        let runs = is_of(&metric, &shared).then_some(runs);
        compared(&metric, &names_of_flows, (first, second), runs, tolerance)
    };
    let mut figures: Vec<Compared> = sides.into_iter().map(compare).collect();
    let flows = [a, b].map(|found| &found.recording.run().scenario.flows);
    let members: BTreeSet<String> = flows.into_iter().flatten().flat_map(members).collect();
    let of_kind = |is_kind: fn(&FlowSummary) -> bool| -> BTreeSet<String> {
        let sides = [a, b].into_iter();
        sides.flat_map(|found| flows_that(found, is_kind)).collect()
    };
    let (calls, pings) = (of_kind(FlowSummary::is_call), of_kind(FlowSummary::is_ping));
    for figure in &mut figures {
        figure.is_of_member = is_of(&figure.metric, &members);
        let of_flow = |names: &BTreeSet<String>| {
            let flow = figure.flow.as_ref();
            flow.is_some_and(|flow| names.contains(flow))
        };
        (figure.is_of_call, figure.is_of_ping) = (of_flow(&calls), of_flow(&pings));
    }
    Pair {
        name: match names[0] == names[1] {
            true => names[0].clone(),
            false => names.join(" against "),
        },
        sides: match names[0] == names[1] {
            true => ["the first", "the second"].map(str::to_owned),
            false => names,
        },
        runs,
        differences: differences(a, b),
        expectations: turned(a, b),
        figures,
    }
}

/// Returns the beginnings of the names of figures of the flows in a group of several: `bulk-1.`.
fn members(flow: &Flow) -> Vec<String> {
    let numbers = 1..=flow.count;
    let name = |number| format!("{}-{number}.", flow.name);
    numbers.filter(|_| flow.count > 1).map(name).collect()
}

/// Returns the names of the flows and groups of a kind.
fn flows_that(found: &Found, is_kind: fn(&FlowSummary) -> bool) -> BTreeSet<String> {
    let summaries = found.result.summaries();
    let flows = summaries
        .iter()
        .flat_map(|run| run.groups.iter().chain(&run.flows));
    let chosen = flows.filter(|flow| is_kind(flow));
    chosen.map(|flow| flow.name.clone()).collect()
}

/// Returns the beginnings of the names of figures that both sides can have measured: those of flows
/// with the same settings on the same backend.
fn shared(a: &Found, b: &Found) -> BTreeSet<String> {
    if a.result.backend != b.result.backend {
        return BTreeSet::new();
    }
    let others = &b.recording.run().scenario.flows;
    let flows = a.recording.run().scenario.flows.iter();
    let shared = flows.filter(|flow| others.contains(flow));
    shared
        .flat_map(|flow| std::iter::once(format!("{}.", flow.name)).chain(members(flow)))
        .collect()
}

/// Returns whether the name of a figure has one of these beginnings.
fn is_of(metric: &str, beginnings: &BTreeSet<String>) -> bool {
    // A flow's name may have dots of its own.
    let mut ends = metric.match_indices('.').map(|(at, _)| at + 1);
    ends.any(|end| beginnings.contains(&metric[..end]))
}

/// Returns the expectations of both sides that only one meets.
fn turned(a: &Found, b: &Found) -> Vec<Turned> {
    let turn = |first: &Outcome| {
        let is_same = |second: &&Outcome| {
            second.metric == first.metric
                && second.bounds == first.bounds
                && second.passed != first.passed
        };
        let second = b.result.expect.iter().find(is_same)?;
        Some(Turned {
            metric: first.metric.clone(),
            bounds: first.bounds.clone(),
            is_met: second.passed,
        })
    };
    a.result.expect.iter().filter_map(turn).collect()
}

/// Compares the values of a figure. A side without any has not measured it in its `runs`; without
/// `runs`, it does not have what is measured.
fn compared(
    metric: &str,
    flows: &FlowNames,
    (first, second): (Option<Repeated>, Option<Repeated>),
    runs: Option<[usize; 2]>,
    tolerance: f64,
) -> Compared {
    let unit = first.as_ref().or(second.as_ref()).map(|figure| figure.unit);
    let part = |side: &Option<Repeated>, at: usize| match side {
        Some(side) => Some((side.spread.count, side.runs)),
        None => runs.map(|runs| (0, runs[at])),
    };
    let parts = part(&first, 0).zip(part(&second, 1)).map(|(a, b)| [a, b]);
    let is_missing = parts.is_some_and(|[a, b]| a.0 * b.1 != b.0 * a.1);
    let (change, verdict) = match (&first, &second) {
        // The runs without the figure are often the worst, such as transfers that did not end: a
        // change of the medians of the others would mean nothing.
        _ if is_missing => (None, Verdict::Missing),
        (Some(a), Some(b)) => {
            let (from, to) = (a.spread.median, b.spread.median);
            let change = to / from - 1.0;
            let change = change.is_finite().then_some(change);
            let is_close = (to - from).abs() <= tolerance * from.abs();
            let verdict = match a.spread.differs(&b.spread) {
                _ if a.values == b.values => Verdict::Same,
                _ if tolerance > 0.0 && is_close => Verdict::Same,
                Some(true) => Verdict::BeyondSpread,
                Some(false) => Verdict::WithinSpread,
                None => Verdict::Differs,
            };
            (change, verdict)
        }
        // The other side has no such figure.
        _ => (None, Verdict::Differs),
    };
    let both = first.as_ref().zip(second.as_ref());
    let p = match verdict {
        Verdict::Missing => parts
            .filter(|parts| parts.iter().all(|(_, runs)| *runs > 1))
            .map(|[a, b]| answer::fisher(a, b)),
        _ => both.and_then(|(a, b)| a.spread.p_value(&b.spread)),
    };
    Compared {
        metric: metric.to_owned(),
        is_of_member: false,
        is_of_call: false,
        is_of_ping: false,
        is_key: is_key_figure(metric, flows),
        flow: flows.split(metric).map(|(flow, _)| flow.to_owned()),
        parts,
        unit: unit.expect("one of both has the figure"),
        first,
        second,
        change,
        p,
        verdict,
    }
}

/// Returns the settings of a scenario, each with its path: `flow.bulk.cc = "cubic"`. Expectations
/// are left out.
pub(crate) fn settings(scenario_toml: &str) -> Vec<String> {
    let mut settings = Vec::new();
    let (mut place, mut hops) = (String::new(), 1);
    let mut lines = scenario_toml.lines();
    while let Some(line) = lines.next() {
        match line {
            "[[expect]]" => place = "expect.".into(),
            "[[hop]]" => {
                hops += 1;
                place = format!("hop.{hops}.");
            }
            "[[flow]]" => {
                // The name is in one of the lines that follow.
                let named = lines.clone().find_map(|line| line.strip_prefix("name = "));
                place = format!("flow.{}.", named.unwrap_or_default().trim_matches('"'));
            }
            _ if line.starts_with('[') => {
                let table = line.trim_matches(['[', ']']);
                // The tables of a hop's directions follow its own.
                place = match table.strip_prefix("hop.") {
                    Some(direction) => format!("hop.{hops}.{direction}."),
                    None => format!("{table}."),
                };
            }
            _ if line.is_empty() || place == "expect." => {}
            _ => settings.push(format!("{place}{line}")),
        }
    }
    settings
}

/// Returns the settings that only one side has, and programs and kernels if they differ.
fn differences(a: &Found, b: &Found) -> Vec<Line> {
    let lines = |found: &Found| -> Vec<String> {
        let run = found.recording.run();
        let here = &run.environment;
        let mut lines = settings(&run.scenario_toml);
        lines.retain(|line| !line.starts_with("seed ="));
        let program = here.program_id.as_deref().unwrap_or("unknown");
        let short = program.get(..12).unwrap_or(program);
        lines.push(format!("# program: {} ({short})", here.program));
        if here.backend == Backend::Live {
            lines.push(format!("# machine: {}, {}", here.host, here.kernel));
        }
        lines
    };
    let (first, second) = (lines(a), lines(b));
    let only = |these: &[String], those: &[String], is_first| -> Vec<Line> {
        let is_missing = |line: &&String| !those.contains(line);
        let line = |text: &String| Line {
            is_first,
            text: text.clone(),
        };
        these.iter().filter(is_missing).map(line).collect()
    };
    let mut all = only(&first, &second, true);
    all.extend(only(&second, &first, false));
    all
}

impl Comparison {
    /// Returns whether a figure has changed ([`Comparison::changes`]), or a variant is missing on one
    /// side.
    pub fn has_changes(&self) -> bool {
        !self.only_first.is_empty() || !self.only_second.is_empty() || !self.changes().is_empty()
    }

    /// Returns the figures that have changed, allowing for their number.
    ///
    /// [`Verdict::BeyondSpread`] is wrong for one in twenty figures of equal sets, so that of a hundred
    /// some would always have changed. Here the p values of all figures together are judged as in
    /// Benjamini and Hochberg 1995: at most 5 % of what is returned is expected to be chance, and
    /// of equal sets nothing is returned in 95 % of the cases.
    pub fn changes(&self) -> Vec<&Compared> {
        let figures = || self.pairs.iter().flat_map(|pair| &pair.figures);
        // Figures with a single value in all runs of both sides could not differ.
        let tested = figures().filter(|figure| !figure.is_equal());
        let limit = highest_significant(tested.filter_map(|figure| figure.p).collect());
        let has_changed = |figure: &&Compared| match figure.verdict {
            Verdict::Differs => true,
            Verdict::Missing => figure.p.is_none_or(|p| Some(p) <= limit),
            Verdict::BeyondSpread => figure.p.is_some_and(|p| Some(p) <= limit),
            Verdict::Same | Verdict::WithinSpread => false,
        };
        figures().filter(has_changed).collect()
    }

    /// Returns the names of all figures.
    pub fn figures(&self) -> Vec<String> {
        let figures = self.pairs.iter().flat_map(|pair| &pair.figures);
        let names: IndexSet<&String> = figures.map(|figure| &figure.metric).collect();
        names.into_iter().cloned().collect()
    }

    /// Formats the comparison as JSON.
    ///
    /// # Panics
    /// Never: it contains only numbers and words.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a comparison has only words for keys") + "\n"
    }

    /// Formats the comparison as text, with the figures that `shown` chooses.
    pub fn text(&self, shown: &Shown) -> String {
        let mut out = String::new();
        for pair in &self.pairs {
            write_pair(&mut out, pair, shown);
            out.push('\n');
        }
        for (names, which) in [(&self.only_first, "first"), (&self.only_second, "second")] {
            for name in names {
                let _ = writeln!(out, "only in the {which}: {name}");
            }
        }
        out
    }
}

/// Returns the highest of these p values that is significant at the 5 % level among all of them:
/// Benjamini and Hochberg 1995, procedure (1). With `m` values in ascending order, it is the last one
/// that is at most `i / m` of the level, where `i` counts from 1.
fn highest_significant(mut p: Vec<f64>) -> Option<f64> {
    p.sort_by(f64::total_cmp);
    let count = p.len() as f64;
    let is_low = |(i, p): &(usize, f64)| *p <= (*i + 1) as f64 / count * LEVEL;
    let all = p.into_iter().enumerate();
    all.filter(is_low).map(|(_, p)| p).next_back()
}

/// The level of significance, as of [`Spread::differs`](sluice_recording::metrics::Spread::differs).
const LEVEL: f64 = 0.05;

/// Which figures a text shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// The key figures that have changed. Single flows of a group are left out.
    #[default]
    Key,
    /// All figures.
    All,
    /// The figures with these names, and nothing else.
    Named(Vec<String>),
}

impl Shown {
    fn has(&self, figure: &Compared) -> bool {
        match self {
            Shown::Key => figure.is_visible() && figure.is_notable(),
            Shown::All => true,
            Shown::Named(names) => names.contains(&figure.metric),
        }
    }
}

impl Compared {
    /// Returns whether both sides have the same values.
    fn is_equal(&self) -> bool {
        let both = self.first.as_ref().zip(self.second.as_ref());
        both.is_some_and(|(first, second)| {
            first.values == second.values && first.has_same_part(second)
        })
    }

    /// Returns whether the figure has changed by more than its displayed digits hide.
    fn is_visible(&self) -> bool {
        let is_shown =
            self.verdict == Verdict::Missing || self.shown(&self.first) != self.shown(&self.second);
        self.verdict.is_change() && is_shown
    }

    /// Returns whether it is shown if it has changed.
    fn is_notable(&self) -> bool {
        !self.is_of_member && (self.is_key || answer::is_deciding(self))
    }

    /// Returns the name without that of the flow, such as `p95`; empty if it is of no flow.
    fn own_name(&self) -> &str {
        let behind = |flow: &str| self.metric.strip_prefix(flow)?.strip_prefix('.');
        self.flow.as_deref().and_then(behind).unwrap_or_default()
    }

    /// The median of a side, as it is displayed.
    fn shown(&self, side: &Option<Repeated>) -> String {
        match side {
            Some(side) => self.unit.show(rounded(side.spread.median)),
            None => "-".into(),
        }
    }

    /// In how many runs of each side the figure was measured, such as `in 7 and 5 of 8`; `None` if
    /// in all.
    fn measured_in(&self) -> Option<String> {
        let Some([a, b]) = self.parts else {
            let only = self.first.as_ref().or(self.second.as_ref())?;
            return only.measured_in();
        };
        if [a, b].iter().all(|(count, runs)| count == runs) {
            return None;
        }
        Some(match a.1 == b.1 {
            true if a.0 == b.0 => format!("in {} of {}", a.0, a.1),
            true => format!("in {} and {} of {}", a.0, b.0, a.1),
            false => format!("in {} of {}, {} of {}", a.0, a.1, b.0, b.1),
        })
    }

    /// The change and its probability by chance, as far as they are known.
    fn change_words(&self) -> [String; 2] {
        let change = match self.change {
            Some(change) => format!("{:+.1} %", change * 100.0),
            None => "-".into(),
        };
        let p = match self.p {
            Some(p) if p < 0.001 => "p < 0.001".into(),
            Some(p) => format!("p = {p:.3}"),
            None => String::new(),
        };
        [change, p]
    }
}

fn write_pair(out: &mut String, pair: &Pair, wanted: &Shown) {
    let [a, b] = pair.runs;
    let plural = if a == 1 { "" } else { "s" };
    let _ = writeln!(out, "{}: {a} run{plural} against {b}", pair.name);
    let has_all = !matches!(wanted, Shown::Named(_));
    if has_all {
        out.push_str(&answer::lines(pair));
        write_settings(out, pair);
    }
    let shown: Vec<&Compared> = pair.figures.iter().filter(|f| wanted.has(f)).collect();
    for figure in &shown {
        let [change, p] = figure.change_words();
        let verdict = match (figure.verdict, p.is_empty()) {
            (Verdict::BeyondSpread | Verdict::WithinSpread, false) => &p,
            _ => figure.verdict.words(),
        };
        let verdict = match (figure.verdict, figure.measured_in()) {
            (Verdict::Missing, Some(part)) if p.is_empty() => part,
            (Verdict::Missing, Some(part)) => format!("{part}, {p}"),
            (_, Some(part)) => format!("{verdict}, {part}"),
            (_, None) => verdict.to_owned(),
        };
        let _ = writeln!(
            out,
            "  {:<20} {:>12} {:>12} {:>9}  {verdict}",
            figure.metric,
            figure.shown(&figure.first),
            figure.shown(&figure.second),
            change,
        );
    }
    if !has_all {
        return;
    }
    let changed = pair.figures.iter().filter(|f| f.verdict.is_change());
    let all = pair.figures.len();
    let changed = match changed.count() {
        0 => format!("nothing has changed in {all} figures"),
        n => format!("{n} of {all} figures have changed"),
    };
    let rest = match wanted {
        Shown::Key if changed.starts_with("nothing") => "",
        Shown::Key => "; the key figures among them are shown (--all, --figures)",
        _ => "",
    };
    let _ = writeln!(out, "  {changed}{rest}");
}

/// Writes the settings that differ, and the expectations that only one side meets.
fn write_settings(out: &mut String, pair: &Pair) {
    for line in &pair.differences {
        let sign = if line.is_first { '-' } else { '+' };
        let _ = writeln!(out, "  {sign} {}", cut(&line.text, MOST_TEXT));
    }
    for Turned {
        metric,
        bounds,
        is_met,
    } in &pair.expectations
    {
        let turn = match is_met {
            true => "not met, then met",
            false => "met, then not met",
        };
        let room = MOST_TEXT - turn.len();
        let _ = writeln!(
            out,
            "  {turn}: {}",
            cut(&format!("{metric} {bounds}"), room)
        );
    }
}

/// The length to which a line of a scenario is cut.
const MOST_TEXT: usize = 76;
