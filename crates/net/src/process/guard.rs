//! Separate processes that outlive this one, and clean up after it.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process};

use crate::namespace::Namespace;
use crate::sys;

/// A separate process that waits for the end of the calling process, even by `kill -9`, and then
/// kills every process in some network namespaces. It also does so when this is dropped, which waits for
/// its end: otherwise, it would be left to the first process, which does not reap children in many
/// containers.
#[derive(Debug)]
pub struct Guard {
    /// The guard gets the namespaces through this connection, and waits for its end.
    namespaces: UnixStream,
    process: Pid,
}

impl Guard {
    /// Starts the guard. Must be called before other threads exist.
    ///
    /// # Errors
    /// When there can be no more processes.
    pub fn start() -> io::Result<Guard> {
        let (theirs, namespaces) = UnixStream::pair()?;
        let kept = theirs.as_raw_fd();
        let process = sys::in_child(move || {
            // Ctrl-C must not end the guard, and the guard must not keep our output open.
            let _ = rustix::process::setsid();
            sys::close_all_but(kept);
            // They stay open: the kernel soon gives the number of a namespace that is gone to
            // another one, whose processes are none of the guard's business.
            let mut watched = Vec::new();
            loop {
                match receive(&theirs) {
                    Ok(Some(namespace)) => watched.extend(namespace),
                    Ok(None) => break,
                    // An error is not the end: the other process lives.
                    Err(_) => std::thread::sleep(RETRY),
                }
            }
            for namespace in &watched {
                for _ in 0..MOST_ROUNDS {
                    match identity(namespace) {
                        Ok((device, inode)) => {
                            kill_in(device, inode);
                            break;
                        }
                        Err(_) => std::thread::sleep(RETRY),
                    }
                }
            }
        })?;
        Ok(Guard {
            namespaces,
            process,
        })
    }

    /// Adds a namespace, which exists at least as long as the guard.
    ///
    /// # Errors
    /// When the guard is gone.
    pub fn watch(&mut self, namespace: &Namespace) -> io::Result<()> {
        let descriptors = [namespace.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&self.namespaces, &[IoSlice::new(&[0])], &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let is_asked = self.namespaces.shutdown(Shutdown::Write).is_ok();
        reap(self.process, is_asked);
    }
}

/// Takes the status of a child that has ended, or that ends soon if it `is_asked` to.
fn reap(child: Pid, is_asked: bool) {
    let options = match is_asked {
        true => WaitOptions::empty(),
        false => WaitOptions::NOHANG,
    };
    // Any other error means that there is no such child any more.
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitpid(Some(child), options) {}
}

/// Receives a namespace, or a message that has lost it because there were too many open files. Returns
/// `None` at the end of the connection.
fn receive(from: &UnixStream) -> io::Result<Option<Option<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
    let received = recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(Some(descriptors.flatten().next()))
}

/// A separate process that does some work when the calling process ends, even by `kill -9`, without
/// having dismissed it.
#[derive(Debug)]
pub struct Watchdog {
    /// The watchdog waits for a byte, or for the end of this pipe.
    calling: io::PipeWriter,
    process: Pid,
}

impl Watchdog {
    /// Starts the watchdog. Must be called while there are no other threads. `work` keeps the
    /// descriptors that it owns.
    ///
    /// # Errors
    /// When there can be no more processes.
    pub fn start(work: impl FnOnce()) -> io::Result<Watchdog> {
        let (mut reader, calling) = io::pipe()?;
        let writer = calling.as_raw_fd();
        let process = sys::in_child(move || {
            // Ctrl-C must not end the watchdog, and the watchdog must not keep our output open.
            let _ = rustix::process::setsid();
            sys::close_some(&[0, 1, 2, writer]);
            let dismissed = loop {
                match reader.read(&mut [0]) {
                    Ok(count) => break count > 0,
                    // An error is not the end: the other process lives.
                    Err(_) => std::thread::sleep(RETRY),
                }
            };
            if !dismissed {
                work();
            }
        })?;
        Ok(Watchdog { calling, process })
    }

    /// Ends the watchdog without its work, and waits for its end.
    pub fn dismiss(mut self) {
        // If this fails, the watchdog has already ended.
        let is_asked = self.calling.write_all(&[1]).is_ok();
        reap(self.process, is_asked);
    }
}

/// Kills every process in a network namespace.
///
/// # Errors
/// When the namespace cannot be identified.
pub fn kill_all_in(namespace: &Namespace) -> io::Result<()> {
    let (device, inode) = identity(namespace)?;
    kill_in(device, inode);
    Ok(())
}

/// Returns the numbers that a namespace has as long as it exists.
fn identity(namespace: impl AsFd) -> io::Result<(u64, u64)> {
    let file = File::from(namespace.as_fd().try_clone_to_owned()?);
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Repeats until no process is left, since a process may fork during the search.
fn kill_in(device: u64, inode: u64) {
    for _ in 0..MOST_ROUNDS {
        let mut found = false;
        // What cannot be read for a moment may be a process of the namespace.
        let Ok(processes) = fs::read_dir("/proc") else {
            std::thread::sleep(RETRY);
            continue;
        };
        for process in processes {
            let Ok(process) = process else {
                found = true;
                continue;
            };
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let is_in = match fs::metadata(process.path().join("ns/net")) {
                Ok(own) => (own.dev(), own.ino()) == (device, inode),
                // The process has ended, or is another user's.
                Err(error) => {
                    use io::ErrorKind::{NotFound, PermissionDenied};
                    let is_final = matches!(error.kind(), NotFound | PermissionDenied);
                    found |= !is_final && error.raw_os_error() != Some(libc::ESRCH);
                    false
                }
            };
            if let Some(pid) = Pid::from_raw(pid).filter(|_| is_in) {
                found |= kill_process(pid, Signal::KILL).is_ok();
            }
        }
        if !found {
            return;
        }
    }
}

/// The time between a call that failed and the next attempt.
const RETRY: Duration = Duration::from_millis(10);
/// The largest number of searches for processes of a namespace.
const MOST_ROUNDS: u32 = 100;
