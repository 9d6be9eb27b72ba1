//! A non-blocking socket whose events are edge-triggered.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use sluice_exec::keep_alive;
use socket2::Socket;

use crate::engine::{Engine, Id, Side};

/// A connected socket and its state.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    can_read: bool,
    can_write: bool,
    /// Whether the peer has finished sending.
    has_ended: bool,
    /// Whether the peer was informed that no more bytes follow.
    is_shut: bool,
}

impl Stream {
    /// Watches a socket: `epoll` reports its events under `number`.
    ///
    /// # Errors
    /// When the kernel cannot watch more.
    pub fn new(socket: Socket, epoll: &OwnedFd, number: u64) -> io::Result<Stream> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, socket.as_fd(), EventData::new_u64(number), flags)?;
        keep_alive(&socket);
        Ok(Stream {
            socket,
            can_read: false,
            can_write: false,
            has_ended: false,
            is_shut: false,
        })
    }

    /// Records an event.
    pub fn note(&mut self, flags: EventFlags) {
        let ends = EventFlags::HUP | EventFlags::ERR;
        self.can_read |= flags.intersects(EventFlags::IN | EventFlags::RDHUP | ends);
        self.can_write |= flags.intersects(EventFlags::OUT | ends);
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns whether there may be something to read.
    pub fn can_read(&self) -> bool {
        self.can_read && !self.has_ended
    }

    /// Returns whether the peer has finished sending.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.has_ended && self.is_shut
    }

    /// Reads bytes. Returns `None` if there are none, and 0 at the end.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.socket).read(buffer) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(Some(0));
                }
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.can_read = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes as much as the socket accepts. Returns the number of bytes.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn write(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if !self.can_write || first.is_empty() {
            return Ok(0);
        }
        loop {
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            match (&self.socket).write_vectored(&slices) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.can_write = false;
                    return Ok(0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finishes sending.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn shut(&mut self) -> io::Result<()> {
        if !self.is_shut {
            self.is_shut = true;
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        // socket(7): without time to linger, closing sends a reset.
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// Writes the bytes that have crossed the link to `side`, and gives those that were written to
    /// `written`.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn pass_out(
        &mut self,
        engine: &mut Engine,
        id: Id,
        side: Side,
        mut written: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        loop {
            let (first, second) = engine.readable(id, side);
            let count = self.write(first, second)?;
            if count == 0 {
                break;
            }
            let of_first = count.min(first.len());
            written(&first[..of_first]);
            written(&second[..count - of_first]);
            engine.consume(id, side, count);
        }
        if engine.has_ended(id, side) {
            self.shut()?;
        }
        Ok(())
    }

    /// Sends the socket's bytes across the link, as far as its send buffer has room. Returns
    /// whether more could be read at once.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn pass_in(
        &mut self,
        engine: &mut Engine,
        id: Id,
        side: Side,
        scratch: &mut [u8],
    ) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let room = engine.room(id, side).min(scratch.len());
            if room == 0 || !self.can_read() {
                return Ok(false);
            }
            match self.read(&mut scratch[..room])? {
                Some(0) => engine.close(id, side),
                Some(count) => engine.write(id, side, &scratch[..count]),
                None => {}
            }
        }
        Ok(true)
    }
}

/// The number of reads before other connections have their turn.
const ROUNDS: usize = 8;
