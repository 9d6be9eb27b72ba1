//! What a running router prints to standard error: lines, and the status line of a terminal.
//!
//! A thread of its own prints. The reader may stop reading (Ctrl-S, a pager, a log collector that
//! hangs). Signals, reloads and the watchdog must not wait for it. Lines that find no room, or that
//! standard error refuses, as on a full disk, are counted; the next line that is printed is followed by
//! their number.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::flows::write_some;
use crate::terminal::clean;

/// The way to the thread that prints.
#[derive(Clone)]
pub(super) struct Screen {
    said: SyncSender<Said>,
    /// Lines that found no room.
    lost: Arc<AtomicU64>,
    /// Whether there is a status line.
    has_status: bool,
}

enum Said {
    Lines(String),
    Status(String),
}

/// Standard error, and what is missing there.
struct Lines<W> {
    to: W,
    /// Whether the last line lacks its end.
    is_cut: bool,
    /// Whether the last text was not written completely.
    is_refused: bool,
    /// Lines that are missing and were not reported.
    lost: u64,
}

impl<W: Write> Lines<W> {
    const fn new(to: W) -> Lines<W> {
        Lines {
            to,
            is_cut: false,
            is_refused: false,
            lost: 0,
        }
    }

    /// Writes whole lines, and counts those that are not written completely.
    fn print(&mut self, text: &str) {
        self.lost += self.write(text);
    }

    /// Returns whether lines are missing, and a line about them can probably be written.
    const fn can_report(&self) -> bool {
        self.lost > 0 && !self.is_refused
    }

    /// Writes how many lines are missing.
    fn report(&mut self) {
        let warning = format!(
            "sluice: warning: lost lines: {}; standard error could not be written, or was not read\n",
            self.lost
        );
        if self.write(&warning) == 0 {
            self.lost = 0;
        }
    }

    /// Returns the number of lines that are not written completely.
    fn write(&mut self, text: &str) -> u64 {
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let begin = if self.is_cut { "\n" } else { "" };
        let all = format!("{begin}{text}");
        let (length, _) = write_some(&mut self.to, all.as_bytes());
        let done = &all.as_bytes()[..length];
        if let Some(last) = done.last() {
            self.is_cut = *last != b'\n';
        }
        let missing = count(text.as_bytes()) - count(done.get(begin.len()..).unwrap_or_default());
        self.is_refused = missing > 0;
        missing
    }
}

/// The thread that prints.
pub(super) struct Printer {
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Screen {
    /// Starts the thread.
    pub fn start(is_quiet: bool) -> io::Result<(Screen, Printer)> {
        let has_status = !is_quiet && io::stderr().is_terminal();
        let target = if has_status {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is a constant");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        let (said, heard) = sync_channel(MOST);
        let (running, ended) = channel::<()>();
        let lost = Arc::new(AtomicU64::new(0));
        let of_thread = lost.clone();
        let work = move || {
            let _running = running;
            let mut lines = Lines::new(io::stderr());
            for said in heard {
                match said {
                    Said::Lines(text) => bar.suspend(|| lines.print(&clean(&text))),
                    Said::Status(text) => bar.set_message(text),
                }
                lines.lost += of_thread.swap(0, Ordering::Relaxed);
                if lines.can_report() {
                    bar.suspend(|| lines.report());
                }
            }
            bar.finish_and_clear();
        };
        thread::Builder::new().name("screen".into()).spawn(work)?;
        let screen = Screen {
            said,
            lost,
            has_status,
        };
        Ok((screen, Printer { ended }))
    }

    /// Returns whether there is a status line.
    pub const fn has_status(&self) -> bool {
        self.has_status
    }

    /// Prints whole lines. Never blocks.
    pub fn print(&self, lines: String) {
        if !lines.is_empty() {
            self.say(Said::Lines(lines));
        }
    }

    /// Shows a status. Never blocks.
    pub fn show(&self, status: String) {
        self.say(Said::Status(status));
    }

    fn say(&self, said: Said) {
        if let Err(TrySendError::Full(Said::Lines(text))) = self.said.try_send(said) {
            let lines = text.lines().count() as u64;
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl Printer {
    /// Waits until everything is printed that was said, if somebody reads it. All screens are gone.
    pub fn end(self) {
        let _: Result<(), RecvTimeoutError> = self.ended.recv_timeout(PATIENCE);
    }
}

/// The texts that may wait.
const MOST: usize = 1024;
/// The time for which the end waits for the last texts.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_that_nobody_reads_holds_nobody_up() {
        let (said, heard) = sync_channel(2);
        let screen = Screen {
            said,
            lost: Arc::default(),
            has_status: false,
        };
        for number in 0..5 {
            screen.print(format!("{number}\n"));
            screen.print(String::new());
        }
        screen.show("a status is not missed".to_owned());
        assert_eq!(screen.lost.load(Ordering::Relaxed), 3);
        screen.print("each\nline\ncounts\n".to_owned());
        assert_eq!(screen.lost.load(Ordering::Relaxed), 3 + 3);
        assert_eq!(heard.try_iter().count(), 2);
    }

    /// A file on a disk with this much room for it.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room - self.bytes.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let length = bytes.len().min(room);
            self.bytes.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_refuses_are_counted_and_reported_when_there_is_room() {
        let disk = |room| Disk {
            bytes: Vec::new(),
            room,
        };
        // The first line has six bytes.
        for (room, lost) in [(5, 3), (6, 2), (10, 2), (13, 1)] {
            let mut lines = Lines::new(disk(room));
            lines.print("first\nsecond\n");
            lines.print("third\n");
            assert_eq!((lines.lost, lines.can_report()), (lost, false), "{room}");
            lines.to.room = 1000;
            lines.print("fourth\n");
            assert!(lines.can_report());
            lines.report();
            assert!(!lines.can_report(), "it is reported");
            let written = String::from_utf8(lines.to.bytes).unwrap();
            let before = &"first\nsecond\n"[..room];
            // A line that was cut has an end before the next one.
            let end = if before.ends_with('\n') { "" } else { "\n" };
            let expected = format!(
                "{before}{end}fourth\nsluice: warning: lost lines: {lost}; standard error could not be \
                 written, or was not read\n"
            );
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn a_report_that_is_refused_is_repeated() {
        let mut lines = Lines::new(Disk {
            bytes: Vec::new(),
            room: 5,
        });
        lines.print("first\n");
        lines.to.room = 20;
        // `\nsecond\n` has eight bytes, after which the report has room for seven.
        lines.print("second\n");
        assert!(lines.can_report());
        lines.report();
        assert!(!lines.can_report());
        lines.to.room = 1000;
        lines.print("third\n");
        lines.report();
        let written = String::from_utf8(lines.to.bytes).unwrap();
        let expected = "first\nsecond\nsluice:\nthird\nsluice: warning: lost lines: 1; standard error \
                        could not be written, or was not read\n";
        assert_eq!(written, expected);
    }
}
