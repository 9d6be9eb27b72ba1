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
    /// The steps in the order of time, the first at zero; `None` during an outage.
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

    /// Returns the smallest rate, without outages.
    pub fn lowest(&self) -> Rate {
        let rates = self.steps.iter().filter_map(|(_, rate)| *rate);
        rates.min().unwrap_or(Rate::from_bps(1))
    }

    /// Returns the number of bits that pass between `from` and `to`; `None` if the rate is
    /// unlimited at any time between.
    pub fn bits_between(&self, from: Span, to: Span) -> Option<f64> {
        if let Origin::Trace(_, opportunities) = &self.origin {
            let mut carried = Carried::of(opportunities);
            carried.next = carried.trace.ready_at(Time::ZERO + from);
            return Some(carried.until(to) as f64);
        }
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

    /// Returns the rate over time as a chart of a run until `end` shows it: the steps, or the means
    /// of a trace in windows of this length, each at the end of its window. In a very long run, the
    /// windows begin further apart than `step`.
    pub fn shown(&self, window: Span, step: Span, end: Span) -> Vec<(Span, Option<Rate>)> {
        let Origin::Trace(_, opportunities) = &self.origin else {
            return self.steps.clone();
        };
        // The first instant of a window belongs to the window before it.
        let (mut head, mut tail) = (Carried::of(opportunities), Carried::of(opportunities));
        let mean = |to: Span| {
            let bits = head.until(to) - tail.until(to.saturating_sub(window));
            let bps = bits as f64 / window.as_secs_f64();
            (to, Some(Rate::from_bps(bps as u64)))
        };
        let step = step.max(Span::from_ms(1));
        let step = step.max(Span::from_ns(end.as_ns() / MOST_MEANS));
        let ends = std::iter::successors(Some(window), |at| Some(at.saturating_add(step)));
        let mut means: Vec<_> = ends.take_while(|at| *at <= end).map(mean).collect();
        match means.first_mut() {
            // The first mean applies from the start.
            Some(first) => first.0 = Span::ZERO,
            None => means = self.steps.clone(),
        }
        means
    }

    /// Returns the length of the shortest outage; `None` without one.
    pub fn shortest_outage(&self) -> Option<Span> {
        let pairs = self.steps.windows(2);
        let outages = pairs.filter(|pair| pair[0].1.is_none());
        outages
            .map(|pair| pair[1].0.saturating_sub(pair[0].0))
            .min()
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

    /// Returns how many steps rates that take turns have until `end`; 0 for other rates.
    pub(super) fn turns_until(&self, end: Span) -> u64 {
        match &self.origin {
            Origin::Cycle { every, .. } => turns_until(*every, end),
            Origin::Steps | Origin::Csv(_) | Origin::Trace(..) => 0,
        }
    }

    /// Repeats rates that take turns until `end`.
    pub(super) fn extend_to(&mut self, end: Span) {
        let Origin::Cycle { every, rates } = &self.origin else {
            return;
        };
        self.steps = turns(*every, rates, end);
    }

    /// Returns the last step that the file itself contains, if any.
    pub(super) fn last_written(&self) -> Option<Span> {
        match self.origin {
            Origin::Steps => self.steps.last().map(|(at, _)| *at),
            Origin::Cycle { .. } | Origin::Csv(_) | Origin::Trace(..) => None,
        }
    }
}

/// The bits that a trace has carried so far.
struct Carried {
    trace: Opportunities,
    /// The next opportunity.
    next: Time,
    bits: u64,
}

impl Carried {
    fn of(trace: &Opportunities) -> Carried {
        let mut trace = trace.clone();
        let next = trace.ready_at(Time::ZERO);
        Carried {
            trace,
            next,
            bits: 0,
        }
    }

    /// Goes on to `to`, and returns the bits so far.
    fn until(&mut self, to: Span) -> u64 {
        while self.next <= Time::ZERO + to {
            self.bits += Opportunities::BYTES * 8;
            self.trace.transmit(self.next, Opportunities::BYTES);
            self.next = self.trace.ready_at(self.next);
        }
        self.bits
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
        return problems.refuse(Problem::new(node.at.clone(), message).hint(example));
    }
    let mut steps: Vec<(Span, T)> = Vec::new();
    let mut is_right = true;
    for item in items {
        let Value::Array(pair) = &item.value else {
            let expected = format!("pairs of a time and a {key}");
            return problems.refuse(wrong_type(key, item, &expected).hint(example));
        };
        let [at, value] = pair.as_slice() else {
            let message = format!("a step of `{key}` has {} parts, not 2", pair.len());
            return problems.refuse(Problem::new(item.at.clone(), message).hint(example));
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
                return Some(write_turns(*every, "rates", rates, write_rate));
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
            if steps.iter().all(|(_, rate)| rate.is_none()) && !problems.is_recording() {
                let message = format!("`{}` has outages and no rate", file.path);
                let hint = "give at least one line with a rate, such as 0,10000000";
                return problems.refuse(Problem::new(node.at.clone(), message).hint(hint));
            }
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
            let (every, rates) = read_turns(table, "rates", read_rate, problems)?;
            if rates.iter().all(Option::is_none) {
                let message = "`rates` has no rate";
                let at = table.node("rates")?.at.clone();
                return problems.refuse(Problem::new(at, message).hint("give at least one"));
            }
            Some(Schedule {
                steps: vec![(Span::ZERO, rates[0])],
                origin: Origin::Cycle { every, rates },
            })
        }
        _ => {
            let message = format!("`{key}` as a table has other keys");
            problems.refuse(Problem::new(node.at.clone(), message).hint(TABLES))
        }
    }
}

/// Reads `{ every = TIME, NAME = [...] }`: values that take turns, and how long each one applies.
fn read_turns<T>(
    table: &Table,
    name: &str,
    read: impl Fn(&str, &Node, &mut Problems) -> Option<T>,
    problems: &mut Problems,
) -> Option<(Span, Vec<T>)> {
    let (every_at, values) = (table.node("every")?, table.node(name)?);
    let every = Span::read("every", every_at, problems)?;
    if every < Span::from_us(100) {
        let message = format!("`every` cannot be {}", show_span(&every));
        let problem = Problem::new(every_at.at.clone(), message);
        problems.push(problem.hint("100us or more is accepted"));
        return None;
    }
    let Value::Array(items) = &values.value else {
        problems.push(wrong_type(name, values, &format!("a list of {name}")));
        return None;
    };
    if items.is_empty() {
        let message = format!("`{name}` is empty");
        problems.push(Problem::new(values.at.clone(), message).hint("give at least one"));
        return None;
    }
    let values: Option<Vec<T>> = items
        .iter()
        .map(|item| read(name, item, problems))
        .collect();
    Some((every, values?))
}

/// Writes what [`read_turns`] reads.
fn write_turns<T>(every: Span, name: &str, values: &[T], write: impl Fn(&T) -> Value) -> Value {
    let mut table = Table::default();
    let values = values.iter().map(|value| write(value).into());
    table.push("every", Value::text(every));
    table.push(name, Value::Array(values.collect()));
    Value::Table(table)
}

/// A delay over time: each step applies until the next, and lets no packet overtake another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// In the order of time, the first at zero.
    steps: Vec<(Span, Span)>,
    /// Delays that take turns, and how long each one applies.
    cycle: Option<(Span, Vec<Span>)>,
}

impl Delays {
    /// Creates a constant delay.
    pub fn constant(delay: Span) -> Self {
        Delays::from_steps(vec![(Span::ZERO, delay)])
    }

    fn from_steps(steps: Vec<(Span, Span)>) -> Self {
        Delays { steps, cycle: None }
    }

    /// Returns the initial delay.
    pub fn first(&self) -> Span {
        self.steps[0].1
    }

    /// Returns the steps in the order of time. The first is at zero, and there is at least one.
    pub fn steps(&self) -> &[(Span, Span)] {
        &self.steps
    }

    /// Returns the delay at `t` after the start.
    pub fn at(&self, t: Span) -> Span {
        let next = self.steps.partition_point(|(from, _)| *from <= t);
        self.steps[next - 1].1
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Span {
        let turns = self.cycle.iter().flat_map(|(_, delays)| delays);
        let delays = self.steps.iter().map(|(_, delay)| delay).chain(turns);
        delays.max().copied().unwrap_or(Span::ZERO)
    }

    /// Returns how many steps delays that take turns have until `end`; 0 for other delays.
    pub(super) fn turns_until(&self, end: Span) -> u64 {
        let cycle = self.cycle.as_ref();
        cycle.map_or(0, |(every, _)| turns_until(*every, end))
    }

    /// Repeats delays that take turns until `end`.
    pub(super) fn extend_to(&mut self, end: Span) {
        if let Some((every, delays)) = &self.cycle {
            self.steps = turns(*every, delays, end);
        }
    }

    /// Returns the last step that the file itself contains, if any.
    pub(super) fn last_written(&self) -> Option<Span> {
        let last = self.steps.last().map(|(at, _)| *at);
        last.filter(|_| self.cycle.is_none())
    }

    /// Returns the schedule with `change` applied to each delay.
    pub(super) fn map(&self, change: impl Fn(Span) -> Span) -> Self {
        let steps = self.steps.iter();
        let cycle = self.cycle.as_ref();
        Delays {
            steps: steps.map(|(at, delay)| (*at, change(*delay))).collect(),
            cycle: cycle.map(|(every, delays)| {
                (*every, delays.iter().map(|delay| change(*delay)).collect())
            }),
        }
    }
}

/// Returns the steps of `values` that take turns, each for `every`, until `end`.
fn turns<T: Copy>(every: Span, values: &[T], end: Span) -> Vec<(Span, T)> {
    let turns = 0..turns_until(every, end);
    let instants = turns.map(|n| Span::from_ns(every.as_ns().saturating_mul(n)));
    instants.zip(values.iter().copied().cycle()).collect()
}

/// Returns the number of steps of values that take turns, each for `every`, until `end`.
fn turns_until(every: Span, end: Span) -> u64 {
    end.as_ns().div_ceil(every.as_ns())
}

impl Field for Delays {
    type Scalar = Infallible;
    const KIND: &'static str = "time or schedule";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let delays = match &node.value {
            Value::Array(items) => {
                let steps = read_steps(key, node, items, DELAYS, Span::read, problems)?;
                Delays::from_steps(steps)
            }
            Value::Table(table) => {
                let mut keys: Vec<&str> = table.0.iter().map(|entry| entry.key.as_str()).collect();
                keys.sort_unstable();
                if keys != ["delays", "every"] {
                    let message = format!("`{key}` as a table has other keys");
                    let problem = Problem::new(node.at.clone(), message);
                    problems.push(problem.hint(DELAY_TABLE));
                    return None;
                }
                let (every, delays) = read_turns(table, "delays", Span::read, problems)?;
                Delays {
                    steps: vec![(Span::ZERO, delays[0])],
                    cycle: Some((every, delays)),
                }
            }
            _ => Delays::constant(Span::read(key, node, problems)?),
        };
        if delays.longest() > LONGEST {
            let message = format!("`{key}` cannot be {}", delays.longest());
            let problem = Problem::new(node.at.clone(), message);
            return problems.refuse(problem.hint(format!("0s to {LONGEST} is accepted")));
        }
        Some(delays)
    }

    fn write(&self) -> Option<Value> {
        let write = |delay: &Span| Value::Text(show_span(delay));
        if let Some((every, delays)) = &self.cycle {
            return Some(write_turns(*every, "delays", delays, write));
        }
        Some(match self.steps.as_slice() {
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
            Origin::Cycle { every, rates } => show_turns(f, *every, rates, word),
            Origin::Csv(file) => f.write_str(&file.path),
            Origin::Trace(file, _) => write!(f, "{} ({} on average)", file.path, self.highest()),
        }
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cycle {
            Some((every, delays)) => show_turns(f, *every, delays, show_span),
            None => show_steps(f, &self.steps, show_span),
        }
    }
}

fn show_turns<T>(
    f: &mut fmt::Formatter<'_>,
    every: Span,
    values: &[T],
    show: impl Fn(&T) -> String,
) -> fmt::Result {
    let values: Vec<String> = values.iter().map(show).collect();
    write!(f, "{} in turn, {every} each", values.join(", "))
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

/// The most means of a trace: 24 bytes each.
const MOST_MEANS: u64 = 10_000_000;
/// The number of steps that a table has room for.
const MOST_SHOWN: usize = 8;
/// The word for the absence of a rate.
const OUTAGE: &str = "outage";
const STEPS: &str = "write it as in [[\"0s\", \"100Mbit/s\"], [\"15s\", \"10Mbit/s\"]]";
const TABLES: &str = "{ csv = FILE }, { trace = FILE } or { every = \"20s\", rates = [\"100Mbit/s\", \
                      \"10Mbit/s\"] } is accepted";
const DELAYS: &str = "write it as in [[\"0s\", \"10ms\"], [\"15s\", \"50ms\"]]";
const DELAY_TABLE: &str = "{ every = \"15s\", delays = [\"10ms\", \"50ms\"] } is accepted";
/// The longest delay or round trip.
const LONGEST: Span = Span::from_secs(120);
