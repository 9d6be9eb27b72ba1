//! Keeping the way of a packet in the processor's caches.
//!
//! A loop that stays awake may have had nothing to forward for milliseconds. Then its next packet runs through code that
//! is in no cache any more, most of it the kernel's. So the loop sends something by the same way meanwhile, where nobody
//! sees it: over the loopback interface of a network namespace that has nothing else and ends with the loop.
//!
//! It is an ICMP timestamp request (RFC 792), which the kernel answers by itself: so receiving, routing and sending run,
//! as they do where hosts are on the same machine. The answer, for which nobody waits, is no drop, as that to an echo
//! request would be: who traces the drops of the machine sees none.

use super::packet::{PacketOptions, PacketPort};
use super::{Pool, PoolSize, Port as _};
use crate::frame::VnetHeader;
use crate::namespace::Namespace;
use etherparse::icmpv4::TimestampMessage;
use etherparse::{Icmpv4Type, PacketBuilder};
use sluice_core::{Span, Time};
use std::net::Ipv4Addr;

/// Sends something that nobody sees, while a loop has nothing to do.
pub struct Warmth {
    port: PacketPort,
    pool: Pool,
    request: Vec<u8>,
    /// When something was sent last.
    sent: Time,
}

impl Warmth {
    /// Makes the place where it goes, unless the process may make no namespace (CAP_SYS_ADMIN), or may not set
    /// what is needed there.
    pub fn open() -> Option<Warmth> {
        Warmth::open_in(&Namespace::create("warmth").ok()?)
    }

    fn open_in(namespace: &Namespace) -> Option<Warmth> {
        let mut links = namespace.links().ok()?;
        links.set_up(INTERFACE, true).ok()?;
        for address in [HERE, THERE] {
            links.add_address(INTERFACE, address.into(), 32).ok()?;
        }
        // Both ends are this one, which the kernel takes for forged otherwise.
        namespace
            .set_sysctl("net.ipv4.conf.lo.accept_local", "1")
            .ok()?;
        let options = PacketOptions {
            batch: 1,
            ring: 0,
            receive_buffer: 0,
            send_buffer: SEND_BUFFER,
            trains: false,
            receives: false,
            ..PacketOptions::default()
        };
        let size = PoolSize { slots: 1, large: 1 };
        Some(Warmth {
            port: PacketPort::open(namespace, INTERFACE, options).ok()?,
            pool: Pool::new(size).ok()?,
            request: request(),
            sent: Time::ZERO,
        })
    }

    /// Sends a request if it is time for one, and nothing is due soon.
    pub fn keep(&mut self, now: Time, deadline: Option<Time>) {
        if is_due(self.sent, now, deadline) {
            self.sent = now;
            self.send();
        }
    }

    /// Something else was sent at that time.
    pub const fn sent_else(&mut self, now: Time) {
        self.sent = now;
    }

    fn send(&mut self) {
        let Some(slot) = self.pool.allocate() else {
            return;
        };
        let length = self.request.len();
        self.pool.room_mut(slot)[..length].copy_from_slice(&self.request);
        self.pool
            .set_frame(slot, length as u32, VnetHeader::default());
        if self.port.transmit(&mut self.pool, &[slot]) == 0 {
            self.pool.free(slot);
        }
    }
}

fn is_due(sent: Time, now: Time, deadline: Option<Time>) -> bool {
    now >= sent + EVERY && deadline.is_none_or(|deadline| deadline >= now + AHEAD)
}

fn request() -> Vec<u8> {
    let times = TimestampMessage {
        id: 1,
        seq: 1,
        originate_timestamp: 0,
        receive_timestamp: 0,
        transmit_timestamp: 0,
    };
    // The loopback interface has the address of all zeros.
    let packet = PacketBuilder::ethernet2([0; 6], [0; 6])
        .ipv4(HERE.octets(), THERE.octets(), 64)
        .icmpv4(Icmpv4Type::TimestampRequest(times));
    let mut frame = Vec::with_capacity(packet.size(0));
    packet
        .write(&mut frame, &[])
        .expect("a vector takes what is written");
    frame
}

const INTERFACE: &str = "lo";
/// TEST-NET-1 (RFC 5737).
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Room for some requests.
const SEND_BUFFER: usize = 16 << 10;
/// Idle round trips are longer with 0.2 ms; a request takes some microseconds.
const EVERY: Span = Span::from_us(50);
/// A request may take so long, where an interrupt comes in between.
const AHEAD: Span = Span::from_us(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of the namespace, as the kernel names it (RFC 1213).
    fn counter(namespace: &Namespace, protocol: &str, name: &str) -> u64 {
        let told = namespace
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
            .unwrap()
            .unwrap();
        let mut lines = told.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|other| other == name).unwrap();
        values.split(' ').nth(place).unwrap().parse().unwrap()
    }

    /// As root, which CI is. RFC 792: a reply to each request.
    #[test]
    fn the_kernel_answers_each_request_and_drops_nothing() {
        let namespace = Namespace::create("warmth").expect("this needs CAP_SYS_ADMIN");
        let mut warmth = Warmth::open_in(&namespace).expect("this needs CAP_NET_RAW");
        let mut now = Time::ZERO + EVERY;
        for _ in 0..100 {
            warmth.keep(now, None);
            now = now + EVERY;
        }
        let names = ["InTimestamps", "InTimestampReps"];
        let counts = names.map(|name| counter(&namespace, "Icmp:", name));
        assert_eq!(counts, [100; 2]);
        assert_eq!(counter(&namespace, "Icmp:", "InErrors"), 0);
        // Requests and replies.
        for name in ["InReceives", "InDelivers"] {
            assert_eq!(counter(&namespace, "Ip:", name), 200, "{name}");
        }
        assert_eq!(warmth.pool.available(), 1);
        assert_eq!(warmth.port.counters().sent, 100);
    }

    #[test]
    fn a_request_is_sent_every_50_us_unless_something_is_due_or_was_sent() {
        let at = |us| Time::ZERO + Span::from_us(us);
        assert!(is_due(at(100), at(150), None));
        assert!(!is_due(at(101), at(150), None), "49 us");
        assert!(is_due(at(100), at(150), Some(at(180))));
        assert!(!is_due(at(100), at(150), Some(at(179))), "due in 29 us");
        assert!(!is_due(at(100), at(150), Some(at(140))), "overdue");
    }
}
