//! Batches of messages for `recvmmsg` and `sendmmsg`.
#![allow(unsafe_code)]

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Message headers with their scatter lists and room for control messages.
///
/// The lists point to memory only during a call. [`Messages::clear`] comes before it, and callers
/// must keep what was added borrowed until [`Messages::receive`] or [`Messages::send_all`] has
/// returned.
pub(super) struct Messages {
    headers: Box<[libc::mmsghdr]>,
    /// The lists, one after the other; they never grow beyond the initial capacity.
    vectors: Vec<libc::iovec>,
    /// The start of the list of each message.
    starts: Vec<usize>,
    controls: Box<[Control]>,
}

/// Room for the control messages of one message, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// The metadata of a received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Length of the message, including bytes that did not fit.
    pub length: usize,
    /// Whether some bytes did not fit.
    pub is_truncated: bool,
    /// Whether control messages did not fit: a tag may be missing.
    pub is_control_cut: bool,
    /// A VLAN tag that the kernel stripped: protocol and TCI.
    pub tag: Option<(u16, u16)>,
    /// CLOCK_REALTIME when the kernel received the frame from the device.
    pub stamp_ns: Option<u64>,
}

// SAFETY: between calls the lists' pointers are null or stale and not followed; the headers' point
// to lists and control messages on the heap, which stay where they are when `self` moves.
unsafe impl Send for Messages {}

/// Returns the number of messages to prepare for the next call, at most `most`. The last call
/// received `count` messages. Each prepared message costs some nanoseconds even if none arrives,
/// and at low rates one arrives at a time. A caller that receives as many as it prepared calls
/// again.
pub(super) fn expected_after(count: usize, most: usize) -> usize {
    (4 * count).clamp(FEWEST.min(most), most)
}

impl Messages {
    /// Creates room for `capacity` messages, of two parts each on average.
    pub(super) fn new(capacity: usize) -> Messages {
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let header = unsafe { std::mem::zeroed() };
        Messages {
            headers: vec![header; capacity].into(),
            vectors: Vec::with_capacity(2 * capacity),
            starts: Vec::with_capacity(capacity),
            controls: vec![Control([0; CONTROL_LEN]); capacity].into(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.vectors.clear();
        self.starts.clear();
    }

    /// Adds a message of two parts, the second possibly empty.
    ///
    /// # Safety
    /// Both parts must stay valid, and unused by anyone else, until the next [`Messages::receive`]
    /// or [`Messages::send_all`] has returned.
    pub(super) unsafe fn push(&mut self, first: &mut [u8], second: &mut [u8]) {
        assert!(
            self.starts.len() < self.headers.len(),
            "there is room for it"
        );
        self.starts.push(self.vectors.len());
        // SAFETY: as promised by the caller.
        unsafe {
            self.extend(first);
            if !second.is_empty() {
                self.extend(second);
            }
        }
    }

    /// Adds a part to the message that was added last.
    ///
    /// # Safety
    /// As for [`Messages::push`].
    pub(super) unsafe fn extend(&mut self, part: &mut [u8]) {
        assert!(
            self.vectors.len() < self.vectors.capacity(),
            "there is room for it"
        );
        self.vectors.push(libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        });
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Receives without waiting. Returns the number of messages.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.link(true);
        // SAFETY: the first `len` headers point to lists and control buffers in `self`, and these
        // to memory that is valid for writing, as guaranteed to `push`.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        sys::check(count).map(|count| count as usize)
    }

    /// Sends messages `from..` without waiting. Returns the number that the kernel accepted.
    fn send(&mut self, socket: BorrowedFd<'_>, from: usize) -> io::Result<usize> {
        self.link(false);
        let length = self.len();
        let rest = &mut self.headers[from..length];
        // SAFETY: as in `receive`, and the kernel only reads what the lists point to.
        let count = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                rest.as_mut_ptr(),
                rest.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        sys::check(count).map(|count| count as usize)
    }

    /// Sends all messages in order, without blocking, and reports the outcome of each: an error
    /// concerns one message only. Returns the number of reported messages; the next one would have
    /// blocked.
    pub(super) fn send_all(
        &mut self,
        socket: BorrowedFd<'_>,
        mut tell: impl FnMut(usize, Option<io::Error>),
    ) -> usize {
        self.send_from(socket, 0, |index, error| {
            tell(index, error);
            true
        })
    }

    /// Like [`Messages::send_all`], from message `done` on, and up to an error for which `tell` returns
    /// false. Returns the number of messages before that one.
    pub(super) fn send_from(
        &mut self,
        socket: BorrowedFd<'_>,
        mut done: usize,
        mut tell: impl FnMut(usize, Option<io::Error>) -> bool,
    ) -> usize {
        while done < self.len() {
            match self.send(socket, done) {
                Ok(count) => {
                    for index in done..done + count {
                        tell(index, None);
                    }
                    done += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    if !tell(done, Some(error)) {
                        break;
                    }
                    done += 1;
                }
            }
        }
        done
    }

    /// Returns the metadata of message `index` of the last [`Messages::receive`].
    pub(super) fn received(&self, index: usize) -> Received {
        let header = &self.headers[index];
        let (mut tag, mut stamp_ns) = (None, None);
        // SAFETY: recvmmsg filled the header, which states how much of the control buffer is used;
        // the buffer has not been touched since.
        for (level, kind, payload) in unsafe { sys::control_messages(&header.msg_hdr) } {
            match (level, kind) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => tag = taken_tag(payload),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamp_ns = sys::stamp_ns(payload),
                _ => {}
            }
        }
        Received {
            length: header.msg_len as usize,
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            is_control_cut: header.msg_hdr.msg_flags & libc::MSG_CTRUNC != 0,
            tag,
            stamp_ns,
        }
    }

    fn link(&mut self, with_control: bool) {
        let end = self.vectors.len();
        let ends = self.starts.iter().skip(1).chain([&end]);
        let lists = self.starts.iter().zip(ends);
        let vectors = self.vectors.as_mut_ptr();
        let rooms = self.headers.iter_mut().zip(&mut self.controls);
        for ((header, control), (start, end)) in rooms.zip(lists) {
            // SAFETY: the list is inside `vectors`.
            header.msg_hdr.msg_iov = unsafe { vectors.add(*start) };
            header.msg_hdr.msg_iovlen = end - start;
            header.msg_hdr.msg_flags = 0;
            if with_control {
                header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_LEN;
            }
        }
    }
}

/// packet(7), PACKET_AUXDATA: the tag is valid when the status says so.
fn taken_tag(auxiliary: &[u8]) -> Option<(u16, u16)> {
    // struct tpacket_auxdata: u32 status, len, snaplen; u16 mac, net, vlan_tci, vlan_tpid.
    let status = u32::from_ne_bytes(*auxiliary.first_chunk()?);
    let word = |at: usize| {
        auxiliary
            .get(at..)?
            .first_chunk()
            .copied()
            .map(u16::from_ne_bytes)
    };
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let protocol = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        word(18)?
    } else {
        TAG_8021Q
    };
    Some((protocol, word(16)?))
}

/// The smallest number of messages to prepare: at moderate rates, the number that arrives while one
/// frame is forwarded.
const FEWEST: usize = 8;
/// Room for timestamps (16 + 48) and a `tpacket_auxdata` (16 + 20, rounded up to a multiple of 8).
const CONTROL_LEN: usize = 104;
/// The default protocol of a tag.
pub(super) const TAG_8021Q: u16 = 0x8100;

#[cfg(test)]
mod tests {
    use super::{Messages, expected_after};
    use crate::sys;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn control_messages_without_room_are_noticed() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut messages = Messages::new(1);
        let mut receive = || {
            let address = receiver.local_addr().unwrap();
            sender.send_to(b"hello", address).unwrap();
            let mut room = [0; 16];
            messages.clear();
            // SAFETY: the room is valid until the message is received.
            unsafe { messages.push(&mut room, &mut []) };
            assert_eq!(messages.receive(receiver.as_fd()).unwrap(), 1);
            messages.received(0)
        };
        assert!(!receive().is_control_cut);
        // 32 bytes for addresses (28 in eights), 32 for those of before, 24 each for the other three: 136 of 104.
        for option in [
            libc::IP_PKTINFO,
            libc::IP_RECVORIGDSTADDR,
            libc::IP_RECVTOS,
            libc::IP_RECVTTL,
            libc::IP_RECVFRAGSIZE,
        ] {
            sys::set_option(&receiver, libc::IPPROTO_IP, option, &1i32).unwrap();
        }
        sys::set_option(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMP, &1i32).unwrap();
        let received = receive();
        assert!(received.is_control_cut);
        assert_eq!((received.length, received.is_truncated), (5, false));
    }

    #[test]
    fn a_batch_grows_while_it_is_full_and_shrinks_to_what_comes() {
        let mut prepared = expected_after(0, 64);
        let mut calls = vec![prepared];
        while prepared < 64 {
            prepared = expected_after(prepared, 64);
            calls.push(prepared);
        }
        assert_eq!(calls, [8, 32, 64]);
        assert_eq!(expected_after(64, 64), 64);
        assert_eq!(expected_after(5, 64), 20);
        assert_eq!(expected_after(1, 64), 8);
        // A call takes only a few super-packets, perhaps one.
        assert_eq!(expected_after(3, 2), 2);
        assert_eq!(expected_after(0, 1), 1);
    }
}
