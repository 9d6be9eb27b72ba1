//! A proxy whose connections pass an emulated link, for machines without namespaces.
//!
//! Programs connect to the proxy by SOCKS5, by HTTP, or through a port that leads to one place. The
//! bytes of each connection pass the same pipes and queues as packets under `sluice exec`, between
//! two endpoints of Sluice's own TCP, in real time: slow start, loss recovery and the queue shape
//! the stream. All connections share the link. One thread does everything, and sleeps while nothing
//! happens.

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

pub use request::{Destination, Host};
pub use server::{Addresses, Handle, Proxy};
pub use settings::{Listen, Map, ProxyError, Settings, WordError, congestion_control};

/// The parsers of what strangers send, for tests.
pub mod parse {
    pub use crate::control::parse as control;
    pub use crate::request::body::Body;
    pub use crate::request::http::{Kind, Request, parse as http};
    pub use crate::request::socks::{Socks, Step};
}
