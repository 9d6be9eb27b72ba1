//! Datagrams in one direction, without congestion control.

use super::{Host, Kind, Source, check_payload};
use crate::demand::{Demand, Outlook};
use crate::error::ConfigError;
use crate::ids::{FlowId, Side};
use crate::observe::{self, Observer};
use crate::packets::{DatagramBody, Tag};
use sluice_core::traffic::{Departures, Spacing};
use sluice_core::{Ecn, Rate, Span};
use sluice_ipfw::headers;

/// Datagrams in one direction.
#[derive(Clone, Debug)]
pub struct Udp {
    /// Rate of the IP packets (payload plus 28 bytes) while sending.
    pub rate: Rate,
    /// Bytes of UDP payload in each.
    pub payload: u32,
    /// The spacing of the packets.
    pub spacing: Spacing,
    /// The end that sends them.
    pub sender: Side,
    /// ECN field of the packets.
    pub ecn: Ecn,
}

impl Udp {
    /// A constant rate from the client to the server.
    pub fn constant(rate: Rate, payload: u32) -> Self {
        Udp {
            rate,
            payload,
            spacing: Spacing::Constant,
            sender: Side::Client,
            ecn: Ecn::NotEct,
        }
    }
}

impl Kind for Udp {
    type Source = UdpSource;

    fn protocol(&self) -> u8 {
        headers::UDP
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        let zero = |what| Err(ConfigError::Zero { flow, what });
        if self.rate.is_unlimited() {
            return zero("the interval between datagrams");
        }
        if let Spacing::OnOff { on, .. } | Spacing::RandomOnOff { on, .. } = self.spacing
            && on == Span::ZERO
        {
            return zero("the length of a burst");
        }
        check_payload(flow, self.payload)
    }

    fn demand(&self, outlook: &Outlook<'_>) -> Demand {
        let bytes = self.rate.bytes_in(outlook.duration);
        let sent = bytes / u64::from(self.payload + super::DATAGRAM_HEADERS);
        let duty = self.spacing.duty_cycle();
        let own_bytes = (bytes as f64 * duty) as u64;
        let slowest = outlook.bottleneck(self.sender);
        Demand {
            packets: (sent as f64 * duty) as u64 + 1,
            fixed: slowest.map(|(link, _)| (link, own_bytes)),
            ..Demand::default()
        }
    }

    fn source(&self) -> UdpSource {
        UdpSource {
            udp: self.clone(),
            departures: None,
            sent: 0,
        }
    }
}

/// A running flow.
pub(crate) struct UdpSource {
    udp: Udp,
    /// `None` before the start.
    departures: Option<Departures>,
    sent: u64,
}

impl Source for UdpSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        let bytes = u64::from(self.udp.payload + super::DATAGRAM_HEADERS);
        let (spacing, rate, now) = (self.udp.spacing, self.udp.rate, host.now());
        self.departures = Some(Departures::new(spacing, rate, bytes, now, host.rng()));
        self.wake(host);
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        let now = host.now();
        let Some(departures) = &mut self.departures else {
            return;
        };
        let next = departures.after(now, host.rng());
        host.wake_at(next);
        let datagram = DatagramBody::new(self.sent, now);
        self.sent += 1;
        let to_server = self.udp.sender == Side::Client;
        host.send_datagram(to_server, self.udp.payload, self.udp.ecn, datagram);
    }

    fn on_datagram(
        &mut self,
        tag: &Tag,
        datagram: DatagramBody,
        host: &mut Host<'_, impl Observer>,
    ) {
        receive(tag, datagram, host);
    }
}

/// Counts and reports a datagram that has arrived.
pub(super) fn receive(tag: &Tag, datagram: DatagramBody, host: &mut Host<'_, impl Observer>) {
    host.count_received(host.payload_of(tag));
    let arrival = observe::Datagram {
        sequence: datagram.sequence,
        sent: datagram.sent,
        received: host.now(),
        is_marked: tag.ecn == Ecn::Ce,
    };
    host.observer.on_datagram(host.flow as usize, &arrival);
}
