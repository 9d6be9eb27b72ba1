//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Each has one producer and one consumer, whose free-running positions are in shared memory
//! (Linux's Documentation/networking/af_xdp.rst). An entry becomes visible with the release store
//! of the producer's position, and may be overwritten once the consumer's position has passed it.
//! The kernel is trusted to write only its own positions. No position that it writes can lead
//! outside the mapping, because indices are masked.
#![allow(unsafe_code)]

use crate::sys::SharedMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// The offsets of a ring's parts in its mapping.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub producer: usize,
    pub consumer: usize,
    pub flags: usize,
    pub entries: usize,
}

/// A ring of entries of type `T`. This process either writes the entries (fill, transmit) or reads
/// them (completion, receive).
pub(super) struct Ring<T> {
    map: SharedMap,
    layout: Layout,
    mask: u32,
    /// This side's position.
    own: u32,
    /// The other side's position, as far as it is known.
    other: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Returns the size in bytes of a ring with `size` entries.
    pub(super) fn bytes(layout: Layout, size: u32) -> usize {
        layout.entries + size as usize * size_of::<T>()
    }

    /// # Safety
    /// `map` must hold a ring of `size` entries of type `T` (a power of two) with this layout, and
    /// every bit pattern must be a valid `T`.
    pub(super) unsafe fn new(map: SharedMap, layout: Layout, size: u32) -> Ring<T> {
        assert!(size.is_power_of_two(), "ring sizes are powers of two");
        assert!(
            map.len() >= Ring::<T>::bytes(layout, size),
            "the mapping holds the whole ring"
        );
        Ring {
            map,
            layout,
            mask: size - 1,
            own: 0,
            other: 0,
            entry: PhantomData,
        }
    }

    /// Returns whether the kernel must be woken up to continue with this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.position(self.layout.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the number of entries that can be produced now.
    pub(super) fn room(&mut self) -> u32 {
        let size = self.mask + 1;
        let room = size - self.own.wrapping_sub(self.other);
        if room > 0 {
            return room;
        }
        self.follow();
        size.saturating_sub(self.own.wrapping_sub(self.other))
    }

    /// Returns whether the kernel has consumed everything that was produced.
    pub(super) fn is_drained(&mut self) -> bool {
        self.follow();
        self.own == self.other
    }

    /// Reads how far the kernel has consumed. Returns whether that is further than was known.
    pub(super) fn follow(&mut self) -> bool {
        if self.own == self.other {
            return false;
        }
        let seen = self.position(self.layout.consumer).load(Ordering::Acquire);
        let further = seen.wrapping_sub(self.other);
        // After `last_consumed`, the kernel's position may be behind the known one for a while.
        let is_further = further > 0 && further <= self.own.wrapping_sub(self.other);
        if is_further {
            self.other = seen;
        }
        is_further
    }

    /// Returns the entry that the kernel consumed last, after a call that consumed at least one
    /// since [`Ring::follow`]. Returns `None` if all entries had been consumed before.
    ///
    /// The kernel publishes its position only with a frame that it has sent: after a call that only
    /// dropped one, it is one entry further than the position says (`__xsk_generic_xmit` of
    /// net/xdp/xsk.c).
    pub(super) fn last_consumed(&mut self) -> Option<T> {
        if !self.follow() {
            if self.own == self.other {
                return None;
            }
            self.other = self.other.wrapping_add(1);
        }
        let at = self.entry(self.other.wrapping_sub(1));
        // SAFETY: `at` is inside the mapping and aligned. This side wrote the entry, and has not
        // produced another one in its place. Every bit pattern is a valid `T`.
        Some(unsafe { at.read_volatile() })
    }

    /// Writes the next entry, for which [`Ring::room`] must have been checked. It becomes visible
    /// with [`Ring::publish`].
    pub(super) fn produce(&mut self, entry: T) {
        let at = self.entry(self.own);
        // SAFETY: `at` is inside the mapping and aligned, and the kernel does not read an entry
        // before the producer's position has passed it.
        unsafe { at.write_volatile(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Makes the produced entries visible to the kernel.
    pub(super) fn publish(&self) {
        self.position(self.layout.producer)
            .store(self.own, Ordering::Release);
    }

    /// Returns whether there is an entry from the kernel.
    pub(super) fn has_entries(&self) -> bool {
        self.own != self.other
            || self.own != self.position(self.layout.producer).load(Ordering::Acquire)
    }

    /// Returns the next entry from the kernel, if there is one. [`Ring::release`] returns its place
    /// to the kernel.
    pub(super) fn consume(&mut self) -> Option<T> {
        if self.own == self.other {
            self.other = self.position(self.layout.producer).load(Ordering::Acquire);
            if self.own == self.other {
                return None;
            }
        }
        let at = self.entry(self.own);
        // SAFETY: `at` is inside the mapping and aligned. The kernel has finished the entry and
        // does not overwrite it before the consumer's position has passed it. Every bit pattern is
        // a valid `T`.
        let entry = unsafe { at.read_volatile() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    /// Returns the places of the consumed entries to the kernel.
    pub(super) fn release(&self) {
        self.position(self.layout.consumer)
            .store(self.own, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is one of the layout's, inside the mapping and aligned to four bytes;
        // the memory is shared and accessed only atomically.
        unsafe { AtomicU32::from_ptr(self.map.at(offset).cast()) }
    }

    fn entry(&self, position: u32) -> *mut T {
        let index = (position & self.mask) as usize;
        self.map
            .at(self.layout.entries + index * size_of::<T>())
            .cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        producer: 0,
        consumer: 64,
        flags: 128,
        entries: 192,
    };

    /// Returns two views of the same memory: the process's side and the kernel's.
    fn pair(size: u32) -> (Ring<u64>, Ring<u64>) {
        let map = SharedMap::anonymous(Ring::<u64>::bytes(LAYOUT, size)).unwrap();
        let kernel = map.clone();
        // SAFETY: the mapping is large enough and zeroed; any bits are a `u64`.
        unsafe {
            (
                Ring::new(map, LAYOUT, size),
                Ring::new(kernel, LAYOUT, size),
            )
        }
    }

    #[test]
    fn entries_arrive_in_order_and_the_ring_fills_at_its_size() {
        let (mut producer, mut consumer) = pair(4);
        for round in 0..100u64 {
            assert_eq!(producer.room(), 4);
            for number in 0..4 {
                producer.produce(round * 4 + number);
            }
            assert_eq!(producer.room(), 0);
            assert_eq!(
                consumer.consume(),
                None,
                "nothing is seen before it is published"
            );
            assert!(!consumer.has_entries());
            producer.publish();
            for number in 0..4 {
                assert!(consumer.has_entries());
                assert_eq!(consumer.consume(), Some(round * 4 + number));
            }
            assert!(!consumer.has_entries());
            assert_eq!(consumer.consume(), None);
            assert_eq!(producer.room(), 0, "no place is free before it is released");
            consumer.release();
        }
    }

    /// The kernel drops the first of five entries, then sends one and drops one, then drops two.
    #[test]
    fn an_entry_that_was_dropped_is_found_even_if_the_position_is_not_published() {
        let (mut producer, mut kernel) = pair(8);
        (0..5).for_each(|number| producer.produce(number));
        producer.publish();
        assert!(!producer.follow());
        assert_eq!(kernel.consume(), Some(0));
        assert_eq!(producer.last_consumed(), Some(0));
        assert_eq!((kernel.consume(), kernel.consume()), (Some(1), Some(2)));
        kernel.release();
        assert_eq!(producer.last_consumed(), Some(2));
        for number in [3, 4] {
            assert_eq!(kernel.consume(), Some(number));
            assert_eq!(producer.last_consumed(), Some(number));
        }
        assert!(producer.is_drained());
        assert_eq!(producer.last_consumed(), None);
        kernel.release();
        assert_eq!(producer.room(), 8);
    }

    #[test]
    fn positions_wrap_around() {
        let (mut producer, mut consumer) = pair(2);
        for ring in [&mut producer, &mut consumer] {
            (ring.own, ring.other) = (u32::MAX, u32::MAX);
        }
        producer.publish();
        consumer.release();
        for number in 0..4 {
            assert!(producer.room() > 0);
            producer.produce(number);
            producer.publish();
            assert_eq!(consumer.consume(), Some(number));
            consumer.release();
        }
    }

    #[test]
    fn a_position_out_of_bounds_stays_inside_of_the_mapping() {
        let (mut ring, _kernel) = pair(4);
        ring.position(LAYOUT.producer)
            .store(1 << 31, Ordering::Release);
        for _ in 0..9 {
            assert_eq!(ring.consume(), Some(0));
        }
        ring.position(LAYOUT.consumer)
            .store(0x1234_5678, Ordering::Release);
        ring.other = ring.own.wrapping_sub(4);
        assert!(ring.room() <= 4);
    }
}
