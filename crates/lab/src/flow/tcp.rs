//! A TCP transfer.

use sluice_core::{Rate, Time};
use sluice_load::tcp::{TcpFlow, TcpReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Tcp};
use sluice_sim::{TcpSample, Traffic};

use super::{
    Ends, LiveFlow, NotSimulated, Rows, Seen, SentPackets, SimulatedFlow, SimulatedRecord,
    connection,
};

impl SimulatedFlow for Tcp {
    type Record = Transfers;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let transfer = sluice_sim::Tcp {
            config: connection::config(flow, &self.cc, self.ecn)?,
            bytes: self.bytes.map(|bytes| bytes.as_u64()),
            repeat: self.pause,
            ..sluice_sim::Tcp::default()
        };
        Ok(transfer.into())
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Transfers {
        Transfers::default()
    }
}

/// The consecutive transfers of a flow.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Bytes of the complete transfers before the current one.
    before: u64,
    /// Bytes of the last completed transfer, whose connection may still be closing.
    closing: Option<u64>,
    /// The instant at which the flow stopped in the middle of a transfer, and its payload by then,
    /// unless a later sample has been written.
    stopped: Option<(Time, u64)>,
}

impl Transfers {
    fn sample(&mut self, sample: &TcpSample, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        // A sample of the same instant has the payload, too.
        if let Some((at, bytes)) = self.stopped.take().filter(|(at, _)| *at < sample.time) {
            rows.received(at, bytes)?;
        }
        // `before` already counts the bytes that a closing connection has received.
        if self.closing == Some(sample.received) {
            return Ok(());
        }
        self.closing = None;
        let sender = &sample.sender;
        rows.sample(sample.time, |row| {
            row.received_bytes = Some(self.before + sample.received);
            row.cwnd = sender.window.cwnd.checked_div(sender.mss);
            // None before the first reduction.
            row.ssthresh = Some(sender.window.ssthresh)
                .filter(|ssthresh| *ssthresh != u64::MAX)
                .and_then(|ssthresh| ssthresh.checked_div(sender.mss));
            row.mss = Some(sender.mss);
            row.srtt = sender.srtt;
            row.min_rtt = sender.min_rtt;
            row.retransmits = Some(sample.retransmits);
            row.delivery_rate = sender.delivery_rate.map(Rate::as_bps);
        })
    }
}

impl SimulatedRecord for Transfers {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Tcp(sample) => self.sample(sample, rows),
            Seen::Received { at, bytes } => {
                self.stopped = Some((at, bytes));
                Ok(())
            }
            Seen::Complete(done) => {
                self.closing = Some(done.bytes);
                self.before += done.bytes;
                let took = done.end.since(done.start);
                rows.transfer(done.sequence, done.start, took, done.bytes)?;
                rows.received(done.end, self.before)
            }
            Seen::Datagram(_) | Seen::Echo(_) => Ok(()),
        }
    }

    /// Writes the counts at the end, which include those after the last sample: the retransmissions,
    /// and the payload of a transfer that is not complete.
    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let stop = end.min(rows.stop());
        let received = match self.stopped {
            Some((_, bytes)) => Some(bytes),
            // The run was stopped before the flow.
            None if end < rows.stop() && sent.received > self.before => Some(sent.received),
            None => None,
        };
        rows.sample(stop, |row| {
            row.retransmits = Some(sent.retransmits);
            row.received_bytes = received;
        })
    }
}

impl LiveFlow for Tcp {
    type Report = TcpReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<TcpReport>, TrafficError> {
        let mut tcp = TcpFlow::new(ends.from.1, ends.to.1, ends.start);
        tcp.tcp = connection::kernel_settings(&self.cc, self.ecn, self.dscp);
        tcp.stop = Some(ends.stop);
        tcp.info_interval = ends.interval;
        tcp.bytes = self.bytes.map(|bytes| bytes.as_u64());
        tcp.repeat = self.pause;
        tcp.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn failure(&self, report: &TcpReport) -> Option<String> {
        report.broken.as_deref().map(connection::broken)
    }

    fn write(&self, report: &TcpReport, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        connection::write_transfers(&report.transfers, rows)?;
        for arrived in &report.goodput {
            rows.received(arrived.time, arrived.bytes)?;
        }
        // The receiver samples connections. Nothing arrives at a flow that never has one.
        let stop = rows.stop().min(end);
        if report.goodput.is_empty() && rows.start() < stop {
            rows.received(stop, 0)?;
        }
        for state in &report.info {
            rows.sample(state.time, |row| {
                row.cwnd = Some(u64::from(state.cwnd));
                // Linux: TCP_INFINITE_SSTHRESH before the first reduction
                row.ssthresh =
                    Some(u64::from(state.ssthresh)).filter(|ssthresh| *ssthresh < 0x7fff_ffff);
                row.mss = Some(u64::from(state.mss));
                row.srtt = Some(state.srtt);
                row.min_rtt = Some(state.min_rtt);
                row.retransmits = Some(u64::from(state.retransmits));
                row.delivery_rate = Some(state.delivery_rate_bps);
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rows::recorded;
    use sluice_core::Span;
    use sluice_recording::metrics::measure;
    use sluice_scenario::FlowKind;

    /// Returns the recording of a flow that never connected, in a run that ended at `end`.
    fn unconnected(end: Time) -> (tempfile::TempDir, sluice_recording::Recording) {
        recorded("type = \"tcp\"\nstart = \"1s\"", |rows| {
            let FlowKind::Tcp(tcp) = &rows.flow().flow.kind else {
                panic!("it is a TCP flow");
            };
            tcp.write(&TcpReport::default(), end, rows)
        })
    }

    #[test]
    fn a_flow_that_never_connects_has_a_goodput_of_zero() {
        let (_folder, recording) = unconnected(Time::ZERO + Span::from_secs(2));
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].goodput_bps, Some(0.0));
        assert_eq!(summary.flows[0].bytes, Some(0));
        // One that has not started when the run is stopped has none.
        let (_folder, recording) = unconnected(Time::ZERO + Span::from_ms(500));
        assert_eq!(recording.flow_samples().unwrap().count(), 0);
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].goodput_bps, None);
    }
}
