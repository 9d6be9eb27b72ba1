//! The forwarding methods that are compared.

use std::os::fd::{AsFd, AsRawFd};
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
use sluice_net::port::{
    CacheWarmer, Counters, Interest, NfqueuePort, PacketPort, Pool, PoolSize, Port, PortSpec, Spin,
    Waiter, Watch,
};
use sluice_router::forward::{
    Forwarder, LaneCounts, LaneOptions, Lateness, Piped, PortNumber, Queueing,
};
use sluice_router::process::{Hooked, IfDead, Router, Settings};
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
    },
    /// The process of a router with several workers, whose rules lead each direction through a pipe
    /// with `fq_codel`.
    Router {
        /// The kind of its ports.
        kind: &'static Kind,
        /// The number of workers.
        workers: usize,
    },
}

/// Returns all contenders in the order of the tables: kernel forwarding first, and every kind of
/// port of the registry that can serve hosts.
pub static CONTENDERS: LazyLock<Vec<Contender>> = LazyLock::new(|| {
    let sluice = |kind: &'static Kind| {
        let queues = ["fifo", "fq_codel"].into_iter();
        let loops = queues.map(move |queue| Contender::Sluice { kind, queue });
        let workers = SEVERAL_WORKERS.contains(&kind.name).then_some(2);
        loops.chain(workers.map(|workers| Contender::Router { kind, workers }))
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
            Contender::Sluice { kind, queue } => format!("{} {queue}", kind.name),
            Contender::Router { kind, workers } => format!("{} {workers} workers", kind.name),
        }
    }

    /// Returns the command line of a process that is measured as a user starts it.
    pub fn command(self) -> Option<String> {
        match self {
            Contender::Router { kind, workers } => {
                let between = match kind.role {
                    Role::Queue => "--forward --headers-only".to_owned(),
                    _ => format!("{kind}:r2 {kind}:r3", kind = kind.name),
                };
                Some(format!(
                    "sluice router {between} --workers {workers} --config rules.conf"
                ))
            }
            Contender::Kernel
            | Contender::Bridge
            | Contender::RawSocket
            | Contender::Sluice { .. } => None,
        }
    }

    /// Returns whether the method can carry super-packets.
    pub fn has_offloads(self) -> bool {
        match self {
            Contender::Kernel | Contender::Bridge => true,
            Contender::RawSocket => false,
            Contender::Sluice { kind, .. } | Contender::Router { kind, .. } => {
                kind.super_packets.is_some()
            }
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
            Contender::Sluice { kind, queue } => {
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
            Contender::Router { kind, workers } => {
                let (network, settings) = match kind.role {
                    Role::Queue => {
                        let network = Network::with_veths(wanted)?;
                        network.route()?;
                        (network, Settings::hooked(all_forwarded()))
                    }
                    _ => {
                        let queues = (kind.name == QUEUE_EACH).then_some(workers as u32);
                        let network = Network::with_queues(wanted, queues)?;
                        let port = |interface| PortSpec::auto(interface).or_kind(kind);
                        (network, Settings::new(port("r2"), port("r3")))
                    }
                };
                let settings = router_settings(&network, plan, settings, workers, RULES);
                let router = Router::start(&settings)?;
                (network, Forwarding::Router(Box::new(router)))
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

/// Returns the settings of a router between the interfaces of `network`.
pub(super) fn router_settings(
    network: &Network,
    plan: &BenchPlan,
    base: Settings,
    workers: usize,
    rules: &str,
) -> Settings {
    let descriptor = network.router.as_fd().as_raw_fd();
    Settings {
        namespace: Some(format!("/proc/{}/fd/{descriptor}", std::process::id()).into()),
        commands: Some(rules.to_owned()),
        workers,
        cores: (0..workers)
            .filter_map(|number| plan.core(number))
            .collect(),
        spin: plan.spin,
        ..base
    }
}

/// Returns what `sluice router --forward --headers-only` queues.
fn all_forwarded() -> Hooked {
    Hooked {
        traffic: Traffic {
            hooks: vec![Hook::Forward],
            ..Traffic::default()
        },
        queue: 0,
        if_dead: IfDead::Bypass,
        headers_only: true,
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
    Router(Box<Router>),
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
            Forwarding::Router(router) => drop(router.stop()),
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
/// The kinds of port that several workers can share.
const SEVERAL_WORKERS: &[&str] = &["packet", "xdp", "nfqueue"];
/// The kind of port that needs a receive queue for each worker.
const QUEUE_EACH: &str = "xdp";
/// The rules of [`Contender::Router`]: the pipes of [`Contender::Sluice`] with `fq_codel`.
pub(super) const RULES: &str = "pipe 1 config\n\
                                sched 1 config pipe 1 type fq_codel\n\
                                queue 1 config sched 1\n\
                                pipe 2 config\n\
                                sched 2 config pipe 2 type fq_codel\n\
                                queue 2 config sched 2\n\
                                add queue 1 ip from 10.23.0.2 to any in\n\
                                add queue 2 ip from any to 10.23.0.2 in\n\
                                add allow ip from any to any\n";
const STOP_CHECK: Span = Span::from_ms(20);
