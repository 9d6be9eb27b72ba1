//! The trial of a scheduler with its queues.

use std::fmt;

use sluice_core::Discipline;
use sluice_core::registry::Spec;
use sluice_core::sched::ShareError;

use super::FlowsetConfig;
use crate::objects::discipline;

/// A scheduler that has just accepted all of its queues, so that a new queue of it is tried alone. A
/// file with many queues of one scheduler would take quadratic time otherwise.
#[derive(Default)]
pub(crate) struct Trial(Option<Accepted>);

struct Accepted {
    scheduler: u32,
    spec: Spec,
    discipline: Box<dyn Discipline>,
    queues: u32,
}

impl Trial {
    /// Forgets the queues: one of them, or their scheduler, may change.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Checks that a scheduler can serve `new` together with `others`, its other queues. These are
    /// read only if they are not known from the last trial.
    ///
    /// # Errors
    /// The scheduler's refusal.
    pub fn accept<'f>(
        &mut self,
        scheduler: u32,
        spec: &Spec,
        others: impl Iterator<Item = &'f FlowsetConfig>,
        new: &FlowsetConfig,
    ) -> Result<(), ShareError> {
        let known = self.0.take();
        let known = known.filter(|known| known.scheduler == scheduler && known.spec == *spec);
        let mut trial = known.unwrap_or_else(|| Accepted {
            scheduler,
            spec: spec.clone(),
            discipline: discipline::build(spec),
            queues: 0,
        });
        if trial.queues == 0 {
            for other in others {
                trial.open(other)?;
            }
        }
        trial.open(new)?;
        self.0 = Some(trial);
        Ok(())
    }
}

impl Accepted {
    fn open(&mut self, flowset: &FlowsetConfig) -> Result<(), ShareError> {
        let Some(classful) = self.discipline.as_classful() else {
            return Ok(());
        };
        discipline::open(classful, self.queues, flowset)?;
        self.queues += 1;
        Ok(())
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.as_ref();
        f.debug_tuple("Trial")
            .field(&known.map(|known| (known.scheduler, known.queues)))
            .finish()
    }
}
