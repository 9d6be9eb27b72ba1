//! The far end of a connection: connects to the destination outside, and moves bytes in both
//! directions.

use std::io;
use std::net::SocketAddr;

use rustix::event::epoll::EventFlags;
use sluice_core::{Span, Time};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::engine::{Id, Refusal, Side, Stage};
use crate::hub::Hub;
use crate::stream::Stream;

/// A connection to the outside.
pub struct Outside {
    id: Id,
    progress: Progress,
}

/// The stage of the connection.
enum Progress {
    Dialing(Dialing),
    /// Bytes flow.
    Carrying(Stream),
}

/// The attempts to connect to one of several addresses (RFC 8305): if one has no answer within
/// [`ATTEMPT_DELAY`], the next address is tried as well, and the first that answers is used.
struct Dialing {
    attempts: Vec<Stream>,
    /// Addresses to try next.
    rest: std::vec::IntoIter<SocketAddr>,
    /// The time of the next attempt.
    again: Time,
    /// The latest refusal.
    last: Refusal,
}

impl Outside {
    /// Starts to connect for a connection that requests it. Returns `None` if the outside has
    /// already refused.
    pub fn dial(id: Id, number: u64, hub: &mut Hub, now: Time) -> Option<Outside> {
        let addresses = hub.targets.get(&id).cloned().unwrap_or_default();
        let mut dialing = Dialing {
            attempts: Vec::new(),
            rest: by_turns(addresses).into_iter(),
            again: now,
            last: Refusal::Closed,
        };
        dialing.start(number, hub, now);
        if dialing.attempts.is_empty() {
            hub.engine.refuse(id, dialing.last);
            hub.engine.leave(id, Side::Far);
            return None;
        }
        let progress = Progress::Dialing(dialing);
        Some(Outside { id, progress })
    }

    /// Returns the connection.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Records an event of a socket. Attempts to connect share their number, so that the event may
    /// belong to each of them; one without it finds nothing to read or to write.
    pub fn note(&mut self, flags: EventFlags) {
        match &mut self.progress {
            Progress::Dialing(dialing) => {
                for attempt in &mut dialing.attempts {
                    attempt.note(flags);
                }
            }
            Progress::Carrying(stream) => stream.note(flags),
        }
    }

    /// Continues as far as possible. Returns the connection unless it has ended, and whether more
    /// could be done at once.
    pub fn pump(mut self, number: u64, hub: &mut Hub, now: Time) -> Option<(Outside, bool)> {
        if hub.engine.stage(self.id, Side::Far) == Stage::Reset {
            hub.attempts.remove(&number);
            hub.engine.leave(self.id, Side::Far);
            if let Progress::Carrying(stream) = self.progress {
                stream.reset();
            }
            return None;
        }
        if let Progress::Dialing(dialing) = &mut self.progress {
            let outcome = dialing.turn(number, hub, now);
            if outcome.is_some() {
                hub.attempts.remove(&number);
            }
            match outcome {
                None => return Some((self, false)),
                Some(Ok(stream)) => {
                    // The program decides which bytes are sent together.
                    let _ = stream.socket().set_tcp_nodelay(true);
                    hub.engine.accept(self.id);
                    self.progress = Progress::Carrying(stream);
                }
                Some(Err(refusal)) => {
                    hub.engine.refuse(self.id, refusal);
                    hub.engine.leave(self.id, Side::Far);
                    return None;
                }
            }
        }
        let Progress::Carrying(stream) = &mut self.progress else {
            return Some((self, false));
        };
        match carry(stream, self.id, hub) {
            Ok(_) if stream.is_over() => {
                hub.engine.leave(self.id, Side::Far);
                None
            }
            Ok(has_more) => Some((self, has_more)),
            Err(_) => {
                hub.engine.reset(self.id, Side::Far);
                hub.engine.leave(self.id, Side::Far);
                if let Progress::Carrying(stream) = self.progress {
                    stream.reset();
                }
                None
            }
        }
    }
}

impl Dialing {
    /// Looks at the attempts, and starts those that are due. Returns the connection, or the refusal of
    /// the last address, if either is known.
    fn turn(&mut self, number: u64, hub: &mut Hub, now: Time) -> Option<Result<Stream, Refusal>> {
        let mut index = 0;
        while let Some(attempt) = self.attempts.get(index) {
            match outcome(attempt) {
                None => index += 1,
                Some(Ok(())) => return Some(Ok(self.attempts.swap_remove(index))),
                Some(Err(error)) => {
                    drop(self.attempts.remove(index));
                    self.last = refusal(&error);
                    self.start(number, hub, now);
                }
            }
        }
        if now >= self.again {
            self.start(number, hub, now);
        }
        self.attempts.is_empty().then_some(Err(self.last))
    }

    /// Starts to connect to the next address that is not refused at once.
    fn start(&mut self, number: u64, hub: &mut Hub, now: Time) {
        for address in self.rest.by_ref() {
            let socket = connecting(address);
            match socket.and_then(|socket| Stream::new(socket, &hub.epoll, number)) {
                Ok(stream) => {
                    self.attempts.push(stream);
                    break;
                }
                Err(error) => self.last = refusal(&error),
            }
        }
        if self.rest.as_slice().is_empty() {
            self.again = Time::MAX;
            hub.attempts.remove(&number);
        } else {
            self.again = now.saturating_add(ATTEMPT_DELAY);
            hub.attempts.insert(number, self.again);
        }
    }
}

fn carry(stream: &mut Stream, id: Id, hub: &mut Hub) -> io::Result<bool> {
    let engine = &mut hub.engine;
    stream.pass_out(engine, id, Side::Far, |_| {})?;
    stream.pass_in(engine, id, Side::Far, &mut hub.scratch)
}

/// Returns whether a connection was established, if that is known.
fn outcome(stream: &Stream) -> Option<io::Result<()>> {
    match stream.socket().take_error() {
        Ok(None) => match stream.socket().peer_addr() {
            Ok(_) => Some(Ok(())),
            // The result is not known yet.
            Err(_) => None,
        },
        Ok(Some(error)) | Err(error) => Some(Err(error)),
    }
}

/// Returns addresses with the versions of IP by turns, the first address first (RFC 8305 section 4).
fn by_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == is_v6);
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [first.next(), other.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

fn connecting(address: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    match socket.connect(&SockAddr::from(address)) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// Returns the refusal that the program sees for an error of `connect`.
fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Refusal::Closed,
        io::ErrorKind::NetworkUnreachable => Refusal::Network,
        io::ErrorKind::PermissionDenied => Refusal::Prohibited,
        io::ErrorKind::TimedOut => Refusal::Silence,
        _ => Refusal::Host,
    }
}

/// The time after which the next address is tried as well (RFC 8305 section 5).
const ATTEMPT_DELAY: Span = Span::from_ms(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_ip_take_turns() {
        let text = ["[::1]:1", "[::2]:1", "[::3]:1", "192.0.2.1:1"];
        let ordered = by_turns(text.map(|address| address.parse().unwrap()).into());
        let shown: Vec<String> = ordered.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["[::1]:1", "192.0.2.1:1", "[::2]:1", "[::3]:1"]);
        assert!(by_turns(Vec::new()).is_empty());
    }
}
