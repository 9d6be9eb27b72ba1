//! The pictures of a sweep on a page: its figures over the axes of the matrix.

use std::collections::BTreeSet;

use sluice_recording::figures::{Probes, repeated};
use sluice_recording::results::VariantResult;
use sluice_recording::{ReadError, Recording};
use sluice_scenario::metric::Summary;

use crate::Report;
use crate::figure::Figure;
use crate::figure::curve::{self, Axes, Form};
use crate::model::SweepPicture;
use crate::picture::results;

/// Adds a picture of each key figure over the axes of the matrix, if one of the axes has at least
/// three numbers.
///
/// # Errors
/// A table of a recording cannot be read.
pub fn add(report: &mut Report, recordings: &[&Recording]) -> Result<(), ReadError> {
    // Without coordinates there is nothing to draw, and no table needs to be read.
    if recordings.len() < LEAST_VALUES {
        return Ok(());
    }
    let results = results(recordings)?;
    report.sweeps = pictures(&results);
    Ok(())
}

fn pictures(results: &[VariantResult]) -> Vec<SweepPicture> {
    let Some((form, axes)) = layout(results) else {
        return Vec::new();
    };
    let figure = Figure {
        width: WIDTH,
        ..Figure::time()
    };
    let draw = |y: String| {
        let axes = Axes { y, ..axes.clone() };
        // A figure that cannot be drawn over these axes has no picture.
        let (svg, caption) = curve::described(results, form, &axes, &figure).ok()?;
        Some(SweepPicture { caption, svg })
    };
    key_figures(results).into_iter().filter_map(draw).collect()
}

/// The axes of the picture: the longest axis of numbers on x, then the others. With more than three,
/// no picture shows all runs.
fn layout(results: &[VariantResult]) -> Option<(Form, Axes)> {
    let mut axes = curve::axes(results);
    axes.retain(|(_, values)| values.len() > 1);
    let is_numeric = |axis: &(String, Vec<_>)| curve::numbers(&axis.1).is_some();
    let x = (0..axes.len())
        .filter(|at| is_numeric(&axes[*at]) && axes[*at].1.len() >= LEAST_VALUES)
        .max_by_key(|at| (axes[*at].1.len(), usize::MAX - at))?;
    let (x, _) = axes.remove(x);
    // The longer of the others has a chart of its own for each value only if it is short.
    axes.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
    let count = |at: usize| axes.get(at).map_or(0, |(_, values)| values.len());
    if axes.len() > 2 || count(1) > MOST_CHARTS {
        return None;
    }
    let form = match count(0) > MOST_LINES {
        true => Form::HeatMap,
        false => Form::Curve,
    };
    let name = |at: usize| axes.get(at).map(|(name, _)| name.clone());
    let axes = Axes {
        x,
        by: name(0),
        each: name(1),
        ..Axes::default()
    };
    Some((form, axes))
}

/// The median of the first ping, the goodput, and the score of the first call, as far as they are
/// there.
fn key_figures(results: &[VariantResult]) -> Vec<String> {
    let names: BTreeSet<String> = results
        .iter()
        .flat_map(|result| repeated(&result.summaries()))
        .map(|(name, _)| name)
        .collect();
    let summaries: Vec<&Summary> = results.iter().flat_map(VariantResult::summaries).collect();
    let probes = Probes::of(&summaries);
    let ping = summaries.iter().find_map(|run| probes.main(run));
    let ping = ping.map(|flow| format!("{}.p50", flow.name));
    let flows = summaries.iter().flat_map(|run| &run.flows);
    let calls = flows.filter(|flow| flow.is_call());
    let mut scores = calls.map(|flow| format!("{}.mos", flow.name));
    let call = scores.find(|name| names.contains(name));
    let goodput = Some("total.goodput".to_owned());
    let all = [ping, goodput, call].into_iter().flatten();
    all.filter(|name| names.contains(name)).collect()
}

/// The least number of values of the axis on x.
const LEAST_VALUES: usize = 3;
/// The most lines of a chart; more values are the rows of a heat map.
const MOST_LINES: usize = 8;
const MOST_CHARTS: usize = 4;
/// The width in CSS pixels, at which text is legible on a narrow screen, too.
const WIDTH: u32 = 440;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_scenario::{Backend, Coordinate};

    fn results(axes: &[(&str, &[&str])]) -> Vec<VariantResult> {
        let mut all: Vec<Vec<Coordinate>> = vec![Vec::new()];
        for (key, values) in axes {
            let with = |before: &Vec<Coordinate>| {
                let before = before.clone();
                values.iter().map(move |value| {
                    let own = Coordinate {
                        key: (*key).to_owned(),
                        value: (*value).to_owned(),
                        name: format!("{key}={value}"),
                    };
                    [before.clone(), vec![own]].concat()
                })
            };
            all = all.iter().flat_map(with).collect();
        }
        let result = |coordinates| VariantResult {
            scenario: "a sweep".to_owned(),
            variant: String::new(),
            coordinates,
            backend: Backend::Sim,
            runs: Vec::new(),
            expect: Vec::new(),
        };
        all.into_iter().map(result).collect()
    }

    #[test]
    fn the_longest_axis_of_numbers_is_on_x_and_no_axis_is_left_out() {
        let queues: (&str, &[&str]) = ("link.queue", &["fifo", "codel"]);
        let rtts: (&str, &[&str]) = ("link.rtt", &["10ms", "20ms", "40ms"]);
        let rates: (&str, &[&str]) = ("link.rate", &["1Mbit/s", "2Mbit/s", "4Mbit/s", "8Mbit/s"]);
        let (form, axes) = layout(&results(&[queues, rtts, rates])).expect("a sweep");
        assert_eq!(form, Form::Curve);
        assert_eq!(axes.x, "link.rate");
        assert_eq!(axes.by.as_deref(), Some("link.rtt"));
        assert_eq!(axes.each.as_deref(), Some("link.queue"));
        // Words alone are no sweep.
        assert_eq!(layout(&results(&[queues])), None);
        // Ten lines hide one another.
        let many = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
        let both = [("a", many.as_slice()), ("b", many.as_slice())];
        let (form, axes) = layout(&results(&both)).expect("a sweep");
        assert_eq!((form, axes.x.as_str()), (Form::HeatMap, "a"));
    }
}
