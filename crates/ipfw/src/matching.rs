//! The arguments of conditions with their names resolved, against which packets are tested, and the
//! meanings of these names.

pub(crate) mod flow_fields;

use std::net::IpAddr;

use crate::headers::{Interface, InterfaceId};
use crate::tables::{Key, Table, TableId, TableKind, Tables, ValueKind};
use crate::words::address::{Address, Net, TableRef};
use crate::words::argument::{Field, InterfaceTest, Lookup, Ports};
use flow_fields::FlowFields;

/// The state that conditions read besides the packet.
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
    pub arg: Option<ValueKind>,
    /// The value of the last table that matched.
    pub value: u32,
}

/// The meanings of names in arguments.
pub(crate) struct Names<'a> {
    pub interfaces: &'a [Interface],
    /// Finds or creates a table. An argument can get the id of a table only from this call, so the
    /// calls list all tables that a rule names.
    pub table: &'a mut dyn FnMut(&str, TableKind) -> TableId,
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
        self.ranges()
            .any(|(low, high)| (low..=high).contains(&port))
    }

    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        self.0.iter().copied()
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
