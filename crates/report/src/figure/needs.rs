//! What the charts of a kind of figure need of the runs: how much of them was recorded, and their
//! traffic.

use sluice_recording::Keep;
use sluice_scenario::{Direction, Flow, Scenario};

use super::FigureKind;

/// The data of a chart.
pub(super) struct Data {
    /// The least level of recording that has it.
    keep: Keep,
    /// Whether a scenario has the traffic for it in a direction; `None` for both.
    has: fn(&Scenario, Option<Direction>) -> bool,
    /// The traffic in words.
    traffic: &'static str,
}

impl FigureKind {
    /// Returns the levels of recording at which charts of this kind may have values of a run of
    /// `scenario`, the main chart's first; none if the scenario lacks the traffic for all of them.
    pub(crate) fn levels(
        self,
        scenario: &Scenario,
        way: Option<Direction>,
    ) -> impl Iterator<Item = Keep> {
        let data = self.data().iter();
        let data = data.filter(move |data| (data.has)(scenario, way));
        data.map(|data| data.keep)
    }

    /// Returns the traffic that the charts of this kind need, in words.
    pub(crate) fn traffic(self) -> String {
        let words: Vec<&str> = self.data().iter().map(|data| data.traffic).collect();
        words.join(" or ")
    }
}

pub(super) const TIME: &[Data] = &[SAMPLES];
pub(super) const DISTRIBUTION: &[Data] = &[PROBES, TRANSFERS, PACKETS, SIZED];
pub(super) const FLOWS: &[Data] = &[PAYLOAD];
pub(super) const STATE: &[Data] = &[PACKETS, SAMPLES];
pub(super) const FAIRNESS: &[Data] = &[RIVALS];
pub(super) const TRADEOFF: &[Data] = &[WINDOWS];
pub(super) const BOX: &[Data] = &[PROBES, PACKETS];
/// Charts of the figures of whole runs.
pub(super) const FIGURES: &[Data] = &[Data {
    keep: Keep::Figures,
    has: any,
    traffic: "any traffic",
}];

const PACKETS: Data = Data {
    keep: Keep::Packets,
    has: any,
    traffic: "packets",
};

/// The backlog of the queues is sampled whatever passes them.
const SAMPLES: Data = Data {
    keep: Keep::Flows,
    has: any,
    traffic: "any traffic",
};

const PROBES: Data = Data {
    keep: Keep::Flows,
    has: |scenario, _| scenario.flows.iter().any(|flow| has_figure(flow, "p50")),
    traffic: "round trips",
};

const TRANSFERS: Data = Data {
    keep: Keep::Flows,
    has: |scenario, _| {
        let completes = |flow: &Flow| has_figure(flow, "fct.p50") && !flow.kind.is_bulk();
        scenario.flows.iter().any(completes)
    },
    traffic: "transfers",
};

/// The completion time of a flow that is one transfer is a figure of the run.
const SIZED: Data = Data {
    keep: Keep::Figures,
    has: |scenario, _| scenario.flows.iter().any(|flow| flow.kind.is_sized()),
    traffic: "a transfer",
};

const PAYLOAD: Data = Data {
    keep: Keep::Flows,
    has: has_goodput,
    traffic: "a flow with goodput, such as one of type `tcp`",
};

const RIVALS: Data = Data {
    keep: Keep::Flows,
    has: has_rivals,
    traffic: "two bulk TCP flows (without `bytes`) of one direction that are active together for a \
              whole `window` of [measure]",
};

const WINDOWS: Data = Data {
    keep: Keep::Packets,
    has: has_windows,
    traffic: "a flow with goodput, such as one of type `tcp`, and after the warm-up at least three \
              windows (`window` of [measure])",
};

const fn any(_: &Scenario, _: Option<Direction>) -> bool {
    true
}

fn has_figure(flow: &Flow, name: &str) -> bool {
    flow.kind.metrics().contains(&name)
}

fn has_goodput(scenario: &Scenario, way: Option<Direction>) -> bool {
    let is_its = |flow: &&Flow| way.is_none_or(|way| way == flow.direction);
    let mut flows = scenario.flows.iter().filter(is_its);
    flows.any(|flow| has_figure(flow, "goodput"))
}

/// Whether two bulk flows of a direction are active throughout the same window. Windows begin at 0,
/// `step`, twice `step` and so on.
fn has_rivals(scenario: &Scenario, way: Option<Direction>) -> bool {
    let window = scenario.measure.window.as_ns();
    let step = scenario.measure.step.as_ns().max(1);
    let ways = [Direction::Up, Direction::Down].into_iter();
    let mut ways = ways.filter(|one| way.is_none_or(|way| way == *one));
    ways.any(|way| {
        let bulk = scenario.instances().filter(|instance| {
            let flow = instance.flow;
            flow.direction == way && flow.kind.is_bulk()
        });
        let mut lives: Vec<(u64, u64)> = bulk
            .map(|instance| (instance.start.as_ns(), instance.stop.as_ns()))
            .collect();
        lives.sort_unstable();
        // The latest end of those that have begun before.
        let mut latest = 0;
        lives.into_iter().any(|(start, stop)| {
            let from = start.div_ceil(step).saturating_mul(step);
            let until = stop.min(latest);
            latest = latest.max(stop);
            from.saturating_add(window) <= until
        })
    })
}

/// Whether at least three windows lie between the warm-up and the end: fewer points have no ellipse.
fn has_windows(scenario: &Scenario, way: Option<Direction>) -> bool {
    let window = scenario.measure.window.as_ns().max(1);
    let whole = scenario.duration.as_ns() / window;
    let first = scenario.measure.warmup.as_ns().div_ceil(window);
    whole.saturating_sub(first) >= 3 && has_goodput(scenario, way)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The levels of a run of `duration` with a window of 1 s, steps of 250 ms and a warm-up of 1 s.
    fn levels(
        kind: FigureKind,
        duration: &str,
        flows: &[&str],
        way: Option<Direction>,
    ) -> Vec<Keep> {
        let flows: String = flows
            .iter()
            .map(|keys| format!("[[flow]]\n{keys}\n"))
            .collect();
        let text = format!("duration = \"{duration}\"\n[link]\nrate = \"1Mbit/s\"\n{flows}");
        let variants = Scenario::parse("x.toml", &text, &[]).unwrap();
        kind.levels(&variants[0].scenario, way).collect()
    }

    #[test]
    fn fairness_needs_two_bulk_flows_of_a_direction_that_share_a_window() {
        let of = |flows: &[&str]| levels(FigureKind::Fairness, "10s", flows, None);
        let bulk = "type = \"tcp\"";
        assert!(of(&[bulk]).is_empty());
        assert_eq!(of(&[bulk, bulk]), [Keep::Flows]);
        assert_eq!(of(&["type = \"tcp\"\ncount = 2"]), [Keep::Flows]);
        assert!(of(&[bulk, "type = \"tcp\"\nbytes = \"1MB\""]).is_empty());
        assert!(of(&[bulk, "type = \"tcp\"\ndirection = \"down\""]).is_empty());
        let down = Some(Direction::Down);
        assert!(levels(FigureKind::Fairness, "10s", &[bulk, bulk], down).is_empty());
        // The first ends at 5 s. Windows begin at 4 s, 4.25 s and so on.
        let first = "type = \"tcp\"\nstop = \"5s\"";
        assert_eq!(
            of(&[first, "type = \"tcp\"\nstart = \"3.9s\""]),
            [Keep::Flows]
        );
        assert!(of(&[first, "type = \"tcp\"\nstart = \"4.1s\""]).is_empty());
    }

    #[test]
    fn goodput_against_delay_needs_three_windows_after_the_warm_up() {
        let of = |duration, flow| levels(FigureKind::Tradeoff, duration, &[flow], None);
        // From 1 to 4 s there are three, and from 1 to 3.9 s two.
        assert_eq!(of("4s", "type = \"tcp\""), [Keep::Packets]);
        assert!(of("3.9s", "type = \"tcp\"").is_empty());
        assert!(of("10s", "type = \"voip\"").is_empty());
    }

    #[test]
    fn a_distribution_is_that_of_pings_transfers_or_packets() {
        let of = |flow| levels(FigureKind::Distribution, "10s", &[flow], None);
        assert_eq!(of("type = \"tcp\""), [Keep::Packets]);
        assert_eq!(of("type = \"ping\""), [Keep::Flows, Keep::Packets]);
        let sized = [Keep::Flows, Keep::Packets, Keep::Figures];
        assert_eq!(of("type = \"tcp\"\nbytes = \"1MB\""), sized);
    }
}
