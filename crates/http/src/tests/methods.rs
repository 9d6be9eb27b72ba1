//! Methods of HTTP, and what else RFC 9110 asks of a server.

use super::*;

fn head_of(answer: &str) -> Vec<&str> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "", "{answer}");
    head.lines().collect()
}

/// RFC 9110 section 9.3.2.
#[test]
fn head_returns_the_headers_of_get_without_a_body() {
    let served = Served::start(None);
    let ask = |method: &str, path: &str| {
        served.ask(&format!("{method} {path} HTTP/1.1\r\nHost: HOST\r\n\r\n"))
    };
    // What does not change between two requests.
    for (path, status) in [
        ("/", 200),
        ("/runs", 200),
        ("/control", 200),
        ("/other", 404),
    ] {
        let get = ask("GET", path);
        expect(&get, status);
        let head = ask("HEAD", path);
        let (of_get, _) = get.split_once("\r\n\r\n").unwrap();
        assert_eq!(head_of(&head), of_get.lines().collect::<Vec<_>>());
        assert!(head.contains("\r\nContent-Length: "), "{head}");
    }
    for path in ["/metrics", "/state", "/history"] {
        let head = ask("HEAD", path);
        expect(&head, 200);
        head_of(&head);
        assert!(!head.contains("Content-Length: 0"), "{head}");
    }
    // The stream of samples does not begin.
    let head = ask("HEAD", "/events");
    expect(&head, 200);
    assert!(head_of(&head).contains(&"Content-Type: text/event-stream"));
    assert_eq!(served.refused(), counts(&[]));
}

/// RFC 9110 section 15.5.6: a refusal of the method names those of the path.
#[test]
fn a_path_names_its_methods() {
    let served = Served::start(Some(TOKEN));
    for (method, path, allow) in [
        ("POST", "/", "GET, HEAD"),
        ("POST", "/state?x=1", "GET, HEAD"),
        ("GET", "/login", "POST"),
        ("HEAD", "/command", "POST"),
        ("GET", "/undo", "POST"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: HOST\r\n\r\n");
        let answer = served.ask(&request);
        expect(&answer, 405);
        let line = format!("\r\nAllow: {allow}\r\n");
        assert!(answer.contains(&line), "{method} {path}: {answer}");
    }
    // Section 15.6.2: a method that no path has.
    for method in ["PUT", "OPTIONS", "get"] {
        expect(
            &served.ask(&format!("{method} / HTTP/1.1\r\nHost: HOST\r\n\r\n")),
            501,
        );
    }
    assert_eq!(served.refused(), counts(&[("http_unreadable", 3)]));
}

/// RFC 9110 section 11.1.
#[test]
fn the_name_of_the_scheme_may_be_in_any_case() {
    let served = Served::start(Some(TOKEN));
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let header = format!("Authorization: {scheme} {TOKEN}\r\n");
        expect(&served.get("/state", &header), 200);
    }
    for header in [
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer{TOKEN}\r\n"),
        format!("Authorization: bearer {}\r\n", TOKEN.to_uppercase()),
    ] {
        expect(&served.get("/state", &header), 401);
    }
}

#[test]
fn an_unknown_path_is_told_which_there_are() {
    let served = Served::start(None);
    let answer = served.get("/nowhere", "");
    expect(&answer, 404);
    for path in [
        "/metrics", "/state", "/history", "/events", "/runs", "/control",
    ] {
        assert!(answer.contains(path), "{path}: {answer}");
        expect(
            &served.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: HOST\r\n\r\n")),
            200,
        );
    }
    for path in ["/login", "/command", "/undo"] {
        assert!(answer.contains(path), "{path}: {answer}");
    }
}
