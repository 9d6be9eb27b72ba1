//! Echo requests at equal intervals, and their replies.

use super::{Host, Kind, Source, check_payload};
use crate::demand::{Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::FlowId;
use crate::observe::{Echo, Observer};
use crate::packets::{DatagramBody, Tag};
use sluice_core::{Ecn, Span};
use sluice_ipfw::headers;

/// Echo requests at equal intervals.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Time between them.
    pub interval: Span,
    /// Bytes after the ICMP header; 56 is customary.
    pub payload: u32,
    /// The number of requests, if limited.
    pub count: Option<u64>,
    /// Whether rules see UDP datagrams, which are as long as echo messages.
    pub is_udp: bool,
}

impl Kind for Ping {
    type Source = PingSource;

    fn protocol(&self) -> u8 {
        if self.is_udp {
            headers::UDP
        } else {
            headers::ICMP
        }
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        if self.interval == Span::ZERO {
            let what = "the interval between requests";
            return Err(ConfigError::Zero { flow, what });
        }
        check_payload(flow, self.payload)
    }

    fn demand(&self, outlook: &Outlook<'_>) -> Demand {
        let count = outlook.count(self.interval);
        Demand {
            packets: 2 * count.min(self.count.unwrap_or(u64::MAX)),
            ..Demand::default()
        }
    }

    fn source(&self) -> PingSource {
        PingSource {
            ping: self.clone(),
            sent: 0,
        }
    }
}

/// A running flow.
pub(crate) struct PingSource {
    ping: Ping,
    sent: u64,
}

impl Source for PingSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        self.wake(host);
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        let now = host.now();
        let request = DatagramBody::new(self.sent, now);
        self.sent += 1;
        if self.ping.count.is_none_or(|count| self.sent < count) {
            host.wake_at(now + self.ping.interval);
        }
        host.send_datagram(true, self.ping.payload, Ecn::NotEct, request);
    }

    fn on_datagram(
        &mut self,
        tag: &Tag,
        datagram: DatagramBody,
        host: &mut Host<'_, impl Observer>,
    ) {
        let now = host.now();
        if tag.to_server {
            let reply = DatagramBody {
                reached: now,
                ..datagram
            };
            host.send_datagram(false, host.payload_of(tag), Ecn::NotEct, reply);
        } else {
            host.count_completion();
            let DatagramBody {
                sequence,
                sent,
                reached,
            } = datagram;
            let echo = Echo {
                sequence,
                sent,
                forward: reached.since(sent),
                round_trip: now.since(sent),
            };
            host.observer.on_echo(host.flow as usize, &echo);
        }
    }
}
