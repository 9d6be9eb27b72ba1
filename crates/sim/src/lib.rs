//! A discrete-event simulation of Sluice's queues in virtual time.
//!
//! The queues and pipes are those of [`sluice_core`], the same compiled code as on live packets;
//! the traffic is [`sluice_tcp`] and simple sources. A [`Config`] describes links and flows, a
//! [`Simulation`] runs it, an [`Observer`] hears what happens. There are no files, sockets, clocks
//! or threads here, and only ordered containers: the same configuration and seed give the same
//! run, bit for bit, on every machine.
//!
//! # Model
//!
//! A packet passes the links of its flow's route one after the other; each link is a queue and a
//! rate ([`sluice_core::link::pipe::Pipe`]: it leaves the queue at the start of its slot and is
//! delivered at the end), then a delay. After the last link come the delay of the flow's own
//! access network and the host's processing jitter ([`Config::jitter`]). Hosts compute in no
//! time. At one instant arrivals and timers come before links.
//!
//! # Cost
//!
//! One event for each packet and link, one for each delivery; timers are not cancelled but
//! re-armed when they come too early. `cargo run --release -p sluice-sim --example speed` measures.
#![deny(missing_docs)]

mod calendar;
mod check;
mod config;
mod connection;
mod estimate;
mod network;
mod observe;
mod packets;
mod path;
mod prefetch;
mod simulation;
mod stage;
pub mod traffic;

pub use check::ConfigError;
pub use config::{
    Config, Flow, FlowId, Link, LinkId, Route, Router, Side, Stalls, dumbbell, dumbbell_route,
    parking_lot, parking_lot_route,
};
pub use estimate::Estimate;
pub use observe::{Completion, Datagram, Echo, FlowTotals, LinkSample, Observer, TcpSample};
pub use simulation::Simulation;
pub use traffic::*;
