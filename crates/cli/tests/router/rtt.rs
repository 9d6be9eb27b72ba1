//! The round-trip times of flows that pass a router.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use super::watch::count;
use super::*;

/// A client and a server in namespaces of their own exchange messages through a router that delays
/// what the client sends, by TCP and then by datagrams with the headers of QUIC.
#[test]
fn round_trip_times_are_the_delays_of_the_path() {
    let create = |name| Namespace::create(name).expect("the test may make namespaces");
    let (middle, left, right) = (create("middle"), create("left"), create("right"));
    let end = |namespace, name, number| VethEnd {
        namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    };
    create_veth(end(&middle, "em0", 1), end(&left, "far0", 2)).unwrap();
    create_veth(end(&middle, "em1", 3), end(&right, "far1", 4)).unwrap();
    for name in ["em0", "em1"] {
        middle.links().unwrap().set_up(name, true).unwrap();
    }
    for (namespace, name, address) in [(&left, "far0", "10.0.0.1"), (&right, "far1", "10.0.0.2")] {
        let mut links = namespace.links().unwrap();
        links.set_up(name, true).unwrap();
        links
            .add_address(name, address.parse().unwrap(), 24)
            .unwrap();
    }
    let config = "pipe 1 config delay 30ms\npipe 2 config delay 30ms\n\
                  add 100 pipe 1 tcp from any to any in recv em0\n\
                  add 110 pipe 2 udp from any to any in recv em0\n\
                  add 200 allow ip from any to any\n";
    let running = Running::start_between(middle, Some(config), &["--rtt"], &[]);

    let listener = right
        .enter(|| TcpListener::bind("10.0.0.2:7").unwrap())
        .unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut message = [0; 100];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message).unwrap();
        }
    });
    let mut stream = left
        .enter(|| TcpStream::connect("10.0.0.2:7").unwrap())
        .unwrap();
    stream.set_nodelay(true).unwrap();
    let mut message = [0; 100];
    for _ in 0..50 {
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
    drop(stream);
    server.join().unwrap();
    exchange_datagrams(&left, &right);

    let output = running.run(&mut Command::new(SLUICE), "top --once --json");
    let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |list: &str, name: &str, source: &str| {
        let rows = sample["rtt"][list].as_array().unwrap().iter();
        let mut found = rows.filter(|row| row["name"] == name && row["source"] == source);
        found
            .next()
            .unwrap_or_else(|| panic!("no {name} in {}", sample["rtt"]))
            .clone()
    };
    let ms = |row: &Value| row["rtt"]["p50_ns"].as_f64().unwrap() / 1e6;
    // Each message waits for 30 ms in the pipe and is answered at once; percentiles are at most 1/16
    // off. Answers to the server do not wait; a busy machine adds some milliseconds.
    let (far, near, pipe) = (
        row("hosts", "10.0.0.2", "tcp"),
        row("hosts", "10.0.0.1", "tcp"),
        row("objects", "pipe 1", "tcp"),
    );
    assert!(
        count(&far, "samples") >= 40 && count(&near, "samples") >= 40,
        "{far} {near}"
    );
    assert!((28.0..45.0).contains(&ms(&far)), "{far}");
    assert!(ms(&near) < 20.0, "{near}");
    // What entered the pipe is what the client sent.
    assert_eq!(pipe["rtt"], far["rtt"]);
    // Of 120 edges, 16 make the flow trusted; of the others, half are answers of the server.
    let (far, pipe) = (
        row("hosts", "10.0.0.2", "quic"),
        row("objects", "pipe 2", "quic"),
    );
    assert!(count(&far, "samples") >= 40, "{far}");
    assert!((28.0..45.0).contains(&ms(&far)), "{far}");
    assert_eq!(pipe["rtt"], far["rtt"]);
    let output = running.run(&mut Command::new(SLUICE), "router status");
    let shown = text(&output.stdout);
    assert!(
        shown.contains("round-trip times") && shown.contains("quic"),
        "{shown}"
    );
    running.end();
}

/// Sends datagrams to and fro with the headers of a handshake, and then with the spin bits of RFC 9000
/// section 17.4.
fn exchange_datagrams(left: &Namespace, right: &Namespace) {
    const ROUNDS: usize = 60;
    let bind = |namespace: &Namespace, address: &'static str| {
        let bind = move || UdpSocket::bind(address).unwrap();
        let socket = namespace.enter(bind).unwrap();
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
        socket
    };
    let (client, server) = (bind(left, "10.0.0.1:40000"), bind(right, "10.0.0.2:443"));
    let begin = {
        // An Initial packet of version 1, in a datagram of 1200 bytes.
        let mut bytes = vec![0xc0, 0, 0, 0, 1, 8];
        bytes.resize(1200, 0);
        bytes
    };
    let short = |spin: bool| [0x40 | u8::from(spin) << 5; 100];
    client.connect("10.0.0.2:443").unwrap();
    let answer = begin.clone();
    let answering = std::thread::spawn(move || {
        let mut bytes = [0; 1500];
        for _ in 0..=ROUNDS {
            let (_, from) = server.recv_from(&mut bytes).unwrap();
            let is_long = bytes[0] & 0x80 != 0;
            // The server repeats the bit.
            let spin = bytes[0] & 0x20 != 0;
            let answer = if is_long {
                &answer[..]
            } else {
                &short(spin)[..]
            };
            server.send_to(answer, from).unwrap();
        }
    });
    let mut bytes = [0; 1500];
    client.send(&begin).unwrap();
    client.recv(&mut bytes).unwrap();
    let mut spin = false;
    for _ in 0..ROUNDS {
        client.send(&short(spin)).unwrap();
        client.recv(&mut bytes).unwrap();
        // The client inverts it.
        spin = bytes[0] & 0x20 == 0;
    }
    answering.join().unwrap();
}
