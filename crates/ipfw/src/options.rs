//! The options of rules: one row each.
//!
//! A row has the words that start the option (the first one is written back), an example, how the
//! argument is read, and the test. The grammar, the canonical text, the matching and the reference
//! in `docs/dummynet.md` are derived from the rows.
//!
//! A row belongs to one of two groups. A test under `flow` sees only the [`FlowFields`] of a
//! packet. These are the key of the flow cache, so its answer is the same for every packet of a
//! flow and is computed once per flow. A test under `packet` sees all [`Headers`] and runs for
//! every packet. A `flow` test that reads a field outside the key does not compile: move the row
//! under `packet`, or add the field to `FlowFields` and to the key.

mod argument;
mod declare;

use crate::headers::{Direction, Headers, ICMP, ICMP6, TCP};
use crate::matching::flow_fields::FlowFields;
use crate::matching::{Look, Names};
use crate::words::address::{Address, Ranges};
use crate::words::argument::{
    Bits, Codepoints, EtherTypes, FragmentTest, IcmpTypes, InterfaceTest, Lookup, Nothing, Ports,
    Protocol, address, bits, codepoints, ether_types, fragment, icmp_types, icmp6_types, interface,
    lookup, no_argument, numbers, ports, precedence, protocol_argument, version,
};
use crate::words::names::{TCP_FLAGS, TOS_BITS};
use crate::words::parser::{Parse, Parser};
use crate::words::token::At;
pub(crate) use argument::{Argument, Written};
use declare::options;

/// An option of a rule, for lists and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOption {
    /// The words that start it; the first one is written back.
    pub words: &'static [&'static str],
    /// The option as a rule contains it, in its canonical form.
    pub example: &'static str,
    /// The packets that the option matches.
    pub doc: &'static str,
    /// Whether all packets of a flow give the same answer, so that the flow cache keeps it.
    pub is_constant: bool,
}

/// A condition with its names resolved.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Flow(FlowQuestion),
    Packet(PacketQuestion),
}

impl Question {
    #[inline]
    pub fn holds(&self, headers: &Headers, look: &mut Look<'_>) -> bool {
        match self {
            Question::Flow(question) => question.holds(&FlowFields::of(headers), look),
            Question::Packet(question) => question.holds(headers, look),
        }
    }
}

/// Reads the argument behind the option's word.
type Read<A> = fn(&mut Parser<'_>, At<&str>) -> Parse<A>;

/// Whether a packet, seen as `F`, matches an argument.
type Test<A, F> = fn(&<A as Argument>::Ready, &F, &mut Look<'_>) -> bool;

options! {
    flow {
        /// the protocol: `tcp`, `udp`, a number, or `ip`, `ip4`, `ip6`
        Protocol(Protocol) {
            words: "proto",
            example: "proto udp",
            read: protocol_argument,
            test: |protocol, flow, _| match protocol {
                Protocol::Any => true,
                Protocol::V4 => flow.src.is_ipv4(),
                Protocol::V6 => flow.src.is_ipv6(),
                Protocol::Number(number) => flow.proto == *number,
            },
        }
        /// the source address: as behind `from`
        Source(Address) {
            words: "src-ip" | "src-ip6",
            example: "src-ip 10.0.0.0/8,192.0.2.1",
            read: address,
            test: |hosts, flow, look| hosts.hold(flow.src, look),
        }
        /// the destination address: as behind `to`
        Destination(Address) {
            words: "dst-ip" | "dst-ip6",
            example: "dst-ip6 2001:db8::/32",
            read: address,
            test: |hosts, flow, look| hosts.hold(flow.dst, look),
        }
        /// the source port: numbers, ranges and names of services
        SourcePort(Ports) {
            words: "src-port",
            example: "src-port 1024-65535",
            read: ports,
            test: |ports, flow, _| flow.ports.is_some_and(|(src, _)| ports.hold(src)),
        }
        /// the destination port: numbers, ranges and names of services
        DestinationPort(Ports) {
            words: "dst-port",
            example: "dst-port 80,443",
            read: ports,
            test: |ports, flow, _| flow.ports.is_some_and(|(_, dst)| ports.hold(dst)),
        }
        /// the pass in which a packet comes in
        In(Nothing) {
            words: "in",
            example: "in",
            read: no_argument,
            test: |_, flow, _| flow.direction == Direction::In,
        }
        /// the pass in which a packet goes out
        Out(Nothing) {
            words: "out",
            example: "out",
            read: no_argument,
            test: |_, flow, _| flow.direction == Direction::Out,
        }
        /// the interface of this pass: `recv` while coming in, `xmit` while going out
        Via(InterfaceTest) {
            words: "via",
            example: "via em0",
            read: interface,
            test: |interfaces, flow, look| interfaces.hold(flow.via(), look),
        }
        /// the interface where a packet came in: a name, `NAME*`, an address, a table or `any`
        Recv(InterfaceTest) {
            words: "recv",
            example: "recv em*",
            read: interface,
            test: |interfaces, flow, look| interfaces.hold(flow.recv, look),
        }
        /// the interface where a packet leaves, known in the `out` pass
        Xmit(InterfaceTest) {
            words: "xmit",
            example: "xmit em1",
            read: interface,
            test: |interfaces, flow, look| interfaces.hold(flow.leaving(), look),
        }
        /// packets seen below IP; a bridge of `sluice router` shows none
        Layer2(Nothing) {
            words: "layer2" | "bridged",
            example: "layer2",
            read: no_argument,
            test: |_, flow, _| flow.is_layer2,
        }
        /// the three precedence bits of the TOS octet
        Precedence(u8) {
            words: "ipprecedence",
            example: "ipprecedence 5",
            read: precedence,
            test: |level, flow, _| flow.dscp >> 3 == *level,
        }
        /// one of these DiffServ codepoints
        Dscp(Codepoints) {
            words: "dscp",
            example: "dscp cs1,ef",
            read: codepoints,
            test: |codepoints, flow, _| codepoints.0 >> flow.dscp & 1 == 1,
        }
        /// the IP version: 4 or 6
        Version(u8) {
            words: "ipversion" | "ipver",
            example: "ipversion 6",
            read: version,
            test: |version, flow, _| flow.src.is_ipv6() == (*version == 6),
        }
        /// the flow label of IPv6
        FlowLabel(Ranges) {
            words: "flow-id",
            example: "flow-id 5,9-12",
            read: |p, word| numbers(p, word, 0xf_ffff),
            test: |labels, flow, _| flow.src.is_ipv6() && labels.holds(flow.flow_label),
        }
        /// a field (`src-ip`, `dst-ip`, `src-port`, `dst-port`, `dscp`) that a table contains
        Lookup(Lookup) {
            words: "lookup",
            example: "lookup dst-port D",
            read: lookup,
            test: |lookup, flow, look| lookup.holds(flow, look),
        }
    }
    packet {
        /// types of Ethernet frames, such as `arp`; frames that are not IP are tested against no other rules
        MacType(EtherTypes) {
            words: "mac-type",
            example: "mac-type 0x0806,0x8863-0x8864",
            read: ether_types,
            test: |types, headers, _| types.hold(headers.ethertype()),
        }
        /// bits of the TOS octet of IPv4 that are set, or with `!` clear
        Tos(Bits) {
            words: "iptos",
            example: "iptos lowdelay,!congestion",
            read: |p, word| bits(p, word, "an IP TOS list", TOS_BITS),
            // Not under `flow`: the ECN bits change on the way.
            test: |bits, headers, _| headers.src.is_ipv4() && bits.hold(headers.tos),
        }
        /// the total length of the IP packet in bytes
        Length(Ranges) {
            words: "iplen",
            example: "iplen 0-500,1500",
            read: |p, word| numbers(p, word, 65535),
            test: |lengths, headers, _| lengths.holds(headers.ip_len),
        }
        /// the identification of IPv4
        Id(Ranges) {
            words: "ipid",
            example: "ipid 7",
            read: |p, word| numbers(p, word, 65535),
            test: |ids, headers, _| headers.src.is_ipv4() && ids.holds(u32::from(headers.ip_id)),
        }
        /// the time to live, or the hop limit
        Ttl(Ranges) {
            words: "ipttl",
            example: "ipttl 1,64",
            read: |p, word| numbers(p, word, 255),
            test: |ttls, headers, _| ttls.holds(u32::from(headers.ttl)),
        }
        /// fragments that are not the first, or those with these flags: `mf`, `df`, `offset`
        Fragment(FragmentTest) {
            words: "frag",
            example: "frag mf,!df",
            read: fragment,
            test: |test, headers, _| test.holds(headers.fragment),
        }
        /// TCP flags that are set, or with `!` clear
        TcpFlags(Bits) {
            words: "tcpflags" | "tcpflgs",
            example: "tcpflags syn,!ack",
            read: |p, word| bits(p, word, "a list of TCP flags", TCP_FLAGS),
            test: |flags, headers, _| is_tcp(headers) && flags.hold(headers.tcp_flags),
        }
        /// TCP packets with `syn` and without `ack`
        Setup(Nothing) {
            words: "setup",
            example: "setup",
            read: no_argument,
            test: |_, headers, _| is_tcp(headers) && headers.tcp_flags & (SYN | ACK) == SYN,
        }
        /// TCP packets with `ack` or `rst`
        Established(Nothing) {
            words: "established" | "estab",
            example: "established",
            read: no_argument,
            test: |_, headers, _| is_tcp(headers) && headers.tcp_flags & (ACK | RST) != 0,
        }
        /// the type of ICMP
        IcmpTypes(IcmpTypes) {
            words: "icmptypes" | "icmptype",
            example: "icmptypes 0,8",
            read: icmp_types,
            test: |types, headers, _| headers.proto == ICMP && types.hold(headers.icmp_type),
        }
        /// the type of ICMPv6
        Icmp6Types(IcmpTypes) {
            words: "icmp6types" | "icmp6type",
            example: "icmp6types 135,136",
            read: icmp6_types,
            test: |types, headers, _| headers.proto == ICMP6 && types.hold(headers.icmp_type),
        }
    }
}

/// Whether the packet has a TCP header: not in later fragments.
const fn is_tcp(headers: &Headers) -> bool {
    headers.proto == TCP && headers.fragment.offset == 0
}

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::grammar::{self, Command};

    /// The option as it is written back behind `allow`.
    fn written(option: &str) -> String {
        let line = grammar::parse(&format!("add allow {option}"), 1, false)
            .unwrap_or_else(|error| panic!("{option}: {error}"));
        match line.invocation.map(|invocation| invocation.command) {
            Some(Command::Add(rule)) => rule.options[0][0].condition.to_string(),
            other => panic!("{option}: {other:?}"),
        }
    }

    #[test]
    fn every_example_is_canonical_and_every_word_is_read() {
        for option in OPTIONS {
            assert_eq!(written(option.example), option.example);
            let argument = option.example.split_once(' ').map_or("", |(_, a)| a);
            for word in option.words {
                let line = format!("{word} {argument}");
                assert_eq!(written(&line), option.example, "{line}");
            }
        }
    }

    #[test]
    fn a_word_belongs_to_one_option() {
        let mut seen = BTreeSet::from(["keep-state", "limit", "not", "or"]);
        for word in OPTIONS.iter().flat_map(|option| option.words) {
            assert!(seen.insert(word), "{word}");
        }
    }
}
