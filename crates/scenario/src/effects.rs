//! The effects of a link beyond its rate and delay: the parameters that [`sluice_core::link`]
//! declares, each of which is a key.

use std::fmt;

use sluice_core::link::LinkParams;
use sluice_core::param::{Kind, ParamDecl, ParamError, Ratio, Value as CoreValue, Values};
use sluice_core::{Bytes, Rate, Span};

use super::error::{Problem, Problems};
use super::field::{show_span, wrong_type};
use super::schema::{Field, Section};
use super::tree::{Node, Table, Value};

/// The effects that are set for one direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects(Values);

impl Effects {
    /// Returns the declarations: all parameters of a link except its rate and its delay, which vary
    /// with time.
    pub fn decls() -> impl Iterator<Item = &'static ParamDecl> {
        let is_own = |decl: &&ParamDecl| !matches!(decl.name, "rate" | "delay");
        LinkParams::decls().filter(is_own)
    }

    /// Creates the effects that `values` set.
    ///
    /// # Errors
    /// Two values contradict each other.
    pub(super) fn from_values(values: Values) -> Result<Self, ParamError> {
        LinkParams::from_values(&values)?;
        Ok(Effects(values))
    }

    /// Returns the parameters of a link with these effects.
    pub fn params(&self) -> LinkParams {
        LinkParams::from_values(&self.0).expect("the effects were checked when they were read")
    }

    /// Returns the value of `name`.
    pub fn find(&self, name: &str) -> Option<CoreValue> {
        self.0.find(name)
    }

    pub(super) fn read(table: &Table, section: &Section, problems: &mut Problems) -> Option<Self> {
        let mut values = Values::new();
        let mut is_right = true;
        for decl in Effects::decls() {
            let Some(node) = table.node(decl.name) else {
                continue;
            };
            match read(decl, node, problems) {
                Some(value) => values.set(decl.name, value),
                None => is_right = false,
            }
        }
        if !is_right {
            return None;
        }
        let complain = |error: &ParamError| {
            let first = Effects::decls().find_map(|decl| table.find(decl.name));
            let at = first.map_or(&section.at, |entry| &entry.key_at);
            problems.push(Problem::new(at.clone(), error.to_string()));
        };
        Effects::from_values(values).inspect_err(complain).ok()
    }

    pub(super) fn write(&self, table: &mut Table) {
        for (name, value) in self.0.iter() {
            table.push(name, write(value));
        }
    }
}

impl fmt::Display for Effects {
    /// Formats the effects in the language of links: `loss 0.01 jitter 2ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let space = if i > 0 { " " } else { "" };
            match value {
                CoreValue::Flag(true) => write!(f, "{space}{name}")?,
                CoreValue::Flag(false) => write!(f, "{space}no{name}")?,
                value => write!(f, "{space}{name} {value}")?,
            }
        }
        Ok(())
    }
}

fn read(decl: &'static ParamDecl, node: &Node, problems: &mut Problems) -> Option<CoreValue> {
    let key = decl.name;
    let value = match decl.kind {
        Kind::Span => CoreValue::Span(Span::read(key, node, problems)?),
        Kind::Rate => CoreValue::Rate(Rate::read(key, node, problems)?),
        Kind::Bytes => CoreValue::Bytes(Bytes::read(key, node, problems)?),
        Kind::Count => CoreValue::Count(u64::read(key, node, problems)?),
        Kind::Ratio => CoreValue::Ratio(Ratio::read(key, node, problems)?),
        Kind::Flag => CoreValue::Flag(bool::read(key, node, problems)?),
        Kind::Choice(words) => {
            let Value::Text(text) = &node.value else {
                return problems.refuse(wrong_type(key, node, "a string"));
            };
            let Some(word) = words.iter().find(|word| *word == text) else {
                let message = format!("`{key}` cannot be `{text}`");
                let problem = Problem::new(node.at.clone(), message);
                return problems.refuse(problem.nearest(text, words.iter().copied()));
            };
            CoreValue::Choice(word)
        }
    };
    if let Err(ParamError::OutOfRange { low, high, .. }) = decl.check(value) {
        let message = format!("`{key}` cannot be {value}");
        let problem = Problem::new(node.at.clone(), message);
        return problems.refuse(problem.hint(format!("{low} to {high} is accepted")));
    }
    Some(value)
}

fn write(value: CoreValue) -> Value {
    match value {
        CoreValue::Span(span) => Value::Text(show_span(&span)),
        CoreValue::Count(n) => Value::Integer(n as i64),
        CoreValue::Flag(flag) => Value::Bool(flag),
        CoreValue::Rate(_) | CoreValue::Bytes(_) | CoreValue::Ratio(_) | CoreValue::Choice(_) => {
            Value::text(value)
        }
    }
}
