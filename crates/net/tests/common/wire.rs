//! Two interfaces that are each other's wire, and what goes over them frame by frame.

use super::{mac, require_privilege};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::frame::VnetHeader;
use sluice_net::namespace::{Namespace, VethEnd, create_veth};
use sluice_net::port::{Interest, Pool, Port, Slot, Spin, Waiter, Watch};
use std::os::fd::AsFd;

/// A namespace with both.
pub fn namespace() -> Namespace {
    require_privilege();
    let namespace = Namespace::create("wire").unwrap();
    namespace.silence_ipv6().unwrap();
    connect(&namespace);
    namespace
}

/// Makes `left` and `right`, both up.
pub fn connect(namespace: &Namespace) {
    let end = |name, number| VethEnd {
        namespace,
        name,
        mac: mac(number),
    };
    create_veth(end("left", 1), end("right", 2)).unwrap();
    let mut links = namespace.links().unwrap();
    links.set_up("left", true).unwrap();
    links.set_up("right", true).unwrap();
}

/// A frame of an experimental type (IEEE 802, 0x88b5), so that no stack answers it.
pub fn frame(tags: &[[u8; 4]], length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(tags.iter().flatten());
    frame.extend([0x88, 0xb5]);
    frame.extend((0..).map(|number: usize| number as u8).take(length));
    frame
}

/// TCP segments that follow each other, with payloads of these lengths and every checksum right (the last one's
/// PSH is set). The addresses are nobody's here, so no stack answers them.
pub fn segments(is_v6: bool, tags: &[[u8; 4]], lengths: &[usize]) -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..lengths.iter().sum::<usize>())
        .map(|at| (at % 251) as u8)
        .collect();
    let mut start = 0;
    let segment = |(number, length): (usize, &usize)| {
        let payload = &payload[start..start + length];
        let mut tcp = etherparse::TcpHeader::new(4000, 5000, 7 + start as u32, 512);
        (tcp.ack, tcp.acknowledgment_number) = (true, 99);
        tcp.psh = number + 1 == lengths.len();
        tcp.set_options_raw(&[1; 12]).unwrap();
        start += length;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(tags.iter().flatten());
        let tcp_len = (tcp.header_len() + length) as u16;
        if is_v6 {
            let ip = etherparse::Ipv6Header {
                payload_length: tcp_len,
                next_header: etherparse::IpNumber::TCP,
                hop_limit: 60,
                source: [0xfd; 16],
                destination: [0xfc; 16],
                ..etherparse::Ipv6Header::default()
            };
            tcp.checksum = tcp.calc_checksum_ipv6(&ip, payload).unwrap();
            frame.extend([0x86, 0xdd]);
            ip.write(&mut frame).unwrap();
        } else {
            let protocol = etherparse::IpNumber::TCP;
            let (from, to) = ([192, 0, 2, 1], [192, 0, 2, 2]);
            let mut ip = etherparse::Ipv4Header::new(tcp_len, 60, protocol, from, to).unwrap();
            ip.identification = 65_534_u16.wrapping_add(number as u16);
            ip.header_checksum = ip.calc_header_checksum();
            tcp.checksum = tcp.calc_checksum_ipv4(&ip, payload).unwrap();
            frame.extend([8, 0]);
            ip.write(&mut frame).unwrap();
        }
        tcp.write(&mut frame).unwrap();
        frame.extend(payload);
        frame
    };
    lengths.iter().enumerate().map(segment).collect()
}

/// Puts a frame into a slot.
pub fn put(pool: &mut Pool, frame: &[u8]) -> Slot {
    let slot = pool.allocate().unwrap();
    pool.room_mut(slot)[..frame.len()].copy_from_slice(frame);
    pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
    slot
}

/// Waits until there is something to read, or until `deadline`.
pub fn wait(port: &impl AsFd, waiter: &mut Waiter, deadline: Time, clock: &Clock) {
    let watch = Watch {
        descriptor: port.as_fd(),
        interest: Interest::Readable,
    };
    waiter.wait(&[watch], Some(deadline), clock);
}

/// Receives until there are `count` frames, for a second at most.
pub fn receive(port: &mut impl Port, pool: &mut Pool, count: usize) -> Vec<Slot> {
    receive_for(port, pool, count, Span::from_secs(1))
}

/// Receives until there are `count` frames, for `most` at most.
pub fn receive_for(port: &mut impl Port, pool: &mut Pool, count: usize, most: Span) -> Vec<Slot> {
    let (clock, mut waiter) = (Clock::start(), Waiter::new(Spin::None));
    let end = Time::ZERO + most;
    let mut slots = Vec::new();
    port.receive(pool, &mut slots);
    while slots.len() < count && clock.now() < end {
        wait(port, &mut waiter, end, &clock);
        port.receive(pool, &mut slots);
    }
    slots
}

/// The bytes of the first frame, and every slot back.
pub fn take_first(pool: &mut Pool, slots: Vec<Slot>) -> Option<Vec<u8>> {
    let frame = slots.first().map(|slot| pool.head(*slot).to_vec());
    slots.into_iter().for_each(|slot| pool.free(slot));
    frame
}
