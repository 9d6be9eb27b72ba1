//! Writing a capture: classic pcap with nanoseconds.
//!
//! Written by hand because it is two structures of 24 and 16 bytes (draft-ietf-opsawg-pcap).

use std::io::{self, Write};

/// Writes packets in the order in which they are given.
pub(super) struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the head for packets of `link` type.
    pub(super) fn new(mut out: W, link: u16) -> io::Result<Self> {
        out.write_all(&MAGIC_NS.to_le_bytes())?;
        out.write_all(&2u16.to_le_bytes())?;
        out.write_all(&4u16.to_le_bytes())?;
        out.write_all(&[0; 8])?;
        out.write_all(&SNAPLEN.to_le_bytes())?;
        out.write_all(&u32::from(link).to_le_bytes())?;
        Ok(PcapWriter { out })
    }

    /// Writes a packet seen at `time_ns` since 1970, of which `bytes` are known.
    pub(super) fn packet(
        &mut self,
        time_ns: i128,
        bytes: &[u8],
        original_len: u32,
    ) -> io::Result<()> {
        let seconds = u32::try_from(time_ns.div_euclid(1_000_000_000)).map_err(|_| {
            io::Error::other("a capture cannot hold times before 1970 or after 2106")
        })?;
        let ns = time_ns.rem_euclid(1_000_000_000) as u32;
        for word in [seconds, ns, bytes.len() as u32, original_len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(bytes)
    }

    pub(super) fn into_inner(self) -> W {
        self.out
    }
}

const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// No packet was cut by this writer; readers size their buffers by it.
const SNAPLEN: u32 = 1 << 24;
