//! Safe wrappers of the system calls that std and the socket libraries do not offer.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

mod elsewhere;
mod process;
mod thread;
pub(crate) use elsewhere::*;
pub(crate) use process::*;
pub(crate) use thread::*;

/// Turns the C convention (-1 and errno) into a `Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Detaches the calling thread from the given kinds of namespace.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers; CLONE_FS and CLONE_FILES, which would surprise std, are not
    // among the callers' flags.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread into a network namespace.
pub(crate) fn set_network_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is open for the borrow.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// The network namespace of the calling thread.
pub(crate) fn network_namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// The effective user and group.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: neither call takes arguments nor can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// What a child process could do of [`enter_in_child`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Everything.
    All,
    /// Not even `unshare`, for this errno.
    Nothing(i32),
    /// `unshare`, but a step after it was refused for this errno.
    NotAll(i32),
}

/// Runs `unshare(flags)` in a child process that ends at once, and writes these texts to these files
/// there. With a `stage`, the child also gets a mount namespace, and mounts a file system in memory on
/// this folder. Namespaces and mounts end with the child.
///
/// # Errors
/// There is no child, or something killed it, such as a filter of system calls.
pub(crate) fn enter_in_child(
    flags: libc::c_int,
    files: &[(&CStr, &str)],
    stage: Option<&CStr>,
) -> io::Result<Entered> {
    let flags = flags | stage.map_or(0, |_| libc::CLONE_NEWNS);
    // SAFETY: between fork and _exit the child makes system calls only (unshare, open, write, mount) and
    // reads errno, all async-signal-safe, so it does not matter what other threads were doing. Paths
    // and names end with a zero byte; each text is valid for its length; null stands for what a mount
    // does not have.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            // errno values that these calls can give are below 128.
            let errno = || *libc::__errno_location() & 0x7f;
            if libc::unshare(flags) != 0 {
                libc::_exit(errno());
            }
            for (path, text) in files {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY);
                if file < 0 || libc::write(file, text.as_ptr().cast(), text.len()) < 0 {
                    libc::_exit(errno() | LATER);
                }
            }
            if let Some(stage) = stage {
                let (none, slave) = (c"none".as_ptr(), libc::MS_REC | libc::MS_SLAVE);
                let (tmpfs, null) = (c"tmpfs".as_ptr(), std::ptr::null());
                let root = c"/".as_ptr();
                // Without the first call, the second would be seen outside.
                if libc::mount(none, root, std::ptr::null(), slave, null) != 0
                    || libc::mount(tmpfs, stage.as_ptr(), tmpfs, libc::MS_NODEV, null) != 0
                {
                    libc::_exit(errno() | LATER);
                }
            }
            libc::_exit(0);
        }
        check(child)?
    };
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the result, `child` our own child.
        match check(unsafe { libc::waitpid(child, &mut status, 0) }) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if !libc::WIFEXITED(status) {
        return Err(io::Error::other(
            "the process that tried it was killed, as by a filter of system calls",
        ));
    }
    Ok(match libc::WEXITSTATUS(status) {
        0 => Entered::All,
        status if status & LATER != 0 => Entered::NotAll(status & 0x7f),
        errno => Entered::Nothing(errno),
    })
}

/// Marks the errno of a step after `unshare` in the exit status of [`enter_in_child`].
const LATER: libc::c_int = 0x80;

/// Reads a clock in nanoseconds.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert!(result == 0, "CLOCK_MONOTONIC and CLOCK_REALTIME exist");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until `deadline_ns` of CLOCK_MONOTONIC, or until a signal.
pub(crate) fn sleep_until(deadline_ns: u64) {
    let time = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid for reading, and the remainder is not requested.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        );
    }
}

/// Waits until one of `polls` is ready or `timeout` has passed. Returns the number of ready ones.
/// A signal counts as a time-out.
pub(crate) fn poll(polls: &mut [libc::pollfd], timeout: Option<Duration>) -> usize {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polls` is valid for its length, `time` null or valid, the mask null.
    let ready = unsafe {
        libc::ppoll(
            polls.as_mut_ptr(),
            polls.len() as libc::nfds_t,
            time,
            std::ptr::null(),
        )
    };
    usize::try_from(ready).unwrap_or(0)
}

/// Sets the size of a socket's receive queue.
pub(crate) fn grant_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    grant_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
}

/// Sets the size of a socket's send queue.
pub(crate) fn grant_send_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    grant_buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)
}

/// Forces a buffer size if allowed; otherwise requests it within the limits.
fn grant_buffer(
    socket: &impl AsFd,
    force: libc::c_int,
    ask: libc::c_int,
    bytes: usize,
) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(socket, libc::SOL_SOCKET, force, &bytes)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, ask, &bytes))
}

/// A value whose bytes the kernel may read.
///
/// # Safety
/// It consists of integers only. There are no pointers, which the kernel would follow, and no
/// padding, whose bytes would be uninitialised.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers without padding.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: an i32, two u16 and eight bytes, which add up to its size.
unsafe impl Plain for libc::packet_mreq {}
const _: () = assert!(size_of::<libc::packet_mreq>() == 4 + 2 * 2 + 8);
// SAFETY: four u32, which are all of it.
unsafe impl Plain for libc::tpacket_req {}
const _: () = assert!(size_of::<libc::tpacket_req>() == 4 * 4);

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: it holds no addresses.
    unsafe { set_option_with_addresses(socket, level, name, value) }
}

/// Sets an option of a socket whose value contains addresses.
///
/// # Safety
/// The caller must allow everything that the kernel does with the memory at these addresses, now
/// and later. `T` has no padding.
pub(crate) unsafe fn set_option_with_addresses<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reading `size_of::<T>()` bytes, all of them initialised; the
    // caller guarantees the rest.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads an option into `value`. Returns the number of bytes that the kernel filled.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
pub(crate) unsafe fn option<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for `length` bytes, and whatever the kernel writes there is a
    // valid `T` by the caller's promise.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &mut length,
        )
    })?;
    Ok(length as usize)
}

/// Zeroed memory of a fixed size, page-aligned and resident from the start, or a part of such
/// memory.
///
/// It is accessed in pieces, `area[range]`, and never as a whole: pieces may be lent to the kernel
/// (the packet memory of AF_XDP), and there must be no reference to bytes that the kernel writes.
/// Code that lends a piece must not index it until it is returned.
pub(crate) struct Area {
    mapping: SharedMap,
    offset: usize,
    length: usize,
}

impl Area {
    /// Maps an area. It is resident at once, or else each page when it is first used.
    pub(crate) fn new(length: usize, is_resident: bool) -> io::Result<Area> {
        // Miri knows no paging.
        let populate = match is_resident && !cfg!(miri) {
            true => libc::MAP_POPULATE,
            false => 0,
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate;
        Ok(Area {
            mapping: SharedMap::map(length, flags, -1, 0)?,
            offset: 0,
            length,
        })
    }

    /// Splits the area into the first `length` bytes and the rest, which must not be empty.
    pub(crate) fn split_at(self, length: usize) -> (Area, Area) {
        assert!(length < self.length, "both parts have bytes");
        let rest = Area {
            mapping: self.mapping.clone(),
            offset: self.offset + length,
            length: self.length - length,
        };
        (Area { length, ..self }, rest)
    }

    /// Returns the start and the length of the whole memory that this is a part of.
    pub(crate) fn whole(&self) -> (usize, usize) {
        (self.mapping.at(0) as usize, self.mapping.len())
    }

    /// Returns the whole memory that this is a part of.
    pub(crate) fn mapping(&self) -> SharedMap {
        self.mapping.clone()
    }

    /// Returns the offset of this part in the whole memory.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl Area {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the start of the area, for comparisons.
    pub(crate) fn address(&self) -> usize {
        self.mapping.at(self.offset) as usize
    }

    /// Copies a piece to the position `to`.
    pub(crate) fn copy_within(&mut self, from: Range<usize>, to: usize) {
        let length = from.len();
        let (from, to) = (self.piece(&from), self.piece(&(to..to + length)));
        // SAFETY: both are inside the mapping, which lives as long as `self`; no other `Area`
        // covers these bytes, and `&mut self` excludes every borrow. They may overlap.
        unsafe { std::ptr::copy(from, to, length) };
    }

    /// Returns two pieces that do not overlap, the second mutably.
    pub(crate) fn pair(&mut self, first: Range<usize>, second: Range<usize>) -> (&[u8], &mut [u8]) {
        assert!(
            first.end <= second.start || second.end <= first.start,
            "a frame is not split into its own slot"
        );
        let (start, start_mut) = (self.piece(&first), self.piece(&second));
        // SAFETY: both are inside the mapping, which lives as long as `self`, and have no byte in
        // common; no other `Area` covers these bytes, and `&mut self` excludes every other borrow.
        unsafe {
            (
                std::slice::from_raw_parts(start, first.len()),
                std::slice::from_raw_parts_mut(start_mut, second.len()),
            )
        }
    }

    /// Returns the start of a piece, which must be inside the area.
    fn piece(&self, range: &Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "{range:?} lies inside of {} bytes",
            self.length
        );
        self.mapping.at(self.offset).wrapping_add(range.start)
    }
}

impl std::ops::Index<Range<usize>> for Area {
    type Output = [u8];

    fn index(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the piece is inside the mapping, which the kernel zeroed and which lives as long
        // as `self`; no other `Area` covers these bytes, writers need `&mut self`, and pieces that
        // the kernel writes are not indexed.
        unsafe { std::slice::from_raw_parts(self.piece(&range), range.len()) }
    }
}

impl std::ops::IndexMut<Range<usize>> for Area {
    fn index_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.piece(&range), range.len()) }
    }
}

/// Discards up to `most` bytes that a TCP socket has received. Returns the number of bytes. With
/// MSG_TRUNC the bytes are dropped without being copied (tcp(7)). Of other sockets, discards a message;
/// `most` must be zero then.
pub(crate) fn discard(socket: &impl AsFd, most: usize) -> io::Result<usize> {
    // SAFETY: for a TCP socket the buffer is not written to when MSG_TRUNC is set. For others it has no
    // bytes.
    let count = unsafe {
        libc::recv(
            socket.as_fd().as_raw_fd(),
            std::ptr::null_mut(),
            most,
            libc::MSG_TRUNC | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Discards the answers that wait in a netlink socket. While a list is not read to its end, the kernel
/// refuses to begin another one (`netlink_dump_start`: EBUSY).
pub(crate) fn discard_answers(socket: &impl AsFd) {
    // A message longer than the room is cut, here to nothing.
    while discard(socket, 0).is_ok() {}
}

/// Iterates over the control messages of a received message: level, type and payload of each. A
/// message that claims to extend past the control buffer is cut at its end; one that claims to be
/// shorter than its own header ends the list.
///
/// # Safety
/// `header`'s control buffer must be as long as it states, initialised, and alive and unchanged for
/// as long as it is borrowed.
pub(crate) unsafe fn control_messages(
    header: &libc::msghdr,
) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
    let mut rest: &[u8] = match header.msg_control.is_null() {
        true => &[],
        // SAFETY: the buffer is as long as the header says, by the caller's promise.
        false => unsafe {
            std::slice::from_raw_parts(header.msg_control.cast(), header.msg_controllen)
        },
    };
    std::iter::from_fn(move || {
        let (message, behind) = next_control_message(rest)?;
        rest = behind;
        Some(message)
    })
}

/// Level, type and payload.
type ControlMessage<'a> = (libc::c_int, libc::c_int, &'a [u8]);

/// Returns the first control message in `bytes`, and the bytes after it.
fn next_control_message(bytes: &[u8]) -> Option<(ControlMessage<'_>, &[u8])> {
    const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
    let header = bytes.get(..HEADER_LEN)?;
    // SAFETY: there are enough bytes, and a `cmsghdr` consists of integers.
    let header = unsafe { header.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
    let payload = bytes.get(HEADER_LEN..header.cmsg_len.min(bytes.len()))?;
    // cmsg(3): messages are aligned as a `size_t` is.
    let next = header.cmsg_len.checked_next_multiple_of(size_of::<usize>());
    let behind = next.and_then(|next| bytes.get(next..)).unwrap_or(&[]);
    Some(((header.cmsg_level, header.cmsg_type, payload), behind))
}

/// Requests the time at which the kernel received each packet from its device, in CLOCK_REALTIME. A
/// packet without that time comes without the control message. SO_TIMESTAMPNS would report the time
/// of reading instead, which is not the arrival.
pub(crate) fn switch_timestamps_on(socket: &impl AsFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Requests departure timestamps, in CLOCK_REALTIME: the time at which each packet was passed to
/// its device. They arrive in the socket's error queue, by packet number.
pub(crate) fn switch_departures_on(socket: &impl AsFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Nanoseconds of the first timespec in a timestamp's payload, which is the software one.
pub(crate) fn stamp_ns(payload: &[u8]) -> Option<u64> {
    let (seconds, rest) = payload.split_first_chunk()?;
    let nanoseconds = rest.first_chunk()?;
    let (seconds, nanoseconds) = (
        i64::from_ne_bytes(*seconds),
        i64::from_ne_bytes(*nanoseconds),
    );
    let total = seconds
        .checked_mul(1_000_000_000)?
        .checked_add(nanoseconds)?;
    u64::try_from(total).ok()
}

/// Returns a descriptor that never becomes ready.
pub(crate) fn event() -> io::Result<std::os::fd::OwnedFd> {
    // SAFETY: takes no pointers; a result that is not negative is a new descriptor of ours.
    unsafe {
        let descriptor = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
        Ok(std::os::fd::FromRawFd::from_raw_fd(descriptor))
    }
}

/// Memory that is shared with the kernel, or between clones of itself.
#[derive(Clone)]
pub(crate) struct SharedMap {
    mapping: std::sync::Arc<Mapping>,
}

struct Mapping {
    start: std::ptr::NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is only reached through raw pointers, whose users say why they may.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl SharedMap {
    /// Maps `length` bytes of `descriptor` from `offset` on.
    pub(crate) fn of(
        descriptor: BorrowedFd<'_>,
        offset: libc::off64_t,
        length: usize,
    ) -> io::Result<SharedMap> {
        SharedMap::map(
            length,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            descriptor.as_raw_fd(),
            offset,
        )
    }

    /// Maps zeroed memory that belongs to no file. Child processes share it.
    pub(crate) fn anonymous(length: usize) -> io::Result<SharedMap> {
        // Miri has no memory shared between processes, but threads share this as well.
        let sharing = if cfg!(miri) {
            libc::MAP_PRIVATE
        } else {
            libc::MAP_SHARED
        };
        SharedMap::map(length, sharing | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(
        length: usize,
        flags: libc::c_int,
        descriptor: libc::c_int,
        offset: libc::off64_t,
    ) -> io::Result<SharedMap> {
        // SAFETY: a mapping at an address chosen by the kernel overlaps no memory in use.
        let start = unsafe {
            libc::mmap64(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                descriptor,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = std::ptr::NonNull::new(start.cast()).expect("mmap does not give page zero");
        Ok(SharedMap {
            mapping: std::sync::Arc::new(Mapping { start, length }),
        })
    }

    /// Bytes of the mapping.
    pub(crate) fn len(&self) -> usize {
        self.mapping.length
    }

    /// The byte at `offset`, for as long as `self` lives.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.mapping.length, "offsets lie in the mapping");
        // SAFETY: the offset is inside the mapping.
        unsafe { self.mapping.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this was the last clone of a mapping that this process made.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    /// A control buffer of 64 bytes, aligned as its messages are.
    #[repr(C, align(8))]
    struct Buffer([u8; 64]);

    /// Returns the control messages of a buffer of which the kernel is assumed to have filled the
    /// first `length` bytes.
    fn messages(buffer: &mut Buffer, length: usize) -> Vec<(i32, i32, Vec<u8>)> {
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = buffer.0.as_mut_ptr().cast();
        header.msg_controllen = length;
        // SAFETY: the buffer outlives the iterator and has at least `length` bytes.
        let messages = unsafe { control_messages(&header) };
        messages
            .map(|(level, kind, payload)| (level, kind, payload.to_vec()))
            .collect()
    }

    /// `struct cmsghdr`: the length with the header's 16 bytes, level, type.
    fn put(buffer: &mut Buffer, at: usize, length: usize, payload: &[u8]) {
        let bytes = &mut buffer.0[at..];
        bytes[..8].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&1i32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&2i32.to_ne_bytes());
        bytes[16..16 + payload.len()].copy_from_slice(payload);
    }

    #[test]
    fn control_messages_end_where_their_buffer_does() {
        let mut buffer = Buffer([0; 64]);
        put(&mut buffer, 0, 20, &[1, 2, 3, 4]);
        put(&mut buffer, 24, 24, &[5; 8]);
        let first = (1, 2, vec![1, 2, 3, 4]);
        assert_eq!(
            messages(&mut buffer, 48),
            [first.clone(), (1, 2, vec![5; 8])]
        );
        // The second is cut in its payload, or in its header.
        assert_eq!(
            messages(&mut buffer, 44),
            [first.clone(), (1, 2, vec![5; 4])]
        );
        assert_eq!(messages(&mut buffer, 36), slice::from_ref(&first));
        assert_eq!(messages(&mut buffer, 15), []);
        assert_eq!(messages(&mut buffer, 0), []);
        // It claims to extend past the buffer, to be nearly endless, or to be shorter than its
        // header.
        for claimed in [41, 64, usize::MAX] {
            put(&mut buffer, 24, claimed, &[5; 8]);
            let found = messages(&mut buffer, 48);
            assert_eq!(found, [first.clone(), (1, 2, vec![5; 8])], "{claimed}");
        }
        for claimed in [0, 15] {
            put(&mut buffer, 24, claimed, &[5; 8]);
            let found = messages(&mut buffer, 48);
            assert_eq!(found, slice::from_ref(&first), "{claimed}");
        }
    }

    #[test]
    fn a_stamp_that_is_none_is_not_read_as_one() {
        let stamp = |seconds: i64, nanoseconds: i64| {
            stamp_ns(&[seconds.to_ne_bytes(), nanoseconds.to_ne_bytes()].concat())
        };
        assert_eq!(stamp(3, 7), Some(3_000_000_007));
        for seconds in [i64::MIN, -1, i64::MAX] {
            assert_eq!(stamp(seconds, 0), None);
        }
        assert_eq!(stamp_ns(&[0; 15]), None);
    }
}
