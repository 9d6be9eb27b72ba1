//! Captures the packets at the program's interface, as pcapng.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use sluice_core::Time;
use sluice_net::Clock;
use sluice_net::port::{Pool, Port, Slot, create_capture};
use sluice_wire::capture::{Annotated, AnnotatedWriter, link_type};

/// The reason why there is no capture.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {}: {source}", .path.display())]
pub struct CaptureError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// A capture in progress. A separate thread writes it, as frames of Ethernet.
pub struct Capture {
    path: PathBuf,
    frames: Sender<Frame>,
    thread: JoinHandle<io::Result<()>>,
}

/// A frame at the program's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instant.
    pub at: Time,
    /// Whether the program receives it.
    pub is_inbound: bool,
    /// Its bytes, without those at the end that are not known.
    pub bytes: Vec<u8>,
    /// Its length.
    pub original_len: u32,
}

impl Capture {
    /// Creates the file, which only its owner can read. A symbolic link is not followed.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn create(path: &Path, clock: &Clock) -> Result<Capture, CaptureError> {
        let failed = |source| CaptureError {
            path: path.to_owned(),
            source,
        };
        let file = create_capture(path).map_err(failed)?;
        let (frames, received) = channel();
        let zero_ns = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_nanos() as u64)
            .saturating_sub(clock.now().as_ns());
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write(file, zero_ns, &received))
            .map_err(failed)?;
        Ok(Capture {
            path: path.to_owned(),
            frames,
            thread,
        })
    }

    /// Returns a sender of frames. [`Capture::finish`] waits until it has been dropped.
    pub fn frames(&self) -> Sender<Frame> {
        self.frames.clone()
    }

    /// Puts the capture in front of the program's port.
    pub(crate) fn tap<P>(&self, port: P, clock: &Clock) -> Tap<P> {
        Tap {
            port,
            clock: *clock,
            frames: self.frames.clone(),
        }
    }

    /// Writes the remaining frames. All taps must have been dropped before.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn finish(self) -> Result<(), CaptureError> {
        drop(self.frames);
        let written = self
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.map_err(|source| CaptureError {
            path: self.path,
            source,
        })
    }
}

fn write(file: File, zero_ns: u64, frames: &Receiver<Frame>) -> io::Result<()> {
    let program = concat!("sluice ", env!("CARGO_PKG_VERSION"));
    let mut writer = AnnotatedWriter::new(
        BufWriter::new(file),
        program,
        "eth0",
        link_type::ETHERNET,
        MOST,
    )?;
    for frame in frames {
        writer.packet(&Annotated {
            time_ns: zero_ns + frame.at.as_ns(),
            bytes: &frame.bytes,
            original_len: frame.original_len,
            is_inbound: frame.is_inbound,
            number: None,
            comment: None,
        })?;
    }
    writer.into_inner().flush()
}

/// A port whose frames are captured.
pub(crate) struct Tap<P> {
    port: P,
    clock: Clock,
    frames: Sender<Frame>,
}

impl<P: Port> Tap<P> {
    fn frame(&self, pool: &Pool, slot: Slot, at: Time, is_inbound: bool) -> Frame {
        let bytes = [pool.head(slot), pool.tail(slot)].concat();
        Frame {
            at,
            is_inbound,
            original_len: bytes.len() as u32,
            bytes,
        }
    }

    fn tell(&self, frame: Frame) {
        // The writer has given up; its error is reported at the end.
        let _ = self.frames.send(frame);
    }
}

impl<P: Port> Port for Tap<P> {
    crate::around::leave_to!(port);

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        let before = into.len();
        let count = self.port.receive(pool, into);
        let now = self.clock.now();
        for slot in &into[before..] {
            let at = pool.arrival(*slot).unwrap_or(now);
            self.tell(self.frame(pool, *slot, at, false));
        }
        count
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        let now = self.clock.now();
        let frames: Vec<Frame> = slots
            .iter()
            .map(|slot| self.frame(pool, *slot, now, true))
            .collect();
        let done = self.port.transmit(pool, slots);
        for frame in frames.into_iter().take(done) {
            self.tell(frame);
        }
        done
    }
}

impl<P: AsFd> AsFd for Tap<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

/// Most bytes of a frame: a super-packet with its headers.
const MOST: u32 = 1 << 18;
