//! How exact the emulation was.

use std::fmt;

use sluice_core::Span;

use crate::router::DirectionReport;

/// The verdict on one run.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The counts of the directions down and up.
    pub directions: [DirectionReport; 2],
    /// The permitted lateness of packets.
    pub max_late: Option<Span>,
}

impl Verdict {
    /// Judges the counts of the directions down and up.
    pub fn new(directions: [DirectionReport; 2], max_late: Option<Span>) -> Verdict {
        Verdict {
            directions,
            max_late,
        }
    }

    /// Returns whether the result is valid: of each direction's packets, at most one in a thousand
    /// left later than `max_late`, and the machine lost none.
    pub fn holds(&self) -> bool {
        let Some(_) = self.max_late else {
            return true;
        };
        let is_good = |direction: &DirectionReport| {
            direction.too_late.saturating_mul(ALLOWED) <= direction.packets && direction.lost == 0
        };
        self.directions.iter().all(is_good)
    }

    /// Returns the latest departure of both directions.
    fn latest(&self) -> Span {
        let latest = self
            .directions
            .iter()
            .map(|direction| direction.lateness.most());
        latest.max().unwrap_or(Span::ZERO)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, direction) in ["down", "up"].iter().zip(&self.directions) {
            write!(
                f,
                "{name}: {} packets, {} dropped",
                direction.packets, direction.dropped
            )?;
            if direction.packets > 0 {
                let (most, latest) = (direction.lateness.bound(999), direction.lateness.most());
                write!(f, ", 99.9% at most {most} late, the latest {latest}")?;
            }
            if let Some(limit) = self.max_late {
                write!(f, ", {} later than {limit}", direction.too_late)?;
            }
            if direction.lost > 0 {
                write!(f, ", {} lost by the machine", direction.lost)?;
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
        let direction = DirectionReport {
            packets,
            too_late,
            lost,
            ..DirectionReport::default()
        };
        Verdict::new(
            [direction, DirectionReport::default()],
            Some(Span::from_ms(1)),
        )
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
