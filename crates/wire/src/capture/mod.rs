//! Packet captures: reading pcap and pcapng, writing both.
//!
//! The one home of capture files: the `pcap` port, `sluice replay` and the
//! exports use it. Reading is that of `pcap-parser`; times become nanoseconds since 1970 whatever the
//! file counts in. What is written is classic pcap with nanoseconds, or pcapng where packets have
//! comments.

mod annotated;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use annotated::{Annotated, AnnotatedWriter};
pub use read::{ReadError, Reader, Record, is_capture};
pub use write::Writer;

/// Link types that say how a packet starts (the registry of LINKTYPE_ values).
pub mod link_type {
    /// Ethernet.
    pub const ETHERNET: u32 = 1;
    /// IPv4 or IPv6.
    pub const RAW: u32 = 101;
    /// IPv4.
    pub const IPV4: u32 = 228;
    /// IPv6.
    pub const IPV6: u32 = 229;
    /// Raw IP under the numbers that some systems write into files.
    pub const RAW_OF_OTHERS: [u32; 2] = [12, 14];
}
