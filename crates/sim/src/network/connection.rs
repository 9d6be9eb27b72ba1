//! TCP connections: two endpoints, the packets that they exchange, and their timers.

use super::{Network, kind};
use crate::ids::Side;
use crate::observe::{FlowTotals, Observer, TcpSample};
use crate::packets::{Expected, Tag};
use sluice_core::{Ecn, Time, prefetch};
use sluice_tcp::{Endpoint, Segment, State};

/// The index of a connection in [`Network::connections`]. Indices are reused.
pub(crate) type ConnectionId = u32;

/// A connection: its two ends.
#[repr(C)]
pub(crate) struct Connection {
    client: End,
    server: End,
    /// The end whose data the flow measures.
    sender: Side,
    pub flow: u32,
    pub is_open: bool,
}

/// One end. It holds everything that a segment needs, the most frequently used fields first. The
/// other fields of the connection are needed only when it starts and ends.
#[repr(C, align(64))]
pub(crate) struct End {
    /// The instant of the scheduled timer event; [`Time::MAX`] for none. TCP moves its timers with
    /// every ACK. No event is ever cancelled: one that fires too early is scheduled again.
    timer_at: Time,
    /// Packets sent, received and received with a mark.
    sent: u64,
    received: u64,
    marked: u64,
    flow: u32,
    path: u32,
    hash: u32,
    /// Counts the connections that have had this index.
    generation: u16,
    /// Number of the connection within its flow.
    serial: u16,
    is_open: bool,
    /// Whether the application has closed its direction.
    has_closed: bool,
    /// Whether the application is called after each segment.
    pub is_watching: bool,
    pub tcp: Endpoint,
}

impl End {
    /// Whether the application has closed its direction.
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Closes the direction of the application, after everything written.
    pub fn close(&mut self) {
        self.has_closed = true;
        self.tcp.close();
    }

    /// Aborts the connection. Segments in flight still arrive.
    pub fn abort(&mut self) {
        self.has_closed = true;
        self.tcp.abort();
    }
}

impl Connection {
    /// Prefetches the cache lines of this struct that the next event of one of the ends will need.
    pub fn prefetch(&self, what: Expected) {
        let end = self.expected(what);
        prefetch::line(end);
        end.tcp.prefetch(what.next);
    }

    /// Prefetches the cache lines elsewhere that the event will need. Returns the path and the hash
    /// of the packets that it may send.
    pub fn prefetch_elsewhere(&self, what: Expected) -> (u32, u32) {
        let end = self.expected(what);
        end.tcp.prefetch_elsewhere(what.next);
        (end.path, end.hash)
    }

    /// Prefetches the cache lines to which those point.
    pub fn prefetch_last(&self, what: Expected) {
        self.expected(what).tcp.prefetch_last(what.next);
    }

    fn expected(&self, what: Expected) -> &End {
        if what.to_server {
            &self.server
        } else {
            &self.client
        }
    }

    pub fn end(&mut self, side: Side) -> &mut End {
        self.end_at(side == Side::Server)
    }

    /// Whether the application at one end has closed its direction.
    pub fn has_closed(&self, side: Side) -> bool {
        match side {
            Side::Client => self.client.has_closed,
            Side::Server => self.server.has_closed,
        }
    }

    fn end_at(&mut self, is_server: bool) -> &mut End {
        if is_server {
            &mut self.server
        } else {
            &mut self.client
        }
    }

    /// Returns the data sender and the data receiver.
    fn roles(&self) -> (&Endpoint, &Endpoint) {
        match self.sender {
            Side::Client => (&self.client.tcp, &self.server.tcp),
            Side::Server => (&self.server.tcp, &self.client.tcp),
        }
    }

    pub fn add_to(&self, totals: &mut FlowTotals) {
        let (sender, receiver) = self.roles();
        for end in [&self.client, &self.server] {
            totals.packets_sent += end.sent;
            totals.packets_received += end.received;
            totals.packets_marked += end.marked;
        }
        totals.bytes_received += receiver.received();
        totals.retransmits += sender.counters().retransmits;
    }

    /// Returns the state of a connection whose flow has sent `retransmits` segments again.
    pub fn sample(&self, now: Time, retransmits: u64) -> TcpSample {
        let (sender, receiver) = self.roles();
        TcpSample {
            time: now,
            sender: sender.snapshot(),
            counters: sender.counters(),
            received: receiver.received(),
            retransmits,
        }
    }
}

impl Network {
    pub fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        &mut self.connections[id as usize]
    }

    /// Opens a connection; see [`crate::traffic::Host::connect`].
    pub fn connect(
        &mut self,
        flow: u32,
        config: &sluice_tcp::Config,
        sender: Side,
        is_watching: [bool; 2],
    ) -> ConnectionId {
        let state = &mut self.flows[flow as usize];
        state.connects += 1;
        let serial = state.connects;
        let mut config = config.clone();
        config.seed ^= state.rng.next_u64();
        let place = self.free_connections.pop();
        let generation = place.map_or(0, |id| {
            let old = &self.connections[id as usize].client;
            old.generation.wrapping_add(1)
        });
        let end = |network: &Network, tcp, is_server: bool| End {
            timer_at: Time::MAX,
            sent: 0,
            received: 0,
            marked: 0,
            flow,
            path: network.path_of[flow as usize],
            hash: network.hash_of(flow, serial, !is_server),
            generation,
            serial: serial as u16,
            is_open: true,
            has_closed: false,
            is_watching: is_watching[usize::from(is_server)],
            tcp,
        };
        let valid = "the configuration was validated";
        let mut client = Endpoint::client(&config).expect(valid);
        client.open(self.now);
        let server = Endpoint::server(&config).expect(valid);
        let connection = Connection {
            client: end(self, client, false),
            server: end(self, server, true),
            sender,
            flow,
            is_open: true,
        };
        let id = match place {
            Some(id) => {
                self.connections[id as usize] = connection;
                id
            }
            None => {
                self.connections.push(connection);
                self.connections.len() as u32 - 1
            }
        };
        self.flows[flow as usize].open.push(id);
        id
    }

    /// Passes a segment to the end of the connection to which it belongs. Returns whether the
    /// application must be notified, or `None` for a late segment of a connection that has ended.
    // Unlike its caller, this function is not generic, so it is not inlined by itself. Without the
    // attribute, a simulation is 2 % slower.
    #[inline]
    pub fn handle_segment(&mut self, tag: &Tag, segment: &Segment) -> Option<bool> {
        let now = self.now;
        let end = self.connections[tag.connection as usize].end_at(tag.to_server);
        if !end.is_open || end.generation != tag.generation {
            self.count_arrival(tag);
            return None;
        }
        end.received += 1;
        end.marked += u64::from(segment.ecn == Ecn::Ce);
        end.tcp.handle_segment(now, segment);
        Some(end.is_watching || (end.tcp.is_received() && !end.has_closed))
    }

    pub fn handle_timer(&mut self, index: u32, observer: &mut impl Observer) {
        let (id, is_server) = (index / 2, index % 2 == 1);
        let now = self.now;
        let end = self.connections[id as usize].end_at(is_server);
        if end.timer_at != now {
            return;
        }
        // Most timer events fire too early, since ACKs have moved the timer meanwhile. The end has
        // been polled after its last change, so it has no segments to send either.
        let due = end.tcp.next_timeout();
        if due > now && due < Time::MAX && end.is_open {
            end.timer_at = due;
            self.schedule(due, kind::TIMER, index);
            return;
        }
        end.timer_at = Time::MAX;
        if end.is_open {
            end.tcp.handle_timeout(now);
            self.pump(id, is_server, observer);
        }
    }

    /// Sends all segments that an end may send, schedules its timer, and releases the connection
    /// when both ends are closed.
    pub fn pump(&mut self, id: ConnectionId, is_server: bool, observer: &mut impl Observer) {
        let now = self.now;
        loop {
            let end = self.connections[id as usize].end_at(is_server);
            let mut segment = Segment::default();
            if !end.tcp.fill(now, &mut segment) {
                break;
            }
            end.sent += 1;
            let remaining = end.tcp.remaining(&segment);
            let tag = Tag {
                flow: end.flow,
                path: end.path,
                hash: end.hash,
                len: 0,
                remaining: remaining.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
                connection: id,
                generation: end.generation,
                serial: end.serial,
                to_server: !is_server,
                ecn: Ecn::NotEct,
            };
            self.send_segment(tag, &segment, observer);
        }
        let end = self.connections[id as usize].end_at(is_server);
        let (at, is_closed) = (end.tcp.next_timeout(), end.tcp.is_closed());
        if at < end.timer_at {
            let at = at.max(now);
            end.timer_at = at;
            self.schedule(at, kind::TIMER, id * 2 + u32::from(is_server));
        }
        if is_closed {
            self.release(id);
        }
    }

    /// Releases a connection once both ends are closed, or one has failed.
    fn release(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id as usize];
        let has_failed = [&connection.client, &connection.server]
            .iter()
            .any(|end| end.tcp.state() == State::Failed);
        let is_done = connection.client.tcp.is_closed() && connection.server.tcp.is_closed();
        if !connection.is_open || !(is_done || has_failed) {
            return;
        }
        connection.is_open = false;
        connection.client.is_open = false;
        connection.server.is_open = false;
        let state = &mut self.flows[connection.flow as usize];
        connection.add_to(&mut state.totals);
        state.totals.failures += u64::from(has_failed);
        state.open.retain(|open| *open != id);
        self.free_connections.push(id);
    }
}
