//! One pipe shared by the workers of a router on two cores, as a user starts it.

use sluice_core::{Span, Stop};
use sluice_net::namespace::Offloads;
use sluice_net::port::PortSpec;
use sluice_recording::metrics::jain;
use sluice_router::process::{Router, Settings};

use super::contender::router_settings;
use super::figures::Shared;
use super::network::Network;
use super::traffic::{Hosts, transfers};
use super::{BenchError, BenchPlan, Steps};

pub(super) fn measure(
    plan: &BenchPlan,
    interrupt: &Stop,
    steps: &mut Steps<'_>,
) -> Result<Shared, BenchError> {
    steps.next("one pipe, two workers");
    let network = Network::with_veths(Offloads::ON)?;
    let [left, right] = ["r2", "r3"].map(PortSpec::auto);
    let settings = Settings::new(left, right);
    let settings = router_settings(&network, plan, settings, WORKERS, RULES);
    let router = Router::start(&settings)?;
    let warm_up = Span::from_secs(1);
    let measured = transfers(
        &network,
        Hosts::OneThread,
        "cubic",
        FLOWS,
        warm_up,
        plan.rate,
        interrupt,
    );
    let status = router.stop();
    let measured = measured?;
    // Full segments: 1448 bytes of payload in 1500.
    let bps = measured.bps * 1500.0 / 1448.0;
    Ok(Shared {
        rate_bps: SHARED_BPS,
        error_ppm: (bps / SHARED_BPS as f64 - 1.0) * 1e6,
        jain: jain(&measured.each_bps).unwrap_or(0.0),
        command: format!("sluice router r2 r3 --workers {WORKERS} --config rules.conf"),
        rules: RULES.to_owned(),
        sent: status.workers.iter().map(|worker| worker.sent).collect(),
        handed_over: status.handed_over,
        lost: status.lost.values().sum(),
    })
}

const WORKERS: usize = 2;
/// Enough flows that the kernel's hash gives about half of them to each worker.
const FLOWS: usize = 64;
const SHARED_BPS: u64 = 200_000_000;
/// Enough flow queues that each flow has one of its own.
const RULES: &str = "pipe 1 config bw 200Mbit/s\n\
                     sched 1 config pipe 1 type fq_codel flows 65535\n\
                     queue 1 config sched 1\n\
                     add queue 1 ip from 10.23.0.2 to any in\n\
                     add allow ip from any to any\n";
