//! The interface of Sluice to Linux: the only crate with `unsafe`.
//!
//! - [`namespace`]: network namespaces and interfaces that vanish with the process.
//! - [`port`]: where packets enter and leave a router.
//! - [`process`]: programs inside namespaces, and their signals.
//! - [`confine`]: threads without privileges.
//! - [`guardian`]: a process that bridges in the kernel while the router cannot forward.
//! - [`contained`]: programs that end with everything that they have started.
//! - [`socket`]: sockets of end hosts: timestamps, `TCP_INFO`.
//! - [`clock`]: the one clock of a live run.
//! - [`cores`]: which cores threads run on, and how deep cores idle.
//!
//! `examples/forward.rs` shows how to use the ports.

pub mod clock;
pub mod confine;
pub mod contained;
pub mod cores;
pub mod descendants;
mod errand;
pub mod guardian;
#[cfg(test)]
#[path = "../../../fuzz/mutate.rs"]
mod mutate;
pub mod namespace;
pub mod port;
pub mod process;
pub mod socket;
mod sys;
mod user;

pub use clock::{Clock, ClockReading, RealTimeError, Stamps, precise_wakeups, real_time};
