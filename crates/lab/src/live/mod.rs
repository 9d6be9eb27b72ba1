//! The live backend: real kernel TCP, UDP and ping across a queue that runs in this process.

mod chain;
mod hosts;
mod router;
mod run;
mod topology;

pub use hosts::FlowReport;
pub use router::{FlowKey, LaneReport, Observation, RouterReport};
pub use run::{Listener, LiveError, LiveRun, check, run};
pub use topology::{Host, Topology, TopologyError};
