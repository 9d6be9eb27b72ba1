//! The cores, the scheduling and the priority of the calling thread.

use std::io;

use super::check;

/// Minimises the kernel's slack for wake-ups of this thread.
pub(crate) fn set_timer_slack(ns: libc::c_ulong) -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes one integer.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) }).map(drop)
}

/// The scheduling of a thread: policy, priority, length of its time slices. See sched(7).
#[derive(Clone, Copy)]
pub(crate) struct Scheduling(libc::sched_attr);

impl Scheduling {
    /// Returns the scheduling of the calling thread.
    pub(crate) fn of_thread() -> io::Result<Scheduling> {
        // SAFETY: all-zero bytes are a valid `sched_attr`.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of_val(&attributes) as libc::c_uint;
        // SAFETY: `attributes` is a valid place for `size` bytes; thread 0 is the calling one.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut attributes, size, 0) };
        check(result as libc::c_int)?;
        Ok(Scheduling(attributes))
    }

    /// Applies this scheduling to the calling thread.
    pub(crate) fn take(&self) -> io::Result<()> {
        // SAFETY: the attributes say their own size and are valid for reading that much.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &self.0, 0) };
        check(result as libc::c_int).map(drop)
    }

    /// Whether the thread has priority over all ordinary threads.
    pub(crate) const fn is_real_time(&self) -> bool {
        let policy = self.0.sched_policy as libc::c_int;
        policy == libc::SCHED_FIFO || policy == libc::SCHED_RR
    }

    /// Returns a policy with priority over all ordinary threads. Threads that the thread starts are
    /// ordinary.
    pub(crate) const fn fifo(self, priority: u8) -> Scheduling {
        Scheduling(libc::sched_attr {
            sched_policy: libc::SCHED_FIFO as u32,
            sched_flags: self.0.sched_flags | libc::SCHED_FLAG_RESET_ON_FORK as u64,
            sched_nice: 0,
            sched_priority: priority as u32,
            sched_runtime: 0,
            ..self.0
        })
    }

    /// Returns an ordinary policy with time slices of `slice_ns`: the thread gets no larger share
    /// of a core than others, but is scheduled sooner after a wake-up. Kernels older than 6.12
    /// ignore the slice length.
    pub(crate) const fn ordinary(self, slice_ns: u64) -> Scheduling {
        Scheduling(libc::sched_attr {
            sched_policy: libc::SCHED_OTHER as u32,
            sched_priority: 0,
            sched_runtime: slice_ns,
            ..self.0
        })
    }
}

impl std::fmt::Debug for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduling")
            .field("policy", &self.0.sched_policy)
            .field("priority", &self.0.sched_priority)
            .finish_non_exhaustive()
    }
}

/// Requests short time slices for the calling thread, if it is an ordinary thread.
pub(crate) fn take_short_turns(slice_ns: u64) -> io::Result<()> {
    let present = Scheduling::of_thread()?;
    if present.0.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    present.ordinary(slice_ns).take()
}

/// The cores that a thread may run on. The C library's `cpu_set_t` has 1024 bits, and the kernel answers with
/// EINVAL if it may have more cores than that (sched_getaffinity(2)).
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Affinity([libc::c_ulong; MOST_CORES / WORD]);

impl Affinity {
    /// Returns the cores of the calling thread.
    pub(crate) fn of_thread() -> io::Result<Affinity> {
        let mut set = Affinity::on(&[]);
        let (place, size) = (set.0.as_mut_ptr().cast(), size_of_val(&set.0));
        // SAFETY: `place` is valid for writing `size` bytes; thread 0 is the calling one.
        check(unsafe { libc::sched_getaffinity(0, size, place) })?;
        Ok(set)
    }

    /// Creates a set of these cores.
    pub(crate) fn on(cores: &[usize]) -> Affinity {
        let mut set = Affinity([0; MOST_CORES / WORD]);
        for core in cores {
            set.0[core / WORD] |= 1 << (core % WORD);
        }
        set
    }

    /// Every core: the kernel leaves out those that the process may not use.
    pub(crate) const fn all() -> Affinity {
        Affinity([libc::c_ulong::MAX; MOST_CORES / WORD])
    }

    /// Returns the core that the calling thread runs on, if the kernel reports it.
    pub(crate) fn here() -> Option<Affinity> {
        // SAFETY: takes no arguments.
        let core = unsafe { libc::sched_getcpu() };
        let core = usize::try_from(core).ok()?;
        (core < MOST_CORES).then(|| Affinity::on(&[core]))
    }

    /// Returns the cores in ascending order.
    pub(crate) fn cores(&self) -> Vec<usize> {
        let is_in = |core: &usize| (self.0[core / WORD] >> (core % WORD)) & 1 == 1;
        (0..MOST_CORES).filter(is_in).collect()
    }

    /// Restricts the calling thread to these cores.
    pub(crate) fn take(&self) -> io::Result<()> {
        let (set, size) = (self.0.as_ptr().cast(), size_of_val(&self.0));
        // SAFETY: `set` is valid for reading `size` bytes; thread 0 is the calling one.
        check(unsafe { libc::sched_setaffinity(0, size, set) }).map(drop)
    }
}

impl std::fmt::Debug for Affinity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.cores()).finish()
    }
}

/// Returns the number of cores that the machine may have, including those that are switched off.
pub(crate) fn configured_cores() -> usize {
    // SAFETY: takes no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1)
}

/// Yields the core to other threads, if any are waiting.
pub(crate) fn yield_core() {
    // SAFETY: takes no arguments.
    unsafe { libc::sched_yield() };
}

/// The most cores that Linux can be built for (`NR_CPUS` in arch/x86/Kconfig; other architectures have fewer, or
/// as many).
const MOST_CORES: usize = 8192;
const WORD: usize = libc::c_ulong::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_room_for_every_core_of_a_large_machine() {
        let cores = [0, 63, 64, 1023, 1024, 8191];
        assert_eq!(Affinity::on(&cores).cores(), cores);
        assert!(Affinity::all().cores().into_iter().eq(0..8192));
        let present = Affinity::of_thread().unwrap();
        assert!(present == Affinity::on(&present.cores()));
        present.take().unwrap();
        assert!(Affinity::of_thread().unwrap() == present);
    }
}
