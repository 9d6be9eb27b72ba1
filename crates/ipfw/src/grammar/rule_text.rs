//! Writes rules: in the form of `list`, and as the `add` command that reads as the same rule.

use std::fmt;

use super::condition::Clause;
use super::rule::{Action, Log, Rule, State, Target};
use crate::options::Condition;

/// The parts of a rule that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFormat {
    /// `-S`: write the set.
    pub has_set: bool,
    /// `-c`: omit `ip from any to any` where it has no effect.
    pub is_compact: bool,
    /// `-b`: write action and remark only.
    pub is_brief: bool,
    /// `-N`: write names of services.
    pub has_names: bool,
}

/// A rule without its number, in the form of `list`.
pub struct ShowRule<'a>(pub &'a Rule, pub RuleFormat);

impl fmt::Display for ShowRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShowRule(rule, format) = self;
        if format.has_set {
            write!(f, "set {} ", rule.set)?;
        }
        if let Some(prob) = rule.prob {
            if prob.as_billionths().is_multiple_of(1000) {
                write!(f, "prob {:.6} ", prob.as_f64())?;
            } else {
                write!(f, "prob {prob} ")?;
            }
        }
        rule.action.fmt(f)?;
        match rule.log {
            Some(Log { amount: Some(n) }) => write!(f, " log logamount {n}")?,
            Some(Log { amount: None }) => f.write_str(" log")?,
            None => {}
        }
        let has_names = format.has_names;
        let argument = |f: &mut fmt::Formatter<'_>, condition: &Condition| {
            condition.write_argument(f, has_names)
        };
        let has_body = !matches!(rule.action, Action::CheckState(_));
        if has_body && !format.is_brief {
            if !(format.is_compact && rule.has_plain_body()) {
                f.write_str(" ")?;
                write_terms(f, &rule.protocol, argument)?;
                f.write_str(" from ")?;
                write_terms(f, &rule.source, argument)?;
                if let Some(ports) = &rule.source_ports {
                    f.write_str(if ports.is_negated { " not " } else { " " })?;
                    argument(f, &ports.condition)?;
                }
                f.write_str(" to ")?;
                write_terms(f, &rule.destination, argument)?;
            }
            for clause in &rule.options {
                f.write_str(" ")?;
                write_terms(f, clause, |f, condition| condition.write(f, has_names))?;
            }
            if let Some(state) = &rule.state {
                state.fmt(f)?;
            }
        }
        match &rule.remark {
            Some(remark) if remark.is_empty() => f.write_str(" //"),
            Some(remark) => write!(f, " // {remark}"),
            None => Ok(()),
        }
    }
}

fn write_terms(
    f: &mut fmt::Formatter<'_>,
    clause: &Clause,
    write: impl Fn(&mut fmt::Formatter<'_>, &Condition) -> fmt::Result,
) -> fmt::Result {
    let is_block = clause.len() > 1;
    if is_block {
        f.write_str("{ ")?;
    }
    for (i, term) in clause.iter().enumerate() {
        if i > 0 {
            f.write_str(" or ")?;
        }
        if term.is_negated {
            f.write_str("not ")?;
        }
        write(f, &term.condition)?;
    }
    if is_block { f.write_str(" }") } else { Ok(()) }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Number(n) => n.fmt(f),
            Target::TableArg => f.write_str("tablearg"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Allow => f.write_str("allow"),
            Action::Deny => f.write_str("deny"),
            Action::Count => f.write_str("count"),
            Action::Pipe(target) => write!(f, "pipe {target}"),
            Action::Queue(target) => write!(f, "queue {target}"),
            Action::SkipTo(target) => write!(f, "skipto {target}"),
            Action::Call(target) => write!(f, "call {target}"),
            Action::Return => f.write_str("return"),
            Action::CheckState(flow) => write!(f, "check-state :{flow}"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = &self.limit else {
            return write!(f, " keep-state :{}", self.flow);
        };
        f.write_str(" limit")?;
        let fields = [
            (limit.by_source, "src-addr"),
            (limit.by_source_port, "src-port"),
            (limit.by_destination, "dst-addr"),
            (limit.by_destination_port, "dst-port"),
        ];
        for (_, name) in fields.iter().filter(|(is_used, _)| *is_used) {
            write!(f, " {name}")?;
        }
        write!(f, " {} :{}", limit.most, self.flow)
    }
}

/// Writes the rule as an `add` command.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("add ")?;
        if let Some(number) = self.number {
            write!(f, "{:05} ", number.value)?;
        }
        let format = RuleFormat {
            has_set: self.set != 0,
            ..RuleFormat::default()
        };
        ShowRule(self, format).fmt(f)
    }
}
