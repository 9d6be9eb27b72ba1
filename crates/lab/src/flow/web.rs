//! Pages over short TCP connections.

use sluice_core::Time;
use sluice_load::web::{WebFlow, WebReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_recording::metrics::longest_gap;
use sluice_scenario::{Direction, FlowInstance, Web};
use sluice_sim::Traffic;

use super::{
    Ends, LiveFlow, NotSimulated, Rows, Seen, SentPackets, SimulatedFlow, SimulatedRecord,
    connection,
};

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

/// Complete pages, and the payload of all.
#[derive(Default)]
pub(crate) struct Pages {
    /// The instant and the payload of the last row.
    last: Time,
    received: u64,
    /// The last instant at which no more had arrived.
    quiet: Time,
}

impl Pages {
    fn receive(&mut self, at: Time, bytes: u64, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        if bytes <= self.received {
            self.quiet = at;
            return Ok(());
        }
        // What arrives after a pause arrives after the last report of the pause.
        let has_paused = self.last.max(rows.start()) + longest_gap(rows.interval()) < at;
        if has_paused && self.last < self.quiet {
            rows.received(self.quiet, self.received)?;
        }
        self.last = at;
        self.received = bytes;
        rows.received(at, bytes)
    }
}

/// Writes the last row of a flow in a run that has ended at `end`, unless the row at `last` is not
/// earlier: `bytes` of payload had arrived by the end of the flow or of the run, even if that is none.
fn write_last(end: Time, last: Time, bytes: u64, rows: &mut Rows<'_>) -> Result<(), RecordError> {
    let stop = rows.stop().min(end);
    match last.max(rows.start()) < stop {
        true => rows.received(stop, bytes),
        false => Ok(()),
    }
}

impl SimulatedRecord for Pages {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Complete(done) => {
                let took = done.end.since(done.start);
                rows.transfer(done.sequence, done.start, took, done.bytes)
            }
            Seen::Received { at, bytes } => self.receive(at, bytes, rows),
            Seen::Tcp(_) | Seen::Datagram(_) | Seen::Echo(_) => Ok(()),
        }
    }

    /// Writes the open pages, what has arrived since the last row, if the run was stopped before the
    /// flow, and the last row.
    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let stop = rows.stop().min(end);
        for page in sent.open_pages {
            rows.open_page(page.sequence, page.start, stop, page.bytes)?;
        }
        if end < rows.stop() {
            self.receive(end, sent.received, rows)?;
        }
        write_last(end, self.last, self.received, rows)
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
            goodput_interval: ends.interval,
        };
        web.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn failure(&self, report: &WebReport) -> Option<String> {
        (report.broken > 0).then(|| match report.broken {
            1 => "one of its connections broke".to_owned(),
            several => format!("{several} of its connections broke"),
        })
    }

    fn write(&self, report: &WebReport, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        connection::write_transfers(&report.pages, rows)?;
        let stop = rows.stop().min(end);
        for (seq, page) in (report.pages.len() as u64..).zip(&report.open) {
            rows.open_page(
                seq,
                page.start,
                stop.min(page.start + page.took),
                page.bytes,
            )?;
        }
        for arrived in &report.goodput {
            rows.received(arrived.time, arrived.bytes)?;
        }
        let last = report.goodput.last();
        let (last, bytes) = last.map_or((Time::ZERO, 0), |last| (last.time, last.bytes));
        write_last(end, last, bytes, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rows::recorded;
    use sluice_core::Span;
    use sluice_load::Transfer;
    use sluice_load::tcp::Goodput;
    use sluice_recording::metrics::measure;
    use sluice_scenario::FlowKind;

    /// Returns the recording of a flow that stopped with the run after 2 s.
    fn of_report(report: &WebReport) -> (tempfile::TempDir, sluice_recording::Recording) {
        let end = Time::ZERO + Span::from_secs(2);
        recorded("type = \"web\"\ninterval = \"1s\"", |rows| {
            let FlowKind::Web(web) = &rows.flow().flow.kind else {
                panic!("it is a flow of pages");
            };
            web.write(report, end, rows)
        })
    }

    #[test]
    fn pages_that_are_open_at_the_end_have_their_age() {
        let page = |start, took| Transfer {
            start: Time::ZERO + Span::from_ms(start),
            took: Span::from_ms(took),
            bytes: 4000,
        };
        // The client ends a little after the run, which a request may follow.
        let report = WebReport {
            pages: vec![page(100, 300)],
            asked: 3,
            open: vec![page(500, 1505), page(2002, 3)],
            ..WebReport::default()
        };
        let (_folder, recording) = of_report(&report);
        let rows = recording.transfers().unwrap().map(Result::unwrap);
        let rows: Vec<_> = rows.map(|row| (row.seq, row.took, row.is_open())).collect();
        let ms = Span::from_ms;
        assert_eq!(rows, [(0, ms(300), false), (1, ms(1500), true)]);
        let fct = measure(&recording).unwrap().flows[0].fct.unwrap();
        assert_eq!((fct.count, fct.max_ns), (1, 1_500_000_000));
    }

    #[test]
    fn a_pause_between_pages_ends_with_a_row() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let (_folder, recording) = recorded("type = \"web\"\ninterval = \"1s\"", |rows| {
            let mut pages = Pages::default();
            for (ms, bytes) in [
                (80, 1000),
                (100, 1000),
                (500, 1000),
                (550, 5000),
                (600, 5000),
                (650, 9000),
            ] {
                pages.receive(at(ms), bytes, rows)?;
            }
            Ok(())
        });
        let rows = recording.flow_samples().unwrap().map(Result::unwrap);
        let rows: Vec<_> = rows.map(|row| (row.time, row.received_bytes)).collect();
        // The interval is 50 ms, so the 100 ms before 650 ms are no pause.
        let expected = [(80, 1000), (500, 1000), (550, 5000), (650, 9000)];
        assert_eq!(rows, expected.map(|(ms, bytes)| (at(ms), Some(bytes))));
    }

    #[test]
    fn pages_of_which_nothing_arrives_have_a_goodput_of_zero() {
        let report = WebReport {
            asked: 2,
            ..WebReport::default()
        };
        let (_folder, recording) = of_report(&report);
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].goodput_bps, Some(0.0));
        assert_eq!(summary.flows[0].bytes, Some(0));
    }

    #[test]
    fn a_page_that_is_not_complete_has_goodput() {
        // 5 kB every 50 ms.
        let arrived = |number: u64| Goodput {
            time: Time::ZERO + Span::from_ms(50 * number),
            bytes: 5000 * number,
        };
        let report = WebReport {
            asked: 1,
            goodput: (1..=40).map(arrived).collect(),
            ..WebReport::default()
        };
        let (_folder, recording) = of_report(&report);
        // 200 kB in 2 s.
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].goodput_bps, Some(800_000.0));
        assert_eq!(summary.flows[0].bytes, Some(200_000));
    }
}
