//! A proxy with real sockets, on the machine's loopback: clients and servers are threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sluice_exec::Verdict;
use sluice_exec::link::LinkWords;
use sluice_proxy::{Addresses, Handle, Listen, Proxy, ProxyError, Settings, congestion_control};
use socket2::{Domain, SockAddr, Socket, Type};

/// A running proxy, which ends when this is dropped.
struct Running {
    addresses: Addresses,
    handle: Handle,
    thread: Option<JoinHandle<Result<Verdict, ProxyError>>>,
}

impl Running {
    fn new(sets: &[(&str, &str)]) -> Running {
        Running::with(sets, |_| {})
    }

    fn with(sets: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Running {
        Running::start(open(sets, change))
    }

    fn start(proxy: Proxy) -> Running {
        Running {
            addresses: proxy.addresses(),
            handle: proxy.handle(),
            thread: Some(thread::spawn(move || proxy.run())),
        }
    }

    fn connect(&self) -> TcpStream {
        connect(&self.addresses)
    }

    /// Requests a connection with SOCKS5. Returns the code of the answer.
    fn socks(&self, to: SocketAddr) -> (TcpStream, u8) {
        let mut stream = self.connect();
        let mut bytes = vec![5, 1, 0, 5, 1, 0];
        match to.ip() {
            std::net::IpAddr::V4(v4) => {
                bytes.push(1);
                bytes.extend(v4.octets());
            }
            std::net::IpAddr::V6(v6) => {
                bytes.push(4);
                bytes.extend(v6.octets());
            }
        }
        bytes.extend(to.port().to_be_bytes());
        stream.write_all(&bytes).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..3], [5, 0, 5]);
        (stream, answer[3])
    }

    /// Sends a request to the control API. Returns the status and the body.
    fn control(&self, line: &str, body: &str) -> (u16, serde_json::Value) {
        let mut stream = TcpStream::connect(self.addresses.control[0]).unwrap();
        let length = body.len();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a proxy, which does not run yet.
fn open(sets: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Proxy {
    let any = Listen {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        port: 0,
    };
    let mut settings = Settings {
        link: LinkWords {
            sets: sets
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            ..LinkWords::default()
        },
        congestion_control: congestion_control(Some("cubic")).unwrap(),
        listen: vec![any],
        maps: Vec::new(),
        control: Some(any),
        token: None,
        has_host: true,
        max_late: None,
        capture: None,
        ending: Default::default(),
    };
    change(&mut settings);
    Proxy::open(settings).unwrap()
}

fn connect(addresses: &Addresses) -> TcpStream {
    let stream = TcpStream::connect(addresses.proxy[0]).unwrap();
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).unwrap();
    stream
}

/// Serves each connection on a thread.
fn serve(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    if stream.read_to_end(&mut bytes).is_ok() {
        let _ = stream.write_all(&bytes);
    }
}

fn reset(mut stream: TcpStream) {
    // Closing a socket with unread bytes resets the connection (tcp(7)).
    let _ = stream.read(&mut [0]);
}

/// A server of HTTP that answers with the head that it has received.
fn mirror(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                head.len()
            );
            let _ = stream.write_all(&head);
            head.clear();
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Returns an address at which nothing listens. Its socket stays, so that no other test gets the port.
fn unused() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&SockAddr::from(any)).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

/// Reads an answer of HTTP with a length.
fn response(stream: &mut TcpStream) -> (String, String) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(
            stream.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&head)
        );
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn bytes_pass_unchanged_both_ways_and_ends_are_passed_on() {
    let proxy = Running::new(&[("rtt", "4ms"), ("loss", "1%")]);
    let (mut stream, code) = proxy.socks(serve(echo));
    assert_eq!(code, 0);
    let sent = pattern(1_000_000);
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent);
}

#[test]
fn an_end_that_comes_with_the_request_is_passed_on() {
    let proxy = open(&[("rtt", "4ms")], |_| {});
    let addresses = proxy.addresses();
    let server = serve(echo);
    let connect_to = format!("CONNECT {server} HTTP/1.1\r\n\r\nhello");
    let std::net::IpAddr::V4(host) = server.ip() else {
        panic!("{server} is not an IPv4 address");
    };
    // RFC 1928: the greeting, the request, and the first bytes without waiting for the answers.
    let mut socks = vec![5, 1, 0, 5, 1, 0, 1];
    socks.extend(host.octets());
    socks.extend(server.port().to_be_bytes());
    socks.extend(b"hello");
    // All of it and the end of the stream have arrived before the proxy reads.
    let streams = [connect_to.as_bytes(), &socks].map(|bytes| {
        let mut stream = connect(&addresses);
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream
    });
    let _running = Running::start(proxy);
    for mut stream in streams {
        // The server answers at the end of its input, and then ends.
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received.ends_with(b"hello"), "{received:?}");
    }
}

#[test]
fn connections_and_refusals_take_the_round_trip_of_the_link() {
    let proxy = Running::new(&[("rtt", "100ms")]);
    for (to, expected) in [(serve(echo), 0), (unused(), 5)] {
        let start = Instant::now();
        let (_, code) = proxy.socks(to);
        let took = start.elapsed();
        assert_eq!(code, expected);
        // There is no upper bound, since a busy machine may be late.
        assert!(took >= Duration::from_millis(100), "{took:?}");
    }
}

#[test]
fn a_reset_is_passed_on() {
    let proxy = Running::new(&[("rtt", "4ms")]);
    let (mut stream, code) = proxy.socks(serve(reset));
    assert_eq!(code, 0);
    stream.write_all(b"two").unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_transfer_is_never_faster_than_the_link() {
    let proxy = Running::new(&[("rate", "8Mbit/s"), ("rtt", "10ms")]);
    // It begins when the time is taken.
    let (mut stream, _) = proxy.socks(serve(|mut stream| {
        let _ = stream.read(&mut [0]);
        let _ = stream.write_all(&vec![0; 1_000_000]);
    }));
    let start = Instant::now();
    stream.write_all(b"x").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 1_000_000);
    // 1448 of 1500 bytes are payload: 1 MB takes 1.036 s.
    let took = start.elapsed().as_secs_f64();
    assert!(took >= 1e6 * 8.0 * 1500.0 / 1448.0 / 8e6 * 0.98, "{took}");
}

#[test]
fn http_tunnels_and_requests_are_served() {
    let proxy = Running::new(&[("rtt", "4ms")]);
    let (first, second) = (serve(mirror), serve(mirror));
    let mut stream = proxy.connect();
    write!(
        stream,
        "CONNECT {first} HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\n"
    )
    .unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
    assert_eq!(response(&mut stream).1, "GET /x HTTP/1.1\r\n\r\n");
    // One connection to the proxy, two servers, bodies of both kinds.
    let mut stream = proxy.connect();
    for (server, headers, body) in [
        (first, "", ""),
        (first, "Content-Length: 3\r\n", "abc"),
        (
            second,
            "Transfer-Encoding: chunked\r\n",
            "1\r\nx\r\n0\r\n\r\n",
        ),
        (first, "", ""),
    ] {
        write!(
            stream,
            "POST http://{server}/a HTTP/1.1\r\nProxy-Connection: x\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let (_, echoed) = response(&mut stream);
        assert_eq!(
            echoed,
            format!("POST /a HTTP/1.1\r\nHost: {server}\r\n{headers}\r\n")
        );
        if !body.is_empty() {
            // The mirror reads the body as the beginning of the next head.
            stream = proxy.connect();
        }
    }
    let mut stream = proxy.connect();
    write!(stream, "GET http://{}/ HTTP/1.1\r\n\r\n", unused()).unwrap();
    let (head, text) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(text.contains("connection refused"), "{text}");
}

/// A server of HTTP that accepts every upgrade, and then returns all bytes.
fn switch(mut stream: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    while stream.read(&mut byte).is_ok_and(|count| count == 1) {
        let _ = stream.write_all(&byte);
    }
}

/// A server of HTTP whose answers end with the connection.
fn once(mut stream: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall");
}

/// The second request is for another server. It has the token, which no server may see.
#[test]
fn requests_after_a_declined_upgrade_reach_their_own_server() {
    let proxy = Running::with(&[("rtt", "4ms")], |settings| {
        settings.token = Some("0123456789abcdef".into());
    });
    let (first, second) = (serve(mirror), serve(mirror));
    let token = "Proxy-Authorization: Bearer 0123456789abcdef\r\n";
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (upgrade, passed) in [
        (
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
            "",
        ),
        (websocket, websocket),
    ] {
        let mut stream = proxy.connect();
        write!(
            stream,
            "GET http://{first}/a HTTP/1.1\r\n{token}{upgrade}\r\n"
        )
        .unwrap();
        let (_, echoed) = response(&mut stream);
        assert_eq!(
            echoed,
            format!("GET /a HTTP/1.1\r\nHost: {first}\r\n{passed}\r\n")
        );
        write!(stream, "GET http://{second}/b HTTP/1.1\r\n{token}\r\n").unwrap();
        let (_, echoed) = response(&mut stream);
        assert_eq!(echoed, format!("GET /b HTTP/1.1\r\nHost: {second}\r\n\r\n"));
    }
}

#[test]
fn after_an_accepted_upgrade_all_bytes_pass_unchanged() {
    let proxy = Running::new(&[("rtt", "4ms")]);
    let (server, other) = (serve(switch), serve(mirror));
    let mut stream = proxy.connect();
    let frames = format!("GET http://{other}/ HTTP/1.1\r\n\r\n");
    write!(
        stream,
        "GET http://{server}/ HTTP/1.1\r\nUpgrade: websocket\r\n\r\n{frames}"
    )
    .unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 101 "));
    let mut echoed = vec![0; frames.len()];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(String::from_utf8(echoed).unwrap(), frames);
}

/// The round trip of the link is over long after the proxy has read all requests.
#[test]
fn pipelined_requests_are_answered_in_order_by_their_own_servers() {
    let proxy = Running::new(&[("rtt", "40ms")]);
    let (first, second) = (serve(mirror), serve(mirror));
    let mut stream = proxy.connect();
    let requests = [first, first, second, first].map(|server| {
        let (host, end) = (format!("Host: {server}\r\n"), "\r\n");
        let sent = format!("GET http://{server}/ HTTP/1.1\r\n{host}{end}");
        (sent, format!("GET / HTTP/1.1\r\n{host}{end}"))
    });
    let sent = requests.clone().map(|(sent, _)| sent).concat();
    // The answer of the proxy itself comes last, too.
    write!(stream, "{sent}GET /no-proxy HTTP/1.1\r\n\r\n").unwrap();
    for (_, expected) in &requests {
        assert_eq!(response(&mut stream).1, *expected);
    }
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 400 "));
    // A server whose answer ends with its connection ends that of the program.
    let mut stream = proxy.connect();
    let last = serve(once);
    write!(
        stream,
        "GET http://{last}/ HTTP/1.1\r\n\r\nGET http://{first}/ HTTP/1.1\r\n\r\n"
    )
    .unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert_eq!(received, "HTTP/1.1 200 OK\r\n\r\nall");
}

#[test]
fn names_of_the_machine_are_resolved() {
    let proxy = Running::new(&[("rtt", "4ms")]);
    let port = serve(mirror).port();
    for host in ["localhost", "host.sluice"] {
        let mut stream = proxy.connect();
        write!(stream, "GET http://{host}:{port}/ HTTP/1.1\r\n\r\n").unwrap();
        let (head, _) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{host}: {head}");
    }
    let shut = Running::with(&[], |settings| settings.has_host = false);
    for host in ["127.0.0.1", "host.sluice"] {
        let mut stream = shut.connect();
        write!(stream, "GET http://{host}:{port}/ HTTP/1.1\r\n\r\n").unwrap();
        let (head, _) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 403 "), "{host}: {head}");
    }
}

#[test]
fn an_address_that_does_not_answer_does_not_delay_the_next_one() {
    let proxy = Running::new(&[("rtt", "4ms")]);
    // `host.sluice` has two addresses. At the first one, Linux drops a SYN if the queue of connections
    // that are not accepted is full (net/ipv4/tcp_input.c, tcp_conn_request).
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    silent.bind(&SockAddr::from(any)).unwrap();
    silent.listen(0).unwrap();
    let address = silent.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(stream);
    }
    let answering = TcpListener::bind((Ipv6Addr::LOCALHOST, address.port())).unwrap();
    thread::spawn(move || {
        for stream in answering.incoming().flatten() {
            thread::spawn(move || mirror(stream));
        }
    });
    // tcp(7): Linux gives up on the first address after 127 s. A read fails after 30 s.
    let mut stream = proxy.connect();
    let port = address.port();
    write!(stream, "GET http://host.sluice:{port}/ HTTP/1.1\r\n\r\n").unwrap();
    let (head, _) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[test]
fn a_map_leads_to_its_place() {
    let (open, closed) = (serve(mirror), unused());
    let proxy = Running::with(&[("rtt", "4ms")], |settings| {
        settings.listen.clear();
        settings.maps = [open, closed]
            .map(|to| format!("0:{to}").parse().unwrap())
            .into();
    });
    let at = |to: SocketAddr| {
        let to = to.to_string();
        let mut maps = proxy.addresses.maps.iter();
        maps.find(|(at, place)| *place == to && at.is_ipv4())
            .unwrap()
            .0
    };
    let mut stream = TcpStream::connect(at(open)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
    let mut stream = TcpStream::connect(at(closed)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_wrong_token_is_refused() {
    let token = "0123456789abcdef";
    let proxy = Running::with(&[], |settings| settings.token = Some(token.to_owned()));
    let to = serve(mirror);
    for (header, status) in [
        (String::new(), "407"),
        ("Proxy-Authorization: Bearer no\r\n".to_owned(), "407"),
        (format!("Proxy-Authorization: Bearer {token}\r\n"), "200"),
    ] {
        let mut stream = proxy.connect();
        write!(stream, "GET http://{to}/ HTTP/1.1\r\n{header}\r\n").unwrap();
        let (head, _) = response(&mut stream);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    let mut stream = proxy.connect();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [5, 0xff]);
    assert_eq!(proxy.control("GET /link", "").0, 401);
}

/// The definition of both counters in docs/how-to/proxy.md: no packet is in both.
#[test]
fn packets_that_are_dropped_are_not_among_those_that_passed() {
    let proxy = Running::new(&[("rate", "8Mbit/s")]);
    proxy.control("POST /link/cut", r#"{"direction": "up"}"#);
    let mut stream = proxy.connect();
    let request = "CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, link) = proxy.control("GET /link", "");
        let counts = ["packets", "bytes", "dropped"].map(|key| link["up"][key].as_u64().unwrap());
        assert_eq!(counts[..2], [0, 0]);
        // The first packet is the SYN.
        if counts[2] > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "nothing is dropped");
    }
}

#[test]
fn the_link_is_changed_and_cut_and_connections_are_listed_and_reset() {
    let proxy = Running::new(&[("rate", "8Mbit/s"), ("rtt", "4ms")]);
    let (status, link) = proxy.control(
        "PATCH /link",
        r#"{"down.rate": "1Mbit/s", "up": {"queue": "codel"}}"#,
    );
    assert_eq!(status, 200, "{link}");
    assert_eq!(link["down"]["rate"], "1Mbit/s");
    assert_eq!(link["up"]["rate"], "8Mbit/s");
    assert_eq!(link["up"]["queue"], "codel");
    let (status, error) = proxy.control("PATCH /link", r#"{"queue": "fq_codle"}"#);
    let text = error["error"].as_str().unwrap();
    assert!(
        status == 400 && text.contains("did you mean `fq_codel`?"),
        "{text}"
    );

    // The files of this process are none of a client's business, nor is code that it names.
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "password\n").unwrap();
    let path = secret.path().display();
    for body in [
        format!(r#"{{"down.rate": "{{ trace = \"{path}\" }}"}}"#),
        format!(r#"{{"rate": "{{ csv = \"{path}\" }}"}}"#),
        format!(r#"{{"up": {{"profile": "{path}"}}}}"#),
        format!(r#"{{"queue": "wasm:{path}"}}"#),
        format!(r#"{{"queue": "fq_py:{path}:Queue"}}"#),
    ] {
        let (status, error) = proxy.control("PATCH /link", &body);
        let text = error["error"].as_str().unwrap();
        assert_eq!(status, 400, "{body}: {text}");
        assert!(text.contains("cannot name a file"), "{body}: {text}");
        assert!(!text.contains("password"), "{body}: {text}");
    }

    // Keys that would have no effect are refused by name.
    for (body, expected) in [
        (r#"{"seed": 5}"#, "`seed` is not a key of the link"),
        (
            r#"{"matrix.link.rate": "[\"1Mbit/s\"]"}"#,
            "`matrix.link.rate` is not a key",
        ),
        (r#"{"preset": "lte"}"#, "--link names a link at the start"),
        (r#"{"link.preset": "lte"}"#, "`link.preset` cannot be set"),
        (r#"{"dowm": {"rate": "1Mbit/s"}}"#, "did you mean `down`?"),
        (r#"{"rat": "1Mbit/s"}"#, "did you mean `rate`?"),
    ] {
        let (status, error) = proxy.control("PATCH /link", body);
        let text = error["error"].as_str().unwrap();
        assert!(status == 400 && text.contains(expected), "{body}: {text}");
    }

    let to = serve(echo);
    let (mut stream, _) = proxy.socks(to);
    let (_, listed) = proxy.control("GET /connections", "");
    let listed = listed["connections"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["to"], to.to_string());
    assert_eq!(listed[0]["state"], "open");
    // Linux and RFC 6928 begin with ten segments.
    assert_eq!(listed[0]["down"]["cwnd_bytes"], 14_480);

    let (_, link) = proxy.control("POST /link/cut", "");
    assert_eq!(
        (&link["up"]["cut"], &link["down"]["cut"]),
        (&true.into(), &true.into())
    );
    stream.write_all(b"lost, and sent again").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    assert!(stream.read(&mut [0]).is_err());
    proxy.control("POST /link/heal", "");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "lost, and sent again");

    let (mut stream, _) = proxy.socks(to);
    let (_, listed) = proxy.control("GET /connections", "");
    let number = &listed["connections"].as_array().unwrap().last().unwrap()["number"];
    assert_eq!(proxy.control("DELETE /connections/999999", "").0, 404);
    assert_eq!(
        proxy
            .control(&format!("DELETE /connections/{number}"), "")
            .0,
        200
    );
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_port_in_use_is_reported() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = Settings {
        link: LinkWords::default(),
        congestion_control: congestion_control(None).unwrap(),
        listen: vec![port.to_string().parse().unwrap()],
        maps: Vec::new(),
        control: None,
        token: None,
        has_host: true,
        max_late: None,
        capture: None,
        ending: Default::default(),
    };
    let error = Proxy::open(settings).err().unwrap().to_string();
    assert!(
        error.contains(&port.to_string()) && error.contains("in use"),
        "{error}"
    );
}

/// A tunnel without bytes stays; a connection on which nobody asks for anything does not.
#[test]
fn connections_without_a_request_are_closed() {
    let proxy = Running::new(&[]);
    let server = serve(|mut stream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    });
    let (mut tunnel, code) = proxy.socks(server);
    assert_eq!(code, 0);
    let control = TcpStream::connect(proxy.addresses.control[0]).unwrap();
    control
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let silent = [proxy.connect(), proxy.connect(), proxy.connect(), control];
    let halves: [&[u8]; 4] = [b"", &[5, 1, 0], b"CONNECT 127.0.0.1:80 HT", b"GET /li"];
    for (mut stream, half) in silent.into_iter().zip(halves) {
        stream.write_all(half).unwrap();
        // Up to the end, or a reset.
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    tunnel.write_all(b"x").unwrap();
    tunnel.read_exact(&mut [0]).unwrap();
}
