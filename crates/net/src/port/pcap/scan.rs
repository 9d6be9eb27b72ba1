//! Finds everything that is wrong with a file before it is played.

use sluice_wire::capture::{ReadError, Reader, link_type};
use sluice_wire::frame::Link;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The reasons why files cannot be opened as a port.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The input cannot be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The input can be read only once.
    #[error("{} is not a regular file, and a capture is checked completely before it is played", .0.display())]
    NotAFile(PathBuf),
    /// The output cannot be created.
    #[error("cannot create {}: {source}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Writing would overwrite the input.
    #[error("{} is an input and an output, or two outputs", .0.display())]
    Same(PathBuf),
    /// The input is damaged.
    #[error("{}: {}: {error}", .path.display(), place(*.packet))]
    Read {
        /// The file.
        path: PathBuf,
        /// The packet, from 1; 0 for the head of the file.
        packet: u64,
        /// The error.
        error: ReadError,
    },
    /// The frames of the file start with neither of the supported headers.
    #[error(
        "{}: {}: link type {link} cannot be sent; Ethernet (1) and raw IP (101, 228, 229) can",
        .path.display(), place(*.packet)
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The packet, from 1; 0 for the head of the file.
        packet: u64,
        /// The link type of the file.
        link: u32,
    },
    /// The link type of a packet differs from that of the packets before it.
    #[error(
        "{}: packet {packet}: link type {link} after packets of link type {first}; all frames of a \
         port must have the same link type",
        .path.display()
    )]
    Mixed {
        /// The file.
        path: PathBuf,
        /// The packet, from 1.
        packet: u64,
        /// The link type of the packet.
        link: u32,
        /// The link type of the packets before it.
        first: u32,
    },
    /// A part of the packet was not captured.
    #[error(
        "{}: packet {packet}: only {captured} of its {original} bytes were captured; a port sends whole \
         packets (`tcpdump -s 0` captures them)",
        .path.display()
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// The packet, from 1.
        packet: u64,
        /// Bytes that were captured.
        captured: u32,
        /// Bytes of the packet.
        original: u32,
    },
    /// The frames of the file have another link header than those of the router.
    #[error(
        "{} holds {}, but the port carries {}",
        .path.display(), kind(*.holds), kind(*.wanted)
    )]
    Link {
        /// The file.
        path: PathBuf,
        /// The link header of its frames.
        holds: Link,
        /// The link header of the router's frames.
        wanted: Link,
    },
    /// A timer cannot be created.
    #[error("cannot make a timer: {0}")]
    Timer(io::Error),
}

/// The result of scanning a file before it is played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Whole packets.
    pub packets: u64,
    /// The time of the first packet, in nanoseconds since 1970.
    pub first_ns: Option<i128>,
    /// The link header of the packets; `None` if there are no packets.
    pub link: Option<Link>,
    /// Packets with an earlier time than the packet before them.
    pub backwards: u64,
    /// The file ends inside one more packet.
    pub is_truncated: bool,
}

/// Reads the whole file, so that everything wrong with it is reported before it is played.
pub(super) fn scan(path: &Path) -> Result<Scan, PcapError> {
    let mut reader = open(path)?;
    let (mut scan, mut bytes) = (Scan::default(), Vec::new());
    let (mut first, mut before) = (None, i128::MIN);
    loop {
        let number = scan.packets + 1;
        let record = match reader.read(&mut bytes) {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(ReadError::Truncated) => {
                scan.is_truncated = true;
                break;
            }
            Err(error) => return Err(read_error(path, number, error)),
        };
        let first = *first.get_or_insert(record.link);
        let link = link_of(path, number, record.link)?;
        if *scan.link.get_or_insert(link) != link {
            return Err(PcapError::Mixed {
                path: path.to_owned(),
                packet: number,
                link: record.link,
                first,
            });
        }
        let captured = bytes.len() as u32;
        if captured < record.original_len {
            return Err(PcapError::Cut {
                path: path.to_owned(),
                packet: number,
                captured,
                original: record.original_len,
            });
        }
        scan.first_ns.get_or_insert(record.time_ns);
        scan.backwards += u64::from(record.time_ns < before);
        before = before.max(record.time_ns);
        scan.packets += 1;
    }
    if scan.link.is_none()
        && let Some(link) = reader.link()
    {
        scan.link = Some(link_of(path, 0, link)?);
    }
    Ok(scan)
}

pub(super) fn open(path: &Path) -> Result<Reader<File>, PcapError> {
    let fail = |source| PcapError::Open {
        path: path.to_owned(),
        source,
    };
    // Checked before opening, because opening a FIFO would block.
    if !fs::metadata(path).map_err(fail)?.is_file() {
        return Err(PcapError::NotAFile(path.to_owned()));
    }
    let file = File::open(path).map_err(fail)?;
    Reader::new(file).map_err(|error| read_error(path, 0, error))
}

pub(super) fn read_error(path: &Path, packet: u64, error: ReadError) -> PcapError {
    PcapError::Read {
        path: path.to_owned(),
        packet,
        error,
    }
}

pub(super) fn link_of(path: &Path, packet: u64, link: u32) -> Result<Link, PcapError> {
    match link {
        link_type::ETHERNET => Ok(Link::Ethernet),
        link_type::RAW | link_type::IPV4 | link_type::IPV6 => Ok(Link::Ip),
        other if link_type::RAW_OF_OTHERS.contains(&other) => Ok(Link::Ip),
        link => Err(PcapError::LinkType {
            path: path.to_owned(),
            packet,
            link,
        }),
    }
}

fn place(packet: u64) -> String {
    match packet {
        0 => "head".to_owned(),
        packet => format!("packet {packet}"),
    }
}

const fn kind(link: Link) -> &'static str {
    match link {
        Link::Ethernet => "Ethernet frames",
        Link::Ip => "IP packets",
    }
}
