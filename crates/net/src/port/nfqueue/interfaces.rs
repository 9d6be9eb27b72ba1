//! The interfaces between which the kernel's stack moves a packet, as numbers in a list of names.
#![allow(unsafe_code)]

use super::rule::Hook;
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The path of a packet through the kernel's stack.
///
/// Interfaces are numbers in the list that the port was opened with; [`StackPath::OTHER`] is an
/// interface that the list lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackPath {
    /// The interface by which the packet came in; `None` if this host sends it.
    pub recv: Option<u16>,
    /// The interface by which the packet leaves; `None` if this host receives it.
    pub xmit: Option<u16>,
}

impl StackPath {
    /// An interface that the list lacks.
    pub const OTHER: u16 = u16::MAX;
}

/// The numbers of interfaces, by the kernel's index.
#[derive(Default)]
pub(super) struct Interfaces {
    names: Vec<String>,
    /// Indexes that have been looked up: a handful.
    known: Vec<(u32, u16)>,
}

impl Interfaces {
    pub(super) const fn new(names: Vec<String>) -> Self {
        Interfaces {
            names,
            known: Vec::new(),
        }
    }

    /// Returns whether paths are recorded at all.
    pub(super) const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the path of a packet that was queued at the hook with this number.
    pub(super) fn path(
        &mut self,
        socket: BorrowedFd<'_>,
        hook: u8,
        entered: Option<u32>,
        leaves: Option<u32>,
    ) -> StackPath {
        let is = |which: Hook| u32::from(hook) == which.number();
        let mut number = |index: Option<u32>| self.number(socket, index);
        StackPath {
            recv: (!is(Hook::Output)).then(|| number(entered)),
            xmit: (!is(Hook::Input)).then(|| number(leaves)),
        }
    }

    fn number(&mut self, socket: BorrowedFd<'_>, index: Option<u32>) -> u16 {
        let Some(index) = index else {
            return StackPath::OTHER;
        };
        if let Some((_, number)) = self.known.iter().find(|(known, _)| *known == index) {
            return *number;
        }
        // An interface that was created again, as by a dial-up daemon, has a new index.
        let name = name_of(socket, index).ok();
        let place = name.and_then(|name| self.names.iter().position(|own| *own == name));
        let number = place.map_or(StackPath::OTHER, |place| place as u16);
        if self.known.len() == MOST_KNOWN {
            self.known.clear();
        }
        self.known.push((index, number));
        number
    }
}

/// Returns the name of an interface in the namespace of a socket.
fn name_of(socket: BorrowedFd<'_>, index: u32) -> io::Result<String> {
    // SAFETY: all bytes zero are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = i32::try_from(index).unwrap_or(0);
    // SAFETY: netdevice(7): the kernel reads the index in the request and writes the name into it.
    sys::check(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFNAME as _,
            std::ptr::from_mut(&mut request),
        )
    })?;
    let bytes = request.ifr_name.iter().map(|byte| *byte as u8);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Interfaces come and go; the list must not only grow.
const MOST_KNOWN: usize = 64;
