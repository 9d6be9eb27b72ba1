//! The emulated network: TCP connections that share one link. The caller supplies the time.
//!
//! Each connection has an [`Endpoint`] at both ends. Their segments cross the two directions of the
//! link as packets. A packet carries only the length of its payload. The bytes themselves wait in
//! one buffer per direction until the receiving end has them in order.
//!
//! Each event is handled at its due time, however late [`Engine::advance`] is called. So a busy
//! machine delays bytes to the program, but does not change the behaviour of the link and of TCP.

mod directed;
mod frames;
mod hosts;
mod links;
mod pair;
mod parcels;
mod sending;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use sluice_core::{DropReason, Packet, Rng, Sink as _, Span, Time};
use sluice_exec::Frames;
use sluice_scenario::{Direction, Link};
use sluice_tcp::{Config, Endpoint, Flags, Reading, Segment, Snapshot};

use directed::DirectedLink;
use hosts::Host;
pub use hosts::HostDelay;
use pair::{Gate, Pair};
use parcels::{Load, Parcel, Parcels};
use watch::Watch;
pub use watch::{Arrival, EndState, Flow, Observation, Observations, Release, Sent};

/// An end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The program's end.
    Near,
    /// The end from which connections continue to the outside.
    Far,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Side; 2] = [Side::Near, Side::Far];

    /// Returns the other end.
    pub const fn other(self) -> Side {
        match self {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        }
    }

    /// Returns the end's index.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The number of a connection. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    index: u32,
    generation: u32,
}

/// The far end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The destination as the program has given it.
    pub name: String,
    /// The address that its packets have. An IPv6 address makes the header longer.
    pub address: SocketAddr,
    /// Identifies the host for queues that are fair among hosts.
    pub host: u32,
}

/// The reason why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing listens at the port.
    Closed,
    /// No route to the network.
    Network,
    /// No route to the host.
    Host,
    /// Not allowed.
    Prohibited,
    /// No answer. By then the near end itself has timed out.
    Silence,
}

/// The state of a connection at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The handshake has not ended.
    Opening,
    /// Bytes can flow.
    Open,
    /// The other end has refused the connection.
    Refused(Refusal),
    /// A reset has ended the connection, or an end has given up.
    Reset,
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that have left the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the queue or the link dropped.
    pub dropped: u64,
}

/// The link and the connections that share it.
pub struct Engine {
    /// The links towards the near and towards the far end, each in the order in which packets pass
    /// them.
    ways: [Vec<DirectedLink>; 2],
    /// The near and the far host.
    hosts: [Host; 2],
    parcels: Parcels,
    counts: [Counts; 2],
    pairs: Vec<Option<Pair>>,
    free: Vec<u32>,
    opened: u32,
    timers: BTreeSet<(Time, u32, Side)>,
    /// Connections that both ends have left, and when they are forgotten if no end has anything to send. In
    /// the order of these times.
    leaving: VecDeque<(Time, Id)>,
    clock: Time,
    config: Config,
    changed: Vec<Id>,
    datagrams: Vec<(Id, Side)>,
    /// The observer, if there is one.
    watch: Option<Box<Watch>>,
    /// The receiver of captured frames, if there is one.
    frames: Option<Frames>,
}

impl Engine {
    /// Creates a network behind `links`, which are in the order of the path up. `config` configures
    /// the endpoints. Their hosts take `delay` to process a packet.
    pub fn new(links: &[Link], config: Config, delay: HostDelay, seed: u64) -> Engine {
        let rng = Rng::from_seed(seed);
        let ways = |direction| {
            let ways = links.iter().zip(0..).map(|(link, hop)| {
                let rng = rng.fork(direction as u64).fork(hop);
                DirectedLink::new(link.pipe(direction), rng)
            });
            ways.collect::<Vec<DirectedLink>>()
        };
        let mut down = ways(Direction::Down);
        down.reverse();
        Engine {
            ways: [down, ways(Direction::Up)],
            hosts: Side::BOTH.map(|side| Host::new(delay, rng.fork(HOSTS).fork(side as u64))),
            parcels: Parcels::default(),
            counts: [Counts::default(); 2],
            pairs: Vec::new(),
            free: Vec::new(),
            opened: 0,
            timers: BTreeSet::new(),
            leaving: VecDeque::new(),
            clock: Time::ZERO,
            config: Config {
                reading: Reading::Allowed,
                ..config
            },
            changed: Vec::new(),
            datagrams: Vec::new(),
            watch: None,
            frames: None,
        }
    }

    // ---- time --------------------------------------------------------------------------

    /// Returns the time of the next event, for which [`Engine::advance`] must be called. Returns
    /// `None` if there is none until another method is called.
    pub fn next_due(&self) -> Option<Time> {
        let ways = self
            .ways
            .iter()
            .flatten()
            .filter_map(DirectedLink::next_wake);
        let timer = self.timers.first().map(|(at, ..)| *at);
        let leaving = self.leaving.front().map(|(at, _)| *at);
        let sample = self.watch.iter().map(|watch| watch.sample_at);
        let hosts = self.hosts.iter().filter_map(Host::next_due);
        ways.chain(timer)
            .chain(leaving)
            .chain(sample)
            .chain(hosts)
            .min()
    }

    /// Handles all events up to `now`. Calls `on_departure` with the due time of every packet that
    /// has left the link.
    pub fn advance(&mut self, now: Time, mut on_departure: impl FnMut(Side, Time)) {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            self.clock = self.clock.max(due);
            self.step(now, &mut on_departure);
        }
        self.clock = self.clock.max(now);
    }

    /// Handles the events that are due at the engine's current instant. The caller's time is `now`.
    fn step(&mut self, now: Time, on_departure: &mut impl FnMut(Side, Time)) {
        self.sample_if_due();
        for to in [Side::Far, Side::Near] {
            let hops = self.ways[to.index()].len();
            for hop in 0..hops {
                let clock = self.clock;
                while let Some(departure) =
                    self.with_way(to, hop, |way, sink| way.poll(clock, sink))
                {
                    if self.ways[to.index()][hop].is_cut {
                        self.parcels
                            .discard(clock, departure.packet, DropReason::Loss);
                        continue;
                    }
                    if hop + 1 < hops {
                        let mut packet = departure.packet;
                        packet.arrival = clock;
                        self.enqueue(to, hop + 1, packet);
                        continue;
                    }
                    if let Some(watch) = &mut self.watch {
                        watch.releases(to, departure.due, departure.packet.len, now);
                    }
                    let counts = &mut self.counts[to.index()];
                    counts.packets += 1;
                    counts.bytes += u64::from(departure.packet.len);
                    on_departure(to, departure.due);
                    if to == Side::Near {
                        self.tap(&departure.packet);
                    }
                    self.hosts[to.index()].receive(departure.packet, clock);
                    self.deliver_due(to);
                }
            }
            self.deliver_due(to);
        }
        while let Some((at, index, side)) = self.timers.first().copied() {
            if at > self.clock {
                break;
            }
            self.timers.pop_first();
            let Some(pair) = &mut self.pairs[index as usize] else {
                continue;
            };
            let id = Id {
                index,
                generation: pair.generation,
            };
            let end = &mut pair.ends[side.index()];
            end.timer = None;
            end.endpoint.handle_timeout(self.clock);
            self.transmit(id, side);
            self.forget_if_over(id);
        }
        while let Some((at, id)) = self.leaving.front().copied() {
            if at > self.clock {
                break;
            }
            self.leaving.pop_front();
            self.forget_if_silent(id);
        }
    }

    // ---- connections -------------------------------------------------------------------

    /// Opens a connection from the near end.
    pub fn open(&mut self, target: &Target) -> Id {
        self.opened += 1;
        let header = if target.address.is_ipv6() {
            IPV6_MORE
        } else {
            0
        };
        let config = Config {
            mss: self.config.mss - header,
            isn: self.opened.wrapping_mul(0x9e37_79b9),
            seed: u64::from(self.opened),
            ..self.config.clone()
        };
        let valid = "a configuration that was checked is valid";
        let mut near = Endpoint::client(&config).expect(valid);
        let mut far = Endpoint::server(&config).expect(valid);
        near.allow_reading(AHEAD);
        far.allow_reading(AHEAD);
        near.open(self.clock);
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            (self.pairs.len() - 1) as u32
        });
        let id = Id {
            index,
            generation: self.opened,
        };
        let pair = Pair::new(id, [near, far], header, target, config.isn);
        self.pairs[index as usize] = Some(pair);
        self.describe(id, &target.name);
        self.transmit(id, Side::Near);
        id
    }

    /// Lets the far end accept a connection.
    pub fn accept(&mut self, id: Id) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        let Gate::Held(syn) = pair.gate else {
            return;
        };
        pair.gate = Gate::Passed;
        let now = self.clock;
        self.handle(id, Side::Far, now, &syn);
    }

    /// Lets the far end refuse a connection.
    pub fn refuse(&mut self, id: Id, refusal: Refusal) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        pair.gate = Gate::Refused(refusal);
        pair.ends[Side::Far.index()].stage = Stage::Refused(refusal);
        self.send_refusal(id, refusal);
    }

    /// Returns whether the first packet of a connection has arrived at the far end, and the far end
    /// has not answered it yet.
    pub fn is_asking(&self, id: Id) -> bool {
        self.pair(id)
            .is_some_and(|pair| matches!(pair.gate, Gate::Held(_)) && !pair.is_over(Side::Far))
    }

    /// Returns the stage of a connection at one end.
    pub fn stage(&self, id: Id, side: Side) -> Stage {
        self.pair(id)
            .map_or(Stage::Reset, |pair| pair.ends[side.index()].stage)
    }

    /// Returns the most bytes that `side` should write. Like Linux, this limits the send buffer to
    /// twice the congestion window.
    pub fn room(&self, id: Id, side: Side) -> usize {
        let Some(pair) = self.pair(id) else {
            return 0;
        };
        let endpoint = &pair.ends[side.index()].endpoint;
        let window = endpoint.snapshot().window.cwnd;
        let buffer = (2 * window).clamp(LEAST_SEND_BUFFER, LARGEST_SEND_BUFFER);
        buffer.saturating_sub(endpoint.unacknowledged()) as usize
    }

    /// Writes `bytes` at `side`.
    pub fn write(&mut self, id: Id, side: Side, bytes: &[u8]) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        pair.streams[side.index()].bytes.extend(bytes);
        pair.ends[side.index()].endpoint.write(bytes.len() as u64);
        self.transmit(id, side);
    }

    /// Ends the stream that `side` writes.
    pub fn close(&mut self, id: Id, side: Side) {
        if let Some(pair) = self.pair_mut(id) {
            pair.ends[side.index()].endpoint.close();
            self.transmit(id, side);
        }
    }

    /// Returns the bytes that have arrived at `side`, in order.
    pub fn readable(&self, id: Id, side: Side) -> (&[u8], &[u8]) {
        self.pair(id).map_or((&[], &[]), |pair| pair.readable(side))
    }

    /// Removes bytes that `side` has read.
    pub fn consume(&mut self, id: Id, side: Side, bytes: usize) {
        if let Some(pair) = self.pair_mut(id) {
            pair.consume(side, bytes);
            self.transmit(id, side);
        }
    }

    /// Returns whether the other end has closed, and everything has been read at `side`.
    pub fn has_ended(&self, id: Id, side: Side) -> bool {
        self.pair(id).is_some_and(|pair| pair.has_ended(side))
    }

    /// Resets a connection at `side`.
    pub fn reset(&mut self, id: Id, side: Side) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        if !pair.is_over(side) {
            pair.ends[side.index()].stage = Stage::Reset;
            self.send_reset(id, side);
        }
        self.stop_timer(id, side);
        self.note_change(id);
    }

    /// Records that `side` is no longer used. A connection that both ends have left is forgotten
    /// once everything has been acknowledged or a reset has ended it, or when no end has had anything to
    /// send for a minute.
    pub fn leave(&mut self, id: Id, side: Side) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        let was_left = std::mem::replace(&mut pair.ends[side.index()].is_left, true);
        let are_all_left = pair.ends.iter().all(|end| end.is_left);
        self.forget_if_over(id);
        if !was_left && are_all_left && self.pair(id).is_some() {
            let at = self.clock.saturating_add(FIN_WAIT);
            self.leaving.push_back((at, id));
        }
    }

    /// Returns the state of the sender at `side`, and the number of its retransmissions.
    pub fn snapshot(&self, id: Id, side: Side) -> Option<(Snapshot, u64)> {
        let endpoint = &self.pair(id)?.ends[side.index()].endpoint;
        Some((endpoint.snapshot(), endpoint.counters().retransmits))
    }

    /// Returns whether connections have changed or datagrams have arrived since they were last taken.
    pub fn has_news(&self) -> bool {
        !self.changed.is_empty() || !self.datagrams.is_empty()
    }

    /// Returns the connections that have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<Id> {
        let changed = std::mem::take(&mut self.changed);
        for id in &changed {
            if let Some(pair) = self.pair_mut(*id) {
                pair.is_changed = false;
            }
        }
        changed
    }

    /// Returns whether bytes that a near end has written have not arrived yet.
    pub fn is_sending(&self) -> bool {
        let sends = |pair: &Pair| {
            let near = &pair.ends[Side::Near.index()];
            let is_waiting = near.endpoint.unacknowledged() > 0
                || !pair.streams[Side::Near.index()].bytes.is_empty()
                || near.is_left && !near.endpoint.is_sent();
            is_waiting && Side::BOTH.iter().all(|side| !pair.is_over(*side))
        };
        let mut up = self.ways[Side::Far.index()].iter();
        self.pairs.iter().flatten().any(sends)
            || !up.all(DirectedLink::is_empty)
            || self.hosts[Side::Far.index()].next_due().is_some()
    }

    // ---- datagrams ---------------------------------------------------------------------

    /// Returns a new number for a question about a name to the resolver called `name`.
    pub fn question(&mut self, name: &str) -> Id {
        self.opened += 1;
        let id = Id {
            index: u32::MAX,
            generation: self.opened,
        };
        self.describe(id, name);
        id
    }

    /// Sends a datagram of `len` bytes, headers included, to `to`.
    pub fn send_datagram(&mut self, id: Id, to: Side, len: u32) {
        let parcel = Parcel {
            id,
            to,
            load: Load::Datagram,
            is_damaged: false,
        };
        self.launch(parcel, len, flow_of(id), 0);
    }

    /// Returns the datagrams that have arrived since the last call.
    pub fn take_datagrams(&mut self) -> Vec<(Id, Side)> {
        std::mem::take(&mut self.datagrams)
    }

    // ---- inside ------------------------------------------------------------------------

    fn pair(&self, id: Id) -> Option<&Pair> {
        let pair = self.pairs.get(id.index as usize)?.as_ref();
        pair.filter(|pair| pair.generation == id.generation)
    }

    fn pair_mut(&mut self, id: Id) -> Option<&mut Pair> {
        let pair = self.pairs.get_mut(id.index as usize)?.as_mut();
        pair.filter(|pair| pair.generation == id.generation)
    }

    fn note_change(&mut self, id: Id) {
        if let Some(pair) = self.pair_mut(id)
            && !pair.is_changed
        {
            pair.is_changed = true;
            self.changed.push(id);
        }
    }

    /// Delivers the packets that the host at `side` has processed by now.
    fn deliver_due(&mut self, side: Side) {
        while let Some(packet) = self.hosts[side.index()].take(self.clock) {
            self.deliver(packet);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let parcel = self.parcels.take(packet.slot);
        if parcel.is_damaged {
            return;
        }
        let (id, to, now) = (parcel.id, parcel.to, self.clock);
        match parcel.load {
            Load::Datagram => self.datagrams.push((id, to)),
            Load::Refusal(refusal) => {
                let Some(pair) = self.pair_mut(id) else {
                    return;
                };
                let end = &mut pair.ends[to.index()];
                if end.stage == Stage::Opening {
                    end.stage = Stage::Refused(refusal);
                    self.stop_timer(id, to);
                    self.note_change(id);
                }
            }
            Load::Segment(mut segment) => {
                segment.ecn = packet.ecn;
                self.arrive(id, to, now, segment);
            }
        }
        self.forget_if_over(id);
    }

    /// Handles a segment that has arrived at `side`.
    fn arrive(&mut self, id: Id, side: Side, now: Time, segment: Segment) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        let is_reset = segment.flags.has(Flags::RST);
        if pair.is_over(side) {
            match pair.gate {
                Gate::Refused(refusal) if side == Side::Far && !is_reset => {
                    self.send_refusal(id, refusal);
                }
                _ if !is_reset => self.send_reset(id, side),
                _ => {}
            }
            return;
        }
        if side == Side::Far && !is_reset {
            match &mut pair.gate {
                Gate::Passed => {}
                // The near end may have sent the SYN again.
                Gate::Held(held) => {
                    *held = segment;
                    return;
                }
                gate @ Gate::Nothing => {
                    *gate = Gate::Held(segment);
                    return self.note_change(id);
                }
                Gate::Refused(_) => return,
            }
        }
        if is_reset {
            pair.ends[side.index()].stage = Stage::Reset;
            self.stop_timer(id, side);
            return self.note_change(id);
        }
        self.handle(id, side, now, &segment);
    }

    fn handle(&mut self, id: Id, side: Side, now: Time, segment: &Segment) {
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        let end = &mut pair.ends[side.index()];
        end.is_fresh = true;
        end.endpoint.handle_segment(now, segment);
        // RFC 9293 section 3.6.1: data for an end that was closed reset the connection.
        let is_unwanted = end.is_left && !end.endpoint.is_closed();
        if is_unwanted && !pair.is_over(side) && !pair.readable(side).0.is_empty() {
            return self.reset(id, side);
        }
        self.transmit(id, side);
        self.note_change(id);
    }

    fn forget_if_over(&mut self, id: Id) {
        if self.pair(id).is_some_and(Pair::is_forgettable) {
            self.forget(id);
        }
    }

    /// Forgets a connection that both ends have left, unless an end still repeats a packet. The last
    /// packets of the other one were lost: its FIN or reset will never arrive.
    fn forget_if_silent(&mut self, id: Id) {
        let Some(pair) = self.pair(id) else {
            return;
        };
        if pair.ends.iter().any(|end| end.timer.is_some()) {
            let at = self.clock.saturating_add(FIN_WAIT);
            self.leaving.push_back((at, id));
        } else {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: Id) {
        for side in Side::BOTH {
            self.stop_timer(id, side);
        }
        if let (Some(watch), Some(pair)) = (&mut self.watch, &mut self.pairs[id.index as usize]) {
            watch.sample(pair, self.clock);
        }
        self.pairs[id.index as usize] = None;
        self.free.push(id.index);
        while let Some((_, first)) = self.leaving.front()
            && self.pair(*first).is_none()
        {
            self.leaving.pop_front();
        }
    }
}

/// Returns the hash of a datagram's flow.
fn flow_of(id: Id) -> u32 {
    pair::mix(u64::from(id.generation) << 32 | 53)
}

/// Bytes that the receiver reads ahead, like a program that reads 64 KiB at a time.
const AHEAD: u64 = 64 << 10;
/// Bytes that may wait in an end's send buffer. Linux: `tcp_wmem` starts at 16 KiB and grows with
/// the window; the relay of `sluice exec` holds 256 KiB more.
const LEAST_SEND_BUFFER: u64 = 256 << 10;
/// The most bytes that a send buffer holds, as under `sluice exec`. A kernel's buffer holds little
/// else than payload if segments are large.
const LARGEST_SEND_BUFFER: u64 = sluice_exec::LARGEST_BUFFER;
/// The fork of the randomness that the hosts have. Those of the links have the numbers of directions.
const HOSTS: u64 = u64::MAX;
/// The header of IPv6 is longer by 20 bytes.
const IPV6_MORE: u32 = 20;
/// The time for which an end that nobody uses waits for the other's FIN (Linux: `tcp_fin_timeout`).
const FIN_WAIT: Span = Span::from_secs(60);

#[cfg(test)]
mod tests;
