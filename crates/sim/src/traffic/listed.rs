//! Datagrams of a list, such as a capture: each with an instant, a size and an ECN field.

use super::udp::receive;
use super::{Host, Kind, Source, check_payload};
use crate::demand::{Demand, Outlook};
use crate::error::{ConfigError, check_order};
use crate::ids::{FlowId, Side};
use crate::observe::Observer;
use crate::packets::{DatagramBody, Tag};
use sluice_core::{Ecn, Span, Time};
use sluice_ipfw::headers;
use std::sync::Arc;

/// Datagrams in one direction, each at its own instant.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The datagrams, in the order of time.
    pub datagrams: Arc<[ListedDatagram]>,
    /// The end that sends them.
    pub sender: Side,
}

/// One datagram of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedDatagram {
    /// When it is sent, after the start of the flow.
    pub after: Span,
    /// Bytes of UDP payload.
    pub payload: u32,
    /// ECN field.
    pub ecn: Ecn,
}

impl Kind for Listed {
    type Source = ListedSource;

    fn protocol(&self) -> u8 {
        headers::UDP
    }

    fn check(&self, flow: FlowId) -> Result<(), ConfigError> {
        let times = self
            .datagrams
            .iter()
            .map(|listed| Time::ZERO + listed.after);
        check_order(times, || format!("datagrams of flow {flow}"))?;
        let sizes = self.datagrams.iter().map(|listed| listed.payload);
        check_payload(flow, sizes.max().unwrap_or_default())
    }

    fn demand(&self, _outlook: &Outlook<'_>) -> Demand {
        Demand {
            packets: self.datagrams.len() as u64,
            ..Demand::default()
        }
    }

    fn source(&self) -> ListedSource {
        ListedSource {
            listed: self.clone(),
            start: Time::ZERO,
            sent: 0,
        }
    }
}

/// A running flow.
pub(crate) struct ListedSource {
    listed: Listed,
    start: Time,
    sent: usize,
}

impl Source for ListedSource {
    fn start(&mut self, host: &mut Host<'_, impl Observer>) {
        self.start = host.now();
        self.await_next(host);
    }

    fn wake(&mut self, host: &mut Host<'_, impl Observer>) {
        let Some(&listed) = self.listed.datagrams.get(self.sent) else {
            return;
        };
        let datagram = DatagramBody::new(self.sent as u64, host.now());
        self.sent += 1;
        self.await_next(host);
        let to_server = self.listed.sender == Side::Client;
        host.send_datagram(to_server, listed.payload, listed.ecn, datagram);
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

impl ListedSource {
    fn await_next(&self, host: &mut Host<'_, impl Observer>) {
        if let Some(listed) = self.listed.datagrams.get(self.sent) {
            host.wake_at(self.start.saturating_add(listed.after));
        }
    }
}
