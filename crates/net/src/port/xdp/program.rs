//! The program that passes an interface's frames to AF_XDP sockets, and its map of sockets.
//!
//! The program takes six instruction slots, so it is written here in the form that the kernel
//! reads: no compiler or libbpf is needed. In C it would be `return bpf_redirect_map(&sockets,
//! ctx->rx_queue_index, XDP_PASS);`. A frame of a queue without a socket goes to the stack, as
//! without the program.
//!
//! The program is attached through a BPF link, so it is detached when the link's descriptor is
//! closed, even if the process is killed.
#![allow(unsafe_code)]

use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The program of one interface, which the sockets on all its queues share.
pub(super) struct Programs {
    /// The number of queues.
    queues: u32,
    /// Only the helper waits for this lock.
    attached: Mutex<Weak<Program>>,
}

/// An attached program.
pub(super) struct Program {
    index: u32,
    hook: Hook,
    sockets: OwnedFd,
    // Held to keep the descriptors open: closing the link detaches the program.
    _program: OwnedFd,
    _link: OwnedFd,
}

/// The place in the kernel at which the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver, before a socket buffer exists.
    Driver,
    /// In the stack, for drivers without a hook: correct, but slower.
    Generic,
}

impl Programs {
    pub(super) fn new(queues: u32) -> Programs {
        Programs {
            queues,
            attached: Mutex::default(),
        }
    }

    /// Returns the number of queues.
    pub(super) const fn queues(&self) -> u32 {
        self.queues
    }

    /// Returns the program that a socket on another queue of interface `index` uses, or attaches one.
    pub(super) fn on(&self, index: u32, hook: Hook) -> io::Result<Arc<Program>> {
        let attached = self.attached.lock();
        let mut attached = attached.unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = attached.upgrade().filter(|one| one.index == index) {
            return match program.hook == hook {
                true => Ok(program),
                false => Err(io::ErrorKind::AlreadyExists.into()),
            };
        }
        let program = Arc::new(Program::attach(index, self.queues, hook)?);
        *attached = Arc::downgrade(&program);
        Ok(program)
    }
}

impl Program {
    /// Loads the program for `queues` queues and attaches it to the interface `index` of the
    /// calling thread's namespace.
    fn attach(index: u32, queues: u32, hook: Hook) -> io::Result<Program> {
        let sockets = bpf(
            MAP_CREATE,
            &MapCreate {
                kind: MAP_XSK,
                key_size: 4,
                value_size: 4,
                max_entries: queues,
                flags: 0,
            },
        )?;
        let instructions = redirect_by_queue(sockets.as_fd());
        let license = c"Dual BSD/GPL";
        let program = bpf(
            PROGRAM_LOAD,
            &ProgramLoad {
                kind: PROGRAM_XDP,
                instruction_count: instructions.len() as u32,
                instructions: instructions.as_ptr() as u64,
                license: license.as_ptr() as u64,
                log_level: 0,
                log_size: 0,
                log: 0,
                kernel_version: 0,
                flags: 0,
                name: *b"sluice\0\0\0\0\0\0\0\0\0\0",
                interface: 0,
                attach: ATTACH_XDP,
            },
        )?;
        let link = bpf(
            LINK_CREATE,
            &LinkCreate {
                program: program.as_raw_fd() as u32,
                interface: index,
                attach: ATTACH_XDP,
                flags: match hook {
                    Hook::Driver => FLAGS_DRIVER,
                    Hook::Generic => FLAGS_GENERIC,
                },
            },
        )?;
        Ok(Program {
            index,
            hook,
            sockets,
            _program: program,
            _link: link,
        })
    }

    /// Makes `socket` receive the frames of `queue`.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let update = MapUpdate {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: std::ptr::from_ref(&queue) as u64,
            value: std::ptr::from_ref(&value) as u64,
            flags: 0,
        };
        // SAFETY: the attributes are those of the command. The key and the value have the lengths
        // that the map was created with, and outlive the call.
        sys::check(unsafe { call(MAP_UPDATE, &update) }).map(drop)
    }
}

fn redirect_by_queue(sockets: BorrowedFd<'_>) -> [Instruction; 6] {
    let map = sockets.as_raw_fd();
    [
        // r2 = ctx->rx_queue_index
        Instruction::new(LOAD_WORD, 2, 1, CONTEXT_QUEUE, 0),
        // r1 = sockets, in two halves
        Instruction::new(LOAD_WIDE, 1, PSEUDO_MAP, 0, map),
        Instruction::new(0, 0, 0, 0, 0),
        // r3 = XDP_PASS
        Instruction::new(MOVE, 3, 0, 0, XDP_PASS),
        Instruction::new(CALL, 0, 0, 0, REDIRECT_MAP),
        Instruction::new(EXIT, 0, 0, 0, 0),
    ]
}

/// linux/bpf.h: `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // Two fields of four bits; the first is in the low half of the byte on little-endian
        // machines.
        let registers = if cfg!(target_endian = "little") {
            source << 4 | destination
        } else {
            destination << 4 | source
        };
        Instruction {
            code,
            registers,
            offset,
            immediate,
        }
    }
}

// linux/bpf.h, linux/bpf_common.h.
const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
const LOAD_WIDE: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW
const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
const CALL: u8 = 0x85; // BPF_JMP | BPF_CALL
const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
const PSEUDO_MAP: u8 = 1; // BPF_PSEUDO_MAP_FD
const CONTEXT_QUEUE: i16 = 16; // offsetof(struct xdp_md, rx_queue_index)
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51; // BPF_FUNC_redirect_map

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_XSK: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const FLAGS_GENERIC: u32 = 1 << 1; // XDP_FLAGS_SKB_MODE
const FLAGS_DRIVER: u32 = 1 << 2; // XDP_FLAGS_DRV_MODE

// The parts of `union bpf_attr` that the commands read; the kernel treats the rest as zero.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// Runs a command that creates an object. Returns the object's descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: callers pass the attributes of their command, and what these point to outlives the
    // call; a non-negative result is a new descriptor that nobody else owns.
    unsafe {
        let descriptor = sys::check(call(command, attributes))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// # Safety
/// `attributes` must be the part of `union bpf_attr` that `command` reads, with valid pointers.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> libc::c_int {
    // SAFETY: guaranteed by the caller; the length is that of the attributes.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>() as libc::c_uint,
        ) as libc::c_int
    }
}
