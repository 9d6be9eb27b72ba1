//! A process that lets a kernel bridge forward while a router cannot.
//!
//! The guardian is started before the router has other threads. It keeps CAP_NET_ADMIN only, and waits
//! for the router's signs of life on a pipe. If they cease, or the pipe is closed because the router
//! has ended, the guardian creates a bridge over the two interfaces of each pair. It removes these
//! bridges when the router gives signs of life again. A router that is started later removes them
//! itself ([`take_back`]), since the guardian ends after the router.
//!
//! A router that resumes discards what its bridges have forwarded meanwhile ([`Bridging`]). Until the
//! guardian has removed them, both forward for some milliseconds: frames may arrive twice, but nothing
//! circulates, because neither receives what the other sends.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sluice_core::Time;

use crate::clock::Clock;
use crate::confine::{Confinement, Keep, User, confine};
use crate::namespace::{Interface, LinkError, Links, Namespace};
use crate::sys::{self, SharedNumber};

/// The two interfaces of a bridge.
pub type Pair = [String; 2];

/// The router's end: a guardian that watches this process.
#[derive(Debug)]
pub struct Guardian {
    life: PipeWriter,
    bridging: Bridging,
}

/// When the bridges of a guardian last took over. Clones are equal, also in the guardian's process.
#[derive(Clone)]
pub struct Bridging {
    /// The reading of CLOCK_MONOTONIC in ns; zero for never.
    began: SharedNumber,
}

impl Bridging {
    /// Nothing has taken over yet.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new() -> io::Result<Bridging> {
        let began = SharedNumber::new()?;
        Ok(Bridging { began })
    }

    /// Notes that bridges over all pairs forward from now on.
    pub fn begin(&self) {
        let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
        self.began.get().store(now, Ordering::Release);
    }

    /// Notes that it is not known what forwards.
    pub fn forget(&self) {
        self.began.get().store(0, Ordering::Release);
    }

    /// Returns when bridges over all pairs last began to forward. They may be gone again.
    pub fn began(&self, clock: &Clock) -> Option<Time> {
        let began = self.began.get().load(Ordering::Acquire);
        (began > 0).then(|| clock.at_monotonic(began))
    }
}

impl fmt::Debug for Bridging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bridging").field(self.began.get()).finish()
    }
}

/// The reasons why there is no guardian.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    /// The process cannot be started.
    #[error("cannot start the process that watches the router: {0}")]
    Start(#[from] io::Error),
    /// A bridge would not be possible.
    #[error("{0}")]
    Impossible(String),
}

impl Guardian {
    /// Starts a guardian for interfaces of `namespace`, and waits until it has verified that it could
    /// create the bridges. It becomes `user`, and does nothing before [`Guardian::arm`] or the first
    /// [`Guardian::beat`]. Must be called while there are no other threads.
    ///
    /// # Errors
    /// [`GuardianError`]; nothing is left then.
    pub fn start(
        namespace: &Namespace,
        pairs: &[Pair],
        user: Option<User>,
    ) -> Result<Guardian, GuardianError> {
        let bridging = Bridging::new()?;
        let of_child = bridging.clone();
        let (signs, life) = io::pipe()?;
        let (mut verdict, mut told) = io::pipe()?;
        let ours = [life.as_raw_fd(), verdict.as_raw_fd()];
        sys::in_child(move || {
            // Neither Ctrl-C nor the end of a service's processes ends the guardian before the router.
            let _ = rustix::process::setsid();
            let signals = sys::signal_set(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM]);
            let _ = sys::set_signal_mask(&signals);
            sys::close_some(&[0, 1]);
            sys::close_some(&ours);
            let _ = rustix::thread::set_name(c"guardian");
            match prepare(namespace, pairs, user) {
                Ok(links) => {
                    drop(told);
                    Watch::new(links, pairs, &of_child).run(signs);
                }
                Err(why) => drop(told.write_all(why.as_bytes())),
            }
        })?;
        // The child has the other ends. Its answer ends when it has closed its own.
        let mut why = String::new();
        verdict.read_to_string(&mut why)?;
        if !why.is_empty() {
            return Err(GuardianError::Impossible(why));
        }
        let flags = fcntl_getfl(&life).map_err(io::Error::from)?;
        fcntl_setfl(&life, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
        Ok(Guardian { life, bridging })
    }

    /// Returns what tells when the bridges last took over.
    pub fn bridging(&self) -> Bridging {
        self.bridging.clone()
    }

    /// Makes the guardian create the bridges if this process ends or drops this. Silence counts from the
    /// first [`Guardian::beat`].
    pub fn arm(&mut self) {
        let _ = self.life.write(&[ARMED]);
    }

    /// Gives a sign of life. Never blocks. Returns whether the guardian lives.
    pub fn beat(&mut self) -> bool {
        let given = self.life.write(&[BEAT]);
        // A full pipe has signs enough, and a closed one no guardian.
        !given.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Ends the guardian without a bridge.
    pub fn dismiss(mut self) {
        let _ = self.life.write(&[DISMISSED]);
    }
}

/// Returns the names of the bridges of a guardian over any of these interfaces.
///
/// # Errors
/// The interfaces cannot be listed.
pub fn standing(links: &mut Links, interfaces: &[&str]) -> Result<Vec<String>, LinkError> {
    let all = links.interfaces()?;
    let given: Vec<&Interface> = all
        .iter()
        .filter(|link| interfaces.contains(&&*link.name))
        .collect();
    // A bridge that is not complete may have none of its interfaces.
    let is_theirs = |bridge: &Interface| {
        let mut given = given.iter();
        given.any(|link| link.bridge == Some(bridge.index) || bridge.name == name_for(link))
    };
    let bridges = all
        .iter()
        .filter(|link| is_guardians(link) && is_theirs(link));
    Ok(bridges.map(|bridge| bridge.name.clone()).collect())
}

/// Removes the bridges of a guardian over any of these interfaces. Returns their names.
///
/// # Errors
/// The interfaces cannot be listed, or a bridge cannot be removed.
pub fn take_back(links: &mut Links, interfaces: &[&str]) -> Result<Vec<String>, LinkError> {
    let bridges = standing(links, interfaces)?;
    for name in &bridges {
        links.remove(name)?;
    }
    Ok(bridges)
}

/// Whether an interface is a bridge of a guardian.
fn is_guardians(link: &Interface) -> bool {
    link.kind.as_deref() == Some("bridge") && link.name.starts_with(PREFIX)
}

/// Opens the socket for changes, gives up all other privileges, and verifies that the bridges are
/// possible.
fn prepare(namespace: &Namespace, pairs: &[Pair], user: Option<User>) -> Result<Links, String> {
    let mut links = namespace.links().map_err(|error| error.to_string())?;
    let confinement = Confinement {
        keep: Keep::NetAdmin,
        user,
        ..Confinement::STRICT
    };
    confine(confinement).map_err(|error| error.to_string())?;
    let members: Vec<&str> = pairs.iter().flatten().map(String::as_str).collect();
    let all = links.interfaces().map_err(|error| error.to_string())?;
    for name in &members {
        let link = links.interface(name).map_err(|error| error.to_string())?;
        if let Some(index) = link.bridge {
            let holder = all.iter().find(|link| link.index == index);
            if holder.is_some_and(is_guardians) {
                // The router removes it when it forwards.
                continue;
            }
            let holder = holder.map_or("another interface", |link| &link.name);
            return Err(format!(
                "interface {name:?} belongs to {holder:?}: --fail-open needs interfaces that belong \
                 to no bridge, bond or VRF"
            ));
        }
        let is_ethernet = link.mac.is_some_and(|mac| mac.0 != [0; 6]);
        if !is_ethernet || link.kind.as_deref() == Some("bridge") {
            return Err(format!(
                "interface {name:?} cannot be part of a kernel bridge: --fail-open needs Ethernet \
                 interfaces that are no bridges themselves"
            ));
        }
    }
    let rehearsed = format!("{PREFIX}t{}", std::process::id());
    links
        .create_bridge(&rehearsed, &[])
        .and_then(|()| links.remove(&rehearsed))
        .map_err(|error| format!("--fail-open is not possible: {error}"))?;
    Ok(links)
}

/// Returns the name of the bridge whose first interface is this one.
fn name_for(first: &Interface) -> String {
    format!("{PREFIX}{:x}", first.index)
}

/// The guardian's own state.
struct Watch<'a> {
    links: Links,
    pairs: &'a [Pair],
    /// Whether the router gives no signs of life.
    is_silent: bool,
    /// Whether a bridge over each pair stands.
    is_complete: bool,
    /// Whether a bridge, or a part of one, may stand.
    has_begun: bool,
    /// The names of the bridges that stand.
    made: Vec<String>,
    bridging: &'a Bridging,
}

impl Watch<'_> {
    fn new<'a>(links: Links, pairs: &'a [Pair], bridging: &'a Bridging) -> Watch<'a> {
        Watch {
            links,
            pairs,
            is_silent: false,
            is_complete: false,
            has_begun: false,
            made: Vec::new(),
            bridging,
        }
    }

    fn run(mut self, mut signs: PipeReader) {
        let (mut is_armed, mut has_lived) = (false, false);
        loop {
            let patience = match self.is_silent {
                false => PATIENCE,
                true => RETRY,
            };
            let patience = (has_lived && !self.is_complete).then_some(patience);
            let asked = Instant::now();
            if !is_readable(&signs, patience) {
                // The call also returns when the guardian was stopped and continued.
                if patience.is_some_and(|patience| asked.elapsed() >= patience) {
                    // If a bridge is not possible, the next turn tries again.
                    let _ = self.take_over("gives no sign of life");
                }
                continue;
            }
            let mut bytes = [0; 64];
            match signs.read(&mut bytes) {
                // An error is not the end: the router lives.
                Err(_) => std::thread::sleep(RETRY),
                Ok(0) => {
                    if is_armed {
                        self.succeed();
                    }
                    return;
                }
                Ok(count) if bytes[..count].contains(&DISMISSED) => {
                    self.give_back();
                    return;
                }
                Ok(count) => {
                    is_armed = true;
                    has_lived |= bytes[..count].contains(&BEAT);
                    self.give_back();
                }
            }
        }
    }

    /// Makes the bridges stand after the end of the router. Waits for an interface that is being created
    /// again.
    fn succeed(&mut self) {
        for _ in 1..MOST_ATTEMPTS {
            if self.take_over("has ended").is_ok() {
                return;
            }
            std::thread::sleep(RETRY);
        }
        if let Err(error) = self.take_over("has ended") {
            say(&format!("no kernel bridge takes its place: {error}"));
        }
    }

    /// Creates the bridges that are missing, unless a bridge that stood was removed: another router
    /// forwards in its place then, and what is missing is no longer this guardian's.
    fn take_over(&mut self, why: &str) -> Result<(), String> {
        if let Some(name) = self.removed() {
            self.is_complete = true;
            self.bridging.forget();
            say(&format!(
                "kernel bridge {name} was removed by another program: no other one is created"
            ));
            return Ok(());
        }
        let mut failure = None;
        self.has_begun = true;
        for pair in self.pairs {
            match self.bridge(pair) {
                Ok(Some(name)) => {
                    say(&format!(
                        "the router {why}: kernel bridge {name} connects {} and {}",
                        pair[0], pair[1]
                    ));
                    self.made.push(name);
                }
                Ok(None) => {}
                Err(error) => failure = Some(error.to_string()),
            }
        }
        self.is_complete = failure.is_none();
        let was_silent = std::mem::replace(&mut self.is_silent, true);
        let Some(error) = failure else {
            self.bridging.begin();
            return Ok(());
        };
        if !was_silent {
            say(&format!("the router {why}: {error}"));
        }
        Err(error)
    }

    /// Returns a bridge that stood and no longer exists.
    fn removed(&mut self) -> Option<String> {
        let all = match self.made.is_empty() {
            true => return None,
            // If the interfaces cannot be listed, it is taken to stand.
            false => self.links.interfaces().ok()?,
        };
        let exists = |name: &&String| all.iter().any(|link| link.name == **name);
        self.made.iter().find(|name| !exists(name)).cloned()
    }

    /// Creates one bridge, and returns its name. Returns `None` if it stands already.
    fn bridge(&mut self, pair: &Pair) -> Result<Option<String>, LinkError> {
        let first = self.links.interface(&pair[0])?;
        let second = self.links.interface(&pair[1])?;
        let name = name_for(&first);
        if let Ok(bridge) = self.links.interface(&name) {
            let holder = Some(bridge.index);
            if bridge.is_up && first.bridge == holder && second.bridge == holder {
                return Ok(None);
            }
            // What an attempt left that failed halfway.
            self.links.remove(&name)?;
            self.made.retain(|made| *made != name);
        }
        let created = self.links.create_bridge(&name, &[&pair[0], &pair[1]]);
        if created.is_err() {
            // It may have one of the two.
            let _ = self.links.remove(&name);
        }
        created.map(|()| Some(name))
    }

    /// Removes the bridges, and what there is of them, because the router gives signs of life.
    fn give_back(&mut self) {
        (self.is_silent, self.is_complete) = (false, false);
        self.made.clear();
        if !self.has_begun {
            return;
        }
        let members: Vec<&str> = self.pairs.iter().flatten().map(String::as_str).collect();
        match take_back(&mut self.links, &members) {
            Ok(names) => {
                self.has_begun = false;
                for name in names {
                    say(&format!(
                        "the router forwards again: kernel bridge {name} is removed"
                    ));
                }
            }
            // The next sign of life, a tenth of a second later, leads here again.
            Err(error) => say(&format!(
                "the router forwards again, but its kernel bridges cannot be removed: {error}"
            )),
        }
    }
}

fn is_readable(signs: &PipeReader, patience: Option<Duration>) -> bool {
    let mut polls = [libc::pollfd {
        fd: signs.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    sys::poll(&mut polls, patience) > 0
}

/// Writes a line for the operator, whose terminal may be gone.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "sluice: {text} (--fail-open)");
}

/// The beginning of the names of all bridges of guardians.
pub const PREFIX: &str = "slopen-";
/// A router that gives no sign of life for this long is taken for hung. It gives ten a second.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// The interval between two attempts to create a bridge.
const RETRY: Duration = Duration::from_millis(100);
/// Attempts after the end of the router: for ten seconds.
const MOST_ATTEMPTS: u32 = 100;
const ARMED: u8 = b'a';
const BEAT: u8 = b'b';
const DISMISSED: u8 = b'q';
