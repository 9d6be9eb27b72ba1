//! Every system call of a port fails once, with errors that the kernel may return.
//!
//! A scenario opens a port, passes frames in both directions and closes it. It runs again and again,
//! and each time another of its calls fails. Whatever fails: nothing panics or hangs, a port that cannot be
//! opened says why, every slot returns, every frame that was to be sent is counted, no descriptor
//! stays open, and afterwards the port works. The same holds for the rest of the crate that end hosts
//! and set-ups use. [`sites`] lists all functions that make system calls, and the test of each. [`steps`] steps
//! the clock of the kernel's stamps instead.
//!
//! The tests need root or its capabilities, and fail without them.

#[path = "../processes/calls.rs"]
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod hosts;
mod interpose;
mod loops;
mod parts;
mod returns;
mod sites;
mod steps;

use std::ffi::c_int;
use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::queue;
use common::segments::{V6, flow};
use common::wire::{self, frame, put_all};
use interpose::{armed, exempt, failed};
use parts::{Part, part};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{
    Interest, Loss, NfqueuePort, PacketPort, Pool, PoolSize, Port, Slot, Spin, TunPort, Waiter,
    Watch, XdpPort,
};
use sluice_wire::frame::Link;

/// The errors that each call returns in turn.
const ERRORS: [(&str, c_int); 6] = [
    ("EINTR", libc::EINTR),
    ("ENOBUFS", libc::ENOBUFS),
    ("ENOMEM", libc::ENOMEM),
    ("EMFILE", libc::EMFILE),
    ("EAGAIN", libc::EAGAIN),
    ("ENETDOWN", libc::ENETDOWN),
];

/// Runs the cases of a part: `scenario` once for each of its calls and each error. Each call fails with two
/// of the six errors, unless `SLUICE_EVERY_ERROR` is set.
///
/// The parent fails if a call of a function that [`sites`] assigns to this scenario has never failed.
fn exhaust(part: Part, mut scenario: impl FnMut(u32, c_int)) {
    for ((name, error), calls) in part.cases() {
        for call in calls {
            eprintln!("{}: {name} at call {call}", part.what);
            let failures = failed().values().sum::<u32>();
            scenario(call, error);
            // A scenario makes a few calls more or less, as helpers are faster or slower.
            if failed().values().sum::<u32>() == failures {
                break;
            }
        }
    }
    part.report();
}

/// Returns the number of open descriptors.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until `is_done`; helpers may still be at work.
fn eventually(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(2));
    }
}

fn said<T, E: Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(port) => Some(port),
        Err(error) => {
            assert!(error.to_string().len() > 10, "{error}");
            None
        }
    }
}

/// Sends `frames`. Returns how many were taken; the others are freed.
fn send(port: &mut impl Port, pool: &mut Pool, frames: &[Vec<u8>]) -> u64 {
    let slots = put_all(pool, frames);
    let taken = port.transmit(pool, &slots);
    assert!(taken <= slots.len());
    slots[taken..].iter().for_each(|slot| pool.free(*slot));
    taken as u64
}

fn free(pool: &mut Pool, slots: &mut Vec<Slot>) {
    slots.drain(..).for_each(|slot| pool.free(slot));
}

/// The end of a wire that is not tested.
struct Far {
    port: PacketPort,
    pool: Pool,
}

impl Far {
    fn new(namespace: &Namespace) -> Far {
        Far {
            port: PacketPort::open(namespace, "right", PacketOptions::default()).unwrap(),
            pool: Pool::new(SIZE).unwrap(),
        }
    }

    fn send(&mut self, sent: &[u8]) {
        send(&mut self.port, &mut self.pool, &[sent.to_vec()]);
    }

    fn clear(&mut self) {
        let mut slots = Vec::new();
        while self.port.receive(&mut self.pool, &mut slots) > 0 {}
        free(&mut self.pool, &mut slots);
    }

    /// Returns whether this frame has arrived.
    fn has(&mut self, expected: &[u8]) -> bool {
        let mut slots = Vec::new();
        self.port.receive(&mut self.pool, &mut slots);
        let found = slots.iter().any(|slot| self.pool.head(*slot) == expected);
        free(&mut self.pool, &mut slots);
        found
    }
}

const SIZE: PoolSize = PoolSize {
    slots: 256,
    large: 256,
};

/// A port on `left`, with a failing call.
fn on_a_wire<P: Port, E: Display>(
    part: Part,
    open: impl Fn(&Namespace, &mut Pool) -> Result<P, E>,
) {
    let namespace = wire::namespace();
    for end in ["left", "right"] {
        namespace.set_offloads(end, Offloads::OFF).unwrap();
    }
    let mut far = Far::new(&namespace);
    let mut pool = Pool::new(SIZE).unwrap();
    let (single, train) = (frame(&[], 100), flow(V6, &[1000; 4]));
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let mut offered = 0;
        let mut got = Vec::new();
        let (port, _) = armed(call, error, || {
            let mut port = said(open(&namespace, &mut pool))?;
            exempt(|| (0..4).for_each(|_| far.send(&single)));
            offered += send(&mut port, &mut pool, &train);
            for _ in 0..3 {
                offered += send(&mut port, &mut pool, std::slice::from_ref(&single));
                port.receive(&mut pool, &mut got);
            }
            port.counters();
            Some(port)
        });
        if let Some(mut port) = port {
            far.clear();
            let (mut waiter, clock) = (Waiter::new(Spin::None), Clock::start());
            eventually("the port sends again", || {
                offered += send(&mut port, &mut pool, std::slice::from_ref(&single));
                wire::wait(&port, &mut waiter, clock.now() + Span::from_ms(1), &clock);
                port.receive(&mut pool, &mut got);
                free(&mut pool, &mut got);
                far.has(&single)
            });
            eventually("the port receives again", || {
                far.send(&single);
                wire::wait(&port, &mut waiter, clock.now() + Span::from_ms(1), &clock);
                port.receive(&mut pool, &mut got) > 0
            });
            free(&mut pool, &mut got);
            port.release(&mut pool);
            let counters = port.counters();
            assert!(counters.sent <= offered, "{counters:?}, {offered} offered");
            let known = counters.sent + counters.lost_total();
            assert!(known >= offered, "{counters:?}, {offered} offered");
        }
        assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
        assert_eq!(pool.available_large(), SIZE.large as usize);
        // The old one may have opened a connection for its name meanwhile.
        far = Far::new(&namespace);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn a_packet_port_survives_every_failing_call() {
    let Some(part) = part!("packet", 6) else {
        return;
    };
    on_a_wire(part, |namespace, _| {
        let options = PacketOptions {
            timestamps: Some(Clock::start()),
            ..PacketOptions::default()
        };
        PacketPort::open(namespace, "left", options)
    });
}

#[test]
fn a_packet_port_without_a_ring_survives_every_failing_call() {
    let Some(part) = part!("packet, no ring", 3) else {
        return;
    };
    on_a_wire(part, |namespace, _| {
        let options = PacketOptions {
            ring: 0,
            ..PacketOptions::default()
        };
        PacketPort::open(namespace, "left", options)
    });
}

#[test]
fn an_xdp_port_survives_every_failing_call() {
    let Some(part) = part!("xdp", 4) else { return };
    on_a_wire(part, |namespace, pool| {
        let options = XdpOptions {
            ready: 64,
            ..XdpOptions::default()
        };
        XdpPort::open(namespace, "left", pool, options)
    });
}

/// The first call of `transmit` is the one that makes the kernel send.
#[test]
fn a_frame_for_which_the_kernel_has_no_room_leaves_without_another_one() {
    let Some(part) = part!("xdp rest", 1) else {
        return;
    };
    let namespace = wire::namespace();
    let mut far = Far::new(&namespace);
    let mut pool = Pool::new(SIZE).unwrap();
    let options = XdpOptions {
        ready: 64,
        trains: false,
        ..XdpOptions::default()
    };
    for (number, (name, error)) in (100..).zip(ERRORS) {
        let single = frame(&[], number);
        let mut port = XdpPort::open(&namespace, "left", &mut pool, options).unwrap();
        let (taken, _) = armed(0, error, || {
            send(&mut port, &mut pool, std::slice::from_ref(&single))
        });
        assert_eq!(taken, 1);
        let mut got = Vec::new();
        eventually(name, || {
            port.receive(&mut pool, &mut got);
            free(&mut pool, &mut got);
            // An interface that is down is the only reason to lose it.
            match error {
                libc::ENETDOWN => port.counters().lost(Loss::Down) == 1,
                _ => far.has(&single),
            }
        });
        port.release(&mut pool);
    }
    assert_eq!(failed().get("sendto"), Some(&(ERRORS.len() as u32)));
    part.report();
}

#[test]
fn a_device_survives_every_failing_call() {
    let Some(part) = part!("tap", 2) else { return };
    common::require_privilege();
    let namespace = Namespace::create("device").unwrap();
    namespace.silence_ipv6().unwrap();
    let mut pool = Pool::new(SIZE).unwrap();
    let single = frame(&[], 100);
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let mut got = Vec::new();
        let (port, _) = armed(call, error, || {
            let options = TunOptions {
                link: Link::Ethernet,
                ..TunOptions::default()
            };
            let mut port = said(TunPort::create(&namespace, "tap0", options))?;
            exempt(|| namespace.links().unwrap().set_up("tap0", true)).unwrap();
            for _ in 0..3 {
                send(&mut port, &mut pool, std::slice::from_ref(&single));
                port.receive(&mut pool, &mut got);
            }
            port.counters();
            Some(port)
        });
        if let Some(mut port) = port {
            let before = port.counters().sent;
            eventually("the port sends again", || {
                send(&mut port, &mut pool, std::slice::from_ref(&single));
                port.counters().sent > before
            });
            free(&mut pool, &mut got);
            port.release(&mut pool);
        }
        assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
        assert_eq!(pool.available_large(), SIZE.large as usize);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn a_port_on_the_kernels_queue_survives_every_failing_call() {
    let Some(part) = part!("nfqueue", 2) else {
        return;
    };
    let (h2, h3) = queue::hosts();
    let bind =
        |host: &Namespace, address| host.enter(|| std::net::UdpSocket::bind((address, 0)).unwrap());
    let (sender, receiver) = (bind(&h2, queue::H2).unwrap(), bind(&h3, queue::H3).unwrap());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let mut pool = Pool::new(SIZE).unwrap();
    let options = NfqueueOptions {
        traffic: Some(Traffic {
            hooks: vec![Hook::Output],
            leaving: vec!["eth0".to_owned()],
            ..Traffic::default()
        }),
        interfaces: vec!["eth0".to_owned()],
        ..NfqueueOptions::default()
    };
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let mut got = Vec::new();
        let (port, _) = armed(call, error, || {
            let mut port = said(NfqueuePort::open(&h2, &options))?;
            for _ in 0..3 {
                exempt(|| sender.send(&[1; 100])).unwrap();
                port.receive(&mut pool, &mut got);
                let taken = port.transmit(&mut pool, &got);
                got.drain(..taken);
            }
            port.counters();
            Some(port)
        });
        if let Some(mut port) = port {
            let mut buffer = [0; 200];
            while receiver.recv(&mut buffer).is_ok() {}
            eventually("packets get their verdicts again", || {
                let _ = sender.send(&[2; 100]);
                port.receive(&mut pool, &mut got);
                let taken = port.transmit(&mut pool, &got);
                got.drain(..taken);
                receiver.recv(&mut buffer).is_ok()
            });
            eventually("no packet waits for a verdict", || {
                port.receive(&mut pool, &mut got);
                let taken = port.transmit(&mut pool, &got);
                got.drain(..taken);
                queue::waiting_in_kernel(&h2) == 0
            });
            port.release(&mut pool);
        }
        assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
        assert_eq!(pool.available_large(), SIZE.large as usize);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

/// After a failed request, the next one gets its own answer and not one to an earlier request.
#[test]
fn requests_about_interfaces_survive_every_failing_call() {
    let Some(part) = part!("links", 1) else {
        return;
    };
    let namespace = wire::namespace();
    let index = |name: &str| namespace.links().unwrap().interface(name).unwrap().index;
    let (left, right) = (index("left"), index("right"));
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let (links, _) = armed(call, error, || {
            let mut links = said(namespace.links())?;
            said(
                links
                    .interface("left")
                    .map(|link| assert_eq!(link.index, left)),
            );
            said(links.set_mtu("left", 1400));
            said(
                links
                    .interface("nosuch")
                    .map(|_| panic!("there is no such interface")),
            );
            said(links.addresses("left"));
            said(links.interfaces().map(|all| assert_eq!(all.len(), 3)));
            let settings = said(namespace.device_settings("left"))?;
            said(settings.offloads());
            said(settings.queues());
            Some(links)
        });
        if let Some(mut links) = links {
            assert_eq!(links.interface("right").unwrap().index, right);
            assert!(links.interface("nosuch").is_err());
            assert_eq!(links.interface("left").unwrap().index, left);
        }
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn a_wait_ends_at_its_deadline_whatever_fails() {
    if part!("wait", 1).is_none() {
        return;
    }
    common::require_privilege();
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let clock = Clock::start();
    for (name, error) in ERRORS {
        for call in 0..3 {
            let mut waiter = Waiter::new(Spin::None);
            let deadline = clock.now() + Span::from_ms(2);
            let watch = Watch {
                descriptor: std::os::fd::AsFd::as_fd(&near),
                interest: Interest::Readable,
            };
            let (wake, _) = armed(call, error, || {
                waiter.wait(&[watch], Some(deadline), &clock)
            });
            assert_eq!(wake.ready, 0, "{name}");
            assert!(wake.now >= deadline, "{name}");
        }
    }
    assert!(clock.now() > Time::ZERO);
}
