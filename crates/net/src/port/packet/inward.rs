//! The receiving side of a packet port: a ring and the socket's queue.

use super::super::messages::{Messages, expected_after};
use super::super::{Counters, Loss, Pool, Slot};
use super::ring::Ring;
use super::{LOOK_EVERY, PacketOptions};
use crate::clock::{Clock, ClockReading, Stamps};
use crate::sys;
use sluice_wire::frame::VnetHeader;
use socket2::Socket;
use std::io;
use std::os::fd::AsFd;

/// The receiving side of a packet socket, with slots for future frames.
pub(super) struct Inward {
    ring: Option<Ring>,
    messages: Messages,
    vnet_len: usize,
    /// The clock on which arrival times are recorded, if they are, and the conversion of the
    /// kernel's stamps to it.
    stamps: Option<(Clock, Stamps)>,
    /// Largest number of frames per call.
    most: usize,
    /// Largest number of frames of the next call.
    batch: usize,
    slots: Vec<Slot>,
    large: Vec<u32>,
    /// The buffers of the messages; a message without a buffer is dropped.
    rooms: Vec<Option<(Slot, Option<u32>)>>,
    discarded: Box<[[u8; VnetHeader::LEN]]>,
    /// Consecutive checks of the ring that found nothing.
    idle_looks: u32,
    /// Frames that came through the ring, and frames that the kernel dropped, since the last
    /// [`Inward::check_ring`].
    arrived: u64,
    dropped: u64,
    next_look_ns: u64,
}

/// The destination of received frames.
struct Intake<'a> {
    pool: &'a mut Pool,
    counters: &'a mut Counters,
    slots: &'a mut Vec<Slot>,
    /// The conversion of their stamps, if arrival times are recorded.
    stamps: Option<(Clock, Stamps)>,
}

/// A frame in its slot.
struct Taken {
    slot: Slot,
    tag: Option<(u16, u16)>,
    stamp_ns: Option<u64>,
}

impl Inward {
    /// Creates the receiving side of a socket that receives nothing yet. If the kernel refuses a
    /// ring, all frames are queued in the socket.
    pub(super) fn open(socket: &Socket, options: &PacketOptions) -> Inward {
        let most = options.batch.max(1);
        let ring = (options.receives && options.ring > 0)
            .then(|| Ring::open(socket.as_fd(), options.ring).ok())
            .flatten();
        Inward {
            ring,
            messages: Messages::new(most),
            vnet_len: options.vnet_len(),
            stamps: options
                .timestamps
                .map(|clock| (clock, Stamps::new(ClockReading::take()))),
            most,
            batch: most,
            slots: Vec::with_capacity(most),
            large: Vec::with_capacity(most),
            rooms: Vec::with_capacity(most),
            discarded: vec![[0; VnetHeader::LEN]; most].into(),
            idle_looks: 0,
            arrived: 0,
            dropped: 0,
            next_look_ns: 0,
        }
    }

    /// Returns the largest number of frames of the next [`Inward::receive`].
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Returns whether a frame is known to have arrived, without a system call.
    pub(super) fn has_waiting(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::has_next)
    }

    /// Receives waiting frames, up to a batch.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        pool: &mut Pool,
        counters: &mut Counters,
        slots: &mut Vec<Slot>,
    ) -> io::Result<()> {
        self.take_room(pool);
        let mut into = Intake {
            pool,
            counters,
            slots,
            stamps: None,
        };
        self.messages.clear();
        let Some(mut ring) = self.ring.take() else {
            return self.receive_from_queue(socket, &mut into);
        };
        let result = self.receive_through(&mut ring, socket, &mut into);
        self.ring = Some(ring);
        if result? == 0 {
            return self.look_for_trouble(socket, into.counters);
        }
        self.idle_looks = 0;
        Ok(())
    }

    /// Returns whether [`Inward::receive`] must be called from time to time, for
    /// [`Inward::check_ring`].
    pub(super) fn wants_looks(&self) -> bool {
        self.ring.is_some()
    }

    /// Counts the frames that the kernel dropped for lack of space.
    pub(super) fn count_dropped(&mut self, socket: &Socket, counters: &mut Counters) {
        // packet(7), PACKET_STATISTICS: reading sets the kernel's count back to zero.
        let mut statistics = Statistics::default();
        // SAFETY: `Statistics` is two integers.
        #[allow(unsafe_code)]
        let read = unsafe {
            let name = libc::PACKET_STATISTICS;
            sys::option(socket, libc::SOL_PACKET, name, &mut statistics)
        };
        if read.is_ok() {
            let dropped = u64::from(statistics.dropped);
            self.dropped += dropped;
            counters.lose(Loss::KernelQueue, dropped);
        }
    }

    /// Checks, when the ring is empty, whether the ring is stuck and whether the interface is gone.
    fn look_for_trouble(&mut self, socket: &Socket, counters: &mut Counters) -> io::Result<()> {
        let now_ns = sys::clock_ns(libc::CLOCK_MONOTONIC_COARSE);
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + LOOK_EVERY.as_ns();
            self.check_ring(socket, counters)?;
        }
        // A ring does not report that the interface is down or gone; only the queue does.
        self.idle_looks = (self.idle_looks + 1) % LOOKS_PER_ERROR;
        let asks = self.idle_looks == 0;
        let error = asks.then(|| socket.take_error()).transpose()?.flatten();
        error.map_or(Ok(()), Err)
    }

    /// Counts dropped frames, and switches to the socket's queue if the ring is stuck.
    ///
    /// A super-packet of a kind that an offload header cannot describe (UDP fragments, SCTP) stops
    /// the ring permanently: the kernel marks the place as being written, drops the frame and
    /// leaves the mark, and then drops every later frame at that mark (`tpacket_rcv` in Linux's
    /// net/packet/af_packet.c). In the socket's queue such a frame affects no other.
    fn check_ring(&mut self, socket: &Socket, counters: &mut Counters) -> io::Result<()> {
        self.count_dropped(socket, counters);
        let is_stuck = self.dropped > 0 && self.arrived == 0 && !self.has_waiting();
        (self.arrived, self.dropped) = (0, 0);
        match self.ring.take_if(|_| is_stuck) {
            Some(ring) => ring.close(socket.as_fd()),
            None => Ok(()),
        }
    }

    /// Frees the slots that the port holds.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        self.slots.drain(..).for_each(|slot| pool.free(slot));
        self.large
            .drain(..)
            .for_each(|large| pool.free_large(large));
    }

    /// Returns the number of slots that the port holds.
    pub(super) fn kept(&self) -> usize {
        self.slots.len()
    }

    /// Allocates slots for a whole batch from `pool`, as far as available.
    fn take_room(&mut self, pool: &mut Pool) {
        while self.slots.len() < self.most {
            let Some(slot) = pool.allocate() else { break };
            self.slots.push(slot);
        }
        while self.large.len() < self.slots.len() {
            let Some(large) = pool.allocate_large() else {
                break;
            };
            self.large.push(large);
        }
    }

    /// Like [`Inward::receive`], if all frames are in the socket's queue.
    fn receive_from_queue(&mut self, socket: &Socket, into: &mut Intake<'_>) -> io::Result<()> {
        (0..self.worth_taking()).for_each(|_| self.prepare(into.pool));
        let bytes_before = into.counters.received_bytes;
        let fetched = self.messages.receive(socket.as_fd());
        let count = *fetched.as_ref().unwrap_or(&0);
        into.stamps = self.stamps(count);
        (0..count).for_each(|message| self.take_message(message, into));
        self.put_back();
        let most = self.most_after(into.counters.received_bytes - bytes_before, count);
        self.batch = expected_after(count, most);
        fetched.map(drop)
    }

    /// Like [`Inward::receive`], if frames come through `ring`. Returns the number of frames.
    fn receive_through(
        &mut self,
        ring: &mut Ring,
        socket: &Socket,
        into: &mut Intake<'_>,
    ) -> io::Result<usize> {
        // Frames in the queue are fetched first, all at once; then all frames are processed in ring
        // order.
        let (mut arrived, most) = (0, self.worth_taking());
        while arrived < most
            && let Some(frame) = ring.look(arrived, self.vnet_len)
        {
            arrived += 1;
            if frame.is_queued {
                self.prepare(into.pool);
            }
        }
        if arrived == 0 {
            return Ok(0);
        }
        into.stamps = self.stamps(arrived);
        let fetched = match self.messages.len() {
            0 => Ok(0),
            _ => self.messages.receive(socket.as_fd()),
        };
        // The kernel queues a frame before the ring announces it, so this frame will not arrive any
        // more.
        let mut is_missing =
            matches!(&fetched, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let count = *fetched.as_ref().unwrap_or(&0);
        let bytes_before = into.counters.received_bytes;
        let (mut taken, mut message) = (0, 0);
        while taken < arrived
            && let Some(frame) = ring.look(taken, self.vnet_len)
        {
            let is_whole = frame.bytes.len() == self.vnet_len + frame.length;
            if frame.is_queued && message < count {
                self.take_message(message, into);
                message += 1;
            } else if frame.is_queued && !std::mem::take(&mut is_missing) {
                break;
            } else if frame.is_queued || !is_whole {
                // The queue had no space for it.
                into.counters.lose(Loss::KernelQueue, 1);
            } else if let Some(slot) = self.slots.pop() {
                let (room, _) = into.pool.receive_rooms(slot, self.vnet_len, None);
                room[..frame.bytes.len()].copy_from_slice(frame.bytes);
                into.pool
                    .set_received(slot, frame.length as u32, self.vnet_len, None);
                into.take(Taken {
                    slot,
                    tag: frame.tag,
                    stamp_ns: Some(frame.stamp_ns),
                });
            } else {
                into.counters.lose(Loss::NoSlot, 1);
            }
            taken += 1;
        }
        ring.give_back(taken);
        self.arrived += taken as u64;
        self.put_back();
        self.batch = self.most_after(into.counters.received_bytes - bytes_before, taken);
        fetched.map(|_| arrived)
    }

    /// Returns the conversion of stamps, brought up to date for `count` frames that have arrived.
    fn stamps(&mut self, count: usize) -> Option<(Clock, Stamps)> {
        let (_, stamps) = self.stamps.as_mut().filter(|_| count > 0)?;
        stamps.look();
        self.stamps
    }

    /// Returns the number of frames to receive: the number of buffers, or a whole batch to be
    /// dropped.
    fn worth_taking(&self) -> usize {
        match self.slots.len() {
            0 => self.batch,
            slots => self.batch.min(slots),
        }
    }

    /// Adds a message with the buffer that was allocated last. It was also freed last, so it is
    /// still in the cache.
    fn prepare(&mut self, pool: &mut Pool) {
        let rooms = self.slots.pop().map(|slot| (slot, self.large.pop()));
        let (room, rest) = match rooms {
            Some((slot, large)) => pool.receive_rooms(slot, self.vnet_len, large),
            // The kernel always writes the offload header.
            None => {
                let room = &mut self.discarded[self.rooms.len()];
                (&mut room[..self.vnet_len], &mut [][..])
            }
        };
        // SAFETY: the buffers are parts of the pool, which the caller borrows until the messages
        // are received, or of `self`; no two messages share one, and none is accessed before.
        #[allow(unsafe_code)]
        unsafe {
            self.messages.push(room, rest);
        }
        self.rooms.push(rooms);
    }

    /// Delivers the frame of a received message.
    fn take_message(&mut self, message: usize, into: &mut Intake<'_>) {
        let Some((slot, large)) = self.rooms[message].take() else {
            into.counters.lose(Loss::NoSlot, 1);
            return;
        };
        let received = self.messages.received(message);
        if received.is_truncated || received.length < self.vnet_len {
            let reason = match large {
                None => Loss::NoLargeSlot,
                Some(_) => Loss::Oversize,
            };
            into.counters.lose(reason, 1);
            self.rooms[message] = Some((slot, large));
            return;
        }
        if received.is_control_cut {
            // Without its tag the frame would enter another VLAN.
            into.counters.lose(Loss::Other, 1);
            self.rooms[message] = Some((slot, large));
            return;
        }
        let length = (received.length - self.vnet_len) as u32;
        if !into.pool.set_received(slot, length, self.vnet_len, large) {
            self.large.extend(large);
        }
        into.take(Taken {
            slot,
            tag: received.tag,
            stamp_ns: received.stamp_ns,
        });
    }

    /// Returns the unused buffers, so that they are used next.
    fn put_back(&mut self) {
        for (slot, large) in self.rooms.drain(..).rev().flatten() {
            self.slots.push(slot);
            self.large.extend(large);
        }
    }

    /// Returns the number of frames worth receiving at once after `count` frames of `bytes` bytes
    /// in total.
    fn most_after(&self, bytes: u64, count: usize) -> usize {
        let mean = bytes as usize / count.max(1);
        (BATCH_BYTES / mean.max(1)).clamp(1, self.most)
    }
}

impl Intake<'_> {
    fn take(&mut self, taken: Taken) {
        let slot = taken.slot;
        if let Some((protocol, tci)) = taken.tag {
            self.pool.insert_tag(slot, protocol, tci);
        }
        if let (Some((clock, stamps)), Some(stamp_ns)) = (&self.stamps, taken.stamp_ns) {
            let arrival = clock.at_monotonic(stamps.monotonic_ns(stamp_ns));
            self.pool.set_arrival(slot, arrival);
        }
        self.counters.received += 1;
        self.counters.received_bytes += self.pool.frame_len(slot) as u64;
        self.counters.received_super += u64::from(self.pool.vnet(slot).gso().is_some());
        self.slots.push(slot);
    }
}

/// A batch of super-packets is sent before the next is received. This much stays in a core's cache
/// until then, together with the kernel's own copies; 32 super-packets would not.
const BATCH_BYTES: usize = 256 << 10;
/// The number of checks that find nothing between two checks whether the interface is down or gone.
const LOOKS_PER_ERROR: u32 = 64;

/// linux/if_packet.h: `struct tpacket_stats`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Statistics {
    packets: u32,
    dropped: u32,
}
