//! The names of figures and axes in words, as the report has them.

use sluice_core::{Rate, Span};
use sluice_scenario::metric::Unit;

/// Names in words, some of them the user's own.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// Pairs of a name and its words.
    pub own: &'a [(String, String)],
}

impl Words<'_> {
    fn own(self, name: &str) -> Option<String> {
        let found = self.own.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, words)| words.clone())
    }

    /// The words for a figure: `Ping, median` for `ping.p50`. A name that is not in the vocabulary
    /// stays.
    pub fn figure(self, name: &str) -> String {
        let words = self.own(name).or_else(|| figure(name));
        words.unwrap_or_else(|| name.to_owned())
    }

    /// The words for an axis of a matrix: `Link rate down` for `link.down.rate`.
    pub fn axis(self, key: &str) -> String {
        self.own(key).unwrap_or_else(|| axis(key))
    }

    /// The words for the name of a run, or for a value of an axis.
    pub fn value(self, value: &str) -> String {
        self.own(value).unwrap_or_else(|| spaced(value))
    }
}

/// The factor and the name of the unit in tables for people.
pub(crate) const fn shown(unit: Unit) -> (f64, &'static str) {
    match unit {
        Unit::Time => (1e-6, "ms"),
        Unit::Rate => (1e-6, "Mbit/s"),
        Unit::Ratio | Unit::Count | Unit::Score | Unit::Number => (1.0, ""),
    }
}

/// The factor and the name of the unit in which a figure is drawn: shares in per cent, except for
/// indices.
pub fn unit_of(name: &str, unit: Unit) -> (f64, &'static str) {
    let is_share = ["utilisation", "loss", "mark_ratio"]
        .iter()
        .any(|share| name.ends_with(&format!(".{share}")));
    match unit {
        Unit::Ratio if is_share => (100.0, "%"),
        unit => shown(unit),
    }
}

fn figure(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let (subject, rest) = parts.split_first()?;
    if *subject == "jain" {
        return Some(match rest {
            [] => "Jain's index".to_owned(),
            ["min"] => "Jain's index, least".to_owned(),
            ["mean"] => "Jain's index, mean".to_owned(),
            _ => return None,
        });
    }
    let (statistic, rest) = match rest.split_last() {
        Some((last, before)) if statistic(last).is_some() => (statistic(last), before),
        _ => (None, rest),
    };
    let measure = match rest {
        [] if *subject == "ping" => "Ping".to_owned(),
        [] => format!("Round trip of {subject}"),
        [way @ ("up" | "down")] if subject.ends_with(&format!("-{way}")) => {
            format!("One-way delay of {subject}")
        }
        [way @ ("up" | "down")] => format!("One-way delay {way} of {subject}"),
        [measure] => of(measure_of(measure)?, subject),
        ["drops", reason] => format!("{}: {}", of("Drops", subject), reason.replace('_', " ")),
        _ => return None,
    };
    // A figure without a measure needs a statistic: `ping` is none.
    if rest.is_empty() && statistic.is_none() {
        return None;
    }
    Some(match statistic {
        Some(statistic) => format!("{measure}, {statistic}"),
        None => measure,
    })
}

fn of(measure: &str, subject: &str) -> String {
    match subject {
        "up" | "down" => format!("{measure} {subject}"),
        "total" => format!("{measure}, total"),
        flow => format!("{measure} of {flow}"),
    }
}

fn measure_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "goodput" => "Goodput",
        "retransmits" => "Retransmissions",
        "utilisation" => "Utilisation",
        "sojourn" => "Sojourn time",
        "packets" => "Packets arrived",
        "transfers" => "Transfers",
        "drops" => "Drops",
        "marks" => "CE marks",
        "loss" => "Loss",
        "mark_ratio" => "Share CE-marked",
        "synchronisation" => "Synchronisation of losses",
        "srtt" => "Smoothed RTT",
        "convergence" => "Time to converge",
        "jitter" => "Jitter",
        "mos" => "MOS",
        "fct" => "Flow completion time",
        "runtime" => "Run time",
        _ => return None,
    })
}

fn statistic(word: &str) -> Option<&'static str> {
    Some(match word {
        "p50" => "median",
        "p95" => "95 % within",
        "p99" => "99 % within",
        "min" => "smallest",
        "max" => "largest",
        "mean" => "mean",
        "deviation" => "standard deviation",
        _ => return None,
    })
}

fn axis(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').collect();
    let words = match parts[..] {
        ["link", "rtt"] => "RTT".to_owned(),
        ["link", way @ ("up" | "down"), "queue", word] => format!("{word} {way}"),
        ["link", way @ ("up" | "down"), word] => format!("link {word} {way}"),
        ["link", "queue", word] => word.to_owned(),
        ["link", "queue"] => "queue".to_owned(),
        [_, ..] => parts.join(" "),
        [] => String::new(),
    };
    let words = words.replace('_', " ");
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

/// A quantity with a space between its number and its unit: `10 ms`. Other texts stay.
fn spaced(value: &str) -> String {
    let is_quantity = Span::parse(value).is_ok() || Rate::parse(value).is_ok();
    let unit = value.find(|c: char| !c.is_ascii_digit() && c != '.');
    match unit {
        Some(at) if at > 0 && is_quantity => {
            format!("{}\u{a0}{}", &value[..at], value[at..].trim_start())
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_axes_have_the_words_of_the_report_or_the_users_own() {
        let words = Words { own: &[] };
        for (name, expected) in [
            ("ping.p50", "Ping, median"),
            ("ping.up.p95", "One-way delay up of ping, 95 % within"),
            ("up.sojourn.p99", "Sojourn time up, 99 % within"),
            ("total.goodput", "Goodput, total"),
            ("bulk.goodput", "Goodput of bulk"),
            ("call-up.up.mean", "One-way delay of call-up, mean"),
            ("call-up.mos", "MOS of call-up"),
            ("down.drops.target_exceeded", "Drops down: target exceeded"),
            ("jain", "Jain's index"),
            ("bulk.something", "bulk.something"),
            ("Goodput up", "Goodput up"),
        ] {
            assert_eq!(words.figure(name), expected);
        }
        assert_eq!(words.axis("link.rtt"), "RTT");
        assert_eq!(words.axis("link.queue.target"), "Target");
        assert_eq!(words.axis("link.down.rate"), "Link rate down");
        assert_eq!(words.value("10ms"), "10\u{a0}ms");
        assert_eq!(words.value("fq_codel"), "fq_codel");
        let own = [("ping.p50".to_owned(), "Delay".to_owned())];
        assert_eq!(Words { own: &own }.figure("ping.p50"), "Delay");
    }
}
