//! UDP without congestion control.

use sluice_core::{Ecn, Time};
use sluice_load::udp::UdpReport;
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Udp};
use sluice_sim::Traffic;

use super::datagrams::{self, Arrivals, Payloads};
use super::{Ends, LiveFlow, NotSimulated, Rows, SimulatedFlow};

impl SimulatedFlow for Udp {
    type Record = Arrivals;

    fn traffic(&self, _flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let mut udp = sluice_sim::Udp::constant(self.rate, self.size as u32);
        udp.spacing = self.spacing();
        udp.ecn = if self.ect { Ecn::Ect0 } else { Ecn::NotEct };
        Ok(udp.into())
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Arrivals {
        Arrivals::new(Payloads::Each(self.size))
    }
}

impl LiveFlow for Udp {
    type Report = UdpReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<UdpReport>, TrafficError> {
        let mut udp = datagrams::between(ends, self.rate, self.size, self.dscp);
        udp.spacing = self.spacing();
        udp.seed = ends.seed;
        udp.ecn = if self.ect { Ecn::Ect0 } else { Ecn::NotEct } as u8;
        udp.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn lost(&self, report: &UdpReport) -> Vec<(&'static str, u64)> {
        datagrams::lost(report)
    }

    fn write(&self, report: &UdpReport, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        datagrams::write(Payloads::Each(self.size), report, end, rows)
    }
}
