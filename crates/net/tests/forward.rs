//! TCP and ping through a minimal forwarder on packet ports, live.

mod common;

use common::forwarder::{Forwarder, Mode, Outcome};
use common::{H2, H2_V6, H3, H3_V6, Topology};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::packet::PacketOptions;
use sluice_net::traffic::Stop;
use sluice_net::traffic::ping::{Ping, PingReport};
use sluice_net::traffic::tcp::{TcpFlow, TcpReport};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

const BYTES: u64 = 100_000_000;

/// A transfer of 100 MB with a ping beside it.
fn transfer(
    topology: &Topology,
    mode: Mode,
    options: PacketOptions,
    ends: (IpAddr, IpAddr),
) -> (TcpReport, PingReport, Outcome) {
    let forwarder = Forwarder::start(topology, mode, options);
    let clock = Clock::start();
    let stop = Stop::new();
    let start = Time::from_ns(5_000_000);
    let ping = Ping {
        count: Some(20),
        ..Ping::new(ends.0, ends.1, Span::from_ms(5), start)
    };
    let tcp = TcpFlow {
        bytes: Some(BYTES),
        stop: Some(start + Span::from_secs(30)),
        congestion_control: Some("cubic".to_owned()),
        ..TcpFlow::new(ends.0, ends.1, start)
    };
    let ping = ping
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let tcp = tcp
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let reports = (tcp.join().unwrap(), ping.join().unwrap());
    (reports.0, reports.1, forwarder.finish())
}

fn assert_complete(tcp: &TcpReport, ping: &PingReport, outcome: &Outcome) {
    assert_eq!(tcp.broken, None);
    assert!(tcp.finished.is_some(), "the transfer did not end: {tcp:?}");
    assert_eq!(tcp.goodput.last().unwrap().bytes, BYTES);
    assert_eq!(
        tcp.info.last().unwrap().bytes_acked,
        BYTES + 2,
        "data, SYN and FIN"
    );
    assert_eq!((ping.lost(), ping.duplicates), (0, 0));
    assert_eq!(ping.arrived, 20);
    assert_eq!(outcome.slots_missing, 0, "every slot came back");
}

#[test]
fn super_packets_cross_whole() {
    let topology = Topology::new(Offloads::ON);
    for ends in [(H2, H3), (H2_V6, H3_V6)] {
        let options = PacketOptions::default();
        let (tcp, ping, outcome) = transfer(&topology, Mode::Whole, options, ends);
        assert_complete(&tcp, &ping, &outcome);
        let [sender, _] = outcome.ports;
        assert!(sender.received_super > 0, "{outcome:?}");
        // 100 MB in fewer frames than 1448-byte segments: 69 061.
        assert!(sender.received < BYTES / 1448 / 2, "{outcome:?}");
    }
}

#[test]
fn super_packets_cross_split() {
    let topology = Topology::new(Offloads::ON);
    for ends in [(H2, H3), (H2_V6, H3_V6)] {
        let options = PacketOptions::default();
        let (tcp, ping, outcome) = transfer(&topology, Mode::Split, options, ends);
        assert_complete(&tcp, &ping, &outcome);
        let [sender, receiver] = outcome.ports;
        assert!(sender.received_super > 0, "{outcome:?}");
        assert!(outcome.split_into > sender.received_super);
        // At most 1448 bytes of payload each, whatever the sender bundled.
        assert!(receiver.sent > BYTES / 1448, "{outcome:?}");
    }
}

#[test]
fn without_offloads_every_frame_fits_the_link() {
    let topology = Topology::new(Offloads::OFF);
    let options = PacketOptions {
        offloads: false,
        ..PacketOptions::default()
    };
    let (tcp, ping, outcome) = transfer(&topology, Mode::Whole, options, (H2, H3));
    assert_complete(&tcp, &ping, &outcome);
    let [sender, _] = outcome.ports;
    assert_eq!(sender.received_super, 0);
    assert!(sender.received_bytes <= sender.received * 1514);
}

/// The sender's kernel takes one write of ten datagrams; the receiver gets ten, whichever way
/// the router passes them on.
#[test]
fn udp_super_packets_cross_whole_and_split() {
    let topology = Topology::new(Offloads::ON);
    for (from, to) in [(H2, H3), (H2_V6, H3_V6)] {
        for mode in [Mode::Whole, Mode::Split] {
            let forwarder = Forwarder::start(&topology, mode, PacketOptions::default());
            let bind = |address: IpAddr| move || UdpSocket::bind((address, 0)).unwrap();
            let sender = topology.h2.enter(bind(from)).unwrap();
            let receiver = topology.h3.enter(bind(to)).unwrap();
            receiver
                .set_read_timeout(Some(std::time::Duration::from_secs(5)))
                .unwrap();
            segment_by(&sender, 1000);
            let payload: Vec<u8> = (0..9500u32).map(|number| (number / 7) as u8).collect();
            sender
                .send_to(&payload, receiver.local_addr().unwrap())
                .unwrap();
            let mut arrived: Vec<u8> = Vec::new();
            let mut buffer = [0; 2000];
            for _ in 0..10 {
                let length = receiver.recv(&mut buffer).unwrap();
                assert!(length == 1000 || arrived.len() == 9000);
                arrived.extend(&buffer[..length]);
            }
            assert_eq!(arrived, payload);
            let outcome = forwarder.finish();
            assert_eq!(outcome.ports[0].received_super, 1);
            assert_eq!(outcome.split_into, if mode == Mode::Split { 10 } else { 0 });
        }
    }
}

/// udp(7), UDP_SEGMENT.
fn segment_by(socket: &UdpSocket, bytes: libc::c_int) {
    // SAFETY: the option's value is an int, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            std::ptr::from_ref(&bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
