//! The nft rule that sends packets to a queue.
//!
//! The rule is in a table of its own that belongs to the socket (NFT_TABLE_F_OWNER, Linux 5.12): no
//! other process can change it, and the kernel removes it when the socket is closed, even if the
//! process is killed. Layouts: linux/netfilter/nf_tables.h.

use super::message::{ACK, APPEND, CREATE, Writer};

/// The packets that go to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The place in the network stack.
    pub hook: Hook,
    /// Restricts the rule to packets that enter (for [`Hook::Input`]) or leave (for the other
    /// hooks) by this interface.
    pub interface: Option<String>,
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
    const fn number(self) -> u32 {
        match self {
            Hook::Input => 1,
            Hook::Forward => 2,
            Hook::Output => 3,
            Hook::Postrouting => 4,
        }
    }
}

impl Traffic {
    /// Returns the rule as commands for nft(8), for users who install the rule themselves.
    pub fn commands(&self, queue: u16) -> String {
        let hook = self.hook.name();
        let interface = match (&self.interface, self.hook) {
            (None, _) => String::new(),
            (Some(name), Hook::Input) => format!("iifname \"{name}\" "),
            (Some(name), _) => format!("oifname \"{name}\" "),
        };
        format!(
            "nft add table inet {TABLE}\n\
             nft add chain inet {TABLE} {CHAIN} {{ type filter hook {hook} priority {PRIORITY}\\; }}\n\
             nft add rule inet {TABLE} {CHAIN} {interface}queue num {queue}\n"
        )
    }

    /// Writes table, chain and rule as one transaction. Returns the first and the last sequence
    /// number that the kernel answers.
    pub(super) fn write(&self, writer: &mut Writer, verdict: Verdict) -> (u32, u32) {
        // A table belongs to one socket, and several queues may be open.
        let table = match verdict {
            Verdict::Expression(0) | Verdict::Target(0) => TABLE.to_owned(),
            Verdict::Expression(queue) | Verdict::Target(queue) => format!("{TABLE}{queue}"),
        };
        writer.begin(BATCH_BEGIN, 0, 0, NF_TABLES);
        writer.end();
        let first = writer.begin(NEW_TABLE, ACK | CREATE, INET, 0);
        writer.name(1, &table);
        writer.number(2, TABLE_IS_OWNED);
        writer.end();
        writer.begin(NEW_CHAIN, ACK | CREATE, INET, 0);
        writer.name(1, &table);
        writer.name(3, CHAIN);
        writer.nested(4, |hook| {
            hook.number(1, self.hook.number());
            hook.number(2, PRIORITY);
        });
        writer.name(7, "filter");
        writer.end();
        let last = writer.begin(NEW_RULE, ACK | CREATE | APPEND, INET, 0);
        writer.name(1, &table);
        writer.name(2, CHAIN);
        writer.nested(4, |expressions| {
            if let Some(name) = &self.interface {
                let key = match self.hook {
                    Hook::Input => META_IIFNAME,
                    _ => META_OIFNAME,
                };
                expression(expressions, "meta", |meta| {
                    meta.number(1, REGISTER);
                    meta.number(2, key);
                });
                let mut padded = [0; libc::IFNAMSIZ];
                for (to, from) in padded.iter_mut().zip(name.bytes()) {
                    *to = from;
                }
                expression(expressions, "cmp", |compare| {
                    compare.number(1, REGISTER);
                    compare.number(2, COMPARE_EQUAL);
                    compare.nested(3, |value| value.attribute(1, &padded, &[]));
                });
            }
            match verdict {
                Verdict::Expression(queue) => expression(expressions, "queue", |to| {
                    to.attribute(1, &queue.to_be_bytes(), &[]);
                    to.attribute(2, &1u16.to_be_bytes(), &[]);
                    to.attribute(3, &0u16.to_be_bytes(), &[]);
                }),
                Verdict::Target(queue) => expression(expressions, "target", |target| {
                    target.name(1, "NFQUEUE");
                    target.number(2, 0);
                    // linux/netfilter/xt_NFQUEUE.h: `struct xt_NFQ_info`, padded to eight bytes.
                    let [low, high] = queue.to_ne_bytes();
                    target.attribute(3, &[low, high, 0, 0, 0, 0, 0, 0], &[]);
                }),
            }
        });
        writer.end();
        writer.begin(BATCH_END, 0, 0, NF_TABLES);
        writer.end();
        (first, last)
    }
}

/// The expression of a rule that queues packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// With nft's queue expression (CONFIG_NFT_QUEUE).
    Expression(u16),
    /// With the target of iptables (CONFIG_NFT_COMPAT, CONFIG_NETFILTER_XT_TARGET_NFQUEUE).
    Target(u16),
}

fn expression(list: &mut Writer, name: &str, inner: impl FnOnce(&mut Writer)) {
    list.nested(1, |element| {
        element.name(1, name);
        element.nested(2, inner);
    });
}

const TABLE: &str = "sluice";
const CHAIN: &str = "queue";
/// After address translation of leaving packets, and after the filters of other programs.
const PRIORITY: u32 = 300;

const NF_TABLES: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
/// NFPROTO_INET: IPv4 and IPv6.
const INET: u8 = 1;
const TABLE_IS_OWNED: u32 = 2;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const COMPARE_EQUAL: u32 = 0;
const REGISTER: u32 = 1;
