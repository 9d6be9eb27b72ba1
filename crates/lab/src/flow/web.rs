//! Pages over short TCP connections.

use sluice_core::Time;
use sluice_load::web::{WebFlow, WebReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{Direction, FlowInstance, Web};
use sluice_sim::Traffic;

use super::{Ends, LiveFlow, NotSimulated, Rows, Seen, SimulatedFlow, SimulatedRecord, connection};

impl SimulatedFlow for Web {
    type Record = Pages;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let web = sluice_sim::Web {
            config: connection::config(flow, &self.cc, self.ecn)?,
            interval: self.interval,
            objects: self.objects as u32,
            size: self.size.into(),
            request: self.request.as_u64(),
        };
        Ok(web.into())
    }

    /// The client requests objects that travel in the direction of the flow.
    fn client(&self, direction: Direction) -> Direction {
        match direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Pages {
        Pages::default()
    }
}

/// Complete pages.
#[derive(Default)]
pub(crate) struct Pages {
    received: u64,
}

impl SimulatedRecord for Pages {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Complete(done) => {
                self.received += done.bytes;
                let took = done.end.since(done.start);
                rows.transfer(done.sequence, done.start, took, done.bytes)?;
                rows.received(done.end, self.received)
            }
            Seen::Tcp(_) | Seen::Received { .. } | Seen::Datagram(_) | Seen::Echo(_) => Ok(()),
        }
    }
}

impl LiveFlow for Web {
    type Report = WebReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<WebReport>, TrafficError> {
        let web = WebFlow {
            server: ends.from.1,
            client: ends.to.1,
            interval: self.interval,
            objects: self.objects as u32,
            size: self.size.into(),
            request: self.request.as_u64(),
            seed: ends.seed,
            tcp: connection::kernel_settings(&self.cc, self.ecn, self.dscp),
            start: ends.start,
            stop: Some(ends.stop),
        };
        web.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn failure(&self, report: &WebReport) -> Option<String> {
        (report.broken > 0).then(|| match report.broken {
            1 => "one of its connections broke".to_owned(),
            several => format!("{several} of its connections broke"),
        })
    }

    fn write(
        &self,
        report: &WebReport,
        _end: Time,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        connection::write_transfers(&report.pages, rows)?;
        let mut received = 0;
        for page in &report.pages {
            received += page.bytes;
            rows.received(page.start + page.took, received)?;
        }
        Ok(())
    }
}
