//! Any AQM in the queues of any scheduler.

use sluice_core::Discipline;
use sluice_core::registry::{self, Algorithm, Spec};
use sluice_core::sched::Share;
use sluice_core::sched::fifo::FifoParams;

use super::ops::spec;

/// Iterates over the schedulers with classes.
pub fn schedulers() -> impl Iterator<Item = &'static Algorithm> {
    registry::algorithms().filter(|algorithm| {
        let queue = spec(algorithm, &[]).build();
        let mut queue = queue.expect("defaults are right");
        queue.as_classful().is_some()
    })
}

/// Creates a scheduler with `aqm` in three queues of different weights.
pub fn compose(aqm: &Spec, scheduler: &'static Algorithm) -> Box<dyn Discipline> {
    let queue = spec(scheduler, &[]).build();
    let mut queue = queue.expect("defaults are right");
    let classful = queue.as_classful().expect("it has several queues");
    for class in 0..3 {
        let share = Share {
            weight: class + 1,
            ..Share::default()
        };
        let built = aqm.algorithm.build_aqm(&aqm.values);
        let built = built.expect("only AQMs are composed");
        let built = built.expect("it was built before");
        classful
            .open(class, share, &FifoParams::default(), built)
            .unwrap_or_else(|error| panic!("{}: {error}", scheduler.name));
    }
    queue
}
