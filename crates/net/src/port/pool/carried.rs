//! Frames on their way from the pool of one thread to that of another.

use super::{Loss, Pool, Slot, StackPath, Ticket, Watcher};
use sluice_core::Time;
use sluice_wire::frame::VnetHeader;

/// A copy of a frame outside any pool, with its offload state. Its memory can be used again.
#[derive(Debug, Default)]
pub struct Carried {
    bytes: Vec<u8>,
    vnet: VnetHeader,
    arrival: Option<Time>,
    account: Option<u8>,
    path: Option<StackPath>,
    is_flipped: bool,
    /// The length of the whole frame, if a port keeps a part of it.
    cut_from: Option<u32>,
    /// The packet in the kernel that waits for a verdict on the frame.
    ticket: Option<(Watcher, Ticket)>,
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
    /// Copies the frame in a slot, which remains, into `into`. Of a frame that a port keeps in part
    /// ([`Pool::is_cut`]), the headers are copied. If the packet also waits in the kernel, the verdict is
    /// the other pool's from [`Pool::put`] on; the slot must then be freed with [`Pool::free_settled`].
    pub fn carry(&self, slot: Slot, into: &mut Carried) {
        into.bytes.clear();
        into.bytes.extend_from_slice(self.head(slot));
        into.bytes.extend_from_slice(self.tail(slot));
        into.vnet = self.vnet(slot);
        into.arrival = self.arrival(slot);
        into.account = self.account(slot);
        into.path = self.path(slot);
        into.is_flipped = self.is_flipped(slot);
        into.cut_from = self.is_cut(slot).then(|| self.frame_len(slot) as u32);
        into.ticket = self.ticket_to_carry(slot);
    }

    /// Copies a frame of another pool into a new slot, which is charged to no account.
    ///
    /// # Errors
    /// When there is no room. A packet that waits in the kernel then counts as dropped.
    pub fn put(&mut self, carried: &Carried) -> Result<Slot, Loss> {
        let stored = match carried.cut_from {
            None => self.store(&carried.bytes),
            Some(length) => self.allocate().ok_or(Loss::NoSlot).inspect(|slot| {
                self.set_cut(*slot, &carried.bytes, length);
            }),
        };
        if let Some(ticket) = carried.ticket {
            self.accept_ticket(stored.as_ref().ok().copied(), ticket);
        }
        let slot = stored?;
        self.set_vnet(slot, carried.vnet);
        if let Some(arrival) = carried.arrival {
            self.set_arrival(slot, arrival);
        }
        if let Some(path) = carried.path {
            self.set_path(slot, path);
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
        let path = StackPath {
            recv: Some(2),
            xmit: None,
        };
        for len in [60, HEAD_LEN, HEAD_LEN + 1, 65_000] {
            let frame: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let from = one.store(&frame).unwrap();
            let vnet = VnetHeader {
                gso_size: 1448,
                ..VnetHeader::default()
            };
            one.set_vnet(from, vnet);
            one.set_arrival(from, Time::from_ns(7));
            one.set_path(from, path);
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
            assert_eq!((other.account(to), other.path(to)), (None, Some(path)));
            other.free(to);
        }
        // The memory is that of the longest frame, whatever comes next.
        assert!(carried.capacity() >= 65_000);
        assert_eq!((one.available(), other.available()), (2, 2));
    }
    #[test]
    fn the_verdict_on_a_packet_in_the_kernel_moves_with_its_frame() {
        let size = PoolSize { slots: 1, large: 1 };
        let [mut one, mut other] = [(); 2].map(|()| Pool::new(size).unwrap());
        let (mut carried, watcher) = (Carried::default(), one.watcher());
        let ticket = Ticket {
            id: 7,
            queue: 3,
            ..Ticket::default()
        };
        for is_full in [false, true] {
            let from = one.allocate().unwrap();
            one.set_cut(from, &[0x45; 40], 1500);
            one.set_ticket(from, watcher, ticket);
            one.carry(from, &mut carried);
            one.free_settled(from);
            assert_eq!(one.next_abandoned(watcher), None);
            let taken = is_full.then(|| other.allocate().unwrap());
            let put = other.put(&carried);
            assert_eq!(put.is_err(), is_full);
            if let Ok(to) = put {
                assert!(other.is_cut(to));
                assert_eq!((other.frame_len(to), other.head(to).len()), (1500, 40));
                assert_eq!(other.ticket(to, watcher), Some(ticket));
                assert!(!other.has_abandoned());
                other.free(to);
            }
            // Freed, or never stored: the kernel gets a verdict of the other pool's port.
            assert!(other.has_abandoned());
            assert_eq!(other.next_abandoned(watcher), Some(ticket));
            assert_eq!(other.next_abandoned(watcher), None);
            taken.into_iter().for_each(|slot| other.free(slot));
        }
    }
}
