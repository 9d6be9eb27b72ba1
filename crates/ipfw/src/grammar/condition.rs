//! What a rule asks about a packet: one enum, read and written back.

use std::fmt;
use std::net::IpAddr;

use super::address::{self, Address, Net, Ranges, TableRef, write_list};
use super::error::{CommandError, ErrorKind};
use super::names::{self, TCP_FLAGS, TOS_BITS};
use super::parser::{Parse, Parser, invalid, unrecognised};
use super::quantity::whole_integer;
use super::token::At;
use crate::headers::Direction;

/// One question about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The protocol.
    Protocol(Protocol),
    /// The source address.
    Source(Address),
    /// The destination address.
    Destination(Address),
    /// The source port.
    SourcePort(Ranges),
    /// The destination port.
    DestinationPort(Ranges),
    /// The pass through the rules.
    Pass(Direction),
    /// An interface.
    Interface(Side, InterfaceTest),
    /// Seen below IP.
    Layer2,
    /// Bits of the TOS octet that must be set, and that must not.
    Tos(Bits),
    /// The three precedence bits.
    Precedence(u8),
    /// Codepoints, one bit each.
    Dscp(u64),
    /// Total length.
    Length(Ranges),
    /// Identification.
    Id(Ranges),
    /// Time to live.
    Ttl(Ranges),
    /// IP version.
    Version(u8),
    /// Fragments.
    Fragment(FragmentTest),
    /// Flags of TCP that must be set, and that must not.
    TcpFlags(Bits),
    /// `syn` without `ack`.
    Setup,
    /// `ack` or `rst`.
    Established,
    /// Types of ICMP, one bit each.
    IcmpTypes(u64),
    /// Types of ICMPv6.
    Icmp6Types(Vec<u8>),
    /// Flow labels.
    FlowLabel(Ranges),
    /// A field looked up in a table.
    Lookup(Field, String),
}

/// What stands in the place of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `ip` or `all`.
    Any,
    /// `ip4`.
    V4,
    /// `ip6`.
    V6,
    /// A protocol.
    Number(u8),
}

/// Which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one at hand: where it came in, or where it leaves.
    Via,
    /// Where it came in.
    Recv,
    /// Where it leaves.
    Xmit,
}

impl Side {
    const fn word(self) -> &'static str {
        match self {
            Side::Via => "via",
            Side::Recv => "recv",
            Side::Xmit => "xmit",
        }
    }
}

/// How an interface is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceTest {
    /// Any, but one.
    Any,
    /// By its name.
    Name(String),
    /// By the beginning of its name: `em*`.
    Prefix(String),
    /// By an address of it.
    Address(IpAddr),
    /// By a table of names.
    Table(TableRef),
}

/// Bits that must be set and bits that must not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Must be set.
    pub set: u8,
    /// Must not be set.
    pub clear: u8,
}

/// What `frag` asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentTest {
    /// Bit by bit as in `FRAGMENT_WORDS`; none: a fragment that is not the first.
    pub set: u8,
    /// Must not hold.
    pub clear: u8,
}

/// `mf` more fragments, `df` don't fragment, `offset` not the first, and any of them.
pub(crate) const FRAGMENT_WORDS: &[(&str, u8)] = &[("mf", 1), ("df", 2), ("offset", 4)];

/// A field that `lookup` takes to a table.
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

/// A question that may be negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// `not`.
    pub is_negated: bool,
    /// The question.
    pub condition: Condition,
}

/// Questions of which one must hold: `{ a or b }`.
pub type Clause = Vec<Term>;

/// The option words that open a condition.
pub(super) const WORDS: &[&str] = &[
    "in",
    "out",
    "via",
    "recv",
    "xmit",
    "src-ip",
    "dst-ip",
    "src-ip6",
    "dst-ip6",
    "src-port",
    "dst-port",
    "proto",
    "layer2",
    "bridged",
    "iptos",
    "ipprecedence",
    "dscp",
    "iplen",
    "ipid",
    "ipttl",
    "ipversion",
    "ipver",
    "frag",
    "tcpflags",
    "tcpflgs",
    "setup",
    "established",
    "estab",
    "icmptypes",
    "icmptype",
    "icmp6types",
    "icmp6type",
    "flow-id",
    "lookup",
];

/// Options that are not about classifying and shaping.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("uid", SOCKETS),
    ("gid", SOCKETS),
    ("jail", SOCKETS),
    ("sockarg", SOCKETS),
    ("fib", "there is one routing table: the host's"),
    ("verrevpath", "routes are the host's"),
    ("versrcreach", "routes are the host's"),
    ("antispoof", "routes are the host's"),
    ("mac", "rules see IP headers only"),
    ("MAC", "rules see IP headers only"),
    ("mac-type", "rules see IP headers only"),
    ("src-mac", "rules see IP headers only"),
    ("dst-mac", "rules see IP headers only"),
    ("diverted", DIVERT),
    ("diverted-loopback", DIVERT),
    ("diverted-output", DIVERT),
    ("ipsec", "IPsec history is not known here"),
    ("ipoptions", OPTIONS_OF_HEADERS),
    ("ipopts", OPTIONS_OF_HEADERS),
    ("tcpoptions", OPTIONS_OF_HEADERS),
    ("tcpopts", OPTIONS_OF_HEADERS),
    ("ext6hdr", OPTIONS_OF_HEADERS),
    ("tcpmss", OPTIONS_OF_HEADERS),
    ("tcpack", "sequence numbers are not looked at"),
    ("tcpseq", "sequence numbers are not looked at"),
    ("tcpwin", "sequence numbers are not looked at"),
    ("tcpdatalen", "use iplen"),
    ("tagged", "packets carry no tags; use skipto or tables"),
    ("mark", "packets carry no marks; use skipto or tables"),
    (
        "flow",
        "flow tables are not kept; use address tables or a mask",
    ),
    ("tablearg", "an option takes no table value; an action does"),
    ("skip-action", "use skipto"),
    ("defer-action", "use skipto"),
    ("defer-immediate-action", "use skipto"),
    ("record-state", "use keep-state"),
    ("set-limit", "use limit"),
];

const SOCKETS: &str = "a router has no sockets of its own to look into";
pub(super) const DIVERT: &str = "packets are classified and shaped, not handed to other programs";
const OPTIONS_OF_HEADERS: &str = "options inside headers are not looked at";

/// Reads the condition that `word` opens.
pub(super) fn condition(p: &mut Parser<'_>, word: At<&str>) -> Parse<Condition> {
    Ok(match word.value {
        "in" => Condition::Pass(Direction::In),
        "out" => Condition::Pass(Direction::Out),
        "via" => Condition::Interface(Side::Via, interface(p)?),
        "recv" => Condition::Interface(Side::Recv, interface(p)?),
        "xmit" => Condition::Interface(Side::Xmit, interface(p)?),
        "src-ip" | "src-ip6" => Condition::Source(address::address(argument(p, word)?)?),
        "dst-ip" | "dst-ip6" => Condition::Destination(address::address(argument(p, word)?)?),
        "src-port" => Condition::SourcePort(address::ports(argument(p, word)?)?),
        "dst-port" => Condition::DestinationPort(address::ports(argument(p, word)?)?),
        "proto" => Condition::Protocol(protocol(argument(p, word)?)?),
        "layer2" | "bridged" => Condition::Layer2,
        "iptos" => Condition::Tos(bits(argument(p, word)?, "an IP TOS list", TOS_BITS)?),
        "ipprecedence" => {
            let value = argument(p, word)?;
            let level = whole_integer(value.value).filter(|n| *n <= 7);
            Condition::Precedence(
                level.ok_or_else(|| invalid(value, "a precedence", "0 to 7"))? as u8,
            )
        }
        "dscp" => Condition::Dscp(codepoints(argument(p, word)?)?),
        "iplen" => Condition::Length(numbers(argument(p, word)?, 65535)?),
        "ipid" => Condition::Id(numbers(argument(p, word)?, 65535)?),
        "ipttl" => Condition::Ttl(numbers(argument(p, word)?, 255)?),
        "ipversion" | "ipver" => {
            let value = argument(p, word)?;
            match value.value {
                "4" => Condition::Version(4),
                "6" => Condition::Version(6),
                _ => return Err(invalid(value, "an IP version", "4 or 6")),
            }
        }
        "frag" => Condition::Fragment(fragment(p)?),
        "tcpflags" | "tcpflgs" => {
            Condition::TcpFlags(bits(argument(p, word)?, "a list of TCP flags", TCP_FLAGS)?)
        }
        "setup" => Condition::Setup,
        "established" | "estab" => Condition::Established,
        "icmptypes" | "icmptype" => {
            let types = list(argument(p, word)?, "a list of ICMP types", 63)?;
            Condition::IcmpTypes(types.iter().fold(0, |bits, t| bits | 1 << t))
        }
        "icmp6types" | "icmp6type" => {
            let mut types = list(argument(p, word)?, "a list of ICMPv6 types", 255)?;
            types.sort_unstable();
            types.dedup();
            Condition::Icmp6Types(types.into_iter().map(|t| t as u8).collect())
        }
        "flow-id" => Condition::FlowLabel(numbers(argument(p, word)?, 0xf_ffff)?),
        "lookup" => {
            let field = argument(p, word)?;
            let Some((_, found)) = FIELDS.iter().find(|(name, _)| *name == field.value) else {
                let names = FIELDS.iter().map(|(name, _)| *name);
                return Err(unrecognised(field).near(field.value, names));
            };
            Condition::Lookup(*found, address::table_name(argument(p, word)?)?)
        }
        _ => return Err(unknown(word)),
    })
}

/// The error for a word that opens no option.
pub(super) fn unknown(word: At<&str>) -> CommandError {
    if let Some((name, purpose)) = REFUSED.iter().find(|(name, _)| *name == word.value) {
        let kind = ErrorKind::OutsidePurpose {
            word: (*name).to_string(),
            purpose,
        };
        return CommandError::new(kind, word.at);
    }
    let words = WORDS
        .iter()
        .copied()
        .chain(["keep-state", "limit", "not", "or", "from"]);
    unrecognised(word).near(word.value, words)
}

fn argument<'t>(p: &mut Parser<'t>, word: At<&str>) -> Parse<At<&'t str>> {
    p.need(format!("{} requires argument", word.value))
}

fn interface(p: &mut Parser<'_>) -> Parse<InterfaceTest> {
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

/// Reads what stands in the place of the protocol, or behind `proto`.
pub(super) fn protocol(word: At<&str>) -> Parse<Protocol> {
    match find_protocol(word.value) {
        Some(protocol) => Ok(protocol),
        None => Err(invalid(word, "a protocol", "a name or a number up to 255")
            .near(word.value, names::protocol_names())),
    }
}

/// The protocol called `word`, if it is one.
pub(super) fn find_protocol(word: &str) -> Option<Protocol> {
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

/// A list of bit names, each with an optional `!`.
fn bits(word: At<&str>, what: &'static str, table: &[(&str, u8)]) -> Parse<Bits> {
    let mut bits = Bits::default();
    for item in word.value.split(',') {
        let name = item.strip_prefix('!').unwrap_or(item);
        let Some((_, bit)) = table.iter().find(|(n, _)| *n == name) else {
            return Err(
                invalid(word, what, "names with commas, ! for a bit that is not set")
                    .near(name, table.iter().map(|(n, _)| *n)),
            );
        };
        if item.len() > name.len() {
            bits.clear |= bit;
        } else {
            bits.set |= bit;
        }
    }
    Ok(bits)
}

/// `frag` with its optional list.
fn fragment(p: &mut Parser<'_>) -> Parse<FragmentTest> {
    let is_list = |text: &str| {
        text.split(',').all(|item| {
            let name = item.strip_prefix('!').unwrap_or(item);
            FRAGMENT_WORDS.iter().any(|(n, _)| *n == name)
        })
    };
    match p.peek() {
        Some(text) if is_list(text) => {
            let word = p.take().expect("the word was just seen");
            let Bits { set, clear } = bits(word, "a list of fragment flags", FRAGMENT_WORDS)?;
            Ok(FragmentTest { set, clear })
        }
        _ => Ok(FragmentTest::default()),
    }
}

fn codepoints(word: At<&str>) -> Parse<u64> {
    let mut bits = 0;
    for item in word.value.split(',') {
        let number = whole_integer(item).filter(|n| *n < 64).map(|n| n as u8);
        let Some(dscp) = number.or_else(|| names::codepoint(item)) else {
            return Err(invalid(
                word,
                "a list of codepoints",
                "0 to 63, or names as ef, cs1, af11",
            )
            .near(item, names::codepoint_names()));
        };
        bits |= 1 << dscp;
    }
    Ok(bits)
}

fn numbers(word: At<&str>, max: u32) -> Parse<Ranges> {
    address::list(
        word,
        "a list of numbers",
        "numbers and ranges with commas, in range",
        max,
        |_| None,
    )
}

/// Single numbers with commas.
fn list(word: At<&str>, what: &'static str, max: u32) -> Parse<Vec<u32>> {
    let item = |item: &str| {
        let number = whole_integer(item).and_then(|n| u32::try_from(n).ok());
        number
            .filter(|n| *n <= max)
            .ok_or_else(|| invalid(word, what, "numbers with commas, in range"))
    };
    word.value.split(',').map(item).collect()
}

struct ShowBits<'a>(Bits, &'a [(&'static str, u8)]);

impl fmt::Display for ShowBits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShowBits(bits, table) = self;
        let items = table.iter().flat_map(|(name, bit)| {
            let set = (bits.set & bit != 0).then_some(("", *name));
            let clear = (bits.clear & bit != 0).then_some(("!", *name));
            set.into_iter().chain(clear)
        });
        // `mincost` and `ecntransport` name the same bit: the first of them is written.
        let mut seen = 0u16;
        let items: Vec<_> = items
            .filter(|(sign, name)| {
                let bit = table
                    .iter()
                    .find(|(n, _)| n == name)
                    .map_or(0, |(_, b)| u16::from(*b));
                let key = bit << if sign.is_empty() { 0 } else { 8 };
                let is_new = seen & key == 0;
                seen |= key;
                is_new
            })
            .collect();
        write_list(f, items, |f, (sign, name)| write!(f, "{sign}{name}"))
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

/// What follows `src-ip` and `dst-ip` before addresses of IPv6.
fn family(address: &Address) -> &'static str {
    match address {
        Address::Nets(nets) if nets.iter().all(|net| matches!(net, Net::V6 { .. })) => "6",
        Address::Me6 => "6",
        _ => "",
    }
}

fn set_bits(bits: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |n| bits >> n & 1 == 1)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Protocol(protocol) => write!(f, "proto {protocol}"),
            Condition::Source(address) => write!(f, "src-ip{} {address}", family(address)),
            Condition::Destination(address) => write!(f, "dst-ip{} {address}", family(address)),
            Condition::SourcePort(ports) => write!(f, "src-port {ports}"),
            Condition::DestinationPort(ports) => write!(f, "dst-port {ports}"),
            Condition::Pass(Direction::In) => f.write_str("in"),
            Condition::Pass(Direction::Out) => f.write_str("out"),
            Condition::Interface(side, test) => write!(f, "{} {test}", side.word()),
            Condition::Layer2 => f.write_str("layer2"),
            Condition::Tos(bits) => write!(f, "iptos {}", ShowBits(*bits, TOS_BITS)),
            Condition::Precedence(level) => write!(f, "ipprecedence {level}"),
            Condition::Dscp(bits) => {
                f.write_str("dscp ")?;
                write_list(f, set_bits(*bits), |f, dscp| {
                    match names::codepoint_name(dscp) {
                        Some(name) => f.write_str(name),
                        None => dscp.fmt(f),
                    }
                })
            }
            Condition::Length(ranges) => write!(f, "iplen {ranges}"),
            Condition::Id(ranges) => write!(f, "ipid {ranges}"),
            Condition::Ttl(ranges) => write!(f, "ipttl {ranges}"),
            Condition::Version(version) => write!(f, "ipversion {version}"),
            Condition::Fragment(FragmentTest { set: 0, clear: 0 }) => f.write_str("frag"),
            Condition::Fragment(FragmentTest { set, clear }) => {
                let bits = Bits {
                    set: *set,
                    clear: *clear,
                };
                write!(f, "frag {}", ShowBits(bits, FRAGMENT_WORDS))
            }
            Condition::TcpFlags(bits) => write!(f, "tcpflags {}", ShowBits(*bits, TCP_FLAGS)),
            Condition::Setup => f.write_str("setup"),
            Condition::Established => f.write_str("established"),
            Condition::IcmpTypes(bits) => {
                f.write_str("icmptypes ")?;
                write_list(f, set_bits(*bits), |f, t| t.fmt(f))
            }
            Condition::Icmp6Types(types) => {
                f.write_str("icmp6types ")?;
                write_list(f, types, |f, t| t.fmt(f))
            }
            Condition::FlowLabel(ranges) => write!(f, "flow-id {ranges}"),
            Condition::Lookup(field, table) => {
                let name = FIELDS
                    .iter()
                    .find(|(_, v)| v == field)
                    .map_or("", |(n, _)| n);
                write!(f, "lookup {name} {table}")
            }
        }
    }
}
