//! Sentences about queues, made from their figures.
//!
//! The rule: of the queues that reach at least [`NEARLY`] of the best goodput, the one with the lowest
//! 95th percentile of delay is the better one for whatever waits for an answer. A queue that gives up
//! more goodput than that has to be the shorter for it, as [`ENOUGH`] says: then the goodput of the others
//! is only what a standing queue makes of a changing link. What else may speak for
//! a queue: goodput that the others do not reach, more equal shares, fewer losses. What is true of all
//! speaks for none. Only variants that differ in nothing but their queues are compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Figures, Row};
use sluice_recording::figures::median;

/// What a queue came to in a scenario, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// What it is good for here; nothing if another one does everything better.
    pub good_for: Vec<Purpose>,
    /// Whether all do about alike.
    pub is_draw: bool,
    /// Why.
    pub why: String,
}

/// What one may want from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Nobody waits.
    Waiting,
    /// As much as possible gets through.
    Transfers,
    /// Everybody gets the same.
    Shares,
    /// Little is lost.
    Losses,
}

impl Purpose {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Purpose::Waiting => "calls, games and browsing while the link is full",
            Purpose::Transfers => "transfers for which nobody waits",
            Purpose::Shares => "equal shares among users",
            Purpose::Losses => "traffic that losses hurt",
        }
    }
}

/// A part of the best goodput that counts as reaching it.
const NEARLY: f64 = 0.95;
/// A part of the best goodput that is enough, and how many times shorter than the delays of those with
/// more a delay must be to be worth the rest. As in the report's page.
const ENOUGH: [(f64, f64); 3] = [(NEARLY, 0.0), (0.8, 3.0), (0.65, 10.0)];
/// Delays no further apart than this factor are about the same.
const ABOUT: f64 = 1.1;

/// A judgement for each of `rows`, which are compared with those on the same backend.
pub(super) fn judge(rows: &[Row]) -> Vec<Judgement> {
    rows.iter()
        .enumerate()
        .map(|(number, row)| {
            let is_rival = |other: &&Row| other.is_comparable(row);
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
        1 => Vec::new(),
        _ => good_for(figures, &best),
    };
    Judgement {
        is_draw: best.is_draw && good_for.is_empty(),
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
    /// For each part of [`ENOUGH`] the longest delay that is worth the rest; none for any.
    bounds: [Option<f64>; 3],
    /// Lowest 95th percentile of those that reach enough of it.
    p95: Option<f64>,
    /// How many have about that.
    as_low: usize,
    /// Whether all of several have.
    is_draw: bool,
    /// The largest Jain index of those, and the largest of all.
    winners_jain: Option<f64>,
    jain: Option<f64>,
    least_jain: Option<f64>,
    /// The smallest part of packets lost by those.
    winners_loss: Option<f64>,
    /// The smallest part lost by any.
    least_loss: Option<f64>,
    winners_goodput: Option<f64>,
}

impl Best {
    fn of(rows: &[&Row]) -> Best {
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let all = || rows.iter().map(|row| &row.figures);
        let goodput = most(&mut all().filter_map(|f| f.goodput));
        let mut bounds: [Option<f64>; 3] = [None; 3];
        for step in 1..ENOUGH.len() {
            let so_far = all().filter(|f| is_enough(f, goodput, &bounds[..step]));
            let shortest = least(&mut so_far.filter_map(|f| f.p95));
            // Without a delay to compare with, none is short enough.
            bounds[step] = Some(shortest.map_or(0.0, |p95| p95 / ENOUGH[step].1));
        }
        let is_enough = |f: &&Figures| is_enough(f, goodput, &bounds);
        let p95 = least(&mut all().filter(is_enough).filter_map(|f| f.p95));
        let is_low = |f: &&Figures| f.p95.zip(p95).is_some_and(|(own, p95)| own <= ABOUT * p95);
        let has_won = |f: &&Figures| is_enough(f) && is_low(f);
        let winners = || all().filter(has_won);
        Best {
            goodput,
            bounds,
            p95,
            as_low: winners().count(),
            is_draw: rows.len() > 1 && winners().count() == rows.len(),
            winners_jain: most(&mut winners().filter_map(|f| f.jain)),
            jain: most(&mut all().filter_map(|f| f.jain)),
            least_jain: least(&mut all().filter_map(|f| f.jain)),
            winners_loss: least(&mut winners().filter_map(loss)),
            least_loss: least(&mut all().filter_map(loss)),
            winners_goodput: most(&mut winners().filter_map(|f| f.goodput)),
        }
    }

    /// Whether the delay is about the lowest at enough goodput.
    fn has_won(&self, figures: &Figures) -> bool {
        let both = figures.p95.zip(self.p95);
        let is_low = both.is_some_and(|(own, lowest)| own <= ABOUT * lowest);
        is_low && is_enough(figures, self.goodput, &self.bounds)
    }
}

/// Whether the goodput is enough for the delay, by as many parts of [`ENOUGH`] as there are `bounds`.
fn is_enough(figures: &Figures, best: Option<f64>, bounds: &[Option<f64>]) -> bool {
    let part = part(figures, best);
    let mut steps = ENOUGH.iter().zip(bounds);
    steps.any(|((least, _), bound)| {
        let is_short = |bound: &f64| figures.p95.is_some_and(|own| own <= *bound);
        part >= *least && bound.as_ref().is_none_or(is_short)
    })
}

/// The goodput as a part of the best; all of it where there is none to compare.
fn part(figures: &Figures, best: Option<f64>) -> f64 {
    match (figures.goodput, best) {
        (Some(own), Some(best)) if best > 0.0 => own / best,
        (None, Some(_)) => 0.0,
        _ => 1.0,
    }
}

fn loss(figures: &Figures) -> Option<f64> {
    (figures.packets > 0.0).then(|| figures.drops / figures.packets)
}

fn good_for(figures: &Figures, best: &Best) -> Vec<Purpose> {
    let has_won = best.has_won(figures);
    let mut purposes = Vec::new();
    if has_won && !best.is_draw {
        purposes.push(Purpose::Waiting);
    }
    let winners = best.winners_goodput.unwrap_or(0.0);
    let is_more = |own: f64| own > winners / 0.98 && Some(own) == best.goodput;
    if !has_won && figures.goodput.is_some_and(is_more) {
        purposes.push(Purpose::Transfers);
    }
    if let (Some(jain), Some(most)) = (figures.jain, best.jain) {
        let others = match has_won {
            true => 0.0,
            // Only more equal shares than the queue with the low delay has speak for another one.
            false => best.winners_jain.unwrap_or(0.0) + 0.03,
        };
        let is_draw = best.least_jain.is_some_and(|least| least >= most - 0.01);
        if !is_draw && jain >= 0.95 && jain >= most - 0.01 && jain > others {
            purposes.push(Purpose::Shares);
        }
    }
    let fewest = loss(figures).zip(best.winners_loss);
    let is_least = |own: f64| best.least_loss.is_some_and(|least| own <= ABOUT * least);
    if fewest.is_some_and(|(own, winners)| winners > 0.001 && own < winners / 2.0 && is_least(own))
    {
        purposes.push(Purpose::Losses);
    }
    purposes
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
        let is_lower = |row: &&Row| row.figures.p95.is_some_and(|other| other * ABOUT < p95);
        let how = match (best.as_low, rivals.iter().any(is_lower)) {
            (1, false) => "the lowest delay of all",
            (1, true) => "the lowest delay of those that carry enough",
            _ if best.is_draw => "about the same delay with all",
            _ => "one of the lowest delays",
        };
        return format!("{how}: 95 % of {of} within {shown}");
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
    let shown = rate(own);
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
    /// What it is good for, and in how many of them.
    pub good_for: Vec<(Purpose, usize)>,
    /// In how many all do about alike.
    pub draws: usize,
    /// Median over the scenarios of its delay against the lowest.
    pub delay_factor: Option<f64>,
    /// Median of its goodput against the best.
    pub goodput_part: Option<f64>,
    /// Median of its Jain index.
    pub jain: Option<f64>,
}

/// All kinds of queues, those that are best for calls most often first.
pub(super) fn overall(entries: &[Entry]) -> Vec<Overall> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for rivals in entries.iter().flat_map(comparable) {
        let algorithms: BTreeSet<&str> = rivals.iter().map(|row| row.algorithm.as_str()).collect();
        if algorithms.len() < 2 {
            continue;
        }
        let best = Best::of(&rivals);
        for algorithm in algorithms {
            let own = rivals.iter().filter(|row| row.algorithm == algorithm);
            let sum = sums.entry(algorithm).or_default();
            sum.scenarios += 1;
            sum.draws += usize::from(best.is_draw);
            let mut purposes = BTreeSet::new();
            for figures in own.map(|row| &row.figures) {
                purposes.extend(good_for(figures, &best));
                let ratio = |own: Option<f64>, best: Option<f64>| Some(own? / best?);
                sum.factors.extend(ratio(figures.p95, best.p95));
                sum.parts.extend(ratio(figures.goodput, best.goodput));
                sum.jains.extend(figures.jain);
            }
            for purpose in purposes {
                *sum.good_for.entry(purpose).or_default() += 1;
            }
        }
    }
    let overall = |(algorithm, sum): (&str, Sum)| Overall {
        algorithm: algorithm.to_owned(),
        scenarios: sum.scenarios,
        draws: sum.draws,
        good_for: sum.good_for.into_iter().collect(),
        delay_factor: median(&sum.factors),
        goodput_part: median(&sum.parts),
        jain: median(&sum.jains),
    };
    let mut all: Vec<Overall> = sums.into_iter().map(overall).collect();
    all.sort_by(|a, b| {
        let won = |one: &Overall| one.times(Purpose::Waiting) as f64 / one.scenarios as f64;
        let factor = |one: &Overall| one.delay_factor.unwrap_or(f64::INFINITY);
        won(b)
            .total_cmp(&won(a))
            .then(factor(a).total_cmp(&factor(b)))
    });
    all
}

/// The complete rows of a scenario, those together that can be compared.
fn comparable(entry: &Entry) -> Vec<Vec<&Row>> {
    let mut all: Vec<Vec<&Row>> = Vec::new();
    for row in entry.rows.iter().filter(|row| row.partial.is_none()) {
        match all.iter_mut().find(|rows| rows[0].is_comparable(row)) {
            Some(rows) => rows.push(row),
            None => all.push(vec![row]),
        }
    }
    all
}

#[derive(Default)]
struct Sum {
    scenarios: usize,
    draws: usize,
    good_for: BTreeMap<Purpose, usize>,
    factors: Vec<f64>,
    parts: Vec<f64>,
    jains: Vec<f64>,
}

impl Overall {
    /// In how many scenarios it is good for something.
    fn times(&self, purpose: Purpose) -> usize {
        let found = self.good_for.iter().find(|(known, _)| *known == purpose);
        found.map_or(0, |(_, times)| *times)
    }

    /// In one sentence.
    pub(super) fn sentence(&self) -> String {
        let purpose = |(purpose, times): &(Purpose, usize)| {
            format!("{} in {times} of {}", purpose.words(), self.scenarios)
        };
        let purposes: Vec<String> = self.good_for.iter().map(purpose).collect();
        let beaten = self.scenarios - self.draws;
        let mut sentence = match (purposes.is_empty(), beaten, self.draws) {
            (true, 0, _) => "neither better nor worse than others".to_owned(),
            (true, 1, 0) => "another does better in the one scenario".to_owned(),
            (true, n, 0) => format!("others do better in all {n} scenarios"),
            (true, n, _) => format!("others do better in {n} of {} scenarios", self.scenarios),
            (false, ..) => format!("best for {}", purposes.join(", for ")),
        };
        let mut typical = Vec::new();
        if let Some(factor) = self.delay_factor {
            typical.push(match factor {
                f if f <= ABOUT => "about the lowest delay".into(),
                f if f < 10.0 => format!("{f:.1} times the lowest delay"),
                f => format!("{f:.0} times the lowest delay"),
            });
        }
        if let Some(part) = self.goodput_part {
            typical.push(format!("{:.0} % of the best goodput", part * 100.0));
        }
        typical.extend(self.jain.and_then(shares));
        if !typical.is_empty() {
            sentence.push_str("; typically ");
            sentence.push_str(&typical.join(", "));
        }
        sentence
    }
}

fn shares(jain: f64) -> Option<String> {
    shares_words(&Figures {
        jain: Some(jain),
        ..Figures::default()
    })
}

/// A rate in three digits.
fn rate(bps: f64) -> String {
    let (scale, unit) = match bps {
        r if r >= 1e9 => (1e9, "Gbit/s"),
        r if r >= 1e6 => (1e6, "Mbit/s"),
        _ => (1e3, "kbit/s"),
    };
    format!("{} {unit}", digits(bps / scale))
}

/// A length of time in three digits.
pub(super) fn time(ns: f64) -> String {
    let (scale, unit) = match ns {
        n if n >= 1e9 => (1e9, "s"),
        n if n >= 1e6 => (1e6, "ms"),
        _ => (1e3, "us"),
    };
    format!("{} {unit}", digits(ns / scale))
}

/// Three digits.
pub(super) fn digits(x: f64) -> String {
    match x {
        x if x < 9.995 => format!("{x:.2}"),
        x if x < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}
