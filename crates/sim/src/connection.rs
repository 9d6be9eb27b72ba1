//! TCP connections and the applications on top of them.

use crate::ahead::{Cause, Expected};
use crate::cargo::Tag;
use crate::config::{Direction, FlowId, Size, Traffic};
use crate::exchange::Exchange;
use crate::observe::{Completion, FlowTotals, Observer, TcpSample};
use crate::random;
use crate::simulation::{Simulation, kind};
use crate::source::Page;
use sluice_core::{Ecn, Rng, Time};
use sluice_tcp::{Endpoint, Segment, State};

/// Two ends of a connection, and the applications on top of them.
#[repr(C)]
pub(crate) struct Connection {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) app: App,
    pub flow: u32,
    pub is_open: bool,
}

/// One end. A segment finds everything that it needs here, from the first line on; the rest of
/// the connection is for its beginning and end.
#[repr(C, align(64))]
pub(crate) struct End {
    /// When a timer event is scheduled; [`Time::MAX`] for none. TCP moves its timers with every
    /// ACK; an event that comes too early just asks again, so that none is ever cancelled.
    timer_at: Time,
    /// Packets sent, received and received with a mark.
    sent: u64,
    received: u64,
    marked: u64,
    flow: u32,
    way: u32,
    hash: u32,
    /// Counts the connections that have used this place.
    generation: u16,
    /// Number of the connection within its flow.
    serial: u16,
    is_open: bool,
    /// The application has closed its direction.
    pub(crate) has_closed: bool,
    /// The application wants to look after each segment.
    pub(crate) is_watching: bool,
    pub(crate) tcp: Endpoint,
}

/// What the applications at both ends do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum App {
    Transfer {
        start: Time,
        direction: Direction,
        is_complete: bool,
    },
    /// A request of `request` bytes, answered by `size` bytes.
    Fetch {
        page: u64,
        request: u64,
        size: u64,
        is_answered: bool,
        is_complete: bool,
    },
    /// One request after the other, each answered.
    Exchange(Exchange),
}

impl Connection {
    /// Names what the next event of one of the ends is going to need, as far as it is here.
    pub fn near(&self, what: Expected, visit: &mut impl FnMut(*const u8)) {
        let end = self.expected(what);
        visit(std::ptr::from_ref(end).cast());
        match what.cause {
            Cause::Payload => end.tcp.near(visit),
            Cause::Ack => end.tcp.near_ack(visit),
            Cause::Timer => end.tcp.near_timeout(visit),
        }
    }

    /// Names the rest of it, which is elsewhere. Tells the way and the hash of what it may send, too.
    pub fn far(&self, what: Expected, visit: &mut impl FnMut(*const u8)) -> (u32, u32) {
        let End { tcp, way, hash, .. } = self.expected(what);
        match what.cause {
            Cause::Payload => tcp.far(visit),
            Cause::Ack => tcp.far_ack(visit),
            Cause::Timer => {}
        }
        (*way, *hash)
    }

    fn expected(&self, what: Expected) -> &End {
        if what.to_server {
            &self.server
        } else {
            &self.client
        }
    }

    fn end(&mut self, is_server: bool) -> &mut End {
        if is_server {
            &mut self.server
        } else {
            &mut self.client
        }
    }

    /// Data sender and data receiver.
    fn roles(&self) -> (&Endpoint, &Endpoint) {
        match self.app {
            App::Transfer {
                direction: Direction::Up,
                ..
            } => (&self.client.tcp, &self.server.tcp),
            _ => (&self.server.tcp, &self.client.tcp),
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

    /// Whether all bytes of a transfer have arrived.
    pub fn is_complete(&self) -> bool {
        matches!(self.app, App::Transfer { is_complete, .. } if is_complete)
    }

    pub fn sample(&self, now: Time) -> TcpSample {
        let (sender, receiver) = self.roles();
        TcpSample {
            time: now,
            sender: sender.snapshot(),
            counters: sender.counters(),
            received: receiver.received(),
        }
    }
}

impl Simulation {
    /// Opens the connection of a TCP flow.
    pub(crate) fn open_transfer(&mut self, flow: u32, observer: &mut impl Observer) {
        let Traffic::Tcp(tcp) = &self.flows[flow as usize].config.traffic else {
            return;
        };
        let (config, direction) = (tcp.config.clone(), tcp.direction);
        let (bytes, writes) = (tcp.bytes, tcp.writes);
        let app = App::Transfer {
            start: self.now,
            direction,
            is_complete: false,
        };
        let id = self.connect(flow, &config, app);
        self.flows[flow as usize].source.connection = Some(id);
        let source = self.connections[id as usize].end(direction == Direction::Down);
        match (bytes, writes) {
            // The application's own clock writes; see `write_more`.
            (_, Some(_)) => {}
            (Some(bytes), None) => {
                source.tcp.write(bytes);
                source.tcp.close();
                source.has_closed = true;
            }
            (None, None) => source.tcp.write_forever(),
        }
        self.pump(id, false, observer);
        if writes.is_some() {
            self.write_more(flow, observer);
        }
    }

    /// An application with a clock of its own writes its next bytes.
    pub(crate) fn write_more(&mut self, flow: u32, observer: &mut impl Observer) {
        let state = &mut self.flows[flow as usize];
        let (Traffic::Tcp(tcp), Some(id)) = (&state.config.traffic, state.source.connection) else {
            return;
        };
        let Some((bytes, interval)) = tcp.writes else {
            return;
        };
        let left = tcp.bytes.map_or(u64::MAX, |all| all - state.source.written);
        let bytes = bytes.min(left);
        let is_server = tcp.direction == Direction::Down;
        state.source.written += bytes;
        let end = self.connections[id as usize].end(is_server);
        end.tcp.write(bytes);
        if bytes == left {
            end.tcp.close();
            end.has_closed = true;
        } else {
            let at = self.now + interval;
            self.schedule(at, kind::SOURCE, flow);
        }
        self.pump(id, is_server, observer);
    }

    /// A TCP flow ends: its source closes, and data under way still arrive.
    pub(crate) fn close_transfer(&mut self, flow: u32, observer: &mut impl Observer) {
        let Some(id) = self.flows[flow as usize].source.connection else {
            return;
        };
        let connection = &mut self.connections[id as usize];
        let is_server = match connection.app {
            App::Transfer { direction, .. } => direction == Direction::Down,
            App::Exchange(_) => false,
            App::Fetch { .. } => return,
        };
        let end = connection.end(is_server);
        end.tcp.close();
        end.has_closed = true;
        self.pump(id, is_server, observer);
    }

    /// Opens the connections of a page.
    pub(crate) fn open_page(&mut self, flow: u32, observer: &mut impl Observer) {
        let state = &mut self.flows[flow as usize];
        let Traffic::Web(web) = &state.config.traffic else {
            return;
        };
        let config = web.config.clone();
        let (request, objects, size) = (web.request, web.objects, web.size);
        let page = state.source.next_page;
        state.source.next_page += 1;
        state.source.pages.insert(
            page,
            Page {
                start: self.now,
                objects,
                bytes: 0,
            },
        );
        for _ in 0..objects {
            let size = draw(&mut self.flows[flow as usize].rng, size);
            let app = App::Fetch {
                page,
                request,
                size,
                is_answered: false,
                is_complete: false,
            };
            let id = self.connect(flow, &config, app);
            self.connections[id as usize].client.tcp.write(request);
            self.pump(id, false, observer);
        }
    }

    pub(crate) fn connect(&mut self, flow: u32, config: &sluice_tcp::Config, app: App) -> u32 {
        let serial = &mut self.flows[flow as usize].source.connections;
        *serial += 1;
        let serial = *serial;
        let mut config = config.clone();
        config.seed ^= self.flows[flow as usize].rng.next_u64();
        let place = self.free_connections.pop();
        let generation = place.map_or(0, |id| {
            let old = &self.connections[id as usize].client;
            old.generation.wrapping_add(1)
        });
        let is_watching = |is_server| match app {
            App::Transfer { .. } => false,
            App::Fetch { .. } => is_server,
            App::Exchange(_) => true,
        };
        let end = |simulation: &Simulation, tcp, is_server: bool| End {
            timer_at: Time::MAX,
            sent: 0,
            received: 0,
            marked: 0,
            flow,
            way: simulation.way_of[flow as usize],
            hash: simulation.hash_of(flow, serial, !is_server),
            generation,
            serial: serial as u16,
            is_open: true,
            has_closed: false,
            is_watching: is_watching(is_server),
            tcp,
        };
        let valid = "the configuration was validated";
        let mut client = Endpoint::client(&config).expect(valid);
        client.open(self.now);
        let server = Endpoint::server(&config).expect(valid);
        let connection = Connection {
            client: end(self, client, false),
            server: end(self, server, true),
            app,
            flow,
            is_open: true,
        };
        match place {
            Some(id) => {
                self.connections[id as usize] = connection;
                id
            }
            None => {
                self.connections.push(connection);
                self.connections.len() as u32 - 1
            }
        }
    }

    pub(crate) fn handle_segment(
        &mut self,
        tag: &Tag,
        segment: &Segment,
        observer: &mut impl Observer,
    ) {
        let now = self.now;
        let (id, to_server) = (tag.connection, tag.to_server);
        let end = self.connections[id as usize].end(to_server);
        // A straggler of a connection that has ended.
        if !end.is_open || end.generation != tag.generation {
            self.count_arrival(tag);
            return;
        }
        end.received += 1;
        end.marked += u64::from(segment.ecn == Ecn::Ce);
        end.tcp.handle_segment(now, segment);
        if end.is_watching || (end.tcp.is_received() && !end.has_closed) {
            self.run_app(id, observer);
        }
        self.pump(id, to_server, observer);
    }

    pub(crate) fn handle_timer(&mut self, index: u32, observer: &mut impl Observer) {
        let (id, is_server) = (index / 2, index % 2 == 1);
        let now = self.now;
        let end = self.connections[id as usize].end(is_server);
        if end.timer_at != now {
            return;
        }
        // Most come too early, since ACKs have moved the timer meanwhile. An end that was asked for
        // segments after the last change has none to send either.
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

    /// Lets an end send what it can, schedules its timer, and clears the connection away when
    /// both ends are done.
    pub(crate) fn pump(&mut self, id: u32, is_server: bool, observer: &mut impl Observer) {
        let now = self.now;
        loop {
            let end = self.connections[id as usize].end(is_server);
            let Some(segment) = end.tcp.poll_transmit(now) else {
                break;
            };
            end.sent += 1;
            let remaining = end.tcp.remaining(&segment);
            let tag = Tag {
                flow: end.flow,
                way: end.way,
                hash: end.hash,
                len: 0,
                remaining: remaining.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
                connection: id,
                generation: end.generation,
                serial: end.serial,
                to_server: !is_server,
                ecn: Ecn::NotEct,
            };
            self.send_segment(tag, segment, observer);
        }
        let end = self.connections[id as usize].end(is_server);
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

    /// What the applications do when a segment has arrived at either end.
    fn run_app(&mut self, id: u32, observer: &mut impl Observer) {
        let connection = &mut self.connections[id as usize];
        let flow = connection.flow as usize;
        let mut wrote = None;
        match &mut connection.app {
            App::Transfer {
                start,
                direction,
                is_complete,
            } => {
                let sink = match direction {
                    Direction::Up => &mut connection.server,
                    Direction::Down => &mut connection.client,
                };
                if sink.tcp.is_received() && !*is_complete {
                    *is_complete = true;
                    sink.has_closed = true;
                    sink.tcp.close();
                    wrote = Some(*direction == Direction::Up);
                    let done = Completion {
                        sequence: self.flows[flow].totals.completions,
                        start: *start,
                        end: self.now,
                        bytes: sink.tcp.received(),
                    };
                    let state = &mut self.flows[flow];
                    state.totals.completions += 1;
                    observer.on_complete(flow, &done);
                    if let Traffic::Tcp(tcp) = &state.config.traffic
                        && let Some(pause) = tcp.repeat
                    {
                        let at = self.now + pause;
                        self.schedule(at, kind::SOURCE, flow as u32);
                    }
                }
            }
            App::Exchange(_) => {
                self.run_exchange(id, observer);
                return;
            }
            App::Fetch {
                page,
                request,
                size,
                is_answered,
                is_complete,
            } => {
                if !*is_answered && connection.server.tcp.received() >= *request {
                    *is_answered = true;
                    connection.server.is_watching = false;
                    connection.server.has_closed = true;
                    connection.server.tcp.write(*size);
                    connection.server.tcp.close();
                    wrote = Some(true);
                } else if !*is_complete && connection.client.tcp.is_received() {
                    *is_complete = true;
                    connection.client.has_closed = true;
                    connection.client.tcp.close();
                    wrote = Some(false);
                    let (page, bytes) = (*page, connection.client.tcp.received());
                    self.finish_object(flow, page, bytes, observer);
                }
            }
        }
        if let Some(is_server) = wrote {
            self.pump(id, is_server, observer);
        }
    }

    fn finish_object(&mut self, flow: FlowId, page: u64, bytes: u64, observer: &mut impl Observer) {
        let state = &mut self.flows[flow];
        let Some(entry) = state.source.pages.get_mut(&page) else {
            return;
        };
        entry.objects -= 1;
        entry.bytes += bytes;
        if entry.objects == 0 {
            let done = Completion {
                sequence: page,
                start: entry.start,
                end: self.now,
                bytes: entry.bytes,
            };
            state.source.pages.remove(&page);
            state.totals.completions += 1;
            observer.on_complete(flow, &done);
        }
    }

    /// Clears a connection away once both ends are closed, or one has failed.
    fn release(&mut self, id: u32) {
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
        if state.source.connection == Some(id) {
            state.source.connection = None;
        }
        self.free_connections.push(id);
    }
}

fn draw(rng: &mut Rng, size: Size) -> u64 {
    match size {
        Size::Fixed(bytes) => bytes,
        Size::Exponential(mean) => {
            let span = sluice_core::Span::from_ns(mean);
            random::exponential(rng, span).as_ns().max(1)
        }
        Size::Pareto {
            min,
            shape_milli,
            max,
        } => random::pareto(rng, min, shape_milli, max),
    }
}
