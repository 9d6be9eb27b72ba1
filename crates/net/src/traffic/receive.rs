//! Datagrams with the kernel's receive timestamps.
#![allow(unsafe_code)]

use crate::clock::Clock;
use crate::sys;
use sluice_core::Time;
use socket2::Socket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Receives datagrams in batches, each with the instant at which the kernel got it.
pub(super) struct TimedReceiver {
    buffers: Box<[[u8; BUFFER_LEN]]>,
    controls: Box<[Control]>,
}

/// What came with a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// When the kernel took it from the device.
    pub time: Time,
    /// The IP ECN field, where the socket asks for it.
    pub ecn: u8,
    /// Bytes of the datagram, also of those beyond the buffer.
    pub length: usize,
}

/// Room for the control messages of one datagram, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl TimedReceiver {
    /// Switches timestamps and the traffic class on for `socket`.
    pub(super) fn new(socket: &Socket, is_v4: bool) -> io::Result<TimedReceiver> {
        let on: libc::c_int = 1;
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        if is_v4 {
            sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &on)?;
        } else {
            sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &on)?;
        }
        Ok(TimedReceiver {
            buffers: vec![[0; BUFFER_LEN]; BATCH].into(),
            controls: vec![Control([0; CONTROL_LEN]); BATCH].into(),
        })
    }

    /// Receives what waits, up to a batch, and hands the first [`BUFFER_LEN`] bytes of each
    /// datagram to `take`; how many there were.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        clock: &Clock,
        mut take: impl FnMut(&[u8], Arrival),
    ) -> io::Result<usize> {
        // SAFETY: all-zero bytes are a valid iovec and a valid mmsghdr.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for (((header, vector), buffer), control) in headers
            .iter_mut()
            .zip(&mut vectors)
            .zip(&mut self.buffers)
            .zip(&mut self.controls)
        {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = BUFFER_LEN;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_LEN;
        }
        // SAFETY: every header points to one iovec, its buffer and its control room, all of
        // which outlive the call and are used by nobody else.
        let count = sys::check(unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        })? as usize;
        let offset_ns = clock.realtime_offset_ns();
        for (header, buffer) in headers.iter().zip(&self.buffers).take(count) {
            let length = header.msg_len as usize;
            let (stamp, class) = control_messages(&header.msg_hdr);
            let arrival = Arrival {
                // Without a stamp (not on any kernel of this decade) now is the best guess.
                time: stamp
                    .map_or_else(|| clock.now(), |stamp| clock.at_realtime(stamp, offset_ns)),
                ecn: class & 3,
                length,
            };
            take(&buffer[..length.min(BUFFER_LEN)], arrival);
        }
        Ok(count)
    }
}

/// The timestamp in nanoseconds and the traffic class.
fn control_messages(header: &libc::msghdr) -> (Option<u64>, u8) {
    let mut stamp = None;
    let mut class = 0;
    // SAFETY: the header is one that recvmmsg filled, and its control room is still there.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole header inside the room,
        // aligned as it is.
        let (level, kind, payload) =
            unsafe { ((*next).cmsg_level, (*next).cmsg_type, libc::CMSG_DATA(next)) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the payload of this kind is a timespec; it may be unaligned.
                let time = unsafe { payload.cast::<libc::timespec>().read_unaligned() };
                stamp = Some(sys::timespec_ns(&time));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                // SAFETY: the payload of this kind is one byte.
                class = unsafe { payload.read() };
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // SAFETY: the payload of this kind is an int; it may be unaligned.
                class = unsafe { payload.cast::<libc::c_int>().read_unaligned() } as u8;
            }
            _ => {}
        }
        // SAFETY: `next` is a header of this message.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    (stamp, class)
}

/// Most datagrams of one system call.
const BATCH: usize = 32;
/// Bytes kept of a datagram: an IPv4 header with options, an ICMP header and our payload.
pub(super) const BUFFER_LEN: usize = 128;
/// A timestamp (16 + 16) and a traffic class (16 + 8), with room to spare.
const CONTROL_LEN: usize = 128;
