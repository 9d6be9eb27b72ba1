//! The small picture of a run: its delay over time, or the backlog, in a few hundred bytes of SVG.
//!
//! All variants of a scenario share the axes, so that their pictures can be compared at a glance. The
//! vertical axis is logarithmic: a queue of seconds and one of milliseconds both show their shape.

use std::fmt::Write as _;

use super::{Trace, TraceOf};

/// The axes that the pictures of a scenario share.
pub(super) struct Axes {
    end_s: f64,
    low: f64,
    high: f64,
}

const WIDTH: f64 = 180.0;
const HEIGHT: f64 = 44.0;
/// Columns of the picture: in each the curve's smallest and largest value are drawn.
const COLUMNS: usize = 90;

impl Axes {
    /// Axes that hold all `traces` of a kind; none if there is nothing to draw.
    pub(super) fn around<'a>(traces: impl Iterator<Item = &'a Trace>) -> Option<Axes> {
        let (mut end_s, mut low, mut high) = (0.0_f64, f64::INFINITY, 0.0_f64);
        for (at, value) in traces.flat_map(|trace| &trace.points) {
            end_s = end_s.max(*at);
            low = low.min(floor(*value));
            high = high.max(floor(*value));
        }
        // Whole decades, at least one.
        let low = 10_f64.powf(low.log10().floor());
        let high = 10_f64.powf(high.log10().ceil()).max(low * 10.0);
        (end_s > 0.0 && low.is_finite()).then_some(Axes { end_s, low, high })
    }

    fn y(&self, value: f64) -> f64 {
        let part = (floor(value) / self.low).log10() / (self.high / self.low).log10();
        HEIGHT - part * HEIGHT
    }
}

/// Nothing has no logarithm: an empty queue is drawn as a tenth of a packet.
fn floor(value: f64) -> f64 {
    value.max(0.1)
}

/// The picture of `trace` as an SVG element; `label` says what it shows to those who cannot see it.
pub(super) fn svg(trace: &Trace, axes: &Axes, label: &str) -> String {
    let mut out = format!(
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">"
    );
    // The decades between both ends.
    let mut decade = axes.low;
    while decade <= axes.high * 1.001 {
        let y = axes.y(decade);
        let _ = write!(
            out,
            "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        decade *= 10.0;
    }
    let mut columns: Vec<Option<(f64, f64)>> = vec![None; COLUMNS];
    for (at, value) in &trace.points {
        let column = (at / axes.end_s * COLUMNS as f64) as usize;
        let column = &mut columns[column.min(COLUMNS - 1)];
        let (low, high) = column.unwrap_or((*value, *value));
        *column = Some((low.min(*value), high.max(*value)));
    }
    let mut path = String::new();
    for (number, column) in columns.iter().enumerate() {
        let Some((low, high)) = column else {
            continue;
        };
        let x = (number as f64 + 0.5) * WIDTH / COLUMNS as f64;
        let command = if path.is_empty() { 'M' } else { 'L' };
        let (low, high) = (axes.y(*low), axes.y(*high));
        let _ = write!(path, "{command}{x:.0} {high:.1}");
        if low - high >= 0.5 {
            let _ = write!(path, "V{low:.1}");
        }
    }
    let _ = write!(out, "<path d=\"{path}\"/></svg>");
    out
}

/// What the pictures of a scenario show, with the ends of the axis.
pub(super) fn caption(what: TraceOf, axes: &Axes) -> String {
    let decade = |value: f64| match what {
        TraceOf::Ping if value >= 1000.0 => format!("{} s", value / 1000.0),
        TraceOf::Ping => format!("{value} ms"),
        TraceOf::Backlog => format!("{value}"),
    };
    let name = match what {
        TraceOf::Ping => "round trip of the ping",
        TraceOf::Backlog => "packets in the queue",
    };
    format!(
        "{name} over {:.0} s, {} to {} (log)",
        axes.end_s,
        decade(axes.low),
        decade(axes.high)
    )
}
