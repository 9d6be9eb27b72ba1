//! The arguments of options: how they are read and written back.

use std::fmt::{self, Display as _};
use std::net::IpAddr;

use super::address::{self, Address, Ranges, TableRef, write_list};
use super::names;
use super::parser::{Parse, Parser, invalid, unrecognised};
use super::quantity::whole_integer;
use super::token::At;
use crate::headers::Fragment;

/// The protocol of a rule, or the argument of `proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `ip` or `all`.
    Any,
    /// `ip4`.
    V4,
    /// `ip6`.
    V6,
    /// A protocol number.
    Number(u8),
}

/// The argument of `via`, `recv` and `xmit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceTest {
    /// Any interface.
    Any,
    /// The interface of this name.
    Name(String),
    /// Interfaces whose name starts with this: `em*`.
    Prefix(String),
    /// The interface that has this address.
    Address(IpAddr),
    /// An interface whose name a table contains.
    Table(TableRef),
}

/// No argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nothing;

/// Named bits that must be set, and bits that must be clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    names: &'static [(&'static str, u8)],
    /// Bits that must be set.
    pub set: u8,
    /// Bits that must be clear.
    pub clear: u8,
}

impl Bits {
    /// Whether `value` has these bits set and clear.
    pub const fn hold(&self, value: u8) -> bool {
        value & self.set == self.set && value & self.clear == 0
    }
}

/// The argument of `frag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentTest {
    /// The flags of `FRAGMENT_FLAGS`. `None` matches every fragment except the first.
    pub flags: Option<Bits>,
}

impl FragmentTest {
    /// Whether a packet with these fields matches.
    pub fn holds(&self, fragment: Fragment) -> bool {
        let is_first = fragment.offset == 0;
        let Some(flags) = self.flags else {
            return !is_first;
        };
        let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
        flags.hold(bit(fragment.has_more, 1) | bit(fragment.dont, 2) | bit(!is_first, 4))
    }
}

/// `mf`: more fragments follow. `df`: don't fragment. `offset`: not the first fragment.
const FRAGMENT_FLAGS: &[(&str, u8)] = &[("mf", 1), ("df", 2), ("offset", 4)];

/// DiffServ codepoints, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codepoints(pub u64);

/// Types of ICMP or ICMPv6, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpTypes(Vec<u8>);

impl IcmpTypes {
    /// Whether the list contains the type of a packet.
    pub fn hold(&self, icmp_type: Option<u8>) -> bool {
        icmp_type.is_some_and(|t| self.0.binary_search(&t).is_ok())
    }
}

/// Ports: ranges up to 65535.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub Ranges);

/// Types of Ethernet frames: ranges up to 65535.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtherTypes(Ranges);

impl EtherTypes {
    /// Whether the list contains the type of a frame.
    pub fn hold(&self, ethertype: u16) -> bool {
        self.0.holds(u32::from(ethertype))
    }

    /// Writes the names of the types that have one.
    pub(crate) fn write_names(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, names::ethertype_name)
    }

    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: fn(u16) -> Option<&'static str>,
    ) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, number: u32| match u16::try_from(number)
            .ok()
            .and_then(name)
        {
            Some(name) => f.write_str(name),
            None => write!(f, "{number:#06x}"),
        };
        write_list(f, &self.0.0, |f, (low, high)| {
            one(f, *low)?;
            if low != high {
                f.write_str("-")?;
                one(f, *high)?;
            }
            Ok(())
        })
    }
}

/// In hexadecimal, as ipfw prints them.
impl fmt::Display for EtherTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |_| None)
    }
}

/// The argument of `lookup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The field of the packet.
    pub field: Field,
    /// The name of the table.
    pub table: String,
}

/// A field that `lookup` searches in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source address.
    SourceAddress,
    /// Destination address.
    DestinationAddress,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Codepoint.
    Dscp,
}

const FIELDS: &[(&str, Field)] = &[
    ("src-ip", Field::SourceAddress),
    ("dst-ip", Field::DestinationAddress),
    ("src-port", Field::SourcePort),
    ("dst-port", Field::DestinationPort),
    ("dscp", Field::Dscp),
];

fn argument<'t>(p: &mut Parser<'t>, word: At<&str>) -> Parse<At<&'t str>> {
    p.need(format!("{} requires argument", word.value))
}

/// Reads nothing, for options without an argument.
pub(crate) const fn no_argument(_: &mut Parser<'_>, _: At<&str>) -> Parse<Nothing> {
    Ok(Nothing)
}

pub(crate) fn address(p: &mut Parser<'_>, word: At<&str>) -> Parse<Address> {
    address::address(argument(p, word)?)
}

pub(crate) fn ports(p: &mut Parser<'_>, word: At<&str>) -> Parse<Ports> {
    address::ports(argument(p, word)?).map(Ports)
}

pub(crate) fn interface(p: &mut Parser<'_>, _: At<&str>) -> Parse<InterfaceTest> {
    let word = p.need("recv, xmit, via require interface name or address")?;
    let text = word.value;
    if text == "any" {
        return Ok(InterfaceTest::Any);
    }
    if text.starts_with("table(") {
        return Ok(InterfaceTest::Table(address::table_ref(word)?));
    }
    if let Ok(address) = text.parse() {
        return Ok(InterfaceTest::Address(address));
    }
    let is_name = |t: &str| {
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '@');
        !t.is_empty() && t.chars().all(is_part)
    };
    match text.strip_suffix('*') {
        Some(prefix) if is_name(prefix) => Ok(InterfaceTest::Prefix(prefix.to_string())),
        None if is_name(text) => Ok(InterfaceTest::Name(text.to_string())),
        _ => Err(invalid(
            word,
            "an interface",
            "a name, name*, an address, table(NAME) or any",
        )),
    }
}

pub(crate) fn protocol_argument(p: &mut Parser<'_>, word: At<&str>) -> Parse<Protocol> {
    protocol(argument(p, word)?)
}

/// Reads a protocol.
pub(crate) fn protocol(word: At<&str>) -> Parse<Protocol> {
    match find_protocol(word.value) {
        Some(protocol) => Ok(protocol),
        None => Err(invalid(word, "a protocol", "a name or a number up to 255")
            .near(word.value, names::protocol_names())),
    }
}

/// Returns the protocol called `word`, if there is one.
pub(crate) fn find_protocol(word: &str) -> Option<Protocol> {
    Some(match word {
        "ip" | "all" => Protocol::Any,
        "ip4" | "ipv4" => Protocol::V4,
        "ip6" | "ipv6" => Protocol::V6,
        _ => match whole_integer(word) {
            Some(0) => Protocol::Any,
            Some(n) => Protocol::Number(u8::try_from(n).ok()?),
            None => Protocol::Number(names::protocol(word)?),
        },
    })
}

/// Reads a list of bit names, each with an optional `!`.
pub(crate) fn bits(
    p: &mut Parser<'_>,
    word: At<&str>,
    what: &'static str,
    names: &'static [(&'static str, u8)],
) -> Parse<Bits> {
    bit_list(argument(p, word)?, what, names)
}

fn bit_list(
    word: At<&str>,
    what: &'static str,
    names: &'static [(&'static str, u8)],
) -> Parse<Bits> {
    let mut bits = Bits {
        names,
        set: 0,
        clear: 0,
    };
    for item in word.value.split(',') {
        let name = item.strip_prefix('!').unwrap_or(item);
        let Some((_, bit)) = names.iter().find(|(n, _)| *n == name) else {
            return Err(invalid(
                word,
                what,
                "names separated by commas, ! for a bit that must be clear",
            )
            .near(name, names.iter().map(|(n, _)| *n)));
        };
        if item.len() > name.len() {
            bits.clear |= bit;
        } else {
            bits.set |= bit;
        }
    }
    Ok(bits)
}

/// Reads the optional list behind `frag`.
pub(crate) fn fragment(p: &mut Parser<'_>, _: At<&str>) -> Parse<FragmentTest> {
    let is_list = |text: &str| {
        text.split(',').all(|item| {
            let name = item.strip_prefix('!').unwrap_or(item);
            FRAGMENT_FLAGS.iter().any(|(n, _)| *n == name)
        })
    };
    let flags = match p.peek() {
        Some(text) if is_list(text) => {
            let word = p.take().expect("the word was just seen");
            Some(bit_list(word, "a list of fragment flags", FRAGMENT_FLAGS)?)
        }
        _ => None,
    };
    Ok(FragmentTest { flags })
}

pub(crate) fn precedence(p: &mut Parser<'_>, word: At<&str>) -> Parse<u8> {
    let value = argument(p, word)?;
    let level = whole_integer(value.value).filter(|n| *n <= 7);
    level
        .map(|n| n as u8)
        .ok_or_else(|| invalid(value, "a precedence", "0 to 7"))
}

pub(crate) fn version(p: &mut Parser<'_>, word: At<&str>) -> Parse<u8> {
    let value = argument(p, word)?;
    match value.value {
        "4" => Ok(4),
        "6" => Ok(6),
        _ => Err(invalid(value, "an IP version", "4 or 6")),
    }
}

pub(crate) fn codepoints(p: &mut Parser<'_>, word: At<&str>) -> Parse<Codepoints> {
    let word = argument(p, word)?;
    let mut bits = 0;
    for item in word.value.split(',') {
        let number = whole_integer(item).filter(|n| *n < 64).map(|n| n as u8);
        let Some(dscp) = number.or_else(|| names::codepoint(item)) else {
            return Err(invalid(
                word,
                "a list of codepoints",
                "0 to 63, or names such as ef, cs1, af11",
            )
            .near(item, names::codepoint_names()));
        };
        bits |= 1 << dscp;
    }
    Ok(Codepoints(bits))
}

/// Reads a list of numbers and ranges up to `max`.
pub(crate) fn numbers(p: &mut Parser<'_>, word: At<&str>, max: u32) -> Parse<Ranges> {
    address::list(
        argument(p, word)?,
        "a list of numbers",
        "numbers and ranges separated by commas, in range",
        max,
        |_| None,
    )
}

pub(crate) fn ether_types(p: &mut Parser<'_>, word: At<&str>) -> Parse<EtherTypes> {
    address::list(
        argument(p, word)?,
        "a list of types of Ethernet frames",
        "numbers, ranges and names such as arp, ipv4, ipv6, pppoe_disc, separated by commas",
        65535,
        |name| names::ethertype(name).map(u32::from),
    )
    .map(EtherTypes)
}

pub(crate) fn icmp_types(p: &mut Parser<'_>, word: At<&str>) -> Parse<IcmpTypes> {
    types(argument(p, word)?, "a list of ICMP types", 63)
}

pub(crate) fn icmp6_types(p: &mut Parser<'_>, word: At<&str>) -> Parse<IcmpTypes> {
    types(argument(p, word)?, "a list of ICMPv6 types", 255)
}

fn types(word: At<&str>, what: &'static str, max: u8) -> Parse<IcmpTypes> {
    let item = |item: &str| {
        let number = whole_integer(item).and_then(|n| u8::try_from(n).ok());
        number
            .filter(|n| *n <= max)
            .ok_or_else(|| invalid(word, what, "numbers separated by commas, in range"))
    };
    let mut types: Vec<u8> = word.value.split(',').map(item).collect::<Parse<_>>()?;
    types.sort_unstable();
    types.dedup();
    Ok(IcmpTypes(types))
}

pub(crate) fn lookup(p: &mut Parser<'_>, word: At<&str>) -> Parse<Lookup> {
    let name = argument(p, word)?;
    let Some((_, field)) = FIELDS.iter().find(|(n, _)| *n == name.value) else {
        let names = FIELDS.iter().map(|(name, _)| *name);
        return Err(unrecognised(name).near(name.value, names));
    };
    Ok(Lookup {
        field: *field,
        table: address::table_name(argument(p, word)?)?,
    })
}

impl Ports {
    /// Writes single ports by the name of their service.
    pub(crate) fn write_names(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0.0, |f, (low, high)| {
            let name = u16::try_from(*low).ok().and_then(names::service_name);
            match name {
                Some(name) if low == high => f.write_str(name),
                _ if low == high => low.fmt(f),
                _ => write!(f, "{low}-{high}"),
            }
        })
    }
}

impl fmt::Display for Nothing {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.names.iter().flat_map(|(name, bit)| {
            let set = (self.set & bit != 0).then_some(("", *name, *bit));
            let clear = (self.clear & bit != 0).then_some(("!", *name, *bit));
            set.into_iter().chain(clear)
        });
        // `mincost` and `ecntransport` name the same bit; only the first one is written.
        let mut seen = 0u16;
        let items: Vec<_> = items
            .filter(|(sign, _, bit)| {
                let key = u16::from(*bit) << if sign.is_empty() { 0 } else { 8 };
                let is_new = seen & key == 0;
                seen |= key;
                is_new
            })
            .collect();
        write_list(f, items, |f, (sign, name, _)| write!(f, "{sign}{name}"))
    }
}

impl fmt::Display for FragmentTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flags.map_or(Ok(()), |flags| flags.fmt(f))
    }
}

impl fmt::Display for Codepoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = (0..64).filter(|n| self.0 >> n & 1 == 1);
        write_list(f, set, |f, dscp| match names::codepoint_name(dscp) {
            Some(name) => f.write_str(name),
            None => dscp.fmt(f),
        })
    }
}

impl fmt::Display for IcmpTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, t| t.fmt(f))
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FIELDS.iter().find(|(_, field)| *field == self.field);
        write!(f, "{} {}", name.map_or("", |(name, _)| name), self.table)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protocol::Any => f.write_str("ip"),
            Protocol::V4 => f.write_str("ip4"),
            Protocol::V6 => f.write_str("ip6"),
            Protocol::Number(n) => match names::protocol_name(*n) {
                Some(name) => f.write_str(name),
                None => n.fmt(f),
            },
        }
    }
}

impl fmt::Display for InterfaceTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceTest::Any => f.write_str("any"),
            InterfaceTest::Name(name) => f.write_str(name),
            InterfaceTest::Prefix(prefix) => write!(f, "{prefix}*"),
            InterfaceTest::Address(address) => address.fmt(f),
            InterfaceTest::Table(table) => table.fmt(f),
        }
    }
}
