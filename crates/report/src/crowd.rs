//! What the page shows of a direction with too many flows to draw each: the sum of their goodputs,
//! quantiles over the flows at each time, a row of figures for each flow, and the curves of the
//! fastest and the slowest.

use sluice_recording::metrics::percentile;

use super::model::{Crowd, CrowdFlow, Direction, Flow, QuantileLine, Run, Series};

/// A direction with more flows than this is a crowd.
pub const MOST_FLOWS: usize = 40;
/// The number of the fastest flows of a crowd whose curves are drawn, and of the slowest.
pub const DRAWN: usize = 10;
/// The number of times at which the quantiles are computed: the pixels of a chart are not many more.
const MOST_TIMES: usize = 500;

/// The quantiles: a name, and the percentage of the flows that do not exceed the value.
const QUANTILES: [(&str, usize); 5] = [
    ("largest", 100),
    ("95 %", 95),
    ("median", 50),
    ("5 %", 5),
    ("smallest", 0),
];

/// Replaces the curves of each direction that has more than [`MOST_FLOWS`] flows by a [`Crowd`]. The
/// fastest and the slowest flows keep their curves.
pub fn gather(run: &mut Run) {
    for direction in [Direction::Up, Direction::Down] {
        let is_of_it = |flow: &Flow| flow.direction == direction;
        if run.flows.iter().filter(|flow| is_of_it(flow)).count() <= MOST_FLOWS {
            continue;
        }
        let (mut of_it, others): (Vec<Flow>, Vec<Flow>) = std::mem::take(&mut run.flows)
            .into_iter()
            .partition(is_of_it);
        run.crowds.push(crowd(run, direction, &of_it));
        // A flow without a goodput has sent nothing in the measured time. The sort is stable.
        let goodput = |flow: &Flow| flow.figures.goodput_mbps.unwrap_or(0.0);
        of_it.sort_by(|a, b| goodput(b).total_cmp(&goodput(a)));
        let slowest = of_it.split_off(of_it.len() - DRAWN);
        of_it.truncate(DRAWN);
        run.flows = others;
        run.flows.extend(of_it);
        run.flows.extend(slowest);
    }
}

fn crowd(run: &Run, direction: Direction, flows: &[Flow]) -> Crowd {
    let grid = Grid::of(run);
    let all = |pick: fn(&Flow) -> Option<&Series>| -> Vec<&Series> {
        flows.iter().filter_map(pick).collect()
    };
    let goodput = all(|flow| Some(&flow.goodput_mbps));
    let row = |flow: &Flow| CrowdFlow {
        name: flow.name.clone(),
        figures: flow.figures,
    };
    Crowd {
        direction,
        flows: flows.iter().map(row).collect(),
        sum_mbps: grid.sum(&goodput),
        goodput_mbps: grid.quantiles(&goodput),
        cwnd_segments: grid.quantiles(&all(|flow| flow.cwnd_segments.as_ref())),
        srtt_ms: grid.quantiles(&all(|flow| flow.srtt_ms.as_ref())),
    }
}

/// The times at which series are compared.
struct Grid {
    /// The distance between two times.
    step: f64,
    /// The number of times after 0.
    count: usize,
}

impl Grid {
    fn of(run: &Run) -> Grid {
        let steps = (run.duration_s / run.goodput_step_s).round().max(1.0) as usize;
        let each = steps.div_ceil(MOST_TIMES);
        Grid {
            step: run.goodput_step_s * each as f64,
            count: steps / each,
        }
    }

    /// Calls `take` with each time and the values that the series have then; at some times, there may
    /// be none.
    fn walk(&self, series: &[&Series], mut take: impl FnMut(f64, &mut Vec<f64>)) {
        let mut cursors: Vec<Held<'_>> = series.iter().map(|series| Held::new(series)).collect();
        let mut values = Vec::with_capacity(series.len());
        for at in 0..=self.count {
            let time = at as f64 * self.step;
            values.clear();
            values.extend(
                cursors
                    .iter_mut()
                    .filter_map(|held| held.at(time, self.step)),
            );
            take(time, &mut values);
        }
    }

    fn sum(&self, series: &[&Series]) -> Series {
        let mut sum = Series::default();
        self.walk(series, |time, values| {
            if !values.is_empty() {
                sum.time_s.push(time);
                sum.value.push(values.iter().sum());
            }
        });
        sum
    }

    fn quantiles(&self, series: &[&Series]) -> Vec<QuantileLine> {
        if series.is_empty() {
            return Vec::new();
        }
        let mut lines = QUANTILES.map(|(name, _)| QuantileLine {
            name: name.to_owned(),
            series: Series::default(),
        });
        self.walk(series, |time, values| {
            if values.is_empty() {
                return;
            }
            for ((_, percent), line) in QUANTILES.iter().zip(&mut lines) {
                line.series.time_s.push(time);
                line.series.value.extend(percentile(values, *percent));
            }
        });
        lines.into()
    }
}

/// A series that is read in the order of time. A value holds until the next one; the last one, for
/// one step of the grid.
struct Held<'a> {
    series: &'a Series,
    next: usize,
}

impl<'a> Held<'a> {
    fn new(series: &'a Series) -> Self {
        Held { series, next: 0 }
    }

    fn at(&mut self, time: f64, step: f64) -> Option<f64> {
        let times = &self.series.time_s;
        // Times on the grid are multiples of a decimal fraction, which are inexact.
        let slack = step * 1e-6;
        while times
            .get(self.next)
            .is_some_and(|next| *next <= time + slack)
        {
            self.next += 1;
        }
        let last = self.next.checked_sub(1)?;
        let is_over = self.next == times.len() && times[last] + step < time - slack;
        Some(self.series.value[last]).filter(|value| value.is_finite() && !is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FlowFigures;

    /// A run of 10 s with flows 1 to `count`: flow n has a goodput of n Mbit/s and a window of n
    /// segments from 0 s on, and ends at 6 s if n is even.
    fn run(count: u32) -> Run {
        let flow = |n: u32| {
            let until = if n.is_multiple_of(2) { 6 } else { 10 };
            let time_s: Vec<f64> = (0..=until).map(f64::from).collect();
            let value = vec![f64::from(n); time_s.len()];
            Flow {
                name: format!("tcp-{n}"),
                direction: Direction::Up,
                figures: FlowFigures {
                    goodput_mbps: Some(f64::from(n)),
                    ..FlowFigures::default()
                },
                goodput_mbps: Series::new(time_s.clone(), value.clone()),
                cwnd_segments: Some(Series::new(time_s, value)),
                ..Flow::default()
            }
        };
        Run {
            duration_s: 10.0,
            goodput_step_s: 1.0,
            flows: (1..=count).map(flow).collect(),
            ..Run::default()
        }
    }

    fn names(run: &Run) -> Vec<&str> {
        run.flows.iter().map(|flow| flow.name.as_str()).collect()
    }

    #[test]
    fn few_flows_are_left_alone() {
        let mut few = run(MOST_FLOWS as u32);
        gather(&mut few);
        assert_eq!(few, run(MOST_FLOWS as u32));
    }

    #[test]
    fn of_many_flows_the_ten_fastest_and_the_ten_slowest_keep_their_curves() {
        let mut many = run(100);
        let down = Flow {
            name: "down".into(),
            direction: Direction::Down,
            ..Flow::default()
        };
        many.flows.insert(50, down);
        gather(&mut many);
        let fastest = (91..=100).rev().map(|n| format!("tcp-{n}"));
        let slowest = (1..=10).rev().map(|n| format!("tcp-{n}"));
        let expected: Vec<String> = std::iter::once("down".to_owned())
            .chain(fastest)
            .chain(slowest)
            .collect();
        assert_eq!(names(&many), expected);
        assert_eq!(many.crowds.len(), 1);
        // Every flow has its figures, in the order of the scenario.
        let all: Vec<&str> = many.crowds[0]
            .flows
            .iter()
            .map(|f| f.name.as_str())
            .collect();
        assert_eq!((all.len(), all[0], all[99]), (100, "tcp-1", "tcp-100"));
        assert_eq!(many.crowds[0].flows[41].figures.goodput_mbps, Some(42.0));
    }

    #[test]
    fn sums_and_quantiles_are_those_of_the_flows_that_have_values() {
        let mut many = run(100);
        gather(&mut many);
        let crowd = &many.crowds[0];
        let times: Vec<f64> = (0..=10).map(f64::from).collect();
        assert_eq!(crowd.sum_mbps.time_s, times);
        // All flows until 6 s, and one step longer: 1 + ... + 100. Then the odd ones: 50 squared.
        let sums = [[5050.0; 8].as_slice(), &[2500.0; 3]].concat();
        assert_eq!(crowd.sum_mbps.value, sums);
        // Of 1 to 100, 95 are not larger than 95. Of the 50 odd numbers to 99, 48 (47.5 rounded up)
        // are not larger than 95, 25 not than 49, and 3 (2.5) not than 5.
        let expected = [
            ("largest", 100.0, 99.0),
            ("95 %", 95.0, 95.0),
            ("median", 50.0, 49.0),
            ("5 %", 5.0, 5.0),
            ("smallest", 1.0, 1.0),
        ];
        for lines in [&crowd.goodput_mbps, &crowd.cwnd_segments] {
            assert_eq!(lines.len(), 5);
            for (line, (name, before, after)) in lines.iter().zip(expected) {
                assert_eq!(line.name, name);
                let values = [[before; 8].as_slice(), &[after; 3]].concat();
                assert_eq!(line.series.value, values, "{name}");
            }
        }
        assert!(crowd.srtt_ms.is_empty());
    }

    #[test]
    fn a_long_run_has_as_many_times_as_a_chart_can_show() {
        let mut long = run(100);
        long.duration_s = 3600.0;
        long.goodput_step_s = 0.25;
        gather(&mut long);
        // 14 400 steps in 497 groups of 29. The values end after 10 s.
        let times = &long.crowds[0].sum_mbps.time_s;
        assert_eq!(times[1], 29.0 * 0.25);
        let grid = Grid::of(&long);
        assert_eq!((grid.count, grid.count <= MOST_TIMES), (496, true));
    }
}
