//! Warnings about settings that return to their defaults because `config` does not mention them.

use super::{FlowsetConfig, Layout, LinkConfig, Means, STRIDE, SchedulerConfig};
use crate::grammar::Config;

impl Layout {
    /// Warns about the settings of a pipe that a `config` takes away.
    pub(super) fn say_what_reverts(
        &self,
        c: &Config,
        link: &LinkConfig,
        flowset: &FlowsetConfig,
        shadow: &SchedulerConfig,
        means: &mut Means<'_>,
    ) {
        let number = c.number.value;
        let (Some(old), Some(fifo), Some(queue)) = (
            self.links.get(&number),
            self.schedulers.get(&(number + STRIDE)),
            self.flowsets.get(&(number + 2 * STRIDE)),
        ) else {
            return;
        };
        let mut lost = only(&[
            (c.rate.is_none() && old.rate != link.rate, "bw"),
            (c.delay.is_none() && old.delay != link.delay, "delay"),
            (c.burst.is_none() && old.burst != link.burst, "burst"),
            (c.profile.is_none() && old.profile.is_some(), "profile"),
        ]);
        let effects = old.effects.iter().map(|(name, _)| name);
        lost.extend(effects.filter(|name| link.effects.find(name).is_none()));
        lost.extend(of_queue(c, queue, flowset));
        lost.extend(only(&[(
            c.mask.is_none() && fifo.mask != shadow.mask,
            "mask",
        )]));
        say_words_that_revert("pipe", c, lost, means);
    }
}

/// Returns the words of a queue's settings that a `config` takes away. The mask of a pipe is that of its
/// scheduler.
pub(super) fn of_queue(c: &Config, old: &FlowsetConfig, new: &FlowsetConfig) -> Vec<&'static str> {
    only(&[
        (c.queue.is_none() && old.queue != new.queue, "queue"),
        (c.loss.is_none() && old.loss.is_some(), "plr"),
        (c.policy.is_none() && old.policy.is_some(), "the AQM"),
        (c.mask.is_none() && old.mask != new.mask, "mask"),
    ])
}

/// Returns the parameters of a scheduler that a `config` takes away, unless it changes the type.
pub(super) fn of_scheduler(
    c: &Config,
    old: &SchedulerConfig,
    new: &SchedulerConfig,
) -> Vec<&'static str> {
    let algorithm = new.spec.algorithm;
    let mut lost = Vec::new();
    if let Some(words) = c
        .scheduler
        .as_ref()
        .filter(|_| old.spec.algorithm == algorithm)
    {
        let given = &words.value.spec.values;
        for decl in algorithm.params() {
            let value = |of: &SchedulerConfig| {
                let set = of.spec.values.find(decl.name);
                set.unwrap_or_else(|| algorithm.default_of(decl))
            };
            if given.find(decl.name).is_none() && value(old) != value(new) {
                lost.push(decl.name);
            }
        }
    }
    lost.extend(only(&[(c.mask.is_none() && old.mask != new.mask, "mask")]));
    lost
}

/// Returns the words whose condition holds.
fn only(words: &[(bool, &'static str)]) -> Vec<&'static str> {
    let lost = words.iter().filter(|(is_lost, _)| *is_lost);
    lost.map(|(_, word)| *word).collect()
}

/// Warns that this `config` of a `kind` does not mention `words`.
pub(super) fn say_words_that_revert(
    kind: &str,
    c: &Config,
    words: Vec<&str>,
    means: &mut Means<'_>,
) {
    let what = match words.as_slice() {
        [] => return,
        [one] => format!("{one} is not given and returns to its default"),
        many => format!(
            "{} are not given and return to their defaults",
            many.join(", ")
        ),
    };
    let number = c.number.value;
    means.warn(
        &c.number,
        format!("{kind} {number} is reconfigured: {what}"),
    );
}
