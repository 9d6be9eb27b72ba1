//! The links of the network: their current state, and changes to them.

use sluice_core::Backlog;
use sluice_scenario::{Direction, Link, Pipe};

use super::directed::DirectedLink;
use super::{Counts, Engine, Side};

impl Engine {
    /// Changes the links. Their number stays the same.
    pub fn set_links(&mut self, links: &[Link]) {
        let clock = self.clock;
        for (to, direction) in [(Side::Far, Direction::Up), (Side::Near, Direction::Down)] {
            for (hop, link) in links.iter().enumerate() {
                let place = match to {
                    Side::Far => hop,
                    Side::Near => links.len() - 1 - hop,
                };
                let pipe = link.pipe(direction);
                self.with_way(to, place, |way, sink| way.set(pipe, clock, sink));
            }
        }
    }

    /// Returns a direction of the link next to the program.
    fn link(&self, to: Side) -> &DirectedLink {
        let ways = &self.ways[to.index()];
        match to {
            Side::Near => ways.last(),
            Side::Far => ways.first(),
        }
        .expect("there is a link")
    }

    /// Cuts or restores a direction of the link next to the program. A direction that is cut loses
    /// all packets.
    pub fn set_cut(&mut self, to: Side, is_cut: bool) {
        let ways = &mut self.ways[to.index()];
        let link = match to {
            Side::Near => ways.last_mut(),
            Side::Far => ways.first_mut(),
        };
        link.expect("there is a link").is_cut = is_cut;
    }

    /// Returns whether a direction is cut.
    pub fn is_cut(&self, to: Side) -> bool {
        self.link(to).is_cut
    }

    /// Returns the current state of a direction of the link next to the program.
    pub fn pipe(&self, to: Side) -> &Pipe {
        self.link(to).pipe()
    }

    /// Returns the backlog of a direction.
    pub fn backlog(&self, to: Side) -> Backlog {
        self.link(to).backlog()
    }

    /// Returns the counters of the direction to `to`.
    pub fn counts(&self, to: Side) -> Counts {
        Counts {
            dropped: self.parcels.dropped[to.index()],
            ..self.counts[to.index()]
        }
    }
}
