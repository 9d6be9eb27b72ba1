//! The answer to "which is better, and is it more than chance?".
//!
//! For goodput, calls and fairness, higher is better. For completion times and delays, lower is
//! better. A figure decides if its medians differ by more than what its row of [`ROWS`] calls about
//! the same, and by more than the runs' own variation. If fewer runs of one side measured a figure,
//! or none, the runs without it count as the worst, and it decides only if so different numbers are
//! no chance. The delay of a queue decides only where no probe has measured the delay of a path;
//! otherwise it is shown beside the answer.

use std::fmt::Write as _;

use super::{Compared, Pair, Verdict};

/// Which values of a figure are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    High,
    Low,
}

/// The difference up to which two medians are about the same.
#[derive(Clone, Copy, Debug)]
enum About {
    /// A part of the first.
    Part(f64),
    /// A number.
    Number(f64),
}

/// Figures that are judged alike.
struct Row {
    good: Good,
    about: About,
    /// Names; `.end` is the figure of any flow.
    names: &'static [&'static str],
    /// Whether the figures only stand beside the answer if the first row was measured.
    is_beside: bool,
}

const fn row(good: Good, about: About, names: &'static [&'static str]) -> Row {
    Row {
        good,
        about,
        names,
        is_beside: false,
    }
}

/// The figures, in order of their weight. What is about the same is the same here as in the report
/// of several queues: 10 % of a delay, 2 % of a goodput, 0.01 of Jain's index. A tenth of a mean
/// opinion score cannot be heard.
const ROWS: [Row; 6] = [
    row(Good::Low, About::Part(0.1), &[".p95"]),
    row(Good::High, About::Part(0.02), &["total.goodput"]),
    row(Good::High, About::Number(0.1), &[".mos"]),
    row(Good::Low, About::Part(0.1), &[".fct.p95", ".fct"]),
    row(Good::High, About::Number(0.01), &["jain"]),
    Row {
        good: Good::Low,
        about: About::Part(0.1),
        names: &["up.sojourn.p95", "down.sojourn.p95", ".p50"],
        is_beside: true,
    },
];

/// Returns whether the figure has a part in the answer.
pub(super) fn is_deciding(figure: &Compared) -> bool {
    ROWS.iter().any(|row| row.has(figure))
}

impl Row {
    fn has(&self, figure: &Compared) -> bool {
        self.names.iter().any(|name| is_named(figure, name))
    }
}

fn is_named(figure: &Compared, name: &str) -> bool {
    match name.strip_prefix('.') {
        // A figure of a flow: `ping.p95`, and not `ping.up.p95` or `up.sojourn.p95`.
        Some(end) => figure.own_name() == end,
        None => figure.metric == name,
    }
}

/// One figure's part in the answer.
struct Say<'a> {
    figure: &'a Compared,
    row: &'a Row,
    /// Whether it only stands beside the answer.
    is_beside: bool,
}

impl Say<'_> {
    /// Whether the second side is better; `None` if the sides are about the same.
    fn second_is_better(&self) -> Option<bool> {
        // A run that did not measure the figure, such as a transfer that did not end, counts as the
        // worst: otherwise the worse a side, the fewer of its runs would decide.
        let worst = match self.row.good {
            Good::Low => f64::INFINITY,
            Good::High => f64::NEG_INFINITY,
        };
        let median = |side: &Option<super::Repeated>| match (side, self.figure.verdict) {
            (Some(side), Verdict::Missing) => side.median_with(worst),
            (Some(side), _) => side.spread.median,
            (None, _) => worst,
        };
        let (first, second) = (median(&self.figure.first), median(&self.figure.second));
        // Whether a single run is chance is unknown, as with any other figure.
        let is_chance = self.figure.p.is_some_and(|p| p >= 0.05);
        if self.figure.verdict == Verdict::Missing && is_chance {
            return None;
        }
        if !first.is_finite() || !second.is_finite() {
            // More than half of the runs of a side did not measure it.
            let is_better = (second > first) == (self.row.good == Good::High);
            return (first != second).then_some(is_better);
        }
        let about = match self.row.about {
            About::Part(part) => part * first.abs(),
            About::Number(number) => number,
        };
        let is_real = (second - first).abs() > about && self.figure.verdict.is_change();
        is_real.then_some((second > first) == (self.row.good == Good::High))
    }

    /// Such as `ping.p95 31.2ms to 24.1ms (-22.8 %, p < 0.001)`.
    fn words(&self) -> String {
        let Compared { first, second, .. } = self.figure;
        let (first, second) = (self.figure.shown(first), self.figure.shown(second));
        let words = self.figure.change_words();
        let part = self.figure.measured_in();
        let known = words
            .iter()
            .map(String::as_str)
            .filter(|word| word.len() > 1 && first != second);
        let known: Vec<&str> = known.chain(part.as_deref()).collect();
        let beside = match known.is_empty() {
            true => String::new(),
            false => format!(" ({})", known.join(", ")),
        };
        format!("{} {first} to {second}{beside}", self.figure.metric)
    }
}

/// Returns the probability that parts of two sets, each a count and the size of its set, differ by at
/// least as much by chance: Fisher's exact test, two-sided (R. A. Fisher, "Statistical Methods for
/// Research Workers", section 21.02).
pub(super) fn fisher((a, all_a): (usize, usize), (b, all_b): (usize, usize)) -> f64 {
    let ln_factorial = |n: usize| (2..=n).map(|k| (k as f64).ln()).sum::<f64>();
    let ln_ways = |n: usize, k: usize| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let sum = a + b;
    let p = |a: usize| {
        let ways = ln_ways(all_a, a) + ln_ways(all_b, sum - a);
        (ways - ln_ways(all_a + all_b, sum)).exp()
    };
    // Equal probabilities may differ in their last digits.
    let limit = p(a) * (1.0 + 1e-9);
    let possible = sum.saturating_sub(all_b)..=sum.min(all_a);
    possible.map(p).filter(|p| *p <= limit).sum()
}

/// Returns the answer for a pair as lines of text; empty if no deciding figure was measured.
pub(super) fn lines(pair: &Pair) -> String {
    let says = says(&pair.figures);
    if says.is_empty() {
        return String::new();
    }
    let [first, second] = &pair.sides;
    let of = |is_second: bool| -> Vec<&Say<'_>> {
        says.iter()
            .filter(|say| say.second_is_better() == Some(is_second))
            .collect()
    };
    let decides = |says: &[&Say<'_>]| says.iter().any(|say| !say.is_beside);
    let (for_first, for_second) = (of(false), of(true));
    let is_known = pair.runs.iter().all(|runs| *runs > 1);
    let chance = match is_known {
        true => "more than chance",
        false => {
            "from one run on a side, so perhaps chance: other seeds would tell, as with `--repeat 5`"
        }
    };
    let mut out = String::new();
    let _ = match (decides(&for_first), decides(&for_second)) {
        (false, false) => writeln!(
            out,
            "  neither is better: the deciding figures are about the same"
        ),
        (true, false) => writeln!(out, "  {first} is better ({chance})"),
        (false, true) => writeln!(out, "  {second} is better ({chance})"),
        (true, true) => writeln!(out, "  each is better at something ({chance})"),
    };
    for (side, says) in [(first, &for_first), (second, &for_second)] {
        for say in says {
            let beside = match (say.is_beside, decides(says)) {
                (false, _) => "",
                (true, true) => ", also",
                (true, false) => ", but",
            };
            let _ = writeln!(out, "    {side}{beside}: {}", say.words());
        }
    }
    for say in says.iter().filter(|say| say.second_is_better().is_none()) {
        if !say.is_beside {
            let _ = writeln!(out, "    about the same: {}", say.words());
        }
    }
    out
}

/// The figures of the answer. Of each row, it is the first name that was measured, and of the last
/// row all. The scores are those of all calls; without calls, it is that of the first probes. Other UDP
/// packets have a score, too, which says nothing about a call.
fn says(figures: &[Compared]) -> Vec<Say<'_>> {
    let is_shared = |figure: &&Compared| figure.parts.is_some() && !figure.is_of_member;
    let all: Vec<&Compared> = figures.iter().filter(is_shared).collect();
    let is_probe = |figure: &Compared| {
        let is_its = |other: &&Compared| other.own_name() == "p95" && other.flow == figure.flow;
        all.iter().any(is_its)
    };
    let mut says: Vec<Say<'_>> = Vec::new();
    for row in &ROWS {
        let found = || all.iter().copied().filter(|figure| row.has(figure));
        let chosen: Vec<&Compared> = match (row.is_beside, row.names == [".mos"]) {
            (true, _) => found().collect(),
            (false, true) => {
                let calls: Vec<&Compared> = found().filter(|figure| figure.is_of_call).collect();
                match calls.is_empty() {
                    true => first_ping(found().filter(|figure| is_probe(figure)).collect()),
                    false => calls,
                }
            }
            (false, false) => {
                // Exchanges over a connection have the same figures as a ping.
                let named = |name: &&str| {
                    let its = all.iter().copied();
                    let found = first_ping(its.filter(|figure| is_named(figure, name)).collect());
                    (!found.is_empty()).then_some(found)
                };
                row.names.iter().find_map(named).unwrap_or_default()
            }
        };
        let has_probes = all.iter().any(|figure| ROWS[0].has(figure));
        says.extend(chosen.into_iter().map(|figure| Say {
            figure,
            row,
            is_beside: row.is_beside && has_probes,
        }));
    }
    says
}

/// Returns the figure of the first ping, or without one the first figure.
fn first_ping(figures: Vec<&Compared>) -> Vec<&Compared> {
    let ping = figures.iter().position(|figure| figure.is_of_ping);
    figures
        .into_iter()
        .skip(ping.unwrap_or(0))
        .take(1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_sets_are_compared_by_fishers_exact_test() {
        // All of four against none of four: 2 of the 70 ways to choose four of eight.
        assert!((fisher((4, 4), (0, 4)) - 2.0 / 70.0).abs() < 1e-12);
        // Fisher's tea: three of four against one of four, (16 + 1) * 2 of 70.
        assert!((fisher((3, 4), (1, 4)) - 34.0 / 70.0).abs() < 1e-12);
        assert!((fisher((3, 5), (3, 5)) - 1.0).abs() < 1e-12);
        assert!((fisher((0, 2), (0, 3)) - 1.0).abs() < 1e-12);
    }
}
