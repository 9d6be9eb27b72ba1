//! What packet loops use besides a port: several ports on one interface, injectors, waits.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use sluice_core::Span;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::registry::Sharing;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{
    Injector, Interest, PacketPort, Pool, Port as _, PortSpec, Spin, Waiter, Watch, XdpPort,
};
use sluice_net::{Clock, real_time};

use super::common::wire::{self, frame};
use super::interpose::{armed, exempt};
use super::parts::part;
use super::{Far, SIZE, descriptors, eventually, exhaust, hosts, said};

fn assert_whole(pool: &Pool) {
    assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
    assert_eq!(pool.available_large(), SIZE.large as usize);
}

#[test]
fn an_injector_sends_or_says_why_not() {
    let Some(part) = part!("injector", 1) else {
        return;
    };
    let namespace = wire::namespace();
    let mut far = Far::new(&namespace);
    let single = frame(&[], 100);
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let (injector, _) = armed(call, error, || {
            let injector = said(Injector::open(&namespace, "left"))?;
            let _ = said(injector.send(&single));
            Some(injector)
        });
        if let Some(injector) = injector {
            far.clear();
            injector.send(&single).unwrap();
            eventually("the frame arrives", || far.has(&single));
        }
        // The old one may have opened a connection for its name meanwhile.
        far = Far::new(&namespace);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn several_workers_share_an_interface_or_none_has_it() {
    let Some(part) = part!("group", 12) else {
        return;
    };
    let namespace = wire::namespace();
    let spec: PortSpec = "packet:left".parse().unwrap();
    let mut pools = [Pool::new(SIZE).unwrap(), Pool::new(SIZE).unwrap()];
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let (opened, _) = armed(call, error, || {
            let mut pools = pools.each_mut();
            said(spec.open_group(&namespace, Clock::start(), &mut pools, Sharing::Flows))
        });
        if let Some(opened) = opened {
            assert_eq!(opened.ports.len(), 2);
            for (mut port, pool) in opened.ports.into_iter().zip(&mut pools) {
                port.release(pool);
            }
        }
        pools.iter().for_each(assert_whole);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
        // Nothing of the first attempt hinders the next one.
        let again = PacketPort::open(&namespace, "left", PacketOptions::default());
        drop(again.unwrap());
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn two_halves_of_an_interface_are_opened_together_or_not_at_all() {
    let Some(part) = part!("xdp halves", 4) else {
        return;
    };
    let namespace = wire::namespace();
    let (mut into, mut from) = Pool::pair(SIZE).unwrap();
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let (halves, _) = armed(call, error, || {
            said(XdpPort::open_halves(
                &namespace, "left", &mut into, &from, options,
            ))
        });
        if let Some((mut receiving, mut sending)) = halves {
            sending.release(&mut from);
            receiving.release(&mut into);
        }
        assert_whole(&into);
        assert_whole(&from);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

/// A thread with priority that has used its core for so long that it must leave it to others.
#[test]
fn a_loop_with_priority_waits_and_leaves_its_core_whatever_fails() {
    // Threads with priority would keep each other from the cores.
    let Some(part) = part!("waiter", 1) else {
        return;
    };
    let (near, _far) = UnixStream::pair().unwrap();
    exhaust(part, |call, error| {
        hosts::apart(call, error, || {
            // As an ordinary thread, before it has priority.
            drop(Waiter::new(Spin::None));
            exempt(|| real_time(1)).unwrap();
            let mut waiter = Waiter::new(Spin::None);
            let clock = Clock::start();
            let watch = Watch {
                descriptor: near.as_fd(),
                interest: Interest::Readable,
            };
            // First, since the number of calls that follow depends on how long they take.
            waiter.set_slack(Span::from_ms(20));
            let now = clock.now();
            assert!(waiter.pause_after(now, Some(now + Span::from_ms(1)), &clock));
            waiter.set_slack(Span::ZERO);
            let wait = |waiter: &mut Waiter, span| {
                let deadline = clock.now() + span;
                let wake = waiter.wait(&[watch], Some(deadline), &clock);
                assert!(wake.now >= deadline && wake.ready == 0);
            };
            wait(&mut waiter, Span::from_ms(1));
            let end = Instant::now() + Duration::from_millis(70);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            for _ in 0..8 {
                wait(&mut waiter, Span::from_ms(1));
            }
            // A thread that never sleeps looks some times in so short a while.
            wait(&mut Waiter::new(Spin::Always), Span::from_us(20));
        });
    });
}
