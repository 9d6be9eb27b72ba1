//! Static pictures for papers and READMEs: the main charts of the page as one SVG.
//!
//! The library plotters does the layout and the drawing. It rounds to whole pixels, so figures are
//! drawn several times larger and scaled down by a view box. Text is measured with the font that
//! [`super::png`] uses.

mod compare;
pub mod curve;
mod dots;
mod facts;
mod flow_looks;
mod heat;
mod needs;
mod panel;
pub mod repeats;
mod scale;
mod select;
mod sheet;
#[cfg(test)]
mod tests;
mod text;
pub mod words;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;
use thiserror::Error;

use self::panel::Panel;
use self::repeats::{Marks, YAxis};
#[cfg(test)]
pub(super) use self::select::LOG_BEYOND;
pub use self::select::shown_repetition;
use self::sheet::{Legend, Sheet};
use self::words::Words;
use super::model::Report;

/// A figure to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The charts that it shows.
    pub kind: FigureKind,
    /// Width in CSS pixels, [`Figure::WIDTHS`]; the height follows from the panels.
    pub width: u32,
    /// Whether each flow has its own line.
    pub flows: FlowLines,
    /// Whether title and caption are part of the picture. A paper sets its own.
    pub captioned: bool,
    /// Width on paper; the picture's own size is then in millimetres.
    pub width_mm: Option<f64>,
    /// Size of most text on paper, in points.
    pub font_pt: f64,
    /// The font, before the usual ones.
    pub font: Option<String>,
    /// How the values of repetitions are drawn.
    pub marks: Marks,
    /// Height on paper; by default it follows from the charts.
    pub height_mm: Option<f64>,
    /// Number of charts in a row; by default as many as are legible.
    pub columns: Option<usize>,
    /// The kind of the y axis of figures over repetitions and of curves.
    pub y_axis: YAxis,
    /// Words for figures, axes and runs in place of the usual ones.
    pub headings: Vec<(String, String)>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident, $word:literal, $about:literal, $is_over_time:literal, $data:expr, $panels:expr;)+) => {
        /// The charts that a figure shows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(try_from = "String")]
        pub enum FigureKind {
            $($(#[$doc])+ $kind,)+
        }

        impl FigureKind {
            /// All kinds.
            pub const ALL: [FigureKind; [$($word),+].len()] = [$(FigureKind::$kind),+];

            /// The kind's name on the command line and in files.
            pub const fn word(self) -> &'static str {
                match self { $(FigureKind::$kind => $word,)+ }
            }

            /// The kind's description, for the help.
            pub const fn about(self) -> &'static str {
                match self { $(FigureKind::$kind => $about,)+ }
            }

            /// Whether the charts have a column for each run.
            const fn has_columns(self) -> bool {
                matches!(self, FigureKind::Box | FigureKind::Repetitions | FigureKind::Totals)
            }

            /// Whether the charts are stacked on one time axis; otherwise they are drawn side by
            /// side.
            const fn is_over_time(self) -> bool {
                match self { $(FigureKind::$kind => $is_over_time,)+ }
            }

            /// The data of its charts.
            const fn data(self) -> &'static [needs::Data] {
                match self { $(FigureKind::$kind => $data,)+ }
            }

            fn panels(self, report: &Report, figure: &Figure) -> Vec<Panel> {
                let panels: fn(&Report, &Figure) -> Vec<Panel> = match self {
                    $(FigureKind::$kind => $panels,)+
                };
                panels(report, figure)
            }
        }
    };
}

// A row is: kind, its word, what it shows, whether its charts are stacked on one time axis, what they
// are drawn from, and its charts.
kinds! {
    /// Goodput, ping, sojourn time of every packet with drops and marks, and backlog, stacked on one
    /// time axis.
    Time, "time", "Goodput, delays with drops and marks, and backlog over time", true, needs::TIME, |report, figure| select::time_panels(report, figure.flows);
    /// Distributions of ping and sojourn time, side by side.
    Distribution, "distribution", "Distributions of the delays and of flow completion times", false, needs::DISTRIBUTION, |report, _| select::distribution_panels(report, false);
    /// The same distributions seen from the tail: the share of samples above, on logarithmic axes.
    Tail, "tail", "The tails of these distributions, on logarithmic axes", false, needs::DISTRIBUTION, |report, _| select::distribution_panels(report, true);
    /// Goodput, congestion window and smoothed RTT of every flow, stacked.
    Flows, "flows", "Goodput, congestion window and smoothed RTT of every flow", true, needs::FLOWS, |report, _| compare::flow_panels(report);
    /// Sojourn time of every packet with drops and marks, and below it up to eight variables of the
    /// AQM, or as many as the height has room for; the caption names the others.
    State, "state", "The delay of every packet, and the variables of the AQM", true, needs::STATE, |report, _| compare::state_panels(report);
    /// Fairness over time.
    Fairness, "fairness", "Jain's index over time", true, needs::FAIRNESS, |report, _| compare::fairness_panels(report);
    /// Goodput against delay, with the ellipse of one standard deviation.
    Tradeoff, "tradeoff", "Goodput against delay, with the ellipse of one standard deviation", false, needs::TRADEOFF, |report, _| compare::tradeoff_panels(report);
    /// Delays as boxes: the middle half, median, and 5 % to 95 %.
    Box, "box", "Delays as boxes", false, needs::BOX, |report, figure| compare::box_panels(report, figure.words());
    /// Key figures over repetitions: each as a dot, with the median and its confidence.
    Repetitions, "repetitions", "Key figures over repetitions, with median and confidence", false, needs::FIGURES, |report, figure| repeats::panels(report, figure);
    /// Totals as bars: goodput, ping, drops and marks.
    Totals, "totals", "Goodput, ping, drops and marks as bars", false, needs::FIGURES, |report, figure| compare::total_panels(report, figure.words());
}

impl std::str::FromStr for FigureKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = FigureKind::ALL.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| {
            let known = FigureKind::ALL.map(FigureKind::word).join(", ");
            format!("unknown kind of figure `{text}`: expected one of {known}")
        })
    }
}

impl TryFrom<String> for FigureKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The lines of flows in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowLines {
    /// One line per flow for a single run, the sum of the flows if runs are compared.
    Auto,
    /// One line per flow.
    Each,
    /// The sum of the flows of a direction.
    Sum,
}

/// The reason why a figure was not drawn.
#[derive(Debug, Error, PartialEq)]
pub enum FigureError {
    /// The report has no runs.
    #[error("report '{title}' has no runs to draw: a figure needs at least one")]
    NoRuns {
        /// Title of the report.
        title: String,
    },
    /// None of the charts of this kind has values.
    #[error("no run of report '{title}' has values for a {} figure", kind.word())]
    NoValues {
        /// Title of the report.
        title: String,
        /// The requested kind.
        kind: FigureKind,
    },
    /// The width cannot hold the charts.
    #[error("a figure of {width} pixels cannot be drawn: {} to {} are possible; on paper, a width of 60 mm to 700 mm with text of 9 pt", Figure::WIDTHS.start(), Figure::WIDTHS.end())]
    Width {
        /// The requested width.
        width: u32,
    },
    /// The height cannot hold the charts.
    #[error(
        "a height of {height_mm} mm cannot hold the charts: at this width and size of text, they need {least_mm} mm"
    )]
    Height {
        /// The requested height.
        height_mm: f64,
        /// The least height.
        least_mm: f64,
    },
    /// The curve cannot be drawn from these runs.
    #[error(transparent)]
    Curve(#[from] curve::CurveError),
    /// The drawing library refused.
    #[error("the figure could not be drawn: {0}")]
    Draw(String),
}

impl Figure {
    /// Widths that can be drawn, in CSS pixels.
    pub const WIDTHS: std::ops::RangeInclusive<u32> = 240..=4000;

    /// The same figure at a width on paper, with text of `font_pt` points.
    pub fn on_paper(self, width_mm: f64, font_pt: f64) -> Self {
        // The labels of axes are drawn with 12 pixels, or 9 points. For other sizes, the picture is
        // scaled.
        let pixels = width_mm / MM_PER_INCH * CSS_PER_INCH * USUAL_PT / font_pt;
        Figure {
            width: pixels.round() as u32,
            width_mm: Some(width_mm),
            font_pt,
            ..self
        }
    }

    const fn words(&self) -> Words<'_> {
        Words {
            own: self.headings.as_slice(),
        }
    }

    /// The main figure: everything over time.
    pub fn time() -> Self {
        Figure {
            kind: FigureKind::Time,
            width: 1000,
            flows: FlowLines::Auto,
            captioned: true,
            width_mm: None,
            font_pt: USUAL_PT,
            font: None,
            marks: Marks::Auto,
            height_mm: None,
            columns: None,
            y_axis: YAxis::Auto,
            headings: Vec::new(),
        }
    }

    /// The distributions.
    pub fn distribution() -> Self {
        Figure::of(FigureKind::Distribution)
    }

    /// A figure of a kind, in the default size and with a caption.
    pub fn of(kind: FigureKind) -> Self {
        Figure {
            kind,
            ..Figure::time()
        }
    }

    /// Removes title and caption, for a paper that has its own.
    pub fn bare(self) -> Self {
        Figure {
            captioned: false,
            ..self
        }
    }
}

/// Draws the figure as an SVG document.
pub fn svg(report: &Report, figure: &Figure) -> Result<String, FigureError> {
    if report.runs.is_empty() {
        return Err(FigureError::NoRuns {
            title: report.title.clone(),
        });
    }
    let panels = figure.kind.panels(report, figure);
    if panels.is_empty() {
        return Err(FigureError::NoValues {
            title: report.title.clone(),
            kind: figure.kind,
        });
    }
    let caption = |panels: &[Panel]| match figure.captioned {
        true => select::caption(report, figure, panels),
        false => String::new(),
    };
    let mut sheet = Sheet {
        title: report.title.clone(),
        legend: Legend {
            heading: String::new(),
            names: legend(report, figure),
            patterns: patterns(report, figure),
            is_of_columns: figure.kind.has_columns(),
        },
        caption: caption(&panels),
        panels,
        is_over_time: figure.kind.is_over_time(),
    };
    loop {
        let drawn = sheet.svg(figure);
        let lacks_height = matches!(drawn, Err(FigureError::Height { .. }));
        let can_shrink =
            figure.kind == FigureKind::State && sheet.panels.len() > compare::FEWEST_OF_STATE;
        if !lacks_height || !can_shrink {
            return drawn;
        }
        // The caption grows by the name of the variable.
        sheet.panels.pop();
        sheet.caption = caption(&sheet.panels);
    }
}

/// Draws the figure as PNG, with `scale` pixels per CSS pixel (2 is right for most screens and for print).
pub fn png(report: &Report, figure: &Figure, scale: f32) -> Result<Vec<u8>, FigureError> {
    crate::raster::rasterize(&svg(report, figure)?, scale).map_err(FigureError::Draw)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Returns the names of the colours: the variants, or for a single run with one line per flow, its
/// flows and pings. Flows of both directions that share a colour share an entry.
fn legend(report: &Report, figure: &Figure) -> Vec<(String, usize)> {
    let pings =
        select::pings_of_one(report, figure.flows).filter(|_| figure.kind == FigureKind::Time);
    if let [run] = report.runs.as_slice()
        && matches!(figure.kind, FigureKind::Time | FigureKind::Flows)
        && figure.flows != FlowLines::Sum
        && (run.flows.len() > 1 || pings.is_some())
    {
        let flows = flow_looks::names(report).into_iter();
        let (first, pings) = pings.unwrap_or_default();
        let pings = pings.iter().map(|ping| ping.name.clone()).zip(first..);
        return flows.chain(pings).collect();
    }
    let is_numbered =
        figure.kind == FigureKind::Tradeoff && report.runs.len() > compare::MOST_CLOUDS;
    let name = |(at, run): (usize, &crate::model::Run)| {
        let name = match is_numbered {
            true => format!("{} {}", at + 1, figure.words().value(&run.name)),
            false => figure.words().value(&run.name),
        };
        (name, run.look as usize)
    };
    report.runs.iter().enumerate().map(name).collect()
}

/// Returns the names of the dashes: the flows, if several runs have lines of several.
fn patterns(report: &Report, figure: &Figure) -> Vec<(String, usize)> {
    match select::has_dashed_flows(report, figure) {
        true => flow_looks::names(report),
        false => Vec::new(),
    }
}

/// Escapes text for HTML and SVG: element content, not attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Replaces the characters that XML 1.0 does not have (section 2.2, `Char`) by U+FFFD: no program reads
/// a document with one of them.
fn with_xml_characters(document: &str) -> String {
    let is_char = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
    let known = |c: char| match is_char(c) {
        true => c,
        false => char::REPLACEMENT_CHARACTER,
    };
    document.chars().map(known).collect()
}

/// plotters measures text with these fonts. Viewers without them use the next one of `FAMILY`.
fn register_fonts() {
    for (style, bytes) in [
        (FontStyle::Normal, notosans::REGULAR_TTF),
        (FontStyle::Bold, notosans::BOLD_TTF),
    ] {
        let registered = plotters::style::register_font(FAMILY, style, bytes);
        assert!(
            registered.is_ok(),
            "the fonts of the notosans crate are valid"
        );
    }
}

/// A font of a size in CSS pixels. plotters' size is the height of a line, 1.24 times that of SVG.
fn plain(size: f64) -> FontDesc<'static> {
    FontDesc::new(
        FontFamily::Name(FAMILY),
        size * f64::from(FINE) * 1.24,
        FontStyle::Normal,
    )
}

fn bold(size: f64) -> FontDesc<'static> {
    plain(size).style(FontStyle::Bold)
}

/// Converts CSS pixels to drawing units.
fn fine(pixels: u32) -> i32 {
    (pixels * FINE).cast_signed()
}

/// Returns a colour of the palette of Okabe and Ito, whose colours remain distinct with the common
/// kinds of colour blindness. The page reads the palette from `web/src/model.ts`.
fn color(look: usize) -> RGBColor {
    PALETTE[look % COLOURS]
}

/// Returns the lengths of line and gap in CSS pixels. From the eighth look on, the colours repeat
/// with dashes.
fn dash(look: usize) -> Option<(u32, u32)> {
    DASHES[look / COLOURS % DASHES.len()]
}

/// One pattern for each round of colours, so that [`COLOURS`] times as many runs look different.
const DASHES: [Option<(u32, u32)>; 8] = [
    None,
    Some((8, 4)),
    Some((2, 3)),
    Some((14, 4)),
    Some((5, 2)),
    Some((2, 8)),
    Some((20, 8)),
    Some((8, 10)),
];

/// The colours of variants, in their order.
pub const PALETTE: [RGBColor; COLOURS] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x7a, 0x5a),
    RGBColor(0xb2, 0x50, 0x8f),
    RGBColor(0xb0, 0x7a, 0x00),
    RGBColor(0x3a, 0x9b, 0xd9),
    RGBColor(0x55, 0x55, 0x55),
];
/// CSS pixels and millimetres per inch.
const CSS_PER_INCH: f64 = 96.0;
const MM_PER_INCH: f64 = 25.4;
/// The size of the labels of axes in points: 12 CSS pixels.
const USUAL_PT: f64 = 9.0;
/// Drawing units per CSS pixel.
const FINE: u32 = 8;
const MARGIN: u32 = 14;
const TITLE_SIZE: f64 = 17.0;
const TITLE_LINE: u32 = 22;
/// Size of the numbers and labels of axes.
const AXIS_SIZE: f64 = 12.0;
const LEGEND_ROW: u32 = 22;
const LEGEND_GAP: u32 = 20;
const LEGEND_SIZE: f64 = 13.0;
const SWATCH: u32 = 24;
const CAPTION_SIZE: f64 = 12.5;
const CAPTION_LINE: u32 = 18;
/// Largest number of charts in a row.
const MOST_BESIDE: usize = 5;
/// Number of colours; each further round of runs has another pattern of dashes.
pub(crate) const COLOURS: usize = 7;
const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
const MUTED: RGBColor = RGBColor(0x50, 0x58, 0x60);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xeb);
/// The font that is part of the program, then fonts that viewers usually have.
const FAMILY: &str = "Noto Sans, DejaVu Sans, Helvetica, Arial, sans-serif";
