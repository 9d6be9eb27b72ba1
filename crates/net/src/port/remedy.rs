//! The privilege that a port which may not be opened lacks, and the kinds of port that work without
//! it.

use super::KINDS;
use super::registry::Kind;
use crate::namespace::effective_capabilities;
use std::fs;
use std::io;

/// Returns the privilege that a refused step lacks and what would help; empty for other errors.
pub(super) fn remedy(error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    // user_namespaces(7): the first one maps every user to itself.
    let is_inside = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
        let mut words = map.split_whitespace();
        words.next() != Some("0") || words.next() != Some("0")
    });
    effective_capabilities().map_or_else(|_| String::new(), |held| remedy_of(held, is_inside))
}

fn remedy_of(effective: u64, is_inside: bool) -> String {
    let missing: Vec<&str> = CAPABILITIES
        .into_iter()
        .filter(|(bit, _)| effective & 1 << bit == 0)
        .map(|(_, name)| name)
        .collect();
    let inside = kinds(|kind| kind.in_user_namespace && !kind.needs_nothing());
    if missing.is_empty() && is_inside {
        let titles = KINDS.iter().filter(|kind| !kind.in_user_namespace);
        let titles = titles.map(|kind| kind.attach().map_or(kind.name, |attach| attach.title()));
        return format!(
            "; in a user namespace {} is not allowed: {inside} ports work there",
            listed(&titles.collect::<Vec<_>>()),
        );
    }
    if missing.is_empty() {
        return "; the process has all capabilities of ports: a security module or a seccomp filter \
                forbids it"
            .to_owned();
    }
    format!(
        "; the process lacks {}: run as root, or `setcap {}+ep` the program, or enter a user \
         namespace, where {inside} ports work; {} ports need nothing",
        missing.join(", "),
        missing.join(",").to_lowercase(),
        kinds(Kind::needs_nothing),
    )
}

/// Returns the names of the kinds for which `is_listed` holds.
fn kinds(is_listed: impl Fn(&Kind) -> bool) -> String {
    let kinds = KINDS.iter().filter(|kind| is_listed(kind));
    listed(&kinds.map(|kind| kind.name).collect::<Vec<_>>())
}

fn listed(words: &[&str]) -> String {
    match words {
        [first @ .., before, last] => [first, &[&format!("{before} and {last}")]]
            .concat()
            .join(", "),
        words => words.concat(),
    }
}

/// linux/capability.h, restricted to what ports need: CAP_NET_ADMIN for devices, queues and
/// programs, CAP_NET_RAW for packet and AF_XDP sockets, CAP_BPF for AF_XDP's program.
const CAPABILITIES: [(u32, &str); 3] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (39, "CAP_BPF")];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_missing_is_named_with_what_works_without() {
        // NET_ADMIN alone.
        let text = remedy_of(1 << 12, false);
        assert_eq!(
            text,
            "; the process lacks CAP_NET_RAW, CAP_BPF: run as root, or `setcap cap_net_raw,cap_bpf+ep` \
             the program, or enter a user namespace, where packet, tun, tap and nfqueue ports work; \
             pcap ports need nothing"
        );
        assert_eq!(
            remedy_of(u64::MAX, true),
            "; in a user namespace AF_XDP is not allowed: packet, tun, tap and nfqueue ports work there"
        );
        assert!(remedy_of(u64::MAX, false).contains("security module"));
        let other = io::Error::from_raw_os_error(libc::ENODEV);
        assert_eq!(remedy(&other), "");
    }

    #[test]
    fn the_capabilities_are_those_that_the_kinds_declare() {
        let needs = KINDS.iter().flat_map(|kind| kind.needs.split(", "));
        let declared: BTreeSet<&str> = needs.filter(|need| need.starts_with("CAP_")).collect();
        assert_eq!(declared, BTreeSet::from(CAPABILITIES.map(|(_, name)| name)));
    }
}
