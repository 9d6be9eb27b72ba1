//! Requests and responses over one TCP connection; each request follows the response to the
//! previous one.
//!
//! The measured time runs from the write of a request to the read of the last byte of its response,
//! both in the requesting program, and includes that program's wake-up.

use crate::tcp::{TcpSettings, accept, connect, is_transient, local_address, wait};
use crate::{Context, Identity, Running, TrafficError, Transfer, start_pair};
use sluice_core::{Span, Stop, Time};
use sluice_net::namespace::Namespace;
use sluice_net::{Clock, precise_wakeups};
use socket2::Socket;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

/// One series of requests.
#[derive(Clone, Debug)]
pub struct RrFlow {
    /// The requesting host.
    pub source: IpAddr,
    /// The answering host.
    pub destination: IpAddr,
    /// Bytes of a request.
    pub request: u64,
    /// Bytes of a response.
    pub response: u64,
    /// Time between a response and the next request.
    pub think: Span,
    /// The settings of both ends.
    pub tcp: TcpSettings,
    /// The instant at which to connect.
    pub start: Time,
    /// The instant at which to end.
    pub stop: Option<Time>,
}

/// The result of a series.
#[derive(Clone, Debug, Default)]
pub struct RrReport {
    /// The exchanges, in their order.
    pub exchanges: Vec<Transfer>,
    /// The reason why the connection broke, if it did so unexpectedly.
    pub broken: Option<String>,
}

impl RrFlow {
    /// Starts the series between two namespaces.
    ///
    /// # Errors
    /// A value is impossible, or an address or congestion control does not exist. Nothing runs
    /// then.
    pub fn start(
        &self,
        from: &Namespace,
        to: &Namespace,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<RrReport>, TrafficError> {
        self.tcp.check()?;
        let far = Context::new(to, clock, stop);
        let (listener, destination) = self.tcp.listening(to, self.destination, &far)?;
        let near = Context::new(from, clock, stop);
        let socket = from
            .enter(|| self.tcp.socket(self.source, &near))
            .map_err(TrafficError::from)
            .flatten()?;
        let source = local_address(&socket).map_err(near.error("read the sending port"))?;
        let identity = Identity::new(libc::IPPROTO_TCP, source, destination);
        let (flow, other) = (self.clone(), self.clone());
        start_pair(
            identity,
            stop,
            (from, "rr-ask"),
            move || flow.ask(&socket, destination, &near),
            (to, "rr-answer"),
            move |done| other.answer(&listener, &far, done),
            |report, ()| report,
        )
    }

    fn ask(
        &self,
        socket: &Socket,
        destination: SocketAddr,
        context: &Context,
    ) -> Result<RrReport, TrafficError> {
        precise_wakeups();
        let mut report = RrReport::default();
        if !context.sleep_until(self.start) {
            return Ok(report);
        }
        connect(socket, destination, self.tcp.ecn)
            .map_err(context.error(format!("connect to {destination}")))?;
        socket
            .set_tcp_nodelay(true)
            .map_err(context.error("switch Nagle's algorithm off"))?;
        let is_over = || {
            let now = context.clock.now();
            context.stop.is_stopped() || self.stop.is_some_and(|stop| now >= stop)
        };
        let end = self.stop.unwrap_or(Time::MAX);
        let mut is_connected = false;
        while !is_over() {
            if !is_connected {
                is_connected = wait(socket, libc::POLLOUT, end, context.clock.now());
                continue;
            }
            let start = context.clock.now();
            let both = send_all(socket, self.request, &is_over)
                .and_then(|()| receive_all(socket, self.response, &is_over));
            match both {
                Ok(()) => {}
                Err(_) if is_over() => break,
                Err(error) => {
                    report.broken = Some(error.to_string());
                    break;
                }
            }
            let now = context.clock.now();
            report.exchanges.push(Transfer {
                start,
                took: now.since(start),
                bytes: self.response,
            });
            if self.think > Span::ZERO && !context.sleep_until((now + self.think).min(end)) {
                break;
            }
        }
        Ok(report)
    }

    fn answer(
        &self,
        listener: &Socket,
        context: &Context,
        client_done: &AtomicBool,
    ) -> Result<(), TrafficError> {
        precise_wakeups();
        let Some(socket) = accept(listener, context, client_done)? else {
            return Ok(());
        };
        socket
            .set_tcp_nodelay(true)
            .and_then(|()| socket.set_nonblocking(true))
            .map_err(context.error("set up the answering socket"))?;
        let is_over = || client_done.load(Ordering::Acquire);
        // The series ends with the connection, whatever closed it; the requesting end reports why.
        while receive_all(&socket, self.request, &is_over).is_ok()
            && send_all(&socket, self.response, &is_over).is_ok()
        {}
        Ok(())
    }
}

/// Sends this number of zeros. Fails if the end comes first.
fn send_all(socket: &Socket, bytes: u64, is_over: &impl Fn() -> bool) -> io::Result<()> {
    let chunk = [0; CHUNK_LEN];
    let mut left = bytes;
    while left > 0 {
        match socket.send(&chunk[..left.min(CHUNK_LEN as u64) as usize]) {
            Ok(count) => left -= count as u64,
            Err(error) if is_transient(&error) => {
                wait(socket, libc::POLLOUT, Time::MAX, Time::ZERO);
            }
            Err(error) => return Err(error),
        }
        if is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives this number of bytes. Fails if the stream or the time ends first.
fn receive_all(mut socket: &Socket, bytes: u64, is_over: &impl Fn() -> bool) -> io::Result<()> {
    let mut chunk = [0; CHUNK_LEN];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(CHUNK_LEN as u64) as usize;
        match socket.read(&mut chunk[..most]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => left -= count as u64,
            Err(error) if is_transient(&error) => {
                wait(socket, libc::POLLIN, Time::MAX, Time::ZERO);
                if is_over() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of one write or read.
const CHUNK_LEN: usize = 16 << 10;
