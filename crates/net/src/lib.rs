//! Everything of Sluice that talks to Linux.
//!
//! - [`frame`]: what a frame's bytes say, CE marks, checksums, super-packets.
//! - [`namespace`]: network namespaces and interfaces that vanish with the process.
//! - [`port`]: where packets enter and leave a router.
//! - [`traffic`]: the end hosts of a live experiment.
//! - [`clock`]: the one clock of a live run.
//! - [`cores`]: which cores threads run on, and how deep cores idle.
//! - [`capture`]: files of packets.

pub mod capture;
pub mod clock;
pub mod cores;
pub mod frame;
pub mod namespace;
pub mod port;
mod sys;
pub mod traffic;

pub use clock::{Clock, ClockReading, RealTimeError, Stamps, precise_wakeups, real_time};
