//! A Unix socket of a router, private to its owner, and its file.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use sluice_net::confine::privileged;
use socket2::{Domain, SockAddr, Socket, Type};

/// The reasons why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process listens there.
    #[error("{}: another router or program listens here; choose another path", .0.display())]
    Taken(PathBuf),
    /// Another file exists at the path.
    #[error("{} exists and is not a socket, so it is not replaced", .0.display())]
    Occupied(PathBuf),
    /// The system refused a step.
    #[error("cannot {step} the socket {}: {source}", .path.display())]
    System {
        /// The step.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// The file of a socket of mode 0600, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that another process's socket is not removed; none once this one is.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens at `path`. A socket that a dead process left there is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
        // A confined thread may not create files.
        let (socket, identity) = privileged(|| bind(path))?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: Some(identity),
        };
        Ok((UnixListener::from(OwnedFd::from(socket)), file))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Connects to the socket, to end a wait for connections; fails if the path leads to another one
    /// by now.
    pub fn connect(&self) -> Option<UnixStream> {
        let stream = self.is_own().then(|| UnixStream::connect(&self.path));
        stream.and_then(Result::ok)
    }

    /// Removes the file, unless it is that of another process by now.
    pub fn remove(&mut self) {
        if self.is_own() {
            let _ = privileged(|| fs::remove_file(&self.path));
        }
        self.identity = None;
    }

    fn is_own(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|found| Some((found.dev(), found.ino())) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Creates a socket that listens at `path`. Returns it with the device and inode of its file.
fn bind(path: &Path) -> Result<(Socket, (u64, u64)), SocketError> {
    let error = |step| {
        move |source| SocketError::System {
            step,
            path: path.to_owned(),
            source,
        }
    };
    // Until it listens, the socket looks like one that a dead router left behind.
    let lock = Lock::beside(path).map_err(error("lock"))?;
    clear(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(error("create"))?;
    let address = SockAddr::unix(path).map_err(error("name"))?;
    socket.bind(&address).map_err(error("bind"))?;
    // No client can connect before `listen`, so none connects before the mode is set.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(error("protect"))?;
    socket.listen(BACKLOG).map_err(error("listen at"))?;
    let found = fs::symlink_metadata(path).map_err(error("find"))?;
    drop(lock);
    Ok((socket, (found.dev(), found.ino())))
}

/// Keeps other routers from opening a socket at the same path at the same time.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits for other routers that are opening it, which takes milliseconds.
    fn beside(socket: &Path) -> io::Result<Lock> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            // Other users must not be able to hold the lock forever, or to redirect it.
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // The previous owner may have removed this file, and a third router may have locked a
            // new one.
            let held = file.metadata()?;
            let is_same =
                |found: fs::Metadata| (found.dev(), found.ino()) == (held.dev(), held.ino());
            if fs::symlink_metadata(&path).is_ok_and(is_same) {
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while still locked. If it cannot be removed, an empty file remains, which the
        // next router locks.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes what a dead router left at `path`.
fn clear(path: &Path) -> Result<(), SocketError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::Occupied(path.to_owned()));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(SocketError::Taken(path.to_owned()));
    }
    fs::remove_file(path).map_err(|source| SocketError::System {
        step: "replace",
        path: path.to_owned(),
        source,
    })
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
