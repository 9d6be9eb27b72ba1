//! What a service manager learns of the router: that it is ready, that it reads its configuration
//! again, that it ends, and that its packet loop is alive. The protocol is that of sd_notify(3);
//! without a service manager nothing is sent.

use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sluice_router::process::Pulse;

/// Sends the watchdog's signs of life.
pub(super) struct Service {
    /// The interval between two signs, if a watchdog waits for them.
    interval: Option<Duration>,
    next: Instant,
    pulse: Pulse,
    /// Whether the loops are to turn before the next sign.
    is_due: bool,
}

impl Service {
    /// Tells the service manager that the router is ready.
    pub fn ready(pulse: Pulse) -> Service {
        tell(&[NotifyState::Ready]);
        Service {
            // Three chances in the time that the watchdog allows.
            interval: sd_notify::watchdog_enabled().map(|period| period / 3),
            next: Instant::now(),
            pulse,
            is_due: false,
        }
    }

    /// Sends a sign of life whenever the loop has turned. Never blocks. A loop that forwards no packets
    /// does not turn, so the service manager then ends the router. One that executes a long batch of
    /// commands turns, although it answers nothing.
    pub fn look(&mut self) {
        let Some(interval) = self.interval else {
            return;
        };
        if self.is_due {
            if !self.pulse.has_turned() {
                return;
            }
            tell(&[NotifyState::Watchdog]);
            self.is_due = false;
        }
        if Instant::now() >= self.next {
            self.next = Instant::now() + interval;
            self.pulse.count();
            self.is_due = true;
        }
    }
}

/// Tells the service manager that the configuration is read again, as long as `work` takes.
pub(super) fn reloading(work: impl FnOnce()) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
    work();
    tell(&[NotifyState::Ready]);
}

/// Tells the service manager that the router ends, and ends the process if it has not ended in
/// [`LAST_RESORT`]. The first call counts, which is that of the thread of signals: the others may wait for
/// a file or the kernel, also during the start.
pub(super) fn ending() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tell(&[NotifyState::Stopping]);
        // Without a thread nothing watches the end, which usually takes milliseconds.
        let _ = thread::Builder::new().name("end".into()).spawn(|| {
            thread::sleep(LAST_RESORT);
            exit(format!(
                "the router did not end in {LAST_RESORT:?}; the process is ended"
            ));
        });
    });
}

/// Prints why, and ends the process.
fn exit(why: String) -> ! {
    // Standard error may have no reader.
    let _ = thread::Builder::new().spawn(move || eprintln!("sluice: {why}"));
    thread::sleep(LAST_WORDS);
    std::process::exit(STUCK);
}

fn tell(state: &[NotifyState<'_>]) {
    // A service manager that does not listen changes nothing for the packets.
    let _ = sd_notify::notify(state);
}

/// With [`LAST_WORDS`], and some time for a busy machine, less than the 5 s that a router may take to end.
const LAST_RESORT: Duration = Duration::from_millis(4500);
/// The time for printing why.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Exit status of sysexits.h for an internal error.
const STUCK: i32 = 70;
