//! Rules, pipes, queues and schedulers in dummynet's command language.
#![deny(missing_docs)]

pub mod flow;
pub mod grammar;
pub mod headers;

pub use headers::{Direction, Fragment, Headers, Interface, InterfaceId};
