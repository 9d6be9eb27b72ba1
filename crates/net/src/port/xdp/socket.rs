//! Creates the sockets of an AF_XDP port: memory, rings, binding to an interface's queue, and the
//! calls that wake up the kernel.
//!
//! There are two sockets on the queue, one that receives and one that sends. With a single socket,
//! the kernel would also send within poll(2) (xsk_poll of net/xdp/xsk.c, in copy mode): a thread
//! that waits for frames would do the work of the sending thread, under the socket lock that both
//! need.

use super::program::{Hook, Program, Programs};
use super::ring::{Layout, Ring};
use super::{XdpMode, XdpOptions};
use crate::port::pool::{SLOT_LEN, SlotMemory};
use crate::port::{Counters, Loss};
use crate::sys::{self, SharedMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// The step that failed, and the error.
pub(super) type Failed = (&'static str, io::Error);

/// The receiving socket and its rings.
pub(super) struct Inward {
    pub socket: Arc<OwnedFd>,
    pub fill: Ring<u64>,
    pub receive: Ring<libc::xdp_desc>,
    queue: u32,
    program: Arc<Program>,
}

impl Inward {
    /// Lets frames in. Without slots in the fill ring, the kernel drops them.
    pub(super) fn open(&self) -> Result<(), Failed> {
        self.program
            .set_socket(self.queue, self.socket.as_fd())
            .map_err(at("assign the queue to the socket"))
    }
}

/// The sending socket and its rings.
pub(super) struct Outward {
    pub socket: Arc<OwnedFd>,
    pub completion: Ring<u64>,
    pub transmit: Ring<libc::xdp_desc>,
    /// Whether the kernel copies frames and gives each to the driver within the system call.
    copies: bool,
    /// The receiving socket. While either socket is open, the kernel may use the slots of both.
    pub receiver: Arc<OwnedFd>,
}

/// Both sockets on an interface's queue.
pub(super) struct Connected {
    pub inward: Inward,
    pub outward: Outward,
    pub mode: XdpMode,
}

/// A queue of an interface.
#[derive(Clone)]
pub(super) struct Place {
    pub queue: u32,
    pub programs: Arc<Programs>,
}

/// Creates the sockets in the best mode that works; frames come in after [`Inward::open`]. Must be called
/// on a thread inside the namespace. A queue that is still busy is retried `patience` times, every 10 ms.
pub(super) fn connect(
    index: u32,
    place: &Place,
    memory: &SlotMemory,
    options: XdpOptions,
    patience: u32,
) -> Result<Connected, Failed> {
    let modes = [XdpMode::ZeroCopy, XdpMode::Copy, XdpMode::Generic];
    let mut refused = None;
    for mode in modes {
        if options.mode.is_some_and(|wanted| wanted != mode) {
            continue;
        }
        let beside = memory.registered();
        let attempt = |beside| connect_as(index, place, memory, options, mode, beside, patience);
        let (result, is_apart) = match (attempt(beside.as_deref()), &beside) {
            (Err(failed), Some(_)) => match failed.1.raw_os_error() {
                // The interface of the other socket is gone, and its registration with it.
                Some(libc::EBADF) => (attempt(None), false),
                _ if needs_own_registration(mode, &failed) => (attempt(None), true),
                _ => (Err(failed), false),
            },
            (result, _) => (result, false),
        };
        match result {
            Ok(connected) => {
                if !is_apart {
                    memory.set_registered(&connected.inward.socket);
                }
                return Ok(connected);
            }
            // The last mode to be tried is the least demanding one, so its error is reported.
            Err(failed) => refused = Some(failed),
        }
    }
    Err(refused.expect("at least one mode was tried"))
}

/// Returns whether a socket that could not share a registration may have one of its own: the kernel
/// gives all sockets of a registration the mode of the first one (`xp_assign_dev_shared` of
/// net/xdp/xsk_buff_pool.c), and refuses an interface without zero-copy beside one with it. The same
/// memory can be registered twice, since each slot is lent to one socket at a time.
fn needs_own_registration(mode: XdpMode, (step, error): &Failed) -> bool {
    mode != XdpMode::ZeroCopy && *step == BIND && error.kind() != io::ErrorKind::ResourceBusy
}

/// `beside` is a socket with which the packet memory is already registered.
fn connect_as(
    index: u32,
    place: &Place,
    memory: &SlotMemory,
    options: XdpOptions,
    mode: XdpMode,
    beside: Option<&OwnedFd>,
    patience: u32,
) -> Result<Connected, Failed> {
    let hook = match mode {
        XdpMode::Generic => Hook::Generic,
        XdpMode::Copy | XdpMode::ZeroCopy => Hook::Driver,
    };
    let program = place
        .programs
        .on(index, hook)
        .map_err(at("attach the program (needs CAP_NET_ADMIN and CAP_BPF)"))?;
    let receiver = xdp_socket().map_err(at("open an AF_XDP socket (needs CAP_NET_RAW)"))?;
    let sender = xdp_socket().map_err(at("open a second AF_XDP socket"))?;
    if beside.is_none() {
        let (start, length) = memory.whole();
        let region = libc::xdp_umem_reg {
            addr: start as u64,
            len: length as u64,
            chunk_size: SLOT_LEN as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        let name = libc::XDP_UMEM_REG;
        // SAFETY: the kernel writes only to slots that were lent to it (`Pool::lend`), which nobody
        // accesses meanwhile. It holds on to the pages for as long as it needs them, even if the
        // pool is dropped.
        #[allow(unsafe_code)]
        let registered =
            unsafe { sys::set_option_with_addresses(&receiver, libc::SOL_XDP, name, &region) };
        registered.map_err(at(
            "register the packet memory (needs CAP_IPC_LOCK or `ulimit -l`)",
        ))?;
    }
    let ring = options.ring.next_power_of_two();
    // The queue's fill and completion rings belong to the socket that is bound to it first.
    for (socket, name) in [
        (&receiver, libc::XDP_UMEM_FILL_RING),
        (&receiver, libc::XDP_UMEM_COMPLETION_RING),
        (&receiver, libc::XDP_RX_RING),
        (&sender, libc::XDP_TX_RING),
    ] {
        sys::set_option(socket, libc::SOL_XDP, name, &ring)
            .map_err(at("set the size of the rings"))?;
    }
    // Optional, since Linux 6.17: one call sends everything that is in the ring.
    let _ = sys::set_option(&sender, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &ring);
    let places = places(&receiver)?;
    let fill = map(&receiver, &places.fr, libc::XDP_UMEM_PGOFF_FILL_RING, ring)?;
    let receive = map(&receiver, &places.rx, libc::XDP_PGOFF_RX_RING as u64, ring)?;
    let completions = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
    let completion = map(&receiver, &places.cr, completions, ring)?;
    let transmit = map(&sender, &places.tx, libc::XDP_PGOFF_TX_RING as u64, ring)?;
    let (flags, umem) = match (beside, mode) {
        (Some(first), _) => (libc::XDP_SHARED_UMEM, first.as_raw_fd() as u32),
        (None, XdpMode::ZeroCopy) => (libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP, 0),
        (None, _) => (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0),
    };
    let at_queue = (index, place.queue);
    bind_when_free(&receiver, at_queue, flags, umem, patience)
        .and_then(|()| {
            let beside = receiver.as_raw_fd() as u32;
            bind(&sender, at_queue, libc::XDP_SHARED_UMEM, beside)
        })
        .map_err(at(BIND))?;
    // With a shared registration, the kernel uses the mode of the first socket.
    let mode = match mode {
        XdpMode::ZeroCopy if !is_zero_copy(&receiver) => XdpMode::Copy,
        mode => mode,
    };
    let receiver = Arc::new(receiver);
    Ok(Connected {
        inward: Inward {
            socket: Arc::clone(&receiver),
            fill,
            receive,
            queue: place.queue,
            program,
        },
        outward: Outward {
            socket: Arc::new(sender),
            completion,
            transmit,
            copies: mode != XdpMode::ZeroCopy,
            receiver,
        },
        mode,
    })
}

/// Makes the kernel take slots from the fill ring. Returns whether the socket still has its
/// interface.
#[allow(unsafe_code)]
pub(super) fn wake_receive(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: no buffer is passed; for AF_XDP the call is only a signal.
    let result = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(UNBOUND)
}

/// Makes the kernel send the frames in the transmit ring, of which `batches` of the kernel's batches
/// are new. A frame that the interface drops counts as refused.
#[allow(unsafe_code)]
pub(super) fn wake_transmit(
    outward: &mut Outward,
    mut batches: usize,
    counters: &mut Counters,
) -> Wake {
    outward.transmit.follow();
    loop {
        // SAFETY: no buffer is passed; for AF_XDP the call is only a signal.
        let result = unsafe {
            libc::sendto(
                outward.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if result >= 0 {
            return Wake::Done;
        }
        match io::Error::last_os_error().raw_os_error() {
            // The kernel's batch is full, and more frames are waiting. The call publishes its
            // position with the frames that it has sent, so each repetition sends at least one.
            Some(libc::EAGAIN) if outward.copies && outward.transmit.follow() => {}
            Some(libc::EAGAIN) if batches > 0 => batches -= 1,
            // The call ends at a frame that is dropped, for lack of a carrier or because the queue
            // of the device or of a neighbour is full. The frames behind it would stay in the ring
            // until the next call. Each repetition consumes at least one frame.
            Some(libc::EBUSY) if outward.copies => {
                let Some(frame) = outward.transmit.last_consumed() else {
                    return Wake::Done;
                };
                counters.sent -= 1;
                counters.sent_bytes -= u64::from(frame.len);
                counters.lose(Loss::Refused, 1);
            }
            Some(UNBOUND) => return Wake::Gone,
            Some(libc::ENETDOWN) => return Wake::Down,
            // There is no room at present in the driver, in the completion ring or in memory.
            _ if outward.transmit.is_drained() => return Wake::Done,
            _ => return Wake::Full,
        }
    }
}

/// The fate of the frames in the transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The kernel sends them.
    Done,
    /// The kernel has no room for all of them at present: the others stay in the ring, and another
    /// call must be made later.
    Full,
    /// The interface is down: they stay in the ring.
    Down,
    /// The socket has no interface any more.
    Gone,
}

/// Returns the socket's own counters.
#[allow(unsafe_code)]
pub(super) fn statistics(socket: &OwnedFd) -> Option<libc::xdp_statistics> {
    // linux/if_xdp.h, `struct xdp_statistics`; all integers.
    let mut seen = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    // SAFETY: `xdp_statistics` is six integers.
    let read = unsafe { sys::option(socket, libc::SOL_XDP, libc::XDP_STATISTICS, &mut seen) };
    read.is_ok().then_some(seen)
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |error| (step, error)
}

#[allow(unsafe_code)]
fn xdp_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers; a result that is not negative is a new descriptor of ours.
    unsafe {
        let descriptor = sys::check(libc::socket(libc::AF_XDP, kind, 0))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Returns whether the device writes directly into the packet memory of a bound socket.
#[allow(unsafe_code)]
fn is_zero_copy(socket: &OwnedFd) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    // SAFETY: `xdp_options` is one integer.
    let read = unsafe { sys::option(socket, libc::SOL_XDP, libc::XDP_OPTIONS, &mut options) };
    read.is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

#[allow(unsafe_code)]
fn places(socket: &OwnedFd) -> Result<libc::xdp_mmap_offsets, Failed> {
    let mut places = NO_OFFSETS;
    // SAFETY: `xdp_mmap_offsets` is integers.
    unsafe { sys::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut places) }
        .map_err(at("get the offsets of the rings"))?;
    Ok(places)
}

fn map<T: Copy>(
    socket: &OwnedFd,
    offsets: &libc::xdp_ring_offset,
    page_offset: u64,
    size: u32,
) -> Result<Ring<T>, Failed> {
    let layout = Layout {
        producer: offsets.producer as usize,
        consumer: offsets.consumer as usize,
        flags: offsets.flags as usize,
        entries: offsets.desc as usize,
    };
    let length = Ring::<T>::bytes(layout, size);
    let map = SharedMap::of(socket.as_fd(), page_offset as libc::off64_t, length)
        .map_err(at("map a ring"))?;
    // SAFETY: the kernel laid out the ring this way, with the requested number of entries, and the
    // entries of AF_XDP rings are integers or structs of integers.
    #[allow(unsafe_code)]
    Ok(unsafe { Ring::new(map, layout, size) })
}

/// Binds a socket to the queue. The kernel releases a queue some time after its last socket was
/// closed, so a busy queue is retried for a while.
fn bind_when_free(
    socket: &OwnedFd,
    at_queue: (u32, u32),
    flags: u16,
    umem: u32,
    mut patience: u32,
) -> io::Result<()> {
    loop {
        match bind(socket, at_queue, flags, umem) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && patience > 0 => {
                patience -= 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

#[allow(unsafe_code)]
fn bind(socket: &OwnedFd, (index, queue): (u32, u32), flags: u16, umem: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: umem,
    };
    // SAFETY: the address is a valid sockaddr_xdp of the length that is passed.
    sys::check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// The step at which the kernel refuses a mode.
const BIND: &str = "bind the socket to the interface's queue";
/// The error of a socket whose interface was removed. A new interface with the same name is another
/// one.
const UNBOUND: libc::c_int = libc::ENXIO;
/// linux/if_xdp.h: XDP_MAX_TX_SKB_BUDGET.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;

const NO_OFFSETS: libc::xdp_mmap_offsets = {
    const NONE: libc::xdp_ring_offset = libc::xdp_ring_offset {
        producer: 0,
        consumer: 0,
        desc: 0,
        flags: 0,
    };
    libc::xdp_mmap_offsets {
        rx: NONE,
        tx: NONE,
        fr: NONE,
        cr: NONE,
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_zero_copy_beside_one_with_it_registers_the_memory_itself() {
        let refused = |mode, step, error| {
            needs_own_registration(mode, &(step, io::Error::from_raw_os_error(error)))
        };
        // `xp_assign_dev` of Linux's net/xdp/xsk_buff_pool.c: EOPNOTSUPP without NETDEV_XDP_ACT_ZC.
        assert!(refused(XdpMode::Copy, BIND, libc::EOPNOTSUPP));
        assert!(refused(XdpMode::Generic, BIND, libc::EOPNOTSUPP));
        // Nothing would be different.
        assert!(!refused(XdpMode::ZeroCopy, BIND, libc::EOPNOTSUPP));
        assert!(!refused(XdpMode::Copy, BIND, libc::EBUSY));
        assert!(!refused(XdpMode::Copy, "map a ring", libc::ENOMEM));
    }
}
