//! The packets of a queue, in columns.

use serde::Serialize;
#[cfg(test)]
use {serde::Deserialize, ts_rs::TS};

use crate::packed;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// The packet was sent unchanged.
    Sent = 0,
    /// The packet was sent with a CE mark that this queue set.
    Marked = 1,
    /// The packet was dropped.
    Dropped = 2,
}

impl From<Verdict> for u64 {
    fn from(verdict: Verdict) -> u64 {
        verdict as u64
    }
}

#[cfg(test)]
impl TryFrom<u64> for Verdict {
    type Error = String;

    fn try_from(code: u64) -> Result<Self, String> {
        match code {
            0 => Ok(Verdict::Sent),
            1 => Ok(Verdict::Marked),
            2 => Ok(Verdict::Dropped),
            _ => Err(format!("verdict {code}: expected 0, 1 or 2")),
        }
    }
}

/// One packet that went through a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// The instant at which it was sent or dropped.
    pub at_ns: u64,
    /// The time that it had been in the queue by then.
    pub sojourn_ns: u64,
    /// Length on the link.
    pub size_bytes: u32,
    /// Wire packets in it.
    pub segments: u16,
    /// Index into [`Packets::flows`].
    pub flow: u32,
    /// Number of the packet, the same in every queue, plus 1; 0 if it is not known.
    pub number: u64,
    /// Fate.
    pub verdict: Verdict,
    /// Index into [`Packets::reasons`]; meaningless for a packet that was sent unmarked.
    pub reason: u16,
}

/// One column per property of the packets, each packed into a string in JSON. The page receives the
/// packets in order of time; elsewhere their order is arbitrary.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Packets {
    /// Names of the flows, including pings.
    pub flows: Vec<String>,
    /// Reasons for which packets were marked or dropped.
    pub reasons: Vec<String>,
    /// Number of packets before thinning for the page; `None` if all are here.
    pub thinned_from: Option<u64>,
    /// The instant at which each packet was sent or dropped.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub at_ns: Vec<u64>,
    /// The time that each packet had been in the queue by then.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub sojourn_ns: Vec<u64>,
    /// The length of each packet on the link.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub size_bytes: Vec<u32>,
    /// The wire packets in each, which the page does not show.
    #[serde(skip)]
    #[cfg_attr(test, ts(skip))]
    pub segments: Vec<u16>,
    /// The flow of each packet, as an index into `flows`.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub flow: Vec<u32>,
    /// The fate of each packet, as a code.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub verdict: Vec<Verdict>,
    /// The reason for which each packet was marked or dropped, as an index into `reasons`;
    /// meaningless for others.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub reason: Vec<u16>,
    /// The number of each packet, the same in every queue, plus 1; 0 if it is not known.
    #[serde(with = "packed")]
    #[cfg_attr(test, ts(type = "string"))]
    pub number: Vec<u64>,
}

impl Packets {
    /// Number of packets.
    pub fn len(&self) -> usize {
        self.at_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at_ns.is_empty()
    }

    /// Makes room for about `packets` more.
    pub fn reserve(&mut self, packets: usize) {
        self.at_ns.reserve(packets);
        self.sojourn_ns.reserve(packets);
        self.size_bytes.reserve(packets);
        self.segments.reserve(packets);
        self.flow.reserve(packets);
        self.verdict.reserve(packets);
        self.reason.reserve(packets);
        self.number.reserve(packets);
    }

    /// Returns the packets at the indexes `at`, in their order.
    pub fn pick(&self, at: &[u32]) -> Packets {
        fn of<T: Copy>(column: &[T], at: &[u32]) -> Vec<T> {
            at.iter().map(|&at| column[at as usize]).collect()
        }
        Packets {
            flows: self.flows.clone(),
            reasons: self.reasons.clone(),
            thinned_from: self.thinned_from,
            at_ns: of(&self.at_ns, at),
            sojourn_ns: of(&self.sojourn_ns, at),
            size_bytes: of(&self.size_bytes, at),
            segments: of(&self.segments, at),
            flow: of(&self.flow, at),
            verdict: of(&self.verdict, at),
            reason: of(&self.reason, at),
            number: of(&self.number, at),
        }
    }

    /// Adds a packet.
    pub fn push(&mut self, row: PacketRow) {
        self.at_ns.push(row.at_ns);
        self.sojourn_ns.push(row.sojourn_ns);
        self.size_bytes.push(row.size_bytes);
        self.segments.push(row.segments);
        self.flow.push(row.flow);
        self.verdict.push(row.verdict);
        self.reason.push(row.reason);
        self.number.push(row.number);
    }

    /// The packet at an index.
    pub fn row(&self, at: usize) -> PacketRow {
        PacketRow {
            at_ns: self.at_ns[at],
            sojourn_ns: self.sojourn_ns[at],
            size_bytes: self.size_bytes[at],
            segments: self.segments[at],
            flow: self.flow[at],
            verdict: self.verdict[at],
            reason: self.reason[at],
            number: self.number[at],
        }
    }

    /// All packets.
    pub fn rows(&self) -> impl Iterator<Item = PacketRow> + '_ {
        (0..self.len()).map(|at| self.row(at))
    }
}
