//! Turns the words of a command into settings. Omitted settings get their defaults, and doubtful
//! ones a warning.

use std::sync::Arc;

use sluice_core::link::Profile;
use sluice_core::registry::Spec;
use sluice_core::units::{Rate, Span};

use super::{FlowsetConfig, LinkConfig, Means, ProfileFile, kernel, read_file};
use crate::flow::Mask;
use crate::grammar::{
    At, CommandError, Config, DEFAULT_BYTES, DEFAULT_SLOTS, ErrorKind, QueueSize, SchedulerWords,
};
use crate::objects::discipline;

pub(super) fn link(c: &Config, means: &mut Means<'_>) -> Result<LinkConfig, CommandError> {
    let mut rate = c.rate.unwrap_or(Rate::UNLIMITED);
    let mut profile_file = None;
    let profile = match &c.profile {
        None => None,
        Some(path) => {
            let text = read_file(means.files, path)?;
            let profile = Profile::parse(&text).map_err(|error| {
                let kind = ErrorKind::File {
                    path: path.value.clone(),
                    line: error.line,
                    fault: error.kind.to_string(),
                };
                CommandError::new(kind, path.at)
            })?;
            for warning in &profile.warnings {
                means.warn(path, format!("{}: {warning}", path.value));
            }
            if let Some(set) = profile.rate {
                rate = set;
            }
            if rate.is_unlimited() {
                means.warn(
                    path,
                    "a profile has no effect on a link without `bw`".into(),
                );
            }
            profile_file = Some(Arc::new(ProfileFile {
                path: path.value.clone(),
                text,
            }));
            Some(Arc::new(profile))
        }
    };
    if c.burst.is_some_and(|burst| burst > 0) && rate.is_unlimited() {
        means.warn(
            &c.number,
            "`burst` has no effect on a link without `bw`".into(),
        );
    }
    Ok(LinkConfig {
        rate,
        delay: c.delay.unwrap_or(Span::ZERO),
        burst: c.burst.unwrap_or(0),
        profile,
        profile_file,
        effects: c.effects.clone(),
    })
}

/// Returns the queue settings of a command, with defaults for omitted ones.
pub(super) fn queue_settings(
    c: &Config,
    scheduler: u32,
    means: &mut Means<'_>,
) -> Result<FlowsetConfig, CommandError> {
    let queue = match &c.queue {
        None => QueueSize::Slots(DEFAULT_SLOTS),
        Some(size) => queue_size(size, means)?,
    };
    let policy = c.policy.as_ref().map(|p| p.value.clone());
    let aqm = match &c.policy {
        None => None,
        Some(policy) => Some(discipline::aqm_of(
            policy,
            &queue,
            means.variables,
            means.is_compat(),
        )?),
    };
    Ok(FlowsetConfig {
        queue,
        loss: c.loss,
        policy,
        aqm,
        ..FlowsetConfig::plain(scheduler)
    })
}

/// Applies dummynet's limits: those that its command enforces and those that its kernel applies
/// silently.
fn queue_size(size: &At<QueueSize>, means: &mut Means<'_>) -> Result<QueueSize, CommandError> {
    let refuse = |text| Err(CommandError::new(ErrorKind::Refused(text), size.at));
    let is_compat = means.is_compat();
    let limit = |name| means.variables.value(name);
    match size.value {
        QueueSize::Slots(n) if is_compat && n > limit("net.inet.ip.dummynet.pipe_slot_limit") => {
            refuse("2 <= queue size <= 100")
        }
        QueueSize::Bytes(n) if is_compat && n > limit("net.inet.ip.dummynet.pipe_byte_limit") => {
            refuse("queue size must be < 1048576B")
        }
        QueueSize::Slots(0) => {
            means.warn(
                size,
                format!("`queue 0` stands for the default: {DEFAULT_SLOTS} slots"),
            );
            Ok(QueueSize::Slots(DEFAULT_SLOTS))
        }
        QueueSize::Bytes(n) if n < 1500 => {
            means.warn(
                size,
                format!(
                    "a queue of {n} bytes cannot hold a packet of 1500: {DEFAULT_BYTES} bytes are used"
                ),
            );
            Ok(QueueSize::Bytes(DEFAULT_BYTES))
        }
        other => Ok(other),
    }
}

pub(super) fn scheduler_buckets(c: &Config, mask: &Mask, means: &Means<'_>) -> u32 {
    if mask.is_empty() {
        0
    } else {
        c.buckets.unwrap_or(means.hash_size())
    }
}

/// Returns the discipline that a command names, or else the current one, or else WF2Q+.
pub(super) fn scheduler_choice(
    words: Option<&At<SchedulerWords>>,
    old: Option<&Spec>,
    means: &mut Means<'_>,
) -> Result<Spec, CommandError> {
    let Some(words) = words else {
        return Ok(old
            .cloned()
            .unwrap_or_else(|| Spec::new(discipline::find("wf2q+"))));
    };
    let name = words.value.spec.algorithm.name;
    if !words.value.is_typed
        && let Some(old) = old
        && old.algorithm.name != name
    {
        let reason = format!(
            "the scheduler is of type {}: write `type {name}` to change it",
            old.algorithm.name
        );
        return Err(CommandError::new(
            kernel("Invalid argument", reason),
            words.at,
        ));
    }
    Ok(discipline::with_defaults(
        &words.value.spec,
        means.variables,
        means.is_compat(),
    ))
}
