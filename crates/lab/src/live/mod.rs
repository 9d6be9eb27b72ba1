//! The live backend: real kernel TCP, UDP and ping across a queue that runs in this process.

mod router;
mod run;
mod topology;

pub use router::{FlowKey, LanePlan, LaneReport, Observation, Plan, RouterReport, route};
pub use run::{FlowReport, Listener, LiveError, LiveRun, check, plan, run};
pub use topology::{Host, Topology, TopologyError};
