//! Frames on their way from the pool of one thread to that of another.

use super::{Loss, Pool, Slot};
use sluice_core::Time;
use sluice_wire::frame::VnetHeader;

/// A copy of a frame outside any pool, with its offload state. Its memory can be used again.
#[derive(Debug, Default)]
pub struct Carried {
    bytes: Vec<u8>,
    vnet: VnetHeader,
    arrival: Option<Time>,
    account: Option<u8>,
    is_flipped: bool,
}

impl Carried {
    /// Returns the bytes of memory that are allocated.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the account that the frame was charged to, if it was.
    pub const fn account(&self) -> Option<u8> {
        self.account
    }
}

impl Pool {
    /// Copies the frame in a slot, which remains, into `into`.
    ///
    /// # Panics
    /// If a port keeps a part of the frame ([`Pool::is_cut`]).
    pub fn carry(&self, slot: Slot, into: &mut Carried) {
        assert!(!self.is_cut(slot), "the whole frame is in the pool");
        into.bytes.clear();
        into.bytes.extend_from_slice(self.head(slot));
        into.bytes.extend_from_slice(self.tail(slot));
        into.vnet = self.vnet(slot);
        into.arrival = self.arrival(slot);
        into.account = self.account(slot);
        into.is_flipped = self.is_flipped(slot);
    }

    /// Copies a frame of another pool into a new slot, which is charged to no account.
    ///
    /// # Errors
    /// When there is no room.
    pub fn put(&mut self, carried: &Carried) -> Result<Slot, Loss> {
        let slot = self.store(&carried.bytes)?;
        self.set_vnet(slot, carried.vnet);
        if let Some(arrival) = carried.arrival {
            self.set_arrival(slot, arrival);
        }
        self.frames[slot.index()].is_flipped = carried.is_flipped;
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{HEAD_LEN, PoolSize};

    #[test]
    fn a_frame_is_the_same_in_another_pool() {
        let size = PoolSize { slots: 2, large: 1 };
        let [mut one, mut other] = [(); 2].map(|()| Pool::new(size).unwrap());
        let mut carried = Carried::default();
        for len in [60, HEAD_LEN, HEAD_LEN + 1, 65_000] {
            let frame: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let from = one.store(&frame).unwrap();
            let vnet = VnetHeader {
                gso_size: 1448,
                ..VnetHeader::default()
            };
            one.set_vnet(from, vnet);
            one.set_arrival(from, Time::from_ns(7));
            assert!(one.charge(from, 3));
            one.carry(from, &mut carried);
            one.free(from);
            assert_eq!(carried.account(), Some(3));
            let to = other.put(&carried).unwrap();
            assert_eq!([other.head(to), other.tail(to)].concat(), frame);
            assert_eq!(
                (other.vnet(to), other.arrival(to)),
                (vnet, Some(Time::from_ns(7)))
            );
            assert_eq!(other.account(to), None);
            other.free(to);
        }
        // The memory is that of the longest frame, whatever comes next.
        assert!(carried.capacity() >= 65_000);
        assert_eq!((one.available(), other.available()), (2, 2));
    }
}
