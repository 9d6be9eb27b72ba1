//! The listening end.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendFlags, send};
use rustix::process::geteuid;
use serde::Serialize;
use serde_json::value::RawValue;
use sluice_ipfw::{Mode, Snapshot};

use super::places::{LOOK, Place, Places, has_hung_up};
use super::socket_file::{SocketError, SocketFile};
use super::{Answered, MOST_REQUEST, Orders, Refused, Reply, Request, Texts, Why, Work};

/// The limits for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of connections at a time, besides those that wait for a sample, of which there may
    /// be twice as many. A further connection ends the one that has been silent for longest.
    pub clients: usize,
    /// A request must be complete within this time of its first byte, and a reply read within it.
    /// Between two requests, a client may be silent for as long as nobody needs its place.
    pub patience: Duration,
    /// The loop must have answered within this time.
    pub work: Duration,
    /// Another connection waits this long for a place before it ends one that has been silent for less
    /// time, or is refused because all have sent requests.
    pub grace: Duration,
}

impl Limits {
    /// Returns the largest number of clients that wait for a sample.
    const fn watchers(&self) -> usize {
        2 * self.clients
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 16,
            patience: Duration::from_secs(10),
            work: Duration::from_secs(30),
            grace: Duration::from_secs(1),
        }
    }
}

/// The reasons why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another router has the socket.
    #[error("{}: another router listens here; give each its own --socket PATH", .0.display())]
    Taken(PathBuf),
    /// Another file exists at the path.
    #[error("{} exists and is not a socket, so it is not replaced", .0.display())]
    Occupied(PathBuf),
    /// The system refused a step.
    #[error("cannot {step} the control socket {}: {source}", .path.display())]
    System {
        /// The step.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The thread that accepts clients cannot be started.
    #[error("cannot start the thread of the control socket: {}", no_thread(.0))]
    Thread(io::Error),
}

/// Says why a thread could not be started, and what helps.
pub fn no_thread(error: &io::Error) -> String {
    match error.kind() {
        // pthread_create(3): EAGAIN stands for every limit on the number of threads.
        io::ErrorKind::WouldBlock => {
            format!("{error}; raise the limit of tasks (TasksMax of the unit, or ulimit -u)")
        }
        _ => error.to_string(),
    }
}

impl From<SocketError> for ServeError {
    fn from(error: SocketError) -> ServeError {
        match error {
            SocketError::Taken(path) => ServeError::Taken(path),
            SocketError::Occupied(path) => ServeError::Occupied(path),
            SocketError::System { step, path, source } => ServeError::System { step, path, source },
        }
    }
}

/// A socket that is served until this is dropped.
pub struct Listener {
    file: SocketFile,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at `path`, and passes clients' requests to the loop.
    ///
    /// # Errors
    /// [`ServeError`]. A socket that a dead router left behind is not an error; it is replaced.
    pub fn open<T: Serialize + Send + 'static>(
        path: &Path,
        orders: Orders<T>,
        limits: Limits,
    ) -> Result<Listener, ServeError> {
        Listener::open_watched(path, orders, limits, None)
    }

    /// Like [`Listener::open`], and answers watchers from `sources`.
    ///
    /// # Errors
    /// As for [`Listener::open`].
    pub fn open_watched<T: Serialize + Send + 'static>(
        path: &Path,
        orders: Orders<T>,
        limits: Limits,
        sources: Option<Sources>,
    ) -> Result<Listener, ServeError> {
        let means = Means {
            orders,
            limits,
            sources,
        };
        let (listener, file) = SocketFile::listen(path)?;
        let is_closing = Arc::new(AtomicBool::new(false));
        let closing = Arc::clone(&is_closing);
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &means, &closing))
            .map_err(ServeError::Thread)?;
        Ok(Listener {
            file,
            is_closing,
            thread: Some(thread),
        })
    }

    /// Returns the path on which the server listens.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Release);
        // Ends the thread's wait for a connection.
        let is_woken = self.file.connect().is_some();
        self.file.remove();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}

/// Returns the newest sample with a number above the given one, as JSON.
pub type SampleSource = Arc<dyn Fn(u64, Duration) -> Result<Box<RawValue>, Refused> + Send + Sync>;

/// What a listener uses besides the loop.
#[derive(Clone)]
pub struct Sources {
    /// Answers watchers.
    pub samples: SampleSource,
    /// Is called before the loop gets a request for its status.
    pub before_status: Arc<dyn Fn() + Send + Sync>,
}

/// The means by which requests are answered.
struct Means<T> {
    orders: Orders<T>,
    limits: Limits,
    sources: Option<Sources>,
}

impl<T> Means<T> {
    fn turn_away(&self, why: Why) {
        self.orders.turned_away().count(why);
    }
}

impl<T> Clone for Means<T> {
    fn clone(&self) -> Self {
        Means {
            orders: self.orders.clone(),
            limits: self.limits,
            sources: self.sources.clone(),
        }
    }
}

fn accept<T: Serialize + Send + 'static>(
    listener: &UnixListener,
    means: &Means<T>,
    is_closing: &AtomicBool,
) {
    let places = Arc::<Places>::default();
    for number in 0.. {
        let accepted = listener.accept();
        if is_closing.load(Ordering::Acquire) {
            break;
        }
        let Ok((stream, _)) = accepted else {
            // Most likely there are too many open files; some must be closed first.
            means.turn_away(Why::Accept);
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        // If a client cannot be served, its connection is closed.
        let _ = admit(number, stream, &places, means);
    }
    places.for_each(|stream| {
        let _ = stream.shutdown(Shutdown::Both);
    });
}

fn admit<T: Serialize + Send + 'static>(
    number: u64,
    stream: UnixStream,
    places: &Arc<Places>,
    means: &Means<T>,
) -> io::Result<()> {
    let peer = socket_peercred(&stream)?;
    let by = format!("uid {}", peer.uid.as_raw());
    if peer.uid != geteuid() && !peer.uid.is_root() {
        means.turn_away(Why::OtherUser);
        return refuse(&stream, "this router belongs to another user", 77);
    }
    let displace = |silent: &UnixStream| {
        means.turn_away(Why::Silent);
        let _ = refuse(silent, DISPLACED, 75);
        let _ = silent.shutdown(Shutdown::Both);
    };
    if !places.make_room(&means.limits, displace) {
        means.turn_away(Why::TooMany);
        let most = means.limits.clients;
        let why = format!("the router is busy: {most} clients are being served; try again");
        return refuse(&stream, &why, 75);
    }
    let stream = Arc::new(stream);
    let place = places.admit(number, Arc::clone(&stream));
    let asking = Arc::clone(&stream);
    let waiting = Arc::clone(&stream);
    let mut of_thread = means.clone();
    of_thread.orders = of_thread.orders.for_client(move || has_hung_up(&asking));
    let served = thread::Builder::new().name("client".into()).spawn(move || {
        // An error is the client's: the client disconnected, or was too slow.
        if let Err(error) = serve(&stream, &by, &of_thread, &place)
            && error.kind() == io::ErrorKind::TimedOut
        {
            of_thread.turn_away(Why::Slow);
        }
    });
    if served.is_err() {
        means.turn_away(Why::Thread);
        return refuse(&waiting, NO_THREAD, 75);
    }
    Ok(())
}

/// The answer to a client that is served by no thread.
const NO_THREAD: &str = "the router could not start a thread for this client: try again, or raise the limit of tasks \
                         (TasksMax of the unit, or ulimit -u)";

/// The answer to a client that loses its place.
const DISPLACED: &str = "the router has given the place of this silent client to another one; since its last \
                         answer, nothing was executed for it: connect again";

/// Sends the reason, without waiting for a client that does not read.
fn refuse(stream: &UnixStream, why: &str, exit_code: u8) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Reply::<(), ()>::refusal(why.to_owned(), exit_code))?;
    line.push(b'\n');
    send(stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

fn serve<T: Serialize>(
    stream: &UnixStream,
    by: &str,
    means: &Means<T>,
    place: &Place,
) -> io::Result<()> {
    let Means { orders, limits, .. } = means;
    let mut requests = BufReader::new(Timed::new(stream, limits.patience));
    let mut line = Vec::new();
    loop {
        line.clear();
        if !has_request(&mut requests) || !place.speaks() {
            return Ok(());
        }
        requests.get_mut().start();
        let mut bounded = requests.by_ref().take(MOST_REQUEST as u64 + 1);
        bounded.read_until(b'\n', &mut line)?;
        if !place.begin() {
            return Ok(());
        }
        let mut replies = BufWriter::new(Timed::new(stream, limits.patience));
        let is_whole = line.ends_with(b"\n");
        match read_request(&line) {
            Ok(Asked::Sample { after }) => match watch(stream, after, means, place) {
                Some(sampled) => write(&sampled, &mut replies)?,
                None => return Ok(()),
            },
            Ok(Asked::Commands { text, mode, files }) => {
                let answer = orders.commands(by, (text, mode, files), limits.work);
                reply(answer, &mut replies)?;
            }
            Ok(Asked::Work(work)) => {
                if let (Work::Status, Some(sources)) = (&work, &means.sources) {
                    (sources.before_status)();
                }
                let answer = orders.order(work, limits.work);
                orders.count_refusal(&answer);
                reply(answer, &mut replies)?;
            }
            Err(why) => {
                means.turn_away(Why::Unreadable);
                write(&Reply::<(), ()>::refusal(why, 76), &mut replies)?;
            }
        }
        if !is_whole {
            // The rest of an overlong or partial request would be read as another request.
            return Ok(());
        }
        place.end();
    }
}

/// Waits for the first byte of a request, without a limit: [`Places::make_room`] ends the wait if another
/// client needs the place. Returns whether there is one.
fn has_request(requests: &mut BufReader<Timed<'_>>) -> bool {
    requests.get_mut().stop();
    loop {
        match requests.fill_buf() {
            Ok(bytes) => return !bytes.is_empty(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// A request as the server handles it.
#[derive(Debug)]
pub enum Asked {
    /// Commands.
    Commands {
        /// The commands, one per line.
        text: String,
        /// How they are executed.
        mode: Mode,
        /// The files that the commands name.
        files: Texts,
    },
    /// An order for the loop.
    Work(Work),
    /// A sample with a number above `after`.
    Sample {
        /// The number.
        after: u64,
    },
}

/// Waits for a sample, without holding a place. Returns the reply, or `None` if the client has gone.
fn watch<T>(
    stream: &UnixStream,
    after: u64,
    means: &Means<T>,
    place: &Place,
) -> Option<Reply<Box<Snapshot>, T>> {
    let Some(sources) = &means.sources else {
        return Some(Reply::refusal("this router cannot be watched".into(), 76));
    };
    let most = means.limits.watchers();
    if !place.wait(most) {
        means.turn_away(Why::TooMany);
        let why = format!("the router is busy: {most} clients are waiting for samples; try again");
        return Some(Reply::refusal(why, 75));
    }
    let sample = next_sample(stream, after, &sources.samples, means.limits.work)?;
    if !place.begin() {
        return None;
    }
    Some(match sample {
        Ok(sample) => Reply {
            sample: Some(sample),
            ..Reply::empty()
        },
        // Unlike a command, nothing is withdrawn.
        Err(Refused::Late) => Reply::refusal("there was no sample in time".into(), 75),
        Err(refused) => Reply::refusal(refused.to_string(), 75),
    })
}

/// Waits for a sample as long as the client does, at most for `patience`. Returns `None` if the client has
/// gone.
fn next_sample(
    stream: &UnixStream,
    after: u64,
    source: &SampleSource,
    patience: Duration,
) -> Option<Result<Box<RawValue>, Refused>> {
    let end = Instant::now() + patience;
    loop {
        let began = Instant::now();
        let left = end.saturating_duration_since(began).min(LOOK);
        let sample = source(after, left);
        // The source may have failed long before it was late.
        let is_late = matches!(sample, Err(Refused::Late)) && began.elapsed() >= left;
        if !is_late || Instant::now() >= end {
            return Some(sample);
        }
        if has_hung_up(stream) {
            return None;
        }
    }
}

/// Reads a line as a request.
///
/// # Errors
/// The reason why the line is not a request.
pub fn read_request(line: &[u8]) -> Result<Asked, String> {
    if line.len() > MOST_REQUEST {
        return Err(format!("the request is longer than {MOST_REQUEST} bytes"));
    }
    if !line.ends_with(b"\n") {
        return Err("the request ends before its line does".into());
    }
    match serde_json::from_slice(line) {
        Ok(Request::Commands {
            commands,
            how,
            files,
        }) => Ok(Asked::Commands {
            text: commands,
            mode: how.into(),
            files,
        }),
        Ok(Request::Status {}) => Ok(Asked::Work(Work::Status)),
        Ok(Request::Save {}) => Ok(Asked::Work(Work::Draft)),
        Ok(Request::Watch { after }) => Ok(Asked::Sample { after }),
        Err(error) => Err(format!("the request cannot be read: {error}")),
    }
}

fn reply<T: Serialize>(
    answer: Result<Answered<T>, Refused>,
    to: &mut BufWriter<Timed<'_>>,
) -> io::Result<()> {
    write(&Reply::of(answer), to)
}

fn write<S: Serialize, T: Serialize>(
    reply: &Reply<S, T>,
    to: &mut BufWriter<Timed<'_>>,
) -> io::Result<()> {
    to.get_mut().start();
    serde_json::to_writer(&mut *to, reply)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// A stream on which everything from [`Timed::start`] on must be done within a fixed time, however
/// small the pieces are. There is no limit before, and from [`Timed::stop`] on.
struct Timed<'a> {
    stream: &'a UnixStream,
    patience: Duration,
    deadline: Option<Instant>,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a UnixStream, patience: Duration) -> Self {
        Timed {
            stream,
            patience,
            deadline: None,
        }
    }

    fn start(&mut self) {
        self.deadline = Some(Instant::now() + self.patience);
    }

    fn stop(&mut self) {
        self.deadline = None;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

/// The kernel reports the end of a timeout as EAGAIN.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&mut &*self.stream).read(into).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        (&mut &*self.stream).write(from).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
