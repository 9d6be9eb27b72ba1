//! The laboratory: runs a scenario on a backend, and compares the results.
//!
//! - [`run`]: runs a variant and records it; [`reuse`] finds earlier runs with the same input;
//! - [`live`]: the backend with real packets, in namespaces that it creates;
//! - [`program`]: a program behind a link, recorded like a live run;
//! - [`simulated`]: the backend in virtual time;
//! - [`flow`]: the types of flow, each with its implementation on both backends and its rows;
//! - [`suite`]: many scenarios at once;
//! - [`compare`]: the differences between two folders of runs; [`agreement`]: the differences
//!   between the simulator and real packets;
//! - [`check`]: the conformance of one algorithm;
//! - [`table`]: figures as text and as JSON;
//! - [`replay`]: a recorded trace of arrivals through one queue; [`replay_run`]: a live run's arrivals
//!   through the same queues.
//!
//! `sluice_scenario` reads scenarios, and `sluice_recording` writes and reads recordings.
//! `sluice_report` draws the pages; the laboratory does not depend on it
//! ([`sluice_recording::Pages`]).

pub mod agreement;
pub mod check;
pub mod compare;
pub mod flow;
pub mod live;
mod packet_rows;
pub mod program;
pub mod replay;
pub mod replay_run;
pub mod reuse;
pub mod run;
mod segments;
pub mod simulated;
pub mod suite;
pub mod table;
