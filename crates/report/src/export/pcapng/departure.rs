//! The instants at which packets reach the far ends of links.
//!
//! A recording has the instant at which a packet left its queue. The packets pass the link of the
//! scenario from there once more, without its queue: they wait in the device (`driver`), use up the
//! credit of `burst` and the opportunities of a trace, and meet the changes of the rate and the delay,
//! as in the run. Nothing of that is drawn. Of packets that left their queue at one instant, the first
//! to arrive there is the first on the link.

use std::collections::BTreeMap;
use std::iter;

use sluice_core::link::{Link, LinkFiles, LinkParams, PipeParams};
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::registry::Spec;
use sluice_core::{Cx, DropCounter, Packet, Rng, Span, Time};
use sluice_recording::PacketRow;
use sluice_scenario::{Pipe, PipeId, Scenario};

/// Returns when each packet reached the far end of its link, in the order of `rows`; `None` if it did
/// not leave its queue, or if the link never sent it.
pub(super) fn departures(scenario: &Scenario, rows: &[PacketRow]) -> Vec<Option<Time>> {
    let mut sent: BTreeMap<PipeId, Vec<usize>> = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        if matches!(row.record.fate, Fate::Sent | Fate::Marked) {
            sent.entry(row.pipe).or_default().push(place);
        }
    }
    let mut all = vec![None; rows.len()];
    for (id, pipe) in scenario.pipes() {
        let Some(mut places) = sent.remove(&id) else {
            continue;
        };
        // The sort is stable.
        places.sort_by_key(|place| rows[*place].record.at);
        let records: Vec<&PacketRecord> = places.iter().map(|at| &rows[*at].record).collect();
        let ends = transmissions(pipe, &records).into_iter();
        let ends = ends.zip(latest(pipe, &records));
        let mut last = Time::ZERO;
        for (place, (end, latest)) in places.iter().zip(ends) {
            let end = end.min(latest);
            let arrival = end.saturating_add(pipe.delay.at(end.since(Time::ZERO)));
            // After a change to a shorter delay, packets do not overtake.
            last = last.max(arrival);
            all[*place] = Some(last);
        }
    }
    all
}

/// Returns the ends of the transmissions, of all packets that the link ever sends.
fn transmissions(pipe: &Pipe, records: &[&PacketRecord]) -> Vec<Time> {
    let set = pipe.params();
    let params = LinkParams {
        pipe: PipeParams {
            delay: Span::ZERO,
            ..set.pipe
        },
        framing: set.framing,
        ..LinkParams::default()
    };
    let files = LinkFiles {
        rate: pipe.rate.source(),
        ..LinkFiles::default()
    };
    let queue = Spec::parse("fifo limit unlimited").expect("`fifo` has a limit");
    let queue = queue.build().expect("a FIFO has no contradictions");
    let (mut rng, mut sink) = (Rng::from_seed(0), DropCounter::default());
    let mut link = Link::new(&params, files, queue, &rng);
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    let mut ends = Vec::with_capacity(records.len());
    for record in records {
        cx.now = record.at;
        let mut packet = Packet::new(0, record.len);
        packet.segments = record.segments;
        link.enqueue(packet, &mut cx);
        ends.extend(iter::from_fn(|| link.poll(&mut cx)).map(|departure| departure.due));
    }
    // Before the end of time, at which an outage without end ends.
    cx.now = Time::from_ns(u64::MAX - 1);
    ends.extend(iter::from_fn(|| link.poll(&mut cx)).map(|departure| departure.due));
    ends
}

/// Returns the instants at which the transmissions had ended at the latest, because a later packet
/// found room in the device. So the recording limits the error if the rate was raised during a live
/// run, which the scenario does not have.
fn latest(pipe: &Pipe, records: &[&PacketRecord]) -> Vec<Time> {
    let room = pipe.params().driver.driver.as_u64();
    let mut latest = Vec::with_capacity(records.len());
    // The packets from the one in question on up to `next`, without it, have `held` bytes.
    let (mut next, mut held) = (0, 0);
    for (place, record) in records.iter().enumerate() {
        // The order of packets that left their queue together is not recorded.
        while next < records.len()
            && (next == place || held < room || records[next].at == record.at)
        {
            held += u64::from(records[next].len);
            next += 1;
        }
        latest.push(records.get(next).map_or(Time::MAX, |later| later.at));
        held -= u64::from(record.len);
    }
    latest
}
