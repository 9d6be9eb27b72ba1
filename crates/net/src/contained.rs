//! Programs that are killed together with all their descendants.
//!
//! A contained program runs in a process namespace of its own, below a small first process. When
//! that first process ends, the kernel kills every process in the namespace: programs in the
//! background, daemons, and what they started. It ends when the program ends, on request, and when
//! the thread that started it ends, even by `kill -9`.
//!
//! The program has this process's rights over its network namespace. It is in a session of its own,
//! so Ctrl-C in the terminal does not reach it.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::sys;

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub struct Contained {
    /// The first process of the namespace.
    first: Child,
    /// The program's wait status, once it has ended.
    status: UnixStream,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
}

/// Output of a program.
#[derive(Debug, Default)]
pub struct Arrived {
    /// Bytes of its standard output.
    pub output: Vec<u8>,
    /// Bytes of its standard error.
    pub errors: Vec<u8>,
}

impl Contained {
    /// Starts `command` in the network namespace of the calling thread, without input. Afterwards
    /// the thread cannot start other threads, and the program ends with the thread.
    ///
    /// # Errors
    /// The program cannot be executed, or there can be no such namespace.
    pub fn start(command: &mut Command) -> io::Result<Contained> {
        sys::unshare(libc::CLONE_NEWPID)?;
        let (status, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let kept = theirs.as_raw_fd();
        // Programs identify their packets by their process number: two `ping` processes with the
        // number 2 would accept each other's replies.
        let number = FIRST_NUMBER + STARTED.fetch_add(1, Ordering::Relaxed) % NUMBERS;
        let prepare = move || {
            // The process that returns from here executes the program.
            sys::become_child_of_first_process(kept, number)
        };
        // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(prepare);
        }
        let started = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        drop(theirs);
        let mut first = started?;
        status.set_nonblocking(true)?;
        let (output, errors) = (first.stdout.take(), first.stderr.take());
        for pipe in [
            output.as_ref().map(|pipe| pipe.as_fd()),
            errors.as_ref().map(|pipe| pipe.as_fd()),
        ]
        .into_iter()
        .flatten()
        {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Contained {
            first,
            status,
            output,
            errors,
        })
    }

    /// Waits until the program has written something or has ended, for at most `time`, and returns
    /// the output.
    pub fn read(&mut self, time: Duration) -> Arrived {
        let poll = |descriptor| libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls = vec![poll(self.status.as_raw_fd())];
        polls.extend(self.output.as_ref().map(|pipe| poll(pipe.as_raw_fd())));
        polls.extend(self.errors.as_ref().map(|pipe| poll(pipe.as_raw_fd())));
        sys::poll(&mut polls, Some(time));
        Arrived {
            output: read_some(&mut self.output),
            errors: read_some(&mut self.errors),
        }
    }

    /// Returns how the program has ended, if it has.
    ///
    /// # Errors
    /// The first process has ended without a report: something else killed it.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut status = [0; 4];
        match self.status.read(&mut status) {
            Ok(4) => Ok(Some(ExitStatus::from_raw(i32::from_ne_bytes(status)))),
            Ok(_) => Err(io::Error::other("its first process was killed")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends SIGINT, as Ctrl-C does, to the program and all its descendants.
    pub fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.first), Signal::INT);
    }

    /// Kills the program and all its descendants, and returns the remaining output.
    pub fn kill(mut self) -> Arrived {
        self.end();
        let mut all = Arrived::default();
        loop {
            let (output, errors) = (read_some(&mut self.output), read_some(&mut self.errors));
            if output.is_empty() && errors.is_empty() {
                return all;
            }
            all.output.extend(output);
            all.errors.extend(errors);
        }
    }

    fn end(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads the available output; forgets a pipe that was closed.
fn read_some(pipe: &mut Option<impl io::Read>) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let Some(open) = pipe else {
        return Vec::new();
    };
    match open.read(&mut bytes) {
        Ok(0) => *pipe = None,
        Ok(length) => {
            bytes.truncate(length);
            return bytes;
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => *pipe = None,
    }
    Vec::new()
}

/// Returns whether a program listens on a TCP port, or has bound a UDP port, in the network
/// namespace of the calling thread. No packet is sent.
pub fn is_port_open(port: u16) -> bool {
    let has = |table: &str, state: &str| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        let text = text.unwrap_or_default();
        // `sl local_address rem_address st ...`, numbers in hexadecimal.
        text.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let own = words.next().and_then(|own| own.rsplit_once(':'));
            let own = own.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            own == Some(port) && words.nth(1) == Some(state)
        })
    };
    has("tcp", LISTEN) || has("tcp6", LISTEN) || has("udp", UNCONNECTED) || has("udp6", UNCONNECTED)
}

/// The number of programs that were started.
static STARTED: AtomicI32 = AtomicI32::new(0);
/// Process numbers of programs in their namespaces. The largest number is 32767 by default.
const FIRST_NUMBER: i32 = 20_000;
const NUMBERS: i32 = 10_000;

/// States in include/net/tcp_states.h; UDP uses `TCP_CLOSE` for a socket that is not connected.
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";
