//! The rows of one flow in a recording, the same from both backends.

use std::collections::BTreeSet;

use sluice_core::{Span, Time};
use sluice_load::program::ProgramReport;
use sluice_recording::{FlowSample, PingSample, ProgramRecord, RecordError, RunWriter, Transfer};
use sluice_scenario::metric::{Reported, Unit};
use sluice_scenario::{Direction, FlowInstance};

/// Writes the rows of one flow.
pub(crate) struct Rows<'a> {
    writer: &'a mut RunWriter,
    flow: &'a FlowInstance<'a>,
    interval: Span,
    /// The packets of the flow that the router dropped; `None` if that is not known.
    drops: Option<u64>,
}

/// A probe, or another packet whose delay is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// Number, from 0.
    pub seq: u64,
    /// The instant at which it was sent, or was due if the former is unknown.
    pub sent: Time,
    /// Whether the answer has arrived; for a packet without an answer, whether the packet has.
    pub has_arrived: bool,
    /// The time until the answer arrived.
    pub rtt: Option<Span>,
    /// The delay in the direction of the flow.
    pub forward: Option<Span>,
    /// The delay of the answer.
    pub backward: Option<Span>,
}

impl Probe {
    /// Creates a probe of which nothing has arrived.
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
    /// Creates the rows of `flow`, whose counts are sampled every `interval`.
    pub(crate) fn new(
        writer: &'a mut RunWriter,
        flow: &'a FlowInstance<'a>,
        interval: Span,
    ) -> Self {
        Rows {
            writer,
            flow,
            interval,
            drops: None,
        }
    }

    /// Sets the number of packets of the flow that the router of a live run dropped.
    pub(super) fn set_drops(&mut self, drops: Option<u64>) {
        self.drops = drops;
    }

    /// Returns the number of packets of the flow that the router of a live run dropped, if it is known.
    pub(super) fn drops(&self) -> Option<u64> {
        self.drops
    }

    /// Returns the start of the flow.
    pub(super) fn start(&self) -> Time {
        Time::ZERO + self.flow.start
    }

    /// Returns the end of the flow.
    pub(super) fn stop(&self) -> Time {
        Time::ZERO + self.flow.stop
    }

    /// Returns the flow.
    pub(super) fn flow(&self) -> &'a FlowInstance<'a> {
        self.flow
    }

    /// Returns the time between two samples.
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

    /// Records that `bytes` of payload have arrived by `time`.
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
        self.writer.transfer(&Transfer {
            start,
            flow: self.flow.id,
            seq,
            took,
            bytes,
            open: Some(false),
        })
    }

    /// Writes a page that was requested at `start` and is open at `end`.
    pub(super) fn open_page(
        &mut self,
        seq: u64,
        start: Time,
        end: Time,
        bytes: u64,
    ) -> Result<(), RecordError> {
        if end <= start {
            return Ok(());
        }
        self.writer.transfer(&Transfer {
            start,
            flow: self.flow.id,
            seq,
            took: end.since(start),
            bytes,
            open: Some(true),
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

    /// Writes a program that has ended, with the figures that it reports.
    pub(super) fn program(
        &mut self,
        report: &ProgramReport,
        figures: Vec<(String, f64)>,
    ) -> Result<(), RecordError> {
        let unit = |name: &str| {
            let own = self.flow.flow.kind.figures().iter();
            let mut own = own.filter(|figure| figure.name == name);
            own.next().map_or(Unit::Number, |figure| figure.unit())
        };
        let figures = figures.into_iter().map(|(name, value)| {
            let unit = unit(&name);
            (name, Reported { unit, value })
        });
        self.writer.program(&ProgramRecord {
            flow: self.flow.id,
            name: &self.flow.name,
            command: &report.command,
            started: report.started,
            ended: report.ended,
            end: report.end.to_string(),
            output: &report.output.bytes,
            errors: &report.errors.bytes,
            figures: figures.collect(),
        })
    }

    /// Writes one row per probe. A probe that has not arrived is lost, except that a probe which
    /// is still on its way has no row; `is_on_its_way` returns whether the probe of a number is.
    pub(super) fn probes(
        &mut self,
        probes: &[Probe],
        is_on_its_way: impl Fn(u64) -> bool,
    ) -> Result<(), RecordError> {
        let known = |probe: &&Probe| probe.has_arrived || !is_on_its_way(probe.seq);
        let mut probes = probes.iter().filter(known);
        probes.try_for_each(|probe| self.probe(probe))
    }

    /// Writes one row per probe of a live flow; the run has ended at `end`.
    ///
    /// A probe that has not arrived is lost if a later one has. Whether the probes after the last
    /// one that arrived were lost, the router knows; which of them it dropped, its counts do not
    /// show. If it is not known either, a probe is lost if it would have arrived by `end` with the
    /// longest delay of all.
    pub(super) fn live_probes(&mut self, probes: &[Probe], end: Time) -> Result<(), RecordError> {
        let last = probes.iter().rposition(|probe| probe.has_arrived);
        let (settled, rest) = probes.split_at(last.map_or(0, |last| last + 1));
        let Some(drops) = self.drops else {
            let took = |probe: &Probe| probe.rtt.or(probe.forward);
            let longest = probes.iter().filter_map(took).max();
            let over = rest.partition_point(|probe| is_over(probe.sent, longest, end));
            let first = rest.get(over).map(|probe| probe.seq);
            return self.probes(probes, |seq| first.is_some_and(|first| seq >= first));
        };
        let holes = settled.iter().filter(|probe| !probe.has_arrived).count() as u64;
        let waiting = waiting(rest.len() as u64, holes, drops);
        let on_their_way = rest.iter().take(waiting as usize).map(|probe| probe.seq);
        let on_their_way: BTreeSet<u64> = on_their_way.collect();
        self.probes(probes, |seq| on_their_way.contains(&seq))
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

/// Returns how many of the `rest` packets that a flow sent after the last one that arrived are
/// still on their way, if `holes` of those before are missing and the router dropped `drops`.
pub(super) fn waiting(rest: u64, holes: u64, drops: u64) -> u64 {
    rest.saturating_sub(drops.saturating_sub(holes))
}

/// Returns whether a packet sent at `sent` would have arrived by `end` if its delay were `longest`,
/// the longest delay observed.
fn is_over(sent: Time, longest: Option<Span>, end: Time) -> bool {
    sent + longest.unwrap_or(Span::ZERO) < end
}

/// Records a live run of 2 s with this flow, whose rows `write` writes. Returns the recording and its
/// folder.
#[cfg(test)]
pub(super) fn recorded(
    flow: &str,
    write: impl FnOnce(&mut Rows<'_>) -> Result<(), RecordError>,
) -> (tempfile::TempDir, sluice_recording::Recording) {
    use sluice_recording::{End, Environment};
    use sluice_scenario::{Backend, Scenario};

    let text = format!(
        "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\n[measure]\nwarmup = \"0s\"\n[[flow]]\n{flow}\n"
    );
    let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::here(Backend::Live, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(folder.path(), &variant, &environment).unwrap();
    let instance = variant.scenario.instances().next().unwrap();
    write(&mut Rows::new(&mut writer, &instance, Span::from_ms(50))).unwrap();
    let end = End::complete(Time::ZERO + Span::from_secs(2));
    (folder, writer.finish(end).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_may_be_in_flight_at_the_end_are_not_lost() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        // A packet sent at 70 ms could arrive until 100 ms.
        assert!(!is_over(at(70), Some(Span::from_ms(30)), at(100)));
        assert!(is_over(at(69), Some(Span::from_ms(30)), at(100)));
        // No packet has arrived, so the delay is unknown.
        assert!(is_over(at(99), None, at(100)));
    }
}
