//! Socket functions that live end hosts need and that neither std nor `socket2` offers.

mod diag;
mod stamped;
mod tcp_info;

pub use diag::{DiagError, TcpConnection, TcpDiag};
pub use stamped::{Arrival, BUFFER_LEN, TimedReceiver};
pub use tcp_info::{TcpInfo, TcpSample};

use crate::sys;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Waits until one of `polls` is ready or `timeout` has passed. Returns the number of ready
/// entries. A signal counts as a timeout.
pub fn poll(polls: &mut [libc::pollfd], timeout: Option<Duration>) -> usize {
    sys::poll(polls, timeout)
}

/// Discards up to `most` bytes that a TCP socket has received, without copying them; returns how
/// many.
///
/// # Errors
/// Those of `recv(2)`.
pub fn discard(socket: &socket2::Socket, most: usize) -> io::Result<usize> {
    sys::discard(socket, most)
}

/// Sets the size of a socket's receive buffer, beyond `net.core.rmem_max` where the process may.
///
/// # Errors
/// The kernel refuses both.
pub fn grant_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    sys::grant_receive_buffer(socket, bytes)
}

/// Makes a raw ICMP or ICMPv6 socket receive messages of one type only.
///
/// # Errors
/// `socket` is not a raw socket of that protocol.
pub fn receive_icmp_only(socket: &impl AsFd, is_v4: bool, kind: u8) -> io::Result<()> {
    // linux/icmp.h and icmpv6.h: a set bit blocks its type.
    if is_v4 {
        let block = !(1u32 << kind);
        sys::set_option(socket, libc::SOL_RAW, ICMP_FILTER, &block)
    } else {
        let mut block = [u32::MAX; 8];
        block[usize::from(kind / 32)] &= !(1 << (kind % 32));
        sys::set_option(socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &block)
    }
}

const ICMP_FILTER: libc::c_int = 1;
const ICMP6_FILTER: libc::c_int = 1;
