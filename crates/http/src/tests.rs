use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::{Firewall, Output, Settings as EngineSettings};

use super::*;
use sluice_router::control::{Answered, Builder, Orders, PAGE_CLIENTS, Watched, Work, inbox};
use sluice_router::forward::Lateness;
use sluice_router::process::Status;

mod cookie;
mod json;
mod methods;
mod runs;

/// A server beside a loop without packets.
struct Served {
    server: Option<Server>,
    end: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

const TOKEN: &str = "0123456789abcdef";

impl Served {
    fn start(token: Option<&str>) -> Served {
        Served::start_with(token, false)
    }

    /// Starts a loop without packets. It ends when something is sent.
    fn engine() -> (Orders<Status>, mpsc::Sender<()>, JoinHandle<()>) {
        let (mut inbox, orders) = inbox::<Status>(Builder::default()).unwrap();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut firewall = Firewall::new(&EngineSettings::default());
            let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
            while ended.try_recv().is_err() {
                while let Some(order) = inbox.take() {
                    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
                    let mut watching = match order.work {
                        Work::Watch(watching) => watching,
                        Work::Draft | Work::Report => {
                            let mut draft = Box::new(firewall.draft());
                            while firewall.continue_draft(&mut draft) {}
                            order.answer.send(Answered::Draft(draft));
                            continue;
                        }
                        Work::Commands {
                            text,
                            mode,
                            mut files,
                        } => {
                            let mut output = Output::default();
                            let result =
                                firewall.execute(&text, mode, &mut files, &mut output, &mut cx);
                            let answered = Answered::Commands(Box::new(output), result);
                            order.answer.send(answered);
                            continue;
                        }
                        Work::Replace(prepared) => {
                            let old = firewall.replace(*prepared, &mut cx);
                            order.answer.send(Answered::Replaced(Box::new(old)));
                            continue;
                        }
                        Work::Exchange(amended) => {
                            let old = firewall.exchange(*amended, &mut cx);
                            let old = old.expect("nobody else changes anything");
                            order.answer.send(Answered::Replaced(Box::new(old)));
                            continue;
                        }
                        Work::Status => panic!("nobody asks for it"),
                    };
                    while firewall.watch(&mut watching, &mut cx) {}
                    order.answer.send(Answered::Watched(Box::new(Watched {
                        watching: *watching,
                        status: Status::default(),
                        lateness: Lateness::default(),
                        rtt: None,
                    })));
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        (orders, end, thread)
    }

    fn start_with(token: Option<&str>, is_controlled: bool) -> Served {
        Served::start_at("127.0.0.1:0", token, is_controlled)
    }

    fn start_at(address: &str, token: Option<&str>, is_controlled: bool) -> Served {
        let (orders, end, thread) = Served::engine();
        let settings = Settings {
            address: address.parse().unwrap(),
            token: token.map(str::to_owned),
            is_controlled,
            page: "<!doctype html><title>live</title>",
        };
        let listener = settings.listen().unwrap();
        let editor = is_controlled.then(|| Editor::new(orders.clone()));
        let server = Server::start(&settings, listener, Watcher::new(orders), editor).unwrap();
        Served {
            server: Some(server),
            end,
            thread: Some(thread),
        }
    }

    /// Returns the counts of refused requests, by reason.
    fn refused(&self) -> Vec<(String, u64)> {
        let router = self.server.as_ref().unwrap().means.shown.router();
        let counts = router.unwrap().watcher.turned_away().counts();
        counts.into_iter().collect()
    }

    fn address(&self) -> SocketAddr {
        port_of(self.server.as_ref().expect("it runs"))
    }

    fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let host = self.address().to_string();
        stream
            .write_all(request.replace("HOST", &host).as_bytes())
            .unwrap();
        stream
    }

    /// Sends a request and returns the whole answer.
    fn ask(&self, request: &str) -> String {
        let mut answer = String::new();
        self.open(request).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a change and returns the whole answer.
    fn post(&self, path: &str, headers: &str, body: &str) -> String {
        self.ask(&format!(
            "POST {path} HTTP/1.1\r\nHost: HOST\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: HOST\r\n{headers}\r\n"
        ))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = self.end.send(());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn port_of(server: &Server) -> SocketAddr {
    match server.address() {
        Address::Tcp(address) => address,
        Address::Unix(path) => panic!("{} has no port", path.display()),
    }
}

#[track_caller]
fn expect(answer: &str, status: u16) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
    for header in [
        "Content-Security-Policy: default-src 'none'",
        "X-Content-Type-Options: nosniff",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
}

#[test]
fn the_page_metrics_state_and_history_are_served() {
    let served = Served::start(None);
    let page = served.get("/", "");
    expect(&page, 200);
    assert!(page.ends_with("<title>live</title>"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain\r\n";
    let metrics = served.get("/metrics", accept);
    expect(&metrics, 200);
    assert!(metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"));
    let metrics = served.get("/metrics", "Accept: */*\r\n");
    expect(&metrics, 200);
    assert!(metrics.contains("text/plain; version=0.0.4") && !metrics.contains("# EOF"));
    let state = served.get("/state?x=1", "");
    let body = state.split("\r\n\r\n").nth(1).unwrap();
    let state: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(state["number"].as_u64().unwrap() >= 1);
    let history = served.get("/history", "");
    assert!(history.contains("\"series\":"), "{history}");
    // A router has no runs.
    assert!(served.get("/runs", "").ends_with("\r\n\r\nnull"));
    expect(&served.get("/other", ""), 404);
}

#[test]
fn foreign_names_are_refused() {
    let served = Served::start(None);
    for request in [
        "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /state HTTP/1.1\r\n\r\n",
        "GET /state HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\n",
        "GET /state HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example\r\n\r\n",
        "GET /state HTTP/1.1\r\nHost: HOST\r\nOrigin: null\r\n\r\n",
    ] {
        expect(&served.ask(request), 403);
    }
    let own = served.ask("GET /state HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\n\r\n");
    expect(&own, 200);
    assert_eq!(
        served.refused(),
        counts(&[("http_host", 4), ("http_origin", 2)])
    );
}

/// The loop of this server counts no refused clients, as one of links without rules.
#[test]
fn metrics_count_refused_requests_from_zero() {
    let served = Served::start(None);
    let count = |reason: &str| -> u64 {
        let metrics = served.get("/metrics", "");
        let start = format!("sluice_refused_clients_total{{reason=\"{reason}\"}} ");
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(&start));
        values
            .next()
            .expect("every reason has a row")
            .parse()
            .unwrap()
    };
    assert_eq!(count("http_host"), 0);
    let foreign = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    expect(&served.ask(foreign), 403);
    // The next sample has it.
    let is_counted = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        count("http_host") == 1
    });
    assert!(is_counted);
    assert_eq!(count("http_origin"), 0);
}

fn counts(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn a_token_is_asked_for_and_a_cookie_stands_for_it() {
    let served = Served::start(Some(TOKEN));
    let port = served.address().port();
    expect(&served.get("/", ""), 200);
    for path in ["/metrics", "/state", "/history", "/events"] {
        expect(&served.get(path, ""), 401);
        expect(
            &served.get(path, "Authorization: Bearer 0123456789abcdeX\r\n"),
            401,
        );
        let cookie = format!("Cookie: sluice_session_{port}={TOKEN}\r\n");
        expect(&served.get(path, &cookie), 401);
    }
    expect(
        &served.get("/state", &format!("Authorization: Bearer {TOKEN}\r\n")),
        200,
    );
    let login = |token: &str, more: &str| {
        served.ask(&format!(
            "POST /login HTTP/1.1\r\nHost: HOST\r\n{more}Content-Length: {}\r\n\r\n{token}",
            token.len()
        ))
    };
    expect(&login("wrong", ""), 403);
    expect(&login(TOKEN, "Origin: http://evil.example\r\n"), 403);
    let answer = login(TOKEN, "");
    expect(&answer, 204);
    // RFC 9110 sections 15.3.5 and 8.6: nothing behind the headers, and no length.
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    for header in ["\nContent-Length:", "\nContent-Type:"] {
        assert!(!answer.contains(header), "{answer}");
    }
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: "))
        .unwrap();
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{cookie}"
    );
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let value = cookie.split(';').next().unwrap();
    expect(
        &served.get("/state", &format!("Cookie: a=b; {value}\r\n")),
        200,
    );
    // Each path once without a token, and with a wrong token and a wrong cookie; one wrong login.
    let expected = [
        ("http_no_token", 4),
        ("http_origin", 1),
        ("http_wrong_token", 9),
    ];
    assert_eq!(served.refused(), counts(&expected));
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let settings = Settings {
        address: "0.0.0.0:0".parse().unwrap(),
        token: None,
        is_controlled: false,
        page: "",
    };
    let refused = settings.listen().unwrap_err();
    assert!(
        refused.to_string().contains("needs --http-token FILE"),
        "{refused}"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let served = Served::start(None);
    let settings = Settings {
        address: Address::Tcp(served.address()),
        token: None,
        is_controlled: false,
        page: "",
    };
    let refused = settings.listen().unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("another program has this port"),
        "{refused}"
    );
}

#[test]
fn bad_requests_are_refused() {
    let served = Served::start(None);
    expect(&served.ask("nonsense\r\n\r\n"), 400);
    expect(&served.ask("DELETE / HTTP/1.1\r\nHost: HOST\r\n\r\n"), 501);
    expect(
        &served.ask("POST /state HTTP/1.1\r\nHost: HOST\r\n\r\n"),
        405,
    );
    let long = "POST /login HTTP/1.1\r\nHost: HOST\r\nContent-Length: 100000\r\n\r\n";
    expect(&served.ask(long), 400);
    let chunked = "POST /login HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n";
    expect(&served.ask(chunked), 400);
    let head = format!("GET / HTTP/1.1\r\nHost: HOST\r\nX: {}", "x".repeat(20_000));
    expect(&served.ask(&head), 400);
    assert_eq!(
        served.refused(),
        counts(&[("http_long", 2), ("http_unreadable", 3)])
    );
}

#[test]
fn a_client_beyond_the_limit_is_refused_and_counted() {
    let served = Served::start(None);
    let held: Vec<TcpStream> = (0..PAGE_CLIENTS).map(|_| served.open("GET ")).collect();
    // It sends nothing: with an unread request, the end of the connection would be a reset.
    expect(&served.ask(""), 503);
    assert_eq!(served.refused(), counts(&[("http_too_many", 1)]));
    drop(held);
}

#[test]
fn a_client_that_does_not_complete_its_request_is_counted() {
    let served = Served::start(None);
    let (mut client, served_end) = UnixStream::pair().unwrap();
    client.write_all(b"GET / HT").unwrap();
    let means = &served.server.as_ref().unwrap().means;
    let patience = Duration::from_millis(10);
    assert!(serve(&Stream::Unix(served_end), means, patience).is_err());
    assert_eq!(served.refused(), counts(&[("http_slow", 1)]));
}

#[test]
fn events_come_as_they_are_taken_and_a_reader_gets_each_once() {
    let served = Served::start(None);
    let mut stream = served.open("GET /events HTTP/1.1\r\nHost: HOST\r\n\r\n");
    let mut text = String::new();
    while text.matches("data: ").count() < 2 {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(text.contains("Content-Type: text/event-stream"));
    let ids: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.parse().ok())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
}

#[test]
fn too_many_connections_are_refused_and_others_are_served_again() {
    let served = Served::start(None);
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(served.address()).unwrap())
        .collect();
    let mut stream = silent.last().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop(silent);
    let answered = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(20));
        served.get("/", "").starts_with("HTTP/1.1 200 ")
    });
    assert!(answered);
}

const JSON: &str = "Content-Type: application/json\r\n";
const BEARER: &str = "Authorization: Bearer 0123456789abcdef\r\n";

fn body(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    serde_json::from_str(body).unwrap()
}

#[test]
fn pipes_are_changed_and_the_change_is_taken_back_under_the_address_of_the_client() {
    let served = Served::start_with(Some(TOKEN), true);
    let may = format!("{JSON}{BEARER}");
    let change = |text: &str| {
        let request = serde_json::json!({ "commands": text }).to_string();
        served.post("/command", &may, &request)
    };
    let answer = change("pipe 1 config bw 10Mbit/s");
    expect(&answer, 200);
    assert_eq!(body(&answer)["undo"], "pipe 1 config bw 10Mbit/s");
    let form = body(&served.get("/control", BEARER));
    assert_eq!(form["is_allowed"], true);
    assert_eq!(form["objects"][0]["rate"], "10Mbit/s");
    // The words are those of the command line.
    let answer = change("pipe 1 config bw 10Mbit/s cdoel");
    expect(&answer, 422);
    let error = &body(&answer)["reply"]["error"];
    let why = error["message"].as_str().unwrap();
    assert!(why.contains("did you mean ``codel''"), "{why}");
    assert_eq!(error["place"]["column"], 27);
    let answer = served.post("/undo", &may, "{}");
    expect(&answer, 200);
    assert!(body(&answer)["undo"].is_null());
    assert_eq!(
        body(&served.get("/control", BEARER))["objects"],
        serde_json::json!([])
    );
    expect(&served.post("/undo", &may, "{}"), 422);
    let changes = body(&served.get("/state", BEARER));
    let changes: Vec<[&str; 2]> = changes["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| ["by", "text"].map(|key| change[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        changes,
        [
            ["http 127.0.0.1", "pipe 1 config bw 10Mbit/s"],
            ["http 127.0.0.1", "pipe 1 config bw 10Mbit/s cdoel"],
            ["http 127.0.0.1", "undo: pipe 1 config bw 10Mbit/s"],
        ]
    );
}

#[test]
fn changes_need_the_token_or_the_cookie_of_this_page() {
    let served = Served::start_with(Some(TOKEN), true);
    let body = r#"{"commands":"pipe 1 config"}"#;
    let try_with = |headers: &str| served.post("/command", headers, body);
    let login = served.post("/login", "", TOKEN);
    let cookie = login
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookie = cookie.unwrap().split(';').next().unwrap();
    let cookie = format!("{JSON}Cookie: {cookie}\r\n");
    expect(&try_with(JSON), 401);
    expect(
        &try_with(&format!("{JSON}Authorization: Bearer x\r\n")),
        401,
    );
    expect(&try_with(&cookie), 403);
    expect(
        &try_with(&format!("{cookie}Origin: http://evil.example\r\n")),
        403,
    );
    expect(
        &try_with(&format!("{JSON}{BEARER}Origin: http://evil.example\r\n")),
        403,
    );
    // What a form of another site could send.
    expect(
        &try_with(&format!("{BEARER}Content-Type: text/plain\r\n")),
        415,
    );
    expect(&try_with(&format!("{cookie}Origin: http://HOST\r\n")), 200);
    expect(&try_with(&format!("{JSON}{BEARER}")), 200);
    let evil = format!(
        "POST /command HTTP/1.1\r\nHost: evil.example\r\n{JSON}{BEARER}Content-Length: 0\r\n\r\n"
    );
    expect(&served.ask(&evil), 403);
    let wrong = served.post("/command", &format!("{JSON}{BEARER}"), "{}");
    expect(&wrong, 400);
    assert!(wrong.contains("missing field `commands`"), "{wrong}");
}

#[test]
fn a_page_without_control_changes_nothing() {
    let served = Served::start(Some(TOKEN));
    let may = format!("{JSON}{BEARER}");
    let answer = served.post("/command", &may, r#"{"commands":"pipe 1 config"}"#);
    expect(&answer, 403);
    assert!(
        answer.contains("start the router with --http-control"),
        "{answer}"
    );
    assert_eq!(body(&served.get("/control", BEARER))["is_allowed"], false);
    let settings = Settings {
        address: "127.0.0.1:0".parse().unwrap(),
        token: None,
        is_controlled: true,
        page: "",
    };
    let refused = settings.listen().unwrap_err().to_string();
    assert!(
        refused.contains("--http-control needs --http-token FILE"),
        "{refused}"
    );
}

/// Sends a request over a Unix socket and returns the whole answer.
fn ask_unix(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_unix_socket_is_its_owners_alone_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let address = format!("unix:{}", path.display());
    // A killed router left a socket behind, which is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let served = Served::start_at(&address, None, false);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // No token is needed, and the names are checked as on a port.
    let get = |path_of: &str, headers: &str| {
        ask_unix(&path, &format!("GET {path_of} HTTP/1.1\r\n{headers}\r\n"))
    };
    expect(&get("/metrics", "Host: localhost\r\n"), 200);
    expect(&get("/state", "Host: 127.0.0.1:9180\r\n"), 200);
    expect(&get("/state", "Host: evil.example\r\n"), 403);
    let foreign = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    expect(&get("/state", foreign), 403);
    // Another one is refused, and the first one still answers.
    let settings = Settings {
        address: address.parse().unwrap(),
        token: None,
        is_controlled: false,
        page: "",
    };
    let refused = settings.listen().unwrap_err().to_string();
    assert!(
        refused.ends_with("another router or program listens here; choose another path"),
        "{refused}"
    );
    expect(&get("/", "Host: localhost\r\n"), 200);
    // A stream that is open does not keep the server.
    let mut events = UnixStream::connect(&path).unwrap();
    events
        .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    drop(served);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // An ordinary file is not replaced.
    fs::write(&path, "precious").unwrap();
    let refused = settings.listen().unwrap_err().to_string();
    assert!(refused.contains("is not a socket"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn changes_over_a_unix_socket_need_the_token_and_name_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let address = format!("unix:{}", path.display());
    let settings = Settings {
        address: address.parse().unwrap(),
        token: None,
        is_controlled: true,
        page: "",
    };
    assert!(matches!(settings.listen(), Err(HttpError::Control)));
    let _served = Served::start_at(&address, Some(TOKEN), true);
    let commands = r#"{"commands":"pipe 1 config bw 1Mbit/s"}"#;
    let change = |headers: &str| {
        let request = format!(
            "POST /command HTTP/1.1\r\nHost: localhost\r\n{JSON}{headers}Content-Length: {}\r\n\r\n{commands}",
            commands.len()
        );
        ask_unix(&path, &request)
    };
    expect(&change(""), 401);
    expect(&change(BEARER), 200);
    let state = format!("GET /state HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n");
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(
        body(&ask_unix(&path, &state))["changes"][0]["by"],
        format!("http uid {user}")
    );
}
