//! The interfaces between which the kernel's stack moves a packet, as numbers in a list of names.
#![allow(unsafe_code)]

use super::rule::Hook;
use crate::sys;
use std::collections::HashMap;
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
    /// The places of the names in the list.
    numbers: HashMap<String, u16>,
    /// Indexes that have been looked up.
    known: HashMap<u32, u16>,
}

impl Interfaces {
    /// Numbers at most [`MOST_NAMES`] names.
    pub(super) fn new(names: &[String]) -> Self {
        debug_assert!(names.len() <= MOST_NAMES);
        let mut numbers = HashMap::with_capacity(names.len());
        for (name, number) in names.iter().zip(0..) {
            numbers.entry(name.clone()).or_insert(number);
        }
        Interfaces {
            numbers,
            known: HashMap::new(),
        }
    }

    /// Returns whether paths are recorded at all.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
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
        let mut number =
            |index: Option<u32>| self.number(index, |index| name_of(socket, index).ok());
        StackPath {
            recv: (!is(Hook::Output)).then(|| number(entered)),
            xmit: (!is(Hook::Input)).then(|| number(leaves)),
        }
    }

    /// Returns the number of the interface with an index. Only for an unknown index, `name_of` asks the
    /// kernel.
    fn number(&mut self, index: Option<u32>, name_of: impl FnOnce(u32) -> Option<String>) -> u16 {
        let Some(index) = index else {
            return StackPath::OTHER;
        };
        if let Some(number) = self.known.get(&index) {
            return *number;
        }
        // An interface that was created again, as by a dial-up daemon, has a new index.
        let number = name_of(index).and_then(|name| self.numbers.get(&name).copied());
        let number = number.unwrap_or(StackPath::OTHER);
        if self.known.len() >= self.numbers.len() + MOST_NEW {
            self.known.clear();
        }
        self.known.insert(index, number);
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

/// Names that have numbers of their own: all but [`StackPath::OTHER`].
pub(super) const MOST_NAMES: usize = StackPath::OTHER as usize;
/// Indexes that are kept beside one for each name. Interfaces come and go; the list must not only grow.
const MOST_NEW: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::port::nfqueue::{NfqueueOptions, NfqueuePort};

    #[test]
    fn the_kernel_is_asked_once_about_each_of_many_interfaces() {
        let names: Vec<String> = (0..500).map(|number| format!("ppp{number}")).collect();
        let mut interfaces = Interfaces::new(&names);
        let mut asked = 0;
        for _ in 0..3 {
            // The last one has a name that is not in the list.
            for index in 0..501 {
                let number = interfaces.number(Some(index), |index| {
                    asked += 1;
                    Some(format!("ppp{index}"))
                });
                let expected = u16::try_from(index).unwrap();
                let is_listed = index < 500;
                assert_eq!(
                    number,
                    if is_listed {
                        expected
                    } else {
                        StackPath::OTHER
                    }
                );
            }
        }
        assert_eq!(asked, 501);
        assert_eq!(interfaces.number(None, |_| None), StackPath::OTHER);
    }

    #[test]
    fn the_indexes_of_interfaces_that_are_gone_are_forgotten() {
        let mut interfaces = Interfaces::new(&["eth0".to_owned()]);
        for index in 0..100_000 {
            interfaces.number(Some(index), |_| None);
            assert!(interfaces.known.len() <= 1 + MOST_NEW);
        }
        let number = interfaces.number(Some(100_000), |_| Some("eth0".to_owned()));
        assert_eq!(number, 0);
    }

    #[test]
    fn more_interfaces_than_have_numbers_are_refused() {
        let options = NfqueueOptions {
            interfaces: (0..65_536).map(|number| format!("ppp{number}")).collect(),
            ..NfqueueOptions::default()
        };
        let own = Namespace::current().unwrap();
        let error = NfqueuePort::open(&own, &options).err().unwrap().to_string();
        let expected = "65536 interfaces were named for the paths of packets; at most 65535 can be \
                        distinguished";
        assert_eq!(error, expected);
    }
}
