//! The parts of the crate that set-ups and end hosts use: clocks, cores, namespaces, sockets.

use std::ffi::c_int;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use sluice_core::{Span, Time};
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::{CacheWarmer, Spin};
use sluice_net::socket::{
    TcpConnection, TcpDiag, TcpInfo, TimedReceiver, discard, grant_receive_buffer,
    receive_icmp_only,
};
use sluice_net::{Clock, cores, precise_wakeups, real_time};
use socket2::{Domain, Protocol, Socket, Type};

use super::common::{require_privilege, wire};
use super::interpose::{armed, exempt};
use super::parts::{Part, part};
use super::{descriptors, eventually, exhaust, said};

/// Runs a scenario with a failing call on a thread of its own, whose cores and priority end with it.
pub fn apart<T: Send>(call: u32, error: c_int, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(move || armed(call, error, work).0);
        thread.join().unwrap()
    })
}

#[test]
fn a_thread_has_the_priority_that_it_was_promised() {
    let Some(part) = part!("clock", 1) else {
        return;
    };
    exhaust(part, |call, error| {
        apart(call, error, || {
            // SAFETY: takes no pointers.
            #[allow(unsafe_code)]
            let policy = || unsafe { libc::sched_getscheduler(0) };
            precise_wakeups();
            let clock = Clock::start();
            let deadline = clock.now() + Span::from_us(100);
            assert!(clock.sleep_until(deadline, Span::ZERO) >= deadline);
            let expected = match said(real_time(1)) {
                Some(()) => libc::SCHED_FIFO,
                None => libc::SCHED_OTHER,
            };
            assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, expected);
        });
    });
}

#[test]
fn a_thread_leaves_the_core_on_which_it_stayed() {
    let Some(part) = part!("cores", 1) else {
        return;
    };
    exhaust(part, |call, error| {
        let open_before = descriptors();
        apart(call, error, || {
            let before = exempt(|| cores::allowed().unwrap());
            said(cores::allowed().map(|now| assert_eq!(now, before)));
            let stay = said(cores::Stay::on(&before[..1]));
            let expected = if stay.is_some() {
                &before[..1]
            } else {
                &before
            };
            assert_eq!(exempt(|| cores::allowed().unwrap()), expected);
            drop(stay);
            assert_eq!(exempt(|| cores::allowed().unwrap()), before);
        });
        // So long that no idle state is forbidden.
        let (limit, _) = armed(call, error, || {
            said(cores::IdleLimit::in_force());
            said(cores::IdleLimit::hold(Span::from_ms(1234)))
        });
        drop(limit);
        assert_eq!(descriptors(), open_before);
    });
}

#[test]
fn a_namespace_is_entered_and_set_up_or_says_why_not() {
    let Some(part) = part!("namespace", 3) else {
        return;
    };
    let namespace = wire::namespace();
    let place = Path::new("/proc/thread-self/ns/net");
    let own = || fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let (here, there) = (own(), namespace.enter(own).unwrap());
    let name = "net.ipv4.conf.left.forwarding";
    exhaust(part, |call, error| {
        let open_before = descriptors();
        exempt(|| namespace.set_sysctl(name, "0")).unwrap();
        armed(call, error, || {
            let made = said(Namespace::create("made"));
            let made = made.map(|made| exempt(|| made.enter(own).unwrap()));
            assert!(made.is_none_or(|made| made != here && made != there));
            for handle in [
                said(Namespace::current()),
                said(Namespace::open(place)),
                said(namespace.try_clone()),
            ] {
                let Some(handle) = handle else { continue };
                let inside = said(handle.enter(|| exempt(own)));
                assert!(inside.is_none_or(|inside| inside == here || inside == there));
            }
            let thread = said(namespace.spawn("inside", move || exempt(own)));
            let inside = thread.map(|thread| thread.join().unwrap());
            assert!(inside.is_none_or(|inside| inside == there));
            let is_set = said(namespace.set_sysctl(name, "1")).is_some();
            let found = said(namespace.sysctl(name));
            assert!(found.is_none_or(|found| found == if is_set { "1" } else { "0" }));
            said(namespace.silence_ipv6());
            let settings = Offloads::OFF;
            if said(namespace.set_offloads("left", settings)).is_some() {
                let found = exempt(|| namespace.offloads("left").unwrap());
                assert_eq!(found, settings);
            }
        });
        assert_eq!(own(), here, "the calling thread stays");
        assert_eq!(namespace.enter(own).unwrap(), there);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

/// Returns the connections at this address.
fn at(diag: &mut TcpDiag, address: std::net::SocketAddr) -> Vec<TcpConnection> {
    let mut found = Vec::new();
    diag.connections(|one| found.extend(Some(one).filter(|one| one.local == address)))
        .unwrap();
    found
}

#[test]
fn the_sockets_of_an_end_host_work_again() {
    let Some(part) = part!("sockets", 1) else {
        return;
    };
    // Without connections of other programs.
    let namespace = Namespace::create("sockets").unwrap();
    namespace.links().unwrap().set_up("lo", true).unwrap();
    namespace.enter(|| use_sockets(part)).unwrap();
}

fn use_sockets(part: Part) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let near = client.local_addr().unwrap();
    let here = Namespace::current().unwrap();
    let socket = |domain, kind, protocol| Socket::new(domain, kind, protocol).unwrap();
    let icmp = socket(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4));
    let icmp_v6 = socket(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
    let of_client = Socket::from(client.try_clone().unwrap());
    let of_server = Socket::from(server.try_clone().unwrap());
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let destination = udp.local_addr().unwrap();
        let udp = Socket::from(udp);
        let (sender, clock) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Clock::start());
        let departing = Socket::from(sender.try_clone().unwrap());
        client.write_all(&[7; 100]).unwrap();
        let ((mut diag, mut timed), _) = armed(call, error, || {
            let mut diag = said(TcpDiag::open(&here));
            if let Some(diag) = &mut diag {
                let mut found = 0;
                if said(diag.connections(|one| found += u32::from(one.local == near))).is_some() {
                    assert_eq!(found, 1);
                }
                diag.ended(|_| {});
            }
            let timed = said(TimedReceiver::new(&udp, true));
            let mut timed = timed.zip(said(TimedReceiver::of_departures(&departing)));
            if let Some((arrivals, departures)) = &mut timed {
                exempt(|| sender.send_to(&[1; 50], destination)).unwrap();
                let mut count = 0;
                let received = arrivals.receive(&udp, &clock, |bytes, _| {
                    assert_eq!(bytes, [1; 50]);
                    count += 1;
                });
                assert_eq!(said(received).unwrap_or(0), count);
                said(departures.departures(&departing, &clock, |_, _| {}));
            }
            said(TcpInfo::read(&of_client));
            said(discard(&of_server, 50));
            said(grant_receive_buffer(&udp, 1 << 20));
            said(receive_icmp_only(&icmp, true, 8));
            said(receive_icmp_only(&icmp_v6, false, 128));
            (diag, timed)
        });
        if let Some(diag) = &mut diag {
            for _ in 0..2 {
                let found = at(diag, near);
                assert_eq!(found.len(), 1, "an answer is that to its request");
            }
        }
        if let Some((arrivals, _)) = &mut timed {
            while arrivals.receive(&udp, &clock, |_, _| {}).is_ok() {}
            sender.send_to(&[2; 60], destination).unwrap();
            eventually("a datagram arrives", || {
                arrivals
                    .receive(&udp, &clock, |bytes, _| assert_eq!(bytes, [2; 60]))
                    .is_ok_and(|count| count == 1)
            });
        }
        drop((diag, timed));
        // Everything that was not discarded is still there.
        server.set_nonblocking(true).unwrap();
        let mut rest = Vec::new();
        let _ = server.read_to_end(&mut rest);
        server.set_nonblocking(false).unwrap();
        assert!(rest.len() == 50 || rest.len() == 100, "{}", rest.len());
        drop((udp, sender, departing));
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

#[test]
fn a_loop_runs_without_a_warmer_or_with_one() {
    let Some(part) = part!("warmer", 2) else {
        return;
    };
    require_privilege();
    exhaust(part, |call, error| {
        let open_before = descriptors();
        let mut now = Time::ZERO;
        let mut send = |warmer: &mut CacheWarmer| {
            now += Span::from_us(50);
            assert!(warmer.send_if_due(now, None));
        };
        let (warmer, _) = armed(call, error, || {
            let mut warmer = CacheWarmer::for_loop(Spin::Always)?;
            (0..3).for_each(|_| send(&mut warmer));
            Some(warmer)
        });
        if let Some(mut warmer) = warmer {
            let before = warmer.requests();
            // A full socket refuses for a moment.
            eventually("requests are sent again", || {
                send(&mut warmer);
                warmer.requests() > before
            });
        }
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}

/// The settings of an interface, taken and given back.
#[test]
fn an_interface_gets_its_place_again_or_an_error_says_what_is_missing() {
    let Some(part) = part!("seat", 2) else { return };
    let namespace = wire::namespace();
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let mut links = namespace.links().unwrap();
    links.add_address("left", address, 24).unwrap();
    let left = links.interface("left").unwrap().index;
    drop(links);
    exhaust(part, |call, error| {
        let open_before = descriptors();
        armed(call, error, || {
            let mut links = said(namespace.links())?;
            let seat = said(links.seat("left"))?;
            said(namespace.has_tcx(left).map(|has| assert!(!has)));
            exempt(|| {
                let mut links = namespace.links().unwrap();
                links.remove("left").unwrap();
                wire::connect(&namespace);
            });
            if said(links.take_seat(&seat)).is_some() {
                exempt(|| {
                    let found = namespace.links().unwrap().addresses("left").unwrap();
                    assert!(found.contains(&address), "{found:?}");
                });
            }
            Some(())
        });
        let mut links = namespace.links().unwrap();
        if !links.addresses("left").unwrap().contains(&address) {
            links.add_address("left", address, 24).unwrap();
        }
        drop(links);
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}
