//! One tin of CAKE: flow queues that take turns, fair between flows and between hosts.

use alloc::sync::Arc;

use super::flows::{Flow, Flows, Turn, WAYS};
use super::hosts::{Hosts, Side};
use crate::aqm::cobalt::{Cobalt, CobaltParams};
use crate::aqm::{Aqm, AqmAlgorithm};
use crate::event::{Backlog, Cx};
use crate::packet::Packet;
use crate::sched::ring::{Links, Ring};
use crate::units::{Rate, Span, Time};

/// Queues of a tin.
pub(super) const QUEUES: u32 = 1024;
/// Fraction bits of deficits: a quantum is divided by the number of a host's flows.
pub(super) const FRACTION: u32 = 16;

/// How flows are distinguished, and the hosts between which the link is shared first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Isolation {
    /// The hash that identifies a packet's flow.
    pub(super) flow: fn(&Packet) -> u32,
    /// Whether flows of one source host share a turn.
    pub(super) by_source: bool,
    /// Whether flows to one destination host share a turn.
    pub(super) by_destination: bool,
}

/// A tin.
pub(super) struct Tin {
    /// The rate up to which the tin has priority.
    pub(super) threshold: Rate,
    /// The instant at which the tin has used up its threshold.
    pub(super) ready_at: Time,
    /// Bytes per turn of the tin when there is no rate to divide.
    pub(super) quantum: i64,
    pub(super) deficit: i64,
    pub(super) backlog: Backlog,
    /// Bytes per turn of a flow.
    flow_quantum: i64,
    isolation: Isolation,
    pub(super) flows: Flows,
    links: Links,
    /// Flows that have not used up their first turn.
    new: Ring,
    /// Flows that take turns.
    old: Ring,
    hosts: Hosts,
    /// Flows in either list, including empty ones.
    pub(super) active: u32,
    /// Flows that take turns and had packets when their turn came.
    pub(super) bulk: u32,
    aqm: Arc<CobaltParams>,
}

impl Tin {
    /// Creates an empty tin whose flows may use `threshold` of the link with priority.
    pub(super) fn new(
        threshold: Rate,
        quantum: i64,
        isolation: Isolation,
        aqm: CobaltParams,
    ) -> Self {
        Tin {
            threshold,
            ready_at: Time::ZERO,
            quantum,
            deficit: 0,
            backlog: Backlog::default(),
            flow_quantum: flow_quantum(threshold),
            isolation,
            flows: Flows::default(),
            links: Links::default(),
            new: Ring::EMPTY,
            old: Ring::EMPTY,
            hosts: Hosts::default(),
            active: 0,
            bulk: 0,
            aqm: Arc::new(aqm),
        }
    }

    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        self.flows.memory() + self.links.memory() + self.hosts.memory()
    }

    /// Returns the queue of a packet. A flow keeps its queue while it is active; a queue that is
    /// taken over starts with a fresh AQM.
    pub(super) fn classify(&mut self, packet: &Packet) -> u32 {
        if self.flows.is_empty() {
            self.allocate();
        }
        let tag = (self.isolation.flow)(packet);
        let direct = tag % QUEUES;
        self.flows.ensure(direct, &self.aqm);
        let flow = &self.flows[direct as usize];
        if flow.tag == tag && flow.turn != Turn::Off {
            return direct;
        }
        let ways = (0..WAYS).map(|i| (direct & !(WAYS - 1)) | ((direct + i) & (WAYS - 1)));
        let of_flow = ways.clone().find(|i| self.flows[*i as usize].tag == tag);
        let is_free = |i: &u32| self.flows[*i as usize].turn == Turn::Off;
        // If all queues are in use, two flows share the one that the hash named first.
        let id = of_flow
            .or_else(|| ways.clone().find(is_free))
            .unwrap_or(direct);
        let flow = &mut self.flows[id as usize];
        let was_off = flow.turn == Turn::Off;
        if was_off || flow.tag != tag {
            if was_off && flow.tag != tag {
                flow.aqm = Cobalt::for_flow(&self.aqm);
            }
            flow.tag = tag;
            self.assign_hosts(id, packet);
        }
        id
    }

    /// Records that flow `id` received a packet.
    pub(super) fn arrived(&mut self, id: u32, cx: &mut Cx<'_>) {
        match self.flows[id as usize].turn {
            Turn::Off => {
                self.links.push_back(&mut self.new, id);
                self.active += 1;
                let deficit = self.quantum_of(id);
                let flow = &mut self.flows[id as usize];
                flow.turn = Turn::Sparse;
                flow.deficit = deficit;
                flow.aqm.on_activate(cx);
            }
            Turn::SparseWait => {
                self.flows[id as usize].turn = Turn::Bulk;
                self.count_bulk(id, true);
            }
            Turn::Sparse | Turn::Bulk => {}
        }
    }

    /// Returns the first flow of the lists.
    pub(super) fn first(&self) -> Option<u32> {
        self.new.first().or(self.old.first())
    }

    /// Returns the flow whose turn it is, which may turn out to be empty (DRR++: M. MacGregor and
    /// W. Shi, "Deficits for Bursty Latency-Critical Flows", ICON 2000).
    pub(super) fn next(&mut self) -> Option<u32> {
        loop {
            let id = self.first()?;
            let flow = &mut self.flows[id as usize];
            if flow.deficit > 0 {
                return Some(id);
            }
            if flow.turn == Turn::Sparse {
                let is_empty = flow.chain.is_empty();
                flow.turn = if is_empty {
                    Turn::SparseWait
                } else {
                    Turn::Bulk
                };
                self.links.remove(&mut self.new, id);
                self.links.push_back(&mut self.old, id);
                if !is_empty {
                    self.count_bulk(id, true);
                }
            } else {
                self.links.rotate(&mut self.old);
            }
            let quantum = self.quantum_of(id);
            self.flows[id as usize].deficit += quantum;
        }
    }

    /// Removes flow `id`, whose turn it was and which is empty, from its list.
    pub(super) fn retire(&mut self, id: u32, cx: &mut Cx<'_>) {
        let turn = core::mem::replace(&mut self.flows[id as usize].turn, Turn::Off);
        match turn {
            Turn::Sparse => self.links.remove(&mut self.new, id),
            Turn::SparseWait => self.links.remove(&mut self.old, id),
            Turn::Bulk => {
                self.links.remove(&mut self.old, id);
                self.count_bulk(id, false);
            }
            Turn::Off => unreachable!("a flow whose turn it is is on a list"),
        }
        self.active -= 1;
        let aqm = &mut self.flows[id as usize].aqm;
        aqm.on_empty(cx);
        aqm.on_deactivate(cx);
    }

    /// Iterates over the active flows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let flows = self.flows.iter();
        flows.filter(|(_, flow)| flow.turn != Turn::Off)
    }

    /// Charges the tin for `bytes` at the rate of its threshold.
    pub(super) fn charge(&mut self, bytes: u64, now: Time) {
        let busy: Span = self.threshold.transmission(bytes);
        // A tin that kept below its threshold saves up; one that exceeded it owes one packet.
        self.ready_at = if self.ready_at < now {
            self.ready_at.saturating_add(busy)
        } else {
            self.ready_at.max(now.saturating_add(busy))
        };
        self.deficit -= bytes as i64;
    }

    /// Returns a flow's quantum, divided by the number of bulk flows of its busier host.
    fn quantum_of(&self, id: u32) -> i64 {
        let hosts = self.flows[id as usize].hosts;
        let load = |isolates: bool, side: Side| match isolates {
            true => self.hosts.bulk_flows(side, hosts[side as usize]),
            false => 0,
        };
        let by_source = load(self.isolation.by_source, Side::Source);
        let by_destination = load(self.isolation.by_destination, Side::Destination);
        let load = by_source.max(by_destination).max(1);
        let quantum = self.flow_quantum << FRACTION;
        match load {
            1 => quantum,
            load => quantum / i64::from(load),
        }
    }

    /// Adds a flow to the bulk flows of its hosts, or removes it from them.
    fn count_bulk(&mut self, id: u32, is_bulk: bool) {
        if is_bulk {
            self.bulk += 1;
        } else {
            self.bulk -= 1;
        }
        let hosts = self.flows[id as usize].hosts;
        for (side, isolates) in [
            (Side::Source, self.isolation.by_source),
            (Side::Destination, self.isolation.by_destination),
        ] {
            if isolates {
                self.hosts.count(side, hosts[side as usize], is_bulk);
            }
        }
    }

    /// Sets the hosts of the flow to those of the packet.
    fn assign_hosts(&mut self, id: u32, packet: &Packet) {
        let is_bulk = self.flows[id as usize].turn == Turn::Bulk;
        if is_bulk {
            self.count_bulk(id, false);
        }
        if self.isolation.by_source {
            let host = self.hosts.find(Side::Source, packet.src);
            self.flows[id as usize].hosts[Side::Source as usize] = host;
        }
        if self.isolation.by_destination {
            let host = self.hosts.find(Side::Destination, packet.dst);
            self.flows[id as usize].hosts[Side::Destination as usize] = host;
        }
        if is_bulk {
            self.count_bulk(id, true);
        }
    }

    /// A tin without traffic takes no memory.
    #[cold]
    fn allocate(&mut self) {
        self.flows.allocate();
        self.links.reserve(QUEUES - 1);
        self.hosts.allocate();
    }
}

#[cfg(test)]
impl Tin {
    /// Returns the bulk flows, counted by each of their hosts.
    pub(super) fn bulk_flows(&self) -> [usize; 2] {
        let bulk = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.turn == Turn::Bulk);
        [bulk.count(); 2]
    }

    /// Returns the bulk flows that hosts have been charged with.
    pub(super) fn counted_bulk_flows(&self) -> [usize; 2] {
        self.hosts.counted()
    }
}

/// Returns the bytes per turn: a 4096th of a second of the tin's rate, 300 to 1514.
fn flow_quantum(rate: Rate) -> i64 {
    if rate.is_unlimited() {
        return 1514;
    }
    (rate.as_bps() / 8 / 4096).clamp(300, 1514) as i64
}
