//! Rates and delays that vary with time, from the scenario itself or from files.

use std::convert::Infallible;
use std::fmt;

use sluice_core::link::{self, Opportunities, RateSource};
use sluice_core::{Rate, Span, Time};

use super::error::{Problem, Problems};
use super::field::{show_span, wrong_type};
use super::file::TextFile;
use super::schema::Field;
use super::tree::{Node, Table, Value};

/// A rate over time: each step applies until the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// In the order of time, the first at zero; `None` during an outage.
    steps: Vec<(Span, Option<Rate>)>,
    origin: Origin,
}

/// The form in which a schedule is written.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// As a list of steps.
    Steps,
    /// As rates that take turns.
    Cycle {
        every: Span,
        rates: Vec<Option<Rate>>,
    },
    /// A CSV file.
    Csv(TextFile),
    /// A Mahimahi trace, whose mean is the only step.
    Trace(TextFile, Opportunities),
}

impl Schedule {
    /// Creates a constant rate.
    pub fn constant(rate: Rate) -> Self {
        Schedule::from_steps(vec![(Span::ZERO, Some(rate))])
    }

    /// Creates a schedule of rates, each with the instant from which it applies.
    ///
    /// # Panics
    /// The first instant is not zero, or the instants do not increase.
    pub fn new(steps: Vec<(Span, Rate)>) -> Self {
        let steps = steps.into_iter().map(|(at, rate)| (at, Some(rate)));
        Schedule::from_steps(steps.collect())
    }

    pub(super) fn from_steps(steps: Vec<(Span, Option<Rate>)>) -> Self {
        assert!(
            steps.first().is_some_and(|(at, _)| *at == Span::ZERO)
                && steps.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "a schedule begins at zero and goes forward"
        );
        Schedule {
            steps,
            origin: Origin::Steps,
        }
    }

    /// Returns the steps in the order of time. The first is at zero, and there is at least one. The
    /// rate of an outage is `None`; a trace has its mean.
    pub fn steps(&self) -> &[(Span, Option<Rate>)] {
        &self.steps
    }

    /// Returns the rate at `t` after the start; `None` during an outage.
    pub fn at(&self, t: Span) -> Option<Rate> {
        let next = self.steps.partition_point(|(from, _)| *from <= t);
        self.steps[next - 1].1
    }

    /// Returns the largest rate.
    pub fn highest(&self) -> Rate {
        let rates = self.steps.iter().filter_map(|(_, rate)| *rate);
        rates.max().unwrap_or(Rate::from_bps(1))
    }

    /// Returns the number of bits that pass between `from` and `to`; `None` if the rate is
    /// unlimited at any time between.
    pub fn bits_between(&self, from: Span, to: Span) -> Option<f64> {
        let mut bits = 0.0;
        for (i, (start, rate)) in self.steps.iter().enumerate() {
            let end = self.steps.get(i + 1).map_or(Span::MAX, |next| next.0);
            let (a, b) = ((*start).max(from), end.min(to));
            if let Some(rate) = rate
                && a < b
            {
                if rate.is_unlimited() {
                    return None;
                }
                bits += rate.as_bps() as f64 * (b - a).as_secs_f64();
            }
        }
        Some(bits)
    }

    /// Returns whether the link's slots follow a trace instead of a rate.
    pub const fn is_trace(&self) -> bool {
        matches!(self.origin, Origin::Trace(..))
    }

    /// Returns the link's schedule in addition to its initial rate; `None` for a constant rate.
    pub fn source(&self) -> Option<RateSource> {
        if let Origin::Trace(_, opportunities) = &self.origin {
            return Some(RateSource::Opportunities(opportunities.clone()));
        }
        if let [(_, Some(_))] = self.steps.as_slice() {
            return None;
        }
        let steps = self.steps.iter();
        let steps = steps.map(|(at, rate)| (Time::ZERO + *at, *rate)).collect();
        let schedule = link::Schedule::new(steps).expect("the steps are in the order of time");
        Some(RateSource::Schedule(schedule))
    }

    /// Repeats rates that take turns until `end`.
    pub(super) fn extend_to(&mut self, end: Span) {
        let Origin::Cycle { every, rates } = &self.origin else {
            return;
        };
        let instants = (0..).map(|n| Span::from_ns(every.as_ns().saturating_mul(n)));
        let turns = instants.take_while(|at| *at < end);
        self.steps = turns.zip(rates.iter().copied().cycle()).collect();
    }

    /// Returns the last step that the file itself contains, if any.
    pub(super) fn last_written(&self) -> Option<Span> {
        match self.origin {
            Origin::Steps => self.steps.last().map(|(at, _)| *at),
            Origin::Cycle { .. } | Origin::Csv(_) | Origin::Trace(..) => None,
        }
    }
}

/// A rate, or `None` for an outage.
fn read_rate(key: &str, node: &Node, problems: &mut Problems) -> Option<Option<Rate>> {
    match &node.value {
        Value::Text(text) if text == OUTAGE => Some(None),
        _ => Rate::read(key, node, problems).map(Some),
    }
}

fn write_rate(rate: &Option<Rate>) -> Value {
    match rate {
        Some(rate) => Value::text(rate),
        None => Value::text(OUTAGE),
    }
}

/// Reads pairs of an instant and a value, the first at zero.
fn read_steps<T>(
    key: &str,
    node: &Node,
    items: &[Node],
    example: &str,
    read: impl Fn(&str, &Node, &mut Problems) -> Option<T>,
    problems: &mut Problems,
) -> Option<Vec<(Span, T)>> {
    if items.is_empty() {
        let message = format!("the schedule of `{key}` is empty");
        problems.push(Problem::new(node.at.clone(), message).hint(example));
        return None;
    }
    let mut steps: Vec<(Span, T)> = Vec::new();
    let mut is_right = true;
    for item in items {
        let Value::Array(pair) = &item.value else {
            let expected = format!("pairs of a time and a {key}");
            problems.push(wrong_type(key, item, &expected).hint(example));
            return None;
        };
        let [at, value] = pair.as_slice() else {
            let message = format!("a step of `{key}` has {} parts, not 2", pair.len());
            problems.push(Problem::new(item.at.clone(), message).hint(example));
            return None;
        };
        let (time, value) = (Span::read(key, at, problems), read(key, value, problems));
        let (Some(time), Some(value)) = (time, value) else {
            is_right = false;
            continue;
        };
        let problem = match steps.last() {
            None if time > Span::ZERO => Some("the first step of a schedule must be at 0s".into()),
            Some((last, _)) if time <= *last => {
                Some(format!("a step at {time} cannot follow one at {last}"))
            }
            _ => None,
        };
        if let Some(message) = problem {
            is_right = false;
            problems.push(Problem::new(at.at.clone(), message));
        }
        steps.push((time, value));
    }
    is_right.then_some(steps)
}

fn write_steps<T>(steps: &[(Span, T)], write: impl Fn(&T) -> Value) -> Value {
    let step = |(at, value): &(Span, T)| {
        Value::Array(vec![Value::Text(show_span(at)).into(), write(value).into()]).into()
    };
    Value::Array(steps.iter().map(step).collect())
}

impl Field for Schedule {
    type Scalar = Infallible;
    const KIND: &'static str = "rate, schedule or file";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Array(items) => {
                let steps = read_steps(key, node, items, STEPS, read_rate, problems)?;
                Some(Schedule::from_steps(steps))
            }
            Value::Table(table) => read_table(key, node, table, problems),
            _ => {
                let rate = read_rate(key, node, problems)?;
                if rate.is_none() {
                    let message = format!("`{key}` cannot be a permanent outage");
                    problems.push(Problem::new(node.at.clone(), message).hint(STEPS));
                }
                rate.map(Schedule::constant)
            }
        }
    }

    fn write(&self) -> Option<Value> {
        let mut table = Table::default();
        match &self.origin {
            Origin::Steps => {
                return Some(match self.steps.as_slice() {
                    [(_, rate)] => write_rate(rate),
                    steps => write_steps(steps, write_rate),
                });
            }
            Origin::Cycle { every, rates } => {
                let rates = rates.iter().map(|rate| write_rate(rate).into());
                table.push("every", Value::text(every));
                table.push("rates", Value::Array(rates.collect()));
            }
            Origin::Csv(file) => table.push("csv", file.write()),
            Origin::Trace(file, _) => table.push("trace", file.write()),
        }
        Some(Value::Table(table))
    }
}

fn read_table(key: &str, node: &Node, table: &Table, problems: &mut Problems) -> Option<Schedule> {
    let keys: Vec<&str> = table.0.iter().map(|entry| entry.key.as_str()).collect();
    match keys.as_slice() {
        ["csv"] => {
            let node = table.node("csv")?;
            let file = TextFile::read("csv", node, problems)?;
            let parsed = file.parse(node, link::Schedule::parse, problems)?;
            let mut steps: Vec<(Span, Option<Rate>)> = parsed
                .steps()
                .iter()
                .map(|(at, rate)| (at.since(Time::ZERO), *rate))
                .collect();
            // The first rate also applies before its instant.
            steps[0].0 = Span::ZERO;
            Some(Schedule {
                steps,
                origin: Origin::Csv(file),
            })
        }
        ["trace"] => {
            let node = table.node("trace")?;
            let file = TextFile::read("trace", node, problems)?;
            let trace = file.parse(node, Opportunities::parse, problems)?;
            let mean = Rate::from_bps(trace.mean_bps().max(1));
            Some(Schedule {
                steps: vec![(Span::ZERO, Some(mean))],
                origin: Origin::Trace(file, trace),
            })
        }
        ["every", "rates"] | ["rates", "every"] => {
            let (every_at, rates) = (table.node("every")?, table.node("rates")?);
            let every = Span::read("every", every_at, problems)?;
            if every < Span::from_us(100) {
                let message = format!("`every` cannot be {}", show_span(&every));
                let problem = Problem::new(every_at.at.clone(), message);
                problems.push(problem.hint("100us or more is accepted"));
                return None;
            }
            let Value::Array(items) = &rates.value else {
                problems.push(wrong_type("rates", rates, "a list of rates"));
                return None;
            };
            let rates: Option<Vec<Option<Rate>>> = items
                .iter()
                .map(|item| read_rate("rates", item, problems))
                .collect();
            let rates = rates?;
            if rates.iter().all(Option::is_none) {
                let message = "`rates` has no rate";
                let at = table.node("rates")?.at.clone();
                problems.push(Problem::new(at, message).hint("give at least one"));
                return None;
            }
            Some(Schedule {
                steps: vec![(Span::ZERO, rates[0])],
                origin: Origin::Cycle { every, rates },
            })
        }
        _ => {
            let message = format!("`{key}` as a table has other keys");
            problems.push(Problem::new(node.at.clone(), message).hint(TABLES));
            None
        }
    }
}

/// A delay over time: each step applies until the next, and lets no packet overtake another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays(Vec<(Span, Span)>);

impl Delays {
    /// Creates a constant delay.
    pub fn constant(delay: Span) -> Self {
        Delays(vec![(Span::ZERO, delay)])
    }

    /// Returns the initial delay.
    pub fn first(&self) -> Span {
        self.0[0].1
    }

    /// Returns the steps in the order of time. The first is at zero, and there is at least one.
    pub fn steps(&self) -> &[(Span, Span)] {
        &self.0
    }

    /// Returns the delay at `t` after the start.
    pub fn at(&self, t: Span) -> Span {
        let next = self.0.partition_point(|(from, _)| *from <= t);
        self.0[next - 1].1
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Span {
        let delays = self.0.iter().map(|(_, delay)| *delay);
        delays.max().unwrap_or(Span::ZERO)
    }

    /// Returns the schedule with `change` applied to each delay.
    pub(super) fn map(&self, change: impl Fn(Span) -> Span) -> Self {
        Delays(
            self.0
                .iter()
                .map(|(at, delay)| (*at, change(*delay)))
                .collect(),
        )
    }
}

impl Field for Delays {
    type Scalar = Infallible;
    const KIND: &'static str = "time or schedule";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let delays = match &node.value {
            Value::Array(items) => {
                Delays(read_steps(key, node, items, DELAYS, Span::read, problems)?)
            }
            _ => Delays::constant(Span::read(key, node, problems)?),
        };
        if delays.longest() > LONGEST {
            let message = format!("`{key}` cannot be {}", delays.longest());
            let problem = Problem::new(node.at.clone(), message);
            problems.push(problem.hint(format!("0s to {LONGEST} is accepted")));
            return None;
        }
        Some(delays)
    }

    fn write(&self) -> Option<Value> {
        let write = |delay: &Span| Value::Text(show_span(delay));
        Some(match self.0.as_slice() {
            [(_, delay)] => write(delay),
            steps => write_steps(steps, write),
        })
    }
}

impl fmt::Display for Schedule {
    /// Formats the schedule for users: a long one is cut off with dots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |rate: &Option<Rate>| match rate {
            Some(rate) => rate.to_string(),
            None => OUTAGE.to_owned(),
        };
        match &self.origin {
            Origin::Steps => show_steps(f, &self.steps, word),
            Origin::Cycle { every, rates } => {
                let rates: Vec<String> = rates.iter().map(word).collect();
                write!(f, "{} in turn, {every} each", rates.join(", "))
            }
            Origin::Csv(file) => f.write_str(&file.path),
            Origin::Trace(file, _) => write!(f, "{} ({} on average)", file.path, self.highest()),
        }
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_steps(f, &self.0, show_span)
    }
}

fn show_steps<T>(
    f: &mut fmt::Formatter<'_>,
    steps: &[(Span, T)],
    show: impl Fn(&T) -> String,
) -> fmt::Result {
    for (i, (at, value)) in steps.iter().take(MOST_SHOWN).enumerate() {
        match i {
            0 => write!(f, "{}", show(value))?,
            _ => write!(f, ", {} from {at}", show(value))?,
        }
    }
    f.write_str(if steps.len() > MOST_SHOWN { " ..." } else { "" })
}

/// The number of steps that a table has room for.
const MOST_SHOWN: usize = 8;
/// The word for the absence of a rate.
const OUTAGE: &str = "outage";
const STEPS: &str = "write it as in [[\"0s\", \"100Mbit/s\"], [\"15s\", \"10Mbit/s\"]]";
const TABLES: &str = "{ csv = FILE }, { trace = FILE } or { every = \"20s\", rates = [\"100Mbit/s\", \
                      \"10Mbit/s\"] } is accepted";
const DELAYS: &str = "write it as in [[\"0s\", \"10ms\"], [\"15s\", \"50ms\"]]";
/// The longest delay or round trip.
const LONGEST: Span = Span::from_secs(120);
