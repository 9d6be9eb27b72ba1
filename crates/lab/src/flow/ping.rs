//! Probes and their answers.

use sluice_core::{Span, Time};
use sluice_load::ping::{self, PingReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Ping, Protocol};
use sluice_sim::{Echo, Traffic};

use super::rows::Probe;
use super::{
    Ends, LiveFlow, NotSimulated, Rows, SENDER_REFUSED, Seen, SentPackets, SimulatedFlow,
    SimulatedRecord,
};

impl SimulatedFlow for Ping {
    type Record = Echoes;

    fn traffic(&self, _flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let ping = sluice_sim::Ping {
            interval: self.interval,
            payload: self.size as u32,
            count: None,
            is_udp: self.protocol == Protocol::Udp,
        };
        Ok(ping.into())
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Echoes {
        Echoes {
            interval: self.interval,
            echoes: Vec::new(),
        }
    }
}

/// The probes whose answers have arrived.
pub(crate) struct Echoes {
    interval: Span,
    echoes: Vec<Echo>,
}

impl SimulatedRecord for Echoes {
    fn observe(&mut self, seen: Seen<'_>, _rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Echo(echo) => self.echoes.push(*echo),
            Seen::Tcp(_) | Seen::Received { .. } | Seen::Datagram(_) | Seen::Complete(_) => {}
        }
        Ok(())
    }

    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        self.echoes.sort_by_key(|echo| echo.sequence);
        // A link may have duplicated the packet.
        self.echoes.dedup_by_key(|echo| echo.sequence);
        let mut echoes = self.echoes.iter().peekable();
        let mut probes = Vec::new();
        let mut due = rows.start();
        let last = end.min(rows.stop());
        while due < last {
            let seq = probes.len() as u64;
            probes.push(match echoes.next_if(|echo| echo.sequence == seq) {
                Some(echo) => Probe {
                    has_arrived: true,
                    rtt: Some(echo.round_trip),
                    forward: Some(echo.forward),
                    backward: Some(echo.round_trip.saturating_sub(echo.forward)),
                    ..Probe::unseen(seq, echo.sent)
                },
                None => Probe::unseen(seq, due),
            });
            due += self.interval;
        }
        rows.probes(&probes, |seq| sent.in_flight.contains(&seq))
    }
}

impl LiveFlow for Ping {
    type Report = PingReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<PingReport>, TrafficError> {
        let mut ping = ping::Ping::new(ends.from.1, ends.to.1, self.interval, ends.start);
        ping.protocol = match self.protocol {
            Protocol::Icmp => ping::Protocol::Icmp,
            Protocol::Udp => ping::Protocol::Udp,
        };
        ping.payload = self.size as usize;
        ping.dscp = self.dscp.value();
        ping.stop = Some(ends.stop);
        ping.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn lost(&self, report: &PingReport) -> Vec<(&'static str, u64)> {
        vec![(SENDER_REFUSED, report.refused)]
    }

    fn write(
        &self,
        report: &PingReport,
        end: Time,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let sent = report.samples.iter().filter(|probe| !probe.is_refused);
        let probes = sent.map(|probe| Probe {
            seq: probe.sequence,
            sent: probe.sent,
            has_arrived: probe.is_answered,
            rtt: probe.round_trip,
            forward: probe.forward,
            backward: probe.backward(),
        });
        rows.live_probes(&probes.collect::<Vec<_>>(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rows::recorded;
    use sluice_load::ping::PingSample;
    use sluice_recording::metrics::measure;
    use sluice_scenario::FlowKind;

    /// Of five requests, one was refused by the sender's kernel and one was lost; the answer to a third
    /// has no stamp.
    #[test]
    fn an_answer_without_a_stamp_has_arrived_and_a_refused_request_was_not_sent() {
        let sample = |sequence: u64, took: Option<u64>| PingSample {
            sequence,
            sent: Time::ZERO + Span::from_ms(100 * sequence),
            forward: None,
            round_trip: took.map(Span::from_ms),
            is_answered: took.is_some(),
            is_refused: false,
        };
        let mut report = PingReport {
            samples: vec![
                sample(0, Some(20)),
                sample(1, None),
                sample(2, None),
                sample(3, None),
                sample(4, Some(22)),
            ],
            refused: 1,
            ..PingReport::default()
        };
        report.samples[1].is_answered = true;
        report.samples[2].is_refused = true;
        let (_folder, recording) = recorded("type = \"ping\"", |rows| {
            let FlowKind::Ping(ping) = &rows.flow().flow.kind else {
                panic!("the flow is a ping");
            };
            assert_eq!(ping.lost(&report), [(SENDER_REFUSED, 1)]);
            ping.write(&report, Time::ZERO + Span::from_secs(2), rows)
        });
        let ping = &measure(&recording).unwrap().flows[0];
        // Number 3, of the four that were sent.
        assert_eq!(ping.loss, Some(1.0 / 4.0));
        assert_eq!(ping.rtt.map(|rtt| rtt.count), Some(2));
    }

    /// Of ten requests the answers to 0, 1, 3 and 4 came back, the first one after 1.5 s. The router
    /// dropped number 2 and two of the last five.
    #[test]
    fn a_slow_answer_does_not_hide_lost_requests() {
        let sample = |sequence: u64| {
            let took = match sequence {
                0 => Some(1500),
                1 | 3 | 4 => Some(20),
                _ => None,
            };
            PingSample {
                sequence,
                sent: Time::ZERO + Span::from_ms(100 * sequence),
                forward: None,
                round_trip: took.map(Span::from_ms),
                is_answered: took.is_some(),
                is_refused: false,
            }
        };
        let report = PingReport {
            samples: (0..10).map(sample).collect(),
            ..PingReport::default()
        };
        let (_folder, recording) = recorded("type = \"ping\"", |rows| {
            let FlowKind::Ping(ping) = &rows.flow().flow.kind else {
                panic!("the flow is a ping");
            };
            rows.set_drops(Some(3));
            ping.write(&report, Time::ZERO + Span::from_secs(2), rows)
        });
        // Three of the seven whose fate is known.
        let ping = &measure(&recording).unwrap().flows[0];
        assert_eq!(ping.loss, Some(3.0 / 7.0));
    }
}
