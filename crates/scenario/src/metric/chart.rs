//! Where a figure is seen in a report.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Direction;

/// A chart or section of the report's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// Goodput of a direction over time.
    Goodput(Direction),
    /// Fairness of a direction over time.
    Fairness(Direction),
    /// Congestion windows of a direction.
    Window(Direction),
    /// Smoothed RTT of a direction.
    SmoothedRtt(Direction),
    /// Probes over time.
    Ping,
    /// Sojourn time of every packet.
    Packets,
    /// The distribution of flow completion times.
    Completion,
    /// The accuracy of the emulation.
    Accuracy,
    /// The table of figures.
    Summary,
}

impl Chart {
    /// What it is called on the page: the value of `data-chart`, or the section's id.
    pub fn id(self) -> String {
        match self {
            Chart::Goodput(way) => format!("goodput-{way}"),
            Chart::Fairness(way) => format!("fairness-{way}"),
            Chart::Window(way) => format!("cwnd-{way}"),
            Chart::SmoothedRtt(way) => format!("srtt-{way}"),
            Chart::Ping => "ping".into(),
            Chart::Packets => "packets".into(),
            Chart::Completion => "cdf-completion".into(),
            Chart::Accuracy => "accuracy".into(),
            Chart::Summary => "summary".into(),
        }
    }

    /// Where a figure of a flow is seen, by its name without the flow's.
    pub(super) fn of_flow(figure: &str, way: Direction) -> Chart {
        match figure.split('.').next().unwrap_or_default() {
            "goodput" => Chart::Goodput(way),
            "retransmits" => Chart::Window(way),
            "convergence" => Chart::Fairness(way),
            "srtt" => Chart::SmoothedRtt(way),
            "fct" => Chart::Completion,
            "sojourn" | "drops" | "marks" => Chart::Packets,
            _ => Chart::Ping,
        }
    }

    /// Where a figure of a direction is seen.
    pub(super) fn of_pipe(figure: &str, way: Direction) -> Chart {
        match figure {
            "utilisation" => Chart::Goodput(way),
            _ => Chart::Packets,
        }
    }

    /// Where a figure of the run is seen.
    pub(super) fn of_run(figure: &str) -> Chart {
        match figure.split('.').next().unwrap_or_default() {
            "accuracy" => Chart::Accuracy,
            _ => Chart::Summary,
        }
    }
}

impl fmt::Display for Chart {
    /// Its heading on the page.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = |way: &Direction| match way {
            Direction::Up => '↑',
            Direction::Down => '↓',
        };
        match self {
            Chart::Goodput(way) => write!(f, "Goodput {}", arrow(way)),
            Chart::Fairness(way) => write!(f, "Fairness {}", arrow(way)),
            Chart::Window(way) => write!(f, "Congestion window {}", arrow(way)),
            Chart::SmoothedRtt(way) => write!(f, "Smoothed RTT {}", arrow(way)),
            Chart::Ping => f.write_str("Ping"),
            Chart::Packets => f.write_str("Sojourn time of every packet"),
            Chart::Completion => f.write_str("Flow completion time"),
            Chart::Accuracy => f.write_str("Accuracy of the emulation itself"),
            Chart::Summary => f.write_str("Summary"),
        }
    }
}

impl Serialize for Chart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.id())
    }
}
