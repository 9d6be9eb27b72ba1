//! Keeping the kernel's code for sending and receiving a packet in the processor's caches.
//!
//! A busy-polling loop may have had nothing to forward for milliseconds. The next packet then runs
//! code that has left the caches, most of it the kernel's. Therefore an idle loop sends packets of
//! its own, from an AF_PACKET socket over the loopback interface of an otherwise empty network
//! namespace that ends with the loop.
//!
//! Each packet is an ICMP timestamp request (RFC 792), which the kernel itself answers: receiving,
//! routing and sending all run, as they do between hosts on one machine. The unread answer does not
//! count as a drop, unlike that to an echo request (net/ipv4/icmp.c: `icmp_discard`), so tools that
//! trace the machine's drops see nothing.

use super::packet::{PacketOptions, PacketPort};
use super::{Pool, PoolSize, Port as _, Spin};
use crate::namespace::Namespace;
use sluice_core::{Span, Time};
use sluice_wire::frame::{Sum, VnetHeader};
use std::error::Error;
use std::net::Ipv4Addr;

/// Keeps the kernel's packet path in the caches while a loop is idle. Takes a network namespace and
/// a few descriptors.
pub struct CacheWarmer {
    port: PacketPort,
    pool: Pool,
    /// The instant of the last packet that the loop or the warmer sent.
    sent: Time,
}

impl CacheWarmer {
    /// Creates a warmer for a loop that always busy-polls, if the process may create namespaces
    /// (CAP_SYS_ADMIN) and configure them (`/proc/sys` is writable); `None` otherwise. Takes
    /// milliseconds.
    pub fn for_loop(spin: Spin) -> Option<CacheWarmer> {
        match spin {
            Spin::None | Spin::Adaptive => None,
            // Optional: without it packets take slightly longer.
            Spin::Always => CacheWarmer::open_in(&Namespace::create("warmer").ok()?).ok(),
        }
    }

    fn open_in(namespace: &Namespace) -> Result<CacheWarmer, Box<dyn Error>> {
        let mut links = namespace.links()?;
        links.set_up(INTERFACE, true)?;
        for address in [HERE, THERE] {
            links.add_address(INTERFACE, address.into(), 32)?;
        }
        // Both addresses are local; without this the kernel drops the packet as spoofed.
        namespace.set_sysctl("net.ipv4.conf.lo.accept_local", "1")?;
        let options = PacketOptions {
            batch: 1,
            receive_buffer: 0,
            send_buffer: SEND_BUFFER,
            trains: false,
            receives: false,
            ..PacketOptions::default()
        };
        Ok(CacheWarmer {
            port: PacketPort::open(namespace, INTERFACE, options)?,
            pool: Pool::new(PoolSize { slots: 1, large: 1 })?,
            sent: Time::ZERO,
        })
    }

    /// Sends a request if one is due and no packet is due soon; returns whether it did.
    pub fn send_if_due(&mut self, now: Time, deadline: Option<Time>) -> bool {
        let is_due = is_due(self.sent, now, deadline);
        if is_due {
            self.sent = now;
            self.send();
        }
        is_due
    }

    /// Records that the loop has sent a packet at `now`, which makes a request unnecessary.
    pub const fn note_sent(&mut self, now: Time) {
        self.sent = now;
    }

    /// Returns the number of requests that the kernel has accepted.
    pub fn requests(&mut self) -> u64 {
        self.port.counters().sent
    }

    fn send(&mut self) {
        let Some(slot) = self.pool.allocate() else {
            return;
        };
        let request = request();
        self.pool.room_mut(slot)[..request.len()].copy_from_slice(&request);
        self.pool
            .set_frame(slot, request.len() as u32, VnetHeader::default());
        if self.port.transmit(&mut self.pool, &[slot]) == 0 {
            self.pool.free(slot);
        }
    }
}

fn is_due(sent: Time, now: Time, deadline: Option<Time>) -> bool {
    now >= sent + EVERY && deadline.is_none_or(|deadline| deadline >= now + AHEAD)
}

/// Ethernet, IPv4 (RFC 791), ICMP.
fn request() -> [u8; 14 + 20 + 20] {
    let mut frame = [0; 14 + 20 + 20];
    // The addresses of the loopback interface are all zeros.
    let (ethernet, packet) = frame.split_at_mut(14);
    ethernet[12..].copy_from_slice(&0x0800_u16.to_be_bytes());
    let (ip, icmp) = packet.split_at_mut(20);
    // Version 4, a header of five words; total length; do not fragment.
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&40_u16.to_be_bytes());
    ip[6] = 0x40;
    // Hop limit, and the protocol number of ICMP.
    ip[8..10].copy_from_slice(&[64, 1]);
    ip[12..16].copy_from_slice(&HERE.octets());
    ip[16..].copy_from_slice(&THERE.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum);
    // "Timestamp"; identifier, number and times are zero.
    icmp[0] = 13;
    let sum = checksum(icmp);
    icmp[2..4].copy_from_slice(&sum);
    frame
}

fn checksum(header: &[u8]) -> [u8; 2] {
    let mut sum = Sum::new();
    sum.add(header);
    sum.finish().to_be_bytes()
}

const INTERFACE: &str = "lo";
/// TEST-NET-1 (RFC 5737).
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Room for some requests.
const SEND_BUFFER: usize = 16 << 10;
const EVERY: Span = Span::from_us(50);
/// Longer than a request takes, unless the kernel interrupts it.
const AHEAD: Span = Span::from_us(30);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A counter of the namespace, as the kernel names it (RFC 1213).
    fn counter(namespace: &Namespace, protocol: &str, name: &str) -> u64 {
        let text = namespace
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
            .unwrap()
            .unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|other| other == name).unwrap();
        values.split(' ').nth(place).unwrap().parse().unwrap()
    }

    /// RFC 792: a reply to each request.
    #[test]
    fn the_kernel_answers_each_request() {
        let Ok(namespace) = Namespace::create("warmer") else {
            assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
            eprintln!("NOT SHOWN: this needs a network namespace (CAP_SYS_ADMIN)");
            return;
        };
        let mut warmer = CacheWarmer::open_in(&namespace).unwrap();
        let mut now = Time::ZERO + EVERY;
        for _ in 0..100 {
            assert!(warmer.send_if_due(now, None));
            now += EVERY;
        }
        assert_eq!(warmer.requests(), 100);
        assert_eq!(warmer.pool.available(), 1);
        // A busy kernel may take its time.
        let end = Instant::now() + Duration::from_secs(10);
        while counter(&namespace, "Icmp:", "InTimestampReps") < 100 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let names = ["InTimestamps", "InTimestampReps", "InMsgs", "InErrors"];
        let counts = names.map(|name| counter(&namespace, "Icmp:", name));
        assert_eq!(counts, [100, 100, 200, 0]);
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
