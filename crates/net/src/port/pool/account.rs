//! Shares of a pool. Each frame may be charged to an account, such as the port of its arrival.
//!
//! An account may hold at most [`SHARE`] times as many slots as are free. So one account gets up to
//! 16/17 of the memory, two that both want everything get 16/33 each, and something is always left
//! for an account that holds little. Switches share their packet memory in this way: Choudhury and
//! Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches" (IEEE/ACM
//! Transactions on Networking 6(2), 1998). Large slots are shared by the same rule.

use super::{NOBODY, NONE, Pool, PoolSize, Slot};

/// Slots that an account may hold for each free one.
const SHARE: usize = 16;

/// The slots held by each account.
#[derive(Default)]
pub(super) struct Accounts {
    slots: Vec<u32>,
    large: Vec<u32>,
    /// For each large slot, the account that it is charged to.
    of_large: Box<[u8]>,
}

impl Accounts {
    pub(super) fn new(large: u32) -> Accounts {
        Accounts {
            of_large: vec![NOBODY; large as usize].into(),
            ..Accounts::default()
        }
    }

    /// Ends the charge of a slot.
    pub(super) fn release(&mut self, account: u8) {
        if account != NOBODY {
            self.slots[usize::from(account)] -= 1;
        }
    }

    /// Ends the charge of a large slot.
    pub(super) fn release_large(&mut self, large: u32) {
        let account = std::mem::replace(&mut self.of_large[large as usize], NOBODY);
        if account != NOBODY {
            self.large[usize::from(account)] -= 1;
        }
    }

    fn make_room(&mut self, account: u8) {
        let accounts = usize::from(account) + 1;
        if self.slots.len() < accounts {
            self.slots.resize(accounts, 0);
            self.large.resize(accounts, 0);
        }
    }
}

impl Pool {
    /// Charges a frame to `account`, a number below 255, until it is freed. Returns false, and
    /// charges nothing, if the account already holds its share.
    pub fn charge(&mut self, slot: Slot, account: u8) -> bool {
        assert!(account != NOBODY, "accounts are numbered from 0 to 254");
        self.accounts.make_room(account);
        let (index, large) = (usize::from(account), self.frames[slot.index()].large);
        let is_over = |held: u32, free: usize| held as usize >= SHARE * (free + 1);
        if is_over(self.accounts.slots[index], self.free.len()) {
            return false;
        }
        if large != NONE && self.accounts.of_large[large as usize] == NOBODY {
            if is_over(self.accounts.large[index], self.free_large.len()) {
                return false;
            }
            self.accounts.of_large[large as usize] = account;
            self.accounts.large[index] += 1;
        }
        let before = std::mem::replace(&mut self.frames[slot.index()].account, account);
        self.accounts.release(before);
        self.accounts.slots[index] += 1;
        true
    }

    /// Returns the account that a frame is charged to, if it is.
    pub fn account(&self, slot: Slot) -> Option<u8> {
        let account = self.frames[slot.index()].account;
        (account != NOBODY).then_some(account)
    }

    /// Returns the size of the pool.
    pub fn size(&self) -> PoolSize {
        PoolSize {
            slots: self.frames.len() as u32,
            large: self.accounts.of_large.len() as u32,
        }
    }

    /// Returns the largest number of slots that one account gets.
    pub fn share(&self) -> u32 {
        let (slots, share) = (self.frames.len(), SHARE);
        (slots * share / (share + 1)) as u32
    }

    /// Returns the number of slots charged to `account`.
    pub fn charged(&self, account: u8) -> u32 {
        let charged = self.accounts.slots.get(usize::from(account));
        charged.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::frame::VnetHeader;

    fn pool(slots: u32, large: u32) -> Pool {
        Pool::new(PoolSize { slots, large }).unwrap()
    }

    /// Takes slots for `account` until it gets no more.
    fn fill(pool: &mut Pool, account: u8) -> Vec<Slot> {
        let mut held = Vec::new();
        while let Some(slot) = pool.allocate() {
            if !pool.charge(slot, account) {
                pool.free(slot);
                break;
            }
            held.push(slot);
        }
        held
    }

    #[test]
    fn one_account_leaves_a_part_and_several_share_the_rest() {
        let mut pool = pool(1700, 1);
        // 1600 = 16 * 100.
        let mut first = fill(&mut pool, 0);
        assert_eq!((first.len(), pool.charged(0)), (1600, 1600));
        // The rest is shared by the same rule: 94 < 16 * 6 is the last charge that is allowed.
        let second = fill(&mut pool, 1);
        assert_eq!(second.len(), 95);
        assert!(pool.allocate().is_some(), "something is always left");
        // An account that holds too much gives way as its frames leave.
        assert!(fill(&mut pool, 0).is_empty());
        first.drain(..600).for_each(|slot| pool.free(slot));
        assert_eq!(pool.charged(0), 1000);
        assert!(fill(&mut pool, 1).len() > 500);
    }

    #[test]
    fn a_charge_ends_with_its_frame_and_copies_are_not_charged() {
        let mut pool = pool(16, 1);
        let slot = pool.allocate().unwrap();
        pool.room_mut(slot)[..3].copy_from_slice(&[1, 2, 3]);
        pool.set_frame(slot, 3, VnetHeader::default());
        assert!(pool.charge(slot, 7));
        assert_eq!((pool.account(slot), pool.charged(7)), (Some(7), 1));
        let copy = pool.copy(slot).unwrap();
        assert_eq!((pool.account(copy), pool.charged(7)), (None, 1));
        // To another account.
        assert!(pool.charge(slot, 2));
        assert_eq!((pool.charged(7), pool.charged(2)), (0, 1));
        pool.free(slot);
        pool.free(copy);
        assert_eq!((pool.charged(7), pool.charged(2)), (0, 0));
        let again = pool.allocate().unwrap();
        assert_eq!(pool.account(again), None);
    }

    #[test]
    fn large_slots_are_shared_too() {
        let mut pool = pool(64, 17);
        let mut held = 0;
        let frame = vec![0; 3000];
        while let Ok(slot) = pool.store(&frame) {
            if !pool.charge(slot, 0) {
                pool.free(slot);
                break;
            }
            held += 1;
        }
        assert_eq!(held, 16, "16 of 17");
        let slot = pool.store(&frame).unwrap();
        assert!(pool.charge(slot, 1), "the last is left for another");
        pool.free(slot);
        assert_eq!(pool.available_large(), 1);
    }
}
