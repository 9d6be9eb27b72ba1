//! Commands about rules and their sets.

use sluice_core::event::Cx;

use super::put;
use crate::engine::{Firewall, Output};
use crate::grammar::{
    At, CommandError, Condition, Dynamic, ErrorKind, Flags, InterfaceTest, NumberSpan, Rule,
    RuleFormat, SetCommand, ShowRule, Target, Warning, nearest,
};
use crate::headers::Interface;
use crate::rules::compiled::table_of;
use crate::rules::{DEFAULT_RULE, Entry};
use crate::show::Snapshot;
use crate::show::collect::Selection;
use crate::show::rules as show_rules;
use crate::visits::visit;
use crate::words::error::Missing;
use crate::words::parser::MOST_WARNINGS;

/// Returns a remark if a test names an interface that the host does not have. A host without a list of
/// interfaces, such as a check of a file, does not know.
fn missing_interface(condition: &Condition, interfaces: &[Interface]) -> Option<String> {
    let (Condition::Via(test) | Condition::Recv(test) | Condition::Xmit(test)) = condition else {
        return None;
    };
    let names = || interfaces.iter().map(|interface| interface.name.as_str());
    let is_there = match test {
        InterfaceTest::Name(name) => names().any(|known| known == name),
        InterfaceTest::Prefix(prefix) => names().any(|known| known.starts_with(prefix.as_str())),
        InterfaceTest::Any | InterfaceTest::Address(_) | InterfaceTest::Table(_) => true,
    };
    if is_there || interfaces.is_empty() {
        return None;
    }
    let hint = nearest(&test.to_string(), names());
    let hint = hint.map_or_else(String::new, |near| format!(" (did you mean ``{near}''?)"));
    Some(format!("there is no interface {test}{hint}"))
}

impl Firewall {
    pub(super) fn add(
        &mut self,
        rule: &Rule,
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let at = rule.number.map(|n| n.at);
        let say = |text: String, output: &mut Output| output.warnings.push(Warning::new(at, text));
        use crate::grammar::Action::{Call, Pipe, Queue, SkipTo};
        let is_arg = matches!(
            rule.action,
            Pipe(Target::TableArg)
                | Queue(Target::TableArg)
                | SkipTo(Target::TableArg)
                | Call(Target::TableArg)
        );
        let names_table = rule
            .clauses()
            .flatten()
            .any(|t| !t.is_negated && table_of(&t.condition).is_some());
        if is_arg && !names_table {
            say(
                "this rule tests no table, so tablearg is 0, and no pipe, queue or rule has that number"
                    .into(),
                output,
            );
        }
        let missing = match rule.action {
            Pipe(Target::Number(n)) => Some(("pipe", n, Missing::Pipe(n))),
            Queue(Target::Number(n)) => Some(("queue", n, Missing::Queue(n))),
            _ => None,
        };
        if let Some((word, n, missing)) = missing.filter(|(_, _, missing)| !self.has(missing)) {
            let text =
                format!("{word} {n} does not exist: packets that match are dropped until it does");
            output.warnings.push(Warning::until(missing, at, text));
        }
        if rule.log.is_some() && !self.variables.is_on("net.inet.ip.fw.verbose") {
            say(
                "`log` records nothing until net.inet.ip.fw.verbose is 1".into(),
                output,
            );
        }
        // A suggestion takes time in proportion to the tables or interfaces.
        let mut left = MOST_WARNINGS;
        for term in rule.clauses().flatten() {
            let interfaces = self.rules.interfaces();
            let missing = || missing_interface(&term.condition, interfaces);
            if let Some(text) = (left > 0).then(missing).flatten() {
                left -= 1;
                let text = match term.is_negated {
                    false => format!("{text}, so this test matches no packet"),
                    true => format!("{text}, so this test matches every packet"),
                };
                say(text, output);
            }
            let Some((name, kind)) = table_of(&term.condition) else {
                continue;
            };
            let tables = &self.rules.tables;
            let Some(id) = tables.find(&name) else {
                if left == 0 {
                    continue;
                }
                left -= 1;
                let near = tables.nearest(&name);
                let near =
                    near.map_or_else(String::new, |near| format!(" (did you mean ``{near}''?)"));
                let matches = if term.is_negated { "every" } else { "no" };
                let text = format!(
                    "table {name} does not exist{near}: it is created empty, of type {}, and this test matches {matches} packet until it has entries",
                    kind.word()
                );
                let missing = Missing::Entries(name.to_string());
                output.warnings.push(Warning::until(missing, at, text));
                continue;
            };
            let other = tables.table(id).kind;
            if other != kind {
                let text = format!(
                    "table {name} is of type {}, not {}",
                    other.word(),
                    kind.word()
                );
                return Err(CommandError {
                    at,
                    ..CommandError::of(ErrorKind::Unavailable(text))
                });
            }
        }
        let step = self.variables.value("net.inet.ip.fw.autoinc_step") as u32;
        let number = self.rules.add(rule.clone(), step);
        if !flags.quiet {
            let format = rule_format(flags);
            put(
                output,
                format_args!("{number:05} {}\n", ShowRule(rule, format)),
            );
        }
        Ok(())
    }

    pub(super) fn list(
        &mut self,
        has_counters: bool,
        spans: &[At<NumberSpan>],
        set: Option<u8>,
        flags: &Flags,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        let selection = Selection::new(spans);
        let shown = |e: &Entry| {
            let is_visible = flags.sets || !self.rules.is_set_disabled(e.rule.set);
            is_visible && set.is_none_or(|s| s == e.rule.set) && selection.has(e.number)
        };
        let there = Numbers::of(self.rules.entries(), |_| true);
        if let Some(span) = spans.iter().find(|span| !there.are_in(span.value)) {
            return Err(CommandError::new(
                ErrorKind::NoSuchRule(span.value.first),
                span.at,
            ));
        }
        if flags.json {
            let mut snapshot = Snapshot {
                now_ns: cx.now.as_ns(),
                ..Snapshot::default()
            };
            if flags.dynamic != Dynamic::Only {
                snapshot.rules = show_rules::states(&self.rules, shown);
            }
            if flags.dynamic != Dynamic::No {
                show_rules::add_dynamic(&mut snapshot, &self.rules, flags.expired, cx.now);
            }
            output.snapshot = Some(Box::new(snapshot));
            return Ok(());
        }
        let style = show_rules::Style {
            has_counters: has_counters || flags.counters,
            times: flags.times,
            origin_s: self.settings.origin_s,
            dynamic: flags.dynamic,
            has_expired: flags.expired,
            format: rule_format(flags),
        };
        output
            .stdout
            .push_str(&show_rules::list(&self.rules, shown, &style, cx.now));
        Ok(())
    }

    pub(super) fn delete_rules(
        &mut self,
        spans: &[At<NumberSpan>],
        set: Option<u8>,
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let in_set = |e: &Entry| set.is_none_or(|s| s == e.rule.set);
        let is_meant = |e: &Entry| e.number != DEFAULT_RULE && in_set(e);
        let there = Numbers::of(self.rules.entries(), is_meant);
        let before = output.warnings.len();
        for span in spans {
            if there.are_in(span.value) {
                continue;
            }
            let first = span.value.first;
            if !flags.force {
                return Err(CommandError::new(ErrorKind::RuleNotFound(first), span.at));
            }
            // ipfw goes on with `-f`, and is silent with `-q`.
            if !flags.quiet && output.warnings.len() - before < MOST_WARNINGS {
                let text = format!("rule {first} not found");
                output.warnings.push(Warning::new(Some(span.at), text));
            }
        }
        let selection = Selection::new(spans);
        self.rules.remove(|e| in_set(e) && selection.has(e.number));
        Ok(())
    }

    pub(super) fn zero(
        &mut self,
        spans: &[At<NumberSpan>],
        set: Option<u8>,
        log_only: bool,
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let in_set = |e: &Entry| set.is_none_or(|s| s == e.rule.set);
        let there = Numbers::of(self.rules.entries(), in_set);
        if let Some(span) = spans.iter().find(|span| !there.are_in(span.value)) {
            return Err(CommandError::new(
                ErrorKind::RuleNotFound(span.value.first),
                span.at,
            ));
        }
        let selection = Selection::new(spans);
        self.rules
            .zero(log_only, |e| in_set(e) && selection.has(e.number));
        if flags.quiet {
            return Ok(());
        }
        let what = if log_only {
            "logging count reset"
        } else {
            "cleared"
        };
        if spans.is_empty() {
            let all = if log_only {
                "Logging counts reset."
            } else {
                "Accounting cleared."
            };
            put(output, format_args!("{all}\n"));
        }
        for span in spans {
            put(output, format_args!("Entry {} {what}.\n", span.value.first));
        }
        Ok(())
    }

    pub(super) fn sets(
        &mut self,
        command: &SetCommand,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        match command {
            SetCommand::Show => output.stdout.push_str(&show_rules::sets(&self.rules)),
            SetCommand::Switch { disable, enable } => self.rules.switch_sets(disable, enable),
            SetCommand::Move(from, to) => {
                self.rules
                    .change_sets(|e| if e.rule.set == *from { *to } else { e.rule.set });
            }
            SetCommand::Swap(a, b) => {
                self.rules.change_sets(|e| match e.rule.set {
                    set if set == *a => *b,
                    set if set == *b => *a,
                    set => set,
                });
            }
            SetCommand::MoveRule(number, to) => {
                if !self
                    .rules
                    .entries()
                    .iter()
                    .any(|e| e.number == number.value)
                {
                    return Err(CommandError::new(
                        ErrorKind::RuleNotFound(number.value),
                        number.at,
                    ));
                }
                self.rules.change_sets(|e| {
                    if e.number == number.value {
                        *to
                    } else {
                        e.rule.set
                    }
                });
            }
        }
        Ok(())
    }
}

/// The numbers of some rules, in order.
struct Numbers(Vec<u32>);

impl Numbers {
    fn of(entries: &[Entry], is_meant: impl Fn(&Entry) -> bool) -> Numbers {
        let meant = entries.iter().filter(|entry| is_meant(entry));
        Numbers(meant.map(|entry| entry.number).collect())
    }

    /// Returns whether one of the numbers is in a span.
    fn are_in(&self, span: NumberSpan) -> bool {
        let at = self.0.partition_point(|number| {
            visit();
            *number < span.first
        });
        self.0.get(at).is_some_and(|number| *number <= span.last)
    }
}

fn rule_format(flags: &Flags) -> RuleFormat {
    RuleFormat {
        has_set: flags.sets,
        is_compact: flags.compact,
        is_brief: flags.brief,
        has_names: flags.names,
    }
}
