//! Waits for frames or for a deadline, whichever comes first.

use crate::clock::Clock;
use crate::sys;
use sluice_core::{Span, Time};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

mod budget;
use budget::Budget;

/// The way in which a thread waits for a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Sleep until just before the deadline, by the few microseconds that the kernel is always
    /// late. Takes almost no processor time.
    None,
    /// Sleep until shortly before the deadline and busy-poll the rest. The margin follows the
    /// kernel's recent wake-up latency. While frames arrive in quick succession, poll again for
    /// some microseconds, yielding the core, before sleeping.
    #[default]
    Adaptive,
    /// Busy-poll always: for a thread with a core of its own. A real-time thread sleeps briefly now
    /// and then while nothing is due, since the kernel would otherwise stop it for longer. An
    /// ordinary thread that shares its core loses it for milliseconds. [`CacheWarmer`](super::CacheWarmer) is
    /// for such loops.
    Always,
}

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
    /// Something to read or room to write.
    Both,
    /// Nothing: the descriptor only keeps its place in the list.
    Nothing,
}

/// A descriptor to watch.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// The descriptor.
    pub descriptor: BorrowedFd<'a>,
    /// The events to watch for.
    pub interest: Interest,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The time at the end of the wait.
    pub now: Time,
    /// The watches that are ready: bit `i` for the `i`-th. An error on a descriptor makes it
    /// ready, so that the next call on it reports the error.
    pub ready: u64,
}

/// Waits for the packet loop of one thread.
#[derive(Debug)]
pub struct Waiter {
    spin: Spin,
    margin_ns: u64,
    /// How long the thread may busy-poll after a wait; zero for a real-time thread, which would
    /// starve all others on its core.
    linger: Span,
    /// The core time that a real-time thread leaves to others.
    budget: Option<Budget>,
    /// How late a wait may end.
    slack: Span,
    /// The duration of the last wait.
    last: Span,
    polls: Vec<libc::pollfd>,
}

impl Waiter {
    /// Creates a waiter for the calling thread and minimizes the thread's timer slack. Unless the
    /// thread has real-time priority, short time slices are requested too.
    pub fn new(spin: Spin) -> Waiter {
        crate::clock::precise_wakeups();
        let budget = Budget::of_thread();
        if spin != Spin::Always && budget.is_none() {
            // Optional: a kernel that refuses gives slices of milliseconds.
            let _ = sys::take_short_turns(SLICE_NS);
        }
        Waiter {
            spin,
            margin_ns: match spin {
                Spin::None => LEAST_MARGIN_NS,
                Spin::Adaptive | Spin::Always => FIRST_MARGIN_NS,
            },
            linger: match spin {
                Spin::Adaptive if budget.is_none() => LINGER,
                _ => Span::ZERO,
            },
            budget,
            slack: Span::ZERO,
            last: Span::MAX,
            polls: Vec::with_capacity(64),
        }
    }

    /// Lets waits end up to `slack` after their deadlines, so that one wake-up serves everything
    /// that is due meanwhile ([`wake_time`]). A waiter with slack does not busy-poll between frames.
    /// [`Spin::Always`] ignores the slack.
    pub const fn set_slack(&mut self, slack: Span) {
        if matches!(self.spin, Spin::Always) {
            return;
        }
        self.slack = slack;
        if slack.as_ns() > 0 {
            self.linger = Span::ZERO;
        }
    }

    /// Keeps a real-time thread from sleeping as an ordinary one, because it could not regain its
    /// priority: for a thread that has given up the privilege.
    pub const fn keep_priority(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.keep_priority();
        }
    }

    /// Sleeps until shortly before the slack after `start` is over, without watching anything, if
    /// something is `due` by then. For a caller that has received frames at `start`: it has to wake
    /// up then anyway, and frames that arrive meanwhile share that wake-up. Returns whether it has
    /// slept.
    pub fn pause_after(&mut self, start: Time, due: Option<Time>, clock: &Clock) -> bool {
        if self.slack == Span::ZERO {
            return false;
        }
        let wake = self.wake_time(start);
        let now = clock.now();
        if now + LEAST_PAUSE > wake || due.is_none_or(|due| due > wake) {
            return false;
        }
        self.was_awake(now);
        sys::sleep_until(clock.monotonic_ns(wake));
        let now = clock.now();
        self.has_slept(now, false);
        self.learn(now.since(wake).as_ns());
        true
    }

    /// Returns the current span between the end of the sleep and the deadline.
    pub fn margin(&self) -> Span {
        match self.spin {
            Spin::None | Spin::Adaptive => Span::from_ns(self.margin_ns),
            Spin::Always => Span::MAX,
        }
    }

    /// Waits until one of at most 64 `watches` is ready, `deadline` is reached, or a signal
    /// arrives. While busy-polling it still checks the watches, as often as a system call allows.
    pub fn wait(&mut self, watches: &[Watch<'_>], deadline: Option<Time>, clock: &Clock) -> Wake {
        self.wait_for_any(watches.iter().copied(), deadline, clock)
    }

    /// Same as [`Waiter::wait`], for a caller without a list of watches.
    pub fn wait_for_any<'a>(
        &mut self,
        watches: impl Iterator<Item = Watch<'a>>,
        deadline: Option<Time>,
        clock: &Clock,
    ) -> Wake {
        let start = self.begin(watches, clock);
        let wake = self.wait_until(start, deadline, clock);
        self.last = wake.now.since(start);
        wake
    }

    /// Busy-waits until `deadline` if another poll, which takes `look_takes`, would end after it.
    /// Returns the end of the wait; `None` if the deadline is further away.
    pub fn spin_if_near(
        now: Time,
        deadline: Option<Time>,
        look_takes: Span,
        clock: &Clock,
    ) -> Option<Time> {
        let deadline = deadline.filter(|deadline| now + look_takes >= *deadline)?;
        let mut now = now;
        while now < deadline {
            std::hint::spin_loop();
            now = clock.now();
        }
        Some(now)
    }

    /// Returns whether the thread never sleeps, so that the caller may as well poll the ports
    /// itself.
    pub const fn stays_awake(&self) -> bool {
        matches!(self.spin, Spin::Always)
    }

    /// Checks once which watches are ready, for a caller that busy-polls the ports itself between
    /// calls. Also yields the core for a moment when that is due.
    pub fn look_at_any<'a>(
        &mut self,
        watches: impl Iterator<Item = Watch<'a>>,
        deadline: Option<Time>,
        clock: &Clock,
    ) -> Wake {
        let now = self.begin(watches, clock);
        self.look(now, deadline, clock)
    }

    /// Copies the watches and accounts for the time until now, which it returns.
    fn begin<'a>(&mut self, watches: impl Iterator<Item = Watch<'a>>, clock: &Clock) -> Time {
        self.polls.clear();
        self.polls.extend(watches.map(|watch| libc::pollfd {
            // poll(2) ignores a negative descriptor and its errors.
            fd: match watch.interest {
                Interest::Nothing => -1,
                _ => watch.descriptor.as_raw_fd(),
            },
            events: match watch.interest {
                Interest::Readable => libc::POLLIN,
                Interest::Writable => libc::POLLOUT,
                Interest::Both => libc::POLLIN | libc::POLLOUT,
                Interest::Nothing => 0,
            },
            revents: 0,
        }));
        assert!(self.polls.len() <= 64, "readiness is a mask of 64 bits");
        let now = clock.now();
        self.was_awake(now);
        now
    }

    fn wait_until(&mut self, mut now: Time, deadline: Option<Time>, clock: &Clock) -> Wake {
        let wake = deadline.map(|deadline| self.wake_time(deadline).as_ns());
        if self.last < self.linger {
            let end = now + self.linger;
            while now < end && wake.is_none_or(|wake| now.as_ns() < wake) {
                if sys::poll(&mut self.polls, Some(Duration::ZERO)) > 0 {
                    return self.wake(clock.now());
                }
                sys::yield_core();
                now = clock.now();
            }
        }
        let sleeps = match (self.spin, wake) {
            (Spin::Always, _) => false,
            (_, None) => true,
            (_, Some(wake)) => now.as_ns() < wake,
        };
        if sleeps {
            let ready = self.sleep(now, wake, clock);
            let now = clock.now();
            self.has_slept(now, ready > 0);
            let Some((wake, deadline)) = wake.zip(deadline).filter(|_| ready == 0) else {
                return self.wake(now);
            };
            self.learn(now.as_ns().saturating_sub(wake));
            if now >= deadline {
                return self.wake(now);
            }
        }
        loop {
            let wake = self.look(now, deadline, clock);
            now = wake.now;
            if wake.ready != 0 {
                return wake;
            }
            if let Some(now) = Waiter::spin_if_near(now, deadline, LOOK_TAKES, clock) {
                return Wake { now, ready: 0 };
            }
        }
    }

    fn wake_time(&self, deadline: Time) -> Time {
        wake_time(deadline, self.slack, self.margin())
    }

    /// Sleeps until `wake` or until a watch is ready. Returns the number of ready watches. From
    /// time to time it sleeps as an ordinary thread, until shortly before `wake`, so that the
    /// scheduler chooses the core on which the thread wakes up.
    fn sleep(&mut self, mut now: Time, wake: Option<u64>, clock: &Clock) -> usize {
        let until = |ahead_ns: u64, now: Time| {
            wake.map(|wake| Duration::from_nanos(wake.saturating_sub(now.as_ns() + ahead_ns)))
        };
        let least = Duration::from_nanos(PLACED_AHEAD_NS);
        let is_long = until(PLACED_AHEAD_NS, now).is_none_or(|sleep| sleep >= least);
        if let Some(budget) = &mut self.budget
            && is_long
            && budget.is_to_be_placed()
        {
            let ready = sys::poll(&mut self.polls, Some(Duration::ZERO));
            if ready > 0 {
                return ready;
            }
            budget.become_ordinary();
            // Other threads may have used the core meanwhile.
            let ready = sys::poll(&mut self.polls, until(PLACED_AHEAD_NS, clock.now()));
            budget.raise();
            if ready > 0 {
                budget.was_placed();
            }
            // Without a deadline, a signal has ended the sleep.
            if ready > 0 || wake.is_none() {
                return ready;
            }
            now = clock.now();
        }
        sys::poll(&mut self.polls, until(0, now))
    }

    /// Polls the watches once, immediately or after a rest.
    fn look(&mut self, now: Time, deadline: Option<Time>, clock: &Clock) -> Wake {
        let rest = self
            .budget
            .as_ref()
            .and_then(|budget| budget.rest(now, deadline));
        let timeout = rest.unwrap_or(Span::ZERO);
        let ready = sys::poll(&mut self.polls, Some(Duration::from_nanos(timeout.as_ns())));
        let now = clock.now();
        if rest.is_some() {
            self.has_slept(now, ready > 0);
        } else {
            self.was_awake(now);
        }
        self.wake(now)
    }

    /// Returns whether the thread should yield its core for a moment, which [`Waiter::look_at_any`]
    /// does: it owes that, and nothing is due soon. Also accounts for the time until `now`, for a
    /// caller that busy-polls.
    pub fn owes_rest(&mut self, now: Time, deadline: Option<Time>) -> bool {
        self.was_awake(now);
        let budget = self.budget.as_ref();
        budget.is_some_and(|budget| budget.rest(now, deadline).is_some())
    }

    fn was_awake(&mut self, now: Time) {
        if let Some(budget) = &mut self.budget {
            budget.was_awake(now);
        }
    }

    fn has_slept(&mut self, now: Time, is_woken: bool) {
        if let Some(budget) = &mut self.budget {
            budget.has_slept(now, is_woken);
        }
    }

    fn wake(&self, now: Time) -> Wake {
        let ready = self
            .polls
            .iter()
            .enumerate()
            .filter(|(_, poll)| poll.revents != 0)
            .fold(0, |mask, (index, _)| mask | 1 << index);
        Wake { now, ready }
    }

    /// Tracks a quantile of the lateness by unequal steps up and down. When busy-polling, the
    /// margin covers the lateness that 1 of 129 wake-ups exceeds; when sleeping, the one that 3 of
    /// 4 exceed.
    fn learn(&mut self, late_ns: u64) {
        let (up_ns, down_ns) = match self.spin {
            Spin::None => (STEP_NS / 4, STEP_NS * 3 / 4),
            Spin::Adaptive | Spin::Always => (UP_NS, DOWN_NS),
        };
        self.margin_ns = if late_ns > self.margin_ns {
            (self.margin_ns + up_ns).min(MOST_MARGIN_NS)
        } else {
            self.margin_ns.saturating_sub(down_ns).max(LEAST_MARGIN_NS)
        };
    }
}

/// Returns the instant at which the sleep before `deadline` should end, if the wait may end `slack`
/// late and wake-ups are usually up to `margin` late. With slack, that is at the earliest halfway
/// between the deadline and the end of the slack, so that nothing is left to busy-poll for.
pub fn wake_time(deadline: Time, slack: Span, margin: Span) -> Time {
    let margin_ns = match slack.as_ns() {
        0 => margin.as_ns(),
        slack_ns => margin.as_ns().min(slack_ns / 2),
    };
    let latest = deadline.saturating_add(slack);
    Time::from_ns(latest.as_ns().saturating_sub(margin_ns))
}

/// A shorter pause is not worth its system call.
const LEAST_PAUSE: Span = Span::from_us(5);
/// Sleeping and waking up costs more than most packets do. While packets arrive faster than this,
/// the loop polls again and yields the core in between.
const LINGER: Span = Span::from_us(50);
/// Longest duration of a call of poll(2).
const LOOK_TAKES: Span = Span::from_us(3);
/// A deadline is awaited with real-time priority from this long before it.
const PLACED_AHEAD_NS: u64 = 500_000;
/// The shortest time slice that the kernel grants; a batch takes tens of microseconds.
const SLICE_NS: u64 = 100_000;
const FIRST_MARGIN_NS: u64 = 60_000;
const LEAST_MARGIN_NS: u64 = 5_000;
/// A longer delay is the time slice of another task, which is too long to busy-poll for.
const MOST_MARGIN_NS: u64 = 200_000;
const UP_NS: u64 = 6_400;
const DOWN_NS: u64 = UP_NS / 128;
const STEP_NS: u64 = 800;

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Fields of a thread's `stat` file (proc(5)).
    fn stat<const N: usize>(thread: &str, fields: [usize; N]) -> [String; N] {
        let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
        // What follows the name begins with field 3.
        let words: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields.map(|field| words[field - 3].to_owned())
    }

    /// Nice level, real-time priority and policy of the calling thread.
    fn standing() -> [String; 3] {
        stat("thread-self", [19, 40, 41])
    }

    #[test]
    fn a_waiter_keeps_nice_level_priority_and_policy() {
        for spin in [Spin::None, Spin::Adaptive, Spin::Always] {
            let thread = std::thread::spawn(move || {
                let before = standing();
                let _waiter = Waiter::new(spin);
                (before, standing())
            });
            let (before, after) = thread.join().unwrap();
            assert_eq!(before, after, "{spin:?}");
        }
    }

    fn is_real_time() -> bool {
        sys::Scheduling::of_thread().unwrap().is_real_time()
    }

    /// A pipe of many gigabits always has something due, and arrivals must still be received.
    #[test]
    fn a_deadline_that_is_near_or_past_hides_nothing_that_is_ready() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &far, b"x").unwrap();
        let watch = Watch {
            descriptor: std::os::fd::AsFd::as_fd(&near),
            interest: Interest::Readable,
        };
        let clock = Clock::start();
        for spin in [Spin::None, Spin::Adaptive, Spin::Always] {
            let mut waiter = Waiter::new(spin);
            for ahead in [0, 1, 10, 1000] {
                let deadline = clock.now() + Span::from_us(ahead);
                let wake = waiter.wait(&[watch], Some(deadline), &clock);
                assert_eq!(wake.ready, 1, "{spin:?}, {ahead} us");
                let wake = waiter.wait(&[watch], Some(Time::ZERO), &clock);
                assert_eq!(wake.ready, 1, "{spin:?}, past");
            }
        }
    }

    #[test]
    fn a_real_time_thread_stays_one() {
        let thread = std::thread::spawn(|| {
            // Only where the process has the privilege.
            let may = crate::real_time(1).is_ok();
            let _waiter = Waiter::new(Spin::Adaptive);
            assert_eq!(may, is_real_time());
        });
        thread.join().unwrap();
    }

    /// Runs `work` on a thread with priority over all ordinary threads: one at a time, because two
    /// that busy-poll would leave no core to others.
    fn with_real_time(work: impl FnOnce() + Send + 'static) {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = std::thread::spawn(|| {
            if crate::real_time(1).is_err() {
                assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
                eprintln!("NOT SHOWN: this needs real-time priority");
                return;
            }
            work();
        });
        thread.join().unwrap();
    }

    /// The policy of a thread of this process, as soon as it sleeps.
    fn policy_asleep(thread: libc::pid_t) -> libc::c_int {
        let thread = format!("self/task/{thread}");
        loop {
            let [state, policy] = stat(&thread, [3, 41]);
            if state == "S" {
                return policy.parse().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The policies of the calling thread in nine sleeps of a millisecond and more.
    fn policies_of_sleeps() -> Vec<libc::c_int> {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        // SAFETY: takes no arguments.
        #[allow(unsafe_code)]
        let this = unsafe { libc::gettid() };
        let watcher = std::thread::spawn(move || {
            let mut policies = Vec::new();
            for () in begun {
                policies.push(policy_asleep(this));
                // A short sleep does not count.
                std::thread::sleep(Duration::from_millis(1));
                std::io::Write::write_all(&mut &far, b"x").unwrap();
            }
            policies
        });
        let watch = Watch {
            descriptor: std::os::fd::AsFd::as_fd(&near),
            interest: Interest::Readable,
        };
        let clock = Clock::start();
        let mut waiter = Waiter::new(Spin::None);
        for _ in 0..9 {
            // This sleep does not count, since no frame ends it.
            waiter.wait(&[watch], Some(clock.now() + Span::from_ms(3)), &clock);
            begins.send(()).unwrap();
            let deadline = clock.now() + Span::from_secs(60);
            let wake = waiter.wait(&[watch], Some(deadline), &clock);
            assert!(wake.ready == 1 && wake.now < deadline);
            assert!(is_real_time());
            std::io::Read::read_exact(&mut &near, &mut [0]).unwrap();
        }
        drop(begins);
        watcher.join().unwrap()
    }

    #[test]
    fn the_scheduler_places_the_first_long_sleeps_of_a_real_time_thread() {
        with_real_time(|| {
            let (ordinary, fifo) = (libc::SCHED_OTHER, libc::SCHED_FIFO);
            let cores = crate::cores::allowed().unwrap();
            let expected = match cores.len() {
                1 => [fifo; 9],
                // The first, the second, the fourth, the eighth.
                _ => [1, 1, 0, 1, 0, 0, 0, 1, 0]
                    .map(|placed| if placed == 1 { ordinary } else { fifo }),
            };
            assert_eq!(policies_of_sleeps(), expected);
            let _stay = crate::cores::Stay::on(&cores[..1]).unwrap();
            assert_eq!(
                policies_of_sleeps(),
                [fifo; 9],
                "there is nothing to choose"
            );
        });
    }

    #[test]
    fn a_thread_that_would_not_get_its_priority_back_keeps_it() {
        with_real_time(|| {
            // capset(2), version 3: 64 bits each of the effective, permitted and inheritable
            // capabilities of this thread.
            let header = [0x2008_0522_u32, 0];
            let none = [0_u32; 6];
            // SAFETY: both are valid for reading as long as that version says.
            #[allow(unsafe_code)]
            let result =
                unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const none) };
            assert_eq!(result, 0);
            if crate::real_time(2).is_ok() {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "CI has no limit of rtprio"
                );
                eprintln!("NOT SHOWN: the limit of rtprio allows it without the capability");
                return;
            }
            assert_eq!(policies_of_sleeps(), [libc::SCHED_FIFO; 9]);
        });
    }

    #[test]
    fn a_sleep_as_an_ordinary_thread_ends_no_wait_early() {
        with_real_time(|| {
            let clock = Clock::start();
            for spin in [Spin::None, Spin::Adaptive] {
                let mut waiter = Waiter::new(spin);
                for _ in 0..4 {
                    let deadline = clock.now() + Span::from_ms(3);
                    let wake = waiter.wait(&[], Some(deadline), &clock);
                    assert!(wake.now >= deadline && wake.ready == 0, "{spin:?}");
                    assert!(is_real_time());
                }
            }
        });
    }

    /// The kernel would stop it after 950 ms of a second.
    #[test]
    fn a_real_time_thread_that_never_sleeps_leaves_a_twentieth_to_others() {
        with_real_time(|| {
            let clock = Clock::start();
            let used = || Time::from_ns(sys::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
            let mut waiter = Waiter::new(Spin::Always);
            let (start, used_before) = (clock.now(), used());
            waiter.wait(&[], Some(start + Span::from_ms(400)), &clock);
            let (took, used) = (clock.now().since(start), used().since(used_before));
            assert!(
                used.as_ns() < took.as_ns() * 19 / 20,
                "{used:?} of {took:?}"
            );

            // With something due at every instant, it is an ordinary thread now and then, and is
            // not moved then.
            let cores = || sys::Affinity::of_thread().unwrap().cores();
            let cores_before = cores();
            let end = clock.now() + Span::from_secs(2);
            while is_real_time() && clock.now() < end {
                waiter.wait(&[], Some(Time::ZERO), &clock);
            }
            assert!(!is_real_time(), "it has never left the core to others");
            assert_eq!(cores().len(), 1);
            while !is_real_time() && clock.now() < end {
                waiter.wait(&[], Some(Time::ZERO), &clock);
            }
            assert!(is_real_time(), "it has not come back");
            assert_eq!(cores(), cores_before);
        });
    }
}
