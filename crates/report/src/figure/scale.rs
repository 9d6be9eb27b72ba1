//! Axes: their range, their ticks and the labels of the ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// A linear or logarithmic axis. Values outside its range lie on its edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    min: f64,
    max: f64,
    is_log: bool,
    ticks: Vec<f64>,
    /// Words instead of numbers at the ticks.
    labels: Vec<String>,
    /// Whether there is a column for each word.
    is_words: bool,
}

impl Scale {
    /// A linear axis from zero to a little above the largest value, with about `ticks` ticks.
    pub fn linear(largest: f64, ticks: usize) -> Self {
        let max = if largest > 0.0 { largest * 1.06 } else { 1.0 };
        Scale::between(0.0, max, ticks)
    }

    /// One column per word, with the word below its middle.
    pub fn words(labels: Vec<String>) -> Self {
        Scale {
            min: 0.0,
            max: labels.len() as f64,
            is_log: false,
            ticks: (0..labels.len()).map(|place| place as f64 + 0.5).collect(),
            labels,
            is_words: true,
        }
    }

    /// An axis of settings. If they are few, exactly these values have ticks. The axis is
    /// logarithmic if all values are positive and their range exceeds a factor of ten.
    pub fn settings(values: &[f64]) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let is_log = least > 0.0 && most / least > 10.0;
        // Room for the marks at both ends.
        let (min, max) = match is_log {
            true => {
                let room = (most / least).powf(EDGE);
                (least / room, most * room)
            }
            false => {
                let room = ((most - least) * EDGE).max(most.abs() * 0.01).max(1e-9);
                (least - room, most + room)
            }
        };
        let mut scale = Scale::between(min, max, 6);
        if is_log {
            scale.is_log = true;
            scale.ticks = log_ticks(min, max);
        }
        if values.len() <= MOST_TICKS {
            // The runs may have begun in another order.
            scale.ticks = values.to_vec();
            scale.ticks.sort_by(f64::total_cmp);
            let ticks = scale.ticks.iter();
            scale.labels = ticks.map(|value| plain_number(*value)).collect();
        }
        scale
    }

    /// A linear axis exactly from `min` to `max`.
    pub fn between(min: f64, max: f64, ticks: usize) -> Self {
        let step = nice_step((max - min) / ticks as f64);
        let first = (min / step - 1e-9).ceil() as i64;
        let last = (max / step + 1e-9).floor() as i64;
        Scale {
            min,
            max,
            is_log: false,
            ticks: (first..=last).map(|k| k as f64 * step).collect(),
            labels: Vec::new(),
            is_words: false,
        }
    }

    /// A logarithmic axis over the positive values; the others are drawn on its edge.
    pub fn log(smallest: f64, largest: f64) -> Self {
        let max = if largest > 0.0 { largest * 1.25 } else { 1.0 };
        // A panel shows at most four and a half decades.
        let min = (smallest / 1.25).clamp(max / 30_000.0, max / 1.5);
        Scale {
            min,
            max,
            is_log: true,
            ticks: log_ticks(min, max),
            labels: Vec::new(),
            is_words: false,
        }
    }

    /// The same axis with at most `most` ticks, evenly chosen. Words stay, since each is a column.
    pub fn thinned(mut self, most: usize) -> Self {
        let most = most.max(2);
        if self.labels.is_empty() && !self.is_log {
            // The remaining ticks are round numbers again, not every third of 0.5, 1.0 and so on.
            let mut aim = most;
            while self.ticks.len() > most && aim > 0 {
                self.ticks = Scale::between(self.min, self.max, aim).ticks;
                aim -= 1;
            }
        }
        self
    }

    /// Whether the axis has columns with names instead of numbers.
    pub fn is_words(&self) -> bool {
        self.is_words
    }

    /// The labels of all ticks.
    pub fn labels(&self) -> Vec<String> {
        self.ticks.iter().map(|tick| self.label(*tick)).collect()
    }

    /// The places of the ticks on the axis, from 0 to 1.
    pub fn places(&self) -> Vec<f64> {
        self.ticks.iter().map(|tick| self.share(*tick)).collect()
    }

    /// The same axis with other labels.
    pub fn relabelled(mut self, label: impl Fn(&str) -> String) -> Self {
        self.labels = self.labels().iter().map(|text| label(text)).collect();
        self
    }

    /// The same axis without labels.
    pub fn unlabelled(self) -> Self {
        self.relabelled(|_| String::new())
    }

    /// The value that is a share of the axis' length beside `value`.
    pub fn beside(&self, value: f64, share: f64) -> f64 {
        let at = self.share(value) + share;
        match self.is_log {
            true => self.min * (self.max / self.min).powf(at),
            false => self.min + at * (self.max - self.min),
        }
    }

    /// The place of a value on the axis, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        self.share(value)
    }

    /// Whether the axis is logarithmic.
    pub fn is_log(&self) -> bool {
        self.is_log
    }

    /// The same axis with the length `room`, without labels that would touch their predecessors.
    /// `width` returns the width of a label in the same unit. If the last two labels would touch,
    /// the last one stays.
    pub fn without_overlaps(mut self, room: f64, width: impl Fn(&str) -> f64) -> Self {
        self.labels = self.labels();
        let middle = |scale: &Scale, at: usize| scale.share(scale.ticks[at]) * room;
        let touches = |scale: &Scale, a: usize, b: usize| {
            let half = (width(&scale.labels[a]) + width(&scale.labels[b])) / 2.0;
            middle(scale, b) - middle(scale, a) < half + LABEL_GAP
        };
        let count = self.labels.len();
        let mut kept: Vec<usize> = Vec::new();
        for at in 0..count {
            if at + 1 == count {
                while kept.len() > 1 && touches(&self, kept[kept.len() - 1], at) {
                    kept.pop();
                }
            }
            if kept.last().is_none_or(|last| !touches(&self, *last, at)) {
                kept.push(at);
            }
        }
        for at in (0..count).filter(|at| !kept.contains(at)) {
            self.labels[at].clear();
        }
        self
    }

    /// Whether a value lies beyond the end of the axis, such as a packet that leaves after the end of a run.
    pub fn ends_before(&self, value: f64) -> bool {
        value > self.max
    }

    /// Position of a value on the axis, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = value.clamp(self.min, self.max);
        if self.is_log {
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        }
    }

    /// The label of a tick. On a linear axis, the label has as many decimals as the ticks need. On
    /// a logarithmic axis, it has as many as the value.
    fn label(&self, value: f64) -> String {
        let near = |tick: &f64| (tick - value).abs() <= 1e-9 * value.abs().max(1.0);
        if let Some(label) = self
            .ticks
            .iter()
            .position(near)
            .and_then(|at| self.labels.get(at))
        {
            return label.clone();
        }
        match self.ticks.as_slice() {
            ticks @ [first, second, ..] if !self.is_log => {
                let step = (second - first).abs();
                let is_exact = |decimals: &usize| {
                    let power = 10_f64.powi(*decimals as i32);
                    let is_whole = |tick: &f64| {
                        let shown = (tick * power).round() / power;
                        (shown - tick).abs() <= 1e-6 * step
                    };
                    ticks.iter().all(is_whole)
                };
                let decimals = (0..9).find(is_exact).unwrap_or(9);
                format!("{value:.decimals$}")
            }
            _ => ((value * 1e9).round() / 1e9).to_string(),
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.min..self.max
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

/// The least distance of two labels, in CSS pixels.
const LABEL_GAP: f64 = 5.0;

/// The room at either end of an axis of settings, as a share of its range.
const EDGE: f64 = 0.05;

/// With more settings than this, an axis has ordinary ticks.
const MOST_TICKS: usize = 12;

/// A whole number as it is, and any other with up to seven digits.
pub fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1e6 {
        return value.to_string();
    }
    // Of two settings below 0.001, decimals would make the same number.
    let rounded = format!("{value:.6e}").parse().unwrap_or(value);
    rounded.to_string()
}

/// Decades; in a short range, also 2 and 5 times these, or even steps.
fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
    let ticks_at = |multiples: &[f64]| -> Vec<f64> {
        decades
            .clone()
            .flat_map(|decade| multiples.iter().map(move |m| m * 10_f64.powi(decade)))
            .filter(|tick| (min..=max).contains(tick))
            .collect()
    };
    let mut ticks = ticks_at(&[1.0]);
    if ticks.len() < 3 {
        ticks = ticks_at(&[1.0, 2.0, 5.0]);
    }
    if ticks.len() < 3 {
        ticks = Scale::between(min, max, 5).ticks;
    }
    ticks
}

/// The smallest of 1, 2 and 5 times a power of ten that is not much below `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|multiple| multiple * power)
        .find(|step| *step >= rough * 0.85)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(|&tick| scale.label(tick)).collect()
    }

    #[test]
    fn a_narrow_axis_has_fewer_ticks_at_round_numbers_that_are_written_in_full() {
        // From 2 to 8 there is room for three: 2, 4, 6 and 8 are too many, so the step is 5.
        let labels = |most| labels(&Scale::between(2.0, 8.0, 12).thinned(most));
        assert_eq!(labels(4), ["2", "4", "6", "8"]);
        assert_eq!(labels(3), ["5"]);
        // Ticks between whole numbers are not rounded to them.
        let halves = Scale {
            ticks: vec![2.0, 3.5, 5.0],
            ..Scale::between(2.0, 8.0, 12)
        };
        assert_eq!(super::tests::labels(&halves), ["2.0", "3.5", "5.0"]);
    }

    #[test]
    fn labels_of_settings_do_not_touch_one_another() {
        // On a logarithmic axis with a twentieth of ln 80 more at both ends, over 210: ln(15 / 10) and
        // ln(20 / 15) of 4.82 are 17.7 and 12.5, and every label takes 12 and a gap of 5.
        let scale = Scale::settings(&[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 80.0]);
        let kept = scale.without_overlaps(210.0, |_| 12.0);
        assert_eq!(labels(&kept), ["1", "2", "5", "10", "15", "", "40", "80"]);
        // Over 60, ln 2 takes 9: of the rest, each label needs 17. The last one stays.
        let scale = Scale::settings(&[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 80.0]);
        let kept = scale.without_overlaps(60.0, |_| 12.0);
        assert_eq!(labels(&kept), ["1", "", "5", "", "", "20", "", "80"]);
    }

    #[test]
    fn labels_of_small_settings_are_their_values() {
        let losses = Scale::settings(&[0.0001, 0.0005, 0.001, 0.01]);
        assert_eq!(labels(&losses), ["0.0001", "0.0005", "0.001", "0.01"]);
        // 0.1 + 0.2 is 0.30000000000000004.
        assert_eq!(plain_number(0.1 + 0.2), "0.3");
        assert_eq!(plain_number(1_048_576.0), "1048576");
    }

    #[test]
    fn many_settings_of_several_decades_have_a_tick_at_each() {
        // 13 values from 1e-5 to 1e-2, in steps of a quarter of a decade.
        let losses: Vec<f64> = (0..13)
            .map(|k| 10_f64.powf(f64::from(k) / 4.0 - 5.0))
            .collect();
        let scale = Scale::settings(&losses);
        assert_eq!(labels(&scale), ["0.00001", "0.0001", "0.001", "0.01"]);
    }

    #[test]
    fn settings_in_any_order_have_their_labels() {
        // From 11 to 209, 20 and 50 are 45 of 300 apart, and a label takes 12 and a gap of 5.
        let scale = Scale::settings(&[200.0, 100.0, 50.0, 20.0]);
        let kept = scale.without_overlaps(300.0, |_| 12.0);
        assert_eq!(labels(&kept), ["20", "50", "100", "200"]);
    }

    #[test]
    fn linear_ticks_are_round_and_inside() {
        // 10 * 1.06 over 5 ticks is 2.12 each, which is close enough to 2.
        assert_eq!(
            labels(&Scale::linear(10.0, 5)),
            ["0", "2", "4", "6", "8", "10"]
        );
        // 0.4 * 1.06 over 5 ticks is 0.0848 each, rounded up to 0.1.
        assert_eq!(
            labels(&Scale::linear(0.4, 5)),
            ["0.0", "0.1", "0.2", "0.3", "0.4"]
        );
    }

    #[test]
    fn log_ticks_are_decades_and_in_a_short_range_also_two_and_five() {
        assert_eq!(labels(&Scale::log(0.1, 100.0)), ["0.1", "1", "10", "100"]);
        // 0.8 to 6.25 holds only one power of ten.
        assert_eq!(labels(&Scale::log(1.0, 5.0)), ["1", "2", "5"]);
        // 16 to 27.5 holds only 20; a fifth of it is 2.3, so there are linear steps of 2.
        assert_eq!(
            labels(&Scale::log(20.0, 22.0)),
            ["16", "18", "20", "22", "24", "26"]
        );
    }

    #[test]
    fn values_outside_lie_on_the_edge() {
        let scale = Scale::log(1.0, 1000.0);
        assert_eq!(scale.map(&0.0, (0, 100)), 0);
        assert_eq!(scale.map(&1e9, (0, 100)), 100);
    }

    #[test]
    fn an_axis_without_values_can_still_be_drawn() {
        for scale in [Scale::linear(0.0, 5), Scale::log(f64::INFINITY, 0.0)] {
            assert!(scale.map(&0.9, (0, 100)) > 0, "{scale:?}");
        }
    }
}
