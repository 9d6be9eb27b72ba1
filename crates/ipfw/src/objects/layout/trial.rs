//! The trial of a scheduler with its queues.

use std::collections::BTreeMap;
use std::fmt;

use sluice_core::Discipline;
use sluice_core::registry::Spec;
use sluice_core::sched::ShareError;

use super::FlowsetConfig;
use crate::objects::discipline;

/// Schedulers that have accepted all of their queues, so that a queue that is new or changes is tried
/// alone. A file with many queues of one scheduler would take quadratic time otherwise.
#[derive(Default)]
pub(crate) struct Trial {
    /// By the number of the scheduler.
    accepted: BTreeMap<u32, Accepted>,
}

struct Accepted {
    spec: Spec,
    discipline: Box<dyn Discipline>,
    /// The class of each queue, by the number of its flowset.
    classes: BTreeMap<u32, u32>,
}

impl Trial {
    /// Forgets all queues: one of them, or their scheduler, may change.
    pub fn forget(&mut self) {
        self.accepted.clear();
    }

    /// Forgets the schedulers that have queue `number`, unless it stays with scheduler `stays_with`.
    pub fn leave(&mut self, number: u32, stays_with: Option<u32>) {
        self.accepted.retain(|scheduler, known| {
            stays_with == Some(*scheduler) || !known.classes.contains_key(&number)
        });
    }

    /// Checks that a scheduler can serve queue `number` as in `new` together with `others`, its other
    /// queues. These are read only if they are not known from an earlier trial.
    ///
    /// # Errors
    /// The scheduler's refusal.
    pub fn accept<'f>(
        &mut self,
        (scheduler, spec): (u32, &Spec),
        others: impl Iterator<Item = (u32, &'f FlowsetConfig)>,
        (number, new): (u32, &FlowsetConfig),
    ) -> Result<(), ShareError> {
        let known = self.accepted.remove(&scheduler);
        let known = known.filter(|known| known.spec == *spec);
        let is_known = known.is_some();
        let mut trial = match known {
            Some(known) => known,
            None => {
                let mut trial = Accepted {
                    spec: spec.clone(),
                    discipline: discipline::build(spec),
                    classes: BTreeMap::new(),
                };
                for (number, other) in others {
                    trial.open(number, other)?;
                }
                trial
            }
        };
        let result = trial.open(number, new);
        if result.is_err() && !is_known {
            // The queue stays as it is, and is not among the others.
            return result;
        }
        if self.accepted.len() >= MOST_SCHEDULERS {
            // One with few queues is soon tried again.
            let least = self.accepted.iter().min_by_key(|(_, t)| t.classes.len());
            let least = least.map(|(scheduler, _)| *scheduler);
            least.map(|scheduler| self.accepted.remove(&scheduler));
        }
        self.accepted.insert(scheduler, trial);
        result
    }
}

impl Accepted {
    fn open(&mut self, number: u32, flowset: &FlowsetConfig) -> Result<(), ShareError> {
        let Some(classful) = self.discipline.as_classful() else {
            return Ok(());
        };
        let class = self.classes.get(&number).copied();
        let class = class.unwrap_or(self.classes.len() as u32);
        // The queue keeps its class if it is open.
        discipline::open(classful, class, flowset)?;
        self.classes.insert(number, class);
        Ok(())
    }
}

/// The most schedulers of which the queues are kept.
const MOST_SCHEDULERS: usize = 64;

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.accepted.iter();
        f.debug_map()
            .entries(known.map(|(scheduler, known)| (scheduler, known.classes.len())))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Rng;

    #[test]
    fn a_queue_tried_alone_is_judged_as_with_all_others() {
        let spec = Spec::new(discipline::find("qfq"));
        let mut rng = Rng::from_seed(5);
        let mut trial = Trial::default();
        let mut present: BTreeMap<u32, FlowsetConfig> = BTreeMap::new();
        let mut judged = [0, 0];
        for _ in 0..3000 {
            let number = rng.below(100) as u32;
            if rng.below(8) == 0 {
                present.remove(&number);
                trial.leave(number, None);
                continue;
            }
            // QFQ takes a sum of 2^17; a hundred of these weights have 2 * 10^5 on average.
            let most = 1 << rng.below(16);
            let new = FlowsetConfig {
                weight: 1 + rng.below(most) as u32,
                ..FlowsetConfig::plain(1)
            };
            let others = || present.iter().filter(|(n, _)| **n != number);
            let all = others().map(|(_, f)| f).chain([&new]);
            let expected = discipline::check_shares(&spec, all).is_ok();
            let others = others().map(|(n, f)| (*n, f));
            let accepted = trial.accept((1, &spec), others, (number, &new));
            assert_eq!(accepted.is_ok(), expected);
            judged[usize::from(expected)] += 1;
            if expected {
                present.insert(number, new);
            }
        }
        assert!(judged.iter().all(|n| *n > 100), "{judged:?}");
    }
}
