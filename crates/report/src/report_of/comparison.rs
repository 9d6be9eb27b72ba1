//! Curves over all flows of a direction: fairness, and goodput against delay.

use sluice_core::{Span, Time};

use super::samples::Samples;
use super::seconds;
use crate::model::{Queue, Series, Tradeoff, Verdict};
use sluice_recording::metrics::{Arrived, Greedy, shares};
use sluice_scenario::{Direction, FlowInstance, Measure};

/// The payload of all flows over time.
pub struct Comparison<'a> {
    flows: Vec<Payload<'a>>,
    measure: &'a Measure,
    end: Time,
}

struct Payload<'a> {
    instance: &'a FlowInstance<'a>,
    arrived: &'a [Arrived],
}

impl<'a> Comparison<'a> {
    /// Creates the comparison from the samples of each flow, by its index.
    pub fn new(
        instances: &'a [FlowInstance<'a>],
        samples: &'a [Samples],
        measure: &'a Measure,
        end: Time,
    ) -> Self {
        let payload = |(instance, samples): (&'a FlowInstance<'a>, &'a Samples)| Payload {
            instance,
            arrived: &samples.arrived,
        };
        Comparison {
            flows: instances.iter().zip(samples).map(payload).collect(),
            measure,
            end,
        }
    }

    fn of(&self, way: Direction) -> impl Iterator<Item = &Payload<'a>> {
        let of_it = move |flow: &&Payload<'a>| flow.instance.flow.direction == way;
        let carries = |flow: &&Payload<'a>| flow.arrived.len() > 1;
        self.flows.iter().filter(of_it).filter(carries)
    }

    /// Returns Jain's index of the bulk TCP flows of a direction that were active in each window.
    pub fn fairness(&self, way: Direction) -> Option<Series> {
        let is_bulk = |flow: &&Payload<'a>| flow.instance.flow.kind.is_bulk();
        let greedy: Vec<Greedy<'_>> = self
            .of(way)
            .filter(is_bulk)
            .map(|flow| Greedy {
                samples: flow.arrived,
                start: Time::ZERO + flow.instance.start,
                stop: (Time::ZERO + flow.instance.stop).min(self.end),
            })
            .collect();
        if greedy.len() < 2 {
            return None;
        }
        let windows = shares(&greedy, self.measure.window, self.measure.step, self.end);
        let (time_s, value): (Vec<f64>, Vec<f64>) = windows
            .map(|shares| (seconds(shares.at), shares.jain().unwrap_or(f64::NAN)))
            .unzip();
        let is_any = value.iter().any(|jain| jain.is_finite());
        is_any.then(|| Series::new(time_s, value))
    }

    /// Returns the goodput of all flows of a direction, without calls and probes, against the sojourn
    /// time in its bottleneck, one of the `busiest` queues, in consecutive windows, without the warm-up.
    pub fn tradeoff(
        &self,
        way: Direction,
        queues: &[Queue],
        busiest: [&str; 2],
    ) -> Option<Tradeoff> {
        let is_its = |q: &&Queue| q.direction == way && busiest.contains(&q.name.as_str());
        let queue = queues.iter().find(is_its)?;
        let window = self.measure.window;
        let has_goodput = |flow: &&Payload<'a>| {
            let figures = flow.instance.flow.kind.metrics();
            figures.contains(&"goodput")
        };
        let all: Vec<Greedy<'_>> = self
            .of(way)
            .filter(has_goodput)
            .map(|flow| Greedy {
                samples: flow.arrived,
                start: Time::ZERO,
                stop: self.end,
            })
            .collect();
        let delays = mean_sojourns(queue, window);
        let warm = Time::ZERO + self.measure.warmup;
        let points: Vec<(f64, f64, f64)> = shares(&all, window, window, self.end)
            .zip(delays)
            .filter(|(shares, _)| shares.at >= warm.saturating_add(window))
            .filter_map(|(shares, delay)| {
                let bps: f64 = shares.bps.iter().flatten().sum();
                Some((seconds(shares.at), delay?, bps / 1e6))
            })
            .collect();
        Tradeoff::over_time(&points, &queue.name)
    }
}

/// The mean sojourn time in ms of the packets that left in each window, from the start of the run;
/// `None` if no packet left.
fn mean_sojourns(queue: &Queue, window: Span) -> Vec<Option<f64>> {
    let mut sums: Vec<(f64, u32)> = Vec::new();
    for row in queue.packets.rows() {
        if row.verdict == Verdict::Dropped {
            continue;
        }
        let place = (row.at_ns / window.as_ns()) as usize;
        if sums.len() <= place {
            sums.resize(place + 1, (0.0, 0));
        }
        let segments = u32::from(row.segments);
        sums[place].0 += row.sojourn_ns as f64 / 1e6 * f64::from(segments);
        sums[place].1 += segments;
    }
    let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PacketRow, Packets};
    use sluice_recording::FlowSample;
    use sluice_scenario::Scenario;

    #[test]
    fn goodput_against_delay_is_without_calls() {
        let text = "duration = \"10s\"\n[link]\nrate = \"2Mbit/s\"\n[measure]\nwarmup = \"0s\"\n\
                    window = \"1s\"\n[[flow]]\ntype = \"tcp\"\n[[flow]]\ntype = \"voip\"\n";
        let variant = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        let instances: Vec<FlowInstance<'_>> = variant.scenario.instances().collect();
        let second = |second| Time::ZERO + Span::from_secs(second);
        let sample = |at, flow, bytes| FlowSample {
            received_bytes: Some(bytes),
            ..FlowSample::empty(second(at), flow)
        };
        // 100 kB/s of TCP, and a call of 8 kB/s, which is counted in its last sample only.
        let mut samples = [Samples::new(Time::ZERO), Samples::new(Time::ZERO)];
        for at in 1..=10 {
            samples[0].push(&sample(at, 0, 100_000 * at));
        }
        samples[1].push(&sample(10, 1, 80_000));
        let mut packets = Packets::default();
        for window in 0..10 {
            packets.push(PacketRow {
                at_ns: window * 1_000_000_000 + 500_000_000,
                sojourn_ns: 10_000_000,
                size_bytes: 1500,
                segments: 1,
                flow: 0,
                number: 0,
                verdict: Verdict::Sent,
                reason: 0,
            });
        }
        let queue = Queue {
            name: "up".to_owned(),
            direction: Direction::Up,
            packets,
            ..Queue::default()
        };
        let measure = &variant.scenario.measure;
        let comparison = Comparison::new(&instances, &samples, measure, second(10));
        let tradeoff = comparison.tradeoff(Direction::Up, &[queue], ["up", "down"]);
        // 100 000 B/s are 0.8 Mbit/s; with the call, there were 0.864.
        let tradeoff = tradeoff.expect("ten windows");
        assert_eq!(tradeoff.goodput_mbps, [0.8; 10]);
        assert_eq!(tradeoff.delay_ms, [10.0; 10]);
    }
}
