//! What several workers with one configuration have counted together.

use sluice_core::event::{Cx, DropCounter};
use sluice_core::registry::NoLoaders;
use sluice_core::{Rng, Time};

use super::draft::{Beside, shows_rules};
use super::{Draft, Run};
use crate::engine::{Firewall, Output, Settings};
use crate::grammar::{self, CommandError, Flags};
use crate::objects::layout::NoFiles;
use crate::objects::packets::Totals;
use crate::rules::states::States;

/// The states of an engine and its counts, which a report has beside the configuration.
pub(super) struct Report {
    pub states: States,
    live: Live,
}

/// What an engine counts for its variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// Running instances and open queues.
    pub population: [usize; 2],
    pub totals: Totals,
}

impl Live {
    pub fn of(firewall: &Firewall) -> Live {
        Live {
            population: firewall.runtime.population(),
            totals: firewall.runtime.totals,
        }
    }
}

impl Firewall {
    /// Begins a copy of the configuration with all that packets have changed in the rules and
    /// variables, for [`Draft::show`]. [`Firewall::continue_draft`] copies it.
    pub fn report(&self) -> Draft {
        let mut draft = self.draft();
        draft.live = Some(Report {
            states: self.rules.states.clone(),
            live: Live::of(self),
        });
        draft
    }
}

impl Draft {
    /// Adds what another worker with the same configuration has counted, to a report.
    pub fn absorb(&mut self, other: Draft) {
        if let (Some(rules), Some(more)) = (&mut self.rules, &other.rules) {
            rules.absorb(more);
        }
        if let (Some(own), Some(more)) = (&mut self.live, &other.live) {
            own.states.absorb(&more.states);
            for (own, more) in own.live.population.iter_mut().zip(more.live.population) {
                *own += more;
            }
            let (own, more) = (&mut own.live.totals, more.live.totals);
            own.packets += more.packets;
            own.dropped += more.dropped;
            own.expired += more.expired;
        }
    }

    /// Executes a command for which [`shows_only`] holds on a report, at `now`.
    ///
    /// # Errors
    ///
    /// The command is refused.
    pub fn show(
        self,
        settings: &Settings,
        text: &str,
        now: Time,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let beside = Beside {
            live: self.live.as_ref().map(|report| report.live),
            ..Beside::default()
        };
        let mut firewall = self.into_engine(settings, beside);
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(now, &mut rng, &mut sink);
        let mut run = Run {
            files: &mut NoFiles,
            is_batch: false,
            is_deferred: false,
            depth: 0,
        };
        firewall.lines(text, &Flags::default(), &mut run, output, &mut cx)
    }
}

/// Returns whether `text` is one command that only shows rules, states or variables.
pub fn shows_only(text: &str) -> bool {
    let parsed = grammar::parse_with(&NoLoaders, text.trim_end(), 1, false);
    let invocation = parsed.ok().and_then(|parsed| parsed.invocation);
    invocation.is_some_and(|it| !it.flags.check_only && shows_rules(&it.command))
}
