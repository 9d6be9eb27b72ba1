//! The caption of a sweep.

use sluice_scenario::Coordinate;

use super::{Axes, Form, Gap, Interval, Marks, Sweep, Words, marks_of, numbers};

/// Returns the caption: what the values are, and where not all runs measured them.
pub(super) fn caption(
    sweep: &Sweep,
    asked: &Axes,
    (form, marks, names): (Form, Marks, Words<'_>),
    is_live: bool,
) -> String {
    let usual = usual_caption(sweep, asked, (form, marks, names), is_live);
    usual + &sweep.parts() + &sweep.gaps_in_words(asked, names)
}

fn usual_caption(
    sweep: &Sweep,
    asked: &Axes,
    (form, marks, names): (Form, Marks, Words<'_>),
    is_live: bool,
) -> String {
    let backend = if is_live { "" } else { " (simulated)" };
    let figure = names.figure(&asked.y);
    let runs = match sweep.runs {
        1 => "one run".to_owned(),
        n => format!("{n} runs"),
    };
    if sweep.runs < 2 || form == Form::HeatMap {
        let colours = match form {
            Form::HeatMap => " Brighter cells have higher values.",
            Form::Curve => "",
        };
        return match sweep.runs {
            1 => format!("{figure} of one run per point{backend}.{colours}"),
            _ => format!("{figure}: median of {runs} per point{backend}.{colours}"),
        };
    }
    let counts = sweep.points.iter().map(|point| point.spread.count);
    let least = counts.min().unwrap_or(sweep.runs);
    match marks_of(sweep, marks) {
        Marks::Auto => {
            let band = Interval::explained(least, sweep.runs);
            format!("{figure}: median of {runs} per point{backend}. Band: {band}.")
        }
        marks => {
            let explained = marks.explained(least, sweep.runs);
            format!("{figure}, {runs} per point{backend}. {explained}")
        }
    }
}

/// One of the `values` of an axis in words, with the axis if they are numbers.
pub(super) fn value_in_words(
    axis: &str,
    values: &[Coordinate],
    value: &Coordinate,
    names: Words<'_>,
) -> String {
    match numbers(values) {
        Some(_) => format!("{} {}", names.axis(axis), names.value(&value.value)),
        None => names.value(&value.name),
    }
}

impl Sweep {
    /// Says for a caption at which points fewer runs measured the figure; empty if at none.
    fn parts(&self) -> String {
        let partial = self
            .points
            .iter()
            .filter(|point| point.spread.count < point.runs);
        let counts: Vec<usize> = partial.map(|point| point.spread.count).collect();
        let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
            return String::new();
        };
        let count = match least == most {
            true => least.to_string(),
            false => format!("{least} to {most}"),
        };
        match counts.len() {
            1 => format!(" At one point only {count} of the runs measured it."),
            n => format!(" At {n} points only {count} of the runs measured it."),
        }
    }

    /// Says for a caption where no run measured the figure; empty if all did.
    fn gaps_in_words(&self, asked: &Axes, names: Words<'_>) -> String {
        let axes = [
            (Some(&asked.x), &self.x),
            (asked.by.as_ref(), &self.by),
            (asked.each.as_ref(), &self.each),
        ];
        let words = |gap: &Gap| {
            let places = axes.iter().zip([gap.x, gap.by, gap.each]);
            let words = places.filter_map(|((axis, values), at)| {
                Some(value_in_words((*axis)?, values, values.get(at)?, names))
            });
            words.collect::<Vec<String>>().join(", ")
        };
        match self.gaps.len() {
            0 => String::new(),
            1..=MOST_NAMED => {
                let gaps: Vec<String> = self.gaps.iter().map(words).collect();
                format!(" No run measured it at {}.", gaps.join("; "))
            }
            n => format!(" At {n} points no run measured it."),
        }
    }
}

/// The most points that a caption names.
const MOST_NAMED: usize = 4;
