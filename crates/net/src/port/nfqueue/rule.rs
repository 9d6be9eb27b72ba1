//! The nft rules that send packets to a queue, or to one of several.
//!
//! Among several queues, `symhash` chooses: the kernel's hash of addresses and ports that is the same
//! for both directions of a flow (`__skb_get_hash_symmetric`), the one that spreads the flows of packet
//! sockets. The queue expression and the target can choose by themselves, but by a hash of the
//! addresses alone, so that all flows between two hosts would share a queue.
//!
//! The rules are in a table of their own, and no other table is ever touched. By default the table
//! belongs to the socket (NFT_TABLE_F_OWNER, Linux 5.12): no other process can change it, and the
//! kernel removes it when the socket is closed, even if the process is killed. A table that stays
//! ([`IfDead::Closed`]) outlives its owner (NFT_TABLE_F_PERSIST, Linux 6.9), or has none on an older
//! kernel; the next start recognises it by its comment and replaces it. A table without an owner is
//! removed by `nft flush ruleset` of any process. Layouts: linux/netfilter/nf_tables.h.

use super::message::{ACK, APPEND, CREATE, Writer};
use std::fmt;

/// The packets that go to a queue.
///
/// A packet goes there if it enters by an interface of `entering`, or leaves by one of `leaving`.
/// If both are empty, every packet of the hooks does, except those of the loopback interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The places in the network stack.
    pub hooks: Vec<Hook>,
    /// Interfaces by which packets enter ([`Hook::Input`], [`Hook::Forward`]).
    pub entering: Vec<String>,
    /// Interfaces by which packets leave (all hooks but [`Hook::Input`]).
    pub leaving: Vec<String>,
    /// Restricts the rules to packets with this mark.
    pub mark: Option<Mark>,
}

/// A firewall mark, as in `meta mark and 0xff == 0x1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The value of the bits in the mask.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// A place in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Packets for this host.
    Input,
    /// Packets that this host forwards.
    Forward,
    /// Packets that this host originates.
    Output,
    /// Packets that leave, sent or forwarded.
    Postrouting,
}

/// The fate of packets when the process that serves the queue has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfDead {
    /// They pass unqueued: the rules disappear with the process.
    #[default]
    Bypass,
    /// They are dropped until the next start: the rules stay.
    Closed,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        }
    }

    /// linux/netfilter.h: `enum nf_inet_hooks`.
    pub(super) const fn number(self) -> u32 {
        match self {
            Hook::Input => 1,
            Hook::Forward => 2,
            Hook::Output => 3,
            Hook::Postrouting => 4,
        }
    }
}

/// A comparison of the interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side<'a> {
    key: u32,
    name: &'a str,
    compare: u32,
}

impl<'a> Side<'a> {
    const fn new(key: u32, name: &'a str) -> Self {
        Side {
            key,
            name,
            compare: COMPARE_EQUAL,
        }
    }

    fn text(self) -> String {
        let word = if self.key == META_IIFNAME {
            "iifname"
        } else {
            "oifname"
        };
        let not = if self.compare == COMPARE_EQUAL {
            ""
        } else {
            "!= "
        };
        format!("{word} {not}\"{}\" ", self.name)
    }
}

/// Consecutive queues of the kernel. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    first: u16,
    last: u16,
}

impl Queues {
    /// Returns `count` queues from number `first` on; `None` if there are not so many.
    pub fn new(first: u16, count: usize) -> Option<Queues> {
        let more = u16::try_from(count.checked_sub(1)?).ok()?;
        let last = first.checked_add(more)?;
        Some(Queues { first, last })
    }

    /// Returns their numbers.
    pub(super) fn numbers(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// Returns the number of the one at a place.
    pub(super) const fn number(self, place: u16) -> u16 {
        self.first + place
    }

    pub(super) const fn is_one(self) -> bool {
        self.first == self.last
    }

    fn count(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_one() {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl Traffic {
    /// Returns the interfaces that the traffic is restricted to, each once.
    pub fn interfaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.entering.iter().chain(&self.leaving) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the comparison of each rule of a hook.
    fn sides(&self, hook: Hook) -> Vec<Side<'_>> {
        if self.entering.is_empty() && self.leaving.is_empty() {
            let key = match hook {
                Hook::Input => META_IIFNAME,
                _ => META_OIFNAME,
            };
            return vec![Side {
                compare: COMPARE_UNEQUAL,
                ..Side::new(key, LOOPBACK)
            }];
        }
        let entering = matches!(hook, Hook::Input | Hook::Forward).then_some(&self.entering);
        let leaving = (hook != Hook::Input).then_some(&self.leaving);
        let entering = entering.into_iter().flatten();
        let leaving = leaving.into_iter().flatten();
        entering
            .map(|name| Side::new(META_IIFNAME, name))
            .chain(leaving.map(|name| Side::new(META_OIFNAME, name)))
            .collect()
    }

    /// Returns the rules as commands for nft(8), for users who install the rules themselves.
    pub fn commands(&self, queues: Queues) -> String {
        let table = table(queues);
        let to = match queues.is_one() {
            true => format!("num {}", queues.first),
            false => format!("to symhash mod {} offset {}", queues.count(), queues.first),
        };
        let mut text = format!("nft add table inet {table}\n");
        let mark = self.mark.map_or(String::new(), |Mark { value, mask }| {
            format!("meta mark and {mask:#x} == {value:#x} ")
        });
        for hook in &self.hooks {
            let chain = hook.name();
            text.push_str(&format!(
                "nft add chain inet {table} {chain} {{ type filter hook {chain} priority {PRIORITY}\\; }}\n"
            ));
            for side in self.sides(*hook) {
                text.push_str(&format!(
                    "nft add rule inet {table} {chain} {}{mark}queue {to}\n",
                    side.text()
                ));
            }
        }
        text
    }

    /// Writes table, chains and rules as one transaction, which first removes the table if it
    /// `exists`. Returns the first and the last sequence number that the kernel answers.
    pub(super) fn write(
        &self,
        writer: &mut Writer,
        queues: Queues,
        form: Form,
        (if_dead, ownership): (IfDead, Ownership),
        exists: bool,
    ) -> (u32, u32) {
        let table = table(queues);
        writer.begin(BATCH_BEGIN, 0, 0, NF_TABLES);
        writer.end();
        let mut first = None;
        if exists {
            first = Some(write_removal(writer, &table));
        }
        let mut last = writer.begin(NEW_TABLE, ACK | CREATE, INET, 0);
        let first = first.unwrap_or(last);
        writer.name(1, &table);
        writer.number(2, ownership.flags());
        writer.attribute(6, &comment(), &[]);
        writer.end();
        for hook in &self.hooks {
            writer.begin(NEW_CHAIN, ACK | CREATE, INET, 0);
            writer.name(1, &table);
            writer.name(3, hook.name());
            writer.nested(4, |place| {
                place.number(1, hook.number());
                place.number(2, PRIORITY);
            });
            writer.name(7, "filter");
            writer.end();
            for side in self.sides(*hook) {
                for to in form.destinations(queues) {
                    last = writer.begin(NEW_RULE, ACK | CREATE | APPEND, INET, 0);
                    writer.name(1, &table);
                    writer.name(2, hook.name());
                    writer.nested(4, |expressions| {
                        write_side(expressions, side);
                        if let Some(mark) = self.mark {
                            write_mark(expressions, mark);
                        }
                        to.write(expressions, form, if_dead);
                    });
                    writer.end();
                }
            }
        }
        writer.begin(BATCH_END, 0, 0, NF_TABLES);
        writer.end();
        (first, last)
    }
}

/// The fate of the table of a socket that is closed, and whether other processes can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The kernel removes it. Nobody else can change it.
    UntilClosed,
    /// It stays, without an owner. Nobody else can change it before (Linux 6.9).
    Lasting,
    /// It stays. Other processes can change it at any time.
    Nobody,
}

impl Ownership {
    const fn flags(self) -> u32 {
        match self {
            Ownership::UntilClosed => TABLE_IS_OWNED,
            Ownership::Lasting => TABLE_IS_OWNED | TABLE_LASTS,
            Ownership::Nobody => 0,
        }
    }
}

/// The expression of a rule that queues packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// nft's queue expression (CONFIG_NFT_QUEUE).
    Expression,
    /// The target of iptables (CONFIG_NFT_COMPAT, CONFIG_NETFILTER_XT_TARGET_NFQUEUE).
    Target,
}

/// The queue of a rule, or the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// One queue.
    Only(u16),
    /// The queue of these whose place is the hash of the flow.
    ByFlow(Queues),
    /// One of several queues, for the flows whose hash is its place.
    OfFlows(u16, Queues),
}

impl Form {
    /// Returns the destination of each rule. The queue expression can take the queue's number from a
    /// register; with the target, each queue needs a rule.
    fn destinations(self, queues: Queues) -> Vec<Destination> {
        let of_flows = |number| Destination::OfFlows(number, queues);
        match self {
            _ if queues.is_one() => vec![Destination::Only(queues.first)],
            Form::Expression => vec![Destination::ByFlow(queues)],
            Form::Target => queues.numbers().map(of_flows).collect(),
        }
    }
}

impl Destination {
    fn write(self, expressions: &mut Writer, form: Form, if_dead: IfDead) {
        match self {
            Destination::Only(_) => {}
            Destination::ByFlow(queues) => write_flow_hash(expressions, queues),
            Destination::OfFlows(number, queues) => {
                write_flow_hash(expressions, queues);
                // The register has the byte order of the host.
                let number = u32::from(number).to_ne_bytes();
                write_compare(expressions, COMPARE_EQUAL, &number);
            }
        }
        // Both have the same flag: a packet passes if nobody serves the queue.
        let bypass = u16::from(if_dead == IfDead::Bypass);
        let number = match self {
            Destination::Only(number) | Destination::OfFlows(number, _) => Some(number),
            Destination::ByFlow(_) => None,
        };
        match (form, number) {
            (Form::Expression, Some(number)) => expression(expressions, "queue", |to| {
                to.attribute(1, &number.to_be_bytes(), &[]);
                to.attribute(2, &1u16.to_be_bytes(), &[]);
                to.attribute(3, &bypass.to_be_bytes(), &[]);
            }),
            (Form::Expression, None) => expression(expressions, "queue", |to| {
                to.attribute(3, &bypass.to_be_bytes(), &[]);
                to.number(4, REGISTER);
            }),
            (Form::Target, number) => expression(expressions, "target", |target| {
                let number = number.expect("the target has the number of its queue");
                target.name(1, "NFQUEUE");
                target.number(2, 3);
                // linux/netfilter/xt_NFQUEUE.h: `struct xt_NFQ_info_v3` (first queue, number of
                // queues, flags), padded to eight bytes.
                let [low, high] = number.to_ne_bytes();
                let [one_low, one_high] = 1u16.to_ne_bytes();
                let [flag_low, flag_high] = bypass.to_ne_bytes();
                let fields = [low, high, one_low, one_high, flag_low, flag_high, 0, 0];
                target.attribute(3, &fields, &[]);
            }),
        }
    }
}

/// Returns the table of a router's queues. A table may belong to one socket, and several routers may
/// run.
pub(super) fn table(queues: Queues) -> String {
    match queues.first {
        0 => TABLE.to_owned(),
        first => format!("{TABLE}{first}"),
    }
}

/// Writes the request for a table. Returns its sequence number.
pub(super) fn write_request(writer: &mut Writer, table: &str) -> u32 {
    let request = writer.begin(GET_TABLE, ACK, INET, 0);
    writer.name(1, table);
    writer.end();
    request
}

/// Returns whether the answer to [`write_request`] describes a table that Sluice has created.
pub(super) fn is_ours<'a>(mut attributes: impl Iterator<Item = (u16, &'a [u8])>) -> bool {
    attributes.any(|(kind, value)| kind == 6 && value == comment())
}

/// Writes the removal of a table as a part of a transaction. Returns its sequence number.
pub(super) fn write_removal(writer: &mut Writer, table: &str) -> u32 {
    let removal = writer.begin(DELETE_TABLE, ACK, INET, 0);
    writer.name(1, table);
    writer.end();
    removal
}

/// Writes a transaction that only removes a table. Returns its sequence number.
pub(super) fn write_only_removal(writer: &mut Writer, table: &str) -> u32 {
    writer.begin(BATCH_BEGIN, 0, 0, NF_TABLES);
    writer.end();
    let removal = write_removal(writer, table);
    writer.begin(BATCH_END, 0, 0, NF_TABLES);
    writer.end();
    removal
}

/// The comment of the table, as `nft list` shows it: type, length and text (libnftnl, udata.h).
fn comment() -> Vec<u8> {
    let mut comment = vec![0, COMMENT.len() as u8 + 1];
    comment.extend(COMMENT.as_bytes());
    comment.push(0);
    comment
}

fn write_side(expressions: &mut Writer, side: Side<'_>) {
    write_meta(expressions, side.key);
    let mut padded = [0; libc::IFNAMSIZ];
    for (to, from) in padded.iter_mut().zip(side.name.bytes()) {
        *to = from;
    }
    write_compare(expressions, side.compare, &padded);
}

fn write_mark(expressions: &mut Writer, mark: Mark) {
    // The mark is in the byte order of the host.
    write_meta(expressions, META_MARK);
    expression(expressions, "bitwise", |bitwise| {
        bitwise.number(1, REGISTER);
        bitwise.number(2, REGISTER);
        bitwise.number(3, 4);
        bitwise.nested(4, |mask| mask.attribute(1, &mark.mask.to_ne_bytes(), &[]));
        bitwise.nested(5, |flipped| flipped.attribute(1, &[0; 4], &[]));
    });
    write_compare(
        expressions,
        COMPARE_EQUAL,
        &(mark.value & mark.mask).to_ne_bytes(),
    );
}

/// Writes the choice of a queue by the hash of the flow, into the register.
fn write_flow_hash(expressions: &mut Writer, queues: Queues) {
    expression(expressions, "hash", |hash| {
        hash.number(2, REGISTER);
        hash.number(4, queues.count());
        hash.number(6, u32::from(queues.first));
        hash.number(7, HASH_SYMMETRIC);
    });
}

fn write_meta(expressions: &mut Writer, key: u32) {
    expression(expressions, "meta", |meta| {
        meta.number(1, REGISTER);
        meta.number(2, key);
    });
}

fn write_compare(expressions: &mut Writer, compare: u32, value: &[u8]) {
    expression(expressions, "cmp", |comparison| {
        comparison.number(1, REGISTER);
        comparison.number(2, compare);
        comparison.nested(3, |inner| inner.attribute(1, value, &[]));
    });
}

fn expression(list: &mut Writer, name: &str, inner: impl FnOnce(&mut Writer)) {
    list.nested(1, |element| {
        element.name(1, name);
        element.nested(2, inner);
    });
}

const TABLE: &str = "sluice";
const COMMENT: &str = "sluice: removed when it ends";
const LOOPBACK: &str = "lo";
/// After address translation of leaving packets, and after the filters of other programs.
const PRIORITY: u32 = 300;

const NF_TABLES: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = NF_TABLES << 8;
const GET_TABLE: u16 = NF_TABLES << 8 | 1;
const DELETE_TABLE: u16 = NF_TABLES << 8 | 2;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
/// NFPROTO_INET: IPv4 and IPv6.
const INET: u8 = 1;
/// NFT_TABLE_F_OWNER and NFT_TABLE_F_PERSIST.
const TABLE_IS_OWNED: u32 = 2;
const TABLE_LASTS: u32 = 4;
const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const COMPARE_EQUAL: u32 = 0;
const COMPARE_UNEQUAL: u32 = 1;
const REGISTER: u32 = 1;
const HASH_SYMMETRIC: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_can_be_installed_by_hand() {
        let traffic = Traffic {
            hooks: vec![Hook::Forward, Hook::Input, Hook::Output],
            entering: vec!["wan".into()],
            leaving: vec!["wan".into()],
            mark: Some(Mark {
                value: 1,
                mask: 0xff,
            }),
        };
        let chain = |name| {
            format!("chain inet sluice3 {name} {{ type filter hook {name} priority 300\\; }}")
        };
        let rule = |chain, side| {
            format!(
                "rule inet sluice3 {chain} {side} \"wan\" meta mark and 0xff == 0x1 queue num 3"
            )
        };
        let expected = [
            "table inet sluice3".to_owned(),
            chain("forward"),
            rule("forward", "iifname"),
            rule("forward", "oifname"),
            chain("input"),
            rule("input", "iifname"),
            chain("output"),
            rule("output", "oifname"),
        ];
        let commands = traffic.commands(Queues::new(3, 1).unwrap());
        let lines: Vec<&str> = commands.lines().collect();
        assert_eq!(lines, expected.map(|line| format!("nft add {line}")));
        assert_eq!(traffic.interfaces(), ["wan"]);
    }

    #[test]
    fn without_interfaces_all_but_the_loopback_is_queued() {
        let traffic = Traffic {
            hooks: vec![Hook::Input, Hook::Output],
            ..Traffic::default()
        };
        let commands = traffic.commands(Queues::new(0, 1).unwrap());
        assert!(commands.contains("rule inet sluice input iifname != \"lo\" queue num 0\n"));
        assert!(commands.contains("rule inet sluice output oifname != \"lo\" queue num 0\n"));
    }
    #[test]
    fn several_queues_get_the_flows_by_a_hash() {
        let traffic = Traffic {
            hooks: vec![Hook::Forward],
            ..Traffic::default()
        };
        let commands = traffic.commands(Queues::new(4, 3).unwrap());
        assert!(commands.contains("rule inet sluice4 forward"), "{commands}");
        assert!(
            commands.ends_with("queue to symhash mod 3 offset 4\n"),
            "{commands}"
        );
    }

    #[test]
    fn the_last_queue_has_the_last_number_of_16_bits() {
        let text = |first, count| Queues::new(first, count).map(|queues| queues.to_string());
        assert_eq!(text(7, 1).as_deref(), Some("7"));
        assert_eq!(text(65_532, 4).as_deref(), Some("65532-65535"));
        for (first, count) in [(65_533, 4), (0, 65_537), (0, 0)] {
            assert_eq!(text(first, count), None);
        }
    }
}
