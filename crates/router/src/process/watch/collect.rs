//! Evaluates the tables of the packet loop.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_core::event::StateValue;
use sluice_core::{DropReason, Time};
use sluice_ipfw::show::FlowState;
use sluice_ipfw::watch::{
    Detail, FlowTraffic, ObjectName, Place, Tally, Traffic, Waits, WatchTable, Watching,
};

use super::rtt::RttWindows;
use super::sample::end;
use super::{
    FlowSample, LatenessSample, ObjectSample, PortSample, Sample, Sojourn, SojournCounts,
    TotalTraffic, TrafficSample,
};
use crate::control::{Change, Watched};
use crate::forward::Lateness;
use crate::process::{PortStatus, Status};

/// The state between two exchanges.
#[derive(Default)]
pub(super) struct Collector {
    /// A table to use again.
    spare: Option<Box<WatchTable>>,
    /// The places of the next table.
    places: Vec<Place>,
    /// Bytes and drops by place, at the last exchange.
    tallies: HashMap<Place, (u64, u64)>,
    /// The last exchange.
    last: Option<Last>,
    /// Packets that wait, by flow hash and object.
    held: HashMap<(u32, ObjectName), Held>,
    /// Round-trip times.
    rtt: RttWindows,
    /// The traffic of all pipes and schedulers since the watch began.
    all: TotalTraffic,
    /// Sojourn times of objects, also of some that have no row now.
    sojourn: HashMap<Identity, Kept>,
}

/// An object at its place, with its flow: the place of a flow that was forgotten may become that of
/// another flow of the same mask.
type Identity = (Place, ObjectName, Option<String>);

/// The sojourn times of an object in the intervals in which it had a row.
#[derive(Default)]
struct Kept {
    counts: SojournCounts,
    /// The number of the last sample that has the object.
    seen: u64,
}

struct Last {
    at: Time,
    status: Status,
    lateness: Lateness,
    exchanges: u32,
}

#[derive(Default)]
struct Held {
    packets: u64,
    idle: u32,
}

/// Largest number of pipes and queues with rows.
const MOST_OBJECTS: usize = WatchTable::ROOM;
/// Of these, if there are more objects, those that are chosen by traffic, by drops and by backlog. The
/// others are for objects that are wanted even while they are idle.
const BUSIEST: [usize; 3] = [48, 32, 32];
/// Largest number of objects whose sojourn times are kept: about 1 MB.
const MOST_KEPT: usize = 4096;
/// Largest number of flows in a sample.
const MOST_FLOWS: usize = 64;
/// Of these, flows that are chosen by their drops.
const BY_DROPS: usize = 16;
/// Intervals without a packet after which a flow is forgotten.
const FORGET: u32 = 30;

impl Collector {
    /// Returns the next exchange.
    pub fn begin(&mut self) -> Watching {
        let places = self.places.clone();
        let table = match self.spare.take() {
            Some(mut table) => {
                table.reset(places);
                table
            }
            None => Box::new(WatchTable::new(places)),
        };
        Watching::new(Some(table))
    }

    /// Returns whether the loop counts in rows for the places that exist.
    pub fn has_begun(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.exchanges > 1)
    }

    /// Returns the table of the last sample, until the next exchange.
    pub fn table(&self) -> Option<&WatchTable> {
        self.spare.as_deref()
    }

    /// Returns the number of objects whose sojourn times are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.sojourn.len()
    }

    /// Evaluates an exchange. The first two give no sample: the first finds the places, the second
    /// starts to count.
    pub fn evaluate(
        &mut self,
        watched: Watched<Status>,
        number: u64,
        (changes, changes_total): (Vec<Change>, u64),
    ) -> Option<Sample> {
        let Watched {
            watching,
            status,
            lateness,
            rtt,
        } = watched;
        // Also those from before the first sample.
        let rtt = rtt.map(|counts| self.rtt.absorb(&counts));
        self.choose(&watching.tallies);
        let last = self.last.take();
        let exchanges = last.as_ref().map_or(0, |last| last.exchanges);
        self.last = Some(Last {
            at: watching.at,
            status: status.clone(),
            lateness,
            exchanges: exchanges.saturating_add(1),
        });
        let (Some(last), Some(table)) = (last, watching.table) else {
            return None;
        };
        let interval_ns = watching.at.since(last.at).as_ns().max(1);
        if exchanges < 2 {
            // Counts the packets that wait.
            self.flows(&table, interval_ns);
            self.spare = Some(table);
            return None;
        }
        let rows: BTreeMap<Place, &Traffic> =
            table.places().iter().copied().zip(table.rows()).collect();
        let mut objects: Vec<(ObjectName, ObjectSample)> = Vec::new();
        for detail in &watching.details {
            if let Some(traffic) = rows.get(&detail.place) {
                let mut row = object(detail, traffic, watching.at, interval_ns);
                let key = (detail.place, detail.object, row.flow.clone());
                let kept = self.sojourn.entry(key).or_default();
                kept.seen = number;
                kept.counts.absorb(&traffic.waits);
                row.total_sojourn = kept.counts.clone();
                objects.push((detail.object, row));
            }
        }
        self.forget(number);
        objects.sort_by(|(a, x), (b, y)| (a, &x.flow).cmp(&(b, &y.flow)));
        let unlisted = watching.tallies.len().saturating_sub(objects.len()) as u64;
        self.all.absorb(&of_links(&table));
        let (flows, other_flows) = self.flows(&table, interval_ns);
        let sample = Sample {
            number,
            unix_ms: unix_ms(),
            interval_ns,
            ports: ports(&status, &last.status, interval_ns),
            lateness: late(&lateness, &last.lateness),
            objects: objects.into_iter().map(|(_, object)| object).collect(),
            unlisted,
            other: traffic(&table.other, interval_ns),
            all_total: self.all.clone(),
            flows,
            other_flows,
            rtt,
            flow_export: None,
            flow_log: None,
            events: None,
            changes,
            changes_total,
            status,
        };
        self.spare = Some(table);
        Some(sample)
    }

    /// Forgets the sojourn times of objects that do not exist any more and, if there are many, of those
    /// that had no row for longest. `number` is that of the newest sample.
    fn forget(&mut self, number: u64) {
        let existing = &self.tallies;
        // An object may have come after its place was visited.
        self.sojourn
            .retain(|(place, ..), kept| kept.seen == number || existing.contains_key(place));
        if self.sojourn.len() > MOST_KEPT {
            let mut seen: Vec<u64> = self.sojourn.values().map(|kept| kept.seen).collect();
            let (_, first_out, _) = seen.select_nth_unstable_by(MOST_KEPT, |a, b| b.cmp(a));
            let first_out = *first_out;
            self.sojourn.retain(|_, kept| kept.seen > first_out);
        }
    }

    /// Chooses the places of the next table: all of them or, if there are many, those with most
    /// traffic, drops and backlog, and some more as long as there is room.
    fn choose(&mut self, tallies: &[Tally]) {
        let before = std::mem::take(&mut self.tallies);
        if tallies.len() <= MOST_OBJECTS {
            self.places = tallies.iter().map(|tally| tally.place).collect();
        } else {
            let delta = |tally: &Tally, pick: fn(&(u64, u64)) -> u64, now: u64| {
                let old = before.get(&tally.place).map_or(0, pick);
                now.saturating_sub(old)
            };
            let ranks: [&dyn Fn(&Tally) -> u64; 3] = [
                &|tally| delta(tally, |(bytes, _)| *bytes, tally.bytes),
                &|tally| delta(tally, |(_, dropped)| *dropped, tally.dropped),
                &|tally| tally.queued_packets,
            ];
            let mut chosen = BTreeSet::new();
            for (rank, most) in ranks.into_iter().zip(BUSIEST) {
                let mut ranked: Vec<(u64, Place)> = tallies
                    .iter()
                    .map(|tally| (rank(tally), tally.place))
                    .filter(|(rank, _)| *rank > 0)
                    .collect();
                if ranked.len() > most {
                    ranked.select_nth_unstable_by(most, |a, b| b.0.cmp(&a.0));
                    ranked.truncate(most);
                }
                chosen.extend(ranked.into_iter().map(|(_, place)| place));
            }
            self.fill(tallies, &mut chosen);
            self.places = chosen.into_iter().collect();
        }
        self.tallies = tallies
            .iter()
            .map(|tally| (tally.place, (tally.bytes, tally.dropped)))
            .collect();
    }

    /// Adds places while there is room: first those of objects without a mask, so that they are always
    /// there unless there are many, then those that have a row already, then others by number.
    fn fill(&self, tallies: &[Tally], chosen: &mut BTreeSet<Place>) {
        let mut places: HashMap<ObjectName, usize> = HashMap::new();
        for tally in tallies {
            *places.entry(tally.object).or_default() += 1;
        }
        let before: BTreeSet<Place> = self.places.iter().copied().collect();
        let rest = tallies.iter();
        let rest = rest.filter(|tally| !chosen.contains(&tally.place));
        let mut rest: Vec<(bool, bool, ObjectName, Place)> = rest
            .map(|tally| {
                let is_one_of_many = places[&tally.object] > 1;
                let is_new = !before.contains(&tally.place);
                (is_one_of_many, is_new, tally.object, tally.place)
            })
            .collect();
        let room = MOST_OBJECTS.saturating_sub(chosen.len());
        if rest.len() > room {
            rest.select_nth_unstable(room);
            rest.truncate(room);
        }
        chosen.extend(rest.into_iter().map(|(.., place)| place));
    }

    /// Returns the busiest flows, and the sum of all others.
    fn flows(&mut self, table: &WatchTable, interval_ns: u64) -> (Vec<FlowSample>, TrafficSample) {
        self.held.retain(|_, held| {
            held.idle += 1;
            held.idle < FORGET
        });
        let mut flows: Vec<(u64, &FlowTraffic)> = Vec::new();
        for flow in table.flows() {
            let held = self.held.entry((flow.hash, flow.flow.object)).or_default();
            held.idle = 0;
            // Below zero if packets came when the flow had no row.
            held.packets = held.packets.saturating_add_signed(flow.traffic.waiting);
            flows.push((held.packets, flow));
        }
        flows.sort_by_key(|(_, flow)| std::cmp::Reverse((flow.traffic.bytes, flow.hash)));
        let mut rest = flows.split_off(flows.len().min(MOST_FLOWS - BY_DROPS));
        rest.sort_by_key(|(held, flow)| {
            std::cmp::Reverse((flow.traffic.dropped_total(), *held, flow.hash))
        });
        let unlisted = rest.split_off(rest.len().min(BY_DROPS));
        flows.append(&mut rest);
        let mut other = table.other_flows.clone();
        for (_, flow) in unlisted {
            other.absorb(&flow.traffic);
        }
        let flows = flows.into_iter().map(|(held, row)| FlowSample {
            object: name(row.flow.object),
            src: row.flow.src,
            src_port: row.flow.src_port,
            dst: row.flow.dst,
            dst_port: row.flow.dst_port,
            proto: row.flow.proto,
            icmp_id: row.flow.icmp_id,
            backlog_packets: held,
            traffic: traffic(&row.traffic, interval_ns),
        });
        (flows.collect(), traffic(&other, interval_ns))
    }
}

/// Returns the traffic of all pipes and schedulers. That of a queue is also that of its scheduler.
fn of_links(table: &WatchTable) -> Traffic {
    let mut all = table.other.clone();
    for (place, row) in table.places().iter().zip(table.rows()) {
        if let Place::Link(_) = place {
            all.absorb(row);
        }
    }
    all
}

pub(super) fn name(object: ObjectName) -> String {
    format!("{} {}", object.word(), object.number())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn per_second(count: u64, interval_ns: u64) -> u64 {
    rate(count.into(), interval_ns)
}

/// Returns the bits per second of `bytes`, whose bits may be more than 64 bits can count.
fn bits_per_second(bytes: u64, interval_ns: u64) -> u64 {
    rate(u128::from(bytes) * 8, interval_ns)
}

fn rate(count: u128, interval_ns: u64) -> u64 {
    let scaled = count * 1_000_000_000 + u128::from(interval_ns) / 2;
    u64::try_from(scaled / u128::from(interval_ns)).unwrap_or(u64::MAX)
}

fn traffic(row: &Traffic, interval_ns: u64) -> TrafficSample {
    let dropped = DropReason::ALL
        .iter()
        .map(|reason| (reason.name().to_owned(), row.dropped(*reason)));
    TrafficSample {
        arrived_bps: bits_per_second(row.arrived_bytes, interval_ns),
        rate_bps: bits_per_second(row.bytes, interval_ns),
        packets_per_s: per_second(row.packets, interval_ns),
        arrived_packets: row.arrived_packets,
        packets: row.packets,
        bytes: row.bytes,
        marked: row.marked,
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
        sojourn: sojourn(&row.waits),
    }
}

/// Returns mean and percentiles of a histogram, unless it is empty.
pub(super) fn sojourn(waits: &Waits) -> Option<Sojourn> {
    let quantile = |per_mille| waits.quantile(per_mille).map_or(0, |span| span.as_ns());
    (waits.packets() > 0).then(|| Sojourn {
        mean_ns: (waits.sum_ns() / u128::from(waits.packets())) as u64,
        p50_ns: quantile(500),
        p95_ns: quantile(950),
        p99_ns: quantile(990),
        max_ns: waits.longest().as_ns(),
    })
}

/// Returns a variable as a number at `now`; none for an instant that is not set, or that had passed
/// when the interval began.
fn number(value: StateValue, now: Time, interval_ns: u64) -> Option<f64> {
    match value {
        // RFC 8289 section 5.3: an instant of zero stands for none.
        StateValue::Time(Time::ZERO) => None,
        StateValue::Time(at) => {
            let ahead = at.as_ns() as f64 - now.as_ns() as f64;
            (ahead >= -(interval_ns as f64)).then_some(ahead)
        }
        value => Some(value.as_f64()),
    }
}

fn object(detail: &Detail, row: &Traffic, now: Time, interval_ns: u64) -> ObjectSample {
    let state = &detail.state;
    let mut variables: BTreeMap<String, f64> = BTreeMap::new();
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    for (_, name, value) in &state.variables {
        if let Some(number) = number(*value, now, interval_ns) {
            let largest = variables.entry((*name).to_owned()).or_insert(number);
            *largest = largest.max(number);
            kinds
                .entry((*name).to_owned())
                .or_insert_with(|| value.kind().to_owned());
        }
    }
    let dropped = state.counters.dropped_for.iter();
    ObjectSample {
        name: name(detail.object),
        flow: detail.is_masked.then(|| flow_text(detail.object, state)),
        parent: detail.parent.map(name),
        words: detail.words.clone(),
        link_bps: detail.link.rate_bps,
        delay_ns: detail.link.delay_ns,
        backlog_packets: state.queued_packets,
        backlog_bytes: state.queued_bytes,
        in_flight_packets: state.in_flight_packets,
        is_active: state.is_active,
        total_packets: state.counters.packets,
        total_bytes: state.counters.bytes,
        total_marked: state.counters.marked,
        total_dropped: dropped.map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        total_sojourn: SojournCounts::default(),
        state: variables,
        state_kinds: kinds,
        traffic: traffic(row, interval_ns),
    }
}

/// Returns the flow of a mask, without the fields that the mask does not distinguish, which are zero.
/// The receiving end stands after `>`. Different flows of an object have different texts.
fn flow_text(object: ObjectName, flow: &FlowState) -> String {
    let distinguished = |address: IpAddr, port: u16| match (address.is_unspecified(), port) {
        (true, 0) => String::new(),
        (true, port) => format!(":{port}"),
        (false, _) => end(address, port),
    };
    let (src, dst) = (
        distinguished(flow.src, flow.src_port),
        distinguished(flow.dst, flow.dst_port),
    );
    let ends = match (src.is_empty(), dst.is_empty()) {
        (_, true) => src,
        (true, false) => format!("> {dst}"),
        (false, false) => format!("{src} > {dst}"),
    };
    let mut words = Vec::new();
    // The name of a pipe or queue is already that of its flowset.
    if flow.flowset != 0 && matches!(object, ObjectName::Scheduler(_)) {
        words.push(format!("queue {}", flow.flowset));
    }
    // Masks keep the family, which an address shows.
    let has_no_address = flow.src.is_unspecified() && flow.dst.is_unspecified();
    if flow.src.is_ipv6() && has_no_address {
        words.push("ip6".to_owned());
    }
    if flow.proto != 0 {
        words.push(format!("proto {}", flow.proto));
    }
    if flow.flow_label != 0 {
        words.push(format!("flow-id 0x{:05x}", flow.flow_label));
    }
    if !ends.is_empty() {
        words.push(ends);
    }
    if words.is_empty() {
        words.push("others".to_owned());
    }
    words.join(" ")
}

fn ports(status: &Status, before: &Status, interval_ns: u64) -> Vec<PortSample> {
    let pairs = status.ports.iter().zip(&before.ports);
    let rows = pairs.map(|(now, old)| {
        let rate = |now: u64, old: u64| per_second(now.saturating_sub(old), interval_ns);
        let bits = |now: u64, old: u64| bits_per_second(now.saturating_sub(old), interval_ns);
        let lost = |port: &PortStatus| port.lost.values().sum::<u64>();
        PortSample {
            name: now.name.clone(),
            received_bps: bits(now.received_bytes, old.received_bytes),
            sent_bps: bits(now.sent_bytes, old.sent_bytes),
            received_per_s: rate(now.received, old.received),
            sent_per_s: rate(now.sent, old.sent),
            lost: lost(now).saturating_sub(lost(old)),
        }
    });
    rows.collect()
}

fn late(now: &Lateness, before: &Lateness) -> LatenessSample {
    let interval = now.since(before);
    LatenessSample {
        packets: interval.packets(),
        p50_ns: interval.bound(500).as_ns(),
        p99_ns: interval.bound(990).as_ns(),
        p999_ns: interval.bound(999).as_ns(),
        since_start: now.buckets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_ipfw::show::CounterState;

    fn flow(proto: u8, src: (&str, u16), dst: (&str, u16)) -> FlowState {
        FlowState {
            bucket: 0,
            has_extra: false,
            flowset: 0,
            proto,
            src: src.0.parse().unwrap(),
            src_port: src.1,
            dst: dst.0.parse().unwrap(),
            dst_port: dst.1,
            flow_label: 0,
            is_active: false,
            counters: CounterState::default(),
            queued_packets: 0,
            queued_bytes: 0,
            in_flight_packets: 0,
            in_flight_bytes: 0,
            rate_bps: 0,
            wait: None,
            variables: Vec::new(),
        }
    }

    #[test]
    fn a_port_has_a_rate_beyond_the_bytes_whose_bits_64_bits_can_count() {
        let status = |received_bytes, sent_bytes| Status {
            ports: vec![PortStatus {
                received_bytes,
                sent_bytes,
                ..PortStatus::default()
            }],
            ..Status::default()
        };
        // 2^61 bytes are 2^64 bits. 1250 bytes are 10 000 bits, and 2000 are 16 000.
        let before = status((1 << 61) - 1000, u64::MAX - 2000);
        let now = status((1 << 61) + 250, u64::MAX);
        let rows = ports(&now, &before, 1_000_000_000);
        assert_eq!((rows[0].received_bps, rows[0].sent_bps), (10_000, 16_000));
    }

    #[test]
    fn a_flow_of_a_mask_shows_what_the_mask_distinguishes() {
        for (proto, src, dst, text) in [
            (0, ("0.0.0.0", 0), ("10.0.0.2", 0), "> 10.0.0.2"),
            (0, ("10.0.0.1", 0), ("0.0.0.0", 0), "10.0.0.1"),
            (6, ("0.0.0.0", 0), ("0.0.0.0", 80), "proto 6 > :80"),
            (6, ("::", 0), ("::", 80), "ip6 proto 6 > :80"),
            (0, ("::", 0), ("2001:db8::2", 53), "> [2001:db8::2]:53"),
            (17, ("0.0.0.0", 0), ("0.0.0.0", 0), "proto 17"),
            (17, ("::", 0), ("::", 0), "ip6 proto 17"),
            (0, ("0.0.0.0", 0), ("0.0.0.0", 0), "others"),
            (0, ("::", 0), ("::", 0), "ip6"),
            (
                17,
                ("10.0.0.1", 9),
                ("10.0.0.2", 53),
                "proto 17 10.0.0.1:9 > 10.0.0.2:53",
            ),
        ] {
            assert_eq!(flow_text(ObjectName::Pipe(1), &flow(proto, src, dst)), text);
        }
        let labelled = FlowState {
            flow_label: 0x123,
            flowset: 3,
            has_extra: true,
            ..flow(0, ("::", 0), ("2001:db8::2", 0))
        };
        let of = |object| flow_text(object, &labelled);
        assert_eq!(
            of(ObjectName::Scheduler(1)),
            "queue 3 flow-id 0x00123 > 2001:db8::2"
        );
        assert_eq!(of(ObjectName::Queue(3)), "flow-id 0x00123 > 2001:db8::2");
    }
}
