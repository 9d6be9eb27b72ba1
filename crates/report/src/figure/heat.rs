//! Heat maps: a figure over two axes, as coloured cells with their values.

use plotters::style::RGBColor;
use sluice_recording::results::VariantResult;
use sluice_scenario::Coordinate;

use super::curve::{Axes, CurveError, Sweep, axes, label, numbers};
use super::panel::{Fill, FillStyle, Note, Panel};
use super::scale::Scale;
use super::words::Words;

/// One map for each value of the third axis.
///
/// # Errors
/// There is no second axis.
pub fn heat_maps(
    sweep: &Sweep,
    asked: &Axes,
    results: &[VariantResult],
    names: Words<'_>,
) -> Result<Vec<Panel>, CurveError> {
    let Some(by) = &asked.by else {
        let all = axes(results).into_iter().map(|(key, _)| key);
        return Err(CurveError::SecondAxis {
            known: all.filter(|key| *key != asked.x).collect(),
        });
    };
    let (factor, unit) = sweep.scale(&asked.y);
    let values = || {
        sweep
            .points
            .iter()
            .map(|point| point.spread.median * factor)
    };
    let most = values().fold(f64::NEG_INFINITY, f64::max);
    let least = values().fold(f64::INFINITY, f64::min);
    let is_log = least > 0.0 && most > 20.0 * least;
    let share = |value: f64| match is_log {
        _ if most <= least => 0.5,
        true => (value / least).ln() / (most / least).ln(),
        false => (value - least) / (most - least),
    };
    // Sort from low to high, so that axes have the usual direction.
    let order = |values: &[Coordinate]| -> Vec<usize> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        if let Some((numbers, _)) = numbers(values) {
            order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        }
        order
    };
    let (columns, rows) = (order(&sweep.x), order(&sweep.by));
    let words = |key: &str, values: &[Coordinate], order: &[usize]| {
        let numeric = numbers(values);
        let word = |at: &usize| match &numeric {
            Some((numbers, _)) => super::scale::plain_number(numbers[*at]),
            None => names.value(&values[*at].name),
        };
        let unit = numeric.as_ref().map_or("", |(_, unit)| unit);
        let words = Scale::words(order.iter().map(word).collect());
        (words, label(&names.axis(key), unit))
    };
    let (x, x_label) = words(&asked.x, &sweep.x, &columns);
    let (y, y_label) = words(by, &sweep.by, &rows);
    let title = label(&names.figure(&asked.y), unit);
    let panel = |(each, name): (usize, String)| {
        let mut panel = Panel {
            height: 0,
            title: match name.is_empty() {
                true => title.clone(),
                false => format!("{title}, {name}"),
            },
            x: x.clone(),
            x_label: x_label.clone().into(),
            y: y.clone(),
            y_label: y_label.clone().into(),
            fills: Vec::new(),
            lines: Vec::new(),
            clouds: Vec::new(),
            texts: Vec::new(),
        };
        for point in sweep.points.iter().filter(|point| point.each == each) {
            let at = |order: &[usize], value: usize| order.iter().position(|other| *other == value);
            let (Some(column), Some(row)) = (at(&columns, point.x), at(&rows, point.by)) else {
                continue;
            };
            let (x, y) = (column as f64, row as f64);
            let value = point.spread.median * factor;
            let tint = shade(share(value));
            panel.fills.push(Fill {
                variant: 0,
                corners: vec![
                    (x, y),
                    (x + 1.0, y),
                    (x + 1.0, y + 1.0),
                    (x, y + 1.0),
                    (x, y),
                ],
                style: FillStyle::Solid(tint),
            });
            let RGBColor(r, g, b) = tint;
            // Luminance by ITU-R BT.601.
            let light = 0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b);
            panel.texts.push(Note {
                at: (x + 0.5, y + 0.5),
                text: digits(value),
                tint: match light > 140.0 {
                    true => RGBColor(0, 0, 0),
                    false => RGBColor(255, 255, 255),
                },
                is_beside: false,
            });
        }
        panel
    };
    Ok(sweep.charts(asked, names).map(panel).collect())
}

/// A number with three digits.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// The colour of a share of the range, interpolated between five colours of the palette cividis
/// (Nuñez, Anderton and Renslow 2018), which looks alike with and without colour blindness.
fn shade(share: f64) -> RGBColor {
    const PLACES: [(f64, f64, f64); 5] = [
        (0.0, 34.0, 78.0),
        (65.0, 77.0, 107.0),
        (124.0, 123.0, 120.0),
        (188.0, 175.0, 111.0),
        (253.0, 234.0, 69.0),
    ];
    let at = share.clamp(0.0, 1.0) * (PLACES.len() - 1) as f64;
    let low = (at as usize).min(PLACES.len() - 2);
    let part = at - low as f64;
    let (a, b) = (PLACES[low], PLACES[low + 1]);
    let mix = |from: f64, to: f64| (from + (to - from) * part).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
