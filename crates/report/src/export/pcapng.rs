//! A capture per port of the router, for Wireshark: the packets received and sent.
//!
//! A recording keeps no bytes. So a packet in the capture is its IPv4 header and the two ports of
//! its transport header: 24 captured bytes of its real length. Addresses are those of a live run
//! (h2 is 10.0.23.2, h3 is 10.0.23.3); the port of a flow's far end is 5000 plus its number. A
//! dropped packet is in the capture of the port where it arrived, a marked packet in both. Each has
//! a comment with its fate, the instant and the reason.
//!
//! A packet leaves when it has been transmitted and the delay of its link has passed. Packets that
//! were still queued at the end of the run appear where they arrived.
//!
//! The format is pcapng ([`AnnotatedWriter`]): one interface of link type 101 (raw IP), times in
//! nanoseconds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Ecn, Time};
use sluice_wire::capture::{Annotated, AnnotatedWriter, link_type};
use sluice_wire::frame::Sum;

use super::{ExportError, write_whole};
use sluice_recording::{NO_FLOW, PacketRow, Recording};
use sluice_scenario::{Direction, FlowInstance, Pipe};

/// The ports, named after the hosts that they lead to.
pub const PORTS: [&str; 2] = ["h2", "h3"];

/// Writes the captures of both ports as `NAME-PORT.pcapng` into the folder `dir`, which must exist,
/// and returns the files.
///
/// # Errors
/// [`ExportError`]; no incomplete file is left behind.
pub fn write(recording: &Recording, dir: &Path, name: &str) -> Result<Vec<PathBuf>, ExportError> {
    let scenario = &recording.run().scenario;
    let flows: Vec<FlowInstance<'_>> = scenario.instances().collect();
    let started = epoch_ns(&recording.run().environment.started_at);
    let last = scenario.hops.len();
    let mut captures = [Vec::new(), Vec::new()];
    for row in recording.packets()? {
        let row = row?;
        let direction = row.pipe.direction();
        let link = scenario.links().nth(row.pipe.hop());
        let pipe = link
            .expect("a packet is on a link of the path")
            .pipe(direction);
        // The ports are the ends of the path. The comments say at which queue of the path a packet
        // was dropped.
        let (near, far, enters, leaves) = match direction {
            Direction::Up => (0, 1, row.pipe.hop() == 0, row.pipe.hop() == last),
            Direction::Down => (1, 0, row.pipe.hop() == last, row.pipe.hop() == 0),
        };
        let comment = comment(&row);
        let header = header(&row, flows.get(row.record.flow as usize));
        let sight = |time: Time, is_inbound, header| Sight {
            time_ns: started + time.as_ns(),
            header,
            len: row.record.len,
            is_inbound,
            comment: comment.clone(),
        };
        if enters || matches!(row.record.fate, Fate::Dropped(_)) {
            captures[near].push(sight(row.record.arrival, true, header));
        }
        if leaves && let Some(at) = departure(&row.record, pipe) {
            let header = match row.record.fate {
                Fate::Marked => with_ecn(header, Ecn::Ce),
                _ => header,
            };
            captures[far].push(sight(at, false, header));
        }
    }
    let mut files = Vec::new();
    for (port, mut capture) in PORTS.into_iter().zip(captures) {
        // Stable: packets of one instant stay in the order in which the router had them.
        capture.sort_by_key(|sight| sight.time_ns);
        let path = dir.join(format!("{name}-{port}.pcapng"));
        write_whole(&path, |out| {
            write_capture(out, port, &capture).map_err(|error| ExportError::Write {
                path: path.clone(),
                error,
            })
        })?;
        files.push(path);
    }
    Ok(files)
}

/// A packet at a port.
struct Sight {
    time_ns: u64,
    header: Header,
    len: u32,
    is_inbound: bool,
    comment: Option<String>,
}

/// The captured bytes of a packet: 20 of IPv4, 4 of its transport.
type Header = [u8; 24];

/// Returns the start of a run in nanoseconds since 1970; 0 for a time that cannot be read.
pub(super) fn epoch_ns(started_at: &str) -> u64 {
    let since = humantime::parse_rfc3339(started_at)
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the instant at which a packet reached the far end of its pipe; `None` if it did not
/// leave its queue.
fn departure(record: &PacketRecord, pipe: &Pipe) -> Option<Time> {
    if !matches!(record.fate, Fate::Sent | Fate::Marked) {
        return None;
    }
    let left = record.at.since(Time::ZERO);
    let rate = pipe.rate.at(left).unwrap_or(pipe.rate.highest());
    let transmission = rate.transmission(u64::from(record.len));
    Some(
        record
            .at
            .saturating_add(transmission)
            .saturating_add(pipe.delay.at(left)),
    )
}

fn comment(row: &PacketRow) -> Option<String> {
    let PacketRow { pipe, record } = row;
    let what = match record.fate {
        Fate::Sent | Fate::Queued => return None,
        Fate::Marked => "marked CE".to_owned(),
        Fate::Dropped(reason) => format!("dropped ({})", reason.name()),
    };
    let segments = match record.segments {
        0 | 1 => String::new(),
        n => format!(", {n} segments"),
    };
    Some(format!(
        "{what} by queue {pipe} at {:.6} s after {:.3} ms there{segments}",
        record.at.as_ns() as f64 / 1e9,
        record.sojourn().as_ms_f64(),
    ))
}

fn header(row: &PacketRow, flow: Option<&FlowInstance<'_>>) -> Header {
    let (h2, h3) = ([10, 0, 23, 2], [10, 0, 23, 3]);
    let (source, destination) = match row.pipe.direction() {
        Direction::Up => (h2, h3),
        Direction::Down => (h3, h2),
    };
    let (protocol, dscp, near, far) = match flow {
        Some(flow) => {
            let dscp = flow.flow.kind.dscp();
            let is_tcp = flow.flow.kind.tcp().is_some();
            let protocol = if is_tcp { TCP } else { UDP };
            // Both ends of 10 000 flows have ports of their own.
            let number = flow.id as u16;
            let (client, server) = (40_000 + number, 5000 + number);
            let ports = if flow.flow.direction == row.pipe.direction() {
                (client, server)
            } else {
                (server, client)
            };
            (protocol, dscp.value(), ports.0, ports.1)
        }
        None => {
            debug_assert_eq!(row.record.flow, NO_FLOW, "a flow has its number");
            (EXPERIMENT, 0, 0, 0)
        }
    };
    let mut bytes = [0; 24];
    bytes[0] = 0x45;
    bytes[1] = dscp << 2 | row.record.ecn as u8;
    // A super-packet may be longer than the field allows; Wireshark reads 0 as that (TSO).
    let total = u16::try_from(row.record.len).unwrap_or(0);
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[4..6].copy_from_slice(&(row.record.seq as u16).to_be_bytes());
    bytes[6] = 0x40;
    bytes[8] = 64;
    bytes[9] = protocol;
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    bytes[20..22].copy_from_slice(&near.to_be_bytes());
    bytes[22..24].copy_from_slice(&far.to_be_bytes());
    with_checksum(bytes)
}

fn with_ecn(mut header: Header, ecn: Ecn) -> Header {
    header[1] = header[1] & !3 | ecn as u8;
    with_checksum(header)
}

fn with_checksum(mut header: Header) -> Header {
    header[10..12].fill(0);
    let mut sum = Sum::new();
    sum.add(&header[..20]);
    let sum = sum.finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn write_capture(out: &mut impl Write, port: &str, sights: &[Sight]) -> io::Result<()> {
    let program = concat!("sluice ", env!("CARGO_PKG_VERSION"));
    let most = Header::default().len() as u32;
    let mut writer = AnnotatedWriter::new(out, program, port, link_type::RAW, most)?;
    for sight in sights {
        let captured = sight.header.len().min(sight.len as usize);
        writer.packet(&Annotated {
            time_ns: sight.time_ns,
            bytes: &sight.header[..captured],
            original_len: sight.len,
            is_inbound: sight.is_inbound,
            comment: sight.comment.as_deref(),
        })?;
    }
    Ok(())
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// RFC 3692: for experiments.
const EXPERIMENT: u8 = 253;
