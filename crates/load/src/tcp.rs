//! Bulk transfers by the kernel's TCP.
//!
//! The sender writes as fast as the socket accepts, from `start` until `stop` or `bytes`; the
//! receiver records how much has arrived over time. The state of the sender's kernel (`TCP_INFO`)
//! is sampled at an interval.
//!
//! A transfer that ends by time is aborted (RST), so that only packets in flight remain in the
//! network; one that ends by `bytes` closes in order (FIN).

use crate::{
    Context, Identity, Running, STOP_CHECK, TrafficError, Transfer, check_families, check_field,
    start_pair,
};
use sluice_core::{Span, Stop, Time};
use sluice_net::namespace::Namespace;
pub use sluice_net::socket::TcpSample;
use sluice_net::socket::{TcpInfo, discard, poll};
use sluice_net::{Clock, precise_wakeups};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One bulk transfer.
#[derive(Clone, Debug)]
pub struct TcpFlow {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The settings of the sender.
    pub tcp: TcpSettings,
    /// The instant at which to connect.
    pub start: Time,
    /// The instant at which to abort, if the transfer is not stopped otherwise.
    pub stop: Option<Time>,
    /// The number of bytes to send.
    pub bytes: Option<u64>,
    /// With `bytes`: the time between the arrival of all bytes and the next transfer, over a new
    /// connection.
    pub repeat: Option<Span>,
    /// The interval at which to read the sender's `TCP_INFO`.
    pub info_interval: Span,
    /// The interval at which to record the bytes that have arrived.
    pub goodput_interval: Span,
    /// The use of the data at the receiver.
    pub sink: Sink,
}

/// The use that a receiving application makes of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// Reads it into memory, as applications do.
    #[default]
    Read,
    /// Makes the kernel discard it without copying, which leaves more of the processor to others.
    Discard,
}

/// The settings of an end of a connection.
#[derive(Clone, Debug, Default)]
pub struct TcpSettings {
    /// Congestion control; the namespace's default when `None`.
    pub congestion_control: Option<String>,
    /// The ECN that is offered in a SYN.
    pub ecn: Ecn,
    /// Differentiated services codepoint of the packets.
    pub dscp: u8,
}

/// Use of explicit congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// None.
    #[default]
    Off,
    /// RFC 3168.
    On,
    /// Accurate ECN (RFC 9768), where the kernel has it (Linux 6.18).
    Accurate,
}

/// The result of a transfer.
#[derive(Clone, Debug, Default)]
pub struct TcpReport {
    /// The connection's addresses and ports.
    pub connection: Option<(SocketAddr, SocketAddr)>,
    /// The instant at which the handshake was complete.
    pub connected: Option<Time>,
    /// Whether both sides agreed on ECN.
    pub has_ecn: bool,
    /// The sender's state over time.
    pub info: Vec<TcpSample>,
    /// The bytes that had reached the receiver's application, over time; the last entry is the end.
    pub goodput: Vec<Goodput>,
    /// The instant at which the receiver saw the end of the last stream; `None` if the stream was
    /// cut off.
    pub finished: Option<Time>,
    /// The transfers whose end the receiver has seen.
    pub transfers: Vec<Transfer>,
    /// The reason why the connection broke, if it did so unexpectedly.
    pub broken: Option<String>,
}

/// The bytes that had arrived by an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodput {
    /// The instant.
    pub time: Time,
    /// Payload bytes so far.
    pub bytes: u64,
}

impl TcpFlow {
    /// A transfer from `start` on, without ECN, with the default congestion control.
    pub fn new(source: IpAddr, destination: IpAddr, start: Time) -> TcpFlow {
        TcpFlow {
            source,
            destination,
            tcp: TcpSettings::default(),
            start,
            stop: None,
            bytes: None,
            repeat: None,
            info_interval: Span::from_ms(50),
            goodput_interval: Span::from_ms(10),
            sink: Sink::Read,
        }
    }

    /// Starts the transfer between two namespaces.
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
    ) -> Result<Running<TcpReport>, TrafficError> {
        self.tcp.check()?;
        check_families(self.source, self.destination)?;
        for (name, interval) in [
            ("TCP_INFO", self.info_interval),
            ("goodput", self.goodput_interval),
        ] {
            if interval == Span::ZERO {
                return Err(TrafficError::Interval(name));
            }
        }
        let receiver = Context::new(to, clock, stop);
        let (listener, destination) = listening(to, self.destination, &receiver)?;
        let sender = Context::new(from, clock, stop);
        let socket = from
            .enter(|| self.tcp.socket(self.source, &sender))
            .map_err(TrafficError::from)
            .flatten()?;
        let source = local_address(&socket).map_err(sender.error("read the sending port"))?;

        let merge = move |sent: Sent, received: Received| TcpReport {
            connection: Some((source, destination)),
            connected: sent.connected,
            has_ecn: sent.has_ecn,
            info: sent.info,
            goodput: received.goodput,
            transfers: transfers(&sent.starts, &received.ends),
            finished: received.ends.last().map(|(at, _)| *at),
            broken: sent.broken,
        };
        let mut identity = Identity::new(libc::IPPROTO_TCP, source, destination);
        if self.repeat.is_some() {
            // Every transfer has its own port.
            identity.source.set_port(0);
        }
        let (flow, other) = (self.clone(), self.clone());
        start_pair(
            identity,
            stop,
            (from, "tcp-send"),
            move || flow.send(socket, destination, &sender),
            (to, "tcp-receive"),
            move |done| other.receive(listener, &receiver, done),
            merge,
        )
    }

    fn send(
        &self,
        socket: Socket,
        destination: SocketAddr,
        context: &Context,
    ) -> Result<Sent, TrafficError> {
        precise_wakeups();
        let mut sent = Sent::default();
        let mut start = self.start;
        let mut socket = socket;
        while context.sleep_until(start) && self.stop.is_none_or(|stop| start < stop) {
            sent.starts.push(context.clock.now());
            let is_whole = self.send_once(&socket, destination, context, &mut sent)?;
            let (true, Some(pause)) = (is_whole, self.repeat) else {
                break;
            };
            sent.sent_again = sent.info.last().map_or(0, |sample| sample.retransmits);
            start = context.clock.now() + pause;
            socket = self.tcp.socket(self.source, context)?;
        }
        Ok(sent)
    }

    /// Sends everything once. Returns whether all of it was acknowledged.
    fn send_once(
        &self,
        socket: &Socket,
        destination: SocketAddr,
        context: &Context,
        sent: &mut Sent,
    ) -> Result<bool, TrafficError> {
        connect(socket, destination, self.tcp.ecn)
            .map_err(context.error(format!("connect to {destination}")))?;
        let chunk = vec![0u8; CHUNK_LEN];
        let mut left = self.bytes.unwrap_or(u64::MAX);
        let mut next_sample = context.clock.now();
        let mut is_connected = false;
        let mut wants = libc::POLLOUT;
        loop {
            let now = context.clock.now();
            if now >= next_sample {
                sent.sample(socket, now);
                // A late sample does not make the following ones late.
                while next_sample <= now {
                    next_sample += self.info_interval;
                }
            }
            if context.stop.is_stopped() || self.stop.is_some_and(|stop| now >= stop) {
                break;
            }
            let limit = self.stop.unwrap_or(Time::MAX).min(next_sample);
            if !wait(socket, wants, limit, now) {
                continue;
            }
            if wants == libc::POLLIN {
                // Everything is written; the receiver closes when it has it all.
                sent.sample(socket, context.clock.now());
                return Ok(true);
            }
            if !is_connected {
                is_connected = true;
                if let Some(error) = socket.take_error().map_err(context.error("connect"))? {
                    sent.broken = Some(error.to_string());
                    return Ok(false);
                }
                sent.connected.get_or_insert(context.clock.now());
            }
            // One write may fill the window of a fast path; the clock is read in between.
            match socket.send(&chunk[..left.min(CHUNK_LEN as u64) as usize]) {
                Ok(count) => left -= count as u64,
                Err(error) if is_transient(&error) => {}
                Err(error) => {
                    sent.broken = Some(error.to_string());
                    return Ok(false);
                }
            }
            if left == 0 {
                let _ = socket.shutdown(std::net::Shutdown::Write);
                wants = libc::POLLIN;
            }
        }
        sent.sample(socket, context.clock.now());
        // Closing then sends a RST and discards unsent data.
        let _ = socket.set_linger(Some(Duration::ZERO));
        Ok(false)
    }

    fn receive(
        &self,
        listener: Socket,
        context: &Context,
        sender_done: &AtomicBool,
    ) -> Result<Received, TrafficError> {
        precise_wakeups();
        let mut received = Received::default();
        if !context.sleep_until(self.start) {
            return Ok(received);
        }
        let mut listener = Some(listener);
        while let Some(from) = &listener {
            let Some(socket) = accept(from, context, sender_done)? else {
                break;
            };
            if self.repeat.is_none() {
                listener = None;
            }
            if !self.receive_once(&socket, context, sender_done, &mut received)? {
                break;
            }
        }
        Ok(received)
    }

    /// Receives a stream. Returns whether the stream was complete.
    fn receive_once(
        &self,
        socket: &Socket,
        context: &Context,
        sender_done: &AtomicBool,
        received: &mut Received,
    ) -> Result<bool, TrafficError> {
        socket
            .set_nonblocking(true)
            .map_err(context.error("make the socket non-blocking"))?;
        let mut buffer = match self.sink {
            Sink::Read => vec![0; CHUNK_LEN],
            Sink::Discard => Vec::new(),
        };
        let before = received.bytes;
        let mut next = context.clock.now();
        let mut last_arrival = next;
        let mut is_whole = false;
        loop {
            let now = context.clock.now();
            if now >= next {
                received.note(now);
                while next <= now {
                    next += self.goodput_interval;
                }
            }
            if !wait(socket, libc::POLLIN, next, now) {
                // A RST is sent once and may be lost.
                if sender_done.load(Ordering::Acquire) && now >= last_arrival + GRACE {
                    break;
                }
                continue;
            }
            let mut reader = socket;
            let read = match self.sink {
                Sink::Read => reader.read(&mut buffer),
                Sink::Discard => discard(socket, DISCARD_LEN),
            };
            match read {
                Ok(0) => {
                    let bytes = received.bytes - before;
                    received.ends.push((context.clock.now(), bytes));
                    is_whole = true;
                    break;
                }
                Ok(count) => {
                    received.bytes += count as u64;
                    last_arrival = now;
                }
                Err(error) if is_transient(&error) => {}
                // The sender's abort.
                Err(_) => break,
            }
        }
        received.note(context.clock.now());
        Ok(is_whole)
    }
}

/// Returns the next connection; `None` when the other side has ended.
pub(super) fn accept(
    listener: &Socket,
    context: &Context,
    other_done: &AtomicBool,
) -> Result<Option<Socket>, TrafficError> {
    loop {
        if wait(listener, libc::POLLIN, Time::MAX, Time::ZERO) {
            match listener.accept() {
                Ok((socket, _)) => return Ok(Some(socket)),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(context.error("accept")(error)),
            }
        } else if context.stop.is_stopped() || other_done.load(Ordering::Acquire) {
            return Ok(None);
        }
    }
}

/// Starts and ends in their order; a transfer that was cut off has no end.
fn transfers(starts: &[Time], ends: &[(Time, u64)]) -> Vec<Transfer> {
    let pairs = starts.iter().zip(ends);
    let transfer = |(start, (end, bytes)): (&Time, &(Time, u64))| Transfer {
        start: *start,
        took: end.since(*start),
        bytes: *bytes,
    };
    pairs.map(transfer).collect()
}

impl TcpSettings {
    /// Settings with a congestion control, and defaults for the rest.
    pub fn with_congestion_control(name: &str) -> TcpSettings {
        TcpSettings {
            congestion_control: Some(name.to_owned()),
            ..TcpSettings::default()
        }
    }

    pub(super) fn check(&self) -> Result<(), TrafficError> {
        check_field("dscp", self.dscp, 63)
    }

    /// Creates a non-blocking socket on its own port, for the end that opens a connection.
    pub(super) fn socket(
        &self,
        address: IpAddr,
        context: &Context,
    ) -> Result<Socket, TrafficError> {
        let domain = Domain::for_address((address, 0).into());
        let socket =
            Socket::new(domain, Type::STREAM, None).map_err(context.error("open a TCP socket"))?;
        self.set_up(&socket, address, context)?;
        socket
            .bind(&SocketAddr::new(address, 0).into())
            .map_err(context.error(format!("bind to {address}")))?;
        Ok(socket)
    }

    /// Returns a listener on its own port, whose connections have these settings, and its address.
    pub(super) fn listening(
        &self,
        namespace: &Namespace,
        address: IpAddr,
        context: &Context,
    ) -> Result<(Socket, SocketAddr), TrafficError> {
        let (listener, own) = listening(namespace, address, context)?;
        self.set_up(&listener, address, context)?;
        Ok((listener, own))
    }

    /// Sets a socket's congestion control and codepoint, and makes it non-blocking.
    fn set_up(
        &self,
        socket: &Socket,
        address: IpAddr,
        context: &Context,
    ) -> Result<(), TrafficError> {
        if let Some(name) = &self.congestion_control {
            socket
                .set_tcp_congestion(name.as_bytes())
                .map_err(|source| match source.raw_os_error() {
                    Some(libc::ENOENT) => TrafficError::CongestionControl {
                        name: name.clone(),
                        available: congestion_controls(),
                    },
                    _ => context.error(format!("use congestion control {name:?}"))(source),
                })?;
        }
        set_traffic_class(socket, address.is_ipv4(), self.dscp << 2)
            .map_err(context.error("set the DSCP"))?;
        socket
            .set_nonblocking(true)
            .map_err(context.error("make the socket non-blocking"))
    }
}

/// Returns the congestion controls that the kernel has loaded. Others may be loaded as modules on
/// first use.
pub fn congestion_controls() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Returns whether a flow in `namespace` could use congestion control `name`.
///
/// # Errors
/// [`TrafficError::CongestionControl`] when the kernel does not have it.
pub fn check_congestion_control(namespace: &Namespace, name: &str) -> Result<(), TrafficError> {
    let context = Context::new(namespace, &Clock::start(), &Stop::new());
    let settings = TcpSettings::with_congestion_control(name);
    let any = std::net::Ipv4Addr::UNSPECIFIED.into();
    namespace
        .enter(|| settings.socket(any, &context))?
        .map(drop)
}

/// The result of the sending thread.
#[derive(Default)]
struct Sent {
    /// The start of each transfer.
    starts: Vec<Time>,
    /// The retransmissions of earlier transfers.
    sent_again: u32,
    connected: Option<Time>,
    has_ecn: bool,
    info: Vec<TcpSample>,
    broken: Option<String>,
}

impl Sent {
    fn sample(&mut self, socket: &Socket, time: Time) {
        if let Ok(info) = TcpInfo::read(socket) {
            self.has_ecn |= info.has_ecn();
            let mut sample = info.sample(time);
            sample.retransmits += self.sent_again;
            self.info.push(sample);
        }
    }
}

/// The result of the receiving thread.
#[derive(Default)]
struct Received {
    /// The bytes of all transfers together.
    bytes: u64,
    goodput: Vec<Goodput>,
    /// The end of each stream, and its bytes.
    ends: Vec<(Time, u64)>,
}

impl Received {
    fn note(&mut self, time: Time) {
        let bytes = self.bytes;
        self.goodput.push(Goodput { time, bytes });
    }
}

/// Returns a listener on its own port, and its address.
pub(super) fn listening(
    namespace: &Namespace,
    address: IpAddr,
    context: &Context,
) -> Result<(Socket, SocketAddr), TrafficError> {
    let listener = namespace
        .enter(|| listen(address))?
        .map_err(context.error(format!("listen on {address}")))?;
    let own = local_address(&listener).map_err(context.error("read the listening port"))?;
    Ok((listener, own))
}

fn listen(address: IpAddr) -> io::Result<Socket> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

pub(super) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("not an IP socket"))
}

/// Starts connecting. Whether a SYN offers ECN depends only on the namespace's `tcp_ecn` at that
/// moment, so it is set just for that moment, for one connection at a time.
pub(super) fn connect(socket: &Socket, destination: SocketAddr, ecn: Ecn) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    const SETTING: &str = "/proc/sys/net/ipv4/tcp_ecn";
    let destination = SockAddr::from(destination);
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // ip-sysctl.rst: 0 off, 1 offer and accept, 2 accept only, 3 offer and accept accurate ECN.
    let before = std::fs::read_to_string(SETTING)?;
    let wanted = match ecn {
        Ecn::Off => "2",
        Ecn::On => "1",
        Ecn::Accurate => "3",
    };
    std::fs::write(SETTING, wanted)?;
    let result = socket.connect(&destination);
    std::fs::write(SETTING, before.trim())?;
    match result {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// Waits for an event on the socket, until `limit` or the next check of the stop flag.
pub(super) fn wait(socket: &Socket, events: libc::c_short, limit: Time, now: Time) -> bool {
    let mut polls = [libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events,
        revents: 0,
    }];
    let timeout = limit.since(now).min(STOP_CHECK);
    poll(&mut polls, Some(Duration::from_nanos(timeout.as_ns()))) > 0
}

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Sets the whole traffic-class byte; TCP writes its own ECN codepoint over the low two bits.
pub(super) fn set_traffic_class(socket: &Socket, is_v4: bool, class: u8) -> io::Result<()> {
    if is_v4 {
        socket.set_tos_v4(u32::from(class))
    } else {
        socket.set_tclass_v6(u32::from(class))
    }
}

/// Connections that wait to be accepted: those of a page.
const BACKLOG: i32 = 1024;
/// Bytes of one write or read: four super-packets.
const CHUNK_LEN: usize = 256 << 10;
/// The largest number of bytes discarded by one read.
const DISCARD_LEN: usize = 4 << 20;
/// The time for which the receiver waits for more after the sender's abort: longer than the delay
/// of a full queue of 1000 packets at 10 Mbit/s (1.2 s).
const GRACE: Span = Span::from_secs(2);
