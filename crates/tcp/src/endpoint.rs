//! One end of a connection: the handshake around a sender and a receiver.

use crate::cc::{Phase, Window};
use crate::config::{Config, ConfigError};
use crate::ecn::EcnMode;
use crate::receiver::Receiver;
use crate::segment::{Flags, Segment, expand};
use crate::sender::{Counters, Sender};
use sluice_core::{Ecn, Rate, Span, Time, prefetch};

/// What an endpoint will process next, for [`Endpoint::prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A segment with payload.
    Payload,
    /// A segment without payload.
    Ack,
    /// A timer of the host. In most cases the endpoint's own timer is not due yet
    /// ([`Endpoint::next_timeout`]).
    Timer,
}

/// State of a connection (RFC 9293 §3.3.2). The closing states are the two flags
/// [`Endpoint::is_sent`] and [`Endpoint::is_received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A client that has not been opened.
    Closed,
    /// A server that waits for a SYN.
    Listen,
    /// A client that waits for SYN-ACK.
    SynSent,
    /// A server that waits for the ACK of its SYN-ACK.
    SynReceived,
    /// Bytes can flow.
    Established,
    /// The peer did not answer (RFC 9293 §3.8.3).
    Failed,
    /// This end or the peer has aborted the connection (RFC 9293 §3.10.5): nothing more is sent,
    /// except resets as answers to late segments.
    Aborted,
}

/// A reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    /// This end ends the connection.
    Abort,
    /// A closed connection answers a segment, with this sequence number.
    Answer(u32),
}

/// One end of a TCP connection.
///
/// The host calls [`Endpoint::handle_segment`] for each segment that arrives and
/// [`Endpoint::handle_timeout`] when a timer expires. After each of these, and after
/// [`Endpoint::write`], [`Endpoint::read`] or [`Endpoint::close`], it calls
/// [`Endpoint::poll_transmit`] until there are no more segments, and then waits until
/// [`Endpoint::next_timeout`].
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
/// // A network with a delay of 10 ms and without losses: all segments of one side arrive together.
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
    /// The negotiated options.
    agreed_ecn: EcnMode,
    /// Whether the sender has anything to do. Otherwise a segment does not touch it, which halves
    /// the memory that a receiving side accesses.
    is_sending: bool,
    /// Whether everything written and the FIN have been acknowledged.
    is_sent: bool,
    /// A reset to be sent.
    owes_reset: Option<Reset>,
    /// The window of the last ACK that the idle sender has not processed.
    peer_window: Option<u16>,
    received: u64,
    receiver: Receiver,
    sender: Sender,
    /// Sequence number of this end's SYN.
    iss: u64,
    /// The options that this end's SYN offers.
    mss: u32,
    ecn: EcnMode,
    peer_asks_accurate: bool,
    syn_due: bool,
    /// The instants at which the first and the last SYN were sent.
    first_syn_at: Time,
    syn_sent_at: Time,
    syn_timer: Time,
    syn_retries: u32,
}

impl Endpoint {
    /// Creates the end that opens the connection.
    ///
    /// # Errors
    /// Those of [`Config::validate`].
    pub fn client(config: &Config) -> Result<Self, ConfigError> {
        Endpoint::new(config, State::Closed)
    }

    /// Creates the end that waits for a client.
    ///
    /// # Errors
    /// Those of [`Config::validate`].
    pub fn server(config: &Config) -> Result<Self, ConfigError> {
        Endpoint::new(config, State::Listen)
    }

    fn new(config: &Config, state: State) -> Result<Self, ConfigError> {
        config.validate()?;
        // One whole 32-bit space is added, so that no number is negative.
        let iss = (1 << 32) + u64::from(config.isn);
        Ok(Endpoint {
            state,
            agreed_ecn: EcnMode::Off,
            is_sending: false,
            is_sent: false,
            owes_reset: None,
            peer_window: None,
            received: 0,
            receiver: Receiver::new(config),
            sender: Sender::new(config, iss + 1),
            iss,
            mss: config.mss,
            ecn: config.ecn,
            peer_asks_accurate: false,
            syn_due: false,
            first_syn_at: Time::MAX,
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

    /// Writes `bytes` bytes to the send buffer.
    pub fn write(&mut self, bytes: u64) {
        self.sender.write(bytes);
        self.wake_sender();
    }

    /// Writes an endless stream, until [`Endpoint::close`].
    pub fn write_forever(&mut self) {
        self.sender.write(u64::MAX);
        self.wake_sender();
    }

    /// Closes the sending direction after everything written. An endless source ends with what has
    /// been sent.
    pub fn close(&mut self) {
        self.sender.close();
        self.wake_sender();
    }

    /// Aborts the connection (RFC 9293 §3.10.5): sends a reset and forgets all data. Segments that
    /// still arrive are answered by resets, as from a closed port (§3.10.7.1).
    pub fn abort(&mut self) {
        if matches!(self.state, State::SynReceived | State::Established) {
            self.owes_reset = Some(Reset::Abort);
        }
        self.end(State::Aborted);
    }

    /// Reads up to `bytes` bytes from the receive buffer. Returns the number of bytes read.
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.read(bytes)
    }

    /// Allows the application to read `bytes` more bytes at once, now or when they arrive. Only
    /// [`Reading::Allowed`](crate::Reading::Allowed) needs this.
    pub fn allow_reading(&mut self, bytes: u64) {
        self.receiver.allow_reading(bytes);
    }

    /// Bytes in the receive buffer; always zero with immediate reading.
    pub fn unread(&self) -> u64 {
        self.receiver.unread()
    }

    /// Bytes that have arrived in order.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes written that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.sender.unacknowledged()
    }

    /// Bytes that the application has written from the first byte of `segment` on. This end has
    /// sent the segment. A scheduler for the shortest remaining work needs this number. `None` for
    /// an endless source.
    pub fn remaining(&self, segment: &Segment) -> Option<u64> {
        self.sender.remaining(segment.seq)
    }

    // ---- the network -------------------------------------------------------------------

    /// Processes a segment from the network.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment) {
        if segment.flags.has(Flags::RST) {
            self.handle_reset(segment);
            return;
        }
        match self.state {
            State::Established => self.handle_established(now, segment),
            State::Closed | State::Failed => {}
            // RFC 9293 §3.10.7.1: the reset has the sequence number that the peer expects.
            State::Aborted => self.owes_reset = Some(Reset::Answer(segment.ack)),
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
                    self.establish(now, segment);
                    self.receiver.acknowledge();
                }
            }
            State::SynReceived => {
                if segment.flags.has(Flags::SYN) {
                    self.syn_due = true;
                } else if segment.flags.has(Flags::ACK) && expand(segment.ack, self.iss) > self.iss
                {
                    self.establish(now, segment);
                    self.handle_established(now, segment);
                }
            }
        }
    }

    /// Returns the next segment to send, or `None` if nothing may be sent now.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        let mut segment = Segment::default();
        self.fill(now, &mut segment).then_some(segment)
    }

    /// As [`Endpoint::poll_transmit`], but writes the fields into `segment`, which must be
    /// [`Segment::default`]; returns whether there is a segment. A host with thousands of endpoints
    /// saves a copy: a load of several fields at once waits until the stores to them, and all
    /// stores before them, have reached the cache.
    pub fn fill(&mut self, now: Time, segment: &mut Segment) -> bool {
        if let Some(reset) = self.owes_reset.take() {
            segment.flags = Flags::RST;
            match reset {
                Reset::Answer(seq) => segment.seq = seq,
                Reset::Abort => {
                    segment.flags = segment.flags.with(Flags::ACK);
                    segment.seq = self.sender.nxt() as u32;
                    segment.ack = self.receiver.nxt() as u32;
                    segment.ts = now;
                }
            }
            return true;
        }
        if self.state != State::Established {
            let syn = self.poll_syn(now);
            return syn.map(|syn| *segment = syn).is_some();
        }
        let may_send = self.is_sending && !self.receiver.has_split_ack();
        if may_send && self.sender.poll(now, segment) {
            self.receiver.stamp(segment);
        } else if self.receiver.wants_ack(now) {
            segment.seq = self.sender.nxt() as u32;
            // L4S also sends pure ACKs as ECT(1), so that they enter the queue with low delay.
            if self.agreed_ecn == EcnMode::Accurate {
                segment.ecn = Ecn::Ect1;
            }
            self.receiver.stamp(segment);
        } else {
            return false;
        }
        segment.ts = segment.ts.max(now);
        true
    }

    /// The instant at which [`Endpoint::handle_timeout`] must be called; [`Time::MAX`] for never.
    /// An earlier or later call is harmless.
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Established if self.is_sending => {
                self.sender.next_timeout().min(self.receiver.ack_due())
            }
            State::Established => self.receiver.ack_due(),
            _ => self.syn_timer,
        }
    }

    /// Acts on the timer that has expired, if any.
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
            self.owes_reset = Some(Reset::Abort);
        }
    }

    /// Prefetches the cache lines of this endpoint that `next` will need, without reading any of
    /// them. So a host with segments for thousands of endpoints does not wait for memory.
    pub fn prefetch(&self, next: Next) {
        prefetch::line(&self.state);
        match next {
            Next::Payload => {
                self.receiver.prefetch_segment();
                self.sender.prefetch_numbers();
            }
            Next::Ack => {
                self.receiver.prefetch_ack();
                self.sender.prefetch_ack();
            }
            Next::Timer => {
                self.receiver.prefetch_timer();
                self.sender.prefetch_timer();
            }
        }
    }

    /// Prefetches the other cache lines that `next` will need. Their addresses are in the lines
    /// that [`Endpoint::prefetch`] has fetched.
    pub fn prefetch_elsewhere(&self, next: Next) {
        match next {
            Next::Payload => self.receiver.prefetch_elsewhere(),
            Next::Ack if self.is_sending => self.sender.prefetch_elsewhere(),
            Next::Ack | Next::Timer => {}
        }
    }

    /// Prefetches the cache lines whose addresses are in those that
    /// [`Endpoint::prefetch_elsewhere`] has fetched.
    pub fn prefetch_last(&self, next: Next) {
        if next == Next::Ack && self.is_sending {
            self.sender.prefetch_last();
        }
    }

    // ---- observation -------------------------------------------------------------------

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Whether everything written and the FIN have been acknowledged.
    pub fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Whether everything that the peer has written and its FIN have arrived.
    pub fn is_received(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Whether both directions have ended, or the connection has failed or was aborted.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Failed | State::Aborted)
            || (self.is_sent() && self.is_received())
    }

    /// The counters of the sending direction.
    pub fn counters(&self) -> Counters {
        self.sender.counters
    }

    /// Payload bytes that arrived more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.receiver.duplicate_bytes()
    }

    /// The state of the sending direction.
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
            // This end's ACK of the SYN-ACK was lost.
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
            // RFC 9768 §3.1.2: with a peer that supports only classic ECN, classic ECN is used.
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

    fn establish(&mut self, now: Time, segment: &Segment) {
        self.state = State::Established;
        self.syn_timer = Time::MAX;
        self.syn_due = false;
        // RFC 7323 §4.1: the RTT of a SYN that was sent more than once is measured by its
        // timestamp.
        let rtt = now.since(segment.ts_echo);
        let nxt = self.sender.nxt();
        self.sender.rtt.on_sample(now, rtt, nxt..nxt);
        self.sender.size_super_packet();
        self.receiver.set_path_rtt(rtt);
        // RFC 3522 §3.2, as in Linux (`tcp_try_undo_spurious_syn`): the answer is to the first SYN,
        // so no SYN was lost.
        if self.syn_retries > 0 && segment.ts_echo != self.first_syn_at {
            self.sender.on_handshake_loss(self.syn_retries);
        }
    }

    /// RFC 5961 §3.2: a reset is accepted if it has the next sequence number or, as in Linux, the
    /// number after the last SACKed byte. A reset with another number within the window is answered
    /// by an ACK; a real peer then sends a reset with the right number. All other resets are
    /// ignored.
    fn handle_reset(&mut self, segment: &Segment) {
        match self.state {
            State::Closed | State::Listen | State::Failed | State::Aborted => {}
            State::SynSent => self.end(State::Aborted),
            State::SynReceived | State::Established => {
                let seq = expand(segment.seq, self.receiver.nxt());
                if seq == self.receiver.nxt() || Some(seq) == self.receiver.highest() {
                    self.end(State::Aborted);
                } else if self.receiver.is_in_window(seq) {
                    self.receiver.acknowledge();
                }
            }
        }
    }

    /// Ends the connection without further segments, except a reset that is already due.
    fn end(&mut self, state: State) {
        self.state = state;
        self.is_sending = false;
        self.syn_due = false;
        self.syn_timer = Time::MAX;
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
        self.first_syn_at = self.first_syn_at.min(now);
        self.syn_sent_at = now;
        let (linear, _) = self.syn_limits();
        let shift = self.syn_retries.saturating_sub(linear).min(16);
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
        let (_, most) = self.syn_limits();
        if self.syn_retries > most {
            self.state = State::Failed;
        } else {
            self.syn_due = true;
        }
    }

    /// The number of timeouts before the timeout of the handshake doubles, and the number of
    /// repetitions.
    fn syn_limits(&self) -> (u32, u32) {
        if self.state == State::SynSent {
            (LINEAR_SYN_TIMEOUTS, LINEAR_SYN_TIMEOUTS + MAX_SYN_RETRIES)
        } else {
            (0, MAX_SYN_RETRIES)
        }
    }
}

/// The state of a sender at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Phase of the reaction to congestion.
    pub phase: Phase,
    /// Congestion window and slow start threshold.
    pub window: Window,
    /// Bytes believed to be in the network.
    pub in_flight: u64,
    /// Smoothed RTT.
    pub srtt: Option<Span>,
    /// Mean deviation of the RTT.
    pub rttvar: Span,
    /// Minimum RTT of the last minutes.
    pub min_rtt: Option<Span>,
    /// The last RTT sample.
    pub latest_rtt: Span,
    /// Retransmission timeout.
    pub rto: Span,
    /// Payload bytes of a full segment, as negotiated.
    pub mss: u64,
    /// Bytes that the receiver has acknowledged, cumulatively or selectively.
    pub delivered: u64,
    /// Delivery rate of the last sample.
    pub delivery_rate: Option<Rate>,
    /// The rate at which the sender paces, or would pace.
    pub pacing_rate: Option<Rate>,
    /// A variable of the congestion control, with its name.
    pub variable: (&'static str, u64),
}

/// Linux `tcp_syn_linear_timeouts`: a SYN is repeated after 1, 2, 3, 4, 5, 7, 11, 19, 35 and 67 s.
const LINEAR_SYN_TIMEOUTS: u32 = 4;
/// Linux `tcp_syn_retries`: 131 s in total, although RFC 9293 §3.8.3 requires three minutes
/// (MUST-23).
const MAX_SYN_RETRIES: u32 = 6;
