//! How exact the emulation was.

use std::fmt;

use sluice_core::Span;

use crate::router::WayReport;

/// The verdict on one run.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The counts of the directions down and up.
    pub ways: [WayReport; 2],
    /// The permitted lateness of packets.
    pub max_late: Option<Span>,
}

impl Verdict {
    /// Judges the counts of the directions down and up.
    pub fn new(ways: [WayReport; 2], max_late: Option<Span>) -> Verdict {
        Verdict { ways, max_late }
    }

    /// Returns whether the result is valid: of each direction's packets, at most one in a thousand
    /// left later than `max_late`, and the machine lost none.
    pub fn holds(&self) -> bool {
        let Some(_) = self.max_late else {
            return true;
        };
        let is_good =
            |way: &WayReport| way.too_late.saturating_mul(ALLOWED) <= way.packets && way.lost == 0;
        self.ways.iter().all(is_good)
    }

    /// Returns the latest departure of both directions.
    fn latest(&self) -> Span {
        let latest = self.ways.iter().map(|way| way.lateness.most());
        latest.max().unwrap_or(Span::ZERO)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, way) in ["down", "up"].iter().zip(&self.ways) {
            write!(
                f,
                "{name}: {} packets, {} dropped",
                way.packets, way.dropped
            )?;
            if way.packets > 0 {
                let (most, latest) = (way.lateness.bound(999), way.lateness.most());
                write!(f, ", 99.9% at most {most} late, the latest {latest}")?;
            }
            if let Some(limit) = self.max_late {
                write!(f, ", {} later than {limit}", way.too_late)?;
            }
            if way.lost > 0 {
                write!(f, ", {} lost by the machine", way.lost)?;
            }
            f.write_str("; ")?;
        }
        // Packets that leave within one second were due within a period of one second plus the
        // largest lateness.
        let error = self.latest().as_secs_f64() * 100.0;
        write!(f, "rates over 1 s exact to {error:.3}%")
    }
}

/// One packet in this number may be too late.
const ALLOWED: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(packets: u64, too_late: u64, lost: u64) -> Verdict {
        let way = WayReport {
            packets,
            too_late,
            lost,
            ..WayReport::default()
        };
        Verdict::new([way, WayReport::default()], Some(Span::from_ms(1)))
    }

    #[test]
    fn one_packet_in_a_thousand_may_be_late() {
        assert!(verdict(1000, 1, 0).holds());
        assert!(!verdict(999, 1, 0).holds());
        assert!(verdict(0, 0, 0).holds());
    }

    #[test]
    fn no_packet_may_be_lost_by_the_machine() {
        assert!(!verdict(1000, 0, 1).holds());
    }
}
