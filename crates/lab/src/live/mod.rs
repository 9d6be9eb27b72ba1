//! The live backend: real kernel TCP, UDP and ping across a queue that runs in this process.

mod bridge;
mod chain;
mod observations;
mod router;
mod run;
mod topology;

pub(crate) use chain::{Chain, FlowPath, Recorded};
pub(crate) use observations::{NOT_RECORDED, ObservationReceiver, ObservationSender, observations};
pub use router::{FiveTuple, LaneReport, Observation, RouterReport};
pub(crate) use router::{LaneObserver, RouterSettings, sample};
pub(crate) use run::router_settings;
pub use run::{Listener, LiveError, LiveOptions, LiveRun, check, run};
pub use topology::{Host, Topology, TopologyError};
