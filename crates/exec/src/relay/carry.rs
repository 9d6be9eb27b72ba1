//! Moves bytes between two connected sockets in both directions, until both have ended.
//!
//! Bytes move through a kernel pipe per direction (splice(2)) and are never copied to this process.
//! The end of one direction is passed on to its destination. A reset ends both directions.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use socket2::Socket;

/// Two sockets and the bytes between them.
pub struct Carry {
    /// The sockets. Events of both lead to [`Carry::pump`].
    pub sockets: [Socket; 2],
    /// The direction from the first socket to the second, and the one back.
    ways: [Half; 2],
}

/// One direction.
struct Half {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Bytes in the pipe.
    held: usize,
    /// Whether the source has ended.
    has_ended: bool,
    /// Whether the end was passed on to the destination.
    is_shut: bool,
}

/// The result of [`Carry::pump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing to do until the next event.
    Waiting,
    /// More bytes could be moved at once, but other connections should have their turn first.
    More,
    /// Both directions have ended.
    Ended,
}

impl Carry {
    /// Joins two sockets, which do not block.
    ///
    /// # Errors
    /// The process has no free descriptors. Both connections are reset.
    pub fn new(first: Socket, second: Socket) -> io::Result<Carry> {
        let ways = Half::new().and_then(|there| Ok([there, Half::new()?]));
        let sockets = [first, second];
        match ways {
            Ok(ways) => {
                for socket in &sockets {
                    // The programs at both ends decide which bytes are sent together.
                    let _ = socket.set_tcp_nodelay(true);
                }
                Ok(Carry { sockets, ways })
            }
            Err(error) => {
                sockets.into_iter().for_each(reset);
                Err(error)
            }
        }
    }

    /// Moves as many bytes as possible without blocking.
    ///
    /// # Errors
    /// Either connection has failed; then call [`Carry::reset`].
    pub fn pump(&mut self) -> io::Result<Progress> {
        let [first, second] = &self.sockets;
        let [there, back] = &mut self.ways;
        let mut is_moving = there.pump(first, second)?;
        is_moving |= back.pump(second, first)?;
        Ok(if is_moving {
            Progress::More
        } else if self.ways.iter().all(|way| way.is_shut) {
            Progress::Ended
        } else {
            Progress::Waiting
        })
    }

    /// Ends both connections with a reset.
    pub fn reset(self) {
        for socket in self.sockets {
            reset(socket);
        }
    }

    /// Returns whether bytes from the first socket still wait for the second.
    pub fn is_sending(&self) -> bool {
        self.ways[0].held > 0
    }
}

/// Ends a connection with a reset.
pub fn reset(socket: Socket) {
    // socket(7): without time to linger, closing sends a reset.
    let _ = socket.set_linger(Some(Duration::ZERO));
}

impl Half {
    fn new() -> io::Result<Half> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The system may not allow larger pipes; then the default size is used.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE);
        Ok(Half {
            reader,
            writer,
            held: 0,
            has_ended: false,
            is_shut: false,
        })
    }

    /// Moves bytes until both ends would block, or for some rounds. Returns whether more could be
    /// moved.
    fn pump(&mut self, from: &Socket, to: &Socket) -> io::Result<bool> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        for _ in 0..ROUNDS {
            let mut has_moved = false;
            if !self.has_ended {
                // The pipe may be full although it holds few bytes; the kernel then also reports
                // that it would block.
                match splice(from, None, &self.writer, None, PIPE, flags) {
                    Ok(0) => self.has_ended = true,
                    Ok(count) => {
                        self.held += count;
                        has_moved = true;
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.held > 0 {
                match splice(&self.reader, None, to, None, self.held, flags) {
                    Ok(count) => {
                        self.held -= count;
                        has_moved |= count > 0;
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.has_ended && self.held == 0 && !self.is_shut {
                to.shutdown(Shutdown::Write)?;
                self.is_shut = true;
            }
            if !has_moved {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The size of a pipe in bytes.
const PIPE: usize = 256 << 10;
/// The number of rounds before other connections have their turn.
const ROUNDS: usize = 16;
