//! UDP at a given rate, with even or random spacing or in bursts; or packets that are listed one by
//! one.
//!
//! Packet `i` of a burst is due at its start plus `i * packet bits / rate`, computed exactly, so
//! that the rate has no rounding error however long it runs. A packet that could not be sent in
//! time follows at once. Every packet carries its number and the instant of sending, so the
//! receiver knows delay, loss, duplicates and order.

use crate::tcp::{local_address, set_traffic_class};
use crate::{
    Context, Identity, Running, STOP_CHECK, TrafficError, check_families, check_field, start_pair,
};
use sluice_core::traffic::Departures;
pub use sluice_core::traffic::Spacing;
use sluice_core::{Rate, Rng, Span, Stop, Time};
use sluice_net::namespace::Namespace;
use sluice_net::socket::{Arrival, TimedReceiver, poll};
use sluice_net::{Clock, precise_wakeups};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One flow.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// Rate of the IP packets (payload plus 28 bytes, or 48 for IPv6).
    pub rate: Rate,
    /// Bytes of UDP payload per packet, at least [`LEAST_PAYLOAD`].
    pub payload: usize,
    /// The spacing of the packets.
    pub spacing: Spacing,
    /// Packets with individual due times, sizes and ECN fields, instead of `rate`, `payload`,
    /// `spacing` and `ecn`.
    pub listed: Option<Arc<[ListedPacket]>>,
    /// The seed of the random numbers of `spacing`.
    pub seed: u64,
    /// Differentiated services codepoint.
    pub dscp: u8,
    /// IP ECN field of the packets: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// The due time of the first packet.
    pub start: Time,
    /// No packet is due after this time, even if the flow is not stopped before.
    pub stop: Option<Time>,
    /// The time before a packet is due at which the thread stops sleeping and busy-polls.
    pub spin: Span,
    /// Request the time at which each packet was passed to the sender's device, and use that as the
    /// time of sending: delays then exclude the sending thread and its system call.
    pub stamp_departures: bool,
    /// Keep every n-th packet as a sample; counts always cover all.
    pub sample_every: u64,
    /// The time that the receiver waits for late packets after the last one.
    pub linger: Span,
}

/// One packet of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedPacket {
    /// When it is due, relative to the start of the flow; the packets of a list are in this order.
    pub after: Span,
    /// Bytes of UDP payload, at least [`LEAST_PAYLOAD`].
    pub payload: u16,
    /// IP ECN field.
    pub ecn: u8,
}

/// The result of a flow.
#[derive(Clone, Debug, Default)]
pub struct UdpReport {
    /// The flow's addresses and ports.
    pub connection: Option<(SocketAddr, SocketAddr)>,
    /// Packets sent.
    pub sent: u64,
    /// Packets that the sender's own kernel refused.
    pub refused: u64,
    /// Their numbers, in this order.
    pub refused_numbers: Vec<u64>,
    /// Packets for which the kernel reported a departure time.
    pub departed: u64,
    /// The largest lateness of a packet.
    pub latest: Span,
    /// Different packets received.
    pub received: u64,
    /// Bytes of IP packets received, duplicates not counted.
    pub received_bytes: u64,
    /// Packets received again.
    pub duplicates: u64,
    /// Packets received after one with a higher number.
    pub reordered: u64,
    /// Packets that reached the receiver's host but found its socket full: lost by the measurement,
    /// not on the path.
    pub overflowed: u64,
    /// Packets received with a CE mark.
    pub marked: u64,
    /// Packets as they arrived.
    pub samples: Vec<UdpSample>,
    /// The instants at which packets left the sender's device, by number, where known.
    departures: Vec<Option<Time>>,
}

/// One packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpSample {
    /// Number, from 0.
    pub sequence: u64,
    /// When it was passed to the sender's kernel; with [`UdpFlow::stamp_departures`], when that
    /// passed it to the device.
    pub sent: Time,
    /// When the receiver's kernel received it; unknown if it was not stamped, as the first few may
    /// be if `start` follows within milliseconds.
    pub received: Option<Time>,
    /// IP ECN field on arrival, if the kernel reported it.
    pub ecn: Option<u8>,
    /// The packets that had found the receiver's socket full by then.
    pub overflowed: u64,
}

impl UdpFlow {
    /// A flow of `payload` bytes per packet from `start` on.
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        rate: Rate,
        payload: usize,
        start: Time,
    ) -> UdpFlow {
        UdpFlow {
            source,
            destination,
            rate,
            payload,
            spacing: Spacing::Constant,
            listed: None,
            seed: 1,
            dscp: 0,
            ecn: 0,
            start,
            stop: None,
            spin: Span::ZERO,
            stamp_departures: false,
            sample_every: 1,
            linger: Span::from_secs(2),
        }
    }

    /// Starts the flow between two namespaces.
    ///
    /// # Errors
    /// A value is impossible, or an address does not exist. Nothing runs then.
    pub fn start(
        &self,
        from: &Namespace,
        to: &Namespace,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<UdpReport>, TrafficError> {
        check_field("dscp", self.dscp, 63)?;
        check_families(self.source, self.destination)?;
        if self.rate.is_unlimited() || self.sample_every == 0 {
            return Err(TrafficError::Interval("packet or sample"));
        }
        let most = usize::from(u16::MAX) - self.header_len();
        for (_, size, ecn) in self
            .packets()
            .take(self.listed.as_ref().map_or(1, |all| all.len()))
        {
            if !(LEAST_PAYLOAD..=most).contains(&size) {
                return Err(TrafficError::Size {
                    size,
                    least: LEAST_PAYLOAD,
                    most,
                });
            }
            check_field("ecn", ecn, 3)?;
        }
        let receiver = Context::new(to, clock, stop);
        let (sink, timed, destination) = open_timed(to, &receiver, self.destination, 0)?;
        let sender = Context::new(from, clock, stop);
        let class = self.dscp << 2 | self.ecn;
        let (source, source_address) = open(from, &sender, self.source, class)?;
        connect(&source, destination, &sender)?;
        let departures = self
            .stamp_departures
            .then(|| TimedReceiver::of_departures(&source))
            .transpose()
            .map_err(sender.error("enable timestamps"))?;
        let merge = move |sent: UdpReport, mut received: UdpReport| {
            for sample in &mut received.samples {
                let departure = sent.departures.get(sample.sequence as usize);
                sample.sent = departure.copied().flatten().unwrap_or(sample.sent);
            }
            UdpReport {
                connection: Some((source_address, destination)),
                sent: sent.sent,
                refused: sent.refused,
                refused_numbers: sent.refused_numbers,
                departed: sent.departures.iter().flatten().count() as u64,
                latest: sent.latest,
                ..received
            }
        };
        let identity = Identity::new(libc::IPPROTO_UDP, source_address, destination);
        let (flow, other) = (self.clone(), self.clone());
        start_pair(
            identity,
            stop,
            (from, "udp-send"),
            move || Ok(flow.send(&source, departures, &sender)),
            (to, "udp-receive"),
            move |done| other.receive(&sink, timed, &receiver, done),
            merge,
        )
    }

    fn header_len(&self) -> usize {
        if self.source.is_ipv4() { 28 } else { 48 }
    }

    /// Returns the instants at which packets are due, without end.
    fn due(&self) -> impl Iterator<Item = Time> + use<> {
        let mut rng = Rng::from_seed(self.seed);
        let bytes = (self.payload + self.header_len()) as u64;
        let mut departures = Departures::new(self.spacing, self.rate, bytes, self.start, &mut rng);
        let after = move |now: &Time| Some(departures.after(*now, &mut rng));
        std::iter::successors(Some(self.start), after)
    }

    /// The due time of each packet, its payload and its ECN field.
    fn packets(&self) -> Box<dyn Iterator<Item = (Time, usize, u8)> + '_> {
        match &self.listed {
            Some(listed) => Box::new(listed.iter().map(|packet| {
                let due = self.start.saturating_add(packet.after);
                (due, usize::from(packet.payload), packet.ecn)
            })),
            None => Box::new(self.due().map(|due| (due, self.payload, self.ecn))),
        }
    }

    fn send(
        &self,
        socket: &Socket,
        mut departures: Option<TimedReceiver>,
        context: &Context,
    ) -> UdpReport {
        precise_wakeups();
        let mut report = UdpReport::default();
        let mut packet = MAGIC.to_be_bytes().to_vec();
        let mut ecn_now = self.ecn;
        for (number, (due, payload, ecn)) in (0_u64..).zip(self.packets()) {
            if self.stop.is_some_and(|stop| due >= stop) {
                break;
            }
            let near = Time::from_ns(due.as_ns().saturating_sub(STOP_CHECK.as_ns()));
            if !context.sleep_until(near) {
                break;
            }
            let now = context.clock.sleep_until(due, self.spin);
            report.latest = report.latest.max(now.since(due));
            packet.resize(payload, 0);
            if ecn != ecn_now {
                // A socket that accepted the first field accepts another.
                let field = self.dscp << 2 | ecn;
                let _ = set_traffic_class(socket, self.source.is_ipv4(), field);
                ecn_now = ecn;
            }
            packet[8..16].copy_from_slice(&number.to_be_bytes());
            packet[16..24].copy_from_slice(&now.as_ns().to_be_bytes());
            report.sent += 1;
            if socket.send(&packet).is_err() {
                report.refused += 1;
                report.refused_numbers.push(number);
            }
            if let Some(departures) = &mut departures {
                let stamps = &mut report.departures;
                let note = |number: u32, time| {
                    let number = number as usize;
                    stamps.resize(stamps.len().max(number + 1), None);
                    stamps[number] = Some(time);
                };
                // No departure is reported, yet or ever: the packet keeps the time at which it was
                // sent.
                let _ = departures.departures(socket, &context.clock, note);
            }
        }
        report
    }

    fn receive(
        &self,
        socket: &Socket,
        mut timed: TimedReceiver,
        context: &Context,
        sender_done: &AtomicBool,
    ) -> Result<UdpReport, TrafficError> {
        precise_wakeups();
        let mut report = UdpReport::default();
        let mut seen = Seen::default();
        let mut end = None;
        loop {
            let mut polls = [libc::pollfd {
                fd: socket.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            let timeout = Duration::from_nanos(STOP_CHECK.as_ns());
            if poll(&mut polls, Some(timeout)) > 0 {
                let before = report.samples.len();
                let take = |bytes: &[u8], arrival: Arrival| {
                    self.take(bytes, arrival, &mut seen, &mut report);
                };
                let received = timed.receive(socket, &context.clock, take);
                for sample in &mut report.samples[before..] {
                    sample.overflowed = timed.overflowed();
                }
                match received {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(context.error("receive")(error)),
                }
            }
            if sender_done.load(Ordering::Acquire) {
                let now = context.clock.now();
                if now >= *end.get_or_insert(now + self.linger) {
                    report.overflowed = timed.overflowed();
                    return Ok(report);
                }
            }
        }
    }

    fn take(&self, bytes: &[u8], arrival: Arrival, seen: &mut Seen, report: &mut UdpReport) {
        let Some([magic, sequence, sent]) = words(bytes) else {
            return;
        };
        if magic != MAGIC {
            return;
        }
        if !seen.count(sequence, &mut report.duplicates, &mut report.reordered) {
            return;
        }
        report.received += 1;
        report.received_bytes += (arrival.length + self.header_len()) as u64;
        report.marked += u64::from(arrival.ecn == Some(3));
        if sequence.is_multiple_of(self.sample_every) {
            report.samples.push(UdpSample {
                sequence,
                sent: Time::from_ns(sent),
                received: arrival.time,
                ecn: arrival.ecn,
                overflowed: 0,
            });
        }
    }
}

/// The numbers that have been seen, one bit each.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    bits: Vec<u64>,
    highest: Option<u64>,
}

/// The order of a number relative to the numbers before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Higher than all.
    Next,
    /// Lower than one that came before.
    Late,
    /// Seen already.
    Duplicate,
}

impl Seen {
    /// Adds a number, and returns its order relative to those before it.
    pub fn note(&mut self, number: u64) -> Order {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit != 0 {
            return Order::Duplicate;
        }
        self.bits[word] |= bit;
        if self.highest.is_some_and(|highest| number < highest) {
            return Order::Late;
        }
        self.highest = Some(number);
        Order::Next
    }

    /// Returns whether `number` has been seen.
    pub fn has(&self, number: u64) -> bool {
        let word = self.bits.get((number / 64) as usize);
        word.is_some_and(|bits| bits & (1 << (number % 64)) != 0)
    }

    /// Returns the highest number that has been seen.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Counts a number that was seen already or is late. Returns whether it is new.
    pub(super) fn count(&mut self, number: u64, duplicates: &mut u64, late: &mut u64) -> bool {
        let order = self.note(number);
        *duplicates += u64::from(order == Order::Duplicate);
        *late += u64::from(order == Order::Late);
        order != Order::Duplicate
    }
}

/// Three numbers in network order.
pub(super) fn words(bytes: &[u8]) -> Option<[u64; 3]> {
    let (words, _) = bytes.as_chunks::<8>();
    let [a, b, c, ..] = words else { return None };
    Some([a, b, c].map(|word| u64::from_be_bytes(*word)))
}

/// Opens a UDP socket on a free port of `address`, with the traffic class of its packets. Returns
/// its own address, too.
pub(super) fn open(
    namespace: &Namespace,
    context: &Context,
    address: IpAddr,
    class: u8,
) -> Result<(Socket, SocketAddr), TrafficError> {
    let bound = || -> io::Result<Socket> {
        let any = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(any), Type::DGRAM, None)?;
        // Room for a burst of small packets; otherwise the default limits suffice.
        socket.set_recv_buffer_size(4 << 20)?;
        socket.bind(&any.into())?;
        Ok(socket)
    };
    let socket = namespace
        .enter(bound)?
        .map_err(context.error(format!("open a UDP socket on {address}")))?;
    set_traffic_class(&socket, address.is_ipv4(), class)
        .map_err(context.error("set the traffic class"))?;
    let own = local_address(&socket).map_err(context.error("read a port"))?;
    Ok((socket, own))
}

/// Opens a socket as [`open`] does, with a receiver that stamps arrivals.
pub(super) fn open_timed(
    namespace: &Namespace,
    context: &Context,
    address: IpAddr,
    class: u8,
) -> Result<(Socket, TimedReceiver, SocketAddr), TrafficError> {
    let (socket, own) = open(namespace, context, address, class)?;
    let timed = context.timed(&socket, address)?;
    Ok((socket, timed, own))
}

pub(super) fn connect(
    socket: &Socket,
    destination: SocketAddr,
    context: &Context,
) -> Result<(), TrafficError> {
    socket
        .connect(&destination.into())
        .map_err(context.error(format!("connect to {destination}")))
}

/// Least payload of a packet: type, number and time of sending.
pub const LEAST_PAYLOAD: usize = 24;

const MAGIC: u64 = u64::from_be_bytes(*b"sluiceud");

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn packets_are_due_without_accumulated_error() {
        let any = Ipv4Addr::UNSPECIFIED.into();
        // 72 + 28 bytes = 800 bit at 3 Mbit/s: 266 666.67 ns apart.
        let flow = UdpFlow::new(any, any, Rate::from_bps(3_000_000), 72, Time::from_ns(5));
        let due: Vec<u64> = flow.due().take(4).map(Time::as_ns).collect();
        assert_eq!(due, [5, 5 + 266_666, 5 + 533_333, 5 + 800_000]);
        // After 3e6 packets still exact: 1e6 times 800 000 ns.
        let later = flow.due().nth(3_000_000);
        assert_eq!(later, Some(Time::from_ns(5 + 800_000_000_000)));
    }

    #[test]
    fn listed_packets_leave_at_their_own_instants_and_sizes() {
        let any = Ipv4Addr::UNSPECIFIED.into();
        let mut flow = UdpFlow::new(any, any, Rate::from_bps(800_000), 72, Time::from_ns(5));
        let packet = |after_us, payload, ecn| ListedPacket {
            after: Span::from_us(after_us),
            payload,
            ecn,
        };
        flow.listed = Some([packet(0, 24, 0), packet(7, 1472, 2)].into());
        let packets: Vec<_> = flow.packets().collect();
        let at = Time::from_ns;
        assert_eq!(packets, [(at(5), 24, 0), (at(7005), 1472, 2)]);
    }

    #[test]
    fn bursts_follow_one_another_with_silence_between() {
        let any = Ipv4Addr::UNSPECIFIED.into();
        // 100 bytes at 800 kbit/s: 1 ms apart; bursts of 3 ms every 10 ms.
        let mut flow = UdpFlow::new(any, any, Rate::from_bps(800_000), 72, Time::ZERO);
        flow.spacing = Spacing::OnOff {
            on: Span::from_ms(3),
            off: Span::from_ms(7),
        };
        let due: Vec<u64> = flow.due().take(7).map(|t| t.as_ns() / 1_000_000).collect();
        assert_eq!(due, [0, 1, 2, 10, 11, 12, 20]);
    }

    #[test]
    fn random_spacing_keeps_the_rate() {
        let any = Ipv4Addr::UNSPECIFIED.into();
        let mut flow = UdpFlow::new(any, any, Rate::from_bps(800_000), 72, Time::ZERO);
        let last = |flow: &UdpFlow| {
            let last = flow.due().nth(10_000).unwrap();
            last.since(Time::ZERO).as_secs_f64()
        };
        flow.spacing = Spacing::Poisson;
        // 10 000 intervals of 1 ms with a standard deviation of 1 ms each: 10 s, give or take 0.1
        // s, three of which are allowed.
        assert!((9.7..10.3).contains(&last(&flow)), "{}", last(&flow));
        // Silent half of the time: the same number of packets takes twice as long. 500 bursts of 20
        // ms and as many silences have a standard deviation of 0.02 * sqrt(1000) = 0.63 s.
        flow.spacing = Spacing::RandomOnOff {
            on: Span::from_ms(20),
            off: Span::from_ms(20),
        };
        assert!((18.0..22.0).contains(&last(&flow)), "{}", last(&flow));
    }

    #[test]
    fn order_is_told_from_numbers() {
        let mut seen = Seen::default();
        let orders = [0, 1, 5, 3, 5, 4, 6].map(|number| seen.note(number));
        use Order::{Duplicate, Late, Next};
        assert_eq!(orders, [Next, Next, Next, Late, Duplicate, Late, Next]);
    }
}
