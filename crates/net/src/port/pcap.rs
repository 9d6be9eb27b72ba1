//! Captures as ports: frames arrive from one file and are written to another.
//!
//! Frames arrive with the spacing of the input file, and each transmitted frame is written with the
//! time at which it left, on the same clock: a frame recorded at `r` arrives `r` minus the origin
//! after the start, and its time in the output is later by exactly its delay.
//!
//! There are two speeds. *Recorded*: in real time, each frame at its own time and with its exact
//! arrival ([`Pool::arrival`]), however late the loop wakes up. *Full*: without waiting. If all
//! ports are files, the router keeps the time itself ([`Playback::next_arrival`],
//! [`Playback::set_time`]), so its output is that of an exact router, the same on every machine.
//! Next to a port on an interface, frames arrive as fast as the loop receives them.
//!
//! Limitations: a port sends only whole packets, so a capture with cut packets is refused when it
//! is opened, as are link types other than Ethernet and raw IP, and files with several link types.
//! This takes one pass over the file in advance. Super-packets are split when they are written, and
//! partial checksums are completed.
//!
//! The output is written by a thread of its own: a slow disk delays no packet. Next to a port on an
//! interface, frames for which it has no room are lost and counted. Frames that wait count as sent,
//! so that this counter does not go down before the end ([`Port::release`]). Then, those that are not in
//! the file count as lost instead.

mod behind;
mod create;
mod scan;
mod spec;

pub use create::{append_privately, create_capture};
pub use scan::{PcapError, Scan};
pub use spec::{PcapSpec, PcapSpecError, Speed, check_apart};

use super::registry::{Kind, Named, OpenError, Opened, Playback, PortSpecError, Role, Site};
use super::{Capabilities, Counters, LONGEST, Loss, Pool, Port, Promiscuity, Slot};
use crate::clock::Clock;
use crate::sys;
use behind::{Behind, FINISH_WITHIN};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use scan::{open, read_error, scan};
use sluice_core::{Span, Time};
use sluice_wire::capture::{ReadError, Reader, Record, Writer, link_type};
use sluice_wire::frame::{Checksums, Gather, Link, SuperPacket, VnetHeader, parse_head};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A capture that is played, and one that is written.
pub struct PcapPort {
    name: String,
    link: Link,
    input: Option<Input>,
    output: Option<Output>,
    speed: Speed,
    scan: Scan,
    timer: OwnedFd,
    clock: Clock,
    /// The router's time, if the router keeps it.
    time: Option<Time>,
    /// Returns the reading of the files' clock at a time of the router's clock.
    origin: (i128, Time),
    counters: Counters,
}

struct Input {
    reader: Reader<File>,
    /// The next packet.
    record: Record,
    bytes: Vec<u8>,
    /// The number of packets that were read.
    read: u64,
}

struct Output {
    writer: Writer<Behind>,
    /// Whether packets may wait for the disk, because the router keeps the time.
    can_wait: bool,
    /// The buffer of a segment before it goes to the file.
    segment: Box<[u8]>,
}

impl PcapPort {
    /// Opens the files: scans the input once and creates the output. The time of the first packet
    /// is now; [`Playback::begin`] changes that. `link` is the header that frames must start with,
    /// if that is known; otherwise the input determines it, and without packets it is Ethernet.
    ///
    /// # Errors
    /// A file cannot be opened, or the input has packets that cannot be sent.
    pub fn open(spec: &PcapSpec, link: Option<Link>, clock: Clock) -> Result<PcapPort, PcapError> {
        spec::check_apart(std::slice::from_ref(spec))?;
        let scan = match &spec.input {
            Some(path) => scan(path)?,
            None => Scan::default(),
        };
        if let (Some(path), Some(holds), Some(wanted)) = (&spec.input, scan.link, link)
            && holds != wanted
        {
            let path = path.clone();
            return Err(PcapError::Link {
                path,
                holds,
                wanted,
            });
        }
        let link = link.or(scan.link).unwrap_or(Link::Ethernet);
        let input = match &spec.input {
            Some(path) => Input::first(path)?,
            None => None,
        };
        let output = match &spec.output {
            Some(path) => Some(Output::create(path, link)?),
            None => None,
        };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(|error| PcapError::Timer(error.into()))?;
        let now_ns = i128::from(sys::clock_ns(libc::CLOCK_REALTIME));
        let port = PcapPort {
            name: format!("pcap:{spec}"),
            link,
            input,
            output,
            speed: spec.speed,
            origin: (scan.first_ns.unwrap_or(now_ns), clock.now()),
            scan,
            timer,
            clock,
            time: None,
            counters: Counters::default(),
        };
        port.arm();
        Ok(port)
    }

    /// Returns the result of scanning the input.
    pub const fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Returns warnings about the input.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.scan.is_truncated {
            remarks.push(format!(
                "{}: the file ends inside packet {}, which is not sent",
                self.name,
                self.scan.packets + 1
            ));
        }
        if self.scan.backwards > 0 {
            remarks.push(format!(
                "{}: packets with an earlier time than the packet before them: {}; they arrive together \
                 with it",
                self.name, self.scan.backwards
            ));
        }
        remarks
    }

    fn now(&self) -> Time {
        self.time.unwrap_or_else(|| self.clock.now())
    }

    /// Makes the descriptor readable when the next packet arrives.
    fn arm(&self) {
        let at_ns = match (self.next_arrival(), self.speed) {
            (None, _) => 0,
            (Some(_), Speed::Full) => 1,
            (Some(due), Speed::Recorded) => self.clock.monotonic_ns(due).max(1),
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let at = Timespec {
            tv_sec: (at_ns / 1_000_000_000) as i64,
            tv_nsec: (at_ns % 1_000_000_000) as i64,
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: at,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .expect("a timer takes every valid time");
    }

    /// Puts the next packet into `pool`, and reads the one after it.
    fn take(&mut self, pool: &mut Pool, arrival: Option<Time>) -> Result<Slot, Loss> {
        let input = self.input.as_mut().expect("a packet is due");
        let stored = store(pool, &input.bytes);
        if let (Ok(slot), Some(arrival)) = (stored, arrival) {
            pool.set_arrival(slot, arrival);
        }
        let before = input.record.time_ns;
        match input.reader.read(&mut input.bytes) {
            Ok(Some(record)) => {
                // Arrival times do not decrease.
                let time_ns = record.time_ns.max(before);
                input.record = Record { time_ns, ..record };
                input.read += 1;
            }
            // A damaged end was reported when the file was opened, and is not among the packets.
            Ok(None) | Err(_) => {
                let unread = self.scan.packets.saturating_sub(input.read);
                self.counters.lose(Loss::Refused, unread);
                self.input = None;
            }
        }
        stored
    }
}

impl Port for PcapPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            super_packets: false,
            partial_checksums: false,
            batch: BATCH,
            mtu: MTU,
            kernel_queue: 0,
        }
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        let before = into.len();
        // A router that keeps the time calls this once for each arrival time, however many frames
        // arrive then.
        let most = if self.time.is_some() {
            usize::MAX
        } else {
            BATCH
        };
        let is_flood = self.speed == Speed::Full && self.time.is_none();
        let mut taken = 0;
        while taken < most
            && let Some(due) = self.next_arrival()
        {
            if is_flood {
                // Files can wait, so no frame becomes late.
                if pool.available() == 0 {
                    break;
                }
            } else if due > self.now() {
                break;
            }
            taken += 1;
            match self.take(pool, (!is_flood).then_some(due)) {
                Ok(slot) => {
                    self.counters.received += 1;
                    self.counters.received_bytes += pool.frame_len(slot) as u64;
                    into.push(slot);
                }
                Err(loss) => self.counters.lose(loss, 1),
            }
        }
        if taken > 0 && self.time.is_none() {
            self.arm();
        }
        into.len() - before
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        let time_ns =
            self.origin.0 + i128::from(self.now().as_ns()) - i128::from(self.origin.1.as_ns());
        for slot in slots {
            let length = pool.frame_len(*slot);
            let written = match &mut self.output {
                Some(output) => {
                    output.can_wait = self.time.is_some();
                    output.write(pool, *slot, self.link, time_ns)
                }
                None => Err(Loss::NoFile),
            };
            match written {
                Ok(()) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += length as u64;
                }
                Err(loss) => self.counters.lose(loss, 1),
            }
            pool.free(*slot);
        }
        slots.len()
    }

    fn counters(&mut self) -> Counters {
        self.counters
    }

    fn release(&mut self, _pool: &mut Pool) {
        if let Some(output) = &mut self.output {
            let patience = (!output.can_wait).then_some(FINISH_WITHIN);
            let lost = output.writer.get_mut().finish(patience);
            self.counters.sent -= lost.frames;
            self.counters.sent_bytes -= lost.bytes;
            self.counters.lose(Loss::Refused, lost.frames);
        }
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        Some(self)
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn looks_within(&self) -> Option<Span> {
        None
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> Promiscuity {
        Promiscuity::NotAsked
    }
}

impl Playback for PcapPort {
    fn first_ns(&self) -> Option<i128> {
        self.scan.first_ns
    }

    fn speed(&self) -> Speed {
        self.speed
    }

    fn begin(&mut self, file_ns: i128, at: Time) {
        self.origin = (file_ns, at);
        self.arm();
    }

    fn next_arrival(&self) -> Option<Time> {
        let input = self.input.as_ref()?;
        let after = input.record.time_ns - self.origin.0;
        Some(match u64::try_from(after) {
            Ok(after) => self.origin.1.saturating_add(Span::from_ns(after)),
            Err(_) => self.origin.1,
        })
    }

    fn set_time(&mut self, now: Time) {
        self.time = Some(now);
    }

    fn has_room(&self) -> bool {
        let output = self.output.as_ref();
        output.is_none_or(|output| output.writer.get_ref().has_room())
    }

    fn write_error(&self) -> Option<String> {
        self.output.as_ref()?.writer.get_ref().refusal()
    }
}

/// `pcap:IN:OUT`.
pub static KIND: Kind = Kind {
    name: "pcap",
    argument: "IN:OUT",
    doc: "files",
    super_packets: Some("split when written"),
    arrivals: "the timestamps of the file",
    needs: "nothing",
    in_user_namespace: true,
    parse: Some(|text| match text.parse::<PcapSpec>() {
        Ok(files) => Ok(Arc::new(files)),
        Err(error) => Err(PortSpecError::Argument(error.to_string())),
    }),
    role: Role::Files,
};

impl Named for PcapSpec {
    fn interface(&self, number: usize) -> String {
        format!("pcap{number}")
    }

    fn link(&self) -> Result<Option<Link>, OpenError> {
        Ok(self.first_link()?)
    }

    fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError> {
        let port = PcapPort::open(self, site.link, site.clock)?;
        Ok(Opened {
            kind: &KIND,
            reason: "captures".to_owned(),
            cannot: Vec::new(),
            remarks: port.remarks(),
            port: Box::new(port),
        })
    }
}

impl AsFd for PcapPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl Input {
    /// Opens a file that was scanned. Returns `None` if it has no packets.
    fn first(path: &Path) -> Result<Option<Input>, PcapError> {
        let mut reader = open(path)?;
        let mut bytes = Vec::new();
        let record = match reader.read(&mut bytes) {
            // The scan has reported the cut packet.
            Err(ReadError::Truncated) => None,
            record => record.map_err(|error| read_error(path, 1, error))?,
        };
        Ok(record.map(|record| Input {
            reader,
            record,
            bytes,
            read: 1,
        }))
    }
}

impl Output {
    fn create(path: &Path, link: Link) -> Result<Output, PcapError> {
        let fail = |source| PcapError::Create {
            path: path.to_owned(),
            source,
        };
        let file = create_capture(path).map_err(fail)?;
        let link = match link {
            Link::Ethernet => link_type::ETHERNET,
            Link::Ip => link_type::RAW,
        };
        let behind = Behind::start(file).map_err(fail)?;
        let mut writer = Writer::new(behind, link).map_err(fail)?;
        writer.get_mut().end_header();
        Ok(Output {
            writer,
            can_wait: false,
            segment: vec![0; LONGEST].into(),
        })
    }

    fn write(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        link: Link,
        time_ns: i128,
    ) -> Result<(), Loss> {
        if !self.writer.get_mut().make_room(self.can_wait) {
            return Err(Loss::Refused);
        }
        let view = parse_head(pool.head(slot), pool.frame_len(slot), link);
        if let Ok(whole) = SuperPacket::new(&view, &pool.vnet(slot)) {
            let gather = Gather {
                head: pool.head(slot),
                tail: pool.tail(slot),
            };
            for index in 0..whole.segments() {
                let written =
                    whole.write_segment(index, gather, Checksums::Complete, &mut self.segment);
                let (length, _) = written.ok_or(Loss::Offload)?;
                let bytes = &self.segment[..length as usize];
                packet(&mut self.writer, time_ns, [bytes, &[]])?;
            }
        } else {
            pool.complete_checksum(slot);
            let parts = [pool.head(slot), pool.tail(slot)];
            packet(&mut self.writer, time_ns, parts)?;
        }
        let length = pool.frame_len(slot) as u64;
        self.writer.get_mut().end_frame(length);
        Ok(())
    }
}

fn packet(writer: &mut Writer<Behind>, time_ns: i128, parts: [&[u8]; 2]) -> Result<(), Loss> {
    let length = parts[0].len() + parts[1].len();
    writer
        .packet(time_ns, parts, length as u32)
        .map_err(|_| Loss::Refused)
}

/// Puts a frame into the pool.
fn store(pool: &mut Pool, bytes: &[u8]) -> Result<Slot, Loss> {
    if bytes.len() > LONGEST {
        return Err(Loss::Oversize);
    }
    let slot = pool.store(bytes)?;
    pool.set_vnet(slot, VnetHeader::default());
    Ok(slot)
}

/// Most frames of one [`Port::receive`] in real time.
const BATCH: usize = 64;
/// A file accepts every packet.
const MTU: u32 = 65_535;

#[cfg(test)]
mod tests;
