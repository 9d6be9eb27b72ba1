//! The cells of a table for people: a median, and its spread.

use super::{Column, Spread};
use sluice_recording::figures::Repeated;
use sluice_scenario::metric::Unit;

/// How a table for people is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Markdown,
    Latex { has_raw_headings: bool },
}

/// The median, or the mean before its confidence interval; its spread with as many decimals; and in how many
/// runs it was measured unless in all.
pub(super) fn cell(figure: &Repeated, column: &Column, spread: Spread, style: Style) -> String {
    let (factor, _) = column.scale;
    let center = match spread {
        Spread::Interval => figure.spread.mean,
        Spread::Range | Spread::Deviation | Spread::None => figure.spread.median,
    };
    let scaled = center * factor;
    let decimals = match (column.digits, figure.unit) {
        (Some(count), _) => Decimals::significant(scaled, count),
        // The median of two counts may be a half.
        (None, Unit::Count) => Decimals::Fixed(usize::from(scaled.fract() != 0.0)),
        (None, _) => Decimals::usual(scaled),
    };
    let number = |value: f64| decimals.show(value * factor, style);
    let plus = match style {
        Style::Latex { .. } => "$\\pm$",
        Style::Markdown => "±",
    };
    // A dash before or behind a minus would look like another one.
    let ends = |low: f64, high: f64| {
        let dash = match style {
            _ if low < 0.0 || high < 0.0 => " to ",
            Style::Latex { .. } => "--",
            Style::Markdown => "–",
        };
        format!("{}{dash}{}", number(low), number(high))
    };
    let shown = number(center);
    let shown = match (spread, figure.interval) {
        // A single value has no spread.
        (Spread::Range, _) if figure.spread.count > 1 => {
            format!("{shown} ({})", ends(figure.spread.min, figure.spread.max))
        }
        (Spread::Interval, Some((low, high))) => format!("{shown} ({})", ends(low, high)),
        (Spread::Deviation, Some(_)) => {
            format!("{shown} {plus} {}", number(figure.spread.deviation))
        }
        _ => shown,
    };
    match figure.measured_in() {
        Some(part) => format!("{shown}, {part}"),
        None => shown,
    }
}

/// How many decimals the numbers of a cell have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decimals {
    Fixed(usize),
    /// Powers of ten with two significant digits.
    Power,
}

impl Decimals {
    /// Three significant digits, or the whole number.
    fn usual(x: f64) -> Decimals {
        match x.abs() {
            a if a < 1e-12 => Decimals::Fixed(0),
            a if a < 0.000_995 => Decimals::Power,
            _ => Decimals::significant(x, 3),
        }
    }

    /// `count` significant digits, or all of the whole part.
    fn significant(x: f64, count: u8) -> Decimals {
        if x == 0.0 || !x.is_finite() {
            return Decimals::Fixed(0);
        }
        // Rounding may add a digit: 9.996 is 10.0 with three, and not 10.00.
        let places = |x: f64| (i32::from(count) - 1 - x.abs().log10().floor() as i32).max(0);
        let rounded = format!("{x:.0$}", places(x) as usize).parse().unwrap_or(x);
        Decimals::Fixed(places(rounded) as usize)
    }

    fn show(self, x: f64, style: Style) -> String {
        match (self, style) {
            (Decimals::Fixed(decimals), _) => signed(&format!("{x:.decimals$}"), style),
            (Decimals::Power, Style::Markdown) => signed(&format!("{x:.1e}"), style),
            (Decimals::Power, Style::Latex { .. }) => {
                let text = format!("{x:.1e}");
                let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
                format!("${mantissa} \\times 10^{{{power}}}$")
            }
        }
    }
}

/// The number with a minus instead of a hyphen. A zero has neither.
fn signed(number: &str, style: Style) -> String {
    let Some(size) = number.strip_prefix('-') else {
        return number.to_owned();
    };
    let minus = match style {
        _ if size.parse::<f64>() == Ok(0.0) => "",
        Style::Latex { .. } => "$-$",
        Style::Markdown => "\u{2212}",
    };
    format!("{minus}{size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATEX: Style = Style::Latex {
        has_raw_headings: false,
    };

    #[test]
    fn digits_are_significant_ones() {
        for (x, count, text) in [
            (9.96, 2, "10"),
            (9.96, 3, "9.96"),
            (9.996, 3, "10.0"),
            (0.012345, 3, "0.0123"),
            (1234.5, 2, "1234"),
            (-0.5, 2, "$-$0.50"),
            (0.0, 4, "0"),
        ] {
            let shown = Decimals::significant(x, count).show(x, LATEX);
            assert_eq!(shown, text, "{x} with {count}");
        }
    }

    fn shown_cell(values: &[f64], unit: Unit, spread: Spread, style: Style) -> String {
        let figure = Repeated::of(unit, values.to_vec(), values.len()).expect("values");
        let column = Column {
            name: "x".into(),
            heading: None,
            unit,
            scale: (1.0, ""),
            digits: None,
            cells: Vec::new(),
        };
        cell(&figure, &column, spread, style)
    }

    #[test]
    fn the_spread_has_as_many_decimals_as_the_median() {
        // Deviations of 0.39 and 0.000023 beside 1.90 and 4.40.
        let wide = [1.51, 1.9, 2.29];
        let plus = shown_cell(&wide, Unit::Score, Spread::Deviation, Style::Markdown);
        assert_eq!(plus, "1.90 ± 0.39");
        let close = [4.399_977, 4.4, 4.400_023];
        let plus = shown_cell(&close, Unit::Score, Spread::Deviation, LATEX);
        assert_eq!(plus, "4.40 $\\pm$ 0.00");
        // Counts are whole, except a median between two.
        let counts = shown_cell(&[46.0, 46.0, 47.0], Unit::Count, Spread::Range, LATEX);
        assert_eq!(counts, "46 (46--47)");
        let counts = shown_cell(&[46.0, 47.0], Unit::Count, Spread::Range, LATEX);
        assert_eq!(counts, "46.5 (46.0--47.0)");
        // A single value has no range.
        let one = shown_cell(&[48.2], Unit::Score, Spread::Range, LATEX);
        assert_eq!(one, "48.2");
        let small = [8.9e-4, 9.1e-4, 9.2e-4];
        assert_eq!(
            shown_cell(&small, Unit::Ratio, Spread::None, LATEX),
            "$9.1 \\times 10^{-4}$"
        );
        assert_eq!(
            shown_cell(&small, Unit::Ratio, Spread::None, Style::Markdown),
            "9.1e-4"
        );
    }

    #[test]
    fn an_interval_is_that_of_the_mean_before_it() {
        // The mean is 17, the deviation sqrt(((-17)^2 + (-15)^2 + 32^2) / 2) = 27.73, and t of two degrees
        // of freedom 4.303: 17 - 4.303 * 27.73 / sqrt(3) = -51.89, and 85.89.
        let drops = [0.0, 2.0, 49.0];
        let shown = |style| shown_cell(&drops, Unit::Count, Spread::Interval, style);
        assert_eq!(shown(Style::Markdown), "17 (\u{2212}52 to 86)");
        assert_eq!(shown(LATEX), "17 ($-$52 to 86)");
        // Mean 20, deviation 1, 4.303 / sqrt(3) = 2.484.
        let delays = [19.0, 20.0, 21.0];
        assert_eq!(
            shown_cell(&delays, Unit::Time, Spread::Interval, LATEX),
            "20.0 (17.5--22.5)"
        );
        assert_eq!(signed("-0.0", LATEX), "0.0");
    }
}
