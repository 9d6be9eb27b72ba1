//! The figures as text of at most 80 columns, and as JSON.

use std::fmt::Write as _;

use serde_json::json;

use super::contender::CONTENDERS;
use super::figures::{Cell, Figures, METRICS, Metric, WITH_OFFLOADS};

/// The figures as JSON, with what each metric is.
///
/// # Panics
/// Never: figures are numbers and names.
pub fn json(figures: &Figures) -> String {
    let all = json!({ "metrics": METRICS, "figures": figures });
    serde_json::to_string_pretty(&all).expect("figures have only words for keys") + "\n"
}

/// The figures as text: for the path section two tables, one with offloads and one without, of
/// medians with their ratios to kernel forwarding below.
pub fn text(figures: &Figures) -> String {
    let mut out = String::new();
    if !figures.path.is_empty() {
        let (with, without) = METRICS.split_at(WITH_OFFLOADS);
        out += "Offloads on: Gbit/s, microseconds; below each median its ratio to the kernel's\n";
        out += "x2: a worker per direction; one thread per host but in the column \"threads\"\n";
        out += &table(figures, with);
        out += "\nOffloads off (plain): Gbit/s, thousands of packets per second, per cent\n";
        out += &table(figures, without);
    }
    if let Some(core) = figures.places.forwarding {
        let hosts = &figures.places.hosts;
        let _ = writeln!(
            out,
            "\nTime: the loop has core {core}, hosts and load have {hosts:?}"
        );
    }
    if !figures.idle.is_empty() {
        out += "\nRound trip on an idle network, us:";
        for idle in &figures.idle {
            let _ = write!(out, "  {} {:.1}", idle.through, idle.p50_us);
        }
        out += "\n";
    }
    if !figures.delays.is_empty() {
        out += "\nA delay of 10 ms, other core loaded: error at the receiver, us\n";
        let _ = writeln!(
            out,
            "{:<12}{:>9}{:>9}{:>15}",
            "spin", "p50", "p99", "loop late p99"
        );
        for delay in &figures.delays {
            let _ = writeln!(
                out,
                "{:<12}{:>9.1}{:>9.1}{:>15.1}",
                delay.spin, delay.p50_us, delay.p99_us, delay.late_p99_us
            );
        }
    }
    if !figures.rates.is_empty() {
        out += "\nRates at the receiver\n";
        let _ = writeln!(
            out,
            "{:<16}{:>18}{:>12}",
            "set bit/s", "measured bit/s", "error"
        );
        for rate in &figures.rates {
            let _ = writeln!(
                out,
                "{:<16}{:>18.0}{:>10.4} %",
                rate.rate_bps,
                rate.measured_bps,
                rate.error_ppm / 1e4
            );
        }
    }
    if let Some(spacing) = &figures.spacing {
        let _ = writeln!(
            out,
            "spacing at 10 Mbit/s: off by {:.1} us (p50), {:.1} us (p99)",
            spacing.p50_us, spacing.p99_us
        );
    }
    if let Some(shaped) = &figures.shaped {
        let _ = writeln!(
            out,
            "\nfq_codel at 1 Gbit/s, 16 flows: {:.2} % used, ping p99 {:.2} ms, Jain {:.4}",
            shaped.utilisation * 100.0,
            shaped.ping_p99_ms,
            shaped.jain
        );
    }
    if let Some(overload) = &figures.overload {
        let _ = writeln!(
            out,
            "\nOverload of small packets: {} in, {} out, {} held",
            overload.received, overload.sent, overload.held
        );
        for (reason, packets) in &overload.lost {
            let _ = writeln!(out, "  {packets} lost: {reason}");
        }
        let (sent, answered) = overload.pings;
        let _ = writeln!(
            out,
            "  {} unexplained; {answered} of {sent} pings answered; memory grew by {} KiB",
            overload.unexplained,
            overload.grown_bytes / 1024
        );
    }
    if let Some(shared) = &figures.shared {
        let _ = writeln!(
            out,
            "\nOne pipe of {} bit/s, {} workers: error {:.4} %, packets sent by each {:?}",
            shared.rate_bps,
            shared.sent.len(),
            shared.error_ppm / 1e4,
            shared.sent
        );
    }
    for note in &figures.notes {
        let _ = writeln!(out, "\nleft out: {note}");
    }
    if let Some(stolen) = figures.stolen.filter(|stolen| *stolen > 0.0) {
        let _ = writeln!(
            out,
            "\nMeanwhile the hypervisor gave {:.1} % of the cores' time to others (steal)",
            stolen * 100.0
        );
    }
    out
}

/// One line of medians and one of ratios per contender, in their order.
fn table(figures: &Figures, metrics: &[Metric]) -> String {
    let mut out = String::new();
    for line in 0..2 {
        let mut text = format!("{:<NAME$}", "");
        for metric in metrics {
            let _ = write!(text, "{:>COLUMN$}", metric.heading[line]);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    for contender in CONTENDERS {
        let name = contender.name();
        let Some(row) = figures.path.get(&name) else {
            continue;
        };
        if !metrics.iter().any(|metric| row.contains_key(metric.name)) {
            continue;
        }
        let line = |head: &str, cell: &dyn Fn(&Metric, &Cell) -> String| {
            let mut text = format!("{head:<NAME$}");
            for metric in metrics {
                let shown = row
                    .get(metric.name)
                    .map_or("-".to_owned(), |c| cell(metric, c));
                let _ = write!(text, "{shown:>COLUMN$}");
            }
            text.trim_end().to_owned() + "\n"
        };
        out += &line(&name, &|metric, cell| shown(metric, cell.median));
        if row
            .values()
            .any(|cell| cell.ratio.is_some_and(|ratio| ratio != 1.0))
        {
            out += &line("", &|_, cell| {
                cell.ratio
                    .map_or(String::new(), |ratio| format!("{ratio:.2}"))
            });
        }
    }
    out
}

fn shown(metric: &Metric, value: f64) -> String {
    if metric.name.ends_with("_loss") {
        format!("{:.1}%", value * 100.0)
    } else if metric.name.ends_with("_s_per_gbit") {
        format!("{:.0}", value * 1e3)
    } else if metric.name.ends_with("_gbps") {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

const NAME: usize = 16;
const COLUMN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shaped::Accounts;

    #[test]
    fn the_table_has_80_columns_and_says_what_is_missing() {
        let mut figures = Figures::default();
        for (contender, value) in [("kernel", 30.0), ("packet fq_codel", 27.0)] {
            for metric in METRICS {
                if metric.name != "bbr_1_gbps" {
                    figures.add(contender, metric.name, value);
                }
            }
        }
        figures.add("raw socket", "udp_64_loss", 0.5);
        figures.conclude("kernel");
        figures.overload = Some(Accounts {
            received: 4,
            sent: 1,
            held: 1,
            lost: [("overflow".to_owned(), 2)].into(),
            unexplained: 0,
            pings: (2, 2),
            grown_bytes: 4096,
        });
        let text = text(&figures);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.starts_with("packet fq_codel"));
        let at = at.expect("the contender has a row");
        let words: Vec<&str> = lines[at].split_whitespace().collect();
        assert_eq!(
            words[..6],
            ["packet", "fq_codel", "27", "27.00", "27.00", "-"]
        );
        let ratios: Vec<&str> = lines[at + 1].split_whitespace().collect();
        assert_eq!(ratios[0], "0.90");
        assert!(text.contains("2 lost: overflow"));
    }
}
