//! Sends single frames on an interface, beside a port that carries the others.

use super::packet::{PacketError, bind};
use crate::namespace::Namespace;
use socket2::{Domain, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A packet socket that only sends.
#[derive(Debug)]
pub struct Injector(Socket);

impl Injector {
    /// Opens an injector on `interface` of `namespace`.
    ///
    /// # Errors
    /// When there is no such interface, or the process may not (CAP_NET_RAW).
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Injector, PacketError> {
        let link = namespace.links()?.interface(interface)?;
        let open = || {
            let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
            bind(&socket, link.index, 0)?;
            Ok(socket)
        };
        let socket = namespace.enter(open)?;
        socket.map(Injector).map_err(|source| PacketError::Kernel {
            step: "open a packet socket",
            interface: interface.to_owned(),
            namespace: namespace.name().to_owned(),
            source,
        })
    }

    /// Sends a frame, whose checksums must be complete, out of the interface.
    ///
    /// # Errors
    /// When the interface is down or its queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}

impl AsFd for Injector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
