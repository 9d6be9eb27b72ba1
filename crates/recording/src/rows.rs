//! The rows of a recording's tables.

use std::borrow::Cow;
use std::marker::PhantomData;

use sluice_core::event::StateValue;
use sluice_core::record::{self, Fate, PacketRecord};
use sluice_core::{Backlog, DropReason, Ecn, Span, Time};

use super::cell::{Cell, CellType, ColumnDecl, ColumnKind, Row, table};
use sluice_scenario::PipeId;

/// The flow number of packets that belong to no flow of the scenario (ARP, neighbour discovery ...).
pub const NO_FLOW: u32 = u32::MAX;

table! {
    /// A sample of a flow. Values that its type or the backend does not measure are `None`. Counts
    /// start at the start of the flow.
    pub struct FlowSample = "flows" {
        /// instant of the sample
        time: Time = "time_ns",
        /// number of the flow, as in run.json
        flow: u32 = "flow",
        /// payload bytes that have arrived, in order
        received_bytes: Option<u64> = "received_bytes",
        /// packets sent (UDP)
        sent_packets: Option<u64> = "sent_packets",
        /// packets that have arrived (UDP)
        received_packets: Option<u64> = "received_packets",
        /// congestion window in segments
        cwnd: Option<u64> = "cwnd_packets",
        /// slow-start threshold in segments
        ssthresh: Option<u64> = "ssthresh_packets",
        /// sender's maximum segment size
        mss: Option<u64> = "mss_bytes",
        /// smoothed round-trip time
        srtt: Option<Span> = "srtt_ns",
        /// smallest round-trip time that the sender has seen
        min_rtt: Option<Span> = "min_rtt_ns",
        /// segments sent again
        retransmits: Option<u64> = "retransmits",
        /// sender's estimate of the delivery rate
        delivery_rate: Option<u64> = "delivery_rate_bps",
        /// datagrams that have arrived and whose one-way delay is known (UDP); empty in recordings of older programs, as are the sums
        delays: Option<u64> = "delays",
        /// sum of their one-way delays
        delay_sum: Option<Span> = "delay_sum_ns",
        /// sum of the differences between the delays of consecutive ones
        variation_sum: Option<Span> = "variation_sum_ns",
        /// sum of the interarrival jitter after each (RFC 3550 section 6.4.1)
        jitter_sum: Option<Span> = "jitter_sum_ns",
    }
}

table! {
    /// A variable of a pipe or of its queue at an instant.
    pub struct QueueSample = "queues" {
        /// instant of the sample
        time: Time = "time_ns",
        /// the pipe: up or down, up2 or down2 of the second link
        pipe: PipeId = "pipe",
        /// queue of the discipline (flow bucket or class); empty for all queues together
        queue: Option<u32> = "queue",
        /// name: backlog_packets, backlog_bytes, or a variable of the algorithm
        variable: Cow<'static, str> = "variable",
        /// kind of value: count, instant, span, ratio or flag
        kind: Cow<'static, str> = "kind",
        /// value; instants and spans in nanoseconds, flags 0 or 1
        value: f64 = "value",
    }
}

impl FlowSample {
    /// Creates a sample without values.
    pub const fn empty(time: Time, flow: u32) -> FlowSample {
        FlowSample {
            time,
            flow,
            received_bytes: None,
            sent_packets: None,
            received_packets: None,
            cwnd: None,
            ssthresh: None,
            mss: None,
            srtt: None,
            min_rtt: None,
            retransmits: None,
            delivery_rate: None,
            delays: None,
            delay_sum: None,
            variation_sum: None,
            jitter_sum: None,
        }
    }
}

impl QueueSample {
    /// Creates the samples of the packets and bytes that `pipe` held at `time`.
    pub fn backlog(time: Time, pipe: impl Into<PipeId>, backlog: Backlog) -> [QueueSample; 2] {
        let pipe = pipe.into();
        let sample = |variable, n| QueueSample {
            time,
            pipe,
            queue: None,
            variable: Cow::Borrowed(variable),
            kind: Cow::Borrowed("count"),
            value: n as f64,
        };
        [
            sample(BACKLOG_PACKETS, backlog.packets),
            sample(BACKLOG_BYTES, backlog.bytes),
        ]
    }

    /// Creates a sample of a variable that an algorithm reports.
    pub fn state(
        time: Time,
        pipe: impl Into<PipeId>,
        queue: u32,
        variable: &'static str,
        value: StateValue,
    ) -> QueueSample {
        QueueSample {
            time,
            pipe: pipe.into(),
            queue: Some(queue),
            variable: Cow::Borrowed(variable),
            kind: Cow::Borrowed(value.kind()),
            value: value.as_f64(),
        }
    }
}

/// The variable of [`QueueSample`] for the wire packets held.
pub const BACKLOG_PACKETS: &str = "backlog_packets";
/// The variable of [`QueueSample`] for the bytes held.
pub const BACKLOG_BYTES: &str = "backlog_bytes";

table! {
    /// A probe and its answer.
    pub struct PingSample = "pings" {
        /// instant at which the probe was sent
        time: Time = "time_ns",
        /// number of the flow, as in run.json
        flow: u32 = "flow",
        /// number of the probe, from 0
        seq: u64 = "seq",
        /// time until the answer arrived; empty if no answer arrived
        rtt: Option<Span> = "rtt_ns",
        /// delay in the direction up; empty if the packet was lost there
        up: Option<Span> = "up_ns",
        /// delay in the direction down; empty if the packet was lost there
        down: Option<Span> = "down_ns",
        /// whether no answer came back
        is_lost: bool = "lost",
    }
}

table! {
    /// A complete transfer, page or exchange, or a page that was open at the end.
    pub struct Transfer = "transfers" {
        /// instant of the request
        start: Time = "start_ns",
        /// number of the flow, as in run.json
        flow: u32 = "flow",
        /// number of the transfer or page within its flow, from 0
        seq: u64 = "seq",
        /// time until the last byte had arrived; of an open page, until the end of its flow
        took: Span = "took_ns",
        /// payload bytes; of an open page, those of its complete objects
        bytes: u64 = "bytes",
        /// whether it is a page that was open at the end of its flow or of the run; empty in recordings of older programs, which have none of these
        open: Option<bool> = "open",
    }
}

impl Transfer {
    /// Returns whether it was open at the end.
    pub fn is_open(&self) -> bool {
        self.open == Some(true)
    }
}

table! {
    /// The transport header of a packet that a simulated host sent: a TCP segment or an echo
    /// message. Sequence and acknowledgement numbers are stored as differences, which take less
    /// space; [`crate::headers`] converts them.
    pub struct Header = "headers" {
        /// number of the packet, as in `packets`
        packet: u64 = "packet",
        /// number of the flow, as in run.json
        flow: u32 = "flow",
        /// whether the flow's client sent it: the end that opens connections or sends requests
        is_from_client: bool = "from_client",
        /// echo request or reply: number of the probe, from 0, as in `pings`
        probe: Option<u64> = "probe",
        /// number of the TCP connection within its flow, from 1
        connection: Option<u32> = "connection",
        /// control bits of the TCP header: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 64 ECE, 128 CWR, 256 AE
        flags: Option<u32> = "flags",
        /// payload of the segment
        payload: Option<u32> = "payload_bytes",
        /// sequence number minus the first one that this end has not used yet: 0 for new data, negative for data sent again; of the first segment the number itself
        jump: Option<i64> = "jump_bytes",
        /// acknowledgement number minus that of this end's segment before; of the first segment the number itself
        acked: Option<u32> = "acked_bytes",
        /// receive window, not scaled
        window: Option<u32> = "window",
        /// age of the timestamp that the segment echoes, in ticks of 1 ms; empty if it echoes none
        echo_age: Option<u32> = "echo_age_ms",
        /// SACK blocks as START:END, both relative to the acknowledgement number, with spaces between blocks
        sack: Option<Cow<'static, str>> = "sack",
        /// maximum segment size, of a SYN
        mss: Option<u32> = "mss_bytes",
        /// window scale, of a SYN
        window_scale: Option<u32> = "window_scale",
    }
}

table! {
    /// A packet that a live router sent, with its due time and its lateness.
    pub struct Release = "releases" {
        /// due time at the far end of the pipe
        due: Time = "due_ns",
        /// the pipe: up or down, up2 or down2 of the second link
        pipe: PipeId = "pipe",
        /// bytes on the link
        len: u32 = "size_bytes",
        /// lateness: how much later it was sent
        late: Span = "late_ns",
    }
}

table! {
    /// A packet at its arrival at the queues of a live router. A replay repeats the run from these
    /// rows.
    pub struct Arrival = "arrivals" {
        /// arrival
        time: Time = "time_ns",
        /// the first pipe of its direction: up or down
        pipe: PipeId = "pipe",
        /// number of the path that packets with these addresses take; 0 is the common path
        way: u32 = "way",
        /// bytes on the link, all segments
        len: u32 = "size_bytes",
        /// wire packets in it
        segments: u32 = "segments",
        /// ECN field: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE
        ecn: u32 = "ecn",
        /// differentiated services codepoint
        dscp: u32 = "dscp",
        /// hash of the flow
        hash: u32 = "hash",
        /// hash of the source host
        src: u32 = "src",
        /// hash of the destination host
        dst: u32 = "dst",
        /// bytes that the flow still has to send, or microseconds to its deadline; 0 if unknown
        tag: u32 = "tag",
    }
}

/// The record of a packet in the queue of a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// The pipe.
    pub pipe: PipeId,
    /// The packet's record; [`PacketRecord::flow`] is the number of the flow in run.json, or
    /// [`NO_FLOW`].
    pub record: PacketRecord,
}

impl Row for PacketRow {
    const TABLE: &'static str = "packets";

    /// The columns of [`PacketRecord::COLUMNS`], the pipe, and the number of the packet.
    fn columns() -> Vec<ColumnDecl> {
        let of_record = |column: &record::Column| ColumnDecl {
            name: column.name,
            kind: if column.is_text {
                ColumnKind::Text
            } else {
                ColumnKind::Int
            },
            is_optional: OPTIONAL.contains(&column.name),
            doc: column.doc,
        };
        let pipe = ColumnDecl {
            name: "pipe",
            kind: ColumnKind::Text,
            is_optional: false,
            doc: "the pipe: up or down, up2 or down2 of the second link",
        };
        let packet = ColumnDecl {
            name: "packet",
            kind: ColumnKind::Int,
            is_optional: true,
            doc: "number of the packet, the same in every pipe that it passes; a duplicate that a \
                  link makes has the number of its original; empty in recordings of older programs",
        };
        let of_record = PacketRecord::COLUMNS.iter().map(of_record);
        of_record.chain([pipe, packet]).collect()
    }

    #[inline(always)]
    fn cell(&self, at: usize) -> Cell<'_> {
        const SEQ: usize = column("seq");
        const TIME: usize = column("time_ns");
        const FLOW: usize = column("flow");
        const SIZE: usize = column("size_bytes");
        const SEGMENTS: usize = column("segments");
        const ECN: usize = column("ecn");
        const CLASS: usize = column("class");
        const VERDICT: usize = column("verdict");
        const AT: usize = column("at_ns");
        const SOJOURN: usize = column("sojourn_ns");
        const REASON: usize = column("reason");
        const PIPE: usize = PacketRecord::COLUMNS.len();
        const PACKET: usize = PIPE + 1;
        let record = &self.record;
        let settled = match record.fate {
            Fate::Queued => None,
            _ => Some(record.at),
        };
        match at {
            SEQ => record.seq.to_cell(),
            TIME => record.arrival.to_cell(),
            FLOW => record.flow.to_cell(),
            SIZE => record.len.to_cell(),
            SEGMENTS => record.segments.to_cell(),
            ECN => Cell::whole(record.ecn as u64),
            CLASS => record.class.to_cell(),
            VERDICT => Cell::Text(record.fate.verdict()),
            AT => settled.map_or(Cell::Empty, |at| Cell::whole(at.as_ns())),
            SOJOURN => settled.map_or(Cell::Empty, |at| {
                Cell::whole(at.since(record.arrival).as_ns())
            }),
            REASON => match record.fate {
                Fate::Dropped(reason) => Cell::Text(reason.name()),
                _ => Cell::Empty,
            },
            PIPE => self.pipe.to_cell(),
            PACKET => record.packet.map_or(Cell::Empty, Cell::whole),
            _ => panic!("no column {at}"),
        }
    }

    #[inline]
    fn write(&self, mut cell: impl FnMut(Cell<'_>)) {
        self.record.each_cell(|value| {
            cell(match value {
                record::Cell::Number(n) => Cell::whole(n),
                record::Cell::Text("") | record::Cell::Empty => Cell::Empty,
                record::Cell::Text(word) => Cell::Text(word),
            });
        });
        cell(self.pipe.to_cell());
        cell(self.record.packet.to_cell());
    }

    fn read(cells: &[Cell<'_>]) -> Result<Self, usize> {
        let (packet, cells) = cells.split_last().expect("a packet has a number");
        let (pipe, cells) = cells.split_last().expect("a packet has a pipe");
        let pipe_column = cells.len();
        let at = |column: usize| (column, cells[column]);
        fn get<T: CellType>((column, cell): (usize, Cell<'_>)) -> Result<T, usize> {
            T::from_cell(cell).ok_or(column)
        }
        let arrival: Time = get(at(const { column("time_ns") }))?;
        let settled: Option<Time> = get(at(const { column("at_ns") }))?;
        let (verdict_column, verdict) = at(const { column("verdict") });
        let (reason_column, reason) = at(const { column("reason") });
        let fate = match verdict {
            Cell::Text("queued") => Fate::Queued,
            Cell::Text("sent") => Fate::Sent,
            Cell::Text("marked") => Fate::Marked,
            Cell::Text("dropped") => {
                let named = |r: &&DropReason| reason == Cell::Text(r.name());
                let reason = DropReason::ALL.iter().find(named);
                Fate::Dropped(*reason.ok_or(reason_column)?)
            }
            _ => return Err(verdict_column),
        };
        let (ecn_column, ecn) = at(const { column("ecn") });
        let record = PacketRecord {
            seq: get(at(const { column("seq") }))?,
            packet: get((pipe_column + 1, *packet))?,
            arrival,
            flow: get(at(const { column("flow") }))?,
            len: get(at(const { column("size_bytes") }))?,
            segments: get(at(const { column("segments") }))?,
            ecn: match ecn {
                Cell::Int(0) => Ecn::NotEct,
                Cell::Int(1) => Ecn::Ect1,
                Cell::Int(2) => Ecn::Ect0,
                Cell::Int(3) => Ecn::Ce,
                _ => return Err(ecn_column),
            },
            class: get(at(const { column("class") }))?,
            fate,
            at: settled.unwrap_or(arrival),
        };
        Ok(PacketRow {
            pipe: PipeId::from_cell(*pipe).ok_or(pipe_column)?,
            record,
        })
    }
}

/// Returns the position of the column `name` of [`PacketRecord`].
const fn column(name: &str) -> usize {
    let mut column = 0;
    while column < PacketRecord::COLUMNS.len() {
        if is_same(PacketRecord::COLUMNS[column].name, name) {
            return column;
        }
        column += 1;
    }
    panic!("the columns of a packet are known")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut same = 0;
    while same < one.len() && same < other.len() && one[same] == other[same] {
        same += 1;
    }
    same == one.len() && same == other.len()
}

/// Columns of [`PacketRecord`] that can be empty: for packets still queued, or not dropped.
const OPTIONAL: &[&str] = &["at_ns", "sojourn_ns", "reason"];

/// The name of a table and its columns.
pub(crate) type Declared = (&'static str, fn() -> Vec<ColumnDecl>);

const fn declared<R: Row>() -> Declared {
    (R::TABLE, R::columns)
}

/// The tables of a recording, with their columns.
pub(crate) const DECLARED: [Declared; 8] = [
    declared::<PacketRow>(),
    declared::<Header>(),
    declared::<FlowSample>(),
    declared::<QueueSample>(),
    declared::<PingSample>(),
    declared::<Transfer>(),
    declared::<Release>(),
    declared::<Arrival>(),
];

/// The names of the tables of a recording.
pub(crate) const TABLES: [&str; DECLARED.len()] = {
    let mut names = [""; DECLARED.len()];
    let mut table = 0;
    while table < names.len() {
        names[table] = DECLARED[table].0;
        table += 1;
    }
    names
};

/// The place of the table of `R` among [`TABLES`].
pub(crate) struct Place<R>(PhantomData<R>);

impl<R: Row> Place<R> {
    pub const OF: usize = {
        let mut table = 0;
        while !is_same(TABLES[table], R::TABLE) {
            table += 1;
        }
        table
    };
}
