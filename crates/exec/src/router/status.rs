//! What a watcher of the link sees: its two directions as pipes, and the status.

use std::collections::BTreeMap;

use sluice_core::{DropReason, Time};
use sluice_net::port::Loss;
use sluice_router::forward::{Lateness, LostFrame};
use sluice_router::process::watch::links::{LinkRow, LinkWatch, State};
use sluice_router::process::{PortStatus, Status};
use sluice_scenario::Direction;

use super::{Carrier, CarrierLoop, port_from};

/// Returns the number of the pipe as which a direction appears.
pub const fn pipe_of(direction: Direction) -> u32 {
    match direction {
        Direction::Down => 1,
        Direction::Up => 2,
    }
}

/// Answers a watcher, if it has asked. `words` describes the directions down and up.
pub fn answer<C: Carrier>(
    watch: &mut LinkWatch,
    words: &[String; 2],
    forwarder: &mut CarrierLoop<C>,
    is_real_time: bool,
    now: Time,
) {
    watch.answer(now, || {
        let lanes = forwarder.lanes().iter();
        let directions = [Direction::Down, Direction::Up];
        let links = lanes.zip(directions).zip(words);
        let links = links.map(|((lane, direction), words)| LinkRow {
            number: pipe_of(direction),
            words: words.clone(),
            view: C::view(lane.queueing().queue(), now),
            totals: lane.queueing().totals(),
        });
        let links = links.collect();
        let (status, lateness) = status::<C>(forwarder, is_real_time, now);
        State {
            links,
            status,
            lateness,
        }
    });
}

fn status<C: Carrier>(
    forwarder: &mut CarrierLoop<C>,
    is_real_time: bool,
    now: Time,
) -> (Status, Lateness) {
    let ends = [("program", Direction::Up), ("outside", Direction::Down)];
    let ports = ends.map(|(name, direction)| {
        let counters = forwarder.counters(port_from(direction));
        let lost = Loss::ALL
            .iter()
            .map(|loss| (loss.name(), counters.lost(*loss)));
        PortStatus {
            name: name.to_owned(),
            kind: "packet".to_owned(),
            received: counters.received,
            received_bytes: counters.received_bytes,
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
            sent_trains: counters.sent_trains,
            lost: counts(lost),
            ..PortStatus::default()
        }
    });
    let mut status = Status {
        uptime_ns: now.as_ns(),
        ports: ports.into(),
        is_real_time,
        ..Status::default()
    };
    let mut lateness = Lateness::default();
    for lane in forwarder.lanes() {
        let lane_counts = lane.counts();
        status.admitted += lane_counts.admitted;
        status.bypassed += lane_counts.bypassed;
        status.sent += lane_counts.sent;
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), lane_counts.dropped(*reason)));
        let lost = LostFrame::ALL
            .iter()
            .map(|cause| (cause.name(), lane_counts.lost(*cause)));
        add(&mut status.dropped, dropped);
        add(&mut status.lost, lost);
        add(&mut status.damaged, lane_counts.faulty());
        lateness.absorb(lane.lateness());
    }
    status.late_p50_ns = lateness.bound(500).as_ns();
    status.late_p99_ns = lateness.bound(990).as_ns();
    (status, lateness)
}

/// Returns the counts above zero.
fn counts<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    add(&mut named, counts);
    named
}

fn add<'a>(named: &mut BTreeMap<String, u64>, counts: impl Iterator<Item = (&'a str, u64)>) {
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        *named.entry(name.to_owned()).or_default() += count;
    }
}
