//! AF_XDP sockets: frames go from the driver into the pool and back, past the stack.
//!
//! The slots of the [`Pool`] are the memory that the socket's rings speak of (its UMEM), so a frame
//! is copied once on its way in (not at all where the driver can do without), and leaves from
//! where it lies. Four rings and one system call per batch make this the fastest port for small
//! packets. See Documentation/networking/af_xdp.rst of Linux.
//!
//! What it cannot do: a frame is at most one slot long, so there are no super-packets and no jumbo
//! frames; the interface's own addresses get nothing any more, because every frame goes to the
//! socket; frames come without offload headers. Checksums that a virtual neighbour left open are
//! recognised ([`open_checksum`](crate::frame::open_checksum)) and completed. An open port needs
//! CAP_NET_ADMIN and CAP_BPF outside of user namespaces.

mod program;
mod ring;

use super::pool::SLOT_LEN;
use super::{Capabilities, Counters, Loss, Pool, Port, Slot};
use crate::frame::{Link, open_checksum, parse_head};
use crate::namespace::{LinkError, Namespace, NamespaceError, OffloadError, remedy};
use crate::sys::{self, SharedMap};
use program::{Hook, Program};
use ring::{Layout, Ring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// How to open an AF_XDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Most frames of one [`Port::receive`].
    pub batch: usize,
    /// Entries of each ring; a power of two.
    pub ring: u32,
    /// Most slots that lie ready for frames to come; each is taken from the pool.
    pub ready: u32,
    /// What to insist on.
    pub mode: Option<XdpMode>,
}

impl Default for XdpOptions {
    fn default() -> XdpOptions {
        XdpOptions {
            batch: 64,
            ring: 2048,
            ready: 1024,
            mode: None,
        }
    }
}

/// How frames come from the interface. The best that the driver can is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum XdpMode {
    /// The stack copies each, after having made a socket buffer of it.
    Generic,
    /// The driver's hook copies each.
    Copy,
    /// The device writes into the pool.
    ZeroCopy,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            XdpMode::Generic => "generic",
            XdpMode::Copy => "copy",
            XdpMode::ZeroCopy => "zero-copy",
        })
    }
}

/// Why an AF_XDP port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Its packets do not fit a slot.
    #[error("interface {interface:?} has an MTU of {mtu}: with AF_XDP at most {most} is possible")]
    Mtu {
        /// Which interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The largest that fits.
        most: u32,
    },
    /// Some of its frames would pass by the port.
    #[error(
        "interface {interface:?} receives over {queues} queues: an AF_XDP port serves one \
         (`ethtool -L {interface} combined 1` leaves one)"
    )]
    Queues {
        /// Which interface.
        interface: String,
        /// How many it has.
        queues: u32,
    },
    /// Its queues cannot be counted.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The kernel refused a step.
    #[error("cannot {step} for interface {interface:?} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Which interface.
        interface: String,
        /// Where.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One interface through an AF_XDP socket, or one direction of it.
pub struct XdpPort {
    // Nothing once the port has been released; dropped before the program is detached.
    open: Option<Open>,
    // Stays when the port is released, so that there is always a descriptor.
    socket: Arc<OwnedFd>,
    interface: String,
    mode: XdpMode,
    capabilities: Capabilities,
    /// Frames may come with open checksums: the interface is no wire.
    is_virtual: bool,
    /// Where the pool's memory starts, to notice another pool.
    pool: usize,
    /// Where it starts in what is registered.
    base: usize,
    /// Slots whose bytes are the kernel's for now, by number.
    lent: Box<[bool]>,
    ready: u32,
    most_ready: u32,
    counters: Counters,
}

struct Open {
    /// Nothing in a port that only sends.
    inward: Option<Inward>,
    /// Nothing in a port that only receives.
    outward: Option<Outward>,
    _program: Arc<Program>,
}

/// The rings of what comes.
struct Inward {
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
}

/// The rings of what goes.
struct Outward {
    completion: Ring<u64>,
    transmit: Ring<libc::xdp_desc>,
}

impl XdpPort {
    /// The largest MTU that a port can have: the kernel keeps 256 bytes before each frame
    /// (XDP_PACKET_HEADROOM), and an Ethernet header with two tags is 22 long.
    pub const MOST_MTU: u32 = SLOT_LEN as u32 - 256 - 22;

    /// Opens a port on `interface` of `namespace` that keeps its frames in `pool`. Ports on the same
    /// pool share its registration as packet memory.
    ///
    /// # Errors
    /// When there is no such interface or queue, its MTU is above [`XdpPort::MOST_MTU`], another
    /// program is attached to it, or the process may not.
    pub fn open(
        namespace: &Namespace,
        interface: &str,
        pool: &mut Pool,
        options: XdpOptions,
    ) -> Result<XdpPort, XdpError> {
        let error = |(step, source): (&'static str, io::Error)| XdpError::Kernel {
            step,
            interface: interface.to_owned(),
            namespace: namespace.name().to_owned(),
            source,
        };
        let link = namespace.links()?.interface(interface)?;
        if link.mtu > XdpPort::MOST_MTU {
            return Err(XdpError::Mtu {
                interface: interface.to_owned(),
                mtu: link.mtu,
                most: XdpPort::MOST_MTU,
            });
        }
        let queues = namespace.receive_queues(interface)?;
        if queues > 1 {
            return Err(XdpError::Queues {
                interface: interface.to_owned(),
                queues,
            });
        }
        let memory = &*pool;
        let (socket, open, mode) = namespace
            .enter(|| connect(link.index, memory, options))?
            .map_err(error)?;
        let socket = Arc::new(socket);
        pool.set_registered(&socket);
        let mut port = XdpPort {
            open: Some(open),
            socket,
            interface: interface.to_owned(),
            mode,
            capabilities: Capabilities {
                super_packets: false,
                partial_checksums: false,
                batch: options.batch.max(1),
                mtu: link.mtu,
            },
            is_virtual: link.kind.is_some(),
            pool: pool.area().address(),
            base: pool.area().offset(),
            lent: vec![false; pool.area().len() / SLOT_LEN].into(),
            ready: 0,
            most_ready: options.ready.min(options.ring),
            counters: Counters::default(),
        };
        port.refill(pool);
        Ok(port)
    }

    /// Opens an interface as two ports for two threads: one that only receives, into the first of two
    /// pools of one memory ([`Pool::pair`]), and one that only sends, from the second.
    ///
    /// # Errors
    /// As for [`XdpPort::open`].
    pub fn open_halves(
        namespace: &Namespace,
        interface: &str,
        into: &mut Pool,
        from: &Pool,
        options: XdpOptions,
    ) -> Result<(XdpPort, XdpPort), XdpError> {
        assert!(
            into.area().whole() == from.area().whole(),
            "the two pools are of one memory"
        );
        let mut receiving = XdpPort::open(namespace, interface, into, options)?;
        let open = receiving.open.as_mut().expect("it has just been opened");
        let sending = XdpPort {
            open: Some(Open {
                inward: None,
                outward: open.outward.take(),
                _program: Arc::clone(&open._program),
            }),
            socket: Arc::clone(&receiving.socket),
            interface: interface.to_owned(),
            pool: from.area().address(),
            base: from.area().offset(),
            lent: vec![false; from.area().len() / SLOT_LEN].into(),
            ready: 0,
            counters: Counters::default(),
            ..receiving
        };
        Ok((receiving, sending))
    }

    /// How frames come from the interface.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    fn assert_pool(&self, pool: &Pool) {
        assert!(
            self.pool == pool.area().address(),
            "a port is used with the pool that it was opened with"
        );
    }

    /// Takes back what the kernel has sent.
    fn collect_sent(&mut self, pool: &mut Pool) {
        let Some(outward) = self.open.as_mut().and_then(|open| open.outward.as_mut()) else {
            return;
        };
        let mut any = false;
        while let Some(address) = outward.completion.consume() {
            any = true;
            let number = (address as usize - self.base) / SLOT_LEN;
            if std::mem::take(&mut self.lent[number]) {
                pool.free(Slot::from_number(number as u32));
            }
        }
        if any {
            outward.completion.release();
        }
    }

    /// Lays slots ready for frames to come.
    fn refill(&mut self, pool: &mut Pool) {
        let Some(inward) = self.open.as_mut().and_then(|open| open.inward.as_mut()) else {
            return;
        };
        // Half a batch at a time: the shared position is a cache line that the kernel reads.
        let wanted = self.most_ready - self.ready;
        if wanted < 32.min(self.most_ready) && self.ready > 0 {
            return;
        }
        let count = wanted.min(inward.fill.room());
        let mut filled = 0;
        while filled < count {
            let Some(slot) = pool.allocate() else { break };
            let number = slot.number() as usize;
            self.lent[number] = true;
            let address = self.base + number * SLOT_LEN;
            inward.fill.produce(address as u64);
            filled += 1;
        }
        if filled > 0 {
            inward.fill.publish();
            self.ready += filled;
        }
    }
}

impl Port for XdpPort {
    fn name(&self) -> &str {
        &self.interface
    }

    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        self.assert_pool(pool);
        self.collect_sent(pool);
        self.refill(pool);
        let Some(inward) = self.open.as_mut().and_then(|open| open.inward.as_mut()) else {
            return 0;
        };
        let before = into.len();
        let mut taken = 0;
        while taken < self.capabilities.batch {
            let Some(frame) = inward.receive.consume() else {
                break;
            };
            taken += 1;
            self.ready -= 1;
            let place = frame.addr as usize - self.base;
            let (number, start) = (place / SLOT_LEN, place % SLOT_LEN);
            assert!(
                std::mem::take(&mut self.lent[number]),
                "the kernel fills slots that were laid ready"
            );
            let slot = Slot::from_number(number as u32);
            if !pool.set_written(slot, start, frame.len as usize) {
                self.counters.lose(Loss::Oversize, 1);
                pool.free(slot);
                continue;
            }
            if self.is_virtual {
                let head = pool.head(slot);
                let view = parse_head(head, head.len(), Link::Ethernet);
                if let Some(vnet) = open_checksum(&view, head) {
                    pool.set_vnet(slot, vnet);
                }
            }
            self.counters.received += 1;
            self.counters.received_bytes += u64::from(frame.len);
            into.push(slot);
        }
        if taken > 0 {
            inward.receive.release();
        }
        if inward.fill.needs_wakeup() {
            wake_receive(self.socket.as_fd());
        }
        into.len() - before
    }

    fn has_waiting(&self) -> bool {
        let inward = self.open.as_ref().and_then(|open| open.inward.as_ref());
        inward.is_some_and(|inward| inward.receive.has_entries())
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        self.assert_pool(pool);
        self.collect_sent(pool);
        let Some(outward) = self.open.as_mut().and_then(|open| open.outward.as_mut()) else {
            self.counters.lose(Loss::Down, slots.len() as u64);
            slots.iter().for_each(|slot| pool.free(*slot));
            return slots.len();
        };
        // An Ethernet header with two tags is 22 bytes long.
        let most = self.capabilities.mtu as usize + 22;
        let mut taken = 0usize;
        for slot in slots {
            let lost = if pool.vnet(*slot).gso().is_some() {
                Some(Loss::Offload)
            } else if pool.frame_len(*slot) > most {
                Some(Loss::TooLong)
            } else {
                None
            };
            let place = pool.placed(*slot);
            let (None, Some(place)) = (lost, place) else {
                self.counters.lose(lost.unwrap_or(Loss::TooLong), 1);
                pool.free(*slot);
                taken += 1;
                continue;
            };
            if outward.transmit.room() == 0 {
                self.counters.blocked += 1;
                break;
            }
            pool.complete_checksum(*slot);
            outward.transmit.produce(libc::xdp_desc {
                addr: place.start as u64,
                len: place.len() as u32,
                options: 0,
            });
            self.lent[slot.number() as usize] = true;
            self.counters.sent += 1;
            self.counters.sent_bytes += place.len() as u64;
            taken += 1;
        }
        outward.transmit.publish();
        if outward.transmit.needs_wakeup() {
            // When the interface is down, the frames stay in the ring until it is back.
            wake_transmit(self.socket.as_fd(), taken.div_ceil(KERNEL_BATCH));
        }
        self.collect_sent(pool);
        self.refill(pool);
        taken
    }

    fn counters(&mut self) -> Counters {
        let mut counters = self.counters;
        if self.open.as_ref().is_some_and(|open| open.inward.is_none()) {
            // The socket's counters are told by the half that receives.
            return counters;
        }
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
        #[allow(unsafe_code)]
        let read = unsafe {
            sys::option(
                &*self.socket,
                libc::SOL_XDP,
                libc::XDP_STATISTICS,
                &mut seen,
            )
        };
        if read.is_ok() {
            // A frame that finds no slot ready counts in both of the first two.
            counters.lose(Loss::NoSlot, seen.rx_fill_ring_empty_descs);
            let other = seen
                .rx_dropped
                .saturating_sub(seen.rx_fill_ring_empty_descs);
            counters.lose(Loss::Oversize, other);
            counters.lose(Loss::KernelQueue, seen.rx_ring_full);
            counters.lose(Loss::Other, seen.rx_invalid_descs + seen.tx_invalid_descs);
        }
        counters
    }

    fn release(&mut self, pool: &mut Pool) {
        self.assert_pool(pool);
        self.counters = self.counters();
        // Slots are the kernel's until the socket is gone: the descriptor that stays is another. As
        // long as the other half of the interface is open, they are not given back.
        let is_last = Arc::strong_count(&self.socket) == 1;
        self.open = None;
        if let Ok(other) = sys::event() {
            self.socket = Arc::new(other);
        }
        for (number, is_lent) in self.lent.iter_mut().enumerate() {
            if std::mem::take(is_lent) && is_last {
                pool.free(Slot::from_number(number as u32));
            }
        }
        self.ready = 0;
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What went wrong, and when.
type Failed = (&'static str, io::Error);

/// Makes the socket, on a thread inside of the namespace: the best mode that works.
fn connect(
    index: u32,
    pool: &Pool,
    options: XdpOptions,
) -> Result<(OwnedFd, Open, XdpMode), Failed> {
    let modes = [XdpMode::ZeroCopy, XdpMode::Copy, XdpMode::Generic];
    let mut refused = None;
    for mode in modes {
        if options.mode.is_some_and(|wanted| wanted != mode) {
            continue;
        }
        match connect_as(index, pool, options, mode) {
            Ok((socket, open)) => return Ok((socket, open, mode)),
            // The first refusal is that of the best mode, the last that of the most modest one.
            Err(failed) => refused = Some(failed),
        }
    }
    Err(refused.expect("at least one mode was tried"))
}

fn connect_as(
    index: u32,
    pool: &Pool,
    options: XdpOptions,
    mode: XdpMode,
) -> Result<(OwnedFd, Open), Failed> {
    let hook = match mode {
        XdpMode::Generic => Hook::Generic,
        XdpMode::Copy | XdpMode::ZeroCopy => Hook::Driver,
    };
    let program = Program::attach(index, 1, hook)
        .map_err(at("attach the program (needs CAP_NET_ADMIN and CAP_BPF)"))?;
    let socket = xdp_socket().map_err(at("open an AF_XDP socket"))?;
    let ring = options.ring.next_power_of_two();
    let size = |name| sys::set_option(&socket, libc::SOL_XDP, name, &ring);
    let beside = pool.registered();
    if beside.is_none() {
        let (start, length) = pool.area().whole();
        let region = libc::xdp_umem_reg {
            addr: start as u64,
            len: length as u64,
            chunk_size: SLOT_LEN as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        sys::set_option(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(at(
            "register the packet memory (needs CAP_IPC_LOCK or `ulimit -l`)",
        ))?;
    }
    for name in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        size(name).map_err(at("size the rings"))?;
    }
    // A wish, since Linux 6.17: one call sends all that is in the ring.
    let _ = sys::set_option(&socket, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &ring);
    let mut offsets = NO_OFFSETS;
    // SAFETY: `xdp_mmap_offsets` is integers.
    #[allow(unsafe_code)]
    unsafe { sys::option(&socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets) }
        .map_err(at("ask where the rings are"))?;
    let inward = Inward {
        fill: map(&socket, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING, ring)?,
        receive: map(&socket, &offsets.rx, libc::XDP_PGOFF_RX_RING as u64, ring)?,
    };
    let completions = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
    let outward = Outward {
        completion: map(&socket, &offsets.cr, completions, ring)?,
        transmit: map(&socket, &offsets.tx, libc::XDP_PGOFF_TX_RING as u64, ring)?,
    };
    let (flags, umem) = match (&beside, mode) {
        (Some(first), _) => (libc::XDP_SHARED_UMEM, first.as_raw_fd() as u32),
        (None, XdpMode::ZeroCopy) => (libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP, 0),
        (None, _) => (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0),
    };
    bind_when_free(&socket, index, QUEUE, flags, umem)
        .map_err(at("bind the socket to the interface's queue"))?;
    program
        .set_socket(QUEUE, socket.as_fd())
        .map_err(at("lead the queue to the socket"))?;
    let open = Open {
        inward: Some(inward),
        outward: Some(outward),
        _program: Arc::new(program),
    };
    Ok((socket, open))
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
    // SAFETY: the kernel laid the ring out so, with as many entries as were asked for, and the
    // entries of AF_XDP rings are integers or structs of integers.
    #[allow(unsafe_code)]
    Ok(unsafe { Ring::new(map, layout, size) })
}

/// The kernel frees a queue some time after its last socket was closed, so one that is busy is
/// asked for again for a while.
fn bind_when_free(
    socket: &OwnedFd,
    index: u32,
    queue: u32,
    flags: u16,
    umem: u32,
) -> io::Result<()> {
    let mut attempts = 20;
    loop {
        match bind(socket, index, queue, flags, umem) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempts > 0 => {
                attempts -= 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

#[allow(unsafe_code)]
fn bind(socket: &OwnedFd, index: u32, queue: u32, flags: u16, umem: u32) -> io::Result<()> {
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

/// Lets the kernel take slots from the fill ring.
#[allow(unsafe_code)]
fn wake_receive(socket: BorrowedFd<'_>) {
    // SAFETY: no buffer is passed; AF_XDP uses the call as a signal only.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// Lets the kernel send what is in the transmit ring: `batches` of its own batches and what was
/// left from before.
#[allow(unsafe_code)]
fn wake_transmit(socket: BorrowedFd<'_>, batches: usize) {
    for _ in 0..=batches {
        // SAFETY: no buffer is passed; AF_XDP uses the call as a signal only.
        let result = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        // EAGAIN: its batch is full and there is more. Anything else is done, or for later.
        if result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
            return;
        }
    }
}

/// The one queue of the interface.
const QUEUE: u32 = 0;
/// linux/if_xdp.h: XDP_MAX_TX_SKB_BUDGET.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Frames that one call sends in copy mode if nothing else was asked for (TX_BATCH_SIZE of
/// net/xdp/xsk.c).
const KERNEL_BATCH: usize = 32;

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
