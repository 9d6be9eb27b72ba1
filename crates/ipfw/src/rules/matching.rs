//! Conditions made ready for packets: names resolved, and those that hold for a whole flow apart
//! from those that each packet must be asked about.

use std::net::IpAddr;

use super::tables::{TableId, Tables};
use crate::grammar::{
    Action, Address, Clause, Condition, Field, FragmentTest, InterfaceTest, Net, Protocol, Rule,
    Side, TableKind, Target, Term, ValueKind,
};
use crate::headers::{Direction, Headers, ICMP, ICMP6, Interface, InterfaceId, TCP};

/// What conditions look into besides the packet.
pub(crate) struct Environment<'a> {
    pub interfaces: &'a [Interface],
    /// The addresses of all interfaces, sorted.
    pub own: &'a [IpAddr],
    pub tables: &'a Tables,
}

/// The clauses of a rule, apart.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// Hold or not for all packets of a flow.
    pub constant: Box<[Test]>,
    /// Must be asked of each packet.
    pub per_packet: Box<[Test]>,
    /// Which value of a table the action reads.
    pub table_arg: Option<ValueKind>,
}

/// A clause: one condition, or several of which one must hold.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    One(Question),
    Not(Question),
    Any(Box<[(bool, Question)]>),
}

/// A condition with its names resolved.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Version(u8),
    Protocol(u8),
    Net(End, Net),
    Nets(End, Box<[Net]>),
    Own(End, Own),
    Table(Field, TableId, Option<u32>),
    Ports(End, Box<[(u16, u16)]>),
    Pass(Direction),
    /// One of these interfaces.
    Interface(Side, Box<[InterfaceId]>),
    AnyInterface(Side),
    InterfaceTable(Side, TableId, Option<u32>),
    Never,
    /// Asked without names: these need none.
    Plain(Box<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Any,
    V6,
}

impl Compiled {
    /// Resolves the names of a rule. Tables that it names first are made.
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
        for clause in rule.clauses() {
            if always_holds(&clause) {
                continue;
            }
            let is_constant = clause.iter().all(|term| is_constant(&term.condition));
            mixes_tables |= !is_constant && clause.iter().any(|term| names_table(&term.condition));
            let test = Test::new(clause, interfaces, tables);
            if is_constant {
                &mut constant
            } else {
                &mut per_packet
            }
            .push(test);
        }
        // Which table matched last then depends on the packet: everything is asked each time.
        if mixes_tables && table_arg.is_some() {
            constant.append(&mut per_packet);
            std::mem::swap(&mut constant, &mut per_packet);
        }
        Compiled {
            constant: constant.into(),
            per_packet: per_packet.into(),
            table_arg,
        }
    }

    /// Whether the constant clauses hold; `value` takes that of the last table that matched.
    pub fn holds_for_flow(
        &self,
        headers: &Headers,
        env: &Environment<'_>,
        value: &mut u32,
    ) -> bool {
        self.constant
            .iter()
            .all(|test| test.holds(headers, env, self.table_arg, value))
    }

    /// Whether the other clauses hold.
    pub fn holds_for_packet(
        &self,
        headers: &Headers,
        env: &Environment<'_>,
        value: &mut u32,
    ) -> bool {
        self.per_packet
            .iter()
            .all(|test| test.holds(headers, env, self.table_arg, value))
    }
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

/// Whether a condition is the same for all packets of a flow, as [`FlowKey`] tells flows apart.
const fn is_constant(condition: &Condition) -> bool {
    match condition {
        Condition::Protocol(_)
        | Condition::Source(_)
        | Condition::Destination(_)
        | Condition::SourcePort(_)
        | Condition::DestinationPort(_)
        | Condition::Pass(_)
        | Condition::Interface(..)
        | Condition::Layer2
        | Condition::Precedence(_)
        | Condition::Dscp(_)
        | Condition::Version(_)
        | Condition::FlowLabel(_)
        | Condition::Lookup(..) => true,
        // ECN bits are part of the TOS octet and change under way.
        Condition::Tos(_)
        | Condition::Length(_)
        | Condition::Id(_)
        | Condition::Ttl(_)
        | Condition::Fragment(_)
        | Condition::TcpFlags(_)
        | Condition::Setup
        | Condition::Established
        | Condition::IcmpTypes(_)
        | Condition::Icmp6Types(_) => false,
    }
}

/// The table that a condition names, and the kind of its keys.
pub(crate) fn table_of(condition: &Condition) -> Option<(&str, TableKind)> {
    match condition {
        Condition::Source(Address::Table(t)) | Condition::Destination(Address::Table(t)) => {
            Some((&t.name, TableKind::Addr))
        }
        Condition::Interface(_, InterfaceTest::Table(t)) => Some((&t.name, TableKind::Iface)),
        Condition::Lookup(field, name) => Some((
            name,
            match field {
                Field::SourceAddress | Field::DestinationAddress => TableKind::Addr,
                Field::SourcePort | Field::DestinationPort | Field::Dscp => TableKind::Number,
            },
        )),
        _ => None,
    }
}

fn names_table(condition: &Condition) -> bool {
    table_of(condition).is_some()
}

impl Test {
    fn new(clause: Clause, interfaces: &[Interface], tables: &mut Tables) -> Self {
        let mut questions: Vec<(bool, Question)> = clause
            .into_iter()
            .map(
                |Term {
                     is_negated,
                     condition,
                 }| { (is_negated, Question::new(condition, interfaces, tables)) },
            )
            .collect();
        match questions.len() {
            1 => match questions.remove(0) {
                (false, question) => Test::One(question),
                (true, question) => Test::Not(question),
            },
            _ => Test::Any(questions.into()),
        }
    }

    #[inline]
    fn holds(
        &self,
        headers: &Headers,
        env: &Environment<'_>,
        arg: Option<ValueKind>,
        value: &mut u32,
    ) -> bool {
        match self {
            Test::One(question) => question.holds(headers, env, arg, value),
            // A table that must not match gives no value.
            Test::Not(question) => !question.holds(headers, env, None, &mut 0),
            Test::Any(questions) => questions.iter().any(|(is_negated, question)| {
                if *is_negated {
                    !question.holds(headers, env, None, &mut 0)
                } else {
                    question.holds(headers, env, arg, value)
                }
            }),
        }
    }
}

impl Question {
    fn new(condition: Condition, interfaces: &[Interface], tables: &mut Tables) -> Self {
        let address = |end, address| match address {
            Address::Any => Question::Plain(Box::new(Condition::Protocol(Protocol::Any))),
            Address::Me => Question::Own(end, Own::Any),
            Address::Me6 => Question::Own(end, Own::V6),
            Address::Nets(mut nets) if nets.len() == 1 => Question::Net(end, nets.remove(0)),
            Address::Nets(nets) => Question::Nets(end, nets.into()),
            Address::Table(_) => unreachable!("tables are resolved before"),
        };
        if let Some((name, kind)) = table_of(&condition) {
            let id = tables.find_or_create(name, kind);
            return match condition {
                Condition::Source(Address::Table(t)) => {
                    Question::Table(Field::SourceAddress, id, t.value)
                }
                Condition::Destination(Address::Table(t)) => {
                    Question::Table(Field::DestinationAddress, id, t.value)
                }
                Condition::Interface(side, InterfaceTest::Table(t)) => {
                    Question::InterfaceTable(side, id, t.value)
                }
                Condition::Lookup(field, _) => Question::Table(field, id, None),
                _ => unreachable!("only these conditions name tables"),
            };
        }
        match condition {
            Condition::Protocol(Protocol::V4) => Question::Version(4),
            Condition::Protocol(Protocol::V6) => Question::Version(6),
            Condition::Protocol(Protocol::Number(n)) => Question::Protocol(n),
            Condition::Version(version) => Question::Version(version),
            Condition::Source(a) => address(End::Source, a),
            Condition::Destination(a) => address(End::Destination, a),
            Condition::SourcePort(ranges) => Question::Ports(End::Source, port_ranges(&ranges.0)),
            Condition::DestinationPort(ranges) => {
                Question::Ports(End::Destination, port_ranges(&ranges.0))
            }
            Condition::Pass(direction) => Question::Pass(direction),
            Condition::Interface(side, test) => interface(side, &test, interfaces),
            other => Question::Plain(Box::new(other)),
        }
    }

    fn holds(
        &self,
        headers: &Headers,
        env: &Environment<'_>,
        arg: Option<ValueKind>,
        value: &mut u32,
    ) -> bool {
        let address = |end: End| match end {
            End::Source => headers.src,
            End::Destination => headers.dst,
        };
        match self {
            Question::Version(4) => headers.src.is_ipv4(),
            Question::Version(_) => headers.src.is_ipv6(),
            Question::Protocol(n) => headers.proto == *n,
            Question::Net(end, net) => net.holds(address(*end)),
            Question::Nets(end, nets) => nets.iter().any(|net| net.holds(address(*end))),
            Question::Own(end, own) => {
                let address = address(*end);
                (*own == Own::Any || address.is_ipv6()) && env.own.binary_search(&address).is_ok()
            }
            Question::Table(field, table, wanted) => {
                let table = env.tables.table(*table);
                let found = match field {
                    Field::SourceAddress => table.find_address(headers.src),
                    Field::DestinationAddress => table.find_address(headers.dst),
                    Field::SourcePort => port_entry(table, headers, headers.src_port),
                    Field::DestinationPort => port_entry(table, headers, headers.dst_port),
                    Field::Dscp => table.find_number(u32::from(headers.dscp())),
                };
                matches_value(table, found, *wanted, arg, value)
            }
            Question::Ports(end, ranges) => {
                let port = match end {
                    End::Source => headers.src_port,
                    End::Destination => headers.dst_port,
                };
                headers.has_ports()
                    && ranges
                        .iter()
                        .any(|(low, high)| (*low..=*high).contains(&port))
            }
            Question::Pass(direction) => headers.direction == *direction,
            Question::Interface(side, ids) => {
                side_of(headers, *side).is_some_and(|id| ids.contains(&id))
            }
            Question::AnyInterface(side) => side_of(headers, *side).is_some(),
            Question::InterfaceTable(side, table, wanted) => {
                let table = env.tables.table(*table);
                let name =
                    side_of(headers, *side).and_then(|id| env.interfaces.get(usize::from(id.0)));
                let found = name.and_then(|interface| table.find_name(&interface.name));
                matches_value(table, found, *wanted, arg, value)
            }
            Question::Never => false,
            Question::Plain(condition) => plain_holds(condition, headers),
        }
    }
}

/// Whether an entry was found, with the value that was asked for. Gives the action its value.
fn matches_value(
    table: &super::tables::Table,
    found: Option<(&super::tables::Key, &[u32])>,
    wanted: Option<u32>,
    arg: Option<ValueKind>,
    value: &mut u32,
) -> bool {
    let Some((_, values)) = found else {
        return false;
    };
    if wanted.is_some_and(|wanted| values.first().copied().unwrap_or(0) != wanted) {
        return false;
    }
    if let Some(kind) = arg {
        *value = table.value(values, kind);
    }
    true
}

fn port_entry<'t>(
    table: &'t super::tables::Table,
    headers: &Headers,
    port: u16,
) -> Option<(&'t super::tables::Key, &'t [u32])> {
    if headers.has_ports() {
        table.find_number(u32::from(port))
    } else {
        None
    }
}

/// Ranges of ports; those of the grammar end at 65535.
fn port_ranges(ranges: &[(u32, u32)]) -> Box<[(u16, u16)]> {
    ranges
        .iter()
        .map(|(low, high)| (*low as u16, *high as u16))
        .collect()
}

/// The interface on a side; `xmit` is only known in the outgoing pass.
fn side_of(headers: &Headers, side: Side) -> Option<InterfaceId> {
    let is_out = headers.direction == Direction::Out;
    match side {
        Side::Recv => headers.recv,
        Side::Xmit if is_out => headers.xmit,
        Side::Xmit => None,
        Side::Via if is_out => headers.xmit,
        Side::Via => headers.recv,
    }
}

fn interface(side: Side, test: &InterfaceTest, interfaces: &[Interface]) -> Question {
    let is_meant = |interface: &Interface| match test {
        InterfaceTest::Name(name) => interface.name == *name,
        InterfaceTest::Prefix(prefix) => interface.name.starts_with(prefix.as_str()),
        InterfaceTest::Address(address) => interface.addresses.contains(address),
        InterfaceTest::Any | InterfaceTest::Table(_) => false,
    };
    if *test == InterfaceTest::Any {
        return Question::AnyInterface(side);
    }
    let meant = interfaces.iter().enumerate().filter(|(_, i)| is_meant(i));
    let ids: Box<[InterfaceId]> = meant.map(|(n, _)| InterfaceId(n as u16)).collect();
    if ids.is_empty() {
        Question::Never
    } else {
        Question::Interface(side, ids)
    }
}

fn plain_holds(condition: &Condition, headers: &Headers) -> bool {
    let is_first = headers.fragment.offset == 0;
    let is_tcp = headers.proto == TCP && is_first;
    let bits = |value: u8, set: u8, clear: u8| value & set == set && value & clear == 0;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;
    match condition {
        Condition::Protocol(Protocol::Any) => true,
        Condition::Layer2 => headers.is_layer2,
        Condition::Tos(test) => {
            headers.src.is_ipv4() && tos_holds(headers.tos, test.set, test.clear)
        }
        Condition::Precedence(level) => headers.tos >> 5 == *level,
        Condition::Dscp(wanted) => wanted >> headers.dscp() & 1 == 1,
        Condition::Length(ranges) => ranges.holds(headers.ip_len),
        Condition::Id(ranges) => headers.src.is_ipv4() && ranges.holds(u32::from(headers.ip_id)),
        Condition::Ttl(ranges) => ranges.holds(u32::from(headers.ttl)),
        Condition::Fragment(FragmentTest { set: 0, clear: 0 }) => !is_first,
        Condition::Fragment(FragmentTest { set, clear }) => {
            let fragment = headers.fragment;
            let is = |holds: bool, bit: u8| if holds { bit } else { 0 };
            let value = is(fragment.has_more, 1) | is(fragment.dont, 2) | is(!is_first, 4);
            bits(value, *set, *clear)
        }
        Condition::TcpFlags(test) => is_tcp && bits(headers.tcp_flags, test.set, test.clear),
        Condition::Setup => is_tcp && bits(headers.tcp_flags, SYN, ACK),
        Condition::Established => is_tcp && headers.tcp_flags & (ACK | RST) != 0,
        Condition::IcmpTypes(wanted) => {
            headers.proto == ICMP
                && headers
                    .icmp_type
                    .is_some_and(|t| t < 64 && wanted >> t & 1 == 1)
        }
        Condition::Icmp6Types(wanted) => {
            headers.proto == ICMP6
                && headers
                    .icmp_type
                    .is_some_and(|t| wanted.binary_search(&t).is_ok())
        }
        Condition::FlowLabel(ranges) => headers.src.is_ipv6() && ranges.holds(headers.flow_label),
        _ => unreachable!("conditions with names are resolved before"),
    }
}

/// `iptos`: the bits of the octet as RFC 1349 names them.
fn tos_holds(tos: u8, set: u8, clear: u8) -> bool {
    tos & set == set && tos & clear == 0
}

/// Everything that a flow-constant condition can look at, packed for comparing and hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey(pub [u64; 6]);

impl FlowKey {
    pub fn of(headers: &Headers) -> Self {
        let words = |address: IpAddr| match address {
            IpAddr::V4(v4) => [0, u64::from(v4.to_bits())],
            IpAddr::V6(v6) => [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64],
        };
        let [s1, s0] = words(headers.src);
        let [d1, d0] = words(headers.dst);
        let side = |id: Option<InterfaceId>| id.map_or(0, |id| u64::from(id.0) + 1);
        let has_ports = headers.has_ports();
        let ports = if has_ports {
            u64::from(headers.src_port) << 16 | u64::from(headers.dst_port)
        } else {
            0
        };
        let bit = |holds: bool| u64::from(holds);
        FlowKey([
            s1,
            s0,
            d1,
            d0,
            ports << 32 | u64::from(headers.flow_label),
            side(headers.recv) << 40
                | side(headers.xmit) << 23
                | u64::from(headers.proto) << 15
                | u64::from(headers.dscp()) << 9
                | bit(has_ports) << 3
                | bit(headers.src.is_ipv6()) << 2
                | bit(headers.is_layer2) << 1
                | bit(headers.direction == Direction::Out),
        ])
    }
}
