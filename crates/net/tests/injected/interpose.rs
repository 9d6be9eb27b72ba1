//! System calls that fail on demand.
//!
//! The functions below take the place of the C library's in this program, also for the standard
//! library and all crates. While calls are [`armed`], they are numbered; the one with a given number
//! fails with a given error and does nothing. All others reach the C library. The lines of the crate
//! that led to a call which failed are kept.
#![allow(unsafe_code)]

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{
    clockid_t, cpu_set_t, iovec, mmsghdr, off64_t, pid_t, pollfd, pthread_attr_t, pthread_t,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

/// Whether calls are numbered.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// The thread that runs the test.
static TESTER: AtomicI32 = AtomicI32::new(0);
/// Numbered calls so far.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The number of the call that fails, and its error.
static FAILS: AtomicU32 = AtomicU32::new(u32::MAX);
static ERROR: AtomicI32 = AtomicI32::new(0);
/// How often each function failed.
static FAILED: Mutex<BTreeMap<&str, u32>> = Mutex::new(BTreeMap::new());
/// The files and lines of the crate that led to calls which failed.
static LINES: Mutex<BTreeSet<(String, usize)>> = Mutex::new(BTreeSet::new());

/// Returns the number of this thread.
fn thread() -> pid_t {
    // SAFETY: there are no requirements.
    unsafe { libc::gettid() }
}

/// Whether this is the thread that starts the tests, in threads of their own.
fn is_harness() -> bool {
    let thread = thread();
    // SAFETY: there are no requirements.
    let is_main = thread == unsafe { libc::getpid() };
    is_main && thread != TESTER.load(Ordering::SeqCst)
}

/// Numbers the calls of all threads but the harness's during `work`, and lets the one with the number
/// `fails`, from 0 on, fail with `error`. Returns the number of calls.
pub fn armed<T>(fails: u32, error: c_int, work: impl FnOnce() -> T) -> (T, u32) {
    CALLS.store(0, Ordering::SeqCst);
    TESTER.store(thread(), Ordering::SeqCst);
    ERROR.store(error, Ordering::SeqCst);
    FAILS.store(fails, Ordering::SeqCst);
    IS_ARMED.store(true, Ordering::SeqCst);
    let result = work();
    IS_ARMED.store(false, Ordering::SeqCst);
    (result, CALLS.load(Ordering::SeqCst))
}

/// Does something for the test itself: meanwhile no call is numbered.
pub fn exempt<T>(work: impl FnOnce() -> T) -> T {
    let was_armed = IS_ARMED.swap(false, Ordering::SeqCst);
    let result = work();
    IS_ARMED.store(was_armed, Ordering::SeqCst);
    result
}

/// Returns how often each function failed.
pub fn failed() -> BTreeMap<&'static str, u32> {
    FAILED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Returns the files, below `src`, and lines that led to calls which failed since the last time.
pub fn take_lines() -> BTreeSet<(String, usize)> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps the lines of the crate among the callers.
fn keep_lines() {
    let trace = Backtrace::force_capture().to_string();
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    for place in trace
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "))
    {
        // Paths in the folder of the crate, in which its tests run, begin with a dot.
        let path = place
            .strip_prefix("./src/")
            .or_else(|| Some(place.split_once("/crates/net/src/")?.1));
        let mut words = path.unwrap_or_default().split(':');
        if let (Some(file), Some(Ok(line))) = (words.next(), words.next().map(str::parse)) {
            lines.insert((file.to_owned(), line));
        }
    }
}

/// Returns whether the present call is to fail.
pub fn is_due(name: &'static str) -> bool {
    if !IS_ARMED.load(Ordering::SeqCst) || is_harness() {
        return false;
    }
    let number = CALLS.fetch_add(1, Ordering::SeqCst);
    let is_due = number == FAILS.load(Ordering::SeqCst);
    if is_due {
        exempt(keep_lines);
        let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        *failed.entry(name).or_default() += 1;
        // SAFETY: the C library returns a place for the error of this thread.
        unsafe { *libc::__errno_location() = ERROR.load(Ordering::SeqCst) };
    }
    is_due
}

/// Returns the address of the C library's function.
pub fn real(place: &OnceLock<usize>, name: &CStr) -> usize {
    *place.get_or_init(|| {
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        assert!(!found.is_null(), "the C library has {name:?}");
        found as usize
    })
}

/// How functions report an error.
enum Failure {
    /// They return -1, which is also the value of `MAP_FAILED`.
    Minus,
    /// They return null.
    Null,
    /// They return its number.
    Number,
}
use Failure::{Minus, Null, Number};

impl Failure {
    fn value(self) -> isize {
        match self {
            Minus => -1,
            Null => 0,
            Number => ERROR.load(Ordering::SeqCst) as isize,
        }
    }
}

/// Defines functions of the C library. `when` chooses the calls that are numbered.
macro_rules! interpose {
    ($($how:ident fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty as $type:ty, when $when:expr;)+) => {$(
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
            static REAL: OnceLock<usize> = OnceLock::new();
            if $when && is_due(stringify!($name)) {
                return $how.value() as $result;
            }
            let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
            let real = real(&REAL, name.unwrap_or_default());
            // SAFETY: this is the C library's function of that name, which has this type.
            let real = unsafe { std::mem::transmute::<usize, $type>(real) };
            // SAFETY: the caller promises it.
            unsafe { real($($arg),*) }
        }
    )+};
}

type Variadic = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;

interpose! {
    Minus fn socket(a: c_int, b: c_int, c: c_int) -> c_int
        as unsafe extern "C" fn(c_int, c_int, c_int) -> c_int, when true;
    Minus fn bind(a: c_int, b: *const sockaddr, c: socklen_t) -> c_int
        as unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int, when true;
    Minus fn getsockname(a: c_int, b: *mut sockaddr, c: *mut socklen_t) -> c_int
        as unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int, when true;
    Minus fn setsockopt(a: c_int, b: c_int, c: c_int, d: *const c_void, e: socklen_t) -> c_int
        as unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int, when true;
    Minus fn getsockopt(a: c_int, b: c_int, c: c_int, d: *mut c_void, e: *mut socklen_t) -> c_int
        as unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int, when true;
    Minus fn sendmmsg(a: c_int, b: *mut mmsghdr, c: c_uint, d: c_int) -> c_int
        as unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int, when true;
    Minus fn sendto(a: c_int, b: *const c_void, c: size_t, d: c_int, e: *const sockaddr, f: socklen_t) -> ssize_t
        as unsafe extern "C" fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
        when true;
    Minus fn recvfrom(a: c_int, b: *mut c_void, c: size_t, d: c_int, e: *mut sockaddr, f: *mut socklen_t) -> ssize_t
        as unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
        when true;
    Minus fn send(a: c_int, b: *const c_void, c: size_t, d: c_int) -> ssize_t
        as unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t, when true;
    Minus fn recv(a: c_int, b: *mut c_void, c: size_t, d: c_int) -> ssize_t
        as unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t, when true;
    Minus fn readv(a: c_int, b: *const iovec, c: c_int) -> ssize_t
        as unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t, when true;
    Minus fn writev(a: c_int, b: *const iovec, c: c_int) -> ssize_t
        as unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t, when true;
    Minus fn eventfd(a: c_uint, b: c_int) -> c_int
        as unsafe extern "C" fn(c_uint, c_int) -> c_int, when true;
    // The standard library maps the stacks of signal handlers, without these flags.
    Minus fn mmap64(a: *mut c_void, b: size_t, c: c_int, d: c_int, e: c_int, f: off64_t) -> *mut c_void
        as unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void,
        when d & (libc::MAP_SHARED | libc::MAP_POPULATE) != 0;
    Minus fn ppoll(a: *mut pollfd, b: c_ulong, c: *const timespec, d: *const sigset_t) -> c_int
        as unsafe extern "C" fn(*mut pollfd, c_ulong, *const timespec, *const sigset_t) -> c_int,
        when true;
    Minus fn setns(a: c_int, b: c_int) -> c_int
        as unsafe extern "C" fn(c_int, c_int) -> c_int, when true;
    Minus fn ioctl(a: c_int, b: c_ulong, c: *mut c_void) -> c_int as Variadic, when true;
    // The standard library also closes descriptors on `exec` by this one.
    Minus fn fcntl(a: c_int, b: c_ulong, c: *mut c_void) -> c_int as Variadic,
        when b as c_int == libc::F_DUPFD_CLOEXEC;
    Minus fn open64(a: *const i8, b: c_int, c: c_int) -> c_int
        as unsafe extern "C" fn(*const i8, c_int, ...) -> c_int, when true;
    Minus fn syscall(a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long, g: c_long) -> c_long
        as unsafe extern "C" fn(c_long, ...) -> c_long,
        when [libc::SYS_bpf, libc::SYS_sched_getattr, libc::SYS_sched_setattr].contains(&a);
    Minus fn connect(a: c_int, b: *const sockaddr, c: socklen_t) -> c_int
        as unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int, when true;
    Minus fn unshare(a: c_int) -> c_int as unsafe extern "C" fn(c_int) -> c_int, when true;
    Minus fn sched_getaffinity(a: pid_t, b: size_t, c: *mut cpu_set_t) -> c_int
        as unsafe extern "C" fn(pid_t, size_t, *mut cpu_set_t) -> c_int, when true;
    Minus fn sched_setaffinity(a: pid_t, b: size_t, c: *const cpu_set_t) -> c_int
        as unsafe extern "C" fn(pid_t, size_t, *const cpu_set_t) -> c_int, when true;
    Minus fn prctl(a: c_int, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_int
        as unsafe extern "C" fn(c_int, ...) -> c_int, when a == libc::PR_SET_TIMERSLACK;
    Null fn realpath(a: *const c_char, b: *mut c_char) -> *mut c_char
        as unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char, when true;
    Minus fn statx(a: c_int, b: *const c_char, c: c_int, d: c_uint, e: *mut c_void) -> c_int
        as unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut c_void) -> c_int, when true;
    // The test's own output does not fail.
    Minus fn read(a: c_int, b: *mut c_void, c: size_t) -> ssize_t
        as unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t, when a > 2;
    Minus fn write(a: c_int, b: *const c_void, c: size_t) -> ssize_t
        as unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t, when a > 2;
    // The standard library sleeps for a span.
    Number fn clock_nanosleep(a: clockid_t, b: c_int, c: *const timespec, d: *mut timespec) -> c_int
        as unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int,
        when b == libc::TIMER_ABSTIME;
    Number fn pthread_create(a: *mut pthread_t, b: *const pthread_attr_t, c: *mut c_void, d: *mut c_void) -> c_int
        as unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, *mut c_void, *mut c_void) -> c_int,
        when true;
}
