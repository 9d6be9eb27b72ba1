//! Batches of messages for `recvmmsg` and `sendmmsg`.
#![allow(unsafe_code)]

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

/// Room for one `PACKET_AUXDATA` message, aligned as the kernel's headers are.
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
}

// SAFETY: the pointers inside are null or stale between calls and never followed then.
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

    pub(super) fn is_full(&self) -> bool {
        self.length == self.headers.len()
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
        crate::sys::check(count).map(|count| count as usize)
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
        crate::sys::check(count).map(|count| count as usize)
    }

    /// What came with message `index` of the last [`Messages::receive`].
    pub(super) fn received(&self, index: usize) -> Received {
        let header = &self.headers[index];
        Received {
            length: header.msg_len as usize,
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            tag: self.tag(header, &self.controls[index]),
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

    /// packet(7), PACKET_AUXDATA: the tag is valid when the status says so.
    fn tag(&self, header: &libc::mmsghdr, control: &Control) -> Option<(u16, u16)> {
        if header.msg_hdr.msg_controllen < CONTROL_LEN {
            return None;
        }
        // SAFETY: the kernel filled the whole buffer with one control header, which is
        // aligned and inside of it.
        let kind: libc::cmsghdr = unsafe { control.0.as_ptr().cast::<libc::cmsghdr>().read() };
        if kind.cmsg_level != libc::SOL_PACKET || kind.cmsg_type != libc::PACKET_AUXDATA {
            return None;
        }
        // SAFETY: of this kind the payload is a tpacket_auxdata, for which there is room.
        let aux: libc::tpacket_auxdata = unsafe {
            control
                .0
                .as_ptr()
                .add(size_of::<libc::cmsghdr>())
                .cast::<libc::tpacket_auxdata>()
                .read()
        };
        if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let protocol = if aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            aux.tp_vlan_tpid
        } else {
            TAG_8021Q
        };
        Some((protocol, aux.tp_vlan_tci))
    }
}

/// `CMSG_SPACE(sizeof(struct tpacket_auxdata))`: the header and 20 bytes, in eights.
const CONTROL_LEN: usize =
    size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>().next_multiple_of(8);
const TAG_8021Q: u16 = 0x8100;
