//! Reads captures packet by packet, in bounded memory.

use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use std::io::{self, Chain, Cursor, Read};

/// An error in a capture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file is cut off.
    #[error("the file ends inside it; the capture is truncated")]
    Truncated,
    /// The file's structure is broken.
    #[error("it cannot be read; the capture is damaged")]
    Damaged,
    /// Reading the file failed.
    #[error("the file cannot be read")]
    Unreadable,
    /// A pcap file of an unknown version.
    #[error("its format is version {0}.{1}; only version 2 is supported")]
    Version(u16, u16),
    /// A packet of an interface that the capture does not describe.
    #[error("it belongs to interface {0}, which the capture does not describe")]
    Interface(u32),
    /// A packet without a time (a simple packet block).
    #[error("it carries no time")]
    NoTime,
    /// A clock that cannot be counted in nanoseconds.
    #[error("its clock has a resolution of {0:#04x}, which is not supported")]
    Resolution(u8),
    /// A packet that is longer than any real one.
    #[error("it claims {0} bytes; a packet has at most 16777216")]
    TooLong(u32),
}

/// The metadata of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time of capture, in nanoseconds since 1970.
    pub time_ns: i128,
    /// The link type: see [`link_type`](super::link_type).
    pub link: u32,
    /// The packet's length on the wire; fewer bytes may have been captured.
    pub original_len: u32,
}

/// Reads a capture packet by packet.
pub struct Reader<R: Read> {
    file: File<R>,
    interfaces: Vec<Interface>,
    is_big_endian: bool,
    /// Bytes that the library's buffer holds.
    capacity: usize,
}

enum File<R: Read> {
    Classic(LegacyPcapReader<Whole<R>>),
    Ng(PcapNGReader<Whole<R>>),
}

/// The bytes that were read to recognise the file, followed by the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// An interface of a capture.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    resolution: u8,
    offset_s: i64,
}

/// A packet's time and interface, as in the file.
struct Raw {
    interface: u32,
    /// Ticks of the interface's clock (pcapng).
    ticks: Option<u64>,
    /// Seconds and ticks beyond them (pcap).
    seconds: (u32, u32),
    original_len: u32,
}

/// Returns whether `head` is the start of a capture.
pub fn is_capture(head: &[u8]) -> bool {
    const MAGIC: [[u8; 4]; 7] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0xa1, 0xb2, 0xcd, 0x34],
        [0x34, 0xcd, 0xb2, 0xa1],
        NG_MAGIC,
    ];
    MAGIC.iter().any(|magic| head.starts_with(magic))
}

impl<R: Read> Reader<R> {
    /// Reads the head of a capture.
    ///
    /// # Errors
    /// The file is not a capture, or cannot be read.
    pub fn new(mut reader: R) -> Result<Reader<R>, ReadError> {
        // The library needs the whole head in its first read.
        let mut head = Vec::with_capacity(HEAD);
        let first = reader.by_ref().take(HEAD as u64).read_to_end(&mut head);
        first.map_err(|_: io::Error| ReadError::Unreadable)?;
        let is_ng = head.starts_with(&NG_MAGIC);
        let whole = Cursor::new(head).chain(reader);
        let file = if is_ng {
            PcapNGReader::new(CAPACITY, whole).map(File::Ng)
        } else {
            LegacyPcapReader::new(CAPACITY, whole).map(File::Classic)
        };
        let file = file.map_err(|error| match error {
            PcapError::Incomplete(_) => ReadError::Truncated,
            _ => ReadError::Damaged,
        })?;
        Ok(Reader {
            file,
            interfaces: Vec::new(),
            is_big_endian: false,
            capacity: CAPACITY,
        })
    }

    /// Reads the next packet and replaces the contents of `bytes` with its captured bytes. Returns
    /// `None` at the end.
    ///
    /// # Errors
    /// The packet is unreadable or malformed. The results of later calls are then meaningless.
    pub fn read(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Record>, ReadError> {
        loop {
            let file: &mut dyn PcapReaderIterator = match &mut self.file {
                File::Classic(file) => file,
                File::Ng(file) => file,
            };
            let (offset, raw) = match file.next() {
                Ok((offset, block)) => {
                    let raw = match block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            // draft-ietf-opsawg-pcap section 4: major version 2.
                            if header.version_major != 2 {
                                let (major, minor) = (header.version_major, header.version_minor);
                                return Err(ReadError::Version(major, minor));
                            }
                            self.interfaces = vec![Interface {
                                link: Linktype(header.network.0 & 0xffff),
                                resolution: if header.is_nanosecond_precision() {
                                    9
                                } else {
                                    6
                                },
                                offset_s: 0,
                            }];
                            None
                        }
                        PcapBlockOwned::Legacy(packet) => {
                            bytes.clear();
                            bytes.extend_from_slice(packet.data);
                            Some(Raw {
                                interface: 0,
                                ticks: None,
                                seconds: (packet.ts_sec, packet.ts_usec),
                                original_len: packet.origlen,
                            })
                        }
                        PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                            self.interfaces.clear();
                            self.is_big_endian = section.big_endian();
                            None
                        }
                        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                            // The library always reads the offset as little-endian.
                            let offset_s = interface.if_tsoffset;
                            self.interfaces.push(Interface {
                                link: interface.linktype,
                                resolution: interface.if_tsresol,
                                offset_s: if self.is_big_endian {
                                    offset_s.swap_bytes()
                                } else {
                                    offset_s
                                },
                            });
                            None
                        }
                        PcapBlockOwned::NG(Block::EnhancedPacket(ref packet)) => {
                            bytes.clear();
                            bytes.extend_from_slice(packet.packet_data());
                            Some(Raw {
                                interface: packet.if_id,
                                ticks: Some(
                                    u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                                ),
                                seconds: (0, 0),
                                original_len: packet.origlen,
                            })
                        }
                        PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                            return Err(ReadError::NoTime);
                        }
                        PcapBlockOwned::NG(_) => None,
                    };
                    (offset, raw)
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => match file.refill() {
                    Ok(()) => continue,
                    Err(_) => return Err(ReadError::Unreadable),
                },
                Err(PcapError::BufferTooSmall) if self.capacity < MAX_CAPACITY => {
                    self.capacity *= 2;
                    file.grow(self.capacity);
                    continue;
                }
                Err(PcapError::UnexpectedEof) => return Err(ReadError::Truncated),
                Err(PcapError::ReadError) => return Err(ReadError::Unreadable),
                Err(_) => return Err(ReadError::Damaged),
            };
            file.consume(offset);
            if let Some(raw) = raw {
                return self.record(&raw, bytes.len()).map(Some);
            }
        }
    }

    /// Returns the link type of the first interface, if the file states it before the first packet.
    pub fn link(&mut self) -> Option<u32> {
        if let File::Classic(file) = &mut self.file
            && let Ok((_, PcapBlockOwned::LegacyHeader(header))) = file.next()
        {
            return Some((header.network.0 & 0xffff) as u32);
        }
        self.interfaces
            .first()
            .map(|interface| interface.link.0 as u32)
    }

    fn record(&self, raw: &Raw, captured: usize) -> Result<Record, ReadError> {
        let interface = *usize::try_from(raw.interface)
            .ok()
            .and_then(|i| self.interfaces.get(i))
            .ok_or(ReadError::Interface(raw.interface))?;
        let time_ns = raw.time_ns(interface)?;
        let original_len = raw.original_len.max(captured as u32);
        if original_len > MAX_LEN {
            return Err(ReadError::TooLong(original_len));
        }
        Ok(Record {
            time_ns,
            link: interface.link.0 as u32,
            original_len,
        })
    }
}

impl Raw {
    /// Nanoseconds since 1970.
    fn time_ns(&self, interface: Interface) -> Result<i128, ReadError> {
        let r = interface.resolution;
        // pcapng (draft-ietf-opsawg-pcapng section 4.2): a power of two if the highest bit is set,
        // else of ten.
        let per_second: u128 = match (r & 0x80 == 0, u32::from(r & 0x7f)) {
            (true, digits @ 0..=19) => 10u128.pow(digits),
            (false, bits @ 0..=63) => 1 << bits,
            _ => return Err(ReadError::Resolution(r)),
        };
        let ticks = match self.ticks {
            Some(ticks) => u128::from(ticks),
            None => u128::from(self.seconds.0) * per_second + u128::from(self.seconds.1),
        };
        let ns = (ticks * 1_000_000_000 / per_second) as i128;
        Ok(ns + i128::from(interface.offset_s) * 1_000_000_000)
    }
}

/// Bytes that are read before the library gets the file.
const HEAD: usize = 1 << 18;
/// Initial size of the library's buffer; it grows when a block is longer.
const CAPACITY: usize = 1 << 20;
const MAX_CAPACITY: usize = 1 << 26;
const MAX_LEN: u32 = 1 << 24;
const NG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
