//! Datagrams with the kernel's receive timestamps.
#![allow(unsafe_code)]

use crate::clock::{Clock, ClockReading, Stamps};
use crate::sys;
use sluice_core::Time;
use socket2::Socket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Receives datagrams in batches, each with the instant at which the kernel received it.
pub struct TimedReceiver {
    buffers: Box<[[u8; BUFFER_LEN]]>,
    controls: Box<[Control]>,
    overflowed: u32,
    stamps: Stamps,
}

/// The metadata of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The instant at which the kernel received it from the device. Unknown for the first few
    /// packets, because the kernel enables timestamps in the background.
    pub time: Option<Time>,
    /// For a message of the error queue: the number of the packet that left at this instant.
    pub departed: Option<u32>,
    /// The IP ECN field, if the socket requests it. Unknown if the kernel had to cut the control
    /// messages.
    pub ecn: Option<u8>,
    /// Bytes of the datagram, also of those beyond the buffer.
    pub length: usize,
}

/// Room for the control messages of one datagram, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl TimedReceiver {
    /// Switches timestamps and the traffic class on for `socket`.
    pub fn new(socket: &Socket, is_v4: bool) -> io::Result<TimedReceiver> {
        let on: libc::c_int = 1;
        sys::switch_timestamps_on(socket)?;
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &on)?;
        if is_v4 {
            sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &on)?;
        } else {
            sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &on)?;
        }
        Ok(TimedReceiver::with_room())
    }

    /// Switches on departure timestamps for `socket`.
    pub fn of_departures(socket: &Socket) -> io::Result<TimedReceiver> {
        sys::switch_departures_on(socket)?;
        Ok(TimedReceiver::with_room())
    }

    fn with_room() -> TimedReceiver {
        TimedReceiver {
            buffers: vec![[0; BUFFER_LEN]; BATCH].into(),
            controls: vec![Control([0; CONTROL_LEN]); BATCH].into(),
            overflowed: 0,
            stamps: Stamps::new(ClockReading::take()),
        }
    }

    /// Returns the number of datagrams lost because the socket's buffer was full, until the last
    /// one received.
    pub fn overflowed(&self) -> u64 {
        u64::from(self.overflowed)
    }

    /// Receives up to a batch of waiting datagrams, and passes the first [`BUFFER_LEN`] bytes of
    /// each to `take`. Returns the number of datagrams.
    pub fn receive(
        &mut self,
        socket: &Socket,
        clock: &Clock,
        take: impl FnMut(&[u8], Arrival),
    ) -> io::Result<usize> {
        self.receive_from(0, socket, clock, take)
    }

    /// Passes number and departure time of each packet in the error queue to `take`.
    pub fn departures(
        &mut self,
        socket: &Socket,
        clock: &Clock,
        mut take: impl FnMut(u32, Time),
    ) -> io::Result<usize> {
        self.receive_from(libc::MSG_ERRQUEUE, socket, clock, |_, metadata| {
            if let (Some(number), Some(time)) = (metadata.departed, metadata.time) {
                take(number, time);
            }
        })
    }

    fn receive_from(
        &mut self,
        queue: libc::c_int,
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
        let count = loop {
            // SAFETY: every header points to one iovec, its buffer and its control room, all of
            // which outlive the call and are used by nobody else.
            let count = sys::check(unsafe {
                libc::recvmmsg(
                    socket.as_fd().as_raw_fd(),
                    headers.as_mut_ptr(),
                    BATCH as libc::c_uint,
                    queue | libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                    std::ptr::null_mut(),
                )
            });
            match count {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => break count? as usize,
            }
        };
        self.stamps.look();
        for (header, buffer) in headers.iter().zip(&self.buffers).take(count) {
            let length = header.msg_len as usize;
            let metadata = Metadata::of(&header.msg_hdr);
            self.overflowed = metadata.overflowed.unwrap_or(self.overflowed);
            let arrival = Arrival {
                time: metadata
                    .stamp_ns
                    .map(|stamp| clock.at_monotonic(self.stamps.monotonic_ns(stamp))),
                departed: metadata.departed,
                ecn: metadata.class.map(|class| class & 3),
                length,
            };
            take(&buffer[..length.min(BUFFER_LEN)], arrival);
        }
        Ok(count)
    }
}

/// The contents of a datagram's control messages.
#[derive(Default)]
struct Metadata {
    stamp_ns: Option<u64>,
    /// The number of the packet that left at that time, for a stamp of a departure.
    departed: Option<u32>,
    /// The traffic class.
    class: Option<u8>,
    /// The number of times that the buffer was full.
    overflowed: Option<u32>,
}

impl Metadata {
    fn of(header: &libc::msghdr) -> Metadata {
        // The kernel cuts what does not fit, so a missing message does not mean its default.
        let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
        let mut metadata = Metadata {
            class: (!is_cut).then_some(0),
            ..Metadata::default()
        };
        // SAFETY: recvmmsg filled the header, and says in it how much of the control room, which
        // has not been touched since.
        for (level, kind, payload) in unsafe { sys::control_messages(header) } {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    metadata.stamp_ns = sys::stamp_ns(payload)
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    metadata.overflowed = payload.first_chunk().copied().map(u32::from_ne_bytes);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => metadata.class = payload.first().copied(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let int = payload.first_chunk().copied();
                    metadata.class = int.map(|int| libc::c_int::from_ne_bytes(int) as u8);
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    // struct sock_extended_err: `ee_data` is the number of the packet.
                    let number = payload.get(EE_DATA..).and_then(<[u8]>::first_chunk);
                    metadata.departed = number.copied().map(u32::from_ne_bytes);
                }
                _ => {}
            }
        }
        metadata
    }
}

const EE_DATA: usize = std::mem::offset_of!(libc::sock_extended_err, ee_data);

/// The largest number of datagrams of one system call.
const BATCH: usize = 32;
/// Bytes kept of a datagram: an IPv4 header with options, an ICMP header and our payload.
pub const BUFFER_LEN: usize = 128;
/// Timestamps (16 + 48), an overflow count (16 + 8) and a traffic class (16 + 8), or timestamps and
/// a `sock_extended_err` with an address (16 + 48), with room to spare.
const CONTROL_LEN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_ecn_field_is_unknown_if_the_kernel_cut_the_control_messages() {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (sender, receiver) = (bind(), bind());
        // ECT(0): RFC 3168 section 5.
        sys::set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, &2i32).unwrap();
        let socket = Socket::from(receiver.try_clone().unwrap());
        let mut timed = TimedReceiver::new(&socket, true).unwrap();
        let clock = Clock::start();
        let mut receive = || {
            sender
                .send_to(b"hello", receiver.local_addr().unwrap())
                .unwrap();
            // Waits for it.
            assert_eq!(receiver.peek(&mut [0; 8]).unwrap(), 5);
            let mut arrivals = Vec::new();
            let take = |bytes: &[u8], arrival: Arrival| {
                assert_eq!(bytes, b"hello");
                arrivals.push((arrival.ecn, arrival.length));
            };
            timed.receive(&socket, &clock, take).unwrap();
            arrivals
        };
        assert_eq!(receive(), [(Some(2), 5)]);
        // 32 bytes for the older kind of timestamp, 64 for timestamps, 32 for addresses: 128 of 128, and none
        // for the traffic class after them (`ip_cmsg_recv_offset` in net/ipv4/ip_sockglue.c).
        sys::set_option(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMP, &1i32).unwrap();
        sys::set_option(&receiver, libc::IPPROTO_IP, libc::IP_PKTINFO, &1i32).unwrap();
        assert_eq!(receive(), [(None, 5)]);
    }
}
