//! The laboratory: carries a scenario out on a backend, and compares what came of it.
//!
//! - [`run`]: carrying a variant out and recording it; [`reuse`] finds what has been run before;
//! - [`live`]: the backend with real packets, in namespaces that it makes;
//! - [`simulated`]: the backend in virtual time;
//! - [`flow`]: the types of flow, each with its form on both backends and its rows;
//! - [`suite`]: many scenarios at once;
//! - [`compare`]: what differs between two folders of runs; [`agreement`]: how far the simulator and
//!   real packets agree;
//! - [`table`]: figures as text and as JSON;
//! - [`replay`]: a recorded trace of arrivals through one queue; [`replay_run`]: a live run's arrivals
//!   through the same queues.
//!
//! Scenarios are read by `sluice_scenario`, recordings written and read by `sluice_recording`, and pages
//! drawn by `sluice_report`, which the laboratory does not know ([`sluice_recording::Pages`]).

pub mod agreement;
pub mod compare;
pub mod flow;
pub mod live;
mod packet_rows;
pub mod replay;
pub mod replay_run;
pub mod reuse;
pub mod run;
pub mod simulated;
pub mod suite;
pub mod table;
