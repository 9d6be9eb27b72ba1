//! The start of a router: checks the settings, opens everything, and starts the loop.

mod waiting;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sluice_core::{Span, Stop};
use sluice_ipfw::Worker;
use sluice_loader::Ending;
use sluice_net::Clock;
use sluice_net::confine::{self, ConfineError, Confinement, Keep, Reach, User};
use sluice_net::cores::{self, CoreError, IdleLimit, IdleLimitError, Stay};
use sluice_net::guardian::Guardian;
use sluice_net::namespace::{LinkError, Namespace, NamespaceError};
use sluice_net::port::nfqueue::NfqueueError;
use sluice_net::port::pcap::PcapError;
use sluice_net::port::{CacheWarmer, OpenError, Pool, PoolError, PortSpec, Spin};

use super::config::{Config, ConfigError, SLOW, slow};
use super::fail_open::take_over_from_bridges;
use super::health::Health;
use super::held::{Held, HeldError};
use super::kernel_paths::kernel_paths;
use super::ports::{self, PortList, PortTime, Ports};
use super::reload::{Reloader, interfaces};
use super::running::{self, Loop, LoopSettings};
use super::watch::Watcher;
use super::{Router, Settings};
use crate::control::{
    Bell, Builder, Limits, Listener, SampleSource, ServeError, Sources, inboxes, no_thread,
    origin_s,
};
use crate::forward::{WakeUp, exchange};
use waiting::{beside, wait_for};

/// The largest number of workers.
pub const MOST_WORKERS: usize = 128;
/// The largest number of descriptors that one loop watches, including its bell.
pub const MOST_PORTS: usize = 62;

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
    /// Two ports of different pairs do not fit into one router.
    #[error(
        "one of {0} and {1} carries Ethernet frames, the other IP packets: all ports of a router carry the \
         same, so start a router for each"
    )]
    Mixed(PortSpec, PortSpec),
    /// The loop never sleeps.
    #[error(
        "a slack is for a loop that sleeps: choose `none` or `adaptive` instead of `always` for \
         `spin`, or no slack"
    )]
    AlwaysAwake,
    /// Packets would wait for too long.
    #[error("a slack of {0} is too long: it is at most {MOST_SLACK}")]
    Slack(Span),
    /// Too many workers, or none.
    #[error("{0} workers are not possible: a router has 1 to {MOST_WORKERS}")]
    Workers(usize),
    /// Bridges are spread over the workers, but there are none, or not one for each.
    #[error(
        "--workers per-bridge is for bridges between ports: --forward and --local spread flows over \
         --workers NUMBER"
    )]
    NoBridges,
    /// Not one core per worker.
    #[error("--cpu names {cores} cores for {workers} workers: name one for each, or none")]
    Cores {
        /// The number of cores named.
        cores: usize,
        /// The number of workers.
        workers: usize,
    },
    /// A port is named twice.
    #[error("{0} is named twice")]
    Twice(PortSpec),
    /// An interface whose packets are to be queued does not exist.
    #[error("there is no interface {name:?}: expected one of {existing}")]
    NoInterface {
        /// The name.
        name: String,
        /// The interfaces that exist.
        existing: String,
    },
    /// An interface belongs to another router.
    #[error(transparent)]
    Held(#[from] HeldError),
    /// The interfaces cannot be listed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The queue of the kernel.
    #[error(transparent)]
    Queue(#[from] NfqueueError),
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
    /// Captures that would overwrite each other.
    #[error(transparent)]
    Captures(#[from] PcapError),
    /// The memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The socket.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The bell.
    #[error("cannot open a pair of sockets: {0}")]
    Bell(io::Error),
    /// The privileges could not be given up.
    #[error("{0} (`--unconfined` keeps them)")]
    Confine(#[from] ConfineError),
    /// The keys of hashes.
    #[error("cannot get random numbers from the kernel: {0}")]
    Random(io::Error),
    /// [`Settings::ending`] was set.
    #[error("ended before it forwarded packets")]
    Ended,
    /// The thread that reads the configuration cannot be started.
    #[error("cannot start the thread that reads the configuration: {}", no_thread(.0))]
    Reader(io::Error),
}

impl Router {
    /// Starts a router.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left open.
    pub fn start(settings: &Settings) -> Result<Router, StartError> {
        Router::start_beside(settings, None)
    }

    /// Starts a router that a guardian is to watch ([`Router::guard`]). If kernel bridges of an earlier
    /// router's guardian are removed for it, this guardian creates bridges again when it is dropped.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left open.
    pub fn start_beside(
        settings: &Settings,
        guardian: Option<&mut Guardian>,
    ) -> Result<Router, StartError> {
        if settings.hooked.is_none() {
            ports::check(&settings.ports)?;
        }
        check_slack(settings.spin, settings.slack)?;
        check_workers(settings)?;
        let is_confined = settings.is_confined;
        if is_confined {
            confine::keep_broker(settings.user)?;
        }
        let namespace = Arc::new(match &settings.namespace {
            Some(path) => Namespace::open(path)?,
            None => Namespace::current()?,
        });
        let clock = Clock::start();
        let engine = sluice_ipfw::Settings {
            origin_s: origin_s(SystemTime::now(), clock.now()),
            ..settings.engine
        };
        let names: Vec<String> = match &settings.hooked {
            Some(hooked) => hooked.interfaces(&namespace)?,
            None => {
                let ports = settings.ports.iter().enumerate();
                ports.map(|(n, port)| port.interface(n)).collect()
            }
        };
        // Checked before anything is opened, so that a mistake has no side effects.
        let (config, remarks) = {
            let interfaces = interfaces(&names, &namespace);
            let room = settings.pool.slots;
            let path = settings.config.clone();
            let commands = settings.commands.clone().unwrap_or_default();
            let is_read = Arc::new(AtomicBool::new(false));
            let has_read = Arc::clone(&is_read);
            let read = move || -> Result<_, ConfigError> {
                let config = match path {
                    Some(path) => Config::read(&path)?,
                    None => Config {
                        path: "commands".into(),
                        text: commands,
                        ..Config::default()
                    },
                };
                has_read.store(true, Ordering::Relaxed);
                let firewall = running::firewall(&engine, &interfaces);
                let remarks = config.check(firewall, room)?;
                Ok((config, remarks))
            };
            let (began, mut unread) = (Instant::now(), settings.config.as_deref());
            let look = || {
                let is_late = began.elapsed() >= SLOW && !is_read.load(Ordering::Relaxed);
                if let Some(path) = unread.filter(|_| is_late) {
                    unread = None;
                    sluice_loader::report(&format!("warning: {}", slow(path)));
                }
            };
            beside(&settings.ending, read, look)??
        };
        let held = Held::take(&settings.ports, &namespace)?;
        let idle_limit = settings.cpu_latency.map(IdleLimit::hold).transpose()?;
        let count = settings.workers;
        let (opened, ports, memories) = open(settings, &namespace, &names, &clock)?;
        // Addresses are read again, because devices have been created.
        let interfaces = interfaces(&names, &namespace);
        let engine = with_seed(engine, settings.seed, opened.time)?;
        let builder = Builder::new(engine, interfaces.clone());
        let (inboxes, orders) = inboxes(builder, count, clock).map_err(StartError::Bell)?;
        let stop = Stop::new();
        let (log, log_entries) = sync_channel(MOST_LOG);
        let bells = orders.bells().cloned().map(|bell| {
            let wake_up: WakeUp = Box::new(move || bell.ring());
            wake_up
        });
        let exchanges = exchange(bells.collect());
        let is_through = Arc::new(AtomicBool::new(false));
        let health = Arc::new(Health::new(&settings.ports, Arc::clone(&namespace)));
        let (started, has_started) = sync_channel::<Result<(), ConfineError>>(count);
        if is_confined {
            sluice_loader::read_by(|path, most| {
                let file = path.to_owned();
                let read = move || sluice_loader::read_up_to(&file, most);
                let late = || {
                    let file = path.display();
                    sluice_loader::report(&format!("still reading {file}; packets go on"));
                };
                confine::privileged_apart(read, FILE_PATIENCE, late)?
            });
        }
        // The loop sends verdicts, and removes its rules at the end.
        let keep = match settings.hooked {
            Some(_) => Keep::NetAdmin,
            None => Keep::Nothing,
        };
        let confinement = Confinement {
            keep,
            ..confinement(settings.user)
        };
        // Without a core for everything else, workers with priority would stop the rest of the machine,
        // and each other.
        let cores = cores::allowed()?.len();
        let wants_real_time = count == 1 || cores > count;
        let ending = Ending::new();
        let bridging = guardian.as_deref().map(Guardian::bridging);
        let (mut threads, mut pulses) = (Vec::new(), Vec::new());
        let mut failure = None;
        let parts = inboxes.into_iter().zip(exchanges).zip(ports).zip(memories);
        for (number, (((inbox, end), ports), memory)) in parts.enumerate() {
            let worker = Worker {
                number: number as u32,
                of: count as u32,
                keeps_masks: settings.by_bridge,
            };
            let start = LoopSettings {
                engine,
                interfaces: interfaces.clone(),
                choices: opened.choices.clone(),
                config: config.clone(),
                is_hooked: settings.hooked.is_some(),
                split_below: settings.split_below,
                is_strict: settings.is_strict,
                measures_rtt: settings.measures_rtt,
                spin: settings.spin,
                slack: settings.slack,
                cpu_latency: idle_limit.as_ref().map(IdleLimit::latency),
                time: opened.time,
                // Files do not use the kernel's packet path.
                warmer: memory.warmer.filter(|_| opened.time == PortTime::Machine),
                wants_real_time,
                log: log.clone(),
                turned_away: Arc::clone(orders.turned_away()),
                commands: Arc::clone(orders.asked()),
                worker: (count > 1).then_some((worker, end)),
                receives_from: match settings.by_bridge {
                    true => Some([2 * number, 2 * number + 1]),
                    false => None,
                },
                keeps_flows: opened.keeps_flows,
                health: Arc::clone(&health),
                bridging: bridging.clone(),
            };
            let pulse = Arc::new(AtomicU64::new(0));
            pulses.push(Arc::clone(&pulse));
            let through = Arc::clone(&is_through);
            let (until, of_thread, started) = (stop.clone(), ending.clone(), started.clone());
            let name = match count {
                1 => "router".to_owned(),
                _ => format!("router-{number}"),
            };
            // The thread inherits the core.
            let stay = stay_of(settings, number);
            let spawn = || {
                namespace.spawn(&name, move || {
                    of_thread.within(|| {
                        let own = Loop::new(start, ports, memory.pool, clock, inbox);
                        own.run(&until, (&through, &pulse), || {
                            // The loop has its priority, which it could not get later.
                            let confined = is_confined.then(|| confine::confine(confinement));
                            let (confined, result) = match confined {
                                Some(Ok(confined)) => (Some(confined), Ok(())),
                                Some(Err(error)) => (None, Err(error)),
                                None => (None, Ok(())),
                            };
                            let _ = started.send(result);
                            confined
                        })
                    })
                })
            };
            let spawned = stay.and_then(|_stay| Ok(spawn()?));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        drop(started);
        if let Some(error) = failure {
            stop.stop();
            orders.bells().for_each(Bell::ring);
            for thread in threads {
                let _ = thread.join();
            }
            return Err(error);
        }
        // Commands that arrive from now on find the configuration loaded. If a thread has ended,
        // joining it reports why.
        let mut confined = Ok(());
        for _ in 0..count {
            match wait_for(&has_started, &settings.ending, LAST_START, || {}) {
                Ok(result) => confined = confined.and(result),
                Err(RecvTimeoutError::Timeout) => {
                    // The threads end with the process.
                    stop.stop();
                    return Err(StartError::Ended);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // From here on, this router forwards.
        let standing = take_over_from_bridges(&namespace, &names, guardian);
        let beside = match settings.hooked {
            Some(_) => Vec::new(),
            None => kernel_paths(&namespace, &names, &opened.choices),
        };
        // The threads of the control socket are started by this one.
        let confined = match is_confined {
            true => confined.and_then(|()| {
                let own = self::confinement(settings.user);
                confine::confine(own).map(drop)
            }),
            false => confined,
        };
        let mut router = Router {
            stop,
            ending,
            orders: orders.clone(),
            reloader: Reloader {
                orders: orders.clone(),
                config: settings.config.clone(),
                names: names.into(),
                namespace,
            },
            listener: None,
            threads,
            is_through,
            remarks,
            port_remarks: [opened.remarks, standing, beside, crowded(settings, cores)].concat(),
            choices: opened.choices,
            idle_limit,
            log: Mutex::new(Some(log_entries)),
            watcher: Watcher::of_router(orders.clone(), Arc::clone(&health)),
            pulses,
            plays_files: opened.time != PortTime::Machine,
            heartbeat: None,
            health: Arc::clone(&health),
            _held: held,
        };
        if let Err(error) = confined {
            router.stop();
            return Err(error.into());
        }
        if let Some(path) = &settings.socket {
            let watcher = router.watcher.clone();
            let samples: SampleSource = Arc::new(move |after, patience| {
                let sample = watcher.sample(after, patience)?;
                Ok(serde_json::value::to_raw_value(&*sample).expect("a sample is plain values"))
            });
            let sources = Sources {
                samples,
                before_status: Arc::new(move || health.look()),
            };
            match Listener::open_watched(path, orders, Limits::default(), Some(sources)) {
                Ok(listener) => router.listener = Some(listener),
                Err(error) => {
                    router.stop();
                    return Err(error.into());
                }
            }
        }
        Ok(router)
    }
}

/// The packet memory of a worker, and what keeps its caches warm.
struct Memory {
    pool: Pool,
    warmer: Option<CacheWarmer>,
}

/// The common part of the ports, the ports of each worker, and their memory.
type Opened = (Ports, Vec<PortList>, Vec<Memory>);

/// Opens the ports, and allocates the memory of each worker near its core.
fn open(
    settings: &Settings,
    namespace: &Namespace,
    names: &[String],
    clock: &Clock,
) -> Result<Opened, StartError> {
    let mut memories = Vec::new();
    for number in 0..settings.workers {
        let _stay = stay_of(settings, number)?;
        memories.push(Memory {
            pool: Pool::new(settings.pool)?,
            // The warmer starts before packets arrive and files begin.
            warmer: CacheWarmer::for_loop(settings.spin),
        });
    }
    let (ports, of_workers) = match &settings.hooked {
        Some(hooked) => hooked.open(namespace, names, settings.pool, settings.workers)?,
        None if settings.workers > 1 => {
            let pools = memories.iter_mut().map(|memory| &mut memory.pool);
            let mut pools: Vec<&mut Pool> = pools.collect();
            let by_bridge = settings.by_bridge;
            ports::open_groups(&settings.ports, namespace, clock, &mut pools, by_bridge)?
        }
        None => {
            let pool = &mut memories[0].pool;
            let (ports, all) = ports::open(&settings.ports, namespace, pool, clock)?;
            (ports, vec![all])
        }
    };
    Ok((ports, of_workers, memories))
}

/// The time that loops get to begin after the start is to end, so that they can end in order: less than
/// the time within which a router ends.
const LAST_START: Duration = Duration::from_secs(3);

/// Keeps the calling thread on the core of a worker, if it has one.
fn stay_of(settings: &Settings, worker: usize) -> Result<Option<Stay>, StartError> {
    let core = settings.cores.get(worker);
    Ok(core.map(|core| Stay::on(&[*core])).transpose()?)
}

fn check_workers(settings: &Settings) -> Result<(), StartError> {
    let (workers, cores) = (settings.workers, settings.cores.len());
    if settings.by_bridge && (workers == 0 || workers * 2 != settings.ports.len()) {
        return Err(StartError::NoBridges);
    }
    if !(1..=MOST_WORKERS).contains(&workers) {
        return Err(StartError::Workers(workers));
    }
    if cores != 0 && cores != workers {
        return Err(StartError::Cores { cores, workers });
    }
    Ok(())
}

/// Returns a remark if the workers have to share cores.
fn crowded(settings: &Settings, cores: usize) -> Vec<String> {
    let workers = settings.workers;
    if workers <= cores || !settings.cores.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{workers} workers share {cores} core{}, and are no faster than --workers {cores}",
        if cores == 1 { "" } else { "s" }
    )]
}

/// Returns what the threads of a router become. They may open the files of their user if there are
/// algorithms that open some.
pub fn confinement(user: Option<User>) -> Confinement {
    let opens_files = sluice_loader::loaders()
        .iter()
        .any(|loader| loader.opens_files());
    Confinement {
        reach: match opens_files {
            true => Reach::Everything,
            false => Reach::Nothing,
        },
        user,
        ..Confinement::STRICT
    }
}

/// Entries of `log` rules that wait for being written: some hundred KiB.
pub(super) const MOST_LOG: usize = 4096;
/// A module that takes longer to read is reported.
const FILE_PATIENCE: Duration = Duration::from_secs(1);
/// A longer slack holds back whole queues, and the kernel's memory for arrivals fills meanwhile.
const MOST_SLACK: Span = Span::from_ms(10);

fn check_slack(spin: Spin, slack: Span) -> Result<(), StartError> {
    if slack > MOST_SLACK {
        return Err(StartError::Slack(slack));
    }
    if slack > Span::ZERO && spin == Spin::Always {
        return Err(StartError::AlwaysAwake);
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

    #[test]
    fn more_workers_than_cores_are_remarked() {
        let remarks = |workers, cores: &[usize]| {
            let settings = Settings {
                workers,
                cores: cores.to_vec(),
                ..Settings::new(PortSpec::auto("em0"), PortSpec::auto("em1"))
            };
            crowded(&settings, 2)
        };
        assert!(remarks(1, &[]).is_empty() && remarks(2, &[]).is_empty());
        let text = remarks(9, &[]).concat();
        assert!(text.starts_with("9 workers share 2 cores"), "{text}");
        // Cores that the user has named are no mistake.
        assert!(remarks(3, &[0, 1, 1]).is_empty());
    }

    #[test]
    fn a_slack_is_short_and_for_loops_that_sleep() {
        let refused = |spin, slack| {
            check_slack(spin, slack)
                .err()
                .map(|error| error.to_string())
        };
        let (slack, long) = (Span::from_us(50), Span::from_ms(11));
        for spin in [Spin::None, Spin::Adaptive] {
            assert_eq!(refused(spin, slack), None);
            let text = refused(spin, long).unwrap();
            assert!(
                text.contains("11ms") && text.contains("at most 10ms"),
                "{text}"
            );
        }
        assert_eq!(refused(Spin::Always, Span::ZERO), None);
        let text = refused(Spin::Always, slack).unwrap();
        assert!(text.contains("`none` or `adaptive`"), "{text}");
    }
}
