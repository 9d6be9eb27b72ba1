//! The packets of a capture as open-loop traffic.

use sluice_core::{Ecn, Time};
use sluice_load::udp::{self, UdpFlow, UdpReport};
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Pcap, Voip};
use sluice_sim::{Listed, ListedDatagram, Side, Traffic};

use super::datagrams::{self, Arrivals, Payloads};
use super::{Ends, LiveFlow, Rows, SimulatedFlow, UnknownCongestionControl};

impl SimulatedFlow for Pcap {
    type Record = Arrivals;

    fn traffic(&self, flow: &FlowInstance<'_>) -> Result<Traffic, UnknownCongestionControl> {
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
        let (rate, size) = (Voip::rate(), udp::LEAST_PAYLOAD);
        let mut udp = UdpFlow::new(ends.from.1, ends.to.1, rate, size, ends.start);
        let listed = self.file.flow(flow.number).iter();
        let listed = listed.map(|packet| udp::ListedPacket {
            after: packet.after,
            payload: packet.payload,
            ecn: packet.ecn,
        });
        udp.listed = Some(listed.collect());
        udp.dscp = self.dscp.value();
        udp.stop = Some(ends.stop);
        udp.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn write(
        &self,
        report: &UdpReport,
        _end: Time,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        datagrams::write(payloads(self, rows.flow()), report, rows)
    }
}

fn payloads(pcap: &Pcap, flow: &FlowInstance<'_>) -> Payloads {
    Payloads::Listed(pcap.file.flow(flow.number).clone())
}
