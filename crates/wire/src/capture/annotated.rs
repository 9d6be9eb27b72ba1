//! Writes pcapng, which can hold a comment for each packet.
//!
//! Written by hand because it takes three kinds of block (draft-ietf-opsawg-pcapng): a section in
//! little-endian order, one interface with times in nanoseconds, and packets.

use std::io::{self, Write};

/// Writes the packets of one interface, in the order of the calls.
pub struct AnnotatedWriter<W> {
    out: W,
    body: Vec<u8>,
}

/// A packet with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Annotated<'a> {
    /// The time of capture, in nanoseconds since 1970.
    pub time_ns: u64,
    /// First bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub original_len: u32,
    /// Whether the interface received it rather than sent it.
    pub is_inbound: bool,
    /// A number that the packet has in all captures (`epb_packetid`).
    pub number: Option<u64>,
    /// A comment.
    pub comment: Option<&'a str>,
}

impl<W: Write> AnnotatedWriter<W> {
    /// Writes the headers of the file: the writing program, and an interface called `name` with
    /// packets of link type `link` ([`link_type`](super::link_type)), of which at most `most` bytes
    /// are captured.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, program: &str, name: &str, link: u32, most: u32) -> io::Result<Self> {
        let mut writer = AnnotatedWriter {
            out,
            body: Vec::new(),
        };
        // Byte order, version 1.0, length of the section not given.
        writer.body.extend(BYTE_ORDER.to_le_bytes());
        writer.body.extend([1, 0, 0, 0]);
        writer.body.extend(u64::MAX.to_le_bytes());
        writer.option(USER_APPLICATION, program.as_bytes());
        writer.end_block(SECTION)?;
        writer.body.extend((link as u16).to_le_bytes());
        writer.body.extend([0, 0]);
        writer.body.extend(most.to_le_bytes());
        writer.option(INTERFACE_NAME, name.as_bytes());
        writer.option(TIME_RESOLUTION, &[NANOSECONDS]);
        writer.end_block(INTERFACE)?;
        Ok(writer)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Those of the output.
    pub fn packet(&mut self, packet: &Annotated<'_>) -> io::Result<()> {
        self.body.extend(0_u32.to_le_bytes());
        self.body
            .extend(((packet.time_ns >> 32) as u32).to_le_bytes());
        self.body.extend((packet.time_ns as u32).to_le_bytes());
        self.body.extend((packet.bytes.len() as u32).to_le_bytes());
        self.body.extend(packet.original_len.to_le_bytes());
        self.body.extend(packet.bytes);
        self.pad();
        let way: u32 = if packet.is_inbound { 1 } else { 2 };
        self.option(PACKET_FLAGS, &way.to_le_bytes());
        if let Some(number) = packet.number {
            self.option(PACKET_ID, &number.to_le_bytes());
        }
        if let Some(comment) = packet.comment {
            self.option(COMMENT, comment.as_bytes());
        }
        self.end_block(PACKET)
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Terminates the options and writes the block: type, length, body, and the length again.
    fn end_block(&mut self, kind: u32) -> io::Result<()> {
        self.body.extend([0; 4]);
        let length = (self.body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(&self.body)?;
        self.out.write_all(&length)?;
        self.body.clear();
        Ok(())
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.body.extend(code.to_le_bytes());
        self.body.extend((value.len() as u16).to_le_bytes());
        self.body.extend(value);
        self.pad();
    }

    /// Pads to the next multiple of four bytes, at which every field starts.
    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }
}

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const PACKET_ID: u16 = 5;
/// Powers of ten of a second.
const NANOSECONDS: u8 = 9;
