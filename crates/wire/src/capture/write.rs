//! Writes classic pcap with nanosecond timestamps.
//!
//! Written by hand because the format is two structures of 24 and 16 bytes
//! (draft-ietf-opsawg-pcap).

use std::io::{self, Write};

/// Writes packets in the order in which they are given.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header for packets of link type `link` ([`link_type`](super::link_type)).
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, link: u32) -> io::Result<Self> {
        out.write_all(&MAGIC_NS.to_le_bytes())?;
        out.write_all(&2u16.to_le_bytes())?;
        out.write_all(&4u16.to_le_bytes())?;
        out.write_all(&[0; 8])?;
        out.write_all(&SNAPLEN.to_le_bytes())?;
        out.write_all(&link.to_le_bytes())?;
        Ok(Writer { out })
    }

    /// Writes a packet of `original_len` bytes that was seen at `time_ns` since 1970. `parts` are
    /// its captured bytes, in order.
    ///
    /// # Errors
    /// Those of the output, or when the file format cannot represent the time.
    pub fn packet(
        &mut self,
        time_ns: i128,
        parts: [&[u8]; 2],
        original_len: u32,
    ) -> io::Result<()> {
        let seconds = u32::try_from(time_ns.div_euclid(1_000_000_000)).map_err(|_| {
            io::Error::other("a capture cannot hold times before 1970 or after 2106")
        })?;
        let ns = time_ns.rem_euclid(1_000_000_000) as u32;
        let captured = (parts[0].len() + parts[1].len()) as u32;
        for word in [seconds, ns, captured, original_len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(parts[0])?;
        self.out.write_all(parts[1])
    }

    /// Flushes buffered data.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the output, for its own methods.
    pub const fn get_ref(&self) -> &W {
        &self.out
    }

    /// Returns the output, for its own methods.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// The writer truncates no packet; readers size their buffers by this value.
const SNAPLEN: u32 = 1 << 24;
