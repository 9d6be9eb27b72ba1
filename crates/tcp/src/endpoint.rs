//! One end of a connection: the handshake around a sender and a receiver.

use crate::address;
use crate::cc::{Phase, Window};
use crate::config::{Config, ConfigError, EcnMode};
use crate::receiver::Receiver;
use crate::segment::{Flags, Segment, expand};
use crate::sender::{Counters, Sender};
use sluice_core::{Ecn, Rate, Span, Time};

/// Where the connection stands (RFC 9293 §3.3.2; the closing states are the two finished flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A client that has not been opened.
    Closed,
    /// A server that waits for SYN.
    Listen,
    /// A client that waits for SYN-ACK.
    SynSent,
    /// A server that waits for the ACK of its SYN-ACK.
    SynReceived,
    /// Bytes can flow.
    Established,
    /// The peer has reset it, or did not answer (RFC 9293 §3.8.3).
    Failed,
}

/// One end of a TCP connection.
///
/// Feed it with [`Endpoint::handle_segment`] and [`Endpoint::handle_timeout`]; after each,
/// and after [`Endpoint::write`], [`Endpoint::read`] or [`Endpoint::close`], take segments from
/// [`Endpoint::poll_transmit`] until there are none, then wake at [`Endpoint::next_timeout`].
///
/// ```
/// use sluice_core::{Ecn, Span, Time};
/// use sluice_tcp::{Config, Endpoint};
///
/// let mut client = Endpoint::client(&Config::default()).unwrap();
/// let mut server = Endpoint::server(&Config::default()).unwrap();
/// client.open(Time::ZERO);
/// client.write(100_000);
/// client.close();
/// server.close();
/// // A network of 10 ms that loses nothing: everything that one side says arrives together.
/// let mut now = Time::ZERO;
/// while !(client.is_closed() && server.is_closed()) {
///     let batch: Vec<_> = std::iter::from_fn(|| client.poll_transmit(now)).collect();
///     now += Span::from_ms(10);
///     batch.iter().for_each(|segment| server.handle_segment(now, segment));
///     let batch: Vec<_> = std::iter::from_fn(|| server.poll_transmit(now)).collect();
///     now += Span::from_ms(10);
///     batch.iter().for_each(|segment| client.handle_segment(now, segment));
/// }
/// assert_eq!(server.received(), 100_000);
/// assert_eq!(client.counters().retransmits, 0);
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Endpoint {
    state: State,
    /// What both sides have agreed on.
    agreed_ecn: EcnMode,
    /// Whether the sender has anything to do. A side that only receives never looks at it, which
    /// halves what a segment touches.
    is_sending: bool,
    /// Whether everything written and the FIN have been acknowledged.
    is_sent: bool,
    owes_reset: bool,
    /// The window of the last ACK that the idle sender was not told of.
    peer_window: Option<u16>,
    received: u64,
    receiver: Receiver,
    sender: Sender,
    /// Sequence number of our SYN.
    iss: u64,
    /// What our SYN offers.
    mss: u32,
    ecn: EcnMode,
    peer_asks_accurate: bool,
    syn_due: bool,
    syn_sent_at: Time,
    syn_timer: Time,
    syn_retries: u32,
}

impl Endpoint {
    /// The end that opens the connection.
    ///
    /// # Errors
    /// Those of [`Config::validate`].
    pub fn client(config: &Config) -> Result<Self, ConfigError> {
        Endpoint::new(config, State::Closed)
    }

    /// The end that waits for a client.
    ///
    /// # Errors
    /// Those of [`Config::validate`].
    pub fn server(config: &Config) -> Result<Self, ConfigError> {
        Endpoint::new(config, State::Listen)
    }

    fn new(config: &Config, state: State) -> Result<Self, ConfigError> {
        config.validate()?;
        // One turn of the 32-bit space up, so that nothing lies below zero.
        let iss = (1 << 32) + u64::from(config.isn);
        Ok(Endpoint {
            state,
            agreed_ecn: EcnMode::Off,
            is_sending: false,
            is_sent: false,
            owes_reset: false,
            peer_window: None,
            received: 0,
            receiver: Receiver::new(config),
            sender: Sender::new(config, iss + 1),
            iss,
            mss: config.mss,
            ecn: config.ecn,
            peer_asks_accurate: false,
            syn_due: false,
            syn_sent_at: Time::ZERO,
            syn_timer: Time::MAX,
            syn_retries: 0,
        })
    }

    // ---- the application ---------------------------------------------------------------

    /// Starts the handshake.
    pub fn open(&mut self, _now: Time) {
        if self.state == State::Closed {
            self.state = State::SynSent;
            self.syn_due = true;
        }
    }

    /// Makes `bytes` more available for sending.
    pub fn write(&mut self, bytes: u64) {
        self.sender.write(bytes);
        self.wake_sender();
    }

    /// Makes the source endless, until [`Endpoint::close`].
    pub fn write_forever(&mut self) {
        self.sender.write(u64::MAX);
        self.wake_sender();
    }

    /// Ends the sending direction after everything written; an endless source ends where it is.
    pub fn close(&mut self) {
        self.sender.close();
        self.wake_sender();
    }

    /// Takes up to `bytes` out of the receive buffer; returns how many there were.
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.read(bytes)
    }

    /// Bytes that wait in the receive buffer; always zero with immediate reading.
    pub fn unread(&self) -> u64 {
        self.receiver.unread()
    }

    /// Bytes that have arrived in order so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes written that the peer has not acknowledged yet.
    pub fn unacknowledged(&self) -> u64 {
        self.sender.unacknowledged()
    }

    /// Bytes that the application has written and that begin with those of `segment`, one of this
    /// end's: what a scheduler by shortest remaining work wants to know. None for an endless source.
    pub fn remaining(&self, segment: &Segment) -> Option<u64> {
        self.sender.remaining(segment.seq)
    }

    // ---- the network -------------------------------------------------------------------

    /// Takes a segment from the network.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment) {
        if segment.flags.has(Flags::RST) {
            if !matches!(self.state, State::Closed | State::Listen) {
                self.state = State::Failed;
            }
            return;
        }
        match self.state {
            State::Established => self.handle_established(now, segment),
            State::Closed | State::Failed => {}
            State::Listen => {
                if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) {
                    self.state = State::SynReceived;
                    self.peer_asks_accurate = segment.flags.has(Flags::AE);
                    // RFC 3168 §6.1.1: ECE and CWR ask for ECN; RFC 9768 §3.1.1 adds AE.
                    self.agree_on_ecn(segment.flags.has(Flags::ECE.with(Flags::CWR)));
                    self.take_syn(segment);
                    self.syn_due = true;
                }
            }
            State::SynSent => {
                let is_ours = expand(segment.ack, self.iss) == self.iss + 1;
                if segment.flags.has(Flags::SYN.with(Flags::ACK)) && is_ours {
                    // RFC 9768 §3.1.2: CWR without ECE accepts accurate ECN, ECE alone classic.
                    let is_accurate =
                        segment.flags.has(Flags::CWR) && !segment.flags.has(Flags::ECE);
                    self.peer_asks_accurate = is_accurate;
                    self.agree_on_ecn(is_accurate || segment.flags.has(Flags::ECE));
                    self.take_syn(segment);
                    self.establish(now);
                    self.receiver.acknowledge();
                }
            }
            State::SynReceived => {
                if segment.flags.has(Flags::SYN) {
                    self.syn_due = true;
                } else if segment.flags.has(Flags::ACK) && expand(segment.ack, self.iss) > self.iss
                {
                    self.establish(now);
                    self.handle_established(now, segment);
                }
            }
        }
    }

    /// The next segment to put on the network; none when nothing may leave now.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        let mut segment = Segment::default();
        if self.owes_reset {
            self.owes_reset = false;
            segment.flags = Flags::RST.with(Flags::ACK);
            segment.seq = self.sender.nxt() as u32;
            segment.ack = self.receiver.nxt() as u32;
            segment.ts = now;
            return Some(segment);
        }
        if self.state != State::Established {
            return self.poll_syn(now);
        }
        let may_send = self.is_sending && !self.receiver.has_split_ack();
        if may_send && self.sender.poll(now, &mut segment) {
            self.receiver.stamp(&mut segment);
        } else if self.receiver.wants_ack(now) {
            segment.seq = self.sender.nxt() as u32;
            // L4S sends pure ACKs as ECT(1) as well, so that they take the short queue.
            if self.agreed_ecn == EcnMode::Accurate {
                segment.ecn = Ecn::Ect1;
            }
            self.receiver.stamp(&mut segment);
        } else {
            return None;
        }
        segment.ts = segment.ts.max(now);
        Some(segment)
    }

    /// When [`Endpoint::handle_timeout`] wants to be called; [`Time::MAX`] for never. Being
    /// called earlier or later than this is harmless.
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Established if self.is_sending => {
                self.sender.next_timeout().min(self.receiver.ack_due())
            }
            State::Established => self.receiver.ack_due(),
            _ => self.syn_timer,
        }
    }

    /// Acts on whatever timer is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state != State::Established {
            self.handle_syn_timeout(now);
            return;
        }
        if !self.is_sending {
            return;
        }
        self.sender.handle_timeout(now);
        if self.sender.has_given_up {
            self.state = State::Failed;
            self.owes_reset = true;
        }
    }

    /// Names an address in each cache line that the next segment with payload is going to need, reading
    /// none. A host that is about to hand over segments to thousands of endpoints can have them all
    /// fetched first, so that it waits for none.
    pub fn near(&self, visit: &mut impl FnMut(*const u8)) {
        visit(address(&self.state));
        self.receiver.near(visit);
        self.sender.near_numbers(visit);
    }

    /// The same for an ACK.
    pub fn near_ack(&self, visit: &mut impl FnMut(*const u8)) {
        self.near(visit);
        self.sender.near(visit);
    }

    /// The same for [`Endpoint::next_timeout`].
    pub fn near_timeout(&self, visit: &mut impl FnMut(*const u8)) {
        visit(address(&self.state));
        self.receiver.near_timeout(visit);
        self.sender.near_timeout(visit);
    }

    /// What a segment with payload is going to need besides; this is found by reading what
    /// [`Endpoint::near`] has named.
    pub fn far(&self, visit: &mut impl FnMut(*const u8)) {
        self.receiver.far(visit);
    }

    /// What an ACK is going to need besides, after [`Endpoint::near_ack`].
    pub fn far_ack(&self, visit: &mut impl FnMut(*const u8)) {
        if self.is_sending {
            self.sender.far(visit);
        }
    }

    // ---- observation -------------------------------------------------------------------

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the handshake is done.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Whether everything written, and the end of it, has been acknowledged.
    pub fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Whether the peer's last byte and its end have arrived.
    pub fn is_received(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Whether both directions have ended, or the connection has failed.
    pub fn is_closed(&self) -> bool {
        self.state == State::Failed || (self.is_sent() && self.is_received())
    }

    /// What has been counted so far.
    pub fn counters(&self) -> Counters {
        self.sender.counters
    }

    /// Payload bytes that arrived more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.receiver.duplicate_bytes()
    }

    /// The variables of the sending direction.
    pub fn snapshot(&self) -> Snapshot {
        let sender = &self.sender;
        Snapshot {
            phase: sender.phase,
            window: sender.window,
            in_flight: sender.in_flight(),
            srtt: sender.rtt.srtt(),
            rttvar: sender.rtt.rttvar(),
            min_rtt: sender.rtt.srtt().map(|_| sender.rtt.min()),
            latest_rtt: sender.rtt.latest(),
            rto: sender.rtt.rto(),
            mss: sender.mss(),
            delivered: sender.delivered(),
            delivery_rate: sender.delivery_rate(),
            pacing_rate: sender.pacing_rate(),
            variable: sender.cc.variable(),
        }
    }

    // ---- handshake ---------------------------------------------------------------------

    fn handle_established(&mut self, now: Time, segment: &Segment) {
        if segment.flags.has(Flags::SYN) {
            // Our ACK of the SYN-ACK was lost.
            self.receiver.acknowledge();
            return;
        }
        if self.is_sending {
            if segment.flags.has(Flags::ACK) {
                self.sender.handle_ack(now, segment);
                self.is_sending = !self.sender.is_idle();
                self.is_sent = self.sender.is_finished();
            }
        } else {
            self.peer_window = Some(segment.window);
        }
        if segment.is_pure_ack() {
            if self.receiver.handle_pure_ack(segment) {
                self.receiver.acknowledge();
            }
        } else {
            let rtt = &self.sender.rtt;
            self.received += self.receiver.handle(now, segment, || rtt.rto());
        }
    }

    fn wake_sender(&mut self) {
        if let Some(window) = self.peer_window.take() {
            self.sender.set_peer_window(window);
        }
        if !self.is_sending {
            self.sender.on_wake();
        }
        self.is_sending = !self.sender.is_idle();
    }

    fn agree_on_ecn(&mut self, peer_is_capable: bool) {
        self.agreed_ecn = match self.ecn {
            _ if !peer_is_capable => EcnMode::Off,
            // RFC 9768 §3.1.2: a side that only knows classic ECN gets it.
            EcnMode::Accurate if !self.peer_asks_accurate => EcnMode::Classic,
            mode => mode,
        };
    }

    fn take_syn(&mut self, segment: &Segment) {
        self.receiver
            .open(expand(segment.seq, 1 << 32) + 1, segment.ts);
        self.receiver.set_ecn(self.agreed_ecn);
        self.sender.open(
            u32::from(segment.mss),
            segment.wscale,
            segment.window,
            self.agreed_ecn,
        );
    }

    fn establish(&mut self, now: Time) {
        self.state = State::Established;
        self.syn_timer = Time::MAX;
        self.syn_due = false;
        if self.syn_retries == 0 {
            // RFC 6298 §3 (Karn's algorithm): only a SYN that was sent once is measured.
            let rtt = now.since(self.syn_sent_at);
            self.sender.rtt.on_sample(now, rtt);
            self.sender.size_super_packet();
            self.receiver.set_path_rtt(rtt);
        } else {
            self.sender.on_handshake_loss(self.syn_retries);
        }
    }

    fn poll_syn(&mut self, now: Time) -> Option<Segment> {
        if !self.syn_due {
            return None;
        }
        let mut segment = Segment {
            seq: self.iss as u32,
            flags: Flags::SYN,
            mss: self.mss as u16,
            ts: now,
            ..Segment::default()
        };
        match self.state {
            State::SynSent => {
                segment.flags = segment.flags.with(match self.ecn {
                    EcnMode::Off => Flags::empty(),
                    EcnMode::Classic | EcnMode::Dctcp => Flags::ECE.with(Flags::CWR),
                    EcnMode::Accurate => Flags::AE.with(Flags::ECE).with(Flags::CWR),
                });
            }
            State::SynReceived => {
                segment.flags = segment.flags.with(Flags::ACK).with(match self.agreed_ecn {
                    EcnMode::Off => Flags::empty(),
                    EcnMode::Classic | EcnMode::Dctcp => Flags::ECE,
                    // RFC 9768 §3.1.2, table 2: the SYN arrived as Not-ECT.
                    EcnMode::Accurate => Flags::CWR,
                });
                segment.ack = self.receiver.nxt() as u32;
            }
            _ => return None,
        }
        self.receiver.stamp_syn(&mut segment);
        self.syn_due = false;
        self.syn_sent_at = now;
        let shift = self.syn_retries.min(16);
        let timeout = Span::from_ns(self.sender.rtt.rto().as_ns() << shift);
        self.syn_timer = now.saturating_add(timeout);
        Some(segment)
    }

    fn handle_syn_timeout(&mut self, now: Time) {
        if now < self.syn_timer {
            return;
        }
        self.syn_timer = Time::MAX;
        self.syn_retries += 1;
        if self.syn_retries > MAX_SYN_RETRIES {
            self.state = State::Failed;
        } else {
            self.syn_due = true;
        }
    }
}

/// The variables of a sender at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// What it is doing about congestion.
    pub phase: Phase,
    /// Congestion window and slow start threshold.
    pub window: Window,
    /// Bytes believed to be in the network.
    pub in_flight: u64,
    /// Smoothed RTT.
    pub srtt: Option<Span>,
    /// Its mean deviation.
    pub rttvar: Span,
    /// Least RTT of the last minutes.
    pub min_rtt: Option<Span>,
    /// The last RTT sample.
    pub latest_rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Payload bytes of a full segment, as agreed.
    pub mss: u64,
    /// Bytes that the receiver has reported.
    pub delivered: u64,
    /// Delivery rate of the last sample.
    pub delivery_rate: Option<Rate>,
    /// The rate at which it paces, or would.
    pub pacing_rate: Option<Rate>,
    /// A variable of the congestion control, with its name.
    pub variable: (&'static str, u64),
}

/// Linux `tcp_syn_retries`: 127 s, where RFC 9293 §3.8.3 wants three minutes (MUST-23).
const MAX_SYN_RETRIES: u32 = 6;
