//! Sweeps: a figure over the axes of a scenario's matrix, as curves with bands or as heat maps.
//!
//! One axis is on x. A second axis determines the lines of curves, and is on y in heat maps. A
//! third axis has a chart for each of its values. All other axes must be narrowed down to one
//! value, so that no point mixes different conditions.

use plotters::style::RGBColor;
use sluice_core::{Rate, Span, spelling};
use sluice_recording::figures::repeated;
use sluice_recording::metrics::Spread;
use sluice_recording::results::VariantResult;
use sluice_scenario::metric::Unit;
use sluice_scenario::{Backend, Coordinate};

use super::panel::{Fill, FillStyle, Line, Look, Note, Panel};
use super::repeats::{Column, Marks};
use super::scale::Scale;
use super::sheet::Sheet;
use super::{Figure, FigureError};

/// The axes of a figure of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axes {
    /// The axis on x: the path of a key of the matrix.
    pub x: String,
    /// The figure, as `[[expect]]` names it.
    pub y: String,
    /// The axis of the lines, or of y in a heat map.
    pub by: Option<String>,
    /// The axis of the charts.
    pub each: Option<String>,
    /// Whether every point must have a confidence band. Otherwise only points with repetitions have
    /// one.
    pub needs_band: bool,
}

/// The form in which a sweep is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines.
    Curve,
    /// Coloured cells.
    HeatMap,
}

/// The reason why a sweep cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// No axis of the matrix has this name.
    #[error("no axis of the runs is called `{name}`{}", hint(name, known))]
    Axis {
        /// The requested axis.
        name: String,
        /// The axes of the runs.
        known: Vec<String>,
    },
    /// No run has this figure.
    #[error("no run has the figure `{name}`{}", hint(name, known))]
    Figure {
        /// The requested figure.
        name: String,
        /// The figures of the runs.
        known: Vec<String>,
    },
    /// An axis is used twice.
    #[error("the axis `{name}` cannot be used twice")]
    Twice {
        /// The axis.
        name: String,
    },
    /// Another axis has several values at one point.
    #[error("`{name}` varies too ({}): draw it with --by or --each, or choose one value with --only {name}=VALUE", values.join(", "))]
    Varies {
        /// The axis.
        name: String,
        /// Its values.
        values: Vec<String>,
    },
    /// A band of fewer than two repetitions.
    #[error("`{variant}` has only one run, and a band needs at least two: run it with --repeat 5")]
    Band {
        /// The variant.
        variant: String,
    },
    /// A heat map without a second axis.
    #[error("a heat map needs a second axis (--by){}", list(known))]
    SecondAxis {
        /// The available axes.
        known: Vec<String>,
    },
}

/// The names that are near to `name` as a whole or, for figures, in one of their parts; otherwise a list.
pub(crate) fn hint(name: &str, known: &[String]) -> String {
    let whole = spelling::question(name, known.iter().map(String::as_str));
    if let Some(question) = whole {
        return format!("; {question}");
    }
    let has = |known: &str, part: &str| {
        let (known, part) = (format!(".{known}."), format!(".{part}."));
        known.contains(&part)
    };
    let parts: Vec<String> = known.iter().flat_map(|known| parts(known)).collect();
    let near = spelling::nearest(name, parts.iter().map(String::as_str));
    let with = |part: &&str| known.iter().find(|known| has(known, part));
    let mut found: Vec<&String> = near.iter().filter_map(with).collect();
    // One part that several figures have: all of these.
    if let [part] = near[..] {
        found = known.iter().filter(|known| has(known, part)).collect();
    }
    match found.len() {
        0 => list(known),
        1..=MOST_NEAR => {
            let words: Vec<&str> = found.iter().map(|name| name.as_str()).collect();
            format!("; did you mean `{}`?", words.join("` or `"))
        }
        _ => list(&found.into_iter().cloned().collect::<Vec<_>>()),
    }
}

/// The runs of words in a dotted name, without the whole name.
fn parts(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('.').collect();
    let ends = |from: usize| (from + 1..=words.len()).map(move |to| (from, to));
    let pieces = (0..words.len()).flat_map(ends);
    let pieces = pieces.filter(|(from, to)| to - from < words.len());
    pieces.map(|(from, to)| words[from..to].join(".")).collect()
}

/// Largest number of names in a question.
const MOST_NEAR: usize = 4;

fn list(known: &[String]) -> String {
    const MOST: usize = 12;
    match known.len() {
        0 => "; there are none".to_owned(),
        n if n > MOST => format!(
            "; there are {}, and {} more",
            known[..MOST].join(", "),
            n - MOST
        ),
        _ => format!("; there are {}", known.join(", ")),
    }
}

/// The axis that distinguishes simulated runs from live ones.
const BACKEND: &str = "backend";

/// Returns the place of a result on every axis.
pub fn coordinates(result: &VariantResult) -> Vec<Coordinate> {
    let mut all = result.coordinates.clone();
    let word = result.backend.word().to_owned();
    all.push(Coordinate {
        key: BACKEND.to_owned(),
        value: word.clone(),
        name: word,
    });
    all
}

/// Returns the axes of several results, each with its values in the order of the results. Axes with
/// one value are left out, except those of the scenario's matrix.
pub fn axes(results: &[VariantResult]) -> Vec<(String, Vec<Coordinate>)> {
    let mut axes: Vec<(String, Vec<Coordinate>)> = Vec::new();
    for coordinate in results.iter().flat_map(coordinates) {
        match axes.iter_mut().find(|(key, _)| *key == coordinate.key) {
            Some((_, values)) if values.iter().any(|known| known.value == coordinate.value) => {}
            Some((_, values)) => values.push(coordinate),
            None => axes.push((coordinate.key.clone(), vec![coordinate])),
        }
    }
    axes.retain(|(key, values)| key != BACKEND || values.len() > 1);
    axes
}

/// A point of a sweep.
struct Point {
    x: usize,
    by: usize,
    each: usize,
    spread: Spread,
    /// One per run.
    values: Vec<f64>,
}

/// A sweep, read from results.
struct Sweep {
    x: Vec<Coordinate>,
    by: Vec<Coordinate>,
    each: Vec<Coordinate>,
    points: Vec<Point>,
    unit: Unit,
    runs: usize,
}

impl Sweep {
    fn of(results: &[VariantResult], asked: &Axes) -> Result<Sweep, CurveError> {
        let all = axes(results);
        let known: Vec<String> = all.iter().map(|(key, _)| key.clone()).collect();
        let find = |name: &String| -> Result<Vec<Coordinate>, CurveError> {
            let found = all.iter().find(|(key, _)| key == name);
            found
                .map(|(_, values)| values.clone())
                .ok_or_else(|| CurveError::Axis {
                    name: name.clone(),
                    known: known.clone(),
                })
        };
        let used: Vec<&String> = [Some(&asked.x), asked.by.as_ref(), asked.each.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        for (at, name) in used.iter().enumerate() {
            if used[..at].contains(name) {
                return Err(CurveError::Twice {
                    name: (*name).clone(),
                });
            }
        }
        let x = find(&asked.x)?;
        let by = asked.by.as_ref().map(find).transpose()?.unwrap_or_default();
        let each = asked
            .each
            .as_ref()
            .map(find)
            .transpose()?
            .unwrap_or_default();
        for (key, values) in &all {
            if values.len() > 1 && !used.contains(&key) {
                return Err(CurveError::Varies {
                    name: key.clone(),
                    values: values.iter().map(|value| value.name.clone()).collect(),
                });
            }
        }
        let mut points = Vec::new();
        let mut unit = None;
        let mut names: Vec<String> = Vec::new();
        for result in results {
            let own = coordinates(result);
            let place = |key: Option<&String>, values: &[Coordinate]| -> Option<usize> {
                let Some(key) = key else { return Some(0) };
                let value = &own.iter().find(|at| at.key == *key)?.value;
                values.iter().position(|known| known.value == *value)
            };
            let figures = repeated(&result.summaries());
            let found = figures.iter().find(|(name, _)| *name == asked.y);
            let (Some((_, figure)), Some(x), Some(by), Some(each)) = (
                found,
                place(Some(&asked.x), &x),
                place(asked.by.as_ref(), &by),
                place(asked.each.as_ref(), &each),
            ) else {
                for (name, _) in figures {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                continue;
            };
            if asked.needs_band && figure.spread.count < 2 {
                return Err(CurveError::Band {
                    variant: result.variant.clone(),
                });
            }
            unit = Some(figure.unit);
            points.push(Point {
                x,
                by,
                each,
                spread: figure.spread,
                values: figure.values.clone(),
            });
        }
        let Some(unit) = unit else {
            return Err(CurveError::Figure {
                name: asked.y.clone(),
                known: names,
            });
        };
        let runs = results.iter().map(|result| result.runs.len()).max();
        Ok(Sweep {
            x,
            by,
            each,
            points,
            unit,
            runs: runs.unwrap_or(0),
        })
    }

    /// The factor and the name of the unit in which values are shown.
    const fn scale(&self) -> (f64, &'static str) {
        match self.unit {
            Unit::Time => (1e-6, "ms"),
            Unit::Rate => (1e-6, "Mbit/s"),
            Unit::Ratio | Unit::Count | Unit::Score | Unit::Number => (1.0, ""),
        }
    }

    fn charts(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        let count = self.each.len().max(1);
        (0..count).map(|at| {
            (
                at,
                self.each.get(at).map_or(String::new(), |c| c.name.clone()),
            )
        })
    }
}

/// Draws a sweep as an SVG document.
///
/// # Errors
/// [`FigureError`], which names the available axes and figures.
pub fn svg(
    title: &str,
    results: &[VariantResult],
    form: Form,
    asked: &Axes,
    figure: &Figure,
) -> Result<String, FigureError> {
    let sweep = Sweep::of(results, asked)?;
    let panels = match form {
        Form::Curve => curves(&sweep, asked, figure.marks),
        Form::HeatMap => heat_maps(&sweep, asked, results)?,
    };
    let legend = match form {
        Form::Curve => sweep
            .by
            .iter()
            .enumerate()
            .map(|(look, value)| (value.name.clone(), look))
            .collect(),
        Form::HeatMap => Vec::new(),
    };
    let is_live = results.iter().any(|result| result.backend == Backend::Live);
    let sheet = Sheet {
        title: title.to_owned(),
        legend,
        panels,
        caption: match figure.captioned {
            true => caption(&sweep, asked, (form, figure.marks), is_live),
            false => String::new(),
        },
        is_over_time: false,
    };
    sheet.svg(figure)
}

fn caption(sweep: &Sweep, asked: &Axes, (form, marks): (Form, Marks), is_live: bool) -> String {
    let backend = if is_live { "" } else { " (simulated)" };
    let runs = match sweep.runs {
        1 => "one run".to_owned(),
        n => format!("{n} runs"),
    };
    if sweep.runs < 2 || form == Form::HeatMap {
        return match sweep.runs {
            1 => format!("{} of one run per point{backend}.", asked.y),
            _ => format!("{}: median of {runs} per point{backend}.", asked.y),
        };
    }
    match marks_of(sweep, marks) {
        Marks::Auto => format!(
            "{}: median of {runs} per point{backend}. Band: 95 % confidence interval of the mean.",
            asked.y
        ),
        marks => format!(
            "{}, {runs} per point{backend}. {}",
            asked.y,
            marks.explained()
        ),
    }
}

/// The marks that are drawn: a line and its band need an axis of numbers.
fn marks_of(sweep: &Sweep, marks: Marks) -> Marks {
    match marks {
        Marks::Auto if numbers(&sweep.x).is_none() => Marks::Interval,
        marks => marks,
    }
}

/// The numbers of an axis and their unit; `None` if one of its values is not a number.
fn numbers(values: &[Coordinate]) -> Option<(Vec<f64>, &'static str)> {
    let all = |read: &dyn Fn(&str) -> Option<f64>| -> Option<Vec<f64>> {
        values.iter().map(|at| read(&at.value)).collect()
    };
    if let Some(bare) = all(&|text| text.parse().ok()) {
        return Some((bare, ""));
    }
    if let Some(ms) = all(&|text| Some(Span::parse(text).ok()?.as_ms_f64())) {
        return Some((ms, "ms"));
    }
    let mbps = all(&|text| Some(Rate::parse(text).ok()?.as_bps() as f64 / 1e6))?;
    Some((mbps, "Mbit/s"))
}

fn label(key: &str, unit: &str) -> String {
    match unit {
        "" => key.to_owned(),
        unit => format!("{key} ({unit})"),
    }
}

fn curves(sweep: &Sweep, asked: &Axes, marks: Marks) -> Vec<Panel> {
    let (factor, unit) = sweep.scale();
    let marks = marks_of(sweep, marks);
    // Boxes are as wide as columns, so they stand on words.
    let numeric = numbers(&sweep.x).filter(|_| marks != Marks::Box);
    // Numbers as words need no name before them.
    let are_numbers = numbers(&sweep.x).is_some();
    let word = |at: &Coordinate| match are_numbers {
        true => at.value.clone(),
        false => at.name.clone(),
    };
    let place = |x: usize| {
        numeric
            .as_ref()
            .map_or(x as f64 + 0.5, |(values, _)| values[x])
    };
    let band = |spread: &Spread| match spread.interval() {
        Some((low, high)) => (low.max(0.0) * factor, high * factor),
        None => (spread.median * factor, spread.median * factor),
    };
    // All charts have the same axis, so that they can be compared.
    let tops = sweep.points.iter().map(|point| {
        let largest = match marks {
            Marks::Auto | Marks::Interval => point.spread.median,
            Marks::Dots | Marks::Range | Marks::Box => point.spread.max,
        };
        match marks {
            Marks::Auto | Marks::Interval => band(&point.spread).1.max(largest * factor),
            _ => largest * factor,
        }
    });
    let most = tops.fold(0.0, f64::max);
    let lowest = |point: &Point| match marks {
        Marks::Auto | Marks::Interval => point.spread.median,
        Marks::Dots | Marks::Range | Marks::Box => point.spread.min,
    };
    let medians = || sweep.points.iter().map(|point| lowest(point) * factor);
    let least = medians()
        .filter(|value| *value > 0.0)
        .fold(f64::INFINITY, f64::min);
    let is_log = medians().all(|value| value > 0.0) && most > 20.0 * least;
    let panel = |(each, name): (usize, String)| {
        let mut panel = Panel {
            height: 0,
            title: name,
            x: match &numeric {
                Some((values, _)) => Scale::settings(values),
                None => Scale::words(sweep.x.iter().map(word).collect()),
            },
            x_label: label(&asked.x, numeric.as_ref().map_or("", |(_, unit)| unit)).into(),
            y: match is_log {
                true => Scale::log(least, most),
                false => Scale::linear(most, 5),
            },
            y_label: match (unit, is_log) {
                ("", true) => label(&asked.y, "logarithmic"),
                (unit, true) => label(&asked.y, &format!("{unit}, logarithmic")),
                (unit, false) => label(&asked.y, unit),
            }
            .into(),
            fills: Vec::new(),
            lines: Vec::new(),
            clouds: Vec::new(),
            texts: Vec::new(),
        };
        for by in 0..sweep.by.len().max(1) {
            let is_its = |point: &&Point| point.by == by && point.each == each;
            let mut points: Vec<&Point> = sweep.points.iter().filter(is_its).collect();
            points.sort_by(|a, b| place(a.x).total_cmp(&place(b.x)));
            if points.is_empty() {
                continue;
            }
            if marks == Marks::Auto && points.iter().any(|point| point.spread.count > 1) {
                let low = points.iter().map(|p| (place(p.x), band(&p.spread).0));
                let high = points.iter().rev().map(|p| (place(p.x), band(&p.spread).1));
                panel.fills.push(Fill {
                    variant: by,
                    corners: low.chain(high).collect(),
                    style: FillStyle::Band,
                });
            }
            // Nothing lies between two words, so no line joins them.
            if numeric.is_some() {
                let line = points
                    .iter()
                    .map(|p| (place(p.x), p.spread.median * factor));
                panel.lines.push(Line {
                    look: Look::Variant(by),
                    pieces: vec![line.collect()],
                    has_dots: marks == Marks::Auto,
                });
            }
            if marks == Marks::Auto {
                continue;
            }
            let series = sweep.by.len().max(1) as f64;
            let (room, shift) = match numeric {
                // On an axis of numbers, marks stay at their numbers.
                Some(_) => (0.0, 0.0),
                None => (
                    0.8 / series,
                    (by as f64 - (series - 1.0) / 2.0) * 0.8 / series,
                ),
            };
            for point in points {
                let values: Vec<f64> = point.values.iter().map(|value| value * factor).collect();
                let column = Column {
                    variant: by,
                    x: place(point.x) + shift,
                    half: (room * 0.35).min(0.16),
                };
                column.draw(&mut panel, &values, marks);
            }
        }
        panel
    };
    sweep.charts().map(panel).collect()
}

fn heat_maps(
    sweep: &Sweep,
    asked: &Axes,
    results: &[VariantResult],
) -> Result<Vec<Panel>, CurveError> {
    let Some(by) = &asked.by else {
        let all = axes(results).into_iter().map(|(key, _)| key);
        return Err(CurveError::SecondAxis {
            known: all.filter(|key| *key != asked.x).collect(),
        });
    };
    let (factor, unit) = sweep.scale();
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
    let words = |values: &[Coordinate], order: &[usize]| {
        Scale::words(order.iter().map(|at| values[*at].value.clone()).collect())
    };
    let panel = |(each, name): (usize, String)| {
        let mut panel = Panel {
            height: 0,
            title: match name.is_empty() {
                true => label(&asked.y, unit),
                false => format!("{}, {name}", label(&asked.y, unit)),
            },
            x: words(&sweep.x, &columns),
            x_label: asked.x.clone().into(),
            y: words(&sweep.by, &rows),
            y_label: by.clone().into(),
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
    Ok(sweep.charts().map(panel).collect())
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
