//! Captures the packets at the program's interface, as pcapng.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    frames: Frames,
    thread: JoinHandle<io::Result<()>>,
}

/// Sends frames to the thread that writes them.
#[derive(Clone, Debug)]
pub struct Frames {
    sender: Sender<Frame>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes that wait to be written.
    waiting: AtomicU64,
    /// Frames that were left out.
    lost: AtomicU64,
}

/// The most bytes that wait. A disk that is slower than the link must not fill the memory.
const MOST_WAITING: u64 = 128 << 20;

impl Frames {
    /// Creates a sender, and the receiver of what it sends.
    pub fn new() -> (Frames, Receiver<Frame>) {
        let (sender, received) = channel();
        let counts = Arc::default();
        (Frames { sender, counts }, received)
    }

    /// Sends a frame, unless too many wait.
    pub fn send(&self, frame: Frame) {
        let length = frame.bytes.len() as u64;
        let waiting = self.counts.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting + length > MOST_WAITING {
            self.counts.waiting.fetch_sub(length, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // If the writer has given up, its error is reported at the end.
        let _ = self.sender.send(frame);
    }
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
        let (frames, received) = Frames::new();
        let counts = Arc::clone(&frames.counts);
        let zero_ns = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_nanos() as u64)
            .saturating_sub(clock.now().as_ns());
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write(file, zero_ns, &received, &counts))
            .map_err(failed)?;
        Ok(Capture {
            path: path.to_owned(),
            frames,
            thread,
        })
    }

    /// Returns a sender of frames. [`Capture::finish`] waits until it has been dropped.
    pub fn frames(&self) -> Frames {
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

    /// Writes the frames that were captured so far, although a tap remains in a thread that does not
    /// return.
    ///
    /// # Errors
    /// As [`Capture::finish`].
    pub(crate) fn cut(self) -> Result<(), CaptureError> {
        self.frames.send(Frame {
            at: Time::ZERO,
            is_inbound: false,
            bytes: Vec::new(),
            original_len: NO_MORE,
        });
        self.finish()
    }

    /// Writes the remaining frames. All taps must have been dropped before.
    ///
    /// # Errors
    /// [`CaptureError`], also if frames were left out.
    pub fn finish(self) -> Result<(), CaptureError> {
        let Frames { sender, counts } = self.frames;
        drop(sender);
        let written = self
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let written = written.and_then(|()| match counts.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            lost => Err(io::Error::other(format!(
                "{lost} packets are missing: they came faster than they were written"
            ))),
        });
        written.map_err(|source| CaptureError {
            path: self.path,
            source,
        })
    }
}

fn write(file: File, zero_ns: u64, frames: &Receiver<Frame>, counts: &Counts) -> io::Result<()> {
    let program = concat!("sluice ", env!("CARGO_PKG_VERSION"));
    let mut writer = AnnotatedWriter::new(
        BufWriter::new(file),
        program,
        "eth0",
        link_type::ETHERNET,
        MOST,
    )?;
    for frame in frames {
        if frame.original_len == NO_MORE {
            break;
        }
        writer.packet(&Annotated {
            time_ns: zero_ns + frame.at.as_ns(),
            bytes: &frame.bytes,
            original_len: frame.original_len,
            is_inbound: frame.is_inbound,
            number: None,
            comment: None,
        })?;
        let length = frame.bytes.len() as u64;
        counts.waiting.fetch_sub(length, Ordering::Relaxed);
    }
    writer.into_inner().flush()
}

/// A port whose frames are captured.
pub(crate) struct Tap<P> {
    port: P,
    clock: Clock,
    frames: Frames,
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
}

impl<P: Port> Port for Tap<P> {
    crate::around::leave_to!(port);

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        let before = into.len();
        let count = self.port.receive(pool, into);
        let now = self.clock.now();
        for slot in &into[before..] {
            let at = pool.arrival(*slot).unwrap_or(now);
            self.frames.send(self.frame(pool, *slot, at, false));
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
            self.frames.send(frame);
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
/// The length that ends the capture. No frame is empty.
const NO_MORE: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_nobody_writes_do_not_fill_the_memory() {
        let (frames, received) = Frames::new();
        let frame = Frame {
            at: Time::ZERO,
            is_inbound: true,
            original_len: 1 << 20,
            bytes: vec![0; 1 << 20],
        };
        for _ in 0..130 {
            frames.send(frame.clone());
        }
        assert_eq!(frames.counts.lost.load(Ordering::Relaxed), 2);
        drop(frames);
        assert_eq!(received.into_iter().count(), 128);
    }

    #[test]
    fn a_capture_whose_tap_remains_has_what_was_captured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        let capture = Capture::create(&path, &Clock::start()).unwrap();
        // Without the cut, the writer waits until this is dropped.
        let tap = capture.frames();
        tap.send(Frame {
            at: Time::ZERO,
            is_inbound: true,
            original_len: 60,
            bytes: vec![0xa5; 60],
        });
        capture.cut().unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written.windows(60).any(|bytes| bytes == [0xa5; 60]));
        drop(tap);
    }

    #[test]
    fn frames_that_were_left_out_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let capture = Capture::create(&folder.path().join("x.pcapng"), &Clock::start()).unwrap();
        capture.frames().counts.lost.store(3, Ordering::Relaxed);
        let why = capture.finish().unwrap_err().to_string();
        assert!(why.contains("x.pcapng: 3 packets are missing"), "{why}");
    }
}
