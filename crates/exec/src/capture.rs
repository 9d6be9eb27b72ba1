//! Captures the packets at the program's interface, as pcapng.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::port::{Pool, Port, Slot, create_capture};
use sluice_net::process::Signals;
use sluice_wire::capture::{Annotated, AnnotatedWriter, link_type};

use crate::ExecError;
use crate::program::{ProgramError, UNNOTICED, ending_within};

/// The reason why there is no capture.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {}: {source}", .path.display())]
pub struct CaptureError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// A capture in progress. A separate thread opens and writes it, as frames of Ethernet: both can last
/// as long as the reader of a pipe likes, and must not delay anything else.
pub struct Capture {
    path: PathBuf,
    frames: Frames,
    thread: JoinHandle<io::Result<()>>,
    /// Receives once whether the file, which was opened, is a regular one. `None` from then on.
    opening: Option<Receiver<io::Result<bool>>>,
    /// Whether it is a regular file. Only a pipe or a device has a reader that may take nothing.
    is_regular: bool,
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
    /// Creates the file, which only its owner can read. A symbolic link is not followed. `-`, which is the
    /// standard output elsewhere, is refused. A pipe without a reader may not be open yet
    /// ([`Capture::is_open`]); its frames wait.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn create(path: &Path, clock: &Clock) -> Result<Capture, CaptureError> {
        let failed = |source| CaptureError {
            path: path.to_owned(),
            source,
        };
        if path.as_os_str() == "-" {
            let why = "it is no name; /dev/stdout is the standard output, and ./- a file";
            return Err(failed(io::Error::other(why)));
        }
        let (frames, received) = Frames::new();
        let counts = Arc::clone(&frames.counts);
        let zero_ns = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_nanos() as u64)
            .saturating_sub(clock.now().as_ns());
        let (to_us, opening) = channel();
        let name = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || {
                let opened = create_capture(&name).and_then(|file| {
                    let is_regular = file.metadata()?.is_file();
                    Ok((file, is_regular))
                });
                // The answer is not received if the capture was given up.
                match opened {
                    Ok((file, is_regular)) => {
                        let _ = to_us.send(Ok(is_regular));
                        write(file, zero_ns, &received, &counts)
                    }
                    Err(error) => {
                        let _ = to_us.send(Err(error));
                        Ok(())
                    }
                }
            })
            .map_err(failed)?;
        let mut capture = Capture {
            path: path.to_owned(),
            frames,
            thread,
            opening: Some(opening),
            is_regular: false,
        };
        capture.is_open(SOON)?;
        Ok(capture)
    }

    /// Returns whether the file is open, after waiting for that at most for `patience`. A pipe is open
    /// when it has a reader.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn is_open(&mut self, patience: Duration) -> Result<bool, CaptureError> {
        let Some(opening) = &self.opening else {
            return Ok(true);
        };
        match opening.recv_timeout(patience) {
            Ok(Ok(is_regular)) => {
                self.opening = None;
                self.is_regular = is_regular;
                Ok(true)
            }
            Ok(Err(source)) => Err(CaptureError {
                path: self.path.clone(),
                source,
            }),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            // The thread has panicked, which the end of the capture passes on.
            Err(RecvTimeoutError::Disconnected) => Ok(true),
        }
    }

    /// Waits until the file is open, and `on_wait` receives what it waits for. A signal that would end
    /// this process ends the wait.
    ///
    /// # Errors
    /// The file cannot be opened, or a signal.
    pub fn await_reader(&mut self, signals: &Signals, on_wait: fn(&str)) -> Result<(), ExecError> {
        let (start, mut is_told) = (Instant::now(), false);
        while !self.is_open(Duration::ZERO)? {
            if !is_told && start.elapsed() > UNNOTICED {
                is_told = true;
                on_wait(&self.wait());
            }
            let signal = ending_within(signals, LOOK).map_err(ProgramError::Wait)?;
            if let Some(signal) = signal {
                let capture = self.path.clone();
                return Err(ProgramError::Unread { signal, capture }.into());
            }
        }
        Ok(())
    }

    /// Returns in words what is waited for while the file is not open.
    pub fn wait(&self) -> String {
        format!("waiting for a reader of {}", self.path.display())
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
    pub(crate) fn cut(self, is_asked: impl FnMut(Duration) -> bool) -> Result<(), CaptureError> {
        self.frames.send(Frame {
            at: Time::ZERO,
            is_inbound: false,
            bytes: Vec::new(),
            original_len: NO_MORE,
        });
        self.finish(is_asked)
    }

    /// Writes the remaining frames. All taps must have been dropped before. A reader of a pipe that takes
    /// nothing is waited for at most 10 s. `is_asked` pauses for at most the given time, and returns
    /// whether the wait should end: then a reader has a second, and a file as long as it grows. Where the
    /// wait was given up, the thread ends with the process.
    ///
    /// # Errors
    /// [`CaptureError`], also if frames were left out.
    pub fn finish(mut self, is_asked: impl FnMut(Duration) -> bool) -> Result<(), CaptureError> {
        let is_open = self.is_open(Duration::ZERO)?;
        let Frames { sender, counts } = self.frames;
        drop(sender);
        let has_ended = wait_for(&self.thread, &counts, self.is_regular, is_asked);
        let written = if has_ended {
            let ended = self.thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        } else {
            Err(io::Error::other(match (is_open, self.is_regular) {
                (false, _) => "nothing reads it",
                (true, false) => "its end is missing, because what reads it takes nothing",
                (true, true) => "its end is missing, because the disk takes nothing",
            }))
        };
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

/// Waits until the thread that writes has ended. Returns false if the wait was given up.
fn wait_for(
    thread: &JoinHandle<io::Result<()>>,
    counts: &Counts,
    is_regular: bool,
    mut is_asked: impl FnMut(Duration) -> bool,
) -> bool {
    let (mut waiting, mut since) = (u64::MAX, Instant::now());
    let mut asked: Option<Instant> = None;
    while !thread.is_finished() {
        let now = counts.waiting.load(Ordering::Relaxed);
        if now != waiting {
            (waiting, since) = (now, Instant::now());
        }
        let is_over = match asked {
            Some(asked) if is_regular => asked.max(since).elapsed() > GRACE,
            Some(asked) => asked.elapsed() > GRACE,
            None => !is_regular && since.elapsed() > PATIENCE,
        };
        if is_over {
            return false;
        }
        if is_asked(PAUSE) {
            asked = asked.or_else(|| Some(Instant::now()));
        }
    }
    true
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
    let mut order = Order::default();
    let mut is_over = false;
    while !is_over {
        let received = match order.held.is_empty() {
            true => frames.recv().map_err(RecvTimeoutError::from),
            false => frames.recv_timeout(QUIET),
        };
        let all = match received {
            Ok(frame) if frame.original_len != NO_MORE => {
                order.push(frame);
                false
            }
            Err(RecvTimeoutError::Timeout) => true,
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                is_over = true;
                true
            }
        };
        while let Some(frame) = order.take(all) {
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
    }
    writer.into_inner().flush()
}

/// Frames that are held until no earlier one is expected. Those of the program have the instant at which
/// the kernel received them, and those for the program the instant at which they are passed on, so they
/// do not come in the order of time.
#[derive(Default)]
struct Order {
    held: BTreeMap<(Time, u64), Frame>,
    /// Frames that were pushed.
    pushed: u64,
    /// The latest instant of a frame.
    newest: Time,
    /// The instant of the last frame that was taken.
    last: Time,
}

impl Order {
    fn push(&mut self, frame: Frame) {
        self.newest = self.newest.max(frame.at);
        self.held.insert((frame.at, self.pushed), frame);
        self.pushed += 1;
    }

    /// Returns the first frame in the order of time, if no earlier one is expected or `all` are
    /// wanted. A frame that comes later still has the instant of the one before it.
    fn take(&mut self, all: bool) -> Option<Frame> {
        let first = self.held.first_entry()?;
        let (at, _) = *first.key();
        if !all && self.newest.since(at) < APART {
            return None;
        }
        self.last = self.last.max(at);
        Some(Frame {
            at: self.last,
            ..first.remove()
        })
    }
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
/// The most by which frames that come one after another are out of order.
const APART: Span = Span::from_ms(10);
/// The time without a frame after which none of an earlier instant is expected.
const QUIET: Duration = Duration::from_millis(10);
/// The time in which a file is open, unless it is a pipe without a reader.
const SOON: Duration = Duration::from_millis(200);
/// The interval between two looks whether a pipe has a reader.
const LOOK: Duration = Duration::from_millis(20);
/// The interval between two looks whether the capture is written.
const PAUSE: Duration = Duration::from_millis(2);
/// The time after which a reader that takes nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that the reader has when the wait should end.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Command;

    /// Waits as long as the capture does.
    fn patient(pause: Duration) -> bool {
        std::thread::sleep(pause);
        false
    }

    fn pipe(folder: &Path) -> PathBuf {
        let path = folder.join("pipe");
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    fn frame(len: usize) -> Frame {
        Frame {
            at: Time::ZERO,
            is_inbound: true,
            original_len: len as u32,
            bytes: vec![0xa5; len],
        }
    }

    #[test]
    fn a_pipe_is_open_when_it_has_a_reader_and_its_frames_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        let mut capture = Capture::create(&path, &Clock::start()).unwrap();
        assert!(!capture.is_open(Duration::ZERO).unwrap());
        assert_eq!(
            capture.wait(),
            format!("waiting for a reader of {}", path.display())
        );
        capture.frames().send(frame(60));
        let mut reader = File::open(&path).unwrap();
        assert!(capture.is_open(Duration::from_secs(60)).unwrap());
        capture.finish(patient).unwrap();
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read.windows(60).any(|bytes| bytes == [0xa5; 60]));
    }

    #[test]
    fn a_capture_that_nobody_reads_ends_when_it_is_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        for is_read in [false, true] {
            // On Linux, this waits for no other end (fifo(7)).
            let both = || File::options().read(true).write(true).open(&path).unwrap();
            let reader = is_read.then(both);
            let mut capture = Capture::create(&path, &Clock::start()).unwrap();
            let opened = capture.is_open(if is_read { PATIENCE } else { Duration::ZERO });
            assert_eq!(opened.unwrap(), is_read);
            // Not even the first fits into a pipe, whose capacity is 65 536 bytes (pipe(7)).
            for _ in 0..2 {
                capture.frames().send(frame(200_000));
            }
            let error = capture
                .finish(|pause| !patient(pause))
                .unwrap_err()
                .to_string();
            let expected = match is_read {
                true => "pipe: its end is missing, because what reads it takes nothing",
                false => "pipe: nothing reads it",
            };
            assert!(error.ends_with(expected), "{error}");
            if !is_read {
                // Lets the thread end, so that it does not take the next reader for its own.
                drop(File::open(&path).unwrap());
            }
            drop(reader);
        }
    }

    #[test]
    fn a_hyphen_is_no_name() {
        let clock = Clock::start();
        let error = Capture::create(Path::new("-"), &clock).err().unwrap();
        assert_eq!(
            error.to_string(),
            "cannot write the capture -: it is no name; /dev/stdout is the standard output, and ./- a file"
        );
        let folder = tempfile::tempdir().unwrap();
        let capture = Capture::create(&folder.path().join("-"), &clock).unwrap();
        capture.finish(patient).unwrap();
        assert!(folder.path().join("-").exists());
    }

    #[test]
    fn a_capture_that_cannot_be_created_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/x.pcapng");
        let error = match Capture::create(&missing, &Clock::start()) {
            // The machine is busy.
            Ok(mut capture) => capture.is_open(PATIENCE).unwrap_err(),
            Err(error) => error,
        };
        let error = error.to_string();
        assert!(error.contains("missing/x.pcapng: No such file"), "{error}");
    }

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
        capture.cut(patient).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written.windows(60).any(|bytes| bytes == [0xa5; 60]));
        drop(tap);
    }

    #[test]
    fn frames_are_written_in_the_order_of_time() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let mut order = Order::default();
        let push = |order: &mut Order, ms| {
            order.push(Frame {
                at: at(ms),
                ..frame(60)
            });
        };
        let taken = |order: &mut Order, all| -> Vec<Time> {
            std::iter::from_fn(|| order.take(all).map(|frame| frame.at)).collect()
        };
        push(&mut order, 7);
        push(&mut order, 5);
        push(&mut order, 14);
        // Another frame of 5 ms or later may come.
        assert_eq!(taken(&mut order, false), []);
        push(&mut order, 16);
        assert_eq!(taken(&mut order, false), [at(5)]);
        push(&mut order, 6);
        push(&mut order, 6);
        assert_eq!(taken(&mut order, false), [at(6), at(6)]);
        assert_eq!(taken(&mut order, true), [at(7), at(14), at(16)]);
        // 16 ms is written.
        push(&mut order, 15);
        assert_eq!(taken(&mut order, true), [at(16)]);
    }

    #[test]
    fn frames_that_were_left_out_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let capture = Capture::create(&folder.path().join("x.pcapng"), &Clock::start()).unwrap();
        capture.frames().counts.lost.store(3, Ordering::Relaxed);
        let why = capture.finish(patient).unwrap_err().to_string();
        assert!(why.contains("x.pcapng: 3 packets are missing"), "{why}");
    }
}
