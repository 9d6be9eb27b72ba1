//! The parameters behind the name of an AQM or a discipline, read by their declarations.
//!
//! In dummynet everything behind `codel`, `pie`, `fq_codel` and `fq_pie` up to the end of the line
//! belongs to it. The same applies to every other algorithm of the registry.

use std::fmt;

use sluice_core::param::{Kind, ParamDecl, ParamError, Value, Values};
use sluice_core::registry::{self, Algorithm, Form, Setting, Spec, tc};

use super::object::OPTIONS;
use crate::words::error::{CommandError, ErrorKind, nearest};
use crate::words::parser::{Parse, Parser, invalid};
use crate::words::quantity::{self, ShowRate, whole_integer};
use crate::words::token::At;

/// Writes an algorithm with its parameters, in words that dummynet reads where it has them.
pub(super) struct ShowSpec<'a>(pub &'a Spec);

impl fmt::Display for ShowSpec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.algorithm.name)?;
        write_values(f, &self.0.values)
    }
}

/// Returns the parameters with their values, one string each.
pub(crate) fn words_of(values: &Values) -> Vec<String> {
    let word = |(name, value): (&'static str, Value)| match value {
        Value::Flag(true) => name.to_string(),
        Value::Flag(false) => format!("no{name}"),
        Value::Rate(rate) => format!("{name} {}", ShowRate(rate)),
        value => format!("{name} {value}"),
    };
    values.iter().map(word).collect()
}

/// Writes parameters with their values, each preceded by a space.
pub(super) fn write_values(f: &mut fmt::Formatter<'_>, values: &Values) -> fmt::Result {
    words_of(values)
        .iter()
        .try_for_each(|word| write!(f, " {word}"))
}

/// Returns the algorithm that a word such as `wasm:my.wasm` loads.
pub(super) fn loaded(p: &Parser<'_>, word: At<&str>) -> Parse<Option<&'static Algorithm>> {
    let found = p.loaders.load(word.value).transpose();
    found.map_err(|why| CommandError::new(ErrorKind::Contradiction(why), word.at))
}

/// Returns the AQM called `name`, as a word of `pipe` and `queue`.
pub(super) fn aqm(name: &str) -> Option<&'static Algorithm> {
    registry::find(name).filter(|a| a.form == Form::Aqm)
}

/// Returns the discipline called `name`, as a word of `sched`. dummynet's kernel ignores case.
pub(super) fn discipline(name: &str) -> Option<&'static Algorithm> {
    let name = name.to_ascii_lowercase();
    registry::find(&name).filter(|a| a.form != Form::Aqm)
}

/// Returns the names of all disciplines.
pub(super) fn disciplines() -> impl Iterator<Item = &'static str> {
    registry::algorithms()
        .filter(|a| a.form != Form::Aqm)
        .map(|a| a.name)
}

/// Whether the parameter is a limit of the queue, which other words set.
fn is_queue_limit(name: &str) -> bool {
    matches!(name, "limit" | "limit_bytes")
}

/// Reads the parameters of `algorithm` to the end of the line.
pub(super) fn parameters(
    p: &mut Parser<'_>,
    algorithm: &'static Algorithm,
    name: At<&str>,
) -> Parse<Spec> {
    let mut spec = Spec::new(algorithm);
    let decls: Vec<&'static ParamDecl> = algorithm.params().collect();
    while let Some(word) = p.take() {
        if algorithm.form == Form::Aqm && is_foreign(word.value) {
            return Err(CommandError::new(
                ErrorKind::NotFor {
                    word: word.value.to_string(),
                    algorithm: algorithm.name,
                    instead: if is_queue_limit(word.value) {
                        ", use queue instead"
                    } else {
                        ""
                    },
                },
                word.at,
            ));
        }
        match algorithm.setting(word.value) {
            Some(Setting::Flag(decl, is_on)) => spec.values.set(decl.name, Value::Flag(is_on)),
            Some(Setting::Value(decl)) => {
                // For these words only, dummynet reports a missing value as a bad one (exit status
                // 65).
                let at = p.at();
                let Some(text) = p.take() else {
                    let kind = ErrorKind::Contradiction(needs(decl));
                    return Err(CommandError::new(kind, at));
                };
                let value = value(p, decl, text)?;
                let value = bounded(p, algorithm, decl, text, value);
                spec.values.set(decl.name, value);
            }
            None => match chosen(&decls, word.value) {
                // `dre` or `ts`: a choice's value without the choice's name.
                Some((decl, value)) => spec.values.set(decl.name, value),
                None => unknown(p, algorithm, word),
            },
        }
    }
    // Contradictions are reported now and not when the first packet arrives.
    algorithm
        .build(&spec.values)
        .map_err(|error| CommandError::new(error, name.at))?;
    Ok(spec)
}

/// Checks a value that the declaration accepts against dummynet's bounds, to which dummynet clamps it
/// silently. A value outside is used as written, with a warning; under `compat` it is clamped.
fn bounded(
    p: &mut Parser<'_>,
    algorithm: &Algorithm,
    decl: &ParamDecl,
    text: At<&str>,
    value: Value,
) -> Value {
    let taken = algorithm.dummynet_value(decl, value);
    if taken == value {
        return value;
    }
    let (name, text, at) = (decl.name, text.value, text.at);
    if p.compat {
        p.warn(
            at,
            format!("`{name} {text}` is outside dummynet's bounds: {taken} is used"),
        );
        return taken;
    }
    p.warn(
        at,
        format!("`{name} {text}` is applied; dummynet would use {taken}"),
    );
    value
}

/// Whether `word` sets a parameter of the algorithm called `name`.
pub(super) fn is_parameter(name: &str, word: &str) -> bool {
    registry::find(name).is_some_and(|algorithm| algorithm.setting(word).is_some())
}

/// Whether `word` is a parameter of flow queueing or of the queue, which a plain AQM does not have.
fn is_foreign(word: &str) -> bool {
    matches!(word, "quantum" | "flows") || is_queue_limit(word)
}

/// Returns dummynet's message for a missing value.
pub(super) fn needs(decl: &ParamDecl) -> String {
    let what = match decl.kind {
        Kind::Span => "time",
        Kind::Choice(_) => "word",
        _ => "number",
    };
    format!("{} needs {what}", decl.name)
}

pub(super) fn chosen(
    decls: &[&'static ParamDecl],
    word: &str,
) -> Option<(&'static ParamDecl, Value)> {
    decls.iter().find_map(|decl| match decl.kind {
        Kind::Choice(words) => {
            let word = words.iter().find(|w| **w == word)?;
            Some((*decl, Value::Choice(word)))
        }
        _ => None,
    })
}

/// Reports an unknown word like dummynet: with a line on standard output and exit status 0.
fn unknown(p: &mut Parser<'_>, algorithm: &'static Algorithm, word: At<&str>) {
    if p.leaves_unsaid() {
        return;
    }
    let is_codel = algorithm.name.ends_with("codel");
    let invalid = if is_codel { "Invalid" } else { "invalid" };
    p.notices
        .push(format!("{} is {invalid} parameter", word.value));
    let mut text = format!(
        "`{}` is not a parameter of {} and is ignored",
        word.value, algorithm.name
    );
    if OPTIONS.contains(&word.value) {
        text.push_str(&format!(
            " (write it before `{}`, whose parameters end the line)",
            algorithm.name
        ));
    } else if let Some(advice) = tc::answer(word.value) {
        text.push_str(&format!(" ({advice})"));
    } else if let Some(name) = nearest(word.value, algorithm.params().map(|d| d.name)) {
        text.push_str(&format!(" (did you mean `{name}`?)"));
    }
    p.warn(word.at, text);
}

/// Reads a value. A value outside the declared range is clamped, as in dummynet's kernel.
pub(super) fn value(p: &mut Parser<'_>, decl: &'static ParamDecl, text: At<&str>) -> Parse<Value> {
    let value = match decl.kind {
        Kind::Span if text.value != "unlimited" => Value::Span(quantity::time(text)?),
        Kind::Rate => Value::Rate(quantity::rate(p, text)?),
        Kind::Count if text.value != "unlimited" => {
            let count = whole_integer(text.value).and_then(|n| u64::try_from(n).ok());
            Value::Count(count.ok_or_else(|| invalid(text, "a whole number", "decimal or 0x..."))?)
        }
        kind => {
            if kind == Kind::Ratio {
                quantity::decimal(text)?;
            }
            kind.parse(text.value).map_err(|error| {
                let error = ParamError::Value {
                    name: decl.name,
                    text: text.value.to_string(),
                    error,
                };
                CommandError::new(error, text.at)
            })?
        }
    };
    Ok(match (decl.check(value), decl.range) {
        (Err(_), Some((low, high))) => {
            let taken = if value < low { low } else { high };
            p.warn(
                text.at,
                format!(
                    "`{} {}` is outside {low} to {high}: {taken} is used",
                    decl.name, text.value
                ),
            );
            taken
        }
        _ => value,
    })
}
