//! A program on one of the hosts, with real packets only.

use std::net::IpAddr;

use sluice_core::{Stop, Time};
use sluice_load::program::{self, Program, ProgramEnd, ProgramReport, Service};
use sluice_load::{Running, TrafficError};
use sluice_net::namespace::Namespace;
use sluice_recording::RecordError;
use sluice_scenario::{Command, Direction, FlowInstance, HostWord};
use sluice_sim::Traffic;

use super::{Ends, LiveFlow, NotSimulated, Rows, Seen, SimulatedFlow, SimulatedRecord};

impl SimulatedFlow for Command {
    type Record = Never;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        Err(NotSimulated::Program {
            place: flow.flow.kind.place().unwrap_or("the scenario").to_owned(),
            flow: flow.name.clone(),
        })
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Never {
        Never
    }
}

/// A program is not simulated, so nothing is observed.
pub(crate) struct Never;

impl SimulatedRecord for Never {
    fn observe(&mut self, _seen: Seen<'_>, _rows: &mut Rows<'_>) -> Result<(), RecordError> {
        Ok(())
    }
}

impl LiveFlow for Command {
    type Report = ProgramReport;

    fn check(&self) -> Result<(), TrafficError> {
        program::check(&self.words(""))
    }

    fn prepare(
        &self,
        from: &Namespace,
        to: IpAddr,
        all: &Stop,
    ) -> Result<Option<Service>, TrafficError> {
        let Some(port) = self.ready else {
            return Ok(None);
        };
        let words = self.words(&to.to_string());
        Service::start(&words, port as u16, from, all).map(Some)
    }

    fn host(&self, _direction: Direction) -> Direction {
        match self.host {
            HostWord::H2 => Direction::Up,
            HostWord::H3 => Direction::Down,
        }
    }

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<ProgramReport>, TrafficError> {
        let (clock, all) = (ends.clock, ends.all);
        if let Some(service) = ends.service.take() {
            return service.attend(ends.from, ends.to.1, ends.stop, clock, all);
        }
        let program = Program {
            words: self.words(&ends.to.1.to_string()),
            start: ends.start,
            stop: ends.stop,
        };
        program.start(ends.from, ends.to.1, clock, all)
    }

    fn failure(&self, report: &ProgramReport) -> Option<String> {
        if let Some(failure) = report.failure() {
            return Some(failure);
        }
        if report.end == ProgramEnd::NotStarted {
            return None;
        }
        let missing = self.read_figures(&text(report)).err()?;
        let cut = match (report.output.omitted, report.end) {
            (omitted @ 1.., _) => format!("; {omitted} bytes of the output were left out"),
            (0, ProgramEnd::Stopped) => "; it still ran when its time was over".to_owned(),
            _ => String::new(),
        };
        Some(format!("`{}` reports {missing}{cut}", report.command))
    }

    fn write(
        &self,
        report: &ProgramReport,
        _end: Time,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let figures = self.read_figures(&text(report)).unwrap_or_default();
        rows.program(report, figures)
    }
}

fn text(report: &ProgramReport) -> String {
    String::from_utf8_lossy(&report.output.bytes).into_owned()
}
