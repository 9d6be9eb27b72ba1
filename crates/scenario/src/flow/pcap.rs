//! The packets of a capture as open-loop traffic.

use std::fmt::Write as _;
use std::sync::Arc;

use sluice_core::Span;

use super::super::error::{Problem, Problems};
use super::super::field::{Dscp, wrong_type};
use super::super::file::{opener, with_folder};
use super::super::schema::{Field, Section, beyond_defaults, keys};
use super::super::tree::{Node, Table, Value};
use super::{FlentSeries, FlowType, Measured};
use crate::trace::{CapturedPacket, Traffic};

keys! {
    /// The packets of a capture as open-loop traffic.
    pub struct Pcap {
        /// the capture (pcap or pcapng), relative to the scenario's own file
        file: CaptureFile;
        /// codepoint of the packets: a number or a word such as `ef`; the codepoints in the capture
        /// are not used
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Pcap {
    const DOC: &'static str = "The packets of a capture as open-loop traffic. Each IP packet is sent \
        as a UDP packet with the same size and ECN field, at the same time after the first packet, \
        regardless of the fate of earlier packets. Each flow of the capture (addresses, protocol, \
        ports) becomes a flow of the run: `NAME-1`, `NAME-2` ... in the order of their first packets. \
        All have the same `direction`. Packets that are not IP are left out. Packets shorter than 52 \
        bytes are sent with 52 bytes, because the measurement needs 24 bytes of payload. Packets \
        longer than 1500 bytes are sent as several packets at once.";
    const METRICS: &'static [&'static str] = super::Udp::METRICS;
    const MEASURED: Measured = Measured::Datagrams;
    const FLENT: FlentSeries = FlentSeries::Udp;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let (path, packets) = (self.file.path(), self.file.packets());
        let others = beyond_defaults(self, &["file"]);
        format!("flows of {path}, {packets} packets{others}")
    }

    fn own_count(&self) -> Option<u64> {
        Some(self.file.flows.len() as u64)
    }

    fn warnings(&self) -> Vec<String> {
        self.file.warnings()
    }

    fn check(&self, table: &Table, section: &Section, problems: &mut Problems) -> bool {
        let own = self.file.flows.len() as i64;
        let Some(node) = table.node("count") else {
            return true;
        };
        if matches!(node.value, Value::Integer(n) if n == own) {
            return true;
        }
        let message = format!(
            "`count` of {} must be the capture's number of flows, {own}",
            section.name
        );
        problems.push(Problem::new(node.at.clone(), message).hint("leave it out"));
        false
    }
}

/// A packet that a flow of a capture sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapPacket {
    /// The time after the start.
    pub after: Span,
    /// Bytes of UDP payload.
    pub payload: u16,
    /// IP ECN field.
    pub ecn: u8,
}

/// A capture and the flows in it.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureFile {
    /// The path as the scenario names it.
    path: String,
    traffic: Arc<Traffic>,
    flows: Vec<Arc<[PcapPacket]>>,
}

impl CaptureFile {
    fn new(path: String, traffic: Traffic) -> Self {
        let mut flows = vec![Vec::new(); traffic.flows as usize];
        for packet in &traffic.packets {
            let of_it = &mut flows[packet.flow as usize];
            let mut rest = packet.bytes;
            loop {
                let bytes = rest.min(MOST_BYTES);
                rest -= bytes;
                of_it.push(PcapPacket {
                    after: packet.after,
                    payload: (bytes.max(LEAST_BYTES) - HEADERS) as u16,
                    ecn: packet.ecn,
                });
                if rest == 0 {
                    break;
                }
            }
        }
        let flows = flows.into_iter().map(Arc::from).collect();
        CaptureFile {
            path,
            traffic: traffic.into(),
            flows,
        }
    }

    /// Returns the path as the scenario names it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the IP packets.
    pub fn packets(&self) -> usize {
        self.traffic.packets.len()
    }

    /// Returns the packets of flow `number`.
    pub fn flow(&self, number: usize) -> &Arc<[PcapPacket]> {
        &self.flows[number]
    }

    /// Returns warnings about packets that are changed or left out.
    pub fn warnings(&self) -> Vec<String> {
        let of = |is: fn(&&CapturedPacket) -> bool| self.traffic.packets.iter().filter(is).count();
        let short = of(|packet| packet.bytes < LEAST_BYTES);
        let long = of(|packet| packet.bytes > MOST_BYTES);
        let path = &self.path;
        let mut warnings = Vec::new();
        if self.traffic.others > 0 {
            let others = self.traffic.others;
            warnings.push(format!(
                "`{path}`: packets that are not IP, left out: {others}"
            ));
        }
        if short > 0 {
            warnings.push(format!(
                "`{path}`: packets shorter than {LEAST_BYTES} bytes, sent with {LEAST_BYTES}: {short}"
            ));
        }
        if long > 0 {
            warnings.push(format!(
                "`{path}`: packets longer than {MOST_BYTES} bytes, sent as several: {long}"
            ));
        }
        warnings
    }
}

/// A recording stores the packets beside the path, one per line, so that it does not need the file.
impl Field for CaptureFile {
    type Scalar = std::convert::Infallible;
    const KIND: &'static str = "path of a capture";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        if let Value::Table(table) = &node.value
            && let (Some(Value::Text(path)), Some(Value::Text(text))) = (
                table.node("path").map(|node| &node.value),
                table.node("packets").map(|node| &node.value),
            )
        {
            let Some(traffic) = from_text(text) else {
                let message = format!("the packets of `{path}` are not in a recording's format");
                return problems.refuse(Problem::new(node.at.clone(), message));
            };
            return Some(CaptureFile::new(path.clone(), traffic));
        }
        let Value::Text(path) = &node.value else {
            return problems.refuse(wrong_type(key, node, "the path of a capture"));
        };
        match Traffic::read(&problems.folder().join(path), opener(&node.at)) {
            Ok(traffic) => Some(CaptureFile::new(path.clone(), traffic)),
            Err(error) => {
                let problem = Problem::new(node.within(0..path.len()), error.to_string());
                problems.refuse(with_folder(problem, path))
            }
        }
    }

    fn write(&self) -> Option<Value> {
        let mut table = Table::default();
        table.push("path", Value::text(&self.path));
        table.push("packets", Value::text(to_text(&self.traffic)));
        Some(Value::Table(table))
    }
}

/// Lines of `after_ns,flow,bytes,ecn`.
fn to_text(traffic: &Traffic) -> String {
    let mut text = String::new();
    for packet in &traffic.packets {
        let CapturedPacket {
            after,
            flow,
            bytes,
            ecn,
        } = packet;
        let _ = writeln!(text, "{},{flow},{bytes},{ecn}", after.as_ns());
    }
    text
}

fn from_text(text: &str) -> Option<Traffic> {
    let mut traffic = Traffic::default();
    for line in text.lines() {
        let mut words = line.split(',').map(str::parse::<u64>);
        let mut next = || words.next()?.ok();
        let packet = CapturedPacket {
            after: Span::from_ns(next()?),
            flow: u32::try_from(next()?).ok()?,
            bytes: u32::try_from(next()?).ok()?,
            ecn: u8::try_from(next()?).ok().filter(|ecn| *ecn < 4)?,
        };
        // Flows are numbered in the order in which they appear.
        if packet.flow > traffic.flows || packet.bytes == 0 {
            return None;
        }
        traffic.flows = traffic.flows.max(packet.flow + 1);
        traffic.packets.push(packet);
    }
    (!traffic.packets.is_empty()).then_some(traffic)
}

/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;
/// Headers and the bytes that the measurement needs.
const LEAST_BYTES: u32 = HEADERS + 24;
/// The MTU of Ethernet.
const MOST_BYTES: u32 = 1500;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod two_flows;
