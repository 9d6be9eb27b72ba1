//! Packet queueing without I/O, clocks or global state.
//!
//! Time, randomness and the listener for events are arguments ([`Cx`]). A packet is a small handle
//! ([`Packet`]) whose bytes stay with the host. The same compiled code therefore runs on live
//! traffic, in the simulator, over a recorded trace and under a fuzzer.
//!
//! ```
//! use sluice_core::{Cx, DropCounter, Packet, Rng, Time, registry::Spec};
//!
//! let mut queue = Spec::parse("fq_codel").unwrap().build().unwrap();
//! let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
//! let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
//! queue.enqueue(Packet::new(0, 1500), &mut cx);
//! assert_eq!(queue.dequeue(&mut cx).map(|p| p.len), Some(1500));
//! ```
//!
//! The folder `examples` has small programs that use this crate.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

pub mod ack;
pub mod aqm;
pub mod conformance;
pub mod event;
pub mod framing;
pub mod link;
pub mod packet;
pub mod param;
pub mod prefetch;
pub mod record;
pub mod registry;
pub mod rng;
pub mod sched;
mod settings;
pub mod spelling;
pub mod stop;
pub mod traffic;
pub mod units;

pub use event::{Backlog, Cx, DropCounter, DropReason, Event, Sink};
pub use packet::{Ecn, Packet};
pub use rng::Rng;
pub use sched::{Discipline, Wake};
pub use stop::Stop;
pub use units::{Bytes, Rate, Span, Time};
