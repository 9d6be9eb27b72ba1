//! The kernel's view of all TCP connections of a namespace, of all processes (sock_diag(7)).
//!
//! Messages are parsed by hand: a request is 72 bytes, and only the addresses and `struct tcp_info`
//! of an answer are needed. Numbers are those of linux/inet_diag.h and linux/sock_diag.h.

use super::TcpInfo;
use crate::namespace::{Namespace, NamespaceError};
use crate::sys;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A connection at one instant.
#[derive(Clone, Copy)]
pub struct TcpConnection {
    /// The end in this namespace.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// A number that no other socket of the machine has.
    pub cookie: u64,
    /// The state of this end.
    pub info: TcpInfo,
}

/// Lists the connections of a namespace.
pub struct TcpDiag {
    lists: Socket,
    /// Reports connections at their end, with their last state.
    ends: Socket,
    sequence: u32,
    /// Whether answers to a request that failed may wait.
    is_behind: bool,
}

/// The reasons why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum DiagError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel has no such list, or refuses it.
    #[error("the kernel lists no TCP connections (CONFIG_INET_TCP_DIAG): {0}")]
    Kernel(#[from] io::Error),
}

impl TcpDiag {
    /// Connects to the lists of `namespace`.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub fn open(namespace: &Namespace) -> Result<TcpDiag, DiagError> {
        let open = || {
            let mut lists = Socket::new(NETLINK_SOCK_DIAG)?;
            lists.bind_auto()?;
            lists.connect(&NetlinkAddr::new(0, 0))?;
            let mut ends = Socket::new(NETLINK_SOCK_DIAG)?;
            ends.bind_auto()?;
            ends.set_rx_buf_sz(ENDS_BUFFER)?;
            for group in [TCP4_ENDS, TCP6_ENDS] {
                ends.add_membership(group)?;
            }
            ends.set_non_blocking(true)?;
            io::Result::Ok((lists, ends))
        };
        let (lists, ends) = namespace.enter(open)??;
        let mut diag = TcpDiag {
            lists,
            ends,
            sequence: 0,
            is_behind: false,
        };
        // A kernel without the TCP part refuses the first request.
        diag.connections(|_| {})?;
        Ok(diag)
    }

    /// Passes on every connection that is established or closing.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn connections(&mut self, mut each: impl FnMut(TcpConnection)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            if std::mem::replace(&mut self.is_behind, true) {
                sys::discard_answers(&self.lists);
            }
            self.sequence += 1;
            self.lists.send(&request(family, self.sequence), 0)?;
            'answers: loop {
                let bytes = match self.lists.recv_from_full() {
                    Ok((bytes, _)) => bytes,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                for (sequence, message) in messages(&bytes) {
                    match message {
                        _ if sequence != self.sequence => {}
                        Message::Connection(connection) => each(*connection),
                        Message::Done => break 'answers,
                        Message::Refused(error) => return Err(error),
                        Message::Other => {}
                    }
                }
            }
            self.is_behind = false;
        }
        Ok(())
    }

    /// Passes on every connection that has ended since the last call, in its last state.
    pub fn ended(&mut self, mut each: impl FnMut(TcpConnection)) {
        loop {
            match self.ends.recv_from_full() {
                Ok((bytes, _)) => {
                    for (_, message) in messages(&bytes) {
                        if let Message::Connection(connection) = message {
                            each(*connection);
                        }
                    }
                }
                // More ended than the buffer holds; the kernel reports that once.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

enum Message {
    Connection(Box<TcpConnection>),
    Done,
    Refused(io::Error),
    Other,
}

/// Returns a request for all connections of one version of IP: `struct nlmsghdr` and `struct
/// inet_diag_req_v2`.
fn request(family: libc::c_int, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST);
    bytes.extend((REQUEST as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family as u8, libc::IPPROTO_TCP as u8, WANT_INFO, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.resize(REQUEST, 0);
    bytes
}

/// Splits a datagram into its messages, each with the number of the request that it answers.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u32, Message)> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let message = rest.get(..length).filter(|m| m.len() >= HEADER)?;
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        let sequence = u32_at(message, 8)?;
        let body = &message[HEADER..];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let content = match i32::from(kind) {
            libc::NLMSG_DONE => Message::Done,
            libc::NLMSG_ERROR => {
                let code = u32_at(body, 0).unwrap_or(0) as i32;
                Message::Refused(io::Error::from_raw_os_error(-code))
            }
            _ if kind == SOCK_DIAG_BY_FAMILY => connection(body)
                .map_or(Message::Other, |found| Message::Connection(Box::new(found))),
            _ => Message::Other,
        };
        Some((sequence, content))
    })
}

/// Reads a `struct inet_diag_msg` and its attributes. Returns `None` for a socket without
/// `tcp_info`, which the kernel does not keep in TIME-WAIT.
fn connection(body: &[u8]) -> Option<TcpConnection> {
    let message = body.get(..DIAG)?;
    let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let address = |at: usize| -> IpAddr {
        let bytes = &message[at..at + 16];
        if i32::from(message[0]) == libc::AF_INET {
            Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..4]).expect("four bytes")).into()
        } else {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("sixteen bytes"));
            address.to_canonical()
        }
    };
    let mut rest = &body[DIAG..];
    let mut info = None;
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let value = rest.get(4..usize::from(length))?;
        if kind == INFO {
            info = Some(TcpInfo::of_bytes(value));
        }
        rest = rest
            .get(usize::from(length).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Some(TcpConnection {
        local: SocketAddr::new(address(8), port(4)),
        remote: SocketAddr::new(address(24), port(6)),
        cookie: u64::from(u32_at(message, 44)?) | u64::from(u32_at(message, 48)?) << 32,
        info: info?,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of a request: header and `struct inet_diag_req_v2`.
const REQUEST: usize = HEADER + 56;
/// Bytes of `struct inet_diag_msg`.
const DIAG: usize = 72;
/// The attribute with `struct tcp_info`, and the bit that requests it.
const INFO: u16 = 2;
const WANT_INFO: u8 = 1 << (INFO - 1);
/// All states but SYN-RECEIVED of listeners, CLOSED and LISTEN (include/net/tcp_states.h).
const STATES: u32 = 0xfff & !(1 << 7 | 1 << 10);
/// Multicast groups of connections that end.
const TCP4_ENDS: u32 = 1;
const TCP6_ENDS: u32 = 3;
/// Room for some thousand ended connections between two readings.
const ENDS_BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_ends_of_a_connection_are_listed_and_its_end_is_reported() {
        let here = Namespace::current().unwrap();
        let mut diag = TcpDiag::open(&here).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let near = client.local_addr().unwrap();
        let find = |connection: &TcpConnection| connection.local == near;
        let mut listed = Vec::new();
        diag.connections(|connection| listed.extend(Some(connection).filter(find)))
            .unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].remote, server.local_addr().unwrap());
        assert_eq!(listed[0].info.sample(Default::default()).bytes_sent, 1000);
        let mut of_server = 0;
        diag.connections(|c| of_server += u64::from(c.remote == near) * c.info.bytes_received)
            .unwrap();
        assert_eq!(of_server, 1000);
        drop((client, server));
        let mut last = Vec::new();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while last.is_empty() && std::time::Instant::now() < deadline {
            diag.ended(|connection| last.extend(Some(connection).filter(find)));
        }
        assert_eq!(last[0].cookie, listed[0].cookie);
        assert_eq!(last[0].info.sample(Default::default()).bytes_sent, 1000);
    }
}
