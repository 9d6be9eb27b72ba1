//! Several bulk transfers between two hosts, all of them served by one thread on each.
//!
//! This is how load generators such as iperf3 (up to 3.15) and netperf work. A host uses one core
//! for its traffic, so the path between the hosts is measured, not the number of cores that their
//! programs use. Each thread waits until some of its connections are ready, and reads or writes one
//! block of 128 KiB on each of these. The bytes are really copied in both directions.
//! [`TcpFlow`](crate::tcp::TcpFlow) is for flows that have a thread, a start and samples of their
//! own.

use crate::tcp::{Ecn, Goodput, TcpSettings, connect, is_transient, listening};
use crate::{Context, Identity, Running, STOP_CHECK, TrafficError, check_families, start_pair};
use sluice_core::{Span, Stop, Time};
use sluice_net::namespace::Namespace;
use sluice_net::socket::{TcpInfo, poll};
use sluice_net::{Clock, precise_wakeups};
use socket2::Socket;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Transfers that start and end together.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The number of transfers.
    pub flows: usize,
    /// Congestion control of the sender; the namespace's default when `None`.
    pub congestion_control: Option<String>,
    /// The instant at which to connect.
    pub start: Time,
    /// The instant at which to abort.
    pub stop: Time,
    /// The interval at which to record the bytes that have arrived.
    pub goodput_interval: Span,
}

/// The result of the transfers.
#[derive(Clone, Debug, Default)]
pub struct BulkReport {
    /// For each transfer, the bytes that had reached the receiver's TCP over time; the last entry
    /// is the end. The application may have read them milliseconds later on a busy machine.
    pub goodput: Vec<Vec<Goodput>>,
    /// The reason why connections broke unexpectedly.
    pub broken: Vec<String>,
}

impl Bulk {
    /// Creates this number of transfers from `start` to `stop` with the default congestion control.
    pub fn new(source: IpAddr, destination: IpAddr, flows: usize, start: Time, stop: Time) -> Bulk {
        Bulk {
            source,
            destination,
            flows,
            congestion_control: None,
            start,
            stop,
            goodput_interval: Span::from_ms(10),
        }
    }

    /// Starts the transfers between two namespaces.
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
    ) -> Result<Running<BulkReport>, TrafficError> {
        check_families(self.source, self.destination)?;
        if self.goodput_interval == Span::ZERO {
            return Err(TrafficError::Interval("goodput"));
        }
        let receiver = Context::new(to, clock, stop);
        let (listener, destination) = listening(to, self.destination, &receiver)?;
        let sender = Context::new(from, clock, stop);
        let settings = TcpSettings {
            congestion_control: self.congestion_control.clone(),
            ..TcpSettings::default()
        };
        let sockets = from.enter(|| {
            (0..self.flows)
                .map(|_| settings.socket(self.source, &sender))
                .collect::<Result<Vec<Socket>, TrafficError>>()
        })??;

        // Every transfer has a port of its own.
        let any = SocketAddr::new(self.source, 0);
        let identity = Identity::new(libc::IPPROTO_TCP, any, destination);
        let (bulk, other) = (self.clone(), self.clone());
        start_pair(
            identity,
            stop,
            (from, "bulk-send"),
            move || bulk.send(sockets, destination, &sender),
            (to, "bulk-receive"),
            move |done| other.receive(&listener, &receiver, done),
            |broken, goodput| BulkReport { goodput, broken },
        )
    }

    /// Sends until the end. Returns why connections broke.
    fn send(
        &self,
        mut sockets: Vec<Socket>,
        destination: SocketAddr,
        context: &Context,
    ) -> Result<Vec<String>, TrafficError> {
        precise_wakeups();
        let mut broken = Vec::new();
        if !context.sleep_until(self.start) {
            return Ok(broken);
        }
        for socket in &sockets {
            connect(socket, destination, Ecn::Off)
                .map_err(context.error(format!("connect to {destination}")))?;
        }
        let block = vec![0u8; BLOCK_LEN];
        let mut polls = Vec::new();
        loop {
            let now = context.clock.now();
            if context.stop.is_stopped() || now >= self.stop || sockets.is_empty() {
                break;
            }
            watch(&mut polls, &sockets, libc::POLLOUT);
            let timeout = self.stop.since(now).min(STOP_CHECK);
            poll(&mut polls, Some(Duration::from_nanos(timeout.as_ns())));
            let mut ready = polls.iter().map(|poll| poll.revents != 0);
            sockets.retain(|socket| {
                if ready.next() != Some(true) {
                    return true;
                }
                match socket.send(&block) {
                    Ok(_) => true,
                    Err(error) if is_transient(&error) => true,
                    Err(error) => {
                        broken.push(error.to_string());
                        false
                    }
                }
            });
        }
        for socket in &sockets {
            // Closing then sends a RST and discards unsent data.
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
        Ok(broken)
    }

    /// Receives until the sender has ended. Returns for each connection how much had arrived over
    /// time.
    fn receive(
        &self,
        listener: &Socket,
        context: &Context,
        sender_done: &AtomicBool,
    ) -> Result<Vec<Vec<Goodput>>, TrafficError> {
        precise_wakeups();
        let mut flows: Vec<Arriving> = Vec::with_capacity(self.flows);
        let mut block = vec![0u8; BLOCK_LEN];
        let mut polls = Vec::new();
        if !context.sleep_until(self.start) {
            return Ok(Vec::new());
        }
        let mut next = context.clock.now();
        let mut last_arrival = next;
        loop {
            let now = context.clock.now();
            if now >= next {
                flows.iter_mut().for_each(|flow| flow.note(now));
                while next <= now {
                    next += self.goodput_interval;
                }
            }
            let is_complete = flows.len() == self.flows;
            if flows.iter().all(|flow| flow.has_ended) && is_complete {
                break;
            }
            // A RST is sent once and may be lost.
            if sender_done.load(Ordering::Acquire) && now >= last_arrival + GRACE {
                break;
            }
            watch(
                &mut polls,
                flows.iter().map(|flow| &flow.socket),
                libc::POLLIN,
            );
            for (poll, flow) in polls.iter_mut().zip(&flows) {
                if flow.has_ended {
                    // poll(2) ignores a negative descriptor.
                    poll.fd = -1;
                }
            }
            if !is_complete {
                polls.push(libc::pollfd {
                    fd: listener.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                });
            }
            let timeout = next.since(now).min(STOP_CHECK);
            if poll(&mut polls, Some(Duration::from_nanos(timeout.as_ns()))) == 0 {
                continue;
            }
            last_arrival = now;
            for (poll, flow) in polls.iter().zip(&mut flows) {
                if poll.revents != 0 {
                    flow.read(&mut block);
                }
            }
            if !is_complete && polls.last().is_some_and(|poll| poll.revents != 0) {
                match listener.accept() {
                    Ok((socket, _)) => {
                        socket
                            .set_nonblocking(true)
                            .map_err(context.error("make the socket non-blocking"))?;
                        flows.push(Arriving::new(socket));
                    }
                    Err(error) if is_transient(&error) => {}
                    Err(error) => return Err(context.error("accept")(error)),
                }
            }
        }
        let now = context.clock.now();
        let noted = flows.into_iter().map(|mut flow| {
            flow.note(now);
            flow.goodput
        });
        Ok(noted.collect())
    }
}

/// A connection at the receiver.
struct Arriving {
    socket: Socket,
    bytes: u64,
    goodput: Vec<Goodput>,
    has_ended: bool,
}

impl Arriving {
    fn new(socket: Socket) -> Arriving {
        Arriving {
            socket,
            bytes: 0,
            goodput: Vec::new(),
            has_ended: false,
        }
    }

    fn read(&mut self, block: &mut [u8]) {
        match (&self.socket).read(block) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.bytes += count as u64,
            Err(error) if is_transient(&error) => {}
            // The sender's abort.
            Err(_) => self.has_ended = true,
        }
    }

    fn note(&mut self, time: Time) {
        let arrived = TcpInfo::read(&self.socket).map_or(0, |info| info.bytes_received);
        let bytes = self.bytes.max(arrived);
        self.goodput.push(Goodput { time, bytes });
    }
}

/// Fills `polls` with one entry per socket.
fn watch<'a>(
    polls: &mut Vec<libc::pollfd>,
    sockets: impl IntoIterator<Item = &'a Socket>,
    events: libc::c_short,
) {
    polls.clear();
    polls.extend(sockets.into_iter().map(|socket| libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    }));
}

/// Bytes of one write or read, as in iperf3.
const BLOCK_LEN: usize = 128 << 10;
/// The time for which the receiver waits for more after the sender's abort, as in [`crate::tcp`].
const GRACE: Span = Span::from_secs(2);
