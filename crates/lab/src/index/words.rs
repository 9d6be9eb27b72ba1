//! Sentences about queues, made from their figures.
//!
//! The rule: of the queues that reach at least [`NEARLY`] of the best goodput, the one with the lowest
//! 95th percentile of delay is the better one for whatever waits for an answer. What else may speak for
//! a queue: goodput that the others do not reach, more equal shares, fewer losses.

use super::{Entry, Figures, Row};
use crate::figures::median;
use crate::metrics::Unit;
use crate::scenario::Backend;

/// What a queue came to in a scenario, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// What it is good for here; nothing if another one does everything better.
    pub good_for: Option<String>,
    /// Why.
    pub why: String,
}

/// A part of the best goodput that counts as reaching it.
const NEARLY: f64 = 0.95;
/// Delays no further apart than this factor are about the same.
const ABOUT: f64 = 1.1;

/// A judgement for each of `rows`, which are compared with those on the same backend.
pub(super) fn judge(rows: &[Row]) -> Vec<Judgement> {
    rows.iter()
        .enumerate()
        .map(|(number, row)| {
            let is_rival = |other: &&Row| other.backend == row.backend;
            let rivals: Vec<&Row> = rows.iter().filter(is_rival).collect();
            let own = rows[..number].iter().filter(is_rival).count();
            judge_one(&rivals, own)
        })
        .collect()
}

fn judge_one(rivals: &[&Row], own: usize) -> Judgement {
    let row = rivals[own];
    let figures = &row.figures;
    let best = Best::of(rivals);
    let mut why = vec![delay_words(rivals, own, &best)];
    why.push(goodput_words(figures, &best, rivals.len() > 1));
    why.extend(shares_words(figures));
    why.extend(loss_words(figures));
    let why: Vec<String> = why.into_iter().filter(|words| !words.is_empty()).collect();
    let good_for = match rivals.len() {
        1 => None,
        _ => good_for(figures, &best),
    };
    Judgement {
        good_for,
        why: match why.is_empty() {
            true => "nothing was measured".into(),
            false => why.join("; "),
        },
    }
}

/// The best of several queues.
struct Best {
    goodput: Option<f64>,
    /// Lowest 95th percentile of those that reach nearly the best goodput.
    p95: Option<f64>,
    /// How many have about that.
    as_low: usize,
    /// The largest Jain index of those, and the largest of all.
    winners_jain: Option<f64>,
    jain: Option<f64>,
    /// The smallest part of packets lost by those.
    winners_loss: Option<f64>,
    winners_goodput: Option<f64>,
}

impl Best {
    fn of(rows: &[&Row]) -> Best {
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let all = || rows.iter().map(|row| &row.figures);
        let goodput = most(&mut all().filter_map(|f| f.goodput));
        let p95 = least(&mut all().filter(|f| reaches(f, goodput)).filter_map(|f| f.p95));
        let winners = || all().filter(|f| wins(f, goodput, p95));
        Best {
            goodput,
            p95,
            as_low: winners().count(),
            winners_jain: most(&mut winners().filter_map(|f| f.jain)),
            jain: most(&mut all().filter_map(|f| f.jain)),
            winners_loss: least(&mut winners().filter_map(loss)),
            winners_goodput: most(&mut winners().filter_map(|f| f.goodput)),
        }
    }

    fn has_won(&self, figures: &Figures) -> bool {
        wins(figures, self.goodput, self.p95)
    }
}

/// Whether the goodput is nearly the best.
fn reaches(figures: &Figures, best: Option<f64>) -> bool {
    match (figures.goodput, best) {
        (Some(own), Some(best)) => own >= NEARLY * best,
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

/// Whether the delay is about the lowest at nearly the best goodput.
fn wins(figures: &Figures, goodput: Option<f64>, p95: Option<f64>) -> bool {
    reaches(figures, goodput)
        && figures
            .p95
            .zip(p95)
            .is_some_and(|(own, best)| own <= ABOUT * best)
}

fn loss(figures: &Figures) -> Option<f64> {
    (figures.packets > 0.0).then(|| figures.drops / figures.packets)
}

fn good_for(figures: &Figures, best: &Best) -> Option<String> {
    let mut purposes = Vec::new();
    if best.has_won(figures) {
        purposes.push("calls, games and browsing while the link is full");
    }
    let (own, winners) = (figures.goodput?, best.winners_goodput.unwrap_or(0.0));
    if !best.has_won(figures) && own > winners / 0.98 && Some(own) == best.goodput {
        purposes.push("transfers for which nobody waits");
    }
    let is_even = |jain: f64| jain >= 0.95;
    if let (Some(jain), Some(most)) = (figures.jain, best.jain) {
        let others = match best.has_won(figures) {
            true => 0.0,
            // Only more equal shares than the queue with the low delay has speak for another one.
            false => best.winners_jain.unwrap_or(0.0) + 0.03,
        };
        if is_even(jain) && jain >= most - 0.01 && jain > others {
            purposes.push("equal shares among users");
        }
    }
    let fewest = loss(figures).zip(best.winners_loss);
    if fewest.is_some_and(|(own, winners)| winners > 0.001 && own < winners / 2.0) {
        purposes.push("traffic that losses hurt");
    }
    (!purposes.is_empty()).then(|| purposes.join(", and for "))
}

fn delay_words(rivals: &[&Row], own: usize, best: &Best) -> String {
    let figures = &rivals[own].figures;
    let Some(p95) = figures.p95 else {
        return String::new();
    };
    let of = figures.delay_of.word();
    let shown = time(p95);
    if rivals.len() == 1 {
        return format!("95 % of {of} within {shown}");
    }
    let Some(lowest) = best.p95 else {
        return format!("95 % of {of} within {shown}");
    };
    if best.has_won(figures) {
        return match best.as_low {
            1 => format!("the lowest delay of all: 95 % of {of} within {shown}"),
            _ => format!("as low a delay as any: 95 % of {of} within {shown}"),
        };
    }
    let holder = rivals.iter().find(|row| row.figures.p95 == Some(lowest));
    let holder = holder.map_or("the best", |row| &row.variant);
    let factor = p95 / lowest;
    match factor {
        f if f < 1.0 => format!("95 % of {of} within {shown}, at a price in goodput"),
        f if f < 10.0 => {
            format!("95 % of {of} take up to {shown}, {f:.1} times as long as with {holder}")
        }
        f => format!("95 % of {of} take up to {shown}, {f:.0} times as long as with {holder}"),
    }
}

fn goodput_words(figures: &Figures, best: &Best, has_rivals: bool) -> String {
    let (Some(own), Some(most)) = (figures.goodput, best.goodput) else {
        return String::new();
    };
    let shown = Unit::Rate.show((own / 1e3).round() * 1e3);
    match own / most {
        _ if !has_rivals => format!("{shown} of payload"),
        part if part >= 0.98 => format!("full goodput ({shown})"),
        part if part >= NEARLY => format!("{:.0} % of the best goodput ({shown})", part * 100.0),
        part => format!("gives up {:.0} % of the goodput", (1.0 - part) * 100.0),
    }
}

fn shares_words(figures: &Figures) -> Option<String> {
    let jain = figures.jain?;
    Some(match jain {
        j if j >= 0.95 => format!("shares evenly (Jain {jain:.2})"),
        j if j >= 0.8 => format!("shares fairly evenly (Jain {jain:.2})"),
        _ => format!("shares unevenly (Jain {jain:.2})"),
    })
}

fn loss_words(figures: &Figures) -> Option<String> {
    let loss = loss(figures)?;
    match (figures.drops == 0.0, figures.marks > 0.0) {
        (true, true) => Some("marks and drops nothing".into()),
        (true, false) => Some("drops nothing".into()),
        _ if loss >= 0.01 => Some(format!("drops {:.1} % of the packets", loss * 100.0)),
        _ => None,
    }
}

/// What a kind of queue came to over all scenarios in which it met another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overall {
    pub algorithm: String,
    /// How many scenarios.
    pub scenarios: usize,
    /// In how many of them it had about the lowest delay at nearly the best goodput.
    pub won: usize,
    /// Median over the scenarios of its delay against the lowest.
    pub delay_factor: Option<f64>,
    /// Median of its goodput against the best.
    pub goodput_part: Option<f64>,
    /// Median of its Jain index.
    pub jain: Option<f64>,
}

/// All kinds of queues, those with the lowest delay first.
pub(super) fn overall(entries: &[Entry]) -> Vec<Overall> {
    struct Sum {
        scenarios: usize,
        won: usize,
        factors: Vec<f64>,
        parts: Vec<f64>,
        jains: Vec<f64>,
    }
    let mut sums: Vec<(String, Sum)> = Vec::new();
    let backends = [Backend::Sim, Backend::Live];
    for (entry, backend) in entries.iter().flat_map(|e| backends.map(|b| (e, b))) {
        let is_of_it = |row: &&Row| row.backend == backend && row.partial.is_none();
        let rivals: Vec<&Row> = entry.rows.iter().filter(is_of_it).collect();
        let mut algorithms: Vec<&str> = rivals.iter().map(|row| row.algorithm.as_str()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        if algorithms.len() < 2 {
            continue;
        }
        let best = Best::of(&rivals);
        for algorithm in algorithms {
            let own = || rivals.iter().filter(|row| row.algorithm == algorithm);
            let place = sums.iter().position(|(name, _)| name == algorithm);
            let place = place.unwrap_or_else(|| {
                let sum = Sum {
                    scenarios: 0,
                    won: 0,
                    factors: Vec::new(),
                    parts: Vec::new(),
                    jains: Vec::new(),
                };
                sums.push((algorithm.to_owned(), sum));
                sums.len() - 1
            });
            let sum = &mut sums[place].1;
            sum.scenarios += 1;
            sum.won += usize::from(own().any(|row| best.has_won(&row.figures)));
            let ratio = |own: Option<f64>, best: Option<f64>| Some(own? / best?);
            sum.factors
                .extend(own().filter_map(|row| ratio(row.figures.p95, best.p95)));
            sum.parts
                .extend(own().filter_map(|row| ratio(row.figures.goodput, best.goodput)));
            sum.jains.extend(own().filter_map(|row| row.figures.jain));
        }
    }
    let mut all: Vec<Overall> = sums
        .into_iter()
        .map(|(algorithm, sum)| Overall {
            algorithm,
            scenarios: sum.scenarios,
            won: sum.won,
            delay_factor: median(&sum.factors),
            goodput_part: median(&sum.parts),
            jain: median(&sum.jains),
        })
        .collect();
    let won = |one: &Overall| one.won as f64 / one.scenarios as f64;
    all.sort_by(|a, b| {
        let factor = |one: &Overall| one.delay_factor.unwrap_or(f64::INFINITY);
        won(b)
            .total_cmp(&won(a))
            .then(factor(a).total_cmp(&factor(b)))
            .then_with(|| a.algorithm.cmp(&b.algorithm))
    });
    all
}

impl Overall {
    /// In one sentence.
    pub(super) fn sentence(&self) -> String {
        let Overall { scenarios, won, .. } = self;
        let scenarios = match scenarios {
            1 => "the one scenario".to_owned(),
            n => format!("{n} scenarios"),
        };
        let mut parts = vec![match won {
            0 => format!("never has the lowest delay at full goodput in {scenarios}"),
            n => format!("lowest delay at nearly full goodput in {n} of {scenarios}"),
        }];
        if let Some(factor) = self.delay_factor {
            parts.push(match factor {
                f if f <= ABOUT => "typically about the best delay".into(),
                f if f < 10.0 => format!("typically {f:.1} times the best delay"),
                f => format!("typically {f:.0} times the best delay"),
            });
        }
        if let Some(part) = self.goodput_part {
            parts.push(format!("{:.0} % of the best goodput", part * 100.0));
        }
        if let Some(jain) = self.jain {
            parts.push(format!("Jain {jain:.2}"));
        }
        parts.join(", ")
    }
}

/// A length of time in three digits.
pub(super) fn time(ns: f64) -> String {
    let (scale, unit) = match ns {
        n if n >= 1e9 => (1e9, "s"),
        n if n >= 1e6 => (1e6, "ms"),
        _ => (1e3, "us"),
    };
    let value = ns / scale;
    match value {
        v if v < 9.995 => format!("{value:.2} {unit}"),
        v if v < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}
