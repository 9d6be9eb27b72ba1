//! Requests and responses over one connection. Each request waits for the previous response.

use super::{Host, Kind, Source, check_tcp};
use crate::demand::{Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::{FlowId, Side};
use crate::network::ConnectionId;
use crate::observe::{Completion, Observer};
use sluice_core::{Span, Time};
use sluice_ipfw::headers;
use sluice_tcp as tcp;

/// Requests and responses over one TCP connection. Each request waits for the previous response.
#[derive(Clone, Debug)]
pub struct Rr {
    /// Settings of both ends.
    pub config: tcp::Config,
    /// Bytes of a request.
    pub request: u64,
    /// Bytes of a response.
    pub response: u64,
    /// Time between a response and the next request.
    pub think: Span,
}

impl Kind for Rr {
    type Source = RrSource;

    fn protocol(&self) -> u8 {
        headers::TCP
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        if self.request == 0 || self.response == 0 {
            let what = "the bytes of a request and of a response";
            return Err(ConfigError::Zero { flow, what });
        }
        check_tcp(flow, &self.config)
    }

    fn demand(&self, outlook: &Outlook<'_>) -> Demand {
        // At most one exchange in a round trip, each of full segments and their ACKs
        let mss = u64::from(self.config.mss);
        let segments = self.request.div_ceil(mss) + self.response.div_ceil(mss);
        let each = outlook.round_trip().saturating_add(self.think);
        let times = outlook.duration.as_ns() / each.as_ns().max(10_000) + 1;
        Demand {
            packets: times.saturating_mul(2 * segments),
            connections: 1,
            ..Demand::default()
        }
    }

    fn source(&self) -> RrSource {
        RrSource {
            rr: Box::new(self.clone()),
            connection: None,
            start: Time::ZERO,
            asked: 0,
            answered: 0,
            received: 0,
        }
    }
}

/// A running flow.
pub(crate) struct RrSource {
    rr: Box<Rr>,
    connection: Option<ConnectionId>,
    /// When the current request was written.
    start: Time,
    /// Requests written, requests answered, responses that have arrived.
    asked: u64,
    answered: u64,
    received: u64,
}

impl Source for RrSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        // The first request waits for the handshake, as it does in netperf.
        let id = host.connect(&self.rr.config, Side::Server, [true, true]);
        self.connection = Some(id);
        host.pump(id, Side::Client);
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        if let Some(id) = self.connection.filter(|id| host.is_open(*id)) {
            self.ask(id, host);
        }
    }

    fn stop(&mut self, host: &mut Host<'_, impl Observer>) {
        if let Some(id) = self.connection.filter(|id| host.is_open(*id)) {
            host.connection(id).end(Side::Client).close();
            host.pump(id, Side::Client);
        }
    }

    fn on_segment(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
        let now = host.now();
        let Rr {
            request,
            response,
            think,
            ..
        } = *self.rr;
        let connection = host.connection(id);
        let server = connection.end(Side::Server);
        let mut server_wrote = false;
        while server.tcp.received() >= request * (self.answered + 1) {
            self.answered += 1;
            server.tcp.write(response);
            server_wrote = true;
        }
        if server.tcp.is_received() && !server.has_closed() {
            server.close();
            server_wrote = true;
        }
        let client = connection.end(Side::Client);
        let is_first = self.asked == 0 && client.tcp.is_established();
        let is_answered = client.tcp.received() >= response * (self.received + 1);
        if is_answered {
            self.received += 1;
            host.count_completion();
            let completion = Completion {
                sequence: self.received - 1,
                start: self.start,
                end: now,
                bytes: response,
            };
            host.report(&completion);
        }
        if is_answered && think > Span::ZERO {
            host.wake_at(now + think);
        } else if is_first || is_answered {
            self.ask(id, host);
        }
        if server_wrote {
            host.pump(id, Side::Server);
        }
    }
}

impl RrSource {
    /// The client sends a request, unless the flow has stopped.
    fn ask(&mut self, id: ConnectionId, host: &mut Host<'_, impl Observer>) {
        let now = host.now();
        let client = host.connection(id).end(Side::Client);
        if !client.has_closed() {
            self.asked += 1;
            self.start = now;
            client.tcp.write(self.rr.request);
        }
        host.pump(id, Side::Client);
    }
}
