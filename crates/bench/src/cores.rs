//! One pipe shared by workers on two cores.

use std::sync::Arc;
use std::thread::JoinHandle;

use sluice_core::link::PipeParams;
use sluice_core::packet::SPLIT_BELOW;
use sluice_core::registry::Spec;
use sluice_core::{Rate, Rng, Span, Stop};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{PacketPort, Pool};
use sluice_router::forward::{
    Forwarder, LaneCounts, LaneOptions, Piped, Queueing, SharedLink, SharedPipe,
};

use super::contender::{POOL, SEED, join, run_until};
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
    let clock = Clock::start();
    let stop = Stop::new();
    let link = Arc::new(SharedLink::new(
        Rate::from_bps(SHARED_BPS),
        Span::ZERO,
        LEASE,
    ));
    let open = |name, receives, fanout| {
        let options = PacketOptions {
            receives,
            fanout,
            timestamps: receives.then_some(clock),
            ..PacketOptions::default()
        };
        PacketPort::open(&network.router, name, options)
    };
    let mut workers: Vec<JoinHandle<LaneCounts>> = Vec::new();
    for _ in 0..WORKERS {
        let ports = vec![open("r2", true, Some(GROUP))?, open("r3", false, None)?];
        let link = Arc::clone(&link);
        let queueing = move || {
            let queue = Spec::parse(QUEUE).expect("the queue of the bench is valid");
            let queue = queue.build().expect("the parameters are valid");
            SharedPipe::new(link, queue, 1, SPLIT_BELOW)
        };
        workers.push(work(plan, ports, clock, &stop, queueing)?);
    }
    let ports = vec![open("r3", true, None)?, open("r2", false, None)?];
    let back = work(plan, ports, clock, &stop, || {
        let queue = Spec::parse(QUEUE).expect("the queue of the bench is valid");
        Piped::new(&PipeParams::default(), Vec::new(), &queue, 1, SPLIT_BELOW)
    })?;
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
    stop.stop();
    join(back);
    let sent = workers.into_iter().map(|worker| join(worker).sent);
    let sent: Vec<u64> = sent.collect();
    // Full segments: 1448 bytes of payload in 1500.
    let bps = measured?.bps * 1500.0 / 1448.0;
    Ok(Shared {
        rate_bps: SHARED_BPS,
        error_ppm: (bps / SHARED_BPS as f64 - 1.0) * 1e6,
        lease_us: LEASE.as_ns() as f64 / 1e3,
        sent,
    })
}

/// Runs a worker that forwards from its first port to its second.
fn work<Q: Queueing>(
    plan: &BenchPlan,
    ports: Vec<PacketPort>,
    clock: Clock,
    stop: &Stop,
    queueing: impl FnOnce() -> Q + Send + 'static,
) -> Result<JoinHandle<LaneCounts>, BenchError> {
    let pool = Pool::new(POOL)?;
    let (spin, stop) = (plan.spin, stop.clone());
    Ok(std::thread::spawn(move || {
        let mut forwarder = Forwarder::new(ports, pool, clock, spin);
        let options = LaneOptions {
            from: &[0],
            seed: SEED,
            rng: Rng::from_seed(SEED),
        };
        forwarder.add_lane(queueing(), (), options);
        run_until(&mut forwarder, &clock, &stop);
        *forwarder.lanes()[0].counts()
    }))
}

const WORKERS: usize = 2;
/// Enough flows that the kernel's hash gives some to both workers.
const FLOWS: usize = 8;
const SHARED_BPS: u64 = 200_000_000;
const QUEUE: &str = "fq_codel";
/// Three packets: the longest time that a packet waits for the other worker.
const LEASE: Span = Span::from_us(180);
/// The kernel's number for the group of sockets that share the arriving packets.
const GROUP: u16 = 1;
