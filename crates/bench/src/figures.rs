//! The measured figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cores::Shared;
use super::idle::IdleFigures;
use super::shaped::{Accounts, Shaped};
use super::time::{DelayFigures, Places, RateFigures, SpacingFigures};

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// High values.
    More,
    /// Low values.
    Less,
}

/// A figure of the path section.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metric {
    /// Its name, with the unit.
    pub name: &'static str,
    /// The heading of its column, in two lines.
    #[serde(skip)]
    pub heading: [&'static str; 2],
    /// Which values are better.
    pub better: Better,
    /// Its description.
    pub doc: &'static str,
}

/// The figures of the path section.
pub const METRICS: &[Metric] = &[
    metric(
        "ping_us",
        ["idle", "us"],
        Better::Less,
        "median round trip on an idle network",
    ),
    metric(
        "cubic_1_gbps",
        ["cubic", "1 flow"],
        Better::More,
        "goodput of one CUBIC flow, offloads on",
    ),
    metric(
        "cubic_4_gbps",
        ["cubic", "4 flows"],
        Better::More,
        "goodput of four CUBIC flows, one thread per host, offloads on",
    ),
    metric(
        "bbr_1_gbps",
        ["bbr", "1 flow"],
        Better::More,
        "goodput of one BBR flow, offloads on",
    ),
    metric(
        "bbr_4_gbps",
        ["bbr", "4 flows"],
        Better::More,
        "goodput of four BBR flows, one thread per host, offloads on",
    ),
    metric(
        "cubic_4_threads_gbps",
        ["4 flows", "threads"],
        Better::More,
        "goodput of four CUBIC flows, a thread for each on both hosts, offloads on",
    ),
    metric(
        "loaded_ping_us",
        ["loaded", "us"],
        Better::Less,
        "median round trip beside four CUBIC flows, offloads on",
    ),
    metric(
        "cpu_s_per_gbit",
        ["cpu", "ms/Gbit"],
        Better::Less,
        "processor time of both hosts and the router for a gigabit of four CUBIC flows, in seconds",
    ),
    metric(
        "plain_cubic_1_gbps",
        ["plain", "1 flow"],
        Better::More,
        "goodput of one CUBIC flow, offloads off",
    ),
    metric(
        "plain_cubic_4_gbps",
        ["plain", "4 flows"],
        Better::More,
        "goodput of four CUBIC flows, offloads off",
    ),
    metric(
        "udp_64_kpps",
        ["64 B", "kpps"],
        Better::More,
        "packets of 64 bytes delivered under a flood, thousands per second",
    ),
    metric(
        "udp_64_loss",
        ["64 B", "lost"],
        Better::Less,
        "share of the flood's packets of 64 bytes that were lost on the path",
    ),
    metric(
        "udp_64_clean_kpps",
        ["64 B", "clean"],
        Better::More,
        "highest rate tried at which at most 1 of 1000 packets of 64 bytes was lost, thousands per second",
    ),
    metric(
        "udp_1400_kpps",
        ["1400 B", "kpps"],
        Better::More,
        "packets of 1400 bytes delivered under a flood, thousands per second",
    ),
    metric(
        "udp_1400_loss",
        ["1400 B", "lost"],
        Better::Less,
        "share of the flood's packets of 1400 bytes that were lost on the path",
    ),
    metric(
        "udp_1400_clean_kpps",
        ["1400 B", "clean"],
        Better::More,
        "highest rate tried at which at most 1 of 1000 packets of 1400 bytes was lost, thousands per second",
    ),
];

/// The number of metrics, from the first on, that are measured with offloads on.
pub(super) const WITH_OFFLOADS: usize = 8;

const fn metric(
    name: &'static str,
    heading: [&'static str; 2],
    better: Better,
    doc: &'static str,
) -> Metric {
    Metric {
        name,
        heading,
        better,
        doc,
    }
}

/// The values of one contender's metric, one per round.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// In the order of the rounds.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The median divided by kernel forwarding's, where both were measured.
    pub ratio: Option<f64>,
}

/// Everything that a bench measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The path section: contender, metric, values.
    pub path: BTreeMap<String, BTreeMap<&'static str, Cell>>,
    /// The limit on the exit latency of the cores' idle states during the whole bench, in
    /// microseconds, if the plan sets one.
    pub cpu_latency_us: Option<u64>,
    /// The plan's settings of the hosts in the path section.
    pub host_settings: BTreeMap<String, String>,
    /// Whether the plan gives the hosts of the path section a thread for each flow in all figures.
    pub thread_per_flow: bool,
    /// The use of the cores in the time section.
    pub places: Places,
    /// Round trips on an idle network.
    pub idle: Vec<IdleFigures>,
    /// Delay errors, one per way of meeting deadlines.
    pub delays: Vec<DelayFigures>,
    /// Rate errors, one per rate.
    pub rates: Vec<RateFigures>,
    /// Deviations of the spacing of packets.
    pub spacing: Option<SpacingFigures>,
    /// fq_codel at 1 Gbit/s.
    pub shaped: Option<Shaped>,
    /// Where the packets of an overload went.
    pub overload: Option<Accounts>,
    /// One pipe, two workers.
    pub shared: Option<Shared>,
    /// The share of the cores' time that the hypervisor gave to others meanwhile (steal), where the
    /// kernel reports it.
    pub stolen: Option<f64>,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
}

impl Figures {
    pub(super) fn add(&mut self, contender: &str, metric: &'static str, value: f64) {
        debug_assert!(METRICS.iter().any(|known| known.name == metric));
        let row = self.path.entry(contender.to_owned()).or_default();
        row.entry(metric).or_default().values.push(value);
    }

    /// Notes once that something was left out.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Computes medians and ratios.
    pub(super) fn conclude(&mut self, reference: &str) {
        for row in self.path.values_mut() {
            for cell in row.values_mut() {
                cell.median = median(&cell.values);
            }
        }
        let reference = self.path.get(reference).cloned().unwrap_or_default();
        for row in self.path.values_mut() {
            for (metric, cell) in row {
                let of = reference.get(metric).map_or(0.0, |cell| cell.median);
                cell.ratio = (of > 0.0).then(|| cell.median / of);
            }
        }
    }
}

/// Returns the middle value, or the mean of both in the middle; 0 without values.
pub(super) fn median(values: &[f64]) -> f64 {
    sluice_recording::figures::median(values).unwrap_or(0.0)
}

/// Returns the slope of the line through `points` (least squares); 0 for less than two points. Two
/// instants would give a rate too, but here an instant at which the machine stood still weighs as
/// one of many.
pub(super) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let (mut above, mut below) = (0.0, 0.0);
    for point in points {
        above += (point.0 - x) * (point.1 - y);
        below += (point.0 - x) * (point.0 - x);
    }
    if below > 0.0 { above / below } else { 0.0 }
}

/// Returns the value that `share` of the sorted `values` do not exceed; 0 without values.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_of_the_values_themselves() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_slope_is_that_of_the_line_and_hardly_of_its_ends() {
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
        let mut points: Vec<(f64, f64)> = (0..101)
            .map(|x| (f64::from(x), 3.0 * f64::from(x)))
            .collect();
        assert!((slope(&points) - 3.0).abs() < 1e-12);
        // The last point is 10 too low: the slope is less by 10 * 50 / (2 * (1 + 4 + ... + 2500)) =
        // 500 / 85850. The two ends alone would give 0.1 less.
        points[100].1 -= 10.0;
        assert!((slope(&points) - (3.0 - 500.0 / 85_850.0)).abs() < 1e-12);
    }

    #[test]
    fn ratios_are_to_the_reference_and_absent_without_it() {
        let mut figures = Figures::default();
        for value in [10.0, 30.0, 20.0] {
            figures.add("kernel", "cubic_1_gbps", value);
            figures.add("packet fifo", "cubic_1_gbps", value / 2.0);
        }
        figures.add("packet fifo", "bbr_1_gbps", 1.0);
        figures.conclude("kernel");
        let row = &figures.path["packet fifo"];
        assert_eq!(row["cubic_1_gbps"].median, 10.0);
        assert_eq!(row["cubic_1_gbps"].ratio, Some(0.5));
        assert_eq!(row["bbr_1_gbps"].ratio, None);
    }
}
