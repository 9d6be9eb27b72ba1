//! Bounds of the results of a run: `[[expect]]`.

use std::fmt::{self, Display};

use sluice_core::param::Ratio;
use sluice_core::{Rate, Span};

use super::error::{Problem, Problems};
use super::field::wrong_type;
use super::flow::Flow;
use super::schema::{Field, KeyDecl, Presence, Section, as_table, items};
use super::source::Place;
use super::tree::{Node, Table, Value};
use super::words::Backend;
use crate::metric::Metric;
use crate::unit::Unit;

/// A measured figure or a bound of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A span of time.
    Time(Span),
    /// Bits per second.
    Rate(Rate),
    /// A ratio.
    Ratio(Ratio),
    /// A count.
    Count(u64),
    /// A number without a unit.
    Number(f64),
}

impl Quantity {
    /// The value in nanoseconds, in bits per second, as a ratio or as a count.
    pub fn as_f64(self) -> f64 {
        match self {
            Quantity::Time(v) => v.as_ns() as f64,
            Quantity::Rate(v) => v.as_bps() as f64,
            Quantity::Ratio(v) => v.as_f64(),
            Quantity::Count(v) => v as f64,
            Quantity::Number(v) => v,
        }
    }

    fn read(key: &str, unit: Unit, node: &Node, problems: &mut Problems) -> Option<Quantity> {
        match unit {
            Unit::Time => Span::read(key, node, problems).map(Quantity::Time),
            Unit::Rate => Rate::read(key, node, problems).map(Quantity::Rate),
            Unit::Count => u64::read(key, node, problems).map(Quantity::Count),
            Unit::Number => read_number(key, node, problems).map(Quantity::Number),
            Unit::Ratio | Unit::Score => Ratio::read(key, node, problems).map(Quantity::Ratio),
        }
    }

    fn write(self) -> Value {
        match self {
            Quantity::Time(v) => Value::text(v),
            Quantity::Rate(v) => Value::text(v),
            Quantity::Ratio(v) => Value::text(v),
            Quantity::Count(v) => Value::Integer(v as i64),
            Quantity::Number(v) => Value::Float(v),
        }
    }
}

impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Time(v) => v.fmt(f),
            Quantity::Rate(v) => v.fmt(f),
            Quantity::Ratio(v) => v.fmt(f),
            Quantity::Count(v) => v.fmt(f),
            Quantity::Number(v) => v.fmt(f),
        }
    }
}

fn read_number(key: &str, node: &Node, problems: &mut Problems) -> Option<f64> {
    match node.value {
        Value::Integer(n) => Some(n as f64),
        Value::Float(x) if x.is_finite() => Some(x),
        _ => problems.refuse(wrong_type(key, node, "a number")),
    }
}

/// The bounds of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The figure.
    pub metric: Metric,
    /// The smallest value that passes.
    pub min: Option<Quantity>,
    /// The largest value that passes.
    pub max: Option<Quantity>,
    /// The backend to which the bounds apply; both if there is none.
    pub backend: Option<Backend>,
}

/// The keys of `[[expect]]`, for the reference.
pub(crate) const KEYS: &[KeyDecl] = &[
    KeyDecl {
        name: "metric",
        kind: "metric",
        doc: "name of the figure, such as `ping.p50`",
        presence: || Presence::Required,
        range: || None,
    },
    KeyDecl {
        name: "variant",
        kind: "name or list of names",
        doc: "variants to which it applies: the name of a variant, or a part of its name, such as \
              `codel` for all variants like `iw3 codel`; all variants if it is not given",
        presence: || Presence::Optional,
        range: || None,
    },
    KeyDecl {
        name: "backend",
        kind: Backend::KIND,
        doc: "backend to which it applies; both if it is not given",
        presence: || Presence::Optional,
        range: || None,
    },
    KeyDecl {
        name: "min",
        kind: "number or quantity",
        doc: "smallest value that passes, in the figure's unit",
        presence: || Presence::Optional,
        range: || None,
    },
    KeyDecl {
        name: "max",
        kind: "number or quantity",
        doc: "largest value that passes, in the figure's unit",
        presence: || Presence::Optional,
        range: || None,
    },
];

/// The runs that expectations are about.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The flows.
    pub flows: &'a [Flow],
    /// The number of links on the path.
    pub links: usize,
    /// The name of the variant.
    pub variant: &'a str,
    /// The names of all variants; empty if they are not known.
    pub variants: &'a [String],
    /// Whether a figure that no run with these flows measures is refused.
    pub must_measure: bool,
}

/// Reads the expectations that apply to the variant of `subject`.
pub(crate) fn read_all(root: &Table, subject: Subject<'_>, problems: &mut Problems) -> Vec<Expect> {
    let items = items("expect", root, problems).unwrap_or_default();
    items
        .iter()
        .filter_map(|node| {
            let (expect, holds) = read(node, subject, problems)?;
            holds.then_some(expect)
        })
        .collect()
}

fn read(node: &Node, subject: Subject<'_>, problems: &mut Problems) -> Option<(Expect, bool)> {
    let Subject {
        flows,
        links,
        variant,
        variants,
        must_measure,
    } = subject;
    let section = Section::new("[[expect]]", node.at.clone());
    let table = as_table("an expectation", node, problems)?;
    let known: Vec<&str> = KEYS.iter().map(|decl| decl.name).collect();
    section.check_keys(table, &known, problems);
    let holds = match table.node("variant") {
        Some(node) => read_variants(node, variants, problems)?
            .iter()
            .any(|name| stands_for(name, variant, variants)),
        None => true,
    };
    let Some(entry) = table.find("metric") else {
        return problems.refuse(
            Problem::new(section.at, "[[expect]] needs `metric`").hint("such as \"ping.p50\""),
        );
    };
    let Value::Text(name) = &entry.node.value else {
        return problems.refuse(wrong_type("metric", &entry.node, "a string"));
    };
    let metric = match Metric::parse_on_path(name, flows, links) {
        // Older programs accepted the names of links that are not there.
        Err(_) if problems.is_recording() => Metric::parse(name, flows),
        known => known,
    };
    let metric = match metric {
        Ok(metric) => metric,
        Err(error) => {
            let at = entry.node.within(error.span);
            let word = &error.word;
            let problem = Problem::new(at, error.message);
            return problems
                .refuse(problem.nearest(word, error.candidates.iter().map(String::as_str)));
        }
    };
    let mut bound = |key: &str| match table.node(key) {
        Some(node) => {
            let bound = Quantity::read(key, metric.unit(), node, problems)?;
            check_share(key, bound, &metric, node, problems).then_some(Some(bound))
        }
        None => Some(None),
    };
    let (min, max) = (bound("min"), bound("max"));
    let backend = match table.node("backend") {
        Some(node) => Some(Backend::read("backend", node, problems)?),
        None => None,
    };
    let expect = Expect {
        metric,
        min: min?,
        max: max?,
        backend,
    };
    let is_right = expect.check(table, &section, problems)
        && (!holds || !must_measure || expect.check_measured(&entry.node, subject, problems));
    is_right.then_some((expect, holds))
}

/// Checks that the bound of a share is one: `90` is hardly ever meant, but `90%`.
fn check_share(
    key: &str,
    bound: Quantity,
    metric: &Metric,
    node: &Node,
    problems: &mut Problems,
) -> bool {
    let most = match key {
        "min" => 1.0,
        _ => MOST_OF_A_SHARE,
    };
    let value = bound.as_f64();
    if !metric.is_share() || value <= most {
        return true;
    }
    let message = format!("`{key}` of `{metric}`, which is a ratio from 0 to 1, is {bound}");
    let percent = Ratio::from_billionths((value * 1e7).round() as u64);
    problems.push(Problem::new(node.at.clone(), message).hint(match value {
        v if v <= 100.0 => format!("write {percent} or \"{bound}%\" for {bound} per cent"),
        _ => "such as 0.95 or \"95%\"".to_owned(),
    }));
    false
}

/// The largest upper bound of a share. A measured utilisation is up to a packet above 1.
const MOST_OF_A_SHARE: f64 = 1.1;

fn read_variants(node: &Node, variants: &[String], problems: &mut Problems) -> Option<Vec<String>> {
    let items = match &node.value {
        Value::Array(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if items.is_empty() {
        // Such an expectation would apply to no variant, and never fail.
        return problems.refuse(
            Problem::new(node.at.clone(), "`variant` is an empty list")
                .hint("name variants, or leave it out to mean all"),
        );
    }
    let mut names = Vec::new();
    for item in items {
        let Value::Text(name) = &item.value else {
            return problems.refuse(wrong_type("variant", item, "a name or a list of names"));
        };
        let mut known = variants.iter();
        if !variants.is_empty() && !known.any(|variant| stands_for(name, variant, variants)) {
            let problem = Problem::new(item.at.clone(), format!("there is no variant `{name}`"));
            return problems.refuse(problem.nearest(name, variants.iter().map(String::as_str)));
        }
        names.push(name.clone());
    }
    Some(names)
}

/// Returns whether `name` means `variant`. It does if it is the variant's name. If no variant has
/// that name, it does if it is a part of the variant's name, because a variant of several keys is
/// named after the values of each.
fn stands_for(name: &str, variant: &str, variants: &[String]) -> bool {
    if name == variant {
        return true;
    }
    let is_whole = variants.iter().any(|other| other == name);
    let is_part = |(at, _): (usize, &str)| {
        let (before, after) = (&variant[..at], &variant[at + name.len()..]);
        (before.is_empty() || before.ends_with(' ')) && (after.is_empty() || after.starts_with(' '))
    };
    !is_whole && !name.is_empty() && variant.match_indices(name).any(is_part)
}

impl Expect {
    fn check(&self, table: &Table, section: &Section, problems: &mut Problems) -> bool {
        let place = |key| {
            table
                .node(key)
                .map_or(Place::Nowhere, |node| node.at.clone())
        };
        match (self.min, self.max) {
            (None, None) => {
                problems.push(
                    Problem::new(section.at.clone(), "[[expect]] has neither `min` nor `max`")
                        .hint("give one of them or both"),
                );
                false
            }
            (Some(min), Some(max)) if min.as_f64() > max.as_f64() => {
                let message = format!("no value is at least {min} and at most {max}");
                problems
                    .push(Problem::new(place("max"), message).other(place("min"), "`min` is set"));
                false
            }
            _ => true,
        }
    }

    /// Refuses a figure that no run of the variant can measure, so that the expectation would never be
    /// met. A recording may have one.
    fn check_measured(&self, metric: &Node, subject: Subject<'_>, problems: &mut Problems) -> bool {
        let never = self.metric.never_measured(subject.flows);
        let Some((why, mut remedy)) = never.filter(|_| !problems.is_recording()) else {
            return true;
        };
        if subject.variants.len() > 1 {
            remedy.push_str("; or name the variants that have it in `variant`");
        }
        problems.push(Problem::new(metric.at.clone(), why).hint(remedy));
        false
    }

    /// Returns the bounds in words: `at least 9Mbit/s and at most 10Mbit/s`.
    pub fn bounds(&self) -> String {
        let min = self.min.map(|min| format!("at least {min}"));
        let max = self.max.map(|max| format!("at most {max}"));
        min.into_iter().chain(max).collect::<Vec<_>>().join(" and ")
    }

    pub(crate) fn write(&self) -> Table {
        let mut table = Table::default();
        table.push("metric", Value::text(&self.metric));
        for (key, bound) in [("min", self.min), ("max", self.max)] {
            if let Some(bound) = bound {
                table.push(key, bound.write());
            }
        }
        if let Some(backend) = self.backend {
            table.push("backend", Value::text(backend));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::stands_for;

    #[test]
    fn a_name_is_that_of_a_variant_or_of_some_of_its_values() {
        let crossed = ["iw3 codel", "iw10 codel", "iw3 fq_codel"].map(str::to_owned);
        let meant = |name: &str| -> Vec<usize> {
            let is_meant = |place: &usize| stands_for(name, &crossed[*place], &crossed);
            (0..crossed.len()).filter(is_meant).collect()
        };
        assert_eq!(meant("iw3 codel"), [0]);
        assert_eq!(meant("codel"), [0, 1]);
        assert_eq!(meant("iw3"), [0, 2]);
        assert!(meant("iw").is_empty() && meant("").is_empty() && meant("code").is_empty());
        // The name of a variant means that variant only.
        let plain = ["codel", "codel ecn"].map(str::to_owned);
        assert!(stands_for("codel", "codel", &plain));
        assert!(!stands_for("codel", "codel ecn", &plain));
    }
}
