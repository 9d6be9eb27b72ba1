//! The table in which the engine counts while somebody watches. Its size is fixed.

use std::net::IpAddr;

use sluice_core::event::DropReason;
use sluice_core::packet::Packet;
use sluice_core::units::{Span, Time};

use super::layout::STRIDE;
use super::runtime::Runtime;
use super::stats::REASONS;
use crate::headers::Headers;

/// A pipe, scheduler or queue of the engine, or one flow of its mask, until it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An instance of a pipe or of a scheduler.
    Link(u32),
    /// A queue of a scheduler with several queues.
    Queue(u32),
}

/// The kinds of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectName {
    /// A pipe with its FIFO.
    Pipe(u32),
    /// A scheduler on its pipe.
    Scheduler(u32),
    /// A queue of a scheduler.
    Queue(u32),
}

/// The workers have numbers of their own; in a table of all of them, the worker is in the upper bits.
const OF_WORKER: u32 = 1 << 20;

impl Place {
    /// Returns the place in the numbers of all workers.
    pub(crate) fn of_worker(self, worker: u32) -> Place {
        match self {
            Place::Link(index) => Place::Link(index + worker * OF_WORKER),
            Place::Queue(index) => Place::Queue(index + worker * OF_WORKER),
        }
    }

    /// Returns the place in the numbers of a worker, if it is one of its places.
    fn at_worker(self, worker: u32) -> Option<Place> {
        let (Place::Link(index) | Place::Queue(index)) = self;
        (index / OF_WORKER == worker).then_some(match self {
            Place::Link(index) => Place::Link(index % OF_WORKER),
            Place::Queue(index) => Place::Queue(index % OF_WORKER),
        })
    }
}

impl ObjectName {
    pub(crate) fn of_scheduler(number: u32) -> ObjectName {
        // Higher numbers are the FIFOs of pipes.
        match number {
            number if number >= STRIDE => ObjectName::Pipe(number - STRIDE),
            number => ObjectName::Scheduler(number),
        }
    }

    /// Returns the word of the command language.
    pub const fn word(self) -> &'static str {
        match self {
            ObjectName::Pipe(_) => "pipe",
            ObjectName::Scheduler(_) => "sched",
            ObjectName::Queue(_) => "queue",
        }
    }

    /// Returns the number.
    pub const fn number(self) -> u32 {
        match self {
            ObjectName::Pipe(n) | ObjectName::Scheduler(n) | ObjectName::Queue(n) => n,
        }
    }
}

/// The traffic of a pipe, a queue or a flow in one interval. A super-packet counts as its segments.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Packets that arrived, including dropped ones.
    pub arrived_packets: u64,
    /// Bytes that arrived.
    pub arrived_bytes: u64,
    /// Packets that left the queue.
    pub packets: u64,
    /// Bytes that left the queue.
    pub bytes: u64,
    /// Packets that were CE-marked.
    pub marked: u64,
    dropped: [u64; REASONS],
    /// Bytes of the packets that were dropped for any reason.
    pub dropped_bytes: u64,
    /// By how much the number of waiting packets has grown: arrivals less departures and drops, without
    /// the packets that arrived before the watch began.
    pub waiting: i64,
    /// Sojourn times of the packets that left the queue.
    pub waits: Waits,
}

impl Traffic {
    /// Returns the packets dropped for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns whether nothing happened.
    pub fn is_idle(&self) -> bool {
        self.arrived_packets == 0 && self.packets == 0 && self.dropped_total() == 0
    }

    /// Adds the traffic of another row.
    pub fn absorb(&mut self, other: &Traffic) {
        self.arrived_packets += other.arrived_packets;
        self.arrived_bytes += other.arrived_bytes;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marked += other.marked;
        for (count, more) in self.dropped.iter_mut().zip(other.dropped) {
            *count += more;
        }
        self.dropped_bytes += other.dropped_bytes;
        self.waiting += other.waiting;
        self.waits.absorb(&other.waits);
    }

    fn arrive(&mut self, packet: &Packet) {
        self.arrived_packets += u64::from(packet.segments);
        self.arrived_bytes += u64::from(packet.len);
    }

    fn discard(&mut self, packet: &Packet, reason: DropReason) {
        self.dropped[reason as usize] += u64::from(packet.segments);
        self.dropped_bytes += u64::from(packet.len);
    }

    fn leave(&mut self, packet: &Packet, sojourn: Span) {
        self.packets += u64::from(packet.segments);
        self.bytes += u64::from(packet.len);
        self.waits.add(sojourn);
    }
}

/// A histogram of sojourn times: a sixteenth of a power of two per step, from 1 us to 17 s.
#[derive(Clone, Debug)]
pub struct Waits {
    counts: Box<[u32; STEPS]>,
    total: u64,
    longest: Span,
    sum_ns: u128,
}

/// Below the first power of two there is one step.
const FIRST_POWER: u32 = 10;
const LAST_POWER: u32 = 34;
/// Steps for each power of two, as a power of two.
const FINE: u32 = 4;
const STEPS: usize = 1 + (((LAST_POWER - FIRST_POWER) as usize) << FINE);

impl Default for Waits {
    fn default() -> Self {
        Waits {
            counts: Box::new([0; STEPS]),
            total: 0,
            longest: Span::ZERO,
            sum_ns: 0,
        }
    }
}

impl Waits {
    /// Counts a packet.
    pub fn add(&mut self, span: Span) {
        let count = &mut self.counts[Self::step(span.as_ns())];
        *count = count.saturating_add(1);
        self.total += 1;
        self.longest = self.longest.max(span);
        self.sum_ns += u128::from(span.as_ns());
    }

    /// Returns the number of packets.
    pub const fn packets(&self) -> u64 {
        self.total
    }

    /// Returns the longest time.
    pub const fn longest(&self) -> Span {
        self.longest
    }

    /// Returns the sum of the times in nanoseconds.
    pub const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Adds the counts of another histogram.
    pub fn absorb(&mut self, other: &Waits) {
        if other.total == 0 {
            return;
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.sum_ns += other.sum_ns;
    }

    /// Returns the number of packets whose time is below `limit`. Exact where `limit` is a power of
    /// two nanoseconds from 2^10 to 2^34; otherwise rounded to a step.
    pub fn below(&self, limit: Span) -> u64 {
        let end = Self::step(limit.as_ns());
        let counts = &self.counts[..end];
        counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the time that `per_mille` thousandths of the packets did not exceed, interpolated
    /// within its step: at most 1/16 off. `None` without packets.
    pub fn quantile(&self, per_mille: u64) -> Option<Span> {
        if self.total == 0 {
            return None;
        }
        let wanted = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if seen + count >= wanted {
                let (low, high) = (Self::lower_end(step), Self::lower_end(step + 1));
                let inside = (high - low) as u128 * u128::from(wanted - seen) / u128::from(count);
                let at = Span::from_ns(low + inside as u64);
                return Some(at.min(self.longest));
            }
            seen += count;
        }
        Some(self.longest)
    }

    fn step(ns: u64) -> usize {
        let ns = ns.min((1 << LAST_POWER) - 1);
        if ns < 1 << FIRST_POWER {
            return 0;
        }
        let power = ns.ilog2();
        let fine = (ns >> (power - FINE)) & ((1 << FINE) - 1);
        1 + (((power - FIRST_POWER) as usize) << FINE) + fine as usize
    }

    fn lower_end(step: usize) -> u64 {
        let Some(step) = step.checked_sub(1) else {
            return 0;
        };
        let (power, fine) = ((step >> FINE) as u32, (step & ((1 << FINE) - 1)) as u64);
        ((1 << FINE) + fine) << (power + FIRST_POWER - FINE)
    }

    fn clear(&mut self) {
        if self.total > 0 {
            self.counts.fill(0);
            (self.total, self.longest, self.sum_ns) = (0, Span::ZERO, 0);
        }
    }
}

/// The identity of a flow: what its first packet of the interval said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFlow {
    /// The pipe or scheduler.
    pub object: ObjectName,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port; 0 without ports.
    pub src_port: u16,
    /// Destination port; 0 without ports.
    pub dst_port: u16,
    /// Protocol.
    pub proto: u8,
    /// Identifier of ICMP echo.
    pub icmp_id: Option<u16>,
}

/// A flow with its traffic.
#[derive(Clone, Debug)]
pub struct FlowTraffic {
    /// The flow hash.
    pub hash: u32,
    /// The flow.
    pub flow: WatchFlow,
    /// Its traffic.
    pub traffic: Traffic,
}

/// Rows for some pipes and queues, for flows, and for all others.
#[derive(Clone, Debug)]
pub struct WatchTable {
    places: Vec<Place>,
    /// Number of the places that the watcher has chosen; the others had their first packet since.
    chosen: usize,
    rows: Vec<Traffic>,
    /// Sets of [`WAYS`] flows by hash.
    flows: Vec<Option<Box<FlowTraffic>>>,
    /// Rows of earlier intervals for use again, so that packets cause no allocation.
    #[expect(clippy::vec_box, reason = "a row moves as one pointer")]
    spare: Vec<Box<FlowTraffic>>,
    /// The traffic of pipes and schedulers without a row.
    pub other: Traffic,
    /// The traffic of flows that found no room.
    pub other_flows: Traffic,
    /// The start of the watch.
    began: Time,
}

/// Largest number of places with rows.
const MOST_PLACES: usize = 512;
/// Largest number of flows in one interval.
const MOST_FLOWS: usize = 1024;
/// Flows with the same set.
const WAYS: usize = 8;
/// The row number of a place without a row.
pub(crate) const NO_ROW: u16 = 0;

impl WatchTable {
    /// Largest number of places in one table.
    pub const MOST_PLACES: usize = MOST_PLACES;

    /// Up to this number of places, an object without a row gets one with its first packet.
    pub const ROOM: usize = 128;

    /// Creates an empty table with rows for these places, the first [`WatchTable::MOST_PLACES`].
    pub fn new(places: Vec<Place>) -> WatchTable {
        let mut table = WatchTable {
            places: Vec::new(),
            chosen: 0,
            rows: Vec::new(),
            flows: vec![None; MOST_FLOWS],
            spare: Vec::new(),
            other: Traffic::default(),
            other_flows: Traffic::default(),
            began: Time::ZERO,
        };
        table.reset(places);
        table
    }

    /// Makes the table as new, for these places.
    pub fn reset(&mut self, mut places: Vec<Place>) {
        places.truncate(MOST_PLACES);
        places.reserve(Self::ROOM.saturating_sub(places.len()));
        self.places = places;
        self.chosen = self.places.len();
        // Objects that have their first packet in the interval cause no allocation.
        let rows = self.places.len().max(Self::ROOM);
        self.rows.resize_with(rows, Traffic::default);
        let used = self.flows.iter_mut().filter_map(Option::take);
        self.spare.extend(used);
        let blank = || {
            Box::new(FlowTraffic {
                hash: 0,
                flow: WatchFlow {
                    object: ObjectName::Pipe(0),
                    src: IpAddr::from([0; 4]),
                    dst: IpAddr::from([0; 4]),
                    src_port: 0,
                    dst_port: 0,
                    proto: 0,
                    icmp_id: None,
                },
                traffic: Traffic::default(),
            })
        };
        self.spare.resize_with(MOST_FLOWS, blank);
        let of_flows = self.spare.iter_mut().map(|flow| &mut flow.traffic);
        let others = [&mut self.other, &mut self.other_flows];
        for traffic in self.rows.iter_mut().chain(of_flows).chain(others) {
            traffic.waits.clear();
            let waits = std::mem::take(&mut traffic.waits);
            *traffic = Traffic {
                waits,
                ..Traffic::default()
            };
        }
    }

    /// Returns the places with rows.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the rows in the order of [`WatchTable::places`].
    pub fn rows(&self) -> &[Traffic] {
        &self.rows[..self.places.len()]
    }

    /// Returns the flows.
    pub fn flows(&self) -> impl Iterator<Item = &FlowTraffic> {
        self.flows.iter().filter_map(Option::as_deref)
    }

    /// Returns an empty table for one of several workers, with its places among those of this one.
    pub(crate) fn for_worker(&self, worker: u32) -> WatchTable {
        let places = self.places.iter();
        WatchTable::new(places.filter_map(|place| place.at_worker(worker)).collect())
    }

    /// Adds the rows of a worker, whose places become places of all workers.
    pub(crate) fn absorb(&mut self, worker: u32, other: &mut WatchTable) {
        let at = self.places.len();
        self.places
            .extend(other.places.iter().map(|place| place.of_worker(worker)));
        self.rows.truncate(at);
        self.rows
            .extend(other.rows.drain(..).take(self.places.len() - at));
        self.other.absorb(&other.other);
        self.other_flows.absorb(&other.other_flows);
        for (index, flow) in other.flows.iter_mut().enumerate() {
            let Some(flow) = flow.take() else { continue };
            let first = index / WAYS * WAYS;
            let set = &mut self.flows[first..first + WAYS];
            match set.iter_mut().find(|row| row.is_none()) {
                Some(free) => *free = Some(flow),
                None => self.other_flows.absorb(&flow.traffic),
            }
        }
    }

    /// Continues the watch of `old` in this table, or begins one at `now`.
    pub(crate) fn follow(&mut self, old: Option<&WatchTable>, now: Time) {
        self.began = old.map_or(now, |old| old.began);
    }

    /// Returns the packets of `packet` that count in [`Traffic::waiting`].
    fn counted(&self, packet: &Packet) -> i64 {
        match packet.arrival >= self.began {
            true => i64::from(packet.segments),
            false => 0,
        }
    }

    /// Returns the number of a new row for this place, if there is room. A place that has a row was
    /// that of an object which has been deleted since: the row remains that object's.
    fn claim(&mut self, place: Place) -> u16 {
        if self.places.len() >= Self::ROOM || self.places.contains(&place) {
            return NO_ROW;
        }
        self.places.push(place);
        self.places.len() as u16
    }

    /// Returns the row with this number.
    fn row(&mut self, row: u16) -> &mut Traffic {
        match usize::from(row).checked_sub(1) {
            Some(index) if index < self.rows.len() => &mut self.rows[index],
            _ => &mut self.other,
        }
    }

    /// Returns the row of a flow, which is created on its first packet.
    fn flow(&mut self, packet: &Packet, object: u32, headers: &Headers) -> &mut Traffic {
        let object = ObjectName::of_scheduler(object);
        // A keyed hash; another object uses another set.
        let mixed = packet.flow ^ object.number().wrapping_mul(0x9e37_79b1);
        let first = mixed as usize % (MOST_FLOWS / WAYS) * WAYS;
        let set = &mut self.flows[first..first + WAYS];
        let is_it = |row: &Option<Box<FlowTraffic>>| match row {
            Some(row) => row.hash == packet.flow && row.flow.object == object,
            None => true,
        };
        let Some(place) = set.iter_mut().find(|row| is_it(row)) else {
            return &mut self.other_flows;
        };
        let spare = &mut self.spare;
        let row = place.get_or_insert_with(|| {
            let mut row = spare.pop().expect("as many rows as places");
            row.hash = packet.flow;
            let ports = match headers.has_ports() {
                true => (headers.src_port, headers.dst_port),
                false => (0, 0),
            };
            row.flow = WatchFlow {
                object,
                src: headers.src,
                dst: headers.dst,
                src_port: ports.0,
                dst_port: ports.1,
                proto: headers.proto,
                icmp_id: headers.icmp_id,
            };
            row
        });
        &mut row.traffic
    }
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It arrived.
    Arrived,
    /// It waited in a queue for this long.
    Waited(Span),
    /// It left.
    Left,
    /// It was CE-marked.
    Marked,
    /// It was dropped.
    Dropped(DropReason),
}

impl WatchTable {
    /// Counts a packet of a pipe, for a host that has links but no rules. Its place is
    /// [`Place::Link`] with the number of the pipe.
    pub fn count(&mut self, pipe: u32, packet: &Packet, headers: &Headers, seen: Seen) {
        let place = Place::Link(pipe);
        let known = self.places.iter().position(|other| *other == place);
        let row = known.map_or_else(|| self.claim(place), |index| index as u16 + 1);
        let counted = self.counted(packet);
        for traffic in [0, 1] {
            let traffic = match traffic {
                0 => self.row(row),
                _ => self.flow(packet, pipe + STRIDE, headers),
            };
            match seen {
                Seen::Arrived => {
                    traffic.arrive(packet);
                    traffic.waiting += counted;
                }
                Seen::Waited(span) => traffic.waits.add(span),
                Seen::Left => {
                    traffic.waiting -= counted;
                    traffic.packets += u64::from(packet.segments);
                    traffic.bytes += u64::from(packet.len);
                }
                Seen::Marked => traffic.marked += u64::from(packet.segments),
                Seen::Dropped(reason) => {
                    traffic.discard(packet, reason);
                    traffic.waiting -= counted;
                }
            }
        }
    }
}

impl Runtime {
    /// Counts an arrival for the watcher.
    pub(super) fn watch_arrival(&mut self, packet: &Packet, instance: u32, queue: u32) {
        let record = &mut self.instances[instance as usize];
        let scheduler = self.schedulers[record.scheduler as usize].as_ref();
        let (Some(table), Some(scheduler)) = (self.watch.as_deref_mut(), scheduler) else {
            return;
        };
        if record.watch_row == NO_ROW {
            record.watch_row = table.claim(Place::Link(instance));
        }
        let queue = self.queues.get_mut(queue as usize).map(|record| {
            if record.watch_row == NO_ROW && record.flowset < STRIDE {
                record.watch_row = table.claim(Place::Queue(queue));
            }
            record.watch_row
        });
        let mut rows = Rows {
            table,
            object: scheduler.number,
            link: record.watch_row,
        };
        rows.arrive(packet, queue, &self.passages.of(packet).headers);
    }

    /// Ends the watcher's interval: returns its table, and counts in `fresh` from now on.
    pub(crate) fn exchange_watch(
        &mut self,
        mut fresh: Option<Box<WatchTable>>,
        now: Time,
    ) -> Option<Box<WatchTable>> {
        let table = self.watch.take();
        if let Some(fresh) = &mut fresh {
            fresh.follow(table.as_deref(), now);
        }
        if let (Some(old), Some(fresh)) = (&table, &mut fresh) {
            // The watcher chose the places of `fresh` before it had heard of these.
            for place in &old.places[old.chosen..] {
                fresh.claim(*place);
            }
        }
        for place in table.iter().flat_map(|table| table.places()) {
            self.set_watch_row(*place, NO_ROW);
        }
        for (place, row) in fresh.iter().flat_map(|table| table.places()).zip(1..) {
            self.set_watch_row(*place, row);
        }
        self.watch = fresh;
        table
    }

    fn set_watch_row(&mut self, place: Place, row: u16) {
        let field = match place {
            Place::Link(index) => self
                .instances
                .get_mut(index as usize)
                .map(|i| &mut i.watch_row),
            Place::Queue(index) => self
                .queues
                .get_mut(index as usize)
                .map(|q| &mut q.watch_row),
        };
        if let Some(field) = field {
            *field = row;
        }
    }
}

/// The table with the rows of one packet.
pub(crate) struct Rows<'a> {
    pub table: &'a mut WatchTable,
    pub object: u32,
    pub link: u16,
}

impl Rows<'_> {
    /// Calls `work` with each row that the packet belongs to.
    fn each(
        &mut self,
        packet: &Packet,
        queue: Option<u16>,
        headers: &Headers,
        work: impl Fn(&mut Traffic),
    ) {
        work(self.table.row(self.link));
        if let Some(queue) = queue.filter(|row| *row != NO_ROW) {
            work(self.table.row(queue));
        }
        work(self.table.flow(packet, self.object, headers));
    }

    pub fn arrive(&mut self, packet: &Packet, queue: Option<u16>, headers: &Headers) {
        let counted = self.table.counted(packet);
        self.each(packet, queue, headers, |row| {
            row.arrive(packet);
            row.waiting += counted;
        });
    }

    pub fn leave(&mut self, packet: &Packet, queue: Option<u16>, headers: &Headers, now: Time) {
        let sojourn = packet.sojourn(now);
        let counted = self.table.counted(packet);
        self.each(packet, queue, headers, |row| {
            row.leave(packet, sojourn);
            row.waiting -= counted;
        });
    }

    pub fn mark(&mut self, packet: &Packet, queue: Option<u16>, headers: &Headers) {
        let packets = u64::from(packet.segments);
        self.each(packet, queue, headers, |row| row.marked += packets);
    }

    pub fn discard(
        &mut self,
        packet: &Packet,
        reason: DropReason,
        queue: Option<u16>,
        headers: &Headers,
    ) {
        let counted = self.table.counted(packet);
        self.each(packet, queue, headers, |row| {
            row.discard(packet, reason);
            row.waiting -= counted;
        });
    }
}
