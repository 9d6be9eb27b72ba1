//! The handle of a frame.

/// The index of a frame in the [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// Returns the slot with this number, as obtained from [`Slot::number`]. Any other number
    /// refers to the slot of another frame or to no slot; the pool panics rather than access a slot
    /// that is lent to the kernel.
    pub const fn from_number(number: u32) -> Slot {
        Slot(number)
    }

    /// Returns the slot's number, to be stored in a packet handle.
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
