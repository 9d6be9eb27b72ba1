//! The way of observations from the router's thread to the thread that writes them, bounded in
//! rows.
//!
//! The router does not wait for the disk. When the writer is behind by [`MOST_WAITING`] rows, further
//! rows are not recorded. They are counted, and the recording shows the count among the losses
//! outside the queues, as `not_recorded`: its figures lack these rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::router::Observation;

/// Rows that may wait to be written: those of about 20 s at 100 000 packets per second, or 300 MB.
const MOST_WAITING: u64 = 1 << 21;
/// The cause under which a recording counts the rows that it lacks.
pub(crate) const NOT_RECORDED: &str = "not_recorded";

#[derive(Debug)]
struct Counts {
    waiting: AtomicU64,
    not_recorded: AtomicU64,
    most: u64,
}

/// The router's end.
#[derive(Clone, Debug)]
pub(crate) struct ObservationSender {
    sender: mpsc::Sender<Observation>,
    counts: Arc<Counts>,
}

/// The writer's end.
#[derive(Debug)]
pub(crate) struct ObservationReceiver {
    receiver: mpsc::Receiver<Observation>,
    counts: Arc<Counts>,
}

/// Creates both ends.
pub(crate) fn observations() -> (ObservationSender, ObservationReceiver) {
    bounded(MOST_WAITING)
}

fn bounded(most: u64) -> (ObservationSender, ObservationReceiver) {
    let (sender, receiver) = mpsc::channel();
    let counts = Arc::new(Counts {
        waiting: AtomicU64::new(0),
        not_recorded: AtomicU64::new(0),
        most,
    });
    let of_sender = Arc::clone(&counts);
    (
        ObservationSender {
            sender,
            counts: of_sender,
        },
        ObservationReceiver { receiver, counts },
    )
}

impl ObservationSender {
    /// Passes on an observation, or counts its rows if too many are waiting. A flow, which is one
    /// row per flow, always passes: without it, the rows of its packets would have no owner.
    pub(crate) fn send(&self, observation: Observation) {
        let rows = rows(&observation);
        let waiting = self.counts.waiting.load(Ordering::Relaxed);
        let is_full = waiting.saturating_add(rows) > self.counts.most;
        if is_full && !matches!(observation, Observation::Flow(..)) {
            self.counts.not_recorded.fetch_add(rows, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(rows, Ordering::Relaxed);
        // The receiver is gone only when the run was abandoned.
        let _ = self.sender.send(observation);
    }
}

impl ObservationReceiver {
    /// Returns the next observation, within `time`.
    ///
    /// # Errors
    /// There was none, or there will be no more.
    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<Observation, RecvTimeoutError> {
        let observation = self.receiver.recv_timeout(time)?;
        self.count(&observation);
        Ok(observation)
    }

    /// Returns an observation that is waiting.
    pub(crate) fn try_next(&self) -> Option<Observation> {
        let observation = self.receiver.try_recv().ok()?;
        self.count(&observation);
        Some(observation)
    }

    /// Returns the number of rows that were not recorded.
    pub(crate) fn not_recorded(&self) -> u64 {
        self.counts.not_recorded.load(Ordering::Relaxed)
    }

    fn count(&self, observation: &Observation) {
        let rows = rows(observation);
        self.counts.waiting.fetch_sub(rows, Ordering::Relaxed);
    }
}

/// Returns the number of rows that an observation becomes.
fn rows(observation: &Observation) -> u64 {
    let rows = match observation {
        Observation::Packets(_, rows) => rows.len(),
        Observation::Releases(rows) => rows.len(),
        Observation::Arrivals(rows) => rows.len(),
        Observation::Queue { state, .. } => 1 + state.len(),
        Observation::Flow(..) => 1,
    };
    rows as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{Span, Time};
    use sluice_recording::Release;
    use sluice_scenario::Direction;

    fn releases(count: usize) -> Observation {
        let release = Release {
            due: Time::ZERO,
            pipe: Direction::Up.into(),
            len: 100,
            late: Span::ZERO,
        };
        Observation::Releases(vec![release; count])
    }

    #[test]
    fn a_writer_that_is_behind_costs_a_bounded_number_of_rows_and_the_rest_is_counted() {
        let (sender, receiver) = bounded(100);
        for _ in 0..1000 {
            sender.send(releases(30));
        }
        let waiting: u64 = std::iter::from_fn(|| receiver.try_next().map(|o| rows(&o))).sum();
        // Three times 30 rows fit into 100.
        assert_eq!(waiting, 90);
        assert_eq!(receiver.not_recorded(), 30_000 - 90);
        // There is room again.
        sender.send(releases(100));
        assert_eq!(receiver.try_next().map(|o| rows(&o)), Some(100));
        assert_eq!(receiver.not_recorded(), 30_000 - 90);
    }
}
