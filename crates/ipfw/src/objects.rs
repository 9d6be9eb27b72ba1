//! Pipes, queues and schedulers: their configuration, and the running objects.

pub(crate) mod budget;
pub(crate) mod discipline;
mod expiry;
mod heap;
pub(crate) mod instance;
pub(crate) mod layout;
pub(crate) mod packets;
mod places;
mod reconcile;
mod refused;
pub(crate) mod runtime;
pub(crate) mod share;
pub(crate) mod stats;
pub(crate) mod watch;
