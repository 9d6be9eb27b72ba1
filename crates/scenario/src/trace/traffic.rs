//! The packets of a capture as traffic: the times and sizes of each flow's packets.

use std::collections::BTreeMap;
use std::path::Path;

use sluice_core::Span;

use super::{Capture, Hash, Trace, TraceError};
use crate::texts::Open;

/// An IP packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapturedPacket {
    /// The time after the first packet of the capture.
    pub after: Span,
    /// The flow's number, in the order of first packets.
    pub flow: u32,
    /// Bytes of the IP packet.
    pub bytes: u32,
    /// IP ECN field.
    pub ecn: u8,
}

/// The IP packets of a capture, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The packets.
    pub packets: Vec<CapturedPacket>,
    /// The number of flows: addresses, protocol and ports.
    pub flows: u32,
    /// The number of packets that are not IP and were left out.
    pub others: u64,
}

/// The reason why a capture cannot be used as traffic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrafficError {
    /// The capture cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The file is a CSV table.
    #[error("`{path}` is not a capture; expected pcap or pcapng")]
    NoCapture {
        /// The file.
        path: String,
    },
    /// The capture has no IP packet.
    #[error("`{path}` has no IP packets (it has {others} other packets)")]
    Empty {
        /// The file.
        path: String,
        /// Packets that are not IP.
        others: u64,
    },
    /// The capture has too many packets for a scenario.
    #[error("`{path}` has more than {MOST_PACKETS} IP packets; cut it, as with `editcap -c`")]
    TooMany {
        /// The file.
        path: String,
    },
    /// The capture has more flows than a scenario can have.
    #[error(
        "`{path}` has more than {MOST_FLOWS} flows; filter it, as with `tcpdump -r IN -w OUT FILTER`"
    )]
    TooManyFlows {
        /// The file.
        path: String,
    },
}

impl Traffic {
    /// Reads the capture at `path`, which `open` opens.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub(crate) fn read(path: &Path, open: Open) -> Result<Self, TrafficError> {
        let named = || path.display().to_string();
        let mut trace = Trace::open_by(path, open, Hash::Flow, 0)?;
        let mut traffic = Traffic::default();
        // Packets that are not IP also have flow numbers in the capture.
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        while let Some(arrival) = trace.read()? {
            let Some(capture) = trace.capture() else {
                return Err(TrafficError::NoCapture { path: named() });
            };
            let bytes = capture.frame().ip_len();
            if bytes == 0 {
                traffic.others += 1;
                continue;
            }
            if traffic.packets.len() == MOST_PACKETS {
                return Err(TrafficError::TooMany { path: named() });
            }
            let next = numbers.len() as u32;
            let flow = *numbers.entry(arrival.flow).or_insert(next);
            if flow >= MOST_FLOWS {
                return Err(TrafficError::TooManyFlows { path: named() });
            }
            traffic.packets.push(CapturedPacket {
                after: Span::from_ns(arrival.time.as_ns()),
                flow,
                bytes,
                ecn: arrival.ecn as u8,
            });
        }
        // A flow has all packets of its capture.
        if let Some(error) = trace.capture().and_then(Capture::cut) {
            return Err(error.into());
        }
        if traffic.packets.is_empty() {
            return Err(TrafficError::Empty {
                path: named(),
                others: traffic.others,
            });
        }
        traffic.flows = numbers.len() as u32;
        Ok(traffic)
    }
}

/// The largest number of packets in a scenario file and a recording.
const MOST_PACKETS: usize = 1_000_000;
/// The same limit as for `count` of a flow.
const MOST_FLOWS: u32 = 10_000;
