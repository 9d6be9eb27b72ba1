//! The measured figures.

use std::collections::BTreeMap;

use serde::Serialize;

use super::statistics::median;

/// The direction of better values.
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
    /// Name, with the unit.
    pub name: &'static str,
    /// The heading of its column, in two lines.
    #[serde(skip)]
    pub heading: [&'static str; 2],
    /// The direction of better values.
    pub better: Better,
    /// Description.
    pub doc: &'static str,
}

// A row is: name, the two lines of its heading, which values are better, description.
macro_rules! metrics {
    ($($name:literal, $heading:expr, $better:ident, $doc:literal;)+) => {
        /// The figures of the path section.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            heading: $heading,
            better: Better::$better,
            doc: $doc,
        },)+];
    };
}

metrics! {
    "ping_us", ["idle", "us"], Less, "median round trip on an idle network";
    "cubic_1_gbps", ["cubic", "1 flow"], More, "goodput of one CUBIC flow, offloads on";
    "cubic_4_gbps", ["cubic", "4 flows"], More, "goodput of four CUBIC flows, one thread per host, offloads on";
    "bbr_1_gbps", ["bbr", "1 flow"], More, "goodput of one BBR flow, offloads on";
    "bbr_4_gbps", ["bbr", "4 flows"], More, "goodput of four BBR flows, one thread per host, offloads on";
    "cubic_4_threads_gbps", ["4 flows", "threads"], More, "goodput of four CUBIC flows, a thread for each on both hosts, offloads on";
    "loaded_ping_us", ["loaded", "us"], Less, "median round trip in parallel with four CUBIC flows, offloads on";
    "cpu_s_per_gbit", ["cpu", "ms/Gbit"], Less, "processor time of both hosts and the router for a gigabit of four CUBIC flows, in seconds";
    "plain_cubic_1_gbps", ["plain", "1 flow"], More, "goodput of one CUBIC flow, offloads off";
    "plain_cubic_4_gbps", ["plain", "4 flows"], More, "goodput of four CUBIC flows, offloads off";
    "udp_64_kpps", ["64 B", "kpps"], More, "packets of 64 bytes delivered under a flood, thousands per second";
    "udp_64_loss", ["64 B", "lost"], Less, "share of the flood's packets of 64 bytes that were lost on the path";
    "udp_64_clean_kpps", ["64 B", "clean"], More, "highest rate tried at which at most 1 of 1000 packets of 64 bytes was lost, thousands per second";
    "udp_1400_kpps", ["1400 B", "kpps"], More, "packets of 1400 bytes delivered under a flood, thousands per second";
    "udp_1400_loss", ["1400 B", "lost"], Less, "share of the flood's packets of 1400 bytes that were lost on the path";
    "udp_1400_clean_kpps", ["1400 B", "clean"], More, "highest rate tried at which at most 1 of 1000 packets of 1400 bytes was lost, thousands per second";
}

/// The number of metrics, from the first on, that are measured with offloads on.
pub(super) const WITH_OFFLOADS: usize = 8;

/// The values of one contender's metric, one per round.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// In the order of the rounds.
    pub values: Vec<f64>,
    /// The median of the values.
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
    /// The fates of the packets of an overload.
    pub overload: Option<Accounts>,
    /// One pipe, two workers.
    pub shared: Option<Shared>,
    /// The share of the cores' time that the hypervisor gave to others meanwhile (steal), where the
    /// kernel reports it.
    pub stolen: Option<f64>,
    /// The measurements that were left out, and the reasons.
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

    /// Adds a note about a measurement that was left out, unless it exists.
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

/// The error of a delay of 10 ms; medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct DelayFigures {
    /// How deadlines were met: none, adaptive, always; or clock, for a thread that only reads the
    /// clock, without packets.
    pub spin: &'static str,
    /// The median of the error, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the error.
    pub p99_us: f64,
    /// The 99th percentile of the loop's own lateness, as an upper bound.
    pub late_p99_us: f64,
    /// Packets that were measured.
    pub packets: usize,
}

/// The error of a rate.
#[derive(Clone, Debug, Serialize)]
pub struct RateFigures {
    /// The rate that was set, bits per second.
    pub rate_bps: u64,
    /// The rate that arrived, in IP packets; the median over the rounds.
    pub measured_bps: f64,
    /// The difference in parts per million.
    pub error_ppm: f64,
    /// The difference in the round with the largest one.
    pub furthest_ppm: f64,
}

/// The deviation of packets at 10 Mbit/s from equal spacing; medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct SpacingFigures {
    /// The median of the deviation, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the deviation.
    pub p99_us: f64,
}

/// The use of the cores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Places {
    /// The loop's own core; without one, the kernel chooses.
    pub forwarding: Option<usize>,
    /// The cores of the hosts and of the load; empty for all cores.
    pub hosts: Vec<usize>,
    /// Whether, in the delay, packets that hosts receive are processed on the hosts' cores.
    pub receives_apart: bool,
}

/// The idle states of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// The cores enter idle states as the machine allows.
    AsFound,
    /// The cores keep running: they enter no idle state with an exit latency.
    Awake,
    /// The plan's limit applies, for the whole bench.
    AsAsked,
}

/// The round trip on an idle network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleFigures {
    /// The idle states that cores used.
    pub cores: Rest,
    /// The limit on the exit latency of idle states, in microseconds, if any program set one.
    pub limit_us: Option<u64>,
    /// The forwarder: the kernel, or Sluice with this way of meeting deadlines.
    pub through: &'static str,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The difference from the kernel's median with the same idle states.
    pub above_kernel_us: Option<f64>,
}

/// Sixteen CUBIC transfers and a ping through fq_codel at 1 Gbit/s; medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Shaped {
    /// The share of the rate that arrived, in IP packets.
    pub utilisation: f64,
    /// The 99th percentile of the pings, in milliseconds.
    pub ping_p99_ms: f64,
    /// Jain's index of the flows' goodputs: 1 if all are equal, 1/16 if one flow has everything.
    pub jain: f64,
}

/// The fates of the packets of an overload.
#[derive(Clone, Debug, Serialize)]
pub struct Accounts {
    /// Frames that the port received from the overloaded side.
    pub received: u64,
    /// Packets that were forwarded.
    pub sent: u64,
    /// Packets that were still queued at the end.
    pub held: u64,
    /// All other packets, by reason. Those that the port lost are not in `received`.
    pub lost: BTreeMap<String, u64>,
    /// Frames that no count accounts for; always 0 unless there is a bug.
    pub unexplained: i64,
    /// Pings sent during the overload, and answered ones.
    pub pings: (u64, u64),
    /// The growth of the process's memory after the first second, in bytes.
    pub grown_bytes: i64,
}

/// The workers of a router share one pipe; the kernel spreads the flows to them.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    /// The pipe's rate, bits per second.
    pub rate_bps: u64,
    /// The deviation of the rate at the receiver, in parts per million.
    pub error_ppm: f64,
    /// Jain's index of the flows.
    pub jain: f64,
    /// The command line that was measured.
    pub command: String,
    /// Its rules.
    pub rules: String,
    /// Packets that each worker sent.
    pub sent: Vec<u64>,
    /// Packets that one worker handed over to the other.
    pub handed_over: u64,
    /// Packets that the workers lost.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

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
