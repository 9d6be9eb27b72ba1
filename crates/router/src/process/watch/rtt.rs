//! Round-trip times over the last minute.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_ipfw::watch::{ObjectName, Waits};

use super::collect::{name, sojourn};
use super::{RttRow, RttSample, SojournCounts};
use crate::rtt::{RttCounts, RttSource};

/// The round-trip times of the last minute, and of all the time.
#[derive(Default)]
pub(super) struct RttWindows {
    all: BTreeMap<RttSource, Window>,
    objects: BTreeMap<(ObjectName, RttSource), Window>,
    hosts: BTreeMap<(IpAddr, RttSource), Window>,
    intervals: u32,
}

/// Two halves, the older of which is forgotten at once.
#[derive(Default)]
struct Window {
    old: Waits,
    new: Waits,
    total: SojournCounts,
}

/// Intervals of half a window.
const HALF: u32 = 30;
/// Largest number of hosts: 3 MB.
const MOST_HOSTS: usize = 1024;
/// Largest number of hosts in a sample.
const MOST_ROWS: usize = 32;

impl RttWindows {
    /// Adds an interval, and returns the state after it.
    pub fn absorb(&mut self, counts: &RttCounts) -> RttSample {
        self.intervals += 1;
        if self.intervals.is_multiple_of(HALF) {
            self.all.values_mut().for_each(Window::turn);
            self.objects.values_mut().for_each(Window::turn);
            self.hosts.retain(|_, window| {
                window.turn();
                window.old.packets() > 0
            });
        }
        for source in RttSource::ALL {
            let window = self.all.entry(source).or_default();
            counts
                .all
                .get(&source)
                .into_iter()
                .for_each(|waits| window.absorb(waits));
        }
        for (object, waits) in &counts.objects {
            // As many as an interval has at most; pipes that are gone stay.
            if self.objects.len() < RttCounts::MOST_OBJECTS || self.objects.contains_key(object) {
                self.objects.entry(*object).or_default().absorb(waits);
            }
        }
        for (host, waits) in &counts.hosts {
            if self.hosts.len() < MOST_HOSTS || self.hosts.contains_key(host) {
                self.hosts.entry(*host).or_default().absorb(waits);
            }
        }
        let mut hosts: Vec<RttRow> = self
            .hosts
            .iter()
            .map(|((host, source), window)| window.row(host.to_string(), *source))
            .collect();
        hosts.sort_by_key(|row| std::cmp::Reverse(row.samples));
        hosts.truncate(MOST_ROWS);
        RttSample {
            all: self
                .all
                .iter()
                .map(|(source, window)| window.row("all".to_owned(), *source))
                .collect(),
            objects: self
                .objects
                .iter()
                .map(|((object, source), window)| window.row(name(*object), *source))
                .collect(),
            hosts,
        }
    }
}

impl Window {
    fn turn(&mut self) {
        self.old = std::mem::take(&mut self.new);
    }

    fn absorb(&mut self, waits: &Waits) {
        self.new.absorb(waits);
        self.total.absorb(waits);
    }

    fn row(&self, name: String, source: RttSource) -> RttRow {
        let mut both = self.old.clone();
        both.absorb(&self.new);
        RttRow {
            name,
            source,
            samples: both.packets(),
            rtt: sojourn(&both),
            total_rtt: self.total.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::Span;

    use super::*;

    fn counts(host: u8, source: RttSource, ms: u64) -> RttCounts {
        let mut counts = RttCounts::default();
        let host = (IpAddr::from([10, 0, 0, host]), source);
        let object = (ObjectName::Pipe(1), source);
        let rtt = Span::from_ms(ms);
        counts.hosts.entry(host).or_default().add(rtt);
        counts.objects.entry(object).or_default().add(rtt);
        counts.all.entry(source).or_default().add(rtt);
        counts
    }

    #[test]
    fn a_window_forgets_after_a_minute_and_totals_do_not() {
        let mut windows = RttWindows::default();
        let first = windows.absorb(&counts(1, RttSource::Tcp, 20));
        assert_eq!(
            (first.hosts[0].name.as_str(), first.all[0].samples),
            ("10.0.0.1", 1)
        );
        let mut last = first;
        for _ in 0..59 {
            last = windows.absorb(&counts(2, RttSource::Tcp, 40));
        }
        // Turned twice: the first half with both hosts is gone.
        assert_eq!(last.hosts.len(), 1);
        assert_eq!(last.all[0].rtt.unwrap().max_ns, 40_000_000);
        assert_eq!(last.all[0].total_rtt.packets, 60);
        assert_eq!(last.objects[0].name, "pipe 1");
        assert_eq!(last.objects[0].total_rtt.packets, 60);
    }

    #[test]
    fn each_source_has_rows_of_its_own() {
        let mut windows = RttWindows::default();
        windows.absorb(&counts(1, RttSource::Tcp, 20));
        let sample = windows.absorb(&counts(1, RttSource::Quic, 40));
        let both = [(RttSource::Tcp, 20_000_000), (RttSource::Quic, 40_000_000)];
        for rows in [sample.all, sample.objects, sample.hosts] {
            let row = |row: &RttRow| (row.source, row.rtt.unwrap().max_ns);
            assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), both);
        }
    }
}
