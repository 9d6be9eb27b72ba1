//! The types of flow, on both backends.
//!
//! A type is one file here, beside its half in the scenario language (`crates/scenario/src/flow`),
//! whose `flow_types!` names both. The file implements `SimulatedFlow` (what the simulator sends,
//! and the rows that its observations become) and `LiveFlow` (the end hosts that are started, and
//! the rows that their report becomes). A type of the language that has no file here does not
//! compile, and nothing else in the laboratory distinguishes types.

mod connection;
mod datagrams;
mod rows;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use sluice_core::{Span, Stop, Time};
use sluice_load::program::Service;
use sluice_load::{Identity, Running, TrafficError};
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_recording::{RecordError, RunWriter};
use sluice_scenario::{Direction, FlowInstance, FlowKind};
use sluice_sim::{Completion, Datagram, Echo, OpenPage, TcpSample, Traffic};

pub use connection::{NotSimulated, UnknownCongestionControl};
pub(crate) use rows::Rows;

/// The cause of packets that found the socket of their receiver full.
pub(crate) const RECEIVER_OVERFLOW: &str = "receiver_overflow";
/// The cause of packets that the kernel of their sender refused.
pub(crate) const SENDER_REFUSED: &str = "sender_refused";

/// A type of flow in the simulator.
pub(crate) trait SimulatedFlow {
    /// The state of a flow until it is recorded.
    type Record: SimulatedRecord + 'static;

    /// Returns the traffic of the flow. Its client is the end that [`SimulatedFlow::client`] names.
    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated>;

    /// Returns the direction in which the client of a flow sends. By default the client sends the
    /// payload.
    fn client(&self, direction: Direction) -> Direction {
        direction
    }

    /// Returns the record of a flow that has not started.
    fn record(&self, flow: &FlowInstance<'_>) -> Self::Record;
}

/// What a simulated flow has sent, and how much of it has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPackets<'a> {
    /// The number of all packets.
    pub packets: u64,
    /// The TCP segments that it sent again.
    pub retransmits: u64,
    /// The bytes of payload that have arrived.
    pub received: u64,
    /// The numbers of the datagrams that are still on their way, or of which a copy is.
    pub in_flight: &'a BTreeSet<u64>,
    /// The pages that are not complete, or were not when the flow stopped.
    pub open_pages: &'a [OpenPage],
}

/// Converts the simulator's reports about one flow into rows.
pub(crate) trait SimulatedRecord {
    /// Records an observation of the simulator.
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError>;

    /// Ends the record at `end`, when the flow has sent `sent`. By default every row has been written by
    /// then.
    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let _ = (end, sent, rows);
        Ok(())
    }
}

/// An observation of a flow by the simulator.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'a> {
    /// The state of its connection.
    Tcp(&'a TcpSample),
    /// The payload that has arrived: of pages, and when a flow stops in the middle of a transfer.
    Received {
        /// The instant.
        at: Time,
        /// The bytes of the whole flow.
        bytes: u64,
    },
    /// A datagram that has arrived.
    Datagram(&'a Datagram),
    /// The answer to a probe has arrived.
    Echo(&'a Echo),
    /// A transfer, a page or an exchange is complete.
    Complete(&'a Completion),
}

/// A type of flow on real hosts.
pub(crate) trait LiveFlow: Clone + 'static {
    /// The measurements of its hosts.
    type Report: fmt::Debug + 'static;

    /// Checks, without starting anything, what its hosts need. By default they need nothing.
    fn check(&self) -> Result<(), TrafficError> {
        Ok(())
    }

    /// Starts the services that must be ready before the run, on the host `from`. By default there
    /// are none.
    fn prepare(
        &self,
        from: &Namespace,
        to: IpAddr,
        all: &Stop,
    ) -> Result<Option<Service>, TrafficError> {
        let _ = (from, to, all);
        Ok(None)
    }

    /// Returns the error of a flow that failed but has measurements.
    fn failure(&self, report: &Self::Report) -> Option<String> {
        let _ = report;
        None
    }

    /// Returns the packets that the hosts lost, not the path, by cause. By default there are none.
    fn lost(&self, report: &Self::Report) -> Vec<(&'static str, u64)> {
        let _ = report;
        Vec::new()
    }

    /// Returns the direction in which the host that starts the flow sends. By default it sends the
    /// payload.
    fn host(&self, direction: Direction) -> Direction {
        direction
    }

    /// Starts the end hosts of a flow.
    fn start(
        &self,
        flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<Self::Report>, TrafficError>;

    /// Writes the measurements; the run has ended at `end`.
    fn write(
        &self,
        report: &Self::Report,
        end: Time,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError>;
}

/// The hosts, times and clock of a live flow.
pub(crate) struct Ends<'a> {
    /// The host that sends the payload, and its address.
    pub from: (&'a Namespace, IpAddr),
    /// The host that receives the payload, and its address.
    pub to: (&'a Namespace, IpAddr),
    /// The start of the flow.
    pub start: Time,
    /// The end of the flow.
    pub stop: Time,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Time between two samples of its state.
    pub interval: Span,
    /// The service that [`LiveFlow::prepare`] has started.
    pub service: Cell<Option<Service>>,
    /// The clock of the run.
    pub clock: &'a Clock,
    /// Ends all flows of the run.
    pub all: &'a Stop,
}

/// A flow of any type.
pub(crate) trait AnyFlow {
    /// [`SimulatedFlow::traffic`].
    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated>;

    /// [`SimulatedFlow::client`].
    fn client(&self, direction: Direction) -> Direction;

    /// [`SimulatedFlow::record`].
    fn record(&self, flow: &FlowInstance<'_>) -> Box<dyn SimulatedRecord>;

    /// [`LiveFlow::check`].
    fn check(&self) -> Result<(), TrafficError>;

    /// [`LiveFlow::prepare`].
    fn prepare(
        &self,
        from: &Namespace,
        to: IpAddr,
        all: &Stop,
    ) -> Result<Option<Service>, TrafficError>;

    /// [`LiveFlow::host`].
    fn host(&self, direction: Direction) -> Direction;

    /// [`LiveFlow::start`].
    fn start(
        &self,
        flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Box<dyn RunningFlow>, TrafficError>;
}

impl<F: SimulatedFlow + LiveFlow> AnyFlow for F {
    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        SimulatedFlow::traffic(self, flow)
    }

    fn client(&self, direction: Direction) -> Direction {
        SimulatedFlow::client(self, direction)
    }

    fn record(&self, flow: &FlowInstance<'_>) -> Box<dyn SimulatedRecord> {
        Box::new(SimulatedFlow::record(self, flow))
    }

    fn check(&self) -> Result<(), TrafficError> {
        LiveFlow::check(self)
    }

    fn prepare(
        &self,
        from: &Namespace,
        to: IpAddr,
        all: &Stop,
    ) -> Result<Option<Service>, TrafficError> {
        LiveFlow::prepare(self, from, to, all)
    }

    fn host(&self, direction: Direction) -> Direction {
        LiveFlow::host(self, direction)
    }

    fn start(
        &self,
        flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Box<dyn RunningFlow>, TrafficError> {
        let running = LiveFlow::start(self, flow, ends)?;
        let settings = self.clone();
        Ok(Box::new(Started { settings, running }))
    }
}

/// A running live flow.
pub(crate) trait RunningFlow {
    /// Returns the identity of its packets.
    fn identity(&self) -> Identity;

    /// Returns whether the flow has ended by itself or by request.
    fn is_finished(&self) -> bool;

    /// Returns whether the flow only serves others, and need not last longer than they do.
    fn is_service(&self) -> bool;

    /// Waits for the end, and returns the measurements.
    fn join(self: Box<Self>) -> Result<FlowReport, TrafficError>;
}

struct Started<F: LiveFlow> {
    settings: F,
    running: Running<F::Report>,
}

impl<F: LiveFlow> RunningFlow for Started<F> {
    fn identity(&self) -> Identity {
        self.running.identity()
    }

    fn is_finished(&self) -> bool {
        self.running.is_finished()
    }

    fn is_service(&self) -> bool {
        self.running.is_service()
    }

    fn join(self: Box<Self>) -> Result<FlowReport, TrafficError> {
        let report = self.running.join()?;
        let settings = self.settings;
        Ok(FlowReport(Box::new(Report::<F> { settings, report })))
    }
}

/// The measurements of a live flow.
#[derive(Debug)]
pub struct FlowReport(Box<dyn AnyReport>);

impl FlowReport {
    /// Returns what went wrong in the flow, if something did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.failure()
    }

    /// Returns the packets that the hosts of the flow lost, by cause.
    pub(crate) fn lost(&self) -> Vec<(&'static str, u64)> {
        self.0.lost()
    }

    /// Writes the rows of `flow`, whose measurements these are; the run has ended at `end`, and
    /// the router has dropped `drops` packets of the flow, if that is known.
    pub(crate) fn write(
        &self,
        writer: &mut RunWriter,
        flow: &FlowInstance<'_>,
        interval: Span,
        end: Time,
        drops: Option<u64>,
    ) -> Result<(), RecordError> {
        let mut rows = Rows::new(writer, flow, interval);
        rows.set_drops(drops);
        self.0.write(end, &mut rows)
    }
}

trait AnyReport: fmt::Debug {
    fn failure(&self) -> Option<String>;

    fn lost(&self) -> Vec<(&'static str, u64)>;

    fn write(&self, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError>;
}

struct Report<F: LiveFlow> {
    settings: F,
    report: F::Report,
}

impl<F: LiveFlow> fmt::Debug for Report<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl<F: LiveFlow> AnyReport for Report<F> {
    fn failure(&self) -> Option<String> {
        self.settings.failure(&self.report)
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        self.settings.lost(&self.report)
    }

    fn write(&self, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        self.settings.write(&self.report, end, rows)
    }
}

macro_rules! implement {
    ($($module:ident::$type:ident,)+) => {
        $(mod $module;)+

        /// The type of a flow.
        pub(crate) fn of(kind: &FlowKind) -> &dyn AnyFlow {
            match kind { $(FlowKind::$type(flow) => flow,)+ }
        }
    };
}

sluice_scenario::flow_types!(implement);
