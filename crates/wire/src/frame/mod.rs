//! Frames: parsing in one pass, flow hashes, CE marks, checksums, and splitting super-packets.
//!
//! [`parse`] never fails: any bytes give a [`View`], which has the first [`Fault`] beside the
//! fields that could still be read. Nothing here allocates, reads a clock or calls the kernel.
//!
//! The parser is written by hand because it runs once per packet and must also read the head
//! of a frame whose rest lies elsewhere; its tests use `etherparse` as the oracle.

mod ack;
mod checksum;
mod ecn;
mod gso;
mod hash;
mod labels;
mod quic;
mod strict;
mod timestamps;
mod trailer;
mod train;
mod tunnel;
mod view;
mod vnet;

pub use ack::pure_ack;
pub use checksum::{Sum, complete_checksum, open_checksum};
pub use ecn::set_ce;
pub use gso::{Checksums, Gather, GsoError, SuperPacket};
pub use hash::FlowHasher;
pub use quic::{QuicHeader, quic};
pub use timestamps::{Timestamps, timestamps};
pub use trailer::trim;
pub use train::{Segment, Train};
pub use view::{Addresses, Fault, Fragment, Link, Transport, View, parse, parse_head};
pub use vnet::{GsoKind, VnetHeader};

#[cfg(test)]
mod tests;
