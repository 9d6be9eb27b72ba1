//! AF_XDP sockets: frames go from the driver into the pool and back, past the stack.
//!
//! The slots of the [`Pool`] are the memory that the socket's rings refer to (its UMEM). So a
//! received frame is copied once (not at all if the driver supports zero-copy), and is sent from
//! the same slot. With four rings and one system call per batch, this is the fastest port for small
//! packets. One socket receives and one sends, so that two threads can share an interface. See
//! Linux's Documentation/networking/af_xdp.rst.
//!
//! Limitations: a frame is at most one slot long, so there are no super-packets and no jumbo
//! frames; the interface's own addresses receive nothing, because every frame goes to the socket;
//! frames come without offload headers. Checksums that a virtual neighbour left partial are
//! recognised (`frame::open_checksum`) and completed. Opening a port needs CAP_NET_ADMIN,
//! CAP_NET_RAW and CAP_BPF outside user namespaces.

mod absence;
mod exchange;
mod fit;
mod kind;
mod options;
mod program;
mod ring;
mod socket;

pub use kind::KIND;
pub use options::{XdpError, XdpMode, XdpOptions};

use super::hold::Hold;
use super::name_watch::{NameWatch, Refusals};
use super::pool::SLOT_LEN;
use super::promiscuous;
use super::registry::Playback;
use super::trains::Trains;
use super::{Capabilities, Counters, Loss, Pool, Port, Promiscuity, Slot};
use crate::errand::keep_helper;
use crate::namespace::{Interface, Namespace};
use absence::{Absence, Rings};
use exchange::Exchange;
use fit::check;
use program::Programs;
use sluice_core::Span;
use sluice_wire::frame::{Link, open_checksum, parse_head};
use socket::{
    Connected, Inward, Outward, Place, Wake, connect, statistics, wake_receive, wake_transmit,
};
use socket2::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// One interface through AF_XDP, or one direction of it.
pub struct XdpPort {
    /// `None` in a port that only sends, while the interface is gone, and after the release.
    inward: Option<Inward>,
    /// `None` in a port that only receives, while the interface is gone, and after the release.
    outward: Option<Outward>,
    part: Part,
    place: Place,
    /// Whether the kernel had no room for frames, which are still in the transmit ring. They leave
    /// within [`RETRY_WITHIN`], or in a port that only sends, with the next ones.
    has_rest: bool,
    /// `Some` where trains pay off.
    trains: Option<Trains>,
    /// The descriptor to wait on, which exists at all times.
    descriptor: Arc<OwnedFd>,
    namespace: Namespace,
    interface: String,
    /// The index of the interface to which the sockets were attached last.
    index: u32,
    /// The halves of an interface share it.
    hold: Hold,
    watch: NameWatch,
    refusals: Refusals,
    options: XdpOptions,
    mode: XdpMode,
    capabilities: Capabilities,
    /// Whether frames may come with partial checksums because the interface is virtual.
    is_virtual: bool,
    /// The start of the pool's memory, to detect that the port is called with another pool.
    pool: usize,
    /// The start of the pool's memory within the registered memory.
    base: usize,
    /// The purpose for which each slot is lent to the kernel.
    lent: Box<[Lent]>,
    ready: u32,
    most_ready: u32,
    counters: Counters,
    /// Frames that came before there were slots for them, since the sockets were opened.
    unready: u64,
    next_look_ns: u64,
    absence: Absence,
    /// The socket that keeps the interface promiscuous, if there is one, and the outcome.
    promiscuous: (Option<Socket>, Promiscuity),
}

/// What [`exchange`] is made of; the models of all its orders have other types.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

/// The directions of its interface that a port serves.
enum Part {
    Whole,
    /// Passes new rings to the sending half when the interface has been created again.
    Receives(Exchange<Rings>),
    Sends(Exchange<Rings>),
    Released,
}

/// The purpose for which a slot is lent to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lent {
    No,
    /// In the fill ring, for a future frame.
    Ready,
    /// In the transmit ring, or being sent.
    Sending,
}

impl XdpPort {
    /// The largest MTU that a port supports: the kernel reserves 256 bytes before each frame
    /// (XDP_PACKET_HEADROOM), and an Ethernet header with two tags is 22 bytes long.
    pub const MOST_MTU: u32 = SLOT_LEN as u32 - 256 - 22;

    /// Opens a port on `interface` of `namespace` that keeps its frames in `pool`. Ports with the
    /// same pool share its registration as packet memory.
    ///
    /// # Errors
    /// When there is no such interface or queue, it carries no Ethernet frames, its MTU is above
    /// [`XdpPort::MOST_MTU`], another program is attached to it, or the process lacks the privilege.
    pub fn open(
        namespace: &Namespace,
        interface: &str,
        pool: &mut Pool,
        options: XdpOptions,
    ) -> Result<XdpPort, XdpError> {
        let place = Place {
            queue: 0,
            programs: Arc::new(Programs::new(1)),
        };
        XdpPort::open_at(place, namespace, interface, pool, options)
    }

    /// Opens a port on each queue of an interface, with one of these pools each, for as many threads.
    ///
    /// # Errors
    /// As for [`XdpPort::open`], or the interface has more or fewer queues than there are pools.
    pub fn open_group(
        namespace: &Namespace,
        interface: &str,
        pools: &mut [&mut Pool],
        options: XdpOptions,
    ) -> Result<Vec<XdpPort>, XdpError> {
        // There are fewer workers than that.
        let count = pools.len() as u32;
        let programs = Arc::new(Programs::new(count));
        let ports = pools.iter_mut().zip(0..count).map(|(pool, queue)| {
            let programs = Arc::clone(&programs);
            let place = Place { queue, programs };
            XdpPort::open_at(place, namespace, interface, pool, options)
        });
        ports.collect()
    }

    fn open_at(
        place: Place,
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
        let mut links = namespace.links()?;
        let link = links.interface(interface)?;
        check(namespace, interface, &link, place.programs.queues())?;
        let hold = Hold::take_link(namespace, interface, &link, &mut links)?;
        let memory = pool.slot_memory();
        let Connected {
            inward,
            outward,
            mode,
        } = namespace
            .enter(|| connect(link.index, &place, &memory, options, PATIENCE))?
            .map_err(error)?;
        let promiscuous = match options.promiscuous {
            true => make_promiscuous(namespace, &link),
            false => (None, Promiscuity::NotAsked),
        };
        let mut port = XdpPort {
            trains: open_trains(namespace, &link, options, mode),
            descriptor: Arc::clone(&inward.socket),
            inward: Some(inward),
            outward: Some(outward),
            has_rest: false,
            part: Part::Whole,
            place,
            namespace: namespace.try_clone()?,
            interface: interface.to_owned(),
            index: link.index,
            hold,
            watch: NameWatch::new(),
            refusals: Refusals::default(),
            options,
            mode,
            capabilities: Capabilities {
                super_packets: false,
                partial_checksums: false,
                batch: options.batch.max(1),
                mtu: link.mtu,
                kernel_queue: options.ring as usize * SLOT_LEN,
            },
            is_virtual: link.kind.is_some(),
            pool: pool.area().address(),
            base: pool.area().offset(),
            lent: vec![Lent::No; pool.area().len() / SLOT_LEN].into(),
            ready: 0,
            most_ready: options.ready.min(options.ring),
            counters: Counters::default(),
            unready: 0,
            next_look_ns: 0,
            absence: Absence::default(),
            promiscuous,
        };
        port.refill(pool);
        if let Some(Err(failed)) = port.inward.as_ref().map(Inward::open) {
            port.release(pool);
            return Err(error(failed));
        }
        // Not before, as in the packet port.
        keep_helper();
        Ok(port)
    }

    /// Opens an interface as two ports for two threads: one that only receives, into the first of
    /// two pools that share one memory ([`Pool::pair`]), and one that only sends, from the second.
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
        // After the port is open, nothing may fail: it has slots of its pool.
        let namespace_again = namespace.try_clone()?;
        let mut receiving = XdpPort::open(namespace, interface, into, options)?;
        let outward = receiving.outward.take().expect("it has just been opened");
        let trains = receiving.trains.take();
        let exchange = Exchange::new();
        receiving.part = Part::Receives(exchange.clone());
        let sending = XdpPort {
            trains,
            descriptor: Arc::clone(&outward.socket),
            inward: None,
            outward: Some(outward),
            part: Part::Sends(exchange),
            place: receiving.place.clone(),
            namespace: namespace_again,
            interface: interface.to_owned(),
            hold: receiving.hold.clone(),
            watch: NameWatch::new(),
            refusals: Refusals::default(),
            pool: from.area().address(),
            base: from.area().offset(),
            lent: vec![Lent::No; from.area().len() / SLOT_LEN].into(),
            ready: 0,
            counters: Counters::default(),
            absence: Absence::default(),
            promiscuous: (None, Promiscuity::NotAsked),
            ..receiving
        };
        Ok((receiving, sending))
    }

    /// Returns the mode in which frames come from the interface.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    fn assert_pool(&self, pool: &Pool) {
        assert!(
            self.pool == pool.area().address(),
            "a port is used with the pool that it was opened with"
        );
    }

    /// Frees the slots of frames that the kernel has sent.
    fn collect_sent(&mut self, pool: &mut Pool) {
        let Some(outward) = &mut self.outward else {
            return;
        };
        let mut any = false;
        while let Some(address) = outward.completion.consume() {
            any = true;
            let number = (address as usize - self.base) / SLOT_LEN;
            if self.lent[number] == Lent::Sending {
                self.lent[number] = Lent::No;
                take_back_and_free(pool, number);
            }
        }
        if any {
            outward.completion.release();
        }
    }

    /// Like [`Port::transmit`], through the ring.
    fn transmit_frames(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        if self.outward.is_none() {
            // On a port that only sends, no other function is called.
            self.look(pool);
        }
        let Some(outward) = &mut self.outward else {
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
            self.lent[slot.number() as usize] = Lent::Sending;
            pool.lend(*slot);
            self.counters.sent += 1;
            self.counters.sent_bytes += place.len() as u64;
            taken += 1;
        }
        outward.transmit.publish();
        self.send_ring(taken.div_ceil(KERNEL_BATCH), pool);
        self.collect_sent(pool);
        self.refill(pool);
        taken
    }

    /// Makes the kernel send the frames in the transmit ring; see [`wake_transmit`].
    fn send_ring(&mut self, batches: usize, pool: &mut Pool) {
        self.has_rest = false;
        let Some(outward) = &mut self.outward else {
            return;
        };
        if !outward.transmit.needs_wakeup() {
            return;
        }
        match wake_transmit(outward, batches, &mut self.counters) {
            Wake::Done => {}
            Wake::Full => self.has_rest = true,
            // While an interface is down, the frames stay in the ring, and would leave when it is
            // up again. A ring cannot be shortened, so it is given up.
            Wake::Down | Wake::Gone => self.lose_interface(pool),
        }
    }

    /// Sends a batch with trains, if the batch has any. Returns whether it has.
    fn transmit_trains(&mut self, pool: &mut Pool, batch: &[Slot]) -> bool {
        let (Some(trains), Some(outward)) = (&mut self.trains, &mut self.outward) else {
            return false;
        };
        // Frames that are still in the ring must leave first.
        if !outward.transmit.is_drained() || !trains.find(pool, batch, &mut self.counters) {
            return false;
        }
        let is_there = trains.send(pool, batch, &mut self.counters);
        // The error does not say whether the interface is down or gone.
        if !is_there && wake_transmit(outward, 0, &mut self.counters) == Wake::Gone {
            self.lose_interface(pool);
        }
        true
    }

    /// Puts slots into the fill ring.
    fn refill(&mut self, pool: &mut Pool) {
        let Some(inward) = &mut self.inward else {
            return;
        };
        // At least 32 slots at a time: the shared position is a cache line that the kernel reads.
        let wanted = self.most_ready - self.ready;
        if wanted < 32.min(self.most_ready) && self.ready > 0 {
            return;
        }
        let count = wanted.min(inward.fill.room());
        let mut filled = 0;
        while filled < count {
            let Some(slot) = pool.allocate() else { break };
            let number = slot.number() as usize;
            self.lent[number] = Lent::Ready;
            pool.lend(slot);
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
        self.follow_name(pool);
        self.follow_other_half(pool);
        self.collect_sent(pool);
        if self.has_rest {
            self.send_ring(0, pool);
        }
        self.refill(pool);
        let Some(inward) = &mut self.inward else {
            self.look(pool);
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
                self.lent[number] == Lent::Ready,
                "the kernel fills slots that were laid ready"
            );
            self.lent[number] = Lent::No;
            let slot = Slot::from_number(number as u32);
            pool.take_back(slot);
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
            wake_receive(inward.socket.as_fd());
        }
        if taken == 0 {
            self.look(pool);
        }
        into.len() - before
    }

    fn has_waiting(&self) -> bool {
        let inward = self.inward.as_ref();
        inward.is_some_and(|inward| inward.receive.has_entries())
    }

    /// No event reports that the interface is gone, or that the kernel has room again: poll(2) of the
    /// receiving socket stays silent.
    fn looks_within(&self) -> Option<Span> {
        let is_asked = matches!(self.part, Part::Whole | Part::Receives(_));
        let within = self.absence.looks_within();
        is_asked.then(|| match self.has_rest {
            true => within.min(RETRY_WITHIN),
            false => within,
        })
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> Promiscuity {
        self.promiscuous.1.clone()
    }

    fn attach_error(&self) -> Option<String> {
        self.refusals.lasting()
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        self.assert_pool(pool);
        self.follow_name(pool);
        self.collect_sent(pool);
        if self.trains.is_none() {
            return self.transmit_frames(pool, slots);
        }
        let mut taken = 0;
        for batch in slots.chunks(Trains::MOST) {
            let sent = if self.transmit_trains(pool, batch) {
                batch.len()
            } else {
                self.transmit_frames(pool, batch)
            };
            taken += sent;
            if sent < batch.len() {
                break;
            }
        }
        taken
    }

    fn counters(&mut self) -> Counters {
        if let (Some(trains), Some(outward)) = (&mut self.trains, &mut self.outward)
            && outward.transmit.is_drained()
        {
            trains.look(&mut self.counters);
        }
        let mut counters = self.counters;
        let seen = self.inward.as_ref();
        if let Some(seen) = seen.and_then(|inward| statistics(&inward.socket)) {
            // A frame for which the fill ring has no slot counts in both of the first two.
            let no_slot = seen.rx_fill_ring_empty_descs;
            counters.lose(Loss::Down, self.unready);
            counters.lose(Loss::NoSlot, no_slot.saturating_sub(self.unready));
            let other = seen
                .rx_dropped
                .saturating_sub(seen.rx_fill_ring_empty_descs);
            counters.lose(Loss::Oversize, other);
            counters.lose(Loss::KernelQueue, seen.rx_ring_full);
            counters.lose(Loss::Other, seen.rx_invalid_descs);
        }
        let seen = self.outward.as_ref();
        if let Some(seen) = seen.and_then(|outward| statistics(&outward.socket)) {
            counters.lose(Loss::Other, seen.tx_invalid_descs);
        }
        counters
    }

    fn release(&mut self, pool: &mut Pool) {
        self.assert_pool(pool);
        if let Part::Receives(exchange) = std::mem::replace(&mut self.part, Part::Released) {
            exchange.take();
        }
        if let (Some(trains), Some(outward)) = (&mut self.trains, &mut self.outward)
            && outward.transmit.is_drained()
        {
            trains.conclude(&mut self.counters);
        }
        self.counters = self.counters();
        // The kernel owns the slots until both sockets are closed, so they are not freed while the
        // other half of the interface is open. The descriptor that remains is not a socket.
        let receiver = self.receiver();
        drop(self.take_rings());
        let is_closed =
            receiver.is_none_or(|receiver| receiver.strong_count() == 0) && self.absence.is_over();
        for (number, lent) in self.lent.iter_mut().enumerate() {
            if std::mem::replace(lent, Lent::No) != Lent::No && is_closed {
                take_back_and_free(pool, number);
            }
        }
        self.ready = 0;
    }

    fn kept(&self) -> usize {
        let lent = self.lent.iter().filter(|lent| **lent != Lent::No);
        lent.count()
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Frees a slot that was lent to the kernel.
fn take_back_and_free(pool: &mut Pool, number: usize) {
    let slot = Slot::from_number(number as u32);
    pool.take_back(slot);
    pool.free(slot);
}

/// Makes an interface promiscuous. Returns the socket that must stay open for it, if there is one.
fn make_promiscuous(namespace: &Namespace, link: &Interface) -> (Option<Socket>, Promiscuity) {
    match promiscuous::socket(namespace) {
        Ok(socket) => {
            let promiscuity = Promiscuity::ask_in(&socket, namespace, &link.name, link.index);
            (Some(socket), promiscuity)
        }
        Err(error) => {
            let why = format!("cannot open a packet socket (needs CAP_NET_RAW): {error}");
            (None, Promiscuity::Refused(why))
        }
    }
}

/// Where the device sends frames in place, trains do not pay off.
fn open_trains(
    namespace: &Namespace,
    link: &Interface,
    options: XdpOptions,
    mode: XdpMode,
) -> Option<Trains> {
    let is_wanted = options.trains && mode != XdpMode::ZeroCopy;
    is_wanted.then(|| Trains::open(namespace, link)).flatten()
}

/// The number of retries for a queue that is still busy when a port is opened.
const PATIENCE: u32 = 20;
/// The interval at which a port tries to send frames for which the kernel had no room.
const RETRY_WITHIN: Span = Span::from_ms(1);
/// Frames that one call sends in copy mode by default (TX_BATCH_SIZE of net/xdp/xsk.c).
const KERNEL_BATCH: usize = 32;
