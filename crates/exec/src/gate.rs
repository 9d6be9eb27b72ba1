//! The port towards the far side. It holds each packet that opens a connection or flow until the
//! relay releases it.
//!
//! Without the gate, the far side's kernel would answer the first packet of every connection at
//! once, whether or not the host outside answers. So the gate hands three kinds of packets to the
//! relay: SYNs, datagrams of UDP flows that are not open yet, and echo requests. All other packets
//! pass without a copy.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender};

use crate::pulse::Pulse;
use sluice_net::port::{PacketPort, Pool, Port, Slot};
use sluice_wire::frame::{self, Link, Transport};

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

/// A change of the set of flows whose datagrams pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowChange {
    /// The far side is ready for the flow.
    Open(Ends),
    /// The next datagram is held again.
    Close(Ends),
}

/// The port.
pub struct Gate {
    port: PacketPort,
    held: Sender<Held>,
    /// Wakes the relay up.
    relay: Pulse,
    changes: Receiver<FlowChange>,
    open: BTreeSet<Ends>,
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
            open: BTreeSet::new(),
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
                    match change {
                        FlowChange::Open(ends) => self.open.insert(ends),
                        FlowChange::Close(ends) => self.open.remove(&ends),
                    };
                }
                let ends = ends(source, destination);
                (!self.open.contains(&ends)).then_some((Opening::Datagram, ends))
            }
            Transport::Icmp { kind, id, .. } if kind == echo_request(source) => {
                Some((Opening::Echo, ends(id.unwrap_or(0), 0)))
            }
            _ => None,
        }
    }

    fn hold(&mut self, kind: Opening, ends: Ends, slot: Slot, pool: &mut Pool) {
        pool.complete_checksum(slot);
        let frame = [pool.head(slot), pool.tail(slot)].concat();
        pool.free(slot);
        // The relay exists until everything ends.
        let _ = self.held.send(Held { kind, ends, frame });
        self.relay.ring();
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
