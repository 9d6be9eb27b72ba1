//! Sweeps: a figure over the axes of a scenario's matrix, as curves with bands or as heat maps.
//!
//! One axis is on x. A second axis determines the lines of curves, and is on y in heat maps. A
//! third axis has a chart for each of its values. All other axes must be narrowed down to one
//! value, so that no point mixes different conditions.

mod caption;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use indexmap::IndexSet;
use sluice_core::{Rate, Span, spelling};
use sluice_recording::figures::repeated;
use sluice_recording::metrics::Spread;
use sluice_recording::results::VariantResult;
use sluice_scenario::metric::Unit;
use sluice_scenario::{Backend, Coordinate};

use self::caption::{caption, value_in_words};
use super::heat::heat_maps;
use super::panel::{Fill, FillStyle, Line, Look, Panel};
use super::repeats::{Center, Column, Interval, Marks, YAxis, possible};
use super::scale::Scale;
use super::sheet::{Legend, Sheet};
use super::words::{Words, unit_of};
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

/// Returns the end of a message about an unknown name: the names that are near to `name` as a whole or,
/// for figures, in one of their parts; otherwise a list.
pub fn hint(name: &str, known: &[String]) -> String {
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
    coordinates_of(&result.coordinates, result.backend)
}

/// Returns a place on the axes of the matrix and on that of the backends.
pub(crate) fn coordinates_of(matrix: &[Coordinate], backend: Backend) -> Vec<Coordinate> {
    let word = backend.word().to_owned();
    let of_backend = Coordinate {
        key: BACKEND.to_owned(),
        value: word.clone(),
        name: word,
    };
    matrix.iter().cloned().chain([of_backend]).collect()
}

/// The axes of several runs, each with its values.
pub type AxisValues = Vec<(String, Vec<Coordinate>)>;

/// Returns the axes of several results, each with its values in the order of the results. The axis of
/// the backends is left out if it has one value.
pub fn axes(results: &[VariantResult]) -> AxisValues {
    axes_of(results.iter().flat_map(coordinates))
}

/// Does the same for the places of results.
pub(crate) fn axes_of(places: impl Iterator<Item = Coordinate>) -> AxisValues {
    let mut axes = AxisValues::new();
    for coordinate in places {
        match axes.iter_mut().find(|(key, _)| *key == coordinate.key) {
            Some((_, values)) if values.iter().any(|known| known.value == coordinate.value) => {}
            Some((_, values)) => values.push(coordinate),
            None => axes.push((coordinate.key.clone(), vec![coordinate])),
        }
    }
    axes.retain(|(key, values)| key != BACKEND || values.len() > 1);
    axes
}

/// Checks that the axes of a sweep exist, and that no other one varies.
///
/// # Errors
/// [`CurveError`].
pub(crate) fn check_axes(all: &AxisValues, asked: &Axes) -> Result<(), CurveError> {
    let used: Vec<&String> = [Some(&asked.x), asked.by.as_ref(), asked.each.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    for (at, name) in used.iter().enumerate() {
        let name = (*name).clone();
        if used[..at].contains(&&name) {
            return Err(CurveError::Twice { name });
        }
        if !all.iter().any(|(key, _)| *key == name) {
            let known = all.iter().map(|(key, _)| key.clone()).collect();
            return Err(CurveError::Axis { name, known });
        }
    }
    let mut others = all.iter().filter(|(key, _)| !used.contains(&key));
    match others.find(|(_, values)| values.len() > 1) {
        Some((name, values)) => Err(CurveError::Varies {
            name: name.clone(),
            values: values.iter().map(|value| value.name.clone()).collect(),
        }),
        None => Ok(()),
    }
}

/// A point of a sweep.
pub struct Point {
    pub x: usize,
    pub by: usize,
    pub each: usize,
    pub spread: Spread,
    /// One for each run that measured the figure.
    values: Vec<f64>,
    /// The number of runs.
    runs: usize,
}

/// A place of a sweep that no run measured: none was made there, or none has the figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    x: usize,
    by: usize,
    each: usize,
}

/// A sweep, read from results.
pub struct Sweep {
    pub x: Vec<Coordinate>,
    pub by: Vec<Coordinate>,
    each: Vec<Coordinate>,
    pub points: Vec<Point>,
    gaps: Vec<Gap>,
    unit: Unit,
    runs: usize,
}

impl Sweep {
    fn of(results: &[VariantResult], asked: &Axes) -> Result<Sweep, CurveError> {
        let all = axes(results);
        check_axes(&all, asked)?;
        let find = |name: &String| {
            let found = all.iter().find(|(key, _)| key == name);
            found.map_or_else(Vec::new, |(_, values)| values.clone())
        };
        let x = find(&asked.x);
        let by = asked.by.as_ref().map(find).unwrap_or_default();
        let each = asked.each.as_ref().map(find).unwrap_or_default();
        let mut points: Vec<Point> = Vec::new();
        let mut gaps = Vec::new();
        let mut made = BTreeSet::new();
        let mut unit = None;
        let mut names: IndexSet<String> = IndexSet::new();
        for result in results {
            let own = coordinates(result);
            let place = |key: Option<&String>, values: &[Coordinate]| -> Option<usize> {
                let Some(key) = key else { return Some(0) };
                let value = &own.iter().find(|at| at.key == *key)?.value;
                values.iter().position(|known| known.value == *value)
            };
            let figures = repeated(&result.summaries());
            let found = figures.iter().find(|(name, _)| *name == asked.y);
            let (Some(x), Some(by), Some(each)) = (
                place(Some(&asked.x), &x),
                place(asked.by.as_ref(), &by),
                place(asked.each.as_ref(), &each),
            ) else {
                names.extend(figures.into_iter().map(|(name, _)| name));
                continue;
            };
            let folder = result.runs[0].folder.parent().unwrap_or(Path::new(""));
            made.insert((folder.to_owned(), Gap { x, by, each }));
            let Some((_, figure)) = found else {
                names.extend(figures.into_iter().map(|(name, _)| name));
                gaps.push(Gap { x, by, each });
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
                runs: figure.runs,
            });
        }
        let Some(unit) = unit else {
            return Err(CurveError::Figure {
                name: asked.y.clone(),
                known: names.into_iter().collect(),
            });
        };
        let gaps = gaps_beside(&points, gaps, &made);
        let runs = results.iter().map(|result| result.runs.len()).max();
        Ok(Sweep {
            x,
            by,
            each,
            points,
            gaps,
            unit,
            runs: runs.unwrap_or(0),
        })
    }

    /// The factor and the name of the unit in which values of the figure `name` are shown.
    pub fn scale(&self, name: &str) -> (f64, &'static str) {
        unit_of(name, self.unit)
    }

    /// The charts: the number of each, and its value of the third axis in words.
    pub fn charts<'a>(
        &'a self,
        asked: &'a Axes,
        names: Words<'a>,
    ) -> impl Iterator<Item = (usize, String)> + 'a {
        let axis = asked.each.as_deref().unwrap_or_default();
        let name = move |value: &Coordinate| value_in_words(axis, &self.each, value, names);
        let count = self.each.len().max(1);
        (0..count).map(move |at| (at, self.each.get(at).map_or(String::new(), &name)))
    }
}

/// Returns the places without a point. Runs at those in `found` did not measure the figure. Where the other
/// lines of a folder have runs, those of a line have failed or were ended early, so they have no result.
/// Sweeps in several folders may have settings of their own. `made` has the folder and the place of each
/// result.
fn gaps_beside(points: &[Point], found: Vec<Gap>, made: &BTreeSet<(PathBuf, Gap)>) -> Vec<Gap> {
    let at = |p: &Point| Gap {
        x: p.x,
        by: p.by,
        each: p.each,
    };
    let mut known: BTreeSet<Gap> = points.iter().map(at).collect();
    let settings: BTreeSet<(&Path, usize)> = made.iter().map(|(of, at)| (&**of, at.x)).collect();
    let lines: BTreeSet<(&Path, Gap)> = made
        .iter()
        .map(|(of, at)| (&**of, Gap { x: 0, ..*at }))
        .collect();
    let others = lines.into_iter().flat_map(|(folder, line)| {
        let own = settings.iter().filter(move |(of, _)| *of == folder);
        own.map(move |(_, x)| Gap { x: *x, ..line })
    });
    let is_new = |gap: &Gap| known.insert(*gap);
    found.into_iter().chain(others).filter(is_new).collect()
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
    sheet(title, results, form, asked, figure)?.svg(figure)
}

/// Draws a sweep without title and caption, and returns the caption.
///
/// # Errors
/// [`FigureError`].
pub fn described(
    results: &[VariantResult],
    form: Form,
    asked: &Axes,
    figure: &Figure,
) -> Result<(String, String), FigureError> {
    let mut sheet = sheet("", results, form, asked, figure)?;
    let caption = std::mem::take(&mut sheet.caption);
    Ok((sheet.svg(&figure.clone().bare())?, caption))
}

fn sheet(
    title: &str,
    results: &[VariantResult],
    form: Form,
    asked: &Axes,
    figure: &Figure,
) -> Result<Sheet, FigureError> {
    let sweep = Sweep::of(results, asked)?;
    let names = Words {
        own: &figure.headings,
    };
    let panels = match form {
        Form::Curve => curves(&sweep, asked, figure),
        Form::HeatMap => heat_maps(&sweep, asked, results, names)?,
    };
    let is_live = results.iter().any(|result| result.backend == Backend::Live);
    Ok(Sheet {
        title: title.to_owned(),
        legend: match form {
            Form::Curve => legend(&sweep, asked, names),
            Form::HeatMap => Legend::default(),
        },
        panels,
        caption: match figure.captioned {
            true => caption(&sweep, asked, (form, figure.marks, names), is_live),
            false => String::new(),
        },
        is_over_time: false,
    })
}

/// The values of the second axis, below the words for the axis if they are only numbers.
fn legend(sweep: &Sweep, asked: &Axes, names: Words<'_>) -> Legend {
    let are_numbers = numbers(&sweep.by).is_some();
    let name = |value: &Coordinate| match are_numbers {
        true => names.value(&value.value),
        false => names.value(&value.name),
    };
    let axis = asked.by.as_ref().filter(|_| are_numbers);
    Legend {
        heading: axis.map_or(String::new(), |axis| names.axis(axis)),
        names: sweep.by.iter().map(name).zip(0..).collect(),
        ..Legend::default()
    }
}

/// The marks that are drawn: a line and its band need an axis of numbers.
fn marks_of(sweep: &Sweep, marks: Marks) -> Marks {
    match marks {
        Marks::Auto if numbers(&sweep.x).is_none() => Marks::Range,
        marks => marks,
    }
}

/// The numbers of an axis and their unit; `None` if one of its values is not a number.
pub fn numbers(values: &[Coordinate]) -> Option<(Vec<f64>, &'static str)> {
    if values.is_empty() {
        return None;
    }
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

/// A name with a unit in brackets.
pub fn label(name: &str, unit: &str) -> String {
    match unit {
        "" => name.to_owned(),
        unit => format!("{name} ({unit})"),
    }
}

fn curves(sweep: &Sweep, asked: &Axes, figure: &Figure) -> Vec<Panel> {
    let names = Words {
        own: &figure.headings,
    };
    let (factor, unit) = sweep.scale(&asked.y);
    let marks = marks_of(sweep, figure.marks);
    let limits = possible(&asked.y, unit);
    // Boxes are as wide as columns, so they stand on words.
    let numeric = numbers(&sweep.x).filter(|_| marks != Marks::Box);
    // Numbers as words need no name before them.
    let are_numbers = numbers(&sweep.x).is_some();
    let word = |at: &Coordinate| match are_numbers {
        true => names.value(&at.value),
        false => names.value(&at.name),
    };
    let x = match &numeric {
        Some((values, _)) => Scale::settings(values),
        None => Scale::words(sweep.x.iter().map(word).collect()),
    };
    let x_unit = YAxis::label(numeric.as_ref().map_or("", |(_, unit)| unit), &x);
    let place = |x: usize| {
        numeric
            .as_ref()
            .map_or(x as f64 + 0.5, |(values, _)| values[x])
    };
    let shown =
        |point: &Point| -> Vec<f64> { point.values.iter().map(|value| value * factor).collect() };
    // All charts have the same axis, so that they can be compared.
    let reach: Vec<(f64, f64)> = sweep
        .points
        .iter()
        .flat_map(|point| marks.reach(&shown(point), limits))
        .collect();
    let y = figure.y_axis.scale(&reach, (20.0, 5), limits);
    let series = sweep.by.len().max(1);
    let dodge = Dodge::new(
        series,
        &x,
        numeric.as_ref().map(|(values, _)| values.as_slice()),
    );
    let title = names.figure(&asked.y);
    let panel = |(each, name): (usize, String)| {
        let mut panel = Panel {
            height: 0,
            title: match name.is_empty() {
                true => title.clone(),
                false => format!("{title}, {name}"),
            },
            x: x.clone(),
            x_label: label(&names.axis(&asked.x), &x_unit).into(),
            y: y.clone(),
            y_label: YAxis::label(unit, &y).into(),
            fills: Vec::new(),
            lines: Vec::new(),
            clouds: Vec::new(),
            texts: Vec::new(),
        };
        for by in 0..series {
            let is_its = |point: &&Point| point.by == by && point.each == each;
            let mut points: Vec<&Point> = sweep.points.iter().filter(is_its).collect();
            points.sort_by(|a, b| place(a.x).total_cmp(&place(b.x)));
            if points.is_empty() {
                continue;
            }
            let shift = if marks == Marks::Auto {
                0.0
            } else {
                dodge.shift(by)
            };
            let at = |point: &Point| x.beside(place(point.x), shift);
            let gaps = sweep.gaps.iter();
            let gaps = gaps.filter(|gap| gap.by == by && gap.each == each);
            let gaps: Vec<f64> = gaps.map(|gap| place(gap.x)).collect();
            // Neither a line nor its band covers a place where nothing was measured.
            let is_joined = |a: &&Point, b: &&Point| {
                let between = place(a.x)..place(b.x);
                !gaps.iter().any(|gap| between.contains(gap))
            };
            if marks == Marks::Auto && points.iter().any(|point| point.spread.count > 1) {
                let band = |point: &Point| {
                    let median = point.spread.median * factor;
                    let interval = Interval::of_median(&shown(point));
                    interval.map_or((median, median), |interval| (interval.low, interval.high))
                };
                for piece in points.chunk_by(is_joined) {
                    let low = piece.iter().map(|p| (at(p), band(p).0));
                    let high = piece.iter().rev().map(|p| (at(p), band(p).1));
                    panel.fills.push(Fill {
                        variant: by,
                        corners: low.chain(high).collect(),
                        style: match series {
                            1 | 2 => FillStyle::Band,
                            _ => FillStyle::PaleBand,
                        },
                    });
                }
            }
            // Nothing lies between two words, so no line joins them.
            if numeric.is_some() {
                let center = |p: &&Point| {
                    let center = match marks.center() {
                        Center::Median => p.spread.median,
                        Center::Mean => p.spread.mean,
                    };
                    (at(p), center * factor)
                };
                let pieces = points.chunk_by(is_joined);
                panel.lines.push(Line {
                    look: Look::Variant(by),
                    pieces: pieces
                        .map(|piece| piece.iter().map(center).collect())
                        .collect(),
                    has_dots: marks == Marks::Auto,
                });
            }
            if marks == Marks::Auto {
                continue;
            }
            for point in points {
                let column = Column {
                    variant: by,
                    x: at(point),
                    half: dodge.half,
                    scale: &x,
                    limits,
                };
                column.draw(&mut panel, &shown(point), marks);
            }
        }
        panel
    };
    sweep.charts(asked, names).map(panel).collect()
}

/// Places the marks of several series beside one another, in shares of the x axis.
struct Dodge {
    series: usize,
    step: f64,
    /// Half of the width of a mark.
    half: f64,
}

impl Dodge {
    fn new(series: usize, x: &Scale, numbers: Option<&[f64]>) -> Dodge {
        let columns = x.places().len().max(1) as f64;
        let (room, widest) = match numbers {
            None => (0.8 / columns, 0.16 / columns),
            // On an axis of numbers, all marks stay close to theirs.
            Some(values) => {
                let mut places: Vec<f64> = values.iter().map(|value| x.place(*value)).collect();
                places.sort_by(f64::total_cmp);
                let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
                let gap = gaps.filter(|gap| *gap > 0.0).fold(1.0, f64::min);
                ((gap * 0.5).min(0.1), 0.012)
            }
        };
        let step = room / series as f64;
        Dodge {
            series,
            step: if series > 1 { step } else { 0.0 },
            half: (step * 0.4).min(widest),
        }
    }

    fn shift(&self, series: usize) -> f64 {
        (series as f64 - (self.series as f64 - 1.0) / 2.0) * self.step
    }
}
