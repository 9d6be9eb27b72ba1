//! Figures over repetitions: the ways in which several values of one figure are drawn, and the
//! charts that show nothing else.

use indexmap::IndexSet;
use sluice_recording::metrics::Spread;

use super::Figure;
use super::panel::{Fill, FillStyle, Line, Look, Panel};
use super::scale::Scale;
use super::select::LOG_BEYOND;
use super::words::Words;
use crate::model::{Cdf, Report};

/// How the values of repetitions are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// As the chart usually does: dots with median and confidence, or a line with a band.
    #[default]
    Auto,
    /// A dot for each repetition.
    Dots,
    /// The mean, with its 95 % confidence interval as an error bar.
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
            "The mean with its 95 % confidence interval as error bar",
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

    /// What the marks mean of the `least` to `runs` repetitions that measured a figure, for a caption.
    pub(super) fn explained(self, least: usize, runs: usize) -> String {
        match self {
            Marks::Auto => format!(
                "Dots: repetitions, which differ in their seed; line: their median; band: {}.",
                Interval::explained(least, runs)
            ),
            Marks::Dots => "Dots: repetitions, which differ in their seed.".to_owned(),
            Marks::Interval => {
                "Dots: means of the repetitions; error bars: 95 % confidence intervals, without an end where one \
                 reaches beyond the possible values."
                    .to_owned()
            }
            Marks::Range => {
                "Dots: medians of the repetitions; error bars reach from the smallest to the largest.".to_owned()
            }
            // The quarters of three values are the smallest and the largest.
            Marks::Box if runs < 4 => {
                "Boxes reach from the smallest to the largest repetition, the line is their median.".to_owned()
            }
            Marks::Box => {
                "Boxes hold the middle half of the repetitions, the line is their median, whiskers reach to the \
                 smallest and the largest."
                    .to_owned()
            }
        }
    }

    /// The value in the middle of the marks.
    pub(super) const fn center(self) -> Center {
        match self {
            Marks::Interval => Center::Mean,
            _ => Center::Median,
        }
    }

    /// The lowest and the highest place of the marks of `values`; nothing without values.
    pub(super) fn reach(self, values: &[f64], limits: (f64, f64)) -> Option<(f64, f64)> {
        let spread = Spread::of(values)?;
        Some(match self {
            Marks::Interval => {
                let (low, high) = spread.interval().unwrap_or((spread.mean, spread.mean));
                let high = high.min(limits.1).max(spread.mean);
                // A logarithmic axis shows the end of an interval only if it is positive.
                (if low > limits.0 { low } else { spread.mean }, high)
            }
            _ => (spread.min, spread.max),
        })
    }
}

/// The middle of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Center {
    /// Their median.
    Median,
    /// Their mean.
    Mean,
}

/// The fewest values with an interval of 95 %: 1 - 2 / 2^6 = 96.9 %.
const OF_95_PERCENT: usize = 6;

/// A confidence interval of a median. Its bounds are two of the values, so it lies within what is
/// possible, and it assumes no distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The narrowest symmetric interval with a confidence of at least 95 %. Fewer than six values
    /// give none, so the interval is their range. `None` with fewer than two values.
    pub(crate) fn of_median(values: &[f64]) -> Option<Interval> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (left_out, _) = Interval::left_out(sorted.len())?;
        Some(Interval {
            low: sorted[left_out],
            high: sorted[sorted.len() - 1 - left_out],
        })
    }

    /// The number of values beyond each bound, and the confidence. The median is below the k-th of n
    /// values with the probability of fewer than k heads among n tosses of a coin.
    fn left_out(count: usize) -> Option<(usize, f64)> {
        if count < 2 {
            return None;
        }
        let n = count as f64;
        // From here on, the normal distribution is close, and the powers are still representable.
        if count > 500 {
            return Some(((0.5 * n - 0.98 * n.sqrt()) as usize, 0.95));
        }
        let (mut heads, mut below) = (0.5_f64.powi(count as i32), 0.0);
        let mut chosen = (0, 1.0 - 2.0 * heads);
        for k in 0..count / 2 {
            below += heads;
            let confidence = 1.0 - 2.0 * below;
            if k > 0 && confidence < 0.95 {
                break;
            }
            chosen = (k, confidence);
            heads *= (n - k as f64) / (k as f64 + 1.0);
        }
        Some(chosen)
    }

    /// What the intervals of `least` to `runs` repetitions are, for a caption.
    pub(super) fn explained(least: usize, runs: usize) -> String {
        if least < runs {
            // The confidences differ.
            let words = match (least < OF_95_PERCENT, runs < OF_95_PERCENT) {
                (_, true) => {
                    "from the smallest to the largest, a confidence interval of the median of less than 95 %"
                }
                (true, false) => {
                    "confidence interval of the median of at least 95 %; of fewer than six values, their range"
                }
                (false, false) => "confidence interval of the median of at least 95 %",
            };
            return words.to_owned();
        }
        match Interval::left_out(runs) {
            Some((0, confidence)) => format!(
                "from the smallest to the largest of the {runs}, a {:.0} % confidence interval of the median",
                (confidence * 100.0).floor()
            ),
            Some((_, confidence)) => {
                format!(
                    "{:.0} % confidence interval of the median",
                    (confidence * 100.0).floor()
                )
            }
            None => "none for a single run".to_owned(),
        }
    }
}

/// The least and the greatest value that a figure can have.
pub(super) fn possible(name: &str, unit: &str) -> (f64, f64) {
    let is_index = name.to_lowercase().starts_with("jain");
    match unit {
        "%" => (0.0, 100.0),
        _ if is_index => (0.0, 1.0),
        _ if is_score(name) => (1.0, 5.0),
        _ => (0.0, f64::INFINITY),
    }
}

fn is_score(name: &str) -> bool {
    name.ends_with(".mos") || name.starts_with("MOS")
}

/// The kind of the y axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YAxis {
    /// Logarithmic if the values differ very much, otherwise linear.
    #[default]
    Auto,
    /// Linear from zero, or from the least possible value.
    Linear,
    /// Logarithmic.
    Log,
}

impl YAxis {
    /// All of them, by their words.
    pub const ALL: [(&'static str, YAxis, &'static str); 3] = [
        (
            "auto",
            YAxis::Auto,
            "Logarithmic if the values differ very much, otherwise linear",
        ),
        ("linear", YAxis::Linear, "Linear from zero"),
        ("log", YAxis::Log, "Logarithmic"),
    ];

    /// Returns the axis that a word names.
    pub fn from_word(word: &str) -> Option<YAxis> {
        let found = YAxis::ALL.into_iter().find(|(known, ..)| *known == word);
        found.map(|(_, axis, _)| axis)
    }

    /// Whether the axis of marks with this reach is logarithmic: if they differ by more than the
    /// factor `beyond`. Values that are zero have no logarithm.
    pub(super) fn is_log(self, reach: &[(f64, f64)], beyond: f64) -> bool {
        let (least, most) = ends(reach);
        let wants = match self {
            YAxis::Auto => most > beyond * least,
            YAxis::Linear => false,
            YAxis::Log => true,
        };
        wants && least > 0.0 && least.is_finite()
    }

    /// The axis for marks with this reach.
    pub(super) fn scale(
        self,
        reach: &[(f64, f64)],
        (beyond, ticks): (f64, usize),
        (lowest, highest): (f64, f64),
    ) -> Scale {
        let (least, most) = ends(reach);
        if self.is_log(reach, beyond) {
            return Scale::log(least, most);
        }
        if lowest > 0.0 {
            return Scale::between(lowest, highest, ticks);
        }
        match most * 1.06 > highest {
            true => Scale::between(0.0, highest * 1.03, ticks),
            false => Scale::linear(most, ticks),
        }
    }

    /// The label of an axis with a unit, which says whether it is logarithmic.
    pub(super) fn label(unit: &str, scale: &Scale) -> String {
        match (unit, scale.is_log()) {
            (unit, false) => unit.to_owned(),
            ("", true) => "logarithmic".to_owned(),
            (unit, true) => format!("{unit}, logarithmic"),
        }
    }
}

fn ends(reach: &[(f64, f64)]) -> (f64, f64) {
    let least = reach
        .iter()
        .map(|(low, _)| *low)
        .fold(f64::INFINITY, f64::min);
    let most = reach.iter().map(|(_, high)| *high).fold(0.0, f64::max);
    (least, most)
}

/// One panel per figure over the repetitions. Panels of one unit are all linear or all logarithmic.
pub fn panels(report: &Report, figure: &Figure) -> Vec<Panel> {
    let words = Words {
        own: &figure.headings,
    };
    let marks = figure.marks;
    let mut names: IndexSet<(&str, &str)> = IndexSet::new();
    for repeat in report.runs.iter().flat_map(|run| &run.repeats) {
        names.insert((&repeat.figure, &repeat.unit));
    }
    let of = |name: &str| {
        let repeats = report
            .runs
            .iter()
            .enumerate()
            .flat_map(|(at, run)| run.repeats.iter().map(move |repeat| (at, run, repeat)));
        let repeats = repeats.filter(|(_, _, repeat)| repeat.figure == name);
        repeats.collect::<Vec<_>>()
    };
    let reach = |name: &str, unit: &str| -> Vec<(f64, f64)> {
        let limits = possible(name, unit);
        let of_it = of(name).into_iter();
        of_it
            .flat_map(|(_, _, repeat)| marks.reach(&repeat.values, limits))
            .collect()
    };
    let is_log = |unit: &str| {
        let mut of_unit = names.iter().filter(|(_, other)| *other == unit);
        let all_positive = of_unit
            .clone()
            .all(|(name, _)| ends(&reach(name, unit)).0 > 0.0);
        let is_log = |name: &str| figure.y_axis.is_log(&reach(name, unit), LOG_BEYOND);
        all_positive && of_unit.any(|(name, _)| is_log(name))
    };
    let columns = run_columns(report, words);
    let panel = |&(name, unit): &(&str, &str)| {
        let axis = match is_log(unit) {
            true => YAxis::Log,
            false => YAxis::Linear,
        };
        let limits = possible(name, unit);
        let y = axis.scale(&reach(name, unit), (LOG_BEYOND, 5), limits);
        let mut panel = Panel {
            height: 0,
            title: words.figure(name),
            x: columns.clone(),
            x_label: "".into(),
            y_label: YAxis::label(unit, &y).into(),
            y,
            fills: Vec::new(),
            lines: Vec::new(),
            clouds: Vec::new(),
            texts: Vec::new(),
        };
        for (at, run, repeat) in of(name) {
            let column = Column {
                variant: run.look as usize,
                x: at as f64 + 0.5,
                half: 0.28 / report.runs.len() as f64,
                scale: &columns,
                limits,
            };
            column.draw(&mut panel, &repeat.values, marks);
        }
        panel
    };
    names.iter().map(panel).collect()
}

/// A column for each run, with its name.
pub(super) fn run_columns(report: &Report, words: Words<'_>) -> Scale {
    Scale::words(
        report
            .runs
            .iter()
            .map(|run| words.value(&run.name))
            .collect(),
    )
}

/// A place for the values of one variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    pub variant: usize,
    pub x: f64,
    /// Half of its width, as a share of the x axis.
    pub half: f64,
    pub scale: &'a Scale,
    /// The least and the greatest possible value.
    pub limits: (f64, f64),
}

impl Column<'_> {
    /// Adds the marks of `values`. Marks that need several values leave out what one cannot show.
    pub fn draw(self, panel: &mut Panel, values: &[f64], marks: Marks) {
        let Some(spread) = Spread::of(values) else {
            return;
        };
        let x = self.x;
        let across = |y: f64| [(self.at(-1.0), y), (self.at(1.0), y)];
        match marks {
            Marks::Auto => {
                if let Some(Interval { low, high }) = Interval::of_median(values) {
                    panel.fills.push(self.fill(0.7, (low, high)));
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
            Marks::Interval => {
                panel.lines.push(self.line(&[(x, spread.mean)], true));
                if let Some((low, high)) = spread.interval() {
                    let (least, most) = self.limits;
                    // An end beyond what is possible is none.
                    let ends = [low, high]
                        .into_iter()
                        .filter(|end| (least..=most).contains(end));
                    let ends: Vec<f64> = ends.collect();
                    self.whisker(panel, (low.max(least), high.min(most)), &ends);
                }
            }
            Marks::Range => {
                panel.lines.push(self.line(&[(x, spread.median)], true));
                let ends = (spread.min, spread.max);
                self.whisker(panel, ends, &[spread.min, spread.max]);
            }
            Marks::Box => {
                let cdf = Cdf::of(values.to_vec());
                if let (Some(low), Some(high)) = (cdf.quantile(0.25), cdf.quantile(0.75)) {
                    panel.fills.push(self.fill(1.0, (low, high)));
                    self.whisker(panel, (spread.min, low), &[spread.min]);
                    self.whisker(panel, (high, spread.max), &[spread.max]);
                }
                panel.lines.push(self.line(&across(spread.median), false));
            }
        }
    }

    /// The x at a part of the half width beside the middle.
    fn at(self, part: f64) -> f64 {
        self.scale.beside(self.x, part * self.half)
    }

    /// A vertical line with short strokes across some of its ends.
    fn whisker(self, panel: &mut Panel, (low, high): (f64, f64), ends: &[f64]) {
        let x = self.x;
        panel.lines.push(self.line(&[(x, low), (x, high)], false));
        for y in ends {
            let stroke = [(self.at(-0.4), *y), (self.at(0.4), *y)];
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

    fn fill(self, part: f64, (low, high): (f64, f64)) -> Fill {
        let (left, right) = (self.at(-part), self.at(part));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_consists_of_values_and_has_its_confidence() {
        let of = |count: usize| {
            let values: Vec<f64> = (1..=count).map(|value| value as f64).collect();
            let interval = Interval::of_median(&values);
            interval.map(|interval| (interval.low, interval.high))
        };
        assert_eq!(of(1), None);
        // 1 - 2 / 2^3 = 75 %, 1 - 2 / 2^5 = 93.75 %: their range.
        assert_eq!(of(3), Some((1.0, 3.0)));
        assert_eq!(of(5), Some((1.0, 5.0)));
        assert!(Interval::explained(3, 3).ends_with("a 75 % confidence interval of the median"));
        // The tables of the sign test: of 10 values the second and the ninth (97.9 %), of 20 the
        // sixth and the fifteenth (95.9 %).
        assert_eq!(of(10), Some((2.0, 9.0)));
        assert_eq!(of(20), Some((6.0, 15.0)));
        assert_eq!(
            Interval::explained(10, 10),
            "97 % confidence interval of the median"
        );
        // Bands of different numbers of values have different confidences.
        assert_eq!(
            Interval::explained(3, 5),
            "from the smallest to the largest, a confidence interval of the median of less than 95 %"
        );
        let at_least = "confidence interval of the median of at least 95 %";
        assert_eq!(Interval::explained(6, 10), at_least);
        assert_eq!(
            Interval::explained(5, 10),
            format!("{at_least}; of fewer than six values, their range")
        );
    }

    #[test]
    fn an_axis_suits_its_figure() {
        let scale = |axis: YAxis, name, unit, reach: (f64, f64)| {
            axis.scale(&[reach], (8.0, 5), possible(name, unit))
                .labels()
        };
        // A mean opinion score is from 1 to 5.
        let mos = scale(YAxis::Auto, "call.mos", "", (3.9, 4.3));
        assert_eq!(mos, ["1", "2", "3", "4", "5"]);
        // No axis of Jain's index goes to 1.06.
        let jain = scale(YAxis::Auto, "jain", "", (0.9, 0.99));
        assert_eq!(jain.last().map(String::as_str), Some("1.0"));
        let label = |axis: YAxis, reach| {
            YAxis::label(
                "ms",
                &axis.scale(&[reach], (8.0, 5), possible("ping.p50", "ms")),
            )
        };
        assert_eq!(label(YAxis::Auto, (1.0, 100.0)), "ms, logarithmic");
        assert_eq!(label(YAxis::Linear, (1.0, 100.0)), "ms");
        assert_eq!(label(YAxis::Log, (1.0, 2.0)), "ms, logarithmic");
        // Zero has no logarithm.
        assert_eq!(label(YAxis::Log, (0.0, 2.0)), "ms");
    }
}
