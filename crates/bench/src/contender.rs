//! The forwarding methods that are compared.

use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::thread::JoinHandle;

use sluice_core::link::PipeParams;
use sluice_core::packet::SPLIT_BELOW;
use sluice_core::registry::Spec;
use sluice_core::{Rng, Span, Stop};
use sluice_net::Clock;
use sluice_net::cores::{CoreError, Stay};
use sluice_net::namespace::Offloads;
use sluice_net::port::KINDS;
use sluice_net::port::choose::AttachOptions;
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::registry::{Kind, Role};
use sluice_net::port::tun::TunError;
use sluice_net::port::{
    CacheWarmer, Counters, Interest, NfqueuePort, PacketPort, Pool, PoolSize, Port, Spin, TunPort,
    Waiter, Watch,
};
use sluice_router::forward::{
    Forwarder, LaneCounts, LaneOptions, Lateness, Piped, PortNumber, Queueing,
};
use sluice_wire::frame::Link;

use super::network::Network;
use super::{BenchError, BenchPlan};

/// A forwarding method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The kernel's own IPv4 forwarding: the reference for all others.
    Kernel,
    /// The kernel's bridge.
    Bridge,
    /// One raw socket per interface, a thread per direction, one packet at a time, no offloads: the
    /// minimum of a user-space forwarder.
    RawSocket,
    /// Sluice.
    Sluice {
        /// The kind of its ports.
        kind: &'static Kind,
        /// The queue of its pipes, whose rate is unlimited.
        queue: &'static str,
        /// The number of workers: one for both directions, or one for each.
        workers: usize,
    },
}

/// Returns all contenders in the order of the tables: kernel forwarding first, and every kind of
/// port of the registry that can serve hosts.
pub static CONTENDERS: LazyLock<Vec<Contender>> = LazyLock::new(|| {
    let sluice = |kind| {
        [("fifo", 1), ("fq_codel", 1), ("fq_codel", 2)].map(|(queue, workers)| Contender::Sluice {
            kind,
            queue,
            workers,
        })
    };
    let is_measured = |kind: &&'static Kind| match kind.role {
        Role::Interface(_) | Role::Device(Link::Ip) | Role::Queue => true,
        // TAP differs from TUN by a header only; files cannot serve hosts.
        Role::Device(Link::Ethernet) | Role::Files => false,
    };
    let kinds = KINDS.iter().copied().filter(is_measured);
    [Contender::Kernel, Contender::Bridge, Contender::RawSocket]
        .into_iter()
        .chain(kinds.flat_map(sluice))
        .collect()
});

impl Contender {
    /// Returns the name in tables: the kind of port and the queue.
    pub fn name(self) -> String {
        match self {
            Contender::Kernel => "kernel".to_owned(),
            Contender::Bridge => "bridge".to_owned(),
            Contender::RawSocket => "raw socket".to_owned(),
            Contender::Sluice {
                kind,
                queue,
                workers: 1,
            } => format!("{} {queue}", kind.name),
            Contender::Sluice { kind, workers, .. } => format!("{} x{workers}", kind.name),
        }
    }

    /// Returns whether the method can carry super-packets.
    pub fn has_offloads(self) -> bool {
        match self {
            Contender::Kernel | Contender::Bridge => true,
            Contender::RawSocket => false,
            Contender::Sluice { kind, .. } => kind.super_packets.is_some(),
        }
    }

    /// Creates a network in which this method forwards.
    pub(super) fn start(self, plan: &BenchPlan, offloads: bool) -> Result<Running, BenchError> {
        let wanted = if offloads {
            Offloads::ON
        } else {
            Offloads::OFF
        };
        let (network, forwarding) = match self {
            Contender::Kernel => {
                let network = Network::with_veths(wanted)?;
                network.route()?;
                (network, Forwarding::Kernel)
            }
            Contender::Bridge => {
                let network = Network::with_veths(wanted)?;
                network.bridge()?;
                (network, Forwarding::Kernel)
            }
            Contender::RawSocket => {
                let network = Network::with_veths(wanted)?;
                let forwarding = relay_both_ways(&network)?;
                (network, forwarding)
            }
            Contender::Sluice {
                kind,
                queue,
                workers: 1,
            } => {
                let clock = Clock::start();
                let mut pool = Pool::new(POOL)?;
                let (network, ports) = connect(kind, wanted, offloads, &mut pool)?;
                let pipes = Pipes {
                    up: PipeParams::default(),
                    queue,
                    exits: exits(kind),
                    spin: plan.spin,
                    real_time: plan.real_time,
                    core: plan.core(0),
                };
                let forwarding = Forwarding::Sluice(Loop::start(pipes, ports, pool, clock)?);
                (network, forwarding)
            }
            Contender::Sluice { kind, queue, .. } => {
                let (network, workers) = connect_workers(kind, wanted, offloads)?;
                let stop = Stop::new();
                let threads = workers.into_iter().enumerate().map(|(number, worker)| {
                    let (own, stop) = (plan.clone(), stop.clone());
                    start_on(plan.core(number), move || {
                        worker.forward(&own, queue, &stop)
                    })
                });
                let threads = threads.collect::<Result<_, _>>()?;
                (network, Forwarding::Threads(stop, threads))
            }
        };
        let running = Running {
            network,
            forwarding,
        };
        let network = &running.network;
        let mut settings = plan.host_settings.iter();
        match settings.try_for_each(|(name, value)| network.set_on_hosts(name, value)) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.finish();
                Err(error)
            }
        }
    }
}

/// The port by which the packets of each port leave. Packets of a kernel queue return to it.
const fn exits(kind: &Kind) -> [PortNumber; 2] {
    match kind.role {
        Role::Queue => [0, 1],
        Role::Interface(_) | Role::Device(_) | Role::Files => [1, 0],
    }
}

/// Creates a network with two ports of a kind in it.
fn connect(
    kind: &'static Kind,
    wanted: Offloads,
    offloads: bool,
    pool: &mut Pool,
) -> Result<(Network, Ports), BenchError> {
    match kind.role {
        Role::Interface(attach) => {
            let network = Network::with_veths(wanted)?;
            let options = attach_options(offloads);
            let mut open = |name| -> Result<Box<dyn Port + Send>, BenchError> {
                Ok(attach.open(&network.router, name, pool, options)?.0)
            };
            let ports = [open("r2")?, open("r3")?];
            Ok((network, ports))
        }
        Role::Device(_) | Role::Files => {
            let (network, ports) = Network::with_tuns(offloads)?;
            Ok((network, ports.map(|port| Box::new(port) as _)))
        }
        Role::Queue => {
            let (network, ports) = queues_of_the_kernel(wanted)?;
            Ok((network, ports.map(|port| Box::new(port) as _)))
        }
    }
}

/// Connects a network like [`connect`], for a worker per direction.
fn connect_workers(
    kind: &'static Kind,
    wanted: Offloads,
    offloads: bool,
) -> Result<(Network, [Worker; 2]), BenchError> {
    let worker = |ports, pool, to| Worker { ports, pool, to };
    let (mut up, mut down) = Pool::pair(POOL)?;
    match kind.role {
        Role::Interface(attach) => {
            let network = Network::with_veths(wanted)?;
            let (router, options) = (&network.router, attach_options(offloads));
            let [from_h2, to_h2] = attach.open_halves(router, "r2", &mut up, &down, options)?;
            let [from_h3, to_h3] = attach.open_halves(router, "r3", &mut down, &up, options)?;
            let workers = [
                worker(vec![from_h2, to_h3], up, 1),
                worker(vec![from_h3, to_h2], down, 1),
            ];
            Ok((network, workers))
        }
        Role::Device(_) | Role::Files => {
            let (network, [h2, h3]) = Network::with_tuns(offloads)?;
            let into = |from: &TunPort| -> Result<Box<dyn Port + Send>, BenchError> {
                Ok(Box::new(from.try_clone().map_err(TunError::Open)?))
            };
            let (to_h2, to_h3) = (into(&h2)?, into(&h3)?);
            let workers = [
                worker(vec![Box::new(h2), to_h3], up, 1),
                worker(vec![Box::new(h3), to_h2], down, 1),
            ];
            Ok((network, workers))
        }
        Role::Queue => {
            let (network, [to_h3, to_h2]) = queues_of_the_kernel(wanted)?;
            let workers = [
                worker(vec![Box::new(to_h3)], up, 0),
                worker(vec![Box::new(to_h2)], down, 0),
            ];
            Ok((network, workers))
        }
    }
}

fn attach_options(offloads: bool) -> AttachOptions {
    AttachOptions {
        offloads,
        ..AttachOptions::default()
    }
}

/// Kernel forwarding with a queue on each of the router's interfaces, towards h3 and towards h2.
fn queues_of_the_kernel(wanted: Offloads) -> Result<(Network, [NfqueuePort; 2]), BenchError> {
    let network = Network::with_veths(wanted)?;
    network.route()?;
    let open = |number, interface: &str| {
        let options = NfqueueOptions {
            number,
            traffic: Some(Traffic {
                hooks: vec![Hook::Forward],
                leaving: vec![interface.to_owned()],
                ..Traffic::default()
            }),
            headers_only: true,
            batch: 64,
            ..NfqueueOptions::default()
        };
        NfqueuePort::open(&network.router, &options)
    };
    let ports = [open(0, "r3")?, open(1, "r2")?];
    Ok((network, ports))
}

/// Creates one direction, for a worker of its own: packets that arrive at the first port leave by
/// port `to`.
struct Worker {
    ports: Vec<Box<dyn Port + Send>>,
    pool: Pool,
    to: PortNumber,
}

impl Worker {
    fn forward(self, plan: &BenchPlan, queue: &str, stop: &Stop) {
        run_before_others(plan.real_time);
        let clock = Clock::start();
        let queue = Spec::parse(queue).expect("the queues of the bench are valid");
        let mut forwarder = Forwarder::new(self.ports, self.pool, clock, plan.spin);
        forwarder.keep_warm(CacheWarmer::for_loop(plan.spin));
        let params = PipeParams::default();
        let piped = Piped::new(&params, Vec::new(), &queue, self.to, SPLIT_BELOW);
        let options = LaneOptions {
            from: &[0],
            seed: SEED,
            rng: Rng::from_seed(SEED),
        };
        forwarder.add_lane(piped, (), options);
        run_until(&mut forwarder, &clock, stop);
        drop(forwarder.finish());
    }
}

/// Starts a thread, pinned to a core if one is given.
fn start_on<T: Send + 'static>(
    core: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CoreError> {
    // Threads that are started meanwhile inherit the affinity.
    let _stay = core.map(|core| Stay::on(&[core])).transpose()?;
    Ok(std::thread::spawn(work))
}

/// Requests real-time priority for the calling thread.
fn run_before_others(is_wanted: bool) {
    if is_wanted {
        // Best effort: without the privilege the loop is scheduled like any other thread.
        let _ = sluice_net::real_time(1);
    }
}

/// The ports towards h2 and h3.
pub(super) type Ports = [Box<dyn Port + Send>; 2];

/// Opens packet ports on both interfaces of the router, with arrivals stamped on a clock if there
/// is one.
pub(super) fn packet_ports(
    network: &Network,
    offloads: bool,
    timestamps: Option<Clock>,
) -> Result<Ports, BenchError> {
    let options = PacketOptions {
        offloads,
        timestamps,
        ..PacketOptions::default()
    };
    let open = |name| -> Result<Box<dyn Port + Send>, BenchError> {
        Ok(Box::new(PacketPort::open(&network.router, name, options)?))
    };
    Ok([open("r2")?, open("r3")?])
}

/// A network with a running forwarder in it.
pub(super) struct Running {
    pub network: Network,
    forwarding: Forwarding,
}

enum Forwarding {
    Kernel,
    Threads(Stop, Vec<JoinHandle<()>>),
    Sluice(Loop),
}

impl Running {
    /// Stops the forwarder.
    pub fn finish(self) {
        match self.forwarding {
            Forwarding::Kernel => {}
            Forwarding::Threads(stop, threads) => {
                stop.stop();
                for thread in threads {
                    join(thread);
                }
            }
            Forwarding::Sluice(running) => drop(running.finish()),
        }
    }
}

/// The configuration of Sluice's loop: a pipe up, and one without limits down.
#[derive(Clone, Debug)]
pub(super) struct Pipes {
    pub up: PipeParams,
    /// The queue of both pipes.
    pub queue: &'static str,
    /// The ports by which packets from each port leave.
    pub exits: [PortNumber; 2],
    pub spin: Spin,
    pub real_time: bool,
    /// The core that the loop is pinned to.
    pub core: Option<usize>,
}

/// Runs Sluice's loop on a thread of its own.
pub(super) struct Loop {
    stop: Stop,
    thread: JoinHandle<LoopReport>,
}

/// The counts of the loop.
pub(super) struct LoopReport {
    /// Counts of the pipes, up and down.
    pub lanes: [LaneCounts; 2],
    /// Lateness of departures of both pipes.
    pub lateness: [Lateness; 2],
    /// Counts of the ports towards h2 and h3.
    pub ports: [Counters; 2],
    /// Packets still in the pipe up.
    pub held: u64,
}

impl Loop {
    pub fn start(pipes: Pipes, ports: Ports, pool: Pool, clock: Clock) -> Result<Loop, CoreError> {
        let stop = Stop::new();
        let seen = stop.clone();
        let thread = start_on(pipes.core, move || {
            forward(&pipes, ports, pool, clock, &seen)
        })?;
        Ok(Loop { stop, thread })
    }

    pub fn finish(self) -> LoopReport {
        self.stop.stop();
        join(self.thread)
    }
}

fn forward(pipes: &Pipes, ports: Ports, pool: Pool, clock: Clock, stop: &Stop) -> LoopReport {
    run_before_others(pipes.real_time);
    let queue = Spec::parse(pipes.queue).expect("the queues of the bench are valid");
    let mut forwarder = Forwarder::new(Vec::from(ports), pool, clock, pipes.spin);
    forwarder.keep_warm(CacheWarmer::for_loop(pipes.spin));
    for (from, params) in [pipes.up.clone(), PipeParams::default()].iter().enumerate() {
        let piped = Piped::new(params, Vec::new(), &queue, pipes.exits[from], SPLIT_BELOW);
        let options = LaneOptions {
            from: &[from],
            seed: SEED,
            rng: Rng::from_seed(SEED).fork(from as u64),
        };
        forwarder.add_lane(piped, (), options);
    }
    run_until(&mut forwarder, &clock, stop);
    let pipe = forwarder.lanes()[0].queueing().pipe();
    let held = pipe.backlog().packets + pipe.in_flight().packets;
    let (lanes, ports) = forwarder.finish();
    let lane = |index: usize| &lanes[index];
    LoopReport {
        lanes: [lane(0).2, lane(1).2],
        lateness: [lane(0).3, lane(1).3],
        ports: [ports[0], ports[1]],
        held,
    }
}

/// Forwards until `stop`.
pub(super) fn run_until<P: Port, Q: Queueing>(
    forwarder: &mut Forwarder<P, Q>,
    clock: &Clock,
    stop: &Stop,
) {
    let mut until = clock.now() + STOP_CHECK;
    while !stop.is_stopped() {
        forwarder.turn(Some(until), None);
        let now = clock.now();
        if now >= until {
            until = now + STOP_CHECK;
        }
    }
}

/// Runs two threads, each of which forwards one packet at a time from one interface to the other.
fn relay_both_ways(network: &Network) -> Result<Forwarding, BenchError> {
    let stop = Stop::new();
    let mut threads = Vec::new();
    for (from, to) in [("r2", "r3"), ("r3", "r2")] {
        let options = PacketOptions {
            offloads: false,
            batch: 1,
            ring: 0,
            bypass_qdisc: false,
            ..PacketOptions::default()
        };
        let port = PacketPort::open(&network.router, from, options)?;
        let exit = PacketOptions {
            receives: false,
            ..options
        };
        let exit = PacketPort::open(&network.router, to, exit)?;
        let pool = Pool::new(PoolSize { slots: 4, large: 2 })?;
        let seen = stop.clone();
        threads.push(std::thread::spawn(move || relay(port, exit, pool, &seen)));
    }
    Ok(Forwarding::Threads(stop, threads))
}

fn relay(mut from: PacketPort, mut to: PacketPort, mut pool: Pool, stop: &Stop) {
    let clock = Clock::start();
    let mut waiter = Waiter::new(Spin::None);
    let mut packet = Vec::with_capacity(1);
    while !stop.is_stopped() {
        if from.receive(&mut pool, &mut packet) == 0 {
            let watch = Watch {
                descriptor: from.as_fd(),
                interest: Interest::Readable,
            };
            waiter.wait(&[watch], Some(clock.now() + STOP_CHECK), &clock);
            continue;
        }
        let sent = to.transmit(&mut pool, &packet);
        for slot in packet.drain(..).skip(sent) {
            pool.free(slot);
        }
    }
}

pub(super) fn join<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Room for two seconds of 100 Mbit/s, or for 60 MB of super-packets: 110 MB. The pool has more
/// slots than the queues of both directions hold (10 240 packets each), so that the queue, not the
/// pool, drops in an overload.
pub(super) const POOL: PoolSize = PoolSize {
    slots: 24_576,
    large: 960,
};
pub(super) const SEED: u64 = 1;
const STOP_CHECK: Span = Span::from_ms(20);
