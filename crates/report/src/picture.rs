//! Pictures of recorded runs: the options of `sluice report` and `[[picture]]`, and the formats.

mod before;
mod narrow;

use std::path::Path;

use crate::figure::curve::{self, Axes, Form, hint};
use crate::figure::repeats::{Marks, YAxis};
use crate::figure::{Figure, FigureError, FigureKind, svg};
use crate::only::{self, OnlyError, near};
use crate::pdf;
use crate::raster::{self, FontError};
use crate::report_of::{Choice, repetitions, report_with};
use sluice_recording::metrics::measure;
use sluice_recording::results::VariantResult;
use sluice_recording::{Keep, ReadError, Recording};
use sluice_scenario::{self as scenario, Direction};

pub use crate::only::PlannedRun;

/// The content of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One of the charts of a report.
    Charts(FigureKind),
    /// A figure over the axes of a matrix.
    Sweep(Form),
}

impl Subject {
    /// All subjects: the word for `--figure`, and the content.
    pub fn all() -> impl Iterator<Item = (&'static str, Subject, &'static str)> {
        let charts = FigureKind::ALL.map(|kind| (kind.word(), Subject::Charts(kind), kind.about()));
        charts.into_iter().chain([
            (
                Subject::Sweep(Form::Curve).word(),
                Subject::Sweep(Form::Curve),
                "A figure over an axis of the matrix: --x AXIS --y FIGURE [--by AXIS] [--each AXIS]",
            ),
            (
                Subject::Sweep(Form::HeatMap).word(),
                Subject::Sweep(Form::HeatMap),
                "A figure over two axes: --x AXIS --by AXIS --y FIGURE [--each AXIS]",
            ),
        ])
    }

    /// The word for `--figure`.
    pub const fn word(self) -> &'static str {
        match self {
            Subject::Charts(kind) => kind.word(),
            Subject::Sweep(Form::Curve) => "curve",
            Subject::Sweep(Form::HeatMap) => "heatmap",
        }
    }

    /// Returns the subject that a word names.
    ///
    /// # Errors
    /// There is no such subject. The message names the nearest one.
    pub fn from_word(word: &str) -> Result<Subject, PictureError> {
        let found = Subject::all().find(|(known, ..)| *known == word);
        found
            .map(|(_, subject, _)| subject)
            .ok_or_else(|| PictureError::Subject {
                word: word.to_owned(),
                known: Subject::all().map(|(known, ..)| known.to_owned()).collect(),
            })
    }
}

/// A picture to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The data that it shows.
    pub subject: Subject,
    /// The axes of a sweep.
    pub axes: Axes,
    /// Conditions `AXIS=VALUE` that the shown variants meet.
    pub only: Vec<String>,
    /// Width on paper in millimetres.
    pub width_mm: Option<f64>,
    /// Size of most text on paper in points.
    pub font_pt: Option<f64>,
    /// Font.
    pub font: Option<String>,
    /// The direction that it shows; `None` for both.
    pub direction: Option<Direction>,
    /// Start of the shown time in seconds.
    pub from_s: Option<f64>,
    /// End of the shown time in seconds.
    pub to_s: Option<f64>,
    /// The seed of the repetition whose curves are drawn.
    pub seed: Option<u64>,
    /// How the values of repetitions are drawn.
    pub marks: Marks,
    /// Height on paper in millimetres.
    pub height_mm: Option<f64>,
    /// Number of charts in a row.
    pub columns: Option<usize>,
    /// The kind of the y axis.
    pub y_axis: YAxis,
    /// Words for figures, axes and runs in place of the usual ones.
    pub headings: Vec<(String, String)>,
    /// Whether title and caption are left out.
    pub is_bare: bool,
}

/// The reason why a picture was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// No figure has this name.
    #[error("there is no figure `{word}`{}", near(word, known))]
    Subject {
        /// The word.
        word: String,
        /// The known words.
        known: Vec<String>,
    },
    /// A sweep without an axis or a figure.
    #[error("a {word} needs `{missing}`, such as {missing} = {example}")]
    Missing {
        /// The sweep.
        word: &'static str,
        /// The word that is missing.
        missing: &'static str,
        /// An example of its value.
        example: &'static str,
    },
    /// A sweep of several figures.
    #[error(
        "a {word} shows one figure, and `{y}` names several: draw a picture of each, or all of them with \
         figure `repetitions`"
    )]
    OneFigure {
        /// The sweep.
        word: &'static str,
        /// The names.
        y: String,
    },
    /// Charts over repetitions for runs without any.
    #[error(
        "`repetitions` needs a variant with several runs, which differ in their seed: run it with --repeat 5"
    )]
    Repetitions,
    /// Too little of the runs is recorded for these charts.
    #[error(
        "a {} figure cannot be drawn of runs of which only the {} are recorded: run the scenario with \
         `--record {}`",
        kind.word(),
        kept.word(),
        needs.word()
    )]
    NotRecorded {
        /// The charts.
        kind: FigureKind,
        /// What is recorded.
        kept: Keep,
        /// The level that has their values.
        needs: Keep,
    },
    /// No run has the traffic for these charts.
    #[error("a {} figure needs {}; no run has that{}", kind.word(), kind.traffic(), in_way(*way))]
    Traffic {
        /// The charts.
        kind: FigureKind,
        /// The only direction that they show.
        way: Option<Direction>,
    },
    /// No run has the requested seed.
    #[error("no run has the seed {seed}; there are {}", list(known))]
    Seed {
        /// The requested seed.
        seed: u64,
        /// The seeds of the runs.
        known: Vec<u64>,
    },
    /// A word that names no figure of the scenario.
    #[error("there is no figure `{name}`: {message}")]
    Metric {
        /// The word.
        name: String,
        /// The problem, and the known words.
        message: String,
    },
    /// A word that has no meaning for this subject.
    #[error("`{word}` has a meaning only for {subjects}")]
    Useless {
        /// The subjects for which it has one.
        subjects: &'static str,
        /// The word.
        word: &'static str,
    },
    /// A word that has no meaning for these charts.
    #[error("`{word}` has no meaning for `{subject}`: {instead}")]
    Without {
        /// The word.
        word: &'static str,
        /// The charts.
        subject: &'static str,
        /// What can be given in its place.
        instead: &'static str,
    },
    /// No marks have this name.
    #[error("there are no marks `{word}`{}", near(word, known))]
    Marks {
        /// The word.
        word: String,
        /// The words that there are.
        known: Vec<String>,
    },
    /// No kind of axis has this name.
    #[error("there is no axis `{word}`{}", near(word, known))]
    YAxis {
        /// The word.
        word: String,
        /// The known words.
        known: Vec<String>,
    },
    /// No run has this figure.
    #[error("no run has the figure `{name}`{}", hint(name, known))]
    NoFigure {
        /// The requested figure.
        name: String,
        /// The figures of the runs.
        known: Vec<String>,
    },
    /// The conditions leave nothing.
    #[error(transparent)]
    Only(#[from] OnlyError),
    /// A length or size that cannot be read.
    #[error("`{text}` is not a {what}, such as {example}")]
    Size {
        /// The text.
        text: String,
        /// The kind of value that is expected.
        what: &'static str,
        /// An example.
        example: &'static str,
    },
    /// The window of time is empty.
    #[error("no time is left from {from_s} s to {to_s} s")]
    Window {
        /// The start.
        from_s: f64,
        /// The end.
        to_s: f64,
    },
    /// There is no traffic in the requested direction.
    #[error("no run has a queue or flow {0}")]
    Direction(Direction),
    /// A table of a recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The figure cannot be drawn.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// The font is not installed.
    #[error(transparent)]
    Font(#[from] FontError),
    /// The format is unknown.
    #[error("`{0}` is not the name of a picture: it ends in .svg, .png or .pdf")]
    Ending(String),
}

/// Reads a width such as `85mm`, in millimetres.
///
/// # Errors
/// [`PictureError::Size`].
pub fn width_mm(text: &str) -> Result<f64, PictureError> {
    size(text, "mm", ("width on paper", "85mm"))
}

/// Reads a height such as `50mm`, in millimetres.
///
/// # Errors
/// [`PictureError::Size`].
pub fn height_mm(text: &str) -> Result<f64, PictureError> {
    size(text, "mm", ("height on paper", "50mm"))
}

/// Reads the word for the kind of a y axis.
///
/// # Errors
/// [`PictureError::YAxis`].
pub fn y_axis(word: &str) -> Result<YAxis, PictureError> {
    YAxis::from_word(word).ok_or_else(|| PictureError::YAxis {
        word: word.to_owned(),
        known: YAxis::ALL.map(|(known, ..)| known.to_owned()).to_vec(),
    })
}

/// Reads a size of text such as `8pt`, in points.
///
/// # Errors
/// [`PictureError::Size`].
pub fn font_pt(text: &str) -> Result<f64, PictureError> {
    size(text, "pt", ("size of text", "8pt"))
}

/// Reads the word for how repetitions are drawn.
///
/// # Errors
/// [`PictureError::Marks`].
pub fn marks(word: &str) -> Result<Marks, PictureError> {
    let known = || Marks::ALL.map(|(known, ..)| known.to_owned()).to_vec();
    Marks::from_word(word).ok_or_else(|| PictureError::Marks {
        word: word.to_owned(),
        known: known(),
    })
}

fn size(
    text: &str,
    unit: &str,
    (what, example): (&'static str, &'static str),
) -> Result<f64, PictureError> {
    let number = text.trim().strip_suffix(unit).map(str::trim);
    match number.and_then(|number| number.parse::<f64>().ok()) {
        Some(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(PictureError::Size {
            text: text.to_owned(),
            what,
            example,
        }),
    }
}

impl Picture {
    /// The charts of a kind, in the usual size and with a caption.
    pub fn of(subject: Subject) -> Picture {
        Picture {
            subject,
            axes: Axes::default(),
            only: Vec::new(),
            width_mm: None,
            font_pt: None,
            font: None,
            direction: None,
            from_s: None,
            to_s: None,
            seed: None,
            marks: Marks::Auto,
            height_mm: None,
            columns: None,
            y_axis: YAxis::Auto,
            headings: Vec::new(),
            is_bare: false,
        }
    }

    /// Reads a row of `[[picture]]`.
    ///
    /// # Errors
    /// [`PictureError`], whose [`PictureError::key`] names the wrong word.
    pub fn of_scenario(row: &scenario::Picture) -> Result<Picture, PictureError> {
        let picture = Picture {
            subject: Subject::from_word(&row.figure)?,
            axes: Axes {
                x: row.x.clone().unwrap_or_default(),
                y: row.y.0.clone(),
                by: row.by.clone(),
                each: row.each.clone(),
                needs_band: row.band,
            },
            only: row.only.0.clone(),
            width_mm: row.width.as_deref().map(width_mm).transpose()?,
            font_pt: row.font_size.as_deref().map(font_pt).transpose()?,
            font: row.font.clone(),
            direction: row.direction,
            from_s: row.from.map(|from| from.as_secs_f64()),
            to_s: row.to.map(|to| to.as_secs_f64()),
            seed: row.seed,
            marks: row.marks.as_deref().map_or(Ok(Marks::Auto), marks)?,
            height_mm: row.height.as_deref().map(height_mm).transpose()?,
            columns: row.columns.map(|count| count as usize),
            y_axis: row.y_axis.as_deref().map_or(Ok(YAxis::Auto), y_axis)?,
            headings: row.heading.0.clone(),
            is_bare: row.bare,
        };
        picture.check()?;
        Ok(picture)
    }

    /// Checks that the words fit together.
    ///
    /// # Errors
    /// [`PictureError`].
    pub fn check(&self) -> Result<(), PictureError> {
        let Axes {
            x,
            y,
            by,
            each,
            needs_band,
        } = &self.axes;
        match self.subject {
            Subject::Sweep(form) => {
                let word = self.subject.word();
                let missing = |missing, example| {
                    Err(PictureError::Missing {
                        word,
                        missing,
                        example,
                    })
                };
                if x.is_empty() {
                    return missing("x", "link.rtt");
                }
                if y.is_empty() {
                    return missing("y", "ping.p50");
                }
                if names(y).count() > 1 {
                    let y = y.clone();
                    return Err(PictureError::OneFigure { word, y });
                }
                let given = [
                    ("marks", self.marks != Marks::Auto),
                    ("y_axis", self.y_axis != YAxis::Auto),
                ];
                let useless = given.iter().find(|(_, is_given)| *is_given);
                if let (Form::HeatMap, Some((word, _))) = (form, useless) {
                    let subjects = MARKED;
                    return Err(PictureError::Useless { word, subjects });
                }
            }
            Subject::Charts(kind) => {
                let is_repeated = kind == FigureKind::Repetitions;
                let given = [
                    ("x", !x.is_empty(), SWEEPS),
                    ("y", !y.is_empty() && !is_repeated, FIGURES),
                    ("by", by.is_some(), SWEEPS),
                    ("each", each.is_some(), SWEEPS),
                    ("band", *needs_band, "curves"),
                    ("marks", self.marks != Marks::Auto && !is_repeated, MARKED),
                    ("y_axis", self.y_axis != YAxis::Auto && !is_repeated, MARKED),
                ];
                if let Some((word, _, subjects)) = given.iter().find(|(_, is_given, _)| *is_given) {
                    return Err(PictureError::Useless { word, subjects });
                }
            }
        }
        self.check_narrowing()?;
        if let (Some(from_s), Some(to_s)) = (self.from_s, self.to_s)
            && from_s >= to_s
        {
            return Err(PictureError::Window { from_s, to_s });
        }
        Ok(())
    }

    /// Refuses a direction or a window of time where the figures are those of whole runs.
    fn check_narrowing(&self) -> Result<(), PictureError> {
        let subject = self.subject.word();
        let names_figures = match self.subject {
            Subject::Sweep(_) => true,
            Subject::Charts(kind) => kind == FigureKind::Repetitions && !self.axes.y.is_empty(),
        };
        if self.direction.is_some() && names_figures {
            return Err(PictureError::Without {
                word: "direction",
                subject,
                instead: "`y` names a figure of one direction, such as up.drops",
            });
        }
        let is_whole = match self.subject {
            Subject::Sweep(_) => true,
            Subject::Charts(kind) => {
                matches!(kind, FigureKind::Repetitions | FigureKind::Totals)
            }
        };
        let windows = [("from", self.from_s), ("to", self.to_s)];
        match windows.into_iter().find(|(_, time)| time.is_some()) {
            Some((word, _)) if is_whole => Err(PictureError::Without {
                word,
                subject,
                instead: "its figures are those of the whole run, without [measure] warmup",
            }),
            _ => Ok(()),
        }
    }

    /// Draws the picture as an SVG document.
    ///
    /// # Errors
    /// [`PictureError`].
    pub fn svg(&self, recordings: &[&Recording]) -> Result<String, PictureError> {
        self.check()?;
        let shown = only::chosen(recordings.to_vec(), &self.only)?;
        let kind = match self.subject {
            Subject::Charts(kind) => kind,
            Subject::Sweep(_) => FigureKind::Time,
        };
        let mut figure = Figure::of(kind);
        if self.is_bare {
            figure = figure.bare();
        }
        let usual = figure.font_pt;
        if self.width_mm.is_some() || self.font_pt.is_some() || self.height_mm.is_some() {
            figure = figure.on_paper(
                self.width_mm.unwrap_or(USUAL_MM),
                self.font_pt.unwrap_or(usual),
            );
        }
        figure.font.clone_from(&self.font);
        figure.marks = self.marks;
        figure.height_mm = self.height_mm;
        figure.columns = self.columns;
        figure.y_axis = self.y_axis;
        figure.headings.clone_from(&self.headings);
        match self.subject {
            Subject::Charts(_) => {
                check_seed(self.seed, shown.iter().map(|one| one.run().seed))?;
                let mut report = report_with(&shown, Choice { seed: self.seed })?;
                let has_repetitions = report.runs.iter().any(|run| run.repetitions.len() > 1);
                if kind == FigureKind::Repetitions && !has_repetitions {
                    return Err(PictureError::Repetitions);
                }
                if !self.axes.y.is_empty() {
                    let results = results(&shown)?;
                    narrow::show_figures(&mut report, &results, &self.axes.y)?;
                }
                self.narrow(&mut report)?;
                svg(&report, &figure).map_err(|error| self.explained(error, kind, &shown))
            }
            Subject::Sweep(form) => {
                let title = shown.first().map_or("", |one| one.run().title.as_str());
                let results = results(&shown)?;
                Ok(curve::svg(title, &results, form, &self.axes, &figure)?)
            }
        }
    }

    /// Draws the picture in the format that the ending of `path` names.
    ///
    /// # Errors
    /// [`PictureError`].
    pub fn draw(
        &self,
        recordings: &[&Recording],
        path: &Path,
        scale: f32,
    ) -> Result<Vec<u8>, PictureError> {
        let drawn = self.svg(recordings)?;
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        let options = raster::options(self.font.as_deref());
        match ending.to_ascii_lowercase().as_str() {
            "svg" => Ok(drawn.into_bytes()),
            "png" => {
                Ok(raster::rasterize_with(&drawn, scale, &options?).map_err(FigureError::Draw)?)
            }
            "pdf" => Ok(pdf::pdf(&drawn, &options?).map_err(FigureError::Draw)?),
            _ => Err(PictureError::Ending(path.display().to_string())),
        }
    }
}

/// Checks that one of the runs has the requested seed, if any.
///
/// # Errors
/// [`PictureError::Seed`].
pub fn check_seed(
    seed: Option<u64>,
    of_runs: impl IntoIterator<Item = u64>,
) -> Result<(), PictureError> {
    let Some(seed) = seed else { return Ok(()) };
    let mut known: Vec<u64> = of_runs.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    match known.contains(&seed) {
        true => Ok(()),
        false => Err(PictureError::Seed { seed, known }),
    }
}

fn in_way(way: Option<Direction>) -> String {
    way.map_or_else(String::new, |way| format!(" in the direction {way}"))
}

fn list(seeds: &[u64]) -> String {
    let words: Vec<String> = seeds.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// The names in a list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// The figures of recordings, repetitions together.
///
/// # Errors
/// A table cannot be read.
pub fn results(recordings: &[&Recording]) -> Result<Vec<VariantResult>, ReadError> {
    let result = |(name, group): (String, Vec<&Recording>)| {
        let parts = |one: &Recording| {
            let summary = match one.stored_summary() {
                Ok(Some(summary)) => summary,
                _ => measure(one)?,
            };
            Ok((one.clone(), summary, false))
        };
        let title = group[0].run().title.clone();
        let parts = group
            .into_iter()
            .map(parts)
            .collect::<Result<_, ReadError>>()?;
        let mut result = VariantResult::of(title, parts);
        result.variant = name;
        Ok(result)
    };
    repetitions(recordings).into_iter().map(result).collect()
}

const SWEEPS: &str = "curves and heat maps";
const FIGURES: &str = "curves, heat maps and repetitions";
const MARKED: &str = "curves and repetitions";

/// The width of a picture on paper if only the size of its text is given: a page of two columns.
const USUAL_MM: f64 = 180.0;
