//! The router as a process: opens the ports, runs the loop on its own thread, accepts commands.
//!
//! [`Router::start`] opens ports, engine and control socket, or fails and opens nothing. The loop's
//! thread owns the engine; other threads send it orders (`control::Order`), which it executes
//! between two batches of packets.

mod config;
mod edit;
mod fail_open;
mod health;
mod held;
mod hooked;
mod kernel_paths;
mod ports;
mod pulse;
mod reload;
mod ruled;
mod running;
mod start;
mod status;
pub mod watch;

pub use config::{Checked, Config, ConfigError, at, check, text_of};
pub use edit::{EditForm, Editor};
pub use fail_open::FailOpenError;
pub use health::InterfaceState;
pub use hooked::Hooked;
pub use pulse::Pulse;
pub use reload::{ReloadError, Reloader};
pub use ruled::Ruled;
/// For the other threads of a program whose router is confined.
pub use sluice_net::confine;
/// The types of [`Hooked`].
pub use sluice_net::port::nfqueue::{Hook, IfDead, Mark, Traffic};
/// For logs with addresses of others.
pub use sluice_net::port::pcap::append_privately;
/// The types of [`Settings`], and the kinds of port that a [`PortSpec`] names.
pub use sluice_net::port::{PoolSize, PortSpec, Spin, registry};
/// For the other commands, of which SIGHUP asks an end.
pub use sluice_net::process::ignores_hang_up;
pub use start::{MOST_PORTS, MOST_WORKERS, StartError, confinement};
pub use status::{PortStatus, Status, StatusAsked, WorkerStatus};

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Rate, Span, Stop};
use sluice_ipfw::LogEntry;
use sluice_loader::Ending;
use sluice_net::cores::IdleLimit;
use sluice_net::guardian::Guardian;

use health::Health;
use watch::Watcher;

use crate::control::{
    Answered, Bell, Change, Listener, Orders, Refused, Remark, TeamStatus as _, Work,
};

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ports of the router: each consecutive pair is a bridge.
    pub ports: Vec<PortSpec>,
    /// The packets of the kernel's stack to queue, instead of ports.
    pub hooked: Option<Hooked>,
    /// The namespace of the ports; the caller's if `None`.
    pub namespace: Option<PathBuf>,
    /// The file of commands to start with, and to reload.
    pub config: Option<PathBuf>,
    /// Commands to start with, if there is no file.
    pub commands: Option<String>,
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
    /// Frames whose headers hide what rules match are dropped ([`Ruled::strict`]).
    pub is_strict: bool,
    /// The round-trip times of flows are measured ([`crate::rtt`]).
    pub measures_rtt: bool,
    /// The router's threads and the calling one give up their privileges once the ports are open;
    /// see [`confine`].
    pub is_confined: bool,
    /// The user that the router's threads become if they give up their privileges.
    pub user: Option<confine::User>,
    /// The way in which the loop waits for due packets.
    pub spin: Spin,
    /// How late packets may leave, so that one wake-up serves several
    /// ([`Forwarder::set_slack`](crate::forward::Forwarder::set_slack)).
    pub slack: Span,
    /// The number of workers: loops with one part of the traffic each.
    pub workers: usize,
    /// Whether the bridges are spread over the workers: worker `n` receives from the ports of bridge
    /// `n`, and has all pipes of a mask if it has their number. Otherwise flows are spread.
    pub by_bridge: bool,
    /// The core that each worker is pinned to; the kernel chooses if there are none.
    pub cores: Vec<usize>,
    /// The limit of idle-state exit latency for all cores while the router runs; the machine's own
    /// if `None`.
    pub cpu_latency: Option<Span>,
    /// The size of the packet memory.
    pub pool: PoolSize,
    /// Ends a start under way, for example at a signal.
    pub ending: Stop,
}

impl Settings {
    /// A bridge between two ports, without configuration and socket.
    pub fn new(left: PortSpec, right: PortSpec) -> Settings {
        Settings {
            ports: vec![left, right],
            hooked: None,
            namespace: None,
            config: None,
            commands: None,
            socket: None,
            engine: sluice_ipfw::Settings::default(),
            seed: None,
            split_below: SPLIT_BELOW,
            is_strict: false,
            measures_rtt: false,
            is_confined: false,
            user: None,
            spin: Spin::default(),
            slack: Span::ZERO,
            workers: 1,
            by_bridge: false,
            cores: Vec::new(),
            cpu_latency: None,
            pool: POOL,
            ending: Stop::new(),
        }
    }

    /// A router of the kernel's own packets, without configuration and socket.
    pub fn hooked(hooked: Hooked) -> Settings {
        Settings {
            ports: Vec::new(),
            hooked: Some(hooked),
            ..Settings::new(PortSpec::auto(""), PortSpec::auto(""))
        }
    }
}

/// 64 MiB of packets, and 64 MiB of super-packets: some 30 ms at 10 Gbit/s, or 0.5 s at 1 Gbit/s.
pub const POOL: PoolSize = PoolSize {
    slots: 32_768,
    large: 1_024,
};

/// A router that runs until [`Router::stop`], or until this is dropped.
pub struct Router {
    stop: Stop,
    ending: Ending,
    orders: Orders<Status>,
    reloader: Reloader,
    listener: Option<Listener>,
    /// The loops of the workers.
    threads: Vec<JoinHandle<Status>>,
    is_through: Arc<AtomicBool>,
    remarks: Vec<Remark>,
    port_remarks: Vec<String>,
    choices: Vec<PortChoice>,
    idle_limit: Option<IdleLimit>,
    log: Mutex<Option<Receiver<LogEntry>>>,
    watcher: Watcher,
    /// By worker; grows with each turn of its loop.
    pulses: Vec<Arc<AtomicU64>>,
    plays_files: bool,
    heartbeat: Option<fail_open::Heartbeat>,
    health: Arc<Health>,
    _held: held::Held,
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

    /// Returns the status.
    ///
    /// # Errors
    /// The loop does not answer.
    pub fn status(&self) -> Result<Status, Refused> {
        self.health.look();
        match self.orders.order(Work::Status, PATIENCE)? {
            Answered::Status(status) => Ok(*status),
            Answered::Commands(..)
            | Answered::Survey(_)
            | Answered::Watched(_)
            | Answered::Replaced(_)
            | Answered::Draft(_)
            | Answered::Stale(_) => {
                unreachable!("a request for the status is answered with the status")
            }
        }
    }

    /// Returns what hands out samples of the traffic.
    pub const fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Returns what changes the configuration for a page.
    pub fn editor(&self) -> Editor {
        Editor::new(self.orders.clone())
    }

    /// Returns the changes of the configuration behind the first `number`, as far as they are kept,
    /// and the number of all changes so far.
    pub fn changes_since(&self, number: u64) -> (Vec<Change>, u64) {
        self.orders.journal().since(number)
    }

    /// Returns the ports' interfaces, and whether each of them is up. One that is gone is not.
    pub fn interfaces_up(&self) -> Vec<(String, bool)> {
        let Ok(mut links) = self.reloader.namespace.links() else {
            return Vec::new();
        };
        let mut is_up = |name: &str| links.interface(name).is_ok_and(|found| found.is_up);
        let names = self.reloader.names.iter();
        names.map(|name| (name.clone(), is_up(name))).collect()
    }

    /// Requests the status, without waiting for the answer. The states of the interfaces in it may be those
    /// of an earlier status.
    ///
    /// # Errors
    /// Too many orders are waiting for the loop, or the loop has ended.
    pub fn ask_status(&self) -> Result<StatusAsked, Refused> {
        StatusAsked::of(&self.orders)
    }

    /// Reloads the configuration ([`Reloader::reload`]).
    ///
    /// # Errors
    /// [`ReloadError`]; the old configuration stays in force.
    pub fn reload(&self) -> Result<Vec<Remark>, ReloadError> {
        self.reloader.reload()
    }

    /// Returns what reloads the configuration. It does not keep the router from ending.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Returns a receiver of the entries of `log` rules; `None` from the second call on. Entries
    /// that find no room are counted in [`Status::log_lost`]. If the receiver is not read, these
    /// are soon all entries.
    pub fn take_log(&self) -> Option<Receiver<LogEntry>> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.take()
    }

    /// Gives the guardian signs of life from now on, while packets are forwarded.
    ///
    /// # Errors
    /// A thread cannot be started. The guardian is dropped then, as at a failed start.
    pub fn guard(&mut self, guardian: Guardian) -> io::Result<()> {
        let heartbeat = fail_open::Heartbeat::start(guardian, self.pulse(), &self.health)?;
        self.heartbeat = Some(heartbeat);
        Ok(())
    }

    /// Returns what counts the turns of the loops.
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.orders.bells().cloned().collect(), self.pulses.clone())
    }

    /// Returns whether the router plays files. Its loop then may wait for a disk, or for the reader of a
    /// pipe.
    pub const fn plays_files(&self) -> bool {
        self.plays_files
    }

    /// Returns whether a kernel bridge forwards while the loops hang, because the guardian of
    /// [`Router::guard`] lives.
    pub fn is_guarded(&self) -> bool {
        self.health.is_guarded()
    }

    /// Returns whether nothing is left to do, because the files that the router plays have ended or
    /// an algorithm has ended the run. Also true if the loop has panicked; [`Router::stop`] passes
    /// the panic on.
    pub fn has_ended(&self) -> bool {
        self.is_through.load(Ordering::Acquire)
            || self.threads.iter().any(JoinHandle::is_finished)
            || self.failure().is_some()
    }

    /// Returns why an algorithm from a file ended the run (`on_error end`), if one did. Until it is
    /// stopped, the router continues without that algorithm.
    pub fn failure(&self) -> Option<&str> {
        self.ending.why()
    }

    /// Stops the router and returns its final status. Packets that are still queued are dropped.
    ///
    /// # Panics
    /// If the loop panicked.
    pub fn stop(mut self) -> Status {
        self.health.look();
        let status = |ended: thread::Result<Status>| {
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let mut statuses: Vec<Status> = self.end().into_iter().map(status).collect();
        match statuses.len() {
            1 => statuses.remove(0),
            _ => Status::join(statuses),
        }
    }

    /// Ends the threads of the router, and returns the result of each worker; none the second time.
    fn end(&mut self) -> Vec<thread::Result<Status>> {
        drop(self.listener.take());
        self.stop.stop();
        self.orders.bells().for_each(Bell::ring);
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        let heartbeat = self.heartbeat.take();
        if let Some(heartbeat) = heartbeat.filter(|_| ended.iter().all(Result::is_ok)) {
            heartbeat.dismiss();
        }
        ended
    }
}

impl Drop for Router {
    /// Stops the router: its interfaces are free afterwards, and a loop that still had them would
    /// forward what the next router forwards, too.
    fn drop(&mut self) {
        self.end();
    }
}

/// The loop answers between two batches: within milliseconds unless the machine is overloaded.
const PATIENCE: Duration = Duration::from_secs(30);
