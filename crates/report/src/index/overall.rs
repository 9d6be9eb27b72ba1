//! The results of each algorithm over all scenarios.

use std::collections::{BTreeMap, BTreeSet};

use super::Entry;
use crate::judgement::{
    ABOUT, Best, Candidate, Figures, Purpose, good_for, is_undecided, shares_words,
};
use sluice_recording::figures::median;

/// The results of an algorithm over all scenarios in which it is compared with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    pub algorithm: String,
    /// Number of comparisons with other algorithms: one per scenario and setting. Simulated and live
    /// runs of one setting are one comparison.
    pub comparisons: usize,
    /// The merits in which it is best, and in how many comparisons.
    pub good_for: Vec<(Purpose, usize)>,
    /// Number of comparisons in which all algorithms do about equally well.
    pub draws: usize,
    /// Median over the comparisons of its delay / the lowest delay.
    pub delay_factor: Option<f64>,
    /// Median of its goodput / the best goodput.
    pub goodput_share: Option<f64>,
    /// Median of its Jain index.
    pub jain: Option<f64>,
}

/// Sums up all algorithms. Those that are best for calls most often come first.
pub fn overall(entries: &[Entry]) -> Vec<Overall> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for backends in entries.iter().flat_map(comparable) {
        let algorithms: BTreeSet<&str> = backends
            .iter()
            .flatten()
            .map(|one| one.algorithm.as_str())
            .collect();
        for algorithm in algorithms {
            let own = |rivals: &[&'_ Candidate]| -> Vec<Figures> {
                let own = rivals.iter().filter(|one| one.algorithm == algorithm);
                own.map(|one| one.figures.clone()).collect()
            };
            let mut purposes: Option<BTreeSet<Purpose>> = None;
            let mut is_draw = true;
            let sum = sums.entry(algorithm).or_default();
            for rivals in &backends {
                let (best, own) = (Best::of(rivals), own(rivals));
                if own.is_empty() {
                    continue;
                }
                is_draw &= best.is_draw();
                let mut here = BTreeSet::new();
                for figures in &own {
                    here.extend(good_for(figures, &best));
                    let ratio = |own: Option<f64>, best: Option<f64>| Some(own? / best?);
                    sum.factors.extend(ratio(figures.p95, best.p95));
                    sum.goodput_shares
                        .extend(ratio(figures.goodput, best.goodput));
                    sum.jains.extend(figures.jain);
                }
                // The backends are two measurements of one comparison, so a merit must be present
                // in both.
                purposes = Some(match purposes {
                    Some(so_far) => so_far.intersection(&here).copied().collect(),
                    None => here,
                });
            }
            sum.comparisons += 1;
            sum.draws += usize::from(is_draw);
            for purpose in purposes.unwrap_or_default() {
                *sum.good_for.entry(purpose).or_default() += 1;
            }
        }
    }
    let overall = |(algorithm, sum): (&str, Sum)| Overall {
        algorithm: algorithm.to_owned(),
        comparisons: sum.comparisons,
        draws: sum.draws,
        good_for: sum.good_for.into_iter().collect(),
        delay_factor: median(&sum.factors),
        goodput_share: median(&sum.goodput_shares),
        jain: median(&sum.jains),
    };
    let mut all: Vec<Overall> = sums.into_iter().map(overall).collect();
    all.sort_by(|a, b| {
        let of_calls = [Purpose::Waiting, Purpose::CallsAndGames, Purpose::Calls];
        let calls = |one: &Overall| -> usize { of_calls.iter().map(|p| one.times(*p)).sum() };
        let won = |one: &Overall| calls(one) as f64 / one.comparisons as f64;
        let factor = |one: &Overall| one.delay_factor.unwrap_or(f64::INFINITY);
        won(b)
            .total_cmp(&won(a))
            .then(factor(a).total_cmp(&factor(b)))
    });
    all
}

/// Groups the variants of a scenario by setting, and those of a setting by backend. Groups in which
/// fewer than two algorithms are compared are left out, and those in which none can be judged.
fn comparable(entry: &Entry) -> Vec<Vec<Vec<&Candidate>>> {
    let mut settings: Vec<Vec<Vec<&Candidate>>> = Vec::new();
    for one in entry.rows.iter().map(|row| &row.candidate) {
        let is_its = |setting: &&mut Vec<Vec<&Candidate>>| setting[0][0].setting == one.setting;
        let Some(setting) = settings.iter_mut().find(is_its) else {
            settings.push(vec![vec![one]]);
            continue;
        };
        match setting
            .iter_mut()
            .find(|rivals| rivals[0].is_comparable(one))
        {
            Some(rivals) => rivals.push(one),
            None => setting.push(vec![one]),
        }
    }
    for setting in &mut settings {
        setting.retain(|rivals| {
            let algorithms: BTreeSet<&str> =
                rivals.iter().map(|one| one.algorithm.as_str()).collect();
            algorithms.len() > 1 && !is_undecided(rivals, &Best::of(rivals))
        });
    }
    settings.retain(|setting| !setting.is_empty());
    settings
}

#[derive(Default)]
struct Sum {
    comparisons: usize,
    draws: usize,
    good_for: BTreeMap<Purpose, usize>,
    factors: Vec<f64>,
    goodput_shares: Vec<f64>,
    jains: Vec<f64>,
}

impl Overall {
    /// The number of comparisons in which it is best for a purpose.
    fn times(&self, purpose: Purpose) -> usize {
        let found = self.good_for.iter().find(|(known, _)| *known == purpose);
        found.map_or(0, |(_, times)| *times)
    }

    /// The result, in one sentence.
    pub fn sentence(&self) -> String {
        let comparisons = count(self.comparisons, "comparison");
        let purpose = |(purpose, times): &(Purpose, usize)| {
            format!("{} in {times} of {comparisons}", purpose.words())
        };
        let purposes: Vec<String> = self.good_for.iter().map(purpose).collect();
        let beaten = self.comparisons - self.draws;
        let mut sentence = match (purposes.is_empty(), beaten) {
            (true, 0) => "about as good as the others".to_owned(),
            (true, _) => format!("others are better in {beaten} of {comparisons}"),
            (false, _) => format!("best for {}", purposes.join(", and for ")),
        };
        let mut typical = Vec::new();
        if let Some(factor) = self.delay_factor {
            typical.push(match factor {
                f if f <= ABOUT => "about the lowest delay".into(),
                f if f < 10.0 => format!("{f:.1} times the lowest delay"),
                f => format!("{f:.0} times the lowest delay"),
            });
        }
        if let Some(share) = self.goodput_share {
            typical.push(format!("{:.0} % of the best goodput", share * 100.0));
        }
        typical.extend(shares_words(self.jain));
        if !typical.is_empty() {
            sentence.push_str("; typically ");
            sentence.push_str(&typical.join(", "));
        }
        sentence
    }
}

fn count(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
