//! Interfaces that a router attaches to are its own, so that a second router is refused.
//!
//! For each of them, the router has a socket with an abstract name. The kernel frees such a name when
//! the process ends, however it ends. Like interfaces, the names belong to a network namespace.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::port::PortSpec;
use socket2::{Domain, SockAddr, Socket, Type};

/// The reasons why an interface cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HeldError {
    /// Another router is attached to it.
    #[error("another router{} is attached to {interface}: end it first", process(.pid))]
    Taken {
        /// The interface.
        interface: String,
        /// The router's process; 0 if it is not visible.
        pid: i32,
    },
    /// The system refused a socket.
    #[error("cannot open the socket that shows that {interface} is in use: {source}")]
    Socket {
        /// The interface.
        interface: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

fn process(pid: &i32) -> String {
    match pid {
        0 => String::new(),
        pid => format!(" (process {pid})"),
    }
}

/// The interfaces of a router, until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _sockets: Vec<Socket>,
}

impl Held {
    /// Takes the interfaces that these ports attach to.
    ///
    /// # Errors
    /// [`HeldError`].
    pub fn take(ports: &[PortSpec], namespace: &Namespace) -> Result<Held, HeldError> {
        let attached = ports.iter().enumerate().filter(|(_, port)| {
            let kind = port.kind();
            kind.is_none_or(|kind| kind.attach().is_some())
        });
        let names: Vec<String> = attached.map(|(n, port)| port.interface(n)).collect();
        let sockets = namespace.enter(|| {
            let sockets = names.iter().map(|name| take(name));
            sockets.collect::<Result<Vec<_>, _>>()
        })??;
        Ok(Held {
            _sockets: sockets.into_iter().flatten().collect(),
        })
    }
}

/// Takes one interface. Returns nothing if a process that cannot be a router has its name.
fn take(interface: &str) -> Result<Option<Socket>, HeldError> {
    let error = |source| HeldError::Socket {
        interface: interface.to_owned(),
        source,
    };
    let name = SockAddr::unix(format!("\0sluice/interface/{interface}")).map_err(error)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(error)?;
        match socket.bind(&name) {
            Ok(()) => {
                socket.listen(BACKLOG).map_err(error)?;
                return Ok(Some(socket));
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {}
            Err(source) => return Err(error(source)),
        }
        // The process of a router that was killed may still be ending.
        if Instant::now() < deadline {
            thread::sleep(PATIENCE / 50);
            continue;
        }
        return match holder(&name).map_err(error)? {
            Holder::Router(pid) => Err(HeldError::Taken {
                interface: interface.to_owned(),
                pid,
            }),
            Holder::Stranger => Ok(None),
        };
    }
}

enum Holder {
    Router(i32),
    /// A user who is not permitted to attach to interfaces, and must not keep routers from it.
    Stranger,
}

fn holder(name: &SockAddr) -> io::Result<Holder> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A router accepts no connections, so that a full queue would block forever.
    socket.set_nonblocking(true)?;
    if socket.connect(name).is_err() {
        return Ok(Holder::Router(0));
    }
    let peer = socket_peercred(&socket)?;
    if peer.uid != geteuid() && !peer.uid.is_root() {
        return Ok(Holder::Stranger);
    }
    Ok(Holder::Router(peer.pid.as_raw_nonzero().get()))
}

/// A process that was killed has ended after this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Routers that were refused leave a connection each.
const BACKLOG: i32 = 4096;
