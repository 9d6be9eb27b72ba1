//! Two connected interfaces for the unit tests of ports.

use super::{Pool, Port};
use crate::namespace::{Mac, Namespace, Offloads, VethEnd, create_veth};
use sluice_wire::frame::VnetHeader;
use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::time::{Duration, Instant};

/// Creates a namespace with `left` and `right`, which send single packets; `None`, with a message,
/// where that is not allowed.
pub(super) fn wire() -> Option<Namespace> {
    let Ok(namespace) = Namespace::create("wire") else {
        assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
        eprintln!("NOT SHOWN: this needs a network namespace (CAP_SYS_ADMIN)");
        return None;
    };
    namespace.silence_ipv6().unwrap();
    connect(&namespace);
    Some(namespace)
}

/// Creates `left` and `right`, and sets both up.
pub(super) fn connect(namespace: &Namespace) {
    let end = |name, number| VethEnd {
        namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    };
    create_veth(end("left", 1), end("right", 2)).unwrap();
    let mut links = namespace.links().unwrap();
    for name in ["left", "right"] {
        links.set_up(name, true).unwrap();
        namespace.set_offloads(name, Offloads::OFF).unwrap();
    }
}

/// Opens a socket that receives the frames of an interface, within 10 s.
pub(super) fn raw_socket(namespace: &Namespace, interface: &str) -> Socket {
    let open = || Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let socket = namespace.enter(open).unwrap();
    let index = namespace
        .links()
        .unwrap()
        .interface(interface)
        .unwrap()
        .index;
    super::packet::bind(&socket, index, super::packet::protocol(true)).unwrap();
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// A frame of an experimental type (IEEE 802, 0x88b5).
pub(super) fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(60, number);
    frame
}

pub(super) fn send_one(port: &mut impl Port, pool: &mut Pool, frame: &[u8]) {
    let slot = pool.allocate().unwrap();
    pool.room_mut(slot)[..frame.len()].copy_from_slice(frame);
    pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
    assert_eq!(port.transmit(pool, &[slot]), 1);
}

pub(super) fn receive_one(socket: &mut Socket) -> Vec<u8> {
    let mut bytes = vec![0; 2000];
    let length = socket.read(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Calls `is_done` until it returns true.
pub(super) fn within_10_s(mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < end, "it takes longer than 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
