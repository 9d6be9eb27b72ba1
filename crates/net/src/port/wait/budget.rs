//! How much of a core a real-time thread takes before it lets others have it.
//!
//! Linux gives real-time threads 95 % of each second of a core (sched(7), sched_rt_runtime_us). Who has used
//! that up is stopped until the second is over, for up to 50 ms, and the core may idle meanwhile: a loop that
//! is busy or never sleeps would forward nothing for that long. So it stays below by itself, in pieces that
//! hurt less: it sleeps when nothing is due soon, and if that never is, it runs as an ordinary thread for
//! some milliseconds, on the core where it is: the scheduler moves ordinary threads about, and one that has
//! real-time priority again takes the core from whoever runs where it has come to.

use crate::sys::{Affinity, Scheduling};
use sluice_core::{Span, Time};

/// What a thread owes to others, in its own time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debt {
    ns: u64,
}

impl Debt {
    /// It ran before all others for so long.
    pub(super) fn ran(&mut self, time: Span) {
        self.ns += time.as_ns() / RUNS_PER_REST;
    }

    /// For so long it slept, or others might have the core. What is given in advance is not counted: the
    /// kernel begins anew with each second.
    pub(super) fn rested(&mut self, time: Span) {
        self.ns = self.ns.saturating_sub(time.as_ns());
    }

    /// Whether a rest is worth while.
    pub(super) const fn is_worth_a_rest(&self) -> bool {
        self.ns >= REST.as_ns()
    }

    /// Whether it must be paid now.
    pub(super) const fn is_overdue(&self) -> bool {
        self.ns >= MOST_OWED.as_ns()
    }

    /// Nothing is owed.
    pub(super) const fn is_paid(&self) -> bool {
        self.ns == 0
    }
}

/// Keeps a real-time thread below its share.
#[derive(Debug)]
pub(super) struct Budget {
    debt: Debt,
    /// The thread was accounted for until then.
    until: Option<Time>,
    /// As what it runs before all others.
    real_time: Scheduling,
    /// It runs as one of the others now.
    is_lowered: bool,
    /// The cores that it had before that, and the one that it has for as long.
    stays: Option<[Affinity; 2]>,
    /// It may run on more than one core.
    has_choice: bool,
    /// Sleeps that were long ones.
    long_sleeps: u64,
}

impl Budget {
    /// For the calling thread; an ordinary one needs none.
    pub(super) fn of_thread() -> Option<Budget> {
        let real_time = Scheduling::of_thread().ok()?;
        real_time.is_real_time().then_some(Budget {
            debt: Debt::default(),
            until: None,
            real_time,
            is_lowered: false,
            stays: None,
            has_choice: Affinity::of_thread().is_ok_and(|cores| cores.cores().len() > 1),
            long_sleeps: 0,
        })
    }

    /// The thread has been awake until now. Pays what is overdue: the thread is an ordinary one then, until
    /// as much time has passed.
    pub(super) fn was_awake(&mut self, now: Time) {
        let time = self.pass(now);
        if self.is_lowered {
            self.debt.rested(time);
            if self.debt.is_paid() {
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
        let stays = cores.filter(|(_, here)| here.take().is_ok());
        self.stays = stays.map(|(before, here)| [before, here]);
        self.become_ordinary();
        if !self.is_lowered {
            self.may_move();
        }
    }

    /// Gives the thread its priority back.
    pub(super) fn raise(&mut self) {
        self.is_lowered = self.real_time.take().is_err();
        // Refused, it is an ordinary one for good.
        self.may_move();
    }

    /// Gives the thread its cores back, unless somebody has given it others meanwhile.
    fn may_move(&mut self) {
        if let Some([before, here]) = self.stays.take()
            && Affinity::of_thread().is_ok_and(|present| present == here)
        {
            // It fails when all of them have been taken from the process; then it stays.
            let _ = before.take();
        }
    }

    /// Whether the next long sleep is to be that of an ordinary thread. A real-time one wakes up on the core on
    /// which it fell asleep, wherever that comes from which it is woken for; an ordinary one where the scheduler
    /// thinks best, which knows the cores that the hypervisor has halted. So the first long sleeps are an ordinary
    /// thread's, and then ever fewer, since with priority a wake-up is surer where others want the core.
    pub(super) fn is_to_be_placed(&self) -> bool {
        let next = self.long_sleeps + 1;
        let step = next.next_power_of_two().min(MOST_SLEEPS_PER_PLACE);
        self.has_choice && !self.is_lowered && next.is_multiple_of(step)
    }

    /// Makes the thread an ordinary one, up to [`Budget::raise`].
    pub(super) fn become_ordinary(&mut self) {
        // Refused to nobody: every thread may become an ordinary one.
        self.is_lowered = self.real_time.ordinary(super::SLICE_NS).take().is_ok();
    }

    /// The thread has slept until now.
    pub(super) fn has_slept(&mut self, now: Time) {
        let time = self.pass(now);
        self.debt.rested(time);
        self.long_sleeps += u64::from(time >= LONG_SLEEP);
    }

    /// How long the thread may sleep now: a little, if something is owed and nothing is due soon.
    pub(super) fn rest(&self, now: Time, deadline: Option<Time>) -> Option<Span> {
        let is_due_soon = deadline.is_some_and(|deadline| deadline < now + REST + AHEAD);
        (self.debt.is_worth_a_rest() && !self.is_lowered && !is_due_soon).then_some(REST)
    }

    fn pass(&mut self, now: Time) -> Span {
        let before = self.until.replace(now).unwrap_or(now);
        now.since(before)
    }
}

/// The thread has eleven twelfths of a core, which leaves to others more than the kernel asks for: its second
/// begins when it likes, and a batch may end late.
const RUNS_PER_REST: u64 = 11;
const REST: Span = Span::from_us(100);
/// By so much a rest may end late without harm.
const AHEAD: Span = Span::from_us(300);
/// A core that has idled for so long may have been halted.
const LONG_SLEEP: Span = Span::from_us(200);
/// At least one in so many long sleeps is that of an ordinary thread.
const MOST_SLEEPS_PER_PLACE: u64 = 128;
/// Owed after 55 ms without a rest: a twentieth of a second.
const MOST_OWED: Span = Span::from_ms(5);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel allows (sched(7)): 950 ms of each second.
    const SECOND_NS: u64 = 1_000_000_000;
    const ALLOWED_NS: u64 = 950_000_000;

    proptest! {
        /// Turns of up to 2 ms, one upon the other or with sleep in between, for ten seconds.
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
                    // Divided between the seconds that it falls into.
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
    fn an_ordinary_thread_has_no_budget() {
        let thread = std::thread::spawn(|| {
            let present = Scheduling::of_thread().unwrap();
            present.ordinary(super::super::SLICE_NS).take().unwrap();
            Budget::of_thread().is_none()
        });
        assert!(thread.join().unwrap());
    }
}
