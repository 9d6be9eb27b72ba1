//! The number of bulk flows of each host, in a set-associative table.

use alloc::vec::Vec;

use super::tin::QUEUES;
use crate::sched::allocated;

const WAYS: u32 = 8;

/// The end of a flow at which a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source = 0,
    Destination = 1,
}

/// Source and destination hosts, in one table each.
#[derive(Default)]
pub(super) struct Hosts([Vec<Host>; 2]);

#[derive(Clone, Copy, Default)]
struct Host {
    tag: u32,
    bulk_flows: u16,
}

impl Hosts {
    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        self.0.iter().map(allocated).sum()
    }

    pub(super) fn allocate(&mut self) {
        for side in &mut self.0 {
            side.resize(QUEUES as usize, Host::default());
        }
    }

    /// Returns the place of the host with hash `tag`: its own place, else one without bulk flows,
    /// else the place that the hash names, which it then shares.
    pub(super) fn find(&mut self, side: Side, tag: u32) -> u16 {
        let hosts = &mut self.0[side as usize];
        let direct = tag % QUEUES;
        let ways = (0..WAYS).map(|i| (direct & !(WAYS - 1)) | ((direct + i) & (WAYS - 1)));
        let known = ways.clone().find(|i| hosts[*i as usize].tag == tag);
        let is_free = |i: &u32| hosts[*i as usize].bulk_flows == 0;
        let place = known
            .or_else(|| ways.clone().find(is_free))
            .unwrap_or(direct);
        hosts[place as usize].tag = tag;
        place as u16
    }

    pub(super) fn bulk_flows(&self, side: Side, host: u16) -> u16 {
        self.0[side as usize][usize::from(host)].bulk_flows
    }

    pub(super) fn count(&mut self, side: Side, host: u16, is_bulk: bool) {
        let flows = &mut self.0[side as usize][usize::from(host)].bulk_flows;
        if is_bulk {
            *flows += 1;
        } else {
            *flows -= 1;
        }
    }
}

#[cfg(test)]
impl Hosts {
    /// Returns the bulk flows of all hosts of each side.
    pub(super) fn counted(&self) -> [usize; 2] {
        [0, 1].map(|side: usize| {
            let flows = self.0[side].iter().map(|host| usize::from(host.bulk_flows));
            flows.sum()
        })
    }
}
