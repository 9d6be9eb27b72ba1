//! Two hosts on a wire and the kernel's queue at the first one's output.

use super::{mac, require_privilege, wire};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, VethEnd, create_veth};
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::{NfqueuePort, Pool, PoolSize, Port, Slot, Spin, Waiter};
use std::net::{IpAddr, Ipv4Addr};

pub const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 24, 0, 2));
pub const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 24, 0, 3));

/// Two hosts on one wire.
pub fn hosts() -> (Namespace, Namespace) {
    require_privilege();
    let (h2, h3) = (
        Namespace::create("h2").unwrap(),
        Namespace::create("h3").unwrap(),
    );
    let end = |namespace, number| VethEnd {
        namespace,
        name: "eth0",
        mac: mac(number),
    };
    create_veth(end(&h2, 2), end(&h3, 3)).unwrap();
    for (host, own, peer, number) in [(&h2, H2, H3, 3), (&h3, H3, H2, 2)] {
        host.silence_ipv6().unwrap();
        let mut links = host.links().unwrap();
        links.set_up("lo", true).unwrap();
        links.set_up("eth0", true).unwrap();
        links.add_address("eth0", own, 24).unwrap();
        links.add_neighbour("eth0", peer, mac(number)).unwrap();
    }
    (h2, h3)
}

pub fn open(h2: &Namespace, options: NfqueueOptions) -> NfqueuePort {
    let traffic = Traffic {
        hooks: vec![Hook::Output],
        leaving: vec!["eth0".to_owned()],
        ..Traffic::default()
    };
    let options = NfqueueOptions {
        traffic: Some(traffic),
        ..options
    };
    NfqueuePort::open(h2, &options).unwrap()
}

pub fn pool() -> Pool {
    Pool::new(PoolSize {
        slots: 1024,
        large: 64,
    })
    .unwrap()
}

/// Processes batches until `enough` returns true or the time is over.
pub fn serve(
    port: &mut NfqueuePort,
    pool: &mut Pool,
    seconds: u64,
    mut work: impl FnMut(&mut NfqueuePort, &mut Pool, &mut Vec<Slot>) -> bool,
) {
    let (clock, mut waiter) = (Clock::start(), Waiter::new(Spin::None));
    let end = Time::ZERO + Span::from_secs(seconds);
    let mut slots = Vec::new();
    while clock.now() < end {
        wire::wait(port, &mut waiter, clock.now() + Span::from_ms(10), &clock);
        port.receive(pool, &mut slots);
        if work(port, pool, &mut slots) {
            return;
        }
    }
}

/// Returns how many packets wait for a verdict.
pub fn waiting_in_kernel(namespace: &Namespace) -> u32 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue");
    let text = namespace.enter(read).unwrap().unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}
