//! Programs inside namespaces: starting them, waiting for their end, and the signals of this
//! process.

mod guard;

pub use guard::{Guard, Watchdog, kill_all_in};

use crate::namespace::{Namespace, STAGES, stage};
use crate::sys;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, LinkNameSpaceType};
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The surroundings of a program, where they differ from its parent's.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The network namespace.
    pub namespace: &'a Namespace,
    /// Files and folders whose contents are replaced, for this program and its children only.
    pub files: &'a [Replacement],
    /// The signals that are blocked.
    pub blocked: &'a SignalMask,
    /// The limit of open files, if the process has changed its own.
    pub open_files: Option<OpenFiles>,
    /// Whether the program has neither the terminal nor the input of its parent: it leads a session of
    /// its own, and its input is empty.
    pub is_apart: bool,
}

/// A file with other contents, or a folder without any.
#[derive(Clone, Debug)]
pub struct Replacement {
    target: CString,
    /// Whether the target is a symbolic link to the file.
    is_link: bool,
    /// `None` for a folder.
    contents: Option<Vec<u8>>,
}

impl Replacement {
    /// Replaces the contents of `target`. Returns `None` if there is no such file: nothing could be
    /// mounted on it.
    pub fn new(target: &Path, contents: impl Into<Vec<u8>>) -> Option<Replacement> {
        let is_file = fs::metadata(target).is_ok_and(|file| file.is_file());
        let is_link = fs::symlink_metadata(target).is_ok_and(|file| file.is_symlink());
        let target = CString::new(target.as_os_str().as_encoded_bytes()).ok()?;
        is_file.then(|| Replacement {
            target,
            is_link,
            contents: Some(contents.into()),
        })
    }

    /// Hides the contents of the folder `target`. Returns `None` if there is no such folder.
    pub fn empty(target: &Path) -> Option<Replacement> {
        let is_folder = fs::metadata(target).is_ok_and(|folder| folder.is_dir());
        let target = CString::new(target.as_os_str().as_encoded_bytes()).ok()?;
        is_folder.then_some(Replacement {
            target,
            is_link: false,
            contents: None,
        })
    }
}

/// The reasons why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// Its surroundings could not be set up.
    #[error("cannot {step}: {source}")]
    Surroundings {
        /// The step.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It does not exist or is not executable.
    #[error("{0}")]
    Program(io::Error),
}

/// Starts `command` in these surroundings, without any capability. The program is killed when the
/// calling thread ends, however it ends.
///
/// # Errors
/// [`SpawnError`]; nothing is left behind.
pub fn spawn(command: &mut Command, around: &Surroundings<'_>) -> Result<Pid, SpawnError> {
    let failed = |source| SpawnError::Surroundings {
        step: "make a pipe",
        source,
    };
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let namespace = around.namespace.as_fd().try_clone_to_owned();
    let inside = Inside {
        namespace: namespace.map_err(failed)?,
        stage: stage(),
        files: around
            .files
            .iter()
            .zip(0..)
            .map(|(file, number)| {
                let source = CString::new(format!("{STAGES}/{number}"));
                let source = source.expect("a number has no zero byte");
                (source, file.clone())
            })
            .collect(),
        blocked: around.blocked.clone(),
        open_files: around.open_files.clone(),
        is_apart: around.is_apart,
        parent: rustix::process::getpid(),
    };
    if around.is_apart {
        command.stdin(Stdio::null());
    }
    let prepare = move || {
        inside.enter().map_err(|(step, error)| {
            // `spawn` reports only the error's number to the parent, so the failed step is sent
            // here.
            let _ = (&writer).write_all(&[step as u8]);
            error
        })
    };
    // SAFETY: between fork and exec, `enter` makes system calls only. It uses memory that was
    // allocated before, and allocates and frees none.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(prepare);
    }
    let spawned = command.spawn();
    // The closure holds the writing end of the pipe.
    *command = Command::new("");
    match spawned {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(source) => {
            let mut step = [0];
            match reader.read(&mut step) {
                Ok(1) => Err(SpawnError::Surroundings {
                    step: Step::ALL[usize::from(step[0])].words(),
                    source,
                }),
                _ => Err(SpawnError::Program(source)),
            }
        }
    }
}

/// The memory that the child needs, allocated before it exists.
struct Inside {
    namespace: OwnedFd,
    stage: Option<&'static CStr>,
    /// Each with its path below [`STAGES`].
    files: Vec<(CString, Replacement)>,
    blocked: SignalMask,
    open_files: Option<OpenFiles>,
    is_apart: bool,
    parent: Pid,
}

/// A step of the child before it executes its program.
#[derive(Clone, Copy)]
enum Step {
    Network,
    Mounts,
    Stage,
    File,
    Capabilities,
    Parent,
    Session,
    Signals,
}

impl Step {
    const ALL: [Step; 8] = [
        Step::Network,
        Step::Mounts,
        Step::Stage,
        Step::File,
        Step::Capabilities,
        Step::Parent,
        Step::Session,
        Step::Signals,
    ];

    const fn words(self) -> &'static str {
        match self {
            Step::Network => "enter the program's network namespace",
            Step::Mounts => "create a mount namespace",
            Step::Stage => "mount a temporary file system",
            Step::File => "mount a file such as /etc/resolv.conf",
            Step::Capabilities => "drop capabilities",
            Step::Parent => "follow the end of the parent",
            Step::Session => "start a session",
            Step::Signals => "restore signals and limits",
        }
    }
}

impl Inside {
    /// Sets up the surroundings. Runs in the child.
    fn enter(&self) -> Result<(), (Step, io::Error)> {
        let at = |step| move |error: rustix::io::Errno| (step, io::Error::from(error));
        rustix::thread::move_into_link_name_space(
            self.namespace.as_fd(),
            Some(LinkNameSpaceType::Network),
        )
        .map_err(at(Step::Network))?;
        if !self.files.is_empty() {
            sys::unshare(libc::CLONE_NEWNS).map_err(|error| (Step::Mounts, error))?;
            let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", flags).map_err(at(Step::Mounts))?;
            self.mount_files()?;
        }
        drop_capabilities().map_err(at(Step::Capabilities))?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(at(Step::Parent))?;
        if rustix::process::getppid() != Some(self.parent) {
            return Err(at(Step::Parent)(rustix::io::Errno::SRCH));
        }
        if self.is_apart {
            rustix::process::setsid().map_err(at(Step::Session))?;
        }
        if let Some(limit) = &self.open_files {
            limit.set().map_err(at(Step::Signals))?;
        }
        sys::set_signal_mask(&self.blocked.0).map_err(|error| (Step::Signals, error))
    }

    /// Mounts the files from a file system in memory, which is then detached from its path.
    fn mount_files(&self) -> Result<(), (Step, io::Error)> {
        let at = |step| move |error: rustix::io::Errno| (step, io::Error::from(error));
        let Some(stage) = self.stage else {
            return Err(at(Step::Stage)(rustix::io::Errno::NOENT));
        };
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount(c"tmpfs", stage, c"tmpfs", flags, c"mode=755")
            .map_err(at(Step::Stage))?;
        for (source, file) in &self.files {
            match &file.contents {
                Some(contents) => create_file(source, contents),
                None => create_folder(source),
            }
            .map_err(at(Step::File))?;
            rustix::mount::mount_bind(source.as_c_str(), file.target.as_c_str())
                .map_err(at(Step::File))?;
            if file.is_link {
                // Before Linux 5.2, the mount on the link's destination must do.
                let _ = mount_on_link(source, &file.target);
            }
        }
        rustix::mount::unmount(stage, UnmountFlags::DETACH).map_err(at(Step::Stage))
    }
}

/// Creates a file. Async-signal-safe.
fn create_file(path: &CStr, contents: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::open(path, flags, mode)?;
    // The user's mask may have taken bits (umask(2)).
    rustix::fs::fchmod(&file, mode)?;
    let mut rest = contents;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Creates a folder. Async-signal-safe.
fn create_folder(path: &CStr) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdir(path, mode)?;
    rustix::fs::chmod(path, mode)
}

/// Mounts a file on a symbolic link itself. The mount stays when another file takes the place of the
/// link's destination, as when systemd-resolved writes a new `stub-resolv.conf`: the kernel removes
/// mounts on a file that is renamed away in another mount namespace. Async-signal-safe.
fn mount_on_link(source: &CStr, link: &CStr) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, source, flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&tree, c"", CWD, link, flags)
}

/// Gives up every capability permanently: even a program that root executes gets none.
///
/// Files may still give CAP_NET_RAW to their own programs, in the program's namespace. Otherwise the
/// kernel would refuse to execute a `ping` that has it.
fn drop_capabilities() -> rustix::io::Result<()> {
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if capability == CapabilitySet::NET_RAW {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The number of the first capability that the kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
}

/// The limits of open files of a process.
#[derive(Clone, Debug)]
pub struct OpenFiles(rustix::process::Rlimit);

impl OpenFiles {
    /// Raises the limit of this process as far as permitted. Returns the previous limit.
    pub fn raise() -> OpenFiles {
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = rustix::process::Rlimit {
            current: before.maximum,
            ..before
        };
        // If this fails, the old limit suffices for fewer connections.
        let _ = OpenFiles(raised).set();
        OpenFiles(before)
    }

    fn set(&self) -> rustix::io::Result<()> {
        let limit = rustix::process::Rlimit { ..self.0 };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
    }
}

/// A set of signals.
#[derive(Clone)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks exactly these signals in the program that `command` starts. By default a program
    /// inherits what is blocked in the thread that starts it.
    pub fn set_for(&self, command: &mut Command) {
        let mask = self.0;
        // SAFETY: between fork and exec, the closure makes one system call. It allocates nothing.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || sys::set_signal_mask(&mask));
        }
    }
}

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalMask")
    }
}

/// A signal that the process has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal.
    pub signal: Signal,
    /// Whether the kernel sent it to this process's whole group, as for Ctrl-C. When a terminal is
    /// closed, it sends SIGHUP to the leader of the session alone.
    pub is_to_group: bool,
}

/// The signals that [`Signals::next`] returns.
pub struct Signals {
    caught: SignalMask,
    before: SignalMask,
}

impl Signals {
    /// Blocks SIGCHLD and the signals that usually end or notify a program, for this thread and
    /// those that it starts. Must be called before other threads exist. A SIGHUP that the process
    /// ignores, as under `nohup`, stays ignored.
    ///
    /// # Errors
    /// The kernel refuses, which is not expected.
    pub fn catch() -> io::Result<Signals> {
        let mut caught = vec![
            libc::SIGCHLD,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ];
        if !ignores_hang_up() {
            caught.push(libc::SIGHUP);
        }
        let caught = sys::signal_set(&caught);
        // A parent that ignores SIGCHLD would make the kernel reap the program unseen.
        sys::default_child_signal()?;
        let before = sys::block_signals(&caught)?;
        Ok(Signals {
            caught: SignalMask(caught),
            before: SignalMask(before),
        })
    }

    /// Returns the signals that were blocked before.
    pub const fn before(&self) -> &SignalMask {
        &self.before
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// The kernel refuses, which is not expected.
    pub fn next(&self) -> io::Result<Received> {
        received(sys::wait_for_signal(&self.caught.0)?)
    }

    /// Waits for the next signal, at most for `patience`.
    ///
    /// # Errors
    /// As [`Signals::next`].
    pub fn next_within(&self, patience: Duration) -> io::Result<Option<Received>> {
        let signal = sys::wait_for_signal_within(&self.caught.0, patience)?;
        signal.map(received).transpose()
    }
}

/// Returns whether this process ignores SIGHUP, as a program does that `nohup` starts.
pub fn ignores_hang_up() -> bool {
    sys::is_ignored(libc::SIGHUP)
}

fn received((number, code): (libc::c_int, libc::c_int)) -> io::Result<Received> {
    let signal = Signal::from_named_raw(number).ok_or_else(|| io::Error::other("no signal"))?;
    // drivers/tty/tty_jobctrl.c, tty_signal_session_leader(): the group gets its SIGHUP only when the
    // leader has ended.
    let is_hang_up = signal == Signal::HUP && is_session_leader();
    Ok(Received {
        signal,
        is_to_group: code == libc::SI_KERNEL && !is_hang_up,
    })
}

/// Returns whether this process leads its session, as a program does that `ssh -t` starts.
fn is_session_leader() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// The fate of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It exited with a status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// A signal stopped it.
    Stopped,
}

/// Returns a child whose state has changed, and the change; `None` if no state has changed.
///
/// # Errors
/// When there are no children.
pub fn changed_child() -> io::Result<Option<(Pid, Change)>> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    let change = |status: WaitStatus| match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Change::Exited(code),
        (_, Some(signal)) => Change::Killed(signal),
        _ => Change::Stopped,
    };
    let changed = rustix::process::wait(options)?;
    Ok(changed.map(|(child, status)| (child, change(status))))
}

/// Stops this process until it is continued, as its child was stopped; then continues the child.
pub fn stop_like(child: Pid) {
    let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    let _ = kill_process(child, Signal::CONT);
}
