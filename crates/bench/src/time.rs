//! The accuracy of delays, rates and spacings, measured by the receiving host.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_core::link::PipeParams;
use sluice_core::{Rate, Rng, Span, Stop, Time};
use sluice_load::udp::{Spacing, UdpFlow, UdpSample};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::Spin;

use super::contender::SEED;
use super::figures::{DelayFigures, Figures, Places, RateFigures, SpacingFigures};
use super::idle::{self, Idles};
use super::network::Network;
use super::places::{SPINS, through};
use super::statistics::{median, slope};
use super::traffic::{Hosts, p50_p99, transfers, udp, udp_flow};
use super::{BenchError, BenchPlan, Steps};

/// The measurements of this section.
pub(super) fn steps(plan: &BenchPlan) -> usize {
    let each_round = idle::steps(plan) + 1 + SPINS.len() + UDP_RATES.len() + TCP_RATES.len();
    plan.rounds as usize * each_round
}

pub(super) fn measure(
    plan: &BenchPlan,
    interrupt: &Stop,
    steps: &mut Steps<'_>,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let places = Places::of(plan, figures)?;
    let mut idles = Idles::new(plan, figures);
    let mut rounds = Rounds::default();
    for number in 0..plan.rounds {
        idles.round(&places, interrupt, steps)?;
        if !interrupt.is_stopped() {
            rounds.measure(plan, &places, interrupt, steps)?;
        }
        if interrupt.is_stopped() {
            if number == 0 {
                return Ok(());
            }
            break;
        }
    }
    figures.places = places;
    figures.idle = idles.figures();
    rounds.conclude(figures);
    Ok(())
}

/// The measurements of all rounds, except idle round trips.
#[derive(Default)]
struct Rounds {
    delays: Vec<DelayFigures>,
    /// The rates that were set and measured, bits per second.
    rates: Vec<(u64, f64)>,
    spacings: Vec<SpacingFigures>,
}

impl Rounds {
    /// Adds one round, or the part of it before an interruption.
    fn measure(
        &mut self,
        plan: &BenchPlan,
        places: &Places,
        interrupt: &Stop,
        steps: &mut Steps<'_>,
    ) -> Result<(), BenchError> {
        // An interrupted measurement does not count.
        let goes_on = || !interrupt.is_stopped();
        steps.next(CLOCK);
        let clock = machine(places, interrupt)?;
        self.delays.extend(Some(clock).filter(|_| goes_on()));
        for (spin, name) in SPINS.into_iter().take_while(|_| goes_on()) {
            steps.next(&format!("delay, spin {name}"));
            let delay = delay(places, spin, name, interrupt)?;
            self.delays.extend(Some(delay).filter(|_| goes_on()));
        }
        for (bps, size, queue) in UDP_RATES.into_iter().take_while(|_| goes_on()) {
            steps.next(&format!("rate {}", Rate::from_bps(bps)));
            let (measured, spacing) = udp_rate(plan, bps, size, queue, interrupt)?;
            if goes_on() {
                self.rates.push((bps, measured));
                let spacing = Some(spacing).filter(|_| bps == SPACED_BPS);
                self.spacings.extend(spacing);
            }
        }
        for bps in TCP_RATES.into_iter().take_while(|_| goes_on()) {
            steps.next(&format!("rate {}", Rate::from_bps(bps)));
            let measured = tcp_rate(plan, bps, interrupt)?;
            let rate = Some((bps, measured));
            self.rates.extend(rate.filter(|_| goes_on()));
        }
        Ok(())
    }

    /// Computes medians; needs at least one round.
    fn conclude(&self, figures: &mut Figures) {
        for spin in [CLOCK].into_iter().chain(SPINS.map(|(_, name)| name)) {
            let of_this = self.delays.iter().filter(|round| round.spin == spin);
            let rounds: Vec<&DelayFigures> = of_this.collect();
            figures.delays.push(DelayFigures {
                spin,
                p50_us: middle(&rounds, |round| round.p50_us),
                p99_us: middle(&rounds, |round| round.p99_us),
                late_p99_us: middle(&rounds, |round| round.late_p99_us),
                packets: rounds.iter().map(|round| round.packets).sum(),
            });
        }
        let set = UDP_RATES.map(|(bps, ..)| bps).into_iter().chain(TCP_RATES);
        figures.rates.extend(set.map(|set| {
            let of_this = self.rates.iter().filter(|(rate, _)| *rate == set);
            let measured: Vec<f64> = of_this.map(|(_, measured)| *measured).collect();
            RateFigures::of(set, &measured)
        }));
        let spacings: Vec<&SpacingFigures> = self.spacings.iter().collect();
        figures.spacing = Some(SpacingFigures {
            p50_us: middle(&spacings, |round| round.p50_us),
            p99_us: middle(&spacings, |round| round.p99_us),
        });
    }
}

/// Returns the median over the rounds.
fn middle<T>(rounds: &[&T], of: impl Fn(&T) -> f64) -> f64 {
    median(&rounds.iter().map(|round| of(round)).collect::<Vec<f64>>())
}

fn delay(
    places: &Places,
    spin: Spin,
    name: &'static str,
    interrupt: &Stop,
) -> Result<DelayFigures, BenchError> {
    let up = PipeParams {
        delay: DELAY,
        ..PipeParams::default()
    };
    let busy = AtomicBool::new(true);
    let network = places.delayed_network()?;
    let (samples, report) = places.through(network, up, "fifo", spin, |network| {
        std::thread::scope(|scope| {
            // The cores of the hosts: the other core if there are two.
            scope.spawn(|| burn_while(&busy));
            let rate = Rate::from_bps(DELAYED_PPS * DELAYED_SIZE as u64 * 8);
            // Packets are sent at random instants: with a packet every millisecond, each would be
            // due when another arrives.
            let flow = UdpFlow {
                spacing: Spacing::Poisson,
                stamp_departures: true,
                ..udp_flow(DELAYED_SIZE, rate, DELAYED_FOR)
            };
            let measured = udp(network, &flow, interrupt);
            busy.store(false, Ordering::Relaxed);
            measured
        })
    })?;
    let errors = samples
        .samples
        .iter()
        .filter_map(|sample| Some(sample.received?.since(sample.sent)))
        .map(|took| (took.as_ns() as f64 - DELAY.as_ns() as f64).abs() / 1e3)
        .collect();
    let late_p99_us = report.lateness[0].bound(990).as_ns() as f64 / 1e3;
    Ok(DelayFigures {
        late_p99_us,
        ..DelayFigures::of(name, errors)
    })
}

/// Measures the machine's own limit: how late a thread that has the loop's core to itself and only
/// reads the clock sees random instants, with the other core loaded as in [`delay`].
fn machine(places: &Places, interrupt: &Stop) -> Result<DelayFigures, BenchError> {
    let busy = AtomicBool::new(true);
    let late = std::thread::scope(|scope| -> Result<_, BenchError> {
        let stay = places.own()?;
        let watching = scope.spawn(|| {
            let (clock, mut rng) = (Clock::start(), Rng::from_seed(SEED));
            let end = Time::ZERO + DELAYED_FOR;
            let (mut due, mut late) = (Time::ZERO, Vec::new());
            while due < end && !interrupt.is_stopped() {
                due += Span::from_ns(rng.below(2 * 1_000_000_000 / DELAYED_PPS));
                let mut now = clock.now();
                while now < due {
                    now = clock.now();
                }
                late.push(now.since(due).as_ns() as f64 / 1e3);
            }
            late
        });
        drop(stay);
        let stay = places.hosts()?;
        scope.spawn(|| burn_while(&busy));
        drop(stay);
        let late = watching
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        busy.store(false, Ordering::Relaxed);
        Ok(late)
    })?;
    Ok(DelayFigures::of(CLOCK, late))
}

impl DelayFigures {
    /// Computes a figure from errors in microseconds and the loop's lateness, if there is a loop.
    fn of(spin: &'static str, mut errors: Vec<f64>) -> DelayFigures {
        errors.sort_by(f64::total_cmp);
        let (p50_us, p99_us) = p50_p99(&errors);
        DelayFigures {
            spin,
            p50_us,
            p99_us,
            late_p99_us: p99_us,
            packets: errors.len(),
        }
    }
}

fn burn_while(busy: &AtomicBool) {
    while busy.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn udp_rate(
    plan: &BenchPlan,
    bps: u64,
    size: usize,
    queue: &'static str,
    interrupt: &Stop,
) -> Result<(f64, SpacingFigures), BenchError> {
    let up = PipeParams {
        rate: Rate::from_bps(bps),
        ..PipeParams::default()
    };
    // A fifth more than the rate, so that the link is never idle.
    let offered = Rate::from_bps(bps + bps / 5);
    let network = Network::with_veths(Offloads::ON)?;
    let (report, _) = through(network, up, queue, plan.spin, None, |network| {
        udp(network, &udp_flow(size, offered, plan.rate), interrupt)
    })?;
    let arrivals = spaced(&report.samples);
    let bits = (size * 8) as f64;
    let gap_us = bits / bps as f64 * 1e6;
    let arrived: Vec<(f64, f64)> = (0..)
        .map(|count| f64::from(count) * bits)
        .zip(&arrivals)
        .map(|(bits, ns)| (ns / 1e9, bits))
        .collect();
    let measured = slope(&arrived);
    let mut off: Vec<f64> = arrivals
        .windows(2)
        .map(|pair| ((pair[1] - pair[0]) / 1e3 - gap_us).abs())
        .collect();
    off.sort_by(f64::total_cmp);
    let (p50_us, p99_us) = p50_p99(&off);
    Ok((measured, SpacingFigures { p50_us, p99_us }))
}

/// Returns arrivals in nanoseconds, without the first tenth, in which the queue fills.
fn spaced(samples: &[UdpSample]) -> Vec<f64> {
    samples
        .iter()
        .skip(samples.len() / 10)
        .filter_map(|sample| Some(sample.received?.as_ns() as f64))
        .collect()
}

/// One UDP sender cannot fill the faster pipes; four transfers can. Every full segment is 1448
/// bytes of payload (timestamps) in 1500 of IP packet.
fn tcp_rate(plan: &BenchPlan, bps: u64, interrupt: &Stop) -> Result<f64, BenchError> {
    let up = PipeParams {
        rate: Rate::from_bps(bps),
        ..PipeParams::default()
    };
    let network = Network::with_veths(Offloads::ON)?;
    network.set_on_hosts("net.ipv4.tcp_wmem", SEND_BUFFERS)?;
    network.set_on_hosts("net.ipv4.tcp_rmem", RECEIVE_BUFFERS)?;
    let (measured, _) = through(network, up, TCP_QUEUE, plan.spin, None, |network| {
        let warm_up = Span::from_secs(1);
        transfers(
            network,
            Hosts::OneThread,
            // CUBIC's slow start would end as soon as the queue begins to grow (HyStart,
            // tcp_cubic.c of Linux).
            "reno",
            4,
            warm_up,
            plan.rate,
            interrupt,
        )
    })?;
    Ok(measured.line_bps * 1500.0 / 1448.0)
}

impl RateFigures {
    fn of(rate_bps: u64, rounds: &[f64]) -> RateFigures {
        let measured_bps = median(rounds);
        let error_ppm = |measured: f64| (measured / rate_bps as f64 - 1.0) * 1e6;
        let errors = rounds.iter().map(|measured| error_ppm(*measured));
        RateFigures {
            rate_bps,
            measured_bps,
            error_ppm: error_ppm(measured_bps),
            furthest_ppm: errors.fold(0.0, |a, b| if b.abs() > a.abs() { b } else { a }),
        }
    }
}

/// The lower bound for every busy-polling loop on this machine.
const CLOCK: &str = "clock";
const DELAY: Span = Span::from_ms(10);
const DELAYED_SIZE: usize = 128;
const DELAYED_PPS: u64 = 1000;
const DELAYED_FOR: Span = Span::from_secs(3);
/// Rates in bits per second, with packets so small that there are many even at the lowest, and a
/// queue that lasts for at least 60 ms: the link must never be idle, even if the machine stops the
/// sender for a moment.
const UDP_RATES: [(u64, usize, &str); 4] = [
    (64_000, 100, "fifo limit 50"),
    (1_000_000, 500, "fifo limit 50"),
    (SPACED_BPS, 1500, "fifo limit 50"),
    (100_000_000, 1500, "fifo limit 500"),
];
const SPACED_BPS: u64 = 10_000_000;
const TCP_RATES: [u64; 2] = [1_000_000_000, 5_000_000_000];
/// The send buffer, at most 8 MiB: four of them keep 54 ms at 5 Gbit/s in the queue.
const SEND_BUFFERS: &str = "4096 16384 8388608";
/// Four times as much: a receiver offers a part of its buffer.
const RECEIVE_BUFFERS: &str = "4096 131072 33554432";
/// More than the senders' buffers: nothing is lost, since data that awaits a retransmission would
/// not be counted, and the link is never idle.
const TCP_QUEUE: &str = "fifo limit 30000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_median_with_the_largest_error_of_a_round() {
        // Off by -3000, +100 and -200 millionths.
        let rate = RateFigures::of(1_000_000, &[997_000.0, 1_000_100.0, 999_800.0]);
        assert_eq!(rate.measured_bps, 999_800.0);
        let off = [rate.error_ppm, rate.furthest_ppm];
        assert_eq!(off.map(f64::round), [-200.0, -3000.0]);
    }
}
