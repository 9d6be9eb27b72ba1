use base64::Engine as _;

use super::*;

fn parsed(text: &str) -> Request {
    let (used, request) = parse(text.as_bytes(), None).unwrap().unwrap();
    assert_eq!(used, text.len());
    request
}

#[test]
fn a_tunnel_is_asked_for() {
    let request = parsed("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n");
    assert_eq!(request.destination.to_string(), "example.org:443");
    assert_eq!(request.kind, Kind::Tunnel);
    let request = parsed("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n");
    assert_eq!(request.destination.to_string(), "[2001:db8::1]:443");
}

#[test]
fn a_plain_request_reaches_the_server_without_the_proxy_s_headers() {
    let request = parsed(
        "POST http://user@Example.org:8080/a?b=c HTTP/1.1\r\nHost: other\r\nAccept: */*\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Bearer x\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!(request.destination.to_string(), "example.org:8080");
    let Kind::Plain { head, body, .. } = request.kind else {
        panic!("a plain request");
    };
    assert_eq!(
        String::from_utf8(head).unwrap(),
        "POST /a?b=c HTTP/1.1\r\nHost: Example.org:8080\r\nAccept: */*\r\nContent-Length: 3\r\n\r\n"
    );
    assert_eq!(body, Body::Length(3));
}

#[test]
fn paths_take_the_form_for_a_server() {
    for (target, expected) in [
        ("GET http://a", "GET / HTTP/1.1"),
        ("GET http://a?q", "GET /?q HTTP/1.1"),
        ("GET HTTP://a/x", "GET /x HTTP/1.1"),
        ("OPTIONS http://a", "OPTIONS * HTTP/1.1"),
    ] {
        let request = parsed(&format!("{target} HTTP/1.1\r\n\r\n"));
        let Kind::Plain { head, .. } = request.kind else {
            panic!("a plain request");
        };
        let head = String::from_utf8(head).unwrap();
        assert_eq!(head.lines().next(), Some(expected), "{target}");
    }
}

#[test]
fn the_end_of_a_body_is_known_or_the_request_is_refused() {
    let body = |headers: &str| {
        let text = format!("POST http://a/ HTTP/1.1\r\n{headers}\r\n");
        parse(text.as_bytes(), None).map(|parsed| match parsed.unwrap().1.kind {
            Kind::Plain { body, .. } => body,
            Kind::Tunnel => panic!("a plain request"),
        })
    };
    let chunks = Ok(Body::Chunks(Chunks::new()));
    assert_eq!(body(""), Ok(Body::Length(0)));
    assert_eq!(body("Transfer-Encoding: gzip, Chunked\r\n"), chunks);
    let twice = "Content-Length: 7\r\nContent-Length: 7\r\n";
    assert_eq!(body(twice), Ok(Body::Length(7)));
    for headers in [
        "Content-Length: 7\r\nContent-Length: 8\r\n",
        "Content-Length: +7\r\n",
        "Content-Length: x\r\n",
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
    ] {
        assert!(body(headers).is_err(), "{headers}");
    }
}

/// RFC 9110 section 7.8: a server may ignore a request to upgrade, and the options of `Connection`
/// name the headers of this connection.
#[test]
fn only_an_upgrade_to_websocket_reaches_the_server() {
    let passed = |headers: &str| {
        let text = format!("GET http://a/ HTTP/1.1\r\n{headers}\r\n");
        let Kind::Plain { head, body, asked } = parsed(&text).kind else {
            panic!("a plain request");
        };
        // The proxy does not know whether the server will accept.
        assert_eq!(body, Body::Length(0));
        let head = String::from_utf8(head).unwrap();
        let headers = head.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
        (headers.strip_suffix("\r\n").unwrap().to_owned(), asked)
    };
    for websocket in [
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Upgrade: x, WebSocket\r\n",
    ] {
        assert_eq!(passed(websocket), (websocket.into(), Asked::WebSocket));
    }
    for (headers, left) in [
        (
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
            "",
        ),
        (
            "connection: keep-alive,upgrade\r\nupgrade: TLS/1.0\r\n",
            "connection: keep-alive\r\n",
        ),
        ("Connection: close\r\n", "Connection: close\r\n"),
        ("Connection:\r\nX:\r\n", "Connection: \r\nX: \r\n"),
    ] {
        assert_eq!(passed(headers), (left.into(), Asked::Any), "{headers}");
    }
}

#[test]
fn a_proxy_is_no_server_and_no_gateway_to_other_protocols() {
    for target in [
        "/",
        "https://a/",
        "ftp://a/",
        "a:80",
        "http://",
        "http:///x",
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let problem = parse(text.as_bytes(), None).unwrap_err();
        assert!(matches!(problem, Problem::Malformed(_)), "{target}");
        let response = String::from_utf8(problem.response()).unwrap();
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    }
}

#[test]
fn a_request_needs_the_token_if_there_is_one() {
    let with = |header: &str| {
        let text = format!("CONNECT a:1 HTTP/1.1\r\n{header}\r\n");
        parse(text.as_bytes(), Some("secret")).map(|parsed| parsed.unwrap().0)
    };
    assert_eq!(with(""), Err(Problem::Unauthorised));
    assert_eq!(
        with("Proxy-Authorization: Bearer wrong\r\n"),
        Err(Problem::Unauthorised)
    );
    assert!(with("Proxy-Authorization: Bearer secret\r\n").is_ok());
    let basic = base64::engine::general_purpose::STANDARD.encode("user:secret");
    assert!(with(&format!("proxy-authorization: Basic {basic}\r\n")).is_ok());
}

#[test]
fn an_incomplete_head_waits_and_an_endless_one_does_not() {
    let text = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n";
    for len in 0..text.len() {
        assert_eq!(parse(&text[..len], None), Ok(None), "{len}");
    }
    let mut long = text.to_vec();
    long.extend(b"X: ");
    long.resize(LONGEST_HEAD, b'x');
    assert!(parse(&long, None).is_err());
}
