//! Rules, pipes, queues and schedulers in dummynet's command language.
//!
//! [`Firewall`] combines everything in one object that receives time, packets and commands. It has
//! no sockets, clocks or files. [`grammar`] is the command language alone, and [`show`] is the
//! state as values and as text. `docs/dummynet.md` lists the differences from dummynet, with
//! reasons. `examples/virtual_time.rs` shows how to use the crate.
#![deny(missing_docs)]

mod ahead;
mod copying;
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
mod visits;
mod words;
mod workers;

pub use engine::{DYNAMIC_BYTES, Departure, Disposition, Firewall, Mode, Output, Settings};
pub use execute::{
    Amended, Amendment, Batch, Configuration, Draft, ObjectCommand, Prepared, Replaced, Survey,
    shows_only,
};
pub use grammar::{CommandError, Warning};
pub use headers::{Direction, Fragment, Headers, Interface, InterfaceId};
pub use log::LogEntry;
pub use objects::budget::{LastRefused, Limits, Refusals};
pub use objects::layout::{Files, NoFiles};
pub use objects::share::{Handed, Worker};
pub use show::Snapshot;
pub use sluice_loader::InFolder;

/// What a watcher sees of a running engine: traffic by pipe, queue and flow, in intervals.
///
/// While somebody watches, the engine counts in a [`WatchTable`](watch::WatchTable) of fixed size:
/// traffic, drops, marks and sojourn times of some pipes and queues and of some flows, and the sum of
/// all others. A host exchanges the table for an empty one at the end of each interval, which copies
/// nothing, and evaluates the full one on another thread. [`Firewall::watch`] does that in steps, with
/// packets in between. It also returns a short [`Tally`](watch::Tally) of every pipe and queue, from
/// which the host chooses those that get rows of their own in the next interval.
pub mod watch {
    pub use crate::execute::{Detail, Tally, Watching};
    pub use crate::objects::watch::{
        FlowTraffic, ObjectName, Place, Seen, Traffic, Waits, WatchFlow, WatchTable,
    };

    #[cfg(doc)]
    use crate::Firewall;
}
