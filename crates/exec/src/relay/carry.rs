//! Moves bytes between two connected sockets in both directions, until both have ended.
//!
//! Bytes move through a kernel pipe per direction (splice(2)) and are never copied to this process.
//! The end of one direction is passed on to its destination. A reset ends both directions, behind the
//! bytes that have arrived ahead of it.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use sluice_net::socket::TcpInfo;
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
    source: Source,
    /// Whether the end was passed on to the destination.
    is_shut: bool,
    /// Whether no byte will move any more, because one of the sockets has failed.
    has_failed: bool,
}

/// What the source of a direction may still send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Open,
    Ended,
    /// The connection has failed. All that arrived before is in the pipe.
    Failed,
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
    /// A connection has failed, but bytes that arrived before still wait for the other one. Not every
    /// change is reported by an event.
    Failing,
    /// A connection has failed; call [`Carry::reset`].
    Failed,
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
    pub fn pump(&mut self) -> Progress {
        let [first, second] = &self.sockets;
        let [there, back] = &mut self.ways;
        let mut is_moving = there.pump(first, second, !back.has_failed);
        is_moving |= back.pump(second, first, !there.has_failed);
        if back.has_failed {
            is_moving |= there.pump(first, second, false);
        }
        // Also while bytes ahead of a reset are still in the pipe.
        let fails = |way: &Half| way.has_failed || way.source == Source::Failed;
        let has_failed = fails(there) || fails(back);
        if is_moving {
            Progress::More
        } else if has_failed && self.waiting() > 0 {
            Progress::Failing
        } else if has_failed {
            Progress::Failed
        } else if self.ways.iter().all(|way| way.is_shut) {
            Progress::Ended
        } else {
            Progress::Waiting
        }
    }

    /// Ends both connections with a reset.
    pub fn reset(self) {
        for socket in self.sockets {
            reset(socket);
        }
    }

    /// Returns how many bytes still wait for their destination.
    pub fn waiting(&self) -> u64 {
        let held: usize = self.ways.iter().map(|way| way.held).sum();
        held as u64 + self.sockets.iter().map(unsent).sum::<u64>()
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

/// Returns how many bytes of a connection the kernel has that it has not sent yet. A reset would discard
/// them, although they would be ahead of it on a path without this relay.
fn unsent(socket: &Socket) -> u64 {
    TcpInfo::read(socket).map_or(0, |info| u64::from(info.unsent_bytes()))
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
            source: Source::Open,
            is_shut: false,
            has_failed: false,
        })
    }

    /// Moves bytes until both ends would block, or for some rounds. Returns whether more could be
    /// moved. If the other direction has failed, a reset follows, and the end is not passed on
    /// (`passes_end`): the kernel reports a reset once, and then shows it as an end.
    fn pump(&mut self, from: &Socket, to: &Socket, passes_end: bool) -> bool {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        for _ in 0..ROUNDS {
            if self.has_failed {
                return false;
            }
            let mut has_moved = false;
            if self.source == Source::Open {
                // The pipe may be full although it holds few bytes; the kernel then also reports
                // that it would block.
                match splice(from, None, &self.writer, None, PIPE, flags) {
                    Ok(0) => self.source = Source::Ended,
                    Ok(count) => {
                        self.held += count;
                        has_moved = true;
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(_) => self.source = Source::Failed,
                }
            }
            if self.held > 0 {
                match splice(&self.reader, None, to, None, self.held, flags) {
                    Ok(count) => {
                        self.held -= count;
                        has_moved |= count > 0;
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(_) => {
                        self.held = 0;
                        self.source = Source::Failed;
                    }
                }
            }
            if self.held == 0 {
                match self.source {
                    Source::Failed => self.has_failed = true,
                    Source::Ended if passes_end && !self.is_shut => {
                        self.is_shut = to.shutdown(Shutdown::Write).is_ok();
                        self.has_failed = !self.is_shut;
                    }
                    Source::Open | Source::Ended => {}
                }
            }
            if !has_moved {
                return false;
            }
        }
        true
    }
}

/// The size of a pipe in bytes.
const PIPE: usize = 256 << 10;
/// The number of rounds before other connections have their turn.
const ROUNDS: usize = 16;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// Returns both ends of a connection, which do not block.
    pub(in super::super) fn connection() -> [Socket; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        [near, far].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            Socket::from(stream)
        })
    }

    #[test]
    fn an_answer_ahead_of_a_reset_arrives_ahead_of_it() {
        let ([program, first], [second, server]) = (connection(), connection());
        let mut carry = Carry::new(first, second).unwrap();
        // The server does not read: the upload fills all buffers, and the pipe.
        let upload = vec![0; 1 << 16];
        loop {
            let written = (&program).write(&upload);
            let has_written = written.is_ok_and(|count| count > 0);
            if carry.pump() == Progress::Waiting && !has_written && carry.is_sending() {
                break;
            }
        }
        (&server).write_all(b"413").unwrap();
        // RFC 9293 section 3.6.1 (SHLD-3): closing with unread bytes sends a reset.
        drop(server);
        let mut failure = [PollFd::new(&carry.sockets[1], PollFlags::empty())];
        poll(&mut failure, None).unwrap();

        let is_open = |progress| matches!(progress, Progress::More | Progress::Failing);
        while is_open(carry.pump()) {}
        assert_eq!(carry.pump(), Progress::Failed);
        carry.reset();
        program.set_nonblocking(false).unwrap();
        let mut answer = Vec::new();
        let end = (&program).read_to_end(&mut answer).unwrap_err();
        assert_eq!(answer, b"413");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    }
    #[test]
    fn a_reset_behind_bytes_that_are_stuck_is_noticed() {
        let ([program, first], [second, mut server]) = (connection(), connection());
        let mut carry = Carry::new(first, second).unwrap();
        // The server does not read: from some point on, bytes stay in the pipe, which is not full.
        while !carry.is_sending() {
            (&program).write_all(&[0; 4096]).unwrap();
            carry.pump();
        }
        reset(program);
        let mut failure = [PollFd::new(&carry.sockets[0], PollFlags::empty())];
        poll(&mut failure, None).unwrap();

        while carry.pump() == Progress::More {}
        assert_eq!(carry.pump(), Progress::Failing);
        let stuck = carry.waiting();
        assert!(stuck > 0);
        let mut bytes = vec![0; 1 << 16];
        while carry.pump() != Progress::Failed {
            let _ = server.read(&mut bytes);
        }
        assert_eq!(carry.waiting(), 0);
    }
}
