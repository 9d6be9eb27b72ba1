//! From the tables of a recording to its summary.

use std::collections::BTreeMap;

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

use super::accuracy::AccuracyMeter;
use super::goodput::{Arrived, goodput};
use super::percentile::{jain, percentiles};
use super::summary::{DirectionSummary, FlowSummary, PipeSummary, Summary, Window};
use crate::recording::{FlowSample, PingSample, ReadError, Recording};
use crate::scenario::{Backend, Direction, FlowInstance, FlowKind, Link, Pipe, PipeId};

impl Summary {
    /// Measures a recording.
    ///
    /// The warm-up is left out: of the run for the link, of each flow for the flow. A flow that carries
    /// a number of bytes is measured whole, since it is over when it has warmed up.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn of(recording: &Recording) -> Result<Summary, ReadError> {
        let run = recording.run();
        let scenario = &run.scenario;
        let end = Time::from_ns(run.end_ns);
        let warmup = scenario.measure.warmup;
        let instances: Vec<FlowInstance<'_>> = scenario.instances().collect();
        let mut meters: Vec<FlowMeter<'_>> = instances
            .iter()
            .map(|instance| FlowMeter::new(instance, warmup, end))
            .collect();
        for sample in recording.flow_samples()? {
            let sample = sample?;
            if let Some(meter) = meters.get_mut(sample.flow as usize) {
                meter.sample(&sample);
            }
        }
        for probe in recording.pings()? {
            let probe = probe?;
            if let Some(meter) = meters.get_mut(probe.flow as usize) {
                meter.probe(&probe);
            }
        }
        let mut pipes: Vec<(PipeId, PipeMeter<'_>)> = scenario
            .pipes()
            .map(|(id, pipe)| (id, PipeMeter::new(pipe, Time::ZERO + warmup, end)))
            .collect();
        for row in recording.packets()? {
            let row = row?;
            for (id, meter) in &mut pipes {
                if *id == row.pipe {
                    meter.packet(&row.record);
                }
            }
        }
        // Packets are released behind the last link of their way.
        let ends = Link {
            up: scenario.links().last().unwrap_or(&scenario.link).up.clone(),
            down: scenario.link.down.clone(),
        };
        let mut accuracy = AccuracyMeter::new(&ends);
        for release in recording.releases()? {
            accuracy.release(&release?);
        }
        let is_live = run.environment.backend == Backend::Live;

        let flows: Vec<FlowSummary> = meters
            .iter()
            .map(|meter| summarise(&meter.instance.name, &[meter]))
            .collect();
        let groups = scenario.flows.iter().filter(|flow| flow.count > 1);
        let groups = groups.map(|flow| {
            let of_it = |meter: &&FlowMeter<'_>| meter.instance.flow.name == flow.name;
            let members: Vec<&FlowMeter<'_>> = meters.iter().filter(of_it).collect();
            summarise(&flow.name, &members)
        });
        let directions: Vec<DirectionSummary> = [Direction::Up, Direction::Down]
            .into_iter()
            .filter_map(|direction| together(direction, &meters, &flows))
            .collect();
        Ok(Summary {
            variant: run.variant.clone(),
            window: Window {
                warmup_ns: warmup.as_ns(),
                end_ns: run.end_ns,
            },
            groups: groups.collect(),
            pipes: pipes
                .into_iter()
                .map(|(id, meter)| meter.finish(id))
                .collect(),
            total_goodput_bps: directions
                .iter()
                .map(|d| d.goodput_bps)
                .reduce(|a, b| a + b),
            jain: directions.iter().filter_map(|d| d.jain).reduce(f64::min),
            directions,
            flows,
            accuracy: is_live.then(|| accuracy.finish(run.lost.clone())),
        })
    }
}

/// The flows of a direction together; nothing if none of them carries payload.
fn together(
    direction: Direction,
    meters: &[FlowMeter<'_>],
    flows: &[FlowSummary],
) -> Option<DirectionSummary> {
    let of_it = meters
        .iter()
        .zip(flows)
        .filter(|(meter, _)| meter.instance.flow.direction == direction)
        .filter_map(|(meter, summary)| Some((meter, summary.goodput_bps?)));
    let (mut goodputs, mut shares) = (Vec::new(), Vec::new());
    for (meter, goodput) in of_it {
        goodputs.push(goodput);
        let kind = &meter.instance.flow.kind;
        if matches!(kind, FlowKind::Tcp(_)) && !kind.is_sized() {
            shares.push(goodput);
        }
    }
    (!goodputs.is_empty()).then(|| DirectionSummary {
        direction,
        goodput_bps: goodputs.iter().sum(),
        jain: jain(&shares),
    })
}

/// Gathers what is told of a flow.
struct FlowMeter<'a> {
    instance: &'a FlowInstance<'a>,
    from: Time,
    to: Time,
    arrived: Vec<Arrived>,
    retransmits: Option<(u64, u64)>,
    srtt: Vec<u64>,
    /// Packets sent and received, over the whole life.
    packets: Option<(u64, u64)>,
    rtt: Vec<u64>,
    up: Vec<u64>,
    down: Vec<u64>,
    probes: u64,
    lost: u64,
}

impl<'a> FlowMeter<'a> {
    fn new(instance: &'a FlowInstance<'a>, warmup: Span, end: Time) -> Self {
        let flow = instance.flow;
        let warmup = if flow.kind.is_sized() {
            Span::ZERO
        } else {
            warmup
        };
        FlowMeter {
            instance,
            from: Time::ZERO + instance.start.saturating_add(warmup),
            to: end.min(Time::ZERO + instance.stop),
            arrived: Vec::new(),
            retransmits: None,
            srtt: Vec::new(),
            packets: None,
            rtt: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            probes: 0,
            lost: 0,
        }
    }

    fn sample(&mut self, sample: &FlowSample) {
        if let Some(bytes) = sample.received_bytes {
            self.arrived.push((sample.time, bytes));
        }
        if let (Some(sent), Some(received)) = (sample.sent_packets, sample.received_packets) {
            self.packets = Some((sent, received));
        }
        if !(self.from..=self.to).contains(&sample.time) {
            return;
        }
        if let Some(n) = sample.retransmits {
            let (first, _) = self.retransmits.unwrap_or((n, n));
            self.retransmits = Some((first, n));
        }
        self.srtt.extend(sample.srtt.map(Span::as_ns));
    }

    fn probe(&mut self, probe: &PingSample) {
        if !(self.from..=self.to).contains(&probe.time) {
            return;
        }
        self.probes += 1;
        self.lost += u64::from(probe.is_lost);
        self.rtt.extend(probe.rtt.map(Span::as_ns));
        self.up.extend(probe.up.map(Span::as_ns));
        self.down.extend(probe.down.map(Span::as_ns));
    }

    /// When the last of the bytes that it was to carry had arrived.
    fn completed(&self) -> Option<Time> {
        let FlowKind::Tcp(tcp) = &self.instance.flow.kind else {
            return None;
        };
        let bytes = tcp.bytes?.as_u64();
        let whole = |(_, arrived): &&Arrived| *arrived >= bytes;
        self.arrived.iter().find(whole).map(|(at, _)| *at)
    }

    fn start(&self) -> Time {
        Time::ZERO + self.instance.start
    }

    fn goodput(&self) -> Option<f64> {
        if !self.instance.flow.kind.is_sized() {
            return goodput(&self.arrived, self.from, self.to);
        }
        // Nothing has arrived when it starts, whenever the first sample was taken.
        let mut samples = vec![(self.start(), 0)];
        samples.extend(self.arrived.iter().filter(|(at, _)| *at > self.start()));
        goodput(&samples, self.start(), self.completed().unwrap_or(self.to))
    }
}

/// The figures of a flow, or of several taken together.
fn summarise<'a>(name: &str, meters: &[&FlowMeter<'a>]) -> FlowSummary {
    let flow = meters
        .first()
        .expect("a flow has at least one instance")
        .instance
        .flow;
    let gather = |pick: for<'m> fn(&'m FlowMeter<'a>) -> &'m Vec<u64>| {
        let mut all: Vec<u64> = meters.iter().flat_map(|m| pick(m)).copied().collect();
        percentiles(&mut all)
    };
    let counts = |pick: &dyn Fn(&FlowMeter<'_>) -> Option<u64>| {
        let counts: Vec<u64> = meters.iter().filter_map(|m| pick(m)).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
    };
    let goodputs: Vec<f64> = meters.iter().filter_map(|meter| meter.goodput()).collect();
    let sent = counts(&|m| m.packets.map(|(sent, _)| sent));
    let received = counts(&|m| m.packets.map(|(_, received)| received));
    let (probes, lost) = (
        meters.iter().map(|m| m.probes).sum::<u64>(),
        meters.iter().map(|m| m.lost).sum::<u64>(),
    );
    let loss = match (sent, received) {
        (Some(sent @ 1..), Some(received)) => {
            Some(sent.saturating_sub(received) as f64 / sent as f64)
        }
        _ => (probes > 0).then(|| lost as f64 / probes as f64),
    };
    FlowSummary {
        name: name.to_owned(),
        type_name: flow.kind.type_name().to_owned(),
        direction: flow.direction.to_string(),
        goodput_bps: (!goodputs.is_empty()).then(|| goodputs.iter().sum()),
        bytes: counts(&|m| m.arrived.last().map(|(_, bytes)| *bytes)),
        retransmits: counts(&|m| {
            m.retransmits
                .map(|(first, last)| last.saturating_sub(first))
        }),
        fct_ns: match meters {
            [one] => one.completed().map(|at| at.since(one.start()).as_ns()),
            _ => None,
        },
        srtt: gather(|m| &m.srtt),
        rtt: gather(|m| &m.rtt),
        up: gather(|m| &m.up),
        down: gather(|m| &m.down),
        loss,
    }
}

/// Gathers what is told of a pipe.
struct PipeMeter<'a> {
    pipe: &'a Pipe,
    from: Time,
    to: Time,
    packets: u64,
    sent: u64,
    bytes: u64,
    sojourn: Vec<u64>,
    drops: BTreeMap<String, u64>,
    marks: u64,
}

impl<'a> PipeMeter<'a> {
    fn new(pipe: &'a Pipe, from: Time, to: Time) -> Self {
        PipeMeter {
            pipe,
            from,
            to,
            packets: 0,
            sent: 0,
            bytes: 0,
            sojourn: Vec::new(),
            drops: BTreeMap::new(),
            marks: 0,
        }
    }

    fn packet(&mut self, record: &PacketRecord) {
        let is_inside = |t| (self.from..=self.to).contains(&t);
        let wire_packets = u64::from(record.segments);
        if is_inside(record.arrival) {
            self.packets += wire_packets;
        }
        // What became of it counts where it happened, so that drops and bytes belong to the same time.
        if !is_inside(record.at) {
            return;
        }
        match record.fate {
            Fate::Queued => return,
            Fate::Dropped(reason) => {
                *self.drops.entry(reason.name().to_owned()).or_default() += wire_packets;
                return;
            }
            Fate::Marked => self.marks += wire_packets,
            Fate::Sent => {}
        }
        self.sent += wire_packets;
        self.bytes += u64::from(record.len);
        self.sojourn.push(record.sojourn().as_ns());
    }

    fn finish(mut self, id: PipeId) -> PipeSummary {
        let start = |t: Time| t.since(Time::ZERO);
        let allowed = self
            .pipe
            .rate
            .bits_between(start(self.from), start(self.to));
        PipeSummary {
            name: id.to_string(),
            utilisation: allowed
                .filter(|bits| *bits > 0.0)
                .map(|bits| self.bytes as f64 * 8.0 / bits),
            sojourn: percentiles(&mut self.sojourn),
            packets: self.packets,
            sent: self.sent,
            drops: self.drops,
            marks: self.marks,
        }
    }
}
