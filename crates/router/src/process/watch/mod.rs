//! What a watcher sees of a running router, once a second.
//!
//! A [`Watcher`] hands out [`Sample`]s: rates, backlogs, sojourn times, drops, marks and the state of
//! AQMs over the last interval. While somebody asks, a thread of ordinary priority exchanges tables
//! with the packet loop ([`Watching`]), evaluates them, and keeps the newest sample only. The loop
//! takes part between two batches of packets, in steps of some tens of microseconds, and waits for
//! no lock. When nobody has asked for [`IDLE`], the thread ends and the loop counts nothing.

mod collect;
mod flows;
mod ipfix;
pub mod links;
mod rtt;
mod sample;

pub use flows::{FlowEnd, FlowExport, FlowFile, FlowRecord, FlowTimeouts};
pub use ipfix::{Ipfix, Message};
pub use sample::{
    FlowSample, LatenessSample, ObjectSample, PortSample, RttRow, RttSample, Sample, Sojourn,
    SojournCounts, TotalTraffic, TrafficSample,
};

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sluice_ipfw::watch::Watching;

use super::{Health, Status};
use crate::control::{Answered, Orders, Refused, TurnedAway, Watched, Work};
use collect::Collector;
use flows::Ledger;

/// Hands out the newest sample of a router. Clones share the thread that takes samples.
#[derive(Clone)]
pub struct Watcher(Arc<Shared>);

struct Shared {
    orders: Orders<Status>,
    /// What is asked before each sample; `None` without a router's process.
    health: Option<Arc<Health>>,
    state: Mutex<State>,
    ledger: Mutex<Option<Ledger>>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_running: bool,
    asked: Option<Instant>,
    latest: Option<Arc<Sample>>,
    taken: Option<Instant>,
    /// The error that ended the thread.
    refused: Option<Refused>,
    /// The fate of the records that are sent to a collector.
    export: Option<FlowExport>,
    /// The fate of the records that are written to a file.
    file: Option<FlowFile>,
    /// The events that were logged.
    events: Option<u64>,
}

/// The thread ends when nobody has asked for a sample for this time.
pub const IDLE: Duration = Duration::from_secs(10);
/// The interval of samples.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// The first interval of a watch is shorter, so that an answer does not take a second.
const FIRST: Duration = Duration::from_millis(500);
/// Added to the interval for each pipe and queue beyond 100 000: visiting one takes the packet loop
/// about a hundredth of that.
const PER_TALLY: Duration = Duration::from_micros(10);
/// The loop answers within milliseconds unless it executes a long command.
const PATIENCE: Duration = Duration::from_secs(30);

impl Watcher {
    /// Creates a watcher of the loop that executes these orders.
    pub fn new(orders: Orders<Status>) -> Watcher {
        Watcher::with(orders, None)
    }

    /// Creates a watcher of a router.
    pub(super) fn of_router(orders: Orders<Status>, health: Arc<Health>) -> Watcher {
        Watcher::with(orders, Some(health))
    }

    fn with(orders: Orders<Status>, health: Option<Arc<Health>>) -> Watcher {
        Watcher(Arc::new(Shared {
            orders,
            health,
            state: Mutex::default(),
            ledger: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Returns the newest sample with a number above `after`, at the latest after `patience`. With
    /// 0, any sample that is not older than two intervals will do. It will also do if its number is below
    /// `after`, which is a number from before the router was started again.
    ///
    /// # Errors
    /// The loop does not answer, or has ended.
    pub fn sample(&self, after: u64, patience: Duration) -> Result<Arc<Sample>, Refused> {
        let deadline = Instant::now() + patience;
        let mut state = self.0.lock();
        state.refused = None;
        loop {
            state.asked = Some(Instant::now());
            if let Some(sample) = &state.latest
                && sample.number != after
                && state.taken.is_some_and(|at| at.elapsed() < 2 * INTERVAL)
            {
                return Ok(Arc::clone(sample));
            }
            if let Some(refused) = state.refused {
                return Err(refused);
            }
            if !state.is_running {
                self.start(&mut state)?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refused::Late);
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the counters of refused clients, which the status shows.
    pub fn turned_away(&self) -> &TurnedAway {
        self.0.orders.turned_away()
    }

    /// Keeps records of flows from the next sample on. Somebody must ask for samples all the time.
    pub fn record_flows(&self, timeouts: FlowTimeouts) {
        *self.0.ledger() = Some(Ledger::new(timeouts));
    }

    /// Takes the records of flows that are due, and the number of records that found no room.
    /// `is_last` makes records of all flows, up to the newest sample.
    pub fn take_flows(&self, is_last: bool) -> (Vec<FlowRecord>, u64) {
        let mut ledger = self.0.ledger();
        let Some(ledger) = ledger.as_mut() else {
            return (Vec::new(), 0);
        };
        if is_last {
            ledger.end();
        }
        ledger.take()
    }

    /// Notes the fate of the records that are sent to a collector, for the next samples.
    pub fn note_export(&self, export: FlowExport) {
        self.0.lock().export = Some(export);
    }

    /// Notes the fate of the records that are written to a file, for the next samples.
    pub fn note_file(&self, file: FlowFile) {
        self.0.lock().file = Some(file);
    }

    /// Notes `more` events that were logged, for the next samples.
    pub fn note_events(&self, more: u64) {
        let mut state = self.0.lock();
        state.events = Some(state.events.unwrap_or(0) + more);
    }

    fn start(&self, state: &mut State) -> Result<(), Refused> {
        let shared = Arc::clone(&self.0);
        let first = state.latest.as_ref().map_or(0, |sample| sample.number);
        let thread = thread::Builder::new().name("watch".into());
        let spawned = thread.spawn(move || {
            let mut running = Running::new(shared);
            running.refused = running.shared.watch(first).err();
        });
        state.is_running = spawned.is_ok();
        spawned.map(drop).map_err(|_| Refused::Busy)
    }
}

/// The thread that takes samples. Notes its end, even if it panics.
struct Running {
    shared: Arc<Shared>,
    refused: Option<Refused>,
}

impl Running {
    fn new(shared: Arc<Shared>) -> Running {
        // A thread that panics has no other answer.
        let refused = Some(Refused::Late);
        Running { shared, refused }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.is_running, state.refused) = (false, self.refused);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Option<Ledger>> {
        // Nothing under the lock can panic halfway.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes samples until nobody asks for them. Their numbers follow `number`.
    fn watch(&self, mut number: u64) -> Result<(), Refused> {
        let mut collector = Collector::default();
        let mut pause = Duration::ZERO;
        loop {
            thread::sleep(pause);
            let is_idle = |state: &State| state.asked.is_none_or(|at| at.elapsed() > IDLE);
            if is_idle(&self.lock()) {
                self.exchange(Watching::new(None))?;
                return Ok(());
            }
            let began = Instant::now();
            let watched = match self.exchange(collector.begin()) {
                Ok(watched) => watched,
                // Other orders come first; the next interval is longer.
                Err(Refused::Busy) => {
                    pause = INTERVAL;
                    continue;
                }
                Err(refused) => return Err(refused),
            };
            let tallies = u32::try_from(watched.watching.tallies.len()).unwrap_or(u32::MAX);
            let changes = self.orders.journal().latest();
            pause = match collector.evaluate(*watched, number + 1, changes) {
                Some(mut sample) => {
                    number = sample.number;
                    // A loop that no router process runs does not know of the clients of its page.
                    sample.status.clients_refused = self.orders.turned_away().counts();
                    {
                        let state = self.lock();
                        sample.flow_export = state.export.clone();
                        sample.flow_log = state.file.clone();
                        sample.events = state.events;
                    }
                    if let (Some(ledger), Some(table)) = (self.ledger().as_mut(), collector.table())
                    {
                        let interval = Duration::from_nanos(sample.interval_ns);
                        ledger.add(table, interval, sample.unix_ms);
                    }
                    let mut state = self.lock();
                    state.latest = Some(Arc::new(sample));
                    state.taken = Some(Instant::now());
                    self.changed.notify_all();
                    let interval = INTERVAL.max(PER_TALLY * tallies);
                    interval.saturating_sub(began.elapsed())
                }
                // The first exchange finds the places, the second one starts to count.
                None if !collector.has_begun() => Duration::ZERO,
                None => FIRST,
            };
        }
    }

    fn exchange(&self, watching: Watching) -> Result<Box<Watched<Status>>, Refused> {
        if let Some(health) = &self.health {
            health.look();
        }
        let work = Work::Watch(Box::new(watching));
        match self.orders.order(work, PATIENCE)? {
            Answered::Watched(watched) => Ok(watched),
            _ => unreachable!("an exchange is answered with an exchange"),
        }
    }
}

#[cfg(test)]
mod tests;
