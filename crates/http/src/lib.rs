//! The web page of a running router, for browsers and for Prometheus.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page |
//! | `/metrics` | the newest sample, as OpenMetrics or in the older text format of Prometheus |
//! | `/state` | the newest sample, as JSON |
//! | `/history` | the rates and delays of the last day, as JSON |
//! | `/events` | samples as they come, as server-sent events |
//! | `/runs` | the progress of runs, as JSON; null for a router |
//! | `/login` (POST) | exchanges the token for a cookie |
//! | `/control` | what the form for changes shows, as JSON |
//! | `/command` (POST) | executes commands |
//! | `/undo` (POST) | takes the last change back |
//!
//! Where a path has GET, HEAD returns the headers of its answer.
//!
//! Each connection has a thread of ordinary priority and carries one request. A thread reads a
//! request of at most 16 KiB within 10 s, and at most 32 connections are open. A reader of `/events`
//! that is slow gets the newest sample after the one that it has read, so that samples do not
//! accumulate; one that does not read for 10 s is disconnected.
//!
//! The address is an IP address with a port, or a Unix socket, to which only its owner can connect.
//!
//! A page of another site must not read the figures, not even by DNS rebinding: the Host header must
//! be an IP address or `localhost`, and an Origin header must name the same host. At an IP
//! address other than loopback every answer with figures requires a token.
//!
//! [`Server::show_runs`] serves runs under way instead, with the same rules: `/runs` is their progress as
//! JSON, `/report/N` the report of run N, and all the rest shows the live run that goes on now, if
//! there is one ([`Server::watch`]).
//!
//! Without an [`Editor`] the page is read-only. Changes always require the token, or the cookie that
//! stands for it together with an Origin header.

mod access;
mod address;
mod clients;
mod control;
mod grafana;
mod history;
mod metrics;
mod request;
mod runs;

pub use access::{MOST_TOKEN, SHORTEST_TOKEN, TokenError, read_token};
pub use address::{Address, Listening};
pub use grafana::dashboard;
pub use runs::Board;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use access::Access;
use address::Stream;
use clients::Clients;
use history::History;
use metrics::{Format, formatted};
use request::{Method, Request};

use sluice_router::control::{PAGE_HEAD, PAGE_PATIENCE, SocketError, Why, no_thread};
use sluice_router::process::Editor;
use sluice_router::process::watch::Watcher;

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address.
    pub address: Address,
    /// The token that clients need; required at an IP address that is not loopback. Only the owner of
    /// a Unix socket can connect to it.
    pub token: Option<String>,
    /// Whether the page can change the configuration, which requires a token.
    pub is_controlled: bool,
    /// The page.
    pub page: &'static str,
}

impl Settings {
    /// Opens the address. A port below 1024 needs a privilege, which a router gives up when it has
    /// started.
    ///
    /// # Errors
    /// [`HttpError::Open`], [`HttpError::Control`], [`HttpError::Listen`] and [`HttpError::Socket`].
    pub fn listen(&self) -> Result<Listening, HttpError> {
        if let Address::Tcp(address) = self.address
            && !address.ip().is_loopback()
            && self.token.is_none()
        {
            return Err(HttpError::Open(address));
        }
        if self.is_controlled && self.token.is_none() {
            return Err(HttpError::Control);
        }
        Listening::open(&self.address)
    }
}

/// The reasons why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Anybody could read the figures.
    #[error(
        "--http {0} can be reached from other machines, so it needs --http-token FILE; or use \
         127.0.0.1:{port}", port = .0.port()
    )]
    Open(SocketAddr),
    /// Anybody on this machine could change the configuration.
    #[error(
        "--http-control needs --http-token FILE, so that not every user of this machine can change \
         the configuration; make one with `openssl rand -hex 16`"
    )]
    Control,
    /// The address cannot be opened.
    #[error("cannot listen at {address}: {source}{}", hint(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The Unix socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A thread cannot be started.
    #[error("cannot start a thread for the page: {}", no_thread(.0))]
    Thread(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program has this port, choose another one",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has this address",
        _ => "",
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    listening: Arc<Listening>,
    means: Arc<Means>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
struct Means {
    shown: Shown,
    /// When the progress of runs was last requested and answered.
    asked: Mutex<Option<Instant>>,
    page: &'static str,
    access: Access,
    is_closing: AtomicBool,
    clients: Arc<Clients>,
}

/// What the page shows.
struct Shown {
    /// The router; with runs, that of the live run that goes on or was the last one.
    router: Mutex<Option<Arc<OfRouter>>>,
    runs: Option<Arc<dyn Board>>,
}

/// What the page of a router needs.
struct OfRouter {
    watcher: Watcher,
    editor: Option<Editor>,
    history: Mutex<History>,
    /// Whether another router is shown by now.
    has_gone: AtomicBool,
}

impl OfRouter {
    fn new(watcher: Watcher, editor: Option<Editor>) -> Arc<OfRouter> {
        Arc::new(OfRouter {
            watcher,
            editor,
            history: Mutex::default(),
            has_gone: AtomicBool::new(false),
        })
    }
}

impl Shown {
    fn router(&self) -> Option<Arc<OfRouter>> {
        lock(&self.router).clone()
    }
}

/// A sample must have come within this time.
const SAMPLE: Duration = Duration::from_secs(5);
/// Bytes of samples that the kernel keeps for a reader.
const KEPT: usize = 64 << 10;
/// A client must have read its answer within this time. The history of a busy router has some
/// hundred kilobytes.
const ANSWERED: Duration = Duration::from_secs(60);
/// A page that follows runs asks for their progress once a second, and on a busy machine within this
/// time.
const FOLLOWED: Duration = Duration::from_secs(2);
/// The pause after a sample that did not come.
const RETRY: Duration = Duration::from_secs(1);

impl Server {
    /// Starts a server at what [`Settings::listen`] has opened, which shows what `watcher` sees, and
    /// makes changes with `editor`. While it runs, the router is watched all the time, for the
    /// history.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn start(
        settings: &Settings,
        listening: Listening,
        watcher: Watcher,
        editor: Option<Editor>,
    ) -> Result<Server, HttpError> {
        let router = Mutex::new(Some(OfRouter::new(watcher, editor)));
        Server::serve(settings, listening, Shown { router, runs: None })
    }

    /// Starts a server at what [`Settings::listen`] has opened, which shows runs under way, and the
    /// router of the one that [`Server::watch`] names.
    ///
    /// # Errors
    /// [`HttpError`].
    pub fn show_runs(
        settings: &Settings,
        listening: Listening,
        board: Arc<dyn Board>,
    ) -> Result<Server, HttpError> {
        let shown = Shown {
            router: Mutex::default(),
            runs: Some(board),
        };
        Server::serve(settings, listening, shown)
    }

    /// Shows what `watcher` sees from now on, with a history of its own.
    pub fn watch(&self, watcher: Watcher) {
        let router = OfRouter::new(watcher, None);
        let old = lock(&self.means.shown.router).replace(router);
        if let Some(old) = old {
            old.has_gone.store(true, Ordering::Release);
        }
    }

    fn serve(settings: &Settings, listening: Listening, shown: Shown) -> Result<Server, HttpError> {
        let access = Access::new(settings.token.clone());
        let listening = Arc::new(listening);
        let means = Arc::new(Means {
            shown,
            asked: Mutex::default(),
            page: settings.page,
            access,
            is_closing: AtomicBool::new(false),
            clients: Arc::default(),
        });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .map_err(HttpError::Thread)
        };
        let recorder = Arc::clone(&means);
        let (of_thread, opened) = (Arc::clone(&means), Arc::clone(&listening));
        let threads = vec![
            spawn("history", Box::new(move || record(&recorder)))?,
            spawn("http", Box::new(move || accept(&opened, &of_thread)))?,
        ];
        Ok(Server {
            listening,
            means,
            threads,
        })
    }

    /// Ends the server once the pages that follow the runs have had the time to see that these are over.
    /// Without such a page, it ends at once.
    pub fn finish(self) {
        let asked = *lock(&self.means.asked);
        if asked.is_some_and(|asked| asked.elapsed() <= FOLLOWED) {
            thread::sleep(FOLLOWED);
        }
    }

    /// Returns the address; its port is the actual one if 0 was given.
    pub fn address(&self) -> Address {
        self.listening.address()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.means.is_closing.store(true, Ordering::Release);
        if self.listening.wake(RETRY) {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

/// Keeps the history.
fn record(means: &Means) {
    while !means.is_closing.load(Ordering::Acquire) {
        let Some(router) = means.shown.router() else {
            thread::sleep(RETRY / 10);
            continue;
        };
        let mut after = 0;
        while !means.has_ended(&router) {
            match router.watcher.sample(after, RETRY) {
                Ok(sample) => {
                    after = sample.number;
                    lock(&router.history).add(&sample);
                }
                Err(_) => thread::sleep(RETRY / 10),
            }
        }
    }
}

impl Means {
    /// Returns whether the server ends or shows another router.
    fn has_ended(&self, router: &OfRouter) -> bool {
        self.is_closing.load(Ordering::Acquire) || router.has_gone.load(Ordering::Acquire)
    }

    /// Counts a refused client or request in the status of the router.
    fn count(&self, why: Why) {
        if let Some(router) = self.shown.router() {
            router.watcher.turned_away().count(why);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing under the locks can panic halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listening: &Listening, means: &Arc<Means>) {
    loop {
        let accepted = listening.accept();
        if means.is_closing.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = accepted else {
            // Most likely there are too many open files; some must be closed first.
            means.count(Why::HttpAccept);
            thread::sleep(RETRY / 20);
            continue;
        };
        // Connections are counted in the order in which they come.
        let place = match means.clients.admit(stream.address()) {
            Ok(place) => place,
            Err(why) => {
                means.count(why);
                // The buffer of a new connection takes the answer without waiting.
                let _ = Answer::text(503, "too many connections").send_within(&stream, RETRY / 10);
                continue;
            }
        };
        let of_thread = Arc::clone(means);
        let stream = Arc::new(stream);
        let waiting = Arc::clone(&stream);
        let serve = move || {
            // An error is the client's.
            let _ = serve(&stream, &of_thread, PAGE_PATIENCE);
            stream.close();
            drop(place);
        };
        let thread = thread::Builder::new().name("http-client".into());
        if thread.spawn(serve).is_err() {
            means.count(Why::HttpThread);
            let _ =
                Answer::text(503, "no thread could be started").send_within(&waiting, RETRY / 10);
        }
    }
}

/// Answers one request, which must be complete within `patience`.
fn serve(stream: &Stream, means: &Means, patience: Duration) -> io::Result<()> {
    let request = match Request::read(stream, PAGE_HEAD, patience) {
        Ok(request) => request,
        Err(request::ReadError::Io(error)) => {
            if matches!(
                error.kind(),
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
            ) {
                means.count(Why::HttpSlow);
            }
            return Err(error);
        }
        Err(request::ReadError::Refused(status, why, text)) => {
            means.count(why);
            return Answer::text(status, text).send(stream);
        }
    };
    let has_body = request.method != Method::Head;
    match reply(&request, stream, means)? {
        Reply::Events(router) if has_body => events(stream, &router, means),
        Reply::Events(_) => Answer::stream().send_head(stream),
        Reply::Whole(answer) => {
            let follows_runs = answer.status == 200 && request.path() == "/runs";
            match has_body {
                true => answer.send(stream)?,
                false => answer.send_without_body(stream)?,
            }
            if follows_runs {
                *lock(&means.asked) = Some(Instant::now());
            }
            Ok(())
        }
    }
}

/// What a request is answered with.
enum Reply {
    Whole(Answer),
    /// Samples as they come.
    Events(Arc<OfRouter>),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        Reply::Whole(answer)
    }
}

/// Returns the reply to a request, and makes the change that it asks for.
fn reply(request: &Request, stream: &Stream, means: &Means) -> io::Result<Reply> {
    if let Err((why, text)) = access::check_names(request) {
        means.count(why);
        return Ok(Answer::text(403, text).into());
    }
    let path = request.path();
    let (methods, allow) = allowed(path, means.shown.runs.is_some());
    if !methods.contains(&request.method) {
        let why = format!("this path has the methods {allow} only");
        return Ok(Answer::text(405, &why).with("Allow", allow).into());
    }
    // The page has no figures.
    if path == "/" {
        return Ok(Answer::page(means.page).into());
    }
    if path == "/login" {
        let answer = match means.access.login(request) {
            Some(cookie) => Answer::empty().with("Set-Cookie", cookie),
            None => {
                means.count(Why::HttpWrongToken);
                Answer::text(403, "wrong token")
            }
        };
        return Ok(answer.into());
    }
    let admitted = means.access.admits(request).map_err(|why| means.count(why));
    let Ok(admitted) = admitted else {
        let why = "a token is required: open the page with #token=TOKEN behind its address, or send \
                   `Authorization: Bearer TOKEN`";
        let answer = Answer::text(401, why).with("WWW-Authenticate", "Bearer");
        return Ok(answer.into());
    };
    let of_runs = match &means.shown.runs {
        Some(board) => runs::answer(path, board),
        None => (path == "/runs").then(|| Answer::json("null".to_owned())),
    };
    if let Some(answer) = of_runs {
        return Ok(answer.into());
    }
    let Some(router) = means.shown.router() else {
        return Ok(Answer::text(503, "no live run has begun").into());
    };
    let answer = match path {
        path if CHANGES.contains(&path) => {
            let from = format!("http {}", stream.peer()?);
            control::change(request, &from, admitted, router.editor.as_ref())
        }
        "/control" => control::form(router.editor.as_ref()),
        "/events" => return Ok(Reply::Events(router)),
        "/history" => Answer::json(lock(&router.history).json()),
        "/metrics" | "/state" => match router.watcher.sample(0, SAMPLE) {
            Err(why) => Answer::text(503, &why.to_string()),
            Ok(sample) if path == "/metrics" => {
                let format = Format::accepted(request.header("accept"));
                Answer::of(format.content_type(), formatted(&sample, format))
            }
            Ok(sample) => Answer::json(serde_json::to_string(&*sample).expect("a sample is plain")),
        },
        _ => Answer::text(
            404,
            "there are /, /metrics, /state, /history, /events, /runs and /control; a page of runs has \
             /report/N, too; by POST, there are /login, /command and /undo",
        ),
    };
    Ok(answer.into())
}

/// The paths of changes.
const CHANGES: [&str; 2] = ["/command", "/undo"];

/// Returns the methods of a path, also as in the header `Allow`. A page of runs has no changes.
fn allowed(path: &str, has_runs: bool) -> (&'static [Method], &'static str) {
    match path == "/login" || !has_runs && CHANGES.contains(&path) {
        true => (&[Method::Post], "POST"),
        false => (&[Method::Get, Method::Head], "GET, HEAD"),
    }
}

/// Sends samples until the reader or the router ends.
fn events(stream: &Stream, router: &OfRouter, means: &Means) -> io::Result<()> {
    // By default the kernel would keep minutes of samples for a reader that stalls.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(stream, KEPT);
    Answer::stream().send_head(stream)?;
    let mut after = 0;
    while !means.has_ended(router) {
        match router.watcher.sample(after, SAMPLE) {
            Ok(sample) => {
                after = sample.number;
                let json = serde_json::to_string(&*sample).expect("a sample is plain");
                let event = format!("id: {after}\ndata: {json}\n\n");
                stream.write_within(event.as_bytes(), PAGE_PATIENCE)?;
            }
            // A comment shows that the connection lives.
            Err(_) => {
                stream.write_within(b": no sample\n\n", PAGE_PATIENCE)?;
                thread::sleep(RETRY);
            }
        }
    }
    Ok(())
}

/// An answer.
struct Answer {
    status: u16,
    /// The type of the body; `None` if there is none.
    kind: Option<&'static str>,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    fn of(kind: &'static str, body: String) -> Answer {
        Answer {
            status: 200,
            kind: Some(kind),
            headers: Vec::new(),
            body,
        }
    }

    fn text(status: u16, text: &str) -> Answer {
        Answer {
            status,
            ..Answer::of("text/plain; charset=utf-8", format!("{text}\n"))
        }
    }

    /// RFC 9110 section 15.3.5: it ends with its headers, and section 8.6: none of them is a length.
    fn empty() -> Answer {
        Answer {
            status: 204,
            kind: None,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    fn page(page: &str) -> Answer {
        Answer::of("text/html; charset=utf-8", page.to_owned())
    }

    fn json(json: String) -> Answer {
        Answer::of("application/json", json)
    }

    fn stream() -> Answer {
        Answer::of("text/event-stream", String::new())
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    fn send(self, stream: &Stream) -> io::Result<()> {
        self.send_within(stream, ANSWERED)
    }

    fn send_within(self, stream: &Stream, patience: Duration) -> io::Result<()> {
        let mut answer = self.head(self.kind.map(|_| self.body.len()));
        answer.push_str(&self.body);
        stream.write_within(answer.as_bytes(), patience)
    }

    /// RFC 9110 section 9.3.2: the headers are those of an answer with a body.
    fn send_without_body(self, stream: &Stream) -> io::Result<()> {
        let head = self.head(self.kind.map(|_| self.body.len()));
        stream.write_within(head.as_bytes(), ANSWERED)
    }

    fn send_head(self, stream: &Stream) -> io::Result<()> {
        stream.write_within(self.head(None).as_bytes(), PAGE_PATIENCE)
    }

    fn head(&self, length: Option<usize>) -> String {
        let phrase = match self.status {
            200 => "OK",
            204 => "No Content",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            415 => "Unsupported Media Type",
            422 => "Unprocessable Content",
            501 => "Not Implemented",
            _ => "Service Unavailable",
        };
        let mut head = format!("HTTP/1.1 {} {phrase}\r\n", self.status);
        if let Some(kind) = self.kind {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        for (name, value) in FIXED {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        head.push_str("\r\n");
        head
    }
}

/// The headers of every answer. The script and the style of the page are inside it.
const FIXED: [(&str, &str); 6] = [
    ("Connection", "close"),
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
];

#[cfg(test)]
mod tests;
