//! Collects the rows of a run and computes its figures. The rows come from the writer during the
//! run, or from the tables of a recording: both go through the same meters, so that the figures are
//! the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::record::PacketRecord;
use sluice_core::{Rate, Span, Time};

use super::accuracy::AccuracyMeter;
use super::fairness::{Greedy, convergence, shares};
use super::flow_meter::{FlowMeter, crowd, goodput_together, summarise};
use super::percentile::jain;
use super::pipe_meter::PipeMeter;
use crate::passages::{MOST_WIRE_PACKETS, too_many};
use crate::{
    FlowEntry, FlowSample, Keep, PingSample, ReadError, Recording, Release, RunFile, Transfer,
};
use sluice_scenario::metric::{
    DirectionSummary, FlowSummary, MOST_TRANSFERS, Measured, Summary, Window,
};
use sluice_scenario::{Backend, Direction, Flow, Link, Measure, PipeId, Scenario};

/// Returns the figures of a recording: those that were computed while it was written, or those of
/// its tables.
///
/// The warm-up is left out: from the start of the run for the link, from the start of each flow for
/// the flow. A transfer of a number of bytes has no warm-up, because it may end within that time.
///
/// The figures of a run without some tables are the stored ones.
///
/// # Errors
/// A table cannot be read.
pub fn measure(recording: &Recording) -> Result<Summary, ReadError> {
    if let Some(summary) = recording.measured() {
        return Ok(summary.clone());
    }
    if !recording.has(Keep::Packets)
        && let Some(summary) = recording.stored_summary()?
    {
        return Ok(summary);
    }
    let run = recording.run();
    let mut meters = Meters::new(&run.scenario, Time::from_ns(run.end_ns));
    meters.share_packets(&run.flows);
    for sample in recording.flow_samples()?.bounded()? {
        meters.flow_sample(&sample?);
    }
    for probe in recording.pings()?.bounded()? {
        meters.ping(&probe?);
    }
    for transfer in recording.transfers()?.bounded()? {
        meters.transfer(&transfer?);
    }
    let rows = recording.packets()?;
    let path = rows.path().to_owned();
    let mut wire_packets = 0;
    for row in rows {
        let row = row?;
        wire_packets += u64::from(row.record.segments).max(1);
        if wire_packets > MOST_WIRE_PACKETS {
            return Err(too_many(path));
        }
        meters.packet(row.pipe, &row.record);
    }
    for release in recording.releases()?.bounded()? {
        meters.release(&release?);
    }
    Ok(meters.finish(run))
}

/// Collects the rows of a run. Rows of one table come in the order of the table; rows of different
/// tables in any order.
pub(crate) struct Meters {
    end: Time,
    flows: Vec<FlowMeter>,
    /// The indexes of flows whose packets have the number of the other direction, by this number.
    others: BTreeMap<u32, usize>,
    pipes: Vec<(PipeId, PipeMeter)>,
    accuracy: AccuracyMeter,
    /// The links of the path.
    links: Vec<Link>,
}

impl Meters {
    /// Creates the meters of a run of `scenario` that ends at `end`.
    pub fn new(scenario: &Scenario, end: Time) -> Meters {
        let warmup = scenario.measure.warmup;
        // The instances of a flow follow each other.
        let mut flow: Option<(&Flow, Arc<Flow>)> = None;
        let flows = scenario.instances().map(|instance| {
            let declared = match &flow {
                Some((last, shared)) if std::ptr::eq(*last, instance.flow) => shared.clone(),
                _ => Arc::new(instance.flow.clone()),
            };
            flow = Some((instance.flow, declared.clone()));
            let hops = scenario.hops_of(instance.flow);
            FlowMeter::new(instance, declared, hops, &scenario.measure, end)
        });
        let flows = flows.collect();
        let pipe = |(id, pipe)| (id, PipeMeter::new(pipe, Time::ZERO + warmup, end));
        // Packets are released at the last link of their path.
        let ends = Link {
            up: scenario.links().last().unwrap_or(&scenario.link).up.clone(),
            down: scenario.link.down.clone(),
        };
        Meters {
            end,
            flows,
            others: BTreeMap::new(),
            pipes: scenario.pipes().map(pipe).collect(),
            accuracy: AccuracyMeter::new(ends),
            links: scenario.links().cloned().collect(),
        }
    }

    /// Returns the end of the run for which the meters were created.
    pub fn end(&self) -> Time {
        self.end
    }

    pub fn flow_sample(&mut self, sample: &FlowSample) {
        if let Some(meter) = self.flows.get_mut(sample.flow as usize) {
            meter.sample(sample);
        }
    }

    pub fn ping(&mut self, probe: &PingSample) {
        if let Some(meter) = self.flows.get_mut(probe.flow as usize) {
            meter.probe(probe);
        }
    }

    pub fn transfer(&mut self, transfer: &Transfer) {
        if let Some(meter) = self.flows.get_mut(transfer.flow as usize) {
            meter.transfer(transfer);
        }
    }

    /// Counts packets for a flow that is the other direction of the flow whose number they have.
    fn share_packets(&mut self, flows: &[FlowEntry]) {
        let others = flows.iter().zip(0..);
        let others = others.filter_map(|(flow, at)| Some((flow.packets_of?, at)));
        self.others = others.collect();
    }

    /// Returns the index of the flow that counts the packets of a direction with the number `flow`.
    fn place_of(&self, flow: u32, direction: Direction) -> Option<usize> {
        let first = flow as usize;
        match self.flows.get(first)?.direction == direction {
            true => Some(first),
            false => self.others.get(&flow).copied(),
        }
    }

    pub fn packet(&mut self, pipe: PipeId, record: &PacketRecord) {
        for (id, meter) in &mut self.pipes {
            if *id == pipe {
                meter.packet(record);
            }
        }
        if let Some(place) = self.place_of(record.flow, pipe.direction())
            && let Some(meter) = self.flows.get_mut(place)
            && pipe.direction() == meter.direction
            && let Some(link) = self.links.get(pipe.hop())
        {
            let link = link.pipe(pipe.direction());
            meter.packet(pipe.hop(), record, || {
                let sent = record.at.since(Time::ZERO);
                let rate = link.rate.at(sent).unwrap_or(Rate::UNLIMITED);
                let transmission = rate.transmission(u64::from(record.len));
                link.delay.at(sent).saturating_add(transmission)
            });
        }
    }

    pub fn release(&mut self, release: &Release) {
        self.accuracy.release(release);
    }

    /// Returns the figures of `run`, whose rows were collected. If the run ended earlier than
    /// planned, the measured time ends with it.
    pub fn finish(mut self, run: &RunFile) -> Summary {
        let end = Time::from_ns(run.end_ns);
        self.flows.iter_mut().for_each(|flow| flow.end_at(end));
        let Meters {
            flows: mut meters,
            pipes,
            accuracy,
            ..
        } = self;
        let scenario = &run.scenario;
        let warmup = scenario.measure.warmup;
        let warm = Time::ZERO + warmup;
        for program in &run.programs {
            if let Some(meter) = meters.get_mut(program.flow as usize) {
                meter.program(program);
            }
        }
        let is_live = run.environment.backend == Backend::Live;

        let mut flows: Vec<FlowSummary> = meters
            .iter()
            .map(|meter| summarise(&meter.name, &[meter], warm))
            .collect();
        let crowds = match run.is_of_program() {
            true => Vec::new(),
            false => crowds(&meters),
        };
        let groups = scenario.flows.iter().filter(|flow| flow.count > 1);
        let groups = groups.map(|flow| {
            let of_it = |meter: &&FlowMeter| meter.flow.name == flow.name;
            let members: Vec<&FlowMeter> = meters.iter().filter(of_it).collect();
            summarise(&flow.name, &members, warm)
        });
        let directions: Vec<DirectionSummary> = [Direction::Up, Direction::Down]
            .into_iter()
            .filter_map(|direction| together(direction, &meters, &mut flows, &scenario.measure))
            .collect();
        let mut groups: Vec<FlowSummary> = groups.collect();
        if run.is_of_program() {
            // A connection lasts as long as the program keeps it open.
            let all = flows.iter_mut().chain(&mut groups);
            all.for_each(|flow| flow.open = None);
        }
        for group in &mut groups {
            let of_it = |(meter, _): &(&FlowMeter, &FlowSummary)| meter.flow.name == group.name;
            let taken = meters.iter().zip(&flows).filter(of_it);
            // The slowest flow counts, if all of them had their share at some time.
            group.convergence_ns = taken
                .map(|(_, flow)| flow.convergence_ns)
                .reduce(|a, b| Some(a?.max(b?)))
                .flatten();
        }
        Summary {
            variant: run.variant.clone(),
            window: Window {
                warmup_ns: warmup.as_ns(),
                end_ns: run.end_ns,
            },
            groups,
            crowds,
            pipes: pipes
                .into_iter()
                .zip(scenario.pipes())
                .map(|((id, meter), (_, pipe))| {
                    let measured = Measured {
                        scenario,
                        pipe: id,
                        from: Time::ZERO + warmup,
                        to: Time::from_ns(run.end_ns),
                    };
                    meter.finish(pipe, &measured)
                })
                .collect(),
            total_goodput_bps: match directions.is_empty() {
                true => None,
                false => {
                    let all: Vec<_> = meters.iter().collect();
                    goodput_together(&all, warm)
                }
            },
            jain: directions.iter().filter_map(|d| d.jain).reduce(f64::min),
            jain_min: directions
                .iter()
                .filter_map(|d| d.jain_min)
                .reduce(f64::min),
            jain_mean: directions
                .iter()
                .filter_map(|d| d.jain_mean)
                .reduce(f64::min),
            directions,
            flows,
            accuracy: is_live.then(|| accuracy.finish(run.lost.clone())),
        }
    }
}

/// Returns the completion times of each type and direction of which many flows are declared.
fn crowds(meters: &[FlowMeter]) -> Vec<FlowSummary> {
    // The number of declarations, and their flows.
    let mut kinds: BTreeMap<(&str, &str), (usize, Vec<&FlowMeter>)> = BTreeMap::new();
    let mut last: Option<&Arc<Flow>> = None;
    for meter in meters.iter().filter(|meter| meter.has_transfers()) {
        let flow = &meter.flow;
        let kind = (flow.kind.type_name(), flow.direction.word());
        let (declared, of_it) = kinds.entry(kind).or_default();
        // The flows of a declaration follow each other.
        if last.is_none_or(|last| !Arc::ptr_eq(last, flow)) {
            *declared += 1;
        }
        last = Some(flow);
        of_it.push(meter);
    }
    let many = kinds.into_values();
    let many = many.filter(|(declared, _)| *declared > MOST_TRANSFERS);
    many.map(|(_, of_it)| crowd(&of_it)).collect()
}

/// Returns the figures of all flows of a direction together; `None` if none of them carries
/// payload. Stores in each flow when it first had its share.
fn together(
    direction: Direction,
    meters: &[FlowMeter],
    flows: &mut [FlowSummary],
    measure: &Measure,
) -> Option<DirectionSummary> {
    let of_it: Vec<usize> = (0..meters.len())
        .filter(|&at| meters[at].flow.direction == direction)
        .filter(|&at| flows[at].goodput_bps.is_some())
        .collect();
    let goodput = |at: &usize| flows[*at].goodput_bps;
    let goodputs: Vec<f64> = of_it.iter().filter_map(goodput).collect();
    let greedy: Vec<usize> = of_it
        .iter()
        .copied()
        .filter(|&at| meters[at].is_greedy())
        .collect();
    let jain_of_run = jain(&greedy.iter().filter_map(goodput).collect::<Vec<f64>>());
    let all: Vec<Greedy<'_>> = greedy.iter().map(|&at| meters[at].greedy()).collect();
    let end = all.iter().map(|flow| flow.stop).max().unwrap_or(Time::ZERO);
    let windows = match all.len() {
        0 | 1 => Vec::new(),
        _ => shares(&all, measure.window, measure.step, end).collect::<Vec<_>>(),
    };
    for (place, &at) in greedy.iter().enumerate() {
        let taken = convergence(&windows, place, all[place].start);
        flows[at].convergence_ns = taken.map(Span::as_ns);
    }
    let warm = Time::ZERO + measure.warmup;
    let jains: Vec<f64> = windows
        .iter()
        .filter(|shares| shares.at >= warm.saturating_add(measure.window))
        .filter_map(|shares| shares.jain())
        .collect();
    let all_of_it: Vec<_> = of_it.iter().map(|&at| &meters[at]).collect();
    (!goodputs.is_empty()).then(|| DirectionSummary {
        direction,
        goodput_bps: goodput_together(&all_of_it, warm).unwrap_or(0.0),
        jain: jain_of_run,
        jain_min: jains.iter().copied().reduce(f64::min),
        jain_mean: (!jains.is_empty()).then(|| jains.iter().sum::<f64>() / jains.len() as f64),
    })
}
