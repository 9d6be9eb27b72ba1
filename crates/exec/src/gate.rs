//! The port towards the far side. It holds each packet that opens a connection or flow until the
//! relay releases it.
//!
//! Without the gate, the far side's kernel would answer the first packet of every connection at
//! once, whether or not the host outside answers. So the gate hands three kinds of packets to the
//! relay: SYNs, datagrams of UDP flows that are not open yet, and echo requests. All other packets
//! pass without a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender};

use crate::pulse::Pulse;
use sluice_net::port::{PacketPort, Pool, Port, Slot};
use sluice_wire::frame::{self, Checksums, Gather, Link, SuperPacket, Transport};

/// The two ends of a packet's connection or flow, as the program sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The program's end.
    pub program: SocketAddr,
    /// The outside end.
    pub outside: SocketAddr,
}

/// A packet that waits for the relay.
#[derive(Debug)]
pub struct Held {
    /// The kind of exchange that it opens.
    pub kind: Opening,
    /// The ends of the flow. For an echo request, the program's port is its identifier.
    pub ends: Ends,
    /// The whole frame, with complete checksums.
    pub frame: Vec<u8>,
}

/// The kind of exchange that a held packet opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A TCP connection.
    Connection,
    /// A UDP flow, or a later datagram of one that is being opened.
    Datagram,
    /// An exchange of echo messages.
    Echo,
}

/// What the relay has done with the datagrams of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowChange {
    /// One that was held has been released. The far side is ready for the flow.
    Released(Ends),
    /// One that was held has been refused.
    Refused(Ends),
    /// The flow is closed: the next one is held again.
    Closed(Ends),
}

/// The flows whose datagrams pass. No datagram overtakes one that is still held.
#[derive(Debug, Default)]
struct Admitted {
    open: BTreeSet<Ends>,
    /// How many datagrams of a flow are held.
    waiting: BTreeMap<Ends, u64>,
}

/// The port.
pub struct Gate {
    port: PacketPort,
    held: Sender<Held>,
    /// Wakes the relay up.
    relay: Pulse,
    changes: Receiver<FlowChange>,
    admitted: Admitted,
}

impl Gate {
    /// Puts a gate in front of `port`.
    pub fn new(
        port: PacketPort,
        held: Sender<Held>,
        relay: Pulse,
        changes: Receiver<FlowChange>,
    ) -> Gate {
        Gate {
            port,
            held,
            relay,
            changes,
            admitted: Admitted::default(),
        }
    }

    /// Returns the exchange that a frame opens, if the frame must wait.
    fn opening(&mut self, head: &[u8], len: usize) -> Option<(Opening, Ends)> {
        let view = frame::parse_head(head, len, Link::Ethernet);
        let (source, destination) = view.addresses.pair()?;
        let ends = |from, to| Ends {
            program: SocketAddr::new(source, from),
            outside: SocketAddr::new(destination, to),
        };
        match view.transport {
            Transport::Tcp {
                source,
                destination,
                flags,
                ..
            } if flags & (SYN | ACK) == SYN => {
                Some((Opening::Connection, ends(source, destination)))
            }
            Transport::Udp {
                source,
                destination,
            } => {
                for change in self.changes.try_iter() {
                    self.admitted.apply(change);
                }
                let ends = ends(source, destination);
                (!self.admitted.passes(ends)).then_some((Opening::Datagram, ends))
            }
            Transport::Icmp { kind, id, .. } if kind == echo_request(source) => {
                Some((Opening::Echo, ends(id.unwrap_or(0), 0)))
            }
            _ => None,
        }
    }

    fn hold(&mut self, kind: Opening, ends: Ends, slot: Slot, pool: &mut Pool) {
        let segments = segments(slot, pool);
        let frames = segments.unwrap_or_else(|| {
            pool.complete_checksum(slot);
            vec![[pool.head(slot), pool.tail(slot)].concat()]
        });
        pool.free(slot);
        for frame in frames {
            if kind == Opening::Datagram {
                self.admitted.hold(ends);
            }
            // The relay exists until everything ends.
            let _ = self.held.send(Held { kind, ends, frame });
        }
        self.relay.ring();
    }
}

/// Returns the segments of a super-packet as frames, with complete checksums: what the relay releases
/// must fit the interface. `None` if the packet is not a super-packet.
fn segments(slot: Slot, pool: &Pool) -> Option<Vec<Vec<u8>>> {
    let (head, tail) = (pool.head(slot), pool.tail(slot));
    let view = frame::parse_head(head, pool.frame_len(slot), Link::Ethernet);
    let whole = SuperPacket::new(&view, &pool.vnet(slot)).ok()?;
    let segment = |index| {
        let mut room = vec![0; whole.segment_len(index) as usize];
        let frame = Gather { head, tail };
        whole.write_segment(index, frame, Checksums::Complete, &mut room)?;
        Some(room)
    };
    (0..whole.segments()).map(segment).collect()
}

impl Admitted {
    fn apply(&mut self, change: FlowChange) {
        match change {
            FlowChange::Released(ends) => {
                if self.is_last(ends) {
                    self.open.insert(ends);
                }
            }
            FlowChange::Refused(ends) => {
                self.is_last(ends);
            }
            FlowChange::Closed(ends) => {
                self.open.remove(&ends);
            }
        }
    }

    /// Removes one datagram of those that are held. Returns whether it was the last.
    fn is_last(&mut self, ends: Ends) -> bool {
        let Some(waiting) = self.waiting.get_mut(&ends) else {
            return false;
        };
        *waiting -= 1;
        let is_last = *waiting == 0;
        if is_last {
            self.waiting.remove(&ends);
        }
        is_last
    }

    /// Counts a datagram that is held.
    fn hold(&mut self, ends: Ends) {
        *self.waiting.entry(ends).or_default() += 1;
    }

    /// Returns whether the datagrams of a flow pass.
    fn passes(&self, ends: Ends) -> bool {
        self.open.contains(&ends)
    }
}

/// The type of an echo request in the version of an address (RFC 792, RFC 4443 section 4.1).
pub const fn echo_request(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 8,
        IpAddr::V6(_) => 128,
    }
}

impl Port for Gate {
    crate::around::leave_to!(port);

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        self.port.receive(pool, into)
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        let mut done = 0;
        for (index, slot) in slots.iter().enumerate() {
            let opening = self.opening(pool.head(*slot), pool.frame_len(*slot));
            let Some((kind, ends)) = opening else {
                continue;
            };
            done += self.port.transmit(pool, &slots[done..index]);
            if done < index {
                return done;
            }
            self.hold(kind, ends, *slot, pool);
            done += 1;
        }
        done + self.port.transmit(pool, &slots[done..])
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

/// Flags of TCP (RFC 9293 section 3.1).
const SYN: u8 = 2;
const ACK: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        Ends {
            program: SocketAddr::from(([10, 0, 0, 1], port)),
            outside: SocketAddr::from(([192, 0, 2, 1], 443)),
        }
    }

    #[test]
    fn a_flow_is_open_when_no_datagram_of_it_is_held() {
        let mut admitted = Admitted::default();
        let flow = ends(1);
        admitted.hold(flow);
        admitted.hold(flow);
        admitted.apply(FlowChange::Released(flow));
        // The second one is still held: a third must not overtake it.
        assert!(!admitted.passes(flow));
        admitted.hold(flow);
        admitted.apply(FlowChange::Released(flow));
        assert!(!admitted.passes(flow));
        admitted.apply(FlowChange::Released(flow));
        assert!(admitted.passes(flow));
        assert!(!admitted.passes(ends(2)));
        admitted.apply(FlowChange::Closed(flow));
        assert!(!admitted.passes(flow));
        admitted.hold(flow);
        admitted.apply(FlowChange::Released(flow));
        assert!(admitted.passes(flow));
    }

    #[test]
    fn a_datagram_that_was_refused_is_no_longer_held() {
        let mut admitted = Admitted::default();
        let flow = ends(1);
        admitted.hold(flow);
        admitted.hold(flow);
        admitted.apply(FlowChange::Refused(flow));
        admitted.apply(FlowChange::Refused(flow));
        assert!(admitted.waiting.is_empty());
        // A refusal does not open the flow.
        assert!(!admitted.passes(flow));
        admitted.hold(flow);
        admitted.apply(FlowChange::Released(flow));
        assert!(admitted.passes(flow));
    }
}
