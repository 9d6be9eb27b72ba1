//! TCP connections: from the SYN to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Socket, Type};

use super::carry::{Carry, Progress, reset};
use super::route::{Refusal, loopback};
use super::{Dial, Entries, Outlets, RelayError, Token, bound};
use crate::gate::{Ends, Held};
use crate::network::Place;

/// All connections.
#[derive(Default)]
pub struct Connections {
    entries: Entries<Entry>,
    /// Connections whose SYN is held, or whose handshake with the program is in progress.
    opening: BTreeMap<Ends, Opening>,
    /// Listeners of the far side.
    listeners: BTreeMap<SocketAddr, u64>,
    /// Connections that are established at both ends.
    carried: BTreeMap<Ends, u64>,
    /// Entries that could move more bytes at once.
    more: Vec<u64>,
    /// Entries with bytes of the program that wait for the outside.
    sending: BTreeSet<u64>,
    /// Entries one of whose connections has failed, while bytes that arrived before still wait for the
    /// other one.
    failing: BTreeMap<u64, Failing>,
    /// Entries with connections that could not be accepted, because the process had no free
    /// descriptor.
    waiting: BTreeSet<u64>,
    /// Connections that were refused for the same reason.
    refused: u64,
}

/// A connection that has failed, with bytes ahead of the reset.
#[derive(Clone, Copy)]
struct Failing {
    /// When such bytes have last moved.
    since: Instant,
    /// How many were left then.
    waiting: u64,
}

/// The entries that wait for events.
enum Entry {
    /// Connects outside for a held SYN.
    Dialing {
        ends: Ends,
        socket: Socket,
        from: Dial,
        /// Addresses to try after this one.
        rest: Vec<SocketAddr>,
    },
    /// Accepts the program's connections to one address and port.
    Listener {
        address: SocketAddr,
        socket: Socket,
        /// Handshakes in progress.
        opening: usize,
    },
    /// Moves bytes.
    Carry { ends: Option<Ends>, carry: Carry },
    /// Accepts connections on the machine's loopback for the program's port.
    Forward { socket: Socket, towards: SocketAddr },
    /// Accepts the forwarded connections in the program's namespace, behind the link.
    Arrival { socket: Socket, port: u16 },
    /// Connects to the destination of an accepted socket.
    Joining {
        accepted: Socket,
        socket: Socket,
        from: Dial,
        rest: Vec<SocketAddr>,
    },
}

/// A connection that is not established at the program yet.
enum Opening {
    /// The outside has not answered; the SYN waits.
    Dialing { frame: Vec<u8> },
    /// The SYN was released.
    Released { outside: Socket, since: Instant },
}

impl Connections {
    /// Handles a SYN.
    pub fn on_syn(&mut self, held: Held, outlets: &mut Outlets) {
        let Held { ends, frame, .. } = held;
        match self.opening.get_mut(&ends) {
            Some(Opening::Dialing { frame: waiting }) => {
                // The program may have given up and tried again from the same port.
                *waiting = frame;
                return;
            }
            Some(Opening::Released { .. }) => return outlets.release(&frame),
            None => {}
        }
        if self.carried.contains_key(&ends) {
            // This is a late copy of a SYN, which the kernel handles.
            return outlets.release(&frame);
        }
        let (from, addresses) = match outlets.routes.target(ends.outside).dial() {
            Ok(target) => target,
            Err(refusal) => return outlets.refuse(&frame, refusal),
        };
        self.opening.insert(ends, Opening::Dialing { frame });
        self.dial(ends, from, addresses, Refusal::Closed, outlets);
    }

    /// Tries the first of `addresses`. If there is none, refuses the SYN with `last`.
    fn dial(
        &mut self,
        ends: Ends,
        from: Dial,
        addresses: Vec<SocketAddr>,
        mut last: Refusal,
        outlets: &mut Outlets,
    ) {
        let mut rest = addresses.into_iter();
        let mut has_none = false;
        while let Some(address) = rest.next() {
            let number = outlets.number();
            let socket = outlets.dial(Type::STREAM, from, address);
            let socket = socket.and_then(|socket| {
                outlets.watch(&socket, (number, 0))?;
                Ok(socket)
            });
            match socket {
                Ok(socket) => {
                    let rest = rest.collect();
                    let entry = Entry::Dialing {
                        ends,
                        socket,
                        from,
                        rest,
                    };
                    self.entries.insert(number, entry);
                    return;
                }
                Err(error) => {
                    has_none = has_no_descriptor(&error);
                    last = Refusal::of(&error);
                }
            }
        }
        self.refused += u64::from(has_none);
        if let Some(Opening::Dialing { frame }) = self.opening.remove(&ends) {
            outlets.refuse(&frame, last);
        }
    }

    /// Releases the SYN of a connection that the outside has accepted.
    fn open(&mut self, ends: Ends, outside: Socket, outlets: &mut Outlets) {
        let Some(Opening::Dialing { frame }) = self.opening.remove(&ends) else {
            return;
        };
        if let Err(error) = self.listen(ends.outside, outlets) {
            self.refused += u64::from(has_no_descriptor(&error));
            reset(outside);
            return outlets.refuse(&frame, Refusal::Closed);
        }
        let since = Instant::now();
        self.opening
            .insert(ends, Opening::Released { outside, since });
        outlets.release(&frame);
    }

    /// Makes the far side listen for one more connection to `address`.
    fn listen(&mut self, address: SocketAddr, outlets: &mut Outlets) -> io::Result<()> {
        if let Some(number) = self.listeners.get(&address)
            && let Some(Entry::Listener { opening, .. }) = self.entries.get_mut(number)
        {
            *opening += 1;
            return Ok(());
        }
        let socket = outlets.far.run(move || {
            let socket = bound(Type::STREAM, None, address)?;
            socket.listen(BACKLOG)?;
            io::Result::Ok(socket)
        })?;
        let number = outlets.number();
        outlets.watch(&socket, (number, 0))?;
        let entry = Entry::Listener {
            address,
            socket,
            opening: 1,
        };
        self.entries.insert(number, entry);
        self.listeners.insert(address, number);
        Ok(())
    }

    /// Handles an event. Returns whether it belongs to a connection.
    pub fn on_event(&mut self, (number, _): Token, outlets: &mut Outlets) -> bool {
        match self.entries.get_mut(&number) {
            None => return false,
            Some(Entry::Carry { .. }) => self.pump(number),
            Some(Entry::Dialing { .. } | Entry::Joining { .. }) => {
                self.on_dialed(number, outlets);
            }
            Some(Entry::Listener { .. }) => self.accept(number, outlets),
            Some(Entry::Forward { socket, towards }) => {
                let (accepted, towards) = (accept_all(socket, number, &mut self.waiting), *towards);
                for accepted in accepted {
                    self.join(accepted, Dial::Far, vec![towards], outlets);
                }
            }
            Some(Entry::Arrival { socket, port }) => {
                let (accepted, port) = (accept_all(socket, number, &mut self.waiting), *port);
                let addresses = loopback(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                for accepted in accepted {
                    self.join(accepted, Dial::Near, addresses.clone(), outlets);
                }
            }
        }
        true
    }

    /// Checks whether a connection was established.
    fn on_dialed(&mut self, number: u64, outlets: &mut Outlets) {
        let Some(Entry::Dialing { socket, .. } | Entry::Joining { socket, .. }) =
            self.entries.get(&number)
        else {
            return;
        };
        let outcome = match socket.take_error() {
            Ok(None) => match socket.peer_addr() {
                Ok(_) => Ok(()),
                // The connection is not established yet: the first event only reports that the
                // socket is new.
                Err(_) => return,
            },
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match (self.entries.remove(&number), outcome) {
            (Some(Entry::Dialing { ends, socket, .. }), Ok(())) => {
                self.open(ends, socket, outlets);
            }
            (
                Some(Entry::Dialing {
                    ends, from, rest, ..
                }),
                Err(error),
            ) => {
                self.dial(ends, from, rest, Refusal::of(&error), outlets);
            }
            (
                Some(Entry::Joining {
                    accepted, socket, ..
                }),
                Ok(()),
            ) => {
                self.carry(None, accepted, socket, outlets);
            }
            (
                Some(Entry::Joining {
                    accepted,
                    from,
                    rest,
                    ..
                }),
                Err(_),
            ) => self.join(accepted, from, rest, outlets),
            _ => {}
        }
    }

    /// Accepts the connections of a listener on the far side, and joins each to its outside socket.
    fn accept(&mut self, number: u64, outlets: &mut Outlets) {
        let Some(Entry::Listener {
            address, socket, ..
        }) = self.entries.get(&number)
        else {
            return;
        };
        let address = *address;
        for accepted in accept_all(socket, number, &mut self.waiting) {
            let program = accepted.peer_addr().ok().and_then(|peer| peer.as_socket());
            let ends = program.map(|program| Ends {
                program,
                outside: address,
            });
            let Some(ends) = ends else {
                reset(accepted);
                continue;
            };
            match self.opening.remove(&ends) {
                Some(Opening::Released { outside, .. }) => {
                    self.carry(Some(ends), accepted, outside, outlets);
                    self.close_listener(address);
                }
                other => {
                    self.opening.extend(other.map(|other| (ends, other)));
                    reset(accepted);
                }
            }
        }
        if self.waiting.contains(&number) {
            self.give_up(address);
        }
    }

    /// Resets the newest connection to `address` that is not joined yet. Its program's end can only be
    /// accepted, and reset, when a descriptor is free: that of the outside becomes free here, and
    /// without any other handshake the listener closes, which also resets it.
    fn give_up(&mut self, address: SocketAddr) {
        let released = self
            .opening
            .iter()
            .filter_map(|(ends, opening)| match opening {
                Opening::Released { since, .. } if ends.outside == address => Some((*since, *ends)),
                _ => None,
            });
        let Some((_, ends)) = released.max_by_key(|(since, _)| *since) else {
            return;
        };
        if let Some(Opening::Released { outside, .. }) = self.opening.remove(&ends) {
            reset(outside);
            self.refused += 1;
            self.close_listener(address);
        }
    }

    /// Closes the listener of an address after its last handshake.
    fn close_listener(&mut self, address: SocketAddr) {
        let Some(number) = self.listeners.get(&address).copied() else {
            return;
        };
        if let Some(Entry::Listener { opening, .. }) = self.entries.get_mut(&number) {
            *opening -= 1;
            if *opening == 0 {
                self.entries.remove(&number);
                self.listeners.remove(&address);
            }
        }
    }

    /// Connects an accepted socket to its destination.
    fn join(
        &mut self,
        accepted: Socket,
        from: Dial,
        addresses: Vec<SocketAddr>,
        outlets: &mut Outlets,
    ) {
        let mut rest = addresses.into_iter();
        let mut has_none = false;
        while let Some(address) = rest.next() {
            let number = outlets.number();
            let socket = outlets.dial(Type::STREAM, from, address);
            let watched = socket.and_then(|socket| {
                outlets.watch(&socket, (number, 0))?;
                Ok(socket)
            });
            match watched {
                Ok(socket) => {
                    let entry = Entry::Joining {
                        accepted,
                        socket,
                        from,
                        rest: rest.collect(),
                    };
                    self.entries.insert(number, entry);
                    return;
                }
                Err(error) => has_none = has_no_descriptor(&error),
            }
        }
        self.refused += u64::from(has_none);
        reset(accepted);
    }

    /// Starts to move bytes.
    fn carry(&mut self, ends: Option<Ends>, first: Socket, second: Socket, outlets: &mut Outlets) {
        let number = outlets.number();
        let Ok(carry) = Carry::new(first, second) else {
            self.refused += 1;
            return;
        };
        let is_watched = carry
            .sockets
            .iter()
            .enumerate()
            .try_for_each(|(side, socket)| {
                // A connected socket is still watched under the number of its entry `Dialing`.
                outlets.unwatch(socket);
                outlets.watch(socket, (number, side))
            });
        if is_watched.is_err() {
            return carry.reset();
        }
        self.carried.extend(ends.map(|ends| (ends, number)));
        self.entries.insert(number, Entry::Carry { ends, carry });
        self.pump(number);
    }

    fn pump(&mut self, number: u64) {
        let Some(Entry::Carry { carry, .. }) = self.entries.get_mut(&number) else {
            return;
        };
        let progress = carry.pump();
        match carry.is_sending() {
            true => self.sending.insert(number),
            false => self.sending.remove(&number),
        };
        match progress {
            Progress::Waiting => {}
            Progress::More => self.more.push(number),
            Progress::Ended => drop(self.remove_carry(number)),
            Progress::Failing => {
                let waiting = carry.waiting();
                let since = Instant::now();
                let failing = Failing { since, waiting };
                let known = self.failing.entry(number).or_insert(failing);
                if waiting < known.waiting {
                    *known = failing;
                }
            }
            Progress::Failed => self.reset_carry(number),
        }
    }

    fn reset_carry(&mut self, number: u64) {
        if let Some(carry) = self.remove_carry(number) {
            carry.reset();
        }
    }

    fn remove_carry(&mut self, number: u64) -> Option<Carry> {
        self.failing.remove(&number);
        self.sending.remove(&number);
        match self.entries.remove(&number)? {
            Entry::Carry { ends, carry } => {
                if let Some(ends) = ends {
                    self.carried.remove(&ends);
                }
                Some(carry)
            }
            _ => None,
        }
    }

    /// Returns whether [`Connections::go_on`] has something to do.
    pub fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// Returns how long [`Connections::go_on`] may wait at most.
    pub fn longest_wait(&self) -> Duration {
        match self.failing.is_empty() {
            true => Duration::MAX,
            false => LOOK,
        }
    }

    /// Continues the entries whose turn ended before all their bytes were moved, and resets those that
    /// have failed when nothing is ahead of the reset any more.
    pub fn go_on(&mut self) {
        for number in std::mem::take(&mut self.more) {
            self.pump(number);
        }
        let failing = self.failing.iter().map(|(n, failing)| (*n, failing.since));
        let failing: Vec<(u64, Instant)> = failing.collect();
        for (number, since) in failing {
            match since.elapsed() < LAST_BYTES {
                true => self.pump(number),
                false => self.reset_carry(number),
            }
        }
    }

    /// Returns whether bytes of the program wait for the outside.
    pub fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Returns how many connections were refused because the process had no free descriptor.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets handshakes that the program did not complete, and accepts what could not be accepted.
    pub fn on_tick(&mut self, now: Instant, outlets: &mut Outlets) {
        for number in std::mem::take(&mut self.waiting) {
            self.on_event((number, 0), outlets);
        }
        let is_old = |opening: &Opening| match opening {
            Opening::Released { since, .. } => now.duration_since(*since) > HANDSHAKE,
            Opening::Dialing { .. } => false,
        };
        let openings = self.opening.iter();
        let old = openings.filter(|(_, opening)| is_old(opening));
        let old: Vec<Ends> = old.map(|(ends, _)| *ends).collect();
        for ends in old {
            if let Some(Opening::Released { outside, .. }) = self.opening.remove(&ends) {
                reset(outside);
                self.close_listener(ends.outside);
            }
        }
    }

    /// Forwards a port of the machine's loopback, across the link, to the same port of the program:
    /// a listener in the program's namespace connects to the program's loopback. Returns the address of
    /// this listener.
    pub fn forward(&mut self, port: u16, outlets: &mut Outlets) -> Result<SocketAddr, RelayError> {
        let kernel = |source| RelayError::Kernel {
            step: "listen beside the program for --forward",
            source,
        };
        let [address, _] = Place::Program.addresses();
        let arrival = outlets.near.run(move || {
            let socket = bound(Type::STREAM, None, SocketAddr::new(address, 0))?;
            socket.listen(BACKLOG)?;
            io::Result::Ok(socket)
        });
        let socket = arrival.map_err(kernel)?;
        let towards = socket.local_addr().map_err(kernel)?.as_socket();
        let towards = towards.expect("the socket is bound to an IP address");
        let number = outlets.number();
        outlets.watch(&socket, (number, 0)).map_err(kernel)?;
        self.entries.insert(number, Entry::Arrival { socket, port });
        for (ip, is_needed) in [
            (Ipv4Addr::LOCALHOST.into(), true),
            // A machine without IPv6 has one loopback address.
            (Ipv6Addr::LOCALHOST.into(), false),
        ] {
            let address = SocketAddr::new(ip, port);
            let number = outlets.number();
            let listener = bound(Type::STREAM, None, address).and_then(|socket| {
                socket.listen(BACKLOG)?;
                outlets.watch(&socket, (number, 0))?;
                Ok(socket)
            });
            match listener {
                Ok(socket) => {
                    self.entries
                        .insert(number, Entry::Forward { socket, towards });
                }
                Err(source) if is_needed || source.kind() == io::ErrorKind::AddrInUse => {
                    return Err(RelayError::Forward { address, source });
                }
                Err(_) => {}
            }
        }
        Ok(towards)
    }
}

/// Whether an error is that the process, or the system, may open no more files.
fn has_no_descriptor(error: &io::Error) -> bool {
    let error = rustix::io::Errno::from_io_error(error);
    matches!(
        error,
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

/// Returns every connection that waits to be accepted. If the process has no free descriptor, the
/// listener, which is entry `number`, joins `waiting`.
fn accept_all(listener: &Socket, number: u64, waiting: &mut BTreeSet<u64>) -> Vec<Socket> {
    let mut accept = || loop {
        let accepted = listener.accept().map(|(socket, _)| socket);
        match accepted {
            Ok(socket) if socket.set_nonblocking(true).is_ok() => return Some(socket),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if has_no_descriptor(&error) {
                    waiting.insert(number);
                }
                return None;
            }
        }
    };
    std::iter::from_fn(&mut accept).collect()
}

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// The time after which a connection is reset if the bytes ahead of the reset do not move: the program
/// may never read them.
const LAST_BYTES: Duration = Duration::from_secs(10);
/// The interval between checks whether they have left.
const LOOK: Duration = Duration::from_millis(5);
/// The time within which a program must complete its handshake: as long as Linux retries (tcp(7),
/// `tcp_syn_retries` 6 is 127 s).
const HANDSHAKE: Duration = Duration::from_secs(130);

#[cfg(test)]
mod tests {
    use super::super::carry::tests::connection;
    use super::*;
    use std::io::{Read as _, Write as _};

    /// The relay asks this after each event, and there may be very many idle connections.
    #[test]
    fn bytes_that_wait_for_the_outside_are_known_until_they_have_left() {
        let ([program, first], [second, server]) = (connection(), connection());
        let carry = Carry::new(first, second).unwrap();
        let mut connections = Connections::default();
        let entry = Entry::Carry { ends: None, carry };
        connections.entries.insert(1, entry);
        let mut bytes = vec![0; 1 << 16];
        for _ in 0..2 {
            assert!(!connections.is_sending());
            while !connections.is_sending() {
                let _ = (&program).write(&bytes);
                connections.pump(1);
            }
            while connections.is_sending() {
                let _ = (&server).read(&mut bytes);
                connections.pump(1);
            }
        }
        while !connections.is_sending() {
            let _ = (&program).write(&bytes);
            connections.pump(1);
        }
        connections.reset_carry(1);
        assert!(!connections.is_sending());
    }
}
