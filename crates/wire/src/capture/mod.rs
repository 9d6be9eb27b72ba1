//! Packet captures: reading pcap and pcapng, writing both.
//!
//! The `pcap` port, `sluice replay` and the exports use this module. Files are read with
//! `pcap-parser`; times become nanoseconds since 1970, whatever the unit of the file. The writers
//! produce classic pcap with nanoseconds, or pcapng where packets have comments.

mod annotated;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use annotated::{Annotated, AnnotatedWriter};
pub use read::{ReadError, Reader, Record, is_capture};
pub use write::Writer;

/// Link types: the header that a packet starts with (the registry of LINKTYPE_ values).
pub mod link_type {
    /// Ethernet.
    pub const ETHERNET: u32 = 1;
    /// IPv4 or IPv6.
    pub const RAW: u32 = 101;
    /// IPv4.
    pub const IPV4: u32 = 228;
    /// IPv6.
    pub const IPV6: u32 = 229;
    /// Raw IP, by the numbers that some systems use in files.
    pub const RAW_OF_OTHERS: [u32; 2] = [12, 14];
}
