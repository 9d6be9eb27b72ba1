//! The chart of the report that shows a figure.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Direction;

/// A chart or section of the report's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// Goodput of a direction over time.
    Goodput,
    /// Fairness of a direction over time.
    Fairness,
    /// Congestion windows of a direction.
    Window,
    /// Smoothed RTT of a direction.
    SmoothedRtt,
    /// Probes over time.
    Ping,
    /// Sojourn time of every packet.
    Packets,
    /// The distribution of flow completion times.
    Completion,
    /// The accuracy of the emulation.
    Accuracy,
    /// The summary table.
    Summary,
    /// The table of all figures: for figures that no chart draws.
    Figures,
}

impl Chart {
    /// Returns the chart of a figure that is measured in `direction`.
    pub const fn of(self, direction: Direction) -> ChartLink {
        ChartLink {
            chart: self,
            direction,
        }
    }
}

/// A chart of one direction; most have only one chart for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartLink {
    chart: Chart,
    direction: Direction,
}

impl ChartLink {
    /// Returns the name on the page: the value of `data-chart`, or the section's id.
    pub fn id(self) -> String {
        let way = self.direction;
        match self.chart {
            Chart::Goodput => format!("goodput-{way}"),
            Chart::Fairness => format!("fairness-{way}"),
            Chart::Window => format!("cwnd-{way}"),
            Chart::SmoothedRtt => format!("srtt-{way}"),
            Chart::Ping => "ping".into(),
            Chart::Packets => "packets".into(),
            Chart::Completion => "cdf-completion".into(),
            Chart::Accuracy => "accuracy".into(),
            Chart::Summary => "summary".into(),
            Chart::Figures => "figures".into(),
        }
    }
}

impl fmt::Display for ChartLink {
    /// Returns the heading on the page.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.direction;
        match self.chart {
            Chart::Goodput => write!(f, "Goodput {way}"),
            Chart::Fairness => write!(f, "Fairness {way}"),
            Chart::Window => write!(f, "Congestion window {way}"),
            Chart::SmoothedRtt => write!(f, "Smoothed RTT {way}"),
            Chart::Ping => f.write_str("Ping"),
            Chart::Packets => f.write_str("Sojourn time of every packet"),
            Chart::Completion => f.write_str("Flow completion time"),
            Chart::Accuracy => f.write_str("Accuracy of the emulation itself"),
            Chart::Summary => f.write_str("Summary"),
            Chart::Figures => f.write_str("All figures"),
        }
    }
}

impl Serialize for ChartLink {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.id())
    }
}
