//! A proxy whose connections pass an emulated link, for machines without namespaces.
//!
//! Programs connect to the proxy by SOCKS5, by HTTP, or through a port with a fixed destination.
//! The bytes of each connection pass the same pipes and queues as packets under `sluice exec`,
//! between two endpoints of Sluice's own TCP, in real time: slow start, loss recovery and the queue
//! shape the stream. All connections share the link. A single thread does everything, and sleeps
//! while there are no events.

mod bell;
mod client;
mod control;
mod engine;
mod hub;
mod names;
mod outside;
mod request;
mod server;
mod settings;
mod stream;

pub use engine::{Arrival, EndState, Flow, Observation, Observations, Release, Sent};
pub use request::{Destination, Host};
pub use server::{Addresses, Handle, Proxy};
pub use settings::{
    Listen, Map, ProxyError, Settings, WordError, congestion_control, congestion_controls,
};

/// The parsers of untrusted input, for tests.
pub mod parse {
    pub use crate::control::parse as control;
    pub use crate::request::body::Body;
    pub use crate::request::http::{Kind, Request, parse as http};
    pub use crate::request::socks::{Socks, Step};
}
