//! Figures that a program reports in its output: a name, where the number is, and its unit.

use std::convert::Infallible;

use regex_lite::Regex;
use serde_json::Value as Json;

use super::super::error::{Problem, Problems};
use super::super::field::{read_text, wrong_type};
use super::super::schema::{Field, Section};
use super::super::tree::{Node, Table, Value};
use crate::unit::Unit;

/// A figure that a program reports.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnFigure {
    /// The name, after that of the flow.
    pub name: String,
    /// Where the number is.
    pub(crate) source: NumberSource,
    /// The unit of the number in the output; an empty word for a plain number.
    unit: &'static str,
}

/// The place of a number in a program's output.
#[derive(Clone, Debug)]
pub(crate) enum NumberSource {
    /// A JSON pointer (RFC 6901).
    Pointer(String),
    /// The first group of a regular expression.
    Match(Regex),
}

impl PartialEq for NumberSource {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (NumberSource::Pointer(own), NumberSource::Pointer(other)) => own == other,
            (NumberSource::Match(own), NumberSource::Match(other)) => {
                own.as_str() == other.as_str()
            }
            _ => false,
        }
    }
}

impl OwnFigure {
    /// Returns the unit in which the figure is kept.
    pub fn unit(&self) -> Unit {
        found(self.unit).map_or(Unit::Number, |(_, unit, _)| *unit)
    }

    /// Returns a number of the output in the unit in which the figure is kept.
    pub(super) fn to_base(&self, number: f64) -> f64 {
        found(self.unit).map_or(number, |(_, _, factor)| number * factor)
    }
}

impl NumberSource {
    /// Returns the number in `output`, which is parsed into `json` if it is needed.
    pub(super) fn value(&self, output: &str, json: &mut Option<Json>) -> Result<f64, String> {
        match self {
            NumberSource::Pointer(pointer) => {
                if json.is_none() {
                    let parsed = serde_json::from_str(output);
                    *json = Some(parsed.map_err(|error| match output.trim() {
                        "" => "the output is empty".to_owned(),
                        _ => format!("the output is not JSON: {error}"),
                    })?);
                }
                let value = json.as_ref().and_then(|json| json.pointer(pointer));
                let value = value.ok_or_else(|| lacking(json.as_ref(), pointer))?;
                let number = match value {
                    // Some tools write their numbers as strings.
                    Json::String(text) => text.trim().parse().ok().filter(|n: &f64| n.is_finite()),
                    value => value.as_f64(),
                };
                number.ok_or_else(|| format!("`{pointer}` is {}, not a number", kind(value)))
            }
            NumberSource::Match(regex) => {
                let found = regex.captures(output).and_then(|found| found.get(1));
                let text = found.ok_or_else(|| format!("no match of `{}`", regex.as_str()))?;
                let number = text.as_str().parse().ok().filter(|n: &f64| n.is_finite());
                number.ok_or_else(|| {
                    format!(
                        "`{}`, a match of `{}`, is not a number",
                        text.as_str(),
                        regex.as_str()
                    )
                })
            }
        }
    }
}

/// Explains a missing pointer: the part of it that exists, and the value there.
fn lacking(json: Option<&Json>, pointer: &str) -> String {
    let mut known = "";
    let mut there = json;
    for (at, _) in pointer
        .match_indices('/')
        .skip(1)
        .chain([(pointer.len(), "")])
    {
        match json.and_then(|json| json.pointer(&pointer[..at])) {
            Some(value) => (known, there) = (&pointer[..at], Some(value)),
            None => break,
        }
    }
    let place = match known {
        "" => "the output".to_owned(),
        known => format!("`{known}`"),
    };
    let has = match there {
        Some(Json::Object(map)) => {
            let mut names: Vec<&str> = map.keys().map(String::as_str).take(MOST_NAMES).collect();
            if map.len() > MOST_NAMES {
                names.push("...");
            }
            format!("has {}", names.join(", "))
        }
        Some(Json::Array(items)) => format!("has {} items", items.len()),
        Some(value) => format!("is {}", kind(value)),
        None => "is empty".to_owned(),
    };
    format!("the output has no `{pointer}`; {place} {has}")
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The figures of a flow, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reports(pub(super) Vec<OwnFigure>);

impl Field for Reports {
    type Scalar = Infallible;
    const KIND: &'static str = "table";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Value::Table(table) = &node.value else {
            let problem = wrong_type(key, node, "a table of names");
            return problems
                .refuse(problem.hint("such as { bytes = \"/end/sum_received/bytes\" }"));
        };
        let mut is_right = true;
        let mut figures = Vec::new();
        for entry in &table.0 {
            let is_accepted = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if entry.key.is_empty() || !entry.key.chars().all(is_accepted) {
                let message = format!("`{}` cannot name a figure", entry.key);
                problems.push(
                    Problem::new(entry.key_at.clone(), message)
                        .hint("letters, digits, `_`, `-` and `.` are accepted"),
                );
                is_right = false;
                continue;
            }
            match read_figure(&entry.key, &entry.node, problems) {
                Some(figure) => figures.push(figure),
                None => is_right = false,
            }
        }
        is_right.then_some(Reports(figures))
    }

    fn write(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut table = Table::default();
        for figure in &self.0 {
            let mut own = Table::default();
            match &figure.source {
                NumberSource::Pointer(pointer) => own.push("at", Value::text(pointer)),
                NumberSource::Match(regex) => own.push("match", Value::text(regex.as_str())),
            }
            if !figure.unit.is_empty() {
                own.push("unit", Value::text(figure.unit));
            }
            table.push(&figure.name, Value::Table(own));
        }
        Some(Value::Table(table))
    }
}

fn read_figure(name: &str, node: &Node, problems: &mut Problems) -> Option<OwnFigure> {
    let Value::Table(table) = &node.value else {
        return Some(OwnFigure {
            name: name.to_owned(),
            source: read_pointer(name, node, problems)?,
            unit: "",
        });
    };
    let section = Section::new(format!("figure `{name}`"), node.at.clone());
    section.check_keys(table, &["at", "match", "unit"], problems);
    let source = match (table.node("at"), table.node("match")) {
        (Some(node), None) => read_pointer("at", node, problems)?,
        (None, Some(node)) => read_match(node, problems)?,
        _ => {
            let message = format!("figure `{name}` needs either `at` or `match`");
            let problem = Problem::new(node.at.clone(), message);
            return problems.refuse(problem.hint("a JSON pointer, or a regular expression"));
        }
    };
    let unit = match table.node("unit") {
        None => "",
        Some(node) => {
            let text = read_text("unit", node, problems)?;
            let Some((word, ..)) = found(text) else {
                let problem = Problem::new(node.at.clone(), format!("unknown `unit` `{text}`"));
                return problems
                    .refuse(problem.nearest(text, UNITS.iter().map(|(word, ..)| *word)));
            };
            word
        }
    };
    Some(OwnFigure {
        name: name.to_owned(),
        source,
        unit,
    })
}

fn read_pointer(key: &str, node: &Node, problems: &mut Problems) -> Option<NumberSource> {
    let text = read_text(key, node, problems)?;
    if !text.starts_with('/') {
        let problem = Problem::new(node.at.clone(), format!("`{text}` is not a JSON pointer"));
        return problems
            .refuse(problem.hint("it begins with `/`, such as \"/end/sum_sent/bytes\""));
    }
    Some(NumberSource::Pointer(text.to_owned()))
}

fn read_match(node: &Node, problems: &mut Problems) -> Option<NumberSource> {
    let text = read_text("match", node, problems)?;
    match Regex::new(text) {
        Ok(regex) if regex.captures_len() > 1 => Some(NumberSource::Match(regex)),
        Ok(_) => {
            let problem = Problem::new(node.at.clone(), format!("`{text}` has no group"));
            problems
                .refuse(problem.hint("parentheses enclose the number, as in \"= ([0-9.]+) ms\""))
        }
        Err(error) => problems.refuse(Problem::new(
            node.at.clone(),
            format!("`{text}` is not a regular expression: {error}"),
        )),
    }
}

fn found(word: &str) -> Option<&'static (&'static str, Unit, f64)> {
    UNITS.iter().find(|(known, ..)| *known == word)
}

/// Units of numbers in outputs, the unit in which the figure is kept, and the factor between them.
const UNITS: &[(&str, Unit, f64)] = &[
    ("ns", Unit::Time, 1.0),
    ("us", Unit::Time, 1e3),
    ("ms", Unit::Time, 1e6),
    ("s", Unit::Time, 1e9),
    ("bit/s", Unit::Rate, 1.0),
    ("kbit/s", Unit::Rate, 1e3),
    ("Mbit/s", Unit::Rate, 1e6),
    ("Gbit/s", Unit::Rate, 1e9),
    ("B/s", Unit::Rate, 8.0),
    ("kB/s", Unit::Rate, 8e3),
    ("MB/s", Unit::Rate, 8e6),
    ("%", Unit::Ratio, 0.01),
];

/// The largest number of names that a message lists.
const MOST_NAMES: usize = 12;
