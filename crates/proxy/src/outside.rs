//! The far end of a connection: connects to the destination outside, and moves bytes in both
//! directions.

use std::io;
use std::net::SocketAddr;

use rustix::event::epoll::EventFlags;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::engine::{Id, Refusal, Side, Stage};
use crate::hub::Hub;
use crate::stream::Stream;

/// A connection to the outside.
pub struct Outside {
    id: Id,
    stream: Stream,
    is_dialing: bool,
    /// Addresses to try if this one refuses.
    rest: std::vec::IntoIter<SocketAddr>,
}

impl Outside {
    /// Starts to connect for a connection that requests it. Returns `None` if the outside has
    /// already refused.
    pub fn dial(id: Id, number: u64, hub: &mut Hub) -> Option<Outside> {
        let addresses = hub.targets.get(&id).cloned().unwrap_or_default();
        let mut rest = addresses.into_iter();
        let stream = next(&mut rest, number, Refusal::Closed, hub);
        match stream {
            Ok(stream) => Some(Outside {
                id,
                stream,
                is_dialing: true,
                rest,
            }),
            Err(refusal) => {
                hub.engine.refuse(id, refusal);
                hub.engine.leave(id, Side::Far);
                None
            }
        }
    }

    /// Returns the connection.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Records an event of the socket.
    pub fn note(&mut self, flags: EventFlags) {
        self.stream.note(flags);
    }

    /// Continues as far as possible. Returns the connection unless it has ended, and whether more
    /// could be done at once.
    pub fn pump(mut self, number: u64, hub: &mut Hub) -> Option<(Outside, bool)> {
        if hub.engine.stage(self.id, Side::Far) == Stage::Reset {
            self.stream.reset();
            hub.engine.leave(self.id, Side::Far);
            return None;
        }
        if self.is_dialing {
            match self.outcome() {
                None => return Some((self, false)),
                Some(Ok(())) => {
                    self.is_dialing = false;
                    // The program decides which bytes are sent together.
                    let _ = self.stream.socket().set_tcp_nodelay(true);
                    hub.engine.accept(self.id);
                }
                Some(Err(error)) => match next(&mut self.rest, number, refusal(&error), hub) {
                    Ok(stream) => {
                        self.stream = stream;
                        return Some((self, false));
                    }
                    Err(refusal) => {
                        hub.engine.refuse(self.id, refusal);
                        hub.engine.leave(self.id, Side::Far);
                        return None;
                    }
                },
            }
        }
        match self.carry(hub) {
            Ok(_) if self.stream.is_over() => {
                hub.engine.leave(self.id, Side::Far);
                None
            }
            Ok(has_more) => Some((self, has_more)),
            Err(_) => {
                hub.engine.reset(self.id, Side::Far);
                hub.engine.leave(self.id, Side::Far);
                self.stream.reset();
                None
            }
        }
    }

    fn carry(&mut self, hub: &mut Hub) -> io::Result<bool> {
        let engine = &mut hub.engine;
        self.stream.pass_out(engine, self.id, Side::Far, |_| {})?;
        self.stream
            .pass_in(engine, self.id, Side::Far, &mut hub.scratch)
    }

    /// Returns whether the connection was established, if that is known.
    fn outcome(&self) -> Option<io::Result<()>> {
        match self.stream.socket().take_error() {
            Ok(None) => match self.stream.socket().peer_addr() {
                Ok(_) => Some(Ok(())),
                // The result is not known yet.
                Err(_) => None,
            },
            Ok(Some(error)) | Err(error) => Some(Err(error)),
        }
    }
}

/// Starts to connect to the next address.
fn next(
    rest: &mut std::vec::IntoIter<SocketAddr>,
    number: u64,
    mut last: Refusal,
    hub: &Hub,
) -> Result<Stream, Refusal> {
    for address in rest {
        let stream = connecting(address).and_then(|socket| Stream::new(socket, &hub.epoll, number));
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) => last = refusal(&error),
        }
    }
    Err(last)
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
