//! Addresses, ports and number lists of rules.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{CommandError, ErrorKind};
use super::names;
use super::parser::{Parse, invalid, refused};
use super::quantity::whole_integer;
use super::token::At;
use crate::flow::v6_mask;

/// A table, and the value that a matching entry must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRef {
    /// The table's name.
    pub name: String,
    /// The required value, if any.
    pub value: Option<u32>,
}

/// One item of a list of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Net {
    /// An IPv4 address with a mask, which has been applied.
    V4 {
        /// The address.
        address: Ipv4Addr,
        /// The mask.
        mask: u32,
    },
    /// Individual addresses of an IPv4 network: `10.0.0.0/24{1,5-9}`.
    Set {
        /// The network.
        base: Ipv4Addr,
        /// Prefix length, 24 to 32.
        len: u8,
        /// The addresses, by their last octet.
        members: [u64; 4],
    },
    /// An IPv6 network, whose prefix length has been applied.
    V6 {
        /// The address.
        address: Ipv6Addr,
        /// The prefix length.
        len: u8,
    },
}

impl Net {
    /// Whether the network contains `address`.
    #[inline]
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Net::V4 { address: net, mask }, IpAddr::V4(a)) => a.to_bits() & mask == net.to_bits(),
            (Net::Set { base, len, members }, IpAddr::V4(a)) => {
                let mask = v4_mask(*len);
                let low = (a.to_bits() & 0xff) as usize;
                a.to_bits() & mask == base.to_bits() && members[low / 64] >> (low % 64) & 1 == 1
            }
            (Net::V6 { address: net, len }, IpAddr::V6(a)) => {
                a.to_bits() & v6_mask(*len) == net.to_bits()
            }
            _ => false,
        }
    }
}

pub(crate) const fn v4_mask(len: u8) -> u32 {
    if len == 0 {
        0
    } else {
        u32::MAX << (32 - len as u32)
    }
}

/// The argument of `from`, `to`, `src-ip` and `dst-ip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Any address.
    Any,
    /// An address of the host.
    Me,
    /// An IPv6 address of the host.
    Me6,
    /// Any address that a table contains.
    Table(TableRef),
    /// One of these networks.
    Nets(Vec<Net>),
}

impl Address {
    /// Whether the address is written as IPv6: `me6`, or networks that are all IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        match self {
            Address::Me6 => true,
            Address::Nets(nets) => nets.iter().all(|net| matches!(net, Net::V6 { .. })),
            Address::Any | Address::Me | Address::Table(_) => false,
        }
    }
}

/// Ranges of numbers, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(pub Vec<(u32, u32)>);

impl Ranges {
    /// Whether one of the ranges contains `n`.
    pub fn holds(&self, n: u32) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&n))
    }
}

/// The most items of a list of ports.
const MAX_PORTS: usize = 30;

/// Reads an address.
pub(crate) fn address(word: At<&str>) -> Parse<Address> {
    Ok(match word.value {
        "any" => Address::Any,
        "me" => Address::Me,
        "me6" => Address::Me6,
        text if text.starts_with("table(") => Address::Table(table_ref(word)?),
        text => {
            let items = split_list(text).map(|item| net(At::new(item, word.at)));
            Address::Nets(items.collect::<Parse<Vec<Net>>>()?)
        }
    })
}

/// Splits at commas outside braces.
fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Reads `table(NAME)` or `table(NAME,value)`.
pub(crate) fn table_ref(word: At<&str>) -> Parse<TableRef> {
    let accepted = "table(NAME) or table(NAME,value)";
    let fail = || invalid(word, "a table", accepted);
    let inner = word
        .value
        .strip_prefix("table(")
        .and_then(|t| t.strip_suffix(')'))
        .ok_or_else(fail)?;
    let (name, value) = match inner.split_once(',') {
        Some((name, value)) => {
            let value = whole_integer(value).and_then(|n| u32::try_from(n).ok());
            (name, Some(value.ok_or_else(fail)?))
        }
        None => (inner, None),
    };
    Ok(TableRef {
        name: table_name(At::new(name, word.at))?,
        value,
    })
}

/// Checks the name of a table: as in ipfw, up to 63 of these characters.
pub(crate) fn table_name(word: At<&str>) -> Parse<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_ok = (1..64).contains(&word.value.len()) && word.value.chars().all(is_name);
    if is_ok && word.value != "all" {
        Ok(word.value.to_string())
    } else {
        Err(invalid(
            word,
            "a table name",
            "letters, digits, _ - and ., at most 63, not `all`",
        ))
    }
}

/// Reads an address with an optional `/len`, `:mask` or `/len{list}`.
pub(crate) fn net(word: At<&str>) -> Parse<Net> {
    let text = word.value;
    let fail = || {
        invalid(
            word,
            "an address",
            "any, me, me6, table(NAME), a.b.c.d[/len], or IPv6[/len]",
        )
    };
    if let Some((network, list)) = text.split_once('{') {
        return address_set(word, network, list.strip_suffix('}').ok_or_else(fail)?);
    }
    if let Some((address, mask)) = text.split_once(':').filter(|(a, _)| a.contains('.')) {
        let address: Ipv4Addr = address.parse().map_err(|_| fail())?;
        let mask: Ipv4Addr = mask.parse().map_err(|_| fail())?;
        let mask = mask.to_bits();
        return Ok(Net::V4 {
            address: Ipv4Addr::from_bits(address.to_bits() & mask),
            mask,
        });
    }
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len.parse::<u8>().map_err(|_| fail())?)),
        None => (text, None),
    };
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => {
            let mask = v4_mask(len.unwrap_or(32).min(32));
            if len.is_some_and(|l| l > 32) {
                return Err(fail());
            }
            Ok(Net::V4 {
                address: Ipv4Addr::from_bits(v4.to_bits() & mask),
                mask,
            })
        }
        Ok(IpAddr::V6(v6)) => {
            let len = len.unwrap_or(128);
            if len > 128 {
                return Err(fail());
            }
            Ok(Net::V6 {
                address: Ipv6Addr::from_bits(v6.to_bits() & v6_mask(len)),
                len,
            })
        }
        Err(_)
            if address.starts_with(|c: char| c.is_ascii_alphabetic()) && !address.contains(':') =>
        {
            let kind = ErrorKind::OutsidePurpose {
                word: address.to_string(),
                purpose: "names are not resolved; write the address",
            };
            Err(CommandError::new(kind, word.at).near(address, ["any", "me", "me6"]))
        }
        Err(_) => Err(fail()),
    }
}

fn address_set(word: At<&str>, network: &str, list: &str) -> Parse<Net> {
    let accepted = "a.b.c.d/24{1,5-9}, from /24 to /32";
    let fail = || invalid(word, "a set of addresses", accepted);
    let (base, len) = match network.split_once('/') {
        Some((base, len)) => (base, len.parse::<u8>().map_err(|_| fail())?),
        None => (network, 24),
    };
    let base: Ipv4Addr = base.parse().map_err(|_| fail())?;
    if !(24..=32).contains(&len) {
        return Err(fail());
    }
    let base = base.to_bits() & v4_mask(len);
    let (first, last) = (base & 0xff, (base & 0xff) | !v4_mask(len) & 0xff);
    let mut members = [0u64; 4];
    for item in list.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let low: u32 = low.parse().map_err(|_| fail())?;
        let high: u32 = high.parse().map_err(|_| fail())?;
        if low < first || high > last || low > high {
            return Err(fail());
        }
        for n in low..=high {
            members[n as usize / 64] |= 1 << (n % 64);
        }
    }
    Ok(Net::Set {
        base: Ipv4Addr::from_bits(base),
        len,
        members,
    })
}

/// Whether a word is a list of ports: numbers, ranges and service names.
pub(crate) fn looks_like_ports(word: &str) -> bool {
    word.split(',').all(|item| {
        let is_port =
            |t: &str| t.starts_with(|c: char| c.is_ascii_digit()) || names::service(t).is_some();
        is_port(item)
            || item
                .split_once('-')
                .is_some_and(|(a, b)| is_port(a) && is_port(b))
    })
}

/// Reads a list of ports.
pub(crate) fn ports(word: At<&str>) -> Parse<Ranges> {
    let ranges = list(
        word,
        "a list of ports",
        "0 to 65535, ranges and service names",
        65535,
        |t| names::service(t).map(u32::from),
    )?;
    if ranges.0.len() > MAX_PORTS {
        return Err(refused("too many ports, maximum is 30", word.at));
    }
    Ok(ranges)
}

/// Reads a list of numbers and ranges up to `max`.
pub(crate) fn list(
    word: At<&str>,
    what: &'static str,
    accepted: &'static str,
    max: u32,
    name: fn(&str) -> Option<u32>,
) -> Parse<Ranges> {
    let fail = || invalid(word, what, accepted);
    let number = |text: &str| -> Option<u32> {
        let number = whole_integer(text).and_then(|n| u32::try_from(n).ok());
        number.or_else(|| name(text)).filter(|n| *n <= max)
    };
    let item = |item: &str| -> Parse<(u32, u32)> {
        if let Some(n) = number(item) {
            return Ok((n, n));
        }
        let range = item.split_once('-').and_then(|(low, high)| {
            let range = (number(low)?, number(high)?);
            Some(range).filter(|(low, high)| low <= high)
        });
        range.ok_or_else(fail)
    };
    word.value
        .split(',')
        .map(item)
        .collect::<Parse<Vec<_>>>()
        .map(Ranges)
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "table({},{value})", self.name),
            None => write!(f, "table({})", self.name),
        }
    }
}

/// Writes items with commas between them.
pub(crate) fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write(f, item)?;
    }
    Ok(())
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, (low, high)| {
            if low == high {
                write!(f, "{low}")
            } else {
                write!(f, "{low}-{high}")
            }
        })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Net::V4 {
                address,
                mask: u32::MAX,
            } => address.fmt(f),
            Net::V4 { address, mask } => {
                let len = mask.leading_ones();
                if v4_mask(len as u8) == *mask {
                    write!(f, "{address}/{len}")
                } else {
                    write!(f, "{address}:{}", Ipv4Addr::from_bits(*mask))
                }
            }
            Net::Set { base, len, members } => {
                write!(f, "{base}/{len}{{")?;
                let is_member = |n: &u32| members[*n as usize / 64] >> (n % 64) & 1 == 1;
                let mut ranges: Vec<(u32, u32)> = Vec::new();
                for n in (0..256).filter(is_member) {
                    match ranges.last_mut().filter(|(_, high)| high + 1 == n) {
                        Some((_, high)) => *high = n,
                        None => ranges.push((n, n)),
                    }
                }
                write!(f, "{}}}", Ranges(ranges))
            }
            Net::V6 { address, len: 128 } => address.fmt(f),
            Net::V6 { address, len } => write!(f, "{address}/{len}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Any => f.write_str("any"),
            Address::Me => f.write_str("me"),
            Address::Me6 => f.write_str("me6"),
            Address::Table(table) => table.fmt(f),
            Address::Nets(nets) => write_list(f, nets, |f, net| net.fmt(f)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::token::Position;

    fn read(text: &str) -> Result<String, String> {
        address(At::new(text, Position::default()))
            .map(|a| a.to_string())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn addresses_are_written_back_in_their_shortest_form() {
        for (text, canonical) in [
            ("any", "any"),
            ("10.0.1.7/24", "10.0.1.0/24"),
            ("10.0.1.7:255.255.0.0", "10.0.0.0/16"),
            ("10.0.1.7:255.0.255.0", "10.0.1.0:255.0.255.0"),
            ("1.2.3.0/24{1,5-9,7,10}", "1.2.3.0/24{1,5-10}"),
            ("1.2.3.4/32,5.6.7.8", "1.2.3.4,5.6.7.8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::1", "::1"),
            ("table(T1)", "table(T1)"),
            ("table(subscribers,7)", "table(subscribers,7)"),
        ] {
            assert_eq!(read(text), Ok(canonical.to_string()), "{text}");
        }
        for text in [
            "1.2.3",
            "1.2.3.4/33",
            "::1/129",
            "1.2.3.0/24{256}",
            "table()",
            "1.2.3.4,",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(
            read("router")
                .unwrap_err()
                .contains("names are not resolved")
        );
    }

    #[test]
    fn a_set_holds_its_members_only() {
        let Address::Nets(nets) =
            address(At::new("10.0.0.0/24{1,5-9}", Position::default())).unwrap()
        else {
            panic!("a set is a list of networks");
        };
        let holds = |last| nets[0].holds(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let held: Vec<u8> = (0..=255).filter(|n| holds(*n)).collect();
        assert_eq!(held, [1, 5, 6, 7, 8, 9]);
    }
}
