//! Finds flows that nothing slows down.
//!
//! A router's rules may let a flow pass beside all pipes. Its packets then take no time but that of the
//! hosts, and a bulk transfer sends hundreds of gigabits per second: a run of seconds would take hours.

use sluice_core::{Span, Time};

use crate::ids::FlowId;

/// The packets of each flow in the present stretch of a simulation.
pub(crate) struct Haste {
    since: Time,
    sent: Vec<u64>,
    /// The number of events at which to look again.
    pub next_look: u64,
    found: Option<FlowId>,
}

impl Haste {
    /// Watches a network, if it has routers: `check` refuses others in which packets take no time.
    pub fn new(has_routers: bool) -> Haste {
        Haste {
            since: Time::ZERO,
            sent: Vec::new(),
            next_look: if has_routers { BETWEEN_LOOKS } else { u64::MAX },
            found: None,
        }
    }

    /// Returns the flow that sends too many packets.
    pub const fn found(&self) -> Option<FlowId> {
        self.found
    }

    /// Looks at `flows`: the packets that each has sent so far, and whether a pipe has taken any of them.
    pub fn look(&mut self, now: Time, flows: &[(u64, bool)]) {
        self.next_look += BETWEEN_LOOKS;
        let elapsed = now.since(self.since);
        let times = u128::from(elapsed.max(STRETCH).as_ns());
        self.sent.resize(flows.len(), 0);
        self.found = flows
            .iter()
            .zip(&self.sent)
            .position(|((sent, is_shaped), before)| {
                let most = if *is_shaped { MOST_SHAPED } else { MOST_BESIDE };
                u128::from(sent - before) * u128::from(STRETCH.as_ns()) > u128::from(most) * times
            });
        if elapsed >= STRETCH {
            self.since = now;
            self.sent = flows.iter().map(|(sent, _)| *sent).collect();
        }
    }
}

const BETWEEN_LOOKS: u64 = 1 << 17;
const STRETCH: Span = Span::from_ms(1);
/// The most packets in a stretch of a flow that passes beside all pipes: 240 Gbit/s with 1500 bytes.
const MOST_BESIDE: u64 = 20_000;
/// Those of a flow that passes pipes, which may have no rate: 2.4 Tbit/s.
const MOST_SHAPED: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a flow is found that sends `packets` in each microsecond.
    fn finds(packets: u64, is_shaped: bool) -> bool {
        let mut haste = Haste::new(true);
        for us in (0..10_000).step_by(100) {
            haste.look(
                Time::ZERO + Span::from_us(us),
                &[(3, true), (us * packets, is_shaped)],
            );
            if let Some(found) = haste.found() {
                assert_eq!(found, 1);
                return true;
            }
        }
        false
    }

    #[test]
    fn a_flow_is_found_by_its_packets_in_a_millisecond() {
        // 20 and 200 packets per microsecond are the limits.
        assert_eq!([finds(20, false), finds(21, false)], [false, true]);
        assert_eq!([finds(200, true), finds(201, true)], [false, true]);
    }

    #[test]
    fn a_flow_is_found_if_time_stands_still() {
        let mut haste = Haste::new(true);
        haste.look(Time::ZERO, &[(20_000, false)]);
        assert_eq!(haste.found(), None);
        haste.look(Time::ZERO, &[(20_001, false)]);
        assert_eq!(haste.found(), Some(0));
    }
}
