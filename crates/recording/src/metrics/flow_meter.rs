//! Collects the measurements of a flow and computes its figures.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

use super::fairness::Greedy;
use super::goodput::{Arrived, arrived_by, goodput, longest_gap};
use super::jitter::Jitter;
use super::packet_counts::{Counted, PacketCounts};
use super::percentile::percentiles_of;
use super::samples::{Parts, Samples};
use super::voip::mean_opinion_score;
use crate::{FlowSample, PingSample, ProgramEntry, Transfer};
use sluice_scenario::metric::{FlowSummary, Percentiles, Reported};
use sluice_scenario::{Direction, Flow, FlowInstance, FlowKind, Measure, Measured};

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
    /// The payload that has arrived, from the start of the flow on.
    arrived: Vec<Arrived>,
    /// The longest time between two samples while payload arrives.
    even: Span,
    /// The count of retransmissions at the beginning of the measured time; it is zero at the start
    /// of the flow.
    retransmits_before: u64,
    /// The last count of the measured time.
    retransmits: Option<u64>,
    srtt: Vec<u64>,
    /// The durations of its transfers, pages or exchanges.
    transfers: Vec<u64>,
    /// The ages of its pages that were open at the end.
    open_pages: Vec<u64>,
    /// The end of the last transfer or exchange.
    latest: Option<Time>,
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
    /// The probes that arrived, also those before the measured time.
    arrivals: Vec<Arrival>,
    way_sum_ns: u64,
    way_count: u64,
    /// The flow's program.
    program: Option<ProgramEntry>,
}

/// A probe that arrived.
#[derive(Clone, Copy)]
struct Arrival {
    at: Time,
    /// Its one-way delay.
    transit_ns: u64,
    /// Whether it was sent in the measured time.
    is_measured: bool,
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
        measure: &Measure,
        end: Time,
    ) -> Self {
        let warmup = if flow.kind.is_sized() {
            Span::ZERO
        } else {
            measure.warmup
        };
        FlowMeter {
            name: instance.name,
            direction: flow.direction,
            is_datagrams: flow.kind.measured() == Measured::Datagrams,
            flow,
            start: Time::ZERO + instance.start,
            from: Time::ZERO + instance.start.saturating_add(warmup),
            to: end.min(Time::ZERO + instance.stop),
            // The counter is zero at the start of the flow, whenever the first sample was taken.
            arrived: vec![(Time::ZERO + instance.start, 0)],
            even: longest_gap(measure.interval),
            retransmits_before: 0,
            retransmits: None,
            srtt: Vec::new(),
            transfers: Vec::new(),
            open_pages: Vec::new(),
            latest: None,
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
        if let Some(bytes) = sample.received_bytes
            && sample.time > self.start
        {
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

    /// Counts a transfer that was requested after the warm-up and is complete, or a page that is open.
    pub(super) fn transfer(&mut self, transfer: &Transfer) {
        let is_open = transfer.is_open();
        if !is_open {
            self.latest = self.latest.max(Some(transfer.start + transfer.took));
        }
        if (self.from..=self.to).contains(&transfer.start) {
            let times = match is_open {
                true => &mut self.open_pages,
                false => &mut self.transfers,
            };
            times.push(transfer.took.as_ns());
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
        if let Some(took) = probe.rtt {
            self.latest = self.latest.max(Some(probe.time + took));
        }
        if probe.time > self.to {
            return;
        }
        let is_measured = probe.time >= self.from;
        let way = match self.flow.direction {
            Direction::Up => probe.up,
            Direction::Down => probe.down,
        };
        self.arrivals.extend(way.map(|way| Arrival {
            at: probe.time + way,
            transit_ns: way.as_ns(),
            is_measured,
        }));
        if !is_measured {
            if let Some(rtt) = probe.rtt {
                self.jitter.lead_in(rtt.as_ns());
            }
            return;
        }
        self.probes += 1;
        self.lost += u64::from(probe.is_lost);
        self.rtt.extend(probe.rtt.map(Span::as_ns));
        if let Some(rtt) = probe.rtt {
            self.jitter.transit(rtt.as_ns());
        }
        if let Some(way) = way {
            self.went(way);
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
        if !self.hops.contains(&hop) || record.at > self.to {
            return;
        }
        // Used if the receiver's delays were not recorded.
        let has_jitter = self.is_datagrams && hop == self.hops.start;
        if record.at < self.from {
            if has_jitter && matches!(record.fate, Fate::Marked | Fate::Sent) {
                self.jitter.lead_in(record.sojourn().as_ns());
            }
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
        let sojourn = &mut self.sojourn[place];
        sojourn.samples.push_each(waited, wire_packets);
        let waited = waited.saturating_mul(wire_packets);
        sojourn.sum_ns = sojourn.sum_ns.saturating_add(waited);
        if has_jitter {
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
        self.flow.kind.is_bulk()
    }

    /// Returns the payload over time, for a comparison of shares.
    pub(super) fn greedy(&self) -> Greedy<'_> {
        Greedy {
            samples: if self.has_samples() {
                &self.arrived
            } else {
                &[]
            },
            start: self.start(),
            stop: self.to,
        }
    }

    /// Returns the share of its packets that were lost.
    fn loss(&self) -> Option<f64> {
        match self.counted().filter(|counted| counted.sent > 0.0) {
            Some(counted) => Some(counted.lost / counted.sent),
            None => (self.probes > 0).then(|| self.lost as f64 / self.probes as f64),
        }
    }

    /// Returns the loss in the direction of the flow. A lost probe may have been dropped on its way
    /// back; only the queues know.
    fn forward_loss(&self) -> Option<f64> {
        if self.rtt.is_empty() || self.probes == 0 {
            return self.loss();
        }
        Some(self.drops.min(self.lost) as f64 / self.probes as f64)
    }

    /// Returns the mean opinion score of a call on its path.
    fn opinion(&self) -> Option<f64> {
        let (mean, variation) = match self.received() {
            Some(counted) => (counted.mean_delay_ns()?, counted.mean_variation_ns()?),
            None if self.way_count == 0 => return None,
            None => (
                self.way_sum_ns as f64 / self.way_count as f64,
                self.way_jitter.mean_variation_ns()?,
            ),
        };
        let delay = mean + 2.0 * variation;
        Some(mean_opinion_score(delay / 1e6, self.forward_loss()?))
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
        arrivals.sort_by_key(|arrival| arrival.at);
        let mut jitter = Jitter::default();
        for arrival in arrivals {
            match arrival.is_measured {
                true => jitter.transit(arrival.transit_ns),
                false => jitter.lead_in(arrival.transit_ns),
            }
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

    /// Returns how long the transfer or exchange that is open at the end has lasted by then. A flow
    /// begins the next one a given time after the last; pages are recorded instead.
    fn open_for(&self) -> Option<Span> {
        let begun = match &self.flow.kind {
            FlowKind::Rr(rr) => self.latest.map_or(self.start, |end| end + rr.think),
            FlowKind::Tcp(tcp) => match tcp.pause {
                Some(pause) => self.latest.map_or(self.start, |end| end + pause),
                None if tcp.bytes.is_some() && self.completed().is_none() => self.start,
                None => return None,
            },
            _ => return None,
        };
        (begun < self.to).then(|| self.to.since(begun))
    }

    /// Ends the measured time at `end`, if that is earlier than planned.
    pub(super) fn end_at(&mut self, end: Time) {
        self.to = self.to.min(end);
    }

    pub(super) fn start(&self) -> Time {
        self.start
    }

    /// Returns whether the payload that it received was sampled.
    fn has_samples(&self) -> bool {
        self.arrived.len() > 1
    }

    /// Returns whether it has transfers or pages, which end by themselves.
    pub(super) fn has_transfers(&self) -> bool {
        self.flow.kind.metrics().contains(&"transfers") && !self.flow.kind.is_bulk()
    }

    /// Returns whether its figures include goodput. Calls and probes carry no payload of a user.
    fn has_payload(&self) -> bool {
        self.flow.kind.metrics().contains(&"goodput")
    }

    /// Returns the end of its measured time: a transfer ends when it is complete.
    fn until(&self) -> Time {
        self.completed().map_or(self.to, |at| at.min(self.to))
    }

    fn goodput(&self) -> Option<f64> {
        let of_it = || goodput(&self.arrived, self.even, self.from, self.until());
        (self.has_payload() && self.has_samples())
            .then(of_it)
            .flatten()
    }
}

/// Returns the payload of several flows per second, in the time after `warm` in which at least one of
/// them is measured. In this time all payload counts, also that of a flow that has just begun.
///
/// If all are transfers of a given size, which have no warm-up, the time begins with the first.
pub(super) fn goodput_together(meters: &[&FlowMeter], warm: Time) -> Option<f64> {
    let flows: Vec<_> = meters.iter().filter(|meter| meter.has_payload()).collect();
    flows.iter().find(|meter| meter.has_samples())?;
    let last = flows.iter().map(|meter| meter.until()).max()?;
    let first = flows.iter().map(|meter| meter.from).min()?;
    let all_end = flows.iter().all(|meter| meter.flow.kind.is_sized());
    // Short flows may all have ended before the measured time of the others begins.
    let first = if all_end || last <= warm {
        first
    } else {
        first.max(warm)
    };
    let arrived = |meter: &&&FlowMeter| {
        let by = |at| arrived_by(&meter.arrived, meter.even, at);
        by(last) - by(first)
    };
    let bits = flows.iter().map(arrived).sum::<f64>() * 8.0;
    let seconds = last.since(first).as_secs_f64();
    (seconds > 0.0).then(|| bits / seconds)
}

/// Returns the figures of a flow, or of several taken together.
/// The measured time of the run begins at `warm`.
pub(super) fn summarise(name: &str, meters: &[&FlowMeter], warm: Time) -> FlowSummary {
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
    let (completions, open) = transfers(meters);
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
        count: (meters.len() > 1).then_some(meters.len() as u64),
        goodput_bps: match meters {
            [one] => one.goodput(),
            several => goodput_together(several, warm),
        },
        bytes: counts(&|m| Some(m.arrived.last().filter(|_| m.has_samples())?.1)),
        retransmits: counts(&|m| {
            m.retransmits
                .map(|last| last.saturating_sub(m.retransmits_before))
        }),
        fct_ns: match meters {
            [one] => one.completion().map(Span::as_ns),
            _ => None,
        },
        fct: with_open(&[&completions], &open),
        open: meters[0].has_transfers().then_some(open.len() as u64),
        srtt: gather(|m| &m.srtt),
        rtt: with_open(
            &meters.iter().map(|m| &m.rtt[..]).collect::<Vec<_>>(),
            &open,
        ),
        up: gather(|m| &m.up),
        down: gather(|m| &m.down),
        loss,
        sojourn: percentiles_of(&sojourn),
        drops: meters.iter().map(|m| m.drops).sum(),
        marks: meters.iter().map(|m| m.marks).sum(),
        jitter_ns: mean(&|m| Some(m.mean_jitter_ns()? as f64)).map(|ns| ns.round() as u64),
        mos: mean(&|m| m.opinion()),
        // Set when all flows are known.
        convergence_ns: None,
        runtime_ns: mean(&|m| Some(m.runtime_ns()? as f64)).map(|ns| ns.round() as u64),
        reported: reported(meters),
    }
}

/// Returns the completion times of the transfers or pages of many flows of one type and direction; the
/// other figures are empty.
pub(super) fn crowd(meters: &[&FlowMeter]) -> FlowSummary {
    let flow = &meters.first().expect("a crowd has flows").flow;
    let (completions, open) = transfers(meters);
    FlowSummary {
        name: format!("{} flows", meters.len()),
        type_name: flow.kind.type_name().to_owned(),
        direction: flow.direction.to_string(),
        count: Some(meters.len() as u64),
        fct: with_open(&[&completions], &open),
        open: Some(open.len() as u64),
        ..FlowSummary::default()
    }
}

/// Returns the times of the transfers, pages or exchanges that ended, and the ages of those that were
/// open at the end.
fn transfers(meters: &[&FlowMeter]) -> (Vec<u64>, Vec<u64>) {
    let ended = meters.iter().flat_map(|meter| match meter.completion() {
        Some(took) => vec![took.as_ns()],
        None => meter.transfers.clone(),
    });
    let open = meters.iter().flat_map(|meter| {
        let last = meter.open_for().map(Span::as_ns);
        meter.open_pages.iter().copied().chain(last)
    });
    (ended.collect(), open.collect())
}

/// Returns the percentiles of the times of transfers or exchanges that ended, and of those `open` that
/// have lasted longer than all of these, which are slower still. Only the former are counted.
fn with_open(ended: &[&[u64]], open: &[u64]) -> Option<Percentiles> {
    let count = ended.iter().map(|times| times.len()).sum::<usize>() as u64;
    let longest = ended.iter().flat_map(|times| times.iter()).max()?;
    let slower: Vec<u64> = open.iter().copied().filter(|age| age > longest).collect();
    let mut long = ended.to_vec();
    long.push(&slower);
    let all = percentiles_of(&Parts {
        long,
        ..Parts::default()
    })?;
    Some(Percentiles { count, ..all })
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
