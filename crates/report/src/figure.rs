//! Static pictures for papers and READMEs: the main charts of the page as one SVG.
//!
//! plotters does the layout and the drawing. It works in whole pixels, so figures are drawn several
//! times larger and scaled by a view box. Text is measured with the font that [`super::png`] uses.

mod compare;
mod panel;
mod scale;
mod select;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;
use thiserror::Error;

use self::panel::Panel;
#[cfg(test)]
pub(super) use self::select::LOG_BEYOND;
use super::model::Report;

/// A figure to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The charts that it shows.
    pub kind: FigureKind,
    /// Width in CSS pixels, [`Figure::WIDTHS`]; the height follows from the panels.
    pub width: u32,
    /// Whether flows have lines of their own.
    pub flows: FlowLines,
    /// Whether title and caption are part of the picture. A paper sets its own.
    pub captioned: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident, $word:literal, $about:literal, $is_over_time:literal, $panels:expr;)+) => {
        /// The charts that a figure shows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(try_from = "String")]
        pub enum FigureKind {
            $($(#[$doc])+ $kind,)+
        }

        impl FigureKind {
            /// All kinds.
            pub const ALL: [FigureKind; [$($word),+].len()] = [$(FigureKind::$kind),+];

            /// Its name on the command line and in files.
            pub const fn word(self) -> &'static str {
                match self { $(FigureKind::$kind => $word,)+ }
            }

            /// What it shows, for the help.
            pub const fn about(self) -> &'static str {
                match self { $(FigureKind::$kind => $about,)+ }
            }

            /// Whether its charts are stacked on one time axis; otherwise they are drawn side by side.
            const fn is_over_time(self) -> bool {
                match self { $(FigureKind::$kind => $is_over_time,)+ }
            }

            fn panels(self, report: &Report, flows: FlowLines) -> Vec<Panel> {
                let panels: fn(&Report, FlowLines) -> Vec<Panel> = match self {
                    $(FigureKind::$kind => $panels,)+
                };
                panels(report, flows)
            }
        }
    };
}

// A row is: kind, its word, what it shows, whether its charts are stacked on one time axis, and its
// charts.
kinds! {
    /// Goodput, ping, sojourn time of every packet with drops and marks, and backlog, stacked on one
    /// time axis.
    Time, "time", "Goodput, delays with drops and marks, and backlog over time", true, select::time_panels;
    /// Distributions of ping and sojourn time, side by side.
    Distribution, "distribution", "Distributions of the delays and of flow completion times", false, |report, _| select::distribution_panels(report, false);
    /// The same distributions seen from the tail: the share of samples above, on logarithmic axes.
    Tail, "tail", "The tails of these distributions, on logarithmic axes", false, |report, _| select::distribution_panels(report, true);
    /// Goodput, congestion window and smoothed RTT of every flow, stacked.
    Flows, "flows", "Goodput, congestion window and smoothed RTT of every flow", true, |report, _| compare::flow_panels(report);
    /// Sojourn time of every packet with drops and marks, and below it the variables of the AQM.
    State, "state", "The delay of every packet, and the variables of the AQM", true, |report, _| compare::state_panels(report);
    /// Fairness over time.
    Fairness, "fairness", "Jain's index over time", true, |report, _| compare::fairness_panels(report);
    /// Goodput against delay, with the ellipse of one standard deviation.
    Tradeoff, "tradeoff", "Goodput against delay, with the ellipse of one standard deviation", false, |report, _| compare::tradeoff_panels(report);
    /// Delays as boxes: the middle half, median, and 5 % to 95 %.
    Box, "box", "Delays as boxes", false, |report, _| compare::box_panels(report);
    /// Totals as bars: goodput, ping, drops and marks.
    Totals, "totals", "Goodput, ping, drops and marks as bars", false, |report, _| compare::total_panels(report);
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

/// Whether flows have lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowLines {
    /// One line per flow for a single run; the sum of the flows if runs are compared.
    Auto,
    /// One line per flow.
    Each,
    /// The sum of the flows of a direction.
    Sum,
}

/// The reason why a figure was not drawn.
#[derive(Debug, Error, PartialEq, Eq)]
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
    #[error("width {width} of the figure: expected {} to {} pixels", Figure::WIDTHS.start(), Figure::WIDTHS.end())]
    Width {
        /// The requested width.
        width: u32,
    },
    /// The drawing library refused.
    #[error("the figure could not be drawn: {0}")]
    Draw(String),
}

impl Figure {
    /// Widths that can be drawn, in CSS pixels.
    pub const WIDTHS: std::ops::RangeInclusive<u32> = 400..=4000;

    /// The main figure: everything over time.
    pub fn time() -> Self {
        Figure {
            kind: FigureKind::Time,
            width: 1000,
            flows: FlowLines::Auto,
            captioned: true,
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

    /// Leaves out title and caption, for a paper that sets its own.
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
    if !Figure::WIDTHS.contains(&figure.width) {
        return Err(FigureError::Width {
            width: figure.width,
        });
    }
    register_fonts();
    let panels = figure.kind.panels(report, figure.flows);
    if panels.is_empty() {
        return Err(FigureError::NoValues {
            title: report.title.clone(),
            kind: figure.kind,
        });
    }
    let layout = Layout::new(report, figure, &panels);
    let (width, height) = (figure.width * FINE, layout.height * FINE);
    let mut drawn = String::new();
    {
        let root = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
        draw(&root, report, figure, &panels, &layout)
            .map_err(|error| FigureError::Draw(error.to_string()))?;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n{drawn}</svg>\n",
        figure.width,
        layout.height,
        escape(&report.title),
    ))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Heights in CSS pixels, and the texts that are broken into lines.
struct Layout {
    title: u32,
    legend: u32,
    legend_rows: Vec<Vec<usize>>,
    panels: Vec<u32>,
    caption: Vec<String>,
    height: u32,
}

impl Layout {
    fn new(report: &Report, figure: &Figure, panels: &[Panel]) -> Self {
        let legend_rows = break_legend(&legend(report, figure), figure.width);
        let caption = if figure.captioned {
            let text = select::caption(report, figure, panels);
            break_lines(&text, figure.width - 2 * MARGIN, CAPTION_SIZE)
        } else {
            Vec::new()
        };
        let heights: Vec<u32> = if figure.kind.is_over_time() {
            let last = panels.len() - 1;
            let panels = panels.iter().enumerate();
            panels
                .map(|(at, panel)| panel.height + if at == last { X_AXIS } else { 0 })
                .collect()
        } else {
            vec![DISTRIBUTION_HEIGHT + X_AXIS]
        };
        let title = if figure.captioned { 34 } else { 6 };
        let legend = legend_rows.len() as u32 * LEGEND_ROW + 6;
        let caption_height = match caption.len() as u32 {
            0 => 6,
            lines => lines * CAPTION_LINE + 16,
        };
        Layout {
            title,
            legend,
            legend_rows,
            height: title + legend + heights.iter().sum::<u32>() + caption_height,
            panels: heights,
            caption,
        }
    }
}

fn draw(
    root: &Area<'_>,
    report: &Report,
    figure: &Figure,
    panels: &[Panel],
    layout: &Layout,
) -> Drawn {
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(layout.title * FINE);
    if figure.captioned {
        let style = bold(17.0).color(&INK);
        head.draw_text(&report.title, &style, (fine(MARGIN), fine(10)))?;
    }
    let (legend, mut rest) = rest.split_vertically(layout.legend * FINE);
    draw_legend(&legend, &self::legend(report, figure), &layout.legend_rows)?;
    if figure.kind.is_over_time() {
        for (at, (panel, height)) in panels.iter().zip(&layout.panels).enumerate() {
            let (area, below) = rest.split_vertically(height * FINE);
            rest = below;
            panel.draw(&area, at + 1 == panels.len())?;
        }
    } else {
        let (area, below) = rest.split_vertically(layout.panels[0] * FINE);
        rest = below;
        for (panel, area) in panels.iter().zip(area.split_evenly((1, panels.len()))) {
            panel.draw(&area, true)?;
        }
    }
    for (line, text) in layout.caption.iter().enumerate() {
        let y = 10 + line as u32 * CAPTION_LINE;
        rest.draw_text(
            text,
            &plain(CAPTION_SIZE).color(&MUTED),
            (fine(MARGIN), fine(y)),
        )?;
    }
    root.present()?;
    Ok(())
}

/// Returns the names of the colours: those of the variants, or those of the flows of a single run
/// with one line per flow. Flows of both directions that share a colour share an entry.
fn legend(report: &Report, figure: &Figure) -> Vec<String> {
    if let [run] = report.runs.as_slice()
        && matches!(figure.kind, FigureKind::Time | FigureKind::Flows)
        && figure.flows != FlowLines::Sum
        && run.flows.len() > 1
    {
        let names = select::DIRECTIONS.map(|direction| {
            let of_it = run.flows.iter().filter(|f| f.direction == direction);
            of_it.map(|flow| flow.name.as_str()).collect::<Vec<&str>>()
        });
        let most = names.iter().map(Vec::len).max().unwrap_or(0);
        let entry = |place: usize| {
            let of_place: Vec<&str> = names.iter().filter_map(|n| n.get(place)).copied().collect();
            of_place.join(", ")
        };
        return (0..most).map(entry).collect();
    }
    report.runs.iter().map(|run| run.name.clone()).collect()
}

/// Draws the entries from left to right, in the rows that `break_legend` returned.
fn draw_legend(area: &Area<'_>, names: &[String], rows: &[Vec<usize>]) -> Drawn {
    let style = plain(LEGEND_SIZE).color(&INK);
    for (row, variants) in rows.iter().enumerate() {
        let middle = fine(row as u32 * LEGEND_ROW + LEGEND_ROW / 2);
        let mut x = fine(LEFT);
        for &variant in variants {
            let name = &names[variant];
            panel::stroke(
                area,
                &[(x, middle), (x + fine(SWATCH), middle)],
                color(variant),
                dash(variant),
                2.2,
            )?;
            let at = (x + fine(SWATCH + 6), middle - fine(8));
            area.draw_text(name, &style, at)?;
            x += fine(SWATCH + 6 + text_width(name, LEGEND_SIZE) + LEGEND_GAP);
        }
    }
    Ok(())
}

fn break_legend(names: &[String], width: u32) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = LEFT;
    for (variant, name) in names.iter().enumerate() {
        let needs = SWATCH + 6 + text_width(name, LEGEND_SIZE) + LEGEND_GAP;
        if used + needs > width && rows.last().is_some_and(|row| !row.is_empty()) {
            rows.push(Vec::new());
            used = LEFT;
        }
        used += needs;
        rows.last_mut()
            .expect("there is always a row")
            .push(variant);
    }
    rows
}

fn break_lines(text: &str, width: u32, size: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if line.is_empty() || text_width(&longer, size) <= width {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Escapes text for HTML and SVG: element content, not attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
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

/// The width of a text in CSS pixels. plotters measures with the full height of the font, 1.362 em for
/// Noto Sans, but writes 1.24 em.
fn text_width(text: &str, size: f64) -> u32 {
    let (width, _) = plain(size)
        .box_size(text)
        .expect("the font has been registered, and measuring it cannot fail");
    (f64::from(width) * 1.362 / 1.24 / f64::from(FINE)).ceil() as u32
}

/// Converts CSS pixels to drawing units.
fn fine(pixels: u32) -> i32 {
    (pixels * FINE).cast_signed()
}

/// The palette of Okabe and Ito, which stays distinct under the common kinds of colour blindness. The
/// page takes it from `web/src/model.ts`.
fn color(variant: usize) -> RGBColor {
    PALETTE[variant % ROUND]
}

/// From the eighth variant on, the colours repeat with dashes: lengths of line and gap in CSS pixels.
fn dash(variant: usize) -> Option<(u32, u32)> {
    [None, Some((8, 4)), Some((2, 3)), Some((12, 5))][variant / ROUND % 4]
}

/// The colours of variants, in their order.
pub const PALETTE: [RGBColor; ROUND] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x7a, 0x5a),
    RGBColor(0xb2, 0x50, 0x8f),
    RGBColor(0xb0, 0x7a, 0x00),
    RGBColor(0x3a, 0x9b, 0xd9),
    RGBColor(0x55, 0x55, 0x55),
];
/// Drawing units per CSS pixel.
const FINE: u32 = 8;
const MARGIN: u32 = 14;
/// Left edge of the plots: room for the numbers and the label of the y axis.
const LEFT: u32 = 66;
const X_AXIS: u32 = 42;
const LEGEND_ROW: u32 = 22;
const LEGEND_GAP: u32 = 26;
const LEGEND_SIZE: f64 = 14.0;
const SWATCH: u32 = 26;
const CAPTION_SIZE: f64 = 12.5;
const CAPTION_LINE: u32 = 18;
const DISTRIBUTION_HEIGHT: u32 = 260;
const ROUND: usize = 7;
const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
const MUTED: RGBColor = RGBColor(0x50, 0x58, 0x60);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xeb);
/// The font that ships with the program, then those that viewers have.
const FAMILY: &str = "Noto Sans, DejaVu Sans, Helvetica, Arial, sans-serif";
