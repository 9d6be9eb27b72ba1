//! Packets as bytes: frames and capture files, on any operating system.
//!
//! - [`frame`]: headers, CE marks, checksums, super-packets.
//! - [`capture`]: files of packets.
//!
//! `examples/flows.rs` shows how to use the crate.

pub mod capture;
pub mod frame;
