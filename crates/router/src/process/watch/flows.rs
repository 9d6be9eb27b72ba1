//! Records of flows: what each flow through a pipe carried, when it ends and at intervals.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_core::DropReason;
use sluice_ipfw::watch::{ObjectName, Traffic, WatchFlow, WatchTable};

use super::Sojourn;
use super::collect::{name, sojourn};

/// When records of flows are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// A flow without packets for this time has ended.
    pub idle: Duration,
    /// A flow that lasts longer gets a record each time this has passed.
    pub active: Duration,
}

/// The reason for a record; RFC 7012 calls it flowEndReason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEnd {
    /// No packet came for the idle timeout.
    IdleTimeout,
    /// The flow goes on.
    ActiveTimeout,
    /// The router ends.
    ForcedEnd,
    /// The table was full.
    LackOfResources,
}

/// What a flow through a pipe carried between two instants. A super-packet counts as its segments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRecord {
    /// The start of the interval of the first packet, in milliseconds since the Unix epoch.
    pub first_unix_ms: u64,
    /// The end of the interval of the last packet.
    pub last_unix_ms: u64,
    /// The reason for the record.
    pub reason: FlowEnd,
    /// The pipe or scheduler.
    pub object: String,
    /// The same as a value; `None` for the flows that found no room.
    #[serde(skip)]
    pub place: Option<ObjectName>,
    /// Source address; `None` for the flows that found no room.
    pub src: Option<IpAddr>,
    /// Source port; 0 without ports.
    pub src_port: u16,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// Destination port; 0 without ports.
    pub dst_port: u16,
    /// Protocol number.
    pub proto: u8,
    /// Packets that arrived, dropped ones included.
    pub arrived_packets: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// Packets that left the queue.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were CE-marked.
    pub marked: u64,
    /// Packets that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Sojourn times of the packets that left, if any did.
    pub sojourn: Option<Sojourn>,
}

/// The fate of the records that are sent to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowExport {
    /// The address of the collector.
    pub collector: String,
    /// Records that were sent.
    pub sent: u64,
    /// Records that could not be sent, for any reason.
    pub not_sent: u64,
    /// Of these, records that the collector's host refused, because nobody listens there.
    #[serde(default)]
    pub refused: u64,
    /// Of these, records that found no room before they could be sent.
    #[serde(default)]
    pub lost: u64,
    /// The last error.
    pub error: Option<String>,
}

/// The fate of the records that are written to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFile {
    /// The name of the file.
    pub file: String,
    /// Records that were written.
    pub written: u64,
    /// Records that could not be written, for any reason.
    pub not_written: u64,
    /// Of these, records that found no room before they could be written.
    pub lost: u64,
    /// The last error.
    pub error: Option<String>,
}

/// The flows that have no record yet.
///
/// Their times count from the start of the ledger: the system's clock may be set while a flow goes on.
/// A record translates both of its times by the system's clock at that moment.
pub(super) struct Ledger {
    timeouts: FlowTimeouts,
    /// The end of the last interval since the start.
    elapsed: Duration,
    /// The same instant in milliseconds since the Unix epoch.
    unix_ms: u64,
    flows: HashMap<(u32, ObjectName), Open>,
    /// Flows that found no room in the loop's table.
    others: Option<Open>,
    records: Vec<FlowRecord>,
    lost: u64,
}

/// A flow since its last record.
#[derive(Default)]
struct Open {
    flow: Option<WatchFlow>,
    traffic: Traffic,
    /// The start of the interval of the first packet.
    first: Duration,
    /// The end of the interval of the last one.
    last: Duration,
}

/// Translates times of a ledger into milliseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct Epoch {
    elapsed: Duration,
    unix_ms: u64,
}

/// Largest number of flows: 7 MB.
const MOST_FLOWS: usize = 4096;
/// Largest number of records that wait.
const MOST_RECORDS: usize = 16_384;

impl Ledger {
    pub fn new(timeouts: FlowTimeouts) -> Ledger {
        Ledger {
            timeouts,
            elapsed: Duration::ZERO,
            unix_ms: 0,
            flows: HashMap::new(),
            others: None,
            records: Vec::new(),
            lost: 0,
        }
    }

    /// Adds the flows of an interval that ends now, and makes the records that are due.
    pub fn add(&mut self, table: &WatchTable, interval: Duration, unix_ms: u64) {
        let from = self.elapsed;
        let to = from + interval;
        (self.elapsed, self.unix_ms) = (to, unix_ms);
        for flow in table.flows().filter(|flow| !flow.traffic.is_idle()) {
            let key = (flow.hash, flow.flow.object);
            if !self.flows.contains_key(&key) && self.flows.len() >= MOST_FLOWS {
                self.evict();
            }
            let open = self.flows.entry(key).or_insert_with(|| Open {
                flow: Some(flow.flow.clone()),
                ..Open::default()
            });
            open.absorb(&flow.traffic, (from, to));
        }
        if !table.other_flows.is_idle() {
            let open = self.others.get_or_insert_default();
            open.absorb(&table.other_flows, (from, to));
        }
        let FlowTimeouts { idle, active } = self.timeouts;
        let epoch = self.epoch();
        let records = &mut self.records;
        self.flows.retain(|_, open| {
            if to - open.last >= idle {
                // A flow that was recorded and has had no packet since leaves no second record.
                records.extend(open.record(FlowEnd::IdleTimeout, epoch));
                return false;
            }
            if to - open.first >= active && !open.traffic.is_idle() {
                records.extend(open.record(FlowEnd::ActiveTimeout, epoch));
                open.traffic = Traffic::default();
            }
            true
        });
        let others = self.others.take_if(|open| to - open.first >= active);
        records.extend(others.and_then(|open| open.record(FlowEnd::ActiveTimeout, epoch)));
        // Nobody takes them.
        let beyond = records.len().saturating_sub(MOST_RECORDS);
        records.truncate(MOST_RECORDS);
        self.lost += beyond as u64;
    }

    /// Makes records of all flows.
    pub fn end(&mut self) {
        let epoch = self.epoch();
        let open = self
            .flows
            .drain()
            .map(|(_, open)| open)
            .chain(self.others.take());
        let records = open.filter_map(|open| open.record(FlowEnd::ForcedEnd, epoch));
        self.records.extend(records);
    }

    fn epoch(&self) -> Epoch {
        Epoch {
            elapsed: self.elapsed,
            unix_ms: self.unix_ms,
        }
    }

    /// Takes the records, oldest flow first, and the number of those that found no room.
    pub fn take(&mut self) -> (Vec<FlowRecord>, u64) {
        let mut records = std::mem::take(&mut self.records);
        records.sort_by(|a, b| {
            let key = |r: &FlowRecord| {
                (
                    r.first_unix_ms,
                    r.src,
                    r.src_port,
                    r.dst,
                    r.dst_port,
                    r.proto,
                )
            };
            key(a).cmp(&key(b))
        });
        (records, std::mem::take(&mut self.lost))
    }

    /// Makes room by a record of the flow that has been idle for longest.
    fn evict(&mut self) {
        let oldest = self.flows.iter().min_by_key(|(_, open)| open.last);
        let Some(key) = oldest.map(|(key, _)| *key) else {
            return;
        };
        let epoch = self.epoch();
        if let Some(open) = self.flows.remove(&key) {
            self.records
                .extend(open.record(FlowEnd::LackOfResources, epoch));
        }
    }
}

impl Open {
    fn absorb(&mut self, traffic: &Traffic, (from, to): (Duration, Duration)) {
        if self.traffic.is_idle() {
            self.first = from;
        }
        self.traffic.absorb(traffic);
        self.last = to;
    }

    fn record(&self, reason: FlowEnd, epoch: Epoch) -> Option<FlowRecord> {
        let traffic = &self.traffic;
        let flow = self.flow.as_ref();
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| (reason.name().to_owned(), traffic.dropped(*reason)));
        (!traffic.is_idle()).then(|| FlowRecord {
            first_unix_ms: epoch.unix_ms(self.first),
            last_unix_ms: epoch.unix_ms(self.last),
            reason,
            object: flow.map_or_else(|| "other".to_owned(), |flow| name(flow.object)),
            place: flow.map(|flow| flow.object),
            src: flow.map(|flow| flow.src),
            src_port: flow.map_or(0, |flow| flow.src_port),
            dst: flow.map(|flow| flow.dst),
            dst_port: flow.map_or(0, |flow| flow.dst_port),
            proto: flow.map_or(0, |flow| flow.proto),
            arrived_packets: traffic.arrived_packets,
            arrived_bytes: traffic.arrived_bytes,
            packets: traffic.packets,
            bytes: traffic.bytes,
            marked: traffic.marked,
            dropped: dropped.filter(|(_, count)| *count > 0).collect(),
            dropped_bytes: traffic.dropped_bytes,
            sojourn: sojourn(&traffic.waits),
        })
    }
}

impl Epoch {
    fn unix_ms(self, at: Duration) -> u64 {
        let ago = self.elapsed.saturating_sub(at).as_millis();
        self.unix_ms
            .saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Cx, DropCounter, Packet, Rng, Span, Time};
    use sluice_ipfw::watch::Watching;
    use sluice_ipfw::{Direction, Firewall, Headers, NoFiles, Settings};

    use super::*;

    const TIMEOUTS: FlowTimeouts = FlowTimeouts {
        idle: Duration::from_secs(3),
        active: Duration::from_secs(5),
    };

    /// An engine with a pipe that holds 4 packets, watched second by second.
    struct Bench {
        firewall: Firewall,
        rng: Rng,
        sink: DropCounter,
        second: u64,
        /// How far the system's clock is behind.
        behind_ms: u64,
        ledger: Ledger,
    }

    impl Bench {
        fn new() -> Bench {
            let mut bench = Bench {
                firewall: Firewall::new(&Settings::default()),
                rng: Rng::from_seed(1),
                sink: DropCounter::default(),
                second: 0,
                behind_ms: 0,
                ledger: Ledger::new(TIMEOUTS),
            };
            let lines = [
                "pipe 1 config bw 1Mbit/s queue 4",
                "add pipe 1 ip from any to any",
            ];
            for line in lines {
                bench.with(|firewall, cx| firewall.command(line, &mut NoFiles, cx).unwrap());
            }
            bench.exchange();
            bench
        }

        fn with<T>(&mut self, work: impl FnOnce(&mut Firewall, &mut Cx<'_>) -> T) -> T {
            let at = Time::ZERO + Span::from_ms(self.second * 1000);
            let mut cx = Cx::new(at, &mut self.rng, &mut self.sink);
            work(&mut self.firewall, &mut cx)
        }

        fn exchange(&mut self) -> Option<Box<WatchTable>> {
            let mut watching = Watching::new(Some(Box::new(WatchTable::new(Vec::new()))));
            while self.with(|firewall, cx| firewall.watch(&mut watching, cx)) {}
            watching.table
        }

        /// Sends packets of 1250 bytes from these ports at once, lets a second pass, and returns the
        /// records of it.
        fn second(&mut self, ports: impl IntoIterator<Item = u16>) -> Vec<FlowRecord> {
            for (slot, port) in (0..).zip(ports) {
                let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
                let mut headers = Headers::new(Direction::In, 17, src, dst);
                (headers.src_port, headers.dst_port) = (port, 9);
                let mut packet = Packet::new(slot, 1250);
                packet.flow = u32::from(port);
                self.with(|firewall, cx| {
                    let _ = firewall.handle(packet, &headers, cx);
                });
            }
            self.second += 1;
            self.with(|firewall, cx| while firewall.poll(cx).is_some() {});
            let table = self.exchange().expect("it is watched");
            let unix_ms = self.second * 1000 - self.behind_ms;
            self.ledger.add(&table, Duration::from_secs(1), unix_ms);
            self.ledger.take().0
        }
    }

    #[test]
    fn a_flow_has_a_record_when_it_has_been_idle() {
        let mut bench = Bench::new();
        // One is on the link and four wait; three find no room.
        assert!(bench.second([7; 8]).is_empty());
        assert!(bench.second([8]).is_empty());
        assert!(bench.second([]).is_empty());
        let [record] = &bench.second([])[..] else {
            panic!("flow 7 has been idle for three seconds");
        };
        assert_eq!((record.first_unix_ms, record.last_unix_ms), (0, 1000));
        assert_eq!((record.src_port, record.reason), (7, FlowEnd::IdleTimeout));
        assert_eq!((record.object.as_str(), record.proto), ("pipe 1", 17));
        assert_eq!((record.arrived_packets, record.arrived_bytes), (8, 10_000));
        let left = record.packets;
        assert_eq!(record.dropped["overflow"], 8 - left);
        assert_eq!(record.bytes, left * 1250);
        assert_eq!(record.dropped_bytes, (8 - left) * 1250);
        // 10,000 bit take 10 ms each.
        let longest = record.sojourn.unwrap().max_ns;
        assert_eq!(longest, (left - 1) * 10_000_000);
        let [record] = &bench.second([])[..] else {
            panic!("flow 8 follows");
        };
        assert_eq!((record.src_port, record.packets), (8, 1));
    }

    #[test]
    fn a_flow_that_lasts_has_records_at_intervals_which_share_no_packet() {
        let mut bench = Bench::new();
        let records: Vec<FlowRecord> = (0..12).flat_map(|_| bench.second([7])).collect();
        let spans: Vec<_> = records
            .iter()
            .map(|r| (r.first_unix_ms, r.last_unix_ms, r.packets, r.reason))
            .collect();
        let active = FlowEnd::ActiveTimeout;
        assert_eq!(spans, [(0, 5000, 5, active), (5000, 10_000, 5, active)]);
        bench.ledger.end();
        let (last, lost) = bench.ledger.take();
        assert_eq!(
            (last[0].packets, last[0].reason, lost),
            (2, FlowEnd::ForcedEnd, 0)
        );
    }

    #[test]
    fn a_clock_that_is_set_back_holds_up_no_record() {
        let mut bench = Bench::new();
        for _ in 0..8 {
            bench.second([]);
        }
        assert!(bench.second([7, 8]).is_empty());
        bench.behind_ms = 6000;
        assert!(bench.second([8]).is_empty());
        assert!(bench.second([8]).is_empty());
        // The second of flow 7 ended three seconds ago, when the clock now shows 6.
        let [record] = &bench.second([8])[..] else {
            panic!("flow 7 has been idle for three seconds");
        };
        assert_eq!((record.src_port, record.reason), (7, FlowEnd::IdleTimeout));
        assert_eq!((record.first_unix_ms, record.last_unix_ms), (2000, 3000));
        let [record] = &bench.second([8])[..] else {
            panic!("flow 8 has gone on for five seconds");
        };
        let active = FlowEnd::ActiveTimeout;
        assert_eq!((record.packets, record.reason), (5, active));
        assert_eq!((record.first_unix_ms, record.last_unix_ms), (2000, 7000));
    }

    #[test]
    fn more_flows_than_fit_are_recorded_early_and_none_is_lost() {
        let mut bench = Bench::new();
        let minute = Duration::from_secs(60);
        bench.ledger = Ledger::new(FlowTimeouts {
            idle: minute,
            active: minute,
        });
        let mut records = Vec::new();
        for round in 0..20_u16 {
            records.extend(bench.second(round * 1000..(round + 1) * 1000));
        }
        assert!(bench.ledger.flows.len() <= MOST_FLOWS);
        bench.ledger.end();
        records.extend(bench.ledger.take().0);
        let arrived: u64 = records.iter().map(|record| record.arrived_packets).sum();
        assert_eq!(arrived, 20_000);
        let is_early = |record: &&FlowRecord| record.reason == FlowEnd::LackOfResources;
        assert!(records.iter().filter(is_early).count() > 10_000);
    }
}
