//! The round trip on an idle network, with the machine's own idle states and with cores that are
//! kept out of them.
//!
//! The round trip consists almost entirely of wake-ups, whose cost depends on the machine. So both
//! conditions are measured within the same rounds, and each way of meeting deadlines is compared
//! with kernel forwarding under the same condition.

use sluice_core::link::PipeParams;
use sluice_core::{Span, Stop};
use sluice_net::cores::{IdleLimit, IdleLimitError};
use sluice_net::namespace::Offloads;
use sluice_net::port::Spin;

use super::figures::{Figures, IdleFigures, Places, Rest};
use super::network::Network;
use super::places::SPINS;
use super::statistics::median;
use super::traffic::idle_ping_us;
use super::{BenchError, BenchPlan, Steps};

/// The measurements of a round.
pub(super) fn steps(plan: &BenchPlan) -> usize {
    rests(plan).0.len() * IDLES * (1 + SPINS.len())
}

/// Returns all measurements. If the cores cannot be kept out of idle states, leaves these
/// measurements out and notes why.
fn rests(plan: &BenchPlan) -> (Vec<Rest>, Option<IdleLimitError>) {
    if plan.cpu_latency.is_some() {
        return (vec![Rest::AsAsked], None);
    }
    match IdleLimit::hold(Span::ZERO) {
        Ok(_) => (vec![Rest::AsFound, Rest::Awake], None),
        Err(error) => (vec![Rest::AsFound], Some(error)),
    }
}

/// The measurements of all rounds.
pub(super) struct Idles {
    rests: Vec<Rest>,
    /// The limit in force without the bench's own, or with the plan's.
    limit: Option<Span>,
    trips: Vec<Trip>,
}

/// The idle states, the forwarder, and the microseconds.
type Trip = (Rest, &'static str, f64);

impl Idles {
    pub fn new(plan: &BenchPlan, figures: &mut Figures) -> Idles {
        let (rests, missing) = rests(plan);
        if let Some(error) = missing {
            figures.note(format!(
                "the idle round trip with cores kept out of idle states: {error}"
            ));
        }
        Idles {
            rests,
            // Another program may also set a limit. If it is not readable, the note above gives the
            // reason.
            limit: IdleLimit::in_force().ok().flatten().or(plan.cpu_latency),
            trips: Vec::new(),
        }
    }

    /// Measures one forwarder after another, several times: a halted core may wake up fast in one
    /// second and slowly in the next.
    pub fn round(
        &mut self,
        places: &Places,
        interrupt: &Stop,
        steps: &mut Steps<'_>,
    ) -> Result<(), BenchError> {
        for _ in 0..IDLES {
            for rest in &self.rests {
                // The same for the kernel and for Sluice.
                let kept = match rest {
                    Rest::Awake => Some(IdleLimit::hold(Span::ZERO)?),
                    Rest::AsFound | Rest::AsAsked => None,
                };
                let how = match kept {
                    Some(_) => "idle, cores awake",
                    None => "idle",
                };
                steps.next(&format!("{how}, {KERNEL}"));
                let network = Network::with_veths(Offloads::ON)?;
                network.route()?;
                let took = idle_ping_us(&network, interrupt)?;
                drop(network);
                if interrupt.is_stopped() {
                    return Ok(());
                }
                self.trips.push((*rest, KERNEL, took));
                for (spin, name) in SPINS {
                    steps.next(&format!("{how}, spin {name}"));
                    let took = through(places, spin, interrupt)?;
                    if interrupt.is_stopped() {
                        return Ok(());
                    }
                    self.trips.push((*rest, name, took));
                }
            }
        }
        Ok(())
    }

    /// Computes medians over the rounds.
    pub fn figures(&self) -> Vec<IdleFigures> {
        let mut all = Vec::new();
        for rest in &self.rests {
            let middle = |through: &str| {
                let of_this = |trip: &&Trip| trip.0 == *rest && trip.1 == through;
                let trips = self.trips.iter().filter(of_this);
                median(&trips.map(|trip| trip.2).collect::<Vec<f64>>())
            };
            let kernel = middle(KERNEL);
            let limit = match rest {
                Rest::Awake => Some(Span::ZERO),
                Rest::AsFound | Rest::AsAsked => self.limit,
            };
            let of = |through: &'static str| IdleFigures {
                cores: *rest,
                limit_us: limit.map(|limit| limit.as_ns() / 1_000),
                through,
                p50_us: middle(through),
                above_kernel_us: (through != KERNEL).then(|| middle(through) - kernel),
            };
            let all_ways = [KERNEL].into_iter().chain(SPINS.map(|(_, name)| name));
            all.extend(all_ways.map(of));
        }
        all
    }
}

fn through(places: &Places, spin: Spin, interrupt: &Stop) -> Result<f64, BenchError> {
    // A busy-polling loop needs its own core. The kernel chooses the cores of other loops, as it
    // does for its own forwarding.
    let everywhere = Places::default();
    let kept = match spin {
        Spin::Always => places,
        Spin::None | Spin::Adaptive => &everywhere,
    };
    let work = |network: &Network| idle_ping_us(network, interrupt);
    let network = Network::with_veths(Offloads::ON)?;
    let (took, _) = kept.through(network, PipeParams::default(), "fq_codel", spin, work)?;
    Ok(took)
}

const KERNEL: &str = "kernel";
/// Measurements of each idle round trip in a round.
const IDLES: usize = 3;

#[cfg(test)]
impl Idles {
    /// Returns figures as if each round trip had been measured three times.
    pub(super) fn of(rests: &[(Rest, [f64; 4])], limit: Option<Span>) -> Idles {
        let mut trips = Vec::new();
        for (rest, took) in rests {
            let ways = [KERNEL].into_iter().chain(SPINS.map(|(_, name)| name));
            for (through, us) in ways.zip(took) {
                trips.extend([us / 2.0, *us, us * 9.0].map(|us| (*rest, through, us)));
            }
        }
        Idles {
            rests: rests.iter().map(|(rest, _)| *rest).collect(),
            limit,
            trips,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_compared_with_the_kernel_on_the_same_cores() {
        let idles = Idles::of(
            &[
                (Rest::AsFound, [40.0, 160.0, 100.0, 50.0]),
                (Rest::Awake, [30.0, 60.0, 45.0, 28.0]),
            ],
            None,
        );
        let figures = idles.figures();
        let of = |rest| figures.iter().filter(move |figure| figure.cores == rest);
        let above = |rest| -> Vec<Option<f64>> { of(rest).map(|f| f.above_kernel_us).collect() };
        assert_eq!(
            above(Rest::AsFound),
            [None, Some(120.0), Some(60.0), Some(10.0)]
        );
        assert_eq!(
            above(Rest::Awake),
            [None, Some(30.0), Some(15.0), Some(-2.0)]
        );
        assert!(of(Rest::AsFound).all(|figure| figure.limit_us.is_none()));
        assert!(of(Rest::Awake).all(|figure| figure.limit_us == Some(0)));
        let ways: Vec<&str> = of(Rest::Awake).map(|figure| figure.through).collect();
        assert_eq!(ways, ["kernel", "none", "adaptive", "always"]);
    }

    #[test]
    fn a_limit_for_the_whole_bench_is_the_only_condition() {
        let mut plan = BenchPlan::quick();
        plan.cpu_latency = Some(Span::from_us(20));
        let (rests, missing) = rests(&plan);
        assert_eq!(rests, [Rest::AsAsked]);
        assert!(missing.is_none());
        let of_ways = 1 + SPINS.len();
        assert_eq!(steps(&plan), IDLES * of_ways);
    }
}
