//! Steps of CLOCK_REALTIME, for this program only.
//!
//! The functions below take the place of the C library's in this program. After a [`step`], the clock has
//! another reading, and so have the kernel's stamps of the frames that have arrived since.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libc::{clockid_t, mmsghdr, msghdr, timespec};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{PacketPort, Pool, Port};

use super::common::wire::{self, frame};
use super::interpose::{is_due, real};
use super::parts::part;
use super::{Far, SIZE, eventually, free};

/// The steps: the true reading of the clock at each, and by how many nanoseconds.
static STEPS: Mutex<Vec<(i64, i64)>> = Mutex::new(Vec::new());
static IS_STEPPED: AtomicBool = AtomicBool::new(false);

/// Steps the clock.
fn step(by_ns: i64) {
    let mut steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: there is room for a time.
    let result = unsafe { true_time(libc::CLOCK_REALTIME, &mut now) };
    assert_eq!(result, 0);
    steps.push((nanoseconds(&now), by_ns));
    drop(steps);
    IS_STEPPED.store(true, Ordering::SeqCst);
}

fn nanoseconds(time: &timespec) -> i64 {
    time.tv_sec * SECOND + time.tv_nsec
}

/// Changes a reading of the clock, or a stamp, to what it is after the steps before it.
fn shift(time: &mut timespec) {
    let read = nanoseconds(time);
    let steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = steps.iter().filter(|(at, _)| *at <= read);
    let shown = read + before.map(|(_, by)| by).sum::<i64>();
    (time.tv_sec, time.tv_nsec) = (shown.div_euclid(SECOND), shown.rem_euclid(SECOND));
}

/// # Safety
/// As for the C library's `clock_gettime`.
unsafe fn true_time(clock: clockid_t, to: *mut timespec) -> c_int {
    static REAL: OnceLock<usize> = OnceLock::new();
    let real = real(&REAL, c"clock_gettime");
    // SAFETY: this is the C library's function of that name, which has this type.
    let real = unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int>(real)
    };
    // SAFETY: the caller promises it.
    unsafe { real(clock, to) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int {
    // SAFETY: the caller promises it.
    let result = unsafe { true_time(clock, to) };
    if result == 0 && clock == libc::CLOCK_REALTIME && IS_STEPPED.load(Ordering::SeqCst) {
        // SAFETY: the C library has written a time there.
        shift(unsafe { &mut *to });
    }
    result
}

type Receive = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    most: c_uint,
    flags: c_int,
    patience: *mut timespec,
) -> c_int {
    static REAL: OnceLock<usize> = OnceLock::new();
    if is_due("recvmmsg") {
        return -1;
    }
    let real = real(&REAL, c"recvmmsg");
    // SAFETY: this is the C library's function of that name, which has this type.
    let real = unsafe { std::mem::transmute::<usize, Receive>(real) };
    // SAFETY: the caller promises it.
    let count = unsafe { real(socket, messages, most, flags, patience) };
    if IS_STEPPED.load(Ordering::SeqCst) {
        for number in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the kernel has filled so many messages.
            unsafe { shift_stamps(&(*messages.add(number)).msg_hdr) };
        }
    }
    count
}

/// # Safety
/// The kernel has filled the control messages.
unsafe fn shift_stamps(header: &msghdr) {
    // SAFETY: the header is one that the kernel has filled, and so are the messages that it leads to.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)
            {
                // `struct scm_timestamping`: the kernel's own stamp is the first of three.
                shift(&mut *libc::CMSG_DATA(message).cast::<timespec>());
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
}

/// Frames are queued while the clock is stepped: one of before the step, and one of after it.
#[test]
fn the_arrivals_of_a_packet_port_are_true_while_the_clock_is_stepped() {
    if part!("steps", 1).is_none() {
        return;
    }
    let namespace = wire::namespace();
    for end in ["left", "right"] {
        namespace.set_offloads(end, Offloads::OFF).unwrap();
    }
    let mut far = Far::new(&namespace);
    let mut pool = Pool::new(SIZE).unwrap();
    let clock = Clock::start();
    let options = PacketOptions {
        // Stamps are in messages, which can be changed, and not in memory that the kernel writes.
        ring: 0,
        timestamps: Some(clock),
        ..PacketOptions::default()
    };
    let mut port = PacketPort::open(&namespace, "left", options).unwrap();
    let single = frame(&[], 100);
    let mut got = Vec::new();
    let mut receive = |arrivals: &mut Vec<Option<Time>>| {
        port.receive(&mut pool, &mut got);
        arrivals.extend(got.iter().map(|slot| pool.arrival(*slot)));
        free(&mut pool, &mut got);
        arrivals.len()
    };
    // The kernel begins to stamp frames a little later than it is asked to.
    eventually("frames have stamps", || {
        far.send(&single);
        let mut arrivals = Vec::new();
        receive(&mut arrivals) > 0 && arrivals.iter().all(Option::is_some)
    });
    // Those that have been sent meanwhile.
    std::thread::sleep(Duration::from_millis(100));
    while receive(&mut Vec::new()) > 0 {}
    let forth = [1, 60, 8 * 3600];
    for seconds in forth.into_iter().chain(forth.map(|seconds| -seconds)) {
        let mut arrivals = Vec::new();
        // The last reading of the clocks is one of before the step.
        far.send(&single);
        eventually("a frame arrives", || receive(&mut arrivals) == 1);
        arrivals.clear();
        let sent = clock.now();
        far.send(&single);
        step(seconds * SECOND);
        far.send(&single);
        eventually("both frames arrive", || receive(&mut arrivals) == 2);
        let received = clock.now();
        for arrival in arrivals {
            let arrival = arrival.expect("it has a stamp");
            // A reading of both clocks that was interrupted is inexact. The shortest step is 20 times
            // as long.
            let (least, most) = (arrival + SLACK, received + SLACK);
            assert!(
                least >= sent && arrival <= most,
                "{seconds} s: {arrival}, sent at {sent}, received at {received}"
            );
        }
    }
    port.release(&mut pool);
    assert_eq!(pool.available(), SIZE.slots as usize);
}

const SECOND: i64 = 1_000_000_000;
const SLACK: Span = Span::from_ms(50);
