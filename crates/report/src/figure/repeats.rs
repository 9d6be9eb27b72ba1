//! Figures over repetitions: the ways in which several values of one figure are drawn, and the
//! charts that show nothing else.

use sluice_recording::metrics::Spread;

use super::panel::{Fill, FillStyle, Line, Look, Panel};
use super::scale::Scale;
use super::select::LOG_BEYOND;
use crate::model::{Cdf, Report};

/// How the values of repetitions are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// As the chart usually does: dots with median and confidence, or a line with a band.
    #[default]
    Auto,
    /// A dot for each repetition.
    Dots,
    /// The median, with the 95 % confidence interval of the mean as an error bar.
    Interval,
    /// The median, with an error bar from the smallest to the largest value.
    Range,
    /// A box: the middle half, the median, and whiskers to the smallest and the largest value.
    Box,
}

impl Marks {
    /// All of them, by their words.
    pub const ALL: [(&'static str, Marks, &'static str); 5] = [
        (
            "auto",
            Marks::Auto,
            "Dots with median and confidence; of a curve, a line with its confidence band",
        ),
        ("dots", Marks::Dots, "A dot for each repetition"),
        (
            "interval",
            Marks::Interval,
            "The median with a 95 % confidence interval of the mean as error bar",
        ),
        (
            "range",
            Marks::Range,
            "The median with an error bar from the smallest to the largest value",
        ),
        (
            "box",
            Marks::Box,
            "A box plot: middle half, median, smallest and largest value",
        ),
    ];

    /// Returns the marks that a word names.
    pub fn from_word(word: &str) -> Option<Marks> {
        let found = Marks::ALL.into_iter().find(|(known, ..)| *known == word);
        found.map(|(_, marks, _)| marks)
    }

    /// What the marks mean, for a caption.
    pub(super) const fn explained(self) -> &'static str {
        match self {
            Marks::Auto => {
                "Dots: repetitions, which differ in their seed; line: their median; band: 95 % confidence interval of \
                 the mean."
            }
            Marks::Dots => "Dots: repetitions, which differ in their seed.",
            Marks::Interval => {
                "Dots: medians of the repetitions; error bars: 95 % confidence interval of the mean."
            }
            Marks::Range => {
                "Dots: medians of the repetitions; error bars reach from the smallest to the largest."
            }
            Marks::Box => {
                "Boxes hold the middle half of the repetitions, the line is their median, whiskers reach to the \
                 smallest and the largest."
            }
        }
    }
}

/// One panel per figure over the repetitions.
pub fn panels(report: &Report, marks: Marks) -> Vec<Panel> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for repeat in report.runs.iter().flat_map(|run| &run.repeats) {
        if !names.contains(&(&repeat.figure, &repeat.unit)) {
            names.push((&repeat.figure, &repeat.unit));
        }
    }
    let panel = |(figure, unit): (&str, &str)| {
        let mut panel = Panel {
            height: 0,
            title: figure.to_owned(),
            x: Scale::columns(report.runs.len()),
            x_label: "".into(),
            y: Scale::linear(1.0, 2),
            y_label: unit.to_owned().into(),
            fills: Vec::new(),
            lines: Vec::new(),
            clouds: Vec::new(),
            texts: Vec::new(),
        };
        for (at, run) in report.runs.iter().enumerate() {
            if let Some(repeat) = run.repeats.iter().find(|repeat| repeat.figure == figure) {
                let column = Column {
                    variant: run.look as usize,
                    x: at as f64 + 0.5,
                    half: 0.28,
                };
                column.draw(&mut panel, &repeat.values, marks);
            }
        }
        panel.y = axis(&panel, marks);
        panel
    };
    names.into_iter().map(panel).collect()
}

/// An axis for the values in a panel, from zero unless they differ very much.
fn axis(panel: &Panel, marks: Marks) -> Scale {
    let on_lines = panel
        .lines
        .iter()
        .flat_map(|line| line.pieces.iter().flatten());
    let on_edges = panel.fills.iter().flat_map(|fill| &fill.corners);
    let most = on_lines
        .clone()
        .chain(on_edges)
        .map(|(_, y)| *y)
        .fold(0.0, f64::max);
    // The bounds of an interval of the mean may be zero or less.
    let dots = on_lines.map(|(_, y)| *y);
    let least = dots
        .filter(|y| marks != Marks::Interval || *y > 0.0)
        .fold(f64::INFINITY, f64::min);
    match least > 0.0 && most > LOG_BEYOND * least {
        true => Scale::log(least, most),
        false => Scale::linear(most, 5),
    }
}

/// A place for the values of one variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub variant: usize,
    pub x: f64,
    /// Half of its width.
    pub half: f64,
}

impl Column {
    /// Adds the marks of `values`. Marks that need several values leave out what one cannot show.
    pub fn draw(self, panel: &mut Panel, values: &[f64], marks: Marks) {
        let Some(spread) = Spread::of(values) else {
            return;
        };
        let (x, half) = (self.x, self.half);
        let interval = spread.interval().map(|(low, high)| (low.max(0.0), high));
        let across = |y: f64| [(x - half, y), (x + half, y)];
        match marks {
            Marks::Auto => {
                if let Some(interval) = interval {
                    panel.fills.push(self.fill(half * 0.7, interval));
                }
                for value in values {
                    panel.lines.push(self.line(&[(x, *value)], true));
                }
                panel.lines.push(self.line(&across(spread.median), false));
            }
            Marks::Dots => {
                for value in values {
                    panel.lines.push(self.line(&[(x, *value)], true));
                }
            }
            Marks::Interval | Marks::Range => {
                panel.lines.push(self.line(&[(x, spread.median)], true));
                let ends = match marks {
                    Marks::Interval => interval,
                    _ => Some((spread.min, spread.max)),
                };
                if let Some((low, high)) = ends {
                    self.whisker(panel, (low, high), &[low, high]);
                }
            }
            Marks::Box => {
                let cdf = Cdf::of(values.to_vec());
                if let (Some(low), Some(high)) = (cdf.quantile(0.25), cdf.quantile(0.75)) {
                    panel.fills.push(self.fill(half, (low, high)));
                    self.whisker(panel, (spread.min, low), &[spread.min]);
                    self.whisker(panel, (high, spread.max), &[spread.max]);
                }
                panel.lines.push(self.line(&across(spread.median), false));
            }
        }
    }

    /// A vertical line with short strokes across some of its ends.
    fn whisker(self, panel: &mut Panel, (low, high): (f64, f64), ends: &[f64]) {
        let x = self.x;
        panel.lines.push(self.line(&[(x, low), (x, high)], false));
        for y in ends {
            let stroke = [(x - self.half * 0.4, *y), (x + self.half * 0.4, *y)];
            panel.lines.push(self.line(&stroke, false));
        }
    }

    fn line(self, points: &[(f64, f64)], has_dots: bool) -> Line {
        Line {
            look: Look::Variant(self.variant),
            pieces: vec![points.to_vec()],
            has_dots,
        }
    }

    fn fill(self, half: f64, (low, high): (f64, f64)) -> Fill {
        let (left, right) = (self.x - half, self.x + half);
        Fill {
            variant: self.variant,
            corners: vec![
                (left, low),
                (right, low),
                (right, high),
                (left, high),
                (left, low),
            ],
            style: FillStyle::Outlined,
        }
    }
}
