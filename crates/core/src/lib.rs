//! Packet queueing without I/O, clocks or global state.
//!
//! Time, randomness and the listener for events are arguments ([`Cx`]); a packet is a small
//! handle ([`Packet`]) whose bytes stay with the host. The same compiled code therefore runs
//! on live traffic, in the simulator, over a recorded trace and under a fuzzer.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

pub mod units;

pub use units::{Bytes, Rate, Span, Time};
