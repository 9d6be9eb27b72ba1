//! Writes a file on a thread of its own, because a disk may be slow.
//!
//! The packet loop fills buffers of 256 KB, and the thread writes them. If the file is slower than
//! the packets for long, no buffer is left: the port then loses frames, which it counts, or waits, if
//! nothing else waits for it. If the file refuses bytes, as on a full disk, the thread tries the rest
//! again from time to time, so that the file holds whole packets.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::{confine, sys};

/// A file that is written by a thread of its own.
pub(super) struct Behind {
    buffer: Buffer,
    /// Frames that have been passed to this so far.
    frames: u64,
    /// `None` after [`Behind::finish`].
    thread: Option<Thread>,
}

/// The thread that writes.
struct Thread {
    full: SyncSender<Buffer>,
    /// Written buffers, to be used again.
    empty: Receiver<Buffer>,
    /// Frames that are in the file.
    written: Arc<AtomicU64>,
    /// Whether the thread gives up what the file refuses.
    is_ending: Arc<AtomicBool>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

/// Bytes for the file, and the end of each frame in them.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Behind {
    /// Starts the thread that writes to `file`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(file: impl Write + Send + 'static) -> io::Result<Behind> {
        let (full, to_write) = sync_channel(MOST_WAITING);
        let (used, empty) = sync_channel(MOST_WAITING);
        let (running, end) = sync_channel::<()>(0);
        let (is_confined, answer) = sync_channel(1);
        let (written, is_ending) = (Arc::default(), Arc::default());
        let writer = Writer {
            file,
            to_write,
            used,
            written: Arc::clone(&written),
            is_ending: Arc::clone(&is_ending),
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
            frames: 0,
            thread: Some(Thread {
                full,
                empty,
                written,
                is_ending,
                end,
            }),
        })
    }

    /// Makes room for the next frame. Returns `false` if there is none; with `can_wait`, waits
    /// instead.
    pub(super) fn make_room(&mut self, can_wait: bool) -> bool {
        if self.buffer.bytes.len() < BUFFER_LEN {
            return true;
        }
        let Some(thread) = &self.thread else {
            return false;
        };
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

    /// Notes that the bytes of a frame are complete.
    pub(super) fn end_frame(&mut self) {
        self.frames += 1;
        self.buffer.ends.push(self.buffer.bytes.len());
    }

    /// Writes everything that is left, but gives up after `patience`, if there is any. Returns the
    /// number of frames that are not in the file. A second call does nothing.
    pub(super) fn finish(&mut self, patience: Option<Duration>) -> u64 {
        let Some(thread) = self.thread.take() else {
            return 0;
        };
        let deadline = patience.map(|patience| Instant::now() + patience);
        thread.is_ending.store(true, Ordering::Relaxed);
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
        self.frames - thread.written.load(Ordering::Acquire)
    }
}

impl Write for Behind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.bytes.extend_from_slice(bytes);
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

/// The thread's own things.
struct Writer<W> {
    file: W,
    to_write: Receiver<Buffer>,
    used: SyncSender<Buffer>,
    written: Arc<AtomicU64>,
    is_ending: Arc<AtomicBool>,
}

impl<W: Write> Writer<W> {
    /// Writes buffers until there are no more, or one is given up.
    fn run(mut self) {
        while let Ok(mut buffer) = self.to_write.recv() {
            let length = self.write(&buffer.bytes);
            let frames = buffer.ends.iter().filter(|end| **end <= length).count();
            self.written.fetch_add(frames as u64, Ordering::Release);
            if length < buffer.bytes.len() {
                // The file ends inside a packet.
                return;
            }
            buffer.bytes.clear();
            buffer.ends.clear();
            let _ = self.used.try_send(buffer);
        }
    }

    /// Returns how many bytes the file has accepted: all, except at the end.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut length = 0;
        while length < bytes.len() {
            match self.file.write(&bytes[length..]) {
                Ok(accepted) if accepted > 0 => length += accepted,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ if self.is_ending.load(Ordering::Relaxed) => break,
                _ => std::thread::sleep(RETRY_EVERY),
            }
        }
        length
    }
}

/// Bytes of a buffer, after which it is written.
const BUFFER_LEN: usize = 256 << 10;
/// Buffers that may wait: 16 MB.
const MOST_WAITING: usize = 64;
/// The interval at which a refused write is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Less than the time within which a router ends.
pub(super) const FINISH_WITHIN: Duration = Duration::from_secs(3);

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
        room: Option<usize>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _gate = self.gate.lock().unwrap();
            let mut file = self.bytes.lock().unwrap();
            let room = self.room.map_or(usize::MAX, |room| room - file.len());
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

    /// Writes frames of 1000 bytes, and returns how many found room.
    fn write(behind: &mut Behind, frames: u64, can_wait: bool) -> u64 {
        let mut accepted = 0;
        for number in 0..frames {
            if behind.make_room(can_wait) {
                behind.write_all(&[number as u8; 1000]).unwrap();
                behind.end_frame();
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
        assert_eq!(behind.finish(None), 0, "the disk works again");
        assert_eq!(disk.bytes.lock().unwrap().len() as u64, 1000 * accepted);
    }

    #[test]
    fn a_writer_that_can_wait_loses_nothing() {
        let disk = Slow::default();
        let mut behind = Behind::start(disk.clone()).unwrap();
        assert_eq!(write(&mut behind, 30_000, true), 30_000);
        assert_eq!(behind.finish(None), 0);
        let bytes = disk.bytes.lock().unwrap();
        assert_eq!(bytes.len(), 30_000_000);
        let frames = bytes.chunks(1000).enumerate();
        assert!(frames.clone().all(|(n, frame)| frame == [n as u8; 1000]));
    }

    #[test]
    fn frames_that_a_full_disk_refuses_are_counted_at_the_end() {
        let disk = Slow {
            room: Some(4500),
            ..Slow::default()
        };
        let mut behind = Behind::start(disk).unwrap();
        assert_eq!(write(&mut behind, 10, false), 10);
        // Four and a half frames fit.
        assert_eq!(behind.finish(None), 6);
        assert_eq!(behind.finish(None), 0, "they are counted once");
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
            assert_eq!(is_done.recv().unwrap(), 1000);
            assert!(bytes.lock().unwrap().is_empty());
            drop(still);
        });
    }
}
