//! The conditions of a rule, ready for packets: names are resolved, and the clauses that hold for a
//! whole flow are separate from those that each packet must be tested against.

use crate::grammar::{Action, Clause, Condition, Rule, Target};
use crate::headers::{Headers, Interface};
use crate::matching::flow_fields::FlowFields;
use crate::matching::{Look, Names};
use crate::options::{FlowQuestion, Question};
use crate::tables::{TableId, TableKind, Tables, ValueKind};
use crate::words::address::Address;
use crate::words::argument::Protocol;

/// The clauses of a rule, separated.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// Clauses with one answer for all packets of a flow.
    pub constant: Box<[Test<FlowQuestion>]>,
    /// Clauses that each packet is tested against.
    pub per_packet: Box<[Test<Question>]>,
    /// Which value of a table the action reads.
    pub table_arg: Option<ValueKind>,
}

/// A clause: one question, or several of which one must hold. `true` negates a question.
#[derive(Clone, Debug)]
pub(crate) enum Test<Q> {
    One(Q),
    Not(Q),
    Any(Box<[(bool, Q)]>),
}

impl Compiled {
    /// Resolves the names of a rule. Tables that do not exist yet are created.
    pub fn new(rule: &Rule, interfaces: &[Interface], tables: &mut Tables) -> Self {
        let table_arg = match rule.action {
            Action::Pipe(Target::TableArg) | Action::Queue(Target::TableArg) => {
                Some(ValueKind::Pipe)
            }
            Action::SkipTo(Target::TableArg) | Action::Call(Target::TableArg) => {
                Some(ValueKind::SkipTo)
            }
            _ => None,
        };
        let mut constant = Vec::new();
        let mut per_packet = Vec::new();
        let mut mixes_tables = false;
        for clause in rule.clauses().filter(|clause| !always_holds(clause)) {
            let mut names_table = false;
            let mut names = Names {
                interfaces,
                table: &mut |name, kind| {
                    names_table = true;
                    tables.find_or_create(name, kind)
                },
            };
            let questions: Vec<(bool, Question)> = clause
                .iter()
                .map(|term| (term.is_negated, term.condition.question(&mut names)))
                .collect();
            match for_flow(&questions) {
                Some(questions) => constant.push(questions),
                None => {
                    mixes_tables |= names_table;
                    per_packet.push(questions);
                }
            }
        }
        // Which table matched last then depends on the packet, so each packet passes all tests.
        if mixes_tables && table_arg.is_some() {
            let all = constant.drain(..).map(|clause| {
                let questions = clause.into_iter();
                questions
                    .map(|(is_negated, question)| (is_negated, Question::Flow(question)))
                    .collect()
            });
            per_packet = all.chain(per_packet).collect();
        }
        Compiled {
            constant: constant.into_iter().map(Test::new).collect(),
            per_packet: per_packet.into_iter().map(Test::new).collect(),
            table_arg,
        }
    }

    /// Whether the constant clauses hold. `look.value` receives that of the last table that matched.
    #[inline]
    pub fn holds_for_flow(&self, flow: &FlowFields, look: &mut Look<'_>) -> bool {
        look.arg = self.table_arg;
        self.constant
            .iter()
            .all(|test| test.holds(look, |question, look| question.holds(flow, look)))
    }

    /// Whether the other clauses hold.
    #[inline]
    pub fn holds_for_packet(&self, headers: &Headers, look: &mut Look<'_>) -> bool {
        look.arg = self.table_arg;
        self.per_packet
            .iter()
            .all(|test| test.holds(look, |question, look| question.holds(headers, look)))
    }
}

/// The questions of a clause, if each of them has one answer for a whole flow.
fn for_flow(questions: &[(bool, Question)]) -> Option<Vec<(bool, FlowQuestion)>> {
    let constant = questions
        .iter()
        .map(|(is_negated, question)| match question {
            Question::Flow(question) => Some((*is_negated, question.clone())),
            Question::Packet(_) => None,
        });
    constant.collect()
}

/// Whether a clause matches everything: `any`, `ip`.
fn always_holds(clause: &Clause) -> bool {
    clause.iter().any(|term| {
        let says_nothing = matches!(
            term.condition,
            Condition::Protocol(Protocol::Any)
                | Condition::Source(Address::Any)
                | Condition::Destination(Address::Any)
        );
        says_nothing && !term.is_negated
    })
}

/// The table that a condition names, and the kind of its keys.
pub(crate) fn table_of(condition: &Condition) -> Option<(String, TableKind)> {
    let mut named = None;
    condition.question(&mut Names {
        interfaces: &[],
        table: &mut |name, kind| {
            named = Some((name.to_string(), kind));
            TableId(0)
        },
    });
    named
}

impl<Q> Test<Q> {
    fn new(mut questions: Vec<(bool, Q)>) -> Self {
        match (questions.pop(), questions.is_empty()) {
            (Some((false, question)), true) => Test::One(question),
            (Some((true, question)), true) => Test::Not(question),
            (last, _) => {
                questions.extend(last);
                Test::Any(questions.into())
            }
        }
    }

    #[inline]
    fn holds(&self, look: &mut Look<'_>, holds: impl Fn(&Q, &mut Look<'_>) -> bool) -> bool {
        // A table that must not match gives the action no value.
        match self {
            Test::One(question) => holds(question, look),
            Test::Not(question) => !holds(question, &mut Look::new(look.env)),
            Test::Any(questions) => questions.iter().any(|(is_negated, question)| {
                if *is_negated {
                    !holds(question, &mut Look::new(look.env))
                } else {
                    holds(question, look)
                }
            }),
        }
    }
}
