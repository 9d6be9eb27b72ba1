//! The limits of a router: their sizes, and what met them last.

use std::collections::BTreeMap;

use sluice_ipfw::Firewall;
use sluice_net::port::{Pool, Port};

use crate::control::{
    Limits, MOST_REQUEST, PAGE_CLIENTS, PAGE_CLIENTS_OF_ADDRESS, PAGE_HEAD, PAGE_PATIENCE, WAITING,
};
use crate::forward::{LaneCounts, LostFrame};
use crate::process::PortChoice;
use crate::process::start::MOST_LOG;

/// Returns the sizes of the limits by the name of their counter.
pub(super) fn sizes(
    pool: &Pool,
    firewall: &Firewall,
    ports: &[Box<dyn Port + Send>],
) -> BTreeMap<String, u64> {
    let (size, limits) = (pool.size(), firewall.limits());
    let queues = ports
        .iter()
        .map(|port| port.capabilities().kernel_queue as u64);
    let kernel_queue = queues.filter(|bytes| *bytes > 0).min();
    let clients = Limits::default();
    let all = [
        ("no_slot", size.slots.into()),
        ("no_large_slot", size.large.into()),
        ("over_share", pool.share().into()),
        ("pipe_share", limits.pipe_share(size.slots.into())),
        ("dynamic_memory", limits.dynamic_memory),
        ("dynamic_number", limits.dynamic_number),
        ("states_full", limits.states_full),
        ("states_evicted", limits.states_full),
        ("states_source", limits.states_source),
        ("pipe_loop", limits.pipe_loop),
        ("call_loop", limits.call_loop),
        ("log_lost", MOST_LOG as u64),
        ("too_many", clients.clients as u64),
        ("silent", clients.clients as u64),
        ("slow", clients.patience.as_secs()),
        ("unreadable", MOST_REQUEST as u64),
        ("busy", WAITING as u64),
        ("late", clients.work.as_secs()),
        ("http_too_many", PAGE_CLIENTS as u64),
        ("http_address", PAGE_CLIENTS_OF_ADDRESS as u64),
        ("http_long", PAGE_HEAD as u64),
        ("http_slow", PAGE_PATIENCE.as_secs()),
    ];
    let of_ports = kernel_queue.map(|bytes| ("kernel_queue", bytes));
    let of_rule = firewall.last_refused().states_limit;
    let of_rule = of_rule.map(|(_, most)| ("states_limit", u64::from(most)));
    let all = all.into_iter().chain(of_ports).chain(of_rule);
    all.map(|(name, size)| (name.to_owned(), size)).collect()
}

/// Returns the sizes of the limits of one port by the name of their counter.
pub(super) fn sizes_of(port: &dyn Port) -> BTreeMap<String, u64> {
    let port = port.capabilities();
    let all = [
        ("kernel_queue", port.kernel_queue as u64),
        ("too_long", port.mtu.into()),
    ];
    let all = all.into_iter().filter(|(_, size)| *size > 0);
    all.map(|(name, size)| (name.to_owned(), size)).collect()
}

/// Returns the rule, the pipe or the port at which a packet was lost last, by the name of the counter.
pub(super) fn last_refused(
    firewall: &Firewall,
    counts: &LaneCounts,
    ports: &[PortChoice],
) -> BTreeMap<String, String> {
    let last = firewall.last_refused();
    let pipe = last.pipe_share;
    let of_engine = [
        (
            "pipe_share",
            pipe.map(|pipe| format!("{} {}", pipe.word(), pipe.number())),
        ),
        (
            "states_limit",
            last.states_limit.map(|(rule, _)| format!("rule {rule}")),
        ),
    ];
    let of_ports = LostFrame::ALL.into_iter().map(|cause| {
        let port = counts.last_port(cause).and_then(|port| ports.get(port));
        (cause.name(), port.map(|port| port.name.clone()))
    });
    let all = of_engine.into_iter().chain(of_ports);
    all.filter_map(|(name, what)| Some((name.to_owned(), what?)))
        .collect()
}
