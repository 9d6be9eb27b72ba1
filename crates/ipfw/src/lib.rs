//! Rules, pipes, queues and schedulers in dummynet's command language.
//!
//! [`Firewall`] is everything in one object that is handed time, packets and commands: no sockets,
//! clocks or files. [`grammar`] is the language alone, [`show`] its `show` as values and as text.
//! `docs/dummynet.md` lists where we differ from dummynet, and why.
#![deny(missing_docs)]

mod engine;
mod execute;
pub mod flow;
pub mod grammar;
mod hash;
pub mod headers;
mod objects;
mod options;
mod rules;
pub mod show;
mod variables;

pub use engine::{Departure, Disposition, Firewall, Mode, Output, Settings};
pub use grammar::{CommandError, Warning};
pub use headers::{Direction, Fragment, Headers, Interface, InterfaceId};
pub use objects::layout::{Files, NoFiles};
pub use rules::LogEntry;
pub use show::Snapshot;
