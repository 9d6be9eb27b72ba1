//! `prio`: strict priority. The active class with the lowest weight is always served.
//!
//! Classes of equal priority take turns packet by packet. While more urgent classes are idle, a
//! class waits only for the packet that is on the link when the class becomes active. Less urgent
//! classes may starve, as strict priority implies. Costs O(1): one bit per priority.
//!
//! Source: dummynet's undocumented PRIO scheduler (`dn_sched_prio`), which takes the priority from
//! `weight`, 0 first. Differences:
//! 1. In dummynet all queues of a priority share the first one's packets and limits; here each
//!    keeps its own.
//! 2. dummynet accepts 0 to 63 and uses the first 32 only; here all 64 work.
//! 3. A class that a packet opened has its own number as priority (64 and above: 63), so that
//!    `prio` orders classes 0, 1, 2 ... without configuration.

use alloc::vec::Vec;

use super::allocated;
use super::classful::{Classed, ClassedParams, Order, Share, ShareDecl, ShareError, ShareRange};
use super::fifo::FifoParams;
use super::ring::{Links, Ring};

/// The scheduler.
pub type Prio = Classed<PrioOrder>;

/// The most urgent of the active classes.
pub struct PrioOrder {
    /// Priority of each class.
    priority: Vec<u8>,
    is_active: Vec<bool>,
    links: Links,
    rings: [Ring; PRIORITIES as usize],
    /// The rings that have members; the most urgent is the lowest bit.
    occupied: u64,
}

const PRIORITIES: u32 = 64;

impl Order for PrioOrder {
    type Params = ClassedParams;
    const DOC: &'static str = "strict priority: the class with the lowest weight first";
    const SHARE: ShareDecl = ShareDecl {
        weight: ShareRange::new(0, PRIORITIES - 1),
        max_len: None,
    };

    fn new(_params: &ClassedParams) -> Self {
        PrioOrder {
            priority: Vec::new(),
            is_active: Vec::new(),
            links: Links::default(),
            rings: [Ring::EMPTY; PRIORITIES as usize],
            occupied: 0,
        }
    }

    fn memory(&self) -> usize {
        allocated(&self.priority) + allocated(&self.is_active) + self.links.memory()
    }

    fn limits(params: &ClassedParams) -> FifoParams {
        params.limits()
    }

    fn default_share(&self, class: u32) -> Share {
        Share {
            weight: class.min(PRIORITIES - 1),
            ..Share::default()
        }
    }

    fn open(&mut self, id: u32, share: Share) -> Result<(), ShareError> {
        if self.priority.len() <= id as usize {
            self.priority.resize(id as usize + 1, 0);
            self.is_active.resize(id as usize + 1, false);
        }
        self.links.reserve(id);
        self.priority[id as usize] = share.weight as u8;
        Ok(())
    }

    fn set_share(&mut self, id: u32, share: Share, head: Option<u32>) -> Result<(), ShareError> {
        self.deactivate(id);
        self.priority[id as usize] = share.weight as u8;
        if let Some(head) = head {
            self.activate(id, head);
        }
        Ok(())
    }

    fn close(&mut self, id: u32) {
        self.deactivate(id);
    }

    fn activate(&mut self, id: u32, _head: u32) {
        let priority = self.priority[id as usize];
        self.links
            .push_back(&mut self.rings[usize::from(priority)], id);
        self.occupied |= 1 << priority;
        self.is_active[id as usize] = true;
    }

    fn next(&mut self) -> Option<u32> {
        let priority = self.occupied.trailing_zeros();
        self.rings.get(priority as usize)?.first()
    }

    fn served(&mut self, id: u32, _len: u32, head: Option<u32>) {
        match head {
            Some(_) => {
                let priority = self.priority[id as usize];
                self.links.rotate(&mut self.rings[usize::from(priority)]);
            }
            None => self.deactivate(id),
        }
    }

    fn head_dropped(&mut self, id: u32, head: Option<u32>) {
        if head.is_none() {
            self.deactivate(id);
        }
    }
}

impl PrioOrder {
    fn deactivate(&mut self, id: u32) {
        if !core::mem::replace(&mut self.is_active[id as usize], false) {
            return;
        }
        let priority = self.priority[id as usize];
        let ring = &mut self.rings[usize::from(priority)];
        self.links.remove(ring, id);
        if ring.is_empty() {
            self.occupied &= !(1 << priority);
        }
    }
}
