//! The order of datagrams.

use std::collections::BTreeMap;

use super::*;

const FLOWS: u32 = 100;
/// So many wait in the server's buffer, if it is late.
const DATAGRAMS: u32 = 200;

/// The datagrams of a flow arrive while it is being opened.
#[test]
fn the_first_datagrams_of_a_flow_keep_their_order() {
    let world = World::new();
    let socket = datagram_server(&world);
    let server = std::thread::spawn(move || {
        let mut latest = BTreeMap::new();
        let mut bytes = [0; 8];
        loop {
            let (_, from) = socket.recv_from(&mut bytes).unwrap();
            let [flow, number] =
                [0, 4].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()));
            let last = latest.insert(flow, number);
            assert!(
                last < Some(number),
                "{number} after {last:?} of flow {flow}"
            );
            if number == DATAGRAMS {
                socket.send_to(b"all", from).unwrap();
                if flow == FLOWS {
                    return latest.len();
                }
            }
        }
    });
    let output = world.run(&["--rtt", "2ms"], &own("order::bursts"));
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(server.join().unwrap(), FLOWS as usize, "{text}");
    assert!(output.status.success(), "{text}");
}

/// A client, not a test.
#[test]
#[ignore = "a client that other tests run"]
fn bursts() {
    for flow in 1..=FLOWS {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let patience = Some(Duration::from_secs(5));
        socket.set_read_timeout(patience).unwrap();
        socket.connect((SERVER[0], 5000)).unwrap();
        for number in 1..=DATAGRAMS {
            let words = [flow, number].map(u32::to_be_bytes);
            socket.send(words.as_flattened()).unwrap();
        }
        // Each flow waits for its end, so that the server's buffer has room for the next one.
        socket.recv(&mut [0; 8]).unwrap();
    }
}

/// Ten datagrams in one call, for the kernel to divide (UDP_SEGMENT of udp(7), as QUIC's libraries send
/// their first flight).
const FLIGHT: &str = "
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_UDP, 103, 1000)
out.sendto(b''.join(bytes([i]) * 1000 for i in range(10)), (sys.argv[1], 5000))
";

#[test]
fn datagrams_that_open_a_flow_together_all_arrive() {
    for link in [&["--rtt", "2ms"][..], &["--rate", "10Mbit/s"]] {
        let world = World::new();
        let socket = datagram_server(&world);
        let output = world.run(link, &["python3", "-c", FLIGHT, SERVER[0]]);
        assert!(output.status.success(), "{}", stderr(&output));
        for number in 0..10 {
            let mut bytes = [0; 2000];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], [number; 1000], "{link:?}");
        }
    }
}
