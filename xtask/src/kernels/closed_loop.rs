//! End to end: compares the runs of a booted kernel with our simulations of the same scenarios.
//!
//! A figure agrees if it is within its bound of the kernel's, by the medians over the repetitions on
//! both sides, or if the ranges overlap: decisions by chance differ between seeds. Any other
//! difference needs a remark.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use sluice_recording::Recording;
use sluice_scenario::metric::Metric;

use super::cases::{Cases, read};

/// A figure that both have.
pub struct Figure {
    /// The kernel's column.
    column: &'static str,
    /// The name of ours.
    name: &'static str,
    /// The name on the page, with the unit.
    pub label: &'static str,
    /// The unit of the column in that of our figure.
    unit: f64,
    bound: Bound,
}

/// The largest difference of figures that agree.
#[derive(Clone, Copy)]
enum Bound {
    /// A part of the kernel's figure.
    Part(f64),
    /// The transmission time of a full packet. A queue is never longer or shorter by less.
    OnePacket,
}

const fn figure(
    column: &'static str,
    name: &'static str,
    label: &'static str,
    unit: f64,
    bound: Bound,
) -> Figure {
    Figure {
        column,
        name,
        label,
        unit,
        bound,
    }
}

pub const FIGURES: [Figure; 5] = [
    figure(
        "goodput_mbps",
        "total.goodput",
        "goodput, Mbit/s",
        1e6,
        Bound::Part(0.02),
    ),
    figure(
        "sojourn_med_ms",
        "up.sojourn.p50",
        "sojourn p50, ms",
        1e6,
        Bound::OnePacket,
    ),
    figure(
        "sojourn_p95_ms",
        "up.sojourn.p95",
        "sojourn p95, ms",
        1e6,
        Bound::OnePacket,
    ),
    figure("drops_all", "up.drops", "drops", 1.0, Bound::Part(0.1)),
    figure("marks", "up.marks", "marks", 1.0, Bound::Part(0.1)),
];

/// The seeds of our simulations are 1 to this.
const SEEDS: u64 = 20;
/// A full packet, as `htb` counts it.
const PACKET_BITS: f64 = 1514.0 * 8.0;

/// A run of the kernel and ours, with values in the order of [`FIGURES`].
#[derive(Debug)]
pub struct Beside {
    pub kernel: String,
    pub run: String,
    /// The kernel's values in all repetitions, and ours with all seeds.
    pub figures: Vec<(Vec<f64>, Vec<f64>)>,
    /// The transmission time of a full packet.
    packet_ms: f64,
    pub remark: String,
}

/// The median and the range of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Returns `None` for no values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median, min, max })
    }
}

impl Beside {
    /// Returns what is wrong with the run: figures that differ without a remark.
    pub fn complaint(&self) -> Option<String> {
        if !self.remark.is_empty() {
            return None;
        }
        let differing = FIGURES
            .iter()
            .zip(&self.figures)
            .filter_map(|(figure, both)| {
                let (kernel, ours) = (Spread::of(&both.0)?, Spread::of(&both.1)?);
                let bound = match figure.bound {
                    Bound::Part(part) => part * kernel.median,
                    Bound::OnePacket => self.packet_ms,
                };
                let is_near = (ours.median - kernel.median).abs() <= bound;
                let overlaps = ours.min <= kernel.max && kernel.min <= ours.max;
                (!is_near && !overlaps).then(|| {
                format!(
                    "{} (`{}`): {} is {} and not {} as in the kernel, and cases.toml has no remark",
                    self.kernel, self.run, figure.label, ours.median, kernel.median
                )
            })
            });
        let differing: Vec<String> = differing.collect();
        (!differing.is_empty()).then(|| differing.join("\n"))
    }
}

/// Simulates the scenarios and returns both sides.
///
/// # Errors
/// A run is missing on one side, or the command fails.
pub fn compare(cases: &Cases, sluice: &Path, scratch: &Path) -> Result<Vec<Beside>, String> {
    let runs = scratch.join("runs");
    let output = Command::new(sluice)
        .args(["run", "scenarios/kernels", "--repeat", &SEEDS.to_string()])
        .args(["--record", "figures", "-o"])
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
        let mut figures: Vec<(Vec<f64>, Vec<f64>)> = FIGURES
            .iter()
            .map(|figure| {
                let values = rows
                    .iter()
                    .filter_map(|row| row.get(figure.column)?.parse().ok());
                (values.collect(), Vec::new())
            })
            .collect();
        let mut packet_ms = 0.0;
        for seed in 1..=SEEDS {
            let dir = match seed {
                1 => runs.join(&one.run),
                _ => runs.join(format!("{}.seed-{seed}", one.run)),
            };
            let (ours, bps) = ours(&dir)?;
            for ((_, all), value) in figures.iter_mut().zip(ours) {
                all.extend(value);
            }
            packet_ms = PACKET_BITS / bps * 1e3;
        }
        all.push(Beside {
            kernel: one.kernel.clone(),
            run: one.run.clone(),
            figures,
            packet_ms,
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

/// Returns our figures, in the units of the kernel's table, and the rate of the link up.
fn ours(dir: &Path) -> Result<(Vec<Option<f64>>, f64), String> {
    let complain = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
    let recording = Recording::open(dir).map_err(|error| complain(&error))?;
    let summary = recording
        .stored_summary()
        .map_err(|error| complain(&error))?
        .ok_or_else(|| complain(&"it has no summary"))?;
    let scenario = &recording.run().scenario;
    let [(_, Some(rate)), ..] = scenario.link.up.rate.steps() else {
        return Err(complain(&"its link has no rate"));
    };
    let figures = FIGURES
        .iter()
        .map(|figure| {
            let metric = Metric::parse(figure.name, &scenario.flows)
                .map_err(|error| complain(&error.message))?;
            Ok(metric.value(&summary).map(|value| value / figure.unit))
        })
        .collect::<Result<_, String>>()?;
    Ok((figures, rate.as_bps() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run over 10 Mbit/s whose drops are `kernel` there and `ours` here.
    fn drops(kernel: &[f64], ours: &[f64]) -> Beside {
        let mut figures = vec![(Vec::new(), Vec::new()); FIGURES.len()];
        figures[3] = (kernel.to_vec(), ours.to_vec());
        Beside {
            kernel: "S1".into(),
            run: "s1".into(),
            figures,
            packet_ms: PACKET_BITS / 10e6 * 1e3,
            remark: String::new(),
        }
    }

    #[test]
    fn figures_within_their_bounds_or_ranges_agree_and_others_need_a_remark() {
        // A tenth of 100 more, and a little more than that.
        assert_eq!(drops(&[100.0], &[110.0]).complaint(), None);
        let differs = drops(&[100.0], &[111.0]).complaint().unwrap();
        assert!(
            differs.contains("S1 (`s1`): drops is 111 and not 100"),
            "{differs}"
        );
        // The medians are 100 and 130, but one run of each is alike.
        assert_eq!(
            drops(&[95.0, 100.0, 120.0], &[118.0, 130.0, 140.0]).complaint(),
            None
        );
        assert!(
            drops(&[95.0, 100.0, 117.0], &[118.0, 130.0, 140.0])
                .complaint()
                .is_some()
        );
        let mut explained = drops(&[100.0], &[111.0]);
        explained.remark = "a reason".into();
        assert_eq!(explained.complaint(), None);
        // 1514 bytes take 1.2112 ms.
        let mut waits = drops(&[], &[]);
        waits.figures[1] = (vec![10.0], vec![11.2]);
        assert_eq!(waits.complaint(), None);
        waits.figures[1].1[0] = 11.3;
        assert!(waits.complaint().is_some());
    }
}
