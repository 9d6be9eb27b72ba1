//! Pauses of the machine: times in which a thread did not get a core that wanted one.

use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use sluice_core::{Span, Stop, Time};
use sluice_net::cores::{self, Stay};
use sluice_net::{Clock, real_time};

/// When each sleep of a thread began and ended.
type Sleeps = Vec<(Time, Time)>;

/// Threads that sleep for half a millisecond again and again: one of ordinary priority, like those of the
/// hosts, and one on each core with priority over the router's loop, which only a core that stands still
/// holds up. Where no thread may have that priority, there is only the first.
pub struct Witness {
    stop: Stop,
    threads: Vec<JoinHandle<Sleeps>>,
}

impl Witness {
    pub fn start(clock: Clock) -> Witness {
        let stop = Stop::new();
        let cores = cores::allowed().unwrap();
        let places = [None].into_iter().chain(cores.into_iter().map(Some));
        let threads = places.map(|core| {
            let until = stop.clone();
            spawn(move || {
                let Some(core) = core else {
                    return sleeps(clock, &until);
                };
                // A core may have gone meanwhile.
                match (Stay::on(&[core]), real_time(PRIORITY)) {
                    (Ok(_stay), Ok(())) => sleeps(clock, &until),
                    _ => Sleeps::new(),
                }
            })
        });
        let threads = threads.collect();
        Witness { stop, threads }
    }

    /// Ends the threads. Returns the longest time that one of them slept in each period.
    pub fn longest_in(self, periods: &[(Time, Time)]) -> Vec<Span> {
        self.stop.stop();
        let sleeps = self
            .threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        let sleeps: Sleeps = sleeps.collect();
        let longest = |&(start, end): &(Time, Time)| {
            let within = sleeps
                .iter()
                .filter(|(from, to)| *from <= end && start <= *to);
            let lengths = within.map(|(from, to)| to.since(*from));
            lengths.max().expect("one of them slept then")
        };
        periods.iter().map(longest).collect()
    }
}

fn sleeps(clock: Clock, until: &Stop) -> Sleeps {
    let mut sleeps = Sleeps::new();
    let mut from = clock.now();
    while !until.is_stopped() {
        sleep(SLEEP);
        let now = clock.now();
        sleeps.push((from, now));
        from = now;
    }
    sleeps
}

const SLEEP: Duration = Duration::from_micros(500);
/// The router's loop has 1.
const PRIORITY: u8 = 2;
