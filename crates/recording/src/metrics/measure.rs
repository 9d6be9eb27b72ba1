//! Computes the summary from the tables of a recording.

use sluice_core::{Rate, Span, Time};

use super::accuracy::AccuracyMeter;
use super::fairness::{Greedy, convergence, shares};
use super::flow_meter::{FlowMeter, goodput_together, summarise};
use super::percentile::jain;
use super::pipe_meter::PipeMeter;
use crate::{ReadError, Recording};
use sluice_scenario::metric::{DirectionSummary, FlowSummary, Measured, Summary, Window};
use sluice_scenario::{Backend, Direction, FlowInstance, Link, Measure, PipeId};

/// Measures a recording.
///
/// The warm-up is left out: from the start of the run for the link, from the start of each flow for
/// the flow. A flow with a number of bytes has no warm-up, because it may end within that time.
///
/// # Errors
/// A table cannot be read.
pub fn measure(recording: &Recording) -> Result<Summary, ReadError> {
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
    for transfer in recording.transfers()? {
        let transfer = transfer?;
        if let Some(meter) = meters.get_mut(transfer.flow as usize) {
            meter.transfer(&transfer);
        }
    }
    for program in &run.programs {
        if let Some(meter) = meters.get_mut(program.flow as usize) {
            meter.program(program);
        }
    }
    let mut pipes: Vec<(PipeId, PipeMeter<'_>)> = scenario
        .pipes()
        .map(|(id, pipe)| {
            let measured = Measured {
                scenario,
                pipe: id,
                from: Time::ZERO + warmup,
                to: end,
            };
            (id, PipeMeter::new(pipe, measured))
        })
        .collect();
    for row in recording.packets()? {
        let row = row?;
        for (id, meter) in &mut pipes {
            if *id == row.pipe {
                meter.packet(&row.record);
            }
        }
        // On a path with several links, the first link counts for the flow.
        if let Some(meter) = meters.get_mut(row.record.flow as usize)
            && row.pipe == meter.instance.flow.direction
        {
            let pipe = scenario.link.pipe(row.pipe.direction());
            let sent = row.record.at.since(Time::ZERO);
            let rate = pipe.rate.at(sent).unwrap_or(Rate::UNLIMITED);
            let transmission = rate.transmission(u64::from(row.record.len));
            let rest = pipe.delay.at(sent).saturating_add(transmission);
            meter.packet(&row.record, rest);
        }
    }
    // Packets are released at the last link of their path.
    let ends = Link {
        up: scenario.links().last().unwrap_or(&scenario.link).up.clone(),
        down: scenario.link.down.clone(),
    };
    let mut accuracy = AccuracyMeter::new(&ends);
    for release in recording.releases()? {
        accuracy.release(&release?);
    }
    let is_live = run.environment.backend == Backend::Live;

    let mut flows: Vec<FlowSummary> = meters
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
        .filter_map(|direction| together(direction, &meters, &mut flows, &scenario.measure))
        .collect();
    let mut groups: Vec<FlowSummary> = groups.collect();
    for group in &mut groups {
        let of_it = |instance: &&FlowInstance<'_>| instance.flow.name == group.name;
        let taken = instances.iter().filter(of_it);
        // The slowest flow counts, if all of them had their share at some time.
        group.convergence_ns = taken
            .map(|instance| flows[instance.id as usize].convergence_ns)
            .reduce(|a, b| Some(a?.max(b?)))
            .flatten();
    }
    Ok(Summary {
        variant: run.variant.clone(),
        window: Window {
            warmup_ns: warmup.as_ns(),
            end_ns: run.end_ns,
        },
        groups,
        pipes: pipes.into_iter().map(|(_, meter)| meter.finish()).collect(),
        total_goodput_bps: match directions.is_empty() {
            true => None,
            false => {
                let all: Vec<_> = meters.iter().collect();
                // Short flows may all have ended before the measured time of the others begins.
                goodput_together(&all, Time::ZERO + warmup)
                    .or_else(|| goodput_together(&all, Time::ZERO))
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
    })
}

/// Returns the figures of all flows of a direction together; `None` if none of them carries
/// payload. Stores in each flow when it first had its share.
fn together(
    direction: Direction,
    meters: &[FlowMeter<'_>],
    flows: &mut [FlowSummary],
    measure: &Measure,
) -> Option<DirectionSummary> {
    let of_it: Vec<usize> = (0..meters.len())
        .filter(|&at| meters[at].instance.flow.direction == direction)
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
        _ => shares(&all, measure.window, measure.step, end),
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
        goodput_bps: goodput_together(&all_of_it, warm)
            .or_else(|| goodput_together(&all_of_it, Time::ZERO))
            .unwrap_or(0.0),
        jain: jain_of_run,
        jain_min: jains.iter().copied().reduce(f64::min),
        jain_mean: (!jains.is_empty()).then(|| jains.iter().sum::<f64>() / jains.len() as f64),
    })
}
