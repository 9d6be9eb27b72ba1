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

/// The cores that a thread may run on.
#[derive(Clone, Copy)]
pub(crate) struct Affinity(libc::cpu_set_t);

impl Affinity {
    /// Returns the cores of the calling thread.
    pub(crate) fn of_thread() -> io::Result<Affinity> {
        let mut set = Affinity::on(&[]);
        // SAFETY: `set` is a valid place for this number of bytes; thread 0 is the calling one.
        check(unsafe { libc::sched_getaffinity(0, size_of_val(&set.0), &mut set.0) })?;
        Ok(set)
    }

    /// Creates a set of these cores.
    pub(crate) fn on(cores: &[usize]) -> Affinity {
        // SAFETY: all-zero bytes are a valid, empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for core in cores {
            // SAFETY: the macro indexes the set's array, which panics out of bounds.
            unsafe { libc::CPU_SET(*core, &mut set) };
        }
        Affinity(set)
    }

    /// Every core: the kernel leaves out those that the process may not use.
    pub(crate) fn all() -> Affinity {
        let cores: Vec<usize> = (0..MOST_CORES).collect();
        Affinity::on(&cores)
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
        // SAFETY: the macro accesses only bits inside the set.
        let is_in = |core: &usize| unsafe { libc::CPU_ISSET(*core, &self.0) };
        (0..MOST_CORES).filter(is_in).collect()
    }

    /// Restricts the calling thread to these cores.
    pub(crate) fn take(&self) -> io::Result<()> {
        // SAFETY: the set is valid for reading this number of bytes; thread 0 is the calling one.
        check(unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) }).map(drop)
    }
}

impl PartialEq for Affinity {
    fn eq(&self, other: &Affinity) -> bool {
        // SAFETY: the macro compares two sets.
        unsafe { libc::CPU_EQUAL(&self.0, &other.0) }
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

/// Bits of a `cpu_set_t`.
const MOST_CORES: usize = libc::CPU_SETSIZE as usize;
