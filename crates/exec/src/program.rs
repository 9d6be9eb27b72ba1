//! The program and its server, from the start to the exit status.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::pulse::Pulse;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use sluice_loader::{HookWatch, report};
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::process::{Change, Signals, SpawnError, Surroundings, changed_child, stop_like};

/// The reason why a program did not run or its exit status is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("cannot run {}: {source}", .program.display())]
    Spawn {
        /// Which program.
        program: OsString,
        /// Why.
        source: SpawnError,
    },
    /// The server ended before it listened.
    #[error("the server ended before it listened on a port: {}", .0.display())]
    ServerEnded(OsString),
    /// The server does not listen.
    #[error("the server listens on no port after {} s: {}", PATIENCE.as_secs(), .0.display())]
    ServerSilent(OsString),
    /// A signal ended the wait for the server.
    #[error("{} while waiting until the server listens: {}", signal_name(*.signal), .server.display())]
    Interrupted {
        /// Which signal.
        signal: Signal,
        /// The server.
        server: OsString,
    },
    /// A signal ended the wait for the reader of a capture.
    #[error("{} while waiting for a reader of {}", signal_name(*.signal), .capture.display())]
    Unread {
        /// Which signal.
        signal: Signal,
        /// The capture.
        capture: PathBuf,
    },
    /// Its namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Signals or children could not be waited for.
    #[error("cannot wait for the program: {0}")]
    Wait(#[from] io::Error),
}

impl ProgramError {
    /// Returns the exit status that a shell would set.
    pub fn status(&self) -> u8 {
        match self {
            ProgramError::Spawn {
                source: SpawnError::Program(error),
                ..
            } => match error.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            },
            ProgramError::Interrupted { signal, .. } | ProgramError::Unread { signal, .. } => {
                128 + signal.as_raw() as u8
            }
            _ => crate::FAILED,
        }
    }
}

/// Checks whether there is a program that may be executed, before anything is done for it. It is
/// searched for as by execvp(3).
pub fn check(words: &[OsString]) -> Result<(), ProgramError> {
    let program = words.first().expect("there is a program to run");
    let is_path = program.as_bytes().contains(&b'/');
    let files: Vec<PathBuf> = match std::env::var_os("PATH") {
        _ if is_path => vec![program.into()],
        Some(folders) => std::env::split_paths(&folders)
            .map(|folder| folder.join(program))
            .collect(),
        // The C library has folders of its own for this case.
        None => return Ok(()),
    };
    let mut reason = io::Error::from(Errno::NOENT);
    for file in files {
        match file.metadata() {
            Ok(found) if found.is_file() && found.mode() & EXECUTABLE != 0 => return Ok(()),
            Ok(_) => reason = Errno::ACCESS.into(),
            Err(error) if is_path || error.kind() == io::ErrorKind::PermissionDenied => {
                reason = error;
            }
            Err(_) => {}
        }
    }
    Err(ProgramError::Spawn {
        program: program.clone(),
        source: SpawnError::Program(reason),
    })
}

/// Starts a program as a child of the calling thread.
pub fn spawn(words: &[OsString], around: &Surroundings<'_>) -> Result<Pid, ProgramError> {
    let (program, arguments) = words.split_first().expect("there is a program to run");
    let mut command = Command::new(program);
    command.args(arguments);
    let spawned = sluice_net::process::spawn(&mut command, around);
    spawned.map_err(|source| ProgramError::Spawn {
        program: program.clone(),
        source,
    })
}

/// A server that was started. It is asked to end when this is dropped.
pub struct Serving<'a> {
    server: Pid,
    namespace: &'a Namespace,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        dismiss(self.server, self.namespace);
    }
}

/// Starts the server and waits until it listens. After [`UNNOTICED`], `on_wait` receives what it waits
/// for. A signal that would end this process ends the wait.
pub fn serve<'a>(
    command: &OsStr,
    namespace: &'a Namespace,
    around: &Surroundings<'_>,
    signals: &Signals,
    on_wait: fn(&str),
) -> Result<Serving<'a>, ProgramError> {
    let words = [OsStr::new("/bin/sh"), OsStr::new("-c"), command].map(OsStr::to_owned);
    let server = spawn(&words, around)?;
    let serving = Serving { server, namespace };
    let start = Instant::now();
    let mut is_told = false;
    while !namespace.enter(listens)? {
        if matches!(changed_child(), Ok(Some((pid, change))) if pid == server && change != Change::Stopped)
        {
            return Err(ProgramError::ServerEnded(command.to_owned()));
        }
        if !is_told && start.elapsed() > UNNOTICED {
            is_told = true;
            on_wait(&format!(
                "waiting until the server listens on a port, for up to {} s: {}",
                PATIENCE.as_secs(),
                command.display()
            ));
        }
        if start.elapsed() > PATIENCE {
            return Err(ProgramError::ServerSilent(command.to_owned()));
        }
        // Looking enters the namespace, so a server that takes its time is looked at less often.
        let pause = (start.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        if let Some(signal) = ending_within(signals, pause)? {
            return Err(ProgramError::Interrupted {
                signal,
                server: command.to_owned(),
            });
        }
    }
    Ok(serving)
}

/// Waits for a signal that ends a process by default, and that is not meant for a certain program, at
/// most for `patience`. Other signals may shorten the wait.
pub fn ending_within(signals: &Signals, patience: Duration) -> io::Result<Option<Signal>> {
    let received = signals.next_within(patience)?;
    let signal = received.map(|received| received.signal);
    Ok(signal.filter(|signal| is_ending(*signal)))
}

/// Returns whether a signal ends a process by default.
fn is_ending(signal: Signal) -> bool {
    ENDINGS.iter().any(|(ends, _)| *ends == signal)
}

fn signal_name(signal: Signal) -> &'static str {
    let named = ENDINGS.iter().find(|(ends, _)| *ends == signal);
    named.map_or("a signal", |(_, name)| name)
}

/// Asks the server to end, and waits at most [`FAREWELL`] until it has ended: a database then closes
/// its files, and need not repair them at its next start. The server is the shell that [`serve`] has
/// started, and the programs that the shell has started.
fn dismiss(server: Pid, namespace: &Namespace) {
    let id = server.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    // The shell first: it could end when its programs do, before its turn came to tidy up.
    let children = children.filter_map(Pid::from_raw);
    let asked: Vec<Pid> = std::iter::once(server)
        .chain(children)
        .filter(|&pid| runs_in(pid, namespace))
        .collect();
    for &pid in &asked {
        // This fails if the process has just ended.
        let _ = kill_process(pid, Signal::TERM);
    }
    let start = Instant::now();
    while asked.iter().any(|&pid| runs_in(pid, namespace)) && start.elapsed() < FAREWELL {
        let _ = changed_child();
        sleep(Duration::from_millis(2));
    }
}

/// Returns whether a process runs, and is in a namespace.
fn runs_in(pid: Pid, namespace: &Namespace) -> bool {
    let own = fs::metadata(format!("/proc/{}/ns/net", pid.as_raw_nonzero()));
    let its = namespace.as_fd().try_clone_to_owned();
    let its = its.and_then(|file| File::from(file).metadata());
    matches!((own, its), (Ok(own), Ok(its)) if (own.dev(), own.ino()) == (its.dev(), its.ino()))
}

/// Waits for the end of a program, and passes signals on to it. Returns the program's exit status,
/// or `None` if an algorithm has ended the run; the program is then still running. If a hook does not
/// return, the second signal that asks for the end since the hook was called ends the run, too.
pub fn attend(
    program: Pid,
    signals: &Signals,
    hooks: &mut HookWatch,
) -> Result<Option<u8>, ProgramError> {
    // The instants of the last two such signals.
    let mut asked: [Option<Instant>; 2] = [None; 2];
    loop {
        if hooks.ending().why().is_some() {
            return Ok(None);
        }
        let now = Instant::now();
        if let Some(why) = hooks.hung(now)
            && asked[0].is_some_and(|at| at >= hooks.since())
        {
            hooks.abandon(why);
            return Ok(None);
        }
        if let Some(why) = hooks.news(now) {
            report(&format!(
                "{why}; the second Ctrl-C or SIGTERM ends the program"
            ));
        }
        // A child may have changed before its signal was waited for.
        while let Some((child, change)) = changed_child()? {
            match change {
                Change::Exited(code) if child == program => return Ok(Some(code as u8)),
                Change::Killed(signal) if child == program => {
                    return Ok(Some(128 + signal as u8));
                }
                Change::Stopped if child == program => stop_like(program),
                _ => {}
            }
        }
        let Some(received) = signals.next_within(LOOK)? else {
            continue;
        };
        if is_ending(received.signal) {
            asked = [asked[1], Some(Instant::now())];
        }
        // A signal to the group has reached the program as well.
        if received.signal != Signal::CHILD && !received.is_to_group {
            // This fails if the program has just ended. The next iteration handles that.
            let _ = kill_process(program, received.signal);
        }
    }
}

/// Waits at most [`LINGER`], and until a signal or until a hook does not return, until the data that the
/// program has sent has crossed the link. Without Sluice, the kernel would send it even after the
/// program's end.
pub fn linger(
    near: &Namespace,
    sending: &[Arc<AtomicBool>],
    loops: &[&Pulse],
    signals: &Signals,
    hooks: &mut HookWatch,
) -> io::Result<()> {
    // Those that are pending were for the program as well.
    while signals.next_within(Duration::ZERO)?.is_some() {}
    let start = Instant::now();
    let is_busy = || {
        for pulse in loops {
            pulse.settle();
        }
        let mut sending = sending.iter();
        sending.any(|is_sending| is_sending.load(Ordering::Acquire))
            || near.enter(sends).unwrap_or(false)
    };
    while hooks.hung(Instant::now()).is_none() && is_busy() && start.elapsed() < LINGER {
        if ending_within(signals, Duration::from_millis(5))?.is_some() {
            break;
        }
    }
    Ok(())
}

/// Returns whether a socket of the calling thread's namespace listens, or waits for datagrams.
fn listens() -> bool {
    let has = |file: &&str, state| has_state(&Path::new(TABLES).join(file), &[state]);
    ["tcp", "tcp6"].iter().any(|file| has(file, LISTEN))
        || ["udp", "udp6"].iter().any(|file| has(file, CLOSE))
}

/// Returns whether a connection that the program has closed still has data to send.
fn sends() -> bool {
    let states = [FIN_WAIT1, LAST_ACK, CLOSING];
    let mut tables = ["tcp", "tcp6"].iter();
    tables.any(|file| has_state(&Path::new(TABLES).join(file), &states))
}

/// Returns whether a socket in a table of `/proc/net` has one of these states.
fn has_state(table: &Path, states: &[&str]) -> bool {
    let text = fs::read_to_string(table).unwrap_or_default();
    let mut sockets = text.lines().skip(1);
    sockets.any(|line| {
        let state = line.split_whitespace().nth(3);
        state.is_some_and(|state| states.contains(&state))
    })
}

/// The bits of a mode that let anyone execute a file.
const EXECUTABLE: u32 = 0o111;
/// The sockets of the calling thread's namespace.
const TABLES: &str = "/proc/thread-self/net";
/// States of TCP in include/net/tcp_states.h; UDP has 07 for a socket that is not connected.
const FIN_WAIT1: &str = "04";
const CLOSE: &str = "07";
const LAST_ACK: &str = "09";
const LISTEN: &str = "0A";
const CLOSING: &str = "0B";
/// The interval between checks whether an algorithm has ended the run.
const LOOK: Duration = Duration::from_millis(100);
/// The time within which a server must listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which a wait for a server, or for the reader of a capture, is reported.
pub const UNNOTICED: Duration = Duration::from_secs(2);
/// The signals that end a wait.
const ENDINGS: [(Signal, &str); 4] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::TERM, "SIGTERM"),
];
/// The time within which a server must end.
const FAREWELL: Duration = Duration::from_secs(3);
/// The pauses between two looks at the ports of a server.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The time within which the program's last bytes must cross the link.
const LINGER: Duration = Duration::from_secs(10);
