//! Web pages over short TCP connections, requested at the times of a Poisson process.
//!
//! For each page a number of connections are opened at once; each sends a request and receives one
//! object. One thread serves all connections of an end, so that many open pages cost no threads.
//! The server looks up the size of an object by the client's port, since both are in this process.

use crate::tcp::{Goodput, TcpSettings, connect, is_transient, local_address};
use crate::{Context, Identity, Running, STOP_CHECK, TrafficError, Transfer, start_pair};
use sluice_core::traffic::{ObjectSize, exponential};
use sluice_core::{Rng, Span, Stop, Time};
use sluice_net::namespace::Namespace;
use sluice_net::socket;
use sluice_net::{Clock, precise_wakeups};
use socket2::Socket;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One client and its pages.
#[derive(Clone, Debug)]
pub struct WebFlow {
    /// The host that serves the objects.
    pub server: IpAddr,
    /// The host that requests them.
    pub client: IpAddr,
    /// Mean time between two pages.
    pub interval: Span,
    /// Connections of a page, each for one object.
    pub objects: u32,
    /// The size of an object.
    pub size: ObjectSize,
    /// Bytes of a request.
    pub request: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The settings of both ends.
    pub tcp: TcpSettings,
    /// The start of the Poisson process.
    pub start: Time,
    /// The instant at which to end.
    pub stop: Option<Time>,
    /// The interval at which to record the bytes that have arrived.
    pub goodput_interval: Span,
}

/// The result of a client.
#[derive(Clone, Debug, Default)]
pub struct WebReport {
    /// The pages that were complete, in the order of their ends.
    pub pages: Vec<Transfer>,
    /// The pages that were not complete at the end, in the order of their requests, with their ages and
    /// the bytes of their complete objects.
    pub open: Vec<Transfer>,
    /// Pages that were requested.
    pub asked: u64,
    /// Connections that broke.
    pub broken: u64,
    /// The bytes that had reached the client, over time, of pages that are not complete as well.
    pub goodput: Vec<Goodput>,
}

impl WebReport {
    /// Records the bytes that have arrived by `time`, if they are more than before. After a pause, the
    /// last instant without more, `quiet`, is recorded as well.
    fn note(&mut self, time: Time, bytes: u64, quiet: &mut Option<Time>) {
        let before = self.goodput.last().map_or(0, |last| last.bytes);
        if bytes <= before {
            *quiet = Some(time);
            return;
        }
        if let Some(time) = quiet.take() {
            let bytes = before;
            self.goodput.push(Goodput { time, bytes });
        }
        self.goodput.push(Goodput { time, bytes });
    }
}

/// Sizes of objects by the client's port.
type Sizes = Arc<Mutex<BTreeMap<u16, u64>>>;

impl WebFlow {
    /// Starts the client and the server in their namespaces.
    ///
    /// # Errors
    /// A value is impossible, or an address or congestion control does not exist. Nothing runs
    /// then.
    pub fn start(
        &self,
        server: &Namespace,
        client: &Namespace,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<WebReport>, TrafficError> {
        self.tcp.check()?;
        if self.interval == Span::ZERO {
            return Err(TrafficError::Interval("page"));
        }
        if self.goodput_interval == Span::ZERO {
            return Err(TrafficError::Interval("goodput"));
        }
        let far = Context::new(server, clock, stop);
        let (listener, address) = self.tcp.listening(server, self.server, &far)?;
        let near = Context::new(client, clock, stop);
        let any = SocketAddr::new(self.client, 0);
        let identity = Identity::new(libc::IPPROTO_TCP, any, address);
        let sizes = Sizes::default();
        let (flow, asked) = (self.clone(), sizes.clone());
        let other = self.clone();
        start_pair(
            identity,
            stop,
            (client, "web-ask"),
            move || flow.ask(address, &asked, &near),
            (server, "web-serve"),
            move |done| other.serve(&listener, &sizes, &far, done),
            |report, ()| report,
        )
    }

    fn ask(
        &self,
        address: SocketAddr,
        sizes: &Sizes,
        context: &Context,
    ) -> Result<WebReport, TrafficError> {
        precise_wakeups();
        let mut report = WebReport::default();
        let mut rng = Rng::from_seed(self.seed);
        if !context.sleep_until(self.start) {
            return Ok(report);
        }
        let end = self.stop.unwrap_or(Time::MAX);
        let mut due = self
            .start
            .saturating_add(exponential(&mut rng, self.interval));
        let mut pages: BTreeMap<u64, Page> = BTreeMap::new();
        let mut fetches: Vec<Fetch> = Vec::new();
        let mut received = 0;
        let mut quiet = None;
        let mut next = self.start;
        loop {
            let now = context.clock.now();
            let is_over = context.stop.is_stopped() || now >= end;
            if is_over || now >= next {
                report.note(now, received, &mut quiet);
                next = now + self.goodput_interval;
            }
            if is_over {
                report.open = pages.into_values().map(|page| page.at(now)).collect();
                return Ok(report);
            }
            if now >= due {
                // Due times do not shift, however late this thread is.
                let page = Page {
                    start: due,
                    left: self.objects,
                    bytes: 0,
                };
                pages.insert(report.asked, page);
                for _ in 0..self.objects {
                    let size = self.size.draw(&mut rng);
                    let socket = self.tcp.socket(self.client, context)?;
                    let own = local_address(&socket).map_err(context.error("read a port"))?;
                    lock(sizes).insert(own.port(), size);
                    connect(&socket, address, self.tcp.ecn)
                        .map_err(context.error(format!("connect to {address}")))?;
                    fetches.push(Fetch {
                        socket,
                        page: report.asked,
                        to_send: self.request,
                        received: 0,
                    });
                }
                report.asked += 1;
                due = due.saturating_add(exponential(&mut rng, self.interval));
                continue;
            }
            let wants = |fetch: &Fetch| match fetch.to_send {
                0 => libc::POLLIN,
                _ => libc::POLLOUT,
            };
            let sockets = fetches.iter().map(|fetch| (&fetch.socket, wants(fetch)));
            let ready = poll(sockets, due.min(end).since(now));
            let now = context.clock.now();
            let mut is_ready = ready.into_iter();
            fetches.retain_mut(|fetch| {
                if !is_ready.next().unwrap_or(false) {
                    return true;
                }
                let before = fetch.received;
                let step = fetch.go_on();
                received += fetch.received - before;
                let ended = match step {
                    Step::More => return true,
                    Step::Whole => true,
                    Step::Broken => false,
                };
                report.broken += u64::from(!ended);
                let page = pages.get_mut(&fetch.page);
                if let Some(page) = page.filter(|_| ended) {
                    page.left -= 1;
                    page.bytes += fetch.received;
                    if page.left == 0 {
                        report.pages.push(page.at(now));
                        pages.remove(&fetch.page);
                        report.note(now, received, &mut quiet);
                    }
                }
                false
            });
        }
    }

    fn serve(
        &self,
        listener: &Socket,
        sizes: &Sizes,
        context: &Context,
        client_done: &AtomicBool,
    ) -> Result<(), TrafficError> {
        precise_wakeups();
        let mut answers: Vec<Answer> = Vec::new();
        while !client_done.load(Ordering::Acquire) {
            let wants = |answer: &Answer| match answer.to_receive {
                0 => libc::POLLOUT,
                _ => libc::POLLIN,
            };
            let own = std::iter::once((listener, libc::POLLIN));
            let sockets = own.chain(answers.iter().map(|a| (&a.socket, wants(a))));
            let ready = poll(sockets, STOP_CHECK);
            let mut is_ready = ready.into_iter();
            let has_new = is_ready.next().unwrap_or(false);
            answers.retain_mut(|answer| !is_ready.next().unwrap_or(false) || answer.go_on());
            // Empty the backlog: a page opens all its connections at once.
            while has_new && let Some((socket, from)) = accept_one(listener, context)? {
                socket
                    .set_nonblocking(true)
                    .map_err(context.error("make the socket non-blocking"))?;
                let port = from.as_socket().map_or(0, |from| from.port());
                answers.push(Answer {
                    socket,
                    to_receive: self.request,
                    to_send: lock(sizes).remove(&port).unwrap_or(0),
                });
            }
        }
        Ok(())
    }
}

/// Returns a waiting connection, if there is one.
fn accept_one(
    listener: &Socket,
    context: &Context,
) -> Result<Option<(Socket, socket2::SockAddr)>, TrafficError> {
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if is_transient(&error) => Ok(None),
        Err(error) => Err(context.error("accept")(error)),
    }
}

struct Page {
    start: Time,
    /// Objects that have not arrived.
    left: u32,
    bytes: u64,
}

impl Page {
    /// Returns how long the page has taken by `now`, and the bytes of its complete objects.
    fn at(&self, now: Time) -> Transfer {
        Transfer {
            start: self.start,
            took: now.since(self.start),
            bytes: self.bytes,
        }
    }
}

/// An object on its way to the client.
struct Fetch {
    socket: Socket,
    page: u64,
    to_send: u64,
    received: u64,
}

enum Step {
    More,
    Whole,
    Broken,
}

impl Fetch {
    fn go_on(&mut self) -> Step {
        if self.to_send > 0 {
            let chunk = [0; 4096];
            match self.socket.send(&chunk[..self.to_send.min(4096) as usize]) {
                Ok(count) => self.to_send -= count as u64,
                Err(error) if is_transient(&error) => {}
                Err(_) => return Step::Broken,
            }
            return Step::More;
        }
        let mut buffer = [0; CHUNK_LEN];
        let mut reader = &self.socket;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Step::Whole,
                Ok(count) => self.received += count as u64,
                Err(error) if is_transient(&error) => return Step::More,
                Err(_) => return Step::Broken,
            }
        }
    }
}

/// An object on its way from the server.
struct Answer {
    socket: Socket,
    to_receive: u64,
    to_send: u64,
}

impl Answer {
    /// Returns whether there is more to do.
    fn go_on(&mut self) -> bool {
        let mut buffer = [0; CHUNK_LEN];
        let mut reader = &self.socket;
        while self.to_receive > 0 {
            match reader.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.to_receive = self.to_receive.saturating_sub(count as u64),
                Err(error) => return is_transient(&error),
            }
        }
        while self.to_send > 0 {
            let most = self.to_send.min(CHUNK_LEN as u64) as usize;
            match self.socket.send(&buffer[..most]) {
                Ok(count) => self.to_send -= count as u64,
                Err(error) => return is_transient(&error),
            }
        }
        // The kernel still sends buffered data after this end is closed.
        let _ = self.socket.shutdown(Shutdown::Write);
        false
    }
}

/// Waits for any of the sockets, until `limit` or the next check of the stop flag. Returns those
/// that are ready.
fn poll<'a>(sockets: impl Iterator<Item = (&'a Socket, libc::c_short)>, limit: Span) -> Vec<bool> {
    let mut polls: Vec<libc::pollfd> = sockets
        .map(|(socket, events)| libc::pollfd {
            fd: socket.as_fd().as_raw_fd(),
            events,
            revents: 0,
        })
        .collect();
    let timeout = Duration::from_nanos(limit.min(STOP_CHECK).as_ns());
    socket::poll(&mut polls, Some(timeout));
    polls.iter().map(|poll| poll.revents != 0).collect()
}

fn lock(sizes: &Sizes) -> std::sync::MutexGuard<'_, BTreeMap<u16, u64>> {
    sizes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of one write or read.
const CHUNK_LEN: usize = 64 << 10;
