//! The status of a loop that no router process runs.

use std::collections::BTreeMap;

use sluice_core::{DropReason, Time};
use sluice_net::port::{Loss, Port};

use crate::forward::{Forwarder, Lateness, LostFrame, Observer, Queueing};
use crate::process::{PortStatus, Status};

/// Returns the status at `now`, and the lateness of all packets. `names` are those of the ports, in
/// order.
pub(super) fn status_of<P: Port, Q: Queueing, O: Observer>(
    forwarder: &mut Forwarder<P, Q, O>,
    names: &[&str],
    is_real_time: bool,
    now: Time,
) -> (Status, Lateness) {
    let ports = names.iter().enumerate().map(|(number, name)| {
        let counters = forwarder.counters(number);
        let lost = Loss::ALL
            .iter()
            .map(|loss| (loss.name(), counters.lost(*loss)));
        PortStatus {
            name: (*name).to_owned(),
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
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ns: now.as_ns(),
        ports: ports.collect(),
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
