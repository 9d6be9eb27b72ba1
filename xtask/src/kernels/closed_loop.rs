//! End to end: compares the runs of a booted kernel with our simulations of the same scenarios.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use sluice_recording::Recording;
use sluice_scenario::metric::Metric;

use super::cases::{Cases, read};

/// The figures that both have: the kernel's column, our figure, and the unit of the column.
pub const FIGURES: [(&str, &str, &str, f64); 5] = [
    ("goodput_mbps", "total.goodput", "goodput, Mbit/s", 1e6),
    ("sojourn_med_ms", "up.sojourn.p50", "sojourn p50, ms", 1e6),
    ("sojourn_p95_ms", "up.sojourn.p95", "sojourn p95, ms", 1e6),
    ("drops_all", "up.drops", "drops", 1.0),
    ("marks", "up.marks", "marks", 1.0),
];

/// A run of the kernel and ours, with values in the order of [`FIGURES`].
#[derive(Debug)]
pub struct Beside {
    pub kernel: String,
    pub run: String,
    /// The kernel's values in all repetitions, and ours.
    pub figures: Vec<(Vec<f64>, Option<f64>)>,
    pub remark: String,
}

/// Simulates the scenarios and returns both sides.
///
/// # Errors
/// A run is missing on one side, or the command fails.
pub fn compare(cases: &Cases, sluice: &Path, scratch: &Path) -> Result<Vec<Beside>, String> {
    let runs = scratch.join("runs");
    let output = Command::new(sluice)
        .args(["run", "scenarios/kernels", "-o"])
        .arg(&runs)
        .output()
        .map_err(|error| format!("{}: {error}", sluice.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("scenarios/kernels: {}", said.trim()));
    }
    let path = cases.folder.join("closed-loop.csv");
    let kernel = kernel_runs(&read(&path)?);
    let mut all = Vec::new();
    for one in &cases.loops {
        let rows = kernel
            .get(&one.kernel)
            .ok_or_else(|| format!("{} has no run `{}`", path.display(), one.kernel))?;
        let ours = ours(&runs.join(&one.run))?;
        let figures = FIGURES.iter().zip(ours).map(|((column, ..), our)| {
            let values = rows.iter().filter_map(|row| row.get(*column)?.parse().ok());
            (values.collect(), our)
        });
        all.push(Beside {
            kernel: one.kernel.clone(),
            run: one.run.clone(),
            figures: figures.collect(),
            remark: one.remark.clone(),
        });
    }
    Ok(all)
}

/// The rows of the table by the name of the scenario, as cells by column.
fn kernel_runs(text: &str) -> BTreeMap<String, Vec<BTreeMap<String, String>>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let mut runs: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in lines {
        let cells: BTreeMap<String, String> = columns
            .iter()
            .zip(line.split(','))
            .map(|(column, cell)| ((*column).to_owned(), cell.to_owned()))
            .collect();
        let name = cells.get("scenario").cloned().unwrap_or_default();
        runs.entry(name).or_default().push(cells);
    }
    runs
}

/// Returns our figures, in the units of the kernel's table.
fn ours(dir: &Path) -> Result<Vec<Option<f64>>, String> {
    let complain = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
    let recording = Recording::open(dir).map_err(|error| complain(&error))?;
    let summary = recording
        .stored_summary()
        .map_err(|error| complain(&error))?
        .ok_or_else(|| complain(&"it has no summary"))?;
    FIGURES
        .iter()
        .map(|(_, name, _, unit)| {
            let metric = Metric::parse(name, &recording.run().scenario.flows)
                .map_err(|error| complain(&error.message))?;
            Ok(metric.value(&summary).map(|value| value / unit))
        })
        .collect()
}
