//! The rows of one flow in a recording, the same from both backends.

use sluice_core::{Span, Time};
use sluice_recording::{FlowSample, PingSample, RecordError, RunWriter, Transfer};
use sluice_scenario::{Direction, FlowInstance};

/// Writes the rows of one flow.
pub(crate) struct Rows<'a> {
    writer: &'a mut RunWriter,
    flow: &'a FlowInstance<'a>,
    interval: Span,
}

/// A probe, or a packet whose delay is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// Its number, from 0.
    pub seq: u64,
    /// When it was sent; when it was due, if that is not known.
    pub sent: Time,
    /// Whether it has arrived, or its answer, if it has one.
    pub has_arrived: bool,
    /// Time until its answer was back.
    pub rtt: Option<Span>,
    /// Its delay in the direction of the flow.
    pub forward: Option<Span>,
    /// The delay of its answer.
    pub backward: Option<Span>,
}

impl Probe {
    /// A probe of which nothing has arrived.
    pub(super) fn unseen(seq: u64, sent: Time) -> Probe {
        Probe {
            seq,
            sent,
            has_arrived: false,
            rtt: None,
            forward: None,
            backward: None,
        }
    }
}

impl<'a> Rows<'a> {
    /// The rows of `flow`, whose counts are sampled every `interval`.
    pub(crate) fn new(
        writer: &'a mut RunWriter,
        flow: &'a FlowInstance<'a>,
        interval: Span,
    ) -> Self {
        Rows {
            writer,
            flow,
            interval,
        }
    }

    /// When the flow starts.
    pub(super) fn start(&self) -> Time {
        Time::ZERO + self.flow.start
    }

    /// When the flow stops.
    pub(super) fn stop(&self) -> Time {
        Time::ZERO + self.flow.stop
    }

    /// The flow.
    pub(super) fn flow(&self) -> &'a FlowInstance<'a> {
        self.flow
    }

    /// Time between two samples.
    pub(super) fn interval(&self) -> Span {
        self.interval
    }

    /// Writes a sample of the flow at `time`, whose values `fill` sets.
    pub(super) fn sample(
        &mut self,
        time: Time,
        fill: impl FnOnce(&mut FlowSample),
    ) -> Result<(), RecordError> {
        let mut sample = FlowSample::empty(time, self.flow.id);
        fill(&mut sample);
        self.writer.flow_sample(&sample)
    }

    /// Writes that `bytes` of payload have arrived until `time`.
    pub(super) fn received(&mut self, time: Time, bytes: u64) -> Result<(), RecordError> {
        self.sample(time, |sample| sample.received_bytes = Some(bytes))
    }

    /// Writes a complete transfer or page.
    pub(super) fn transfer(
        &mut self,
        seq: u64,
        start: Time,
        took: Span,
        bytes: u64,
    ) -> Result<(), RecordError> {
        let flow = self.flow.id;
        self.writer.transfer(&Transfer {
            start,
            flow,
            seq,
            took,
            bytes,
        })
    }

    /// Writes a complete exchange.
    pub(super) fn exchange(
        &mut self,
        seq: u64,
        start: Time,
        took: Span,
    ) -> Result<(), RecordError> {
        self.probe(&Probe {
            has_arrived: true,
            rtt: Some(took),
            ..Probe::unseen(seq, start)
        })
    }

    /// Writes one row per probe. A probe that has not arrived is lost, unless it may still be
    /// under way at `end`, when the run has ended: nothing is known of such a probe.
    pub(super) fn probes(&mut self, probes: &[Probe], end: Time) -> Result<(), RecordError> {
        let took = |probe: &Probe| probe.rtt.or(probe.forward);
        let longest = probes.iter().filter_map(took).max();
        let known = |probe: &&Probe| probe.has_arrived || is_over(probe.sent, longest, end);
        let mut probes = probes.iter().filter(known);
        probes.try_for_each(|probe| self.probe(probe))
    }

    fn probe(&mut self, probe: &Probe) -> Result<(), RecordError> {
        let (up, down) = match self.flow.flow.direction {
            Direction::Up => (probe.forward, probe.backward),
            Direction::Down => (probe.backward, probe.forward),
        };
        self.writer.ping(&PingSample {
            time: probe.sent,
            flow: self.flow.id,
            seq: probe.seq,
            rtt: probe.rtt,
            up,
            down,
            is_lost: !probe.has_arrived,
        })
    }
}

/// Whether a packet sent at `sent` would have arrived by `end`, if the slowest took `longest`.
fn is_over(sent: Time, longest: Option<Span>, end: Time) -> bool {
    sent + longest.unwrap_or(Span::ZERO) < end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_still_be_under_way_at_the_end_is_not_lost() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        // Sent at 70 ms, it could arrive until 100 ms.
        assert!(!is_over(at(70), Some(Span::from_ms(30)), at(100)));
        assert!(is_over(at(69), Some(Span::from_ms(30)), at(100)));
        // Nothing has arrived, so nothing says how long it takes.
        assert!(is_over(at(99), None, at(100)));
    }
}
