//! The process: owns the ports, runs the loop on its own thread, accepts commands.
//!
//! [`Router::start`] opens everything or nothing: ports, engine with its configuration, control
//! socket. The loop's thread owns the engine; other threads send it orders (`control::Order`),
//! which it carries out between two batches of packets.

mod config;
mod ports;
mod ruled;
mod status;

pub use config::{Config, ConfigError, at, check};
pub use ruled::Ruled;
pub use status::{PortStatus, Status, StatusAsked};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Cx, DropReason, Rate, Rng, Span, Stop, Time};
use sluice_ipfw::show::Survey;
use sluice_ipfw::{Firewall, Interface, Mode, Output};
use sluice_net::Clock;
use sluice_net::cores::{CoreError, IdleLimit, IdleLimitError, Stay};
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::port::{Loss, OpenError, Pool, PoolError, PoolSize, Port, PortSpec, Spin, Warmth};

use crate::control::{
    Answered, Bell, Given, Inbox, Limits, Listener, Order, Orders, Refused, Remark, ServeError,
    Work, inbox,
};
use crate::forward::{FileTime, Forwarder, LaneOptions, LostFrame};
use ports::PortTime;

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its ports: each consecutive pair is a bridge.
    pub ports: Vec<PortSpec>,
    /// The namespace of the ports; the caller's if `None`.
    pub namespace: Option<PathBuf>,
    /// The file of commands to start with, and to reload.
    pub config: Option<PathBuf>,
    /// The control socket; none is opened if `None`.
    pub socket: Option<PathBuf>,
    /// The engine. The origin of its time, its seed and the key of its hashes are set at the start.
    pub engine: sluice_ipfw::Settings,
    /// Seed of all random numbers, including the hash keys. If `None`, they are random, so that no
    /// sender can predict them. Between files no sender reacts and the output must be reproducible,
    /// so the default there is 1.
    pub seed: Option<u64>,
    /// Super-packets are split while any link is slower than this.
    pub split_below: Rate,
    /// How the loop waits for due packets.
    pub spin: Spin,
    /// The core that the loop is pinned to; the kernel chooses if `None`.
    pub core: Option<usize>,
    /// The limit of idle-state exit latency for all cores while the router runs; the machine's own
    /// if `None`.
    pub cpu_latency: Option<Span>,
    /// The size of the packet memory.
    pub pool: PoolSize,
}

impl Settings {
    /// A bridge between two ports, without configuration and socket.
    pub fn new(left: PortSpec, right: PortSpec) -> Settings {
        Settings {
            ports: vec![left, right],
            namespace: None,
            config: None,
            socket: None,
            engine: sluice_ipfw::Settings::default(),
            seed: None,
            split_below: SPLIT_BELOW,
            spin: Spin::default(),
            core: None,
            cpu_latency: None,
            pool: POOL,
        }
    }
}

/// 64 MiB of packets, and 64 MiB of super-packets: some 30 ms at 10 Gbit/s, or 0.5 s at 1 Gbit/s.
pub const POOL: PoolSize = PoolSize {
    slots: 32_768,
    large: 1_024,
};

/// Why a router does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Ports come in pairs.
    #[error("ports come in pairs: give two, or four, ..., not {0}")]
    Odd(usize),
    /// More ports than one loop watches.
    #[error("{0} ports are too many: one router has at most {MOST_PORTS}")]
    Many(usize),
    /// Two ports of a pair cannot be bridged.
    #[error("{0} and {1} cannot be bridged: one carries Ethernet frames, the other IP packets")]
    Unlike(PortSpec, PortSpec),
    /// A port is named twice.
    #[error("{0} is named twice")]
    Twice(PortSpec),
    /// The namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The core.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The limit of idle states.
    #[error(transparent)]
    Idle(#[from] IdleLimitError),
    /// A port.
    #[error(transparent)]
    Port(#[from] OpenError),
    /// The memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The socket.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The bell.
    #[error("cannot open a pair of sockets: {0}")]
    Bell(io::Error),
    /// The keys of hashes.
    #[error("cannot get random numbers from the kernel: {0}")]
    Random(io::Error),
}

/// The most descriptors that one loop watches, including its bell.
pub const MOST_PORTS: usize = 62;

/// Why a configuration could not be reloaded; the old one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// None was given at the start.
    #[error("there is no configuration to reload: the router was started without --config")]
    None,
    /// It is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The loop did not take it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A router that runs.
pub struct Router {
    stop: Stop,
    orders: Orders<Status>,
    config: Option<PathBuf>,
    listener: Option<Listener>,
    thread: JoinHandle<Status>,
    is_through: Arc<AtomicBool>,
    remarks: Vec<Remark>,
    port_remarks: Vec<String>,
    choices: Vec<PortChoice>,
    names: Vec<String>,
    namespace: Namespace,
    idle_limit: Option<IdleLimit>,
}

/// The kind that a port was opened as, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChoice {
    /// As the user named it.
    pub name: String,
    /// Its kind: `packet`, `xdp`, `tun`, `tap` or `pcap`.
    pub kind: String,
    /// Why that kind.
    pub reason: String,
    /// Its limitations, one sentence each.
    pub cannot: Vec<String>,
}

impl Router {
    /// Starts a router.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left open.
    pub fn start(settings: &Settings) -> Result<Router, StartError> {
        check_ports(&settings.ports)?;
        let namespace = match &settings.namespace {
            Some(path) => Namespace::open(path)?,
            None => Namespace::current()?,
        };
        let clock = Clock::start();
        let engine = sluice_ipfw::Settings {
            origin_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            ..settings.engine
        };
        let ports = settings.ports.iter().enumerate();
        let names: Vec<String> = ports.map(|(n, port)| port.interface(n)).collect();
        let config = match &settings.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        // Checked before anything is opened, so that a mistake has no side effects.
        let remarks = config.check(firewall(&engine, &interfaces(&names, &namespace)))?;
        let idle_limit = settings.cpu_latency.map(IdleLimit::hold).transpose()?;
        // The loop's thread, started meanwhile, inherits the core, and its memory is allocated near
        // it.
        let stay = settings.core.map(|core| Stay::on(&[core])).transpose()?;
        let mut pool = Pool::new(settings.pool)?;
        // Before packets arrive and files begin.
        let warmth = Warmth::for_loop(settings.spin);
        let opened = ports::open(&settings.ports, &namespace, &mut pool, &clock)?;
        // Again: devices have been made.
        let interfaces = interfaces(&names, &namespace);
        let (inbox, orders) = inbox().map_err(StartError::Bell)?;
        let stop = Stop::new();
        let plan = Plan {
            engine: with_seed(engine, settings.seed, opened.time)?,
            interfaces,
            choices: opened.choices.clone(),
            config,
            split_below: settings.split_below,
            spin: settings.spin,
            cpu_latency: idle_limit.as_ref().map(IdleLimit::latency),
            time: opened.time,
            // Files do not use the kernel's packet path.
            warmth: warmth.filter(|_| opened.time == PortTime::Machine),
        };
        let is_through = Arc::new(AtomicBool::new(false));
        let through = Arc::clone(&is_through);
        let (started, has_started) = sync_channel(1);
        let until = stop.clone();
        let thread = namespace.spawn("router", move || {
            Loop::new(plan, opened.all, pool, clock, inbox).run(&until, &through, || {
                let _ = started.send(());
            })
        })?;
        drop(stay);
        // Commands that arrive from now on find the configuration loaded. If the thread has ended
        // instead, joining it reports why.
        let _ = has_started.recv();
        let mut router = Router {
            stop,
            orders: orders.clone(),
            config: settings.config.clone(),
            listener: None,
            thread,
            is_through,
            remarks,
            port_remarks: opened.remarks,
            choices: opened.choices,
            names,
            namespace,
            idle_limit,
        };
        if let Some(path) = &settings.socket {
            match Listener::open(path, orders, Limits::default()) {
                Ok(listener) => router.listener = Some(listener),
                Err(error) => {
                    router.stop();
                    return Err(error.into());
                }
            }
        }
        Ok(router)
    }

    /// Returns warnings about the configuration.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Returns warnings about the ports.
    pub fn port_remarks(&self) -> &[String] {
        &self.port_remarks
    }

    /// Returns the kind that each port was opened as, and why.
    pub fn choices(&self) -> &[PortChoice] {
        &self.choices
    }

    /// Returns the requested limit of idle-state exit latency; `None` without a request.
    pub fn cpu_latency(&self) -> Option<Span> {
        self.idle_limit.as_ref().map(IdleLimit::latency)
    }

    /// Returns the bell that ends the loop's sleep.
    pub const fn bell(&self) -> &Bell {
        self.orders.bell()
    }

    /// Returns the status.
    ///
    /// # Errors
    /// When the loop does not answer.
    pub fn status(&self) -> Result<Status, Refused> {
        match self.orders.order(Work::Status, PATIENCE)? {
            Answered::Status(status) => Ok(*status),
            Answered::Commands(..) | Answered::Survey(_) | Answered::Done => {
                unreachable!("a request for the status is answered with the status")
            }
        }
    }

    /// Requests the status, without waiting for the answer.
    ///
    /// # Errors
    /// When too many orders are waiting for the loop, or it has ended.
    pub fn ask_status(&self) -> Result<StatusAsked, Refused> {
        StatusAsked::of(&self.orders)
    }

    /// Reloads the configuration, as a whole or not at all, and reads the interfaces' addresses
    /// again. Queued packets stay.
    ///
    /// # Errors
    /// [`ReloadError`]; the old configuration stays in force.
    pub fn reload(&self) -> Result<Vec<Remark>, ReloadError> {
        let config = Config::read(self.config.as_ref().ok_or(ReloadError::None)?)?;
        // From now on, `me` means the addresses that the interfaces have now.
        let interfaces = interfaces(&self.names, &self.namespace);
        self.orders.order(Work::Interfaces(interfaces), PATIENCE)?;
        let work = Work::Commands {
            text: config.text.clone(),
            mode: Mode::Replace,
            files: config.files.clone(),
        };
        match self.orders.order(work, PATIENCE)? {
            Answered::Commands(output, result) => {
                config.refusal(result)?;
                Ok(output.warnings.iter().map(Remark::from).collect())
            }
            Answered::Status(_) | Answered::Survey(_) | Answered::Done => {
                unreachable!("commands have what they said as answer")
            }
        }
    }

    /// Returns whether nothing is left to do, because the files that it plays have ended. Also true
    /// if the loop has panicked; [`Router::stop`] passes the panic on.
    pub fn has_ended(&self) -> bool {
        self.is_through.load(Ordering::Acquire) || self.thread.is_finished()
    }

    /// Stops the router and returns its final status. Packets that are still queued are dropped.
    ///
    /// # Panics
    /// If the loop did.
    pub fn stop(mut self) -> Status {
        drop(self.listener.take());
        self.stop.stop();
        self.orders.bell().ring();
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The loop answers between two batches: within milliseconds unless the machine is overloaded.
const PATIENCE: Duration = Duration::from_secs(30);
/// Above all ordinary threads, below everything with a higher real-time priority.
const REAL_TIME_PRIORITY: u8 = 1;

fn check_ports(ports: &[PortSpec]) -> Result<(), StartError> {
    if ports.is_empty() || !ports.len().is_multiple_of(2) {
        return Err(StartError::Odd(ports.len()));
    }
    if ports.len() > MOST_PORTS {
        return Err(StartError::Many(ports.len()));
    }
    for (place, port) in ports.iter().enumerate() {
        if ports[..place]
            .iter()
            .any(|other| other.argument() == port.argument())
        {
            return Err(StartError::Twice(port.clone()));
        }
    }
    Ok(())
}

/// Returns the engine's settings with a seed and, unless it is derived from the seed, a hash key.
fn with_seed(
    engine: sluice_ipfw::Settings,
    seed: Option<u64>,
    time: PortTime,
) -> Result<sluice_ipfw::Settings, StartError> {
    let (seed, hash_key) = match (seed, time) {
        (Some(seed), _) => (seed, None),
        (None, PortTime::Files) => (1, None),
        // Two numbers: what links draw can be observed, but reveals nothing about the key.
        (None, _) => (random()?, Some(random()?)),
    };
    Ok(sluice_ipfw::Settings {
        seed,
        hash_key,
        ..engine
    })
}

fn random() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    // Up to 256 bytes are never returned partially: getrandom(2).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| StartError::Random(error.into()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the ports' interfaces with their current addresses. An interface whose addresses cannot
/// be read is gone or has none.
fn interfaces(names: &[String], namespace: &Namespace) -> Vec<Interface> {
    let mut links = namespace.links().ok();
    let mut addresses = |name: &str| {
        let links = links.as_mut()?;
        links.addresses(name).ok()
    };
    let interface = |name: &String| Interface {
        addresses: addresses(name.as_str()).unwrap_or_default(),
        name: name.clone(),
    };
    names.iter().map(interface).collect()
}

fn firewall(settings: &sluice_ipfw::Settings, interfaces: &[Interface]) -> Firewall {
    let mut firewall = Firewall::new(settings);
    firewall.set_interfaces(interfaces.to_vec());
    firewall
}

/// What the loop's thread starts with.
struct Plan {
    engine: sluice_ipfw::Settings,
    interfaces: Vec<Interface>,
    choices: Vec<PortChoice>,
    config: Config,
    split_below: Rate,
    spin: Spin,
    cpu_latency: Option<Span>,
    time: PortTime,
    warmth: Option<Warmth>,
}

/// The loop's thread.
struct Loop {
    forwarder: Forwarder<Box<dyn Port + Send>, Ruled>,
    inbox: Inbox<Status>,
    clock: Clock,
    choices: Vec<PortChoice>,
    commands: u64,
    is_real_time: bool,
    cpu_latency: Option<Span>,
    time: PortTime,
    files: FileTime,
}

impl Loop {
    fn new(
        plan: Plan,
        ports: Vec<Box<dyn Port + Send>>,
        pool: Pool,
        clock: Clock,
        inbox: Inbox<Status>,
    ) -> Loop {
        let is_real_time =
            plan.time != PortTime::Files && sluice_net::real_time(REAL_TIME_PRIORITY).is_ok();
        let all: Vec<usize> = (0..ports.len()).collect();
        let partners = all.iter().map(|port| port ^ 1).collect();
        let engine = firewall(&plan.engine, &plan.interfaces);
        let ruled = Ruled::new(engine, partners, plan.split_below);
        let mut forwarder = Forwarder::new(ports, pool, clock, plan.spin);
        forwarder.keep_warm(plan.warmth);
        let lane = LaneOptions {
            from: &all,
            seed: plan.engine.hash_key.unwrap_or(plan.engine.seed),
            rng: Rng::from_seed(plan.engine.seed),
        };
        forwarder.add_lane(ruled, (), lane);
        let mut own = Loop {
            forwarder,
            inbox,
            clock,
            choices: plan.choices,
            commands: 0,
            is_real_time,
            cpu_latency: plan.cpu_latency,
            time: plan.time,
            files: FileTime::default(),
        };
        own.with(|ruled, cx| {
            let (_, result) = plan.config.apply(ruled.firewall_mut(), cx);
            ruled.commands_applied();
            result.expect("a configuration that an equal engine took is taken");
        });
        own
    }

    /// Calls the engine between two batches.
    fn with<T>(&mut self, work: impl FnOnce(&mut Ruled, &mut Cx<'_>) -> T) -> T {
        match self.time {
            PortTime::Files => self.files.with(&mut self.forwarder, LANE, work),
            PortTime::Machine | PortTime::Played => self.forwarder.with(LANE, work),
        }
    }

    /// Forwards once, in the ports' time. Returns whether there is nothing more to do.
    fn turn(&mut self, until: Option<Time>) -> bool {
        let bell = std::os::fd::AsFd::as_fd(&self.inbox);
        match self.time {
            PortTime::Machine => self.forwarder.turn(until, Some(bell)),
            PortTime::Files => {
                if !self.files.advance(&mut self.forwarder, INSTANTS) {
                    self.time = PortTime::Machine;
                    return true;
                }
            }
            PortTime::Played => {
                let soon = self.clock.now() + LOOK_EVERY;
                self.forwarder.turn(Some(until.unwrap_or(soon)), Some(bell));
                if self.forwarder.is_through() {
                    self.time = PortTime::Machine;
                    return true;
                }
            }
        }
        false
    }

    fn run(mut self, stop: &Stop, through: &AtomicBool, started: impl FnOnce()) -> Status {
        started();
        // A `show` that is answered a piece at a time; the next order waits for it.
        let mut under_way: Option<(Order<Status>, Box<Survey>)> = None;
        loop {
            // One order, or one piece of it, per turn, so that packets are forwarded in between.
            let mut until = Some(Time::ZERO);
            if let Some((order, mut survey)) = under_way.take() {
                let look = |ruled: &mut Ruled, cx: &mut Cx<'_>| {
                    ruled.firewall_mut().look(&mut survey, FLOWS_PER_TURN, cx)
                };
                if self.with(look) {
                    under_way = Some((order, survey));
                } else {
                    order.answer(Answered::Survey(survey));
                }
            } else if let Some(order) = self.inbox.take() {
                match self.begin_survey(&order.work) {
                    Some(survey) => under_way = Some((order, survey)),
                    None => {
                        let answer = self.carry_out(&order.work);
                        order.answer(answer);
                    }
                }
            } else {
                until = None;
            }
            // After the inbox, which also resets the bell that is rung for this.
            if stop.is_stopped() {
                break;
            }
            if self.turn(until) {
                self.forwarder.release_ports();
                through.store(true, Ordering::Release);
            }
        }
        self.forwarder.release_ports();
        self.status()
    }

    /// Starts a command that only shows flows.
    fn begin_survey(&mut self, work: &Work) -> Option<Box<Survey>> {
        let Work::Commands { text, .. } = work else {
            return None;
        };
        let survey = |ruled: &mut Ruled, cx: &mut Cx<'_>| ruled.firewall_mut().survey(text, cx);
        let survey = self.with(survey)?;
        self.commands += 1;
        Some(Box::new(survey))
    }

    fn carry_out(&mut self, work: &Work) -> Answered<Status> {
        let (text, mode, files) = match work {
            Work::Commands { text, mode, files } => (text, mode, files),
            Work::Status => return Answered::Status(Box::new(self.status())),
            Work::Interfaces(interfaces) => {
                self.with(|ruled, _| {
                    ruled.firewall_mut().set_interfaces(interfaces.clone());
                });
                return Answered::Done;
            }
        };
        self.commands += 1;
        let mut output = Output::default();
        let result = self.with(|ruled, cx| {
            let firewall = ruled.firewall_mut();
            let result = firewall.execute(text, *mode, &mut Given(files), &mut output, cx);
            ruled.commands_applied();
            result
        });
        Answered::Commands(Box::new(output), result)
    }

    fn status(&mut self) -> Status {
        let counters: Vec<_> = (0..self.choices.len())
            .map(|port| self.forwarder.counters(port))
            .collect();
        let opened = self.forwarder.ports().iter().zip(counters);
        let ports = self
            .choices
            .iter()
            .zip(opened)
            .map(|(choice, (port, counters))| {
                let lost = Loss::ALL
                    .into_iter()
                    .map(|loss| (loss.name(), counters.lost(loss)));
                PortStatus {
                    name: choice.name.clone(),
                    kind: choice.kind.clone(),
                    reason: choice.reason.clone(),
                    promiscuous: port.promiscuity().is_on(),
                    received: counters.received,
                    received_bytes: counters.received_bytes,
                    sent: counters.sent,
                    sent_bytes: counters.sent_bytes,
                    sent_trains: counters.sent_trains,
                    lost: lost
                        .filter(|(_, n)| *n > 0)
                        .map(|(k, n)| (k.to_owned(), n))
                        .collect(),
                }
            });
        let lane = &self.forwarder.lanes()[LANE];
        let (counts, lateness) = (lane.counts(), lane.lateness());
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), counts.dropped(*reason)));
        let lost = LostFrame::ALL
            .iter()
            .map(|cause| (cause.name(), counts.lost(*cause)));
        let named = |(name, n): (&str, u64)| (n > 0).then(|| (name.to_owned(), n));
        Status {
            uptime_ns: self.clock.now().as_ns(),
            ports: ports.collect(),
            admitted: counts.admitted,
            bypassed: counts.bypassed,
            sent: counts.sent,
            dropped: dropped.filter_map(named).collect(),
            lost: lost.filter_map(named).collect(),
            damaged: counts.faulty().filter_map(named).collect(),
            late_p50_ns: lateness.bound(500).as_ns(),
            late_p99_ns: lateness.bound(990).as_ns(),
            commands: self.commands,
            is_real_time: self.is_real_time,
            warmth_requests: self.forwarder.warmth_requests(),
            cpu_latency_ns: self.cpu_latency.map(Span::as_ns),
        }
    }
}

/// Flows that a `show` visits between two batches of packets: some tens of microseconds.
const FLOWS_PER_TURN: u32 = 128;
/// Steps in the files' time between two checks of the inbox.
const INSTANTS: usize = 256;
/// How often a loop that plays files checks whether they have ended.
const LOOK_EVERY: Span = Span::from_ms(50);
/// All ports share one lane, because one engine has all rules.
const LANE: usize = 0;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use sluice_wire::frame::{FlowHasher, Link, parse_head};

    use super::*;

    fn hash_key(seed: Option<u64>, time: PortTime) -> u64 {
        let engine = with_seed(sluice_ipfw::Settings::default(), seed, time).unwrap();
        engine.hash_key.unwrap_or(engine.seed)
    }

    /// Returns which of 1024 queues gets the flow of UDP from port 7 of `source` to port 9 of
    /// 10.0.0.2.
    fn bucket(hasher: &FlowHasher, source: u32) -> u32 {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(Ipv4Addr::from(source).octets());
        packet.extend([10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0]);
        hasher.flow(&parse_head(&packet, packet.len(), Link::Ip)) % 1024
    }

    #[test]
    fn flows_crafted_for_a_known_seed_spread_under_a_key_that_is_not_known() {
        let known = FlowHasher::new(1);
        let crafted: Vec<u32> = (0x0b00_0000..)
            .filter(|source| bucket(&known, *source) == 0)
            .take(1024)
            .collect();
        let filled = |key| {
            let hasher = FlowHasher::new(key);
            let buckets = crafted.iter().map(|source| bucket(&hasher, *source));
            buckets.collect::<BTreeSet<_>>().len()
        };
        assert_eq!(filled(hash_key(Some(1), PortTime::Machine)), 1);
        // 1024 flows hashed at random fill 1024 * (1 - 1/e) = 647 buckets, with a standard
        // deviation of 10.
        for time in [PortTime::Machine, PortTime::Played] {
            let filled = filled(hash_key(None, time));
            assert!(filled >= 500, "{filled}");
        }
    }

    #[test]
    fn seeds_are_random_but_where_they_are_given_or_files_are_to_repeat() {
        let engine = |seed, time| with_seed(sluice_ipfw::Settings::default(), seed, time).unwrap();
        let random = [0; 4].map(|_| engine(None, PortTime::Machine));
        let mut numbers: BTreeSet<u64> = random.iter().map(|engine| engine.seed).collect();
        numbers.extend(random.iter().filter_map(|engine| engine.hash_key));
        assert_eq!(numbers.len(), 8, "{numbers:?}");
        for (seed, time, expected) in [
            (None, PortTime::Files, 1),
            (Some(7), PortTime::Files, 7),
            (Some(7), PortTime::Machine, 7),
        ] {
            let engine = engine(seed, time);
            assert_eq!((engine.seed, engine.hash_key), (expected, None));
        }
    }
}
