//! Captures, played and written.

use std::fs;

use sluice_net::Clock;
use sluice_net::port::pcap::{PcapPort, PcapSpec, Speed};
use sluice_net::port::{Pool, Port};
use sluice_wire::capture::{Reader, Writer, link_type};

use super::common::wire::frame;
use super::interpose::armed;
use super::parts::part;
use super::{SIZE, descriptors, eventually, exhaust, said};

/// Frames of the capture.
const FRAMES: u64 = 50;

fn count(path: &std::path::Path) -> u64 {
    if fs::metadata(path).unwrap().len() == 0 {
        return 0;
    }
    let mut reader = Reader::new(fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    let mut count = 0;
    while reader.read(&mut bytes).unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn every_frame_of_a_capture_is_played_and_written_or_counted() {
    let Some(part) = part!("pcap", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    let mut writer = Writer::new(fs::File::create(&input).unwrap(), link_type::ETHERNET).unwrap();
    // More than a buffer of the reader, so that frames are read while the capture is played.
    let one = frame(&[], 1400);
    for time_ns in 0..FRAMES {
        let length = one.len() as u32;
        writer.packet(time_ns.into(), [&one, &[]], length).unwrap();
    }
    drop(writer);
    let original = fs::read(&input).unwrap();
    let mut pool = Pool::new(SIZE).unwrap();
    exhaust(part, |call, error| {
        let open_before = descriptors();
        // What is there already is looked at before it is opened.
        fs::write(&output, "").unwrap();
        let (port, _) = armed(call, error, || {
            // A file that is both is left as it is, even if the paths cannot be compared.
            let both = PcapSpec {
                input: Some(input.clone()),
                output: Some(input.clone()),
                speed: Speed::Full,
            };
            let refused = PcapPort::open(&both, None, Clock::start());
            assert!(said(refused).is_none());
            let spec = PcapSpec {
                output: Some(output.clone()),
                ..both
            };
            let mut port = said(PcapPort::open(&spec, None, Clock::start()))?;
            let mut slots = Vec::new();
            while port.receive(&mut pool, &mut slots) > 0 {
                assert_eq!(port.transmit(&mut pool, &slots), slots.len());
                slots.clear();
            }
            port.release(&mut pool);
            Some(port)
        });
        assert_eq!(fs::read(&input).unwrap(), original);
        if let Some(mut port) = port {
            let counters = port.counters();
            let known = counters.sent + counters.lost_total();
            assert_eq!(known, FRAMES, "{counters:?}");
            assert_eq!(count(&output), counters.sent);
        }
        assert_eq!(pool.available(), SIZE.slots as usize, "slots are missing");
        eventually("all descriptors are closed", || {
            descriptors() == open_before
        });
    });
}
