//! A discrete-event simulation of Sluice's queues in virtual time.
//!
//! The queues and pipes are those of [`sluice_core`], the same compiled code as on live packets.
//! The traffic comes from [`sluice_tcp`] and from simple sources, one file for each kind
//! ([`traffic`]). A [`Config`] describes links and flows, a [`Simulation`] runs it, and an
//! [`Observer`] is called for each event. There are no files, sockets, clocks or threads here, and
//! only ordered containers: the same configuration and seed give the same run, bit for bit, on
//! every machine.
//!
//! # Model
//!
//! A packet passes the links of its flow's route one after the other. Each link is a queue and a
//! rate ([`sluice_core::link::pipe::Pipe`]: a packet leaves the queue when its transmission starts
//! and is delivered when it ends), then a delay. After the last link follow the delay of the flow's
//! own access network and the jitter of the host ([`Config::jitter`]). Computing on a host takes no
//! time. At one instant arrivals and timers are processed before links.
//!
//! # Cost
//!
//! There is one event for each packet and link, and one for each delivery. Timers are not
//! cancelled, but re-armed when they expire too early. `cargo run --release -p sluice-sim --example
//! speed` measures the cost.
#![deny(missing_docs)]

mod build;
mod calendar;
mod check;
mod config;
mod demand;
mod error;
mod estimate;
mod haste;
mod ids;
mod network;
mod observe;
mod packets;
mod simulation;
mod stage;
mod topology;
pub mod traffic;

pub use config::{Config, Flow, Stalls};
pub use error::ConfigError;
pub use estimate::Estimate;
pub use ids::{FlowId, LinkId, Side};
pub use observe::{
    Completion, Content, Datagram, Echo, FlowTotals, LinkSample, Observer, OpenPage, Sent,
    TcpSample,
};
pub use simulation::Simulation;
pub use topology::{Link, Route, Router, dumbbell, dumbbell_route, parking_lot, parking_lot_route};
pub use traffic::*;
