//! A kernel bridge that forwards while the router cannot.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_net::guardian::{Guardian, GuardianError, PATIENCE, Pair, standing, take_back};
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::port::registry;

use super::{Health, Pulse, Settings};

/// The reasons why no kernel bridge can take over.
#[derive(Debug, thiserror::Error)]
pub enum FailOpenError {
    /// The packets are those of the kernel's own stack.
    #[error(
        "--fail-open is for bridges between interfaces; `--fail bypass` is for --forward and --local"
    )]
    Hooked,
    /// A kernel bridge cannot contain the port, or would receive nothing from it.
    #[error(
        "--fail-open needs ports of the kind `packet`, or interfaces without a kind: a kernel bridge \
         cannot replace {0}"
    )]
    Port(String),
    /// The ports do not come in pairs.
    #[error("ports come in pairs: give two, or four, ..., not {0}")]
    Odd(usize),
    /// The namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The guardian.
    #[error(transparent)]
    Guardian(#[from] GuardianError),
}

impl Settings {
    /// Starts a process that connects the interfaces of each pair with a kernel bridge if this process
    /// ends or its loop hangs; see [`Router::guard`](super::Router::guard). Interfaces whose kind is
    /// not given become `packet` ports, since an XDP program would take the frames from the bridge
    /// while the loop hangs. Must be called while the process has no other threads.
    ///
    /// # Errors
    /// [`FailOpenError`].
    pub fn fail_open(&mut self) -> Result<Guardian, FailOpenError> {
        if self.hooked.is_some() {
            return Err(FailOpenError::Hooked);
        }
        if !self.ports.len().is_multiple_of(2) {
            return Err(FailOpenError::Odd(self.ports.len()));
        }
        let packet = registry::kind("packet").expect("the registry has the kind of packet sockets");
        for port in &mut self.ports {
            match port.kind() {
                None => *port = port.clone().or_kind(packet),
                Some(kind) if kind.name == packet.name => {}
                Some(_) => return Err(FailOpenError::Port(port.to_string())),
            }
        }
        let pairs: Vec<Pair> = self
            .ports
            .chunks_exact(2)
            .map(|pair| [0, 1].map(|end| pair[end].argument().to_owned()))
            .collect();
        let namespace = match &self.namespace {
            Some(path) => Namespace::open(path)?,
            None => Namespace::current()?,
        };
        Ok(Guardian::start(&namespace, &pairs, self.user)?)
    }
}

/// Removes kernel bridges that took over when an earlier router ended. If there are some, arms the guardian
/// before, which restores them if the start fails. Returns what an operator should know about that.
pub(super) fn take_over_from_bridges(
    namespace: &Namespace,
    names: &[String],
    mut guardian: Option<&mut Guardian>,
) -> Vec<String> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut take = || {
        let mut links = namespace.links()?;
        if let Some(guardian) = &mut guardian
            && !standing(&mut links, &names)?.is_empty()
        {
            guardian.arm();
        }
        take_back(&mut links, &names)
    };
    // The kernel may be short of memory for a moment.
    match take().or_else(|_| take()) {
        Ok(bridges) => bridges
            .iter()
            .map(|bridge| {
                format!(
                    "kernel bridge {bridge} is removed: it forwarded while no router did \
                     (--fail-open)"
                )
            })
            .collect(),
        Err(error) => vec![format!(
            "a kernel bridge of --fail-open may still forward beside this router, because {error}; \
             `ip link delete slopen-N` removes it"
        )],
    }
}

/// The thread that gives signs of life as long as the loop turns.
pub(super) struct Heartbeat {
    end: SyncSender<()>,
    thread: JoinHandle<Guardian>,
}

impl Heartbeat {
    /// `health` learns whether the guardian lives.
    pub(super) fn start(
        mut guardian: Guardian,
        mut pulse: Pulse,
        health: &Arc<Health>,
    ) -> io::Result<Heartbeat> {
        let of_thread = Arc::clone(health);
        let (end, ended) = sync_channel(1);
        let (give, given) = sync_channel::<Guardian>(1);
        let thread = std::thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || {
                let mut guardian = given.recv().expect("the guardian is sent");
                loop {
                    let began = Instant::now();
                    if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                        break;
                    }
                    // After a pause of the whole process, the loops may have turned before it only.
                    let has_paused = began.elapsed() >= PATIENCE;
                    // All loops must turn.
                    if pulse.has_turned() && !has_paused {
                        of_thread.note_guardian(guardian.beat());
                    }
                    pulse.count();
                }
                guardian
            })?;
        // The caller may count on the guardian from now on. Without a thread it got no sign.
        health.note_guardian(guardian.beat());
        give.send(guardian).expect("the thread waits for it");
        Ok(Heartbeat { end, thread })
    }

    /// Ends the guardian without a bridge.
    pub(super) fn dismiss(self) {
        drop(self.end);
        if let Ok(guardian) = self.thread.join() {
            guardian.dismiss();
        }
    }
}

/// The interval between two signs of life.
const EVERY: Duration = Duration::from_millis(100);
