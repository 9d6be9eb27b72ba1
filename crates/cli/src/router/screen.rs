//! What a running router prints to standard error: lines, and the status line of a terminal.
//!
//! A thread of its own prints. The reader may stop reading (Ctrl-S, a pager, a log collector that
//! hangs). Signals, reloads and the watchdog must not wait for it.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The way to the thread that prints.
#[derive(Clone)]
pub(super) struct Screen {
    said: SyncSender<Said>,
    /// Texts that found no room.
    lost: Arc<AtomicU64>,
    /// Whether there is a status line.
    has_status: bool,
}

enum Said {
    Lines(String),
    Status(String),
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
            for said in heard {
                match said {
                    Said::Lines(text) => bar.suspend(|| eprint!("{text}")),
                    Said::Status(text) => bar.set_message(text),
                }
                let lost = of_thread.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    bar.suspend(|| {
                        eprintln!(
                            "sluice: warning: {lost} messages were lost: standard error was not read"
                        );
                    });
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
        let is_line = matches!(said, Said::Lines(_));
        if let Err(TrySendError::Full(_)) = self.said.try_send(said)
            && is_line
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
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
        assert_eq!(heard.try_iter().count(), 2);
    }
}
