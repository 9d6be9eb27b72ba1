//! What a picture shows of a report: one direction, a window of time, chosen figures.

use super::{Picture, PictureError, names};
use crate::export::figures;
use crate::figure::repeats::Interval;
use crate::figure::words::unit_of;
use crate::report_of::completions;
use crate::{Report, model};
use sluice_recording::figures::{Repeated, repeated};
use sluice_recording::results::VariantResult;

impl Picture {
    /// Leaves out of a report what the picture does not show.
    pub(super) fn narrow(&self, report: &mut Report) -> Result<(), PictureError> {
        if let Some(way) = self.direction {
            for run in &mut report.runs {
                run.directions.retain(|total| total.direction == way);
                run.flows.retain(|flow| flow.direction == way);
                run.queues.retain(|queue| queue.direction == way);
                run.repeats
                    .retain(|repeat| repeat.direction.is_none_or(|of_it| of_it == way));
            }
            if report
                .runs
                .iter()
                .all(|run| run.queues.is_empty() && run.flows.is_empty())
            {
                return Err(PictureError::Direction(way));
            }
        }
        if self.from_s.is_none() && self.to_s.is_none() {
            return Ok(());
        }
        let longest = report
            .runs
            .iter()
            .map(|run| run.duration_s)
            .fold(0.0, f64::max);
        let from_s = self.from_s.unwrap_or(0.0);
        let to_s = self.to_s.unwrap_or(longest).min(longest);
        if from_s >= to_s {
            return Err(PictureError::Window { from_s, to_s });
        }
        report.start_s = from_s;
        report.is_window = true;
        for run in &mut report.runs {
            cut_run(run, from_s, to_s);
        }
        Ok(())
    }
}

/// Shows the figures in `list` over the repetitions instead of the key figures.
pub(super) fn show_figures(
    report: &mut Report,
    results: &[VariantResult],
    list: &str,
) -> Result<(), PictureError> {
    let all: Vec<Vec<(String, Repeated)>> = results
        .iter()
        .map(|result| repeated(&result.summaries()))
        .collect();
    for name in names(list) {
        if !all.iter().flatten().any(|(known, _)| known == name) {
            let known = figures::names(&all);
            let name = name.to_owned();
            return Err(PictureError::NoFigure { name, known });
        }
    }
    for (run, figures) in report.runs.iter_mut().zip(&all) {
        let shown = |name: &str| {
            let (_, figure) = figures.iter().find(|(known, _)| known == name)?;
            let (factor, unit) = unit_of(name, figure.unit);
            let values: Vec<f64> = figure.values.iter().map(|value| value * factor).collect();
            Some(model::Repeat {
                figure: name.to_owned(),
                unit: unit.to_owned(),
                median: figure.spread.median * factor,
                interval: Interval::of_median(&values)
                    .map(|interval| (interval.low, interval.high)),
                values,
                direction: None,
            })
        };
        run.repeats = names(list).filter_map(shown).collect();
    }
    Ok(())
}

/// Leaves out everything outside a window of time.
fn cut_run(run: &mut model::Run, from_s: f64, to_s: f64) {
    run.duration_s = run.duration_s.min(to_s);
    // These are of the whole run; the samples within the window are those of one repetition.
    for ping in &mut run.pings {
        ping.box_ms = None;
        ping.measured_from_s = from_s;
    }
    for queue in &mut run.queues {
        queue.box_ms = None;
    }
    let cut = |series: &mut model::Series| {
        let kept: Vec<(f64, f64)> = series
            .time_s
            .iter()
            .copied()
            .zip(series.value.iter().copied())
            .filter(|(at, _)| (from_s..=to_s).contains(at))
            .collect();
        (series.time_s, series.value) = kept.into_iter().unzip();
    };
    for flow in &mut run.flows {
        cut(&mut flow.goodput_mbps);
        let others = [
            &mut flow.cwnd_segments,
            &mut flow.srtt_ms,
            &mut flow.retransmits,
        ];
        others.into_iter().flatten().for_each(cut);
    }
    for ping in &mut run.pings {
        cut(&mut ping.two_way_ms);
        [&mut ping.up_ms, &mut ping.down_ms]
            .into_iter()
            .flatten()
            .for_each(cut);
    }
    for total in &mut run.directions {
        total.jain_over_time.iter_mut().for_each(cut);
        let tradeoff = total.tradeoff.as_ref();
        let window_s = run.goodput_window_s;
        total.tradeoff = tradeoff.and_then(|whole| whole.between(from_s, to_s, window_s));
    }
    run.completions
        .retain(|(start_s, _)| (from_s..=to_s).contains(start_s));
    run.completion_ms = completions::distribution(&run.completions);
    for queue in &mut run.queues {
        // The rate that holds at the start of the window was set before it.
        let steps: Vec<(f64, f64)> = queue.link_mbps.points().collect();
        let held = steps.iter().rev().find(|(at, _)| *at <= from_s);
        let held = held.map(|(_, mbps)| (from_s, *mbps));
        let later = steps
            .iter()
            .copied()
            .filter(|(at, _)| *at > from_s && *at <= to_s);
        let (time_s, value) = held.into_iter().chain(later).unzip();
        queue.link_mbps = model::Series::new(time_s, value);
        cut(&mut queue.backlog_packets);
        cut(&mut queue.backlog_bytes);
        queue
            .state
            .iter_mut()
            .for_each(|state| cut(&mut state.series));
        let mut packets = model::Packets {
            flows: queue.packets.flows.clone(),
            reasons: queue.packets.reasons.clone(),
            ..model::Packets::default()
        };
        let window = (from_s * 1e9) as u64..=(to_s * 1e9) as u64;
        for row in queue
            .packets
            .rows()
            .filter(|row| window.contains(&row.at_ns))
        {
            packets.push(row);
        }
        queue.packets = packets;
        // The distribution is that of the packets of the window.
        queue.sojourn_cdf = None;
    }
}

#[cfg(test)]
mod tests {
    use super::cut_run;
    use crate::model::{DirectionTotal, Queue, Run, Series, Tradeoff};
    use crate::report_of::completions;

    #[test]
    fn a_window_of_time_holds_for_all_that_is_drawn() {
        // 20 Mbit/s, and half of it from 5 s on; windows of 1 s.
        let mbps = |at: f64| if at <= 5.0 { 20.0 } else { 10.0 };
        let points: Vec<(f64, f64, f64)> = (1..=20)
            .map(|at| (f64::from(at), 8.0, mbps(f64::from(at))))
            .collect();
        let transfers = vec![(2.0, 40.0), (12.0, 80.0), (14.0, 90.0), (16.0, 70.0)];
        let mut run = Run {
            duration_s: 20.0,
            goodput_window_s: 1.0,
            directions: vec![DirectionTotal {
                tradeoff: Tradeoff::over_time(&points, "up"),
                ..DirectionTotal::default()
            }],
            queues: vec![Queue {
                link_mbps: Series::new(vec![0.0, 5.0, 18.0], vec![20.0, 10.0, 1.0]),
                ..Queue::default()
            }],
            completion_ms: completions::distribution(&transfers),
            completions: transfers,
            ..Run::default()
        };
        cut_run(&mut run, 10.0, 15.0);
        // The windows that lie between 10 and 15 s end at 11, 12, 13, 14 and 15 s.
        let tradeoff = run.directions[0].tradeoff.as_ref().expect("five points");
        assert_eq!(tradeoff.goodput_mbps, [10.0; 5]);
        assert_eq!(tradeoff.mean_goodput_mbps, 10.0);
        assert_eq!(tradeoff.queue, "up");
        let completion = run
            .completion_ms
            .expect("transfers that began in the window");
        assert_eq!(completion.value, [80.0, 90.0]);
        assert_eq!(run.queues[0].link_mbps, Series::new(vec![10.0], vec![10.0]));
    }
}
