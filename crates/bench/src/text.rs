//! The figures as text of at most 80 columns, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::contender::{CONTENDERS, RULES};
use super::figures::{Cell, Figures, IdleFigures, METRICS, Metric, Rest, WITH_OFFLOADS};

/// Formats the figures as JSON, with the description of each metric.
///
/// # Panics
/// Never: figures are numbers and names.
pub fn json(figures: &Figures) -> String {
    let commands: BTreeMap<String, String> = CONTENDERS
        .iter()
        .filter(|contender| figures.path.contains_key(&contender.name()))
        .filter_map(|contender| Some((contender.name(), contender.command()?)))
        .collect();
    let all = json!({
        "metrics": METRICS,
        "figures": figures,
        "commands": commands,
        "rules": RULES,
    });
    serde_json::to_string_pretty(&all).expect("figures have only words for keys") + "\n"
}

/// Formats the figures as text. The path section gives two tables, one with offloads and one
/// without, of medians with their ratios to kernel forwarding below.
pub fn text(figures: &Figures) -> String {
    let mut out = String::new();
    if let Some(us) = figures.cpu_latency_us {
        out += "During the whole bench, no core of the machine was in an idle state that takes\n";
        let _ = writeln!(out, "longer than {us} us to leave (--cpu-latency)\n");
    }
    for (name, value) in &figures.host_settings {
        let _ = writeln!(out, "Hosts of the path section: {name} = {value}");
    }
    if !figures.path.is_empty() {
        let (with, without) = METRICS.split_at(WITH_OFFLOADS);
        let has_any = |metrics: &[Metric]| {
            let mut rows = figures.path.values();
            rows.any(|row| metrics.iter().any(|metric| row.contains_key(metric.name)))
        };
        if has_any(with) {
            out +=
                "Offloads on: Gbit/s, microseconds; the ratio to the kernel's below each median\n";
            out += match figures.thread_per_flow {
                true => "hosts have a thread per flow (--thread-per-flow)\n",
                false => "one thread per host except in the column \"threads\"\n",
            };
            out += &table(figures, with);
        }
        if has_any(without) {
            out += "\nOffloads off (plain): Gbit/s, thousands of packets per second, per cent\n";
            out += &table(figures, without);
        }
        out += &commands(figures);
    }
    if let Some(core) = figures.places.forwarding {
        let hosts = &figures.places.hosts;
        let _ = writeln!(
            out,
            "\nTime: the loop has core {core}, hosts and load have {hosts:?}"
        );
    }
    if !figures.idle.is_empty() {
        out += "\nRound trip on an idle network, and the difference from the kernel's, us\n";
        out += &idle_table(&figures.idle);
    }
    if !figures.delays.is_empty() {
        out += "\nA delay of 10 ms, the other core loaded: error at the receiver, us\n";
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
            "{:<16}{:>18}{:>12}{:>18}",
            "set bit/s", "measured bit/s", "error", "largest error"
        );
        for rate in &figures.rates {
            let _ = writeln!(
                out,
                "{:<16}{:>18.0}{:>10.4} %{:>16.4} %",
                rate.rate_bps,
                rate.measured_bps,
                rate.error_ppm / 1e4,
                rate.furthest_ppm / 1e4
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
            "\nOne pipe of {} bit/s, {} workers: error {:.4} %, Jain's index {:.4}, packets sent by each {:?}, \
             handed over {}, lost {}\n  {}",
            shared.rate_bps,
            shared.sent.len(),
            shared.error_ppm / 1e4,
            shared.jain,
            shared.sent,
            shared.handed_over,
            shared.lost,
            shared.command
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

/// Formats the command lines of the rows that are processes as a user starts them.
fn commands(figures: &Figures) -> String {
    let measured = CONTENDERS
        .iter()
        .filter(|contender| figures.path.contains_key(&contender.name()));
    let mut out = String::new();
    for (name, command) in measured.filter_map(|one| Some((one.name(), one.command()?))) {
        let _ = writeln!(out, "\n{name}, with the rules of --json:\n  {command}");
    }
    out
}

/// Formats one line per kind of idle states.
fn idle_table(idle: &[IdleFigures]) -> String {
    let mut out = String::new();
    let rows: Vec<_> = idle.chunk_by(|a, b| a.cores == b.cores).collect();
    let mut head = format!("{:<REST$}", "cores");
    for figure in rows.first().into_iter().copied().flatten() {
        let _ = write!(head, "{:>9}", figure.through);
        if figure.above_kernel_us.is_some() {
            let _ = write!(head, "{:8}", "");
        }
    }
    let _ = writeln!(out, "{}", head.trim_end());
    for row in rows {
        let label = match (row[0].cores, row[0].limit_us) {
            (Rest::AsFound, None) => "as they idle".to_owned(),
            (Rest::AsFound, Some(us)) => format!("as found ({us} us)"),
            (Rest::Awake, _) => "never idle (0 us)".to_owned(),
            (Rest::AsAsked, us) => format!("at most {} us", us.unwrap_or_default()),
        };
        let _ = write!(out, "{label:<REST$}");
        for figure in row {
            let _ = write!(out, "{:>9.1}", figure.p50_us);
            if let Some(above) = figure.above_kernel_us {
                let _ = write!(out, "{above:>+8.1}");
            }
        }
        out += "\n";
    }
    out
}

/// Formats one line of medians and one of ratios per contender, in their order.
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
    for contender in CONTENDERS.iter() {
        let name = contender.name();
        let Some(row) = figures.path.get(&name) else {
            continue;
        };
        if !metrics.iter().any(|metric| row.contains_key(metric.name)) {
            continue;
        }
        let line = |head: &str, cell: &dyn Fn(&Metric, &Cell) -> String| {
            let mut text = format!("{head:<NAME$}");
            let ends = (1..).map(|number| NAME + number * COLUMN);
            for (metric, end) in metrics.iter().zip(ends) {
                let shown = row
                    .get(metric.name)
                    .map_or("-".to_owned(), |c| cell(metric, c));
                // A long name takes room from the first column.
                let width = end.saturating_sub(text.len());
                let _ = write!(text, "{shown:>width$}");
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
const REST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Accounts;
    use crate::idle::Idles;
    use sluice_core::Span;

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

    #[test]
    fn a_process_that_is_measured_has_its_command_line() {
        let mut figures = Figures::default();
        let measured = [
            "kernel",
            "packet fq_codel",
            "packet 2 workers",
            "nfqueue 2 workers",
        ];
        for contender in measured {
            figures.add(contender, "cubic_4_gbps", 18.0);
        }
        figures.conclude("kernel");
        let line = "sluice router packet:r2 packet:r3 --workers 2 --config rules.conf";
        let printed = text(&figures);
        assert!(
            printed.contains(&format!(
                "packet 2 workers, with the rules of --json:\n  {line}\n"
            )),
            "{printed}"
        );
        assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
        // The figures of all rows are below each other.
        let rows = printed.lines().filter(|line| line.contains("18.00"));
        let ends: Vec<_> = rows.map(|line| line.find("18.00")).collect();
        assert_eq!(ends.len(), measured.len());
        assert!(ends.iter().all(|end| *end == ends[0]), "{printed}");
        let all: serde_json::Value = serde_json::from_str(&json(&figures)).unwrap();
        assert_eq!(all["commands"]["packet 2 workers"], line);
        assert!(
            all["rules"]
                .as_str()
                .is_some_and(|rules| rules.contains("fq_codel"))
        );
    }

    #[test]
    fn every_port_that_workers_can_share_has_a_row_with_its_command() {
        let command = |name: &str| {
            let contender = CONTENDERS.iter().find(|contender| contender.name() == name);
            contender.and_then(|contender| contender.command())
        };
        for (name, between) in [
            ("packet 2 workers", "packet:r2 packet:r3"),
            ("xdp 2 workers", "xdp:r2 xdp:r3"),
            ("nfqueue 2 workers", "--forward --headers-only"),
        ] {
            let line = format!("sluice router {between} --workers 2 --config rules.conf");
            assert_eq!(command(name), Some(line));
        }
    }

    #[test]
    fn settings_of_hosts_come_first_and_a_table_without_figures_is_left_out() {
        let lowat = ("net.ipv4.tcp_notsent_lowat".to_owned(), "131072".to_owned());
        let mut figures = Figures {
            host_settings: [lowat].into(),
            ..Figures::default()
        };
        figures.add("kernel", "bbr_4_gbps", 18.0);
        figures.conclude("kernel");
        let printed = text(&figures);
        let first = "Hosts of the path section: net.ipv4.tcp_notsent_lowat = 131072\n";
        assert!(printed.starts_with(first), "{printed}");
        assert!(printed.contains("Offloads on"), "{printed}");
        assert!(!printed.contains("Offloads off"), "{printed}");
        let all: serde_json::Value = serde_json::from_str(&json(&figures)).unwrap();
        let told = &all["figures"]["host_settings"]["net.ipv4.tcp_notsent_lowat"];
        assert_eq!(told, "131072");
        assert_eq!(all["figures"]["thread_per_flow"], false);
        assert!(printed.contains("one thread per host"), "{printed}");

        figures.thread_per_flow = true;
        let printed = text(&figures);
        assert!(
            printed.contains("hosts have a thread per flow"),
            "{printed}"
        );
        assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
    }

    #[test]
    fn idle_round_trips_have_a_row_for_each_way_in_which_cores_rest() {
        let both = [
            (Rest::AsFound, [34.4, 167.0, 104.0, 36.5]),
            (Rest::Awake, [32.0, 63.0, 49.0, 31.5]),
        ];
        let mut figures = Figures {
            idle: Idles::of(&both, None).figures(),
            ..Figures::default()
        };
        let expected = "
Round trip on an idle network, and the difference from the kernel's, us
cores                  kernel     none         adaptive           always
as they idle             34.4    167.0  +132.6    104.0   +69.6     36.5    +2.1
never idle (0 us)        32.0     63.0   +31.0     49.0   +17.0     31.5    -0.5
";
        let printed = text(&figures);
        assert_eq!(printed, expected);
        assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
        let all: serde_json::Value = serde_json::from_str(&json(&figures)).unwrap();
        let of = |row: usize, key: &str| all["figures"]["idle"][row][key].clone();
        let conditions: Vec<_> = (0..8).map(|row| of(row, "cores")).collect();
        assert_eq!(
            conditions,
            [["as_found"; 4], ["awake"; 4]].concat(),
            "four ways each"
        );
        assert_eq!(of(0, "limit_us"), serde_json::Value::Null);
        assert_eq!(of(4, "limit_us"), 0);
        assert_eq!(of(7, "through"), "always");
        assert_eq!(of(7, "above_kernel_us"), -0.5);

        // The limit of another program is not the machine's own state.
        figures.idle = Idles::of(&both, Some(Span::from_us(1))).figures();
        let printed = text(&figures);
        assert!(printed.contains("\nas found (1 us)   "), "{printed}");
    }

    #[test]
    fn a_limit_for_the_whole_bench_is_printed_first() {
        let one = [(Rest::AsAsked, [30.0, 60.0, 45.0, 31.0])];
        let figures = Figures {
            cpu_latency_us: Some(20),
            idle: Idles::of(&one, Some(Span::from_us(20))).figures(),
            ..Figures::default()
        };
        let expected = "\
During the whole bench, no core of the machine was in an idle state that takes
longer than 20 us to leave (--cpu-latency)


Round trip on an idle network, and the difference from the kernel's, us
cores                  kernel     none         adaptive           always
at most 20 us            30.0     60.0   +30.0     45.0   +15.0     31.0    +1.0
";
        assert_eq!(text(&figures), expected);
    }
}
