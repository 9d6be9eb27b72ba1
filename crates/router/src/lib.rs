//! The router: the packet loop between ports and queues, the process around it, its control socket,
//! and what a watcher sees of it.
//!
//! `examples/own_router.rs` is a router of your own: ports, a pipe, and the loop.
#![deny(missing_docs)]

pub mod control;
pub mod forward;
pub mod process;
pub mod rtt;
