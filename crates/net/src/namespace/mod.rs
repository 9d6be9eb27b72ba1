//! Network namespaces that belong to the process.
//!
//! A [`Namespace`] has no name in the file system: it is a descriptor, and the kernel frees
//! it, with its interfaces and sockets, when the last descriptor and the last thread inside
//! are gone. Nothing is left behind after a crash or `kill -9`, and two runs never collide.

mod link;
mod offload;
mod privilege;
mod seat;
mod sysctl;
mod tcx;
mod veth;

pub use link::{Interface, InterfaceTraffic, LinkError, Links, Mac, is_of_link};
pub use offload::{DeviceSettings, OffloadError, Offloads, Queues};
pub use privilege::{
    Privilege, PrivilegeError, acquire_privilege, enter_user_namespace,
    enter_user_namespace_as_self, enter_user_namespace_of,
};
pub(crate) use privilege::{STAGES, effective_capabilities, stage};
pub use seat::Seat;
pub use sysctl::{InterfaceSettings, SysctlError};
pub use veth::{VethEnd, create_veth, create_veth_with_queues};

use crate::confine::by_broker;
use crate::sys;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::thread::{self, JoinHandle};

/// A network namespace, alive as long as this is.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: OwnedFd,
}

/// The reason why a namespace could not be created or entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel refused to make one.
    #[error("cannot create the network namespace {name:?}: {source} ({hint})", hint = Privilege::probe())]
    Create {
        /// The requested name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is none.
    #[error("cannot open the network namespace {}: {source}", .path.display())]
    Open {
        /// The path.
        path: std::path::PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread could not be started, or could not enter the namespace.
    #[error("cannot enter the network namespace {name:?}: {source}")]
    Enter {
        /// The namespace.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Namespace {
    /// Creates an empty namespace whose loopback interface is down. `name` is for messages only.
    ///
    /// # Errors
    /// The process lacks the privilege; the message says what would help.
    pub fn create(name: &str) -> Result<Namespace, NamespaceError> {
        let make = || {
            sys::unshare(libc::CLONE_NEWNET)?;
            sys::network_namespace()
        };
        // `unshare` changes the namespace of its thread only, so this thread exists just for that.
        let made = thread::scope(|scope| {
            thread::Builder::new()
                .spawn_scoped(scope, make)?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        match made {
            Ok(file) => Ok(Namespace {
                name: name.to_owned(),
                descriptor: file.into(),
            }),
            Err(source) => Err(NamespaceError::Create {
                name: name.to_owned(),
                source,
            }),
        }
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Namespace, NamespaceError> {
        let name = "current".to_owned();
        match sys::network_namespace() {
            Ok(file) => Ok(Namespace {
                name,
                descriptor: file.into(),
            }),
            Err(source) => Err(NamespaceError::Enter { name, source }),
        }
    }

    /// Returns another handle to the same namespace, which exists until the last handle is dropped.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn try_clone(&self) -> Result<Namespace, NamespaceError> {
        match self.descriptor.try_clone() {
            Ok(descriptor) => Ok(Namespace {
                name: self.name.clone(),
                descriptor,
            }),
            Err(source) => Err(self.enter_error(source)),
        }
    }

    /// Opens an existing namespace: `/proc/PID/ns/net`, or `/run/netns/NAME` as created by `ip
    /// netns`.
    ///
    /// # Errors
    /// When the file cannot be opened. A file that is not a namespace is refused when it is
    /// entered.
    pub fn open(path: &std::path::Path) -> Result<Namespace, NamespaceError> {
        let file = std::fs::File::open(path).map_err(|source| NamespaceError::Open {
            path: path.to_owned(),
            source,
        })?;
        Ok(Namespace {
            name: path.display().to_string(),
            descriptor: file.into(),
        })
    }

    /// Returns the name given to [`Namespace::create`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what all handles to this namespace have in common, and no other namespace has.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        identity_of(&File::from(self.descriptor.try_clone()?))
    }

    /// Runs `work` inside, on its own thread, and waits for it. Sockets and files opened there stay
    /// in the namespace wherever they are used later. Panics are passed on. In a process with a
    /// [broker](crate::confine::keep_broker), `work` runs on its thread, and must not start programs.
    ///
    /// # Errors
    /// The namespace cannot be entered; `work` has not run then.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let inside = || {
            join(self.descriptor.as_fd())?;
            Ok(work())
        };
        // A confined thread may not enter; the broker may.
        let mut inside = Some(inside);
        let by_broker = by_broker(|| inside.take().map(|inside| inside()));
        let result = by_broker.flatten().unwrap_or_else(|| {
            let inside = inside.take().expect("the broker has not run it");
            thread::scope(|scope| {
                thread::Builder::new()
                    .spawn_scoped(scope, inside)?
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        result.map_err(|source| self.enter_error(source))
    }

    /// Starts a named thread that runs `work` inside.
    ///
    /// # Errors
    /// The namespace cannot be entered; `work` will not run then.
    pub fn spawn<T: Send + 'static>(
        &self,
        thread_name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, NamespaceError> {
        let descriptor = self
            .descriptor
            .try_clone()
            .map_err(|source| self.enter_error(source))?;
        let (entered, outcome) = std::sync::mpsc::sync_channel(1);
        let handle = thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(move || {
                let result = join(descriptor.as_fd());
                let is_inside = result.is_ok();
                // The spawner waits for this message.
                let _ = entered.send(result);
                if !is_inside {
                    // Ends the thread without a message: the spawner reports the error.
                    std::panic::resume_unwind(Box::new(()));
                }
                work()
            })
            .map_err(|source| self.enter_error(source))?;
        outcome
            .recv()
            .expect("the thread reports before it works")
            .map_err(|source| self.enter_error(source))?;
        Ok(handle)
    }

    fn enter_error(&self, source: io::Error) -> NamespaceError {
        NamespaceError::Enter {
            name: self.name.clone(),
            source,
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Moves the calling thread into a namespace. A thread that is already there needs no privilege,
/// but the kernel would require it even then.
fn join(namespace: BorrowedFd<'_>) -> io::Result<()> {
    match sys::set_network_namespace(namespace) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let wanted = File::from(namespace.try_clone_to_owned()?);
            if identity_of(&wanted)? == identity_of(&sys::network_namespace()?)? {
                return Ok(());
            }
            Err(error)
        }
        result => result,
    }
}

fn identity_of(namespace: &File) -> io::Result<(u64, u64)> {
    let metadata = namespace.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
