//! The page of runs under way.

use super::*;

/// Two runs, the first of which has a report.
struct Two(tempfile::TempDir);

impl Board for Two {
    fn json(&self) -> String {
        r#"{"total":2}"#.to_owned()
    }

    fn report(&self, run: usize) -> Option<std::path::PathBuf> {
        (run < 2).then(|| self.0.path().join(format!("{run}.html")))
    }
}

#[test]
fn runs_under_way_are_shown_by_the_same_rules() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("0.html"), "<p>report").unwrap();
    let settings = Settings {
        address: "127.0.0.1:0".parse().unwrap(),
        token: Some(TOKEN.to_owned()),
        is_controlled: false,
        page: "",
    };
    let listener = settings.listen().unwrap();
    let server = Server::show_runs(&settings, listener, Arc::new(Two(folder))).unwrap();
    let address = port_of(&server);
    let ask = |line: &str, headers: &str| -> (u16, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("{line} HTTP/1.1\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    };
    let host = format!("Host: {address}\r\n");
    let own = format!("{host}Authorization: Bearer {TOKEN}\r\n");
    // The page has no figures; everything else needs the token, and no other site may ask.
    assert_eq!(ask("GET /", &host).0, 200);
    assert_eq!(ask("GET /runs", &host).0, 401);
    assert_eq!(ask("GET /report/0", &host).0, 401);
    let foreign = own.replace(&host, "Host: evil.example\r\n");
    assert_eq!(ask("GET /runs", &foreign).0, 403);
    let site = format!("{own}Origin: http://evil.example\r\n");
    assert_eq!(ask("GET /runs", &site).0, 403);
    assert_eq!(ask("GET /runs", &own), (200, r#"{"total":2}"#.to_owned()));
    assert_eq!(ask("GET /report/0", &own), (200, "<p>report".to_owned()));
    // A report that is not written yet, runs and paths that do not exist.
    for path in ["/report/1", "/report/2", "/report/../0"] {
        assert_eq!(ask(&format!("GET {path}"), &own).0, 404, "{path}");
    }
    assert_eq!(ask("POST /command", &own).0, 405);
    // No live run has begun.
    for path in ["/state", "/history", "/events", "/metrics"] {
        assert_eq!(ask(&format!("GET {path}"), &own).0, 503, "{path}");
    }
    // The one that goes on is shown, and the next one in its place, each with a history of its own.
    for _ in 0..2 {
        let (orders, end, thread) = Served::engine();
        server.watch(Watcher::new(orders));
        let state: serde_json::Value = serde_json::from_str(&ask("GET /state", &own).1).unwrap();
        assert_eq!(state["number"], 1, "{state}");
        assert!(ask("GET /metrics", &own).1.contains("sluice_"));
        assert_eq!(ask("GET /history", &own).0, 200);
        assert_eq!(ask("GET /nowhere", &own).0, 404);
        end.send(()).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn whoever_follows_the_runs_can_see_their_end_and_nobody_else_is_waited_for() {
    let start = || {
        let settings = Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            token: None,
            is_controlled: false,
            page: "",
        };
        let listener = settings.listen().unwrap();
        let board = Two(tempfile::tempdir().unwrap());
        Server::show_runs(&settings, listener, Arc::new(board)).unwrap()
    };
    let ask = |address: SocketAddr, path: &str| -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let server = start();
    let address = port_of(&server);
    assert!(ask(address, "/runs").unwrap().ends_with(r#"{"total":2}"#));
    let began = Instant::now();
    let ending = thread::spawn(move || server.finish());
    // The page asks again while the server waits for it.
    assert!(ask(address, "/runs").unwrap().ends_with(r#"{"total":2}"#));
    ending.join().unwrap();
    assert!(began.elapsed() >= FOLLOWED);
    assert!(ask(address, "/runs").is_err());

    // The page itself does not count as a question for the progress, nor does a report.
    let server = start();
    let address = port_of(&server);
    ask(address, "/").unwrap();
    ask(address, "/report/0").unwrap();
    assert!(lock(&server.means.asked).is_none());
    server.finish();
}
