//! The share of a core that a real-time thread uses before it yields the core to others.
//!
//! Linux gives real-time threads 95 % of each second of a core (sched(7), sched_rt_runtime_us). A
//! thread that has used up its share is stopped until the second is over, for up to 50 ms, even if
//! the core is idle: a loop that is always busy would forward nothing for that long. The loop
//! therefore stays below the limit itself, in smaller pieces. It sleeps when nothing is due soon.
//! If something is always due, it runs as an ordinary thread for some milliseconds, pinned to its
//! core: the scheduler moves ordinary threads between cores, and after regaining real-time priority
//! the thread would preempt whatever runs on the core that it was moved to.
//!
//! The thread is also an ordinary one for some of its sleeps ([`Placements`]), so that the
//! scheduler may move it.

use crate::sys::{Affinity, Scheduling};
use sluice_core::{Span, Time};

/// The core time that a thread owes to others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debt {
    ns: u64,
}

impl Debt {
    /// Adds `time` with real-time priority.
    pub(super) fn ran(&mut self, time: Span) {
        self.ns += time.as_ns() / RUNS_PER_REST;
    }

    /// Subtracts `time` in which it slept or other threads could use the core. Time yielded in
    /// advance does not count: the kernel's limit applies to each second separately.
    pub(super) fn rested(&mut self, time: Span) {
        self.ns = self.ns.saturating_sub(time.as_ns());
    }

    /// Returns whether a rest is worthwhile.
    pub(super) const fn is_worth_a_rest(&self) -> bool {
        self.ns >= REST.as_ns()
    }

    /// Returns whether the debt must be paid now.
    pub(super) const fn is_overdue(&self) -> bool {
        self.ns >= MOST_OWED.as_ns()
    }

    /// Returns whether no time is owed.
    pub(super) const fn is_paid(&self) -> bool {
        self.ns == 0
    }
}

/// The sleeps in which the loop is an ordinary thread. A real-time thread wakes up on the core on
/// which it fell asleep, and that core must be started if the wake-up comes from another core. For
/// an ordinary thread the scheduler chooses the core, and it knows which cores the hypervisor has
/// halted. So the loop lets the scheduler choose before the first wake-up from a long sleep, and
/// then more and more rarely, because a wake-up with real-time priority is more reliable when other
/// threads compete for the core.
#[derive(Clone, Copy, Debug, Default)]
struct Placements {
    /// Long sleeps that a frame ended. A sleep that a deadline ends stays on its core and does not
    /// count.
    wakes: u64,
    /// The last wake-up for which the scheduler chose the core.
    tried: u64,
}

impl Placements {
    /// Returns whether the scheduler chooses the core for the next sleep.
    fn is_due(&self) -> bool {
        let next = self.wakes + 1;
        let step = next.next_power_of_two().min(WAKES_PER_PLACE);
        // After a short sleep, frames arrive in quick succession.
        next.is_multiple_of(step) && self.tried != next
    }

    /// Records that the scheduler chose the core and a frame ended the sleep.
    const fn has_chosen(&mut self) {
        self.tried = self.wakes + 1;
    }

    /// Records that a frame has ended a sleep of this length.
    fn woke(&mut self, asleep: Span) {
        self.wakes += u64::from(asleep >= LONG_SLEEP);
    }
}

/// Keeps a real-time thread below its share.
#[derive(Debug)]
pub(super) struct Budget {
    debt: Debt,
    /// The instant up to which the thread's time is accounted for.
    until: Option<Time>,
    /// The policy with real-time priority.
    real_time: Scheduling,
    /// Whether the thread is an ordinary one now.
    is_lowered: bool,
    /// The cores that the thread had before, and the one that it is pinned to.
    stays: Option<[Affinity; 2]>,
    /// Whether the thread gets its priority back after running as an ordinary thread.
    may_return: bool,
    /// Whether the thread may run on more than one core.
    has_choice: bool,
    placements: Placements,
}

impl Budget {
    /// Creates the budget of the calling thread; an ordinary thread needs none.
    pub(super) fn of_thread() -> Option<Budget> {
        let real_time = Scheduling::of_thread().ok()?;
        real_time.is_real_time().then_some(Budget {
            debt: Debt::default(),
            until: None,
            real_time,
            is_lowered: false,
            stays: None,
            may_return: may_return_to(real_time),
            has_choice: Affinity::of_thread().is_ok_and(|cores| cores.cores().len() > 1),
            placements: Placements::default(),
        })
    }

    /// Accounts for the time until now, in which the thread ran. If the debt is overdue, makes the
    /// thread an ordinary one until enough time has passed.
    pub(super) fn was_awake(&mut self, now: Time) {
        let time = self.pass(now);
        if self.is_lowered {
            self.debt.rested(time);
            if self.debt.is_paid() && self.may_return {
                self.raise();
            }
        } else {
            self.debt.ran(time);
            if self.debt.is_overdue() {
                self.lower();
            }
        }
    }

    fn lower(&mut self) {
        let cores = Affinity::of_thread().ok().zip(Affinity::here());
        // A thread that does not regain real-time priority may be moved.
        let stays = cores.filter(|(_, here)| self.may_return && here.take().is_ok());
        self.stays = stays.map(|(before, here)| [before, here]);
        self.become_ordinary();
        if !self.is_lowered {
            self.may_move();
        }
    }

    /// Restores the priority of the thread.
    pub(super) fn raise(&mut self) {
        // If the kernel refuses, the thread remains an ordinary one.
        self.may_return = self.real_time.take().is_ok();
        self.is_lowered = !self.may_return;
        self.may_move();
    }

    /// Restores the cores of the thread, unless another program has changed them.
    fn may_move(&mut self) {
        if let Some([before, here]) = self.stays.take()
            && Affinity::of_thread().is_ok_and(|present| present == here)
        {
            // This fails if all of them were taken from the process; the thread then stays on its
            // core.
            let _ = before.take();
        }
    }

    /// Records that the thread could not regain its priority.
    pub(super) const fn keep_priority(&mut self) {
        self.may_return = false;
    }

    /// Returns whether the scheduler chooses the core for the next sleep, if that may be a long
    /// one.
    pub(super) fn is_to_be_placed(&self) -> bool {
        self.may_return && self.has_choice && !self.is_lowered && self.placements.is_due()
    }

    /// Records that a frame ended a sleep for which the scheduler chose the core.
    pub(super) const fn was_placed(&mut self) {
        self.placements.has_chosen();
    }

    /// Makes the thread an ordinary one, up to [`Budget::raise`].
    pub(super) fn become_ordinary(&mut self) {
        // Never refused: every thread may become an ordinary one.
        self.is_lowered = self.real_time.ordinary(super::SLICE_NS).take().is_ok();
    }

    /// Records that the thread has slept until now, and whether a frame ended the sleep.
    pub(super) fn has_slept(&mut self, now: Time, is_woken: bool) {
        let time = self.pass(now);
        self.debt.rested(time);
        if is_woken {
            self.placements.woke(time);
        }
    }

    /// Returns the length of a sleep now: a short time if the thread is in debt and nothing is due
    /// soon.
    pub(super) fn rest(&self, now: Time, deadline: Option<Time>) -> Option<Span> {
        let is_due_soon = deadline.is_some_and(|deadline| deadline < now + REST + AHEAD);
        (self.debt.is_worth_a_rest() && !self.is_lowered && !is_due_soon).then_some(REST)
    }

    fn pass(&mut self, now: Time) -> Span {
        let before = self.until.replace(now).unwrap_or(now);
        now.since(before)
    }
}

/// Returns whether an ordinary thread of this process may take this priority. A thread that was
/// started with real-time priority keeps it without the privilege, but cannot regain it.
fn may_return_to(real_time: Scheduling) -> bool {
    let tries = move || {
        real_time
            .ordinary(super::SLICE_NS)
            .take()
            .and_then(|()| real_time.take())
    };
    let thread = std::thread::Builder::new().spawn(tries);
    thread.is_ok_and(|thread| thread.join().is_ok_and(|result| result.is_ok()))
}

/// The thread uses at most eleven twelfths of a core. This leaves more time to others than the
/// kernel requires, because the kernel's second can begin at any time and a batch may end late.
const RUNS_PER_REST: u64 = 11;
const REST: Span = Span::from_us(100);
/// The lateness of a rest that is still harmless.
const AHEAD: Span = Span::from_us(300);
/// A core that has idled for this long may have been halted.
const LONG_SLEEP: Span = Span::from_us(200);
/// Wake-ups from long sleeps per choice of the scheduler, in the long run.
const WAKES_PER_PLACE: u64 = 128;
/// The debt after 55 ms without a rest: a twentieth of a second.
const MOST_OWED: Span = Span::from_ms(5);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel allows (sched(7)): 950 ms of each second.
    const SECOND_NS: u64 = 1_000_000_000;
    const ALLOWED_NS: u64 = 950_000_000;

    proptest! {
        /// Turns of up to 2 ms, back to back or with sleeps in between, for ten seconds.
        #[test]
        fn no_second_has_more_than_the_kernel_allows(
            turns in prop::collection::vec((1..2_000_000_u64, 0..50_000_u64), 1..200),
            begin in 0..SECOND_NS,
        ) {
            let mut debt = Debt::default();
            let (mut now, mut is_lowered, mut used) = (begin, false, vec![0_u64; 12]);
            for (run, sleep) in turns.iter().cycle() {
                if now >= 10 * SECOND_NS {
                    break;
                }
                if is_lowered {
                    debt.rested(Span::from_ns(*run));
                    is_lowered = !debt.is_paid();
                } else {
                    debt.ran(Span::from_ns(*run));
                    is_lowered = debt.is_overdue();
                    // Divided among the seconds that the turn spans.
                    let first = (now / SECOND_NS) as usize;
                    let here = (*run).min((first as u64 + 1) * SECOND_NS - now);
                    used[first] += here;
                    used[first + 1] += run - here;
                }
                debt.rested(Span::from_ns(*sleep));
                now += run + sleep;
            }
            let most = used.into_iter().max();
            prop_assert!(most <= Some(ALLOWED_NS), "{most:?}");
        }
    }

    #[test]
    fn the_scheduler_chooses_for_ever_fewer_wake_ups() {
        let long = LONG_SLEEP;
        let mut placements = Placements::default();
        let mut chosen = Vec::new();
        for wake in 1..=400 {
            if placements.is_due() {
                placements.has_chosen();
                chosen.push(wake);
            }
            placements.woke(long);
        }
        assert_eq!(chosen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 384]);
    }

    #[test]
    fn the_scheduler_does_not_choose_again_while_sleeps_are_short() {
        let short = Span::from_ns(LONG_SLEEP.as_ns() - 1);
        let mut placements = Placements::default();
        assert!(placements.is_due());
        placements.has_chosen();
        for _ in 0..1000 {
            placements.woke(short);
            assert!(!placements.is_due());
        }
        placements.woke(LONG_SLEEP);
        assert!(placements.is_due(), "the second");
    }

    #[test]
    fn an_ordinary_thread_has_no_budget() {
        let thread = std::thread::spawn(|| {
            let present = Scheduling::of_thread().unwrap();
            present.ordinary(super::super::SLICE_NS).take().unwrap();
            Budget::of_thread().is_none()
        });
        assert!(thread.join().unwrap());
    }
}
