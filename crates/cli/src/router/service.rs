//! What a service manager learns of the router: that it is ready, that it reads its configuration
//! again, that it ends, and that its packet loop is alive. The protocol is that of sd_notify(3);
//! without a service manager nothing is sent. A router that cannot go on, or cannot end, ends its process
//! by itself.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Once;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use sd_notify::NotifyState;
use sluice_router::process::{Pulse, Router};

/// Sends the watchdog's signs of life, and ends the process if the packet loop hangs.
pub(super) struct Service {
    /// The interval between two signs, if a watchdog waits for them.
    interval: Option<Duration>,
    next: Instant,
    pulse: Pulse,
    /// Whether the loops are to turn before the next sign.
    is_due: bool,
    /// `None` if the loop may wait for files.
    silence: Option<(Silence, Pulse)>,
}

impl Service {
    /// Tells the service manager that the router is ready.
    pub fn ready(router: &Router) -> Service {
        tell(&[NotifyState::Ready]);
        let silence = (!router.plays_files()).then(|| {
            let mut pulse = router.pulse();
            // A loop without packets turns for this.
            pulse.count();
            (Silence::default(), pulse)
        });
        Service {
            // Three chances in the time that the watchdog allows.
            interval: sd_notify::watchdog_enabled().map(|period| period / 3),
            next: Instant::now(),
            pulse: router.pulse(),
            is_due: false,
            silence,
        }
    }

    /// Gives signs of life. Ends the process if a loop hangs. If a guardian is there, whose bridge forwards
    /// meanwhile, it first returns a warning, because the loop may continue. Waits [`PATIENCE`] at most. Call
    /// it every [`LOOK`](super::LOOK).
    pub fn look(&mut self, router: &Router) -> Option<String> {
        self.feed();
        let (silence, pulse) = self.silence.as_mut()?;
        let looks = silence.look(pulse.has_turned(), || pulse.count())?;
        let what = format!("the packet loop has hung for {} s", looks / super::LOOKS);
        // Whether the guardian lives was last seen when the loop turned.
        if is_the_end(looks, router.is_guarded()) {
            exit(format!("{what}; the process is ended"));
        }
        Some(format!(
            "sluice: warning: {what}; until it continues, the guardian of --fail-open is to forward\n"
        ))
    }

    /// Sends a sign of life whenever the loop has turned. A loop that forwards no packets does not turn, so
    /// the service manager then ends the router. One that executes a long batch of commands turns, although
    /// it answers nothing.
    fn feed(&mut self) {
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

/// How long the loops have not turned, in checks: time in which this thread does not run either, because
/// the process is stopped or the machine sleeps, does not count.
#[derive(Default)]
struct Silence {
    /// Checks since the turns were counted.
    looks: u64,
}

impl Silence {
    /// Returns the number of checks if the loops are just found to hang, or to go on hanging. `has_turned`:
    /// whether they have turned since they were counted, which `count` does again.
    fn look(&mut self, has_turned: bool, count: impl FnOnce()) -> Option<u64> {
        self.looks += 1;
        // Each count wakes up loops without packets.
        if has_turned && self.looks >= super::LOOKS {
            count();
            self.looks = 0;
        }
        let is_found = !has_turned && [HANGING, GIVEN_UP].contains(&self.looks);
        is_found.then_some(self.looks)
    }
}

/// Returns whether loops that have not turned for so many checks end the process. While there is a guardian,
/// its bridge forwards, and the loops may continue.
fn is_the_end(looks: u64, is_guarded: bool) -> bool {
    looks >= GIVEN_UP || !is_guarded
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
        // Without a thread nothing watches the end, which usually takes milliseconds.
        let _ = thread::Builder::new().name("end".into()).spawn(|| {
            thread::sleep(LAST_RESORT);
            exit(format!(
                "the router did not end in {LAST_RESORT:?}; the process is ended"
            ));
        });
        tell(&[NotifyState::Stopping]);
    });
}

/// Prints why, and ends the process.
fn exit(why: String) -> ! {
    // Standard error may have no reader.
    let _ = thread::Builder::new().spawn(move || eprintln!("sluice: {why}"));
    thread::sleep(LAST_WORDS);
    std::process::exit(STUCK);
}

fn tell(states: &[NotifyState<'_>]) {
    // A service manager that does not listen changes nothing for the packets.
    let _ = send(states);
}

/// Sends a message to the service manager. `sd_notify::notify` would wait as long as a manager that does not
/// read has a full socket; it also takes the name of an abstract socket for a path.
fn send(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let manager = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let lines: Vec<String> = states.iter().map(|state| format!("{state}\n")).collect();
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(lines.concat().as_bytes(), &manager)?;
    Ok(())
}

/// A loop that has not turned in so many checks, 10 s, hangs. A single command may hold it for less.
const HANGING: u64 = 10 * super::LOOKS;
/// One that hangs for a minute is not expected to continue. The guardian's bridge outlives the process.
const GIVEN_UP: u64 = 60 * super::LOOKS;
/// The longest wait for a service manager that does not read.
const PATIENCE: Duration = Duration::from_millis(100);
/// With [`LAST_WORDS`], and some time for a busy machine, less than the 5 s that a router may take to end.
const LAST_RESORT: Duration = Duration::from_millis(4200);
/// The time for printing why.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Exit status of sysexits.h for an internal error.
const STUCK: i32 = 70;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the checks at which loops are found to hang that turn whenever `turns` says so.
    fn found(looks: u64, turns: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut silence, mut has_turned) = (Silence::default(), false);
        let look = |number: &u64| {
            has_turned |= turns(*number);
            let mut is_counted = false;
            let hangs = silence.look(has_turned, || is_counted = true);
            has_turned &= !is_counted;
            hangs.is_some()
        };
        (1..=looks).filter(look).collect()
    }

    #[test]
    fn a_loop_that_turns_now_and_then_does_not_hang() {
        assert!(found(10_000, |_| true).is_empty());
        // Every 9 s: the turns are counted at once, and 89 checks without one follow.
        assert!(found(10_000, |look| look % 90 == 0).is_empty());
    }

    #[test]
    fn a_loop_that_turns_no_more_is_reported_after_ten_seconds_and_after_a_minute() {
        assert_eq!(found(10_000, |_| false), [100, 600]);
        // The turns are counted every 10 checks, so the ones of checks 41 to 45 at check 50.
        assert_eq!(found(10_000, |look| look <= 45), [150, 650]);
        // One that continues can hang again: the turn of check 300 is counted at once.
        let found = found(1_000, |look| look <= 45 || look == 300);
        assert_eq!(found, [150, 400, 900]);
    }

    #[test]
    fn a_guarded_loop_has_a_minute_and_any_other_ten_seconds() {
        let ends = |is_guarded| {
            let found = [HANGING, GIVEN_UP].into_iter();
            found.filter(move |&looks| is_the_end(looks, is_guarded))
        };
        assert_eq!(ends(false).next(), Some(100));
        assert!(ends(true).eq([600]));
    }
}
