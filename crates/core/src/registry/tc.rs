//! Translates words of Linux `tc` into those of a queue or a link of Sluice.
//!
//! A queue in tc's language is an error, whose hint names the equivalent words.

/// tc's word, and the answer.
const WORDS: &[(&str, &str)] = &[
    ("pfifo", "tc's `pfifo limit N` is `fifo limit N`"),
    (
        "bfifo",
        "tc's `bfifo limit BYTES` is `fifo limit_bytes BYTES`",
    ),
    (
        "pfifo_fast",
        "tc's `pfifo_fast` has three bands by priority: `prio`; without them it is `fifo limit 1000`",
    ),
    ("pfifo_head_drop", "tc's `pfifo_head_drop` is `headdrop`"),
    (
        "tbf",
        "tc's `tbf rate R` is the rate of the link, with `fifo limit_bytes BYTES` as its queue",
    ),
    (
        "htb",
        "tc's `htb` is `rules` with pipes and queues, or `wf2q+` on one link",
    ),
    (
        "hfsc",
        "in place of tc's `hfsc`, `wf2q+` shares a link by weights",
    ),
    (
        "drr",
        "tc's `drr` is `rr` for classes, or `fq_codel` for flows",
    ),
    ("fq_pie", "tc's `fq_pie` is `fq_pie variant linux`"),
    (
        "netem",
        "tc's `netem` is a part of the link, not of its queue: `delay`, `jitter`, `loss`, `duplicate`, `corrupt` and `reorder` in [link] of a scenario, `delay` and `plr` of a pipe",
    ),
    (
        "noqueue",
        "a link without a queue is one whose rate is `unlimited`",
    ),
    (
        "mq",
        "tc's `mq` is one queue per core; here a link has one queue",
    ),
    ("besteffort", "tc's `besteffort` is `tins besteffort`"),
    ("diffserv3", "tc's `diffserv3` is `tins diffserv3`"),
    ("diffserv4", "tc's `diffserv4` is `tins diffserv4`"),
    (
        "diffserv8",
        "in place of tc's `diffserv8`, use `tins diffserv4`",
    ),
    ("flowblind", "tc's `flowblind` is `isolation flowblind`"),
    ("srchost", "tc's `srchost` is `isolation srchost`"),
    ("dsthost", "tc's `dsthost` is `isolation dsthost`"),
    ("hosts", "tc's `hosts` is `isolation hosts`"),
    (
        "flows",
        "tc's `flows` is `isolation flows` for cake, and `flows N` for flow queues",
    ),
    (
        "dual-srchost",
        "tc's `dual-srchost` is `isolation dual-srchost`",
    ),
    (
        "dual-dsthost",
        "tc's `dual-dsthost` is `isolation dual-dsthost`",
    ),
    (
        "triple-isolate",
        "tc's `triple-isolate` is `isolation triple-isolate`",
    ),
    (
        "nat",
        "tc's `nat` looks up translated addresses; no address here is translated, so leave it out",
    ),
    ("nonat", "no address here is translated: leave `nonat` out"),
    (
        "wash",
        "tc's `wash` clears DSCPs; here each flow sets its own (`dscp`), so leave it out",
    ),
    ("nowash", "DSCPs are never cleared: leave `nowash` out"),
    ("ack-filter", "tc's `ack-filter` is `ack_filter on`"),
    (
        "ack-filter-aggressive",
        "tc's `ack-filter-aggressive` is `ack_filter aggressive`",
    ),
    ("no-ack-filter", "tc's `no-ack-filter` is `ack_filter off`"),
    (
        "egress",
        "`egress` is the default: leave it out, or write `ingress`",
    ),
    (
        "unlimited",
        "`unlimited` is the default: leave it out, or write `bandwidth RATE`",
    ),
    ("atm", "tc's `atm` is `cells atm`"),
    ("ptm", "tc's `ptm` is `cells ptm`"),
    ("noatm", "tc's `noatm` is `cells whole`"),
    (
        "ce_threshold_selector",
        "tc's `ce_threshold_selector` selects packets for `ce_threshold`, which applies to all here",
    ),
];

/// Returns the equivalent of tc's `word`; `None` if tc does not have the word.
pub fn answer(word: &str) -> Option<&'static str> {
    let found = WORDS.iter().find(|(known, _)| *known == word);
    found.map(|(_, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Spec;
    use alloc::format;

    /// An answer follows the message that there is no such word.
    #[test]
    fn no_answer_repeats_that_the_word_is_unknown() {
        for (word, answer) in WORDS {
            assert!(!answer.starts_with("there is no"), "`{word}`: {answer}");
        }
    }

    #[test]
    fn every_answer_is_in_words_that_are_understood() {
        for (word, answer) in WORDS {
            // The text in the last backticks, if it begins like a queue or a parameter of cake.
            let Some(ours) = answer.split('`').nth(3) else {
                continue;
            };
            let ours = ours
                .replace("BYTES", "3000B")
                .replace('N', "100")
                .replace("RATE", "1Mbit/s");
            let first = ours.split(' ').next().unwrap_or_default();
            let is_of_cake =
                ["tins", "isolation", "ack_filter", "cells", "bandwidth"].contains(&first);
            let is_queue = Spec::parse(first).is_ok();
            let text = if is_of_cake {
                format!("cake {ours}")
            } else {
                ours.clone()
            };
            if is_of_cake || is_queue {
                assert!(
                    Spec::parse(&text).is_ok(),
                    "`{word}`: {text}: {:?}",
                    Spec::parse(&text).err()
                );
            }
        }
    }
}
