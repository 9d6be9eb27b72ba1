//! Echo requests that the far kernel answers.
//!
//! Requests leave at exact intervals. The reply's arrival is the kernel's own timestamp, so the
//! round trip does not include this process's wake-up; a raw socket at the far end also receives
//! every request, which gives the one-way delay, since both ends share a clock. See RFC 792 and RFC
//! 4443 section 4.

use crate::tcp::set_traffic_class;
use crate::udp::{self, Order, Seen, words};
use crate::{
    Context, Identity, Running, STOP_CHECK, TrafficError, check_families, check_field, start_pair,
};
use sluice_core::{Span, Stop, Time};
use sluice_net::namespace::Namespace;
use sluice_net::socket::{Arrival, TimedReceiver, grant_receive_buffer, poll, receive_icmp_only};
use sluice_net::{Clock, precise_wakeups};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

/// One series of echo requests.
#[derive(Clone, Debug)]
pub struct Ping {
    /// The sender's address.
    pub source: IpAddr,
    /// The address that answers.
    pub destination: IpAddr,
    /// Time between requests.
    pub interval: Span,
    /// The protocol of a request.
    pub protocol: Protocol,
    /// Bytes after the ICMP or UDP header, at least [`LEAST_PAYLOAD`]; 56 is customary.
    pub payload: usize,
    /// Differentiated services codepoint.
    pub dscp: u8,
    /// The due time of the first request.
    pub start: Time,
    /// No request is due after this time, even if the series is not stopped before.
    pub stop: Option<Time>,
    /// The number of requests, if limited.
    pub count: Option<u64>,
    /// The time before a request is due at which the thread stops sleeping and busy-polls.
    pub spin: Span,
    /// The time to wait for outstanding replies.
    pub linger: Span,
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// An ICMP echo request, which the far kernel answers.
    #[default]
    Icmp,
    /// A UDP datagram, which a thread at the far end answers. The thread's wake-up time is part of
    /// the round trip, but not of the forward delay.
    Udp,
}

/// The measurements of a series.
#[derive(Clone, Debug, Default)]
pub struct PingReport {
    /// The identifier of the requests.
    pub id: u16,
    /// One entry per request sent.
    pub samples: Vec<PingSample>,
    /// Requests that the sender's kernel refused.
    pub refused: u64,
    /// Different requests that reached the far end.
    pub arrived: u64,
    /// Different replies received.
    pub received: u64,
    /// Replies received again.
    pub duplicates: u64,
    /// Replies received after one with a higher number.
    pub reordered: u64,
    /// Requests and replies that arrived without a stamp from the kernel, so that their delays are
    /// unknown. Only the first few, if `start` follows within milliseconds.
    pub unstamped: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSample {
    /// Number, from 0.
    pub sequence: u64,
    /// The instant at which it was passed to the sender's kernel.
    pub sent: Time,
    /// The delay to the far kernel; `None` if the request was lost or not stamped.
    pub forward: Option<Span>,
    /// The time until the reply was back in the sender's kernel; `None` if either was lost, or the
    /// reply not stamped.
    pub round_trip: Option<Span>,
    /// Whether the reply arrived, stamped or not.
    pub is_answered: bool,
    /// Whether the sender's kernel refused the request, which was then never sent.
    pub is_refused: bool,
}

impl PingSample {
    /// The delay of the reply, including the far kernel's time for answering.
    pub fn backward(&self) -> Option<Span> {
        Some(self.round_trip?.saturating_sub(self.forward?))
    }
}

impl PingReport {
    /// Requests without a reply.
    pub fn lost(&self) -> u64 {
        self.samples.len() as u64 - self.received
    }
}

impl Ping {
    /// Requests of 56 bytes at `interval` from `start` on.
    pub fn new(source: IpAddr, destination: IpAddr, interval: Span, start: Time) -> Ping {
        Ping {
            source,
            destination,
            interval,
            protocol: Protocol::Icmp,
            payload: 56,
            dscp: 0,
            start,
            stop: None,
            count: None,
            spin: Span::ZERO,
            linger: Span::from_secs(3),
        }
    }

    /// Starts the series from one namespace to an address in another.
    ///
    /// # Errors
    /// When a value is impossible, an address does not exist, or the process lacks the privilege
    /// (CAP_NET_RAW in both namespaces). Nothing runs then.
    pub fn start(
        &self,
        from: &Namespace,
        to: &Namespace,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<PingReport>, TrafficError> {
        check_field("dscp", self.dscp, 63)?;
        check_families(self.source, self.destination)?;
        if self.interval == Span::ZERO {
            return Err(TrafficError::Interval("ping"));
        }
        // An IPv4 packet less its header and the ICMP header.
        let most = 65_535 - 20 - ICMP_HEADER_LEN;
        if !(LEAST_PAYLOAD..=most).contains(&self.payload) {
            return Err(TrafficError::Size {
                size: self.payload,
                least: LEAST_PAYLOAD,
                most,
            });
        }
        if self.protocol == Protocol::Udp {
            return self.start_udp(from, to, clock, stop);
        }
        let far = Context::new(to, clock, stop);
        let kinds = Kinds::of(self.source);
        let observer = to
            .enter(|| socket(self.destination, kinds.request))?
            .map_err(far.error("open a raw ICMP socket (needs CAP_NET_RAW)"))?;
        let observed = far.timed(&observer, self.source)?;
        let near = Context::new(from, clock, stop);
        let sender = from
            .enter(|| socket(self.source, kinds.reply))?
            .map_err(near.error("open a raw ICMP socket (needs CAP_NET_RAW)"))?;
        let timed = near.timed(&sender, self.source)?;
        set_traffic_class(&sender, self.source.is_ipv4(), self.dscp << 2)
            .map_err(near.error("set the DSCP"))?;
        sender
            .connect(&SocketAddr::new(self.destination, 0).into())
            .map_err(near.error(format!("reach {}", self.destination)))?;

        static NEXT_ID: AtomicU16 = AtomicU16::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let is_v4 = self.source.is_ipv4();
        let protocol = if is_v4 {
            libc::IPPROTO_ICMP
        } else {
            libc::IPPROTO_ICMPV6
        };
        let [source, destination] =
            [self.source, self.destination].map(|address| SocketAddr::new(address, id));
        let identity = Identity::new(protocol, source, destination);
        let encoding = Encoding::Icmp { id, is_v4 };
        let granted = observer
            .recv_buffer_size()
            .map_err(far.error("read the size of a buffer"))?;
        let (ping, rest) = (self.clone(), self.rest(granted));
        start_pair(
            identity,
            stop,
            (from, "ping"),
            move || ping.run(&sender, timed, encoding, &near),
            (to, "ping-observe"),
            move |done| observe(&observer, observed, encoding, rest, &far, done),
            merge,
        )
    }

    fn start_udp(
        &self,
        from: &Namespace,
        to: &Namespace,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<PingReport>, TrafficError> {
        let class = self.dscp << 2;
        let far = Context::new(to, clock, stop);
        let near = Context::new(from, clock, stop);
        let (answerer, answered, destination) = udp::open_timed(to, &far, self.destination, class)?;
        let (sender, timed, source) = udp::open_timed(from, &near, self.source, class)?;
        udp::connect(&sender, destination, &near)?;
        udp::connect(&answerer, source, &far)?;
        let identity = Identity::new(libc::IPPROTO_UDP, source, destination);
        let ping = self.clone();
        let encoding = Encoding::Udp;
        start_pair(
            identity,
            stop,
            (from, "ping"),
            move || ping.run(&sender, timed, encoding, &near),
            (to, "ping-answer"),
            move |done| observe(&answerer, answered, encoding, Span::ZERO, &far, done),
            merge,
        )
    }

    /// Returns how long stamped requests may wait to be read at the far end, where a buffer of
    /// `granted` bytes holds the requests of all series to that host: zero if the buffer is smaller
    /// than requested.
    fn rest(&self, granted: usize) -> Span {
        if granted < RECEIVE_BUFFER {
            return Span::ZERO;
        }
        let most = UNREAD_BYTES / (self.payload + UNREAD_OVERHEAD);
        let all = self.interval.as_ns().saturating_mul(most as u64);
        Span::from_ns(all).min(STOP_CHECK)
    }

    fn due(&self, number: u64) -> Time {
        let after = self.interval.as_ns().saturating_mul(number);
        self.start.saturating_add(Span::from_ns(after))
    }

    /// Returns whether a request `number`, due at `due`, belongs to the series.
    fn has(&self, number: u64, due: Time) -> bool {
        self.count.is_none_or(|count| number < count) && self.stop.is_none_or(|stop| due < stop)
    }

    fn run(
        &self,
        socket: &Socket,
        mut timed: TimedReceiver,
        encoding: Encoding,
        context: &Context,
    ) -> Result<PingReport, TrafficError> {
        precise_wakeups();
        let mut report = PingReport::default();
        if let Encoding::Icmp { id, .. } = encoding {
            report.id = id;
        }
        let mut packet = vec![0u8; encoding.header_len() + self.payload];
        let mut seen = Seen::default();
        let mut end = None;
        loop {
            let now = context.clock.now();
            let number = report.samples.len() as u64;
            let due = self.due(number);
            let sends = self.has(number, due) && !context.stop.is_stopped();
            if sends {
                let near = Time::from_ns(due.as_ns().saturating_sub(self.spin.as_ns()));
                if now >= near {
                    let now = context.clock.sleep_until(due, self.spin);
                    encoding.fill(&mut packet, number, now);
                    let is_refused = socket.send(&packet).is_err();
                    report.refused += u64::from(is_refused);
                    report.samples.push(PingSample {
                        sequence: number,
                        sent: now,
                        forward: None,
                        round_trip: None,
                        is_answered: false,
                        is_refused,
                    });
                    continue;
                }
            } else if report.received == number || now >= *end.get_or_insert(now + self.linger) {
                return Ok(report);
            }
            let limit = if sends {
                Time::from_ns(due.as_ns().saturating_sub(self.spin.as_ns()))
            } else {
                Time::MAX
            };
            if !readable(socket, limit.since(now).min(STOP_CHECK)) {
                continue;
            }
            let take = |bytes: &[u8], arrival: Arrival| {
                let Some(sequence) = encoding.number(bytes) else {
                    return;
                };
                let Some(sample) = report.samples.get_mut(sequence as usize) else {
                    return;
                };
                if !seen.count(sequence, &mut report.duplicates, &mut report.reordered) {
                    return;
                }
                report.received += 1;
                report.unstamped += u64::from(arrival.time.is_none());
                sample.is_answered = true;
                sample.round_trip = arrival.time.map(|time| time.since(sample.sent));
            };
            receive(socket, &mut timed, context, take)?;
        }
    }
}

/// The socket that carries requests.
#[derive(Clone, Copy)]
enum Encoding {
    Icmp { id: u16, is_v4: bool },
    Udp,
}

impl Encoding {
    /// Bytes that the prober writes in front of the payload.
    const fn header_len(self) -> usize {
        match self {
            Encoding::Icmp { .. } => ICMP_HEADER_LEN,
            Encoding::Udp => 0,
        }
    }

    fn fill(self, packet: &mut [u8], number: u64, now: Time) {
        match self {
            Encoding::Icmp { id, is_v4 } => fill(packet, id, number, now, is_v4),
            Encoding::Udp => fill_payload(packet, number, now),
        }
    }

    /// Returns the number in a message of this series.
    fn number(self, bytes: &[u8]) -> Option<u64> {
        match self {
            Encoding::Icmp { id, is_v4 } => echo(bytes, id, is_v4),
            Encoding::Udp => payload_number(bytes),
        }
    }
}

/// Records when requests reached the far end, by number, and answers those that no kernel answers.
/// ICMP requests are read only after a `rest`, all at once: a thread that each request wakes up
/// would run before the kernel replies, and add to the round trip.
fn observe(
    socket: &Socket,
    mut timed: TimedReceiver,
    encoding: Encoding,
    rest: Span,
    context: &Context,
    sender_done: &AtomicBool,
) -> Result<Vec<(u64, Option<Time>)>, TrafficError> {
    let mut arrivals = Vec::new();
    let mut answers: Vec<Vec<u8>> = Vec::new();
    loop {
        // Read before checking, so that the last round receives what arrived before the end.
        let is_done = sender_done.load(Ordering::Acquire);
        let waits = !is_done && rest == Span::ZERO;
        if readable(socket, if waits { STOP_CHECK } else { Span::ZERO }) {
            let take = |bytes: &[u8], arrival: Arrival| {
                if let Some(sequence) = encoding.number(bytes) {
                    arrivals.push((sequence, arrival.time));
                    if let Encoding::Udp = encoding {
                        // The reply is as long as the request, even if only the first bytes of that
                        // were kept.
                        let mut answer = bytes.to_vec();
                        answer.resize(arrival.length, 0);
                        answers.push(answer);
                    }
                }
            };
            receive(socket, &mut timed, context, take)?;
            for answer in answers.drain(..) {
                // A request that the sender's kernel refuses is counted by the prober.
                let _ = socket.send(&answer);
            }
        } else if is_done {
            return Ok(arrivals);
        } else if !waits {
            std::thread::sleep(Duration::from_nanos(rest.as_ns()));
        }
    }
}

fn merge(mut report: PingReport, arrivals: Vec<(u64, Option<Time>)>) -> PingReport {
    let mut seen = Seen::default();
    for (sequence, time) in arrivals {
        let Some(sample) = report.samples.get_mut(sequence as usize) else {
            continue;
        };
        if seen.note(sequence) == Order::Duplicate {
            continue;
        }
        report.arrived += 1;
        report.unstamped += u64::from(time.is_none());
        sample.forward = time.map(|time| time.since(sample.sent));
    }
    report
}

fn receive(
    socket: &Socket,
    timed: &mut TimedReceiver,
    context: &Context,
    take: impl FnMut(&[u8], Arrival),
) -> Result<(), TrafficError> {
    match timed.receive(socket, &context.clock, take) {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            // ICMP errors of the path show on the socket; the requests count as lost.
            Some(
                libc::EAGAIN
                | libc::EINTR
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ECONNREFUSED
                | libc::EMSGSIZE
                | libc::EPROTO,
            ) => Ok(()),
            _ => Err(context.error("receive echo messages")(error)),
        },
    }
}

fn readable(socket: &Socket, timeout: Span) -> bool {
    let mut polls = [libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    poll(&mut polls, Some(Duration::from_nanos(timeout.as_ns()))) > 0
}

/// Writes an echo request: header, then type, number and time of sending.
fn fill(packet: &mut [u8], id: u16, number: u64, now: Time, is_v4: bool) {
    packet[0] = if is_v4 { 8 } else { 128 };
    packet[1..4].fill(0);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    fill_payload(&mut packet[ICMP_HEADER_LEN..], number, now);
    if is_v4 {
        let mut sum = sluice_wire::frame::Sum::new();
        sum.add(packet);
        let checksum = sum.finish().to_be_bytes();
        packet[2..4].copy_from_slice(&checksum);
    }
    // RFC 3542 section 3.1: the kernel computes that of ICMPv6.
}

fn fill_payload(payload: &mut [u8], number: u64, now: Time) {
    payload[..8].copy_from_slice(&MAGIC.to_be_bytes());
    payload[8..16].copy_from_slice(&number.to_be_bytes());
    payload[16..24].copy_from_slice(&now.as_ns().to_be_bytes());
}

fn payload_number(payload: &[u8]) -> Option<u64> {
    let [magic, number, _] = words(payload)?;
    (magic == MAGIC).then_some(number)
}

/// Returns the number in an echo message of this series.
fn echo(bytes: &[u8], id: u16, is_v4: bool) -> Option<u64> {
    // raw(7): IPv4 sockets receive the IP header too, ipv6 ones do not.
    let icmp = if is_v4 {
        bytes.get(usize::from(bytes.first()? & 0x0f) * 4..)?
    } else {
        bytes
    };
    let (header, payload) = icmp.split_first_chunk::<ICMP_HEADER_LEN>()?;
    if header[4..6] != id.to_be_bytes() {
        return None;
    }
    payload_number(payload)
}

/// Message types of echo.
#[derive(Clone, Copy)]
struct Kinds {
    request: u8,
    reply: u8,
}

impl Kinds {
    fn of(address: IpAddr) -> Kinds {
        match address {
            IpAddr::V4(_) => Kinds {
                request: 8,
                reply: 0,
            },
            IpAddr::V6(_) => Kinds {
                request: 128,
                reply: 129,
            },
        }
    }
}

/// A raw ICMP socket on `address` that receives messages of one type only.
fn socket(address: IpAddr, kind: u8) -> io::Result<Socket> {
    let (domain, protocol) = match address {
        IpAddr::V4(_) => (Domain::IPV4, socket2::Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, socket2::Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    receive_icmp_only(&socket, address.is_ipv4(), kind)?;
    socket.bind(&SocketAddr::new(address, 0).into())?;
    grant_receive_buffer(&socket, RECEIVE_BUFFER)?;
    Ok(socket)
}

/// Room for the messages of all series of a host, since each socket receives all of them; rmem_max
/// may allow only a tenth of it.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The bytes that one series may leave unread.
const UNREAD_BYTES: usize = 50_000;
/// The kernel's overhead for each request.
const UNREAD_OVERHEAD: usize = 1_000;

/// Least payload of a request: type, number and time of sending.
pub const LEAST_PAYLOAD: usize = 24;

const ICMP_HEADER_LEN: usize = 8;
const MAGIC: u64 = u64::from_be_bytes(*b"sluicepi");

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Of 50 000 bytes a request takes its payload and 1000: 47 of 56 bytes, none of 65 507.
    #[test]
    fn requests_wait_to_be_read_as_long_as_they_fit() {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let rest = |payload, interval, granted| {
            let ping = Ping::new(address, address, interval, Time::ZERO);
            Ping { payload, ..ping }.rest(granted)
        };
        let (fast, slow) = (Span::from_us(100), Span::from_ms(1));
        assert_eq!(rest(56, fast, RECEIVE_BUFFER), Span::from_us(4700));
        assert_eq!(rest(56, slow, RECEIVE_BUFFER), STOP_CHECK);
        assert_eq!(rest(65_507, slow, RECEIVE_BUFFER), Span::ZERO);
        assert_eq!(rest(56, slow, 425_984), Span::ZERO);
    }
}
