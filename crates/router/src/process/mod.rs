//! The router as a process: opens the ports, runs the loop on its own thread, accepts commands.
//!
//! [`Router::start`] opens ports, engine and control socket, or fails and opens nothing. The loop's
//! thread owns the engine; other threads send it orders (`control::Order`), which it executes
//! between two batches of packets.

mod config;
mod ports;
mod ruled;
mod running;
mod status;

pub use config::{Config, ConfigError, at, check};
pub use ruled::Ruled;
/// The types of [`Settings`], and the kinds of port that a [`PortSpec`] names.
pub use sluice_net::port::{PoolSize, PortSpec, Spin, registry};
pub use status::{PortStatus, Status, StatusAsked};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Rate, Span, Stop};
use sluice_ipfw::{Interface, Mode};
use sluice_net::Clock;
use sluice_net::cores::{CoreError, IdleLimit, IdleLimitError, Stay};
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::port::{CacheWarmer, OpenError, Pool, PoolError};

use crate::control::{
    Answered, Bell, Limits, Listener, Orders, Refused, Remark, ServeError, Work, inbox,
};
use ports::PortTime;
use running::{Loop, LoopSettings};

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ports of the router: each consecutive pair is a bridge.
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
    /// The way in which the loop waits for due packets.
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

/// The reasons why a router does not start.
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

/// The largest number of descriptors that one loop watches, including its bell.
pub const MOST_PORTS: usize = 62;

/// The reasons why a configuration cannot be reloaded; the old one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No configuration was given at the start.
    #[error("there is no configuration to reload: the router was started without --config")]
    None,
    /// The configuration has an error.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The loop did not accept the configuration.
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

/// The kind that a port was opened as, and the reason for the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChoice {
    /// The name that the user gave.
    pub name: String,
    /// Its kind: a name of [`KINDS`](sluice_net::port::KINDS).
    pub kind: String,
    /// The reason for the choice of the kind.
    pub reason: String,
    /// The limitations of the port, one sentence each.
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
        let remarks = config.check(running::firewall(&engine, &interfaces(&names, &namespace)))?;
        let idle_limit = settings.cpu_latency.map(IdleLimit::hold).transpose()?;
        // The loop's thread, started meanwhile, inherits the core, and its memory is allocated near
        // it.
        let stay = settings.core.map(|core| Stay::on(&[core])).transpose()?;
        let mut pool = Pool::new(settings.pool)?;
        // Before packets arrive and files begin.
        let warmer = CacheWarmer::for_loop(settings.spin);
        let opened = ports::open(&settings.ports, &namespace, &mut pool, &clock)?;
        // Again, because devices have been created.
        let interfaces = interfaces(&names, &namespace);
        let (inbox, orders) = inbox().map_err(StartError::Bell)?;
        let stop = Stop::new();
        let start = LoopSettings {
            engine: with_seed(engine, settings.seed, opened.time)?,
            interfaces,
            choices: opened.choices.clone(),
            config,
            split_below: settings.split_below,
            spin: settings.spin,
            cpu_latency: idle_limit.as_ref().map(IdleLimit::latency),
            time: opened.time,
            // Files do not use the kernel's packet path.
            warmer: warmer.filter(|_| opened.time == PortTime::Machine),
        };
        let is_through = Arc::new(AtomicBool::new(false));
        let through = Arc::clone(&is_through);
        let (started, has_started) = sync_channel(1);
        let until = stop.clone();
        let thread = namespace.spawn("router", move || {
            Loop::new(start, opened.all, pool, clock, inbox).run(&until, &through, || {
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

    /// Returns the kind that each port was opened as, and the reason for the choice.
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
    /// The loop does not answer.
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
    /// Too many orders are waiting for the loop, or the loop has ended.
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

    /// Returns whether nothing is left to do, because the files that the router plays have ended.
    /// Also true if the loop has panicked; [`Router::stop`] passes the panic on.
    pub fn has_ended(&self) -> bool {
        self.is_through.load(Ordering::Acquire) || self.thread.is_finished()
    }

    /// Stops the router and returns its final status. Packets that are still queued are dropped.
    ///
    /// # Panics
    /// If the loop panicked.
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
