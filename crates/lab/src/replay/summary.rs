//! The summary of a replay.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

/// The outcome of all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets of the trace; a super-packet counts its segments, here and below.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that left unchanged.
    pub sent: u64,
    /// Packets that left with a CE mark of this queue.
    pub marked: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Dropped packets by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Sojourn times of the packets that left; `None` without any.
    pub sojourn: Option<Sojourns>,
    /// The arrival of the first packet.
    pub first: Time,
    /// The instant after which the link stayed idle.
    pub end: Time,
    /// Warnings about the trace.
    pub warnings: Vec<String>,
    /// The algorithms from files that an error stopped, in words: the figures are not those of the queue.
    pub stopped: Vec<String>,
}

/// Sojourn times, each handle counted once. The mean and the extremes are exact; the percentiles
/// are exact to 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sojourns {
    /// The shortest.
    pub min: Span,
    /// The mean, rounded down.
    pub mean: Span,
    /// The median.
    pub p50: Span,
    /// The 95th percentile.
    pub p95: Span,
    /// The 99th percentile.
    pub p99: Span,
    /// The longest.
    pub max: Span,
}

impl Summary {
    /// Returns the number of dropped packets, for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Formats the summary as JSON, times in ns.
    pub fn to_json(&self) -> Json {
        let sojourn = self.sojourn.map(|s| {
            json!({
                "min": s.min.as_ns(),
                "mean": s.mean.as_ns(),
                "p50": s.p50.as_ns(),
                "p95": s.p95.as_ns(),
                "p99": s.p99.as_ns(),
                "max": s.max.as_ns(),
            })
        });
        json!({
            "packets": self.packets,
            "bytes": self.bytes,
            "sent": self.sent,
            "marked": self.marked,
            "sent_bytes": self.sent_bytes,
            "dropped": self.dropped,
            "sojourn_ns": sojourn,
            "first_ns": self.first.as_ns(),
            "end_ns": self.end.as_ns(),
            "warnings": self.warnings,
            "stopped": self.stopped,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |n: u64| 100.0 * n as f64 / self.packets.max(1) as f64;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, n: u64| {
            write!(f, "{name:<10}{n:>12}  {:>6.2} %", share(n))
        };
        let length = self.end.since(self.first).as_secs_f64();
        writeln!(
            f,
            "{} packets with {} bytes, {length:.6} s from the first arrival to the end",
            self.packets, self.bytes
        )?;
        line(f, "sent", self.sent)?;
        f.write_str("\n")?;
        line(f, "marked", self.marked)?;
        f.write_str("\n")?;
        line(f, "dropped", self.dropped_total())?;
        for (i, (reason, n)) in self.dropped.iter().enumerate() {
            let before = if i == 0 { "  " } else { ", " };
            write!(f, "{before}{reason} {n}")?;
        }
        let Some(s) = self.sojourn else {
            return f.write_str("\n");
        };
        let ms = |span: Span| format!("{:.3}", span.as_ms_f64());
        write!(
            f,
            "\nsojourn   {:>12} ms mean\n          {:>12} ms median, {} at 95 %, {} at 99 %, {} at most\n",
            ms(s.mean),
            ms(s.p50),
            ms(s.p95),
            ms(s.p99),
            ms(s.max),
        )
    }
}

/// What is said about a replay besides its figures.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// [`Summary::warnings`].
    pub(super) warnings: Vec<String>,
    /// [`Summary::stopped`].
    pub(super) stopped: Vec<String>,
}

/// Counts rows.
pub(super) struct Tally {
    summary: Summary,
    sojourns: Histogram<u64>,
    total_ns: u128,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            summary: Summary::default(),
            sojourns: Histogram::new_with_bounds(1, u64::MAX / 2, 3)
                .expect("the bounds are within the library's range"),
            total_ns: 0,
        }
    }

    pub(super) fn count(&mut self, row: &PacketRecord) {
        let all = &mut self.summary;
        if all.packets == 0 {
            all.first = row.arrival;
        }
        let segments = u64::from(row.segments);
        all.packets += segments;
        all.bytes += u64::from(row.len);
        match row.fate {
            Fate::Dropped(reason) => {
                *all.dropped.entry(reason.name()).or_default() += segments;
                return;
            }
            Fate::Marked => all.marked += segments,
            Fate::Sent | Fate::Queued => all.sent += segments,
        }
        all.sent_bytes += u64::from(row.len);
        let ns = row.sojourn().as_ns();
        self.total_ns += u128::from(ns);
        // Never longer than 2^63 ns: times of a trace end long before.
        self.sojourns.saturating_record(ns);
        let extremes = all.sojourn.get_or_insert(Sojourns {
            min: row.sojourn(),
            mean: Span::ZERO,
            p50: Span::ZERO,
            p95: Span::ZERO,
            p99: Span::ZERO,
            max: row.sojourn(),
        });
        extremes.min = extremes.min.min(row.sojourn());
        extremes.max = extremes.max.max(row.sojourn());
    }

    pub(super) fn finish(self, end: Time, said: Said) -> Summary {
        let mut summary = self.summary;
        if let Some(s) = &mut summary.sojourn {
            let at = |quantile: f64| {
                let ns = self.sojourns.value_at_quantile(quantile);
                Span::from_ns(ns).clamp(s.min, s.max)
            };
            (s.p50, s.p95, s.p99) = (at(0.5), at(0.95), at(0.99));
            let n = u128::from(self.sojourns.len());
            s.mean = Span::from_ns((self.total_ns / n.max(1)) as u64);
        }
        summary.end = end;
        summary.warnings = said.warnings;
        summary.stopped = said.stopped;
        summary
    }
}
