//! The conditions of a rule, ready for packets: names are resolved, and the clauses that hold for a
//! whole flow are separate from those that each packet must be tested against.

use std::net::IpAddr;

use super::flow_fields::FlowFields;
use super::tables::{Key, Table, TableId, Tables};
use crate::grammar::{
    Action, Address, Clause, Condition, Field, InterfaceTest, Lookup, Net, Ports, Protocol, Rule,
    TableKind, TableRef, Target, ValueKind,
};
use crate::headers::{Headers, Interface, InterfaceId};
use crate::options::{FlowQuestion, Names, Question};

/// What conditions look into besides the packet.
pub(crate) struct Environment<'a> {
    pub interfaces: &'a [Interface],
    /// The addresses of all interfaces, sorted.
    pub own: &'a [IpAddr],
    pub tables: &'a Tables,
}

/// The environment, and the value that a table leaves for the action.
pub(crate) struct Look<'a> {
    pub env: &'a Environment<'a>,
    /// Which value of a table the action reads, if it reads one.
    arg: Option<ValueKind>,
    /// The value of the last table that matched.
    pub value: u32,
}

/// The clauses of a rule, apart.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// Hold or not for all packets of a flow.
    pub constant: Box<[Test<FlowQuestion>]>,
    /// Each packet is tested against these.
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

/// Whether a clause says nothing: `any`, `ip`.
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

impl<'a> Look<'a> {
    pub const fn new(env: &'a Environment<'a>) -> Self {
        Look {
            env,
            arg: None,
            value: 0,
        }
    }
}

/// A table, and the value that a match in it must have.
#[derive(Clone, Debug)]
pub(crate) struct TableTest {
    id: TableId,
    wanted: Option<u32>,
}

impl TableTest {
    fn new(table: &TableRef, kind: TableKind, names: &mut Names<'_>) -> Self {
        TableTest {
            id: (names.table)(&table.name, kind),
            wanted: table.value,
        }
    }

    /// Whether `find` finds an entry with the wanted value. The action reads that of the last
    /// match.
    fn holds<'t>(
        &self,
        look: &mut Look<'t>,
        find: impl FnOnce(&'t Table) -> Option<(&'t Key, &'t [u32])>,
    ) -> bool {
        let table = look.env.tables.table(self.id);
        let Some((_, values)) = find(table) else {
            return false;
        };
        if self
            .wanted
            .is_some_and(|wanted| values.first().copied().unwrap_or(0) != wanted)
        {
            return false;
        }
        if let Some(kind) = look.arg {
            look.value = table.value(values, kind);
        }
        true
    }
}

/// An [`Address`] with its table resolved.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    Net(Net),
    Nets(Box<[Net]>),
    Any,
    /// `me`.
    Own,
    /// `me6`.
    OwnV6,
    Table(TableTest),
}

impl Hosts {
    pub fn new(address: &Address, names: &mut Names<'_>) -> Self {
        match address {
            Address::Any => Hosts::Any,
            Address::Me => Hosts::Own,
            Address::Me6 => Hosts::OwnV6,
            Address::Table(table) => Hosts::Table(TableTest::new(table, TableKind::Addr, names)),
            Address::Nets(nets) => match nets.as_slice() {
                [net] => Hosts::Net(net.clone()),
                nets => Hosts::Nets(nets.into()),
            },
        }
    }

    #[inline]
    pub fn hold(&self, address: IpAddr, look: &mut Look<'_>) -> bool {
        let is_own = |look: &Look<'_>| look.env.own.binary_search(&address).is_ok();
        match self {
            Hosts::Net(net) => net.holds(address),
            Hosts::Nets(nets) => nets.iter().any(|net| net.holds(address)),
            Hosts::Any => true,
            Hosts::Own => is_own(look),
            Hosts::OwnV6 => address.is_ipv6() && is_own(look),
            Hosts::Table(table) => table.holds(look, |table| table.find_address(address)),
        }
    }
}

/// Ranges of ports, both ends included.
#[derive(Clone, Debug)]
pub(crate) struct PortRanges(Box<[(u16, u16)]>);

impl PortRanges {
    pub fn new(ports: &Ports) -> Self {
        // The grammar refuses ports above 65535.
        let port = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let ranges = ports.0.0.iter();
        PortRanges(
            ranges
                .map(|(low, high)| (port(*low), port(*high)))
                .collect(),
        )
    }

    pub fn hold(&self, port: u16) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&port))
    }
}

/// An [`InterfaceTest`] with its names resolved.
#[derive(Clone, Debug)]
pub(crate) enum Interfaces {
    /// One of these; none if the host has no such interface.
    Ids(Box<[InterfaceId]>),
    Any,
    Table(TableTest),
}

impl Interfaces {
    pub fn new(test: &InterfaceTest, names: &mut Names<'_>) -> Self {
        let ids = |is_meant: &dyn Fn(&Interface) -> bool| {
            let meant = names.interfaces.iter().enumerate();
            let meant = meant.filter(|(_, interface)| is_meant(interface));
            Interfaces::Ids(meant.map(|(n, _)| InterfaceId(n as u16)).collect())
        };
        match test {
            InterfaceTest::Any => Interfaces::Any,
            InterfaceTest::Name(name) => ids(&|i| i.name == *name),
            InterfaceTest::Prefix(prefix) => ids(&|i| i.name.starts_with(prefix.as_str())),
            InterfaceTest::Address(address) => ids(&|i| i.addresses.contains(address)),
            InterfaceTest::Table(table) => {
                Interfaces::Table(TableTest::new(table, TableKind::Iface, names))
            }
        }
    }

    pub fn hold(&self, id: Option<InterfaceId>, look: &mut Look<'_>) -> bool {
        let Some(id) = id else {
            return false;
        };
        match self {
            Interfaces::Ids(ids) => ids.contains(&id),
            Interfaces::Any => true,
            Interfaces::Table(table) => {
                let interface = look.env.interfaces.get(usize::from(id.0));
                table.holds(look, |table| table.find_name(&interface?.name))
            }
        }
    }
}

/// A [`Lookup`] with its table resolved.
#[derive(Clone, Debug)]
pub(crate) struct LookupTest {
    field: Field,
    table: TableTest,
}

impl LookupTest {
    pub fn new(lookup: &Lookup, names: &mut Names<'_>) -> Self {
        let kind = match lookup.field {
            Field::SourceAddress | Field::DestinationAddress => TableKind::Addr,
            Field::SourcePort | Field::DestinationPort | Field::Dscp => TableKind::Number,
        };
        LookupTest {
            field: lookup.field,
            table: TableTest {
                id: (names.table)(&lookup.table, kind),
                wanted: None,
            },
        }
    }

    pub fn holds(&self, flow: &FlowFields, look: &mut Look<'_>) -> bool {
        self.table.holds(look, |table| match self.field {
            Field::SourceAddress => table.find_address(flow.src),
            Field::DestinationAddress => table.find_address(flow.dst),
            Field::SourcePort => table.find_number(u32::from(flow.ports?.0)),
            Field::DestinationPort => table.find_number(u32::from(flow.ports?.1)),
            Field::Dscp => table.find_number(u32::from(flow.dscp)),
        })
    }
}
