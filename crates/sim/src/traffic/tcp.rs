//! A TCP transfer, endless or of a number of bytes, which may be repeated.

use super::{Host, Kind, Source, check_tcp};
use crate::demand::{Data, Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::{FlowId, Side};
use crate::network::{Connection, ConnectionId};
use crate::observe::{Completion, Observer};
use sluice_core::{Span, Time};
use sluice_ipfw::headers;
use sluice_tcp as tcp;

/// One TCP connection at a time.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// Settings of both ends.
    pub config: tcp::Config,
    /// The end that sends the data.
    pub sender: Side,
    /// The bytes to send; if `None`, as many as possible between start and stop.
    pub bytes: Option<u64>,
    /// The bytes of a write and the interval between writes, for an application that does not write
    /// everything at once.
    pub writes: Option<(u64, Span)>,
    /// The pause after which a transfer that is complete is repeated over a new connection.
    pub repeat: Option<Span>,
}

impl Tcp {
    /// An endless transfer with this congestion control. ECN is off unless the congestion control
    /// needs it.
    pub fn bulk(congestion_control: &'static tcp::cc::Descriptor) -> Self {
        let ecn = match congestion_control.ecn {
            tcp::EcnMode::Classic => tcp::EcnMode::Off,
            needed => needed,
        };
        Tcp {
            config: tcp::Config {
                congestion_control,
                ecn,
                initial_window: congestion_control.initial_window,
                ..tcp::Config::default()
            },
            ..Tcp::default()
        }
    }
}

impl Kind for Tcp {
    type Source = TcpSource;

    fn protocol(&self) -> u8 {
        headers::TCP
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        let zero = |what| Err(ConfigError::Zero { flow, what });
        if self.repeat.is_some() && self.bytes.is_none_or(|bytes| bytes == 0) {
            return zero("the bytes of a transfer that is repeated");
        }
        if let Some((bytes, interval)) = self.writes
            && (bytes == 0 || interval == Span::ZERO)
        {
            return zero("a write and the interval between writes");
        }
        check_tcp(flow, &self.config)
    }

    fn demand(&self, outlook: &Outlook<'_>) -> Demand {
        // The receive buffer limits the bytes per round trip.
        let round_trip = outlook.round_trip().as_ns().max(1);
        let by_window = u128::from(self.config.receive_buffer)
            * u128::from(outlook.duration.as_ns())
            / u128::from(round_trip);
        let by_window = u64::try_from(by_window).unwrap_or(u64::MAX);
        let mss = u64::from(self.config.mss);
        // A transfer that is repeated takes at least a round trip.
        let times = self.repeat.map_or(1, |pause| {
            outlook.count(pause.saturating_add(outlook.round_trip()))
        });
        let by_program = match (self.bytes, self.writes) {
            (_, Some((bytes, interval))) => bytes.saturating_mul(outlook.count(interval)),
            (Some(bytes), None) => bytes.saturating_mul(times),
            (None, None) => u64::MAX,
        };
        let segments = by_program.min(by_window) / mss + 1;
        let overhead = OVERHEAD.saturating_mul(times);
        match outlook.bottleneck(self.sender) {
            Some((link, capacity)) => Demand {
                packets: overhead,
                connections: 1,
                data: Some(Data {
                    link,
                    segments: segments.min(capacity / (mss + HEADERS) + 1),
                    segment_bytes: mss + HEADERS,
                    ack_every: self.config.ack_every,
                }),
                ..Demand::default()
            },
            None => Demand {
                packets: segments.saturating_mul(2).saturating_add(overhead),
                connections: 1,
                ..Demand::default()
            },
        }
    }

    fn source(&self) -> TcpSource {
        TcpSource {
            tcp: Box::new(self.clone()),
            connection: None,
            start: Time::ZERO,
            written: 0,
            is_complete: true,
        }
    }
}

/// Bytes of the IPv4 and TCP headers of a segment, with timestamps.
const HEADERS: u64 = 52;
/// The most packets of a handshake and of the end of a connection, some of which may be lost.
const OVERHEAD: u64 = 20;

/// The current transfer of a flow.
pub(crate) struct TcpSource {
    tcp: Box<Tcp>,
    connection: Option<ConnectionId>,
    start: Time,
    /// Bytes that an application with a schedule of writes has written.
    written: u64,
    is_complete: bool,
}

impl Source for TcpSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        self.start = host.now();
        self.written = 0;
        self.is_complete = false;
        let sender = self.tcp.sender;
        let id = host.connect(&self.tcp.config, sender, [false, false]);
        self.connection = Some(id);
        let end = host.connection(id).end(sender);
        match (self.tcp.bytes, self.tcp.writes) {
            (_, Some(_)) => {}
            (Some(bytes), None) => {
                end.tcp.write(bytes);
                end.close();
            }
            (None, None) => end.tcp.write_forever(),
        }
        host.pump(id, Side::Client);
        if self.tcp.writes.is_some() {
            self.write_more(host);
        }
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        if self.is_complete {
            self.start(host);
        } else {
            self.write_more(host);
        }
    }

    /// Aborts the transfer, as the live backend does. Then only packets in flight remain in the
    /// queues, and resets that answer ACKs.
    fn stop(&mut self, host: &mut Host<'_, impl Observer>) {
        if let Some(id) = self.connection.filter(|id| host.is_open(*id)) {
            if !self.is_complete {
                host.report_received();
            }
            host.connection(id).end(self.tcp.sender).abort();
            host.pump(id, self.tcp.sender);
        }
    }

    fn on_segment(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
        let now = host.now();
        let receiver = self.tcp.sender.other();
        let end = host.connection(id).end(receiver);
        if self.connection != Some(id) || self.is_complete || !end.tcp.is_received() {
            return;
        }
        self.is_complete = true;
        end.close();
        let bytes = end.tcp.received();
        let completion = Completion {
            sequence: host.count_completion(),
            start: self.start,
            end: now,
            bytes,
        };
        host.report(&completion);
        if let Some(pause) = self.tcp.repeat {
            host.wake_at(now + pause);
        }
        host.pump(id, receiver);
    }

    fn is_reported(&self, connection: &Connection) -> bool {
        // If the transfer is repeated, a connection that is closing belongs to an earlier transfer.
        self.tcp.repeat.is_none() || !connection.has_closed(self.tcp.sender.other())
    }
}

impl TcpSource {
    /// Makes the next write of an application with a schedule of writes.
    fn write_more(&mut self, host: &mut Host<'_, impl Observer>) {
        let Some((bytes, interval)) = self.tcp.writes else {
            return;
        };
        let Some(id) = self.connection.filter(|id| host.is_open(*id)) else {
            return;
        };
        let left = self.tcp.bytes.map_or(u64::MAX, |all| all - self.written);
        let bytes = bytes.min(left);
        self.written += bytes;
        let end = host.connection(id).end(self.tcp.sender);
        end.tcp.write(bytes);
        if bytes == left {
            end.close();
        } else {
            host.wake_at(host.now() + interval);
        }
        host.pump(id, self.tcp.sender);
    }
}
