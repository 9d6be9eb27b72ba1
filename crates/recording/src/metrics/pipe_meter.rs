//! What is told of a direction of the link, gathered and put into figures.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

use super::losses::{Loss, synchronisation};
use super::percentile::percentiles;
use sluice_scenario::metric::PipeSummary;
use sluice_scenario::{Pipe, PipeId};

/// Gathers what is told of a pipe.
pub(super) struct PipeMeter<'a> {
    pipe: &'a Pipe,
    from: Time,
    to: Time,
    packets: u64,
    sent: u64,
    bytes: u64,
    sojourn: Vec<u64>,
    drops: BTreeMap<String, u64>,
    marks: u64,
    losses: Vec<Loss>,
}

impl<'a> PipeMeter<'a> {
    pub(super) fn new(pipe: &'a Pipe, from: Time, to: Time) -> Self {
        PipeMeter {
            pipe,
            from,
            to,
            packets: 0,
            sent: 0,
            bytes: 0,
            sojourn: Vec::new(),
            drops: BTreeMap::new(),
            marks: 0,
            losses: Vec::new(),
        }
    }

    pub(super) fn packet(&mut self, record: &PacketRecord) {
        let is_inside = |t| (self.from..=self.to).contains(&t);
        let wire_packets = u64::from(record.segments);
        if is_inside(record.arrival) {
            self.packets += wire_packets;
        }
        // What became of it counts where it happened, so that drops and bytes belong to the same time.
        if !is_inside(record.at) {
            return;
        }
        match record.fate {
            Fate::Queued => return,
            Fate::Dropped(reason) => {
                *self.drops.entry(reason.name().to_owned()).or_default() += wire_packets;
                self.losses.push((record.at, record.flow));
                return;
            }
            Fate::Marked => self.marks += wire_packets,
            Fate::Sent => {}
        }
        self.sent += wire_packets;
        self.bytes += u64::from(record.len);
        self.sojourn.push(record.sojourn().as_ns());
    }

    pub(super) fn finish(
        mut self,
        id: PipeId,
        round_trip: Span,
        active: impl Fn(Time) -> BTreeSet<u32>,
    ) -> PipeSummary {
        let dropped: u64 = self.drops.values().sum();
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let start = |t: Time| t.since(Time::ZERO);
        let allowed = self
            .pipe
            .rate
            .bits_between(start(self.from), start(self.to));
        PipeSummary {
            name: id.to_string(),
            utilisation: allowed
                .filter(|bits| *bits > 0.0)
                .map(|bits| self.bytes as f64 * 8.0 / bits),
            sojourn: percentiles(&mut self.sojourn),
            loss: ratio(dropped, dropped + self.sent),
            mark_ratio: ratio(self.marks, self.sent),
            synchronisation: synchronisation(&mut self.losses, round_trip, active),
            packets: self.packets,
            sent: self.sent,
            drops: self.drops,
            marks: self.marks,
        }
    }
}
