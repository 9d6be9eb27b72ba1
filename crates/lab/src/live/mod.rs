//! The live backend: real kernel TCP, UDP and ping across a queue that runs in this process.

mod bridge;
mod chain;
mod router;
mod run;
mod topology;

pub(crate) use chain::{Chain, Recorded};
pub use router::{FlowKey, LaneReport, Observation, RouterReport};
pub(crate) use run::plan;
pub use run::{Listener, LiveError, LiveRun, check, run};
pub use topology::{Host, Topology, TopologyError};
