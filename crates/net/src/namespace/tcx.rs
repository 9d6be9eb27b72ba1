//! BPF programs that are attached to an interface in place of tc filters (tcx, since Linux 6.6).
#![allow(unsafe_code)]

use super::{LinkError, Namespace};
use crate::sys;
use std::io;

impl Namespace {
    /// Returns whether BPF programs are attached to the interface `index` as tcx. No, if the process may
    /// not ask: the kernel answers root outside all user namespaces only.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the kernel refuses for another reason.
    pub fn has_tcx(&self, index: u32) -> Result<bool, LinkError> {
        let count = || [TCX_INGRESS, TCX_EGRESS].map(|hook| programs(index, hook));
        for counted in self.enter(count)? {
            match counted {
                Ok(0) => {}
                Ok(_) => return Ok(true),
                Err(error) => match error.raw_os_error() {
                    // Older kernels do not know the hook, or have no entry for it.
                    Some(libc::EPERM | libc::EINVAL | libc::ENOENT) => {}
                    _ => {
                        return Err(LinkError::Kernel {
                            what: format!("look for the tcx programs of interface {index}"),
                            namespace: self.name().to_owned(),
                            source: error,
                        });
                    }
                },
            }
        }
        Ok(false)
    }
}

/// Returns the number of programs at a hook of an interface of the calling thread's namespace.
fn programs(index: u32, hook: u32) -> io::Result<u32> {
    let mut query = Query {
        interface: index,
        hook,
        ..Query::default()
    };
    // SAFETY: the attributes are all of those of the command, which the kernel reads and writes. They
    // have no pointers: without them, it only counts.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROGRAM_QUERY,
            std::ptr::from_mut(&mut query),
            size_of::<Query>() as libc::c_uint,
        ) as libc::c_int
    };
    sys::check(result)?;
    Ok(query.count)
}

// linux/bpf.h.
const PROGRAM_QUERY: libc::c_int = 16;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The part of `union bpf_attr` for the command.
#[derive(Default)]
#[repr(C)]
struct Query {
    interface: u32,
    hook: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    _pad: u32,
    program_attach_flags: u64,
    links: u64,
    link_attach_flags: u64,
    revision: u64,
}
