//! Batches of messages for `recvmmsg` and `sendmmsg`.
#![allow(unsafe_code)]

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Message headers with their scatter lists and room for one control message each.
///
/// The lists point to memory only during a call: [`Messages::clear`] comes before, and what
/// is added borrows until [`Messages::receive`] or [`Messages::send`] has returned, which the
/// callers see to.
pub(super) struct Messages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[[libc::iovec; 2]]>,
    controls: Box<[Control]>,
    length: usize,
}

/// Room for the control messages of one message, aligned as their headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// What came with a received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Bytes of the message, also of those that did not fit.
    pub length: usize,
    /// Whether some did not fit.
    pub is_truncated: bool,
    /// A tag that the kernel had taken out: protocol and TCI.
    pub tag: Option<(u16, u16)>,
    /// CLOCK_REALTIME when the kernel took the frame from the device.
    pub stamp_ns: Option<u64>,
}

// SAFETY: between calls the lists' pointers are null or stale and not followed; the headers' point to
// lists and control messages in boxes of `self`, which stay where they are when it moves.
unsafe impl Send for Messages {}

impl Messages {
    pub(super) fn new(capacity: usize) -> Messages {
        // SAFETY: all-zero bytes are a valid mmsghdr and a valid iovec.
        let (header, vector) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Messages {
            headers: vec![header; capacity].into(),
            vectors: vec![[vector; 2]; capacity].into(),
            controls: vec![Control([0; CONTROL_LEN]); capacity].into(),
            length: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds a message of two parts, the second possibly empty.
    ///
    /// # Safety
    /// Both parts must stay valid, and unused by anybody else, until the next
    /// [`Messages::receive`] or [`Messages::send`] has returned.
    pub(super) unsafe fn push(&mut self, first: &mut [u8], second: &mut [u8]) {
        self.vectors[self.length] = [first, second].map(|part| libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        });
        self.length += 1;
    }

    /// Receives without waiting; how many messages.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.link(true);
        // SAFETY: the first `length` headers point to lists and control buffers in `self`, and
        // these to memory that is valid for writing by the promise made to `push`.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.length as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        sys::check(count).map(|count| count as usize)
    }

    /// Sends messages `from..` without waiting; how many the kernel took.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, from: usize) -> io::Result<usize> {
        self.link(false);
        let rest = &mut self.headers[from..self.length];
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

    /// What came with message `index` of the last [`Messages::receive`].
    pub(super) fn received(&self, index: usize) -> Received {
        let header = &self.headers[index];
        let (mut tag, mut stamp_ns) = (None, None);
        // SAFETY: recvmmsg filled the header, and its control room has not been touched since.
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
            tag,
            stamp_ns,
        }
    }

    fn link(&mut self, with_control: bool) {
        for ((header, vectors), control) in self
            .headers
            .iter_mut()
            .zip(&mut self.vectors)
            .zip(&mut self.controls)
            .take(self.length)
        {
            let used = if vectors[1].iov_len == 0 { 1 } else { 2 };
            header.msg_hdr.msg_iov = vectors.as_mut_ptr();
            header.msg_hdr.msg_iovlen = used;
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

/// Room for timestamps (16 + 48) and a `tpacket_auxdata` (16 + 20, in eights).
const CONTROL_LEN: usize = 104;
const TAG_8021Q: u16 = 0x8100;
