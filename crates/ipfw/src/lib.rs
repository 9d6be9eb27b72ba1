//! Rules, pipes, queues and schedulers in dummynet's command language.
//!
//! [`Firewall`] combines everything in one object that receives time, packets and commands. It has
//! no sockets, clocks or files. [`grammar`] is the command language alone, and [`show`] is the
//! state as values and as text. `docs/dummynet.md` lists the differences from dummynet, with
//! reasons. `examples/virtual_time.rs` shows how to use the crate.
#![deny(missing_docs)]

mod engine;
mod execute;
pub mod flow;
pub mod grammar;
mod hash;
pub mod headers;
mod log;
mod matching;
mod objects;
mod options;
mod rules;
pub mod show;
mod tables;
mod variables;
mod words;

pub use engine::{DYNAMIC_BYTES, Departure, Disposition, Firewall, Mode, Output, Settings};
pub use execute::{Batch, Prepared, Replaced, Survey};
pub use grammar::{CommandError, Warning};
pub use headers::{Direction, Fragment, Headers, Interface, InterfaceId};
pub use log::LogEntry;
pub use objects::budget::Refusals;
pub use objects::layout::{Files, NoFiles};
pub use show::Snapshot;
