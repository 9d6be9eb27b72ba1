//! Flows that are the two directions of one connection.

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{DropReason, Ecn};

use super::*;

#[test]
fn a_second_direction_counts_the_packets_of_its_connection() {
    let text = "duration = \"10s\"\n[link]\nrate = \"1Mbit/s\"\n\
                [[flow]]\ntype = \"tcp\"\nname = \"a\"\nbytes = \"1MB\"\n\
                [[flow]]\ntype = \"tcp\"\nname = \"b\"\nbytes = \"1MB\"\n\
                [[flow]]\ntype = \"tcp\"\nname = \"b-down\"\nbytes = \"1MB\"\ndirection = \"down\"\n";
    let variant = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
    let environment = crate::Environment::here(Backend::Live, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::in_memory(&variant, &environment).unwrap();
    writer.set_scenario(&variant.scenario);
    writer.set_packets_of(2, 1);
    let (lost, sent) = (Fate::Dropped(DropReason::Loss), Fate::Sent);
    for (direction, flow, fate) in [
        (Direction::Up, 1, lost),
        (Direction::Down, 1, lost),
        (Direction::Down, 1, lost),
        (Direction::Down, 1, sent),
        // The first connection has one flow, and its acknowledgements count for none.
        (Direction::Down, 0, lost),
    ] {
        let record = PacketRecord {
            seq: 0,
            packet: None,
            arrival: Time::from_ns(1000 * MS),
            flow,
            len: 1500,
            segments: 1,
            ecn: Ecn::NotEct,
            class: 0,
            fate,
            at: Time::from_ns(1007 * MS),
        };
        writer.packet(direction, &record).unwrap();
    }
    let end = End::complete(Time::from_ns(10_000 * MS));
    let summary = measure(&writer.finish(end).unwrap()).unwrap();
    let drops: Vec<u64> = summary.flows.iter().map(|flow| flow.drops).collect();
    assert_eq!(drops, [0, 1, 2]);
    let waits: Vec<_> = summary.flows.iter().map(|flow| flow.sojourn).collect();
    let waits = waits.iter().map(|wait| wait.map(|wait| wait.p50_ns));
    assert_eq!(waits.collect::<Vec<_>>(), [None, None, Some(7 * MS)]);
}
