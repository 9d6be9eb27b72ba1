//! Connections without an accepted request: they are closed after a time, and if there are too many.

use std::collections::BTreeMap;

use rustix::process::{Resource, getrlimit};
use sluice_core::{Span, Time};

/// The connections that have not asked for anything, and those whose request was refused.
#[derive(Debug)]
pub struct Asking {
    /// The times at which they are closed. Numbers and times grow together.
    until: BTreeMap<u64, Time>,
    most: usize,
}

impl Asking {
    /// Creates an empty list, whose length depends on the descriptors that the process may open: each
    /// accepted request needs two of them.
    pub fn new() -> Asking {
        let most = match getrlimit(Resource::Nofile).current {
            Some(limit) => MOST.min(limit / 4).max(1),
            None => MOST,
        };
        Asking {
            until: BTreeMap::new(),
            most: most as usize,
        }
    }

    /// Adds a new connection. Returns the oldest one, which must be closed, if there are too many now.
    pub fn add(&mut self, number: u64, now: Time) -> Option<u64> {
        self.until.insert(number, now.saturating_add(TO_ASK));
        let is_full = self.until.len() > self.most;
        let oldest = is_full.then(|| self.until.pop_first());
        oldest.flatten().map(|(number, _)| number)
    }

    /// Removes a connection whose request was accepted, or that has ended.
    pub fn remove(&mut self, number: u64) {
        self.until.remove(&number);
    }

    /// Returns the time at which [`Asking::take_due`] must be called.
    pub fn next_due(&self) -> Option<Time> {
        self.until.first_key_value().map(|(_, at)| *at)
    }

    /// Removes a connection whose time is over. It must be closed.
    pub fn take_due(&mut self, now: Time) -> Option<u64> {
        let oldest = self.until.first_entry()?;
        (*oldest.get() <= now).then(|| oldest.remove_entry().0)
    }
}

/// The time within which a program must send its request, and a user of the control API send it and read
/// the answer.
const TO_ASK: Span = Span::from_ms(10_000);
/// Each has up to 64 KiB of a request's head: 256 MiB.
const MOST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO.saturating_add(Span::from_ms(ms))
    }

    #[test]
    fn the_oldest_connection_makes_room_and_all_end_after_ten_seconds() {
        let mut asking = Asking {
            most: 2,
            ..Asking::new()
        };
        assert_eq!(asking.add(5, at(0)), None);
        assert_eq!(asking.add(6, at(1)), None);
        assert_eq!(asking.add(8, at(2)), Some(5));
        asking.remove(6);
        assert_eq!(asking.add(9, at(3)), None);
        assert_eq!(asking.next_due(), Some(at(10_002)));
        assert_eq!(asking.take_due(at(10_001)), None);
        assert_eq!(asking.take_due(at(10_002)), Some(8));
        assert_eq!(asking.take_due(at(10_002)), None);
        assert_eq!(asking.take_due(at(20_000)), Some(9));
        assert_eq!(asking.next_due(), None);
    }

    /// A quarter of the descriptors, so that accepted requests have room.
    #[test]
    fn descriptors_are_left_for_requests() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = Asking::new().most as u64;
        assert!(
            most <= MOST && most <= (limit / 4).max(1),
            "{most} of {limit}"
        );
    }
}
