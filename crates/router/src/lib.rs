//! The router: what moves packets between ports through what queues them, the process around it,
//! and the socket over which it is controlled.
//!
//! `examples/own_router.rs` is a router of one's own: ports, a pipe, and the loop.
#![deny(missing_docs)]

pub mod control;
pub mod forward;
pub mod process;
