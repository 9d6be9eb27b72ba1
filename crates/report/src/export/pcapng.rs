//! Captures of the packets received and sent, for Wireshark: one per port of the router, and one
//! between consecutive links.
//!
//! A recording keeps no payload. A simulated packet has its real headers (IPv4, and TCP, UDP or
//! ICMP), as far as [`sluice_recording::Header`] contains them. A packet of a live TCP flow has
//! only its IPv4 header and two ports. Addresses are those of the flow's hosts,
//! as in a live run (the first on the side up is 10.0.23.2, on the side down 10.0.23.3); the port of a
//! flow's far end is 5000 plus its number.
//!
//! A dropped packet is in the capture of the place at which it arrived. A marked packet is also in
//! the capture of the place at which it left. Each of them has a comment with its fate, the instant
//! and the reason. Every packet has its number as `epb_packetid`, so it can be found in all
//! captures.
//!
//! A packet leaves when it has been transmitted and the delay of its link has passed. A packet that
//! was still queued at the end of the run appears only at the place at which it arrived. A recording
//! has no instant at which a packet reached the far end; it follows from those at which packets left
//! their queue (`departure.rs`). Jitter, reordering and profiles, which are drawn, are not in the
//! captures, nor are the times of pipes of rules ([`left_out`]).
//!
//! The format is pcapng ([`AnnotatedWriter`]): one interface of link type 101 (raw IP), times in
//! nanoseconds.

mod departure;
mod header;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sluice_core::record::Fate;
use sluice_core::{Ecn, Span, Time};
use sluice_wire::capture::{Annotated, AnnotatedWriter, link_type};

use super::{ExportError, write_whole};
use departure::departures;
use header::{Content, Sent};
use sluice_recording::headers::HeaderCoder;
use sluice_recording::{PacketRow, ReadError, Recording, part};
use sluice_scenario::{Direction, FlowInstance, Pipe, PipeId, Scenario};

/// Writes the captures `NAME-h2.pcapng`, `NAME-link1-link2.pcapng` and so on between links, and
/// `NAME-h3.pcapng` into the folder `dir`, which must exist, and returns the files. Only their owner can
/// read them, as other captures.
///
/// # Errors
/// [`ExportError`]; no incomplete file is left behind.
pub fn write(recording: &Recording, dir: &Path, name: &str) -> Result<Vec<PathBuf>, ExportError> {
    let scenario = &recording.run().scenario;
    let run = Run {
        rows: recording.packets()?.bounded()?.collect::<Result<_, _>>()?,
        sent: sent(recording)?,
        flows: scenario.instances().collect(),
        started: epoch_ns(&recording.run().environment.started_at),
    };
    let run = run.with_instants();
    let places = places(scenario);
    let mut captures: Vec<Vec<Sight>> = places.iter().map(|_| Vec::new()).collect();
    let ends = scenario.rules.is_some().then(|| run.ends());
    let departures = departures(scenario, &run.rows);
    let mut entries: BTreeMap<_, _> = scenario
        .pipes()
        .map(|(id, pipe)| (id, Entry::of(pipe)))
        .collect();
    for (at, row) in run.rows.iter().enumerate() {
        let entry = entries.get_mut(&row.pipe);
        let entry = entry.expect("a packet is on a link of the path");
        let hop = row.pipe.hop();
        let hops = match run.flow(row) {
            Some(flow) => scenario.hops_of(flow.flow),
            None => 0..scenario.hops.len() + 1,
        };
        let (near, far, is_last) = match row.pipe.direction() {
            Direction::Up => (hop, hop + 1, hop + 1 == hops.end),
            Direction::Down => (hop + 1, hop, hop == hops.start),
        };
        // Rules may send a packet through several pipes. Between them, the packet is still in the
        // router.
        let number = row.record.packet;
        let span = ends.as_ref().zip(number).map(|(ends, n)| ends[&n]);
        let (enters, leaves) = match span {
            Some((first, last)) => (first == at, last == at),
            None => (true, is_last),
        };
        // A duplicate was not received, because the link created it.
        let enters = enters && entry.is_original(number);
        let sight = |time: Time, is_inbound| Sight {
            time_ns: run.started + time.as_ns(),
            row: at,
            is_inbound,
        };
        if enters || matches!(row.record.fate, Fate::Dropped(_)) {
            captures[near].push(sight(row.record.arrival, true));
        }
        if leaves && let Some(time) = departures[at] {
            captures[far].push(sight(time, false));
        }
    }
    let mut files = Vec::new();
    for (place, mut capture) in places.iter().zip(captures) {
        // A host answers at the instant at which a packet reaches it, so packets that leave the
        // router come first. The sort is stable: other packets of one instant keep the order that
        // they had in the router.
        capture.sort_by_key(|sight| (sight.time_ns, sight.is_inbound));
        let path = dir.join(format!("{name}-{place}.pcapng"));
        write_whole(&path, part::OWNER, |out| {
            run.write(out, place, &capture)
                .map_err(|error| ExportError::Write {
                    path: path.clone(),
                    error,
                })
        })?;
        files.push(path);
    }
    Ok(files)
}

/// Names the effects on the instants of packets that captures leave out, for each direction of a link:
/// `jitter, reorder of up`. Pipes of rules have no times in a recording.
pub fn left_out(scenario: &Scenario) -> Vec<String> {
    if scenario.rules.is_some() {
        return vec!["transmission and delay of the pipes".to_owned()];
    }
    let of = |(id, pipe): (PipeId, &Pipe)| {
        let params = pipe.params();
        let effects = [
            (params.jitter.jitter > Span::ZERO, "jitter"),
            (params.reorder.reorder.as_billionths() > 0, "reorder"),
            (pipe.profile.is_some(), "profile"),
        ];
        let present = effects.into_iter().filter(|(is_present, _)| *is_present);
        let names: Vec<&str> = present.map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| format!("{} of {id}", names.join(", ")))
    };
    scenario.pipes().filter_map(of).collect()
}

/// Returns the names of the places along the path, from h2 to h3.
fn places(scenario: &Scenario) -> Vec<String> {
    let links = scenario.hops.len() + 1;
    let between = (1..links).map(|n| format!("link{n}-link{}", n + 1));
    let first = std::iter::once("h2".to_owned());
    first.chain(between).chain(["h3".to_owned()]).collect()
}

/// The sources of the captures.
struct Run<'a> {
    rows: Vec<PacketRow>,
    /// The packets with a recorded header, in the order of their numbers.
    sent: Vec<Sent>,
    flows: Vec<FlowInstance<'a>>,
    /// The start in nanoseconds since 1970.
    started: u64,
}

/// A packet at a place.
struct Sight {
    time_ns: u64,
    /// The index of its row.
    row: usize,
    is_inbound: bool,
}

/// Returns the start of a run in nanoseconds since 1970; 0 for a time that cannot be read.
pub(super) fn epoch_ns(started_at: &str) -> u64 {
    let since = humantime::parse_rfc3339(started_at)
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Reads the headers.
fn sent(recording: &Recording) -> Result<Vec<Sent>, ReadError> {
    let mut coder = HeaderCoder::new();
    let mut all = Vec::new();
    for row in recording.headers()?.bounded()? {
        let row = row?;
        let content = match row.probe {
            Some(probe) => Some(Content::Echo(probe)),
            None => coder.decode(&row).map(Content::Tcp),
        };
        all.extend(content.map(|content| Sent {
            packet: row.packet,
            is_from_client: row.is_from_client,
            content,
            at: Time::MAX,
        }));
    }
    Ok(all)
}

impl<'a> Run<'a> {
    /// Determines the instant at which each packet with a header was sent.
    fn with_instants(mut self) -> Self {
        for row in &self.rows {
            if let Some(place) = self.place(row) {
                let sent = &mut self.sent[place];
                sent.at = sent.at.min(row.record.arrival);
            }
        }
        self
    }

    /// Returns the index in `sent` of a row's packet.
    fn place(&self, row: &PacketRow) -> Option<usize> {
        let number = row.record.packet?;
        let found = self.sent.binary_search_by_key(&number, |sent| sent.packet);
        found.ok()
    }

    fn flow(&self, row: &PacketRow) -> Option<&FlowInstance<'a>> {
        self.flows.get(row.record.flow as usize)
    }

    /// Returns the first and the last row of each packet.
    fn ends(&self) -> BTreeMap<u64, (usize, usize)> {
        let mut ends = BTreeMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(number) = row.record.packet {
                ends.entry(number).or_insert((at, at)).1 = at;
            }
        }
        ends
    }

    fn write(&self, out: &mut impl Write, place: &str, sights: &[Sight]) -> io::Result<()> {
        let program = concat!("sluice ", env!("CARGO_PKG_VERSION"));
        let most = header::MOST as u32;
        let mut writer = AnnotatedWriter::new(out, program, place, link_type::RAW, most)?;
        let mut bytes = Vec::with_capacity(header::MOST);
        for sight in sights {
            let row = &self.rows[sight.row];
            let is_marked = row.record.fate == Fate::Marked && !sight.is_inbound;
            let ecn = if is_marked { Ecn::Ce } else { row.record.ecn };
            let sent = self.place(row).map(|place| &self.sent[place]);
            header::write(row, ecn, self.flow(row), sent, &mut bytes);
            let captured = bytes.len().min(row.record.len as usize);
            writer.packet(&Annotated {
                time_ns: sight.time_ns,
                bytes: &bytes[..captured],
                original_len: row.record.len,
                is_inbound: sight.is_inbound,
                number: row.record.packet,
                comment: comment(row).as_deref(),
            })?;
        }
        Ok(())
    }
}

/// The entry of a link, which may make duplicates of packets.
struct Entry {
    /// The packets that have arrived, if it does.
    arrived: Option<BTreeSet<u64>>,
}

impl Entry {
    fn of(pipe: &Pipe) -> Self {
        let copies = pipe.params().duplicate.duplicate.as_billionths() > 0;
        Entry {
            arrived: copies.then(BTreeSet::new),
        }
    }

    /// Whether this is the packet's first row on the link.
    fn is_original(&mut self, number: Option<u64>) -> bool {
        match (&mut self.arrived, number) {
            (Some(arrived), Some(number)) => arrived.insert(number),
            _ => true,
        }
    }
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
    let number = record.packet.map(|n| format!(", packet {n}"));
    Some(format!(
        "{what} by queue {pipe} at {:.6} s after {:.3} ms there{segments}{}",
        record.at.as_ns() as f64 / 1e9,
        record.sojourn().as_ms_f64(),
        number.unwrap_or_default(),
    ))
}
