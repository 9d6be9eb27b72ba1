//! The names of protocols, services, codepoints and flags in rules.
//!
//! Numbers are those of the IANA registries.

use crate::headers::{ICMP, ICMP6, IPV4, IPV6, SCTP, TCP, UDP, UDPLITE};

/// Protocols by name. The first name of a number is printed.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", ICMP),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", TCP),
    ("egp", 8),
    ("igp", 9),
    ("udp", UDP),
    ("dccp", 33),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", ICMP6),
    ("icmp6", ICMP6),
    ("icmpv6", ICMP6),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("carp", 112),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", SCTP),
    ("udplite", UDPLITE),
];

/// Types of Ethernet frames (IEEE 802 numbers). The first name of a number is printed.
const ETHERTYPES: &[(&str, u16)] = &[
    ("ipv4", IPV4),
    ("ip", IPV4),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("vlan", 0x8100),
    ("ipv6", IPV6),
    ("pppoe_disc", 0x8863),
    ("pppoe_sess", 0x8864),
    ("loopback", 0x9000),
];

/// Returns a type of Ethernet frames by its name.
pub(crate) fn ethertype(name: &str) -> Option<u16> {
    let mut types = ETHERTYPES.iter();
    types
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// Returns the name of a type of Ethernet frames.
pub(crate) fn ethertype_name(number: u16) -> Option<&'static str> {
    let mut types = ETHERTYPES.iter();
    types
        .find(|(_, known)| *known == number)
        .map(|(name, _)| *name)
}

/// Well-known services.
const SERVICES: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("finger", 79),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("isakmp", 500),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("openvpn", 1194),
    ("l2tp", 1701),
    ("nfs", 2049),
    ("mysql", 3306),
    ("sip", 5060),
    ("postgresql", 5432),
];

/// Differentiated services codepoints (RFC 2474, 2597, 3246, 5865).
const CODEPOINTS: &[(&str, u8)] = &[
    ("cs0", 0),
    ("be", 0),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The bits of the TOS octet in `iptos` (RFC 1349; the last two are ECN, RFC 3168).
pub(crate) const TOS_BITS: &[(&str, u8)] = &[
    ("lowdelay", 0x10),
    ("throughput", 0x08),
    ("reliability", 0x04),
    ("mincost", 0x02),
    ("congestion", 0x01),
    ("ecntransport", 0x02),
];

/// TCP flags.
pub(crate) const TCP_FLAGS: &[(&str, u8)] = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
];

fn number<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

fn name<T: PartialEq>(table: &'static [(&'static str, T)], value: T) -> Option<&'static str> {
    table.iter().find(|(_, v)| *v == value).map(|(n, _)| *n)
}

pub(crate) fn protocol(word: &str) -> Option<u8> {
    number(PROTOCOLS, word)
}

pub(crate) fn protocol_name(proto: u8) -> Option<&'static str> {
    name(PROTOCOLS, proto)
}

pub(crate) fn protocol_names() -> impl Iterator<Item = &'static str> {
    ["ip", "all", "ip4", "ip6", "ipv4", "ipv6"]
        .into_iter()
        .chain(PROTOCOLS.iter().map(|(n, _)| *n))
}

pub(crate) fn service(word: &str) -> Option<u16> {
    number(SERVICES, word)
}

pub(crate) fn service_name(port: u16) -> Option<&'static str> {
    name(SERVICES, port)
}

pub(crate) fn codepoint(word: &str) -> Option<u8> {
    number(CODEPOINTS, &word.to_ascii_lowercase())
}

pub(crate) fn codepoint_name(dscp: u8) -> Option<&'static str> {
    name(CODEPOINTS, dscp)
}

pub(crate) fn codepoint_names() -> impl Iterator<Item = &'static str> {
    CODEPOINTS.iter().map(|(n, _)| *n)
}
