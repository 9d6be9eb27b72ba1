//! Ports whose interface is removed and created again, while calls fail.

use std::fmt::Display;
use std::thread::sleep;
use std::time::Duration;

use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{PacketPort, Pool, Port, XdpPort};

use super::common::wire::{self, frame};
use super::interpose::{armed, exempt};
use super::parts::{Part, part};
use super::{Far, SIZE, descriptors, eventually, exhaust, free, send};

fn a_port_comes_back<P: Port, E: Display + std::fmt::Debug>(
    part: Part,
    open: impl Fn(&Namespace, &mut Pool) -> Result<P, E>,
) {
    let namespace = wire::namespace();
    let silence = || {
        for end in ["left", "right"] {
            namespace.set_offloads(end, Offloads::OFF).unwrap();
        }
    };
    let mut pool = Pool::new(SIZE).unwrap();
    let single = frame(&[], 100);
    exhaust(part, |call, error| {
        let open_before = descriptors();
        silence();
        let mut port = open(&namespace, &mut pool).unwrap();
        let mut got = Vec::new();
        namespace.links().unwrap().remove("left").unwrap();
        wire::connect(&namespace);
        silence();
        let mut far = Far::new(&namespace);
        armed(call, error, || {
            // It looks every 100 ms.
            for _ in 0..30 {
                send(&mut port, &mut pool, std::slice::from_ref(&single));
                exempt(|| far.send(&single));
                if port.receive(&mut pool, &mut got) > 0 {
                    break;
                }
                sleep(Duration::from_millis(10));
            }
        });
        free(&mut pool, &mut got);
        far.clear();
        eventually("the port sends again", || {
            send(&mut port, &mut pool, std::slice::from_ref(&single));
            port.receive(&mut pool, &mut got);
            free(&mut pool, &mut got);
            far.has(&single)
        });
        eventually("the port receives again", || {
            far.send(&single);
            port.receive(&mut pool, &mut got) > 0
        });
        free(&mut pool, &mut got);
        port.release(&mut pool);
        drop((port, far));
        assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
        assert_eq!(pool.available_large(), SIZE.large as usize);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn a_packet_port_finds_its_interface_again() {
    let Some(part) = part!("packet returns", 12) else {
        return;
    };
    a_port_comes_back(part, |namespace, _| {
        PacketPort::open(namespace, "left", PacketOptions::default())
    });
}

#[test]
fn an_xdp_port_finds_its_interface_again() {
    let Some(part) = part!("xdp returns", 18) else {
        return;
    };
    a_port_comes_back(part, |namespace, pool| {
        let options = XdpOptions {
            ready: 64,
            ..XdpOptions::default()
        };
        XdpPort::open(namespace, "left", pool, options)
    });
}
