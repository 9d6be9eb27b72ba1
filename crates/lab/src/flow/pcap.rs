//! The packets of a capture as open-loop traffic.

use sluice_core::{Ecn, Time};
use sluice_load::udp::{self, UdpReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Pcap, Voip};
use sluice_sim::{Listed, ListedDatagram, Side, Traffic};

use super::datagrams::{self, Arrivals, Payloads};
use super::{Ends, LiveFlow, NotSimulated, Rows, SimulatedFlow};

impl SimulatedFlow for Pcap {
    type Record = Arrivals;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        let listed = self.file.flow(flow.number).iter();
        let listed = listed.map(|packet| ListedDatagram {
            after: packet.after,
            payload: u32::from(packet.payload),
            ecn: Ecn::from_bits(packet.ecn),
        });
        let listed = Listed {
            datagrams: listed.collect(),
            sender: Side::Client,
        };
        Ok(listed.into())
    }

    fn record(&self, flow: &FlowInstance<'_>) -> Arrivals {
        Arrivals::new(payloads(self, flow))
    }
}

impl LiveFlow for Pcap {
    type Report = UdpReport;

    fn start(
        &self,
        flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<UdpReport>, TrafficError> {
        // The list gives the instants and sizes.
        let size = udp::LEAST_PAYLOAD as u64;
        let mut udp = datagrams::between(ends, Voip::rate(), size, self.dscp);
        let listed = self.file.flow(flow.number).iter();
        let listed = listed.map(|packet| udp::ListedPacket {
            after: packet.after,
            payload: packet.payload,
            ecn: packet.ecn,
        });
        udp.listed = Some(listed.collect());
        udp.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn lost(&self, report: &UdpReport) -> Vec<(&'static str, u64)> {
        datagrams::lost(report)
    }

    fn write(&self, report: &UdpReport, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        datagrams::write(payloads(self, rows.flow()), report, end, rows)
    }
}

fn payloads(pcap: &Pcap, flow: &FlowInstance<'_>) -> Payloads {
    Payloads::Listed(pcap.file.flow(flow.number).clone())
}
