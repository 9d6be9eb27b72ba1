//! UDP flows. Each has a pair of sockets until it has been idle for some time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use socket2::{SockAddr, Socket, Type};

use super::route::Refusal;
use super::{Dial, Entries, Outlets, Token, bound};
use crate::gate::{Ends, FlowChange, Held};

/// All flows.
pub struct Flows {
    entries: Entries<Flow>,
    numbers: BTreeMap<Ends, u64>,
    /// Sockets that may have further datagrams. No event reports those again.
    more: BTreeSet<Token>,
    changes: Sender<FlowChange>,
    names: Sender<Vec<u8>>,
}

/// One flow.
struct Flow {
    ends: Ends,
    /// The socket towards the program, on the far side.
    inner: Socket,
    /// The socket towards the outside, which is connected from `from`.
    outer: Socket,
    from: Dial,
    addresses: Addresses,
    /// The frame of the first datagram, quoted in ICMP errors.
    first: Vec<u8>,
    life: Life,
}

/// The addresses of a destination with several, such as the machine's loopback. A datagram meets no
/// handshake: only a refusal shows that an address has no socket.
struct Addresses {
    /// The first one is in use.
    all: VecDeque<SocketAddr>,
    /// How many have refused the latest datagram.
    refusals: usize,
    /// The program's latest datagram, as long as there are several addresses.
    latest: Vec<u8>,
}

/// How long a flow has been idle.
struct Life {
    /// The latest datagram, in either direction.
    last: Instant,
    /// The time at which the gate was instructed to hold the flow's datagrams again.
    closing: Option<Instant>,
}

/// What happens to a flow at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Stay,
    /// The gate holds its datagrams again.
    Close,
    /// Its sockets close.
    End,
}

/// How a flow's turn to read from a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The socket is empty.
    Drained,
    /// The turn is over, because a sender that is faster than the relay would never let it end.
    Over,
}

impl Flows {
    /// Creates an empty set of flows. `changes` informs the gate of flows that open and close; `names`
    /// receives the answers of resolvers.
    pub fn new(changes: Sender<FlowChange>, names: Sender<Vec<u8>>) -> Flows {
        Flows {
            entries: Entries::new(),
            numbers: BTreeMap::new(),
            more: BTreeSet::new(),
            changes,
            names,
        }
    }

    /// Handles a datagram that the gate holds.
    pub fn on_datagram(&mut self, held: Held, outlets: &mut Outlets) {
        let Held { ends, frame, .. } = held;
        if let Some(number) = self.numbers.get(&ends)
            && let Some(flow) = self.entries.get_mut(number)
        {
            flow.life.on_datagram(Instant::now());
            return self.release(ends, &frame, outlets);
        }
        match open(ends, &frame, outlets) {
            Ok((number, flow)) => {
                self.entries.insert(number, flow);
                self.numbers.insert(ends, number);
                self.release(ends, &frame, outlets);
            }
            Err(refusal) => {
                outlets.refuse(&frame, refusal);
                let _ = self.changes.send(FlowChange::Refused(ends));
            }
        }
    }

    /// Releases a datagram, and then lets the gate know.
    fn release(&self, ends: Ends, frame: &[u8], outlets: &Outlets) {
        outlets.release(frame);
        let _ = self.changes.send(FlowChange::Released(ends));
    }

    /// Handles an event. Returns whether it belongs to a flow.
    pub fn on_event(&mut self, (number, side): Token, outlets: &Outlets) -> bool {
        let Some(flow) = self.entries.get_mut(&number) else {
            return false;
        };
        let turn = match side {
            0 => flow.pass_out(number, outlets),
            _ => flow.pass_in(number, outlets, &self.names),
        };
        if turn == Turn::Over {
            self.more.insert((number, side));
        }
        true
    }

    /// Returns whether sockets may have further datagrams: then [`Flows::go_on`] passes them on.
    pub fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// Passes on the datagrams that were left because a turn was over.
    pub fn go_on(&mut self, outlets: &Outlets) {
        for token in std::mem::take(&mut self.more) {
            self.on_event(token, outlets);
        }
    }

    /// Closes flows without recent datagrams. Informs the gate first, so that no datagram reaches a
    /// closed socket.
    pub fn on_tick(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for (number, flow) in &mut self.entries {
            let idle = if flow.ends.outside.port() == DNS {
                IDLE_DNS
            } else {
                IDLE
            };
            match flow.life.on_tick(now, idle) {
                Step::Stay => {}
                Step::Close => {
                    let _ = self.changes.send(FlowChange::Closed(flow.ends));
                }
                Step::End => ended.push(*number),
            }
        }
        for number in ended {
            if let Some(flow) = self.entries.remove(&number) {
                self.numbers.remove(&flow.ends);
            }
        }
    }
}

impl Flow {
    /// Passes the program's datagrams on.
    fn pass_out(&mut self, number: u64, outlets: &Outlets) -> Turn {
        let mut datagram = [0; LONGEST];
        Turn::of(|| {
            match rustix::io::read(&self.inner, &mut datagram) {
                Ok(length) => {
                    self.life.on_datagram(Instant::now());
                    let datagram = &datagram[..length];
                    let sent = self.outer.send(datagram);
                    if sent.is_err_and(|error| is_refusal(&error)) {
                        // The error belongs to an earlier datagram; this one was not sent.
                        self.on_refusal(number, outlets);
                        let _ = self.outer.send(datagram);
                    }
                    self.addresses.on_datagram(datagram);
                }
                Err(rustix::io::Errno::AGAIN) => return false,
                // A socket reports such an error once: the program's port is closed.
                Err(_) => {}
            }
            true
        })
    }

    /// Passes the datagrams of the outside on.
    fn pass_in(&mut self, number: u64, outlets: &Outlets, names: &Sender<Vec<u8>>) -> Turn {
        let mut datagram = [0; LONGEST];
        Turn::of(|| {
            match rustix::io::read(&self.outer, &mut datagram) {
                Ok(length) => {
                    self.life.on_datagram(Instant::now());
                    self.addresses.on_answer();
                    let datagram = &datagram[..length];
                    if self.ends.outside.port() == DNS {
                        // There is a receiver only if the run is recorded.
                        let _ = names.send(datagram.to_vec());
                    }
                    let _ = self.inner.send(datagram);
                }
                Err(rustix::io::Errno::CONNREFUSED) => self.on_refusal(number, outlets),
                Err(rustix::io::Errno::AGAIN) => return false,
                // A socket reports such an error once: a host is temporarily unreachable.
                Err(_) => {}
            }
            true
        })
    }

    /// Sends the latest datagram, which was refused, to the next address. If all have refused it,
    /// refuses it in the name of its destination.
    fn on_refusal(&mut self, number: u64, outlets: &Outlets) {
        while let Some(address) = self.addresses.after_refusal() {
            let next = outlets.dial(Type::DGRAM, self.from, address);
            let watched = next.and_then(|socket| {
                outlets.watch(&socket, (number, 1))?;
                Ok(socket)
            });
            if let Ok(socket) = watched {
                let _ = socket.send(&self.addresses.latest);
                self.outer = socket;
                return;
            }
        }
        outlets.refuse(&self.first, Refusal::Closed);
    }
}

impl Turn {
    /// Reads at most [`TURN`] times. `read` returns whether there was something to read.
    fn of(mut read: impl FnMut() -> bool) -> Turn {
        match (0..TURN).all(|_| read()) {
            true => Turn::Over,
            false => Turn::Drained,
        }
    }
}

impl Addresses {
    fn new(all: Vec<SocketAddr>) -> Addresses {
        Addresses {
            all: all.into(),
            refusals: 0,
            latest: Vec::new(),
        }
    }

    /// The program has sent a datagram.
    fn on_datagram(&mut self, datagram: &[u8]) {
        if self.all.len() > 1 {
            self.refusals = 0;
            self.latest.clear();
            self.latest.extend_from_slice(datagram);
        }
    }

    /// The outside has sent a datagram: the address in use is the right one.
    fn on_answer(&mut self) {
        self.all.truncate(1);
        self.latest = Vec::new();
    }

    /// Returns the next address after the one in use has refused the latest datagram; `None` if all
    /// have.
    fn after_refusal(&mut self) -> Option<SocketAddr> {
        self.refusals += 1;
        if self.refusals >= self.all.len() {
            return None;
        }
        self.all.rotate_left(1);
        self.all.front().copied()
    }
}

impl Life {
    fn new(now: Instant) -> Life {
        Life {
            last: now,
            closing: None,
        }
    }

    /// Keeps the flow for a datagram in either direction, also if it is about to close: the gate then
    /// holds the program's next datagram and lets the relay release it.
    fn on_datagram(&mut self, now: Instant) {
        self.last = now;
        self.closing = None;
    }

    /// Returns what happens to a flow that may be idle for `idle`.
    fn on_tick(&mut self, now: Instant, idle: Duration) -> Step {
        match self.closing {
            Some(since) if now.duration_since(since) > GRACE => Step::End,
            None if now.duration_since(self.last) > idle => {
                self.closing = Some(now);
                Step::Close
            }
            _ => Step::Stay,
        }
    }
}

fn open(ends: Ends, frame: &[u8], outlets: &mut Outlets) -> Result<(u64, Flow), Refusal> {
    let (from, addresses) = outlets.routes.target(ends.outside).dial()?;
    let mut addresses = Addresses::new(addresses);
    let mut address = addresses.all.front().copied().ok_or(Refusal::Closed)?;
    let refused = |error: io::Error| Refusal::of(&error);
    let outer = loop {
        // A machine may have only one version of IP.
        match outlets.dial(Type::DGRAM, from, address) {
            Ok(socket) => break socket,
            Err(error) => address = addresses.after_refusal().ok_or_else(|| refused(error))?,
        }
    };
    let inner = outlets.far.run(move || {
        let socket = bound(Type::DGRAM, None, ends.outside)?;
        socket.connect(&SockAddr::from(ends.program))?;
        io::Result::Ok(socket)
    });
    let inner = inner.map_err(refused)?;
    let number = outlets.number();
    for (side, socket) in [&inner, &outer].into_iter().enumerate() {
        outlets.watch(socket, (number, side)).map_err(refused)?;
    }
    let flow = Flow {
        ends,
        inner,
        outer,
        from,
        addresses,
        first: frame.to_owned(),
        life: Life::new(Instant::now()),
    };
    Ok((number, flow))
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// The number of datagrams before other sockets have their turn.
const TURN: usize = 64;
/// The length of the longest datagram.
const LONGEST: usize = 65_536;
/// The port of DNS.
const DNS: u16 = 53;
/// RFC 4787 section 4.3 (REQ-5): no less than two minutes.
const IDLE: Duration = Duration::from_secs(120);
/// The idle time of flows to port 53: later, a client repeats its query from another port.
const IDLE_DNS: Duration = Duration::from_secs(30);
/// More time than a datagram takes from the gate to its socket.
const GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> (Addresses, [SocketAddr; 2]) {
        let both = ["127.0.0.1:9", "[::1]:9"].map(|address| address.parse().unwrap());
        (Addresses::new(both.into()), both)
    }

    #[test]
    fn a_datagram_that_an_address_refuses_goes_to_each_other_one_once() {
        let (mut addresses, [v4, v6]) = addresses();
        addresses.on_datagram(b"one");
        assert_eq!(addresses.after_refusal(), Some(v6));
        assert_eq!(addresses.latest, b"one");
        assert_eq!(addresses.after_refusal(), None);
        // The next datagram may find a socket at the first one again.
        addresses.on_datagram(b"two");
        assert_eq!(addresses.after_refusal(), Some(v4));
        assert_eq!(addresses.latest, b"two");
        assert_eq!(addresses.after_refusal(), None);
        assert_eq!(addresses.after_refusal(), None);
    }

    #[test]
    fn a_turn_ends_when_the_socket_is_empty_or_at_its_bound() {
        let mut reads = 0;
        let endless = Turn::of(|| {
            reads += 1;
            true
        });
        assert_eq!((endless, reads), (Turn::Over, 64));
        let mut left = 3;
        let short = Turn::of(|| {
            left -= 1;
            left > 0
        });
        assert_eq!((short, left), (Turn::Drained, 0));
    }

    #[test]
    fn an_address_that_has_answered_is_the_only_one() {
        let (mut addresses, [_, v6]) = addresses();
        addresses.on_datagram(b"one");
        assert_eq!(addresses.after_refusal(), Some(v6));
        addresses.on_answer();
        addresses.on_datagram(b"two");
        assert_eq!(addresses.after_refusal(), None);
        assert_eq!(
            (addresses.all.front(), addresses.latest.len()),
            (Some(&v6), 0)
        );
    }

    #[test]
    fn a_datagram_keeps_a_flow_that_is_about_to_close() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut life = Life::new(start);
        assert_eq!(life.on_tick(at(120), IDLE), Step::Stay);
        assert_eq!(life.on_tick(at(121), IDLE), Step::Close);
        // A datagram within the time of grace.
        life.on_datagram(at(122));
        assert_eq!(life.on_tick(at(124), IDLE), Step::Stay);
        assert_eq!(life.on_tick(at(242), IDLE), Step::Stay);
        assert_eq!(life.on_tick(at(243), IDLE), Step::Close);
        assert_eq!(life.on_tick(at(245), IDLE), Step::Stay);
        assert_eq!(life.on_tick(at(246), IDLE), Step::End);
    }
}
