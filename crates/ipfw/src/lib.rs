//! Rules, pipes, queues and schedulers in dummynet's command language.
#![deny(missing_docs)]

pub mod flow;
pub mod grammar;
mod hash;
pub mod headers;
mod rules;

pub use headers::{Direction, Fragment, Headers, Interface, InterfaceId};
pub use rules::LogEntry;
