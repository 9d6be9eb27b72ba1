//! Collects the measurements of a flow and computes its figures.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

use super::fairness::Greedy;
use super::goodput::{Arrived, goodput};
use super::jitter::Jitter;
use super::packet_counts::{Counted, PacketCounts};
use super::percentile::{percentiles, percentiles_of};
use super::samples::{Parts, Samples};
use super::voip::mean_opinion_score;
use crate::{FlowSample, PingSample, ProgramEntry, Transfer};
use sluice_scenario::metric::{FlowSummary, Reported};
use sluice_scenario::{Direction, Flow, FlowInstance, Measured};

/// Collects the measurements of a flow.
pub(super) struct FlowMeter {
    pub(super) name: String,
    /// Its declaration in the scenario.
    pub(super) flow: Arc<Flow>,
    /// Of the declaration, what every packet needs.
    pub(super) direction: Direction,
    is_datagrams: bool,
    start: Time,
    from: Time,
    to: Time,
    arrived: Vec<Arrived>,
    /// The count of retransmissions at the beginning of the measured time; it is zero at the start
    /// of the flow.
    retransmits_before: u64,
    /// The last count of the measured time.
    retransmits: Option<u64>,
    srtt: Vec<u64>,
    /// The durations of its transfers, pages or exchanges.
    transfers: Vec<u64>,
    /// The packets of a flow of datagrams.
    packets: PacketCounts,
    rtt: Vec<u64>,
    up: Vec<u64>,
    down: Vec<u64>,
    probes: u64,
    lost: u64,
    /// The links that it passes.
    hops: Range<usize>,
    /// Packets in the queue of its direction at each of these links.
    sojourn: Vec<Sojourn>,
    drops: u64,
    marks: u64,
    /// Jitter of the probes' round trips, and of packets in the direction of the flow.
    jitter: Jitter,
    way_jitter: Jitter,
    /// The arrival and the one-way delay of each probe.
    arrivals: Vec<(Time, u64)>,
    way_sum_ns: u64,
    way_count: u64,
    /// The flow's program.
    program: Option<ProgramEntry>,
}

/// The time that packets spent in one queue.
#[derive(Default)]
struct Sojourn {
    samples: Samples,
    sum_ns: u64,
}

impl FlowMeter {
    /// Creates the meter of `instance`, whose declaration is `flow` and which passes the links `hops`, in a
    /// run that ends at `end`.
    pub(super) fn new(
        instance: FlowInstance<'_>,
        flow: Arc<Flow>,
        hops: Range<usize>,
        warmup: Span,
        end: Time,
    ) -> Self {
        let warmup = if flow.kind.is_sized() {
            Span::ZERO
        } else {
            warmup
        };
        FlowMeter {
            name: instance.name,
            direction: flow.direction,
            is_datagrams: flow.kind.measured() == Measured::Datagrams,
            flow,
            start: Time::ZERO + instance.start,
            from: Time::ZERO + instance.start.saturating_add(warmup),
            to: end.min(Time::ZERO + instance.stop),
            arrived: Vec::new(),
            retransmits_before: 0,
            retransmits: None,
            srtt: Vec::new(),
            transfers: Vec::new(),
            packets: PacketCounts::default(),
            rtt: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            probes: 0,
            lost: 0,
            sojourn: hops.clone().map(|_| Sojourn::default()).collect(),
            hops,
            drops: 0,
            marks: 0,
            jitter: Jitter::default(),
            way_jitter: Jitter::default(),
            arrivals: Vec::new(),
            way_sum_ns: 0,
            way_count: 0,
            program: None,
        }
    }

    pub(super) fn sample(&mut self, sample: &FlowSample) {
        if let Some(bytes) = sample.received_bytes {
            self.arrived.push((sample.time, bytes));
        }
        self.packets.sample(self.from, sample);
        if let Some(n) = sample.retransmits
            && sample.time <= self.from
        {
            self.retransmits_before = n;
        }
        if !(self.from..=self.to).contains(&sample.time) {
            return;
        }
        self.retransmits = sample.retransmits.or(self.retransmits);
        self.srtt.extend(sample.srtt.map(Span::as_ns));
    }

    // Counts a transfer that was requested after the warm-up and is complete.
    pub(super) fn transfer(&mut self, transfer: &Transfer) {
        if (self.from..=self.to).contains(&transfer.start) {
            self.transfers.push(transfer.took.as_ns());
        }
    }

    pub(super) fn program(&mut self, program: &ProgramEntry) {
        self.program = Some(program.clone());
    }

    /// Returns the running time of its program.
    fn runtime_ns(&self) -> Option<u64> {
        let program = self.program.as_ref()?;
        Some(program.ended_ns.saturating_sub(program.started_ns))
    }

    pub(super) fn probe(&mut self, probe: &PingSample) {
        if !(self.from..=self.to).contains(&probe.time) {
            return;
        }
        self.probes += 1;
        self.lost += u64::from(probe.is_lost);
        self.rtt.extend(probe.rtt.map(Span::as_ns));
        if let Some(rtt) = probe.rtt {
            self.jitter.transit(rtt.as_ns());
        }
        let way = match self.flow.direction {
            Direction::Up => probe.up,
            Direction::Down => probe.down,
        };
        if let Some(way) = way {
            self.went(way);
            self.arrivals.push((probe.time + way, way.as_ns()));
        }
        self.up.extend(probe.up.map(Span::as_ns));
        self.down.extend(probe.down.map(Span::as_ns));
    }

    /// Counts a packet of the flow that passed the queue of its direction at link `hop`. `rest`
    /// returns the delay of the link itself, which only datagrams need.
    pub(super) fn packet(
        &mut self,
        hop: usize,
        record: &PacketRecord,
        rest: impl FnOnce() -> Span,
    ) {
        if !self.hops.contains(&hop) || !(self.from..=self.to).contains(&record.at) {
            return;
        }
        let wire_packets = u64::from(record.segments);
        match record.fate {
            Fate::Queued => return,
            Fate::Dropped(_) => {
                self.drops += wire_packets;
                return;
            }
            Fate::Marked => self.marks += wire_packets,
            Fate::Sent => {}
        }
        let place = hop - self.hops.start;
        let waited = record.sojourn().as_ns();
        self.sojourn[place].samples.push(waited);
        self.sojourn[place].sum_ns = self.sojourn[place].sum_ns.saturating_add(waited);
        // Used if the receiver's delays were not recorded.
        if self.is_datagrams && place == 0 {
            self.jitter.transit(record.sojourn().as_ns());
            self.went(record.sojourn().saturating_add(rest()));
        }
    }

    /// Counts a packet with this one-way delay.
    fn went(&mut self, delay: Span) {
        self.way_jitter.transit(delay.as_ns());
        self.way_sum_ns += delay.as_ns();
        self.way_count += 1;
    }

    /// Returns whether the flow sends as much as it can for as long as it lasts.
    pub(super) fn is_greedy(&self) -> bool {
        let transfer = self.flow.kind.transfer();
        transfer.is_some_and(|transfer| transfer.bytes.is_none())
    }

    /// Returns the payload over time, for a comparison of shares.
    pub(super) fn greedy(&self) -> Greedy<'_> {
        Greedy {
            samples: &self.arrived,
            start: self.start(),
            stop: self.to,
        }
    }

    /// Returns the mean opinion score of a call on its path.
    fn opinion(&self, loss: Option<f64>) -> Option<f64> {
        let (mean, variation) = match self.received() {
            Some(counted) => (counted.mean_delay_ns()?, counted.mean_variation_ns()?),
            None if self.way_count == 0 => return None,
            None => (
                self.way_sum_ns as f64 / self.way_count as f64,
                self.way_jitter.mean_variation_ns()?,
            ),
        };
        let delay = mean + 2.0 * variation;
        Some(mean_opinion_score(delay / 1e6, loss?))
    }

    /// Returns the packets of a flow of datagrams.
    fn counted(&self) -> Option<Counted> {
        self.packets.measured(self.start, self.from, self.to)
    }

    /// Returns the packets of a flow of datagrams whose receiver's delays are known.
    fn received(&self) -> Option<Counted> {
        let counted = self.counted()?;
        counted.mean_delay_ns().is_some().then_some(counted)
    }

    /// Returns the mean interarrival jitter: of the probes' round trips, of the packets' delays or
    /// else sojourn times, or of the packets of a call, which has no round trips.
    fn mean_jitter_ns(&self) -> Option<u64> {
        if let Some(counted) = self.received() {
            return counted.mean_jitter_ns();
        }
        if let Some(ns) = self.jitter.mean_ns() {
            return Some(ns);
        }
        let has_round_trips = self.flow.kind.metrics().contains(&"p50");
        let mut arrivals = self.arrivals.clone();
        // RFC 3550 section 6.4.1: the packets in the order of arrival, which is not that of sending
        // if the link reorders.
        arrivals.sort_by_key(|(at, _)| *at);
        let mut jitter = Jitter::default();
        for (_, transit) in arrivals {
            jitter.transit(transit);
        }
        jitter.mean_ns().filter(|_| !has_round_trips)
    }

    /// Returns the instant at which the last byte of its transfer had arrived.
    fn completed(&self) -> Option<Time> {
        let transfer = self.flow.kind.transfer()?;
        if transfer.repeats {
            return None;
        }
        let bytes = transfer.bytes?.as_u64();
        let whole = |(_, arrived): &&Arrived| *arrived >= bytes;
        self.arrived.iter().find(whole).map(|(at, _)| *at)
    }

    /// Returns the time from its start until the last byte of its transfer had arrived.
    fn completion(&self) -> Option<Span> {
        Some(self.completed()?.since(self.start()))
    }

    /// Ends the measured time at `end`, if that is earlier than planned.
    pub(super) fn end_at(&mut self, end: Time) {
        self.to = self.to.min(end);
    }

    pub(super) fn start(&self) -> Time {
        self.start
    }

    /// Returns the samples of its payload within its measured time, as far as they are after
    /// `after`.
    fn measured(&self, after: Time) -> impl Iterator<Item = Arrived> {
        let from = self.from.max(after);
        // The counter is zero at the start of the flow, whenever the first sample was taken.
        let start = (self.start() >= from).then_some((self.start(), 0));
        let inside = from..=self.to;
        let later = self.arrived.iter().copied();
        start
            .into_iter()
            .chain(later.filter(move |(at, _)| inside.contains(at)))
    }

    fn goodput(&self) -> Option<f64> {
        if !self.flow.kind.is_sized() {
            return goodput(&self.arrived, self.from, self.to);
        }
        // The counter is zero at the start of the flow, whenever the first sample was taken.
        let mut samples = vec![(self.start(), 0)];
        samples.extend(self.arrived.iter().filter(|(at, _)| *at > self.start()));
        goodput(&samples, self.start(), self.completed().unwrap_or(self.to))
    }
}

/// Returns the payload of several flows per second: from the instant after `after` at which the
/// first of them sent in its measured time, until the last one ended. Flows that come and go do not
/// count as if all had been active together.
pub(super) fn goodput_together(meters: &[&FlowMeter], after: Time) -> Option<f64> {
    let (mut bits, mut first, mut last) = (0.0, None::<Time>, None::<Time>);
    for meter in meters {
        let mut samples = meter.measured(after);
        let Some((from, before)) = samples.next() else {
            continue;
        };
        let (to, after) = samples.last().unwrap_or((from, before));
        bits += after.saturating_sub(before) as f64 * 8.0;
        first = Some(first.map_or(from, |at| at.min(from)));
        last = last.max(Some(to));
    }
    let seconds = last?.since(first?).as_secs_f64();
    (seconds > 0.0).then(|| bits / seconds)
}

/// Returns the figures of a flow, or of several taken together.
pub(super) fn summarise(name: &str, meters: &[&FlowMeter]) -> FlowSummary {
    let flow = &meters
        .first()
        .expect("a flow has at least one instance")
        .flow;
    let gather = |pick: fn(&FlowMeter) -> &Vec<u64>| {
        percentiles_of(&Parts {
            long: meters.iter().map(|m| pick(m).as_slice()).collect(),
            ..Parts::default()
        })
    };
    // The flows of a declaration pass the same links. Of several queues, that one counts in which
    // their packets waited longest.
    let waited = |place: &usize| {
        meters
            .iter()
            .map(|m| u128::from(m.sojourn[*place].sum_ns))
            .sum()
    };
    let places = 0..meters[0].sojourn.len();
    let slowest = places.rev().max_by_key(|place| -> u128 { waited(place) });
    let mut sojourn = Parts::default();
    if let Some(place) = slowest {
        meters
            .iter()
            .for_each(|m| m.sojourn[place].samples.add_to(&mut sojourn));
    }
    let counts = |pick: &dyn Fn(&FlowMeter) -> Option<u64>| {
        let counts: Vec<u64> = meters.iter().filter_map(|m| pick(m)).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
    };
    let completions: Vec<u64> = meters
        .iter()
        .flat_map(|meter| match meter.completion() {
            Some(took) => vec![took.as_ns()],
            None => meter.transfers.clone(),
        })
        .collect();
    let (sent, missing) = meters
        .iter()
        .filter_map(|m| m.counted())
        .fold((0.0, 0.0), |(sent, lost), counted| {
            (sent + counted.sent, lost + counted.lost)
        });
    let (probes, lost) = (
        meters.iter().map(|m| m.probes).sum::<u64>(),
        meters.iter().map(|m| m.lost).sum::<u64>(),
    );
    let loss = match sent > 0.0 {
        true => Some(missing / sent),
        false => (probes > 0).then(|| lost as f64 / probes as f64),
    };
    // For several flows, the mean over them, because each is a separate call.
    let mean = |pick: &dyn Fn(&FlowMeter) -> Option<f64>| {
        let all: Vec<f64> = meters.iter().filter_map(|m| pick(m)).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    FlowSummary {
        name: name.to_owned(),
        type_name: flow.kind.type_name().to_owned(),
        direction: flow.direction.to_string(),
        goodput_bps: match meters {
            [one] => one.goodput(),
            several => goodput_together(several, Time::ZERO),
        },
        bytes: counts(&|m| m.arrived.last().map(|(_, bytes)| *bytes)),
        retransmits: counts(&|m| {
            m.retransmits
                .map(|last| last.saturating_sub(m.retransmits_before))
        }),
        fct_ns: match meters {
            [one] => one.completion().map(Span::as_ns),
            _ => None,
        },
        fct: percentiles(&completions),
        srtt: gather(|m| &m.srtt),
        rtt: gather(|m| &m.rtt),
        up: gather(|m| &m.up),
        down: gather(|m| &m.down),
        loss,
        sojourn: percentiles_of(&sojourn),
        drops: meters.iter().map(|m| m.drops).sum(),
        marks: meters.iter().map(|m| m.marks).sum(),
        jitter_ns: mean(&|m| Some(m.mean_jitter_ns()? as f64)).map(|ns| ns.round() as u64),
        mos: mean(&|m| m.opinion(loss)),
        // Set when all flows are known.
        convergence_ns: None,
        runtime_ns: mean(&|m| Some(m.runtime_ns()? as f64)).map(|ns| ns.round() as u64),
        reported: reported(meters),
    }
}

/// Returns what the programs of a flow reported: for several, the mean of each figure.
fn reported(meters: &[&FlowMeter]) -> BTreeMap<String, Reported> {
    let mut sums: BTreeMap<String, (Reported, u64)> = BTreeMap::new();
    let programs = meters.iter().filter_map(|meter| meter.program.as_ref());
    for (name, figure) in programs.flat_map(|program| &program.figures) {
        match sums.get_mut(name) {
            Some((sum, count)) => {
                sum.value += figure.value;
                *count += 1;
            }
            None => {
                sums.insert(name.clone(), (*figure, 1));
            }
        }
    }
    let mean = |(name, (sum, count)): (String, (Reported, u64))| {
        let value = sum.value / count as f64;
        (name, Reported { value, ..sum })
    };
    sums.into_iter().map(mean).collect()
}
