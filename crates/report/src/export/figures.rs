//! The figures of runs as tables: one row per variant with medians and spread, for papers (CSV,
//! Markdown, LaTeX), and one row per run with everything, for other programs.

mod cell;

use std::fmt::Write as _;
use std::path::Path;

use indexmap::{IndexMap, IndexSet};

use self::cell::{Style, cell};
use crate::figure::curve::{axes, coordinates, hint};
use crate::figure::words::shown;
use sluice_recording::figures::{Repeated, figures_of, key_figures, repeated};
use sluice_recording::results::VariantResult;
use sluice_scenario::metric::{Key, Unit};

/// The spread of a figure beside its median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The smallest and the largest value.
    #[default]
    Range,
    /// The 95 % confidence interval of the mean, which is then shown instead of the median.
    Interval,
    /// The standard deviation.
    Deviation,
    /// None.
    None,
}

impl Spread {
    /// All spreads, by their words.
    pub const ALL: [(&'static str, Spread, &'static str); 4] = [
        ("range", Spread::Range, "Smallest and largest value"),
        (
            "interval",
            Spread::Interval,
            "Mean and its 95 % confidence interval",
        ),
        ("deviation", Spread::Deviation, "Standard deviation"),
        ("none", Spread::None, "Only the median"),
    ];
}

/// The formats of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 4180, in base units, with a column for each part of the spread.
    Csv,
    /// A table of Markdown.
    Markdown,
    /// A `tabular` with the rules of the package `booktabs`.
    Latex,
}

impl Format {
    /// Returns the format that the ending of a file's name stands for.
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "csv" => Some(Format::Csv),
            "md" => Some(Format::Markdown),
            "tex" => Some(Format::Latex),
            _ => None,
        }
    }
}

/// The reason why a table was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No run has a figure.
    #[error("no run has the figure `{name}`{}", hint(name, known))]
    Figure {
        /// The figure.
        name: String,
        /// The available figures.
        known: Vec<String>,
    },
    /// A heading, a unit or a number of digits for a column that the table does not have.
    #[error("the table has no column `{name}`{}", hint(name, known))]
    Column {
        /// The name.
        name: String,
        /// The columns of the table.
        known: Vec<String>,
    },
    /// A figure has no such unit.
    #[error("`{name}` cannot be shown in `{unit}`: {}", match known[..] {
        [] => "it is a bare number".to_owned(),
        _ => format!("its units are {}", known.join(", ")),
    })]
    Unit {
        /// The figure.
        name: String,
        /// The requested unit.
        unit: String,
        /// The units that it has.
        known: Vec<&'static str>,
    },
}

/// The columns and the numbers of a table.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The figures; empty for the key figures.
    pub figures: Vec<String>,
    /// The spread beside each median.
    pub spread: Spread,
    /// Headings of columns, by their figures or `variant`.
    pub headings: Vec<(String, String)>,
    /// Whether headings are LaTeX already, in a table of LaTeX: formulae, or several lines.
    pub has_raw_headings: bool,
    /// Units of figures, other than the usual ones.
    pub units: Vec<(String, String)>,
    /// Significant digits of all columns, and of some.
    pub digits: (Option<u8>, Vec<(String, u8)>),
}

/// Formats one row per variant.
///
/// # Errors
/// [`TableError`]; the nearest name is in its message.
pub fn table(
    results: &[VariantResult],
    layout: &Layout,
    format: Format,
) -> Result<String, TableError> {
    let all: Vec<Vec<(String, Repeated)>> = results
        .iter()
        .map(|result| repeated(&result.summaries()))
        .collect();
    let chosen = match layout.figures.is_empty() {
        true => usual(results, &all),
        false => layout.figures.clone(),
    };
    layout.check_names(&chosen)?;
    let of = |list: &[(String, String)], name: &str| {
        let found = list.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.clone())
    };
    let mut columns = Vec::new();
    for name in chosen {
        let cell = |figures: &Vec<(String, Repeated)>| {
            figures
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, figure)| figure.clone())
        };
        let cells: Vec<Option<Repeated>> = all.iter().map(cell).collect();
        let Some(unit) = cells.iter().flatten().map(|figure| figure.unit).next() else {
            let known = names(&all);
            return Err(TableError::Figure { name, known });
        };
        let scale = match of(&layout.units, &name) {
            Some(own) => in_unit(&name, unit, &own)?,
            None => shown(unit),
        };
        let own_digits = layout.digits.1.iter().find(|(known, _)| *known == name);
        columns.push(Column {
            heading: of(&layout.headings, &name),
            digits: own_digits.map(|(_, digits)| *digits).or(layout.digits.0),
            name,
            unit,
            scale,
            cells,
        });
    }
    let is_single = results.iter().all(|result| result.runs.len() < 2);
    let spread = if is_single {
        Spread::None
    } else {
        layout.spread
    };
    let first = of(&layout.headings, VARIANT);
    let first = first.as_deref().unwrap_or(VARIANT);
    Ok(match format {
        Format::Csv => csv(results, &columns, first),
        Format::Markdown => {
            let table = markdown(&rows(results, &columns, (first, spread), Style::Markdown));
            match is_single {
                true => table,
                false => format!("{table}\n{}.\n", described(results, &columns, spread)),
            }
        }
        Format::Latex => {
            let style = Style::Latex {
                has_raw_headings: layout.has_raw_headings,
            };
            let rows = rows(results, &columns, (first, spread), style);
            latex(&rows, &described(results, &columns, spread))
        }
    })
}

/// The names of all figures, each once.
pub(crate) fn names(all: &[Vec<(String, Repeated)>]) -> Vec<String> {
    let names: IndexSet<&String> = all.iter().flatten().map(|(name, _)| name).collect();
    names.into_iter().cloned().collect()
}

/// The name of the first column.
const VARIANT: &str = "variant";

impl Layout {
    fn check_names(&self, columns: &[String]) -> Result<(), TableError> {
        let headings = self.headings.iter().map(|(name, _)| name);
        let units = self.units.iter().map(|(name, _)| name);
        let digits = self.digits.1.iter().map(|(name, _)| name);
        let unknown = |name: &&String| !columns.contains(name) && *name != VARIANT;
        let known = || {
            columns
                .iter()
                .cloned()
                .chain([VARIANT.to_owned()])
                .collect()
        };
        match headings.chain(units).chain(digits).find(unknown) {
            Some(name) => Err(TableError::Column {
                name: name.clone(),
                known: known(),
            }),
            None => Ok(()),
        }
    }
}

/// The factor from base units to a unit, and its name.
fn in_unit(name: &str, unit: Unit, own: &str) -> Result<(f64, &'static str), TableError> {
    const TIMES: &[(f64, &str)] = &[(1e-9, "s"), (1e-6, "ms"), (1e-3, "us"), (1.0, "ns")];
    const RATES: &[(f64, &str)] = &[
        (1e-9, "Gbit/s"),
        (1e-6, "Mbit/s"),
        (1e-3, "kbit/s"),
        (1.0, "bit/s"),
    ];
    let all: &[(f64, &'static str)] = match unit {
        Unit::Time => TIMES,
        Unit::Rate => RATES,
        Unit::Ratio => &[(100.0, "%")],
        Unit::Count | Unit::Score | Unit::Number => &[],
    };
    let found = all.iter().find(|(_, word)| *word == own).copied();
    found.ok_or_else(|| TableError::Unit {
        name: name.to_owned(),
        unit: own.to_owned(),
        known: all.iter().map(|(_, word)| *word).collect(),
    })
}

struct Column {
    name: String,
    heading: Option<String>,
    unit: Unit,
    /// The factor and the name of the unit in tables for people.
    scale: (f64, &'static str),
    digits: Option<u8>,
    /// One entry per variant.
    cells: Vec<Option<Repeated>>,
}

/// The key figures that are not zero everywhere.
fn usual(results: &[VariantResult], all: &[Vec<(String, Repeated)>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for summary in results.iter().flat_map(VariantResult::summaries) {
        for (name, key) in key_figures(summary) {
            let values = all.iter().flatten().filter(|(known, _)| *known == name);
            let is_shown = values
                .into_iter()
                .any(|(_, figure)| key == Key::Always || figure.spread.max > 0.0);
            if is_shown && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// A heading and cells of text: the variant, then the figures.
fn rows(
    results: &[VariantResult],
    columns: &[Column],
    (first, spread): (&str, Spread),
    style: Style,
) -> Vec<Vec<String>> {
    let is_mixed = results
        .iter()
        .any(|result| result.backend != results[0].backend);
    let most = results.iter().map(|result| result.runs.len()).max();
    let name = |text: &str| match style {
        Style::Latex { .. } => escape(text),
        Style::Markdown => text.replace('|', "\\|"),
    };
    let own_heading = |text: &str| match style {
        Style::Latex {
            has_raw_headings: true,
        } => text.to_owned(),
        _ => name(text),
    };
    let mut head = vec![own_heading(first)];
    head.extend(
        columns
            .iter()
            .map(|column| match (&column.heading, column.scale.1) {
                (Some(own), _) => own_heading(own),
                (None, "") => name(&column.name),
                (None, unit) => format!("{} ({})", name(&column.name), name(unit)),
            }),
    );
    let mut rows = vec![head];
    for (at, result) in results.iter().enumerate() {
        let backend = is_mixed.then(|| result.backend.word().to_owned());
        let runs = result.runs.len();
        let runs = (Some(runs) < most).then(|| in_runs(runs));
        let notes: Vec<String> = backend.into_iter().chain(runs).collect();
        let variant = match notes.is_empty() {
            true => result.variant.clone(),
            false => format!("{} ({})", result.variant, notes.join(", ")),
        };
        let mut row = vec![name(&variant)];
        row.extend(columns.iter().map(|column| match &column.cells[at] {
            Some(figure) => cell(figure, column, spread, style),
            None => match style {
                Style::Latex { .. } => "--".to_owned(),
                Style::Markdown => "-".to_owned(),
            },
        }));
        rows.push(row);
    }
    rows
}

fn markdown(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (at, row) in rows.iter().enumerate() {
        let _ = writeln!(out, "| {} |", row.join(" | "));
        if at == 0 {
            let _ = writeln!(out, "|---|{}", "---:|".repeat(row.len() - 1));
        }
    }
    out
}

/// Says what the numbers of a table are.
fn described(results: &[VariantResult], all: &[Column], spread: Spread) -> String {
    let runs: Vec<usize> = results.iter().map(|result| result.runs.len()).collect();
    let mut cells = all.iter().flat_map(|column| column.cells.iter().flatten());
    let parts = match cells.any(|cell| cell.measured_in().is_some()) {
        true => ", over those that measured the figure",
        false => "",
    };
    format!("{}{parts}", over_runs(&runs, spread))
}

/// Says of how many runs the numbers of a table are, which has a row of each of these numbers of runs.
fn over_runs(runs: &[usize], spread: Spread) -> String {
    let (center, spread) = match spread {
        Spread::Range => ("Medians", ", with the smallest and the largest value"),
        Spread::Interval => ("Means", ", with their 95 % confidence intervals"),
        Spread::Deviation => ("Medians", " and standard deviations"),
        Spread::None => ("Medians", ""),
    };
    let least = runs.iter().copied().min().unwrap_or(0);
    match runs.iter().copied().max().unwrap_or(0) {
        0 | 1 => "One run per row".to_owned(),
        most if least < most => format!("{center} of {least} to {most} runs{spread}"),
        most => format!("{center} of {most} runs{spread}"),
    }
}

fn in_runs(count: usize) -> String {
    match count {
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    }
}

fn latex(rows: &[Vec<String>], what: &str) -> String {
    let columns = rows[0].len() - 1;
    let mut out = String::new();
    let _ = writeln!(out, "% {what}. Needs \\usepackage{{booktabs}}.");
    let _ = writeln!(out, "\\begin{{tabular}}{{l{}}}", "r".repeat(columns));
    out.push_str("\\toprule\n");
    for (at, row) in rows.iter().enumerate() {
        let _ = writeln!(out, "{} \\\\", row.join(" & "));
        if at == 0 {
            out.push_str("\\midrule\n");
        }
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n");
    out
}

/// Escapes the characters that LaTeX gives a meaning.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '\\' => out.push_str("\\textbackslash{}"),
            c => out.push(c),
        }
    }
    out
}

/// The unit of a figure in names of columns, whose values are in base units.
const fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Time => "_ns",
        Unit::Rate => "_bps",
        Unit::Ratio | Unit::Count | Unit::Score | Unit::Number => "",
    }
}

fn csv(results: &[VariantResult], columns: &[Column], first: &str) -> String {
    let keys: Vec<String> = axes(results).into_iter().map(|(key, _)| key).collect();
    let mut head: Vec<String> = vec![first.into(), "backend".into(), "runs".into()];
    head.extend(
        keys.iter()
            .filter(|key| *key != "backend" && *key != "variant")
            .cloned(),
    );
    for column in columns {
        let name = column.heading.as_deref().unwrap_or(&column.name);
        let suffix = suffix(column.unit);
        head.push(format!("{name}{suffix}"));
        // `jain.min` is a figure, and no name of a figure ends in a colon and a word.
        let parts = ["min", "max", "mean", "deviation", "low95", "high95"];
        head.extend(parts.map(|part| format!("{name}:{part}{suffix}")));
        head.push(format!("{name}:runs"));
    }
    let mut out = line(&head);
    for (at, result) in results.iter().enumerate() {
        let mut cells = vec![
            result.variant.clone(),
            result.backend.word().to_owned(),
            result.runs.len().to_string(),
        ];
        let own = coordinates(result);
        for key in keys
            .iter()
            .filter(|key| *key != "backend" && *key != "variant")
        {
            let found = own.iter().find(|place| place.key == *key);
            cells.push(found.map_or(String::new(), |place| place.value.clone()));
        }
        for column in columns {
            match &column.cells[at] {
                None => {
                    cells.extend(std::iter::repeat_n(String::new(), 7));
                    cells.push("0".to_owned());
                }
                Some(Repeated {
                    spread, interval, ..
                }) => {
                    let numbers = [
                        spread.median,
                        spread.min,
                        spread.max,
                        spread.mean,
                        spread.deviation,
                    ];
                    cells.extend(numbers.map(|number| number.to_string()));
                    let (low, high) = interval.unzip();
                    let text = |bound: Option<f64>| bound.map_or(String::new(), |b| b.to_string());
                    cells.extend([text(low), text(high)]);
                    cells.push(spread.count.to_string());
                }
            }
        }
        out.push_str(&line(&cells));
    }
    out
}

/// Formats one row per run: its place on the axes of the matrix, backend, seed, and every figure in
/// base units. An empty field is a figure that was not measured. The scenario is its `title`; without one,
/// that of each result.
pub fn tidy(results: &[VariantResult], title: Option<&str>) -> String {
    let axes = axes(results);
    let keys: Vec<&String> = axes
        .iter()
        .map(|(key, _)| key)
        .filter(|key| *key != "backend" && *key != "variant")
        .collect();
    let mut names: IndexMap<String, Unit> = IndexMap::new();
    for summary in results.iter().flat_map(VariantResult::summaries) {
        for figure in figures_of(summary) {
            names.entry(figure.name).or_insert(figure.unit);
        }
    }
    let mut head: Vec<String> = ["scenario", "variant", "backend", "seed", "complete"]
        .map(str::to_owned)
        .to_vec();
    head.extend(keys.iter().map(|key| (*key).clone()));
    head.extend(
        names
            .iter()
            .map(|(name, unit)| format!("{name}{}", suffix(*unit))),
    );
    let mut out = line(&head);
    for result in results {
        let own = coordinates(result);
        for run in &result.runs {
            let mut cells = vec![
                title.unwrap_or(&result.scenario).to_owned(),
                result.variant.clone(),
                result.backend.word().to_owned(),
                run.seed.to_string(),
                (run.status == sluice_recording::Status::Complete).to_string(),
            ];
            for key in &keys {
                let found = own.iter().find(|place| place.key == **key);
                cells.push(found.map_or(String::new(), |place| place.value.clone()));
            }
            let mut values = vec![String::new(); names.len()];
            // The first of two figures with one name.
            for figure in figures_of(&run.summary).into_iter().rev() {
                if let Some(place) = names.get_index_of(&figure.name) {
                    values[place] = figure.value.to_string();
                }
            }
            cells.extend(values);
            out.push_str(&line(&cells));
        }
    }
    out
}

fn line(cells: &[String]) -> String {
    let mut line = String::new();
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            line.push(',');
        }
        super::csv::quote(cell, &mut line);
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_repetitions_are_no_names_of_figures() {
        // `jain.min` is the smallest index of the windows of a run, and `jain:min` the smallest `jain`
        // of the repetitions.
        let column = |(name, unit): (&str, Unit)| Column {
            name: name.to_owned(),
            heading: None,
            unit,
            scale: shown(unit),
            digits: None,
            cells: Vec::new(),
        };
        let figures = [
            ("jain", Unit::Ratio),
            ("jain.min", Unit::Ratio),
            ("ping.mean", Unit::Time),
        ];
        assert_eq!(
            csv(&[], &figures.map(column), VARIANT),
            "variant,backend,runs,\
             jain,jain:min,jain:max,jain:mean,jain:deviation,jain:low95,jain:high95,jain:runs,\
             jain.min,jain.min:min,jain.min:max,jain.min:mean,jain.min:deviation,jain.min:low95,\
             jain.min:high95,jain.min:runs,\
             ping.mean_ns,ping.mean:min_ns,ping.mean:max_ns,ping.mean:mean_ns,ping.mean:deviation_ns,\
             ping.mean:low95_ns,ping.mean:high95_ns,ping.mean:runs\n"
        );
    }

    #[test]
    fn a_table_says_of_how_many_runs_its_rows_are() {
        let of = |runs: &[usize]| over_runs(runs, Spread::Range);
        let range = ", with the smallest and the largest value";
        assert_eq!(of(&[4, 4]), format!("Medians of 4 runs{range}"));
        assert_eq!(of(&[1, 4, 3]), format!("Medians of 1 to 4 runs{range}"));
        assert_eq!(of(&[1, 1]), "One run per row");
        assert_eq!(
            over_runs(&[3], Spread::Interval),
            "Means of 3 runs, with their 95 % confidence intervals"
        );
    }

    #[test]
    fn a_unit_belongs_to_its_kind_of_figure() {
        assert_eq!(in_unit("ping.p50", Unit::Time, "s"), Ok((1e-9, "s")));
        assert_eq!(in_unit("up.loss", Unit::Ratio, "%"), Ok((100.0, "%")));
        let error = in_unit("ping.p50", Unit::Time, "min").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`ping.p50` cannot be shown in `min`: its units are s, ms, us, ns"
        );
        let error = in_unit("up.drops", Unit::Count, "%").unwrap_err();
        assert!(
            error.to_string().ends_with("it is a bare number"),
            "{error}"
        );
    }
}
