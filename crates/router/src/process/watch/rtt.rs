//! Round-trip times over the last minute.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_ipfw::watch::{ObjectName, Waits};

use super::collect::{name, sojourn};
use super::{RttRow, RttSample, SojournCounts};
use crate::rtt::RttCounts;

/// The round-trip times of the last minute, and of all the time.
#[derive(Default)]
pub(super) struct RttWindows {
    all: Window,
    objects: BTreeMap<ObjectName, Window>,
    hosts: BTreeMap<IpAddr, Window>,
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
            self.all.turn();
            self.objects.values_mut().for_each(Window::turn);
            self.hosts.retain(|_, window| {
                window.turn();
                window.old.packets() > 0
            });
        }
        self.all.absorb(&counts.all);
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
            .map(|(host, window)| window.row(host.to_string()))
            .collect();
        hosts.sort_by_key(|row| std::cmp::Reverse(row.samples));
        hosts.truncate(MOST_ROWS);
        RttSample {
            all: self.all.row("all".to_owned()),
            objects: self
                .objects
                .iter()
                .map(|(object, window)| window.row(name(*object)))
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

    fn row(&self, name: String) -> RttRow {
        let mut both = self.old.clone();
        both.absorb(&self.new);
        RttRow {
            name,
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

    fn counts(host: u8, ms: u64) -> RttCounts {
        let mut counts = RttCounts::default();
        let host = IpAddr::from([10, 0, 0, host]);
        let rtt = Span::from_ms(ms);
        counts.hosts.entry(host).or_default().add(rtt);
        counts
            .objects
            .entry(ObjectName::Pipe(1))
            .or_default()
            .add(rtt);
        counts.all.add(rtt);
        counts
    }

    #[test]
    fn a_window_forgets_after_a_minute_and_totals_do_not() {
        let mut windows = RttWindows::default();
        let first = windows.absorb(&counts(1, 20));
        assert_eq!(
            (first.hosts[0].name.as_str(), first.all.samples),
            ("10.0.0.1", 1)
        );
        let mut last = first;
        for _ in 0..59 {
            last = windows.absorb(&counts(2, 40));
        }
        // Turned twice: the first half with both hosts is gone.
        assert_eq!(last.hosts.len(), 1);
        assert_eq!(last.all.rtt.unwrap().max_ns, 40_000_000);
        assert_eq!(last.all.total_rtt.packets, 60);
        assert_eq!(last.objects[0].name, "pipe 1");
        assert_eq!(last.objects[0].total_rtt.packets, 60);
    }
}
