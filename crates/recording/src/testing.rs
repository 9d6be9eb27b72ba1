//! A handmade recording, for the tests of all code that reads recordings.

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{DropReason, Ecn, Span, Time};
use sluice_scenario::{Backend, Direction, Scenario, Variant};

use crate::{End, Environment, FlowSample, PingSample, Recording, RunWriter};

const MS: u64 = 1_000_000;

pub fn recording(dir: &std::path::Path) -> Recording {
    let environment = Environment::here(Backend::Live, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(dir, &variant(), &environment).unwrap();
    // Bulk flows: 100 000 B and 25 000 B per second, and a retransmission each second.
    for second in 0..=10 {
        for (flow, rate) in [(0, 100_000), (1, 25_000)] {
            let tcp = FlowSample {
                received_bytes: Some(rate * second),
                retransmits: Some(second),
                srtt: Some(Span::from_ms(20 + second)),
                ..sample(1000 * second, flow)
            };
            writer.flow_sample(&tcp).unwrap();
        }
        let udp = FlowSample {
            sent_packets: Some(10 * second),
            received_packets: Some(8 * second),
            received_bytes: Some(1200 * 8 * second),
            ..sample(1000 * second, 4)
        };
        writer.flow_sample(&udp).unwrap();
        // One probe per second; the probe of second 5 is lost, the others take 20 ms and one more
        // per second.
        let is_lost = second == 5;
        let delay = |ms| (!is_lost).then(|| Span::from_ms(ms));
        let probe = PingSample {
            time: Time::from_ns(1000 * second * MS),
            flow: 3,
            seq: second,
            rtt: delay(20 + second),
            up: delay(10 + second),
            down: delay(10),
            is_lost,
        };
        writer.ping(&probe).unwrap();
    }
    // The page starts at 1 s and is complete at 1.24 s.
    for (ms, bytes) in [(1040, 1448), (1240, 3000), (2000, 3000)] {
        let page = FlowSample {
            received_bytes: Some(bytes),
            ..sample(ms, 2)
        };
        writer.flow_sample(&page).unwrap();
    }
    let packets = [
        packet(500, 600, Fate::Dropped(DropReason::Overflow)),
        packet(1990, 2010, Fate::Sent),
        packet(3000, 3030, Fate::Marked),
        packet(4000, 4040, Fate::Sent),
        packet(5000, 5000, Fate::Dropped(DropReason::Congestion)),
        packet(9990, 9990, Fate::Queued),
    ];
    for packet in &packets {
        writer.packet(Direction::Up, packet).unwrap();
    }
    let mut end = End::complete(Time::from_ns(10_000 * MS));
    end.lost.insert("port".into(), 3);
    writer.finish(end).unwrap()
}

/// Two TCP flows and a ping over 1.2 Mbit/s for 10 s, of which 2 s are warm-up.
pub fn variant() -> Variant {
    let text = r#"
        duration = "10s"
        [link]
        rate = "1.2Mbit/s"
        rtt = "20ms"
        [measure]
        warmup = "2s"
        [[flow]]
        type = "tcp"
        name = "bulk"
        count = 2
        [[flow]]
        type = "tcp"
        name = "page"
        bytes = "3000B"
        start = "1s"
        [[flow]]
        type = "ping"
        [[flow]]
        type = "udp"
        rate = "100kbit/s"
        [[expect]]
        metric = "ping.p50"
        max = "30ms"
        [[expect]]
        metric = "bulk.goodput"
        min = "1Mbit/s"
        [[expect]]
        metric = "up.drops"
        min = 1
        max = 2
        [[expect]]
        metric = "down.sojourn.p50"
        max = "1ms"
    "#;
    Scenario::parse("x", text, &[]).unwrap().remove(0)
}

fn sample(ms: u64, flow: u32) -> FlowSample {
    FlowSample::empty(Time::from_ns(ms * MS), flow)
}

/// A packet that has arrived and left, or was dropped, at these milliseconds.
pub fn packet(arrival_ms: u64, at_ms: u64, fate: Fate) -> PacketRecord {
    PacketRecord {
        seq: 0,
        packet: None,
        arrival: Time::from_ns(arrival_ms * MS),
        flow: 0,
        len: 3000,
        segments: 2,
        ecn: Ecn::Ect0,
        class: 0,
        fate,
        at: Time::from_ns(at_ms * MS),
    }
}
