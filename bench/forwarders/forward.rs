//! Forwards every frame between two interfaces over raw sockets, one frame per system call.
//! Usage: forward FIRST SECOND THREADS. With one thread, both sockets are polled.
//!
//! Without crates, so that `rustc` alone compiles it; the C library is linked anyway.

use std::ffi::{CString, c_char, c_int, c_short, c_uint, c_ulong, c_void};
use std::io::Error;

unsafe extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: c_uint)
    -> c_int;
    fn bind(fd: c_int, address: *const c_void, len: c_uint) -> c_int;
    fn if_nametoindex(name: *const c_char) -> c_uint;
    fn recv(fd: c_int, into: *mut c_void, len: usize, flags: c_int) -> isize;
    fn send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize;
    fn poll(fds: *mut Poll, count: c_ulong, timeout: c_int) -> c_int;
}

#[repr(C)]
struct Poll(c_int, c_short, c_short);

#[repr(C)]
#[derive(Default)]
struct Address(u16, u16, c_uint, u16, u8, u8, [u8; 8]);

const AF_PACKET: c_int = 17;
const SOCK_RAW: c_int = 3;
const SOL_PACKET: c_int = 263;
const IGNORE_OUTGOING: c_int = 23;
const POLLIN: c_short = 1;

fn check(is_good: bool, what: &str) {
    if !is_good {
        eprintln!("forward: {what}: {}", Error::last_os_error());
        std::process::exit(1);
    }
}

/// Opens a socket that receives what arrives at an interface, but not what leaves by it.
fn open_raw(interface: &str) -> c_int {
    let all = 3_u16.to_be();
    let name = CString::new(interface).expect("a name without NUL");
    let (one, size): (c_int, _) = (1, size_of::<Address>() as c_uint);
    // SAFETY: all pointers are to values of the given lengths that live during the calls.
    unsafe {
        let fd = socket(AF_PACKET, SOCK_RAW, all.into());
        check(fd >= 0, "socket");
        let set = setsockopt(fd, SOL_PACKET, IGNORE_OUTGOING, (&raw const one).cast(), 4);
        check(set == 0, "setsockopt");
        let index = if_nametoindex(name.as_ptr());
        check(index > 0, interface);
        let address = Address(AF_PACKET as u16, all, index, 0, 0, 0, [0; 8]);
        check(bind(fd, (&raw const address).cast(), size) == 0, "bind");
        fd
    }
}

fn forward_one(from: c_int, to: c_int, frame: &mut [u8]) {
    // SAFETY: `frame` is as long as recv may write, and send reads what recv has written.
    unsafe {
        let length = recv(from, frame.as_mut_ptr().cast(), frame.len(), 0);
        if length > 0 {
            // A full queue of the interface drops the frame, as a router's does.
            send(to, frame.as_ptr().cast(), length as usize, 0);
        }
    }
}

fn one_way(from: c_int, to: c_int) {
    let mut frame = vec![0; 65536];
    loop {
        forward_one(from, to, &mut frame);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, first, second, threads] = words.as_slice() else {
        eprintln!("usage: forward FIRST SECOND THREADS");
        std::process::exit(2);
    };
    let sockets = [open_raw(first), open_raw(second)];
    if threads == "2" {
        std::thread::spawn(move || one_way(sockets[1], sockets[0]));
        one_way(sockets[0], sockets[1]);
    }
    let mut frame = vec![0; 65536];
    loop {
        let mut wanted = sockets.map(|fd| Poll(fd, POLLIN, 0));
        // SAFETY: two descriptors are there.
        check(unsafe { poll(wanted.as_mut_ptr(), 2, -1) } >= 0, "poll");
        for (from, state) in wanted.iter().enumerate() {
            if state.2 & POLLIN != 0 {
                forward_one(sockets[from], sockets[1 - from], &mut frame);
            }
        }
    }
}
