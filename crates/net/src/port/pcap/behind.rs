//! Writes a file on a thread of its own, because a disk may be slow.
//!
//! The packet loop fills buffers of 256 KB, and the thread writes them. If the file is slower than
//! the packets for long, no buffer is left: the port then loses frames, which it counts, or waits, if
//! nothing else waits for it. If the file refuses bytes, as on a full disk, the thread keeps the
//! system's answer and tries the rest again from time to time, so that the file holds whole packets. At
//! the end it gives up, and cuts a regular file behind its last whole packet.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{confine, sys};

/// A file that is written by a thread of its own.
pub(super) struct Behind {
    buffer: Buffer,
    /// What has been passed to this so far.
    passed: Amount,
    /// All bytes that have been passed to this so far.
    length: u64,
    shared: Arc<Shared>,
    /// `None` after [`Behind::finish`].
    thread: Option<Thread>,
}

/// The thread that writes.
struct Thread {
    full: SyncSender<Buffer>,
    /// Written buffers, to be used again.
    empty: Receiver<Buffer>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

/// Frames, and their bytes without what the file adds to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// Bytes for the file.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Bytes that make sense as a whole only: the header of the file, or a frame.
struct Piece {
    /// The place in the buffer where it ends.
    end: usize,
    holds: Amount,
}

/// The progress of the thread.
#[derive(Default)]
struct Shared {
    /// Frames that are in the file, and their bytes.
    frames: AtomicU64,
    bytes: AtomicU64,
    /// All bytes that the file has accepted.
    accepted: AtomicU64,
    /// Whether the file refused the last write.
    is_refused: AtomicBool,
    /// The system's answer to the last write that was refused, whatever followed it.
    refusal: Mutex<Option<String>>,
    /// Whether the thread gives up what the file refuses.
    is_ending: AtomicBool,
}

/// A file that can be cut.
pub(super) trait Target: Write + Send + 'static {
    /// Cuts a regular file of `length` bytes behind the first `whole` of them.
    ///
    /// # Errors
    /// The system's answer.
    fn cut(&mut self, length: u64, whole: u64) -> io::Result<()>;
}

impl Target for File {
    fn cut(&mut self, length: u64, whole: u64) -> io::Result<()> {
        let found = File::metadata(self)?;
        // What another program has appended stays.
        if found.is_file() && found.len() == length {
            File::set_len(self, whole)?;
        }
        Ok(())
    }
}

impl Behind {
    /// Starts the thread that writes to `file`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(file: impl Target) -> io::Result<Behind> {
        let (full, to_write) = sync_channel(MOST_WAITING);
        let (used, empty) = sync_channel(MOST_WAITING);
        let (running, end) = sync_channel::<()>(0);
        let (is_confined, answer) = sync_channel(1);
        let shared: Arc<Shared> = Arc::default();
        let writer = Writer {
            file,
            to_write,
            used,
            shared: Arc::clone(&shared),
            accepted: 0,
            whole: 0,
        };
        std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || {
                let _running = running;
                // The starting thread may be kept on the loop's core.
                let _ = sys::Affinity::all().take();
                let confined = confine::confine_beside_broker();
                let is_ready = confined.is_ok();
                // The starting thread waits for this message.
                let _ = is_confined.send(confined);
                if is_ready {
                    writer.run();
                }
            })?;
        let confined = answer.recv().expect("the thread reports before it works");
        confined.map_err(io::Error::other)?;
        Ok(Behind {
            buffer: Buffer::default(),
            passed: Amount::default(),
            length: 0,
            shared,
            thread: Some(Thread { full, empty, end }),
        })
    }

    /// Makes room for the next frame. Returns `false` if there is none; with `can_wait`, waits
    /// instead.
    pub(super) fn make_room(&mut self, can_wait: bool) -> bool {
        let Some(thread) = &self.thread else {
            return false;
        };
        if self.buffer.bytes.len() < BUFFER_LEN {
            return true;
        }
        let buffer = mem::take(&mut self.buffer);
        let refused = match can_wait {
            true => thread.full.send(buffer).err().map(|refused| refused.0),
            false => thread
                .full
                .try_send(buffer)
                .err()
                .map(|refused| match refused {
                    TrySendError::Full(buffer) | TrySendError::Disconnected(buffer) => buffer,
                }),
        };
        let has_room = refused.is_none();
        self.buffer = refused.unwrap_or_else(|| thread.empty.try_recv().unwrap_or_default());
        has_room
    }

    /// Returns whether most of the buffers are free: the next frames can be written without a wait.
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.length - self.shared.accepted.load(Ordering::Relaxed);
        self.thread.is_none() || waiting < MUCH_WAITING
    }

    /// Notes that the header of the file is complete.
    pub(super) fn end_header(&mut self) {
        self.end_piece(Amount::default());
    }

    /// Notes that the bytes of a frame of this length are complete.
    pub(super) fn end_frame(&mut self, length: u64) {
        self.passed.frames += 1;
        self.passed.bytes += length;
        self.end_piece(Amount {
            frames: 1,
            bytes: length,
        });
    }

    fn end_piece(&mut self, holds: Amount) {
        let end = self.buffer.bytes.len();
        self.buffer.pieces.push(Piece { end, holds });
    }

    /// Returns the system's answer to the last write, if the file refused it.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.shared.is_refused.load(Ordering::Acquire) {
            return None;
        }
        let refusal = self.shared.refusal.lock();
        refusal.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what has been passed to this and is not in the file.
    fn missing(&self) -> Amount {
        Amount {
            frames: self.passed.frames - self.shared.frames.load(Ordering::Acquire),
            bytes: self.passed.bytes - self.shared.bytes.load(Ordering::Acquire),
        }
    }

    /// Writes everything that is left, but gives up after `patience`, if there is any. Returns what is
    /// not in the file. A second call does nothing.
    pub(super) fn finish(&mut self, patience: Option<Duration>) -> Amount {
        let Some(thread) = self.thread.take() else {
            return Amount::default();
        };
        let deadline = patience.map(|patience| Instant::now() + patience);
        self.shared.is_ending.store(true, Ordering::Relaxed);
        let mut last = mem::take(&mut self.buffer);
        while let Err(TrySendError::Full(refused)) = thread.full.try_send(last) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            last = refused;
            std::thread::sleep(RETRY_EVERY / 100);
        }
        drop(thread.full);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timed_out = match left {
            Some(left) => thread.end.recv_timeout(left) == Err(RecvTimeoutError::Timeout),
            None => thread.end.recv().is_ok(),
        };
        debug_assert!(!timed_out || left.is_some(), "nothing is ever sent");
        self.missing()
    }
}

impl Write for Behind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.bytes.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.finish(Some(FINISH_WITHIN));
    }
}

impl Shared {
    /// Notes that the file now has `accepted` bytes, and these pieces completely.
    fn note(&self, accepted: u64, whole: &[Piece]) {
        let frames = whole.iter().map(|piece| piece.holds.frames).sum();
        let bytes = whole.iter().map(|piece| piece.holds.bytes).sum();
        self.frames.fetch_add(frames, Ordering::Release);
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.accepted.store(accepted, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Release);
    }

    /// Notes that the file has refused a write.
    fn refuse(&self, answer: &io::Error) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.to_string());
        // Set last, so that a reader that finds it set also finds the answer.
        self.is_refused.store(true, Ordering::Release);
    }
}

/// The thread's own things.
struct Writer<W> {
    file: W,
    to_write: Receiver<Buffer>,
    used: SyncSender<Buffer>,
    shared: Arc<Shared>,
    /// Bytes that the file has accepted, and those of its whole pieces among them.
    accepted: u64,
    whole: u64,
}

impl<W: Target> Writer<W> {
    /// Writes buffers until there are no more, or one is given up.
    fn run(mut self) {
        while let Ok(mut buffer) = self.to_write.recv() {
            if !self.write(&buffer) {
                if self.whole < self.accepted {
                    // Otherwise the file ends inside a packet, which its readers report.
                    let _ = self.file.cut(self.accepted, self.whole);
                }
                return;
            }
            buffer.bytes.clear();
            buffer.pieces.clear();
            let _ = self.used.try_send(buffer);
        }
    }

    /// Writes a buffer. Returns whether the file has accepted all of it, which it has except at the end.
    fn write(&mut self, buffer: &Buffer) -> bool {
        let start = self.accepted;
        let (mut length, mut pieces) = (0, &buffer.pieces[..]);
        while length < buffer.bytes.len() {
            let answer: io::Error = match self.file.write(&buffer.bytes[length..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(accepted) => {
                    length += accepted;
                    let count = pieces.partition_point(|piece| piece.end <= length);
                    let (whole, rest) = pieces.split_at(count);
                    if let Some(last) = whole.last() {
                        self.whole = start + last.end as u64;
                    }
                    self.accepted = start + length as u64;
                    self.shared.note(self.accepted, whole);
                    pieces = rest;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            self.shared.refuse(&answer);
            if self.shared.is_ending.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(RETRY_EVERY);
        }
        true
    }
}

/// Bytes of a buffer, after which it is written.
const BUFFER_LEN: usize = 256 << 10;
/// Buffers that may wait: 16 MB.
const MOST_WAITING: usize = 64;
/// Bytes with which half of the buffers wait.
const MUCH_WAITING: u64 = (BUFFER_LEN * MOST_WAITING / 2) as u64;
/// The interval at which a refused write is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Less than the time within which a router ends.
pub(super) const FINISH_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// A file that writes only while it may.
    #[derive(Clone, Default)]
    struct Slow {
        bytes: Arc<Mutex<Vec<u8>>>,
        /// What each write must wait for.
        gate: Arc<Mutex<()>>,
        /// Bytes that fit, if the disk is limited.
        room: Arc<Mutex<Option<usize>>>,
    }

    impl Slow {
        fn with_room(bytes: usize) -> Slow {
            Slow {
                room: Arc::new(Mutex::new(Some(bytes))),
                ..Slow::default()
            }
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _gate = self.gate.lock().unwrap();
            let mut file = self.bytes.lock().unwrap();
            let room = *self.room.lock().unwrap();
            let room = room.map_or(usize::MAX, |room| room - file.len());
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let accepted = bytes.len().min(room).min(100_000);
            file.extend_from_slice(&bytes[..accepted]);
            Ok(accepted)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Target for Slow {
        fn cut(&mut self, length: u64, whole: u64) -> io::Result<()> {
            let mut file = self.bytes.lock().unwrap();
            assert_eq!(file.len() as u64, length);
            file.truncate(whole as usize);
            Ok(())
        }
    }

    /// Frames of 1000 bytes.
    fn amount(frames: u64) -> Amount {
        let bytes = 1000 * frames;
        Amount { frames, bytes }
    }

    /// Writes frames of 1000 bytes, and returns how many found room.
    fn write(behind: &mut Behind, frames: u64, can_wait: bool) -> u64 {
        let mut accepted = 0;
        for number in 0..frames {
            if behind.make_room(can_wait) {
                behind.write_all(&[number as u8; 1000]).unwrap();
                behind.end_frame(1000);
                accepted += 1;
            }
        }
        accepted
    }

    #[test]
    fn a_disk_that_stands_still_delays_no_frame_and_every_lost_one_is_counted() {
        let disk = Slow::default();
        let still = disk.gate.lock().unwrap();
        let mut behind = Behind::start(disk.clone()).unwrap();
        // 30 MB, of which 64 buffers, the one at the thread and the present one have room: each is
        // passed on when it holds 262 144 bytes, which are 263 frames.
        let accepted = write(&mut behind, 30_000, false);
        let (most, least) = (263 * (MOST_WAITING as u64 + 2), 263 * MOST_WAITING as u64);
        assert!((least..=most).contains(&accepted), "{accepted}");
        drop(still);
        assert_eq!(behind.finish(None), amount(0), "the disk works again");
        assert_eq!(behind.refusal(), None, "it was slow, and refused nothing");
        assert_eq!(disk.bytes.lock().unwrap().len() as u64, 1000 * accepted);
    }

    #[test]
    fn a_writer_that_can_wait_loses_nothing() {
        let disk = Slow::default();
        let mut behind = Behind::start(disk.clone()).unwrap();
        assert_eq!(write(&mut behind, 30_000, true), 30_000);
        assert_eq!(behind.finish(None), amount(0));
        let bytes = disk.bytes.lock().unwrap();
        assert_eq!(bytes.len(), 30_000_000);
        let frames = bytes.chunks(1000).enumerate();
        assert!(frames.clone().all(|(n, frame)| frame == [n as u8; 1000]));
    }

    #[test]
    fn frames_that_a_full_disk_refuses_are_counted_at_the_end() {
        let disk = Slow::with_room(4500);
        let mut behind = Behind::start(disk.clone()).unwrap();
        assert_eq!(write(&mut behind, 10, false), 10);
        // Four and a half frames fit.
        assert_eq!(behind.finish(None), amount(6));
        assert_eq!(behind.finish(None), amount(0), "they are counted once");
        assert!(!behind.make_room(false), "nothing is written any more");
        assert_eq!(disk.bytes.lock().unwrap().len(), 4000, "the half is cut");
        let answer = io::Error::from(io::ErrorKind::StorageFull).to_string();
        assert_eq!(behind.refusal(), Some(answer));
    }

    #[test]
    fn a_header_is_cut_only_if_it_is_not_complete() {
        for (room, left) in [(23, 0), (24, 24), (500, 24), (1024, 1024)] {
            let disk = Slow::with_room(room);
            let mut behind = Behind::start(disk.clone()).unwrap();
            behind.write_all(&[0; 24]).unwrap();
            behind.end_header();
            assert_eq!(write(&mut behind, 10, false), 10);
            let fit = u64::from(room == 1024);
            assert_eq!(behind.finish(None), amount(10 - fit));
            assert_eq!(disk.bytes.lock().unwrap().len(), left, "{room}");
        }
    }

    #[test]
    fn a_refusal_is_reported_until_the_file_accepts_bytes_again_and_nothing_is_lost() {
        let disk = Slow::with_room(100_500);
        let mut behind = Behind::start(disk.clone()).unwrap();
        assert_eq!(behind.refusal(), None);
        // More than a buffer, so that the thread writes before the end.
        assert_eq!(write(&mut behind, 600, false), 600);
        while behind.refusal().is_none() {
            std::thread::yield_now();
        }
        // A hundred frames and a half fit.
        assert_eq!(behind.missing(), amount(500));
        let answer = io::Error::from(io::ErrorKind::StorageFull).to_string();
        assert_eq!(behind.refusal(), Some(answer));
        *disk.room.lock().unwrap() = None;
        while behind.refusal().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(behind.finish(None), amount(0));
        assert_eq!(behind.refusal(), None, "the last write was accepted");
        assert_eq!(disk.bytes.lock().unwrap().len(), 600_000);
    }

    #[test]
    fn half_of_the_buffers_are_room() {
        let disk = Slow::default();
        let still = disk.gate.lock().unwrap();
        let mut behind = Behind::start(disk.clone()).unwrap();
        // 32 buffers are 8 388 608 bytes.
        write(&mut behind, 8388, false);
        assert!(behind.has_room());
        write(&mut behind, 1, false);
        assert!(!behind.has_room());
        drop(still);
        assert_eq!(behind.finish(None), amount(0));
        assert!(behind.has_room(), "nothing waits");
    }

    #[test]
    fn a_regular_file_is_cut_unless_it_has_grown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.pcap");
        for (found, left) in [(70, 50), (71, 71)] {
            std::fs::write(&path, vec![1_u8; found]).unwrap();
            let mut file = File::options().write(true).open(&path).unwrap();
            file.cut(70, 50).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), left);
        }
        // A device cannot be cut, and is left as it is.
        let mut device = File::options().write(true).open("/dev/null").unwrap();
        device.cut(70, 50).unwrap();
    }

    #[test]
    fn the_end_does_not_wait_for_a_disk_that_stands_still() {
        let disk = Slow::default();
        let (gate, bytes) = (Arc::clone(&disk.gate), Arc::clone(&disk.bytes));
        let still = gate.lock().unwrap();
        let mut behind = Behind::start(disk).unwrap();
        let accepted = write(&mut behind, 1000, false);
        assert_eq!(accepted, 1000);
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| done.send(behind.finish(Some(Duration::ZERO))));
            assert_eq!(is_done.recv().unwrap(), amount(1000));
            assert!(bytes.lock().unwrap().is_empty());
            drop(still);
        });
    }
}
