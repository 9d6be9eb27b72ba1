//! The control socket with well-behaved and misbehaving clients. The timeouts are real but short.

#[path = "control/gone.rs"]
mod gone;
#[path = "control/watchers.rs"]
mod watchers;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sluice_core::aqm::Aqm;
use sluice_core::aqm::droptail::DropTail;
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};
use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::{Firewall, Output, Settings};
use sluice_loader::{Code, Loaded, Loader, Source};
use sluice_router::control::{
    Answered, Builder, How, Inbox, Limits, Listener, Reply, Request, ServeError, Sources,
    TurnedAway, Work, ask, inbox,
};

/// The name of the loop's thread.
const LOOP: &str = "loop";

/// The AQMs `noted:FILE`, which pass every packet. Notes the threads that load one.
struct Noted;

static LOADED_ON: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());

impl Loader for Noted {
    fn scheme(&self) -> &'static str {
        "noted"
    }
    fn synopsis(&self) -> &'static str {
        "noted:FILE"
    }
    /// The first of the two functions that read.
    fn others(&self, _source: &Source<'_>) -> Result<Vec<u8>, String> {
        let name = thread::current().name().map(str::to_owned);
        LOADED_ON.lock().unwrap().push(name);
        Ok(Vec::new())
    }
    fn load(&self, _source: &Source<'_>) -> Result<Loaded, String> {
        Ok(Loaded {
            doc: String::new(),
            params: Vec::new(),
            code: Code::Aqm(Box::new(Noted)),
        })
    }
}

impl Outside for Noted {
    fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Ok(Box::new(Noted))
    }
}

impl Started for Noted {
    fn aqm(&self) -> Box<dyn Aqm> {
        Box::new(DropTail)
    }
}

/// A loop without packets: an engine that executes orders until the test ends.
struct Served {
    listener: Option<Listener>,
    end: Sender<()>,
    turned_away: Arc<TurnedAway>,
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

const SHORT: Limits = Limits {
    clients: 4,
    patience: Duration::from_millis(300),
    work: Duration::from_secs(20),
    grace: Duration::from_millis(50),
};

impl Served {
    fn start() -> Served {
        Served::within(SHORT)
    }

    fn within(limits: Limits) -> Served {
        Served::watched(limits, None)
    }

    fn watched(limits: Limits, sources: Option<Sources>) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let (inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
        let (end, ended) = channel();
        let packet_loop = thread::Builder::new().name(LOOP.into());
        let thread = packet_loop.spawn(move || carry_out(inbox, &ended)).unwrap();
        let turned_away = Arc::clone(orders.turned_away());
        let path = folder.path().join("s");
        let listener = Listener::open_watched(&path, orders, limits, sources).unwrap();
        Served {
            listener: Some(listener),
            end,
            turned_away,
            folder,
            thread: Some(thread),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        // The tests wait for answers; a missing answer is a failure, not a hang.
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Waits until at least as many clients were turned away for this reason; threads of their own count them.
    fn wait_for(&self, reason: &str, count: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.turned_away.counts().get(reason) < Some(&count) {
            let counts = self.turned_away.counts();
            assert!(Instant::now() < end, "{count} {reason}, but {counts:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ask(&self, commands: &str) -> Reply {
        ask(&self.path(), &request_of(commands)).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.listener.take());
        let _ = self.end.send(());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|e| e.is_ok()));
    }
}

fn request_of(commands: &str) -> Request {
    Request::Commands {
        commands: commands.into(),
        how: Default::default(),
        files: Default::default(),
    }
}

fn carry_out(mut inbox: Inbox<u32>, ended: &Receiver<()>) {
    let mut firewall = Firewall::new(&Settings::default());
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    while ended.try_recv().is_err() {
        let mut poll = [rustix::event::PollFd::from_borrowed_fd(
            inbox.as_fd(),
            rustix::event::PollFlags::IN,
        )];
        let tick = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        rustix::event::poll(&mut poll, Some(&tick)).unwrap();
        while let Some(order) = inbox.take() {
            let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
            let answer = match order.work {
                Work::Status => Answered::Status(Box::new(7)),
                Work::Draft => {
                    let mut draft = firewall.draft();
                    while firewall.continue_draft(&mut draft) {}
                    Answered::Draft(Box::new(draft))
                }
                Work::Exchange(amended) => match firewall.exchange(*amended, &mut cx) {
                    Ok(replaced) => Answered::Replaced(Box::new(replaced)),
                    Err(stale) => Answered::Stale(stale),
                },
                Work::Replace(_) | Work::Watch(_) | Work::Report => {
                    unreachable!("no test replaces the configuration or watches")
                }
                Work::Commands {
                    text,
                    mode,
                    mut files,
                } => {
                    let mut output = Output::default();
                    let result = firewall.execute(&text, mode, &mut files, &mut output, &mut cx);
                    Answered::Commands(Box::new(output), result)
                }
            };
            order.answer.send(answer);
        }
    }
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn commands_are_carried_out_and_refusals_come_back() {
    let served = Served::start();
    assert!(
        served
            .ask("pipe 1 config bw 10Mbit/s delay 20")
            .error
            .is_none()
    );
    let shown = served.ask("pipe show");
    assert!(
        shown
            .stdout
            .starts_with("00001:  10.000 Mbit/s   20 ms burst 0 \n")
    );
    let failure = served
        .ask("pipe 1 config bw 10Mbit/s dealy 20")
        .error
        .unwrap();
    assert_eq!(failure.exit_code, 65);
    assert_eq!((failure.place.line, failure.place.column), (1, 27));
    let state = served.ask("--json pipe show").state.unwrap();
    assert!(state.get().contains(r#""rate_bps":10000000"#), "{state}");
}

#[test]
fn the_loop_reads_no_file_of_an_algorithm() {
    sluice_loader::register(&[&Noted]);
    let served = Served::start();
    // Tests run in the folder of the package, and any file will do.
    let both = "pipe 3 config bw 1Mbit/s noted:Cargo.toml\npipe 3 show";
    let how = |how, commands: &str| {
        let Request::Commands { files, .. } = request_of("") else {
            unreachable!("it has commands");
        };
        let commands = commands.to_owned();
        let reply = ask(
            &served.path(),
            &Request::Commands {
                commands,
                how,
                files,
            },
        )
        .unwrap();
        assert!(reply.error.is_none(), "{:?}", reply.error);
        reply.stdout
    };
    how(How::Command, "pipe 1 config bw 1Mbit/s noted:Cargo.toml");
    how(How::Command, "sched 2 config type fq_noted:Cargo.toml");
    assert!(how(How::Batch, both).contains(" noted:Cargo.toml"));
    assert!(how(How::Atomic, both).contains(" noted:Cargo.toml"));
    let loaded_on = LOADED_ON.lock().unwrap();
    assert!(loaded_on.len() >= 4, "{loaded_on:?}");
    let by_loop = loaded_on
        .iter()
        .filter(|name| name.as_deref() == Some(LOOP));
    assert_eq!(by_loop.count(), 0, "{loaded_on:?}");
    drop(loaded_on);
    // A file that cannot be read is named, with its place in the command.
    let refused = served
        .ask("pipe 4 config bw 1Mbit/s noted:absent")
        .error
        .unwrap();
    assert!(refused.message.contains("absent"), "{}", refused.message);
    assert_eq!((refused.place.line, refused.place.column), (1, 26));
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_router() {
    let served = Served::start();
    let mode = fs::metadata(served.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let path = served.path();
    let (_inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let taken = Listener::open(&path, orders.clone(), SHORT).err().unwrap();
    assert!(taken.to_string().contains("another router listens here"));
    // A file that is not a socket stays.
    let file = served.folder.path().join("f");
    fs::write(&file, "precious").unwrap();
    let occupied = Listener::open(&file, orders.clone(), SHORT).err().unwrap();
    assert!(matches!(occupied, ServeError::Occupied(_)));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    // A socket on which nobody listens any more is replaced.
    let stale = served.folder.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    let listener = Listener::open(&stale, orders, SHORT).unwrap();
    drop(listener);
    assert!(!stale.exists());
    drop(served);
    assert!(!path.exists());
}

/// A socket on which nobody listens yet must not be mistaken for a dead router's.
#[test]
fn of_routers_that_start_together_one_has_the_socket() {
    const ROUTERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    for round in 0..100 {
        // Every other time, a dead router's socket exists.
        if round % 2 == 0 {
            drop(UnixListener::bind(&path).unwrap());
        }
        let start = Barrier::new(ROUTERS);
        let (opened, refused): (Vec<_>, Vec<_>) = thread::scope(|scope| {
            let open = || {
                let (inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
                start.wait();
                Listener::open(&path, orders, SHORT).map(|listener| (listener, inbox))
            };
            let threads: Vec<_> = (0..ROUTERS).map(|_| scope.spawn(open)).collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.partition(Result::is_ok)
        });
        assert_eq!(opened.len(), 1, "round {round}");
        for refused in refused {
            let error = refused.err().unwrap();
            assert!(matches!(error, ServeError::Taken(_)), "{error}");
        }
        // Clients reach this one.
        UnixStream::connect(&path).unwrap();
        drop(opened);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn garbage_is_refused_and_the_connection_goes_on() {
    let served = Served::start();
    let stream = served.connect();
    for garbage in [
        &b"\0\xff\xfe garbage\n"[..],
        b"{\n",
        b"[]\n",
        b"\n",
        b"{\"do\":\"commands\",\"commands\":7}\n",
    ] {
        (&stream).write_all(garbage).unwrap();
        let reply: Reply = serde_json::from_str(&line(&stream)).unwrap();
        let failure = reply.error.unwrap();
        assert_eq!(failure.exit_code, 76);
        assert!(
            failure.message.starts_with("the request cannot be read: "),
            "{failure:?}"
        );
    }
    (&stream).write_all(b"{\"do\":\"status\"}\n").unwrap();
    assert_eq!(
        line(&stream),
        "{\"stdout\":\"\",\"warnings\":[],\"status\":7}\n"
    );
    assert_eq!(
        served.turned_away.counts(),
        [("unreadable".into(), 5)].into()
    );
}

#[test]
fn refused_commands_are_counted_and_others_are_not() {
    let served = Served::start();
    for commands in [
        "pipe 1 config nonsense",
        "pipe 1 conifg",
        "table t add 1.2.3.4/33",
    ] {
        assert!(served.ask(commands).error.is_some(), "{commands}");
    }
    assert!(served.ask("pipe 1 config bw 1Mbit/s").error.is_none());
    assert!(served.ask("pipe show").error.is_none());
    assert_eq!(served.turned_away.counts(), [("command".into(), 3)].into());
}

#[test]
fn a_client_is_refused_while_the_requests_of_all_others_are_executed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let turned_away = Arc::clone(orders.turned_away());
    let _listener = Listener::open(&path, orders, SHORT).unwrap();
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream
    };
    let ask = |_| {
        let stream = connect();
        (&stream).write_all(b"{\"do\":\"status\"}\n").unwrap();
        stream
    };
    let clients: Vec<UnixStream> = (0..SHORT.clients).map(ask).collect();
    // The loop has all their requests, and takes its time.
    let mut held = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while held.len() < clients.len() {
        held.extend(inbox.take());
        assert!(Instant::now() < end, "{} requests", held.len());
        thread::sleep(Duration::from_millis(1));
    }
    let reply: Reply = serde_json::from_str(&line(&connect())).unwrap();
    let failure = reply.error.unwrap();
    assert_eq!(failure.exit_code, 75);
    let expected = "the router is busy: 4 clients are being served; try again";
    assert_eq!(failure.message, expected);
    assert_eq!(turned_away.counts(), [("too_many".into(), 1)].into());
    for order in held {
        order.answer.send(Answered::Status(Box::new(7)));
    }
    for client in &clients {
        assert_eq!(line(client), STATUS);
    }
}

#[test]
fn half_a_request_is_waited_for_and_then_refused() {
    let served = Served::start();
    let stream = served.connect();
    // The time runs from the first byte on.
    let started = Instant::now();
    (&stream).write_all(b"{\"do\":").unwrap();
    // Closed without an answer, because there is no complete request.
    assert_eq!(line(&stream), "");
    assert!(started.elapsed() >= SHORT.patience);
    served.wait_for("slow", 1);
    // Ended by the client: the answer gives the reason.
    let stream = served.connect();
    (&stream).write_all(b"{\"do\":\"status\"}").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(line(&stream).contains("ends before its line does"));
    assert!(served.ask("pipe show").error.is_none());
}

#[test]
fn a_request_that_never_ends_is_refused() {
    let served = Served::start();
    let stream = served.connect();
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..64)
        .take_while(|_| (&stream).write_all(&piece).is_ok())
        .count();
    assert!(sent < 64, "the router stopped reading");
    assert!(served.ask("pipe show").error.is_none());
}

#[test]
fn silent_clients_make_room_for_those_who_speak() {
    let served = Served::start();
    let flood: Vec<UnixStream> = (0..100).map(|_| served.connect()).collect();
    for _ in 0..20 {
        assert!(served.ask("pipe show").error.is_none());
    }
    // Of 100 clients, 4 keep their places, and each of 20 more takes one of these at most.
    let silent = served.turned_away.counts()["silent"];
    assert!((96..=116).contains(&silent), "{silent}");
    drop(flood);
}

fn status_of(stream: &UnixStream) -> String {
    let mut stream = stream;
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    line(stream)
}

const STATUS: &str = "{\"stdout\":\"\",\"warnings\":[],\"status\":7}\n";

#[test]
fn a_client_may_be_silent_for_as_long_as_nobody_needs_its_place() {
    let served = Served::start();
    let stream = served.connect();
    for _ in 0..3 {
        thread::sleep(2 * SHORT.patience);
        assert_eq!(status_of(&stream), STATUS);
    }
    assert!(served.turned_away.counts().is_empty());
    // The end of the router ends the connection.
    drop(served);
    assert_eq!(line(&stream), "");
}

#[test]
fn the_client_that_has_been_silent_for_longest_makes_room() {
    let served = Served::start();
    let clients: Vec<UnixStream> = (0..SHORT.clients)
        .map(|_| {
            let stream = served.connect();
            assert_eq!(status_of(&stream), STATUS);
            stream
        })
        .collect();
    // Their threads note the end of a request after its answer.
    thread::sleep(SHORT.patience);
    // The first one speaks again, so the second one has been silent for longest.
    assert_eq!(status_of(&clients[0]), STATUS);
    assert!(served.ask("pipe show").error.is_none());
    // It learns why, and that nothing has happened.
    let mut told = BufReader::new(&clients[1]).lines().map(Result::unwrap);
    let reply: Reply = serde_json::from_str(&told.next().unwrap()).unwrap();
    let failure = reply.error.unwrap();
    assert_eq!(failure.exit_code, 75);
    assert!(
        failure.message.contains("the place of this silent client"),
        "{failure:?}"
    );
    assert_eq!(told.next(), None);
    for number in [0, 2, 3] {
        assert_eq!(status_of(&clients[number]), STATUS);
    }
    assert_eq!(served.turned_away.counts(), [("silent".into(), 1)].into());
}

#[test]
fn of_more_clients_than_places_that_ask_at_once_each_is_answered() {
    // Longer than it takes them all, so that none of them counts as silent on a busy machine.
    let served = Served::within(Limits {
        grace: Duration::from_secs(60),
        ..SHORT
    });
    thread::scope(|scope| {
        for _ in 0..6 * SHORT.clients {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(status_of(&served.connect()), STATUS);
                }
            });
        }
    });
    assert!(served.turned_away.counts().is_empty());
}

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let served = Served::start();
    let mut script = String::new();
    for number in 1..=20_000 {
        script.push_str(&format!("add {number} count ip from any to any\n"));
    }
    let request = Request::Commands {
        commands: script,
        how: How::Atomic,
        files: Default::default(),
    };
    assert!(ask(&served.path(), &request).unwrap().error.is_none());
    // Every reply, of 620 kB, is longer than a socket buffers (net.core.wmem_default is 208 KiB).
    let silent: Vec<UnixStream> = (0..SHORT.clients)
        .map(|_| {
            let stream = served.connect();
            let mut bytes = serde_json::to_vec(&request_of("list")).unwrap();
            bytes.push(b'\n');
            (&stream).write_all(&bytes).unwrap();
            stream
        })
        .collect();
    // They are disconnected after `patience`. Nobody else asks for a place before that: one of them
    // would make room for it, if the router had not read its request yet.
    served.wait_for("slow", SHORT.clients as u64);
    assert!(served.ask("pipe show").error.is_none());
    drop(silent);
}
