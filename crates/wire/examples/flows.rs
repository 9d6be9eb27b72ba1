//! The flows of a capture, with their packets and bytes.
//!
//! `[CAPTURE=FILE] cargo run -p sluice-wire --example flows`
//!
//! FILE is a pcap or pcapng file. Without it, the program creates and reads a small capture:
//!
//! ```text
//! packets  bytes  flow
//!       2   1600  192.0.2.1:5000 > 198.51.100.1:53, protocol 17
//!       1     60  192.0.2.2:5001 > 198.51.100.1:53, protocol 17
//! ```

use sluice_wire::capture::{ReadError, Reader, Writer, link_type};
use sluice_wire::frame::{Addresses, Link, View, parse_head};
use std::collections::BTreeMap;
use std::io::Read;

/// Packets and bytes of a flow.
type Counts = (u64, u64);

/// Runs the example.
pub fn main() {
    let file = std::env::var_os("CAPTURE");
    let capture = match &file {
        Some(path) => std::fs::read(path).expect("CAPTURE is a file that this user may read"),
        None => own_capture(),
    };
    let flows = flows(&capture[..]).expect("the file is a capture");
    println!("packets  bytes  flow");
    for (flow, (packets, bytes)) in &flows {
        println!("{packets:>7} {bytes:>6}  {flow}");
    }
    if file.is_none() {
        // The sizes that `own_capture` gives its packets.
        let counts: Vec<Counts> = flows.into_values().collect();
        assert_eq!(counts, [(2, 100 + 1500), (1, 60)]);
    }
}

/// Counts the packets of each flow. A capture may hold only the first bytes of a packet.
fn flows(file: impl Read) -> Result<BTreeMap<String, Counts>, ReadError> {
    let mut reader = Reader::new(file)?;
    let (mut flows, mut bytes) = (BTreeMap::new(), Vec::new());
    while let Some(record) = reader.read(&mut bytes)? {
        let link = match record.link {
            link_type::ETHERNET => Link::Ethernet,
            _ => Link::Ip,
        };
        let view = parse_head(&bytes, record.original_len as usize, link);
        let (packets, sum): &mut Counts = flows.entry(name(&view)).or_default();
        *packets += 1;
        *sum += u64::from(record.original_len);
    }
    Ok(flows)
}

fn name(view: &View) -> String {
    let (from, to) = view.ports().unwrap_or_default();
    let protocol = view.protocol;
    match view.addresses {
        Addresses::None => "not IP".to_owned(),
        Addresses::V4 {
            source,
            destination,
        } => format!("{source}:{from} > {destination}:{to}, protocol {protocol}"),
        Addresses::V6 {
            source,
            destination,
        } => format!("[{source}]:{from} > [{destination}]:{to}, protocol {protocol}"),
    }
}

fn own_capture() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link_type::RAW).expect("memory takes every byte");
    for (ms, host, length) in [(0, 1, 100), (1, 2, 60), (2, 1, 1500)] {
        let packet = udp(host, length);
        let captured = [&packet[..], &[]];
        let written = writer.packet(ms * 1_000_000, captured, u32::from(length));
        written.expect("memory takes every byte");
    }
    writer.into_inner()
}

/// A packet of `length` bytes from 192.0.2.`host` (RFC 791, RFC 768).
fn udp(host: u8, length: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, host, 198, 51, 100, 1]);
    packet.extend((4999 + u16::from(host)).to_be_bytes());
    packet.extend(53_u16.to_be_bytes());
    packet.extend((length - 20).to_be_bytes());
    packet.resize(usize::from(length), 0);
    packet
}
