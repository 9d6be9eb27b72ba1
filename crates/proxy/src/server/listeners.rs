//! Sockets that accept connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::request::Destination;

/// The purpose of the connections to a listener.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// SOCKS5 or HTTP.
    Proxy,
    /// A connection to one place.
    Map(Destination),
    /// A request to the control API.
    Control,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: SocketAddr,
    purpose: Purpose,
}

impl Listener {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The kernel's answer, such as that the port is in use.
    pub fn open(
        address: SocketAddr,
        purpose: Purpose,
        epoll: &OwnedFd,
        number: u64,
    ) -> io::Result<Listener> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(address), kind, None)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Accepted sockets inherit these sizes. The buffers are small so that bytes wait in the
        // emulated network, not here.
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&SockAddr::from(address))?;
        socket.listen(BACKLOG)?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        epoll::add(
            epoll,
            socket.as_fd(),
            EventData::new_u64(number),
            EventFlags::IN,
        )?;
        Ok(Listener {
            socket,
            address,
            purpose,
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the purpose of its connections.
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Accepts the waiting connections. Also returns whether others wait that cannot be accepted
    /// now, because the process has no free descriptor or the system no memory.
    pub fn accept_all(&self) -> (Vec<Socket>, bool) {
        let mut accepted = Vec::new();
        while accepted.len() < ACCEPTED {
            match self.socket.accept().map(|(socket, _)| socket) {
                Ok(socket) if socket.set_nonblocking(true).is_ok() => {
                    // The programs at both ends decide which bytes are sent together.
                    let _ = socket.set_tcp_nodelay(true);
                    accepted.push(socket);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return (accepted, true),
            }
        }
        (accepted, false)
    }

    /// Starts or stops reporting waiting connections.
    pub fn set_watched(&self, is_watched: bool, epoll: &OwnedFd, number: u64) {
        let flags = match is_watched {
            true => EventFlags::IN,
            false => EventFlags::empty(),
        };
        // This cannot fail: the descriptor is registered.
        let _ = epoll::modify(
            epoll,
            self.socket.as_fd(),
            EventData::new_u64(number),
            flags,
        );
    }
}

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// The most connections that are accepted in one turn.
const ACCEPTED: usize = 64;
/// The size of each buffer of a program's socket, in bytes.
const BUFFER: usize = 128 << 10;
