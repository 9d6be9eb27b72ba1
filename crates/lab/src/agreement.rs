//! Compares the simulator with real packets: the same variant on both backends, figure by figure.
//!
//! A live figure is the median of the live runs, a simulated figure the median of the simulated
//! runs. The bounds are the largest differences at which the simulator is considered accurate. A
//! larger difference needs an investigation.

use std::fmt::Write as _;

use serde::Serialize;

use crate::table::{NOTABLE_DELAY_NS, cut, wrap};
use sluice_recording::figures::median;
use sluice_recording::results::VariantResult;
use sluice_scenario::Backend;
use sluice_scenario::metric::{PipeSummary, Summary, Unit};

/// A variant on both backends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// The variant.
    pub variant: String,
    /// The number of live runs.
    pub live_runs: usize,
    /// The time within which 99 % of the packets of each live run left after they were due, in
    /// nanoseconds.
    pub late_p99_ns: Option<u64>,
    /// The figures of both backends.
    pub figures: Vec<Agreed>,
}

/// A figure on both backends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreed {
    /// Name.
    pub metric: String,
    /// Its unit.
    pub unit: Unit,
    /// Simulated.
    pub sim: f64,
    /// Live.
    pub live: f64,
    /// The difference as a part of the live figure; `None` if that is zero.
    pub difference: Option<f64>,
    /// The bound on the difference.
    pub bound: f64,
    /// Whether the difference is within the bound.
    pub is_within: bool,
}

/// The bounds on the simulator's error.
mod bound {
    pub const GOODPUT: f64 = 0.02;
    pub const MEDIAN: f64 = 0.15;
    pub const P95: f64 = 0.25;
    pub const DROPS: f64 = 0.30;
}

/// Compares every variant of `results` that was both simulated and live.
pub fn agreements(results: &[VariantResult]) -> Vec<Agreement> {
    let of = |backend| results.iter().filter(move |r| r.backend == backend);
    let of_both = of(Backend::Sim).filter_map(|sim| {
        let is_same = |live: &&VariantResult| {
            (&live.scenario, &live.variant) == (&sim.scenario, &sim.variant)
        };
        Some((sim, of(Backend::Live).find(is_same)?))
    });
    of_both
        .map(|(sim, live)| Agreement {
            variant: sim.variant.clone(),
            live_runs: live.runs.len(),
            late_p99_ns: late_p99_ns(&live.summaries()),
            figures: agreed(&sim.summaries(), &live.summaries()),
        })
        .collect()
}

fn late_p99_ns(live: &[&Summary]) -> Option<u64> {
    let late = live
        .iter()
        .filter_map(|run| run.accuracy.as_ref()?.lateness);
    late.map(|late| late.p99_ns).max()
}

type Value = Box<dyn Fn(&Summary) -> Option<f64>>;

fn agreed(sim: &[&Summary], live: &[&Summary]) -> Vec<Agreed> {
    let mut figures = Vec::new();
    let mut add = |metric: String, unit, bound, value: Value| {
        let median_of = |runs: &[&Summary]| {
            median(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>())
        };
        let (Some(sim), Some(live)) = (median_of(sim), median_of(live)) else {
            return;
        };
        let difference = (sim - live) / live;
        figures.push(Agreed {
            metric,
            unit,
            sim,
            live,
            difference: difference.is_finite().then_some(difference),
            bound,
            is_within: (sim - live).abs() <= bound * live.abs(),
        });
    };
    add(
        "total.goodput".into(),
        Unit::Rate,
        bound::GOODPUT,
        Box::new(|s| s.total_goodput_bps),
    );
    let Some(first) = sim.first() else {
        return figures;
    };
    // The directions that carry payload; the queueing of acknowledgements is not compared.
    for direction in &first.directions {
        let name = direction.direction.word();
        let pipe = move |s: &Summary, of: &dyn Fn(&PipeSummary) -> Option<u64>| {
            let pipe = s.pipes.iter().find(|pipe| pipe.name == name)?;
            of(pipe).map(|n| n as f64)
        };
        let time = Unit::Time;
        add(
            format!("{name}.sojourn.p50"),
            time,
            bound::MEDIAN,
            Box::new(move |s| pipe(s, &|p| Some(p.sojourn?.p50_ns))),
        );
        add(
            format!("{name}.sojourn.p95"),
            time,
            bound::P95,
            Box::new(move |s| pipe(s, &|p| Some(p.sojourn?.p95_ns))),
        );
        // If all packets have the same size, waiting times are multiples of one transmission, and
        // percentiles jump between these multiples.
        add(
            format!("{name}.sojourn.mean"),
            time,
            bound::MEDIAN,
            Box::new(move |s| pipe(s, &|p| Some(p.sojourn?.mean_ns))),
        );
        let per_minute = |s: &Summary, n: f64| {
            let minutes = s.window.end_ns.checked_sub(s.window.warmup_ns)? as f64 / 60e9;
            (minutes > 0.0).then(|| n / minutes)
        };
        add(
            format!("{name}.drops per minute"),
            Unit::Count,
            bound::DROPS,
            Box::new(move |s| per_minute(s, pipe(s, &|p| Some(p.drops.values().sum()))?)),
        );
        add(
            format!("{name}.marks per minute"),
            Unit::Count,
            bound::DROPS,
            Box::new(move |s| per_minute(s, pipe(s, &|p| Some(p.marks))?)),
        );
    }
    for (i, flow) in first.flows.iter().enumerate() {
        let what = if flow.rtt.is_some() { "" } else { "srtt." };
        let rtt = move |s: &Summary| s.flows.get(i).and_then(|flow| flow.rtt.or(flow.srtt));
        add(
            format!("{}.{what}p50", flow.name),
            Unit::Time,
            bound::MEDIAN,
            Box::new(move |s| Some(rtt(s)?.p50_ns as f64)),
        );
        add(
            format!("{}.{what}p95", flow.name),
            Unit::Time,
            bound::P95,
            Box::new(move |s| Some(rtt(s)?.p95_ns as f64)),
        );
    }
    figures
}

/// Formats the figures of both backends side by side, in at most 80 columns.
pub fn text(agreements: &[Agreement]) -> String {
    let mut out = String::new();
    for agreement in agreements {
        let live = match agreement.live_runs {
            1 => "live".to_owned(),
            n => format!("live, {n} runs"),
        };
        let _ = writeln!(
            out,
            "{:<26}{:>13}{:>15}{:>12}{:>8}",
            cut(&agreement.variant, 25),
            "sim",
            live,
            "difference",
            "bound"
        );
        for figure in &agreement.figures {
            let difference = match figure.difference {
                Some(difference) => format!("{:+.1} %", difference * 100.0),
                None if figure.is_within => "none".into(),
                None => "-".into(),
            };
            let _ = writeln!(
                out,
                "  {:<24}{:>13}{:>15}{:>12}{:>6.0} %{}",
                cut(&figure.metric, 23),
                show(figure.unit, figure.sim),
                show(figure.unit, figure.live),
                difference,
                figure.bound * 100.0,
                if figure.is_within { "" } else { " out" }
            );
        }
        let is_any_out = agreement.figures.iter().any(|figure| !figure.is_within);
        if let Some(late) = agreement.late_p99_ns.filter(|_| is_any_out) {
            out.push_str(&wrap(&about_out(late)));
        }
        out.push('\n');
    }
    out
}

/// Says what a figure out of its bound means on a machine that sent 1 % of the packets later than
/// `late`, in nanoseconds.
fn about_out(late: u64) -> String {
    let ms = late as f64 / 1e6;
    if late < NOTABLE_DELAY_NS {
        return format!(
            "out: the router was on time (99 % of the packets at most {ms:.2} ms late), but the TCP of \
             the hosts may have been late; repeat the run before you judge the queue or the simulator"
        );
    }
    format!(
        "out: the machine was busy: the router sent 1 % of the packets more than {ms:.1} ms late, which \
         delays those behind them, and the TCP of the hosts was late, too; that is not the queue's \
         doing, so repeat the run on a quiet machine"
    )
}

fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count => format!("{value:.1}"),
        unit => unit.show(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use sluice_recording::Status;
    use sluice_recording::results::RunResult;
    use sluice_scenario::Direction;
    use sluice_scenario::metric::{DirectionSummary, Percentiles, Window};

    fn result(backend: Backend, goodputs: &[f64], p50_ms: u64, drops: u64) -> VariantResult {
        let run = |goodput: &f64| RunResult {
            seed: 1,
            folder: "x".into(),
            status: Status::Complete,
            reused: false,
            stopped: Vec::new(),
            summary: summary(*goodput, p50_ms, drops),
        };
        VariantResult {
            scenario: "s".into(),
            variant: "codel".into(),
            coordinates: Vec::new(),
            backend,
            runs: goodputs.iter().map(run).collect(),
            expect: Vec::new(),
        }
    }

    fn summary(goodput: f64, p50_ms: u64, drops: u64) -> Summary {
        let pipe = serde_json::json!({
            "name": "up", "utilisation": 1.0, "packets": 10, "sent": 10, "marks": 0,
            "drops": BTreeMap::from([("congestion", drops)]),
        });
        let mut pipe: PipeSummary = serde_json::from_value(pipe).expect("a pipe");
        pipe.sojourn = Some(Percentiles {
            count: 1,
            min_ns: 0,
            p50_ns: p50_ms * 1_000_000,
            p95_ns: 0,
            p99_ns: 0,
            max_ns: 0,
            mean_ns: p50_ms * 2_000_000,
            deviation_ns: 0,
        });
        let direction = serde_json::json!({ "direction": "up", "goodput_bps": goodput });
        let direction: DirectionSummary = serde_json::from_value(direction).expect("a direction");
        assert_eq!(direction.direction, Direction::Up);
        let all = serde_json::json!({
            "variant": "codel", "flows": [], "groups": [], "pipes": [], "directions": [],
            "total_goodput_bps": goodput,
            // Two minutes are measured.
            "window": Window { warmup_ns: 1_000_000_000, end_ns: 121_000_000_000 },
        });
        Summary {
            pipes: vec![pipe],
            directions: vec![direction],
            ..serde_json::from_value(all).expect("a summary")
        }
    }

    #[test]
    fn the_simulation_is_compared_with_the_median_of_the_live_runs() {
        let sim = result(Backend::Sim, &[9.9e6], 23, 26);
        let live = result(Backend::Live, &[9.0e6, 10.0e6, 10.1e6], 20, 20);
        let all = agreements(&[sim, live]);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].live_runs, 3);
        let figure = |name: &str| {
            let found = all[0].figures.iter().find(|f| f.metric == name);
            let f = found.expect("the figure");
            (f.sim, f.live, f.is_within)
        };
        // The difference is 1 % with a bound of 2 %, and exactly 15 % with a bound of 15 %.
        assert_eq!(figure("total.goodput"), (9.9e6, 10.0e6, true));
        assert_eq!(figure("up.sojourn.p50"), (23e6, 20e6, true));
        // 13 and 10 drops per minute differ by exactly the bound of 30 %.
        assert_eq!(figure("up.drops per minute"), (13.0, 10.0, true));
        // Zero equals zero.
        assert_eq!(figure("up.marks per minute"), (0.0, 0.0, true));
    }

    #[test]
    fn a_figure_out_of_bounds_comes_with_the_lateness_of_the_machine() {
        let agreement = |sim_bps: f64, late_ns| {
            let sim = result(Backend::Sim, &[sim_bps], 20, 20);
            let live = result(Backend::Live, &[10.0e6], 20, 20);
            let mut all = agreements(&[sim, live]);
            all[0].late_p99_ns = late_ns;
            let text = text(&all);
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
            text.replace("\n    ", " ")
        };
        let busy = agreement(9.7e6, Some(2_500_000));
        assert!(
            busy.contains("1 % of the packets more than 2.5 ms late"),
            "{busy}"
        );
        let quiet = agreement(9.7e6, Some(50_000));
        assert!(
            quiet.contains("99 % of the packets at most 0.05 ms late"),
            "{quiet}"
        );
        // Nothing is out, or no live run measured its lateness.
        for said in [agreement(10.0e6, Some(2_500_000)), agreement(9.7e6, None)] {
            assert!(!said.contains(" late"), "{said}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_marked_within_80_columns() {
        let sim = result(Backend::Sim, &[9.7e6], 23, 27);
        let live = result(Backend::Live, &[10.0e6], 20, 20);
        let text = text(&agreements(&[sim, live]));
        assert_eq!(
            text,
            "\
codel                               sim           live  difference   bound
  total.goodput               9.7Mbit/s       10Mbit/s      -3.0 %     2 % out
  up.sojourn.p50                   23ms           20ms     +15.0 %    15 %
  up.sojourn.p95                    0ns            0ns        none    25 %
  up.sojourn.mean                  46ms           40ms     +15.0 %    15 %
  up.drops per minute              13.5           10.0     +35.0 %    30 % out
  up.marks per minute               0.0            0.0        none    30 %

"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
