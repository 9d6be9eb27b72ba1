//! Two connected interfaces, and functions that send and receive single frames.

use super::{mac, require_privilege};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::{LinkError, Namespace, VethEnd, create_veth};
use sluice_net::port::{Interest, Pool, Port, Slot, Spin, Waiter, Watch};
use sluice_wire::frame::VnetHeader;
use std::net::UdpSocket;
use std::os::fd::AsFd;

/// The namespace of both interfaces.
pub fn namespace() -> Namespace {
    require_privilege();
    let namespace = Namespace::create("wire").unwrap();
    namespace.silence_ipv6().unwrap();
    connect(&namespace);
    namespace
}

/// Returns a socket whose datagrams to [`FAR`] arrive on the right, in one frame if it is as long as `mtu` or
/// shorter.
pub fn long_sender(namespace: &Namespace, mtu: u32) -> UdpSocket {
    let mut links = namespace.links().unwrap();
    for end in ["left", "right"] {
        links.set_mtu(end, mtu).unwrap();
    }
    let (here, there) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
    links.add_address("left", here, 24).unwrap();
    links.add_neighbour("left", there, mac(2)).unwrap();
    let bind = || UdpSocket::bind((here, 0)).unwrap();
    namespace.enter(bind).unwrap()
}

/// Where [`long_sender`] sends to.
pub const FAR: &str = "10.9.0.2:9";

/// Creates `left` and `right` and sets both up.
pub fn connect(namespace: &Namespace) {
    connect_as(namespace, ["left", "right"]);
}

/// Creates two connected interfaces and sets both up.
pub fn connect_as(namespace: &Namespace, [one, other]: [&str; 2]) {
    let end = |name, number| VethEnd {
        namespace,
        name,
        mac: mac(number),
    };
    create_veth(end(one, 1), end(other, 2)).unwrap();
    let mut links = namespace.links().unwrap();
    links.set_up(one, true).unwrap();
    links.set_up(other, true).unwrap();
}

/// Renames an interface that is up. Returns whether the kernel can do that.
pub fn rename(namespace: &Namespace, name: &str, to: &str) -> bool {
    match namespace.links().unwrap().rename(name, to) {
        Err(LinkError::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => {
            eprintln!("NOT SHOWN: this needs Linux 6.2, which renames interfaces that are up");
            false
        }
        result => {
            result.unwrap();
            true
        }
    }
}

/// A frame of an experimental type (IEEE 802, 0x88b5), so that no stack answers it.
pub fn frame(tags: &[[u8; 4]], length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(tags.iter().flatten());
    frame.extend([0x88, 0xb5]);
    frame.extend((0..).map(|number: usize| number as u8).take(length));
    frame
}

/// Puts a frame into a slot.
pub fn put(pool: &mut Pool, frame: &[u8]) -> Slot {
    let slot = pool.allocate().unwrap();
    pool.room_mut(slot)[..frame.len()].copy_from_slice(frame);
    pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
    slot
}

/// Puts each frame into a slot.
pub fn put_all(pool: &mut Pool, frames: &[Vec<u8>]) -> Vec<Slot> {
    frames.iter().map(|frame| put(pool, frame)).collect()
}

/// Waits until a frame can be received, or until `deadline`.
pub fn wait(port: &impl AsFd, waiter: &mut Waiter, deadline: Time, clock: &Clock) {
    let watch = Watch {
        descriptor: port.as_fd(),
        interest: Interest::Readable,
    };
    waiter.wait(&[watch], Some(deadline), clock);
}

/// Receives until there are `count` frames, for at most a second.
pub fn receive(port: &mut impl Port, pool: &mut Pool, count: usize) -> Vec<Slot> {
    receive_for(port, pool, count, Span::from_secs(1))
}

/// Receives until there are `count` frames, for at most `most`.
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

/// Returns the bytes of the first frame, and frees all slots.
pub fn take_first(pool: &mut Pool, slots: Vec<Slot>) -> Option<Vec<u8>> {
    let frame = slots.first().map(|slot| pool.head(*slot).to_vec());
    slots.into_iter().for_each(|slot| pool.free(slot));
    frame
}
