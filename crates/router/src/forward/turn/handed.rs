//! The part of the loop in which workers exchange packets.

use sluice_net::port::Port;

use super::{Forwarder, LostFrame};
use crate::forward::exchange::Errand;
use crate::forward::{Exchange, Observer, Queueing};

impl<P: Port, Q: Queueing, O: Observer> Forwarder<P, Q, O> {
    /// Makes this loop one of several workers. Its only lane hands packets over to the lanes of the
    /// others, and accepts theirs.
    pub fn join(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
    }

    /// Accepts the packets that other workers have handed over.
    pub(super) fn receive_handed(&mut self) {
        let (Some(exchange), [lane]) = (&mut self.exchange, &mut self.lanes[..]) else {
            return;
        };
        let now = self.clock.now();
        let (pool, has_shares) = (&mut self.pool, self.has_shares);
        let outboxes = &mut self.outboxes;
        let substitute = self.substitute.as_ref();
        exchange.receive(|errand, frame| {
            let Ok(slot) = pool.put(frame) else {
                lane.counts_mut().lose(LostFrame::NoSlot, 1);
                return;
            };
            let account = frame.account().filter(|_| has_shares);
            if account.is_some_and(|account| !pool.charge(slot, account)) {
                lane.counts_mut().lose(LostFrame::OverShare, 1);
                pool.free(slot);
                return;
            }
            let arrival = match &errand {
                Errand::Handed(handed) => handed.at,
                Errand::Arrived(_) => pool.arrival(slot).map_or(now, |stamp| stamp.min(now)),
            };
            // A worker that went on has handed it over while this one hung.
            if substitute.is_some_and(|substitute| substitute.has_forwarded(arrival)) {
                lane.counts_mut().lose(LostFrame::Bridged, 1);
                pool.free(slot);
                return;
            }
            match errand {
                Errand::Handed(handed) => lane.accept(handed, slot, now, pool),
                Errand::Arrived(port) => lane.admit(slot, port, arrival, pool, outboxes),
            }
        });
    }

    /// Hands packets over to other workers, and wakes these up.
    pub(super) fn hand_over(&mut self) {
        let (Some(exchange), [lane]) = (&mut self.exchange, &mut self.lanes[..]) else {
            return;
        };
        lane.hand_over(exchange, &mut self.pool);
        exchange.ring();
    }
}
