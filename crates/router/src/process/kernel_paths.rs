//! What the kernel forwards between the interfaces of a bridge by itself, past the queues.

use std::net::IpAddr;

use sluice_net::namespace::{LinkError, Links, Namespace, is_of_link};
use sluice_net::port::registry;

use super::PortChoice;

/// Whether an address is one of a protocol.
type IsOf = fn(&IpAddr) -> bool;

/// The settings that make the kernel route, for IPv4 and IPv6.
const ROUTES: [(&str, IsOf); 2] = [
    ("net.ipv4.ip_forward", IpAddr::is_ipv4),
    ("net.ipv6.conf.all.forwarding", IpAddr::is_ipv6),
];

/// Returns a sentence for each pair of ports that the kernel also connects: by a bridge, or by its
/// routes.
///
/// Other kinds of port than `packet` take the frames away from the kernel. What cannot be read about an
/// interface is left out, because the router does not need it.
pub(super) fn kernel_paths(
    namespace: &Namespace,
    names: &[String],
    choices: &[PortChoice],
) -> Vec<String> {
    let Ok(mut links) = namespace.links() else {
        return Vec::new();
    };
    let packet = registry::kind("packet").map(|kind| kind.name);
    let pairs = names.chunks_exact(2).zip(choices.chunks_exact(2));
    let shared =
        pairs.filter(|(_, kinds)| kinds.iter().all(|choice| Some(&*choice.kind) == packet));
    shared
        .flat_map(|(pair, _)| {
            let bridge = bridged(&mut links, pair).ok().flatten();
            bridge
                .into_iter()
                .chain(routed(&mut links, namespace, pair))
        })
        .collect()
}

/// Returns a sentence if both interfaces of `pair` belong to one bridge.
fn bridged(links: &mut Links, pair: &[String]) -> Result<Option<String>, LinkError> {
    let all = links.interfaces()?;
    let bridge_of = |name: &String| all.iter().find(|link| link.name == *name)?.bridge;
    let (Some(left), Some(right)) = (bridge_of(&pair[0]), bridge_of(&pair[1])) else {
        return Ok(None);
    };
    let bridge = all.iter().find(|link| link.index == left && left == right);
    Ok(bridge.map(|bridge| {
        format!(
            "the kernel's bridge {bridge} also connects {one} and {other}: each frame arrives twice, \
             once past the queues; `ip link set {one} nomaster` takes {one} out of the bridge",
            bridge = bridge.name,
            one = pair[0],
            other = pair[1],
        )
    }))
}

/// Returns a sentence for each protocol that the kernel routes between the interfaces of `pair`.
fn routed(links: &mut Links, namespace: &Namespace, pair: &[String]) -> Vec<String> {
    let [Ok(left), Ok(right)] = [0, 1].map(|end| links.addresses(&pair[end])) else {
        return Vec::new();
    };
    let has = |addresses: &[IpAddr], is_it: IsOf| {
        addresses
            .iter()
            .any(|address| is_it(address) && !is_of_link(address))
    };
    let routes = ROUTES.iter().filter(|(setting, is_it)| {
        let is_on = || namespace.sysctl(setting).is_ok_and(|value| value != "0");
        has(&left, *is_it) && has(&right, *is_it) && is_on()
    });
    routes
        .map(|(setting, _)| {
            format!(
                "{} and {} have addresses, and {setting} is on: what the kernel routes between them \
                 passes no queue; `sluice router --forward` shapes it",
                pair[0], pair[1],
            )
        })
        .collect()
}
