//! The queues of a live run with rules: the rule engine between both ports.

use sluice_core::record::PacketRecord;
use sluice_core::record::rows::{Numbers, Witness};
use sluice_core::{Backlog, Cx, Packet, Rate, Time};
use sluice_ipfw::watch::Watching;
use sluice_ipfw::{Headers, InterfaceId};
use sluice_router::forward::{Departure, Origin, PortNumber, Queueing};
use sluice_router::process::Ruled;
use sluice_router::process::watch::links::WatchedRules;
use sluice_wire::frame::View;

use super::chain::{Recorded, Sample};
use crate::packet_rows::RuleRows;
use sluice_scenario::{Direction, PipeId, Rules};

/// The rule engine, and the records of its queues.
pub(super) struct Bridge {
    ruled: Ruled,
    rows: RuleRows,
    numbers: Numbers,
    /// The packets that have arrived.
    arrived: u64,
}

impl Bridge {
    /// The engine between port 0, towards h2, and port 1, towards h3.
    pub(super) fn new(rules: &Rules, seed: u64, split_below: Rate) -> Bridge {
        let firewall = rules.firewall(seed);
        let firewall = firewall.expect("the rules were executed when the scenario was read");
        Bridge {
            ruled: Ruled::new(firewall, vec![1, 0], split_below),
            rows: RuleRows::default(),
            numbers: Numbers::default(),
            arrived: 0,
        }
    }

    /// Calls `work` with the engine, and records the events of its queues.
    fn with<T>(&mut self, cx: &mut Cx<'_>, work: impl FnOnce(&mut Ruled, &mut Cx<'_>) -> T) -> T {
        let now = cx.now;
        let (rng, sink) = cx.parts();
        let mut witness = Witness {
            rows: &mut self.rows,
            numbers: &mut self.numbers,
            sink,
        };
        work(&mut self.ruled, &mut Cx::new(now, rng, &mut witness))
    }
}

impl Queueing for Bridge {
    type Key = Headers;

    fn key(&self, from: Origin, view: &View, head: &[u8]) -> Headers {
        self.ruled.key(from, view, head)
    }

    fn splits(&mut self, from: PortNumber, key: &Headers, at: Time) -> bool {
        self.ruled.splits(from, key, at)
    }

    fn admit(&mut self, packet: Packet, key: &Headers, cx: &mut Cx<'_>) {
        let direction = match key.recv {
            Some(InterfaceId(0)) => Direction::Up,
            _ => Direction::Down,
        };
        self.numbers.set(packet.slot, self.arrived);
        self.arrived += 1;
        self.rows.arrive(&packet, packet.flow, direction);
        self.with(cx, |ruled, cx| ruled.admit(packet, key, cx));
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.with(cx, Ruled::poll)
    }

    fn next_wake(&self) -> Option<Time> {
        self.ruled.next_wake()
    }

    fn bypass(&self, from: PortNumber) -> Option<PortNumber> {
        self.ruled.bypass(from)
    }
}

impl WatchedRules for Bridge {
    fn watch(&mut self, watching: &mut Watching, cx: &mut Cx<'_>) -> bool {
        self.with(cx, |ruled, cx| ruled.firewall_mut().watch(watching, cx))
    }
}

impl Recorded for Bridge {
    /// The contents of the queues are not sampled, because rules create and delete queues.
    fn held(&self) -> Backlog {
        Backlog::default()
    }

    fn sample(&mut self) -> Vec<Sample> {
        [Direction::Up, Direction::Down]
            .map(|direction| Sample {
                pipe: direction.into(),
                queue: None,
                rows: self.rows.rows_mut(direction).take_settled().collect(),
            })
            .into()
    }

    fn into_rows(mut self) -> Vec<(PipeId, Vec<PacketRecord>)> {
        let mut rows = |direction| {
            let rows = std::mem::take(self.rows.rows_mut(direction));
            (direction.into(), rows.into_rows().collect())
        };
        vec![rows(Direction::Up), rows(Direction::Down)]
    }
}
