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
