//! Everything of Sluice that talks to Linux.
//!
//! - [`frame`]: what a frame's bytes say, CE marks, checksums, super-packets.

pub mod frame;
