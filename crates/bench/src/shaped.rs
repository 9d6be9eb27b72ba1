//! A shaped link under load, and a pipe under overload.

use std::collections::BTreeMap;

use sluice_core::link::PipeParams;
use sluice_core::{DropReason, Rate, Span, Stop, Time};
use sluice_load::ping::Ping;
use sluice_load::udp::UdpFlow;
use sluice_net::Clock;
use sluice_net::namespace::{Offloads, Privilege};
use sluice_net::port::{Loss, Spin};
use sluice_recording::metrics::jain;
use sluice_router::forward::LostFrame;

use super::contender::LoopReport;
use super::figures::{Accounts, Figures, Shaped};
use super::network::{H2, H3, Network};
use super::places::through;
use super::statistics::{median, quantile};
use super::traffic::{Hosts, transfers, udp, udp_flow};
use super::{BenchError, BenchPlan, Steps};

pub(super) fn measure(
    plan: &BenchPlan,
    interrupt: &Stop,
    steps: &mut Steps<'_>,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let up = PipeParams {
        rate: Rate::from_bps(SHAPED_BPS),
        ..PipeParams::default()
    };
    let length = plan.transfer * SHAPED_LENGTH;
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        steps.next("fq_codel at 1 Gbit/s");
        let (network, up) = (Network::with_veths(Offloads::ON)?, up.clone());
        let (measured, _) = through(network, up, "fq_codel", plan.spin, None, |network| {
            let warm_up = Span::from_ms(1000);
            let hosts = Hosts::OneThread;
            transfers(network, hosts, "cubic", FLOWS, warm_up, length, interrupt)
        })?;
        if interrupt.is_stopped() {
            break;
        }
        rounds.push(Shaped {
            // Full segments: 1448 bytes of payload in 1500.
            utilisation: measured.bps * 1500.0 / 1448.0 / SHAPED_BPS as f64,
            ping_p99_ms: quantile(&measured.ping_us, 0.99) / 1e3,
            jain: jain(&measured.each_bps).unwrap_or(0.0),
        });
    }
    let middle = |of: fn(&Shaped) -> f64| median(&rounds.iter().map(of).collect::<Vec<f64>>());
    if !rounds.is_empty() {
        figures.shaped = Some(Shaped {
            utilisation: middle(|round| round.utilisation),
            ping_p99_ms: middle(|round| round.ping_p99_ms),
            jain: middle(|round| round.jain),
        });
    }
    Ok(())
}

/// Sends packets of 64 bytes for `length` at ten times the rate of their pipe, with a ping in a
/// flow queue of its own.
///
/// # Errors
/// The network cannot be created.
pub fn overload(length: Span, interrupt: &Stop) -> Result<Accounts, BenchError> {
    match Privilege::probe() {
        Privilege::Capable => {}
        missing => return Err(BenchError::Privilege(missing)),
    }
    let up = PipeParams {
        rate: Rate::from_bps(OVERLOADED_BPS),
        ..PipeParams::default()
    };
    let network = Network::with_veths(Offloads::ON)?;
    let (measured, report) = through(network, up, "fq_codel", Spin::Adaptive, None, |network| {
        let clock = Clock::start();
        let start = Time::ZERO + Span::from_ms(100);
        let ping = Ping {
            stop: Some(start + length),
            linger: Span::from_ms(500),
            ..Ping::new(H2, H3, Span::from_ms(20), start)
        };
        let ping = ping.start(&network.h2, &network.h3, &clock, interrupt)?;
        let resident = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(1));
            resident_bytes()
        });
        let rate = Rate::from_bps(OVERLOADED_BPS * 10);
        let flow = UdpFlow {
            sample_every: u64::MAX,
            ..udp_flow(64, rate, length)
        };
        udp(network, &flow, interrupt)?;
        let ping = ping.join()?;
        let before = resident.join().unwrap_or_default();
        let pings = (ping.samples.len() as u64, ping.received);
        Ok((pings, resident_bytes() - before))
    })?;
    let (pings, grown_bytes) = measured;
    Ok(account(&report, pings, grown_bytes))
}

fn account(report: &LoopReport, pings: (u64, u64), grown_bytes: i64) -> Accounts {
    let (counts, port) = (&report.lanes[0], &report.ports[0]);
    let dropped = DropReason::ALL
        .iter()
        .map(|reason| (reason.name().to_owned(), counts.dropped(*reason)));
    let lost = LostFrame::ALL
        .iter()
        .map(|cause| (cause.name().to_owned(), counts.lost(*cause)));
    let mut inside: BTreeMap<String, u64> = dropped.chain(lost).collect();
    let explained = counts.sent + report.held + inside.values().sum::<u64>();
    inside.extend(
        Loss::ALL
            .iter()
            .map(|loss| (format!("port_{}", loss.name()), port.lost(*loss))),
    );
    inside.retain(|_, packets| *packets > 0);
    Accounts {
        received: port.received,
        sent: counts.sent,
        held: report.held,
        lost: inside,
        unexplained: port.received.cast_signed() - explained.cast_signed(),
        pings,
        grown_bytes,
    }
}

/// Returns the resident memory of this process; 0 without /proc.
fn resident_bytes() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<i64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as i64
}

const SHAPED_BPS: u64 = 1_000_000_000;
const FLOWS: usize = 16;
/// A shaped measurement lasts this many times as long as a throughput measurement: 6 seconds, or
/// 2.5.
const SHAPED_LENGTH: u64 = 5;
/// A tenth of some 100 000 packets per second.
const OVERLOADED_BPS: u64 = 5_000_000;
