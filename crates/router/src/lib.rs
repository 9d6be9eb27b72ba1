//! The router: what moves packets between ports through what queues them, the process around it,
//! and the socket over which it is told what to do.
#![deny(missing_docs)]

pub mod control;
pub mod forward;
pub mod process;
