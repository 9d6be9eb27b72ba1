//! What clients without the token can do to a proxy, with real sockets on the machine's loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use sluice_exec::link::LinkWords;
use sluice_proxy::{Listen, Proxy, Settings, congestion_control};

/// docs/how-to/proxy.md: the proxy closes a connection without a permitted request after 10 s.
#[test]
fn a_refused_client_cannot_keep_its_connection() {
    let any = Listen {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        port: 0,
    };
    let settings = Settings {
        link: LinkWords::default(),
        congestion_control: congestion_control(None).unwrap(),
        listen: vec![any],
        maps: Vec::new(),
        control: None,
        token: Some("0123456789abcdef".to_owned()),
        has_host: true,
        max_late: None,
        capture: None,
        ending: Default::default(),
    };
    let proxy = Proxy::open(settings).unwrap();
    let (address, handle) = (proxy.addresses().proxy[0], proxy.handle());
    let thread = thread::spawn(move || proxy.run());
    let limit = Duration::from_secs(30);
    // No token, no method of SOCKS5 with a token, and neither of both protocols.
    let requests: [&[u8]; 3] = [b"GET x HTTP/1.1\r\n\r\n", &[5, 1, 0], &[0x16, 3, 1]];
    let start = Instant::now();
    let mut streams = requests.map(|request| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.write_all(request).unwrap();
        stream
    });
    for stream in &mut streams {
        // The proxy answers and ends its own direction, the client does not.
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    for stream in &mut streams {
        // As long as the proxy has the socket, it reads. Then the kernel answers with a reset.
        while stream.write_all(b"x").is_ok() {
            assert!(start.elapsed() < limit, "the connection is still open");
            thread::sleep(Duration::from_millis(50));
        }
    }
    handle.end();
    thread.join().unwrap().unwrap();
}
