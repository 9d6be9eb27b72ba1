//! A link in front of a network namespace or container that is already running.
//!
//! ```text
//!  before   container eth0 ---------------------------- NAME  machine, bridge ...
//!  after    container eth0 -- NAME | pipes | outside -- NAME  machine, bridge ...
//!                             (a namespace between)
//! ```
//!
//! The machine's end of the container's veth pair moves to a namespace that Sluice creates. One end
//! of a new pair replaces it, with the same name, Ethernet address, bridge, addresses and routes.
//! The container's own end stays as it is. To detach, Sluice moves the old end back. If Sluice is
//! killed, a watchdog process does so.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use sluice_core::Span;
use sluice_loader::{Ending, HookWatch, report};
use sluice_net::Clock;
use sluice_net::namespace::{
    Interface, InterfaceSettings, LinkError, Mac, Namespace, NamespaceError, Privilege, Seat,
    SysctlError, VethEnd, create_veth, enter_user_namespace_of,
};
use sluice_net::port::packet::{PacketError, PacketOptions};
use sluice_net::port::{PacketPort, Pool, PoolError, Port};
use sluice_net::process::{Signals, Watchdog, changed_child};
use sluice_scenario::Link;

use crate::pulse::Pulse;
use crate::router::{self, Path, Shared};
use crate::verdict::Verdict;

/// The target and the links to put in front of it.
#[derive(Clone, Debug)]
pub struct AttachSettings {
    /// The namespace.
    pub target: Target,
    /// The namespace's interface [default: its only veth interface].
    pub interface: Option<String>,
    /// The links in the order of the path up, from the namespace to the outside.
    pub links: Vec<Link>,
    /// The seed of the links' random numbers and of the hashes of flows.
    pub seed: u64,
    /// The permitted lateness of packets.
    pub max_late: Option<Span>,
}

/// A network namespace.
#[derive(Clone, Debug)]
pub enum Target {
    /// A namespace with a name in /run/netns, or the path of a namespace's file.
    Name(String),
    /// The namespace of a process.
    Process(u32),
}

/// Why nothing was attached, or the link ended early.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such process.
    #[error("there is no process {0}, or it belongs to another user: {1}")]
    Process(u32, io::Error),
    /// There is no such namespace.
    #[error("there is no namespace `{name}`: {source}{known}")]
    Name {
        /// The name.
        name: String,
        /// The system's answer.
        source: io::Error,
        /// The existing namespaces, as part of the message.
        known: String,
    },
    /// The process lacks the privilege.
    #[error(
        "attaching changes the network of the namespace's owner: run it as root, or where the \
         namespace was created ({0})"
    )]
    Privilege(Privilege),
    /// No veth interface was found, or several.
    #[error("{target} has {found}; {hint}")]
    Interface {
        /// The namespace.
        target: String,
        /// The interfaces that it has.
        found: String,
        /// Advice to the user.
        hint: String,
    },
    /// The other end of the pair was not found.
    #[error(
        "the other end of `{0}` is in no namespace that this user may change; if another `sluice attach` \
         has a link there, end it first"
    )]
    Peer(String),
    /// Another link is in the place.
    #[error("`sluice attach`, process {process}, has a link at `{interface}`: end it first")]
    Attached {
        /// The namespace's interface.
        interface: String,
        /// The process of the other link.
        process: u32,
    },
    /// The machine's end has something that it would lose.
    #[error(
        "`{name}` would lose {} for good when it moves; remove it before, and set it again afterwards",
        .unkept.join(", ")
    )]
    Unkept {
        /// The machine's end.
        name: String,
        /// What it would lose.
        unkept: Vec<&'static str>,
    },
    /// BPF programs at the machine's end, which packets would not pass.
    #[error(
        "packets would not pass the BPF programs (tcx) of `{0}` while the link is attached; detach them \
         before, and attach them again afterwards"
    )]
    Tcx(String),
    /// The namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interfaces.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting of the namespace between.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The ports.
    #[error(transparent)]
    Port(#[from] PacketError),
    /// The memory of packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The watchdog ended. Without it, `kill -9` would leave the container without its network.
    #[error("the watchdog was killed: the link is detached")]
    Watchdog,
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// How a link ended.
#[derive(Debug)]
pub struct Detached {
    /// Whether the namespace ended before the link was detached. Its end of the pair ended with it.
    pub has_ended: bool,
    /// The reason, if an algorithm from a file has ended the link, or does not return. In the latter case
    /// the process must end by [`std::process::exit`] ([`sluice_loader::has_abandoned`]).
    pub ended: Option<String>,
    /// How exact the emulation was; without packets if an algorithm does not return.
    pub verdict: Verdict,
}

/// Puts the link in place, calls `attached` with the namespace's interface and the machine's, and
/// waits for a signal or the end of the namespace. Then restores the old state. Call it on the main
/// thread, before any other thread starts.
///
/// # Errors
/// [`AttachError`]; nothing has changed then.
pub fn attach(
    settings: &AttachSettings,
    attached: impl FnOnce(&str, &str),
) -> Result<Detached, AttachError> {
    let kernel = |step| move |source| AttachError::Kernel { step, source };
    let signals = Signals::catch().map_err(kernel("block signals"))?;
    // No descriptor of the namespace may stay open: otherwise its end would go unnoticed.
    let (inner, (machine, seat)) = {
        let target = open(&settings.target)?;
        let inner = choose(&target, settings.interface.as_deref())?;
        let outer = machine_of(&target, &inner)?;
        (inner, outer)
    };
    if !seat.unkept().is_empty() {
        return Err(AttachError::Unkept {
            name: seat.name.clone(),
            unkept: seat.unkept().to_vec(),
        });
    }
    let index = machine.links()?.interface(&seat.name)?.index;
    if machine.has_tcx(index)? {
        return Err(AttachError::Tcx(seat.name.clone()));
    }
    let kept = machine.interface_settings(&seat.name)?;
    let between = Namespace::create("between")?;
    between.silence_ipv6()?;
    let plug = Plug {
        machine,
        between,
        seat,
        settings: kept,
    };
    let spare = plug.try_clone()?;
    let watchdog = Watchdog::start(move || {
        let _ = spare.pull_out();
    });
    let watchdog = watchdog.map_err(kernel("start the watchdog"))?;
    let ended = plug
        .put_in()
        .and_then(|()| carry(settings, &plug, &inner, &signals, attached));
    let pulled = plug.pull_out();
    watchdog.dismiss();
    let detached = ended?;
    pulled?;
    Ok(detached)
}

/// The namespaces between which the machine's end moves.
struct Plug {
    machine: Namespace,
    between: Namespace,
    /// The place of the machine's end.
    seat: Seat,
    /// Its settings under `/proc/sys/net`.
    settings: InterfaceSettings,
}

impl Plug {
    fn try_clone(&self) -> Result<Plug, NamespaceError> {
        Ok(Plug {
            machine: self.machine.try_clone()?,
            between: self.between.try_clone()?,
            seat: self.seat.clone(),
            settings: self.settings.clone(),
        })
    }

    /// Returns the name of the new pair's end in the namespace between, where the machine's end keeps
    /// its own name.
    fn outside(&self) -> &'static str {
        match self.seat.name.as_str() {
            OUTSIDE => OTHER_OUTSIDE,
            _ => OUTSIDE,
        }
    }

    /// Moves the machine's end to the namespace between, and replaces it by a new pair.
    fn put_in(&self) -> Result<(), AttachError> {
        let (name, outside) = (&self.seat.name, self.outside());
        self.machine.links()?.move_to(name, &self.between)?;
        create_veth(
            VethEnd {
                namespace: &self.machine,
                name,
                mac: self.seat.mac,
            },
            VethEnd {
                namespace: &self.between,
                name: outside,
                mac: Mac([2, 0, 0, 0, 0, 1]),
            },
        )?;
        let mut links = self.between.links()?;
        links.set_mtu(outside, self.seat.mtu)?;
        for own in [name.as_str(), outside] {
            links.set_up(own, true)?;
        }
        self.take_seat(&self.seat)
    }

    /// Gives the machine's end that is there now the old one's place.
    fn take_seat(&self, seat: &Seat) -> Result<(), AttachError> {
        // Before the interface is up and has addresses.
        self.machine.restore_interface(&self.settings)?;
        self.machine.links()?.take_seat(seat)?;
        Ok(())
    }

    /// Moves the old end back, unless it has vanished or is already back.
    fn pull_out(&self) -> Result<(), AttachError> {
        // The interface that stood in may be under another bridge by now.
        let now = self.machine.links()?.interface(&self.seat.name);
        let mut between = self.between.links()?;
        if between.interface(self.outside()).is_ok() {
            // Both ends of the new pair vanish.
            between.remove(self.outside())?;
        }
        if between.interface(&self.seat.name).is_ok() {
            between.move_to(&self.seat.name, &self.machine)?;
            match now {
                Ok(now) => self.take_seat(&self.seat.under(now.bridge))?,
                Err(_) => self.take_seat(&self.seat)?,
            }
        }
        Ok(())
    }
}

/// Carries packets until the end.
fn carry(
    settings: &AttachSettings,
    plug: &Plug,
    inner: &Interface,
    signals: &Signals,
    attached: impl FnOnce(&str, &str),
) -> Result<Detached, AttachError> {
    let kernel = |step| move |source| AttachError::Kernel { step, source };
    let pool = Pool::on_demand(router::pool_size(&settings.links))?;
    let clock = Clock::start();
    let options = PacketOptions {
        timestamps: Some(clock),
        promiscuous: false,
        ..PacketOptions::default()
    };
    let near = PacketPort::open(&plug.between, &plug.seat.name, options)?;
    let far = PacketPort::open(&plug.between, plug.outside(), options)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = bell.map_err(|error| kernel("create an eventfd")(error.into()))?;
    let shared = Shared {
        pulse: Pulse::new(Arc::new(bell)),
        has_ended: Arc::default(),
        is_sending: Arc::default(),
    };
    let path = Path::new(settings.links.clone(), settings.seed);
    let routers = shared.clone();
    let ending = Ending::new();
    let of_router = ending.clone();
    let max_late = settings.max_late.unwrap_or(Span::MAX);
    let router = std::thread::Builder::new()
        .name("router".to_owned())
        .spawn(move || {
            let ports: Vec<Box<dyn Port>> = vec![Box::new(near), Box::new(far)];
            of_router.within(|| router::run(path, ports, pool, &clock, max_late, &routers, None))
        })
        .map_err(kernel("start a thread"))?;
    attached(&inner.name, &plug.seat.name);
    let mut hooks = HookWatch::new(&ending, Instant::now());
    let ended = wait(plug, signals, &mut hooks);
    shared.has_ended.store(true, Ordering::Release);
    shared.pulse.ring();
    let reports = hooks.join(router);
    Ok(Detached {
        has_ended: ended?,
        ended: ending.why().map(str::to_owned),
        verdict: Verdict::new(reports.unwrap_or_default(), settings.max_late),
    })
}

/// Waits for a signal, the end of the namespace, or an algorithm that ends the link. Returns
/// whether the namespace has ended.
fn wait(plug: &Plug, signals: &Signals, hooks: &mut HookWatch) -> Result<bool, AttachError> {
    let mut links = plug.between.links()?;
    loop {
        if hooks.ending().why().is_some() {
            return Ok(false);
        }
        if let Some(why) = hooks.news(Instant::now()) {
            report(&format!("{why}; Ctrl-C detaches the link"));
        }
        let signal = signals.next_within(LOOK);
        let signal = signal.map_err(|source| AttachError::Kernel {
            step: "wait for a signal",
            source,
        })?;
        match signal.map(|received| received.signal) {
            // The watchdog is the only child. A signal from an earlier child, which checked the
            // privileges, may still be pending.
            Some(Signal::CHILD) if !matches!(changed_child(), Ok(None)) => {
                return Err(AttachError::Watchdog);
            }
            Some(Signal::CHILD) | None => {}
            Some(_) => return Ok(false),
        }
        if links.interface(&plug.seat.name).is_err() {
            return Ok(true);
        }
    }
}

/// Opens the namespace. Enters its owner's user namespace if that is necessary and possible.
fn open(target: &Target) -> Result<Namespace, AttachError> {
    let namespace = match target {
        Target::Process(pid) => {
            if Privilege::probe() != Privilege::Capable {
                let entered = enter_user_namespace_of(*pid);
                entered.map_err(|source| AttachError::Process(*pid, source))?;
            }
            let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
            let missing = |error| match error {
                NamespaceError::Open { source, .. } => AttachError::Process(*pid, source),
                error => error.into(),
            };
            Namespace::open(&path).map_err(missing)?
        }
        Target::Name(name) => {
            let path = match name.contains('/') {
                true => PathBuf::from(name),
                false => FilePath::new(NAMES).join(name),
            };
            let missing = |error| match error {
                NamespaceError::Open { source, .. } => AttachError::Name {
                    name: name.clone(),
                    source,
                    known: known_names(),
                },
                error => error.into(),
            };
            Namespace::open(&path).map_err(missing)?
        }
    };
    match Privilege::probe() {
        Privilege::Capable => Ok(namespace),
        missing => Err(AttachError::Privilege(missing)),
    }
}

/// Returns the names of namespaces as part of a message.
fn known_names() -> String {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    match names.is_empty() {
        true => String::new(),
        false => format!("; there are {}", names.join(", ")),
    }
}

/// Returns the interface called `name`, or without a name the only end of a veth pair.
fn choose(target: &Namespace, name: Option<&str>) -> Result<Interface, AttachError> {
    let all = target.links()?.interfaces()?;
    let is_veth = |interface: &&Interface| interface.kind.as_deref() == Some("veth");
    let pairs: Vec<&Interface> = all.iter().filter(is_veth).collect();
    let names = |of: &[&Interface]| {
        let names: Vec<&str> = of.iter().map(|interface| interface.name.as_str()).collect();
        names.join(", ")
    };
    let target = target.name().to_owned();
    let wrong = |found: String, hint: &str| AttachError::Interface {
        target,
        found,
        hint: hint.to_owned(),
    };
    match (name, pairs.as_slice()) {
        (Some(name), pairs) => match pairs.iter().find(|interface| interface.name == name) {
            Some(interface) => Ok((*interface).clone()),
            None => Err(wrong(
                format!("no veth interface `{name}`"),
                &match pairs {
                    [] => "it has none at all".to_owned(),
                    pairs => format!("it has {}", names(pairs)),
                },
            )),
        },
        (None, [one]) => Ok((*one).clone()),
        (None, []) => Err(wrong(
            format!(
                "no veth interface, only {}",
                names(&all.iter().collect::<Vec<_>>())
            ),
            "a link can be put only into a pair, as containers have it",
        )),
        (None, several) => Err(wrong(
            format!("several veth interfaces: {}", names(several)),
            "choose one with --interface",
        )),
    }
}

/// Returns the namespace with the other end of a pair, and the place of that end. Searches the
/// calling thread's own namespace first, then all others that this process may change.
fn machine_of(target: &Namespace, inner: &Interface) -> Result<(Namespace, Seat), AttachError> {
    let mut seen = BTreeSet::new();
    let own = PathBuf::from("/proc/self/ns/net");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = processes.map(|process| process.path().join("ns/net"));
    for path in [own].into_iter().chain(others) {
        let Ok(file) = fs::metadata(&path) else {
            continue;
        };
        if !seen.insert((file.dev(), file.ino())) {
            continue;
        }
        let Ok(namespace) = Namespace::open(&path) else {
            continue;
        };
        let Ok(mut links) = namespace.links() else {
            continue;
        };
        let mut all = links.interfaces()?.into_iter();
        let Some(outer) = all.find(|other| may_be_pair(inner, other)) else {
            continue;
        };
        if is_pair(target, inner, &outer)? {
            return Ok((namespace, links.seat(&outer.name)?));
        }
    }
    let interface = inner.name.clone();
    Err(match process_attached_to(inner) {
        Some(process) => AttachError::Attached { interface, process },
        None => AttachError::Peer(interface),
    })
}

/// Returns the process of another link that has the other end of a pair. No process is in a namespace
/// between; that of the link has it open.
fn process_attached_to(inner: &Interface) -> Option<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |process: fs::DirEntry| process.file_name().to_str()?.parse().ok();
    let mut processes: Vec<u32> = processes.filter_map(number).collect();
    // The link is usually older than its watchdog, which also has the namespace open.
    processes.sort_unstable();
    let mut seen = BTreeSet::new();
    let mut is_between = |path: &FilePath| {
        let is_network = fs::read_link(path)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"net:["));
        let Some(file) = fs::metadata(path).ok().filter(|_| is_network) else {
            return false;
        };
        if !seen.insert((file.dev(), file.ino())) {
            return false;
        }
        let links = Namespace::open(path).map(|namespace| namespace.links());
        let Ok(Ok(mut links)) = links else {
            return false;
        };
        // With `OTHER_OUTSIDE`, the machine's end is `OUTSIDE`.
        links.interface(OUTSIDE).is_ok()
            && links
                .interfaces()
                .is_ok_and(|all| all.iter().any(|other| may_be_pair(inner, other)))
    };
    processes.into_iter().find(|process| {
        let opened = fs::read_dir(format!("/proc/{process}/fd"));
        let mut opened = opened.into_iter().flatten().flatten();
        opened.any(|descriptor| is_between(&descriptor.path()))
    })
}

/// Returns whether the indexes of two interfaces are those of a pair.
fn may_be_pair(inner: &Interface, other: &Interface) -> bool {
    inner.peer == Some(other.index)
        && other.peer == Some(inner.index)
        && other.kind.as_deref() == Some("veth")
}

/// Returns whether two interfaces whose indexes match are indeed a pair. Indexes are unique only
/// within a namespace, so this compares the bytes that one has sent with those that the other has
/// received.
fn is_pair(target: &Namespace, inner: &Interface, outer: &Interface) -> Result<bool, LinkError> {
    let now = target.links()?.interface(&inner.name)?;
    let (before, after) = (inner.traffic, now.traffic);
    let received = before.received..=after.received;
    Ok(received.contains(&outer.traffic.sent))
}

/// Namespaces with names, as `ip netns` creates them.
const NAMES: &str = "/run/netns";
/// The end of the new pair in the namespace between.
const OUTSIDE: &str = "outside";
/// Its name if the machine's end is called [`OUTSIDE`].
const OTHER_OUTSIDE: &str = "outside2";
/// How often to look whether the namespace still exists.
const LOOK: Duration = Duration::from_millis(100);
