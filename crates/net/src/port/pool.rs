//! The router's frame memory: fixed in size, allocated once.
//!
//! A frame is stored in a slot of 2 KiB; the rest of a longer frame (a super-packet or jumbo frame)
//! is stored in a large slot of 64 KiB that is attached to the slot. So a full-size packet or an
//! ACK occupies 2 KiB while it is queued, all headers are always in the slot, and the number of
//! super-packets that can be held is set separately.
//!
//! A segment of a super-packet may not fit a slot either. It then has its headers in a slot of its
//! own and its payload where the super-packet had it: the segments share the large slot, each with
//! its own bytes, and the last of them frees it. So jumbo segments need no more memory than the
//! super-packet did, and their payload is not copied.
//!
//! The slots are one page-aligned area of chunks of equal size with headroom before each frame,
//! which is also the layout that AF_XDP requires.

mod account;
mod awaited;
mod carried;
mod slot;
mod split;

use account::Accounts;
use awaited::Tickets;
pub(super) use awaited::{Ticket, Watcher};
pub use carried::Carried;
pub use slot::Slot;

use super::Loss;
use super::nfqueue::StackPath;
use crate::sys::{Area, SharedMap};
use sluice_core::Time;
use sluice_wire::frame::{VnetHeader, complete_checksum};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The memory of a pool, which does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Slots of 2 KiB: one per frame held.
    pub slots: u32,
    /// Large slots of 64 KiB: one more per frame longer than [`HEAD_LEN`].
    pub large: u32,
}

/// The reasons why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The kernel cannot allocate the memory.
    #[error("cannot allocate {bytes} bytes for {slots} slots and {large} large slots: {source}")]
    Memory {
        /// Requested bytes.
        bytes: u64,
        /// Requested slots.
        slots: u32,
        /// Requested large slots.
        large: u32,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The slots and their contents.
pub struct Pool {
    slots: Area,
    large: Area,
    frames: Box<[Frame]>,
    free: Vec<u32>,
    free_large: Vec<u32>,
    /// Number of frames that have bytes in each large slot, by its index.
    sharers: Box<[u16]>,
    /// The paths of frames through the kernel's stack, if a port reports them.
    paths: Vec<StackPath>,
    accounts: Accounts,
    /// The packets of frames that wait in the kernel for a verdict.
    tickets: Tickets,
    /// Pools that share one memory share this field.
    registered: Registered,
}

/// The open AF_XDP socket, if any, with which slots are registered.
type Registered = Arc<Mutex<Weak<OwnedFd>>>;

/// The memory of slots, to be registered with AF_XDP sockets. It exists as long as this does.
pub(super) struct SlotMemory {
    mapping: SharedMap,
    registered: Registered,
}

/// The frame in a slot.
#[derive(Clone, Copy)]
struct Frame {
    length: u32,
    large: u32,
    start: u16,
    /// Bytes in the slot. If a large slot is attached, the other bytes start at `tail_at` in it.
    head_len: u16,
    tail_at: u16,
    vnet: VnetHeader,
    arrival: Time,
    has_arrival: bool,
    is_held: bool,
    /// Whether the slot is lent: the kernel may read or write it at any time.
    is_lent: bool,
    /// Whether the slot holds only the headers, and the port keeps the rest.
    is_cut: bool,
    /// Whether a bit of the frame was flipped.
    is_flipped: bool,
    watcher: u8,
    /// The account that the slot is charged to.
    account: u8,
}

/// There is one per slot, and each packet accesses its own several times.
const _: () = assert!(size_of::<Frame>() == 40);

impl Pool {
    /// Allocates the memory; it is resident at once.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    pub fn new(size: PoolSize) -> Result<Pool, PoolError> {
        let (slots, large) = areas(size, 1, true)?;
        Ok(Pool::over(size, slots, large, Arc::default()))
    }

    /// Reserves the memory. A page becomes resident when it is first used, which costs its first
    /// frame about 1 us. A pool of 64 MB is made in less than 1 ms instead of 25 ms, and one that is
    /// hardly used occupies hardly any memory, since freed slots are used again first.
    ///
    /// # Errors
    /// The address space is exhausted.
    pub fn on_demand(size: PoolSize) -> Result<Pool, PoolError> {
        let (slots, large) = areas(size, 1, false)?;
        Ok(Pool::over(size, slots, large, Arc::default()))
    }

    /// Creates two pools of this size each, for two threads. The slots of both are one memory, so
    /// that an AF_XDP interface can give its frames to one pool and send those of the other.
    ///
    /// # Errors
    /// As for [`Pool::new`].
    pub fn pair(size: PoolSize) -> Result<(Pool, Pool), PoolError> {
        let (slots, large) = areas(size, 2, true)?;
        let registered = Arc::default();
        let (slots_len, large_len) = lengths(size);
        let (slots, more_slots) = slots.split_at(slots_len);
        let (large, more_large) = large.split_at(large_len);
        Ok((
            Pool::over(size, slots, large, Arc::clone(&registered)),
            Pool::over(size, more_slots, more_large, registered),
        ))
    }

    fn over(size: PoolSize, slots: Area, large: Area, registered: Registered) -> Pool {
        let empty = Frame {
            length: 0,
            large: NONE,
            start: START,
            head_len: 0,
            tail_at: 0,
            vnet: VnetHeader::default(),
            arrival: Time::ZERO,
            has_arrival: false,
            is_held: false,
            is_lent: false,
            is_cut: false,
            is_flipped: false,
            watcher: NOBODY,
            account: NOBODY,
        };
        Pool {
            slots,
            large,
            frames: vec![empty; size.slots as usize].into(),
            // The lowest slots are taken first and reused soon, while they are still in the cache.
            free: (0..size.slots).rev().collect(),
            free_large: (0..size.large).rev().collect(),
            sharers: vec![0; size.large as usize].into(),
            paths: Vec::new(),
            accounts: Accounts::new(size.large),
            tickets: Tickets::default(),
            registered,
        }
    }

    /// Allocates an empty slot, if one is free.
    pub fn allocate(&mut self) -> Option<Slot> {
        let index = self.free.pop()?;
        let frame = &mut self.frames[index as usize];
        frame.length = 0;
        frame.start = START;
        frame.head_len = 0;
        frame.vnet = VnetHeader::default();
        frame.has_arrival = false;
        frame.is_held = true;
        frame.is_cut = false;
        frame.is_flipped = false;
        Some(Slot::from_number(index))
    }

    /// Frees a slot. The large slot attached to it is freed too unless other segments share it.
    pub fn free(&mut self, slot: Slot) {
        let frame = &mut self.frames[slot.index()];
        assert!(frame.is_held, "a slot is freed once");
        assert!(!frame.is_lent, "a slot that the kernel has is not freed");
        frame.is_held = false;
        let watcher = std::mem::replace(&mut frame.watcher, NOBODY);
        let account = std::mem::replace(&mut frame.account, NOBODY);
        if watcher != NOBODY {
            self.tickets.abandon(slot, watcher);
        }
        self.detach_large(slot);
        self.accounts.release(account);
        self.free.push(slot.number());
    }

    /// Returns the number of free slots.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of slots in use.
    pub fn held(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Returns the number of free large slots.
    pub fn available_large(&self) -> usize {
        self.free_large.len()
    }

    /// Returns the length of the whole frame in bytes.
    pub fn frame_len(&self, slot: Slot) -> usize {
        self.frames[slot.index()].length as usize
    }

    /// Returns the first bytes of the frame: all of it, or the headers and some payload.
    pub fn head(&self, slot: Slot) -> &[u8] {
        &self.slots[self.head_range(slot)]
    }

    /// Returns the first bytes of the frame, mutably.
    pub fn head_mut(&mut self, slot: Slot) -> &mut [u8] {
        let range = self.head_range(slot);
        &mut self.slots[range]
    }

    /// Returns the bytes after [`Pool::head`]; usually none.
    pub fn tail(&self, slot: Slot) -> &[u8] {
        &self.large[self.tail_range(slot)]
    }

    /// Returns both parts of the frame, the first mutably.
    pub fn parts_mut(&mut self, slot: Slot) -> (&mut [u8], &[u8]) {
        let (head, tail) = (self.head_range(slot), self.tail_range(slot));
        (&mut self.slots[head], &self.large[tail])
    }

    /// Returns whether the slot holds only the frame's headers because its port keeps the rest.
    /// Such a frame cannot be marked, split or sent by another port.
    pub fn is_cut(&self, slot: Slot) -> bool {
        self.frames[slot.index()].is_cut
    }

    /// Returns whether a bit of the frame was flipped ([`Pool::flip`]).
    pub fn is_flipped(&self, slot: Slot) -> bool {
        self.frames[slot.index()].is_flipped
    }

    /// Returns the offload state of the frame.
    pub fn vnet(&self, slot: Slot) -> VnetHeader {
        self.frames[slot.index()].vnet
    }

    /// Returns the instant at which the kernel received the frame, if the port reports it.
    pub fn arrival(&self, slot: Slot) -> Option<Time> {
        let frame = &self.frames[slot.index()];
        frame.has_arrival.then_some(frame.arrival)
    }

    /// Returns the path of the frame through the kernel's stack; meaningful for frames of a port that
    /// reports paths, and `None` in a pool without such a port.
    pub fn path(&self, slot: Slot) -> Option<StackPath> {
        self.paths.get(slot.index()).copied()
    }

    /// Sets the path of the frame.
    pub(super) fn set_path(&mut self, slot: Slot, path: StackPath) {
        if self.paths.is_empty() {
            self.paths = vec![StackPath::default(); self.frames.len()];
        }
        self.paths[slot.index()] = path;
    }

    /// Sets the arrival time of the frame; for a segment, that of its super-packet.
    pub fn set_arrival(&mut self, slot: Slot, time: Time) {
        let frame = &mut self.frames[slot.index()];
        (frame.arrival, frame.has_arrival) = (time, true);
    }

    /// Sets the offload state of the frame.
    pub fn set_vnet(&mut self, slot: Slot, vnet: VnetHeader) {
        self.frames[slot.index()].vnet = vnet;
    }

    /// Completes the frame's transport checksum if it is still partial. If the offload header
    /// points outside the frame, the checksum is left as it is.
    pub fn complete_checksum(&mut self, slot: Slot) {
        let vnet = self.vnet(slot);
        let (head, tail) = self.parts_mut(slot);
        if complete_checksum(head, tail, &vnet) {
            let flags = vnet.flags & !VnetHeader::NEEDS_CSUM;
            self.set_vnet(slot, VnetHeader { flags, ..vnet });
        }
    }

    /// Lends a slot to the kernel until [`Pool::take_back`]. Accessing the bytes of a lent slot
    /// panics.
    pub(super) fn lend(&mut self, slot: Slot) {
        self.frames[slot.index()].is_lent = true;
    }

    /// Ends [`Pool::lend`]: the kernel no longer uses the slot.
    pub(super) fn take_back(&mut self, slot: Slot) {
        self.frames[slot.index()].is_lent = false;
    }

    /// Returns the whole room of an empty slot, for a frame of up to [`HEAD_LEN`] bytes.
    /// [`Pool::set_frame`] then sets the length.
    pub fn room_mut(&mut self, slot: Slot) -> &mut [u8] {
        let start = self.base(slot) + usize::from(START);
        &mut self.slots[start..start + HEAD_LEN]
    }

    /// Declares that the slot holds the frame just written into [`Pool::room_mut`].
    pub fn set_frame(&mut self, slot: Slot, length: u32, vnet: VnetHeader) {
        assert!(
            length as usize <= HEAD_LEN,
            "a frame written into a slot fits it"
        );
        let frame = &mut self.frames[slot.index()];
        frame.length = length;
        frame.start = START;
        frame.head_len = length as u16;
        frame.vnet = vnet;
    }

    /// Shortens the frame to its first `length` bytes. If these are in the slot, the large slot attached
    /// to it is freed as in [`Pool::free`].
    pub fn truncate(&mut self, slot: Slot, length: u32) {
        let frame = &mut self.frames[slot.index()];
        assert!(
            !frame.is_lent && !frame.is_cut,
            "a frame that others keep is not shortened"
        );
        frame.length = frame.length.min(length);
        if frame.length <= u32::from(frame.head_len) {
            frame.head_len = frame.length as u16;
            self.detach_large(slot);
        }
    }

    /// Copies a frame with its offload state and arrival time, if there is room.
    pub fn copy(&mut self, slot: Slot) -> Option<Slot> {
        let (frame, head) = (self.frames[slot.index()], self.head_range(slot));
        let is_long = frame.large != NONE;
        if is_long && self.free_large.is_empty() {
            return None;
        }
        let to = self.allocate()?;
        let base = self.base(to) + usize::from(frame.start);
        self.slots.copy_within(head, base);
        let large = if is_long {
            let large = self.free_large.pop().expect("a large slot is free");
            let tail = self.tail_range(slot);
            self.large.copy_within(tail, large as usize * LARGE_LEN);
            self.sharers[large as usize] = 1;
            large
        } else {
            NONE
        };
        self.frames[to.index()] = Frame {
            large,
            tail_at: 0,
            // The port that waits for `slot` does not know of its copies.
            watcher: NOBODY,
            account: NOBODY,
            ..frame
        };
        Some(to)
    }

    /// Flips the bits of `mask` in one byte of the frame; does nothing past its end. A checksum
    /// that the kernel had verified no longer counts as verified.
    pub fn flip(&mut self, slot: Slot, byte: usize, mask: u8) {
        let frame = &mut self.frames[slot.index()];
        frame.vnet.flags &= !VnetHeader::DATA_VALID;
        frame.is_flipped = true;
        let (head, tail) = (self.head_range(slot), self.tail_range(slot));
        let head_len = head.len();
        let byte = match byte.checked_sub(head_len) {
            None => self.slots[head].get_mut(byte),
            Some(byte) => self.large[tail].get_mut(byte),
        };
        if let Some(byte) = byte {
            *byte ^= mask;
        }
    }

    /// Allocates a large slot.
    pub(super) fn allocate_large(&mut self) -> Option<u32> {
        self.free_large.pop()
    }

    /// Frees a large slot that was never attached.
    pub(super) fn free_large(&mut self, large: u32) {
        self.free_large.push(large);
    }

    /// Returns the buffers for receiving a frame with its offload header: room for both in the
    /// slot, and the large slot for the rest.
    pub(super) fn receive_rooms(
        &mut self,
        slot: Slot,
        vnet_len: usize,
        large: Option<u32>,
    ) -> (&mut [u8], &mut [u8]) {
        let start = self.base(slot) + usize::from(START);
        let rest = match large {
            Some(large) => large as usize * LARGE_LEN..(large as usize + 1) * LARGE_LEN,
            None => 0..0,
        };
        (
            &mut self.slots[start - vnet_len..start + HEAD_LEN],
            &mut self.large[rest],
        )
    }

    /// Copies a frame into a new slot.
    ///
    /// # Errors
    /// When there is no room.
    pub(super) fn store(&mut self, bytes: &[u8]) -> Result<Slot, Loss> {
        let slot = self.allocate().ok_or(Loss::NoSlot)?;
        let large = if bytes.len() > HEAD_LEN {
            let Some(large) = self.allocate_large() else {
                self.free(slot);
                return Err(Loss::NoLargeSlot);
            };
            Some(large)
        } else {
            None
        };
        let (room, rest) = self.receive_rooms(slot, 0, large);
        let (head, tail) = bytes.split_at(bytes.len().min(room.len()));
        room[..head.len()].copy_from_slice(head);
        rest[..tail.len()].copy_from_slice(tail);
        self.set_received(slot, bytes.len() as u32, 0, large);
        Ok(slot)
    }

    /// Declares that a frame of `length` bytes was received into [`Pool::receive_rooms`]. If the
    /// frame continues in `large`, that is attached to the slot. Returns whether it was.
    pub(super) fn set_received(
        &mut self,
        slot: Slot,
        length: u32,
        vnet_len: usize,
        large: Option<u32>,
    ) -> bool {
        let start = self.base(slot) + usize::from(START);
        let frame = &mut self.frames[slot.index()];
        frame.length = length;
        frame.start = START;
        frame.vnet = match self.slots[start - vnet_len..start].first_chunk() {
            Some(bytes) => VnetHeader::from_bytes(bytes),
            None => VnetHeader::default(),
        };
        if length as usize <= HEAD_LEN {
            frame.head_len = length as u16;
            return false;
        }
        let large = large.expect("only a frame that has room is received");
        (frame.head_len, frame.tail_at) = (HEAD_LEN as u16, 0);
        frame.large = large;
        self.sharers[large as usize] = 1;
        true
    }

    /// Stores the first bytes of a frame of `length` bytes in an empty slot; the port keeps the
    /// rest.
    pub(super) fn set_cut(&mut self, slot: Slot, head: &[u8], length: u32) {
        self.room_mut(slot)[..head.len()].copy_from_slice(head);
        let frame = &mut self.frames[slot.index()];
        frame.length = length;
        frame.start = START;
        frame.head_len = head.len() as u16;
        frame.vnet = VnetHeader::default();
        frame.is_cut = head.len() < length as usize;
    }

    /// Returns the memory of the slots.
    pub(super) fn slot_memory(&self) -> SlotMemory {
        SlotMemory {
            mapping: self.slots.mapping(),
            registered: Arc::clone(&self.registered),
        }
    }

    /// Returns the memory of all slots, [`SLOT_LEN`] bytes each. It must not be read: some slots
    /// may be lent to the kernel.
    pub(super) fn area(&self) -> &Area {
        &self.slots
    }

    /// Declares that the kernel wrote a frame of `length` bytes into an empty slot, at offset
    /// `start`. Returns false if that is not inside the slot.
    pub(super) fn set_written(&mut self, slot: Slot, start: usize, length: usize) -> bool {
        if start + length > SLOT_LEN {
            return false;
        }
        let frame = &mut self.frames[slot.index()];
        frame.length = length as u32;
        frame.start = start as u16;
        frame.head_len = length as u16;
        frame.vnet = VnetHeader::default();
        true
    }

    /// Returns the position of the frame, relative to the start of the memory that contains
    /// [`Pool::area`]; `None` if the frame is not entirely in its slot.
    pub(super) fn placed(&self, slot: Slot) -> Option<std::ops::Range<usize>> {
        let frame = &self.frames[slot.index()];
        let range = self.head_range(slot);
        let base = self.slots.offset();
        (frame.large == NONE).then(|| base + range.start..base + range.end)
    }

    /// Reinserts a VLAN tag that the kernel had stripped, after the Ethernet addresses.
    pub(super) fn insert_tag(&mut self, slot: Slot, protocol: u16, tci: u16) {
        let base = self.base(slot);
        let frame = &mut self.frames[slot.index()];
        if frame.length < 12 {
            return;
        }
        let start = base + usize::from(frame.start);
        self.slots.copy_within(start..start + 12, start - TAG_LEN);
        self.slots[start + 8..start + 10].copy_from_slice(&protocol.to_be_bytes());
        self.slots[start + 10..start + 12].copy_from_slice(&tci.to_be_bytes());
        frame.start -= TAG_LEN as u16;
        frame.length += TAG_LEN as u32;
        frame.head_len += TAG_LEN as u16;
        // Neither can be trusted: the kernel truncates the length of a long linear part to 16 bits.
        let moved = |offset: u16| offset.saturating_add(TAG_LEN as u16);
        if frame.vnet.needs_checksum() {
            frame.vnet.csum_start = moved(frame.vnet.csum_start);
        }
        if frame.vnet.hdr_len > 0 {
            frame.vnet.hdr_len = moved(frame.vnet.hdr_len);
        }
    }

    /// Returns the frame for transmission: its offload header (unless `vnet_len` is 0) and head in
    /// one piece, and its tail.
    pub(super) fn send_parts(&mut self, slot: Slot, vnet_len: usize) -> (&mut [u8], &mut [u8]) {
        let head = self.head_range(slot);
        let tail = self.tail_range(slot);
        let with_header = head.start - vnet_len..head.end;
        let bytes = self.frames[slot.index()].vnet.to_bytes();
        self.slots[with_header.start..head.start].copy_from_slice(&bytes[..vnet_len]);
        (&mut self.slots[with_header], &mut self.large[tail])
    }

    /// Returns the bytes after the first `header_len` of a frame that is entirely in its slot.
    pub(super) fn payload_mut(&mut self, slot: Slot, header_len: usize) -> &mut [u8] {
        let range = self.head_range(slot);
        &mut self.slots[range.start + header_len..range.end]
    }

    /// Frees the large slot of a frame, if it has one, unless other segments share it.
    fn detach_large(&mut self, slot: Slot) {
        let large = std::mem::replace(&mut self.frames[slot.index()].large, NONE);
        if large == NONE {
            return;
        }
        let sharers = &mut self.sharers[large as usize];
        *sharers -= 1;
        if *sharers == 0 {
            self.free_large.push(large);
            self.accounts.release_large(large);
        }
    }

    /// Returns the offset of a slot whose bytes are about to be accessed. Every access calls this
    /// function, even with a forged slot number, so there is no reference to bytes that the kernel
    /// writes.
    fn base(&self, slot: Slot) -> usize {
        assert!(
            !self.frames[slot.index()].is_lent,
            "a slot that the kernel has is not accessed"
        );
        slot.index() * SLOT_LEN
    }

    fn head_range(&self, slot: Slot) -> std::ops::Range<usize> {
        let frame = &self.frames[slot.index()];
        let start = self.base(slot) + usize::from(frame.start);
        start..start + usize::from(frame.head_len)
    }

    fn tail_range(&self, slot: Slot) -> std::ops::Range<usize> {
        let frame = &self.frames[slot.index()];
        if frame.large == NONE {
            return 0..0;
        }
        let start = frame.large as usize * LARGE_LEN + usize::from(frame.tail_at);
        start..start + frame.length as usize - usize::from(frame.head_len)
    }
}

/// Returns the bytes of all slots and of all large slots.
fn lengths(size: PoolSize) -> (usize, usize) {
    (
        size.slots.max(1) as usize * SLOT_LEN,
        size.large.max(1) as usize * LARGE_LEN,
    )
}

impl SlotMemory {
    /// Returns the address and the length of the whole memory.
    pub(super) fn whole(&self) -> (usize, usize) {
        (self.mapping.at(0) as usize, self.mapping.len())
    }

    /// Returns the open AF_XDP socket with which the slots are registered, if there is one.
    pub(super) fn registered(&self) -> Option<Arc<OwnedFd>> {
        let registered = self.registered.lock();
        registered.unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Records that the slots are registered with `socket`.
    pub(super) fn set_registered(&self, socket: &Arc<OwnedFd>) {
        let registered = self.registered.lock();
        *registered.unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(socket);
    }
}

/// Allocates the memory of `pools` pools of one size.
fn areas(size: PoolSize, pools: usize, is_resident: bool) -> Result<(Area, Area), PoolError> {
    let (slots_len, large_len) = lengths(size);
    let area = |length| {
        Area::new(length * pools, is_resident).map_err(|source| PoolError::Memory {
            bytes: ((slots_len + large_len) * pools) as u64,
            slots: size.slots,
            large: size.large,
            source,
        })
    };
    Ok((area(slots_len)?, area(large_len)?))
}

/// Largest number of bytes of a frame in its slot.
pub const HEAD_LEN: usize = SLOT_LEN - START as usize;

/// Largest number of bytes of a frame: more than the longest IP packet with its link header. Those of BIG TCP
/// may be longer.
pub const LONGEST: usize = HEAD_LEN + LARGE_LEN;

/// Bytes of a slot.
pub(super) const SLOT_LEN: usize = 2048;
/// Headroom for a tag and an offload header; the frame starts on a cache line.
const START: u16 = 64;
/// Bytes of a large slot, for the rest of a frame.
pub(super) const LARGE_LEN: usize = 65536;
const TAG_LEN: usize = 4;
const NONE: u32 = u32::MAX;
const NOBODY: u8 = u8::MAX;

#[cfg(test)]
mod segments;
#[cfg(test)]
mod tests;
