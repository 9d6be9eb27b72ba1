//! Collects the measurements of a direction of the link and computes its figures.

use std::collections::BTreeMap;

use sluice_core::link::FramingParams;
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Packet, Time};

use super::percentile::percentiles_of;
use super::samples::{Parts, Samples};
use sluice_scenario::Pipe;
use sluice_scenario::metric::{METERS, Measured, Meter, PipeMeter as FigureMeter, PipeSummary};

/// Collects the measurements of a pipe.
pub(super) struct PipeMeter {
    from: Time,
    to: Time,
    packets: u64,
    sent: u64,
    /// Bytes on the link, with its framing.
    bytes: u64,
    framing: FramingParams,
    sojourn: Samples,
    drops: BTreeMap<String, u64>,
    marks: u64,
    /// Whether there are meters that count more than drops.
    counts_all: bool,
    /// The figures that have a meter of their own.
    metered: Vec<(&'static Meter, Box<dyn FigureMeter>)>,
}

impl PipeMeter {
    /// Creates the meter of `pipe` in the time from `from` to `to`.
    pub(super) fn new(pipe: &Pipe, from: Time, to: Time) -> Self {
        PipeMeter {
            framing: pipe.params().framing,
            from,
            to,
            packets: 0,
            sent: 0,
            bytes: 0,
            sojourn: Samples::default(),
            drops: BTreeMap::new(),
            marks: 0,
            counts_all: METERS.iter().any(|meter| !meter.drops_only),
            metered: METERS.iter().map(|m| (*m, (m.new)())).collect(),
        }
    }

    pub(super) fn packet(&mut self, record: &PacketRecord) {
        let is_inside = |t| (self.from..=self.to).contains(&t);
        let wire_packets = u64::from(record.segments);
        if is_inside(record.arrival) {
            self.packets += wire_packets;
        }
        // A departure or drop counts at its own instant, so that drops and bytes belong to the same
        // time.
        if !is_inside(record.at) {
            return;
        }
        let is_dropped = matches!(record.fate, Fate::Dropped(_));
        if is_dropped || (self.counts_all && record.fate != Fate::Queued) {
            let metered = self.metered.iter_mut();
            let counted = metered.filter(|(meter, _)| is_dropped || !meter.drops_only);
            counted.for_each(|(_, meter)| meter.packet(record));
        }
        match record.fate {
            Fate::Queued => return,
            Fate::Dropped(reason) => {
                *self.drops.entry(reason.name().to_owned()).or_default() += wire_packets;
                return;
            }
            Fate::Marked => self.marks += wire_packets,
            Fate::Sent => {}
        }
        self.sent += wire_packets;
        self.bytes += self.carried(record);
        self.sojourn
            .push_each(record.sojourn().as_ns(), wire_packets);
    }

    /// Returns the bytes that the packet occupied on the link.
    fn carried(&self, record: &PacketRecord) -> u64 {
        if self.framing.is_plain() {
            return u64::from(record.len);
        }
        let mut packet = Packet::new(record.flow, record.len);
        packet.segments = record.segments;
        self.framing.wire_len(&packet)
    }

    /// Returns the figures of `pipe` in `run`.
    pub(super) fn finish(mut self, pipe: &Pipe, run: &Measured<'_>) -> PipeSummary {
        let dropped: u64 = self.drops.values().sum();
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let start = |t: Time| t.since(Time::ZERO);
        let allowed = pipe.rate.bits_between(start(run.from), start(run.to));
        let mut sojourn = Parts::default();
        self.sojourn.add_to(&mut sojourn);
        PipeSummary {
            name: run.pipe.to_string(),
            utilisation: allowed
                .filter(|bits| *bits > 0.0)
                .map(|bits| self.bytes as f64 * 8.0 / bits),
            sojourn: percentiles_of(&sojourn),
            loss: ratio(dropped, dropped + self.sent),
            mark_ratio: ratio(self.marks, self.sent),
            metered: self
                .metered
                .iter_mut()
                .map(|(declared, meter)| (declared.figure.name.to_owned(), meter.finish(run)))
                .collect(),
            packets: self.packets,
            sent: self.sent,
            drops: self.drops,
            marks: self.marks,
        }
    }
}
