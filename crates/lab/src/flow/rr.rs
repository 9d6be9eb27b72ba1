//! Requests and responses over one connection.

use sluice_core::Time;
use sluice_load::rr::{RrFlow, RrReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Rr};
use sluice_sim::Traffic;

use super::{Ends, LiveFlow, NotSimulated, Rows, Seen, SimulatedFlow, SimulatedRecord, connection};

impl SimulatedFlow for Rr {
    type Record = Exchanges;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let exchange = sluice_sim::Rr {
            config: sluice_tcp::Config {
                // TCP_NODELAY, which programs of this kind set.
                nagle: false,
                ..connection::config(flow, &self.cc, self.ecn)?
            },
            request: self.request.as_u64(),
            response: self.response.as_u64(),
            think: self.think,
        };
        Ok(exchange.into())
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Exchanges {
        Exchanges
    }
}

/// Writes each exchange when it is complete.
pub(crate) struct Exchanges;

impl SimulatedRecord for Exchanges {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Complete(done) => {
                rows.exchange(done.sequence, done.start, done.end.since(done.start))
            }
            Seen::Tcp(_) | Seen::Received { .. } | Seen::Datagram(_) | Seen::Echo(_) => Ok(()),
        }
    }
}

impl LiveFlow for Rr {
    type Report = RrReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<RrReport>, TrafficError> {
        let rr = RrFlow {
            source: ends.from.1,
            destination: ends.to.1,
            request: self.request.as_u64(),
            response: self.response.as_u64(),
            think: self.think,
            tcp: connection::kernel_settings(&self.cc, self.ecn, self.dscp),
            start: ends.start,
            stop: Some(ends.stop),
        };
        rr.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn failure(&self, report: &RrReport) -> Option<String> {
        report.broken.as_deref().map(connection::broken)
    }

    fn write(&self, report: &RrReport, _end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        let mut exchanges = (0..).zip(&report.exchanges);
        exchanges.try_for_each(|(seq, done)| rows.exchange(seq, done.start, done.took))
    }
}
