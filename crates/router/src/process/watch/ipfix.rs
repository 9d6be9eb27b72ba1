//! Records of flows as IPFIX messages.
//!
//! References: RFC 7011 (messages, section 3; UDP, section 10.3), RFC 7012 and IANA's registry "IPFIX
//! Information Elements" (numbers and types), RFC 5102 section 5.11.3 (flowEndReason).
//!
//! Marks, reasons of drops and sojourn times have no element in the registry. They would be
//! enterprise-specific (RFC 7011 section 3.2) and need a private enterprise number from IANA, which
//! Sluice does not have, so they are left out.

use std::net::IpAddr;

use sluice_ipfw::watch::ObjectName;

use super::flows::{FlowEnd, FlowRecord};

/// Encodes the records of one exporting process for one collector.
#[derive(Debug)]
pub struct Ipfix {
    /// Records in all messages before.
    sequence: u32,
    most_bytes: usize,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number of its data records.
    pub records: u64,
}

/// An element: its number in IANA's registry, and the bytes of its values.
type Element = (u16, u16);

/// The elements of a kind of record.
struct Template {
    id: u16,
    elements: &'static [Element],
}

const OCTETS: u16 = 1;
const PACKETS: u16 = 2;
const PROTOCOL: u16 = 4;
const SOURCE_PORT: u16 = 7;
const SOURCE_V4: u16 = 8;
const DESTINATION_PORT: u16 = 11;
const DESTINATION_V4: u16 = 12;
const POST_OCTETS: u16 = 23;
const POST_PACKETS: u16 = 24;
const SOURCE_V6: u16 = 27;
const DESTINATION_V6: u16 = 28;
const DROPPED_OCTETS: u16 = 132;
const DROPPED_PACKETS: u16 = 133;
const END_REASON: u16 = 136;
const OBSERVATION_POINT: u16 = 138;
const START_MS: u16 = 152;
const END_MS: u16 = 153;

/// What all records have, in a template of its own for flows without addresses.
macro_rules! with_counts {
    ($id:literal $(, $more:expr)*) => {
        Template {
            id: $id,
            elements: &[
                $($more,)*
                (START_MS, 8),
                (END_MS, 8),
                (END_REASON, 1),
                // Fewer bytes than the type has: RFC 7011 section 6.2.
                (OBSERVATION_POINT, 4),
                (PACKETS, 8),
                (OCTETS, 8),
                (POST_PACKETS, 8),
                (POST_OCTETS, 8),
                (DROPPED_PACKETS, 8),
                (DROPPED_OCTETS, 8),
            ],
        }
    };
}

/// Template identifiers begin with 256.
const V4: Template = with_counts!(
    256,
    (SOURCE_V4, 4),
    (DESTINATION_V4, 4),
    (SOURCE_PORT, 2),
    (DESTINATION_PORT, 2),
    (PROTOCOL, 1)
);
const V6: Template = with_counts!(
    257,
    (SOURCE_V6, 16),
    (DESTINATION_V6, 16),
    (SOURCE_PORT, 2),
    (DESTINATION_PORT, 2),
    (PROTOCOL, 1)
);
const OTHER: Template = with_counts!(258);
const TEMPLATES: [&Template; 3] = [&V4, &V6, &OTHER];

const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const MESSAGE_HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// All records are of one observation domain: the router.
const DOMAIN: u32 = 1;
/// Schedulers have the numbers of pipes; added to theirs.
const SCHEDULERS: u32 = 1 << 16;
const QUEUES: u32 = 1 << 17;

impl Ipfix {
    /// Creates an encoder of messages of at most `most_bytes`, which must have room for the templates:
    /// 256 bytes.
    pub const fn new(most_bytes: usize) -> Ipfix {
        Ipfix {
            sequence: 0,
            most_bytes,
        }
    }

    /// Returns a message with all templates, at `unix_s` seconds since the Unix epoch.
    pub fn templates(&self, unix_s: u32) -> Message {
        let mut bytes = header(unix_s, self.sequence);
        let start = begin_set(&mut bytes, TEMPLATE_SET);
        for template in TEMPLATES {
            bytes.extend(template.id.to_be_bytes());
            bytes.extend((template.elements.len() as u16).to_be_bytes());
            for (number, length) in template.elements {
                bytes.extend(number.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
        }
        end_set(&mut bytes, start);
        debug_assert!(bytes.len() <= self.most_bytes);
        finish(bytes, 0)
    }

    /// Returns messages with these records.
    pub fn messages(&mut self, records: &[FlowRecord], unix_s: u32) -> Vec<Message> {
        let mut messages = Vec::new();
        for template in TEMPLATES {
            let fits = |record: &&FlowRecord| template_of(record).id == template.id;
            let own: Vec<&FlowRecord> = records.iter().filter(fits).collect();
            let room = (self.most_bytes - MESSAGE_HEADER - SET_HEADER) / template.length();
            for some in own.chunks(room.max(1)) {
                let mut bytes = header(unix_s, self.sequence);
                let start = begin_set(&mut bytes, template.id);
                for record in some {
                    template.write(record, &mut bytes);
                }
                end_set(&mut bytes, start);
                // Also for messages that are lost: their collector then sees a gap.
                self.sequence = self.sequence.wrapping_add(some.len() as u32);
                messages.push(finish(bytes, some.len() as u64));
            }
        }
        messages
    }
}

impl Template {
    fn length(&self) -> usize {
        let lengths = self.elements.iter().map(|(_, length)| usize::from(*length));
        lengths.sum()
    }

    fn write(&self, record: &FlowRecord, bytes: &mut Vec<u8>) {
        for (number, length) in self.elements {
            match *number {
                SOURCE_V4 | SOURCE_V6 => write_address(record.src, bytes),
                DESTINATION_V4 | DESTINATION_V6 => write_address(record.dst, bytes),
                number => {
                    let value = value(record, number).to_be_bytes();
                    bytes.extend(&value[value.len() - usize::from(*length)..]);
                }
            }
        }
    }
}

fn template_of(record: &FlowRecord) -> &'static Template {
    match (record.src, record.dst) {
        (Some(IpAddr::V4(_)), Some(IpAddr::V4(_))) => &V4,
        (Some(IpAddr::V6(_)), Some(IpAddr::V6(_))) => &V6,
        _ => &OTHER,
    }
}

fn write_address(address: Option<IpAddr>, bytes: &mut Vec<u8>) {
    match address.expect("its template has addresses") {
        IpAddr::V4(address) => bytes.extend(address.octets()),
        IpAddr::V6(address) => bytes.extend(address.octets()),
    }
}

fn value(record: &FlowRecord, number: u16) -> u64 {
    match number {
        OCTETS => record.arrived_bytes,
        PACKETS => record.arrived_packets,
        PROTOCOL => u64::from(record.proto),
        SOURCE_PORT => u64::from(record.src_port),
        DESTINATION_PORT => u64::from(record.dst_port),
        POST_OCTETS => record.bytes,
        POST_PACKETS => record.packets,
        DROPPED_OCTETS => record.dropped_bytes,
        DROPPED_PACKETS => record.dropped.values().sum(),
        END_REASON => u64::from(end_reason(record.reason)),
        OBSERVATION_POINT => u64::from(record.place.map_or(0, observation_point)),
        START_MS => record.first_unix_ms,
        END_MS => record.last_unix_ms,
        _ => unreachable!("every element of a template has a value"),
    }
}

fn end_reason(reason: FlowEnd) -> u8 {
    match reason {
        FlowEnd::IdleTimeout => 1,
        FlowEnd::ActiveTimeout => 2,
        FlowEnd::ForcedEnd => 4,
        FlowEnd::LackOfResources => 5,
    }
}

fn observation_point(object: ObjectName) -> u32 {
    match object {
        ObjectName::Pipe(number) => number,
        ObjectName::Scheduler(number) => SCHEDULERS + number,
        ObjectName::Queue(number) => QUEUES + number,
    }
}

fn header(unix_s: u32, sequence: u32) -> Vec<u8> {
    let mut bytes = VERSION.to_be_bytes().to_vec();
    // The length follows.
    bytes.extend([0, 0]);
    bytes.extend(unix_s.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(DOMAIN.to_be_bytes());
    bytes
}

fn finish(mut bytes: Vec<u8>, records: u64) -> Message {
    let length = u16::try_from(bytes.len()).expect("messages are shorter than 64 KiB");
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    Message { bytes, records }
}

/// Begins a set, and returns where.
fn begin_set(bytes: &mut Vec<u8>, id: u16) -> usize {
    let start = bytes.len();
    bytes.extend(id.to_be_bytes());
    bytes.extend([0, 0]);
    start
}

fn end_set(bytes: &mut [u8], start: usize) {
    let length = (bytes.len() - start) as u16;
    bytes[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn record(src: Option<&str>, dst: Option<&str>, packets: u64) -> FlowRecord {
        FlowRecord {
            first_unix_ms: 1_700_000_000_123,
            last_unix_ms: 1_700_000_005_123,
            reason: FlowEnd::ForcedEnd,
            object: "pipe 7".into(),
            place: Some(ObjectName::Pipe(7)),
            src: src.map(|address| address.parse().unwrap()),
            src_port: 40_000,
            dst: dst.map(|address| address.parse().unwrap()),
            dst_port: 443,
            proto: 17,
            arrived_packets: packets,
            arrived_bytes: packets * 1000,
            packets: packets - 3,
            bytes: (packets - 3) * 1000,
            marked: 1,
            dropped: [("overflow".to_owned(), 2), ("congestion".to_owned(), 1)].into(),
            dropped_bytes: 3000,
            sojourn: None,
        }
    }

    /// Reads a message as RFC 7011 section 3 describes it: export time, sequence number, and the
    /// records as values by element.
    fn read(
        bytes: &[u8],
        templates: &mut BTreeMap<u16, Vec<(u16, usize)>>,
    ) -> (u32, u32, Vec<BTreeMap<u16, Vec<u8>>>) {
        let u16_at = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
        let u32_at = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(u16_at(0), 10, "version");
        assert_eq!(usize::from(u16_at(2)), bytes.len());
        assert_eq!(u32_at(12), 1, "observation domain");
        let mut records = Vec::new();
        let mut set = 16;
        while set < bytes.len() {
            let (id, end) = (u16_at(set), set + usize::from(u16_at(set + 2)));
            let mut at = set + 4;
            while at < end {
                if id == 2 {
                    let (template, count) = (u16_at(at), u16_at(at + 2));
                    at += 4;
                    let mut elements = Vec::new();
                    for _ in 0..count {
                        assert_eq!(u16_at(at) & 0x8000, 0, "no enterprise element");
                        elements.push((u16_at(at), usize::from(u16_at(at + 2))));
                        at += 4;
                    }
                    templates.insert(template, elements);
                } else {
                    let mut record = BTreeMap::new();
                    for (element, length) in &templates[&id] {
                        record.insert(*element, bytes[at..at + length].to_vec());
                        at += length;
                    }
                    records.push(record);
                }
            }
            assert_eq!(at, end, "a set ends with a record");
            set = end;
        }
        (u32_at(4), u32_at(8), records)
    }

    fn number(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    #[test]
    fn a_collector_reads_every_value_by_the_templates() {
        let mut encoder = Ipfix::new(464);
        let mut templates = BTreeMap::new();
        let (time, sequence, none) = read(&encoder.templates(5).bytes, &mut templates);
        assert_eq!((time, sequence, none.len(), templates.len()), (5, 0, 0, 3));
        let records = [
            record(Some("10.0.0.1"), Some("10.0.0.2"), 10),
            record(Some("2001:db8::1"), Some("2001:db8::2"), 20),
            record(None, None, 30),
        ];
        let messages = encoder.messages(&records, 6);
        let read = |message: &Message| read(&message.bytes, &mut templates.clone());
        let all: Vec<_> = messages.iter().map(read).collect();
        let sequences: Vec<u32> = all.iter().map(|(_, sequence, _)| *sequence).collect();
        assert_eq!(sequences, [0, 1, 2]);
        let flat: Vec<_> = all
            .into_iter()
            .flat_map(|(_, _, records)| records)
            .collect();
        // IANA: sourceIPv4Address 8, destinationIPv4Address 12, sourceIPv6Address 27.
        assert_eq!(flat[0][&8], [10, 0, 0, 1]);
        assert_eq!(flat[0][&12], [10, 0, 0, 2]);
        assert_eq!(flat[1][&27][..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert!(!flat[2].contains_key(&8) && !flat[2].contains_key(&27));
        for (record, packets) in flat.iter().zip([10, 20, 30]) {
            let value = |element: u16| number(&record[&element]);
            // packetDeltaCount, octetDeltaCount, postPacketDeltaCount, postOctetDeltaCount.
            assert_eq!([value(2), value(1)], [packets, packets * 1000]);
            assert_eq!([value(24), value(23)], [packets - 3, (packets - 3) * 1000]);
            // droppedPacketDeltaCount, droppedOctetDeltaCount.
            assert_eq!([value(133), value(132)], [3, 3000]);
            // flowStartMilliseconds, flowEndMilliseconds; flowEndReason: 4 is forced end.
            assert_eq!(
                [value(152), value(153)],
                [1_700_000_000_123, 1_700_000_005_123]
            );
            assert_eq!([value(136), value(138)], [4, 7]);
        }
        // sourceTransportPort, destinationTransportPort, protocolIdentifier.
        let value = |element: u16| number(&flat[0][&element]);
        assert_eq!([value(7), value(11), value(4)], [40_000, 443, 17]);
    }

    #[test]
    fn messages_are_as_long_as_they_may_be_and_number_their_records() {
        let mut encoder = Ipfix::new(464);
        let record = record(Some("10.0.0.1"), Some("10.0.0.2"), 10);
        let records = vec![record; 11];
        // 13 bytes of addresses, ports and protocol, 21 of times, reason and place, 48 of counts:
        // 82 bytes each, so that five fit behind 20 bytes of headers.
        let messages = encoder.messages(&records, 1);
        let shape = |message: &Message| (message.bytes.len(), message.records);
        let shapes: Vec<_> = messages.iter().map(shape).collect();
        assert_eq!(shapes, [(430, 5), (430, 5), (102, 1)]);
        let next = encoder.templates(2);
        // Template messages carry the number of the records before them, and add none.
        assert_eq!(next.bytes[8..12], 11_u32.to_be_bytes());
        assert_eq!(next.records, 0);
        assert!(next.bytes.len() <= 464, "{}", next.bytes.len());
        assert_eq!(
            encoder.messages(&records[..1], 3)[0].bytes[8..12],
            [0, 0, 0, 11]
        );
    }
}
