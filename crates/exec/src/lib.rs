//! A program behind an emulated link.
//!
//! The program runs in a network namespace of its own, the near one. Its packets pass Sluice's
//! router, one pipe for each direction, and reach the far namespace. The kernel there accepts
//! packets for every address, so each connection of the program ends there, in kernel TCP. A relay
//! in the machine's own network passes the bytes on to the destination. So both ends of the link
//! are real TCP, and no interface, address or rule of the machine changes.
//!
//! Namespaces, sockets and processes vanish with the calling process, however it ends.

mod around;
pub mod attach;
mod beside;
mod capture;
pub mod doctor;
mod gate;
pub mod link;
mod names;
mod network;
mod program;
mod pulse;
mod relay;
mod router;
mod ssh;
mod verdict;

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use sluice_core::Span;
use sluice_loader::{Ending, HookWatch};
use sluice_net::Clock;
use sluice_net::descendants::Descendants;
use sluice_net::namespace::{
    LinkError, Namespace, NamespaceError, Privilege, PrivilegeError, enter_user_namespace_as_self,
};
use sluice_net::port::{Pool, PoolError, Port};
use sluice_net::process::{self, Guard, OpenFiles, Signals, Surroundings};
use sluice_router::process::watch::Watcher;
use sluice_router::process::watch::links::watch_links;
use sluice_scenario::Link;

pub use beside::{run_beside, wait_beside};
pub use capture::{Capture, CaptureError, Frame, Frames};
use gate::Gate;
use network::{Closing, Network, NetworkError, Place};
pub use network::{LARGEST_BUFFER, allowed_controls};
pub use program::ProgramError;
use pulse::Pulse;
pub use relay::answer::{Unreachable, reset, unreachable};
pub use relay::keep_alive;
use relay::{Relay, RelayError, Routes};
pub use router::{
    Carrier, CarrierLoop, Counter, DirectionReport, Path, WATCH_EVERY, pipe_of, port_from,
    random_numbers, view_of, words_of,
};
pub use verdict::Verdict;

/// The program to run, and the link to run it behind.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The links between the program and everything outside, in the order of the path up.
    pub links: Vec<Link>,
    /// The seed of the links' random numbers and of the hashes of flows.
    pub seed: u64,
    /// The congestion control of both ends of the link [default: the machine's].
    pub congestion_control: Option<String>,
    /// Whether the machine's loopback is reachable, as `host.sluice`.
    pub has_host: bool,
    /// Ports of the machine's loopback that lead across the link to the same ports of the program.
    pub forwards: Vec<u16>,
    /// A shell command that runs on the far side, as `server.sluice`.
    pub server: Option<OsString>,
    /// Receives a sentence if the run has waited for the server, or for a reader of the capture, for some
    /// time.
    pub on_wait: fn(&str),
    /// Receives a sentence about what the program has to do without, if settings of namespaces cannot be
    /// changed, as in most containers, or the machine lacks a file.
    pub on_restriction: fn(&str),
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The permitted lateness of packets.
    pub max_late: Option<Span>,
    /// The file for a capture of the packets at the program's interface.
    pub capture: Option<PathBuf>,
}

/// Records a run.
pub trait Recorder {
    /// The type that carries the packets.
    type Carrier: Carrier + Send + 'static;

    /// Begins the recording. The network exists by then, the program was found, and the server
    /// listens, but the program has not started.
    ///
    /// # Errors
    /// The recording cannot begin; then the program is not started.
    fn begin(
        self,
        ground: Ground<'_>,
    ) -> Result<Self::Carrier, Box<dyn std::error::Error + Send + Sync>>;
}

/// The parts of a run that a recorder can observe.
pub struct Ground<'a> {
    /// The program's namespace.
    pub near: &'a Namespace,
    /// The far side, where the program's connections end.
    pub far: &'a Namespace,
    /// The clock of the router.
    pub clock: &'a Clock,
    /// The answers of resolvers that pass the relay.
    pub names: Receiver<Vec<u8>>,
    /// The ports of [`Settings::forwards`], by the program's ends of their connections.
    pub forwards: BTreeMap<SocketAddr, u16>,
    /// Contains the reason when an algorithm has ended the run.
    pub ending: &'a Ending,
}

/// Begins to show a run that a watcher can sample. The result is dropped when the program has ended.
pub type Show<'a> = Box<dyn FnOnce(Watcher) -> Box<dyn Any> + 'a>;

/// Records nothing.
struct Unrecorded {
    links: Vec<Link>,
    seed: u64,
}

impl Recorder for Unrecorded {
    type Carrier = Path;

    fn begin(self, _ground: Ground<'_>) -> Result<Path, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Path::new(self.links, self.seed))
    }
}

/// Returns the addresses of the program's interface.
pub fn program_addresses() -> [IpAddr; 2] {
    Place::Program.addresses()
}

/// Returns the addresses of `host.sluice`, the machine's loopback.
pub fn host_addresses() -> [IpAddr; 2] {
    Place::Host.addresses()
}

/// Returns the addresses of `resolver.sluice`, the machine's first resolver.
pub fn resolver_addresses() -> [IpAddr; 2] {
    Place::Resolver(0).addresses()
}

/// Returns the Ethernet addresses of the program's interface and of the far side.
pub fn link_addresses() -> [[u8; 6]; 2] {
    [Place::Program, Place::Far].map(|place| network::mac(place).0)
}

/// Returns the name of an address that stands for a service of the machine.
pub fn place_name(address: IpAddr) -> Option<&'static str> {
    Place::of(address).map(|place| match place {
        Place::Far => "far.sluice",
        Place::Program => "program.sluice",
        Place::Host => "host.sluice",
        Place::Server => "server.sluice",
        Place::Resolver(_) => "resolver.sluice",
    })
}

/// The result of the program.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status as in a shell: the program's own, or 128 plus the number of the signal that
    /// ended it. [`ENDED`] if an algorithm from a file has ended the program, or does not return.
    pub status: u8,
    /// The reason, if an algorithm from a file has ended the program, or does not return. In the latter
    /// case the process must end by [`std::process::exit`] ([`sluice_loader::has_abandoned`]).
    pub ended: Option<String>,
    /// How exact the emulation was; without packets if an algorithm does not return.
    pub verdict: Verdict,
    /// Connections that were reset because this process had no free descriptor.
    pub refused: u64,
    /// Files for names, such as `/etc/resolv.conf`, that the machine has replaced meanwhile: from then
    /// on, the program saw the machine's.
    pub replaced: Vec<&'static str>,
}

/// The reason why the program did not run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The user may not create namespaces.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    /// The network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The memory of packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The relay.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// The program or the server.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// There is no capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The capture is not complete. The program has ended with this status.
    #[error("{error}; the program's exit status was {status}")]
    Captured {
        /// The program's exit status.
        status: u8,
        /// The reason.
        error: CaptureError,
    },
    /// The recording.
    #[error("cannot record the run: {0}")]
    Recorder(Box<dyn std::error::Error + Send + Sync>),
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl From<NamespaceError> for ExecError {
    fn from(error: NamespaceError) -> Self {
        NetworkError::from(error).into()
    }
}

impl From<LinkError> for ExecError {
    fn from(error: LinkError) -> Self {
        NetworkError::from(error).into()
    }
}

impl ExecError {
    /// Returns the exit status that a shell would set: 127 if there is no such program, 126 if it
    /// cannot be executed, and otherwise 125, like `env` and `timeout`.
    pub fn status(&self) -> u8 {
        match self {
            ExecError::Program(error) => error.status(),
            _ => FAILED,
        }
    }
}

/// Returns the reason why the user cannot create namespaces on this machine, or mount files in them, if
/// there is one.
pub fn obstacle() -> Option<PrivilegeError> {
    Privilege::probe().check_mounts().err()
}

/// Runs the program until it ends. Call it on the main thread, before any other thread starts.
/// `show` is called before the program starts, if the run is to be watched.
///
/// # Errors
/// [`ExecError`]; nothing is left behind.
pub fn run(settings: &Settings, show: Option<Show<'_>>) -> Result<Outcome, ExecError> {
    let recorder = Unrecorded {
        links: settings.links.clone(),
        seed: settings.seed,
    };
    run_recorded(settings, recorder, show)
}

/// Runs the program like [`run()`], and records the packets that cross the link.
///
/// # Errors
/// [`ExecError`]; nothing is left behind.
pub fn run_recorded<R: Recorder>(
    settings: &Settings,
    recorder: R,
    show: Option<Show<'_>>,
) -> Result<Outcome, ExecError> {
    program::check(&settings.program)?;
    let kernel = |step| move |source| ExecError::Kernel { step, source };
    let open_files = OpenFiles::raise();
    let signals = Signals::catch().map_err(kernel("block signals"))?;
    let mut copies = Vec::new();
    if Privilege::probe() != Privilege::Capable {
        copies = ssh::copies();
        enter_user_namespace_as_self()?;
    }
    let mut guard = Guard::start().map_err(kernel("start the guard process"))?;
    let network = Network::create(settings.congestion_control.as_deref())?;
    if let Some(restriction) = &network.restriction {
        (settings.on_restriction)(restriction);
    }
    if let Some(restriction) = names::restriction(settings.has_host, settings.server.is_some()) {
        (settings.on_restriction)(&restriction);
    }
    let mut watch = |namespace| {
        let watched = guard.watch(namespace);
        watched.map_err(kernel("watch a namespace"))
    };
    watch(&network.near)?;
    let server = match settings.server {
        Some(_) => {
            let namespace = Namespace::create("server")?;
            network::enable_ipv6(&namespace);
            namespace.links()?.set_up("lo", true)?;
            let opened = network.open_low_ports(&namespace);
            opened.map_err(NetworkError::from)?;
            watch(&namespace)?;
            Some(namespace)
        }
        None => None,
    };
    let resolvers = names::machine_resolvers();
    let originals = names::Originals::now();
    let mut files = names::replacements(resolvers.len(), settings.has_host, server.is_some());
    files.append(&mut copies);
    let surroundings = |namespace, is_apart| Surroundings {
        namespace,
        files: &files,
        blocked: signals.before(),
        open_files: Some(open_files.clone()),
        is_apart,
    };
    let descendants = Descendants::adopt().map_err(kernel("adopt orphans"))?;
    // What may fail comes before the recording, which replaces an earlier one.
    let serving = match (&server, &settings.server) {
        (Some(namespace), Some(command)) => Some(program::serve(
            command,
            namespace,
            &surroundings(namespace, true),
            &signals,
            settings.on_wait,
        )?),
        _ => None,
    };

    let pool = Pool::on_demand(router::pool_size(&settings.links))?;
    let clock = Clock::start();
    let (near_port, far_port) = network.ports(&clock)?;
    let capture = settings.capture.as_ref();
    let mut capture = capture
        .map(|path| Capture::create(path, &clock))
        .transpose()?;
    if let Some(capture) = &mut capture {
        capture.await_reader(&signals, settings.on_wait)?;
    }
    let injectors = network.injectors()?;
    let closing = Closing::new([
        near_port.as_fd(),
        far_port.as_fd(),
        injectors.0.as_fd(),
        injectors.1.as_fd(),
    ]);
    let closing = closing.map_err(kernel("keep a packet socket"))?;
    let (to_recorder, names) = channel();
    let ending = Ending::new();
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new);
    let event = || event().map_err(|error| kernel("create an eventfd")(error.into()));
    let (relaying, routing) = (Pulse::new(event()?), Pulse::new(event()?));
    let (to_relay, held) = channel();
    let (to_gate, changes) = channel();
    let gate = Gate::new(far_port, to_relay, relaying.clone(), changes);
    let routes = Routes {
        resolvers,
        has_host: settings.has_host,
        has_server: server.is_some(),
    };
    let around = relay::Surroundings {
        near: &network.near,
        far: &network.far,
        server: server.as_ref(),
        injectors,
        held,
        changes: to_gate,
        names: to_recorder,
        pulse: relaying.clone(),
    };
    let relay = Relay::new(around, routes, &settings.forwards)?;
    let shared = router::Shared {
        pulse: routing.clone(),
        has_ended: Arc::default(),
        is_sending: Arc::default(),
    };
    let sending = [relay.is_sending(), shared.is_sending.clone()];
    let has_ended = shared.has_ended.clone();
    let near_port: Box<dyn Port + Send> = match &capture {
        Some(capture) => Box::new(capture.tap(near_port, &clock)),
        None => Box::new(near_port),
    };
    let routers = shared.clone();
    let max_late = settings.max_late.unwrap_or(Span::MAX);
    let of_router = ending.clone();
    let (watcher, watch) = match &show {
        Some(_) => {
            let (watcher, inbox) = watch_links().map_err(kernel("create a pair of sockets"))?;
            let names = router::names_of(&settings.links);
            (Some(watcher), Some((inbox, names)))
        }
        None => (None, None),
    };
    let carrier = recorder
        .begin(Ground {
            near: &network.near,
            far: &network.far,
            clock: &clock,
            names,
            forwards: relay.forwards().clone(),
            ending: &ending,
        })
        .map_err(ExecError::Recorder)?;
    let relay = start("relay", move || relay.run(&has_ended))?;
    let router = start("router", move || {
        let ports: Vec<Box<dyn Port>> = vec![near_port, Box::new(gate)];
        of_router.within(|| router::run(carrier, ports, pool, &clock, max_late, &routers, watch))
    })?;
    let shown = show.zip(watcher).map(|(show, watcher)| show(watcher));

    // Errors are returned only when the router has ended, and with it the recording.
    let mut hooks = HookWatch::new(&ending, Instant::now());
    let spawned = program::spawn(&settings.program, &surroundings(&network.near, false));
    let ended = spawned.and_then(|child| program::attend(child, &signals, &mut hooks));
    let lingered = match ended {
        Ok(Some(_)) => {
            let loops = [&routing, &relaying];
            program::linger(&network.near, &sending, &loops, &signals, &mut hooks)
        }
        _ => Ok(()),
    };
    let mut killed = process::kill_all_in(&network.near);
    drop(serving);
    if let Some(namespace) = &server {
        killed = killed.and(process::kill_all_in(namespace));
    }
    // Those that have entered other namespaces.
    descendants.kill();
    drop(shown);
    shared.has_ended.store(true, Ordering::Release);
    routing.ring();
    relaying.ring();
    let reports = hooks.join(router);
    let refused = join(relay);
    closing.close();
    let is_asked = |pause| !matches!(program::ending_within(&signals, pause), Ok(None));
    let captured = capture.map_or(Ok(()), |capture| match reports {
        Some(_) => capture.finish(is_asked),
        None => capture.cut(is_asked),
    });
    let status = ended?.filter(|_| reports.is_some()).unwrap_or(ENDED);
    lingered.map_err(ProgramError::Wait)?;
    killed.map_err(kernel("end what the program left"))?;
    captured.map_err(|error| ExecError::Captured { status, error })?;
    Ok(Outcome {
        status,
        ended: ending.why().map(str::to_owned),
        verdict: Verdict::new(reports.unwrap_or_default(), settings.max_late),
        refused,
        replaced: originals.replaced(),
    })
}

fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>, ExecError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|source| ExecError::Kernel {
        step: "start a thread",
        source,
    })
}

/// Waits for the end of a thread. A panic is passed on.
fn join<T>(thread: thread::JoinHandle<T>) -> T {
    let ended = thread.join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The exit status of a wrapper that itself fails, as with `env` and `timeout`.
pub const FAILED: u8 = 125;

/// The exit status when an algorithm from a file has ended the program, or does not return: EX_SOFTWARE
/// of sysexits.h.
pub const ENDED: u8 = 70;
